"""batching.set, keep and revert on a real Triton: reload and in place, pinned, measured, kept, taken back, killed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.actions import batching_apply, model_look
from console.actions.base import Action
from console.actions.batching import BatchingSet
from console.actions.batching_keep import BatchingKeep
from console.actions.batching_look import current, look, validate
from console.actions.batching_revert import BatchingRevert
from console.actions.box import Box, BoxSpec
from console.actions.words import outcome_lines, plan_lines
from console.clients import config_file, pbtxt_edit
from console.clients.pbtxt_edit import EditError
from console.config import Actions, Repository, Safety
from console.core.plan import JournalLine, Outcome, Plan, Refused, WrongInput
from tests.actions.callers import calling
from tests.actions.fake_run import Died, FakeRun
from tests.actions.own_box import left_as_told, settings
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config, write

SECRET = "planted-7731"
CONFIG = sleeper_config(
    "rank", batching="dynamic_batching { max_queue_delay_microseconds: 20000 } # 20 ms, see wiki", api_key=SECRET
)


@contextlib.contextmanager
def opened(own: OwnTriton, state: Path, *, read_only: bool = False) -> Iterator[Box]:
    """A box that watches for a moment only."""
    actions = Actions(watch=0.2, load_timeout=30.0)
    told = replace(settings(own), actions=actions, safety=Safety(read_only))
    box = Box(BoxSpec(told), state)
    try:
        yield box
    finally:
        box.close()


@pytest.fixture
def own(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTriton]:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.05)
    monkeypatch.setattr(batching_apply, "LEAST_WINDOW", 0.2)
    with own_triton(tmp_path / "models", [("rank", CONFIG, (1,))]) as found:
        yield found


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with opened(own, tmp_path / "state") as found:
        yield found


def done(action: Action, box: Box, run: FakeRun | None = None, **values: str) -> tuple[Plan, Outcome]:
    """Plan for rank, check again, run."""
    plan = action.plan(box, "rank", action.checked(values))
    assert not plan.refused, plan.refused
    action.recheck(box, plan)
    outcome = action.run(box, plan, run or FakeRun())
    assert SECRET not in " ".join([*plan_lines(plan), *outcome_lines(outcome)])
    return plan, outcome


def file_of(own: OwnTriton, model: str = "rank") -> Path:
    return own.repository / model / "config.pbtxt"


def delay(own: OwnTriton) -> int:
    batcher = own.triton("GET", "/v2/models/rank/config")[1]["dynamic_batching"]
    return int(batcher["max_queue_delay_microseconds"])


@pytest.mark.lab
@pytest.mark.slow
def test_a_reload_is_measured_kept_and_taken_back(own: OwnTriton, box: Box) -> None:
    old = file_of(own).read_bytes()
    with calling(own.port, "rank", 4, pause=0.01) as seen:
        plan, outcome = done(BatchingSet(), box, delay_us="0")
    assert (plan.danger, plan.note, plan.gap_s) == ("caution", "one full reload", 0.0)
    assert "  -   max_queue_delay_microseconds: 20000".strip() in " ".join(plan.difference)
    assert any("pinned to version 1" in line for line in plan.effects)
    assert any("left out: preferred_batch_size [8]" in line for line in plan.effects)
    assert outcome.word == "done", outcome
    assert left_as_told(BatchingSet(), box, plan, outcome)
    assert outcome.figures["mean_before_ms"] > 20 > outcome.figures["mean_after_ms"] > 5
    assert outcome.figures["load_s"] > 0
    assert (seen.failed, seen.refused, seen.words) == (0, 0, set())
    assert (delay(own), file_of(own).read_bytes()) == (0, old)
    config = own.triton("GET", "/v2/models/rank/config")[1]
    assert config["version_policy"] == {"specific": {"versions": [1]}}

    plan, kept = done(BatchingKeep(), box)
    assert kept.word == "done", kept
    assert kept.figures["load_s"] < 0.5, "the load after it is none"
    assert left_as_told(BatchingKeep(), box, plan, kept)
    assert file_of(own).read_bytes() == old.replace(b"20000", b"0")
    assert look(box, "rank").is_as_on_disk
    assert BatchingKeep().plan(box, "rank", {}).refused

    assert kept.undo is not None
    plan, back = done(BatchingRevert(), box, record=kept.undo.values["record"])
    assert back.word == "done", back
    assert (delay(own), file_of(own).read_bytes()) == (20000, old)
    assert look(box, "rank").is_as_on_disk
    assert not [path for path in own.repository.iterdir() if path.name.startswith(".")]
    with pytest.raises(Refused, match="nothing to go back to"):
        BatchingRevert().plan(box, "rank", {})


@pytest.mark.lab
@pytest.mark.slow
def test_instances_change_in_place_and_go_back_by_the_file(own: OwnTriton, box: Box) -> None:
    started = file_of(own).stat().st_mtime_ns
    plan, outcome = done(BatchingSet(), box, instances="2")
    assert (plan.danger, plan.note) == ("safe", "in place")
    assert outcome.word == "done", outcome
    assert "loading: rank:1" in own.log()
    assert own.log().count("successfully unloaded 'rank'") == 0
    assert any(
        row.name == "instances" and (row.live, row.disk) == ("cpu=2", "cpu=1") for row in current(box, "rank").fields
    )
    _, second = done(BatchingSet(), box, delay_us="100")
    assert second.word == "done", second
    assert outcome.undo is not None
    refused = BatchingRevert().plan(box, "rank", outcome.undo.values).refused
    assert "no longer served as that change left it" in refused
    _, back = done(BatchingRevert(), box)
    assert (back.word, delay(own)) == ("done", 20000)
    assert "live only" in back.text, "two instances are still no what the file says"
    plan, back = done(BatchingRevert(), box)
    assert (back.word, plan.note) == ("done", "in place")
    assert look(box, "rank").is_as_on_disk
    assert file_of(own).stat().st_mtime_ns > started, "its time was set so that it is newer than the override"
    assert back.undo is not None
    assert (back.undo.action, back.undo.values) == ("batching.set", {"instances": "2"})


@pytest.mark.lab
def test_a_waiting_version_is_not_deployed_and_the_pin_is_not_written(own: OwnTriton, box: Box) -> None:
    write("rank", CONFIG, (1, 2), root=own.repository)
    _, outcome = done(BatchingSet(), box, delay_us="100")
    assert (outcome.word, own.ready()) == ("done", {("rank", "1")})
    plan = BatchingSet().plan(box, "rank", {"delay_us": "200"})
    assert any("else the load would deploy what is on disk: 2" in line for line in plan.effects)
    plan, kept = done(BatchingKeep(), box)
    assert kept.word == "done", kept
    assert any("it would deploy 2" in line for line in kept.lines)
    assert "version_policy" not in file_of(own).read_text()
    assert own.ready() == {("rank", "1")}
    assert own.load("rank")[0] == 200
    own.wait_ready({("rank", "2")})
    assert delay(own) == 100, "the file has it"


@pytest.mark.lab
def test_what_the_server_refuses_leaves_all_as_it_was(
    own: OwnTriton, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An update in place that fails half way: READY with a reason, until what ran before is loaded again.
    _, outcome = done(BatchingSet(), box, instances="gpu0=1,cpu=0")
    assert (outcome.word, own.ready()) == ("undone", {("rank", "1")})
    assert "unsupported gpu id 0" in " ".join(outcome.lines)
    assert batching_apply.ready_reason(box, "rank") == ""
    # The kept question, answered well before and not after.
    answers = iter(["", "SCORE 0 is 3.5, kept 2.5"])
    with monkeypatch.context() as patch:
        patch.setattr(batching_apply, "wrong_answer", lambda *_: next(answers))
        _, outcome = done(BatchingSet(), box, instances="2")
    assert (outcome.word, look(box, "rank").live.total_instances) == ("undone", 1)
    assert "not answered as kept: SCORE 0 is 3.5" in outcome.text
    # A reload that is refused: the API hides the cause, the log has it.
    monkeypatch.setattr("console.planning.batching_change.problems", lambda *_: ())
    _, outcome = done(BatchingSet(), box, preferred="99")
    assert (outcome.word, delay(own)) == ("undone", 20000)
    assert "serves on as before" in outcome.text
    assert "preferred size must be <= max batch size" in " ".join(outcome.lines)
    with pytest.raises(Refused):
        BatchingRevert().plan(box, "rank", {})
    run = FakeRun()
    run.cancel_in = "watch"
    _, outcome = done(BatchingSet(), box, run, delay_us="7")
    assert (outcome.word, delay(own)) == ("undone", 20000)
    assert "stopped by the operator" in outcome.text
    run = FakeRun()
    run.cancel_in = "measure"
    assert done(BatchingSet(), box, run, delay_us="7")[1].text.startswith("stopped before")


@pytest.mark.lab
@pytest.mark.slow
def test_a_load_that_outlasts_the_patience_goes_on_and_can_be_taken_back(lab: Lab, tmp_path: Path) -> None:
    config = CONFIG.replace("parameters [", 'parameters [ { key: "load_ms" value { string_value: "3000" } },')
    with own_triton(tmp_path / "models", [("rank", config, (1,))]) as own:
        told = replace(settings(own), actions=Actions(watch=0.2, load_timeout=1.0))
        hasty = Box(BoxSpec(told), tmp_path / "state")
        _, outcome = done(BatchingSet(), hasty, delay_us="7")
        hasty.close()
        assert outcome.word == "failed"
        assert "the load of rank" in outcome.still_going
        assert delay(own) == 20000, "the old copy serves"
        for _ in range(100):
            if delay(own) == 7:
                break
            time.sleep(0.1)
        with opened(own, tmp_path / "state") as box:
            _, back = done(BatchingRevert(), box)
            assert (back.word, delay(own)) == ("done", 20000)


@pytest.mark.lab
def test_wrong_input_is_one_sentence_and_nothing_is_sent(own: OwnTriton, box: Box) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "wants a field at least"),
        ({"preset": "fast"}, "preset"),
        ({"preferred": "16"}, "above max_batch_size 8"),
        ({"delay_us": "x"}, "whole number"),
        ({"delay": "5"}, "did you mean `delay_us`"),
        ({"dynamic_batching": "false", "delay_us": "5"}, "means nothing"),
    ]
    for values, words in cases:
        with pytest.raises(WrongInput, match=words):
            BatchingSet().plan(box, "rank", BatchingSet.checked(values))
    with pytest.raises(WrongInput, match="no model"):
        BatchingSet().plan(box, "nosuch", {"delay_us": "1"})
    assert "nothing would change" in BatchingSet().plan(box, "rank", {"delay_us": "20000"}).refused
    assert own.log().count("loading: rank") == 1


@pytest.mark.lab
def test_the_tune_form_is_held_against_the_rules(own: OwnTriton, box: Box) -> None:
    now = current(box, "rank")
    assert {row.name: row.live for row in now.fields}["delay_us"] == "20000"
    assert now.left_out == ("preferred_batch_size [8]",)
    found = validate(now, {"preferred": "99", "max_queue_size": "5", "delay_us": "x", "instances": "2"})
    assert [one.field for one in found.problems] == ["delay_us", "preferred"]
    assert [one.field for one in found.warnings] == ["max_queue_size"]
    assert found.changed == ("preferred", "instances", "max_queue_size")
    assert validate(now, {"instances": "2"}).in_place
    assert not validate(now, {"dynamic_batching": "off"}).in_place
    assert validate(now, {"dynamic_batching": "off", "delay_us": "5"}).problems


ENSEMBLE = """
name: "reco"
platform: "ensemble"
max_batch_size: 8
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "rank" model_version: -1
  input_map { key: "FEATURES" value: "FEATURES" } output_map { key: "SCORE" value: "SCORE" } } ] }
