"""Alerts over time, as whoever watches a box uses them: a console with a screen, a recorder or an exporter without."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from console.alerts.engine import Alert, Changed, Engine, events_of
from console.alerts.rules import thresholds
from console.alerts.teller import Teller
from console.clients import silence
from console.clients.alert_hook import Caller, Hook
from console.config import Alerts
from console.core.encode import to_json
from console.core.history import History
from console.core.model import Event, Snapshot

SCHEMA = 1
EVERY = 5.0
"""Seconds between two looks."""


class Seen(Struct, frozen=True):
    """What one look gave."""

    events: tuple[Event, ...]
    """For Timeline."""
    news: Changed
    """What is to be told beyond the screen."""


class Watch:
    """One Engine, its silence and its hook."""

    def __init__(
        self,
        settings: Alerts,
        folder: Path,
        host: str,
        *,
        failed: Callable[[Event], None],
        hooks: bool = True,
    ) -> None:
        """`folder`: the state folder, which holds the silence. `failed` gets an event when the hook fails, in the
        hook's thread. `hooks=False` for a box that is not real."""
        self._engine = Engine(thresholds(settings))
        self._teller = Teller()
        self._folder = folder
        self._host = host
        hook = Hook(tuple(settings.hook_command), settings.hook_url, settings.hook_timeout) if hooks else Hook()
        self._caller = Caller(hook, lambda problem: failed(_broken(problem)))
        self._looked = float("-inf")
        self.silent_until = 0.0
        """Unix seconds; in the past = nothing is silent."""

    @property
    def active(self) -> tuple[Alert, ...]:
        """What stands now, the worst rule first."""
        return self._engine.active

    def is_due(self, mono: float) -> bool:
        """True once the last look is EVERY seconds ago."""
        return mono - self._looked >= EVERY

    def look(self, snapshot: Snapshot, history: History) -> Seen:
        """Judge this moment and call the hook where there is news."""
        self._looked = snapshot.mono
        self.silent_until = silence.until(self._folder)
        changed = self._engine.look(snapshot, history)
        news = self._teller.news(self.active, snapshot.mono, silent=snapshot.wall < self.silent_until)
        if news.began or news.ended:
            self._caller.tell(payload(news, self._host, snapshot.wall))
        return Seen(tuple(events_of(changed, snapshot.wall)), news)

    def be_silent(self, until_wall: float) -> None:
        """Tell nobody until then; 0 ends a silence. OSError where it cannot be kept: then nothing changed."""
        silence.keep(self._folder, until_wall)
        self.silent_until = until_wall


def payload(news: Changed, host: str, wall: float) -> bytes:
    """What the hook gets: one object with all that began and ended at one look."""
    told = [
        {
            "state": state,
            "rule": one.rule,
            "subject": one.subject,
            "sign": one.sign,
            "text": one.text,
            "told": one.told,
            "value": one.value,
            "limit": one.limit,
            "since": one.since_wall,
        }
        for state, alerts in (("began", news.began), ("over", news.ended))
        for one in alerts
    ]
    return to_json({"schema": SCHEMA, "host": host, "at": wall, "alerts": told}) + b"\n"


def _broken(problem: str) -> Event:
    return Event(time.time(), "warn", f"alerts are not handed on: {problem}", "(gpuconsole)", "alert.hook")
