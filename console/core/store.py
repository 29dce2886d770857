"""The memory: folds Readings and events into Snapshots and appends to History. One writer (the UI thread), no locks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from console.core import derive
from console.core.changes import changes
from console.core.history import History
from console.core.load_memory import LoadMemory
from console.core.model import (
    PART_FIELDS,
    Event,
    Gaps,
    GpuBox,
    HostState,
    ModelFlow,
    ModelRow,
    PodmanState,
    Reading,
    Snapshot,
    TritonMetrics,
    TritonStats,
    Verdict,
)

MAX_EVENTS = 1000
SAME_EVENT = 3.0
"""Seconds within which two tellings of one thing (stream and poll) are one event."""
FOLD = 3600.0
"""A fault that comes again within this many seconds is counted on its first event, not listed anew."""
ONE_RELOAD = 10.0
"""Seconds from the sight of a reload (statistics began anew) to that of its configuration: together one event."""
COMMON_SHARE = 0.2
"""Batch sizes with this share of the runs of 10 s are the usual ones."""
_MODEL_PARTS = frozenset({"triton.index", "triton.stats", "triton.metrics", "triton.config", "repository"})


class Store:
    """Readings in, Snapshots out. `apply` is cheap; what is derived is computed once per `snapshot`."""

    def __init__(self) -> None:
        self.history = History()
        self._snapshot = Snapshot()
        self._fields: dict[str, Any] = {}
        self._rows = derive.RowCache()
        self._load_memory = LoadMemory()
        self.attribute: Callable[[Event], Event] = lambda event: event
        """Says by whom a change was made that shows by comparison; set by who knows the changes of gpuconsoles."""
        self._events: list[Event] = []
        self._told_again: dict[tuple[str, str], float] = {}
        """Kind and text of a counted fault -> when it was counted last: two sources tell each of its times."""
        self._events_changed = False

    def apply(self, reading: Reading[Any]) -> None:
        """Take a Reading in; a part that is none raises KeyError. A good one is also appended to History."""
        field = PART_FIELDS[reading.part]
        previous = self._fields.get(field, getattr(self._snapshot, field))
        self._fields[field] = reading
        if reading.error is None and reading.value is not None and reading.value is not previous.value:
            self.history.record(reading.mono or 0.0, dict(series_of(reading.value)))

    def add_event(self, event: Event) -> None:
        """Put an event in its place in time; the same thing told twice, or a fault repeated, is counted instead."""
        for position, known in enumerate(self._events):
            if _is_one_deed(known, event):
                return
            if _is_one_deed(event, known):
                self._events[position] = msgspec.structs.replace(event, wall=known.wall)
                self._events_changed = True
                return
            if known.kind == event.kind and known.text == event.text and known.kind:
                gap = abs(known.wall - event.wall)
                again = self._told_again.get((event.kind, event.text), known.wall)
                if min(gap, abs(again - event.wall)) <= SAME_EVENT:
                    return
                if gap <= FOLD and event.sign == "fail":
                    first = min(known.wall, event.wall)
                    repeats = known.repeats + event.repeats
                    self._events[position] = msgspec.structs.replace(known, repeats=repeats, wall=first)
                    self._events.sort(key=lambda one: one.wall)
                    if len(self._told_again) > MAX_EVENTS:
                        self._told_again.clear()
                    self._told_again[event.kind, event.text] = event.wall
                    self._events_changed = True
                    return
        insort(self._events, event, key=lambda one: one.wall)
        if len(self._events) > MAX_EVENTS:
            del self._events[0]
        self._events_changed = True

    def set_verdicts(self, verdicts: tuple[Verdict, ...]) -> None:
        """What Why says now; shows in the next snapshot."""
        self._fields["verdicts"] = verdicts

    def set_gaps(self, gaps: Gaps) -> None:
        """What does not reach the console; shows in the next snapshot."""
        if gaps != self._snapshot.gaps:
            self._fields["gaps"] = gaps

    def snapshot(self, wall: float, mono: float) -> Snapshot:
        """The newest Snapshot. The same object comes back when nothing arrived since the last call."""
        old = self._snapshot
        if not self._fields and not self._events_changed and not _waits_for_silence(old):
            return old
        touched = {field for part, field in PART_FIELDS.items() if part in _MODEL_PARTS and field in self._fields}
        new = msgspec.structs.replace(old, seq=old.seq + 1, wall=wall, mono=mono, **self._fields)
        self._fields = {}
        if touched:
            rows = self._rows.rows(new, self._load_memory.seen)
            self._load_memory.learn(new, rows)
            if rows != old.models:
                new = msgspec.structs.replace(new, models=rows)
            if "stats" in touched:
                new = msgspec.structs.replace(new, traffic=derive.traffic(new.models, new.stats))
                if new.stats.error is None:
                    self.history.record(mono, dict(_row_series(new)))
        word = derive.serving(new, new.models, mono)
        if word != new.serving:
            new = msgspec.structs.replace(new, serving=word)
        for event in changes(old, new):
            self.add_event(self.attribute(event))
        if self._events_changed:
            new = msgspec.structs.replace(new, events=tuple(self._events))
            self._events_changed = False
        self._snapshot = new
        return new


def _is_one_deed(config: Event, reload: Event) -> bool:
    """A reload and what it changed, seen by two sources; the configuration may be seen first, but not long before: a
    later reload is a deed of its own."""
    return (
        config.kind == "config"
        and reload.kind == "reload"
        and config.model == reload.model
        and -SAME_EVENT <= config.wall - reload.wall <= ONE_RELOAD
    )


def _waits_for_silence(snapshot: Snapshot) -> bool:
    """True while some source fails: its silence becomes an event by time alone."""
    return any(snapshot.reading(part).error is not None for part in PART_FIELDS)


def samples(old: Snapshot, new: Snapshot) -> Iterator[tuple[float, str, float]]:
    """(monotonic time, key, value) of what History holds of the step from `old` to `new`: of each good new reading."""
    for field in PART_FIELDS.values():
        before, reading = getattr(old, field), getattr(new, field)
        if reading is before or reading.error is not None or reading.value is None or reading.mono == before.mono:
            continue
        for key, value in series_of(reading.value):
            if value is not None:
                yield reading.mono or 0.0, key, value
    if new.stats is not old.stats and new.stats.error is None:
        for key, value in _row_series(new):
            if value is not None:
                yield new.mono, key, value


def series_of(value: Any) -> Iterator[tuple[str, float | None]]:
    """The samples that one part's value gives, by History key."""
    if isinstance(value, GpuBox):
        yield from _gpu_series(value)
    elif isinstance(value, TritonStats):
        yield from _stats_series(value)
    elif isinstance(value, TritonMetrics):
        for one in value.models:
            if one.pending is not None:
                yield f"model.{one.key.name}/{one.key.version}.pending", one.pending
    elif isinstance(value, HostState):
        yield "host.cpu_pct", value.cpu_pct
        yield "host.memory_used", value.memory_used
        yield "host.triton_cores", value.triton_cores
    elif isinstance(value, PodmanState) and value.container is not None:
        yield "container.memory", value.container.usage.memory