"""


@pytest.mark.lab
@pytest.mark.slow
def test_ensembles_of_it_are_known_and_never_lost(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [("rank", CONFIG, (1,)), ("reco", ENSEMBLE, (1,))]
    with own_triton(tmp_path / "models", models) as own, opened(own, tmp_path / "state") as box:
        assert "ensemble reco needs 8" in BatchingSet().plan(box, "rank", {"max_batch_size": "4"}).refused
        assert "is an ensemble" in BatchingSet().plan(box, "reco", {"max_batch_size": "4"}).refused
        plan, outcome = done(BatchingSet(), box, max_batch_size="16")
        assert any("reco reload too" in line for line in plan.effects)
        assert (outcome.word, own.ready()) == ("done", {("rank", "1"), ("reco", "1")})
        # An ensemble that drops out all the same is seen, and the change is taken back.
        monkeypatch.setattr("console.planning.batching_change.obstacles", lambda *_: ())
        monkeypatch.setattr(batching_apply, "SETTLE", 1.0)
        _, outcome = done(BatchingSet(), box, max_batch_size="4")
        assert (outcome.word, own.ready()) == ("undone", {("rank", "1"), ("reco", "1")}), outcome
        assert "reco 1 no longer READY" in outcome.text


@pytest.mark.lab
@pytest.mark.slow
def test_the_chosen_config_name_and_a_policy_of_all_versions(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.05)
    flags = ("--model-control-mode=explicit", "--load-model=*", "--model-config-name=night")
    folder = write("rank", "name: 'not this one'", (1, 2), root=tmp_path / "models")
    (folder / "configs").mkdir()
    night = folder / "configs" / "night.pbtxt"
    night.write_text(CONFIG + "version_policy { all {} }\n")
    with own_triton(tmp_path / "models", flags=flags, wait=False) as own, opened(own, tmp_path / "state") as box:
        both = {("rank", "1"), ("rank", "2")}
        own.wait_ready(both)
        _, outcome = done(BatchingSet(), box, preset="off")
        assert (outcome.word, own.ready()) == ("done", both), outcome
        assert "dynamic_batching" not in own.triton("GET", "/v2/models/rank/config")[1]
        _, kept = done(BatchingKeep(), box)
        assert (kept.word, own.ready()) == ("done", both), kept
        assert "dynamic_batching" not in night.read_text()
        assert "# 20 ms, see wiki" in night.read_text()
        assert (folder / "config.pbtxt").read_text() == "name: 'not this one'"
        assert look(box, "rank").is_as_on_disk


@pytest.mark.lab
def test_a_repository_that_cannot_be_seen_is_tuned_but_nothing_is_kept(own: OwnTriton, tmp_path: Path) -> None:
    told = replace(settings(own), actions=Actions(watch=0.2), repository=Repository(str(tmp_path / "nosuch")))
    box = Box(BoxSpec(told), tmp_path / "state")
    try:
        plan, outcome = done(BatchingSet(), box, instances="2")
        assert any("cannot be held against it" in check.text for check in plan.checks)
        assert outcome.word == "done"
        assert "cannot be edited: " in BatchingKeep().plan(box, "rank", {}).refused
        assert {row.disk for row in current(box, "rank").fields} == {"?"}
        _, back = done(BatchingRevert(), box)
        assert (back.word, look(box, "rank").live.total_instances) == ("done", 1)
    finally:
        box.close()


@pytest.mark.lab
def test_where_the_server_loads_nothing_and_where_nothing_may_be_changed(lab: Lab, tmp_path: Path) -> None:
    flags = ("--model-control-mode=none",)
    with own_triton(tmp_path / "models", [("rank", CONFIG, (1,))], flags=flags) as own:
        with opened(own, tmp_path / "state") as box:
            assert "control mode none" in BatchingSet().plan(box, "rank", {"delay_us": "1"}).refused
            assert "control mode none" in BatchingKeep().plan(box, "rank", {}).refused
        with opened(own, tmp_path / "state", read_only=True) as box:
            plan = replace(BatchingSet().plan(box, "rank", {"delay_us": "1"}), refused="")
            with pytest.raises(Refused, match="read-only"):
                BatchingSet().run(box, plan, FakeRun())


# -------------------------------------------------------------------------------------------------------------- killed


def lines(run: FakeRun) -> tuple[JournalLine, ...]:
    return (JournalLine(0.0, "kept", data=run.facts),) if run.facts else ()


def killed(action: Action, box: Box, plan: Plan, at: tuple[str, str]) -> FakeRun:
    run = FakeRun(at)
    with pytest.raises(Died):
        action.run(box, plan, run)
    return run


def override(own: OwnTriton, count: int) -> None:
    """Set the number of instances behind the console's back, quickly."""
    config = own.triton("GET", "/v2/models/rank/config")[1]
    config["instance_group"][0]["count"] = count
    assert own.load("rank", config=json.dumps(config))[0] == 200


