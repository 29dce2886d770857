"""The box's state: clock, traffic, models, card, container. Everything that is read from it is read at `now_ns`.

`advance` is the only way in which time passes. Traffic is drawn for whole seconds of simulated time, from generators of
its own per model, so that a seed fixes the sequence of events whoever reads, and however often.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.planning.batcher import (
    NS_PER_SECOND,
    Batcher,
    BatchTimes,
    Completion,
    Outcome,
    Request,
    Statistics,
    poisson_arrivals,
)
from console.simulator.card import CONTEXT_MIB, Card
from console.simulator.configs import Served, config_json
from console.simulator.host import Host
from console.simulator.repository import Repository
from console.simulator.scenes import Ensemble, Model, Scene
from console.simulator.server_log import LogLine, passing_line, start_lines

UP_BEFORE_S = 24 * 60 + 36
"""The container was started this long before the simulation begins: the console is opened after the trouble."""
CREATED_BEFORE_S = 9 * 86_400
SETTLE_S = 12
"""Seconds of traffic played before the beginning; their counters stand for the container's whole past."""
SWING = 0.04
"""How far traffic moves to both sides of its mean."""
SWING_PERIOD_S = 210.0
LOG_EVERY_S = 90.0
START_EVERY_S = 12
"""A container that cannot start is tried again after this time."""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """An event of the container as Podman tells it; exit code only where it has one."""

    at_ns: int
    action: str
    exit_code: int = 0


@dataclass(slots=True)
class ServedModel:
    """One version of a model or ensemble: its scheduler (none for an ensemble) and its counters."""

    spec: Served
    batcher: Batcher | None
    statistics: Statistics
    rng: random.Random
    phase: float
    arrivals: list[Request] = field(default_factory=list)
    in_order: bool = True

    @property
    def failed(self) -> str | None:
        """Triton's reason, when it did not load."""
        return self.spec.failed if isinstance(self.spec, Model) else None

    @property
    def pending(self) -> int:
        """Requests waiting for an instance."""
        return self.batcher.pending if self.batcher else 0

    def offer(self, request: Request) -> None:
        """A request will arrive at its time."""
        self.arrivals.append(request)
        self.in_order = False

    def take_due(self, until_ns: int) -> list[Request]:
        """Arrivals up to `until_ns`, in order; later ones stay."""
        if not self.in_order:
            self.arrivals.sort(key=_arrival)
            self.in_order = True
        due = bisect_right(self.arrivals, until_ns, key=_arrival)
        batch, self.arrivals = self.arrivals[:due], self.arrivals[due:]
        return batch

    @property
    def revision(self) -> tuple[int, int, int, int]:
        """Changes whenever a counter of this model does."""
        stats = self.statistics
        return stats.success_count, stats.execution_count, stats.fail_count, self.pending


@dataclass(slots=True)
class _EnsembleRequest:
    """A request on its way through an ensemble's steps."""

    box: Box
    ensemble: ServedModel
    arrival_ns: int
    size: int
    on_done: Callable[[Completion], None] | None
    step: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0

    def start(self, at_ns: int) -> None:
        spec = self.ensemble.spec
        assert isinstance(spec, Ensemble)
        self.box.models[spec.steps[self.step]].offer((at_ns, self.size, self._step_done))

    def _step_done(self, done: Completion) -> None:
        spec = self.ensemble.spec
        assert isinstance(spec, Ensemble)
        self.input_ns += done.input_ns
        self.infer_ns += done.infer_ns
        self.output_ns += done.output_ns
        self.step += 1
        if self.step < len(spec.steps):
            self.start(done.finish_ns)
            return
        self._count(done.finish_ns)
        if self.on_done is not None:
            self.on_done(Completion(Outcome.SUCCESS, self.arrival_ns, done.finish_ns))

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


