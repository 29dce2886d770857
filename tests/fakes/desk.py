"""A Desk without actions: plans that a test wrote, changes that go as far as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace as with_

from msgspec.structs import replace

from console.core.model import Snapshot
from console.core.plan import (
    AuditRecord,
    Check,
    Interrupted,
    JournalLine,
    Operator,
    Outcome,
    Plan,
    Refused,
    Step,
    Target,
    Tick,
    UndoSpec,
    Way,
)
from console.tui.desk import Following, Holder, Record, Request
from tests.fakes.drawn import NOW

OPS = Operator("root", 0, 1000, "ops", "192.0.2.7", "/dev/pts/3", 4711)
STOP = Plan(
    action="container.stop",
    target=Target("container", "triton", {"id": "9f3c2e1a77b0", "state": "running"}),
    values={},
    title="Stop container triton on infer-01",
    yes="Stop",
    danger="danger",
    checks=(Check("warn", "it gets 10 s, drains up to 30: requests in flight may be cut"),),
    ticks=(Tick("longer", "give it 60 s", on=False),),
    effects=("3 models stop serving: ranking 1650/s, recall 180/s, reco 180/s",),
    by_hand=("systemctl stop triton.service",),
    undo="o (start), ≈ 12 s until ready last time",
    wall=NOW,
)
SWAP = Plan(
    action="model.swap",
    target=Target("model", "lm", {"container": "9f3c2e1a77b0 since 0"}),
    values={"version": "4"},
    title="Swap lm 3 → 4 on infer-01, container triton, GPU 0",
    yes="Swap",
    danger="caution",
    note="a gap",
    checks=(
        Check(
            "ok", "version 4 is on disk, 11.9 GiB, readable by the server, engine names TensorRT 10.0.1 as the server"
        ),
        Check("ok", "config.pbtxt: parses, same inputs and outputs as 3"),
        Check("ok", "explicit mode"),
        Check("ok", "gRPC answers"),
        Check("fail", "both at once: needs 12.3 GiB more, free 2.6 of 15.0"),
        Check("ok", "the kept question has its answer"),
        Check("warn", "after an unload the memory may not come back (onnxruntime keeps an arena): step 3 waits 60 s"),
    ),
    ways=(
        Way("side", "1 instance first, then swap beside", "nothing: 6.2 + 6.2 fit, slower", "0 s", "has 1 instance"),
        Way("gap", "unload 3, wait for memory, load 4", "404 no available versions", "≈ 38 s (load took 31 s, 07-02)"),
        Way("restart", "restart the container with 4 only", "connection refused", "≈ 55 s"),
    ),
    way="gap",
    steps=(
        Step("note", "note the READY set, ask 3 the kept question", "stop, nothing changed"),
        Step("unload", "unload lm, wait for UNAVAILABLE", "load 3"),
        Step("memory", "wait until 12.3 GiB are free, ≤ 60 s", "load 3; then offer the restart"),
        Step("load", "load 4 over gRPC (policy specific 4)", "load 3: second gap ≈ 34 s", ("POST /v2/…/lm/load",)),
        Step("probe", "ask 4 the kept question 5 times, compare the answers", "unload 4, load 3"),
        Step("watch", "watch fail rate and mean for 60 s; READY set as before", "unload 4, load 3"),
    ),
    effects=("other models on this card: none.  Podman health check: none.  Requests to lm now: 41/s",),
    by_hand=("grpcurl 1", "grpcurl 2", "grpcurl 3", "grpcurl 4"),
    undo="u: swap back to 3, the same gap again",
    wall=NOW,
)
RUNNING = (
    JournalLine(NOW, "begin", "note", "noted, 3 answered as kept"),
    JournalLine(NOW, "done", "note", seconds=0.1),
    JournalLine(NOW, "begin", "unload", "unloaded"),
    JournalLine(NOW + 1.4, "done", "unload", seconds=1.4),
    JournalLine(NOW + 1.4, "begin", "memory", "memory back: 14.6 GiB free"),
    JournalLine(NOW + 2.3, "done", "memory", seconds=0.9),
    JournalLine(NOW + 2.3, "begin", "load", "loading 4"),
    JournalLine(NOW + 9.0, "note", "load", "VRAM 11.1 GiB and rising, log: nothing wrong"),
)
DONE = Outcome("done", "lm 4 serves, gap 39 s", undo=UndoSpec("model.swap", "lm", {"version": "3"}, "lm back to 3"))


class FakeDesk:
    """Everything is remembered: `asked`, `started`, `cancelled`."""

    def __init__(self, plan: Plan | Callable[[Request], Plan] = SWAP) -> None:
        self._plan = plan
        self.asked: list[Request] = []
        self.started: list[Plan] = []
        self.cancelled: list[str] = []
        self.now: Following | None = None
        """What `follow` tells."""
        self.held: Holder | None = None
        self.past: tuple[Record, ...] = ()
        self.broken: tuple[Interrupted, ...] = ()
        self.gate = threading.Event()
        """Cleared: planning waits."""
        self.gate.set()

    def ready(self) -> bool:
        return True

    def plan(self, request: Request, snapshot: Snapshot) -> Plan:
        self.asked.append(request)
        self.gate.wait(10)
        made = self._plan(request) if callable(self._plan) else self._plan
        ticks = tuple(replace(one, on=request.values.get(one.name) == one.value) for one in made.ticks)
        return replace(made, way=request.values.get("way", made.way), ticks=ticks)

    def start(self, plan: Plan) -> str:
        if self.held is not None:
            raise Refused(self.held.text)
        self.started.append(plan)
        self.now = Following("20260704-060431-000001", plan, OPS, NOW)
        return self.now.id

    def tell(self, *lines: JournalLine, outcome: Outcome | None = None, alive: bool = True) -> None:
        """The journal goes on."""
        assert self.now is not None
        self.now = with_(self.now, lines=(*self.now.lines, *lines), outcome=outcome, alive=alive)

    def follow(self, id: str) -> Following | None:  # noqa: A002
        return self.now

    def cancel(self, id: str) -> None:  # noqa: A002
        self.cancelled.append(id)

    def holder(self) -> Holder | None:
        return self.held

    def records(self) -> tuple[Record, ...]:
        return self.past

    def stamp(self) -> object:
        return len(self.past)

    def interrupted(self) -> tuple[Interrupted, ...]:
        return self.broken


def record(id: str, wall: float, outcome: Outcome | None = DONE, plan: Plan = SWAP) -> Record:  # noqa: A002
    """One change of the past."""
    intent = AuditRecord(
        id, "intent", wall, OPS, "infer-01", plan.action, plan.target, plan.title, plan.values, tuple(plan.effects)
    )
    if outcome is None:
        return Record(intent, None, undo_off="it has no outcome yet")
    end = replace(intent, kind="outcome", wall=wall + 39.0, outcome=outcome, duration=39.0)
    return Record(intent, end, undo_off="" if outcome.undo else "it left nothing that could be undone")
