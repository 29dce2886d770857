"""What other settings of a model's batcher would do, from what the server itself reports. Pure, but takes its time.

    predict(observed, scheduling)                    one setting, in about a second
    grid(observed, settings, within_s=5)             many, under the same arrivals; run it in a process of its own:
    Aside().call("console.planning.prediction", "grid", observed, settings)        (console/clients/aside.py)
    scheduling_of(batching)                          the settings of a Tune form

`observed` is from observed.py. Arrivals of the observed rate are drawn, and each setting is run under them with the
measured service times (service.py), by the batcher as Triton really goes about it (lanes.py). Each figure has an
uncertainty of about two standard errors: from the differences between streams of arrivals, and from what the rate and
the service times may be off. It holds where the model holds: `trust` and its reasons say where it does not.

What an instance loses between two runs (waking of threads, hand-over) is not in any statistic. It is what makes the
wait of the model, at the settings in use, the wait that the server told.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.core.text import one_line
from console.planning import lanes
from console.planning.ahead import Ahead
from console.planning.batcher import NS_PER_MS, Batcher, Completion, Outcome, Request, Scheduling, ServiceTime
from console.planning.batching_change import Batching
from console.planning.observed import Observed
from console.planning.service import Curve, Seen, curve

Trust = Literal["good", "fair", "poor"]

STREAMS_ALONE, STREAMS_OF_GRID = 24, 8
BOUND_STREAMS = 2
"""Of the streams, how many are run again with the bounds of rate and service times."""
SECONDS = 60.0
"""Of traffic, over all streams of a setting; less where that were more than `MOST` requests a stream."""
FEWEST, MOST = 1500, 7500
"""Requests of a stream."""
SLOW_REQUESTS = 400_000
"""Of all settings together that the fast way cannot do (queue limits, time-outs, preferred sizes)."""
FEWEST_SLOW = 800
CHUNK = 96
"""Settings at a time: what they did is kept until their figures are taken."""
LARGEST = 4096
"""Of a batch, in requests; the model's own may be without a reasonable bound."""
FEW_REQUESTS, TOO_FEW_REQUESTS = 500, 50
NEAR_FULL = 0.9
OUTSIDE = 0.1
"""Share of requests in batches of sizes that were not seen, from which that is said."""
OFF, FAR_OFF = 0.1, 0.25
"""By so much the model may miss the batch size of the settings in use."""
SHARED_RUNS = 20
"""Runs of one size under each of two numbers of instances that tell whether instances slow each other down."""


class Figure(Struct, frozen=True):
    """A value, and how far off it may be; None = cannot be told."""

    value: float | None
    error: float | None = None


UNKNOWN = Figure(None)


class Prediction(Struct, frozen=True):
    """One setting under one rate. Times in ms as the server counts them, from the queue to the end of the run."""

    scheduling: Scheduling
    rate: float
    capacity: float
    """Requests a second that the instances can do at most."""
    mean_ms: Figure
    wait_ms: Figure
    compute_ms: Figure
    p50_ms: Figure
    p99_ms: Figure
    batch: Figure
    """Items a run."""
    executions_per_s: Figure
    throughput: Figure
    """Requests served a second."""
    busy: Figure
    """Share of the instances' time."""
    refused_per_s: Figure
    timed_out_per_s: Figure
    trust: Trust
    reasons: tuple[str, ...]
    """Why it is not better, the gravest first."""
    shared_p99_ms: float | None
    """p99 if instances shared the card wholly, where that is not known; infinite = it could not keep up."""
    simulated_requests: int
    simulated_s: float

    @property
    def saturated(self) -> bool:
        """More comes than can be served: waits grow for as long as it lasts."""
        return self.rate >= self.capacity

    @property
    def queue_share(self) -> float | None:
        """Part of a request's time that is waiting."""
        mean, wait = self.mean_ms.value, self.wait_ms.value
        return None if mean is None or wait is None or not mean else wait / mean


class Calibration(Struct, frozen=True):
    """How the model does at the settings in use."""

    lost_ms: float = 0.0
    """Between two runs of an instance."""
    batch: float | None = None
    """Of the model; beside the one observed."""
    note: str = ""
    """Why nothing could be compared."""


