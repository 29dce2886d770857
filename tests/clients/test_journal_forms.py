"""Entries of the journal and records of the ring buffer, form by form, and there and back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import journal
from console.clients.journal import JournalEntry, KernelMessage
from console.core.model import SourceError
from tests.clients.test_units import bin_folder, tool

__all__ = ["bin_folder"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"MESSAGE": ""}, JournalEntry(0.0, "", "")),
        ({"MESSAGE": "m", "__REALTIME_TIMESTAMP": "1500000"}, JournalEntry(1.5, "m", "")),
        ({"MESSAGE": "m", "_SOURCE_MONOTONIC_TIMESTAMP": ""}, JournalEntry(0.0, "m", "")),
        ({"MESSAGE": "m", "_SOURCE_MONOTONIC_TIMESTAMP": "0"}, JournalEntry(0.0, "m", "", 0.0)),
        ({"MESSAGE": "m", "SYSLOG_IDENTIFIER": "x", "__CURSOR": "c"}, JournalEntry(0.0, "m", "c", None, "x")),
        ({"MESSAGE": [109, 255]}, JournalEntry(0.0, "m\ufffd", "")),
        ({"MESSAGE": []}, JournalEntry(0.0, "", "")),
        ({"MESSAGE": "m", "_SOURCE_MONOTONIC_TIMESTAMP": "x"}, None),
        ({"MESSAGE": "m", "__CURSOR": 5}, None),
        ({"__CURSOR": "c"}, None),
        ({"MESSAGE": [-1]}, None),
    ],
)
def test_one_entry(fields: dict[str, object], expected: JournalEntry | None) -> None:
    assert journal.parse_entries(msgspec.json.encode(fields)) == ([] if expected is None else [expected])


entries = st.builds(
    JournalEntry,
    st.integers(0, 2**40).map(lambda us: us / 1e6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(alphabet="abc=;0", max_size=10),
    st.none() | st.integers(0, 2**40).map(lambda us: us / 1e6),
    st.text(alphabet="abc", max_size=5),
)


@given(st.lists(entries, max_size=5))
def test_entries_there_and_back(told: list[JournalEntry]) -> None:
    lines = []
    for one in told:
        fields = {
            "MESSAGE": one.message,
            "__CURSOR": one.cursor,
            "__REALTIME_TIMESTAMP": str(round(one.wall * 1e6)),
            "SYSLOG_IDENTIFIER": one.identifier,
        }
        if one.mono is not None:
            fields["_SOURCE_MONOTONIC_TIMESTAMP"] = str(round(one.mono * 1e6))
        lines.append(msgspec.json.encode(fields))
    assert journal.parse_entries(b"\n".join(lines)) == told


@given(
    st.integers(0, 2**63),
    st.integers(0, 2**50),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=40),
    st.sampled_from(["", "\n", "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"]),
)
def test_records_there_and_back(sequence: int, micros: int, text: str, rest: str) -> None:
    data = f"4,{sequence},{micros},-;{text}{rest}".encode()
    assert journal.parse_record(data) == KernelMessage(sequence, micros / 1e6, text)


@pytest.mark.parametrize("data", [b"6,1,2,-", b"6,1;x", b"6,1,x,-;y", b"6,x,1,-;y", b";x", b"6,-1,2,-;x"])
def test_what_is_no_record(data: bytes) -> None:
    assert journal.parse_record(data) is None


def test_three_fields_are_enough_for_a_record() -> None:
    assert journal.parse_record(b"6,1,2000000;x") == KernelMessage(1, 2.0, "x")


def asked(bin_folder: Path, tmp_path: Path) -> list[str]:
    tool(bin_folder, "journalctl", f'echo "$@" > {tmp_path}/args')
    return (tmp_path / "args").read_text().split() if (tmp_path / "args").exists() else []


def test_what_journalctl_is_asked(bin_folder: Path, tmp_path: Path) -> None:
    asked(bin_folder, tmp_path)
    journal.unit_entries("t.service", 5.9)
    begin = ["-o", "json", "--no-pager"]
    assert asked(bin_folder, tmp_path) == [*begin, "-u", "t.service", "--since", "@5", "-n", "5000"]
    journal.unit_entries("t.service", 0.0, user=True, count=7)
    assert asked(bin_folder, tmp_path) == [*begin, "--user", "-u", "t.service", "--since", "@0", "-n", "7"]
    journal.kernel_entries("c")
    assert asked(bin_folder, tmp_path) == [*begin, "-k", "-b", "--after-cursor", "c"]


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("echo oh >&2; exit 3", "unavailable", "journalctl failed: oh"),
        ("exit 3", "unavailable", "journalctl failed: 3"),
        ("printf '%0500d' 0 >&2; exit 3", "unavailable", "journalctl failed: " + "0" * 300),
        ("echo 'Permission denied' >&2", "permission", "the journal may not be read"),
        ("echo 'No journal files were found.' >&2", "unavailable", "there is no journal on this host"),
    ],
)
def test_why_there_is_nothing(bin_folder: Path, script: str, kind: str, said: str) -> None:
    tool(bin_folder, "journalctl", script)
    with pytest.raises(SourceError) as caught:
        journal.kernel_entries()
    assert (caught.value.kind, str(caught.value)) == (kind, said)


def test_hints_beside_an_answer_do_not_matter(bin_folder: Path) -> None:
    for hint in ("you are not seeing messages from other users", "No journal files were found."):
        tool(bin_folder, "journalctl", f"""echo '{{"MESSAGE":"m"}}'; echo '{hint}' >&2""")
        assert [one.message for one in journal.kernel_entries()] == ["m"]


def test_at_most_so_many_records_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kmsg").touch()
    kmsg = journal.Kmsg(tmp_path / "kmsg")
    monkeypatch.setattr(os, "read", lambda file, size: b"6,1,1000000,-;x\n")
    assert len(kmsg.read(limit=3)) == 3
    monkeypatch.setattr(os, "read", lambda file, size: b"")
    assert kmsg.read() == []
    monkeypatch.undo()
    kmsg.close()


def test_what_a_refused_device_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="kmsg: No such file") as caught:
        journal.Kmsg(tmp_path / "kmsg")
    assert caught.value.hint == ""

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match="may not be read") as caught:
        journal.Kmsg(tmp_path / "kmsg")
    assert caught.value.hint == journal.HINT
