"""The clock that all charts of Timeline share: span, columns, cursor, and where a moment stands (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from console.core import units

SPANS: tuple[tuple[str, int], ...] = (("10 min", 600), ("30 min", 1800), ("1 h", 3600))
"""What History holds: 1 s for 10 minutes, 10 s for an hour."""
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 24, 30, 40, 60, 90, 120)
"""Seconds that a column may stand for."""
SHORT = 0.95
"""A span that falls short by 5 % for an even step still bears its name."""
TICKS = (60, 120, 300, 600, 900, 1800)
LABEL_CELLS = 5
LABEL_GAP = 6


@dataclass(frozen=True)
class Scale:
    """Columns of `step` seconds on multiples of `step` of the monotonic clock, the last one holding `mono`."""

    mono: float
    wall: float
    step: int
    columns: int

    @property
    def last(self) -> int:
        """Number of the newest column."""
        return int(self.mono // self.step)

    def column(self, mono: float) -> int | None:
        """The column that holds a moment, 0 at the left; None outside."""
        at = self.columns - 1 - (self.last - int(mono // self.step))
        return at if 0 <= at < self.columns else None

    def column_of_wall(self, wall: float) -> int | None:
        """As `column`, for a time of day."""
        return self.column(self.mono_of(wall))

    def mono_of(self, wall: float) -> float:
        """The monotonic time of a time of day."""
        return self.mono - (self.wall - wall)

    def wall_of(self, mono: float) -> float:
        """The time of day of a monotonic time."""
        return self.wall - (self.mono - mono)

    def start_of(self, column: int) -> float:
        """Monotonic time at which a column begins."""
        return float((self.last - (self.columns - 1 - column)) * self.step)

    def letters(self, marks: list[tuple[str, float]]) -> str:
        """The row of event letters; where two fall on one column the newer one stands."""
        cells = [" "] * self.columns
        for letter, wall in marks:
            at = self.column_of_wall(wall)
            if at is not None:
                cells[at] = letter
        return "".join(cells)

    def axis(self, utc: bool) -> str:
        """Times of day at round minutes, as close as they fit."""
        tick = next((one for one in TICKS if one / self.step >= LABEL_CELLS + LABEL_GAP), TICKS[-1])
        cells = [" "] * self.columns
        newest = int(self.wall // tick) * tick
        for back in range(0, self.columns * self.step + tick, tick):
            at = self.column_of_wall(newest - back)
            if at is None:
                continue
            start = at - LABEL_CELLS // 2
            if start >= 0 and start + LABEL_CELLS <= self.columns:
                cells[start : start + LABEL_CELLS] = units.clock(newest - back, utc=utc)[:LABEL_CELLS]
        return "".join(cells)


def step_for(span: int, columns: int) -> int:
    """Seconds a column, so that `columns` hold (nearly) `span` seconds.

    >>> step_for(1800, 88), step_for(600, 120)
    (20, 5)
    """
    return next((step for step in STEPS if step * columns >= SHORT * span), STEPS[-1])
