"""The kernel log from the ring buffer, the journal, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.clients.journal import JournalEntry
from console.core.model import Event, SourceError
from console.sources import kernel_log
from console.sources.kernel_log import KernelLogSource
from tests.clients.test_journal import Ring

XID = "NVRM: Xid (PCI:0000:3b:00): {}, x"


def none(after: str | None) -> list[JournalEntry]:
    raise SourceError("unavailable", "there is no journal on this host")


def test_ring_buffer(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "kmsg")
    ring.put(0, 1.0, "Linux version")
    ring.put(1, 2.0, XID.format(79))
    told: list[Event] = []
    source = KernelLogSource(told.append, tmp_path / "kmsg", none, lambda: 1000.0)
    source.open()
    first = source.read()
    assert (first.source, first.since_wall, [one.xid for one in first.faults]) == ("/dev/kmsg", 1001.0, [79])
    assert source.read() is first, "nothing new: the same object"
    ring.put(2, 3.0, "harmless")
    assert source.read() is first
    ring.put(3, 4.0, XID.format(13))
    assert [(one.wall, one.xid) for one in source.read().faults] == [(1002.0, 79), (1004.0, 13)]
    assert [event.wall for event in told] == [1002.0, 1004.0]
    source.close()
    ring.put(1, 2.0, XID.format(79))
    ring.put(4, 5.0, XID.format(31))
    source.open()
    assert [event.wall for event in told] == [1002.0, 1004.0, 1005.0], "opened again, told once"
    ring.close()


def test_what_the_ring_buffer_lost_comes_from_the_journal(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "kmsg")
    ring.put(900, 50.0, XID.format(31))
    entries = [
        JournalEntry(1001.0, "Linux version", "a", 1.0),
        JournalEntry(1002.0, XID.format(79), "b", 2.0),
        JournalEntry(1050.0, XID.format(31), "c", 50.0),
        JournalEntry(1060.0, XID.format(45), "d", None),
    ]
    source = KernelLogSource(kmsg=tmp_path / "kmsg", journal=lambda after: entries, boot=lambda: 1000.0)
    source.open()
    log = source.read()
    assert [one.xid for one in log.faults] == [79, 31]
    assert log.since_wall == 1001.0
    source.close()
    ring.put(901, 51.0, "x")
    alone = KernelLogSource(kmsg=tmp_path / "kmsg", journal=none, boot=lambda: 1000.0)
    alone.open()
    assert alone.read().since_wall == 1051.0
    alone.close()
    ring.close()


def test_an_empty_ring_buffer(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "kmsg")
    source = KernelLogSource(kmsg=tmp_path / "kmsg", journal=none, boot=lambda: 1000.0)
    source.open()
    assert (source.read().since_wall, source.read().faults) == (None, ())
    ring.close()


def test_journal_by_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def journal(after: str | None) -> list[JournalEntry]:
        asked.append(after)
        if after is None:
            return [JournalEntry(1001.0, XID.format(13), "a")]
        return [JournalEntry(1002.0, XID.format(31), "b")] if after == "a" else []

    source = KernelLogSource(kmsg=tmp_path / "none", journal=journal)
    source.open()
    log = source.read()
    assert (log.source, log.since_wall, len(log.faults)) == ("journal", 1001.0, 1)
    assert asked == [None], "journalctl is not started at every read"
    monkeypatch.setattr(kernel_log, "JOURNAL_EVERY", 0.0)
    assert [one.xid for one in source.read().faults] == [13, 31]
    source.read()
    assert asked == [None, "a", "b"]
    source.close()


def test_a_clock_that_is_set_back_silences_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, boots = Ring(tmp_path / "kmsg"), [1000.0]
    told: list[Event] = []
    ring.put(0, 1.0, XID.format(79))
    source = KernelLogSource(told.append, tmp_path / "kmsg", none, lambda: boots[0])
    source.open()
    boots[0] = -2600.0
    ring.put(1, 2.0, XID.format(13))
    source.read()
    assert [event.wall for event in told] == [1001.0, -2598.0]
    ring.close()

    entries = [[JournalEntry(1001.0, XID.format(79), "a", 1.0)], [JournalEntry(-2598.0, XID.format(13), "b", 2.0)]]
    monkeypatch.setattr(kernel_log, "JOURNAL_EVERY", 0.0)
    told = []
    source = KernelLogSource(told.append, tmp_path / "none", lambda after: entries.pop(0), lambda: boots[0])
    source.open()
    source.read()
    assert [event.wall for event in told] == [1001.0, -2598.0]


def test_neither_may_be_read(tmp_path: Path) -> None:
    def denied(after: str | None) -> list[JournalEntry]:
        raise SourceError("permission", "the journal may not be read", "sudo")

    source = KernelLogSource(kmsg=tmp_path / "none", journal=denied)
    with pytest.raises(SourceError, match="the journal may not be read") as caught:
        source.open()
    assert caught.value.kind == "permission"
    assert "systemd-journal" in caught.value.hint
    with pytest.raises(SourceError, match="not open"):
        source.read()
    source = KernelLogSource(kmsg=tmp_path / "none", journal=none)
    with pytest.raises(SourceError) as caught:
        source.open()
    assert caught.value.kind == "unavailable"


def test_faults_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "MAX_FAULTS", 3)
    told: list[Event] = []
    entries = [JournalEntry(float(n), XID.format(n), str(n)) for n in range(10)]
    source = KernelLogSource(told.append, tmp_path / "none", lambda after: entries)
    source.open()
    assert [one.xid for one in source.read().faults] == [7, 8, 9]
    assert len(told) == 3
