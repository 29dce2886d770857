"""Xids and OOM kills of this boot from the kernel's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from console.clients.journal import HINT, JournalEntry, Kmsg, boot_wall, kernel_entries
from console.core import kernel_faults
from console.core.model import Event, KernelFault, KernelLog, SourceError

MAX_FAULTS = 500
JOURNAL_EVERY = 6.0
"""Seconds between two calls of journalctl: each starts a process, so it is not done at every read."""

Message = tuple[float, float, str]
"""Seconds after boot by the kernel's clock, wall time, text. What was told is known by the first: a wall clock that is
set back would else silence all faults until it has caught up."""


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
        faults = self._parsed((record.mono, boot + record.mono, record.text) for record in records)
        since = boot + records[0].mono if records else None
        if records and records[0].sequence > 0:
            oldest = records[0].mono
            try:
                entries = self._journal(None)
            except SourceError:
                entries = []
            older = [entry for entry in entries if entry.mono is not None and entry.mono < oldest]
            faults = [*self._parsed(_messages(older, boot)), *faults]
            since = min([since or boot, *(entry.wall for entry in older[:1])])
        return KernelLog("/dev/kmsg", since, tuple(self._told(faults)[-MAX_FAULTS:]))

    def _first_of_journal(self, refused: SourceError) -> KernelLog:
        try:
            entries = self._journal(None)
        except SourceError as error:
            kind = "permission" if "permission" in (refused.kind, error.kind) else error.kind
            raise SourceError(kind, f"kernel log: {refused.message}; {error.message}", HINT) from error
        self._asked = time.monotonic()
        self._cursor = entries[-1].cursor if entries else None
        faults = self._told(self._parsed(_messages(entries, self._boot())))
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
            return self._told(self._parsed((r.mono, boot + r.mono, r.text) for r in self._kmsg.read()))
        if time.monotonic() - self._asked < JOURNAL_EVERY:
            return []
        self._asked = time.monotonic()
        entries = self._journal(self._cursor)
        self._cursor = entries[-1].cursor if entries else self._cursor
        return self._told(self._parsed(_messages(entries, self._boot())))

    @staticmethod
    def _parsed(messages: Iterable[Message]) -> list[tuple[float, KernelFault]]:
        found = ((mono, kernel_faults.parse(wall, text)) for mono, wall, text in messages)
        return [(mono, fault) for mono, fault in found if fault is not None]

    def _told(self, faults: list[tuple[float, KernelFault]]) -> list[KernelFault]:
        """The faults, each told as an event once, also when the log is opened again."""
        known = self._told_until
        for mono, fault in faults[-MAX_FAULTS:]:
            if mono > known:
                self._tell(kernel_faults.event(fault))
        self._told_until = max([known, *(mono for mono, _ in faults)])
        return [fault for _, fault in faults]

    def close(self) -> None:
        """Close the device; the journal needs no closing."""
        if self._kmsg is not None:
            self._kmsg.close()
            self._kmsg = None


def _messages(entries: Iterable[JournalEntry], boot: float) -> Iterator[Message]:
    return ((entry.wall - boot if entry.mono is None else entry.mono, entry.wall, entry.message) for entry in entries)
