"""Recorded time in the console: where it stands, how fast it goes, and the keys that move it.

The screens show what the player holds and take "now" from it, so ages and charts are those of that moment. Nothing can
be changed in a replay.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from console.core import units
from console.core.model import Gaps, Snapshot, Verdict
from console.core.store import Store
from console.core.text import one_line
from console.tui.commands import Command, Kind

if TYPE_CHECKING:
    from console.core.model import Event
    from console.sources.replay import Player
    from console.tui.app import ConsoleApp
    from console.tui.messages import LogBuffer

SPEEDS = (1, 2, 5, 10, 30, 60)
REPLAY = "this is a replay: nothing is done to the box, and nothing is asked of it"
ALLOWED = ("interrupt",)
"""Commands that are no mere looks and work in a replay all the same: ctrl+c says how to quit."""


class RecordedStore(Store):
    """Stands in for the Store: what the player holds."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self._player = player
        self.history = player.history

    def snapshot(self, wall: float, mono: float) -> Snapshot:
        """The recorded one."""
        self.history = self._player.history
        return self._player.snapshot

    def set_verdicts(self, verdicts: tuple[Verdict, ...]) -> None:
        """Those of the recording stand."""

    def set_gaps(self, gaps: Gaps) -> None:
        """Those of the recording stand."""

    def add_event(self, event: Event) -> None:
        """Those of the recording stand."""


class Playback:
    """The position, moved by the clock while it plays."""

    def __init__(self, player: Player, *, playing: bool = True) -> None:
        self.player = player
        self.store = RecordedStore(player)
        self.playing = playing
        self.speed = 1
        self._real = time.monotonic()
        self._log = (0, 0)

    # ------------------------------------------------------------------------------------------------------- position

    def now(self) -> tuple[float, float]:
        """(wall, monotonic) of the position, which has gone on since the last call."""
        real = time.monotonic()
        passed, self._real = real - self._real, real
        if self.playing:
            self.player.play(self.player.wall + passed * self.speed)
            if self.player.wall >= self.player.last:
                self.playing = False
        return self.player.wall, self.player.mono

    def toggle(self) -> None:
        """Play, hold; at the end play begins at the beginning."""
        self.now()
        if not self.playing and self.player.wall >= self.player.last:
            self.player.seek(self.player.first)
        self.playing = not self.playing
        self._real = time.monotonic()

    def faster(self, steps: int) -> None:
        """By one of SPEEDS."""
        self.now()
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, SPEEDS.index(self.speed) + steps))]

    def seek(self, wall: float) -> None:
        """Jump."""
        self.player.seek(wall)
        self._real = time.monotonic()

    def step(self, *, forward: bool) -> bool:
        """To the next moment or the one before, and hold there."""
        self.now()
        self.playing = False
        return self.player.step(forward)

    def to_event(self, *, forward: bool) -> bool:
        """To the next event or the one before; False where there is none."""
        self.now()
        here = self.player.wall
        found = self.player.event_after(here) if forward else self.player.event_before(here - 1.0)
        if found is None:
            return False
        self.seek(found.wall)
        return True

    def go(self, text: str, *, utc: bool) -> str:
        """To a time, or to the next event with these words (from the start again after the last); "" or why not."""
        if moments_of(text, self.player.wall, utc=utc):
            return self.go_to_time(text, utc=utc)
        found = self._search(text)
        if found is None:
            return f"no time, and no event of the recording has {one_line(text, 40)!r}"
        self.seek(found.wall)
        return ""

    def go_to_time(self, text: str, *, utc: bool) -> str:
        """To a time; "" or why not."""
        told = moments_of(text, self.player.wall, utc=utc)
        inside = [wall for wall in told if self.player.first - 60 <= wall <= self.player.last + 60]
        if not told:
            return f"{one_line(text, 40)!r} is no time: give 14:01, 14:01:58 or 2026-07-04T14:01:58"
        if not inside:
            return f"the recording has {self.span(utc=utc)}; {one_line(text, 40)} is outside"
        self.seek(inside[0])
        return ""

    def _search(self, text: str) -> Event | None:
        words = text.casefold()
        first: Event | None = None
        here, at = self.player.wall, self.player.first - 1.0
        while (event := self.player.event_after(at)) is not None:
            at = event.wall
            if words in event.text.casefold():
                if event.wall > here:
                    return event
                first = first or event
        return first

    # -------------------------------------------------------------------------------------------------------- showing

    def word(self, *, utc: bool) -> str:
        """For the header: `REPLAY ▸ 10x`, and where nothing is recorded, so that figures are of before."""
        gap = self.player.gap
        if gap is not None:
            between = f"{units.clock(gap.begin, utc=utc)}–{units.clock(gap.end, utc=utc)}"
            return f"{self.short} ≈ nothing recorded {between}"
        return self.short

    @property
    def short(self) -> str:
        """The same in few cells."""
        sign = "≈" if self.player.gap is not None else ""
        return f"REPLAY {'▸' if self.playing else 'held'} {self.speed}x{sign}"

    def span(self, *, utc: bool) -> str:
        """From when to when: `2026-07-04 14:01:58 to 15:02:00`."""
        first, last = self.player.first, self.player.last
        end = units.moment(last, utc=utc)
        begin = units.moment(first, utc=utc)
        return f"{begin} to {end.split()[-1] if begin.split()[0] == end.split()[0] else end}"

    def take_log(self, lines: LogBuffer) -> None:
        """The lines of the log up to the position."""
        jumps, count = self.player.jumps, self.player.log_count
        known_jumps, known = self._log
        self._log = (jumps, count)
        if jumps != known_jumps:
            lines.lines.clear()
            known = 0
        new = count - known
        for line in list(self.player.log)[-new:] if new else ():
            lines.add(line)


