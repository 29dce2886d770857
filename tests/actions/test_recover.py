"""kill -9 in each phase: what was left is named, and finished or undone by the same path."""

from __future__ import annotations

import os
import signal
import time

import pytest
from msgspec.structs import replace

from console.actions import audit, detached, journal, recover, registry, runner
from console.actions.journal import Ended, Journal
from console.core.plan import JournalLine, Outcome, Refused
from tests.actions.acts.steps import PHASES, Steps
from tests.actions.conftest import Stand
from tests.actions.test_detached import in_phase, until


def killed(stand: Stand, phase: str, **values: str) -> Journal:
    """A change whose runner was killed in this phase."""
    made = stand.start(stand.plan(hold=phase, **values))
    in_phase(made, phase)
    until(lambda: stand.file.read_text() == phase)
    pid = made.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: made.runner() is None)
    return made


def left(stand: Stand, phase: str = "two", *, pid: bool = True) -> Journal:
    """The same without a process: what its journal would hold."""
    made = stand.journal(stand.plan(word="new"))
    if pid:
        made.append(JournalLine(1.0, "note", data={"pid": "1", "start": "1", "boot": "another boot"}))
    made.append(JournalLine(1.0, "begin"))
    made.append(JournalLine(1.0, "kept", data={"before": "old", "word": "new"}))
    made.append(JournalLine(2.0, "begin", phase, "write"))
    stand.file.write_text(phase)
    return made


@pytest.mark.parametrize("phase", PHASES)
def test_a_runner_killed_in_any_phase_is_named(stand: Stand, phase: str) -> None:
    made = killed(stand, phase, word="new", password="hunter22")
    (found,) = recover.interrupted(stand.box())
    assert (found.id, found.phase, found.found) == (made.id, phase, f"it holds {phase!r}")
    assert (found.finish, found.undo) == ("write the word", "write 'old' back")
    assert found.plan.values["password"] == "***"
    (change,) = stand.changes()
    assert (change.result, change.undo_off) == (None, "it has no outcome yet")


@pytest.mark.parametrize(("how", "text"), [("finish", "new"), ("undo", "old")])
def test_it_is_finished_or_undone_and_then_over(stand: Stand, how: str, text: str) -> None:
    old = left(stand)
    plan = stand.plan(f"interrupted.{how}", old.id)
    assert (plan.action, plan.how, plan.resolves) == ("test.steps", how, old.id)
    assert plan.checks[0].text == "now: it holds 'two'"
    outcome, made = stand.perform(plan)
    assert (outcome.word, stand.file.read_text()) == ("done", text)
    assert recover.interrupted(stand.box()) == ()
    ended = old.ended()
    assert ended is not None
    assert (ended.resolved_by, ended.outcome.word) == (made.id, "interrupted")
    (change,) = stand.changes()
    assert change.record.resolves == old.id
    assert change.record.title.endswith(f": {old.request().plan.title}")
    for one in ("finish", "undo", "dismiss"):
        with pytest.raises(Refused, match="runs or has ended"):
            stand.plan(f"interrupted.{one}", old.id)
    again, _ = stand.perform(plan)
    assert (again.word, again.text) == (
        "refused",
        f"change {old.id} is dealt with already by {made.id}: nothing was done",
    )


def test_what_was_finished_can_be_undone_as_if_it_had_never_been_killed(stand: Stand) -> None:
    _, made = stand.perform(stand.plan("interrupted.finish", left(stand).id))
    outcome, _ = stand.perform(stand.plan("undo", made.id))
    assert (outcome.word, stand.file.read_text()) == ("done", "old")


def test_it_is_only_taken_note_of(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    old = left(stand)
    monkeypatch.setattr(Steps, "interrupted", lambda *_: ("who knows", "", ""))
    assert stand.plan("interrupted.finish", old.id).refused == "it cannot be done by gpuconsole: who knows"
    outcome, _ = stand.perform(stand.plan("interrupted.dismiss", old.id))
    assert (outcome.word, stand.file.read_text()) == ("done", "two")
    assert recover.interrupted(stand.box()) == ()


def test_a_finish_that_is_killed_too_leaves_the_first_one_to_be_finished(stand: Stand) -> None:
    old = left(stand)
    old.append(JournalLine(3.0, "kept", data={"word": "hangs"}))
    second = stand.start(stand.plan("interrupted.finish", old.id))
    in_phase(second, "three")
    until(lambda: old.lines()[-1].phase == "three")  # what the second one does is known to the first one's journal
    assert recover.interrupted(stand.box()) == ()  # it is worked on
    pid = second.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: second.runner() is None)
    assert [found.id for found in recover.interrupted(stand.box())] == [old.id]
    ended = second.ended()
    assert ended is not None
    assert f"change {old.id} can still be finished" in ended.outcome.text
    assert stand.changes()[-1].result == ended.outcome
    assert stand.perform(stand.plan("interrupted.undo", old.id))[0].word == "done"
    assert stand.file.read_text() == "old"


