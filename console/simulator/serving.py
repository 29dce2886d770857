"""One loaded version of a model, and the way of a request through an ensemble's steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from console.planning.batcher import Batcher, BatchTimes, Completion, Outcome, Request, Statistics
from console.simulator.configs import Config, Served, config_json, instances, max_batch_size
from console.simulator.scenes import Ensemble

INSTANCE_SHARE = 0.12
"""Share of a model's card memory that one more instance takes beside the weights."""


@dataclass(slots=True)
class Queue:
    """Requests by the time at which they arrive."""

    requests: list[Request] = field(default_factory=list)
    in_order: bool = True

    def offer(self, request: Request) -> None:
        """A request will arrive at its time."""
        self.requests.append(request)
        self.in_order = False

    def take_due(self, until_ns: int) -> list[Request]:
        """Arrivals up to `until_ns`, in order; later ones stay."""
        if not self.in_order:
            self.requests.sort(key=_arrival)
            self.in_order = True
        due = bisect_right(self.requests, until_ns, key=_arrival)
        batch, self.requests = self.requests[:due], self.requests[due:]
        return batch


def _arrival(request: Request) -> int:
    return request[0]


@dataclass(slots=True, eq=False)
class Version:
    """One loaded version: its scheduler (none for an ensemble), its counters, and the card memory that it holds."""

    spec: Served
    version: int
    config: Config
    batcher: Batcher | None
    statistics: Statistics
    files: int = 0
    """State of its folder when it was loaded."""
    steps: tuple[Version, ...] = ()
    """Of an ensemble: the versions that its requests go through. They stay while one is on its way."""
    shift: float = 0.0
    arrivals: Queue = field(default_factory=Queue)
    held: int = 0
    """Requests of ensembles that will still come to it."""
    vram_mib: int = 0
    loads: tuple[int, int] = (0, 0)
    """From when to when it is loaded (ns): its memory grows within."""
    seen: dict[str, int] = field(default_factory=dict)
    """Counters as the box saw them last."""

    @property
    def name(self) -> str:
        """Of the model."""
        return self.spec.name

    @property
    def pending(self) -> int:
        """Requests waiting for an instance."""
        return self.batcher.pending if self.batcher else 0

    @property
    def is_idle(self) -> bool:
        """Nothing waits, runs, or will still come."""
        busy = self.batcher is not None and (self.batcher.pending or self.batcher.running)
        return not (busy or self.held or self.arrivals.requests)

    @property
    def max_batch_size(self) -> int:
        """The largest batch that one request may have; 0 = no batch dimension."""
        return max_batch_size(self.config)

    @property
    def revision(self) -> tuple[int, int, int, int]:
        """Changes whenever a counter of this version does."""
        stats = self.statistics
        return stats.success_count, stats.execution_count, stats.fail_count, self.pending

    def told(self) -> dict[str, Any]:
        """Its configuration as served."""
        return config_json(self.config)

    def run(self, until_ns: int, slowdown: float) -> None:
        """Let its scheduler go on."""
        batcher = self.batcher
        if batcher is None or not (self.arrivals.requests or batcher.running or batcher.pending):
            return
        batcher.slowdown = slowdown
        batcher.run(until_ns, self.arrivals.take_due(until_ns))

    def memory_mib(self, now_ns: int) -> int:
        """What it holds on the card now; it grows while it is loaded."""
        begun, ends = self.loads
        if now_ns >= ends:
            return self.vram_mib
        return round(self.vram_mib * max(0, now_ns - begun) / (ends - begun))

    def set_instances(self, config: Config) -> None:
        """The update in place: nothing but the instance groups is taken over (triton.md 1.7)."""
        self.config.ClearField("instance_group")
        self.config.instance_group.MergeFrom(config.instance_group)
        self.vram_mib = memory_of(self.spec, config)
        if self.batcher is not None:
            self.batcher.set_instances(instances(config))


def memory_of(spec: Served, config: Config) -> int:
    """Card memory (MiB) of one version with so many instances."""
    if isinstance(spec, Ensemble):
        return 0
    more = instances(config) - spec.scheduling.instances
    return round(spec.vram_mib * (1 + INSTANCE_SHARE * more))


@dataclass(slots=True)
class EnsembleRequest:
    """A request on its way through an ensemble's steps."""

    ensemble: Version
    arrival_ns: int
    size: int
    on_done: Callable[[Completion], None] | None
    step: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    steps: tuple[Version, ...] = ()

    def start(self) -> None:
        """It arrives, and stays with the versions that serve at this moment."""
        self.steps = self.ensemble.steps
        for one in (self.ensemble, *self.steps):
            one.held += 1
        self._go_on(self.arrival_ns)

    def _go_on(self, at_ns: int) -> None:
        self.steps[self.step].arrivals.offer((at_ns, self.size, self._step_done))

    def _step_done(self, done: Completion) -> None:
        self.steps[self.step].held -= 1
        self.input_ns += done.input_ns
        self.infer_ns += done.infer_ns
        self.output_ns += done.output_ns
        self.step += 1
        if done.outcome is Outcome.SUCCESS and self.step < len(self.steps):
            self._go_on(done.finish_ns)
            return
        self.ensemble.held -= 1
        for one in self.steps[self.step :]:
            one.held -= 1
        if done.outcome is Outcome.SUCCESS:
            self._count(done.finish_ns)
        else:
            self.ensemble.statistics.failures["OTHER"] += 1
            self.ensemble.statistics.fail_ns += done.finish_ns - self.arrival_ns
        if self.on_done is not None:
            self.on_done(Completion(done.outcome, self.arrival_ns, done.finish_ns))

    def _count(self, finish_ns: int) -> None:
        """An ensemble's statistics are sums over its steps, and say nothing of the steps' waiting (triton.md 1.6)."""
        stats = self.ensemble.statistics
        queue_ns = 4_000
        stats.success_count += 1
        stats.success_ns += finish_ns - self.arrival_ns + queue_ns
        stats.queue_ns += queue_ns
        stats.input_ns += self.input_ns
        stats.infer_ns += self.infer_ns
        stats.output_ns += self.output_ns
        stats.inference_count += self.size
        stats.execution_count += 1
        stats.last_inference_ns = finish_ns
        times = stats.batches.setdefault(self.size, BatchTimes())
        times.count += 1
        times.input_ns += self.input_ns
        times.infer_ns += self.infer_ns
        times.output_ns += self.output_ns
