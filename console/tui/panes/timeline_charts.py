"""The charts of Timeline (design 1.11): figures of the chosen model and card on one clock, event letters under them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from console.core import units
from console.core.history import History
from console.core.model import ModelRow
from console.core.store import lettered
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.timeline_scale import SPANS, Scale, step_for
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import nice_top, trend

NAME, VALUE, RANGE = 12, 6, 9
SLOWED = ("power_cap", "heat_software", "heat_hardware", "power_brake", "hw_slowdown", "board_limit")
"""Clocks-event reasons that slow a card down (not: idle, set clocks, display)."""
LEAST_CHARTS = 3


@dataclass(frozen=True)
class Chart:
    """One figure over time."""

    name: str
    key: str
    """History key."""
    figure: Callable[[float | None], str]
    low: float = 0.0
    high: float | None = None
    """None = a round number above the highest shown."""
    steps: tuple[str, ...] = ()
    """Keys of running totals: the chart shows by how much they rose in each column, together."""
    scale: float = 1.0
    """What a sample is divided by before it is shown."""
    unit: str = ""
    """Charts of one unit share the scale of the first, so that their heights compare."""

    def values(self, history: History, scale: Scale) -> list[float | None]:
        """One value a column, None where nothing was sampled."""
        if not self.steps:
            raw = history.columns(self.key, scale.mono, scale.step, scale.columns)
            return [None if value is None else value / self.scale for value in raw]
        return risen(history, self.steps, scale)


def risen(history: History, keys: Sequence[str], scale: Scale) -> list[float | None]:
    """By how much running totals rose in each column, together; a total that began anew counts from 0."""
    sums: list[float | None] = [None] * scale.columns
    for key in keys:
        totals = history.columns(key, scale.mono, scale.step, scale.columns + 1)
        before = totals[0]
        for column, total in enumerate(totals[1:]):
            if total is not None and before is not None:
                rise = total - before if total >= before else total
                sums[column] = (sums[column] or 0.0) + rise
            before = total if total is not None else before
    return sums


def charts(view: View) -> list[Chart]:
    """The charts for the chosen model and card, the most telling first; those without a source are left out."""
    made: list[Chart] = []
    row = view.model
    if row is not None:
        made += model_charts(row, view.history)
    made += card_charts(view)
    return made


def model_charts(row: ModelRow, history: History) -> list[Chart]:
    """Figures of one model version. An ensemble has no queue and no batches of its own."""
    prefix = f"model.{row.name}/{row.version}"
    made = [
        Chart("req/s", f"{prefix}.rate", units.rate),
        Chart("mean ms", f"{prefix}.request_ms", units.millis, unit="ms"),
    ]
    if not row.ensemble:
        largest = row.config.max_batch_size if row.config and row.config.max_batch_size > 1 else None
        made.append(Chart("wait ms", f"{prefix}.queue_ms", units.millis, unit="ms"))
        common = commonest(row)
        if common is not None and history.series(f"{prefix}.run_ms.{common}") is not None:
            made.append(Chart(f"ms at b={common}", f"{prefix}.run_ms.{common}", units.millis, unit="ms"))
        made.append(Chart("batch", f"{prefix}.batch", units.one, high=largest))
    return [*made, Chart("fail/s *", f"{prefix}.fail_rate", units.one)]


def commonest(row: ModelRow) -> int | None:
    """The batch size of most runs: the cost of a run at one size does not move with load or delay."""
    window = row.flow.w10 if row.flow else None
    if window is None or not window.batches:
        return None
    return max(window.batches, key=lambda batch: batch.runs).size


def card_charts(view: View) -> list[Chart]:
    """Figures of the card in focus."""
    card = view.card
    if card is None:
        return []
    prefix = f"gpu.{card.index}"
    known = view.history.keys()
    counters = tuple(f"{prefix}.throttle.{reason}" for reason in SLOWED if f"{prefix}.throttle.{reason}" in known)
    made = [
        Chart("util %", f"{prefix}.util_pct", units.whole, high=100),
        Chart("SM MHz", f"{prefix}.sm_mhz", units.whole, high=card.sm_max_mhz),
    ]
    if counters:
        made.append(Chart("throttle s", "", units.whole, steps=counters))
    made.append(Chart("°C", f"{prefix}.temp_c", units.whole, low=30, high=card.temp_slowdown_c or 100))
    total = card.memory_total / units.GIB if card.memory_total else None
    made.append(Chart("VRAM GiB", f"{prefix}.memory_used", units.one, high=total, scale=units.GIB))
    return made


class TimelineCharts(Pane):
    """Charts, letters and time axis. The cursor is a moment, not a column: it stays where it is while time goes on."""

    FIELDS = ("models", "gpu", "events", "stats")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.span = 1
        self.at: float | None = None
        """Monotonic time of the cursor; None = live, at the right end."""

    # -------------------------------------------------------------------------------------------------------- content

    def scale(self, view: View) -> Scale:
        """The clock of these charts."""
        columns = max(10, view.width - NAME - VALUE - RANGE - 2)
        return Scale(view.mono, view.wall, step_for(SPANS[self.span][1], columns), columns)

    def title(self, view: View) -> Line:
        scale = self.scale(view)
        row = view.model
        about = [one_line(row.name, 60)] if row else []
        about += [f"GPU {view.card.index}"] if view.card else []
        mode = "   live" if self.at is None else ""
        text = f"Timeline   {SPANS[self.span][0]}, {scale.step} s a column   {', '.join(about)}{mode}"
        return ((text, "title"),)

    def note(self, view: View) -> Line:
        if self.at is None:
            return ()
        wall = self.scale(view).wall_of(self.at)
        letter = next(
            (f"{name} " for name, one in lettered(view.snapshot.events) if name and abs(one.wall - wall) < 1), ""
        )
        return ((f"cursor {letter}{view.clock(wall)}", "key"),)

    def lines(self, view: View) -> list[Row]:
        scale = self.scale(view)
        cursor = None if self.at is None else scale.column(self.at)
        shown = charts(view)
        room = max(LEAST_CHARTS, view.height - 2)
        made = [Row(line) for line in _chart_lines(shown[:room], view.history, scale, cursor)]
        if not shown:
            made.append(Row((("nothing was measured yet: no model, no card", "dim"),)))
        indent = " " * (NAME + VALUE + 1)
        marks = [(letter, event.wall) for letter, event in lettered(view.snapshot.events) if letter]
        letters = scale.letters(marks)
        made.append(Row(((indent, ""), *_with_cursor(letters, cursor, "note"), ("  events", "dim"))))
        made.append(Row(((indent, ""), *_with_cursor(scale.axis(view.utc), cursor, "dim"))))
        return made

    # ----------------------------------------------------------------------------------------------------------- keys

    def shift_sort(self, steps: int) -> bool:
        self.span = max(0, min(len(SPANS) - 1, self.span + steps))
        self.again()
        return True

    def step_cursor(self, steps: int) -> None:
        """`←` `→`: by a column; in the newest one it is live again."""
        if self.view is None:
            return
        scale = self.scale(self.view)
        at = scale.columns - 1 if self.at is None else scale.column(self.at)
        moved = (0 if at is None else at) + steps
        self.at = None if moved >= scale.columns - 1 else scale.start_of(max(0, moved)) + scale.step / 2
        self.again()

    def put_cursor(self, wall: float) -> bool:
        """To a time of day; False when it lies outside the span."""
        if self.view is None:
            return False
        scale = self.scale(self.view)
        if scale.column_of_wall(wall) is None:
            return False
        self.at = scale.mono_of(wall)
        self.again()
        return True

    def go_live(self) -> None:
        """The cursor at the right end again."""
        self.at = None
        self.again()

    def changes(self) -> object:
        return (self.span, self.at)


def _chart_lines(shown: Sequence[Chart], history: History, scale: Scale, cursor: int | None) -> list[Line]:
    made: list[Line] = []
    tops: dict[str, float] = {}
    for chart in shown:
        values = chart.values(history, scale)
        high = chart.high or (float(scale.step) if chart.steps else tops.get(chart.unit)) or _top(values)
        if chart.unit:
            tops.setdefault(chart.unit, high)
        now = values[cursor] if cursor is not None else _newest(values)
        drawn = trend(values, chart.low, high, scale.columns)
        made.append(
            (
                (left(chart.name, NAME), "label"),
                (f"{right(chart.figure(now), VALUE)} ", "value"),
                *_with_cursor(drawn, cursor, "bar"),
                (f" {left(f'{_end(chart.low)}–{_end(high)}', RANGE)}", "dim"),
            )
        )
    return made


def _top(values: Sequence[float | None]) -> float:
    return nice_top(max((value for value in values if value is not None), default=1.0))


def _newest(values: Sequence[float | None]) -> float | None:
    """The newest sample; a gap of one column at the right end is a column that has just begun."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def _with_cursor(text: str, cursor: int | None, style: str) -> Line:
    if cursor is None:
        return ((text, style),)
    return ((text[:cursor], style), (text[cursor : cursor + 1] or " ", f"{style}+cursor"), (text[cursor + 1 :], style))


def _end(value: float) -> str:
    return f"{value:.0f}" if value >= 1 or value == 0 else f"{value:g}"
