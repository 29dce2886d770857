"""The container's log as entries: repeats folded, restarts marked, bounded. Knows nothing of screens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console.core.model import Event, LogLine

MOST = 5000
"""Entries kept; the oldest go first."""
FOLD_WITHIN = 60.0
"""Seconds: the same text again later than this is a line of its own."""


class Entry(NamedTuple):
    """One line of the log, or the mark of a restart (`line` None)."""

    number: int
    """Identity; rises with arrival."""
    wall: float | None
    line: LogLine | None
    times: int = 1
    """How often it came in a row."""
    mark: str = ""


class LogEntries:
    """Takes lines as they come and keeps entries in order."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=MOST)
        self.inserted = 0
        """Marks that were put between older entries: a list made of them must then be made anew."""
        self._next = 0
        self._last: LogLine | None = None
        self._marked: set[float] = set()

    def read(self, lines: Sequence[LogLine]) -> int:
        """Take what came since the last call out of a bounded sequence of lines; how many there were."""
        new: list[LogLine] = []
        for line in reversed(lines):
            if line is self._last:
                break
            new.append(line)
        for line in reversed(new):
            self._add(line)
        if new:
            self._last = new[0]
        return len(new)

    def _add(self, line: LogLine) -> None:
        last = self.entries[-1] if self.entries else None
        if last is not None and last.line is not None and _same(last.line, line):
            self.entries[-1] = last._replace(times=last.times + 1)
            return
        self.entries.append(Entry(self._number(), line.wall, line))

    def _number(self) -> int:
        self._next += 1
        return self._next

    def mark_restarts(self, events: Iterable[Event]) -> None:
        """Put `container restarted` between the lines before a start of the container and those after it."""
        starts = [event.wall for event in events if event.kind == "container.start" and event.wall not in self._marked]
        for wall in starts:
            first = next((entry.wall for entry in self.entries if entry.wall is not None), None)
            if first is None or first >= wall:
                continue
            self._marked.add(wall)
            at = next(
                (n for n, entry in enumerate(self.entries) if entry.wall is not None and entry.wall >= wall), None
            )
            entry = Entry(self._number(), wall, None, mark="container restarted")
            if at is None:
                self.entries.append(entry)
                continue
            kept = list(self.entries)
            kept.insert(at, entry)
            self.entries = deque(kept[-MOST:], maxlen=MOST)
            self.inserted += 1


def _same(before: LogLine, line: LogLine) -> bool:
    if (before.text, before.level, before.origin) != (line.text, line.level, line.origin):
        return False
    return before.wall is None or line.wall is None or line.wall - before.wall <= FOLD_WITHIN
