"""A command is a class: its docstring is the help, its KEYS the bindings. Footer, help, palette, key bindings and the
conformance test against the key table are all made from the classes here, so they cannot disagree.

A screen's own commands stand in that screen's file, with SCOPE = the screen's name; defining the class registers it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import Binding

from console.clients.files import write_private
from console.tui.screens import SCREENS, Entry

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp
    from console.tui.panes.base import Pane

EVERYWHERE = "everywhere"
Kind = Literal["look", "safe", "form", "plan"]
"""look = no effect on the box; safe = an effect, without asking; form = fields to fill in, then a plan; plan = a plan
first, and nothing is sent before its Yes."""

_SHOWN = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "comma": ",",
    "full_stop": ".",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "equals_sign": "=",
    "at": "@",
    "plus": "+",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "minus": "-",
    "exclamation_mark": "!",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "f1": "F1",
    "f5": "F5",
}
COMMANDS: dict[str, type[Command]] = {}
"""All commands by ID, in the order of their definition."""


Listed = tuple[str, "type[Command]", str | None]
"""(scope in words, command, why it is off or None): a row of the help screen."""


def shown(key: str) -> str:
    """A Textual key name as people write it: `?`, `esc`, `ctrl+x`."""
    return _SHOWN.get(key, key)


class Command:
    """Base of all commands; a subclass with an ID is registered."""

    ID: ClassVar[str] = ""
    KEYS: ClassVar[tuple[str, ...]] = ()
    """Textual key names."""
    LABEL: ClassVar[str] = ""
    """One or two words for footer and palette."""
    SCOPE: ClassVar[str] = EVERYWHERE
    """`everywhere` or the NAME of a screen."""
    KIND: ClassVar[Kind] = "look"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.ID:
            if cls.ID in COMMANDS:
                raise ValueError(f"two commands are called {cls.ID}")
            COMMANDS[cls.ID] = cls

    @classmethod
    def help(cls) -> str:
        """One sentence: the docstring's first line."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    def why_off(self, app: ConsoleApp) -> str | None:
        """Why this does not work here and now; None when it does."""
        return None

    def run(self, app: ConsoleApp) -> None:
        """Do it; called in the UI thread, so it must not block."""
        raise NotImplementedError


def in_scope(scope: str) -> Iterator[type[Command]]:
    """The commands of one scope."""
    return (command for command in COMMANDS.values() if scope == command.SCOPE)


def bindings(scope: str) -> list[Binding]:
    """Textual bindings of one scope."""
    return [
        Binding(key, f"app.command('{command.ID}')", command.LABEL, show=False, priority=key in _PRIORITY)
        for command in in_scope(scope)
        for key in command.KEYS
    ]


_PRIORITY = frozenset({"ctrl+q", "ctrl+c", "ctrl+z", "ctrl+p", "ctrl+x"})
"""Keys that work while a field has the keyboard, too."""


class PaneCommand(Command):
    """Works on the pane that has the keys."""

    def why_off(self, app: ConsoleApp) -> str | None:
        return "no pane has the keys: press tab" if app.pane is None else None

    def run(self, app: ConsoleApp) -> None:
        if app.pane is not None:
            self.on_pane(app.pane, app)

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        """Do it to this pane."""
        raise NotImplementedError


class NextPane(Command):
    """Next pane."""

    ID, KEYS, LABEL = "pane.next", ("tab",), "pane"

    def run(self, app: ConsoleApp) -> None:
        app.box.focus_pane(1)


class PreviousPane(Command):
    """Previous pane."""

    ID, KEYS, LABEL = "pane.previous", ("shift+tab",), "pane before"

    def run(self, app: ConsoleApp) -> None:
        app.box.focus_pane(-1)


class Up(PaneCommand):
    """One row up."""

    ID, KEYS, LABEL = "move.up", ("up", "k"), "up"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move(-1)


