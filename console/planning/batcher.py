"""Triton's scheduler for one model, as an event-exact model: pure arithmetic, no I/O, deterministic with a seed.

What leaves the queue and when (triton.md 1.8, core's `dynamic_batch_scheduler.cc`):

- a batch leaves only when an instance is idle;
- it leaves at once when the queued requests fill `max_batch_size`, or make exactly a preferred size;
- else when its oldest request has waited `max_queue_delay`; a delay of 0 takes what is queued as an instance frees;
- without dynamic batching each request is a run of its own;
- a request that finds `max_queue_size` requests queued is refused (503, counted nowhere by Triton);
- the queue time-out is looked at only when a batch is formed, and every 0.5 s while all instances are busy
  (that is why a 200 ms policy fires at 0.5 s and more), and counts as a failure with reason REJECTED.

Not modelled: that with a delay the real one forms batches ahead of a free instance, which costs under load (ahead.py),
that with a queue policy it may sleep while an instance is idle, so that a full queue halves what is served (asleep.py),
priorities, ragged shapes, the rate limiter, sequences and the response cache.

Times are nanoseconds on any common base; the simulated box uses the epoch. A statistic is written when its run ends, as
Triton does, so `Statistics` at an instant is what `/v2/models/X/stats` would say then.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000

POLICY_CHECK_NS = 500 * NS_PER_MS
"""How often Triton looks at queue time-outs while every instance is busy (`wait_microseconds = 500 * 1000`)."""

FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""Values of the label `reason` of `nv_inference_request_failure`."""


class Outcome(Enum):
    """How a request ended, seen from the scheduler."""

    SUCCESS = "success"
    QUEUE_FULL = "Exceeds maximum queue size"
    TIMED_OUT = "Request timeout expired"


@dataclass(frozen=True, slots=True)
class Completion:
    """One request's way through the scheduler, in ns. The compute times are its whole batch's, as Triton counts."""

    outcome: Outcome
    arrival_ns: int
    finish_ns: int
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0


OnDone = Callable[[Completion], None]

Request = tuple[int, int, OnDone | None]
"""(arrival in ns, batch size of the request, what to call when it ends). A plain tuple: thousands are made a second."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The scheduler's settings under the names of config.pbtxt. 0 means none for the queue limit and the time-out."""

    max_batch_size: int
    instances: int = 1
    dynamic_batching: bool = True
    max_queue_delay_us: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_size: int = 0
    queue_timeout_us: int = 0


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """One run of b items takes `base_ms + per_item_ms * b`, split into copying in, inference and copying out.

    `jitter` is the standard deviation of a run's time as a share of it.
    """

    base_ms: float
    per_item_ms: float
    input_share: float = 0.047
    output_share: float = 0.058
    jitter: float = 0.0

    def split_ns(self, size: int, factor: float = 1.0) -> tuple[int, int, int]:
        """Input, infer and output time of one run in ns; `factor` stretches all three (a throttled card, jitter)."""
        total = (self.base_ms + self.per_item_ms * size) * NS_PER_MS * factor
        first, last = round(total * self.input_share), round(total * self.output_share)
        return first, round(total) - first - last, last


