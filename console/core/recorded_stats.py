"""Triton's statistics as a recording holds them: what the counters rose by, and what each window is the difference of.

Five windows of three models are some thousand digits a second, and all of them follow from the counters. So a window
is written as the two polls that it lies between, where the difference of these gives that window to the last bit;
else as it is. Counters are written as their rise since the poll before, less what follows from the others: of n
requests that were all counted everywhere, that is n once.

A reader that begins in the middle knows only the polls that it has read: a window that begins before those is None
until it has read WARM_UP seconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from console.core.model import BatchStat, ModelFlow, ModelKey, ModelStats, TritonStats, Window
from console.core.rates import KEPT, Packed, packed, window_of

WARM_UP = KEPT + 10.0
"""Seconds: no window of a model that works begins earlier (the long ones may be renewed some seconds late)."""
WINDOWS = ("w1", "w10", "w30", "w120", "w300")
_LONG = 2
"""Place of the first window that History needs nothing of."""
_NEAR = 3
"""Polls to either side of where a window seems to begin among which its first one is looked for."""
_TIMED = ("queue", "input", "infer", "output")


class _Model:
    """What is known of one model version: its polls, each where something changed, and its present flow."""

    __slots__ = ("flow", "numbers", "polls", "refs")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.polls: list[Packed] = []
        self.flow: ModelFlow | None = None
        self.refs: list[tuple[int, int, float] | None] = [None] * len(WINDOWS)
        """Of each window: (first poll, last poll, span); None = written as it is."""

    def add(self, number: int, stats: ModelStats) -> None:
        if self.flow is None or not self.polls or self.flow.stats != stats:
            self.numbers.append(number)
            self.polls.append(packed(stats))

    def at(self, number: int) -> Packed | None:
        """The counters at a poll; None where that is before all that is known."""
        at = bisect_right(self.numbers, number) - 1
        return None if at < 0 else self.polls[at]

    def forget(self, before: int) -> None:
        """Drop polls that no window begins at any more; one stays from before, as it holds until the next change."""
        while len(self.numbers) > 1 and self.numbers[1] <= before:
            del self.numbers[0], self.polls[0]


class StatsCodec:
    """One side of it, writing or reading; both remember the same."""

    def __init__(self) -> None:
        self.brief = False
        """Reading: leave out the long windows of minutes that are only passed by."""
        self._models: dict[ModelKey, _Model] = {}
        self._keys: tuple[ModelKey, ...] = ()
        self._poll = 0
        self._times: list[float] = []
        """When the newest polls were taken (monotonic seconds); the last is that of `_poll`."""

    # ------------------------------------------------------------------------------------------------------ writing

    def write(self, stats: TritonStats, mono: float, *, whole: bool) -> Any:
        """Plain data for one poll; `whole`: counters as they are, for a reader that begins here."""
        self._next_poll(mono)
        keys = tuple(flow.key for flow in stats.flows)
        spans: list[float] = []
        told: dict[str, Any] = {"f": [self._flow(flow, spans, mono, whole) for flow in stats.flows]}
        if whole:
            told["n"] = self._poll
        if whole or keys != self._keys:
            told["k"] = [[key.name, key.version, key.namespace] for key in keys]
        if spans:
            told["s"] = spans
        self._keys = keys
        self._drop_gone()
        return told

    def _next_poll(self, mono: float) -> None:
        self._poll += 1
        self._times.append(mono)
        while self._times[0] < mono - WARM_UP:
            del self._times[0]

    @property
    def _oldest(self) -> int:
        """Number of the first poll that is remembered."""
        return self._poll - len(self._times) + 1

    def _drop_gone(self) -> None:
        for gone in self._models.keys() - set(self._keys):
            del self._models[gone]
        for model in self._models.values():
            model.forget(self._oldest)

    def _flow(self, flow: ModelFlow, spans: list[float], mono: float, whole: bool) -> Any:
        known = self._models.get(flow.key)
        model = known or _Model()
        old = None if whole or known is None or known.flow is None else known.flow
        if old is not None and (old is flow or old == flow):
            return 0
        self._models[flow.key] = model
        before = None if old is None else old.stats
        model.add(self._poll, flow.stats)
        told: dict[str, Any] = {}
        if before != flow.stats:
            told["c"], told["b"] = _rise(before, flow.stats)
        told["w"] = [self._window(model, at, flow, old, spans, mono) for at in range(len(WINDOWS))]
        if old is None or (old.epoch_mono, old.resets) != (flow.epoch_mono, flow.resets):
            told["e"] = [flow.epoch_mono, flow.resets]
        model.flow = flow
        return told if len(told) > 1 else told["w"]

    def _window(
        self, model: _Model, at: int, flow: ModelFlow, old: ModelFlow | None, spans: list[float], mono: float
    ) -> Any:
        """None; 0: as before; [polls back to the first, polls back to the last, place in spans]; or the window."""
        window: Window | None = getattr(flow, WINDOWS[at])
        if window is None:
            model.refs[at] = None
            return None
        if old is not None and getattr(old, WINDOWS[at]) == window:
            return 0
        ref = model.refs[at]
        if ref is None or not self._gives(model, ref, window):
            ref = model.refs[at] = self._ref(model, window, mono)
        if ref is None:
            return msgspec.to_builtins(window)
        first, last, span = ref
        if model.numbers[-1] <= first:  # nothing was counted since: a reader that begins here need not go back so far
            first = last = self._poll
        if span not in spans:
            spans.append(span)
        place = spans.index(span)
        back = self._poll - first
        return [back, self._poll - last, place] if last != self._poll else [back, place]

    def _ref(self, model: _Model, window: Window, mono: float) -> tuple[int, int, float] | None:
        near = self._oldest + bisect_left(self._times, mono - window.span)
        for number in sorted(range(near - _NEAR, near + _NEAR + 1), key=lambda one: abs(one - near)):
            ref = (number, self._poll, window.span)
            if self._oldest <= number <= self._poll and self._gives(model, ref, window):
                return ref
        return None

    @staticmethod
    def _gives(model: _Model, ref: tuple[int, int, float], window: Window) -> bool:
        return _window_of(model, ref) == window

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, told: Any, mono: float) -> TritonStats:
        """The statistics that were written. ValueError, KeyError, TypeError, IndexError or msgspec.ValidationError for
        what was not."""
        if "n" in told:
            self._begin_at(told["n"])
            self._poll = told["n"] - 1
        self._next_poll(mono)
        keys = tuple(ModelKey(*key) for key in told["k"]) if "k" in told else self._keys
        spans = told.get("s", ())
        whole = "n" in told
        flows = [self._read_flow(key, one, spans, whole) for key, one in zip(keys, told["f"], strict=True)]
        self._keys = keys
        self._drop_gone()
        return TritonStats(tuple(flows))

    def _begin_at(self, number: int) -> None:
        """Where polls are missing in between, those read so far say nothing about what follows."""
        if number != self._poll + 1:
            self._models, self._times = {}, []

    def _read_flow(self, key: ModelKey, told: Any, spans: Sequence[float], whole: bool) -> ModelFlow:
        model = self._models.setdefault(key, _Model())
        old = model.flow
        if told == 0:
            if old is None:
                raise ValueError("a model is said to be as before, of which nothing was said")
            return old
        if isinstance(told, list):
            told = {"w": told}
        before = None if old is None else old.stats
        if "c" in told:
            stats = _risen(key, None if whole else before, told["c"], told["b"])
        elif before is None:
            raise ValueError("a model without counters")
        else:
            stats = before
        model.add(self._poll, stats)
        windows = [self._read_window(model, at, one, spans) for at, one in enumerate(told["w"])]
        epoch, resets = told.get("e", (None, 0) if old is None else (old.epoch_mono, old.resets))
        w1, w10, w30, w120, w300 = windows
        model.flow = flow = ModelFlow(key, stats, w1, w10, w30, w120, w300, epoch, resets)
        return flow

    def _read_window(self, model: _Model, at: int, told: Any, spans: Sequence[float]) -> Window | None:
        if told is None or (self.brief and at >= _LONG):
            return None
        if told == 0:
            return None if model.flow is None else getattr(model.flow, WINDOWS[at])
        if isinstance(told, dict):
            return msgspec.convert(told, Window)
        back, *last, place = told
        first = self._poll - back
        return _window_of(model, (first, self._poll - (last[0] if last else 0), spans[place]))


def _window_of(model: _Model, ref: tuple[int, int, float]) -> Window | None:
    first, last, span = ref
    old, new = model.at(first), model.at(last)
    return None if old is None or new is None else window_of(old, new, span)


def _rise(old: ModelStats | None, new: ModelStats) -> tuple[list[Any], list[Any]]:
    """(counters, batch sizes) as differences from `old`, from nothing where there is none; see `_risen`."""
    old = old or ModelStats(new.name, new.version)
    counts = [getattr(new, f"{name}_count") - getattr(old, f"{name}_count") for name in _TIMED]
    times = [getattr(new, f"{name}_ns") - getattr(old, f"{name}_ns") for name in _TIMED]
    batches, runs, batch_ns = _batch_rise(old.batches, new.batches)
    success = new.success_count - old.success_count
    inputs = [ns - all_ns for ns, all_ns in zip(times[1:], batch_ns, strict=True)]
    told: list[Any] = [
        success,
        times[0],
        new.last_inference_ms - old.last_inference_ms,
        *inputs,
        new.success_ns - old.success_ns - sum(times),
        new.inference_count - old.inference_count - success,
        new.execution_count - old.execution_count - runs,
        *(count - success for count in counts),
        *(getattr(new, name) - getattr(old, name) for name in _SELDOM),
    ]
    while told and not told[-1]:
        told.pop()
    if new.memory_bytes != old.memory_bytes:
        told = [*told, *[0] * (_COUNTERS - len(told)), [new.memory_bytes]]
    return told, batches


_SELDOM = (
    "fail_count",
    "fail_ns",
    "cache_hit_count",
    "cache_hit_ns",
    "cache_miss_count",
    "cache_miss_ns",
)
_COUNTERS = 13 + len(_SELDOM)


def _risen(key: ModelKey, old: ModelStats | None, told: Sequence[Any], batches: Sequence[Any]) -> ModelStats:
    """The counters that rose from `old` by what `_rise` told: successes, nanoseconds in the queue, milliseconds of the
    last inference; nanoseconds of input, infer and output less those of all batches times their size; then what is 0
    where every request was counted everywhere; then what seldom moves."""
    old = old or ModelStats(key.name, key.version)
    values = [*told[:_COUNTERS], *[0] * (_COUNTERS - len(told))]
    success, queue_ns, last_ms, *rest = values
    made, runs, batch_ns = _batches_risen(old.batches, batches)
    times = [queue_ns, *(ns + all_ns for ns, all_ns in zip(rest[:3], batch_ns, strict=True))]
    moved: dict[str, Any] = {
        "success_count": success,
        "last_inference_ms": last_ms,
        "success_ns": rest[3] + sum(times),
        "inference_count": rest[4] + success,
        "execution_count": rest[5] + runs,
    }
    for name, count, ns in zip(_TIMED, rest[6:10], times, strict=True):
        moved[f"{name}_count"] = count + success
        moved[f"{name}_ns"] = ns
    moved.update(zip(_SELDOM, rest[10:], strict=True))
    memory = told[_COUNTERS][0] if len(told) > _COUNTERS else old.memory_bytes
    fields = {name: getattr(old, name) + rise for name, rise in moved.items()}
    return ModelStats(key.name, key.version, batches=made, memory_bytes=memory, **fields)


def _batch_rise(old: Sequence[BatchStat], new: Sequence[BatchStat]) -> tuple[list[Any], int, list[int]]:
    """([rise of each size], runs in all, nanoseconds of input, infer and output in all, times the size).

    A size that did not run is 0, one that did is its runs and three times; where the sizes are others, they come first
    in a list of their own and all count from 0.
    """
    sizes = [one.size for one in new]
    same = sizes == [one.size for one in old]
    told: list[Any] = [] if same else [sizes]
    runs, totals = 0, [0, 0, 0]
    for before, after in zip(old if same else _zeros(sizes), new, strict=True):
        rise = [b - a for a, b in zip(_numbers(before), _numbers(after), strict=True)]
        told += rise if any(rise) else [0]
        if rise[0] == 0 and any(rise):
            return [[], list(chain.from_iterable((one.size, *_numbers(one)) for one in new))], 0, [0, 0, 0]
        runs += rise[0]
        totals = [total + after.size * ns for total, ns in zip(totals, rise[1:], strict=True)]
    while told and told[-1] == 0:
        told.pop()
    return told, runs, totals


def _batches_risen(old: Sequence[BatchStat], told: Sequence[Any]) -> tuple[tuple[BatchStat, ...], int, list[int]]:
    values = iter(told)
    if told and isinstance(told[0], list):
        sizes = next(values)
        if not sizes:  # a time that moved without a run: all as they are
            flat = iter(next(values))
            return tuple(BatchStat(*five) for five in zip(flat, flat, flat, flat, flat, strict=True)), 0, [0, 0, 0]
        old = _zeros(sizes)
    made: list[BatchStat] = []
    runs, totals = 0, [0, 0, 0]
    for before in old:
        rise = next(values, 0)
        if rise == 0:
            made.append(before)
            continue
        times = [next(values, 0), next(values, 0), next(values, 0)]  # zeros at the end are left out
        runs += rise
        totals = [total + before.size * ns for total, ns in zip(totals, times, strict=True)]
        count, *was = _numbers(before)
        made.append(BatchStat(before.size, count + rise, *(a + b for a, b in zip(was, times, strict=True))))
    return tuple(made), runs, totals


def _zeros(sizes: Iterable[int]) -> list[BatchStat]:
    return [BatchStat(size, 0, 0, 0, 0) for size in sizes]


def _numbers(one: BatchStat) -> tuple[int, int, int, int]:
    return one.count, one.input_ns, one.infer_ns, one.output_ns
