"""journalctl's JSON and the kernel's ring buffer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import journal
from console.core.model import SourceError
from console.core.podman_frames import RawLine
from tests.clients.test_units import bin_folder, tool

__all__ = ["bin_folder"]

ENTRY = (
    b'{"MESSAGE":"hello","__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1720000000500000",'
    b'"_SOURCE_MONOTONIC_TIMESTAMP":"2500000","SYSLOG_IDENTIFIER":"kernel"}'
)


def test_entries() -> None:
    odd = b'{"MESSAGE":[104,105,255],"__REALTIME_TIMESTAMP":"1000000","SYSLOG_IDENTIFIER":["a","b"]}'
    lines = [ENTRY, b"not json", b"\xff", b'{"MESSAGE":null}', b'{"MESSAGE":"x","__REALTIME_TIMESTAMP":"y"}',
             b'{"MESSAGE":[300]}', b"", odd]  # fmt: skip
    found = journal.parse_entries(b"\n".join(lines))
    assert [one.message for one in found] == ["hello", "hi�"]
    assert (found[0].wall, found[0].mono, found[0].cursor, found[0].identifier) == (1720000000.5, 2.5, "s=1", "kernel")
    assert (found[1].mono, found[1].identifier) == (None, "")


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    journal.parse_entries(data)
    journal.parse_record(data)


def test_kernel_entries(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "entry").write_bytes(ENTRY + b"\n")
    tool(bin_folder, "journalctl", f'echo "$@" > {tmp_path}/args; cat {tmp_path}/entry')
    assert [one.message for one in journal.kernel_entries()] == ["hello"]
    assert (tmp_path / "args").read_text().split()[-4:] == ["-k", "-b", "-n", "5000"]
    journal.kernel_entries("s=1")
    assert (tmp_path / "args").read_text().split()[-2:] == ["--after-cursor", "s=1"]
    assert journal.unit_entries("t.service", 5.5)[0].message == "hello"
    assert "--since @5" in (tmp_path / "args").read_text()


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", "permission"),
        ("echo 'Hint: You are currently not seeing messages from other users and the system.' >&2", "permission"),
        ("echo 'No journal files were found.' >&2", "unavailable"),
        ("echo broken >&2; exit 1", "unavailable"),
    ],
)
def test_journal_refused(bin_folder: Path, script: str, kind: str) -> None:
    tool(bin_folder, "journalctl", script)
    with pytest.raises(SourceError) as caught:
        journal.kernel_entries()
    assert caught.value.kind == kind
    assert ("sudo" in caught.value.hint) == (kind == "permission")


def test_records() -> None:
    told = journal.parse_record(b"6,1234,5678901,-;NVRM: text; with semicolon\n SUBSYSTEM=pci\n")
    assert told == journal.KernelMessage(1234, 5.678901, "NVRM: text; with semicolon")
    assert journal.parse_record(b"") is None
    assert journal.parse_record(b"6,x,1,-;text") is None


class Ring:
    """A FIFO in packet mode: like /dev/kmsg, each read gives one record, and none waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_DIRECT)

    def put(self, sequence: int, seconds: float, text: str) -> None:
        os.write(self._file, f"6,{sequence},{int(seconds * 1e6)},-;{text}\n".encode())

    def close(self) -> None:
        os.close(self._file)


def test_ring_buffer(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "kmsg")
    ring.put(0, 1.5, "one")
    kmsg = journal.Kmsg(tmp_path / "kmsg")
    ring.put(1, 2.5, "two")
    os.write(ring._file, b"nonsense\n")
    assert [one.text for one in kmsg.read()] == ["one", "two"]
    assert kmsg.read() == []
    ring.put(2, 3.5, "three")
    assert [one.sequence for one in kmsg.read()] == [2]
    ring.close()
    assert kmsg.read() == []
    kmsg.close()
    kmsg.close()


def test_overwritten_records_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(tmp_path / "kmsg")
    kmsg = journal.Kmsg(tmp_path / "kmsg")
    answers: list[bytes | OSError] = [BrokenPipeError(32, "gone"), b"6,5,1000000,-;later\n", BlockingIOError()]

    def read(file: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    assert [one.text for one in kmsg.read()] == ["later"]
    answers.append(OSError(1, "not permitted"))
    with pytest.raises(SourceError) as caught:
        kmsg.read()
    assert caught.value.kind == "permission"
    answers.append(OSError(22, "invalid"))
    with pytest.raises(SourceError) as caught:
        kmsg.read()
    assert caught.value.kind == "unavailable"
    monkeypatch.undo()
    ring.close()


def test_no_ring_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError) as caught:
        journal.Kmsg(tmp_path / "none")
    assert caught.value.kind == "unavailable"

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError) as caught:
        journal.Kmsg(tmp_path / "none")
    assert caught.value.kind == "permission"


def test_boot_time_is_in_the_past() -> None:
    import time

    assert 0 < journal.boot_wall() < time.time()


def _entry(text: str, who: str, second: int) -> str:
    return f'{{"MESSAGE":"{text}","__REALTIME_TIMESTAMP":"{second}000000","SYSLOG_IDENTIFIER":"{who}"}}'


def test_a_units_journal_is_followed_until_told_to_end(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "first").write_text(_entry("Started triton.service", "systemd", 1) + "\n" + _entry("a", "triton", 2))
    (tmp_path / "second").write_text("\n" + _entry("b", "triton", 3) + "\n")
    script = f'echo "$@" > {tmp_path}/args; cat {tmp_path}/first; sleep 0.2; cat {tmp_path}/second; exec sleep 60'
    tool(bin_folder, "journalctl", script)
    seen: list[RawLine] = []
    for line in journal.follow_unit("t.service", lambda: len(seen) == 2, since=5, user=True):
        seen.append(line)  # noqa: PERF402 (the follower looks at how many came)
    assert [(one.wall, one.stream, one.data) for one in seen] == [(2.0, "journal", b"a"), (3.0, "journal", b"b")]
    asked = (tmp_path / "args").read_text().strip()
    assert asked == "--user -o json --no-pager -f -u t.service -n all --since @5"


def test_a_followed_journal_that_ends_by_itself_says_why(bin_folder: Path) -> None:
    tool(bin_folder, "journalctl", "echo broken >&2; exit 1")
    with pytest.raises(SourceError, match="journalctl ended: broken"):
        list(journal.follow_unit("t.service", lambda: False, tail=5))
    tool(bin_folder, "journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    with pytest.raises(SourceError) as caught:
        list(journal.follow_unit("t.service", lambda: False, tail=5))
    assert caught.value.kind == "permission"
