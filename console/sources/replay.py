"""A recording, played: a position in recorded time, with the snapshot, the history and the log that belong to it.

A jump reads the ten minutes before the moment (what the fine charts and the windows of statistics reach back to) and
takes the hour before those from the peaks that each minute keeps of the one before. Playing on reads line by line.
"""

from __future__ import annotations

import contextlib
import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from console.clients.recording import Frame, Segment, UnreadableError, segments
from console.core.history import COARSE_SLOTS, COARSE_STEP, FINE_SLOTS, FINE_STEP, History
from console.core.model import Event, LogLine, Snapshot
from console.core.recorded import DamagedError, Moment, Reader, past_of, wall_times
from console.core.store import samples

FINE = FINE_SLOTS * FINE_STEP
COARSE = COARSE_SLOTS * COARSE_STEP
GAP = 5.0
"""Seconds between two lines from which on something is missing."""
SAME_CLOCK = 2.0
"""Seconds by which wall and monotonic time may part and still be those of one boot."""
MAX_LOG_LINES = 10_000


@dataclass(frozen=True)
class Minute:
    """A frame, and the file that it is in."""

    segment: Segment
    frame: Frame

    @property
    def wall(self) -> float:
        """When it began."""
        return self.frame.mark.wall

    @property
    def mono(self) -> float:
        """The same on the monotonic clock."""
        return self.frame.mark.mono

    def lines(self) -> Iterator[bytes]:
        """As far as they can be read."""
        return self.segment.lines(self.frame)

    def times(self) -> list[float]:
        """When its lines were taken, as far as they can be read."""
        found: list[float] = []
        try:
            found.extend(wall_times(self.lines()))
        except DamagedError:
            return found
        return found


@dataclass(frozen=True)
class Gap:
    """A stretch of time of which nothing is recorded, or can be read."""

    begin: float
    end: float