def test_a_finish_that_fails_leaves_it_open(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    old = left(stand)
    monkeypatch.setattr(Steps, "finish", lambda *_: 1 / 0)
    outcome, _ = stand.perform(stand.plan("interrupted.finish", old.id))
    assert outcome.word == "failed"
    assert [found.id for found in recover.interrupted(stand.box())] == [old.id]


def test_a_run_that_ended_half_way_by_an_error_is_left_too(stand: Stand) -> None:
    _, made = stand.perform(stand.plan(word="new", fail="two"))
    assert [found.id for found in recover.interrupted(stand.box())] == [made.id]
    outcome, _ = stand.perform(stand.plan("interrupted.finish", made.id))
    assert (outcome.word, stand.file.read_text()) == ("done", "new")


def test_what_died_before_it_did_anything_is_only_noted(stand: Stand) -> None:
    made = stand.journal(stand.plan())
    made.append(JournalLine(1.0, "note", data={"pid": "1", "start": "1", "boot": "another boot"}))
    request = made.request()
    audit.write(stand.state, runner.record(request, runner.masks_of(request.plan, stand.box()), "intent", None, 0.0))
    assert recover.interrupted(stand.box()) == ()
    text = "it was ended from outside before anything was done"
    ended, (change,) = made.ended(), stand.changes()
    assert ended is not None
    assert ended.outcome == change.result == Outcome("interrupted", text)


def test_one_that_is_about_to_begin_is_left_alone(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand.journal(stand.plan())
    assert recover.interrupted(stand.box()) == ()
    assert made.ended() is None
    assert detached.Tail(made).read().outcome is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + detached.START_WITHIN + 1)
    assert recover.interrupted(stand.box()) == ()
    assert made.ended() is not None


def test_one_that_runs_is_not_touched(stand: Stand) -> None:
    made = left(stand, pid=False)
    made.begun_by_this_process()
    assert recover.interrupted(stand.box()) == ()
    with pytest.raises(Refused, match="runs or has ended"):
        stand.plan("interrupted.finish", made.id)


def test_damaged_journals_and_actions_that_are_gone_stop_nothing(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged, good = left(stand), left(stand)
    (damaged.folder / "request.json").write_bytes(b"\xff{")
    monkeypatch.setattr(registry, "PACKAGES", ["console.actions"])
    (found,) = recover.interrupted(stand.box())
    assert found.id == good.id
    assert found.found == "its action test.steps is not here: look at the target"


def test_a_simulated_box_that_is_gone_needs_no_finishing(stand: Stand) -> None:
    made = left(stand)
    request = made.request()
    made.remove()
    spec = replace(request.spec, simulated="healthy", root=str(stand.folder / "gone"))
    again = journal.create(replace(request, spec=spec), spare=False)
    again.append(JournalLine(1.0, "note", data={"pid": "1", "start": "1", "boot": "another boot"}))
    again.append(JournalLine(2.0, "begin", "two"))
    assert recover.interrupted(stand.box()) == ()
    ended = again.ended()
    assert ended is not None
    assert ended.outcome.text == "its simulated box is gone"


def test_ended_ones_are_never_named(stand: Stand) -> None:
    made = left(stand)
    made.end(Ended(Outcome("done", "well"), 1.0))
    assert recover.interrupted(stand.box()) == ()


@pytest.mark.parametrize("how", ["finish", "undo"])
def test_it_is_refused_when_the_box_has_changed_since_its_plan(stand: Stand, how: str) -> None:
    old = left(stand)
    plan = stand.plan(f"interrupted.{how}", old.id)
    stand.file.write_text("somebody else's")
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert "has changed since the plan was made (text: two then, somebody else's now)" in outcome.text
    assert stand.file.read_text() == "somebody else's"


def test_one_whose_target_cannot_be_seen_is_refused_when_it_can_be_again(stand: Stand) -> None:
    old = left(stand)
    stand.file.unlink()
    asked = old.request().plan
    plan = replace(asked, how="undo", resolves=old.id, target=Steps().left(stand.box(), asked.target))
    stand.file.write_text("there again")
    assert stand.perform(plan)[0].word == "refused"
    stand.file.unlink()
    assert stand.perform(plan)[0].word == "done", "as its plan saw it"


def test_a_damaged_request_is_said_in_a_sentence(stand: Stand) -> None:
    old = left(stand)
    plan = stand.plan("interrupted.undo", old.id)
    (old.folder / "request.json").write_text("{")
    with pytest.raises(Refused, match="cannot be read"):
        stand.plan("interrupted.finish", old.id)
    assert stand.perform(plan)[0].word == "refused"
