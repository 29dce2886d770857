"""Dialog: a framed question over the screen. Its first lines and its last ones stay, what is between them scrolls.

It is deaf for half a second after it appears, so that a key meant for the screen below answers nothing; pasted text
reaches a field or nobody; `y` is never Yes. The focus is drawn with a sign too, for terminals without colour.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from console.core.text import literal
from console.tui.widgets.cells import Line, Segment, between, line_width, width
from console.tui.widgets.lines import LineView, Row

Answer = TypeVar("Answer")
DEAF_FOR = 0.5
"""Seconds after a dialog's appearing in which keys are dropped."""
MOST_FIELD, LEAST_FIELD = 40, 10
MOST_TYPED = 400
"""Characters that a field takes."""


@dataclass(frozen=True)
class Button:
    """A word to press. `off` says why it cannot be pressed; "" = it can."""

    name: str
    word: str
    off: str = ""


@dataclass
class Field:
    """One line of typed text, with what stands before it."""

    prompt: str
    text: str = ""
    room: int = LEAST_FIELD
    """Cells that are shown of it; the end is shown where it is longer."""


@dataclass(frozen=True)
class Content:
    """What a dialog shows: rows that stay, rows that scroll (one with a key can be chosen), rows above the buttons."""

    head: Sequence[Row] = ()
    body: Sequence[Row] = ()
    foot: Sequence[Row] = ()
    hint: str = ""
    """At the right of the buttons."""
    tail: Line = field(default=())
    """At the right of the upper edge."""


class DialogView(LineView, can_focus=False):
    """The dialog's frame and lines; the screen has the keys."""

    DEFAULT_CSS = "DialogView { width: auto; height: auto; }"

    def _edge_style(self) -> str:
        return "border-focus"


