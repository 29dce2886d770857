"""BoxScreen: the frame of every screen: header, tab line (not on the Overview), panes, footer or filter line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.geometry import Offset, Region, Size, Spacing
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.layouts.vertical import VerticalLayout
from textual.message import Message
from textual.reactive import var
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from console.core.model import Proposal, Snapshot, Verdict
from console.tui import commands
from console.tui.acting import FromThread
from console.tui.panes.base import Pane, View
from console.tui.panes.header import Status, check_counts, footer_line, header_line, tab_line
from console.tui.screens import SCREENS
from console.tui.widgets.cells import Line
from console.tui.widgets.lines import LineView, Row
from console.tui.widgets.spans import SpanCompositor

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

REPLAY_FOOTER: tuple[str | tuple[str, str], ...] = (
    ("mark", "play/hold"),
    ("replay.faster", "- speed"),
    ("replay.step", "( step"),
    ("timeline.event_before", "] event"),
    ("timeline.goto", "go to"),
    ("timeline.left", "→ cursor"),
    ("sort.left", "> span"),
    ("go.timeline", "Timeline jumps"),
    "why",
    "log",
    "filter",
    "palette",
    "help",
    "back",
)
"""Of every screen in a replay, as far as it is the screen's own."""
MIN_WIDTH, MIN_HEIGHT = 60, 15
TUNED = "batching.set"
"""The action that Tune is the form of."""
ROOMY_FROM = 30
"""Rows from which a screen may have more than one footer line."""
COMPACT_BELOW = 100
"""Columns under which panes have rules instead of frames and words are short."""
Places = dict[str, Region]
"""Pane id -> its region on the screen; a pane that is not in it is not shown."""


class Bar(LineView, can_focus=False):
    """A line without frame or cursor: header, tabs, footer, and the notice of a too small terminal."""

    def say(self, *lines: Line) -> None:
        """Show these lines."""
        self.set_rows([Row(line) for line in lines])


class FilterLine(Input):
    """What is typed after `/`. Takes the place of the footer while it is open."""

    DEFAULT_CSS = """
    FilterLine { border: none; height: 1; padding: 0; background: $surface; }
    FilterLine:focus { border: none; }
    """


class PaneLayout(Layout):
    """Puts each pane where its screen says, without containers: fewer widgets, so less to compose at each update."""

    name = "panes"

    def __init__(self) -> None:
        self._others = VerticalLayout()

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        if not isinstance(parent, BoxScreen):
            return self._others.arrange(parent, children, size, greedy)
        places = parent.regions(size)
        return [
            WidgetPlacement(places[child.id], Offset(0, 0), Spacing(), child)
            for child in children
            if child.id is not None and child.id in places
        ]


