"""A journal survives what kills its writer: torn lines, full disks, lost runners, reboots."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.actions import journal
from console.actions.journal import Ended, Journal, all_of, find, new_id, prune
from console.clients.files import append_synced
from console.core.plan import JournalLine, Outcome, WrongInput
from tests.actions.conftest import HEADER, Stand

DONE = Outcome("done", "well")


def line(text: str) -> JournalLine:
    return JournalLine(1.0, "note", "one", text)


def test_only_its_owner_can_read_it_and_all_is_there(stand: Stand) -> None:
    made = stand.journal(stand.plan(password="hunter22"))
    made.append(line("a"))
    made.end(Ended(DONE, 2.0))
    for path in (made.folder, *made.folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    request = made.request()
    assert request.id == made.id
    assert request.plan.values["password"] == "hunter22"
    assert request.spec.settings.triton.headers["key"] == HEADER
    assert made.lines() == (line("a"),)
    assert made.ended() == Ended(DONE, 2.0)


def test_ids_sort_by_time_and_are_never_the_same(stand: Stand) -> None:
    plan = stand.plan()
    made = [stand.journal(plan).id for _ in range(3)]
    assert made == sorted(set(made))
    assert new_id(0.0) == "19700101-000000-000000"
    assert [one.id for one in all_of(stand.state)] == made


def test_a_torn_line_spoils_no_other(stand: Stand) -> None:
    made = stand.journal(stand.plan())
    made.append(line("a"))
    path = made.folder / "journal.jsonl"
    with path.open("ab") as file:
        file.write(b'{"wall":1,"state":"no')
    assert made.lines() == (line("a"),)
    made.append(line("b"))
    assert made.lines() == (line("a"), line("b"))


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(b'{"wall":1.0,"state":"note","text":"a"}\n' + data)
        assert list(journal._read(path))[0].text == "a"  # noqa: RUF015 (all of it must be readable)


def test_text_that_is_no_unicode_is_written_all_the_same(stand: Stand) -> None:
    made = stand.journal(stand.plan())
    made.append(line("a\udcff"))
    assert made.lines() == (line("a?"),)


@pytest.mark.parametrize("name", ["", "..", "../../etc", "20260101-000000-00000", "[/x]", "x" * 100_000])
def test_an_id_that_is_none_is_one_sentence(stand: Stand, name: str) -> None:
    with pytest.raises(WrongInput, match="there is no change"):
        find(stand.state, name)


def test_the_runner_is_known_by_its_start_and_this_boot(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand.journal(stand.plan())
    assert made.runner() is None
    made.begun_by_this_process()
    assert made.runner() == os.getpid()
    facts = dict(made.lines()[0].data)
    for name, value in (("start", "1"), ("pid", "99999999"), ("pid", "x"), ("boot", "another")):
        other = stand.journal(stand.plan())
        other.append(JournalLine(1.0, "note", data=facts | {name: value}))
        assert other.runner() is None


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_when_the_disk_gets_full_it_goes_on_in_memory(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand.journal(stand.plan())
    made.append(line("a"))
    real = append_synced
    monkeypatch.setattr(
        journal, "append_synced", lambda path, data: full() if stand.state in path.parents else real(path, data)
    )
    made.append(line("b"))
    monkeypatch.setattr(journal, "append_synced", real)
    made.append(line("c"))  # space is back: the order of lines stays
    assert made.lines() == (line("a"), line("b"), line("c"))
    monkeypatch.setattr(journal, "write_private", lambda path, text: full() if stand.state in path.parents else
                        path.write_text(text))  # fmt: skip
    made.end(Ended(DONE, 2.0))
    assert made.ended() == Ended(DONE, 2.0)
    assert Journal(stand.state, made.id).folder.parent == stand.state / "actions"


def test_the_spare_folder_of_somebody_else_is_not_used(stand: Stand) -> None:
    spare = journal.spare_folder()
    spare.symlink_to(stand.folder)
    with pytest.raises(PermissionError):
        journal.trusted_spare()
    spare.unlink()
    spare.mkdir(0o755)
    spare.chmod(0o755)
    with pytest.raises(PermissionError):
        journal.trusted_spare()
    (spare / "20260101-000000-000000").mkdir()
    assert all_of(stand.state) == ()


def test_the_oldest_ended_ones_go_and_no_other(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT", 2)
    plan = stand.plan()
    running, opened, *ended = (stand.journal(plan) for _ in range(6))
    opened.end(Ended(Outcome("failed", "half way"), time.time(), open=True))
    for one in ended:
        one.end(Ended(DONE, time.time()))
    prune(stand.state)
    assert [one.id for one in all_of(stand.state)] == [running.id, opened.id, *(one.id for one in ended[-2:])]


def test_an_end_that_cannot_be_read_is_none(stand: Stand) -> None:
    made = stand.journal(stand.plan())
    (made.folder / "outcome.json").write_bytes(b"\xff{")
    assert made.ended() is None