def scheduling_of(batching: Batching) -> Scheduling:
    """The settings of a Tune form as the model takes them."""
    own = batching.preferred == (batching.max_batch_size,)
    return Scheduling(
        max_batch_size=batching.max_batch_size,
        instances=max(1, batching.total_instances),
        dynamic_batching=batching.dynamic_batching,
        max_queue_delay_us=batching.delay_us,
        preferred_batch_sizes=() if own else batching.preferred,
        max_queue_size=batching.max_queue_size,
        queue_timeout_us=batching.timeout_us,
    )


def predict(observed: Observed, scheduling: Scheduling, *, rate: float | None = None, seed: int = 0) -> Prediction:
    """One setting; under `rate` requests a second where that is given. WrongInput where nothing can be told."""
    return _predicted(observed, (scheduling,), rate, STREAMS_ALONE, seed, None)[0]


def grid(
    observed: Observed,
    settings: Sequence[Scheduling],
    *,
    rate: float | None = None,
    seed: int = 0,
    within_s: float | None = None,
) -> tuple[Prediction, ...]:
    """All settings under the same arrivals, in their order. Within about `within_s` seconds: then with less traffic."""
    return _predicted(observed, settings, rate, STREAMS_OF_GRID, seed, within_s)


def calibrate(observed: Observed, *, seed: int = 0) -> Calibration:
    """Make the model's wait at the settings in use the observed one, by what an instance loses between two runs."""
    if observed.rate is None or observed.wait_ms is None:
        return Calibration(note="what is lost between runs is taken as nothing: no wait was observed")
    now = _Setting(observed, observed.scheduling, observed.rate)
    if now.slow:
        return Calibration(note="what is lost between runs is taken as nothing: the queue policy in use hides it")
    if observed.rate >= NEAR_FULL * now.capacity(0.0):
        return Calibration(note="what is lost between runs is taken as nothing: the model is near its limit now")
    count = _requests(observed.rate, STREAMS_OF_GRID)
    streams = _streams(observed, STREAMS_OF_GRID, count, now.largest, seed)

    def modelled(lost: float) -> tuple[float, float]:
        told = lanes.run([now.lane(at, now.curve.ms, lost) for at in range(STREAMS_OF_GRID)], streams)
        figures = _figures(now, told, now.curve.ms, lost, observed.rate or 0.0)
        return figures["wait"], figures["batch"]

    low, (wait, batch) = 0.0, modelled(0.0)
    if wait >= observed.wait_ms:
        return Calibration(0.0, batch)
    high = observed.wait_ms - wait
    most = 0.95 * (1 / observed.rate * 1e3 * now.best_share() - now.best_time())
    high = max(0.0, min(high, most))
    for _ in range(5):  # the wait grows with what is lost, faster than it: from above, by secants
        above, batch = modelled(high)
        if abs(above - observed.wait_ms) < 0.01 * observed.wait_ms or above <= wait:
            break
        high = max(0.0, low + (observed.wait_ms - wait) * (high - low) / (above - wait))
    return Calibration(high, batch)


# --------------------------------------------------------------------------------------------------------- one setting


