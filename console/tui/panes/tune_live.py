"""What the model does now, and what was measured before and after a change (design 1.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from console.core import units
from console.core.histograms import quantile
from console.core.model import GpuState, ModelRow, Sign, Window
from console.core.text import one_line
from console.planning import batching_change as change
from console.tui.panes.base import Pane, View, age_line
from console.tui.panes.percentiles import worded
from console.tui.panes.tune_form import memory_of_one, values_of
from console.tui.panes.wording import not_read, sign, wrapped
from console.tui.widgets.cells import Line, cut, left, right
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current, Validated
    from console.planning.predicted import Prediction

LABEL, LIVE, PREDICTED, MEASURED, SOURCE = 9, 8, 13, 15, 14
LEAST_LIVE, LEAST_PREDICTED, LEAST_MEASURED, LEAST_SOURCE = 7, 12, 13, 8
TRUST_SIGNS: Mapping[str, Sign] = {"good": "ok", "fair": "warn", "poor": "fail"}
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
    names = {
        "rate": f"rate_{when}",
        "mean": f"mean_{when}_ms",
        "wait": f"wait_{when}_ms",
        "batch": f"batch_{when}",
        "execs": f"execs_{when}",
        "margin": f"margin_{when}_ms",
    }
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


@dataclass(frozen=True)
class Predicted:
    """What prediction says of the form's settings, or why it says nothing."""

    told: Prediction | None = None
    why: str = ""
    pending: bool = False


class TuneLive(Pane):
    """LIVE, PREDICTED, MEASURED, SOURCE."""

    FIELDS = ("models", "gpu", "stats")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.row: ModelRow | None = None
        self.measured: Measured | None = None
        self.measuring: float | None = None
        """Share of the window that is over while `m` measures."""
        self.peak: Peak | None = None
        self.predicted = Predicted()

    def title(self, view: View) -> Line:
        return (("Live, predicted, measured", "title"),)

    def note(self, view: View) -> Line:
        window = self.row.flow.w10 if self.row is not None and self.row.flow else None
        span = f"window {window.span:.0f} s  " if window is not None else ""
        return ((span, "dim"), *age_line(view.snapshot.stats, view.mono))

    def lines(self, view: View) -> list[Row]:
        if self.row is None:
            return not_read("statistics", (view.snapshot.stats,), view.width)
        sizes = _columns(view.width)
        live, predicted, measured, source = sizes
        head = left("", LABEL) + right("LIVE", live) + right("PREDICTED", predicted) + right("MEASURED", measured)
        head += f"  {left('SOURCE', source)}" if source else ""
        made = [Row(((head, "label"),))]
        window = self.row.flow.w10 if self.row.flow else None
        now = {} if window is None else figures_of_window(window, self.row.instances, _util(view))
        for name, words, source_words in ROWS:
            if name == "p99":
                tail, origin = _tail(self.row)
                made.append(_row(words, tail, self._forecast(name), self._told(name), origin, sizes))
            else:
                shown = _shown(name, now.get(name))
                made.append(_row(words, shown, self._forecast(name), self._told(name), source_words, sizes))
        made += self._memory(view, sizes)
        return [*made, *self._footnotes(view)]

    def _forecast(self, name: str) -> str:
        """`1.84 ±0.1`; `–` where nothing is predicted."""
        told = self.predicted.told
        if told is None:
            return "…" if self.predicted.pending else units.NONE
        if name == "util":
            return "not told"
        figure = {
            "rate": told.throughput,
            "mean": told.mean_ms,
            "wait": told.wait_ms,
            "p99": told.p99_ms,
            "batch": told.batch,
            "execs": told.executions_per_s,
            "busy": told.busy,
        }[name]
        if figure.value is None:
            return "no end" if told.saturated and name in ("mean", "wait", "p99") else units.NONE
        scale = 100.0 if name == "busy" else 1.0
        shown = _shown("mean" if name == "p99" else name, scale * figure.value)
        return shown if not figure.error else f"{shown} ±{_margin(scale * figure.error)}"

    def _memory(self, view: View, sizes: tuple[int, int, int, int]) -> list[Row]:
        assert self.row is not None
        groups = self.row.config.instance_groups if self.row.config is not None else ()
        on_cpu = bool(groups) and all(group.kind == ON_CPU for group in groups)
        none = on_cpu or self.row.ensemble
        memory = units.NONE if none else "?" if self.row.memory is None else units.gib(self.row.memory)
        told = one_line(self.row.memory_origin or "unseen", 20)
        origin = "on CPU" if on_cpu else "its steps" if self.row.ensemble else told
        made = [_row("VRAM GiB", memory, units.NONE, units.NONE, origin, sizes)]
        if self.peak is not None:
            style = {True: "", False: "warn", None: "unknown"}[self.peak.fits]
            room = sizes[0] + sizes[1] + sizes[2]
            text = (left("  at peak", LABEL), "label"), (right(self.peak.text, room), style)
            end: Line = ((f"  {cut(self.peak.source, sizes[3])}", "dim"),) if sizes[3] else ()
            made.append(Row((*text, *end)))
        return made

    def _footnotes(self, view: View) -> list[Row]:
        made = self._trust(view.width)
        if self.measuring is not None:
            return [*made, Row(((f"measuring: {100 * self.measuring:.0f} %", "key"),))]
        if self.measured is None:
            return [*made, Row(((cut("m measures now; A measures before and after", view.width), "dim"),))]
        told = f"measured {view.clock(self.measured.wall)} {self.measured.origin}"
        return [*made, Row(((cut(told, view.width), "dim"),))]

    def _trust(self, cells: int) -> list[Row]:
        """How far the prediction holds, and the gravest reason why it does not further."""
        found = self.predicted
        if found.told is None:
            text = "predicting …" if found.pending else found.why and f"not predicted: {one_line(found.why, 300)}"
            return [Row(((line, "dim"),)) for line in wrapped(text, cells, most=2)] if text else []
        trust = found.told.trust
        reason = f": {one_line(found.told.reasons[0], 300)}" if found.told.reasons else ""
        head: Line = (sign(TRUST_SIGNS[trust]), (" ", ""))
        lines = wrapped(f"batcher model, trust {trust}{reason}", cells - 2, most=2)
        return [Row((*(head if not at else (("  ", ""),)), (line, ""))) for at, line in enumerate(lines)]

    def _told(self, name: str) -> str:
        found = self.measured
        if found is None or name not in found.after:
            return units.NONE
        after = _shown(name, found.after[name])
        return f"{_shown(name, found.before[name])} → {after}" if name in found.before else after

    def changes(self) -> object:
        return (self.row, self.measured, self.measuring, self.peak, self.predicted)


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