KEEP_STATES = {
    ("backup", "begin"): "old",
    ("backup", "end"): "old",
    ("write", "begin"): "old",
    ("write", "end"): "new",
    ("load", "begin"): "new",
    ("load", "end"): "new",
    ("verify", "begin"): "new",
    ("verify", "end"): "new",
}


@pytest.mark.lab
@pytest.mark.parametrize("deed", ["finish", "undo"])
def test_keep_killed_in_every_phase_is_finished_or_undone(own: OwnTriton, box: Box, deed: str) -> None:
    old = file_of(own).read_bytes()
    new = old.replace(b"count: 1", b"count: 2")
    action = BatchingKeep()
    assert {phase for phase, _ in KEEP_STATES} == set(action.PHASES)
    for at, state in KEEP_STATES.items():
        override(own, 2)
        plan = action.plan(box, "rank", {})
        assert plan.refused == ""
        run = killed(action, box, plan, at)
        assert file_of(own).read_bytes() == (old if state == "old" else new), at
        now, finish, undo = action.interrupted(box, plan, lines(run))
        assert ("as before" in now) == (state == "old"), (at, now)
        assert finish
        assert bool(undo) == (state == "new")
        outcome = getattr(action, deed)(box, plan, FakeRun(kept=run.facts))
        assert outcome.word == ("done" if deed == "finish" else "undone"), (at, outcome)
        found = look(box, "rank")
        assert file_of(own).read_bytes() == (new if deed == "finish" else old), at
        assert found.live.total_instances == 2
        assert found.is_as_on_disk == (deed == "finish")
        file_of(own).write_bytes(old)