class _Setting:
    """One setting as the engines take it: all in requests, not items."""

    def __init__(self, observed: Observed, scheduling: Scheduling, rate: float) -> None:
        self.scheduling, self.rate = scheduling, rate
        self.items = max(1, round(observed.items))
        """Of a request."""
        batched = scheduling.dynamic_batching and scheduling.max_batch_size > 1
        self.largest = max(1, min(scheduling.max_batch_size // self.items, LARGEST)) if batched else 1
        self.delay_ms = scheduling.max_queue_delay_us / 1e3 if self.largest > 1 else 0.0
        self.preferred = tuple(size for size in scheduling.preferred_batch_sizes if size <= scheduling.max_batch_size)
        self.has_policy = scheduling.dynamic_batching and bool(scheduling.max_queue_size or scheduling.queue_timeout_us)
        self.slow = self.has_policy or (batched and bool(self.preferred))
        seen, self.growth = _seen_for(observed, scheduling.instances)
        self.curve = curve(seen, self.largest * self.items)

    def lane(self, stream: int, times: Sequence[float], lost: float, rate: float | None = None) -> lanes.Lane:
        return lanes.Lane(
            stream, self.largest, self.scheduling.instances, self.delay_ms, 1e3 / (rate or self.rate),
            self.held(times, lost),
        )  # fmt: skip

    def held(self, times: Sequence[float], lost: float) -> list[float]:
        """By the number of requests."""
        return [times[n * self.items] + lost for n in range(self.largest + 1)]

    def capacity(self, lost: float, times: Sequence[float] | None = None) -> float:
        """Requests a second."""
        held = self.held(times or self.curve.ms, lost)
        return 1e3 * self.scheduling.instances * max(n / held[n] for n in range(1, self.largest + 1))

    def best_share(self) -> float:
        """Requests of the most productive run, times the instances."""
        return self._best() * self.scheduling.instances

    def best_time(self) -> float:
        """Of that run, ms."""
        return self.curve.ms[self._best() * self.items]

    def _best(self) -> int:
        return max(range(1, self.largest + 1), key=lambda n: n / self.curve.ms[n * self.items])


class _Growth(Struct, frozen=True):
    """What is known of service times under a number of instances that was not observed."""

    known: bool
    most: float = 1.0
    """Factor on service times if instances shared the card wholly."""
    seen_under: int = 1


def _seen_for(observed: Observed, instances: int) -> tuple[list[Seen], _Growth]:
    """Service times under `instances`: own ones; or others' grown as those of two numbers of instances tell."""
    by_count: dict[int, list[Seen]] = {}
    for one in observed.service:
        by_count.setdefault(one.instances, []).append(one)
    own = by_count.get(instances)
    if own:
        return own, _Growth(known=True, seen_under=instances)
    base = max(by_count, key=lambda count: sum(one.runs for one in by_count[count]))
    each = _slowdown(by_count)
    if each is None:
        return by_count[base], _Growth(known=False, most=instances / base, seen_under=base)
    factor = (1 + each * (instances - 1)) / (1 + each * (base - 1))
    return [replace(one, ms=one.ms * factor) for one in by_count[base]], _Growth(known=True, seen_under=base)


def _slowdown(by_count: dict[int, list[Seen]]) -> float | None:
    """By which share of the time with one instance each further instance makes runs longer."""
    found, weights = 0.0, 0
    counts = sorted(by_count)
    for fewer, more in pairwise(counts):
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


# ----------------------------------------------------------------------------------------------------------- all of it


@dataclass(slots=True)
class _Job:
    """One setting under one assumption about rate and service times."""

    setting: _Setting
    streams: int
    rate: float
    times: Sequence[float]
    told: list[lanes.Told]


def _predicted(
    observed: Observed,
    settings: Sequence[Scheduling],
    rate: float | None,
    streams: int,
    seed: int,
    within_s: float | None,
) -> tuple[Prediction, ...]:
    _require(observed, rate)
    given = rate is not None
    wanted = rate if rate is not None else observed.rate
    assert wanted is not None
    calibration = calibrate(observed, seed=seed + 1)
    made = [_Setting(observed, one, wanted) for one in settings]
    slow = sum(1 for one in made if one.slow)
    share = SLOW_REQUESTS // max(1, slow * (streams + 2 * BOUND_STREAMS))
    found: list[Prediction] = []
    for first in range(0, len(made), CHUNK):
        some = made[first : first + CHUNK]
        jobs = [_jobs(observed, one, streams, calibration.lost_ms, given=given) for one in some]
        left = None if within_s is None else within_s * len(some) / len(made)
        _run([job for own in jobs for job in own], observed, calibration.lost_ms, share, seed, left)
        found += [_prediction(observed, one, own, calibration) for one, own in zip(some, jobs, strict=True)]
    return tuple(found)


def _require(observed: Observed, rate: float | None) -> None:
    name = one_line(observed.model, 80)
    if observed.unfit:
        raise WrongInput(f"nothing can be predicted: {observed.unfit}")
    if not observed.service:
        raise WrongInput(f"nothing ran on {name}, so no service time is known; send it a load meanwhile")
    if rate is None and not observed.rate:
        raise WrongInput(f"no rate is known for {name}; give one")
    if rate is not None and not 0 < rate < inf:
        raise WrongInput(f"the rate must be above 0, not {rate:g}")


def _jobs(observed: Observed, setting: _Setting, streams: int, lost: float, *, given: bool) -> list[_Job]:
    """As seen; then with rate and service times at their lower and upper bounds; then with instances sharing wholly."""
    times = setting.curve
    off = 0.0 if given else 2.0 / sqrt(max(1, observed.requests))
    jobs = [
        _Job(setting, streams, setting.rate, times.ms, []),
        _Job(setting, BOUND_STREAMS, setting.rate * (1 - min(off, 0.9)), times.low, []),
        _Job(setting, BOUND_STREAMS, setting.rate * (1 + off), times.high, []),
    ]
    if not setting.growth.known and setting.growth.most > 1:
        grown = [one * setting.growth.most for one in times.ms]
        jobs.append(_Job(setting, BOUND_STREAMS, setting.rate, grown, []))
    return [job for job in jobs if job is jobs[0] or job.rate < setting.capacity(lost, job.times)] if (
        setting.rate < setting.capacity(lost) or setting.has_policy
    ) else []  # fmt: skip


def _requests(rate: float, streams: int) -> int:
    return min(max(ceil(rate * SECONDS / streams), FEWEST), MOST)


def _streams(observed: Observed, count: int, length: int, beyond: int, seed: int) -> lanes.Streams:
    dispersion = 1.0 if observed.dispersion is None else observed.dispersion
    return lanes.Streams(count, length, 2 * beyond + 2, dispersion=dispersion, seed=seed)


def _run(jobs: list[_Job], observed: Observed, lost: float, share: int, seed: int, within_s: float | None) -> None:
    """Fill in what the jobs' lanes did."""
    if not jobs:
        return
    count = max(job.streams for job in jobs)
    length = _requests(max(job.rate for job in jobs), count)
    quick = [job for job in jobs if not job.setting.slow]
    if quick:
        beyond = max(job.setting.largest for job in quick)
        streams = _streams(observed, count, length, beyond, seed)
        own = [(job, job.setting.lane(at, job.times, lost, job.rate)) for job in quick for at in range(job.streams)]
        for (job, _), told in zip(own, lanes.run([lane for _, lane in own], streams, within_s), strict=True):
            job.told.append(told)
    if len(quick) < len(jobs):
        length = min(length, max(FEWEST_SLOW, share))
        streams = _streams(observed, count, length, 0, seed)
        for job in (job for job in jobs if job.setting.slow):
            job.told = [_slowly(job, streams, at, lost) for at in range(job.streams)]


def _figures(
    setting: _Setting, told: Sequence[lanes.Told], times: Sequence[float], lost: float, rate: float
) -> dict[str, float]:
    """Of all lanes together; times in ms."""
    latencies = np.concatenate([one.latencies for one in told])
    runs = sum(one.runs for one in told)
    span = sum(one.span for one in told)
    if not len(latencies) or not span:
        return {}
    sizes = np.zeros(setting.largest + 1)
    for one in told:
        sizes[: len(one.sizes)] += one.sizes
    numbers = np.arange(len(sizes))
    each = np.array([times[n * setting.items] for n in range(setting.largest + 1)])
    served = float(sizes @ numbers)
    compute = float((sizes * numbers) @ each) / served
    mean = float(latencies.mean())
    turned = sum(one.refused + one.expired for one in told)
    share = served / (served + turned)
    return {
        "mean": mean,
        "wait": mean - compute,
        "compute": compute,
        "p50": float(np.percentile(latencies, 50)),
        "p99": float(np.percentile(latencies, 99)),
        "batch": served / runs * setting.items,
        "executions": rate * share / (served / runs),
        "throughput": rate * share,
        "busy": rate * share / (served / runs) * float(sizes @ each) / runs / 1e3 / setting.scheduling.instances,
        "refused": rate * sum(one.refused for one in told) / (served + turned),
        "expired": rate * sum(one.expired for one in told) / (served + turned),
    }


def _prediction(observed: Observed, setting: _Setting, jobs: list[_Job], calibration: Calibration) -> Prediction:
    lost = calibration.lost_ms
    capacity = setting.capacity(lost)
    if not jobs or not jobs[0].told:
        return _saturated(observed, setting, capacity)
    main, bounds = jobs[0], [job for job in jobs[1:3] if job.times in (setting.curve.low, setting.curve.high)]
    whole = _figures(setting, main.told, main.times, lost, main.rate)
    if not whole:
        return _saturated(observed, setting, capacity)
    singles = [_figures(setting, [one], main.times, lost, main.rate) for one in main.told]
    start = _figures(setting, main.told[:BOUND_STREAMS], main.times, lost, main.rate)
    others = [_figures(setting, job.told, job.times, lost, job.rate) for job in bounds]
    bounded = len(others) == 2

    def figure(name: str) -> Figure:
        drawn = [one[name] for one in singles if one]
        chance = 2 * float(np.std(drawn, ddof=1)) / sqrt(len(drawn)) if len(drawn) > 1 else 0.0
        known = max((abs(one[name] - start[name]) for one in others if one), default=0.0)
        return Figure(whole[name], sqrt(chance**2 + known**2) if bounded else None)

    after = 0.0
    if observed.request_ms is not None and observed.wait_ms is not None and observed.compute_ms is not None:
        after = max(0.0, observed.request_ms - observed.wait_ms - observed.compute_ms)

    def later(found: Figure) -> Figure:
        return found if found.value is None else replace(found, value=found.value + after)

    shared = None
    if not setting.growth.known and setting.growth.most > 1:
        last = jobs[-1]
        is_shared = last.times not in (setting.curve.ms, setting.curve.low, setting.curve.high)
        shared = _figures(setting, last.told, last.times, lost, last.rate)["p99"] if is_shared else inf
    requests = sum(len(one.latencies) for one in main.told)
    trust, reasons = _trust(observed, setting, whole, main.told, calibration, bounded=bounded, shared=shared)
    return Prediction(
        setting.scheduling, setting.rate, capacity,
        later(figure("mean")), figure("wait"), figure("compute"), later(figure("p50")), later(figure("p99")),
        figure("batch"), figure("executions"), figure("throughput"), figure("busy"), figure("refused"),
        figure("expired"), trust, reasons, shared, requests, requests / setting.rate,
    )  # fmt: skip


def _saturated(observed: Observed, setting: _Setting, capacity: float) -> Prediction:
    text = f"saturated: {setting.rate:.3g}/s come and {capacity:.3g}/s can be served, so the queue grows without end"
    full = Figure(float(setting.largest * setting.items))
    runs = capacity / setting.largest
    return Prediction(
        setting.scheduling, setting.rate, capacity, UNKNOWN, UNKNOWN, Figure(setting.curve.ms[-1]), UNKNOWN, UNKNOWN,
        full, Figure(runs), Figure(capacity), Figure(1.0), Figure(0.0), Figure(0.0), "poor",
        (text, *observed.caveats), None, 0, 0.0,
    )  # fmt: skip


def _trust(
    observed: Observed,
    setting: _Setting,
    whole: dict[str, float],
    told: Sequence[lanes.Told],
    calibration: Calibration,
    *,
    bounded: bool,
    shared: float | None,
) -> tuple[Trust, tuple[str, ...]]:
    """How far to believe it, and why not further."""
    poor, fair = list(observed.caveats), []
    times: Curve = setting.curve
    if not bounded:
        poor.append("near saturation: with the rate or the service times at their bounds it could not keep up")
    elif whole["busy"] > NEAR_FULL:
        fair.append(f"busy {whole['busy']:.0%}: small errors of rate and service times count many times")
    if whole["refused"] > 0:
        poor.append("a reached queue limit was seen to leave instances half idle, which is not modelled")
    if whole["expired"] > 0:
        fair.append("time-outs fire late and unevenly: by how many is rough")
    unseen = _outside(setting, told, times)
    if times.sizes == 1 and setting.largest > 1 and whole["batch"] > 1.1 * times.smallest:
        poor.append(f"only batches of {times.smallest} were seen: what larger ones take is a guess")
    elif times.sizes == 2 and unseen > OUTSIDE:
        fair.append("only two batch sizes were seen")
    if unseen > OUTSIDE:
        text = f"{unseen:.0%} of the requests would be in batches above {times.largest}, the largest seen"
        (poor if whole["batch"] > 2 * times.largest else fair).append(text)
    if observed.requests < FEW_REQUESTS:
        text = f"only {observed.requests} requests were observed"
        (poor if observed.requests < TOO_FEW_REQUESTS else fair).append(text)
    if abs(observed.items - setting.items) > 0.05 * setting.items:
        poor.append(f"requests are of {observed.items:.2g} items in the mean, and of unlike sizes")
    if not setting.growth.known:
        count, under = setting.scheduling.instances, setting.growth.seen_under
        text = f"service times with {count} instances were never seen, those with {under} are taken"
        if shared is not None:
            text += "; if they shared the card wholly " + (
                "it could not keep up" if shared == inf else f"p99 would be {shared:.3g} ms"
            )
        fair.append(text)
    if calibration.batch is not None and observed.batch:
        off = abs(calibration.batch / observed.batch - 1)
        if off > OFF:
            text = f"at the settings in use it gives batches of {calibration.batch:.2f}, seen are {observed.batch:.2f}"
            (poor if off > FAR_OFF else fair).append(text)
    if calibration.note:
        fair.append(calibration.note)
    level: Trust = "poor" if poor else "fair" if fair else "good"
    return level, (*poor, *fair)


def _outside(setting: _Setting, told: Sequence[lanes.Told], times: Curve) -> float:
    """Share of requests in batches larger than any seen."""
    inside = total = 0.0
    for one in told:
        numbers = np.arange(len(one.sizes))
        total += float(one.sizes @ numbers)
        kept = numbers * setting.items <= times.largest
        inside += float(one.sizes[kept] @ numbers[kept])
    return 1 - inside / total if total else 0.0


# ------------------------------------------------------------------------------------------------- what lanes cannot do


@dataclass(frozen=True, slots=True)
class _Measured(ServiceTime):
    """Service times by a table, ms by the number of items."""

    times: tuple[float, ...] = ()

    def split_ns(self, size: int, factor: float = 1.0) -> tuple[int, int, int]:
        return 0, round(self.times[size] * NS_PER_MS * factor), 0


def _slowly(job: _Job, streams: lanes.Streams, stream: int, lost: float) -> lanes.Told:
    """One stream of a setting with a queue policy or preferred sizes, one event after another."""
    gap = 1e3 / job.rate
    arrivals = streams.flat[stream * streams.width :][: streams.length]
    arrivals = (arrivals - streams.offset * stream) * gap
    return _with_policy(job, arrivals, lost) if job.setting.has_policy else _with_sizes(job, arrivals, lost)


def _with_sizes(job: _Job, arrivals: Any, lost: float) -> lanes.Told:
    setting = job.setting
    held = setting.held(job.times, lost)
    preferred = sorted({max(1, size // setting.items) for size in setting.preferred})
    done = Ahead(
        setting.largest, setting.scheduling.instances, setting.delay_ms, lambda n: held[n], preferred
    ).run(arrivals.tolist())  # fmt: skip
    kept = done[int(lanes.WARM_UP * len(done)) :]
    latencies = np.array([one.start + one.held - at for one in kept for at in one.arrivals])
    sizes = np.bincount([len(one.arrivals) for one in kept], minlength=setting.largest + 1)
    span = kept[-1].start - kept[0].start if len(kept) > 1 else 0.0
    return lanes.Told(latencies, len(kept), sum(one.held for one in kept), sizes, span)


def _with_policy(job: _Job, arrivals: Any, lost: float) -> lanes.Told:
    """With a queue policy nothing is formed ahead, and the plain batcher holds."""
    setting = job.setting
    size = setting.items
    table = tuple(one + lost for one in job.times)
    batcher = Batcher(setting.scheduling, _Measured(0.0, 0.0, times=table), rng=random.Random(0))
    told: list[Completion] = []
    first = int(lanes.WARM_UP * len(arrivals))
    requests: list[Request] = [
        (round(at * NS_PER_MS), size, told.append if number >= first else None)
        for number, at in enumerate(arrivals.tolist())
    ]
    until = requests[-1][0]
    batcher.run(until, requests)
    good = [one for one in told if one.outcome is Outcome.SUCCESS]
    sizes = np.zeros(setting.largest + 1, np.int64)
    for items, times in batcher.statistics.batches.items():
        sizes[items // size] = times.count
    latencies = np.array([one.finish_ns - one.arrival_ns for one in good]) / NS_PER_MS
    return lanes.Told(
        latencies, int(sizes.sum()), batcher.statistics.busy_ns / NS_PER_MS, sizes, until / NS_PER_MS,
        refused=batcher.statistics.refused, expired=batcher.statistics.fail_count,
    )  # fmt: skip
