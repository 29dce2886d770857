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
    last_wall: float | None = None
    """When it came the last time."""
    mark: str = ""


class LogEntries:
    """Takes lines as they come and keeps entries in order."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=MOST)
        self.inserted = 0
        """Rises when older entries moved: a list made of them must then be made anew."""
        self._next = 0
        self._last: LogLine | None = None
        self._starts: tuple[float, ...] = ()
        self._marked: set[float] = set()

    def read(self, lines: Sequence[LogLine], events: Iterable[Event] = ()) -> int:
        """Take in what came since the last call; how many lines that were.

        `lines` is a bounded sequence that grows at its end; starts of the container among `events` become marks.
        """
        self._learn_starts(events)
        new: list[LogLine] = []
        for line in reversed(lines):
            if line is self._last:
                break
            new.append(line)
        for line in reversed(new):
            self._add(line)
        if new:
            self._last = new[0]
        self._mark_late()
        return len(new)

    def _learn_starts(self, events: Iterable[Event]) -> None:
        """A start that is told after lines of before and after it were counted as one makes all entries anew."""
        starts = tuple(event.wall for event in events if event.kind == "container.start")
        if starts == self._starts:
            return
        fresh = set(starts) - set(self._starts)
        self._starts = starts
        if any(_spans(entry, wall) for entry in self.entries for wall in fresh):
            self.entries.clear()
            self._marked.clear()
            self._last = None
            self.inserted += 1

    def _add(self, line: LogLine) -> None:
        last = self.entries[-1] if self.entries else None
        for wall in self._starts:
            if last is not None and _lies_between(last.last_wall, wall, line.wall):
                self.entries.append(Entry(self._number(), wall, None, last_wall=wall, mark="container restarted"))
                self._marked.add(wall)
        last = self.entries[-1] if self.entries else None
        if last is not None and last.line is not None and _same(last, line):
            self.entries[-1] = last._replace(times=last.times + 1, last_wall=line.wall)
            return
        self.entries.append(Entry(self._number(), line.wall, line, last_wall=line.wall))

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _mark_late(self) -> None:
        """Marks for starts that were told after the lines around them had come."""
        first = next((entry.wall for entry in self.entries if entry.wall is not None), None)
        for wall in self._starts:
            if wall in self._marked or first is None or first >= wall:
                continue
            at = next((n for n, one in enumerate(self.entries) if one.wall is not None and one.wall >= wall), None)
            if at is None:
                continue
            self._marked.add(wall)
            kept = list(self.entries)
            kept.insert(at, Entry(self._number(), wall, None, last_wall=wall, mark="container restarted"))
            self.entries = deque(kept[-MOST:], maxlen=MOST)
            self.inserted += 1


def _spans(entry: Entry, wall: float) -> bool:
    return entry.times > 1 and _lies_between(entry.wall, wall, entry.last_wall)


def _lies_between(before: float | None, wall: float, after: float | None) -> bool:
    return before is not None and after is not None and before < wall <= after


def _same(before: Entry, line: LogLine) -> bool:
    known = before.line
    if known is None or (known.text, known.level, known.origin) != (line.text, line.level, line.origin):
        return False
    return before.last_wall is None or line.wall is None or line.wall - before.last_wall <= FOLD_WITHIN
