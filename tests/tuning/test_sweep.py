"""batching.sweep on a simulated box under its own traffic: tried, restored, kept, stopped, killed, left alone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from console.actions import batching_apply as steps
from console.actions import detached, journal, model_look, recover, runner
from console.actions.batching import records
from console.actions.batching_look import look
from console.actions.box import Box, BoxSpec
from console.core.plan import Outcome, Plan, WrongInput
from console.planning import batching_change as change
from console.planning.batching_change import Batching
from console.tuning import own_load, sweep
from console.tuning.sweep import Sweep
from tests.actions.demo import simulated
from tests.actions.model_boxes import Live
from tests.actions.runs import Killed

MODEL = "ranking"
VALUES = {"objective": "mean", "budget": "15s"}


@pytest.fixture
def spec() -> Iterator[BoxSpec]:
    with simulated("delay-too-long") as found:
        yield found


@pytest.fixture
def box(spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.05)
    monkeypatch.setattr(sweep, "LEAST_S", 0.6)
    monkeypatch.setattr(sweep, "MOST_S", 0.6)
    monkeypatch.setattr(sweep, "SETTLE_S", 0.2)
    monkeypatch.setattr(sweep, "LEAST_REQUESTS", 5)
    found = Box(spec, tmp_path / "state")
    yield found
    found.close()


def planned(box: Box, values: Mapping[str, str]) -> Plan:
    plan = Sweep().plan(box, MODEL, Sweep.checked(values))
    assert not plan.refused, plan.refused
    Sweep().recheck(box, plan)
    return plan


def served(box: Box) -> Batching:
    return change.read(steps.served_now(box, MODEL, 2))


def test_the_best_is_found_told_and_what_ran_before_is_restored(box: Box) -> None:
    before = served(box)
    run = Live()
    outcome = Sweep().run(box, planned(box, VALUES), run)
    assert outcome.word == "done", outcome
    assert "what ran before is loaded again" in outcome.text
    assert served(box) == before
    assert look(box, MODEL).is_as_on_disk
    told = "\n".join(outcome.lines)
    assert "(start)" in told
    assert "(confirmed)" in told
    assert "take the best: gpuconsole do batching.set ranking" in told
    assert outcome.undo is None
    assert 3 <= outcome.figures["trials"] <= sweep.most_trials(int(outcome.figures["grid"]))
    assert outcome.figures["mean_before_ms"] > 4 > outcome.figures["mean_after_ms"]
    start, *rest = json.loads(run.kept()["trials"])
    assert start["mean_ms"] > 4 > min(one["mean_ms"] for one in rest)
    assert all(one.get("failed", 0) == 0 for one in rest)


def test_the_best_is_kept_where_that_was_asked(box: Box) -> None:
    before = served(box)
    outcome = Sweep().run(box, planned(box, {**VALUES, "keep": "true"}), Live())
    assert outcome.word == "done", outcome
    assert "it stays live" in outcome.text
    assert served(box) != before
    assert outcome.undo is not None
    assert outcome.undo.action == "batching.revert"
    from console.actions.batching_revert import go_back

    record = records(box, MODEL).get(outcome.undo.values["record"])
    assert record is not None
    assert go_back(box, Live(), record).word == "done"
    assert served(box) == before


def at(run: Live, phase: str, deed: Callable[[], object]) -> Live:
    """Once, while it waits within a phase (the second wait, when something was measured)."""
    count = [0]

    def look_there() -> None:
        if run.phases[-1] == phase:
            count[0] += 1
            if count[0] == 2:
                deed()

    run.while_waiting = look_there
    return run


def test_stopped_it_restores_and_tells_what_was_tried(box: Box) -> None:
    before = served(box)
    run = Live()
    at(run, "trials", run.cancelled.set)
    outcome = Sweep().run(box, planned(box, VALUES), run)
    assert outcome.word == "undone", outcome
    assert "it was stopped by the operator: what ran before is loaded again" in outcome.text
    assert any("(start)" in line for line in outcome.lines)
    assert served(box) == before


def test_what_somebody_else_changes_is_left_alone(box: Box) -> None:
    found = look(box, MODEL)

    def meddle() -> None:
        other = change.wanted(found.live, {"delay_us": "777"})
        steps.load(box, Live(), MODEL, json.dumps(change.override(found.plain.document, other, found.versions)))

    outcome = Sweep().run(box, planned(box, VALUES), at(Live(), "trials", meddle))
    assert outcome.word == "failed"
    assert outcome.text.endswith("somebody else changed the model meanwhile; it is left as it is")
    assert served(box).delay_us == 777
    steps.load(box, Live(), MODEL, json.dumps(found.document))


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["finish", "undo"])
@pytest.mark.parametrize("phase", ["start", "trials", "confirm"])
def test_killed_it_goes_on_with_what_was_measured_or_restores(box: Box, phase: str, deed: str) -> None:
    before, action, plan = served(box), Sweep(), planned(box, VALUES)
    run = Live()

    def kill() -> None:
        raise Killed(phase)

    with pytest.raises(Killed):
        action.run(box, plan, at(run, phase, kill))
    measured = json.loads(run.kept().get("trials", "[]"))
    found, finish, undo = action.interrupted(box, plan, run.journal())
    assert f"{len(measured)} settings were measured" in found
    assert (finish, bool(undo)) == ("go on with the sweep", True)
    outcome: Outcome = getattr(action, deed)(box, plan, Live(kept=dict(run.kept())))
    assert outcome.word == ("done" if deed == "finish" else "undone"), outcome
    assert served(box) == before
    for one in measured[1:]:
        assert any(one["text"] in line for line in outcome.lines), "what was measured is not measured again"


@pytest.mark.slow
def test_a_killed_runner_is_named_and_what_ran_before_is_loaded(box: Box, spec: BoxSpec) -> None:
    def waited(what: Callable[[], object]) -> None:
        until = time.monotonic() + 60
        while not what():
            assert time.monotonic() < until
            time.sleep(0.05)

    def started(action: str, target: str, values: Mapping[str, str]) -> journal.Journal:
        return journal.find(box.state, detached.start(spec, box.state, runner.prepare(box, action, target, values)))

    before = served(box)
    swept = started("batching.sweep", MODEL, VALUES)
    waited(lambda: served(box) != before)
    pid = swept.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    waited(lambda: swept.runner() is None)
    (left,) = recover.interrupted(box)
    assert left.id == swept.id
    assert (left.finish, left.undo) != ("", "")
    back = started("interrupted.undo", swept.id, {})
    waited(back.ended)
    end = back.ended()
    assert end is not None
    assert any("(start)" in line for line in end.outcome.lines), "what was measured is told"
    assert (served(box), recover.interrupted(box)) == (before, ())


def test_memory_that_is_not_there_leaves_settings_out(box: Box) -> None:
    """An earlier test may have kept more instances than the box began with: those have their memory."""
    before = served(box).total_instances
    run = Live()
    outcome = Sweep().run(box, planned(box, {**VALUES, "headroom_mib": "15000"}), run)
    assert any("not tried: needs" in line for line in outcome.lines), outcome
    tried = [one["values"]["instances"] for one in json.loads(run.kept()["trials"]) if "rate" in one]
    assert all(int(one.removeprefix("gpu0=")) <= before for one in tried), (before, tried)


def test_a_load_of_its_own_is_kept_as_runs_and_measures_p99(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LEAST_S", 1.6)
    monkeypatch.setattr(sweep, "MOST_S", 2.6)
    monkeypatch.setattr(own_load, "WARM_UP_S", 0.2)
    run = Live()
    plan = planned(box, {"objective": "p99", "budget": "20s", "load": "rate=40 poisson"})
    outcome = Sweep().run(box, plan, run)
    assert outcome.word == "done", outcome
    trials = json.loads(run.kept()["trials"])
    assert all(one["p99_ms"] > 0 for one in trials if "rate" in one)
    from console.loadgen.record import load_all

    assert len(load_all(box.state)) == len([one for one in trials if "rate" in one])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"objective": "fast"}, "`objective` must be one of throughput, p99, mean"),
        ({"budget": "2s"}, "`budget` must be from"),
        ({"slo_p99_ms": "0"}, "`slo_p99_ms` must be milliseconds above 0"),
        ({"load": "16"}, "`load` knows concurrency"),
        ({"load": "concurrency=0"}, "--concurrency"),
        ({"load": "rate=5 batch=x"}, "`load`: batch must be"),
        ({"instances": "0"}, "`instances` must be"),
    ],
)
def test_wrong_values(box: Box, values: Mapping[str, str], words: str) -> None:
    with pytest.raises(WrongInput, match=words):
        Sweep().plan(box, MODEL, Sweep.checked(values))


def test_where_it_cannot_be_done(box: Box) -> None:
    assert "no p99 of ranking is known here" in Sweep().plan(box, MODEL, {"objective": "p99"}).refused
    assert "load=rate=200" in Sweep().plan(box, MODEL, {"slo_p99_ms": "5"}).refused
    assert "is an ensemble" in Sweep().plan(box, "reco", {}).refused
