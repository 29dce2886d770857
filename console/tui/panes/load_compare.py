"""Two kept runs side by side: figures, their distributions over each other, the configuration of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.core import units
from console.core.text import one_line
from console.tui.loads import own
from console.tui.panes.base import Pane, View
from console.tui.panes.load_distribution import Shape, band_rows, names_of
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut, left, right, width
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.loadgen.record import Comparison, Kept

LABEL, MOST_LABEL, COLUMN, CHANGE = 18, 34, 16, 12
LOOPS = "an open loop counts from the intended time, a closed one from sending: these latencies are not the same thing"
TOLD: Sequence[str] = ("engine", "model", "target", "load", "items", "inputs", "batching", "delay", "max batch",
                       "instances", "preferred")  # fmt: skip
"""Settings of a run, in the order of the list; others follow."""


class LoadCompare(Pane):
    """All of it, scrolled as one."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.pair: tuple[Kept, Kept] | None = None
        self.found: Comparison | None = None
        self.error = ""

    def title(self, view: View) -> Line:
        if self.pair is None:
            return (("Compare", "title"),)
        return ((f"Run {self.pair[0].id} and run {self.pair[1].id}", "title"),)

    def note(self, view: View) -> Line:
        return (("E", "key"), (" export", "dim"))

    def lines(self, view: View) -> list[Row]:
        if self.pair is None or self.found is None:
            told = self.error or "reckoning …"
            return [Row(((line, "fail" if self.error else "dim"),)) for line in wrapped(told, view.width, most=6)]
        first, second = self.pair
        heads = right(f"RUN {first.id}", COLUMN) + right(f"RUN {second.id}", COLUMN) + right("CHANGE", CHANGE)
        rows = figure_rows(self.found)
        label = max(LABEL, min(MOST_LABEL, view.width - width(heads), 2 + max(width(row[0]) for row in rows)))
        made = [Row(((" " * label + heads, "label"),))]
        for cells in rows:
            texts = (left(cells[0], label), right(cells[1], COLUMN), right(cells[2], COLUMN), right(cells[3], CHANGE))
            made.append(Row(((texts[0], "label"), (texts[1] + texts[2], "value"), (texts[3], ""))))
        for text in remarks(first, second):
            made += _warned(text, view.width)
        shares = self.found.shares
        if self.found.bounds_ms:
            made += [Row(()), Row((("DISTRIBUTION", "label"), (f"   █ run {first.id}   ▓ run {second.id}", "dim")))]
            shape = Shape("with", first.id, self.found.bounds_ms, shares[0], second.id, shares[1])
            made += band_rows(shape, view.width)
        made += [Row(()), Row((("CONFIGURATION", "label"), ("   ≠ differs", "dim")))]
        room = max(8, (view.width - LABEL - 2) // 2)
        for name, one, two in setting_rows(first, second):
            differs = one != two
            mark = ("≠ " if differs else "  ", "warn")
            cells_of = left(cut(one, room - 1), room) + cut(two, room)
            made.append(Row(((left(name, LABEL), "label"), mark, (cells_of, "value" if differs else "dim"))))
        return made

    def changes(self) -> object:
        return (self.pair, self.found, self.error)


def remarks(first: Kept, second: Kept) -> list[str]:
    """What has to be known before the figures are held against each other."""
    mine = [run for run in (own(first), own(second)) if run is not None]
    made = [f"run {run.id} is not valid: {run.not_valid}" for run in mine if run.not_valid]
    if len({run.load.loop for run in mine} | {"closed" for _ in range(2 - len(mine))}) > 1:
        made.append(LOOPS)
    if len(mine) < 2:
        made.append("another program's figures: only what both tell stands here, and it tells no distribution")
    return made


def _warned(text: str, cells: int) -> list[Row]:
    lines = wrapped(one_line(text, 400), cells - 2, most=3)
    return [Row((sign("warn") if not at else (" ", ""), (f" {line}", ""))) for at, line in enumerate(lines)]


def figure_rows(found: Comparison) -> list[tuple[str, str, str, str]]:
    """Name, both figures, relative change."""
    made = []
    for row in found.rows:
        change = units.NONE if row.change is None else f"{100 * row.change:+.1f} %"
        made.append((row.name, _figure(row.name, row.first), _figure(row.name, row.second), change))
    return made


def _figure(name: str, value: float | None) -> str:
    if name.endswith(("errors", "%", "MHz", "W")):
        return units.whole(value)
    if name.endswith("done/s"):
        return units.rate(value)
    return units.one(value) if name.endswith("batch") else units.millis(value)


def setting_rows(first: Kept, second: Kept) -> list[tuple[str, str, str]]:
    """Every setting that one of them was made with; `–` where a record does not hold it."""
    one, two = _settings(first), _settings(second)
    names = [*TOLD, *sorted({*one, *two} - set(TOLD))]
    return [
        (name, one.get(name, units.NONE), two.get(name, units.NONE)) for name in names if name in one or name in two
    ]


def _settings(kept: Kept) -> dict[str, str]:
    from console.loadgen.record import Foreign  # loaded with the runs

    run = own(kept)
    if run is None:
        assert isinstance(kept, Foreign)
        told = {"model": f"{kept.model} {kept.version}".strip(), "target": kept.target, "load": kept.load(),
                "items": str(kept.batch), "engine": kept.engine, "file": kept.file}  # fmt: skip
        return {name: one_line(text, 300) for name, text in told.items() if text}
    told = {
        "engine": "gpuconsole",
        "model": run.names if run.models or run.version else f"{run.model} any version",
        "target": run.target,
        "load": f"{run.load.words()}, {run.client.seconds:.0f} s",
        "items": str(run.batch),
        "inputs": run.inputs,
        **run.config,
    }
    return {name: one_line(text, 300) for name, text in told.items()}


def table(pair: tuple[Kept, Kept], found: Comparison) -> list[tuple[str, ...]]:
    """All of it as one table, for a file."""
    first, second = pair
    made: list[tuple[str, ...]] = [("", f"run {first.id}", f"run {second.id}", "change")]
    made += [(row.name, _plain(row.first), _plain(row.second), _plain(row.change)) for row in found.rows]
    for at, name in enumerate(names_of(found.bounds_ms)):
        made.append((f"share {name}", *(_plain(part[at]) if part else "" for part in found.shares), ""))
    made += [(name, one, two, "" if one == two else "differs") for name, one, two in setting_rows(first, second)]
    return [*made, *(("note", one_line(text, 400), "", "") for text in remarks(first, second))]


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
