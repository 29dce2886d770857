"""Cumulative counters -> what happened in the last 1, 10, 30, 120 and 300 seconds. Pure; runs in the source's thread.

Triton's counters are kept per model version and begin anew at a reload, a version swap or a restart (domain facts
2.2 and 2.3). So differences are taken per series and never of a sum, and a window's length is the true time between
the two samples. The rules:

* the first sample that the console ever takes is a baseline, it has no rate;
* a series that is new at a later poll began at 0 at the time of the poll before;
* a counter that fell means that the series began anew: what it shows now came since the poll before;
* a series that was missing is a gap, not a zero: when it comes back its history starts again;
* where a fall and a rise contradict each other nothing is claimed: the sample becomes a new baseline.

History is run-length coded (a sample is kept when a value changed), and poll times are shared by all series, so an
idle model costs one comparison a poll and keeps its `ModelFlow` object. The windows of 120 and 300 s are renewed
every five seconds; each says its own true length.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from console.core.model import BatchStat, BatchWindow, ModelFlow, ModelKey, ModelStats, TritonStats, Window

WINDOWS = (1.0, 10.0, 30.0, 120.0, 300.0)
"""Seconds."""
FINE = 40.0
"""Seconds for which every poll is kept; older ones are thinned to one in `COARSE` seconds."""
COARSE = 5.0
KEPT = WINDOWS[-1] + COARSE + 1
MIN_SPAN = 0.1
"""Seconds: two samples closer than this (a read on demand just after a poll) give no rate."""
SETTLED = 32.0
"""Seconds without a change after which the windows up to 30 s are all zero and only the long ones still move."""
LAZY = 5.0
"""Seconds between two computations of the long windows of a settled model."""
SAME_SPAN = 0.02
"""A window between the same two samples is computed again only when its length changed by more than this share."""
MAX_SERIES = 20_000
_SHORT = 3
"""The first three windows are renewed at each poll, the long ones every `LAZY` seconds."""

_COUNTERS = (
    "inference_count",
    "execution_count",
    "success_count",
    "success_ns",
    "fail_count",
    "fail_ns",
    "queue_count",
    "queue_ns",
    "input_count",
    "input_ns",
    "infer_count",
    "infer_ns",
    "output_count",
    "output_ns",
    "cache_hit_count",
    "cache_hit_ns",
    "cache_miss_count",
    "cache_miss_ns",
)
_counters_of = attrgetter(*_COUNTERS)
_WORK = tuple(_COUNTERS.index(name) for name in ("inference_count", "execution_count", "success_count", "fail_count"))
_ZEROS = array("q", [0] * len(_COUNTERS))
_NO_BATCHES = array("q")

K = TypeVar("K", bound=Hashable)


class _Polls:
    """Times of past polls, all of the last `FINE` seconds and then one in `COARSE` seconds."""

    __slots__ = ("_coarse", "times")

    def __init__(self) -> None:
        self.times: list[float] = []
        self._coarse = 0
        """How many of `times` have been thinned already."""

    def add(self, mono: float) -> None:
        times = self.times
        times.append(mono)
        while times[self._coarse] < mono - FINE:
            if self._coarse and times[self._coarse] - times[self._coarse - 1] < COARSE:
                del times[self._coarse]
            else:
                self._coarse += 1
        while times[0] < mono - KEPT:
            del times[0]
            self._coarse -= 1

    def nearest(self, moment: float) -> float | None:
        """The poll nearest to `moment`, the newest poll left out; None when there is no other."""
        times = self.times
        last = len(times) - 1
        if last < 1:
            return None
        at = bisect_left(times, moment, 0, last)
        if at == last or (at and moment - times[at - 1] <= times[at] - moment):
            at -= 1
        return times[at]

    def any_in(self, begin: float, end: float) -> bool:
        """True when a kept poll lies in [begin, end)."""
        at = bisect_left(self.times, begin)
        return at < len(self.times) and self.times[at] < end


class _Epoch(NamedTuple):
    """One run of counters. `base` and `batches` are what the runs before it in this history had counted."""

    began: float | None
    base: tuple[int, ...]
    batches: Mapping[int, tuple[int, int]]


class _Sample(NamedTuple):
    """Counters as the server gave them; `batches` is flat: size, runs, nanoseconds, size, ..."""

    epoch: _Epoch
    counters: array[int]
    batches: array[int]


_NO_BASE = (0,) * len(_COUNTERS)


class _Series:
    """History of one model version."""

    __slots__ = ("_coarse", "due", "ends", "flow", "long_due", "resets", "samples", "seen", "times", "turn", "windows")

    def __init__(self, turn: int) -> None:
        self.times: list[float] = []
        self.samples: list[_Sample] = []
        self._coarse = 0
        self.resets = 0
        self.seen = 0
        """Ordinal of the last poll that had this series."""
        self.due = 0.0
        """When the flow must be computed again though nothing changed."""
        self.long_due = 0.0
        self.turn = turn
        self.flow: ModelFlow | None = None
        self.windows: list[Window | None] = [None] * len(WINDOWS)
        self.ends: list[tuple[_Sample | None, _Sample | None]] = [(None, None)] * len(WINDOWS)
        """First and last sample of each window."""

    def begin(self, at: float, epoch: _Epoch, counters: array[int], batches: array[int]) -> None:
        """Forget the history and start it with one sample."""
        self.times = [at]
        self.samples = [_Sample(epoch, counters, batches)]
        self._coarse = 0
        self.long_due = 0.0

    def leave(self) -> None:
        """Keep the last sample only: what went before is 50 KB, and boxes that deploy often have thousands of these."""
        del self.times[:-1], self.samples[:-1]
        self._coarse = 0
        self.flow = None
        self.windows = [None] * len(WINDOWS)
        self.ends = [(None, None)] * len(WINDOWS)

    def append(self, mono: float, sample: _Sample, polls: _Polls) -> None:
        """Add a changed value; drop those that no kept poll needs."""
        self.times.append(mono)
        self.samples.append(sample)
        while self._coarse + 1 < len(self.times) and self.times[self._coarse + 1] < mono - FINE:
            if polls.any_in(self.times[self._coarse], self.times[self._coarse + 1]):
                self._coarse += 1
            else:
                del self.times[self._coarse], self.samples[self._coarse]
        while len(self.times) > 1 and self.times[1] <= polls.times[0]:
            del self.times[0], self.samples[0]
            self._coarse = max(0, self._coarse - 1)


class StatsTracker:
    """Turns successive answers of `/v2/models/stats` into flows. One thread."""

    def __init__(self) -> None:
        self._polls = _Polls()
        self._series: dict[tuple[str, str], _Series] = {}
        self._ordinal = 0
        self._result = TritonStats()

    def update(self, mono: float, models: Iterable[ModelStats]) -> TritonStats:
        """Take the answer got at `mono`; give all flows in the server's order.

        A `mono` equal to the one before changes nothing; a smaller one (a clock that cannot be trusted) makes
        everything a baseline again.
        """
        times = self._polls.times
        previous = times[-1] if times else None
        if previous is not None and mono <= previous:
            if mono == previous:
                return self._result
            self._polls, self._series = _Polls(), {}
            previous = None
        self._polls.add(mono)
        self._ordinal += 1
        round_ = _Round(mono, self._polls)
        flows: list[ModelFlow] = []
        ordinal, known = self._ordinal, self._series
        for stats in models:
            series = known.get((stats.name, stats.version))
            if series is None:
                series = self._new(stats, previous, mono)
            elif series.seen == ordinal:
                continue
            elif series.seen != ordinal - 1:
                self._returned(series, stats, previous, mono)
            else:
                flow = series.flow
                if flow is not None and (flow.stats is stats or flow.stats == stats):
                    series.seen = ordinal
                    if mono >= series.due:
                        series.flow = flow = round_.flow(series, flow.key, flow.stats)
                    flows.append(flow)
                    continue
                self._absorb(series, stats, previous, mono)
            series.seen = ordinal
            key = series.flow.key if series.flow is not None else ModelKey(stats.name, stats.version)
            series.flow = flow = round_.flow(series, key, stats)
            flows.append(flow)
        if len(known) > len(flows):
            for series in known.values():
                if series.seen == ordinal - 1:
                    series.leave()
        if len(known) > MAX_SERIES:
            self._evict()
        self._result = TritonStats(tuple(flows))
        return self._result

    def _new(self, stats: ModelStats, previous: float | None, mono: float) -> _Series:
        series = self._series[stats.name, stats.version] = _Series(len(self._series))
        if previous is None:
            series.begin(mono, _Epoch(None, _NO_BASE, {}), *packed(stats))
        else:
            self._from_zero(series, stats, previous, mono)
        return series

    def _from_zero(self, series: _Series, stats: ModelStats, previous: float, mono: float) -> None:
        epoch = _Epoch(previous, _NO_BASE, {})
        series.begin(previous, epoch, _ZEROS, _NO_BATCHES)
        series.append(mono, _Sample(epoch, *packed(stats)), self._polls)

    def _returned(self, series: _Series, stats: ModelStats, previous: float | None, mono: float) -> None:
        """Missing at the poll before. Only a fall proves that it began at 0 meanwhile."""
        series.resets += 1
        if previous is not None and _fell(series.samples[-1], *packed(stats)):
            self._from_zero(series, stats, previous, mono)
        else:
            series.begin(mono, _Epoch(mono, _NO_BASE, {}), *packed(stats))

    def _absorb(self, series: _Series, stats: ModelStats, previous: float | None, mono: float) -> None:
        last = series.samples[-1]
        counters, batches = packed(stats)
        if not _fell(last, counters, batches):
            series.append(mono, _Sample(last.epoch, counters, _carry(last.batches, batches)), self._polls)
            return
        series.resets += 1
        if sum(counters[i] for i in _WORK) < sum(last.counters[i] for i in _WORK):
            epoch = _Epoch(previous, _added(last.epoch.base, last.counters), _batches_added(last))
            series.append(mono, _Sample(epoch, counters, batches), self._polls)
            series.long_due = 0.0
        else:
            series.begin(mono, _Epoch(mono, _NO_BASE, {}), counters, batches)

    def _evict(self) -> None:
        """Versions come and go for ever on some boxes: forget those missing for longest."""
        absent = sorted((s.seen, key) for key, s in self._series.items() if s.seen != self._ordinal)
        for _, key in absent[: len(self._series) - MAX_SERIES]:
            del self._series[key]


class _Round:
    """One poll's computations: where the windows start is the same for all series."""

    __slots__ = ("_idle", "_mono", "_starts")

    def __init__(self, mono: float, polls: _Polls) -> None:
        self._mono = mono
        self._starts = tuple(polls.nearest(mono - age) for age in WINDOWS)
        self._idle: dict[float, Window] = {}

    def flow(self, series: _Series, key: ModelKey, stats: ModelStats) -> ModelFlow:
        """The series' flow now; the same object as before when no window changed."""
        mono = self._mono
        quiet = mono - series.times[-1]
        if quiet < SETTLED:
            series.due = 0.0
        elif quiet < KEPT:
            series.due = mono + LAZY - 0.5
        else:
            series.due = inf
        wanted = len(WINDOWS)
        first = series.windows[-1] is None or not series.long_due
        if first or mono >= series.long_due:
            series.long_due = mono + LAZY - 0.5 + (series.turn % 5 if first else 0.0)
        else:
            wanted = _SHORT
        same = True
        for at, start in enumerate(self._starts[:wanted]):
            window = self._window(series, start, at)
            if window is not series.windows[at]:
                series.windows[at] = window
                same = False
        old = series.flow
        if same and old is not None and old.stats is stats and old.resets == series.resets:
            return old
        w1, w10, w30, w120, w300 = series.windows
        return ModelFlow(key, stats, w1, w10, w30, w120, w300, series.samples[-1].epoch.began, series.resets)

    def _window(self, series: _Series, start: float | None, slot: int) -> Window | None:
        times = series.times
        if start is None or times[0] == self._mono:
            return None
        at = bisect_right(times, start) - 1
        if at < 0:
            at, start = 0, times[0]
        span = self._mono - start
        if span < MIN_SPAN:
            return None
        old, new = series.samples[at], series.samples[-1]
        before, (first, last) = series.windows[slot], series.ends[slot]
        if before is not None and first is old and last is new and abs(span - before.span) < SAME_SPAN * span:
            return before
        series.ends[slot] = (old, new)
        if old is not new:
            return _between(old, new, span)
        idle = self._idle.get(start)
        if idle is None:
            idle = self._idle[start] = _between(old, old, span)
        return idle


