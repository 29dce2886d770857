"""Xids and OOM kills of this boot from the kernel's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from console.clients.journal import HINT, JournalEntry, Kmsg, boot_wall, kernel_entries
from console.core import kernel_faults
from console.core.model import Event, KernelFault, KernelLog, SourceError

MAX_FAULTS = 500
SAME_FAULT = 0.01
"""Seconds by which the wall time of one record may differ when the ring buffer is read again."""
JOURNAL_EVERY = 6.0
"""Seconds between two calls of journalctl: each starts a process, so it is not done at every read."""


class KernelLogSource:
    """Reads KernelLog. /dev/kmsg costs nothing to follow and is taken where it may be read; what its ring buffer has
    lost since the boot comes from the journal, once. Without it journalctl is asked, by cursor.
    """

    name = "kernel_log"
    interval = 2.0

    def __init__(
        self,
        tell: Callable[[Event], None] = lambda event: None,
        kmsg: Path = Path("/dev/kmsg"),
        journal: Callable[[str | None], list[JournalEntry]] = kernel_entries,
        boot: Callable[[], float] = boot_wall,
    ) -> None:
        self._tell = tell
        self._path = kmsg
        self._journal = journal
        self._boot = boot
        self._kmsg: Kmsg | None = None
        self._cursor: str | None = None
        self._asked = float("-inf")
        self._log: KernelLog | None = None
        self._told_until = float("-inf")

    def open(self) -> None:
        """Open what may be read; SourceError with kind permission when neither kmsg nor the journal may be."""
        self.close()
        try:
            self._kmsg = Kmsg(self._path)
            self._log = self._first_of_kmsg(self._kmsg)
        except SourceError as refused:
            self.close()
            self._log = self._first_of_journal(refused)

    def _first_of_kmsg(self, kmsg: Kmsg) -> KernelLog:
        records = kmsg.read()
        boot = self._boot()
        faults = self._faults((boot + record.mono, record.text) for record in records)
        since = boot + records[0].mono if records else None
        if records and records[0].sequence > 0:
            oldest = records[0].mono
            try:
                entries = self._journal(None)
            except SourceError:
                entries = []
            older = [entry for entry in entries if entry.mono is not None and entry.mono < oldest]
            faults = [*self._faults((entry.wall, entry.message) for entry in older), *faults]
            since = min([since or boot, *(entry.wall for entry in older[:1])])
        return KernelLog("/dev/kmsg", since, tuple(faults[-MAX_FAULTS:]))

    def _first_of_journal(self, refused: SourceError) -> KernelLog:
        try:
            entries = self._journal(None)
        except SourceError as error:
            kind = "permission" if "permission" in (refused.kind, error.kind) else error.kind
            raise SourceError(kind, f"kernel log: {refused.message}; {error.message}", HINT) from error
        self._asked = time.monotonic()
        self._cursor = entries[-1].cursor if entries else None
        faults = self._faults((entry.wall, entry.message) for entry in entries)
        return KernelLog("journal", entries[0].wall if entries else None, tuple(faults[-MAX_FAULTS:]))

    def read(self) -> KernelLog:
        """The faults so far; the same object while nothing new is in the log."""
        if self._log is None:
            raise SourceError("unavailable", "the kernel log is not open")
        new = self._new()
        if new:
            self._log = KernelLog(self._log.source, self._log.since_wall, (*self._log.faults, *new)[-MAX_FAULTS:])
        return self._log

    def _new(self) -> list[KernelFault]:
        if self._kmsg is not None:
            boot = self._boot()
            return self._faults((boot + record.mono, record.text) for record in self._kmsg.read())
        if time.monotonic() - self._asked < JOURNAL_EVERY:
            return []
        self._asked = time.monotonic()
        entries = self._journal(self._cursor)
        self._cursor = entries[-1].cursor if entries else self._cursor
        return self._faults((entry.wall, entry.message) for entry in entries)

    def _faults(self, messages: Iterable[tuple[float, str]]) -> list[KernelFault]:
        """Faults among messages, each told as an event once, also when the log is opened again."""
        faults = [fault for wall, text in messages if (fault := kernel_faults.parse(wall, text)) is not None]
        known = self._told_until
        for fault in faults[-MAX_FAULTS:]:
            if fault.wall > known:
                self._tell(kernel_faults.event(fault))
        self._told_until = max([known, *(fault.wall + SAME_FAULT for fault in faults)])
        return faults

    def close(self) -> None:
        """Close the device; the journal needs no closing."""
        if self._kmsg is not None:
            self._kmsg.close()
            self._kmsg = None