def moments_of(text: str, now: float, *, utc: bool) -> list[float]:
    """The moment that people type as `2026-07-04 14:01:58` (or with a T); of a mere time of day that of the position's
    day, the day before and the day after. [] for what is none."""
    here = datetime.fromtimestamp(now, UTC) if utc else datetime.fromtimestamp(now, UTC).astimezone()
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%H:%M:%S", "%H:%M"):
        try:
            found = datetime.strptime(text.strip().replace("T", " "), form)
        except ValueError:
            continue
        if form.startswith("%Y"):
            return [(found.replace(tzinfo=UTC) if utc else found.astimezone()).timestamp()]
        day = here.replace(hour=found.hour, minute=found.minute, second=found.second, microsecond=0)
        return [(day + timedelta(days=days)).timestamp() for days in (0, -1, 1)]
    return []


# --------------------------------------------------------------------------------------------------------------- keys


class _InReplay(Command):
    """Base of what works in a replay only, on every screen."""

    def why_off(self, app: ConsoleApp) -> str | None:
        return "this works in a replay only: gpuconsole replay FILE" if app.playback is None else None

    def run(self, app: ConsoleApp) -> None:
        if app.playback is not None:
            self.on_playback(app, app.playback)
            app.refresh_now()

    def on_playback(self, app: ConsoleApp, playback: Playback) -> None:
        """Do it."""
        raise NotImplementedError


class Faster(_InReplay):
    """In a replay: faster."""

    ID, KEYS, LABEL = "replay.faster", ("plus",), "faster"
    STEPS: ClassVar[int] = 1

    def on_playback(self, app: ConsoleApp, playback: Playback) -> None:
        playback.faster(self.STEPS)


class Slower(Faster):
    """In a replay: slower."""

    ID, KEYS, LABEL = "replay.slower", ("minus",), "slower"
    STEPS: ClassVar[int] = -1


class StepOn(_InReplay):
    """In a replay: hold, and one moment on."""

    ID, KEYS, LABEL = "replay.step", ("right_parenthesis",), "step"
    FORWARD: ClassVar[bool] = True

    def on_playback(self, app: ConsoleApp, playback: Playback) -> None:
        if not playback.step(forward=self.FORWARD):
            app.tell("the recording ends here" if self.FORWARD else "the recording begins here")


class StepBack(StepOn):
    """In a replay: hold, and one moment back."""

    ID, KEYS, LABEL = "replay.back", ("left_parenthesis",), "step back"
    FORWARD: ClassVar[bool] = False


def off_in_replay(app: ConsoleApp, kind: Kind, name: str) -> str | None:
    """Why a command does not work in a replay; None when it does, or this is none."""
    return REPLAY if app.playback is not None and kind != "look" and name not in ALLOWED else None
