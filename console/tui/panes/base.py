"""Pane: a framed slice of the Snapshot. A pane is one pure function, `lines(view) -> rows`, plus its title and age."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from console.core import units
from console.core.history import History
from console.core.model import GpuState, ModelKey, ModelRow, Reading, Snapshot
from console.tui.widgets.cells import Line, plain
from console.tui.widgets.lines import Frame, LineView, Row


@dataclass(frozen=True, slots=True)
class View:
    """What a pane may look at when it makes its lines: the Snapshot, the memory, the clock and the room it has."""

    snapshot: Snapshot
    history: History
    wall: float
    """Now, Unix seconds; for ages of things that happened at a time of day."""
    mono: float
    """Now, monotonic seconds; for ages of Readings."""
    width: int = 0
    """Cells inside the frame."""
    height: int = 0
    """Rows inside the frame."""
    utc: bool = False
    chosen: ModelKey | None = None
    """The model version that details and trends are about."""
    gpu: int = 0
    """Place of the card in focus in `snapshot.gpu.value.gpus`."""
    simulated: str | None = None
    """The scene of a simulated box."""
    compact: bool = False
    """True under 100 columns: short words, no frames."""

    @property
    def card(self) -> GpuState | None:
        """The card in focus; None when NVML told of none."""
        gpus = self.snapshot.gpu.value.gpus if self.snapshot.gpu.value else ()
        return gpus[min(self.gpu, len(gpus) - 1)] if gpus else None

    @property
    def model(self) -> ModelRow | None:
        """The chosen model version, or the one with most requests when none is chosen or the chosen one is gone."""
        by_key = {row.key: row for row in self.snapshot.models}
        if self.chosen in by_key:
            return by_key[self.chosen]
        return max(self.snapshot.models, key=_importance, default=None)

    def age(self, reading: Reading[Any]) -> str:
        """`1 s` or `–`."""
        return units.age(reading.age(self.mono))

    def edge(self, reading: Reading[Any]) -> float:
        """Right end of a chart of this reading: its newest sample, so that a column just begun is not blank. A source
        that is silent for longer leaves a gap that grows."""
        age = reading.age(self.mono)
        return self.mono if age is None else self.mono - min(age, 3.0)

    def since(self, wall: float | None) -> str:
        """Age of a moment: `24 m`."""
        return units.age(None if wall is None else self.wall - wall)

    def clock(self, wall: float | None) -> str:
        """Time of day in the zone that is chosen."""
        return units.clock(wall, utc=self.utc)


def _importance(row: ModelRow) -> tuple[bool, float, float]:
    window = row.flow.w10 if row.flow else None
    busy_ms = window.busy_seconds if window else 0.0
    return (not row.ensemble, busy_ms, window.rate if window else 0.0)


class Pane(LineView):
    """Base of all panes. A subclass names the Snapshot fields it shows and makes its lines from a View, purely."""

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """Fields of Snapshot that `lines` looks at; while all are the same objects nothing is made anew."""
    TICKS: ClassVar[bool] = True
    """False for a pane whose lines hold no age and no clock."""
    AGE: ClassVar[str] = ""
    """Field of Snapshot whose age stands in the title; "" = the pane has none."""
    PINNED: ClassVar[int] = 0
    """First lines (column heads) that do not scroll."""
    NUMBER: ClassVar[str] = ""
    """Digit of the screen that holds the details, shown as `[8]`."""

    def __init__(self, *, frame: Frame = "box", id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(frame=frame, id=id)
        self.pinned = self.PINNED
        self.view: View | None = None
        """What the lines on the screen were made from."""
        self.filter = ""
        """What the operator typed after `/`; a leading `!` turns it round."""
        self._seen: tuple[Any, ...] = ()

    # ------------------------------------------------------------------------------------------------ for subclasses

    def title(self, view: View) -> Line:
        """What the frame says at the left."""
        return ()

    def lines(self, view: View) -> list[Row]:
        """The content, from top to bottom. Pure: needs no app, no screen, no clock but the View's."""
        raise NotImplementedError

    def foot_lines(self, view: View) -> list[Line]:
        """Lines at the bottom of the pane that do not scroll."""
        return []

    def note(self, view: View) -> Line:
        """What the frame says at the right: the age and the number of the screen with the details."""
        number: Line = ((f"[{self.NUMBER}]", "key"),) if self.NUMBER else ()
        if not self.AGE:
            return number
        gap: Line = (("  " if self.frame == "box" else " ", ""),) if number else ()
        return (*age_line(getattr(view.snapshot, self.AGE), view.mono), *gap, *number)

    def shift_sort(self, steps: int) -> bool:
        """`<` and `>`: sort by another column, or show another span. False when this pane has neither."""
        return False

    def turn_sort(self) -> bool:
        """`i`: the other way round. False when this pane has no order of its own."""
        return False

    def next_view(self) -> bool:
        """`v`: the next way of showing this. False when there is only one."""
        return False

    def filterable(self) -> bool:
        """True when `/` makes sense here."""
        return False

    def mark(self) -> bool:
        """`space`: mark or fold the row under the cursor. False when that means nothing here."""
        return False

    def yank(self) -> str:
        """`y`: what the clipboard gets; by default the row under the cursor as it is read."""
        for row in self.rows:
            if row.key is not None and row.key == self.cursor:
                return plain(row.line() if callable(row.line) else row.line).strip()
        return ""

    def wanted(self, text: str) -> bool:
        """True when a row with this text passes the filter."""
        pattern = self.filter.removeprefix("!").casefold()
        if not pattern:
            return True
        return (pattern in text.casefold()) != self.filter.startswith("!")

    # ---------------------------------------------------------------------------------------------------- on a screen

    def show(self, view: View) -> None:
        """Show this View; made anew only when something that this pane looks at changed."""
        seen = (
            *(getattr(view.snapshot, name) for name in self.FIELDS),
            self.size,
            view.chosen,
            view.gpu,
            view.utc,
            view.compact,
            self.frame,
            self.filter,
            self.changes(),
        )
        same = len(seen) == len(self._seen) and all(a is b or a == b for a, b in zip(seen, self._seen, strict=True))
        self.view = view = self.fitted(view)
        if same and not self.TICKS:
            self.set_rows(self.rows, tail=self.note(view))
            return
        self._seen = seen
        foot = [Row(line) for line in self.foot_lines(view)]
        self.set_rows(self.lines(view), head=self.title(view), tail=self.note(view), foot=foot)

    def fitted(self, view: View) -> View:
        """The View with this pane's room in it."""
        width, height = self.inner
        if (view.width, view.height) == (width, height):
            return view
        return View(
            view.snapshot,
            view.history,
            view.wall,
            view.mono,
            width,
            height,
            view.utc,
            view.chosen,
            view.gpu,
            view.simulated,
            view.compact,
        )

    def changes(self) -> object:
        """State of the pane itself that its lines depend on (sort, filter, view)."""
        return None

    def again(self) -> None:
        """Make the lines anew from the last View (after a key changed how the pane shows them)."""
        if self.view is not None:
            self._seen = ()
            self.show(self.view)

    def on_resize(self) -> None:
        self.again()


def age_line(reading: Reading[Any], mono: float) -> Line:
    """`1 s`, `▲ 33 s old`, or nothing before the first read."""
    age = reading.age(mono)
    if age is None:
        return (("▲ no answer", "warn"),) if reading.error is not None else (("…", "dim"),)
    if reading.is_old(mono):
        return ((f"▲ {units.age(age)} old", "warn"),)
    return ((units.age(ceil(max(1.0, age))), "dim"),)
