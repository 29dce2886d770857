"""One line a minute of what a box did, kept for seven days: enough for "the same hours each day" (pure).

    {"t": begin of the minute (Unix s), "s": seconds of it that were seen, "v": {series of History: [mean, highest]}}

Series are those of figures that mean something over days (SERIES). Running totals (throttle counters) have the rise
within the minute in the place of both. Four digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

import msgspec

from console.core.model import Snapshot
from console.core.store import samples

MINUTE = 60
DAYS = 7
MAX_SERIES = 400
"""Of a line: a box with a thousand models has the rest in the recording only."""
SERIES = re.compile(
    r"gpu\.\d+\.(?:util_pct|memory_used|power_w|temp_c|sm_mhz|throttle\.\w+)|box\.(?:rate|waiting)|host\.cpu_pct"
    r"|model\..*\.(?:rate|request_ms|queue_ms|fail_rate|busy)"
)
_TOTAL = ".throttle."


class Minute(msgspec.Struct, frozen=True):
    """What a line holds."""

    t: int
    s: int
    v: Mapping[str, tuple[float, float]] = {}


class Rollup:
    """Snapshots in, a Minute each minute."""

    def __init__(self) -> None:
        self._last = Snapshot()
        self._minute: int | None = None
        self._seconds: set[int] = set()
        self._sums: dict[str, tuple[float, int, float]] = {}
        """Series -> sum, number, highest."""
        self._totals: dict[str, float] = {}
        """Running totals as they were last."""

    def add(self, snapshot: Snapshot) -> Minute | None:
        """Take a moment in; the minute that ended before it, if one did."""
        minute = int(snapshot.wall // MINUTE)
        ended = self._take() if self._minute is not None and minute != self._minute else None
        self._minute = minute
        self._seconds.add(int(snapshot.wall))
        for _, key, value in samples(self._last, snapshot):
            if SERIES.fullmatch(key):
                self._put(key, value)
        self._last = snapshot
        return ended

    def _put(self, key: str, value: float) -> None:
        if _TOTAL in key:
            before = self._totals.get(key)
            self._totals[key] = value
            value = 0.0 if before is None else value - before if value >= before else value
        known = self._sums.get(key)
        if known is None:
            if len(self._sums) < MAX_SERIES:
                self._sums[key] = (value, 1, value)
        else:
            self._sums[key] = (known[0] + value, known[1] + 1, max(known[2], value))

    def _take(self) -> Minute:
        assert self._minute is not None
        figures: dict[str, tuple[float, float]] = {}
        for key, (total, number, highest) in self._sums.items():
            figures[key] = (_four(total), _four(total)) if _TOTAL in key else (_four(total / number), _four(highest))
        made = Minute(self._minute * MINUTE, len(self._seconds), figures)
        self._sums, self._seconds = {}, set()
        return made


def _four(value: float) -> float:
    return float(f"{value:.4g}")


def line_of(minute: Minute) -> bytes:
    """Its line, without the end."""
    return msgspec.json.encode(minute)


def read_lines(lines: Iterable[bytes]) -> list[Minute]:
    """The minutes that can be read; a torn line (a power cut) is passed over."""
    found: list[Minute] = []
    decoder = msgspec.json.Decoder(Minute)
    for line in lines:
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


# ------------------------------------------------------------------------------------------------------ hour by hour


class Figure(msgspec.Struct, frozen=True):
    """What the table of hours may show."""

    name: str
    """`s throttled by heat, per hour`."""
    pattern: str
    """Series that it is made of."""
    how: str
    """sum: of all minutes; mean: of the minutes' means; high: the highest."""


FIGURES = (
    Figure("s throttled by heat, per hour", r"gpu\.\d+\.throttle\.heat\w*", "sum"),
    Figure("s at the power limit, per hour", r"gpu\.\d+\.throttle\.power_cap", "sum"),
    Figure("highest °C", r"gpu\.\d+\.temp_c", "high"),
    Figure("util %, mean", r"gpu\.\d+\.util_pct", "mean"),
    Figure("req/s from outside, mean", r"box\.rate", "mean"),
)
Hours = Mapping[date, tuple[float | None, ...]]
"""Day -> 24 figures; None where nothing of that hour is recorded."""


def hours(minutes: Iterable[Minute], figure: Figure, *, utc: bool) -> Hours:
    """The table of one figure, in the box's zone or UTC, oldest day first."""
    pattern = re.compile(figure.pattern)
    wanted: dict[str, bool] = {}
    found: dict[date, list[list[float] | None]] = {}
    for minute in minutes:
        moment = datetime.fromtimestamp(minute.t, UTC)
        moment = moment if utc else moment.astimezone()
        row = found.setdefault(moment.date(), [None] * 24)
        cell = row[moment.hour]
        if cell is None:
            cell = row[moment.hour] = []
        for key, pair in minute.v.items():
            if key not in wanted:
                wanted[key] = pattern.fullmatch(key) is not None
            if wanted[key]:
                cell.append(pair[figure.how == "high"])
    return {day: tuple(_of_hour(cell, figure.how) for cell in row) for day, row in sorted(found.items())}


def _of_hour(cell: list[float] | None, how: str) -> float | None:
    if not cell:
        return None
    return sum(cell) if how == "sum" else max(cell) if how == "high" else sum(cell) / len(cell)


def same_hours(table: Hours, least: float) -> tuple[int, ...]:
    """Hours of the day in which the figure reached `least` on each day that has that hour recorded, on two days at
    least."""
    alike: list[int] = []
    for hour in range(24):
        seen = [row[hour] for row in table.values() if row[hour] is not None]
        if len(seen) >= 2 and all(value is not None and value >= least for value in seen):
            alike.append(hour)
    return tuple(alike)


HEAT_LEAST = 10.0
"""Seconds of an hour from which on it counts as one in which heat slowed a card."""
