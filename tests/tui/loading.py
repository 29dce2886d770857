"""Loads without a server: doors that plan, send and keep nothing, and runs as records tell them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from console.clients.triton import TritonAddress
from console.clients.triton_body import Encoded
from console.core.model import ModelConfig
from console.core.plan import WrongInput
from console.loadgen import record, schedule, verdict
from console.loadgen.announce import Running
from console.loadgen.errors import Failed, total
from console.loadgen.histogram import Histogram
from console.loadgen.inputs import Inputs
from console.loadgen.measure import Asked, Plan
from console.loadgen.order import Progress
from console.loadgen.record import Client, Comparison, Foreign, Kept, Live, Run, Server, Slice, Traffic
from console.loadgen.wish import Checked, checked
from console.tui.app import ConsoleApp
from console.tui.late_loads import command_of, wish_of
from console.tui.loads import Told
from tests.fakes.drawn import NOW
from tests.tui.tuning import FakeDesk

LATENCIES = (2.1, 2.2, 2.3, 2.3, 2.4, 2.5, 1.8, 1.9, 2.9, 3.4) * 40
"""ms."""


def made_run(
    id_: int,
    *,
    model: str = "ranking",
    load: schedule.Load | None = None,
    latencies: Sequence[float] = LATENCIES,
    errors: Mapping[str, Failed] | None = None,
    goal_ms: float | None = 5.0,
    wall: float = NOW - 600,
    **more: Any,
) -> Run:
    """A run of these latencies, judged as a real one is."""
    load = load or schedule.make("open", "800", 120.0, poisson=True)
    histogram = Histogram()
    for ms in latencies:
        histogram.record(round(ms * 1000))
    errors = errors or {}
    client = Client(
        seconds=load.seconds,
        sent=len(latencies) + total(errors),
        done=len(latencies),
        in_time=len(latencies),
        latency=histogram.latency(),
        histogram=histogram.encoded(),
        sum_us=histogram.sum_us,
        errors=errors,
        late=2,
        cpu_s=1.2,
        wall_s=load.seconds + 0.1,
        connections=32,
        slices=tuple(Slice(float(at), 800, 0, 2.3, 3.0 + at / 10) for at in range(1, 13)),
    )
    values: dict[str, Any] = {
        "host": "infer-01",
        "by": "ops@192.0.2.7",
        "target": "127.0.0.1:8000",
        "version": "",
        "warmup_s": 5.0,
        "batch": 1,
        "inputs": "input FP32 [1, 256] random",
        "answers": "status, and each output with all its data",
        "config": {"batching": "dynamic", "delay": "500 µs", "max batch": "16", "instances": "2"},
        "server": Server(len(latencies), 0, 1.88, 0.39, 0.07, 1.34, 0.08, 1.9, 210),
        "goal_ms": goal_ms,
        "met": verdict.met(client, goal_ms),
        **more,
    }
    return Run(id=id_, wall=wall, model=model, load=load, client=client, **values)


CLOSED = schedule.make("closed", "16", 60.0)
NOT_VALID = "ranking was loaded anew at 13:31:20"


def some_runs() -> tuple[Run, ...]:
    """As drawn: a closed one, one that is not valid, a slower one, a newer one."""
    slower = [ms + 1.2 for ms in LATENCIES]
    return (
        made_run(10, load=CLOSED, wall=NOW - 2600),
        made_run(11, not_valid=NOT_VALID, wall=NOW - 2000, ended="stopped"),
        made_run(12, latencies=slower, wall=NOW - 1200, config={"batching": "dynamic", "delay": "2000 µs",
                                                                "max batch": "16", "instances": "2"}),
        made_run(13, wall=NOW - 600),
    )  # fmt: skip


def progress(at: float, *, errors: int = 0, p99: float = 3.0) -> Progress:
    """After `at` seconds of 800 a second."""
    sent = round(800 * max(0.0, at))
    return Progress(at, sent, sent - 4, errors, 7, 4, 0, 799.6, 2.3, p99)


LIVE = (
    Live("ranking", Traffic(1650.0, 1.84, 3300), Traffic(1648.0, 1.88, 9000), ours=True),
    Live("recall", Traffic(180.0, 2.65, 360), Traffic(181.0, 2.66, 900), ours=False),
)
RUNNING = Running(4711, 99, "ana", NOW - 42, "recall", "127.0.0.1:8000", "open loop, constant, 800/s", 120.0)


FOREIGN = Foreign("perf_analyzer 2.51.0", 14, NOW - 300, "infer-01", "ops@192.0.2.7", "ranking", "2", 16, 5690.0,
                  "127.0.0.1:8000", 1, 2.81, 2.8, 3.1, 3.4, 3.9, 0.4, 0.07, 1.34, 0.08, 4000,
                  ("stalls", "p99.9 and max"), "report.csv")  # fmt: skip
"""What perf_analyzer wrote into a file that was read."""


class FakeDoors:
    """Plans whatever can be, and lets a load run until it is told how it ends."""

    def __init__(self, runs: Sequence[Run] = (), going: Sequence[Running] = ()) -> None:
        self.kept = tuple(runs)
        self.foreign: tuple[Foreign, ...] = ()
        self.going = tuple(going)
        self.planned: list[Mapping[str, str]] = []
        self.written: list[tuple[str, Mapping[str, str]]] = []
        self.tell: Callable[[Progress, Sequence[Live]], None] | None = None
        self.begun = threading.Event()
        self.ends = threading.Event()
        """Set: the load ends by itself."""
        self.stopped = threading.Event()
        self.refuses = ""
        """Why no plan can be made."""
        self.result: Run | None = None
        """What a load that is not stopped comes to."""

    def ready(self) -> bool:
        return True

    def host(self) -> str:
        return "infer-01"

    def by(self) -> str:
        return "ops@192.0.2.7"

    def checked(self, values: Mapping[str, str]) -> Checked:
        return checked(wish_of(values))

    def plan(self, values: Mapping[str, str]) -> Plan:
        self.planned.append(dict(values))
        if self.refuses:
            raise WrongInput(self.refuses)
        found = self.checked(values)
        asked = Asked(
            values["model"],
            "" if values["version"] == "any" else values["version"],
            Inputs((Encoded(b"x" * 400, {}),), "input FP32 [1, 256] zeros"),
            ModelConfig(values["model"], "2"),
        )
        return Plan(
            TritonAddress("127.0.0.1", 8000),
            "127.0.0.1",
            (asked,),
            found.load,
            found.warm_up,
            1,
            float(values["goal"]) if values["goal"] else None,
            found.timeout_s,
            float(values["max_errors"]) / 100,
            found.live_limits,
        )

    def command(self, values: Mapping[str, str]) -> str:
        return command_of(values)

    def measure(
        self, plan: Plan, tell: Callable[[Progress, Sequence[Live]], None], begun: Callable[[Callable[[], None]], None]
    ) -> Run:
        self.tell = tell
        begun(self.stopped.set)
        self.begun.set()
        while not (self.stopped.is_set() or self.ends.wait(0.005)):
            pass
        if self.result is not None and not self.stopped.is_set():
            found = self.result
        else:
            ended = "stopped" if self.stopped.is_set() else "duration"
            found = made_run(1 + max((run.id for run in self.kept), default=0), load=plan.load, model=plan.model,
                             goal_ms=plan.goal_ms, ended=ended, wall=NOW)  # fmt: skip
        if found.id:
            self.kept = (*self.kept, found)
        return found

    def runs(self) -> tuple[tuple[Run, ...], tuple[Foreign, ...]]:
        return self.kept, self.foreign

    def told(self, run: Run) -> Told:
        return Told(verdict.gap(run), verdict.counts(run), verdict.limit(run.load, run.client))

    def shares(self, run: Run, bounds_ms: Sequence[float]) -> tuple[float, ...]:
        return tuple(run.client.shape().shares(bounds_ms))

    def compare(self, first: Kept, second: Kept) -> Comparison:
        return record.compare(first, second)

    def going_on(self) -> tuple[Running, ...]:
        return self.going

    def export(self, name: str, texts: Mapping[str, str]) -> str:
        self.written.append((name, dict(texts)))
        return f"/state/exports/{name}"


def use_doors(app: ConsoleApp, doors: FakeDoors, *, desk: bool = True) -> FakeDoors:
    """Put them in the place of the real ones; changes are allowed, as on a real box."""
    app.loads.doors = doors
    if desk:
        app.acting.desk = FakeDesk()
    app.loads.begin()
    return doors