def _columns(cells: int) -> tuple[int, int, int, int]:
    """Cells of LIVE, PREDICTED, MEASURED and SOURCE, which is left out (0) where there is no room for all."""
    rest = cells - LABEL
    least = LEAST_LIVE + LEAST_PREDICTED + LEAST_MEASURED
    source = 0 if rest < least + 2 + LEAST_SOURCE else min(SOURCE, rest - 2 - least)
    spare = rest - least - (source + 2 if source else 0)
    live = LEAST_LIVE + min(spare, LIVE - LEAST_LIVE)
    measured = LEAST_MEASURED + min(max(0, spare - 1), MEASURED - LEAST_MEASURED)
    predicted = LEAST_PREDICTED + min(max(0, spare - 3), PREDICTED - LEAST_PREDICTED)
    return live, predicted, measured, source


def _row(label: str, live: str, predicted: str, measured: str, source: str, sizes: tuple[int, int, int, int]) -> Row:
    end: Line = ((f"  {left(source, sizes[3])}", "dim"),) if sizes[3] else ()
    return Row(
        (
            (left(label, LABEL), "label"),
            (right(live, sizes[0]), "value"),
            (right(predicted, sizes[1]), "value"),
            (right(measured, sizes[2]), "value"),
            *end,
        )
    )


def _margin(error: float) -> str:
    """Two figures are enough of an error."""
    return f"{error:.0f}" if error >= 9.95 else f"{error:.1f}" if error >= 0.995 else f"{error:.2f}"


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
    return (worded(found), "histogram") if found is not None else (units.NONE, "none: L")
