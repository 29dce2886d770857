"""What recordings tell of a stretch of time: events, verdicts with their first moment, figures, log lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from console.clients.recording import Frame, Segment, UnreadableError, segments
from console.core.model import Event, LogLine, Snapshot, TritonConfigs, Verdict
from console.core.recorded import DamagedError, Moment, Reader

WHOLE = 3700.0
"""Seconds up to which every second is read; of a longer time one moment a minute."""
MINUTE = 60.0
MOST_LINES = 20_000
STEPS, LEAST_STEP = 40, 5.0
"""Figures of a time, and the least seconds between two."""


class Seen(Struct, frozen=True):
    """A verdict over the time."""

    verdict: Verdict
    """As it was said last."""
    first: float
    last: float
    stands: bool
    """Whether it was still said at the end."""
    before: bool = False
    """Whether it stood already when the time began: `first` is then no beginning."""


class Figure(Struct, frozen=True):
    """The box at one moment; None = not known then."""

    wall: float
    serving: str
    ready: int
    of: int
    vram: int | None
    """Bytes in use, of all cards."""
    vram_total: int | None
    util: float | None
    """% of the busiest card."""
    rate: float | None
    """Requests a second."""
    mean_ms: float | None
    """Of the model with most requests."""
    waiting: float | None


class Past(Struct, frozen=True):
    """The time asked for, as far as it is known."""

    seen: tuple[Seen, ...] = ()
    events: tuple[Event, ...] = ()
    figures: tuple[Figure, ...] = ()
    recorded: tuple[float, float] | None = None
    """Between which moments there is a recording."""
    every: str = ""
    """`second` or `minute`: how closely it was read."""
    unread: tuple[str, ...] = ()
    lines: tuple[LogLine, ...] = ()
    """Of the server's log, as far as it was recorded."""
    configs: TritonConfigs | None = None
    """The newest that was read; a server that is down now has none to tell."""
    triton: str | None = None
    """The server's version, told likewise."""


def minutes(place: Path, begin: float, end: float) -> tuple[list[tuple[Segment, Frame]], tuple[str, ...]]:
    """(frames that overlap the time, oldest first; what could not be read). OSError; UnreadableError where is none."""
    found, bad = segments(place)
    unread = [f"{path.name}: {why}" for path, why in bad.items()]
    pairs = [(one, frame) for one in found for frame in one.minutes]
    pairs.sort(key=lambda pair: pair[1].mark.t)
    kept = []
    for number, (one, frame) in enumerate(pairs):
        # a frame ends where the next begins, at most some seconds over a minute after its beginning
        after = pairs[number + 1][1].mark.wall if number + 1 < len(pairs) else frame.mark.wall + 2 * MINUTE
        if frame.mark.wall <= end and min(after, frame.mark.wall + 2 * MINUTE) >= begin:
            kept.append((one, frame))
    return kept, tuple(unread)


def close(frames: Iterable[tuple[Segment, Frame]]) -> None:
    """Let the files go."""
    for segment in {id(one): one for one, _ in frames}.values():
        segment.close()


def read(frames: Sequence[tuple[Segment, Frame]], begin: float, end: float, now: Snapshot) -> Past:
    """What the frames tell of the time, with the present snapshot as its last moment where it lies within."""
    whole = end - begin <= WHOLE
    story = _Story(begin, end)
    unread: list[str] = []
    recorded: tuple[float, float] | None = None
    lines: list[LogLine] = []
    for moment in _moments(frames, unread, whole=whole):
        wall = moment.snapshot.wall
        if begin <= wall <= end:
            recorded = (recorded[0] if recorded else wall, wall)
            story.add(moment.snapshot)
            lines += moment.lines
    if begin <= now.wall <= end + MINUTE:
        story.add(now)
    return Past(
        tuple(story.seen()),
        tuple(story.events()),
        tuple(story.figures),
        recorded,
        ("second" if whole else "minute") if recorded else "",
        tuple(unread),
        tuple(lines[-MOST_LINES:]),
        story.configs,
        story.triton,
    )