class Box:
    """One simulated box. `start_ns` is the simulated time (epoch ns) at which the console may begin to read."""

    def __init__(self, scene: Scene, *, seed: int, start_ns: int, repository: Path | None = None) -> None:
        self.scene = scene
        self.seed = seed
        self.start_ns = start_ns
        self.started_ns = start_ns - UP_BEFORE_S * NS_PER_SECOND
        self.created_ns = start_ns - CREATED_BEFORE_S * NS_PER_SECOND
        self.running = scene.exit is None
        self.served: tuple[Served, ...] = (*scene.models, *scene.ensembles)
        self.specs = {model.name: model for model in scene.models}
        self.models = {spec.name: self._serve(spec) for spec in self.served}
        self.repository = Repository(repository) if repository else None
        if self.repository:
            self.repository.write(self.served, start_ns / NS_PER_SECOND)
        self.log: list[LogLine] = []
        self.events: list[ContainerEvent] = []
        self._write_past()
        self._order = self._execution_order()
        self._log_rng = self._rng("log")
        self._card_rng = self._rng("card")
        self._next_log_ns = start_ns + round(self._log_rng.expovariate(1 / LOG_EVERY_S) * NS_PER_SECOND)
        self._coming_versions = sorted(scene.new_versions, key=lambda new: new.after_seconds)
        self.card = self._make_card()
        self.host = Host(start_ns=start_ns, container_started_ns=self.started_ns, running=self.running)
        self._host_rng = self._rng("host")
        self._served_before = 0
        self._busy_ns = 0
        self.now_ns = start_ns - SETTLE_S * NS_PER_SECOND
        self._second_ends_ns = self.now_ns
        self._settle()

    @property
    def ready(self) -> bool:
        """Whether every model that should serve does: Triton's server ready flag."""
        return all(model.failed is None for model in self.models.values())

    def config(self, name: str) -> dict[str, Any]:
        """The served configuration of a model."""
        return config_json(self.models[name].spec, self.specs)

    def nvml_document(self) -> dict[str, Any]:
        """What the NVML stand-in is given to read."""
        return self.card.document(self.now_ns, self.scene.nvml_error)

    def infer(self, name: str, size: int, on_done: Callable[[Completion], None]) -> None:
        """A request from outside arrives now; `on_done` is called by a later `advance`."""
        model = self.models[name]
        if model.batcher is None:
            _EnsembleRequest(self, model, self.now_ns, size, on_done).start(self.now_ns)
        else:
            model.offer((self.now_ns, size, on_done))
        self._run_models(self.now_ns)

    def advance(self, to_ns: int) -> None:
        """Let simulated time pass up to `to_ns`; a time already reached changes nothing."""
        while self.now_ns < to_ns:
            if self.now_ns >= self._second_ends_ns:
                self._begin_second()
            until_ns = min(to_ns, self._second_ends_ns)
            if self.running:
                self._run_models(until_ns)
            self.now_ns = until_ns
            if until_ns == self._second_ends_ns:
                self._end_second()

    def sleep_until(self, to_ns: int) -> None:
        """Pass time without traffic, as when the machine slept; nothing is drawn for it."""
        for model in self.models.values():
            model.arrivals.clear()
            if model.batcher is not None:
                model.batcher.run(to_ns)
        self.now_ns = self._second_ends_ns = to_ns

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}:{purpose}")

    def _serve(self, spec: Served) -> ServedModel:
        rng = self._rng(spec.name)
        phase = rng.uniform(0, 2 * math.pi)
        if isinstance(spec, Ensemble):
            return ServedModel(spec, None, Statistics(), rng, phase)
        batcher = Batcher(
            spec.scheduling,
            spec.service,
            start_ns=self.start_ns - SETTLE_S * NS_PER_SECOND,
            rng=self._rng(f"{spec.name}:runs"),
        )
        return ServedModel(spec, batcher, batcher.statistics, rng, phase)

    def _execution_order(self) -> list[ServedModel]:
        """Models in an order in which a step comes after the steps that feed it."""
        depth: dict[str, int] = {}
        for ensemble in self.scene.ensembles:
            for position, step in enumerate(ensemble.steps):
                depth[step] = max(depth.get(step, 0), position)
        with_scheduler = [model for model in self.models.values() if model.batcher is not None]
        return sorted(with_scheduler, key=lambda model: depth.get(model.spec.name, 0))

    def _make_card(self) -> Card:
        loaded = sum(model.vram_mib for model in self.scene.models if model.failed is None)
        process = loaded + CONTEXT_MIB if self.running else 0
        return Card(self.scene.card, used_mib=process, process_mib=process)

    def _settle(self) -> None:
        """Play a short past, then let its counters stand for all the time since the container started."""
        self.advance(self.start_ns)
        self.card.settle()
        self.host.settle(self.start_ns)
        for model in self.models.values():
            model.statistics.scale(UP_BEFORE_S // SETTLE_S)
        self._busy_ns = self._total_busy_ns()
        self._served_before = sum(model.statistics.success_count for model in self._order)
        self.card.energy_mj = round(self.card.power_w * 1000) * UP_BEFORE_S

    def _write_past(self) -> None:
        self.events.append(ContainerEvent(self.created_ns, "create"))
        exit_ = self.scene.exit
        if exit_ is None:
            self._note_start(self.started_ns)
            return
        for attempt in range(exit_.starts):
            at_ns = self.start_ns - (exit_.starts - attempt) * START_EVERY_S * NS_PER_SECOND
            self._note_start(at_ns)
            self.events.append(ContainerEvent(at_ns + 350_000_000, "died", exit_.code))
            self.events.append(ContainerEvent(at_ns + 420_000_000, "cleanup"))
            self.started_ns = at_ns

    def _note_start(self, at_ns: int) -> None:
        self.events.append(ContainerEvent(at_ns - 90_000_000, "init"))
        self.events.append(ContainerEvent(at_ns, "start"))
        self.log.extend(start_lines(self.scene, self.served, at_ns))

    def _rate(self, model: ServedModel, at_ns: int) -> float:
        seconds = (at_ns - self.start_ns) / NS_PER_SECOND
        swing = SWING * math.sin(2 * math.pi * seconds / SWING_PERIOD_S + model.phase)
        return model.spec.requests_per_second * (1 + swing)

    def _begin_second(self) -> None:
        start_ns, end_ns = self.now_ns, self.now_ns + NS_PER_SECOND
        self._second_ends_ns = end_ns
        if not self.running:
            return
        for model in self.models.values():
            if model.failed is not None or not model.spec.requests_per_second:
                continue
            times = poisson_arrivals(model.rng, self._rate(model, start_ns), start_ns, end_ns)
            if model.batcher is None:
                for at_ns in times:
                    _EnsembleRequest(self, model, at_ns, 1, None).start(at_ns)
            else:
                for at_ns in times:
                    model.offer((at_ns, 1, None))

    def _run_models(self, until_ns: int) -> None:
        for model in self._order:
            assert model.batcher is not None
            if not (model.arrivals or model.batcher.running or model.batcher.pending):
                continue
            model.batcher.slowdown = self.card.slowdown
            model.batcher.run(until_ns, model.take_due(until_ns))

    def _end_second(self) -> None:
        self.card.step(self._busy_share(), self._card_rng)
        served = sum(model.statistics.success_count for model in self._order)
        self.host.step(self.now_ns, served - self._served_before, self._host_rng)
        self._served_before = served
        if not self.running or self.now_ns <= self.start_ns:
            return
        while self._next_log_ns <= self.now_ns:
            self.log.append(passing_line(self._log_rng, self._next_log_ns))
            self._next_log_ns += round(self._log_rng.expovariate(1 / LOG_EVERY_S) * NS_PER_SECOND)
        elapsed = (self.now_ns - self.start_ns) / NS_PER_SECOND
        while self._coming_versions and self._coming_versions[0].after_seconds <= elapsed:
            new = self._coming_versions.pop(0)
            if self.repository:
                self.repository.add_version(self.specs[new.model], new.version, self.now_ns / NS_PER_SECOND)

    def _total_busy_ns(self) -> int:
        return sum(model.statistics.busy_ns for model in self._order)

    def _busy_share(self) -> float:
        """Share of the last second in which a run was on the card, runs taken as starting independently."""
        total_ns = self._total_busy_ns()
        mean_running = (total_ns - self._busy_ns) / NS_PER_SECOND
        self._busy_ns = total_ns
        return 1.0 - math.exp(-mean_running)


def _arrival(request: Request) -> int:
    return request[0]
