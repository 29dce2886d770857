"""The one path of a change, in this process: guards, lock, audit, look again, phases, outcome, and no secret told."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.actions import audit, runner
from console.actions.base import Action
from console.actions.journal import Journal
from console.actions.lock import Holder, Lock
from console.core.model import SourceError
from console.core.plan import AuditRecord, Outcome, Plan, Refused, WrongInput
from tests.actions.acts.steps import Steps
from tests.actions.conftest import HEADER, Stand

SECRET, VARIABLE = "hunter22", "variable-secret"


def told(stand: Stand) -> list[tuple[str, str]]:
    """(kind, outcome's word) of each audit record."""
    return [
        (record.kind, record.outcome.word if record.outcome else "")
        for record in audit._records(stand.state / audit.NAME)
    ]


def states(journal: Journal) -> list[str]:
    return [f"{line.state} {line.phase}".strip() for line in journal.lines() if line.state != "note"]


def test_a_change_is_written_down_before_and_after_and_can_be_undone(stand: Stand) -> None:
    outcome, journal = stand.perform(stand.plan(word="new"))
    assert (outcome.word, stand.file.read_text()) == ("done", "new")
    assert told(stand) == [("intent", ""), ("outcome", "done")]
    (change,) = stand.changes()
    assert change.id == journal.id
    assert change.outcome is not None
    assert change.outcome.duration is not None
    assert change.intent is not None
    assert change.intent.plan == ("write one", "write two", "write three", "nothing stops")
    assert states(journal) == [
        "begin", "kept", "begin one", "done one", "begin two", "done two", "begin three", "done three",
    ]  # fmt: skip
    assert journal.lines()[3].text == "write one"


# ------------------------------------------------------------------------------------------------------------- secrets


def test_no_secret_is_told_anywhere_but_in_the_private_request(stand: Stand) -> None:
    plan = stand.plan(word="new", password=SECRET, env=f"TOKEN={VARIABLE},B=1", fail="two")
    for text in (plan.title, *plan.by_hand):
        assert SECRET not in text
    outcome, _ = stand.perform(plan)
    done, second = stand.perform(stand.plan(word="new", password=SECRET))
    assert (outcome.word, done.word) == ("failed", "done")
    for path in stand.state.rglob("*"):
        if path.is_file() and path.name != "request.json":
            for secret in (SECRET, VARIABLE, HEADER):
                assert secret not in path.read_text(), path
    assert "no answer to ***; look at it" in outcome.text
    assert second.lines()


# -------------------------------------------------------------------------------------------------------------- guards


def test_the_first_guard_plans_nothing_in_read_only_mode(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "plan", lambda *_: pytest.fail("planned"))
    with pytest.raises(Refused, match="read-only"):
        runner.prepare(stand.box(read_only=True), "test.steps", str(stand.file), {})


def test_the_second_guard_stops_a_plan_that_came_past_the_first(stand: Stand) -> None:
    outcome, _ = stand.perform(stand.plan(), read_only=True)
    assert (outcome.word, stand.file.read_text()) == ("refused", "old")
    assert "read-only" in outcome.text
    assert told(stand) == []


def test_the_box_itself_refuses_whatever_came_past_both(stand: Stand) -> None:
    plan = stand.plan()
    with pytest.raises(Refused, match="read-only"):
        Steps().run(stand.box(read_only=True), plan, None)  # type: ignore[arg-type]
    assert stand.file.read_text() == "old"


# ------------------------------------------------------------------------------------------------- refused and refused


def test_a_target_that_changed_since_the_plan_is_refused(stand: Stand) -> None:
    plan = stand.plan()
    stand.file.write_text("other")
    outcome, _ = stand.perform(plan)
    assert (outcome.word, stand.file.read_text()) == ("refused", "other")
    assert "has changed since the plan was made (text: old then, other now)" in outcome.text
    assert told(stand) == [("intent", ""), ("outcome", "refused")]


def test_a_target_that_cannot_be_looked_at_again_is_refused(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise SourceError("timeout", "triton does not answer", "look at it")

    plan = stand.plan()
    monkeypatch.setattr(Steps, "state", silent)
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert outcome.text.startswith("triton does not answer; look at it: nothing was done")


def test_a_box_that_somebody_else_changes_is_refused_with_his_name(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lock, "take", lambda *_: False)
    monkeypatch.setattr(runner, "holder", lambda _: Holder(7, "ana", what="rank"))
    outcome, _ = stand.perform(stand.plan())
    assert outcome.word == "refused"
    assert outcome.text.startswith("ana (pid 7) is changing rank: nothing was done")
    assert told(stand) == []


@pytest.mark.parametrize(
    ("name", "target", "values", "words"),
    [
        ("test.step", "", {}, "`test.step` is no action; did you mean `test.steps`?"),
        ("test.steps", "relative", {}, "no absolute path"),
        ("test.steps", "", {"wrod": "x"}, "did you mean `word`?"),
        ("test.steps", "", {"hold": "four"}, "one of one, two, three"),
        ("test.steps", "", {"limit": "0"}, "from 1 to 100 s"),
        ("undo", "nosuch", {}, "there is no change 'nosuch'"),
        ("interrupted.finish", "nosuch", {}, "there is no change 'nosuch'"),
    ],
)
def test_what_cannot_be_is_one_sentence(stand: Stand, name: str, target: str, values: Any, words: str) -> None:
    with pytest.raises(WrongInput) as raised:
        runner.prepare(stand.box(), name, target or str(stand.file), values)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("raises", "text"),
    [
        ("source", "no answer to ; look at it"),
        ("refused", "the server does not want it"),
        ("bug", "a fault of gpuconsole (KeyError"),
    ],
)
def test_whatever_an_action_raises_is_an_outcome_that_says_what_is_left(
    stand: Stand, raises: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome, journal = stand.perform(stand.plan(fail="two", raises=raises))
    assert (outcome.word, stand.file.read_text()) == ("failed", "two")
    assert text in outcome.text
    assert outcome.lines == (
        "now: it holds 'two'",
        f"finish: write the word  (gpuconsole do interrupted.finish {journal.id})",
        f"undo: write 'old' back  (gpuconsole do interrupted.undo {journal.id})",
    )
    assert [line for line in journal.lines() if line.state == "failed"][0].phase == "two"  # noqa: RUF015
    ended = journal.ended()
    assert ended is not None
    assert ended.open
    assert ("Traceback" in caplog.text) == (raises != "refused")


def test_a_second_fault_does_not_hide_the_first(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "interrupted", lambda *_: 1 / 0)
    outcome, _ = stand.perform(stand.plan(fail="one"))
    assert outcome.word == "failed"
    assert outcome.text.startswith("no answer")
    assert outcome.lines == ("now: what it did is not known: look at the target",)


def test_a_refusal_before_the_first_step_is_a_refusal(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Outcome:
        raise Refused("it cannot be done now")

    monkeypatch.setattr(Steps, "run", refuse)
    assert stand.perform(stand.plan())[0] == Outcome("refused", "it cannot be done now")


def test_a_figure_that_json_cannot_hold_costs_no_outcome(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(*_: object) -> Outcome:
        return Outcome("done", "well", figures={"a": float("nan"), "b": 1.0})

    monkeypatch.setattr(Steps, "run", strange)
    _, journal = stand.perform(stand.plan())
    ended = journal.ended()
    assert ended is not None
    assert ended.outcome.figures == {"b": 1.0}


def test_time_runs_out_and_facts_are_kept(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def timed(self: Action, box: object, plan: Plan, run: runner.JournalRun) -> Outcome:
        seen.append(run.left())
        monkeypatch.setattr(time, "monotonic", lambda: 1e12)
        seen.append(run.left())
        monkeypatch.undo()
        run.keep(a="1")
        run.keep(a="2", b="3")
        assert run.kept() == {"a": "2", "b": "3"}
        return Outcome("done", "well")

    monkeypatch.setattr(Steps, "run", timed)
    plan = stand.plan(limit="7")
    journal = stand.journal(plan)
    runner.perform(journal)
    assert 0 < seen[0] <= 7
    assert seen[1] == 0


# ----------------------------------------------------------------------------------------------------------- full disk


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def no_audit(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """No audit record can be written; what goes to syslog instead."""
    sent: list[tuple[str, str]] = []

    def to_syslog(record: AuditRecord) -> bool:
        sent.append((record.id, record.kind))
        return True

    monkeypatch.setattr(audit, "write", no_space)
    monkeypatch.setattr(audit, "to_syslog", to_syslog)
    return sent


def test_without_an_audit_record_nothing_is_done(stand: Stand, no_audit: list[tuple[str, str]]) -> None:
    outcome, _ = stand.perform(stand.plan())
    assert (outcome.word, stand.file.read_text()) == ("refused", "old")
    assert "(No space left on device): nothing was done; free space there, or go on unaudited" in outcome.text
    assert no_audit == []


def test_unaudited_it_is_done_and_syslog_has_both(stand: Stand, no_audit: list[tuple[str, str]]) -> None:
    outcome, journal = stand.perform(stand.plan(word="new"), unaudited=True)
    assert (outcome.word, stand.file.read_text()) == ("done", "new")
    assert no_audit == [(journal.id, "intent"), (journal.id, "outcome")]
    assert outcome.lines[-1].startswith("no audit record of this outcome (No space left on device)")


def test_a_disk_that_gets_full_meanwhile_is_told_with_the_outcome(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., None] = audit.write
    monkeypatch.setattr(audit, "write", lambda state, one: real(state, one) if one.kind == "intent" else no_space())
    monkeypatch.setattr(audit, "to_syslog", lambda _: False)
    outcome, _ = stand.perform(stand.plan(word="new"))
    assert outcome.word == "done"
    assert outcome.lines[-1].endswith("no syslog listens here either")


def test_a_plan_on_a_full_disk_offers_to_go_on_unaudited(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "trouble", lambda _: "the disk is full")
    plan = stand.plan()
    assert plan.refused.startswith("no audit record can be written: the disk is full")
    assert [(tick.name, tick.on) for tick in plan.ticks] == [("unaudited", False)]
    ticked = stand.plan(unaudited="true")
    assert ticked.refused == ""
    assert ticked.ticks[0].on
    assert ticked.values["unaudited"] == "true"
    stand.file.write_text("full")
    assert stand.plan().refused == "the file is full of it"


def test_the_lock_is_free_again_after_each_end(stand: Stand) -> None:
    for values in ({}, {"fail": "one"}, {"fail": "one", "raises": "bug"}):
        stand.perform(stand.plan(**values))
        mine = Lock(stand.spec())
        assert mine.take("x", stand.journal(stand.plan()).request().operator)
        mine.release()


def test_the_state_folder_is_made_private(stand: Stand) -> None:
    stand.perform(stand.plan())
    assert stand.state.stat().st_mode & 0o077 == 0
    assert not Path(stand.state, "actions").stat().st_mode & 0o077


def test_a_signal_that_meets_a_look_at_the_cancel_does_not_stop_the_runner_for_ever(stand: Stand) -> None:
    """The handler runs within whatever the main thread does, here while that holds the event's own lock."""
    cancelled = threading.Event()
    runner._cancel_by_signal(cancelled)
    with cancelled._cond:  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    assert cancelled.wait(10)
