"""One setting of a model's batcher as the engines run it, and what they did as figures. Pure.

Engines count requests, settings and service times count items; here one becomes the other. Most settings go by
`lanes.py`; preferred sizes by `ahead.py` and queue policies by `asleep.py`, one event after another.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from console.planning import lanes
from console.planning.ahead import Ahead
from console.planning.asleep import Asleep
from console.planning.batcher import NS_PER_MS, Completion, Outcome, Request, Scheduling, ServiceTime
from console.planning.observed import Observed
from console.planning.service import Seen, curve

SECONDS = 60.0
"""Of traffic, over all streams of a setting; less where that were more than `MOST` requests a stream."""
FEWEST, MOST = 1500, 7500
"""Requests of a stream."""
LARGEST = 4096
"""Items of a batch; the model's own bound may be beyond all reason."""
SHARED_RUNS = 20
"""Runs of one size under each of two numbers of instances that tell whether instances slow each other down."""


class Machine(Struct, frozen=True):
    """What no setting changes and no statistic tells (calibration.py finds it)."""

    lost_ms: float = 0.0
    """What an instance loses between two runs: waking of threads, hand-over."""
    wins: float = 0.0
    """How often the batcher's thread is there before an instance that frees (ahead.py)."""


class Growth(Struct, frozen=True):
    """What is known of service times under a number of instances."""

    known: bool
    most: float = 1.0
    """Factor on service times if instances shared the card wholly."""
    seen_under: int = 1


