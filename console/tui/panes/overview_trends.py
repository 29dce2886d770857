"""Trends on the Overview (screens.md 1.1): ten minutes of the chosen model and the card on one clock, with events."""

from __future__ import annotations

from dataclasses import dataclass

from console.core import units
from console.core.model import GpuState, ModelRow
from console.core.store import lettered
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.widgets.cells import Line, cut, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import nice_top, trend

STEP = 5.0
"""Seconds a column: only the last cell changes in between, which keeps eight rows under 1 KB/s."""
MOST_COLUMNS = 120
"""Ten minutes: as far back as the one-second tier of History reaches."""
HEAD, TAIL = 26, 10
LABEL_EVERY = 120.0
"""Seconds between the labels of the clock."""
MOST_LINES = 10


@dataclass(frozen=True)
class Shown:
    """One series: its label, its figure now, where its history is, and its scale (`high` None = by its highest)."""

    label: str
    now: str
    key: str
    low: float = 0.0
    high: float | None = None
    scale_of: str = ""
    """Key of the series whose scale this one shares (waiting is drawn on the scale of the whole time)."""
    divisor: float = 1.0


class OverviewTrends(Pane):
    """Eight series, a line each, events below them, and the clock."""

    FIELDS = ("stats", "gpu", "models", "events")
    NUMBER = "7"

    def title(self, view: View) -> Line:
        row, card = view.model, view.card
        about = " and ".join(
            [*([cut(one_line(row.name), 32)] if row else []), *([f"GPU {card.index}"] if card is not None else [])]
        )
        minutes = columns_for(view.width) * STEP / 60
        return (("Trends", "title"), (f"  {about}   {minutes:.0f} min, {STEP:.0f} s a column", "label"))

    def lines(self, view: View) -> list[Row]:
        columns = columns_for(view.width)
        series = [*model_series(view.model), *card_series(view.card)]
        charts = [Row(_chart(one, view, columns)) for one in series[: max(1, view.height - 2)]]
        if not charts:
            charts = [Row((("nothing measured yet", "dim"),))]
        return [*charts, Row(_events(view, columns)), Row(_clock(view, columns))]


def columns_for(width: int) -> int:
    """Columns of a chart in a pane of this width."""
    return max(10, min(MOST_COLUMNS, width - HEAD - TAIL))


def model_series(row: ModelRow | None) -> list[Shown]:
    """Rate, time, waiting and batch of a model version."""
    if row is None:
        return []
    window = row.flow.w10 if row.flow else None
    prefix = f"model.{row.name}/{row.version}"
    most = float(row.config.max_batch_size) if row.config and row.config.max_batch_size else None
    rate, mean, wait, batch = (
        (window.rate, window.request_ms, window.queue_ms, window.mean_batch) if window else (None,) * 4
    )
    if row.ensemble:
        wait = batch = None
    return [
        Shown("req/s", units.rate(rate), f"{prefix}.rate"),
        Shown("mean ms", units.millis(mean), f"{prefix}.request_ms"),
        Shown("waiting ms", units.millis(wait), f"{prefix}.queue_ms", scale_of=f"{prefix}.request_ms"),
        Shown("batch", units.one(batch), f"{prefix}.batch", high=most),
    ]


def card_series(card: GpuState | None) -> list[Shown]:
    """Use, clock, heat and memory of a card."""
    if card is None:
        return []
    prefix = f"gpu.{card.index}"
    total = None if card.memory_total is None else card.memory_total / units.GIB
    return [
        Shown("util %", units.whole(card.util_pct), f"{prefix}.util_pct", high=100.0),
        Shown("SM MHz", units.whole(card.sm_mhz), f"{prefix}.sm_mhz", high=float(card.sm_max_mhz or 0) or None),
        Shown("°C", units.whole(card.temp_c), f"{prefix}.temp_c", low=30.0, high=card.temp_slowdown_c or 100.0),
        Shown("VRAM GiB", units.gib(card.memory_used), f"{prefix}.memory_used", high=total, divisor=units.GIB),
    ]


def _chart(one: Shown, view: View, columns: int) -> Line:
    values = _values(one.key, one.divisor, view, columns)
    scaled = _values(one.scale_of, one.divisor, view, columns) if one.scale_of else values
    high = one.high if one.high is not None else nice_top(max((v for v in scaled if v is not None), default=0.0))
    return (
        (f"{left(one.label, 14)}{right(one.now, HEAD - 16)}  ", "value"),
        (trend(values, one.low, high, columns), "bar"),
        (f"  {one.low:.0f}–{high:.0f}" if high >= 1 else f"  {one.low:.0f}–{high:.1f}", "dim"),
    )


def _values(key: str, divisor: float, view: View, columns: int) -> list[float | None]:
    edge = view.edge(view.snapshot.gpu if key.startswith("gpu.") else view.snapshot.stats)
    found = view.history.columns(key, edge, STEP, columns)
    return [None if value is None else value / divisor for value in found]


def _column(wall: float, view: View, columns: int) -> int:
    """Column that holds a moment; columns stand on multiples of STEP of the monotonic clock."""
    last = view.mono // STEP
    return columns - 1 - int(last - (view.mono - (view.wall - wall)) // STEP)


def _events(view: View, columns: int) -> Line:
    cells = [" "] * columns
    for letter, event in lettered(view.snapshot.events):
        at = _column(event.wall, view, columns)
        if letter and 0 <= at < columns:
            cells[at] = letter
    return ((" " * HEAD + "".join(cells), "key"), ("  events", "dim"))


def _clock(view: View, columns: int) -> Line:
    cells = [" "] * (columns + 6)
    first = view.wall - columns * STEP
    mark = (first // LABEL_EVERY + 1) * LABEL_EVERY
    while mark <= view.wall:
        at = _column(mark, view, columns)
        if 0 <= at <= columns - 5:
            cells[at : at + 5] = view.clock(mark)[:5]
        mark += LABEL_EVERY
    return ((" " * HEAD + "".join(cells), "dim"),)