def _gpu_series(box: GpuBox) -> Iterator[tuple[str, float | None]]:
    for gpu in box.gpus:
        if gpu.lost:
            continue
        prefix = f"gpu.{gpu.index}"
        yield f"{prefix}.util_pct", gpu.util_pct
        yield f"{prefix}.memory_used", gpu.memory_used
        yield f"{prefix}.power_w", gpu.power_w
        yield f"{prefix}.temp_c", gpu.temp_c
        yield f"{prefix}.sm_mhz", gpu.sm_mhz
        for counter in gpu.throttle_counters:
            yield f"{prefix}.throttle.{counter.reason}", counter.seconds
        if gpu.throttle_now is not None:
            for reason in gpu.throttle_now:
                yield f"{prefix}.throttled.{reason}", 1.0


def _stats_series(stats: TritonStats) -> Iterator[tuple[str, float | None]]:
    """An idle model has a rate (0) and nothing else: it has no mean batch or time."""
    for flow in stats.flows:
        window = flow.w1
        if window is None:
            continue
        prefix = f"model.{flow.key.name}/{flow.key.version}"
        yield f"{prefix}.rate", window.rate
        if not (window.success or window.executions or window.failed):
            continue
        yield f"{prefix}.request_ms", window.request_ms
        yield f"{prefix}.queue_ms", window.queue_ms
        yield f"{prefix}.batch", window.mean_batch
        yield f"{prefix}.fail_rate", window.fail_rate
        for size, millis in _run_times(flow):
            yield f"{prefix}.run_ms.{size}", millis


def _run_times(flow: ModelFlow) -> Iterator[tuple[int, float]]:
    """(batch size, ms a run) for the usual sizes: a run's time at one size moves with neither load nor delay, so over
    time it tells a slower model or card from a longer queue."""
    usual = flow.w10.batches if flow.w10 else ()
    least = COMMON_SHARE * sum(batch.runs for batch in usual)
    common = {batch.size for batch in usual if batch.runs >= least}
    for batch in flow.w1.batches if flow.w1 else ():
        if batch.size in common and batch.runs:
            yield batch.size, batch.ms_per_run


def _row_series(snapshot: Snapshot) -> Iterator[tuple[str, float | None]]:
    yield "box.rate", snapshot.traffic.rate
    yield "box.waiting", snapshot.traffic.waiting
    for row in snapshot.models:
        if row.busy is not None:
            yield f"model.{row.name}/{row.version}.busy", row.busy


def lettered(events: Iterable[Event]) -> tuple[tuple[str, Event], ...]:
    """Events with their letters, oldest first: a, b, c ... for those that mark a chart, "" for others.

    Only the newest 26 marks have letters, so that each letter stands once on a screen.
    """
    kept = tuple(events)
    marks = [event for event in kept if event.marks_chart][-26:]
    names = {id(event): chr(ord("a") + number) for number, event in enumerate(marks)}
    return tuple((names.get(id(event), ""), event) for event in kept)


def rows_named(rows: Iterable[ModelRow], name: str) -> tuple[ModelRow, ...]:
    """All versions of one model."""
    return tuple(row for row in rows if row.name == name)