Packed = tuple["array[int]", "array[int]"]
"""One answer's counters of a model version, and its batches: what differences are made of."""


def window_between(old: ModelStats, new: ModelStats, span: float) -> Window | None:
    """What one model version did in the `span` seconds between two answers; None where its counters began anew."""
    return window_of(packed(old), packed(new), span)


def window_of(old: Packed, new: Packed, span: float) -> Window | None:
    """The same of answers that are packed already."""
    if span < MIN_SPAN:
        return None
    epoch = _Epoch(None, _NO_BASE, {})
    first = _Sample(epoch, *old)
    counters, batches = new
    if _fell(first, counters, batches):
        return None
    return _between(first, _Sample(epoch, counters, _carry(first.batches, batches)), span)


def packed(stats: ModelStats) -> Packed:
    """For `window_of`."""
    return array("q", _counters_of(stats)), _pack_batches(stats.batches)


def _pack_batches(batches: Iterable[BatchStat]) -> array[int]:
    flat: list[int] = []
    for b in batches:
        flat += (b.size, b.count, b.input_ns + b.infer_ns + b.output_ns)
    return array("q", flat)


def _by_size(flat: array[int]) -> dict[int, tuple[int, int]]:
    values = iter(flat)
    return {size: (runs, ns) for size, runs, ns in zip(values, values, values, strict=True)}


