"""Latencies as an HDR histogram: 1 µs to one hour, three significant digits, whatever their number."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram
from msgspec import Struct

LONGEST_US = 3_600_000_000
DIGITS = 3
_UNREADABLE = (
    HdrCookieException,
    HdrHistogramSettingsException,
    HdrLengthException,
    IndexError,
    OverflowError,
    RuntimeError,
    ValueError,
    zlib.error,
)
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


class Latency(Struct, frozen=True):
    """Of the good answers, in ms; None where there is none."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    max: float | None = None


class Histogram:
    """One histogram; not shared between threads."""

    def __init__(self) -> None:
        self._hdr: Any = HdrHistogram(1, LONGEST_US, DIGITS)
        self.sum_us = 0

    def record(self, us: int) -> None:
        """One latency in whole microseconds; below 1 counts as 1, above an hour as an hour."""
        us = 1 if us < 1 else LONGEST_US if us > LONGEST_US else us
        self.sum_us += us
        self._hdr.record_value(us)

    @property
    def count(self) -> int:
        """Recorded latencies."""
        return int(self._hdr.get_total_count())

    def add(self, other: Histogram) -> None:
        """Merge: as if all that the other recorded had been recorded here."""
        if other.count:
            self._hdr.add(other._hdr)
            self.sum_us += other.sum_us

    def percentile(self, q: float) -> float | None:
        """In ms, by the nearest rank; None when empty."""
        return self._hdr.get_value_at_percentile(q) / 1e3 if self.count else None

    def percentile_of(self, q: float, worse: int) -> float | None:
        """In ms, where `worse` more were slower than all; None when it falls among them, or nothing was recorded."""
        total = self.count + worse
        rank = q / 100 * total
        if not self.count or rank > self.count:
            return None
        return self.percentile(100 * rank / self.count)

    def latency(self) -> Latency:
        """All figures of it."""
        count = self.count
        if not count:
            return Latency(0)
        found: Mapping[float, int] = self._hdr.get_percentile_to_value_dict(list(PERCENTILES))
        p50, p90, p95, p99, p99_9 = (found[q] / 1e3 for q in PERCENTILES)
        return Latency(count, self.sum_us / count / 1e3, p50, p90, p95, p99, p99_9, self._hdr.get_max_value() / 1e3)

    def shares(self, bounds_ms: Sequence[float]) -> list[float]:
        """Share of the latencies up to each bound, and of those above the last (sums to 1); empty when empty."""
        counts = [0] * (len(bounds_ms) + 1)
        for item in self._hdr.get_recorded_iterator():
            ms = item.value_iterated_to / 1e3
            at = next((at for at, bound in enumerate(bounds_ms) if ms <= bound), len(bounds_ms))
            counts[at] += item.count_added_in_this_iter_step
        total = sum(counts)
        return [count / total for count in counts] if total else []

    def encoded(self) -> str:
        """As text: HdrHistogram's own format (V2, compressed, base64), which its other tools read too."""
        return str(self._hdr.encode().decode("ascii"))

    @classmethod
    def decoded(cls, text: str, sum_us: int) -> Histogram:
        """From `encoded`; ValueError for what is none."""
        made = cls()
        try:
            hdr = HdrHistogram.decode(text.encode("ascii"))
            if hdr.get_total_count():
                made._hdr.add(hdr)
        except _UNREADABLE as error:
            raise ValueError("no histogram") from error
        made.sum_us = sum_us
        return made
