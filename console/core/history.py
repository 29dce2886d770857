"""Time series in two tiers: 1 s for 10 minutes and 10 s for an hour. Peaks are kept: a column shows its highest sample.

Keys are dotted names, such as `gpu.0.util_pct`, `model.ranking/2.queue_ms`, `box.rate` (see store.py for all of them).
Samples are float32 in arrays, so that an hour of a thousand series costs megabytes, not hundreds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from math import isnan

NAN = float("nan")
FINE_STEP, FINE_SLOTS = 1, 600
COARSE_STEP, COARSE_SLOTS = 10, 360


class _Tier:
    """A ring of slots of `step` seconds; a slot that was never written is NaN."""

    __slots__ = ("_last", "_peak", "slots", "step")

    def __init__(self, step: int, slots: int) -> None:
        self.step = step
        self.slots = slots
        self._peak = array("f", [NAN]) * slots
        self._last: int | None = None

    def put(self, mono: float, value: float) -> None:
        slot = int(mono // self.step)
        if self._last is None:
            self._last = slot
        if slot > self._last:
            for gone in range(self._last + 1, min(slot, self._last + self.slots) + 1):
                self._peak[gone % self.slots] = NAN
            self._last = slot
        elif slot <= self._last - self.slots:
            return
        old = self._peak[slot % self.slots]
        if isnan(old) or value > old:
            self._peak[slot % self.slots] = value

    def get(self, slot: int) -> float:
        if self._last is None or slot > self._last or slot <= self._last - self.slots:
            return NAN
        return self._peak[slot % self.slots]


class Series:
    """One metric over time."""

    __slots__ = ("_coarse", "_fine", "last", "last_mono")

    def __init__(self) -> None:
        self._fine = _Tier(FINE_STEP, FINE_SLOTS)
        self._coarse = _Tier(COARSE_STEP, COARSE_SLOTS)
        self.last: float | None = None
        self.last_mono: float | None = None

    def put(self, mono: float, value: float) -> None:
        """Add a sample; NaN and infinities are not samples."""
        if value != value or value in (float("inf"), float("-inf")):
            return
        self.last, self.last_mono = value, mono
        self._fine.put(mono, value)
        self._coarse.put(mono, value)

    def put_coarse(self, mono: float, peak: float) -> None:
        """Add the highest of ten seconds: known where the samples themselves are not."""
        self._coarse.put(mono, peak)

    def columns(self, now: float, step: float, width: int) -> list[float | None]:
        """`width` columns of `step` seconds each, oldest first, the last one holding `now`; None = no sample.

        Columns stand on multiples of `step`, so that between two calls only the last one changes.
        """
        step = max(1, round(step))
        tier = self._fine if step * width <= FINE_SLOTS or step < COARSE_STEP else self._coarse
        last = int(now // step)
        return [
            self._peak_between(tier, column * step, (column + 1) * step) for column in range(last - width + 1, last + 1)
        ]

    @staticmethod
    def _peak_between(tier: _Tier, start: int, end: int) -> float | None:
        best = NAN
        for slot in range(start // tier.step, max(start // tier.step + 1, end // tier.step)):
            value = tier.get(slot)
            if not isnan(value) and (isnan(best) or value > best):
                best = value
        return None if isnan(best) else best

    def values(self, now: float, span: float) -> list[float]:
        """The samples of the last `span` seconds, oldest first, gaps left out; 1 s apart for spans up to 10 minutes."""
        tier = self._fine if span <= FINE_SLOTS else self._coarse
        first, last = int((now - span) // tier.step) + 1, int(now // tier.step)
        return [value for slot in range(first, last + 1) if not isnan(value := tier.get(slot))]


class History:
    """All series by key. Written by the Store, read by panes and advisors (one thread)."""

    MAX_SERIES = 8000
    """Beyond this new series are dropped: a box with thousands of models must not eat the host's memory."""
    FORGET_EVERY = 60.0
    """Seconds between two looks for series that have no sample left, while there is no room for a new one."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._forgot = float("-inf")
        self.heat_hours: tuple[int, ...] = ()
        """Hours of the day in which heat slowed a card on each of the last days, as recorded minutes show; () where
        nothing shows that."""

    def record(self, mono: float, values: Mapping[str, float | None]) -> None:
        """Add one sample to each series; None is no sample (a gap, never a 0)."""
        for key, value in values.items():
            if value is None:
                continue
            series = self._series.get(key)
            if series is None:
                if not self._has_room(mono):
                    continue
                series = self._series[key] = Series()
            series.put(mono, value)

    def recall(self, key: str, peaks: Iterable[tuple[float, float]]) -> None:
        """Add (monotonic time, highest sample) of ten seconds each; a recording keeps these of an hour."""
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= self.MAX_SERIES:
                return
            series = self._series[key] = Series()
        for mono, peak in peaks:
            series.put_coarse(mono, peak)

    def _has_room(self, mono: float) -> bool:
        """Room is made of versions that are gone, or a box that deploys often would show no new one after some days."""
        if len(self._series) >= self.MAX_SERIES and mono - self._forgot >= self.FORGET_EVERY:
            self._forgot = mono
            self.forget(mono - COARSE_STEP * COARSE_SLOTS)
        return len(self._series) < self.MAX_SERIES

    def series(self, key: str) -> Series | None:
        """The series, or None when nothing was ever recorded under that key."""
        return self._series.get(key)

    def columns(self, key: str, now: float, step: float, width: int) -> list[float | None]:
        """See Series.columns; all None for an unknown key."""
        series = self._series.get(key)
        return [None] * width if series is None else series.columns(now, step, width)

    def values(self, key: str, now: float, span: float) -> list[float]:
        """See Series.values; empty for an unknown key."""
        series = self._series.get(key)
        return [] if series is None else series.values(now, span)

    def keys(self) -> tuple[str, ...]:
        """All keys so far."""
        return tuple(self._series)

    def forget(self, older_than_mono: float) -> None:
        """Drop series whose last sample is older (models long unloaded, cards gone)."""
        for key in [k for k, s in self._series.items() if s.last_mono is None or s.last_mono < older_than_mono]:
            del self._series[key]
