"""Undo goes the same path, once, and only where the box is still as the change left it."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from console.actions import audit, runner
from console.actions.journal import FOLDER
from console.core.plan import Refused
from tests.actions.conftest import Stand


def refused(stand: Stand, target: str) -> str:
    with pytest.raises(Refused) as raised:
        stand.plan("undo", target)
    return str(raised.value)


def test_a_change_is_taken_back_once(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    plan = stand.plan("undo", first.id)
    assert (plan.action, plan.undoes, plan.target.name) == ("test.steps", first.id, str(stand.file))
    assert plan.note.startswith("takes back ")
    outcome, second = stand.perform(plan)
    assert (outcome.word, stand.file.read_text()) == ("done", "old")
    assert [change.undone_by for change in stand.changes()] == [second.id, ""]
    assert stand.changes()[1].record.undoes == first.id
    assert refused(stand, first.id) == f"change {first.id} cannot be taken back: it was undone already, by {second.id}"
    stand.perform(stand.plan("undo", second.id))
    assert stand.file.read_text() == "new"


def test_values_of_the_undo_go_to_the_action_that_does_it(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    plan = stand.plan("undo", first.id, danger="yes")
    assert (plan.values["danger"], plan.values["word"], plan.danger) == ("true", "old", "danger")


def test_it_is_refused_when_the_box_is_no_longer_so(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    plan = stand.plan("undo", first.id)
    stand.file.write_text("third")
    assert "no longer as that change left it (text: new then, third now)" in refused(stand, first.id)
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert "no longer as that change left it" in outcome.text
    assert stand.file.read_text() == "third"


def test_two_undos_of_one_change_are_one(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    plan = stand.plan("undo", first.id)
    stand.perform(plan)
    stand.file.write_text("new")  # as the first change left it, so only the audit tells
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert "undone already" in outcome.text


def test_last_is_ones_own_newest_that_can_be(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no change of yours" in refused(stand, "last")
    _, first = stand.perform(stand.plan(word="new"))
    _, second = stand.perform(stand.plan(word="newer"))
    stand.perform(stand.plan(word="x", fail="one"))
    stand.file.write_text("newer")
    assert stand.plan("undo", "last").undoes == second.id
    stand.perform(stand.plan("undo", "last"))
    assert stand.plan("undo", "last").undoes == first.id
    theirs = msgspec.structs.replace(stand.changes()[0].record.operator, login_uid=1234)
    lines = [
        msgspec.json.encode(msgspec.structs.replace(record, operator=theirs))
        for record in audit._records(stand.state / audit.NAME)
    ]
    (stand.state / audit.NAME).write_bytes(b"\n".join(lines) + b"\n")
    assert "no change of yours" in refused(stand, "last")


def test_it_survives_the_loss_of_the_journal_but_for_secrets(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    shutil.rmtree(stand.state / FOLDER)
    outcome, _ = stand.perform(stand.plan("undo", first.id))
    assert (outcome.word, stand.file.read_text()) == ("done", "old")
    first_two = (stand.state / audit.NAME).read_bytes().splitlines(keepends=True)[:2]
    masked = b"".join(first_two).replace(b'"values":{"word":"old"}', b'"values":{"word":"***"}')
    (stand.state / audit.NAME).write_bytes(masked)
    shutil.rmtree(stand.state / FOLDER)
    stand.file.write_text("new")
    assert "it took secrets" in refused(stand, first.id)


def test_what_left_nothing_to_undo_says_so(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(fail="one"))
    assert refused(stand, first.id).endswith("it left nothing that could be undone")


def test_an_audit_that_cannot_be_read_is_refused(stand: Stand) -> None:
    stand.state.mkdir()
    (stand.state / audit.NAME).mkdir()
    with pytest.raises(Refused, match="cannot be read"):
        runner.prepare(stand.box(), "undo", "last", {})


def test_a_damaged_request_is_said_in_a_sentence(stand: Stand) -> None:
    _, first = stand.perform(stand.plan(word="new"))
    (first.folder / "request.json").write_text("{")
    assert f"what change {first.id} was asked to do cannot be read (it is damaged)" in refused(stand, first.id)