class Player:
    """Where the replay stands. One thread."""

    def __init__(self, place: Path) -> None:
        """A file or a folder. OSError; UnreadableError for what is no recording, or one of another schema."""
        self.place = place
        self._segments, self.unreadable = segments(place)
        self.minutes = _in_order(self._segments)
        self.first = self.minutes[0].wall
        """When the recording begins."""
        self.last = self._end_of(len(self.minutes) - 1)
        """When it ends."""
        self.snapshot = Snapshot()
        self.history = History()
        self.log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        """The lines before the position, oldest first, as far as they were read for it."""
        self.log_count = 0
        """How many lines were ever put into `log`; starts again at a jump."""
        self.wall = self.first
        """The position."""
        self.jumps = 0
        """How often the position was jumped to: what was kept from before then no longer holds."""
        self._reader = Reader(lambda id_: None)
        self._at = 0
        """Number of the minute that is being read."""
        self._ahead: Iterator[Moment] = iter(())
        self._next: Moment | None = None
        """The moment after the position, read already."""
        self._events: dict[Path, tuple[Event, ...]] = {}
        self.seek(self.first)

    # ------------------------------------------------------------------------------------------------------- position

    @property
    def scene(self) -> str | None:
        """Of a simulated box that was recorded; None for a real one."""
        return self.minutes[0].frame.mark.scene or None

    @property
    def mono(self) -> float:
        """The position on the monotonic clock of the recording."""
        return self.snapshot.mono + max(0.0, self.wall - self.snapshot.wall)

    @property
    def gap(self) -> Gap | None:
        """The gap that the position is in: what is shown is what was known before it. None where it is in none."""
        end = self.last if self._next is None else self._next.snapshot.wall
        begin = self.snapshot.wall
        return Gap(begin, end) if end - begin > GAP and self.wall - begin > GAP else None

    @property
    def faults(self) -> int:
        """Places of the files that could not be read, as far as that was seen."""
        return sum(len(one.faults) for one in self._segments) + len(self.unreadable)

    def seek(self, wall: float) -> None:
        """Jump to a time; before the first moment or after the last one means to these."""
        wall = min(max(wall, self.first), self.last)
        number = max(0, bisect_right(self.minutes, wall, key=lambda one: one.wall) - 1)
        begin = self._reach(number, FINE)
        collecting = gc.isenabled()
        gc.disable()  # a jump makes a hundred thousand objects, all of which live
        try:
            whole_from = number
            self._load(wall, begin, number, whole_from)
            while whole_from > begin and self.snapshot.wall < self.minutes[whole_from].wall:
                whole_from -= 1  # that minute is damaged: what is shown is of the one before
                self._load(wall, begin, number, whole_from)
            if not self.snapshot.seq and self._next is not None:  # nothing that can be read lies before it
                self._play(self._next.snapshot.wall)
        finally:
            if collecting:
                gc.enable()
        self.wall = max(wall, self.snapshot.wall)

    def _load(self, wall: float, begin: int, number: int, whole_from: int) -> None:
        """Read from the minute `begin` to a moment in the minute `number`, from `whole_from` on all of it."""
        self.history, self.log, self.snapshot = History(), deque(maxlen=MAX_LOG_LINES), Snapshot()
        self.log_count, self.jumps = 0, self.jumps + 1
        self._fill_past(self._reach(begin, COARSE - FINE), number)
        self._ahead = self._moments(begin, whole_from)
        self._next = next(self._ahead, None)
        self._play(wall)

    def play(self, wall: float) -> None:
        """Go on to a time."""
        wall = min(wall, self.last)
        if wall > self.wall:
            self._play(wall)
            self.wall = wall

    def step(self, forward: bool) -> bool:
        """To the next recorded moment, or the one before; False where there is none."""
        if forward:
            if self._next is None:
                return False
            self.play(self._next.snapshot.wall)
            return True
        now = self.snapshot.wall
        for number in range(min(self._at, len(self.minutes) - 1), -1, -1):
            before = [wall for wall in self.minutes[number].times() if wall < now]
            if before:
                self.seek(before[-1])
                return True
        return False

    # --------------------------------------------------------------------------------------------------------- events

    def event_after(self, wall: float) -> Event | None:
        """The first event after a time that marks a chart; it may lie beyond what was played."""
        return next((one for one in self._marks_from(wall) if one.wall > wall), None)

    def event_before(self, wall: float) -> Event | None:
        """The last event before a time that marks a chart and lies in the recording."""
        found: Event | None = None
        for segment in reversed(self._segments):
            if segment.minutes[0].mark.wall > wall:
                continue
            found = next((one for one in reversed(self._events_of(segment)) if one.wall < wall), None)
            break
        return found if found is not None and found.wall >= self.first else None

    def _marks_from(self, wall: float) -> Iterator[Event]:
        for segment, after in zip(self._segments, [*self._segments[1:], None], strict=True):
            if after is None or after.minutes[0].mark.wall > wall:
                yield from self._events_of(segment)

    def _events_of(self, segment: Segment) -> tuple[Event, ...]:
        """All that mark a chart and were known at the end of a file."""
        if segment.path not in self._events:
            last = Snapshot()
            for moment in self._read_backwards(segment):
                last = moment.snapshot
            self._events[segment.path] = tuple(one for one in last.events if one.marks_chart and one.wall <= self.last)
        return self._events[segment.path]

    @staticmethod
    def _read_backwards(segment: Segment) -> list[Moment]:
        """The moments of its last minute that can be read."""
        for frame in reversed(segment.minutes):
            reader = Reader(segment.fixed)
            found: list[Moment] = []
            with contextlib.suppress(DamagedError):  # those before the fault are there
                found.extend(map(reader.read, segment.lines(frame)))
            if found:
                return found
        return []

    # -------------------------------------------------------------------------------------------------------- reading

    def _play(self, wall: float) -> None:
        while self._next is not None and self._next.snapshot.wall <= wall:
            self._take(self._next)
            self._next = next(self._ahead, None)

    def _take(self, moment: Moment) -> None:
        old, new = self.snapshot, moment.snapshot
        if old.seq and not _one_clock(old.wall - old.mono, new.wall - new.mono):
            self.history, old = History(), Snapshot()  # after a boot: no time before it is on this clock
        taken: dict[float, dict[str, float | None]] = {}
        for mono, key, value in samples(old, new):
            taken.setdefault(mono, {})[key] = value
        for mono, values in taken.items():
            self.history.record(mono, values)
        self.log += moment.lines
        self.log_count += len(moment.lines)
        self.snapshot = new

    def _moments(self, begin: int, whole_from: int) -> Iterator[Moment]:
        """All that can be read from a minute on, until another one only what its history needs."""
        segment: Segment | None = None
        for number, minute in enumerate(self.minutes[begin:], begin):
            self._at = number
            self._reader.pass_by(number < whole_from)
            if minute.segment is not segment:
                segment = minute.segment
                self._reader.use(segment.fixed)
            try:
                yield from map(self._reader.read, minute.lines())
            except DamagedError as error:
                segment.faults[minute.frame.begin] = str(error)

    def _reach(self, number: int, seconds: float) -> int:
        """The first minute that lies within so many seconds before another and on its clock."""
        last = self.minutes[number]
        between = last.wall - last.mono
        while number > 0:
            before = self.minutes[number - 1]
            if last.mono - before.mono > seconds + 60 or not _one_clock(before.wall - before.mono, between):
                break
            number -= 1
        return number

    def _fill_past(self, begin: int, end: int) -> None:
        for minute in self.minutes[begin : end + 1]:
            line = minute.segment.first_line(minute.frame)
            for key, peaks in past_of(line).items() if line is not None else ():
                self.history.recall(key, peaks)

    def _end_of(self, number: int) -> float:
        """When the last line was taken that can be read in this minute or one before it."""
        for minute in reversed(self.minutes[: number + 1]):
            times = minute.times()
            if times:
                return times[-1]
        raise UnreadableError(f"{self.place} has no line that can be read")

    def close(self) -> None:
        """Let go of the files."""
        for segment in self._segments:
            segment.close()


def _one_clock(one: float, other: float) -> bool:
    return abs(one - other) < SAME_CLOCK


def _in_order(found: list[Segment]) -> list[Minute]:
    """All minutes by their time; of one that two files have (written again after a full disk) the longer."""
    kept: dict[tuple[str, int], Minute] = {}
    for segment in found:
        for frame in segment.minutes:
            key = (frame.mark.run, frame.mark.n)
            known = kept.get(key)
            if known is None or len(known.frame.blocks) < len(frame.blocks):
                kept[key] = Minute(segment, frame)
    return sorted(kept.values(), key=lambda one: one.wall)
