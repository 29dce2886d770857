"""The distribution of one run's latencies: linear, by a 1-2-5 scale, or with another run beside it (design 1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from console.tui.panes.base import Pane, View
from console.tui.panes.wording import wrapped
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import nice_top

if TYPE_CHECKING:
    from console.loadgen.record import Run

Kind = Literal["linear", "log", "with"]
KINDS: tuple[Kind, ...] = ("linear", "log", "with")
SCALE = tuple(base * 10.0**power for power in range(-3, 7) for base in (1, 2, 5))
"""ms."""
MOST_LOG = 8
NAME, SHARE = 18, 9
EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Shape:
    """Shares of one run's latencies, or of two."""

    kind: Kind
    first: int
    """Number of the run."""
    bounds_ms: tuple[float, ...]
    shares: tuple[float, ...]
    second: int = 0
    second_shares: tuple[float, ...] = ()
    error: str = ""


def bounds(run: Run, kind: Kind) -> tuple[float, ...]:
    """Upper ends of the bands; what is above the last is a band too."""
    at = run.client.latency
    high, low = at.p99_9 or at.max or 1.0, (at.p50 or 1.0) / 4
    if kind == "linear":
        top = nice_top(high)
        count = 4 if f"{top:e}"[0] in "24" else 5
        return tuple(top / count * number for number in range(1, count + 1))
    first = max((number for number, bound in enumerate(SCALE) if bound <= low), default=0)
    last = min((number for number, bound in enumerate(SCALE) if bound >= high), default=len(SCALE) - 1)
    return SCALE[max(first, last - MOST_LOG + 1) : max(last, first) + 1]


class LoadDistribution(Pane):
    """Bands with bars."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.kind: Kind = "linear"
        self.shape: Shape | None = None
        self.told = ""
        """What stands here without a shape."""
        self.other: int | None = None
        """Number of the run that can be laid beside it."""

    def title(self, view: View) -> Line:
        shape = self.shape
        if shape is None:
            return (("Distribution", "title"),)
        beside = f" (█) and run {shape.second} (▓)" if shape.second else ""
        return (("Distribution", "title"), (f"   run {shape.first or '(not kept)'}{beside}", ""))

    def note(self, view: View) -> Line:
        names = {
            "linear": "linear",
            "log": "log",
            "with": f"with run {self.other}" if self.other else "with another run",
        }
        made: list[tuple[str, str]] = [("v", "key"), (": ", "dim")]
        for at, (kind, word) in enumerate(names.items()):
            made += [(", ", "dim")] if at else []
            made.append((word, "title" if kind == self.kind else "dim"))
        return tuple(made)

    def next_view(self) -> bool:
        at = KINDS.index(self.kind) + 1
        self.kind = KINDS[at % len(KINDS)]
        if self.kind == "with" and self.other is None:
            self.kind = "linear"
        return True

    def lines(self, view: View) -> list[Row]:
        shape = self.shape
        if shape is None or shape.error:
            told = shape.error if shape is not None else self.told
            return [Row(((line, "dim"),)) for line in wrapped(told, view.width, most=4)]
        return band_rows(shape, view.width)

    def changes(self) -> object:
        return (self.kind, self.shape, self.told, self.other)


def band_rows(shape: Shape, cells: int) -> list[Row]:
    """One row for each band, two where two runs are laid over each other; the widest band has the whole room."""
    most = max((*shape.shares, *shape.second_shares), default=0.0)
    if not shape.shares or not most:
        return [Row((("no request of this run was answered", "dim"),))]
    room = cells - NAME - SHARE - 2
    made = []
    for at, name in enumerate(names_of(shape.bounds_ms)):
        made.append(_band(name, shape.shares[at], most, room, "█"))
        if shape.second_shares:
            made.append(_band("", shape.second_shares[at], most, room, "▓"))
    return made


def _band(name: str, share: float, most: float, room: int, char: str) -> Row:
    return Row(
        (
            (left(name, NAME), "label"),
            (right(f"{100 * share:.1f} %", SHARE), "value"),
            (f"  {bar(share / most, room, char)}", "" if char == "█" else "note"),
        )
    )


def bar(share: float, room: int, char: str) -> str:
    """A bar to an eighth of a cell (of `▓` to a whole one); any share above 0 is seen."""
    exact = max(0.0, share) * max(0, room)
    whole = int(exact)
    if char != "█":
        return char * (whole or (share > 0))
    part = int((exact - whole) * 8)
    return char * whole + (EIGHTHS[part] if part else "▏" if not whole and share > 0 else "")


def names_of(bounds_ms: Sequence[float]) -> list[str]:
    """`0–1 ms`, `1–2 ms`, `2 ms and more`."""
    made, lower = [], 0.0
    for bound in bounds_ms:
        made.append(f"{lower:.4g}–{bound:.4g} ms")
        lower = bound
    return [*made, f"{lower:.4g} ms and more"]