class Setting:
    """One setting under one rate."""

    def __init__(self, observed: Observed, scheduling: Scheduling, rate: float) -> None:
        self.scheduling, self.rate = scheduling, rate
        self.items = max(1, round(observed.items))
        """Of a request."""
        batched = scheduling.dynamic_batching and scheduling.max_batch_size > 1
        self.largest = max(1, min(scheduling.max_batch_size, LARGEST) // self.items) if batched else 1
        """Requests of a batch."""
        self.delay_ms = scheduling.max_queue_delay_us / 1e3 if self.largest > 1 else 0.0
        self.preferred = tuple(size for size in scheduling.preferred_batch_sizes if size <= scheduling.max_batch_size)
        self.has_policy = scheduling.dynamic_batching and bool(scheduling.max_queue_size or scheduling.queue_timeout_us)
        self.slow = self.has_policy or (batched and bool(self.preferred))
        self.variable = observed.variable
        seen, self.growth = _seen_for(observed, scheduling.instances)
        self.curve = curve(seen, self.largest * self.items)

    def lane(self, stream: int, times: Sequence[float], machine: Machine, rate: float) -> lanes.Lane:
        """For the fast engine; `times` are ms by items."""
        held = self.held(times, machine.lost_ms)
        count = self.scheduling.instances
        return lanes.Lane(stream, self.largest, count, self.delay_ms, 1e3 / rate, held, self.joining(machine))

    def joining(self, machine: Machine) -> float:
        """How often what waits joins a batch at the last moment; always, where each arrival wakes the batcher."""
        return 1.0 if self.variable else machine.wins

    def held(self, times: Sequence[float], lost: float) -> list[float]:
        """ms that a run holds its instance, by the number of requests."""
        return [times[n * self.items] + lost for n in range(self.largest + 1)]

    def capacity(self, lost: float, times: Sequence[float] | None = None) -> float:
        """Requests a second at most."""
        held = self.held(times or self.curve.ms, lost)
        return 1e3 * self.scheduling.instances * max(n / held[n] for n in range(1, self.largest + 1))


def _seen_for(observed: Observed, instances: int) -> tuple[list[Seen], Growth]:
    """Service times under `instances`: own ones; or others' grown as those of two numbers of instances tell."""
    by_count: dict[int, list[Seen]] = {}
    for one in observed.service:
        by_count.setdefault(one.instances, []).append(one)
    own = by_count.get(instances)
    if own:
        return own, Growth(known=True, seen_under=instances)
    base = max(by_count, key=lambda count: sum(one.runs for one in by_count[count]))
    each = _slowdown(by_count)
    if each is None:
        return by_count[base], Growth(known=False, most=instances / base, seen_under=base)
    factor = (1 + each * (instances - 1)) / (1 + each * (base - 1))
    return [replace(one, ms=one.ms * factor) for one in by_count[base]], Growth(known=True, seen_under=base)


def _slowdown(by_count: dict[int, list[Seen]]) -> float | None:
    """By which share of the time with one instance each further instance makes runs longer."""
    found, weights = 0.0, 0
    for fewer, more in pairwise(sorted(by_count)):
        before = {one.size: one for one in by_count[fewer]}
        for late in by_count[more]:
            early = before.get(late.size)
            if early is None or min(early.runs, late.runs) < SHARED_RUNS:
                continue
            ratio, weight = late.ms / early.ms, min(early.runs, late.runs)
            steepest = more - 1 - ratio * (fewer - 1)
            each = (ratio - 1) / steepest if steepest > 0 else 1.0
            found, weights = found + weight * min(max(each, 0.0), 1.0), weights + weight
    return found / weights if weights else None


# ----------------------------------------------------------------------------------------------------------- running it


@dataclass(slots=True)
class Job:
    """One setting under one assumption about the rate, the service times and the machine."""

    setting: Setting
    streams: int
    rate: float
    times: Sequence[float]
    machine: Machine
    told: list[lanes.Told]

    @property
    def keeps_up(self) -> bool:
        """Less comes than can be served."""
        return self.rate < self.setting.capacity(self.machine.lost_ms, self.times)


def requests_of(rate: float, streams: int) -> int:
    """Of each of so many streams."""
    return min(max(ceil(rate * SECONDS / streams), FEWEST), MOST)


def run(
    jobs: Sequence[Job],
    observed: Observed,
    slow_requests: int,
    seed: int,
    within_s: float | None = None,
    *,
    most: int = MOST,
) -> None:
    """Fill in what came of the jobs, all under the same arrivals; slow ones with fewer requests a stream."""
    if not jobs:
        return
    count = max(job.streams for job in jobs)
    length = min(most, requests_of(max(job.rate for job in jobs), count))
    dispersion = 1.0 if observed.dispersion is None else observed.dispersion
    quick = [job for job in jobs if not job.setting.slow]
    if quick:
        beyond = 2 * max(job.setting.largest for job in quick) + 2
        streams = lanes.Streams(count, length, beyond, dispersion=dispersion, seed=seed)
        own = [
            (job, job.setting.lane(at, job.times, job.machine, job.rate)) for job in quick for at in range(job.streams)
        ]
        for (job, _), told in zip(own, lanes.run([lane for _, lane in own], streams, within_s), strict=True):
            job.told.append(told)
    if len(quick) < len(jobs):
        streams = lanes.Streams(count, min(length, slow_requests), 2, dispersion=dispersion, seed=seed)
        for job in (job for job in jobs if job.setting.slow):
            job.told += [_slowly(job, streams, at) for at in range(job.streams)]


def figures(job: Job, told: Sequence[lanes.Told]) -> dict[str, float]:
    """Of some of a job's streams together; times in ms, batches in items. Nothing where nothing was served."""
    setting = job.setting
    latencies = np.concatenate([one.latencies for one in told])
    runs = sum(one.runs for one in told)
    if not len(latencies) or not runs:
        return {}
    sizes = np.zeros(setting.largest + 1)
    for one in told:
        sizes[: len(one.sizes)] += one.sizes
    numbers = np.arange(len(sizes))
    each = np.array([job.times[n * setting.items] for n in range(setting.largest + 1)])
    served = float(sizes @ numbers)
    compute = float((sizes * numbers) @ each) / served
    mean = float(latencies.mean())
    half, most = np.percentile(latencies, (50, 99))
    refused, expired = sum(one.refused for one in told), sum(one.expired for one in told)
    came = served + refused + expired
    throughput = job.rate * served / came
    executions = throughput / (served / runs)
    return {
        "mean": mean,
        "wait": mean - compute,
        "compute": compute,
        "p50": float(half),
        "p99": float(most),
        "batch": served / runs * setting.items,
        "executions": executions,
        "throughput": throughput,
        "busy": executions * float(sizes @ each) / runs / 1e3 / setting.scheduling.instances,
        "refused": job.rate * refused / came,
        "expired": job.rate * expired / came,
    }


# ------------------------------------------------------------------------------------------------- what lanes cannot do


class _Measured(ServiceTime):
    """Service times by a table, ms by the number of items."""

    def __init__(self, times: Sequence[float]) -> None:
        super().__init__(0.0, 0.0)
        object.__setattr__(self, "times", times)

    def split_ns(self, size: int, factor: float = 1.0) -> tuple[int, int, int]:
        times: Sequence[float] = object.__getattribute__(self, "times")
        return 0, round(times[size] * NS_PER_MS * factor), 0


def _slowly(job: Job, streams: lanes.Streams, stream: int) -> lanes.Told:
    """One stream, one event after another."""
    arrivals = streams.flat[stream * streams.width :][: streams.length]
    arrivals = (arrivals - streams.offset * stream) * 1e3 / job.rate
    return _with_policy(job, arrivals, stream) if job.setting.has_policy else _with_sizes(job, arrivals, stream)


def _with_sizes(job: Job, arrivals: Any, stream: int) -> lanes.Told:
    setting = job.setting
    held = setting.held(job.times, job.machine.lost_ms)
    preferred = sorted({max(1, size // setting.items) for size in setting.preferred})
    ahead = Ahead(
        setting.largest, setting.scheduling.instances, setting.delay_ms, held.__getitem__, preferred,
        wins=setting.joining(job.machine), rng=random.Random(stream),
    )  # fmt: skip
    done = ahead.run(arrivals.tolist())
    kept = done[int(lanes.WARM_UP * len(done)) :]
    latencies = np.array([one.start + one.held - at for one in kept for at in one.arrivals])
    sizes = np.bincount([len(one.arrivals) for one in kept], minlength=setting.largest + 1)
    return lanes.Told(latencies, len(kept), sizes)


def _with_policy(job: Job, arrivals: Any, stream: int) -> lanes.Told:
    """With a queue policy nothing is formed ahead."""
    setting = job.setting
    table = _Measured([one + job.machine.lost_ms for one in job.times])
    batcher = Asleep(setting.scheduling, table, misses=job.machine.wins, rng=random.Random(stream))
    told: list[Completion] = []
    first = int(lanes.WARM_UP * len(arrivals))
    requests: list[Request] = [
        (round(at * NS_PER_MS), setting.items, told.append if number >= first else None)
        for number, at in enumerate(arrivals.tolist())
    ]
    batcher.run(requests[-1][0], requests)
    good = [one for one in told if one.outcome is Outcome.SUCCESS]
    sizes = np.zeros(setting.largest + 1, np.int64)
    for items, times in batcher.statistics.batches.items():
        sizes[items // setting.items] = times.count
    latencies = np.array([one.finish_ns - one.arrival_ns for one in good]) / NS_PER_MS
    refused, expired = batcher.statistics.refused, batcher.statistics.fail_count
    return lanes.Told(latencies, int(sizes.sum()), sizes, refused=refused, expired=expired)
