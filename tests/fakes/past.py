"""A box second by second: what a console's Store would have shown, with traffic, reloads, silences, events and log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from console.core.model import BatchStat, Event, Failure, Gaps, LogLine, ModelStats, Reading, Snapshot, Verdict
from console.core.rates import StatsTracker
from console.core.store import Store
from tests.fakes.boxes import Box, drawn_box
from tests.fakes.drawn import MONO, NOW
from tests.fakes.session import readings_of

Second = tuple[Snapshot, tuple[LogLine, ...]]
"""What was shown, and the log lines since the second before."""
SECRET = "--http-restricted-api=statistics:admin=hunter2hunter2"


class Counters:
    """Cumulative statistics of three models, one of them idle; `reload` begins those of a model anew."""

    def __init__(self, rng: random.Random, models: tuple[str, ...] = ("ranking", "recall", "idle")) -> None:
        self._rng = rng
        self._stats = {name: ModelStats(name, "1") for name in models}

    def reload(self, name: str) -> None:
        """Counters of 0."""
        self._stats[name] = ModelStats(name, "1")

    def second(self, wall: float) -> tuple[ModelStats, ...]:
        """The answer a second later."""
        for name, old in self._stats.items():
            if name != "idle":
                self._stats[name] = self._served(old, wall)
        return tuple(self._stats.values())

    def _served(self, old: ModelStats, wall: float) -> ModelStats:
        rng = self._rng
        runs = {size: rng.randint(0, 60 // size) for size in (1, 2, 3, 4, 8)}
        kept = {one.size: one for one in old.batches}
        requests, queue = sum(size * count for size, count in runs.items()), rng.randint(10**6, 10**8)
        sums = [0, 0, 0]
        batches: list[BatchStat] = []
        for size, count in runs.items():
            was = kept.get(size, BatchStat(size, 0, 0, 0, 0))
            times = [rng.randint(10**4, 10**6) * count for _ in range(3)]
            sums = [total + size * one for total, one in zip(sums, times, strict=True)]
            if was.count + count:
                added = [a + b for a, b in zip((was.input_ns, was.infer_ns, was.output_ns), times, strict=True)]
                batches.append(BatchStat(size, was.count + count, *added))
        failed = rng.choice((0, 0, 0, 3))
        return replace(
            old,
            last_inference_ms=round(wall * 1000) if requests else old.last_inference_ms,
            inference_count=old.inference_count + requests,
            execution_count=old.execution_count + sum(runs.values()),
            success_count=old.success_count + requests,
            success_ns=old.success_ns + queue + sum(sums) + rng.randint(0, 1000),
            fail_count=old.fail_count + failed,
            fail_ns=old.fail_ns + failed * 1000,
            queue_count=old.queue_count + requests,
            queue_ns=old.queue_ns + queue,
            input_count=old.input_count + requests,
            input_ns=old.input_ns + sums[0],
            infer_count=old.infer_count + requests,
            infer_ns=old.infer_ns + sums[1],
            output_count=old.output_count + requests,
            output_ns=old.output_ns + sums[2],
            batches=tuple(batches),
        )


def seconds(count: int, seed: int = 1, *, box: Box | None = None) -> Iterator[Second]:
    """`count` snapshots a second apart, each with the log lines since the one before."""
    rng = random.Random(seed)
    store, tracker, counters = Store(), StatsTracker(), Counters(rng)
    first = {reading.part: reading for reading in readings_of((box or drawn_box()).snapshot)}
    at = 0.0
    for second in range(count):
        at += 1 + rng.uniform(-0.01, 0.02)
        wall, mono = NOW + at + 0.000_000_3, MONO + at
        if second % 97 == 60:
            counters.reload("ranking")
        silent = second % 120 in range(80, 90)
        for part, reading in first.items():
            if reading.interval > 1 and second % round(reading.interval):
                continue
            value: Any = reading.value
            if part == "triton.stats":
                value = tracker.update(mono - 0.003, counters.second(wall))
            store.apply(
                _read(_moved(part, value, rng), reading, second, wall, mono, silent and part == "triton.server")
            )
        if second % 7 == 3:
            store.add_event(Event(wall, "note", f"event {second}", "(test)", f"test.{second}", detail=("a", "b")))
        if second % 5 == 0:
            store.set_verdicts((Verdict("V31", "ok", f"{rng.random():.2f} of 2.65 ms", since_mono=mono),))
        if second % 50 == 10:
            store.set_gaps(Gaps(dropped=(("lines", second),)))
        lines = tuple(
            LogLine(wall, "stderr", f"I0704 server.cc:{number}] {rng.random()} {SECRET if second == 5 else ''}", "I")
            for number in range(rng.choice((0, 0, 0, 2)))
        )
        yield store.snapshot(wall, mono), lines


def _moved(part: str, value: Any, rng: random.Random) -> Any:
    if part == "gpu":
        gpus = tuple(replace(gpu, util_pct=rng.uniform(0, 100), temp_c=rng.randint(50, 80)) for gpu in value.gpus)
        return replace(value, gpus=gpus)
    if part == "host":
        return replace(value, cpu_pct=rng.uniform(0, 100), load1=rng.choice((1.25, 2.5)))
    if part == "triton.metrics":
        models = tuple(
            replace(one, pending=(got := float(rng.randint(0, 9))), pending_samples=(*one.pending_samples[1:], got))
            for one in value.models
        )
        return replace(value, models=models)
    return value


def _read(value: Any, old: Reading[Any], second: int, wall: float, mono: float, silent: bool) -> Reading[Any]:
    if silent:
        failure = Failure("timeout", "no answer within 2 s", "look")
        return replace(old, error=failure, error_mono=mono - second % 10, error_wall=wall - second % 10)
    return replace(
        old, value=value, wall=wall - 0.01, mono=mono - 0.01, reads=second + 1, duration=0.004, error=None,
        error_mono=None, error_wall=None,
    )  # fmt: skip