def _moments(frames: Sequence[tuple[Segment, Frame]], unread: list[str], *, whole: bool) -> Iterator[Moment]:
    reader: Reader | None = None
    for segment, frame in frames:
        if reader is None:
            reader = Reader(segment.fixed)
        reader.use(segment.fixed)
        try:
            for line in segment.lines(frame):
                yield reader.read(line)
                if not whole:
                    break
        except DamagedError as error:
            unread.append(f"{segment.path.name}: a minute cannot be read: {error}")


class _Story:
    """Snapshots in order -> what they tell together."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end
        self._seen: dict[tuple[str, str, str], Seen] = {}
        self._events: dict[tuple[str, str, int], Event] = {}
        self._step = min(MINUTE, max(LEAST_STEP, (end - begin) / STEPS))
        self.figures: list[Figure] = []
        self.configs: TritonConfigs | None = None
        self.triton: str | None = None

    def add(self, snapshot: Snapshot) -> None:
        self.configs = snapshot.configs.value or self.configs
        if snapshot.server.value is not None:
            self.triton = snapshot.server.value.version or self.triton
        said = set()
        for verdict in snapshot.verdicts:
            key = (verdict.id, verdict.model or "", verdict.version or "")
            said.add(key)
            before = self._seen.get(key)
            first = verdict.since_wall if verdict.since_wall is not None else snapshot.wall
            if before is not None:
                first = min(before.first, first)
            self._seen[key] = Seen(verdict, first, snapshot.wall, stands=True, before=first < self._begin)
        for key, one in self._seen.items():
            if key not in said and one.stands:
                self._seen[key] = Seen(one.verdict, one.first, one.last, stands=False, before=one.before)
        for event in snapshot.events:
            if self._begin <= event.wall <= self._end + MINUTE:
                self._events[event.kind, event.text, round(event.wall)] = event
        if not self.figures or snapshot.wall - self.figures[-1].wall >= self._step - 1 or self._tells(snapshot):
            self.figures.append(_figure(snapshot))

    def _tells(self, snapshot: Snapshot) -> bool:
        """Whether the serving word changed: that moment is kept beside those of the step."""
        last = self.figures[-1]
        return (last.serving, last.ready) != (snapshot.serving.word, snapshot.serving.ready)

    def seen(self) -> list[Seen]:
        return sorted(self._seen.values(), key=lambda one: one.first)

    def events(self) -> list[Event]:
        return sorted(self._events.values(), key=lambda event: event.wall)


def _figure(snapshot: Snapshot) -> Figure:
    gpus = snapshot.gpu.value.gpus if snapshot.gpu.value is not None and snapshot.gpu.error is None else ()
    used = [one.memory_used for one in gpus if one.memory_used is not None]
    total = [one.memory_total for one in gpus if one.memory_total is not None]
    util = [one.util_pct for one in gpus if one.util_pct is not None]
    windows = [row.flow.w10 or row.flow.w1 for row in snapshot.models if row.flow is not None and not row.ensemble]
    busiest = max((one for one in windows if one is not None), key=lambda one: one.rate, default=None)
    return Figure(
        snapshot.wall,
        snapshot.serving.word,
        snapshot.serving.ready,
        snapshot.serving.of,
        sum(used) if used else None,
        sum(total) if total else None,
        max(util) if util else None,
        snapshot.traffic.rate,
        busiest.request_ms if busiest is not None else None,
        snapshot.traffic.waiting,
    )


def place_of(told: Path) -> Path | None:
    """The folder of recordings where there is one; None where nothing was ever recorded there."""
    try:
        return told if told.is_file() or any(told.iterdir()) else None
    except OSError:
        return None


__all__ = ["Figure", "Past", "Seen", "UnreadableError", "close", "minutes", "place_of", "read"]