class BoxScreen(Screen[None]):
    """A screen over one box. A subclass makes its panes and says where they stand for a given room."""

    NAME: ClassVar[str] = ""
    FOOTER: ClassVar[tuple[str | tuple[str, str], ...]] = ()
    """Command IDs (or (ID, word)) for the footer, in order; later ones give way first unless FOOTER_RANKS says."""
    FOOTER_LAST: ClassVar[tuple[str, ...]] = ("palette", "help")
    """IDs that stay when the footer is too narrow."""
    FOOTERS: ClassVar[tuple[tuple[str, tuple[str | tuple[str, str], ...]], ...]] = ()
    """Footers in the place of FOOTER where there is room for several lines: (what it is about, IDs)."""
    AUTO_FOCUS = None
    snapshot: var[Snapshot] = var(Snapshot, init=False)

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SpanCompositor()
        self._layout = PaneLayout()
        self._bindings.key_to_bindings.clear()
        for binding in commands.bindings(self.NAME):
            self._bindings.key_to_bindings.setdefault(binding.key, []).append(binding)
        self.panes: dict[str, Pane] = {}
        self.maximised: str | None = None
        """Id of the pane that has the whole body."""
        self.ready = False
        """True when the bars and panes are there."""
        self._placed: Places = {}
        self._small = True
        self._filtered: Pane | None = None
        self._post: Callable[[Message], object] = lambda message: None

    # ------------------------------------------------------------------------------------------------ for subclasses

    def make_panes(self) -> Iterable[Pane]:
        """The panes, each with an id, in the order of tab. The first gets the keys."""
        raise NotImplementedError

    def place(self, body: Region) -> Places:
        """Where each pane stands in `body` (the screen without header, tabs and footer)."""
        raise NotImplementedError

    def open_chosen(self) -> None:
        """`enter`: open what is under the cursor of the focused pane; by default the screen its title names."""
        pane = self.app_.pane
        if pane is not None and pane.NUMBER:
            self.app_.go_digit(pane.NUMBER)

    def chosen_change(self) -> str | None:
        """Id of the change (audit) under the cursor; None where this screen has none."""
        return None

    def verdict(self) -> Verdict | None:
        """The verdict under the cursor; None where this screen shows none."""
        return None

    def proposal(self) -> Proposal | None:
        """What of the verdict's proposals Tune would do: the first; None where there is none."""
        verdict = self.verdict()
        found = verdict.proposals if verdict is not None else ()
        return next((one for one in found if one.action == TUNED), None)

    def undo(self) -> None:
        """`u`: plan to take back the change under the cursor, else my newest one."""
        self.app_.acting.undo(self.chosen_change())

    def adapt(self, view: View) -> None:
        """Called before panes are shown: set frames, heights and what else depends on the View."""

    # ------------------------------------------------------------------------------------------------------- widgets

    @property
    def app_(self) -> ConsoleApp:
        """The app, with its type."""
        return cast("ConsoleApp", self.app)

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def compact(self) -> bool:
        """True where the short forms are shown: few columns."""
        return self.size.width < COMPACT_BELOW

    @property
    def has_tabs(self) -> bool:
        """The Overview has no tab line."""
        return self.NAME != "overview"

    def later(self, call: Callable[[], None]) -> None:
        """From a thread: have it done in the UI thread. A thread may outlive the app, and finds none then."""
        self._post(FromThread(call))

    def compose(self) -> ComposeResult:
        self._post = self.app_.post_message
        yield Bar(id="header")
        yield Bar(id="tabs")
        for pane in self.make_panes():
            self.panes[pane.id or ""] = pane
            yield pane
        yield Bar(id="footer")
        yield FilterLine(id="filter", placeholder="filter; ! first turns it round; esc clears")
        yield Bar(id="small")

    def on_mount(self) -> None:
        self.ready = True
        self.query_one(FilterLine).cursor_blink = False
        first = next(iter(self.panes.values()), None)
        if first is not None:
            self.set_focus(first)

    def on_resize(self) -> None:
        self.call_after_refresh(self.app_.refresh_now)

    def on_screen_resume(self) -> None:
        self.call_later(self._show_at_once)

    def _show_at_once(self) -> None:
        """Fill what has just been laid out and draw it, without waiting for Textual's next frame."""
        self.app_.refresh_now()
        self._on_timer_update()

    def bar(self, name: str) -> Bar:
        """The header, tabs, footer or small bar."""
        return self.query_one(f"#{name}", Bar)

    # ----------------------------------------------------------------------------------------------------- placing

    def regions(self, size: Size) -> Places:
        """Where everything stands for a terminal of this size; nothing but a notice where it is too small."""
        width, height = size
        self._small = width < MIN_WIDTH or height < MIN_HEIGHT
        if self._small:
            self._placed = {}
            return {"small": Region(0, 0, width, height)}
        body = self.body_of(size)
        places = self.place(body) if self.maximised is None else {self.maximised: body}
        self._placed = {name: region for name, region in places.items() if region.area}
        bars = {"header": Region(0, 0, width, 1)}
        if self.has_tabs:
            bars["tabs"] = Region(0, 1, width, 1)
        if self._filtered is None:
            lines = self._footer_lines(size)
            bars["footer"] = Region(0, height - lines, width, lines)
        else:
            bars["filter"] = Region(0, height - 1, width, 1)
        return {**bars, **self._placed}

    def body_of(self, size: Size) -> Region:
        """The screen without header, tabs and footer."""
        top = 1 + self.has_tabs
        return Region(0, top, size.width, max(0, size.height - top - self._footer_lines(size)))

    def _footer_lines(self, size: Size) -> int:
        return len(self.FOOTERS) if self.FOOTERS and size.width >= COMPACT_BELOW and size.height >= ROOMY_FROM else 1

    @property
    def body(self) -> Region:
        """As `body_of`, for the present size."""
        return self.body_of(self.size)

    def relayout(self) -> None:
        """Ask for a new arrangement (a pane was maximised, heights changed)."""
        self._clear_arrangement_cache()
        self.refresh(layout=True, repaint=False)

    def toggle_maximised(self, pane: Pane) -> None:
        """`M`: this pane over the whole body; again: back."""
        self.maximised = None if self.maximised is not None else pane.id
        self.relayout()

    # ------------------------------------------------------------------------------------------------------- showing

    def show(self, snapshot: Snapshot, view: View, status: Status) -> None:
        """Show this moment: `view` for the panes (held while paused), `snapshot` and `status` for the header."""
        self.snapshot = snapshot
        self.adapt(view)
        width = self.size.width
        if self._small:
            told = ("too small,", f"need {MIN_WIDTH}x{MIN_HEIGHT}")
            lines = (" ".join(told),) if width > sum(map(len, told)) else told
            self.bar("small").say(*(((line, "warn"),) for line in lines))
            return
        header_view = View(
            snapshot, view.history, status_wall(view, status), view.mono, utc=view.utc, simulated=view.simulated
        )
        self.bar("header").say(header_line(header_view, status, width))
        if self.has_tabs:
            beside = {"checks": check_counts(snapshot, self.compact)}
            tabs = [
                (entry.name, entry.digit, entry.title + beside.get(entry.name, "")) for entry in SCREENS if entry.digit
            ]
            self.bar("tabs").say(tab_line(tabs, self.NAME, self.compact))
        self.bar("footer").say(*self._footers(width))
        for name in self._placed:
            self.panes[name].show(view)

    def footer(self) -> Sequence[tuple[str, str, int]]:
        """(keys, word, rank) of the commands that work here."""
        return [*self._screens(), *self._parts(self.FOOTER)]

    @staticmethod
    def _screens() -> list[tuple[str, str, int]]:
        digits = "".join(entry.digit for entry in SCREENS)
        return [(_digits(digits), "screens", 0)] if len(digits) > 1 else []

    def _footers(self, width: int) -> list[Line]:
        """The footer's lines; keys that change the box are grey while nothing can be changed."""
        if self.app_.playback is not None:
            return [footer_line([*self._screens(), *self._parts(REPLAY_FOOTER)], width)]
        grey = self._grey()
        if self._footer_lines(self.size) == 1:
            return [footer_line(self.footer(), width, grey)]
        return [footer_line(self._parts(wanted), width, grey, start) for start, wanted in self.FOOTERS]

    def _grey(self) -> set[str]:
        if self.app_.acting.why_off() is None:
            return set()
        here = (*commands.in_scope(self.NAME), *commands.in_scope(commands.EVERYWHERE))
        return {commands.shown(one.KEYS[0]) for one in here if one.KIND in ("form", "plan") and one.ID != "interrupt"}

    def _parts(self, wanted_ids: Iterable[str | tuple[str, str]]) -> list[tuple[str, str, int]]:
        parts: list[tuple[str, str, int]] = []
        for rank, wanted in enumerate(wanted_ids, start=1):
            name, word = wanted if isinstance(wanted, tuple) else (wanted, "")
            command = commands.COMMANDS.get(name)
            if command is None or command.SCOPE not in (commands.EVERYWHERE, self.NAME):
                continue
            keys = commands.shown(command.KEYS[0])
            parts.append((keys, word or command.LABEL, 0 if name in self.FOOTER_LAST else rank))
        return parts

    # ------------------------------------------------------------------------------------------------- focus, filter

    @property
    def focused_pane(self) -> Pane | None:
        """The pane that has the keys (also while its filter is typed)."""
        if self._filtered is not None:
            return self._filtered
        return self.focused if isinstance(self.focused, Pane) else None

    def focus_pane(self, step: int) -> None:
        """`tab`: the next pane that is shown."""
        shown = [pane for name, pane in self.panes.items() if name in self._placed]
        if not shown:
            return
        at = shown.index(self.focused) if self.focused in shown else -step
        pane = shown[(at + step) % len(shown)]
        if self.maximised is not None:
            return
        self.set_focus(pane, scroll_visible=False)

    def open_filter(self, pane: Pane) -> None:
        """`/`: type a filter for this pane in the footer's place."""
        self._filtered = pane
        field = self.query_one(FilterLine)
        field.value = pane.filter
        self.relayout()
        self.set_focus(field, scroll_visible=False)

    def _close_filter(self) -> None:
        pane, self._filtered = self._filtered, None
        self.relayout()
        self.set_focus(pane, scroll_visible=False)

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        if self._filtered is not None:
            self._filtered.filter = event.value
            self._filtered.again()

    @on(Input.Submitted, "#filter")
    def _filter_entered(self) -> None:
        self._close_filter()

    def step_out(self) -> bool:
        """`esc`: close the filter field, clear the filter, or leave the maximised pane. False when there is nothing."""
        pane = self.focused_pane
        if self._filtered is not None or (pane is not None and pane.filter):
            if pane is not None:
                pane.filter = ""
                pane.again()
            if self._filtered is not None:
                self._close_filter()
            return True
        if self.maximised is not None:
            self.maximised = None
            self.relayout()
            return True
        return False


def status_wall(view: View, status: Status) -> float:
    """The header's clock goes on while the panes are held."""
    return view.wall if status.wall is None else status.wall


def _digits(digits: str) -> str:
    """`1-8` for a run, `1 2 5` else."""
    run = "".join(str(number) for number in range(int(digits[0]), int(digits[-1]) + 1))
    return f"{digits[0]}-{digits[-1]}" if digits == run and len(digits) > 2 else " ".join(digits)
