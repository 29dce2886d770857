"""Histograms of the metrics page -> observations by bucket over the last minute, and what percentiles they bear out.

Buckets are counters that Triton, a back end or a model keeps per series, so they are differenced by the same rules as
all others (core/rates.py): per series, a fall is a new beginning, a series that was missing is a gap, the first page
is a baseline. A percentile is interpolated within its bucket and never beyond the last finite bound (domain facts 2.4).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf, isfinite

from msgspec import Struct

from console.core.model import Histogram, ModelKey

SPAN = 60.0
"""Seconds that are looked back; the server's own summaries tell of as many."""
STEP = 5.0
"""Seconds between two kept samples, so a window is up to this much longer than SPAN."""
MIN_SPAN = 0.1
MAX_SERIES = 20_000


class Buckets(Struct, frozen=True):
    """One histogram series as a page gives it."""

    family: str
    model: ModelKey | None
    """None where its labels name no model."""
    labels: str
    """The other labels as they were spelled, `le` left out."""
    cumulative: tuple[tuple[float, float], ...]
    """(upper bound, observations up to it), by bound; the bound of the last may be +Inf."""


class Estimate(Struct, frozen=True):
    """A percentile as far as buckets tell it."""

    value: float | None
    """Interpolated; None in the first bucket and beyond the last, where nothing tells how observations lie."""
    at_most: float | None
    """Upper bound of its bucket; None beyond the last finite one."""
    more_than: float | None
    """Lower bound of its bucket; None in the first one."""


def quantile(histogram: Histogram, q: float) -> Estimate | None:
    """The percentile `q` (0 to 1); None where too few observations lie beyond it to speak of one."""
    total = histogram.total
    bounds = histogram.bounds
    if not bounds or total * (1 - q) < 1 - 1e-9:
        return None
    rank, below = q * total, 0.0
    for at, count in enumerate(histogram.counts[:-1]):
        if below + count >= rank and count > 0:
            if at == 0:
                return Estimate(None, bounds[0], None)
            low, high = bounds[at - 1], bounds[at]
            return Estimate(low + (high - low) * (rank - below) / count, high, low)
        below += count
    return Estimate(None, None, bounds[-1])


def together(histograms: Iterable[Histogram]) -> Histogram | None:
    """Series of one model that differ in other labels (card, tags) as one; None without any, or of unlike buckets."""
    found = tuple(histograms)
    if not found or any(one.bounds != found[0].bounds for one in found):
        return None
    if len(found) == 1:
        return found[0]
    counts = tuple(map(sum, zip(*(one.counts for one in found), strict=True)))
    first = found[0]
    return Histogram(first.family, first.model, "", max(one.span for one in found), first.bounds, counts)


class _Series:
    __slots__ = ("base", "bounds", "last", "marks", "seen", "shown")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.base = array("d", [0.0] * len(bounds))
        """What the runs of counters before the present one had counted."""
        self.last = self.base
        self.marks: deque[tuple[float, array[float]]] = deque()
        """(mono, totals), STEP apart; the first is where the window begins."""
        self.seen = 0
        self.shown: Histogram | None = None

    def begin(self, at: float, totals: array[float]) -> None:
        """Forget what was and start the window here."""
        self.base = array("d", [0.0] * len(self.bounds))
        self.marks = deque([(at, totals)])


class HistogramTracker:
    """Turns successive pages into Histograms. One thread."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, ModelKey | None, str], _Series] = {}
        self._previous: float | None = None
        self._ordinal = 0

    def update(self, mono: float, page: Iterable[Buckets]) -> tuple[Histogram, ...]:
        """Take the histograms read at `mono`; one without a window yet has a span of 0. What no counts can be (NaN,
        negative, no bucket) is left out."""
        previous = self._previous
        if previous is not None and mono < previous:
            self._series, previous = {}, None
        self._previous = mono
        self._ordinal += 1
        made = tuple(self._one(mono, previous, one) for one in page if _counts(one))
        if len(self._series) > MAX_SERIES:
            self._series = {key: one for key, one in self._series.items() if one.seen == self._ordinal}
        return made

    def _one(self, mono: float, previous: float | None, told: Buckets) -> Histogram:
        bounds = tuple(bound for bound, _ in told.cumulative)
        values = array("d", [value for _, value in told.cumulative])
        key = (told.family, told.model, told.labels)
        series = self._series.get(key)
        if series is None or series.bounds != bounds:
            new = series is None
            series = self._series[key] = _Series(bounds)
            self._start(series, values, mono, previous if new else None)
        elif series.seen != self._ordinal - 1:
            self._start(series, values, mono, previous if _fell(series.last, values) else None)
        elif _fell(series.last, values):
            series.base = _added(series.base, series.last)
        series.last, series.seen = values, self._ordinal
        return self._window(series, mono, told)

    @staticmethod
    def _start(series: _Series, values: array[float], mono: float, zero_at: float | None) -> None:
        """A series that is new, or began anew while it was missing, stood at 0 at the page before; else a baseline."""
        if zero_at is None:
            series.begin(mono, values)
        else:
            series.begin(zero_at, array("d", [0.0] * len(values)))

    @staticmethod
    def _window(series: _Series, mono: float, told: Buckets) -> Histogram:
        totals = _added(series.base, series.last)
        marks = series.marks
        while len(marks) > 1 and marks[1][0] <= mono - SPAN:
            marks.popleft()
        began, first = marks[0]
        if mono - marks[-1][0] >= STEP:
            marks.append((mono, marks[-1][1] if marks[-1][1] == totals else totals))
        span = mono - began
        old = series.shown
        if old is not None and old.span >= SPAN and not old.total and totals == first:
            return old
        finite = series.bounds[:-1] if series.bounds[-1] == inf else series.bounds
        counts = _by_bucket(first, totals, len(finite))
        span = span if span >= MIN_SPAN else 0.0
        series.shown = Histogram(told.family, told.model, told.labels, span, finite, counts)
        return series.shown


def _counts(told: Buckets) -> bool:
    return bool(told.cumulative) and all(isfinite(value) and value >= 0 for _, value in told.cumulative)


def _fell(old: Sequence[float], new: Sequence[float]) -> bool:
    return any(b < a for a, b in zip(old, new, strict=True))


def _added(a: array[float], b: array[float]) -> array[float]:
    return array("d", map(float.__add__, a, b))


def _by_bucket(first: Sequence[float], last: Sequence[float], finite: int) -> tuple[float, ...]:
    """Observations of each bucket, the one beyond the last finite bound at the end. A page is not written at one
    moment, so a bucket may seem to hold less than none: that is none."""
    made, below = [], 0.0
    for old, new in zip(first, last, strict=True):
        made.append(max(0.0, new - old - below))
        below = max(below, new - old)
    return (*made, 0.0) if len(made) == finite else tuple(made)