@pytest.mark.lab
def test_what_cannot_be_written_is_refused_and_shown_whole(
    own: OwnTriton, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(own, 2)
    run = FakeRun()
    run.cancel_in = "backup"
    assert done(BatchingKeep(), box, run)[1].word == "undone"
    monkeypatch.setattr(config_file, "obstacle", lambda _: "/models is on a read-only mount")
    assert "read-only mount" in BatchingKeep().plan(box, "rank", {}).refused

    def refuse(*_: object) -> str:
        raise EditError("3:1: a comment stands within the value")

    monkeypatch.setattr(pbtxt_edit, "edit", refuse)
    plan = BatchingKeep().plan(box, "rank", {})
    assert "a comment stands within the value; write it by hand" in plan.refused
    assert "+   count: 2" in plan.difference, "the rewrite is shown, never written"
    with pytest.raises(Refused, match="nothing was written"):
        BatchingKeep().run(box, plan, FakeRun())
    assert file_of(own).read_text() == CONFIG


@pytest.mark.lab
def test_keep_says_when_somebody_wrote_the_file_meanwhile(own: OwnTriton, box: Box) -> None:
    override(own, 2)
    action = BatchingKeep()
    plan = action.plan(box, "rank", {})
    run = killed(action, box, plan, ("write", "end"))
    file_of(own).write_text(CONFIG + "# by an editor\n")
    assert action.interrupted(box, plan, lines(run))[1:] == ("", "")
    with pytest.raises(Refused, match="has changed since"):
        action.undo(box, plan, FakeRun(kept=run.facts))
    with pytest.raises(Refused, match="has changed since"):
        action.recheck(box, plan)


SET_STATES = {
    ("measure", "begin"): 1,
    ("measure", "end"): 1,
    ("load", "begin"): 1,
    ("load", "end"): 2,
    ("verify", "begin"): 2,
    ("watch", "begin"): 2,
    ("watch", "end"): 2,
}


@pytest.mark.lab
@pytest.mark.slow
def test_set_killed_in_every_phase_is_finished_or_undone(own: OwnTriton, box: Box) -> None:
    action = BatchingSet()
    assert {phase for phase, _ in SET_STATES} == set(action.PHASES)
    for number, (at, count) in enumerate([*SET_STATES.items(), (("load", "end"), 2), (("load", "begin"), 1)]):
        override(own, 1)
        plan = action.plan(box, "rank", {"instances": "2"})
        run = killed(action, box, plan, at)
        assert look(box, "rank").live.total_instances == count, at
        now, finish, undo = action.interrupted(box, plan, lines(run))
        assert ("as before" in now) == (count == 1), (at, now)
        assert finish
        assert bool(undo) == ("record" in run.facts)
        deed = "undo" if undo and number % 2 else "finish"
        outcome: Outcome = getattr(action, deed)(box, plan, FakeRun(kept=run.facts))
        assert outcome.word == ("done" if deed == "finish" else "undone"), (at, outcome)
        assert look(box, "rank").live.total_instances == (2 if deed == "finish" else 1), at


@pytest.mark.lab
@pytest.mark.slow
def test_revert_killed_in_every_phase_goes_on(own: OwnTriton, box: Box) -> None:
    old = file_of(own).read_bytes()
    action = BatchingRevert()
    for at in (("file", "begin"), ("file", "end"), ("load", "end"), ("verify", "end")):
        done(BatchingSet(), box, instances="2")
        done(BatchingKeep(), box)
        plan = action.plan(box, "rank", {})
        run = killed(action, box, plan, at)
        assert action.interrupted(box, plan, lines(run))[1]
        outcome = action.finish(box, plan, FakeRun(kept=run.facts))
        assert outcome.word == "done", (at, outcome)
        assert file_of(own).read_bytes() == old
        assert look(box, "rank").is_as_on_disk