@dataclass(slots=True)
class BatchTimes:
    """Runs of one batch size: how many, and their summed times in ns."""

    count: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Time that instances were busy with runs of this size."""
        return self.input_ns + self.infer_ns + self.output_ns


@dataclass(slots=True)
class Statistics:
    """Cumulative, with Triton's meaning: per-request sums count a batch's compute once for each request in it."""

    success_count: int = 0
    success_ns: int = 0
    fail_ns: int = 0
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    inference_count: int = 0
    execution_count: int = 0
    last_inference_ns: int = 0
    batches: dict[int, BatchTimes] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURE_REASONS, 0))
    refused: int = 0
    """Requests turned away at a full queue. Triton counts them nowhere; here for the one who predicts."""

    @property
    def fail_count(self) -> int:
        """Failures of all reasons."""
        return sum(self.failures.values())

    @property
    def busy_ns(self) -> int:
        """Summed time of all runs: what `batch_stats` adds up to, over all instances."""
        return sum(times.total_ns for times in self.batches.values())

    def scale(self, factor: int) -> None:
        """Multiply every counter, so that a short run can stand for a long past with the same means."""
        for name in (
            "success_count", "success_ns", "fail_ns", "queue_ns", "input_ns", "infer_ns", "output_ns",
            "inference_count", "execution_count", "refused",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) * factor)
        for times in self.batches.values():
            times.count *= factor
            times.input_ns *= factor
            times.infer_ns *= factor
            times.output_ns *= factor
        self.failures = {reason: count * factor for reason, count in self.failures.items()}

    def to_triton(self) -> dict[str, Any]:
        """The part of a `model_stats` entry that comes from the scheduler, key order as Triton 2.51.0 prints it."""
        served = self.success_count
        return {
            "last_inference": self.last_inference_ns // NS_PER_MS,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": {"count": served, "ns": self.success_ns},
                "fail": {"count": self.fail_count, "ns": self.fail_ns},
                "queue": {"count": served, "ns": self.queue_ns},
                "compute_input": {"count": served, "ns": self.input_ns},
                "compute_infer": {"count": served, "ns": self.infer_ns},
                "compute_output": {"count": served, "ns": self.output_ns},
                "cache_hit": {"count": 0, "ns": 0},
                "cache_miss": {"count": 0, "ns": 0},
            },
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": {"count": times.count, "ns": times.input_ns},
                    "compute_infer": {"count": times.count, "ns": times.infer_ns},
                    "compute_output": {"count": times.count, "ns": times.output_ns},
                }
                for size, times in sorted(self.batches.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class _Run:
    start_ns: int
    size: int
    requests: list[Request]
    times: tuple[int, int, int]


class Batcher:
    """The scheduler of one model version. Feed it time and arrivals in order; read `statistics` and `pending`.

    How finely time is fed makes no difference to the result. Not thread-safe.
    """

    def __init__(
        self, scheduling: Scheduling, service: ServiceTime, *, start_ns: int = 0, rng: random.Random | None = None
    ) -> None:
        self.scheduling = scheduling
        self.service = service
        self.slowdown = 1.0
        self.statistics = Statistics()
        self.now_ns = start_ns
        self._rng = rng or random.Random(0)
        self._queue: deque[Request] = deque()
        self._queued_items = 0
        self._idle = scheduling.instances
        self._running: list[tuple[int, int, _Run]] = []
        self._run_number = 0
        self._delay_ns = scheduling.max_queue_delay_us * NS_PER_US
        self._timeout_ns = scheduling.queue_timeout_us * NS_PER_US
        self._policy_check_ns = start_ns + POLICY_CHECK_NS
        self._sizes = frozenset(scheduling.preferred_batch_sizes)
        self._target = max(self._sizes, default=max(1, scheduling.max_batch_size))
        self._cap = max(1, scheduling.max_batch_size)

    @property
    def pending(self) -> int:
        """Requests that wait for execution, without those being executed (`nv_inference_pending_request_count`)."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Runs going on now."""
        return len(self._running)

    def set_instances(self, count: int) -> None:
        """Change the number of instances in place; fewer take effect as their runs end."""
        self._idle += count - self.scheduling.instances
        self.scheduling = replace(self.scheduling, instances=count)
        self._dispatch()

    def run(self, until_ns: int, arrivals: Iterable[Request] = ()) -> None:
        """Go on to `until_ns`; `arrivals` are in order of time, none before now and none after `until_ns`."""
        for request in arrivals:
            self._pass_time(request[0])
            self._enqueue(request)
        self._pass_time(until_ns)

    def _pass_time(self, to_ns: int) -> None:
        while (event_ns := self._next_event_ns()) is not None and event_ns <= to_ns:
            self.now_ns = event_ns
            while self._running and self._running[0][0] <= event_ns:
                self._finish(*heapq.heappop(self._running))
            if self._timeout_ns and self._queue and event_ns >= self._policy_check_ns:
                self._drop_expired()
            self._dispatch()
        self.now_ns = max(self.now_ns, to_ns)

    def _next_event_ns(self) -> int | None:
        """When something happens without a new arrival: a run ends, a delay ends, time-outs are looked at."""
        due = self._running[0][0] if self._running else None
        if not self._queue:
            return due
        if self._idle > 0:
            wake = self._queue[0][0] + self._delay_ns
        elif self._timeout_ns:
            wake = self._policy_check_ns
        else:
            return due
        return wake if due is None or wake < due else due

    def _enqueue(self, request: Request) -> None:
        limit = self.scheduling.max_queue_size
        if limit and len(self._queue) >= limit:
            self.statistics.refused += 1
            _tell(request, Completion(Outcome.QUEUE_FULL, request[0], self.now_ns))
            return
        self._queue.append(request)
        self._queued_items += request[1]
        if self._idle > 0:
            self._dispatch()

    def _dispatch(self) -> None:
        while self._idle > 0 and self._queue:
            if self._timeout_ns:
                self._drop_expired()
                if not self._queue:
                    return
            requests = self._form()
            if not requests:
                return
            self._start(requests)

    def _form(self) -> int:
        """How many of the queued requests leave now as one batch; 0 to wait for more."""
        if not self.scheduling.dynamic_batching:
            return 1
        waited_ns = self.now_ns - self._queue[0][0]
        overdue = self._delay_ns > 0 and waited_ns >= self._delay_ns
        if not self._sizes and not (overdue or self._delay_ns == 0 or self._queued_items >= self._cap):
            return 0
        items = count = best = 0
        full = False
        for _, size, _ in self._queue:
            if items and items + size > self._target and not best:
                best = count
            if items and items + size > self._cap:
                full = True
                break
            items += size
            count += 1
            if items in self._sizes:
                best = count
        if self._sizes and best and not overdue:
            return best
        return count if full or overdue or self._delay_ns == 0 or items >= self._target else 0

    def _start(self, count: int) -> None:
        requests = [self._queue.popleft() for _ in range(count)]
        size = sum(request[1] for request in requests)
        self._queued_items -= size
        self._idle -= 1
        factor = self.slowdown
        if self.service.jitter:
            factor *= max(0.2, self._rng.gauss(1.0, self.service.jitter))
        times = self.service.split_ns(size, factor)
        self._run_number += 1
        run = _Run(self.now_ns, size, requests, times)
        heapq.heappush(self._running, (self.now_ns + sum(times), self._run_number, run))
        self._policy_check_ns = self.now_ns + POLICY_CHECK_NS

    def _finish(self, finish_ns: int, _number: int, run: _Run) -> None:
        self._idle += 1
        first, infer, last = run.times
        count = len(run.requests)
        waited = run.start_ns * count - sum(request[0] for request in run.requests)
        stats = self.statistics
        stats.success_count += count
        stats.success_ns += waited + (first + infer + last) * count
        stats.queue_ns += waited
        stats.input_ns += first * count
        stats.infer_ns += infer * count
        stats.output_ns += last * count
        stats.inference_count += run.size
        stats.execution_count += 1
        stats.last_inference_ns = finish_ns
        times = stats.batches.setdefault(run.size, BatchTimes())
        times.count += 1
        times.input_ns += first
        times.infer_ns += infer
        times.output_ns += last
        for request in run.requests:
            if request[2] is not None:
                queue_ns = run.start_ns - request[0]
                done = Completion(Outcome.SUCCESS, request[0], finish_ns, queue_ns, first, infer, last)
                request[2](done)

    def _drop_expired(self) -> None:
        self._policy_check_ns = self.now_ns + POLICY_CHECK_NS
        while self._queue and self.now_ns - self._queue[0][0] >= self._timeout_ns:
            request = self._queue.popleft()
            self._queued_items -= request[1]
            self.statistics.failures["REJECTED"] += 1
            self.statistics.fail_ns += self.now_ns - request[0]
            _tell(request, Completion(Outcome.TIMED_OUT, request[0], self.now_ns))


