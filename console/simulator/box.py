"""The box's state: clock, traffic, card, containers. Everything that is read from it is read at `now_ns`.

`advance` is the only way in which time passes. Traffic is drawn for whole seconds of simulated time, from generators of
its own per model, so that a seed fixes the sequence of events whoever reads, and however often. It goes where Triton
would send it at that moment: nowhere while nothing serves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.planning.batcher import NS_PER_SECOND, Completion, Request, poisson_arrivals
from console.simulator.agenda import Agenda
from console.simulator.card import CONTEXT_MIB, RESERVED_MIB, TOTAL_MIB, Card
from console.simulator.configs import Served
from console.simulator.containers import CONTAINER_ID, Container, ContainerEvent, Containers, first_body
from console.simulator.host import Host
from console.simulator.repository import Repository
from console.simulator.scenes import Scene
from console.simulator.server import Server
from console.simulator.server_log import LogLine, passing_line, start_lines, verbose_line
from console.simulator.serving import EnsembleRequest, Queue, Version
from console.simulator.settings import ServerSettings

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


@dataclass(slots=True)
class Traffic:
    """What clients send to one model."""

    spec: Served
    rng: random.Random
    phase: float
    queue: Queue = field(default_factory=Queue)

    def rate(self, seconds: float) -> float:
        """Requests a second, so many seconds after the beginning."""
        swing = SWING * math.sin(2 * math.pi * seconds / SWING_PERIOD_S + self.phase)
        return self.spec.requests_per_second * (1 + swing)


class Box:
    """One simulated box. `start_ns` is the simulated time (epoch ns) at which the console may begin to read.

    `ports` are those of the host on which Triton's HTTP and metrics are published; `clock_ns` see ServerSettings.
    """

    def __init__(
        self,
        scene: Scene,
        *,
        seed: int,
        start_ns: int,
        repository: Path | None = None,
        ports: tuple[int, int] = (8000, 8002),
        clock_ns: int = 0,
    ) -> None:
        self.scene = scene
        self.seed = seed
        self.start_ns = start_ns
        self.created_ns = start_ns - CREATED_BEFORE_S * NS_PER_SECOND
        self.served: tuple[Served, ...] = (*scene.models, *scene.ensembles)
        self.specs = {model.name: model for model in scene.models}
        self.repository = Repository(repository) if repository else None
        if self.repository:
            self.repository.write(self.served, start_ns / NS_PER_SECOND)
        self.now_ns = start_ns - SETTLE_S * NS_PER_SECOND
        self.agenda = Agenda(self.now_ns)
        self.containers = Containers(self._serve, lambda: self.agenda.now_ns)
        self.settings = ServerSettings(clock_ns)
        self._traffic = [self._clients_of(spec) for spec in self.served]
        self._log_rng = self.rng("log")
        self._card_rng = self.rng("card")
        self._next_log_ns = start_ns + round(self._log_rng.expovariate(1 / LOG_EVERY_S) * NS_PER_SECOND)
        self._coming_versions = sorted(scene.new_versions, key=lambda new: new.after_seconds)
        self._order: tuple[Server | None, int, list[Version]] = (None, 0, [])
        self._depth = self._depths()
        self._write_past(first_body(str(repository or "/data/models"), *ports, "on-failure" if scene.exit else "no"))
        self.card = Card(scene.card)
        self.host = Host(start_ns=start_ns, container_started_ns=self.first.started_ns)
        self._host_rng = self.rng("host")
        self._second_ends_ns = self.now_ns
        self._settle()

    # --------------------------------------------------------------------------------------------------------- looks

    @property
    def running(self) -> bool:
        """Whether a container's process lives."""
        return self.containers.running is not None

    @property
    def server(self) -> Server | None:
        """The tritonserver that lives now."""
        running = self.containers.running
        return running.server if running is not None else None

    @property
    def first(self) -> Container:
        """The container of the scene, or the one that took its place."""
        shown = self.containers.shown
        assert shown is not None
        return shown

    @property
    def models(self) -> dict[str, Version]:
        """Name -> the version that unversioned requests go to; only of what serves."""
        server = self.server
        found = {spec.name: server.models.target(spec.name) for spec in self.served} if server is not None else {}
        return {name: version for name, version in found.items() if version is not None}

    @property
    def log(self) -> list[LogLine]:
        """Of the container that serves, or served last."""
        return self.first.log

    @property
    def events(self) -> list[ContainerEvent]:
        """Of all containers."""
        return self.containers.events

    def nvml_document(self) -> dict[str, Any]:
        """What the NVML stand-in is given to read."""
        return self.card.document(self.now_ns, self.scene.nvml_error)

    def free_mib(self) -> int:
        """Card memory that is free when all loads that go on have ended; below 0 they do not fit."""
        server = self.server
        taken = sum(one.vram_mib for one in server.models.all()) if server is not None else 0
        return TOTAL_MIB - RESERVED_MIB - CONTEXT_MIB - taken

    def rng(self, purpose: str) -> random.Random:
        """A generator of its own for each purpose, fixed by the seed."""
        return random.Random(f"{self.seed}:{purpose}")

    # ---------------------------------------------------------------------------------------------------------- acts

    def infer(self, version: Version, size: int, on_done: Callable[[Completion], None]) -> None:
        """A request from outside arrives now; `on_done` is called by a later `advance`."""
        self._send(version, (self.now_ns, size, on_done))
        self._run_models(self.now_ns)

    def advance(self, to_ns: int) -> None:
        """Let simulated time pass up to `to_ns`; a time already reached changes nothing."""
        while self.now_ns < to_ns:
            if self.now_ns >= self._second_ends_ns:
                self._begin_second()
            until_ns = min(to_ns, self._second_ends_ns)
            next_ns = self.agenda.next_ns
            if next_ns is not None:
                until_ns = max(self.now_ns, min(until_ns, next_ns))
            self._run_models(until_ns)
            self.now_ns = until_ns
            self.agenda.go_on(until_ns)
            if until_ns == self._second_ends_ns:
                self._end_second()
        self._weigh()

    def sleep_until(self, to_ns: int) -> None:
        """Pass time without traffic, as when the machine slept; nothing is drawn for it."""
        for clients in self._traffic:
            clients.queue.requests.clear()
        self._run_models(to_ns)
        self.agenda.go_on(to_ns)
        self.now_ns = self._second_ends_ns = to_ns

    # ------------------------------------------------------------------------------------------------------ the past

    def _clients_of(self, spec: Served) -> Traffic:
        rng = self.rng(spec.name)
        return Traffic(spec, rng, rng.uniform(0, 2 * math.pi))

    def _depths(self) -> dict[str, int]:
        """How far behind others a model stands in ensembles: a step runs after the steps that feed it."""
        depth: dict[str, int] = {}
        for ensemble in self.scene.ensembles:
            for position, step in enumerate(ensemble.steps):
                depth[step] = max(depth.get(step, 0), position)
        return depth

    def _serve(self, container: Container, exited: Callable[[int], None]) -> Server:
        server = Server(self, container.command, container.log.append, exited)
        self.settings.begin(server.trace_file, container.files)
        if container.state == "running":
            self.host.began(container.started_ns)
        return server

    def _write_past(self, body: dict[str, Any]) -> None:
        first = Container(CONTAINER_ID, body, self.created_ns)
        self.containers.all.append(first)
        self.containers.tell(first, "create", self.created_ns)
        self.containers.cannot_start = self.scene.exit
        exit_ = self.scene.exit
        if exit_ is None:
            self._began(first, self.start_ns - UP_BEFORE_S * NS_PER_SECOND)
            first.log.extend(start_lines(self.scene, first.command, first.started_ns))
            first.server = self._serve(first, lambda code: self.containers.ended(first, code))
            first.state = "running"
            first.server.begun_long_ago()
            return
        for attempt in range(exit_.starts):
            at_ns = self.start_ns - (exit_.starts - attempt) * START_EVERY_S * NS_PER_SECOND
            self._began(first, at_ns)
            first.log.append(LogLine(at_ns, 2, exit_.last_line))
            self.containers.tell(first, "died", at_ns + 350_000_000, exit_.code)
            self.containers.tell(first, "cleanup", at_ns + 420_000_000)
            first.finished_ns = at_ns + 420_000_000
        first.state, first.exit_code, first.restarts = "exited", exit_.code, exit_.starts - 1

    def _began(self, first: Container, at_ns: int) -> None:
        self.containers.tell(first, "init", at_ns - 90_000_000)
        self.containers.tell(first, "start", at_ns)
        first.started_ns = at_ns

    def _settle(self) -> None:
        """Play a short past, then let its counters stand for all the time since the container started."""
        self.advance(self.start_ns)
        self.card.settle()
        self.host.settle(self.start_ns)
        for version in self._versions():
            version.statistics.scale(UP_BEFORE_S // SETTLE_S)
        self._since_last("busy_ns")
        self._since_last("success_count")
        self.card.energy_mj = round(self.card.power_w * 1000) * UP_BEFORE_S

    # -------------------------------------------------------------------------------------------------------- traffic

    def _versions(self) -> list[Version]:
        """All that is in memory, in an order in which a step comes after the steps that feed it."""
        server = self.server
        if server is None:
            return []
        if self._order[0] is not server or self._order[1] != server.models.changes:
            found = sorted(server.models.all(), key=lambda one: self._depth.get(one.name, 0))
            self._order = (server, server.models.changes, found)
        return self._order[2]

    def _begin_second(self) -> None:
        start_ns, end_ns = self.now_ns, self.now_ns + NS_PER_SECOND
        self._second_ends_ns = end_ns
        seconds = (start_ns - self.start_ns) / NS_PER_SECOND
        for clients in self._traffic:
            if not clients.spec.requests_per_second:
                continue
            # drawn also while nothing serves, so that what an operator does changes no later second
            times = poisson_arrivals(clients.rng, clients.rate(seconds), start_ns, end_ns)
            clients.queue.requests.extend((at_ns, 1, None) for at_ns in times)

    def _run_models(self, until_ns: int) -> None:
        server = self.server
        for clients in self._traffic:
            if not clients.queue.requests:
                continue
            due = clients.queue.take_due(until_ns)
            target = server.models.target(clients.spec.name) if server is not None and server.serving else None
            if target is None:
                continue  # nobody there: the connection is refused, or the model is unknown
            for request in due:
                self._send(target, self.settings.traced(target, request))
        for version in self._versions():
            version.run(until_ns, self.card.slowdown)

    def _send(self, version: Version, request: Request) -> None:
        if version.batcher is None:
            EnsembleRequest(version, *request).start()
        else:
            version.arrivals.offer(request)

    # -------------------------------------------------------------------------------------------------------- seconds

    def _weigh(self) -> None:
        """The card's memory now."""
        server = self.server
        held = 0 if server is None else sum(one.memory_mib(self.now_ns) for one in server.models.all())
        running = self.containers.running
        self.card.hold(0 if server is None else held + CONTEXT_MIB, running.pid if running is not None else 0)

    def _end_second(self) -> None:
        self.card.step(self._busy_share(), self._card_rng)
        served = self._since_last("success_count")
        self.host.step(self.now_ns, served, self._host_rng, running=self.running)
        if self.now_ns <= self.start_ns:
            return
        self._write_log(served)
        elapsed = (self.now_ns - self.start_ns) / NS_PER_SECOND
        while self._coming_versions and self._coming_versions[0].after_seconds <= elapsed:
            new = self._coming_versions.pop(0)
            if self.repository:
                self.repository.add_version(self.specs[new.model], new.version, self.now_ns / NS_PER_SECOND)

    def _write_log(self, served: int) -> None:
        """Drawn also while nothing serves, as the traffic is."""
        server = self.server
        while self._next_log_ns <= self.now_ns:
            line = passing_line(self._log_rng, self._next_log_ns)
            if server is not None and server.serving:
                self.log.append(line)
            self._next_log_ns += round(self._log_rng.expovariate(1 / LOG_EVERY_S) * NS_PER_SECOND)
        if server is not None and server.serving and self.settings.verbose:
            self.log.append(verbose_line(self.now_ns, served))

    def _since_last(self, what: str) -> int:
        """How much a counter has grown since the last call, over all schedulers; reloads begin at 0."""
        grown = 0
        for one in self._versions():
            if one.batcher is not None:
                now = getattr(one.statistics, what)
                grown += now - one.seen.get(what, 0)
                one.seen[what] = now
        return grown

    def _busy_share(self) -> float:
        """Share of the last second in which a run was on the card, runs taken as starting independently."""
        return 1.0 - math.exp(-self._since_last("busy_ns") / NS_PER_SECOND)