class Dialog(ModalScreen[Answer]):
    """Base of all dialogs. A subclass says what it shows (`content`, `buttons`) and what its keys mean."""

    HEADING: str = ""
    WIDTH: ClassVar[int] = 116
    """Cells at most, frame included."""
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; overflow: hidden; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._bindings.key_to_bindings.clear()
        self.field: Field | None = None
        self.focus_on: Hashable = "no"
        """Where the keys go: `field`, a button's name, or the key of a row."""
        self._deaf_until = float("inf")
        self._content = Content()
        self._room = (0, 0)
        self._drawn = DialogView(frame="box")

    # ------------------------------------------------------------------------------------------------ for subclasses

    def content(self, width: int) -> Content:
        """The lines for `width` cells."""
        raise NotImplementedError

    def buttons(self) -> tuple[Button, ...]:
        """From left to right; the first is No."""
        return (Button("no", "Close"),)

    def pressed(self, name: str) -> None:
        """`enter` on a button."""
        raise NotImplementedError

    def row_chosen(self, key: Hashable) -> None:
        """`enter` or `space` on a row."""

    def submitted(self, text: str) -> None:
        """`enter` in the field."""

    def letter(self, key: str) -> bool:
        """A key that the dialog itself does not use; True when it was used."""
        return False

    def copied(self) -> str:
        """What `y` copies; "" = nothing."""
        return ""

    def wide(self) -> int:
        """Cells that the dialog would like to take."""
        return self.WIDTH

    # ------------------------------------------------------------------------------------------------------- drawing

    def compose(self) -> ComposeResult:
        yield self._drawn

    def on_mount(self) -> None:
        self.redraw()
        self.call_after_refresh(self.appear)

    def appear(self) -> None:
        """Something to answer is on the screen from now on: be deaf until a person can have read it."""
        self._deaf_until = time.monotonic() + DEAF_FOR

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Show what `content` says now."""
        if not self.is_mounted:
            return
        room = self.app.size
        wide = min(self.wide(), room.width)
        inner = wide - 4
        self._content = now = self.content(inner)
        rows = [*now.head, *(self._marked(row) for row in now.body)]
        foot = [*now.foot, *(Row(line) for line in self._last_lines(now, inner))]
        high = min(len(rows) + len(foot) + 2, room.height)
        view = self._drawn
        if self._room != (wide, high):
            self._room = wide, high
            view.styles.width, view.styles.height = wide, high
        view.pinned = len(now.head)
        hidden = len(rows) + len(foot) + 2 > room.height
        more: Line = (("↑ ↓ for more", "dim"),) if hidden else ()
        view.set_rows(rows, head=((self.HEADING, "title"),), tail=now.tail or more, foot=foot)

    def _marked(self, row: Row) -> Row:
        line = row.line() if callable(row.line) else row.line
        if row.key is not None and row.key == self.focus_on:
            line = tuple((text, f"{style}+cursor") for text, style in line)
        return Row(line)

    def _last_lines(self, now: Content, inner: int) -> list[Line]:
        """The field and the buttons: on one line where they fit."""
        buttons: list[Segment] = []
        for button in self.buttons():
            here = button.name == self.focus_on
            mark = FOCUSED if here else " "
            style = "dim" if button.off else "value+cursor" if here else "value"
            buttons += [("   " if buttons else "", ""), (f"[{mark}{button.word} ]", style)]
        hint: Line = (("     " if now.hint else "", ""), (now.hint, "dim"))
        typed = self._field_line()
        whole: Line = (*buttons, *hint)
        if not typed:
            return [between((), whole, inner) if line_width(whole) <= inner else tuple(buttons)]
        if line_width(typed) + 2 + line_width(whole) <= inner:
            return [between(typed, whole, inner)]
        return [typed, between((), whole, inner) if line_width(whole) <= inner else tuple(buttons)]

    def _field_line(self) -> Line:
        if self.field is None:
            return ()
        here = self.focus_on == "field"
        shown = literal(self.field.text).replace("\n", " ")
        room = self.field.room
        while width(shown) > room - here:
            shown = shown[1:]
        shown += ("_" if here else "") + " " * (room - here - width(shown))
        edge, inside = ("key", "value+cursor") if here else ("", "dim")
        return ((f"{self.field.prompt}  ", ""), ("[", edge), (shown, inside), ("]", edge))

    # ---------------------------------------------------------------------------------------------------------- keys

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text is text for a field; elsewhere it would be keys that nobody pressed."""
        event.stop()
        if self.focus_on == "field" and self.field is not None and time.monotonic() >= self._deaf_until:
            first = event.text.splitlines()[0] if event.text.strip() else ""
            self._type(first.strip())

    def on_key(self, event: events.Key) -> None:
        """Every key ends here: nothing reaches the screen below."""
        event.stop()
        event.prevent_default()
        if time.monotonic() < self._deaf_until:
            return
        key = event.key
        if self.focus_on == "field" and self._key_of_field(key, event.character):
            return
        if key in _MOTIONS:
            self._move(key)
        elif key in ("enter", "space"):
            self._enter(key)
        elif key in ("escape", "n", "q", "ctrl+c", "ctrl+q"):
            self.refuse(key)
        elif key == "y":
            self._copy()
        elif key in _OF_THE_APP:
            self.of_the_app(_OF_THE_APP[key])
        else:
            self.letter(event.character or key)

    def of_the_app(self, command: str) -> None:
        """Run a command of the app that works over dialogs too, where the app knows commands."""
        run = getattr(self.app, "action_command", None)
        if run is not None:
            run(command)

    def refuse(self, key: str) -> None:
        """esc, n, q: as the first button."""
        self.pressed(self.buttons()[0].name)

    def _key_of_field(self, key: str, character: str | None) -> bool:
        assert self.field is not None
        if key == "backspace":
            self.field.text = self.field.text[:-1]
        elif key == "ctrl+u":
            self.field.text = ""
        elif key == "enter":
            self.submitted(self.field.text)
        elif character is not None and character.isprintable():
            self._type(character)
            return True
        else:
            return False
        self.typed()
        self.redraw()
        return True

    def _type(self, text: str) -> None:
        assert self.field is not None
        self.field.text = (self.field.text + text)[:MOST_TYPED]
        self.typed()
        self.redraw()

    def typed(self) -> None:
        """The field's text changed."""

    def _copy(self) -> None:
        text = self.copied()
        if text:
            self.app.copy_to_clipboard(text)
        lines = len(text.splitlines())
        told = f"copied {lines} line{'s' * (lines != 1)}" if text else "nothing to copy here"
        self.app.notify(told, timeout=3, markup=False)

    def _enter(self, key: str) -> None:
        """Space chooses a row and presses no button."""
        buttons = {button.name: button for button in self.buttons()}
        if self.focus_on in buttons:
            button = buttons[str(self.focus_on)]
            if key == "enter" and not button.off:
                self.pressed(button.name)
            return
        if any(row.key == self.focus_on for row in self._content.body if row.key is not None):
            self.row_chosen(self.focus_on)

    def _move(self, key: str) -> None:
        if key in ("tab", "shift+tab"):
            self._around(1 if key == "tab" else -1, self._stops())
        elif key in ("left", "right"):
            names = [button.name for button in self.buttons() if not button.off]
            self._around(1 if key == "right" else -1, names)
        elif key in ("up", "k", "down", "j"):
            self._row(1 if key in ("down", "j") else -1)
        else:
            self._page(key)

    def _stops(self) -> list[Hashable]:
        stops: list[Hashable] = ["field"] if self.field is not None else []
        stops += [button.name for button in self.buttons() if not button.off]
        return stops + [row.key for row in self._content.body if row.key is not None]

    def _around(self, step: int, stops: Sequence[Hashable]) -> None:
        if not stops:
            return
        at = stops.index(self.focus_on) if self.focus_on in stops else (-1 if step > 0 else 0)
        self.focus_on = stops[(at + step) % len(stops)]
        self._reveal()
        self.redraw()

    def _row(self, step: int) -> None:
        """To the next row that can be chosen, where it is in sight; else one line further."""
        body, view = self._content.body, self._drawn
        keyed = [number for number, row in enumerate(body) if row.key is not None]
        at = next((number for number in keyed if body[number].key == self.focus_on), None)
        first, last = view.top, view.top + view.room - 1
        if at is None or not first <= at <= last:
            at = first - 1 if step > 0 else last + 1
        further = [number for number in keyed if (number > at if step > 0 else number < at)]
        found = (further[0] if step > 0 else further[-1]) if further else None
        if found is not None and first <= found <= last:
            self.focus_on = body[found].key
            self.redraw()
            return
        view.scroll_rows(step)

    def _reveal(self) -> None:
        view = self._drawn
        for number, row in enumerate(self._content.body):
            if row.key is not None and row.key == self.focus_on:
                if number < view.top:
                    view.scroll_rows(number - view.top)
                elif number >= view.top + view.room:
                    view.scroll_rows(number - view.top - view.room + 1)

    def _page(self, key: str) -> None:
        pages = {"pageup": -1.0, "pagedown": 1.0, "ctrl+u": -0.5, "ctrl+d": 0.5}
        if key in pages:
            self._drawn.scroll_rows(int(pages[key] * max(1, self._drawn.room)))
        else:
            count = len(self._content.body)
            self._drawn.scroll_rows(-count if key in ("home", "g") else count)


FOCUSED = "▸"
_MOTIONS = frozenset(
    ("tab", "shift+tab", "left", "right", "up", "k", "down", "j", "pageup", "pagedown", "ctrl+u", "ctrl+d",
     "home", "end", "g", "G")
)  # fmt: skip
_OF_THE_APP = {"f5": "repaint", "ctrl+l": "repaint", "ctrl+s": "write", "ctrl+z": "suspend"}
"""Keys that work over a dialog too, and their commands."""