class Down(PaneCommand):
    """One row down."""

    ID, KEYS, LABEL = "move.down", ("down", "j"), "down"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move(1)


class PageUp(PaneCommand):
    """One page up."""

    ID, KEYS, LABEL = "move.page_up", ("pageup",), "page up"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_pages(-1)


class PageDown(PaneCommand):
    """One page down."""

    ID, KEYS, LABEL = "move.page_down", ("pagedown",), "page down"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_pages(1)


class HalfUp(PaneCommand):
    """Half a page up."""

    ID, KEYS, LABEL = "move.half_up", ("ctrl+u",), "half a page up"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_pages(-0.5)


class HalfDown(PaneCommand):
    """Half a page down."""

    ID, KEYS, LABEL = "move.half_down", ("ctrl+d",), "half a page down"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_pages(0.5)


class First(PaneCommand):
    """To the first row."""

    ID, KEYS, LABEL = "move.first", ("home", "g"), "first"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_end(down=False)


class Last(PaneCommand):
    """To the last row."""

    ID, KEYS, LABEL = "move.last", ("end", "G"), "last"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        pane.move_end(down=True)


class Open(Command):
    """Open what is under the cursor."""

    ID, KEYS, LABEL = "open", ("enter",), "open"

    def run(self, app: ConsoleApp) -> None:
        app.box.open_chosen()


class Escape(Command):
    """Close, clear the filter, leave the field, then back."""

    ID, KEYS, LABEL = "escape", ("escape",), "back"

    def run(self, app: ConsoleApp) -> None:
        if not app.box.step_out():
            app.back(quit_on_overview=False)


class Help(Command):
    """Keys that work here, and why the grey ones do not."""

    ID, KEYS, LABEL = "help", ("question_mark", "h", "f1"), "help"

    def run(self, app: ConsoleApp) -> None:
        scopes = ((f"this screen: {app.box.NAME}", app.box.NAME), ("everywhere", EVERYWHERE))
        app.help_listed = tuple(
            (title, command, command().why_off(app)) for title, scope in scopes for command in in_scope(scope)
        )
        app.go("help")


class Palette(Command):
    """Command palette: every act by name; also theme, goto and mouse."""

    ID, KEYS, LABEL = "palette", ("colon", "ctrl+p"), "command"

    def run(self, app: ConsoleApp) -> None:
        app.action_command_palette()


class Filter(PaneCommand):
    """Filter this pane; ! first turns it round; esc clears."""

    ID, KEYS, LABEL = "filter", ("slash",), "filter"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if app.pane is not None and app.pane.filterable() else "this pane has nothing to filter"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.box.open_filter(pane)


class SortLeft(PaneCommand):
    """Sort by the column before; in a log or a chart: a shorter span."""

    ID, KEYS, LABEL = "sort.left", ("less_than_sign",), "sort column"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.tell_if_not(pane.shift_sort(-1), "this pane has no columns to sort and no span")


class SortRight(PaneCommand):
    """Sort by the next column; in a log or a chart: a longer span."""

    ID, KEYS, LABEL = "sort.right", ("greater_than_sign",), "sort column"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.tell_if_not(pane.shift_sort(1), "this pane has no columns to sort and no span")


class SortTurn(PaneCommand):
    """Turn the sort round."""

    ID, KEYS, LABEL = "sort.turn", ("i",), "turn round"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.tell_if_not(pane.turn_sort(), "this pane has no order to turn round")


class NextView(PaneCommand):
    """Next view of this pane."""

    ID, KEYS, LABEL = "view.next", ("v",), "view"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.tell_if_not(pane.next_view(), "this pane has one view only")


class Maximise(PaneCommand):
    """This pane over the whole screen; again: back."""

    ID, KEYS, LABEL = "maximise", ("M",), "widen"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        app.box.toggle_maximised(pane)