def _tell(request: Request, completion: Completion) -> None:
    if request[2] is not None:
        request[2](completion)


def poisson_arrivals(rng: random.Random, rate: float, start_ns: int, end_ns: int) -> list[int]:
    """Arrival times in ns of a Poisson stream of `rate` per second within [start, end), in order.

    The stream has no memory, so intervals with different rates can be drawn one after the other.
    """
    arrivals: list[int] = []
    if rate <= 0:
        return arrivals
    draw, at, per_ns = rng.expovariate, 0.0, rate / NS_PER_SECOND
    length = end_ns - start_ns
    while (at := at + draw(per_ns)) < length:
        arrivals.append(start_ns + int(at))
    return arrivals


@dataclass(frozen=True, slots=True)
class Figures:
    """What an interval of a scheduler's life looks like, derived as triton.md 2.3 says. None where nothing ran."""

    requests_per_second: float
    wait_ms: float | None
    compute_ms: float | None
    mean_batch: float | None
    busy: float
    """Share of the instances' time spent in runs, 0 to 1."""
    refused_per_second: float
    failed_per_second: float


def simulate_poisson(
    scheduling: Scheduling, service: ServiceTime, rate: float, *, seconds: float, seed: int = 0
) -> Figures:
    """Run one model from empty under Poisson traffic of `rate` requests per second (each of batch size 1)."""
    rng = random.Random(seed)
    end_ns = int(seconds * NS_PER_SECOND)
    batcher = Batcher(scheduling, service, rng=random.Random(rng.random()))
    batcher.run(end_ns, ((at, 1, None) for at in poisson_arrivals(rng, rate, 0, end_ns)))
    stats = batcher.statistics
    served, runs = stats.success_count, stats.execution_count
    compute_ns = stats.input_ns + stats.infer_ns + stats.output_ns
    return Figures(
        requests_per_second=served / seconds,
        wait_ms=stats.queue_ns / served / NS_PER_MS if served else None,
        compute_ms=compute_ns / served / NS_PER_MS if served else None,
        mean_batch=stats.inference_count / runs if runs else None,
        busy=stats.busy_ns / (end_ns * scheduling.instances),
        refused_per_second=stats.refused / seconds,
        failed_per_second=stats.fail_count / seconds,
    )