def _fell(last: _Sample, counters: array[int], batches: array[int]) -> bool:
    if any(new < old for old, new in zip(last.counters, counters, strict=True)):
        return True
    if last.batches == batches:
        return False
    before = _by_size(last.batches)
    for size, (runs, ns) in _by_size(batches).items():
        old_runs, old_ns = before.get(size, (0, 0))
        if runs < old_runs or ns < old_ns:
            return True
    return False


def _carry(old: array[int], new: array[int]) -> array[int]:
    """`new`, with the batch sizes of `old` that it lacks (a size that vanishes took no work back)."""
    if len(new) >= len(old) and new[::3][: len(old) // 3] == old[::3]:
        return new
    known = set(new[::3])
    missing = [value for at in range(0, len(old), 3) if old[at] not in known for value in old[at : at + 3]]
    return new + array("q", missing)


def _added(base: tuple[int, ...], counters: array[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(base, counters, strict=True))


def _batches_added(sample: _Sample) -> dict[int, tuple[int, int]]:
    total = dict(sample.epoch.batches)
    for size, (runs, ns) in _by_size(sample.batches).items():
        old_runs, old_ns = total.get(size, (0, 0))
        total[size] = (old_runs + runs, old_ns + ns)
    return total


def _between(old: _Sample, new: _Sample, span: float) -> Window:
    same = old.epoch is new.epoch
    if same:
        d = [b - a for a, b in zip(old.counters, new.counters, strict=True)]
        runs = _batch_windows(_by_size(old.batches), _by_size(new.batches))
    else:
        d = [
            b - a
            for a, b in zip(_added(old.epoch.base, old.counters), _added(new.epoch.base, new.counters), strict=True)
        ]
        runs = _batch_windows(_batches_added(old), _batches_added(new))
    (inferences, executions, success, success_ns, failed, _, queued, queue_ns) = d[:8]
    (inputs, input_ns, infers, infer_ns, outputs, output_ns, hits, _, misses) = d[8:17]
    input_ms, infer_ms, output_ms = _ms(input_ns, inputs), _ms(infer_ns, infers), _ms(output_ns, outputs)
    batches, busy_ns = runs
    return Window(
        span=span,
        success=success,
        failed=failed,
        executions=executions,
        inferences=inferences,
        cache_hits=hits,
        rate=success / span,
        fail_rate=failed / span,
        request_ms=_ms(success_ns, success),
        queue_ms=_ms(queue_ns, queued - hits),
        input_ms=input_ms,
        infer_ms=infer_ms,
        output_ms=output_ms,
        compute_ms=None if infer_ms is None else (input_ms or 0.0) + infer_ms + (output_ms or 0.0),
        mean_batch=inferences / executions if executions else None,
        busy_seconds=busy_ns / 1e9,
        batches=batches,
        crosses_reset=not same,
        cache_misses=misses,
    )


def _ms(ns: int, count: int) -> float | None:
    return ns / count / 1e6 if count > 0 else None


def _batch_windows(
    old: Mapping[int, tuple[int, int]], new: Mapping[int, tuple[int, int]]
) -> tuple[tuple[BatchWindow, ...], int]:
    """Executions by batch size, smallest first, and the nanoseconds of all of them."""
    windows: list[BatchWindow] = []
    total = 0
    for size in sorted(new):
        runs, ns = new[size]
        old_runs, old_ns = old.get(size, (0, 0))
        total += ns - old_ns
        if runs > old_runs:
            windows.append(BatchWindow(size, runs - old_runs, (ns - old_ns) / (runs - old_runs) / 1e6))
    return tuple(windows), total


class Rates(NamedTuple):
    """A second, over the last 10 and 30 s; None at a baseline."""

    rate10: float | None
    rate30: float | None


_UNKNOWN = Rates(None, None)
STILL = Rates(0.0, 0.0)
"""What every counter has that did not move as far as the windows reach (this very object)."""


class _Counter:
    __slots__ = ("raw", "seen", "times", "totals")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.totals: list[float] = []
        self.raw = 0.0
        self.seen = 0

    def begin(self, at: float, raw: float) -> None:
        self.times, self.totals, self.raw = [at], [0.0], raw


class MetricsTracker(Generic[K]):
    """Rates of single counters of the metrics page by the same rules as `StatsTracker`.

    Failure counters outlive their model there ("zombies": they stay after an unload, keep their value and go on
    after the next load), so a fall is the only sign of a new beginning.
    """

    def __init__(self) -> None:
        self._polls = _Polls()
        self._counters: dict[K, _Counter] = {}
        self._ordinal = 0

    def update(self, mono: float, values: Mapping[K, float]) -> dict[K, Rates]:
        """Take the counters read at `mono`; give the rates of each. What no counter can be (NaN, -1) is left out."""
        times = self._polls.times
        previous = times[-1] if times else None
        if previous is not None and mono <= previous:
            self._polls, self._counters = _Polls(), {}
            previous = None
        self._polls.add(mono)
        self._ordinal += 1
        starts = (self._polls.nearest(mono - 10.0), self._polls.nearest(mono - 30.0))
        result: dict[K, Rates] = {}
        for key, value in values.items():
            if not 0.0 <= value < inf:
                continue
            counter = self._counters.get(key)
            if counter is None:
                counter = self._counters[key] = _Counter()
                counter.begin(mono if previous is None else previous, value if previous is None else 0.0)
            elif counter.seen != self._ordinal - 1:
                fell = previous is not None and value < counter.raw
                counter.begin(previous if fell and previous is not None else mono, 0.0 if fell else value)
            counter.seen = self._ordinal
            if value != counter.raw:
                self._absorb(counter, value, mono)
            elif counter.times[-1] < mono - SETTLED or (len(counter.times) == 1 and counter.times[0] < mono - MIN_SPAN):
                result[key] = STILL
                continue
            result[key] = _UNKNOWN if counter.times[0] == mono else Rates(*(_rate(counter, s, mono) for s in starts))
        if len(self._counters) > MAX_SERIES:
            self._counters = {key: c for key, c in self._counters.items() if c.seen == self._ordinal}
        return result

    @staticmethod
    def _absorb(counter: _Counter, value: float, mono: float) -> None:
        delta = value - counter.raw if value >= counter.raw else value
        counter.raw = value
        counter.times.append(mono)
        counter.totals.append(counter.totals[-1] + delta)
        while len(counter.times) > 1 and counter.times[1] <= mono - FINE:
            del counter.times[0], counter.totals[0]


def _rate(counter: _Counter, start: float | None, mono: float) -> float | None:
    if start is None:
        return None
    at = bisect_right(counter.times, start) - 1
    if at < 0:
        at, start = 0, counter.times[0]
    span = mono - start
    return None if span < MIN_SPAN else (counter.totals[-1] - counter.totals[at]) / span
