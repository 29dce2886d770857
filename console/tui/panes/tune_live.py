"""What the model does now, and what was measured before and after a change (design 1.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from console.core import units
from console.core.histograms import quantile
from console.core.model import GpuState, ModelRow, Window
from console.core.text import one_line
from console.planning import batching_change as change
from console.tui.panes.base import Pane, View, age_line
from console.tui.panes.percentiles import worded
from console.tui.panes.tune_form import memory_of_one, values_of
from console.tui.panes.wording import not_read
from console.tui.widgets.cells import Line, cut, left, right
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current, Validated

LABEL, LEAST_SOURCE = 9, 7
LEAST_LIVE, LEAST_MEASURED = 7, 13
FIGURES = ("rate", "mean", "wait", "batch", "execs", "busy", "util")
BOTH = "both copies"
ON_CPU = "KIND_CPU"


@dataclass(frozen=True)
class Measured:
    """Two windows, or one: `before` is empty where a window was measured on its own."""

    wall: float
    origin: str
    """`by the change`, `by m, 10 s`."""
    after: Mapping[str, float]
    before: Mapping[str, float] = field(default_factory=dict)


def figures_of_window(window: Window, instances: int | None, util: float | None) -> dict[str, float]:
    """By the names of FIGURES; without what is not known."""
    busy = 100 * window.busy_seconds / (window.span * instances) if instances and window.span else None
    found = {
        "rate": window.rate,
        "mean": window.request_ms,
        "wait": window.queue_ms,
        "batch": window.mean_batch,
        "execs": window.executions / window.span if window.span else None,
        "busy": None if busy is None else min(100.0, busy),
        "util": util,
    }
    return {name: value for name, value in found.items() if value is not None}


def figures_of_outcome(figures: Mapping[str, float], when: str) -> dict[str, float]:
    """What `batching.set` measured: `when` is before or after."""
    names = {"rate": f"rate_{when}", "mean": f"mean_{when}_ms", "wait": f"wait_{when}_ms", "batch": f"batch_{when}"}
    return {name: figures[key] for name, key in names.items() if key in figures}


def mean_util(view: View, start_wall: float, end_wall: float) -> float | None:
    """Mean utilisation of the card in focus between two moments, as this console saw it; None where it saw none."""
    card = view.card
    if card is None or end_wall <= start_wall:
        return None
    end = view.mono - (view.wall - end_wall)
    found = view.history.values(f"gpu.{card.index}.util_pct", end, end_wall - start_wall)
    return sum(found) / len(found) if found else None


@dataclass(frozen=True)
class Peak:
    """The card while the change is made."""

    text: str
    source: str
    fits: bool | None
    """None = not known."""


def peak(
    row: ModelRow | None, card: GpuState | None, now: Current, found: Validated, typed: Mapping[str, str]
) -> Peak | None:
    """Most memory of the card during the change: both copies, or the added instances where it is made in place; None
    where no instance is on a card before or after."""
    new = change.wanted(now.settings, values_of(typed))
    if all(group.kind == ON_CPU for group in (*now.settings.instances, *new.instances)):
        return None
    one = memory_of_one(row)
    source = "added" if found.in_place else BOTH
    if card is None or card.memory_used is None or card.memory_total is None:
        return Peak("?", "no card told", None)
    if one is None:
        return Peak("? not known", source, None)
    copies = new.total_instances - (now.settings.total_instances if found.in_place else 0)
    most = card.memory_used + max(0.0, copies * one)
    fits = most <= card.memory_total
    of = f"≈ {units.gib(most)} of {units.gib(card.memory_total)}"
    return Peak(f"{of}, {'fits' if fits else 'may not fit'}", source, fits)


class TuneLive(Pane):
    """LIVE, MEASURED, SOURCE."""

    FIELDS = ("models", "gpu", "stats")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.row: ModelRow | None = None
        self.measured: Measured | None = None
        self.measuring: float | None = None
        """Share of the window that is over while `m` measures."""
        self.peak: Peak | None = None

    def title(self, view: View) -> Line:
        return (("Live, measured", "title"),)

    def note(self, view: View) -> Line:
        window = self.row.flow.w10 if self.row is not None and self.row.flow else None
        span = f"window {window.span:.0f} s  " if window is not None else ""
        return ((span, "dim"), *age_line(view.snapshot.stats, view.mono))

    def lines(self, view: View) -> list[Row]:
        if self.row is None:
            return not_read("statistics", (view.snapshot.stats,), view.width)
        sizes = _columns(view.width)
        live, measured, source = sizes
        head = left("", LABEL) + right("LIVE", live) + right("MEASURED", measured) + "  " + left("SOURCE", source)
        made = [Row(((head, "label"),))]
        window = self.row.flow.w10 if self.row.flow else None
        now = {} if window is None else figures_of_window(window, self.row.instances, _util(view))
        for name, words, source_words in ROWS:
            if name == "p99":
                tail, origin = _tail(self.row)
                made.append(_row(words, tail, self._told(name), origin, sizes))
            else:
                made.append(_row(words, _shown(name, now.get(name)), self._told(name), source_words, sizes))
        made += self._memory(view, sizes)
        return [*made, *self._footnotes(view)]

    def _memory(self, view: View, sizes: tuple[int, int, int]) -> list[Row]:
        assert self.row is not None
        groups = self.row.config.instance_groups if self.row.config is not None else ()
        on_cpu = bool(groups) and all(group.kind == ON_CPU for group in groups)
        none = on_cpu or self.row.ensemble
        memory = units.NONE if none else "?" if self.row.memory is None else units.gib(self.row.memory)
        told = one_line(self.row.memory_origin or "unseen", 20)
        origin = "on CPU" if on_cpu else "its steps" if self.row.ensemble else told
        made = [_row("VRAM GiB", memory, units.NONE, origin, sizes)]
        if self.peak is not None:
            style = {True: "", False: "warn", None: "unknown"}[self.peak.fits]
            room = sizes[0] + sizes[1]
            text = (left("  at peak", LABEL), "label"), (right(self.peak.text, room), style)
            made.append(Row((*text, (f"  {cut(self.peak.source, sizes[2])}", "dim"))))
        return made

    def _footnotes(self, view: View) -> list[Row]:
        if self.measuring is not None:
            return [Row(((f"measuring: {100 * self.measuring:.0f} %", "key"),))]
        if self.measured is None:
            return [Row((("m measures now; A measures before and after", "dim"),))]
        told = f"measured {view.clock(self.measured.wall)} {self.measured.origin}"
        return [Row(((told, "dim"),))]

    def _told(self, name: str) -> str:
        found = self.measured
        if found is None or name not in found.after:
            return units.NONE
        after = _shown(name, found.after[name])
        return f"{_shown(name, found.before[name])} → {after}" if name in found.before else after

    def changes(self) -> object:
        return (self.row, self.measured, self.measuring, self.peak)


ROWS = (
    ("mean", "mean ms", "server"),
    ("wait", "wait ms", "server"),
    ("p99", "p99 ms", ""),
    ("batch", "batch", "server"),
    ("rate", "req/s", "server"),
    ("execs", "execs/s", "server"),
    ("busy", "busy %", "server"),
    ("util", "util %", "NVML"),
)


def _columns(cells: int) -> tuple[int, int, int]:
    """Cells of LIVE, MEASURED and SOURCE."""
    rest = cells - LABEL - 2
    source = max(LEAST_SOURCE, min(14, rest - LEAST_LIVE - LEAST_MEASURED))
    live = max(LEAST_LIVE, min(20, (rest - source) * 2 // 5, rest - source - LEAST_MEASURED))
    return live, max(LEAST_MEASURED, min(24, rest - source - live)), source


def _row(label: str, live: str, measured: str, source: str, sizes: tuple[int, int, int]) -> Row:
    return Row(
        (
            (left(label, LABEL), "label"),
            (right(live, sizes[0]), "value"),
            (right(measured, sizes[1]), "value"),
            (f"  {left(source, sizes[2])}", "dim"),
        )
    )


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return units.NONE
    if name in ("mean", "wait", "p99"):
        return units.millis(value)
    if name in ("rate", "execs"):
        return units.rate(value)
    return units.one(value) if name == "batch" else units.whole(value)


def _util(view: View) -> float | None:
    return None if view.card is None else view.card.util_pct


def _tail(row: ModelRow) -> tuple[str, str]:
    """The 99th percentile and where it comes from; means never become percentiles."""
    metrics = row.metrics
    for one in metrics.request_summary if metrics is not None else ():
        if one.q == 0.99:
            return units.millis(one.ms), "summary, 60 s"
    found = quantile(metrics.first_response, 0.99) if metrics is not None and metrics.first_response else None
    return (worded(found), "histogram") if found is not None else (units.NONE, "none")
