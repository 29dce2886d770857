"""Tune without a server: what a look at the drawn box's models gives, and plans made of nothing but the values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from textual.pilot import Pilot

from console.actions.batching_look import Current, FieldNow, Validated, validate
from console.core.model import ModelRow, Snapshot
from console.core.plan import AuditRecord, Check, Operator, Outcome, Plan, Refused, Target, UndoSpec, WrongInput
from console.planning import batching_change as change
from console.planning.batcher import Scheduling
from console.planning.batching_change import Batching
from console.planning.predicted import Figure, Prediction
from console.tui.app import ConsoleApp
from console.tui.desk import Following, Holder, Record, Request
from console.tui.screens import tune as tune_module
from console.tui.screens.tune import TuneScreen
from console.tui.tuner import LoadRun
from tests.fakes.drawn import NOW
from tests.tui.stage import settled

RANKING: Mapping[str, Any] = {
    "name": "ranking",
    "backend": "tensorrt",
    "max_batch_size": 16,
    "instance_group": [{"name": "ranking_0", "kind": "KIND_GPU", "count": 2, "gpus": [0]}],
    "dynamic_batching": {"max_queue_delay_microseconds": 2000},
}
ENSEMBLE: Mapping[str, Any] = {"name": "reco", "platform": "ensemble", "ensemble_scheduling": {"step": []}}
SEQUENCES: Mapping[str, Any] = {**RANKING, "dynamic_batching": None, "sequence_batching": {}}
UNBATCHED: Mapping[str, Any] = {"name": "ranking", "backend": "python", "instance_group": [{"kind": "KIND_CPU"}]}
DISK: Mapping[str, Any] = {**RANKING, "dynamic_batching": {"max_queue_delay_microseconds": 500}}


def current(live: Mapping[str, Any] = RANKING, disk: Mapping[str, Any] | None = DISK) -> Current:
    """What `batching_look.current` would say of these configurations."""
    live = {name: value for name, value in live.items() if value is not None}
    settings, facts = change.read(live), change.served(live, {}, server=(2, 51), has_cache=False)
    on_disk = None if disk is None else change.read(disk)
    rows = tuple(
        FieldNow(
            one.name,
            one.help,
            change.shown(one.name, settings),
            "?" if on_disk is None else change.shown(one.name, on_disk),
            change.how(one.name, facts),
        )
        for one in change.FIELDS
    )
    unknown = "" if disk is not None else "the repository is on s3://"
    return Current(str(live["name"]), (2,), rows, settings, facts, (), unknown)


DRAWN = Prediction(
    scheduling=Scheduling(16, 2, max_queue_delay_us=500),
    rate=1650.0,
    capacity=8000.0,
    mean_ms=Figure(1.84, 0.1),
    wait_ms=Figure(0.40, 0.04),
    compute_ms=Figure(1.43, 0.02),
    p50_ms=Figure(1.7, 0.1),
    p99_ms=Figure(2.3, 0.4),
    batch=Figure(1.9, 0.1),
    executions_per_s=Figure(886.0, 20.0),
    throughput=Figure(1650.0, 0.0),
    busy=Figure(0.61, 0.01),
    refused_per_s=Figure(0.0),
    timed_out_per_s=Figure(0.0),
    trust="good",
    reasons=(),
    shared_p99_ms=None,
    simulated_requests=90000,
    simulated_s=55.0,
)
"""The prediction of design 1.6."""


class FakeTuner:
    """Gives `now`, or refuses with `error`."""

    def __init__(self, now: Current, error: str = "") -> None:
        self.now = now
        self.error = error
        self.looks = 0
        self.predicted: Prediction | None = None
        self.asked: list[Batching] = []
        self.past: tuple[LoadRun, ...] = ()

    def predict(self, row: ModelRow, settings: Batching) -> Prediction:
        self.asked.append(settings)
        if self.predicted is None:
            raise WrongInput("the statistics of this model are not known yet")
        return self.predicted

    def runs(self, model: str) -> tuple[LoadRun, ...]:
        return self.past

    def current(self, model: str, snapshot: Snapshot) -> Current:
        self.looks += 1
        if self.error:
            raise Refused(self.error)
        return self.now

    def validate(self, now: Current, values: Mapping[str, str]) -> Validated:
        return validate(now, values)


class FakeDesk:
    """Plans whatever it is asked and never begins anything."""

    def __init__(self, records: tuple[Record, ...] = ()) -> None:
        self.requests: list[Request] = []
        self.started: list[Plan] = []
        self.past = records

    def ready(self) -> bool:
        return True

    def plan(self, request: Request, snapshot: Snapshot) -> Plan:
        self.requests.append(request)
        return Plan(
            action=request.action,
            target=Target("model", request.target),
            values=request.values,
            title=f"{request.action} {request.target}",
            yes="Apply",
            danger="caution",
            note="one full reload",
            checks=(Check("ok", "READY"), Check("warn", "both copies at once: needs 3.1 GiB more, free 8.9 GiB")),
            effects=("one load over gRPC with the whole configuration, 1.1 s last time", "live only [/x] until W"),
            difference=(
                "  dynamic_batching {",
                "-   max_queue_delay_microseconds: 2000",
                "+   max_queue_delay_microseconds: 500",
                "  }",
            ),
            wall=NOW,
        )

    def start(self, plan: Plan) -> str:
        self.started.append(plan)
        return "none"

    def follow(self, id: str) -> Following | None:  # noqa: A002
        return None

    def cancel(self, id: str) -> None:  # noqa: A002
        raise AssertionError("nothing runs")

    def holder(self) -> Holder | None:
        return None

    def records(self) -> tuple[Record, ...]:
        return self.past

    def stamp(self) -> object:
        return len(self.past)

    def interrupted(self) -> tuple[Any, ...]:
        return ()


def record(
    id_: str,
    words: str,
    values: Mapping[str, str],
    *,
    verdict: str = "better: mean 2.94 → 1.84 ms",
    figures: Mapping[str, float] | None = None,
    undone_by: str = "",
    wall: float = NOW - 600,
    action: str = "batching.set",
) -> Record:
    """One change of ranking as the audit tells it."""
    operator = Operator("ops", 1000)
    target = Target("model", "ranking")
    title = f"ranking 2: {words} on infer-01"
    undo = UndoSpec("batching.revert", "ranking", {"record": f"r{id_}"}, "back")
    found = {"mean_before_ms": 2.94, "mean_after_ms": 1.84, "batch_before": 4.3, "batch_after": 1.9}
    outcome = Outcome("done", f"ranking: {words} in 1.1 s; {verdict}", undo=undo, figures=figures or found)
    intent = AuditRecord(id_, "intent", wall - 6, operator, "infer-01", action, target, title, values)
    ended = AuditRecord(id_, "outcome", wall, operator, "infer-01", action, target, title, values, outcome=outcome)
    return Record(intent, ended, undone_by, "it was undone already" if undone_by else "")


def use(
    monkeypatch: pytest.MonkeyPatch, app: ConsoleApp, tuner: FakeTuner, records: tuple[Record, ...] = ()
) -> FakeDesk:
    """Put the fakes in the place of what would look at a box; plans are reckoned at once."""
    monkeypatch.setattr(tune_module, "LateTuner", lambda session, state: tuner)
    monkeypatch.setattr(tune_module, "PLAN_AFTER", 0.001)
    desk = FakeDesk(records)
    app.acting.desk = desk
    return desk


async def looked(app: ConsoleApp, pilot: Pilot[None]) -> TuneScreen:
    """The screen, with all that it asked for answered."""
    screen = app.box
    assert isinstance(screen, TuneScreen)
    until = time.monotonic() + 10
    while True:
        await settled(app, pilot)
        lanes = (screen._looks, screen._plans, screen._predictions, screen._histories)
        if not (any(lane.busy for lane in lanes) or screen.change.reckoning or screen.live.predicted.pending):
            return screen
        assert time.monotonic() < until, "the lanes have no end"
        await asyncio.sleep(0.005)
