"""The audit: private, synced, in pairs; a disk that cannot take it, a file that was damaged."""

from __future__ import annotations

import socket
import syslog
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.actions import audit
from console.core.plan import AuditRecord, Operator, Outcome, Target, UndoSpec

OPS = Operator("ops", 1000)
UNDO = UndoSpec("a.b", "m")


def record(id_: str, outcome: Outcome | None = None, undoes: str = "", resolves: str = "") -> AuditRecord:
    target = Target("model", "m")
    return AuditRecord(
        id_, "outcome" if outcome else "intent", 1.0, OPS, "box", "a.b", target, "Title", {},
        outcome=outcome, undoes=undoes, resolves=resolves,
    )  # fmt: skip


def test_intent_and_outcome_are_one_change_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    done = Outcome("done", "well", undo=UNDO)
    audit.write(tmp_path / "s", record("2"))
    audit.write(tmp_path / "s", record("1"))
    audit.write(tmp_path / "s", record("2", done))
    assert (tmp_path / "s" / audit.NAME).stat().st_mode & 0o777 == 0o600
    first, second = audit.changes(tmp_path / "s")
    assert (first.id, first.result, first.undo_off) == ("1", None, "it has no outcome yet")
    assert (second.id, second.result, second.undo_off) == ("2", done, "")


def test_what_takes_back_and_what_resolves_is_known(tmp_path: Path) -> None:
    done = Outcome("done", "well", undo=UNDO)
    for one in (record("1", done), record("2"), record("3", done, undoes="1"), record("4", done, resolves="2")):
        audit.write(tmp_path, one)
    audit.write(tmp_path, record("5", Outcome("undone", "went back"), undoes="4"))
    first, second, _, fourth, _ = audit.changes(tmp_path)
    assert (first.undone_by, first.undo_off) == ("3", "it was undone already, by 3")
    assert (second.resolved_by, second.undo_off) == ("4", "it was dealt with by 4")
    assert fourth.undone_by == ""


def test_no_file_is_no_change(tmp_path: Path) -> None:
    assert audit.changes(tmp_path) == ()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_rubbish_between_records_is_left_out(tmp_path: Path, rubbish: list[bytes]) -> None:
    path = tmp_path / audit.NAME
    good = msgspec.json.encode(record("1"))
    path.write_bytes(b"\n".join([*rubbish, good, *rubbish]) + b"\n")
    assert [change.id for change in audit.changes(tmp_path)] == ["1"]


def test_a_torn_record_spoils_only_itself(tmp_path: Path) -> None:
    (tmp_path / audit.NAME).write_bytes(b'{"id":"0","ki')
    audit.write(tmp_path, record("1"))
    assert [change.id for change in audit.changes(tmp_path)] == ["1"]


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for id_ in ("1", "2", "3"):
        audit.write(tmp_path, record(id_))
    size = (tmp_path / audit.NAME).stat().st_size
    monkeypatch.setattr(audit, "LONGEST", size * 2 // 3 - 2)
    assert [change.id for change in audit.changes(tmp_path)] == ["3"]


def test_a_full_disk_is_told_before_and_raised_at_the_write(small_disk: Path) -> None:
    assert audit.trouble(small_disk) == ""
    with pytest.raises(OSError, match="No space"):
        (small_disk / "fill").write_bytes(b"x" * 200_000)
    assert "is full" in audit.trouble(small_disk)
    with pytest.raises(OSError, match="No space"):
        audit.write(small_disk, record("1"))
    (small_disk / "fill").unlink()
    audit.write(small_disk, record("2"))
    assert [change.id for change in audit.changes(small_disk)] == ["2"]


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / audit.NAME).mkdir()
    assert "cannot be written (Is a directory)" in audit.trouble(tmp_path)
    assert "cannot be written (File name too long)" in audit.trouble(tmp_path / ("y" * 300))
    (tmp_path / audit.NAME).rmdir()
    (tmp_path / audit.NAME).symlink_to("/dev/full")
    assert "cannot be written" in audit.trouble(tmp_path)


def test_syslog_gets_it_in_pieces_or_is_told_not_to_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _, text: sent.append(text))
    monkeypatch.setattr(audit, "SYSLOG", tmp_path / "log")
    assert not audit.to_syslog(record("1"))
    assert sent == []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "log"))
        long = record("1", Outcome("done", "x" * 3000))
        assert audit.to_syslog(long)
    assert len(sent) >= 4
    assert sent[0].startswith("audit 1 outcome: {")
    assert "".join(piece.partition(": ")[2] for piece in sent) == msgspec.json.encode(long).decode()
