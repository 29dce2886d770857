"""batching.trial and batching.accept on a simulated box with its own traffic: it goes back, is kept, is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from console.actions import batching_apply as steps
from console.actions import batching_trial, detached, journal, model_look, recover, runner
from console.actions.batching import records
from console.actions.batching_look import look
from console.actions.batching_tail import Tail, TailReader
from console.actions.batching_trial import BatchingAccept, BatchingTrial
from console.actions.box import Box, BoxSpec
from console.core.plan import Outcome, Plan, Refused, WrongInput
from console.planning import batching_change as change
from tests.actions.demo import simulated
from tests.actions.model_boxes import Live
from tests.actions.runs import killed

MODEL = "ranking"
SLOW = {"delay_us": "8000"}
"""Means of 6.6 ms instead of 1.6."""


@pytest.fixture(scope="module")
def spec() -> Iterator[BoxSpec]:
    with simulated() as found:
        yield found


@pytest.fixture
def box(spec: BoxSpec, tmp_path: Path) -> Iterator[Box]:
    found = Box(spec, tmp_path / "state")
    yield found
    found.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.05)
    monkeypatch.setattr(batching_trial, "LEAST_FOR", 0.5)
    monkeypatch.setattr(batching_trial, "LOOK", 0.2)
    monkeypatch.setattr(batching_trial, "MOST_BEFORE", 0.6)


def planned(box: Box, values: Mapping[str, str]) -> Plan:
    plan = BatchingTrial().plan(box, MODEL, BatchingTrial.checked(values))
    assert not plan.refused, plan.refused
    BatchingTrial().recheck(box, plan)
    return plan


def tried(box: Box, values: Mapping[str, str], while_waiting: Callable[[], None] | None = None) -> tuple[Outcome, Live]:
    plan = planned(box, values)
    run = Live()
    run.while_waiting = while_waiting
    return BatchingTrial().run(box, plan, run), run


def delay(box: Box) -> int:
    return change.read(steps.served_now(box, MODEL, 2)).delay_us


def load(box: Box, **values: str) -> None:
    """What somebody with curl does."""
    found = look(box, MODEL)
    wanted = change.wanted(found.live, values)
    steps.load(box, Live(), MODEL, json.dumps(change.override(found.plain.document, wanted, found.versions)))


def test_a_setting_that_breaks_its_goal_goes_back_by_itself(box: Box) -> None:
    outcome, run = tried(box, {**SLOW, "slo_mean_ms": "4", "broken_for": "1s", "for": "30s"})
    assert outcome.word == "undone", outcome
    assert "then the mean was" in outcome.text
    assert "above 4 ms: back to what ran before in" in outcome.text
    assert outcome.figures["mean_before_ms"] < 4 < outcome.figures["mean_after_ms"]
    assert outcome.figures["watch_s"] < 10
    assert outcome.text.rpartition("; ")[2].startswith(("worse", "not known"))
    assert (delay(box), look(box, MODEL).is_as_on_disk) == (0, True), "the override is gone, not only its values"
    assert any("goal mean ≤ 4 ms, no errors: ▲ mean above the goal" in note for note in run.notes)
    assert records(box, MODEL).on_trial() is None


def test_nobody_says_keep(box: Box) -> None:
    outcome, _ = tried(box, {"delay_us": "300", "for": "1.5s"})
    assert outcome.word == "undone"
    assert "then nobody said keep within 1.5 s: back to what ran before" in outcome.text
    assert outcome.undo is None
    assert delay(box) == 0


def test_an_operator_stops_it(box: Box) -> None:
    plan = planned(box, {"delay_us": "300", "for": "60s"})
    run = Live()
    run.while_waiting = lambda: run.cancelled.set() if run.phases[-1] == "try" else None
    outcome = BatchingTrial().run(box, plan, run)
    assert (outcome.word, delay(box)) == ("undone", 0)
    assert "then it was stopped by the operator" in outcome.text


def test_somebody_says_keep(box: Box) -> None:
    held = records(box, MODEL)

    def say() -> None:
        record = held.on_trial()
        if record is not None:
            held.accept(record.id, "ana")

    outcome, _ = tried(box, {"delay_us": "300", "for": "60s"}, say)
    assert outcome.word == "done", outcome
    assert "delay_us 0 → 300 stays live after" in outcome.text
    assert "said by ana" in outcome.text
    assert delay(box) == 300
    assert outcome.undo is not None
    load(box, delay_us="0")


def test_what_somebody_else_changed_meanwhile_is_left_alone(box: Box) -> None:
    changed: list[int] = []

    def meddle() -> None:
        if records(box, MODEL).on_trial() is not None and not changed:
            changed.append(1)
            load(box, delay_us="700")

    outcome, _ = tried(box, {**SLOW, "slo_mean_ms": "4", "broken_for": "30s", "for": "60s"}, meddle)
    assert outcome.word == "failed"
    assert "somebody changed it meanwhile" in outcome.text
    assert outcome.text.endswith("it is left as it is")
    assert delay(box) == 700
    assert records(box, MODEL).on_trial() is None
    load(box, delay_us="0")


def test_a_p99_goal_wants_a_source(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"delay_us": "300", "slo_p99_ms": "3", "broken_for": "1s", "for": "30s"}
    plan = BatchingTrial().plan(box, MODEL, values)
    assert "no p99 of ranking is known here" in plan.refused
    assert "slo_mean_ms" in plan.refused
    assert "loadtest ranking" in plan.refused
    monkeypatch.setattr(batching_trial, "tail_of", lambda *_: Tail("summary", 2.0))
    assert "p99 is of its last 60 s" in BatchingTrial().plan(box, MODEL, values).refused
    monkeypatch.setattr(batching_trial, "tail_of", lambda *_: Tail("histogram", 2.0))
    monkeypatch.setattr(TailReader, "read", lambda _: Tail("histogram", 3.5))
    outcome, _ = tried(box, values)
    assert outcome.word == "undone"
    assert "p99 was above 3 ms for 1 s" in outcome.text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"for": "5m"}, "a change of batching wants a field at least"),
        ({"delay_us": "1", "for": "soon"}, "`for` must be a time such as 30s"),
        ({"delay_us": "1", "for": "0.1s"}, "`for` must be from"),
        ({"delay_us": "1", "broken_for": "0"}, "`broken_for` must be from 1s"),
        ({"delay_us": "1", "slo_mean_ms": "-2"}, "`slo_mean_ms` must be milliseconds above 0, not '-2'"),
        ({"delay_us": "1", "slo_p99_ms": "nan"}, "`slo_p99_ms` must be milliseconds above 0"),
        ({"delay_us": "1", "max_errors": "-1"}, "`max_errors` must be"),
    ],
)
def test_wrong_values(box: Box, values: Mapping[str, str], words: str) -> None:
    with pytest.raises(WrongInput, match=words):
        BatchingTrial().plan(box, MODEL, BatchingTrial.checked(values))


# ------------------------------------------------------------------------------------------------------------- killed


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["finish", "undo"])
@pytest.mark.parametrize("moment", ["measure", "load", "load done", "verify done", "try", "try done", "file done"])
def test_killed_in_every_phase_it_is_finished_or_undone(box: Box, moment: str, deed: str) -> None:
    action, plan = BatchingTrial(), planned(box, {"delay_us": "300", "for": "1s"})
    run = killed(action, box, plan, moment)
    assert delay(box) == (0 if moment in ("measure", "load") else 300)
    found, finish, undo = action.interrupted(box, plan, run.journal())
    assert found
    assert finish
    assert bool(undo) == (moment not in ("measure", "file done"))
    outcome: Outcome = getattr(action, deed if undo else "finish")(box, plan, Live(kept=dict(run.kept())))
    assert outcome.word == "undone", outcome
    assert (delay(box), records(box, MODEL).on_trial()) == (0, None)


def test_killed_while_somebody_changed_it_there_is_nothing_to_do(box: Box) -> None:
    action, plan = BatchingTrial(), planned(box, {"delay_us": "300", "for": "30s"})
    run = killed(action, box, plan, "try")
    load(box, delay_us="900")
    assert action.interrupted(box, plan, run.journal())[1:] == ("", "")
    load(box, delay_us="0")


# -------------------------------------------------------------------------------------------------- the real runner


def waited(what: Callable[[], object]) -> None:
    until = time.monotonic() + 40
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def started(box: Box, spec: BoxSpec, action: str, values: Mapping[str, str]) -> journal.Journal:
    plan = runner.prepare(box, action, MODEL, values)
    assert not plan.refused, plan.refused
    return journal.find(box.state, detached.start(spec, box.state, plan))


@pytest.mark.slow
def test_keep_is_said_to_a_trial_that_holds_the_lock(box: Box, spec: BoxSpec) -> None:
    with pytest.raises(Refused, match="no batching change of ranking is on trial here"):
        runner.prepare(box, "batching.accept", MODEL, {})
    trial = started(box, spec, "batching.trial", {"delay_us": "300", "for": "60s"})
    waited(lambda: records(box, MODEL).on_trial())
    said = started(box, spec, "batching.accept", {})
    waited(lambda: said.ended() and trial.ended())
    one, other = said.ended(), trial.ended()
    assert one is not None
    assert other is not None
    assert (one.outcome.word, other.outcome.word, delay(box)) == ("done", "done", 300)
    assert "stays live after" in other.outcome.text
    load(box, delay_us="0")


@pytest.mark.slow
def test_a_killed_runner_is_named_and_its_trial_goes_back(box: Box, spec: BoxSpec) -> None:
    trial = started(box, spec, "batching.trial", {**SLOW, "for": "60s"})
    waited(lambda: any(line.phase == "try" for line in trial.lines()))
    pid = trial.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    waited(lambda: trial.runner() is None)
    (left,) = recover.interrupted(box)
    assert (left.id, left.phase) == (trial.id, "try")
    assert "is live, and nobody watches it" in left.found
    with pytest.raises(Refused, match="its runner was killed"):
        BatchingAccept().plan(box, MODEL, {})
    back = journal.find(
        box.state, detached.start(spec, box.state, runner.prepare(box, "interrupted.undo", trial.id, {}))
    )
    waited(back.ended)
    assert delay(box) == 0
    assert not recover.interrupted(box)