class OtherGpu(Command):
    """Base of the two commands that choose a card."""

    STEPS: ClassVar[int] = 1

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if _cards(app) > 1 else "this box has one GPU at most"

    def run(self, app: ConsoleApp) -> None:
        app.gpu = (app.gpu + self.STEPS) % _cards(app)
        app.refresh_now()


def _cards(app: ConsoleApp) -> int:
    box = app.box.snapshot.gpu.value
    return len(box.gpus) if box else 0


class GpuBefore(OtherGpu):
    """The GPU before this one."""

    ID, KEYS, LABEL, STEPS = "gpu.before", ("comma",), "GPU before", -1


class GpuNext(OtherGpu):
    """The next GPU."""

    ID, KEYS, LABEL = "gpu.next", ("full_stop",), "next GPU"


class ToggleZone(Command):
    """Local time, UTC."""

    ID, KEYS, LABEL = "zone", ("z",), "local time, UTC"

    def run(self, app: ConsoleApp) -> None:
        app.utc = not app.utc
        app.refresh_now()


class Hold(Command):
    """Hold the screen (measuring goes on); again: go on."""

    ID, KEYS, LABEL = "hold", ("p",), "hold"

    def run(self, app: ConsoleApp) -> None:
        app.toggle_hold()


class Mark(PaneCommand):
    """Mark or fold the row; in a replay play, hold."""

    ID, KEYS, LABEL = "mark", ("space",), "mark"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        if app.playback is not None:
            app.playback.toggle()
            app.refresh_now()
            return
        app.tell_if_not(pane.mark(), "nothing to mark or fold here")


class Copy(PaneCommand):
    """Copy the line, name or command under the cursor (OSC 52)."""

    ID, KEYS, LABEL = "copy", ("y",), "copy"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        text = pane.yank()
        if text:
            app.copy_to_clipboard(text)
        app.tell(f"copied {len(text)} characters" if text else "nothing to copy here")


class WriteScreen(Command):
    """Write the screen to a file (text and SVG)."""

    ID, KEYS, LABEL = "write", ("ctrl+s",), "write screen"

    def run(self, app: ConsoleApp) -> None:
        stem = app.state.folder / "screens" / f"{app.box.NAME}-{time.strftime('%Y%m%d-%H%M%S')}"
        text = "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
        try:
            write_private(stem.with_suffix(".txt"), text + "\n")
            write_private(stem.with_suffix(".svg"), app.export_screenshot(title="gpuconsole"))
        except OSError as error:
            app.tell(f"the screen could not be written to {stem.parent}: {error.strerror}")
            return
        app.tell(f"written to {stem}.txt and .svg")


class Repaint(Command):
    """Paint anew."""

    ID, KEYS, LABEL = "repaint", ("f5", "ctrl+l"), "paint anew"

    def run(self, app: ConsoleApp) -> None:
        app.screen.refresh(layout=True)


class Suspend(Command):
    """Suspend; `fg` comes back."""

    ID, KEYS, LABEL = "suspend", ("ctrl+z",), "suspend"

    def why_off(self, app: ConsoleApp) -> str | None:
        return "a load runs, and nobody would watch it: ctrl+x stops it" if app.loads.current is not None else None

    def run(self, app: ConsoleApp) -> None:
        app.action_suspend_process()


class Back(Command):
    """Back; on Overview quit."""

    ID, KEYS, LABEL = "back", ("q", "ctrl+q"), "quit"

    def run(self, app: ConsoleApp) -> None:
        app.back(quit_on_overview=True)


def _go_command(one: Entry) -> type[Command]:
    """The command that opens a screen by its digit."""

    class Go(Command):
        ID, KEYS, LABEL = f"go.{one.name}", (one.digit,), one.title

        def run(self, app: ConsoleApp) -> None:
            app.go(one.name)

    Go.__doc__ = f"Screen {one.digit}: {one.title}."
    return Go


for _entry in SCREENS:
    if _entry.digit:
        _go_command(_entry)
