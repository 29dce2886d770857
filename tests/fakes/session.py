"""A Session without threads: a test hands it Readings, or a script that makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from console.core.model import PART_FIELDS, Asked, Event, LogLine, Reading, Snapshot
from console.core.session import Emit, Session


def readings_of(snapshot: Snapshot) -> Iterator[Reading[Any]]:
    """The Readings that make up a Snapshot, as its sources would publish them."""
    for part in PART_FIELDS:
        reading = snapshot.reading(part)
        if reading.tried:
            yield reading


class FakeSession(Session):
    """Publishes the Readings of the Snapshots it is given; `feed` as often as wanted."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        items: Iterable[Event | LogLine] = (),
        simulated: str | None = None,
        ask: Callable[[str, str | None], Asked] | None = None,
    ) -> None:
        super().__init__((), simulated=simulated, ask=ask)
        self.first = snapshot
        self.items = list(items)
        self.publish: Callable[[Reading[Any]], None] = lambda reading: None
        self.emit: Emit = lambda item: None
        self.started = False
        self.stopped = False

    def start(self, publish: Callable[[Reading[Any]], None], emit: Emit) -> None:
        self.publish, self.emit, self.started = publish, emit, True
        for item in [*self.items, *(self.first.events if self.first else ())]:
            emit(item)
        if self.first is not None:
            self.feed(self.first)

    def feed(self, snapshot: Snapshot) -> None:
        """Publish all Readings of this Snapshot."""
        for reading in readings_of(snapshot):
            self.publish(reading)

    def read_now(self, part: str) -> None:
        return None

    def stop(self, wait: float = 0.5) -> None:
        self.stopped = True


class LiveSession(FakeSession):
    """Feeds a new Snapshot every second from a function of the seconds since the start, in a daemon thread."""

    def __init__(self, make: Callable[[float], Snapshot], **settings: Any) -> None:
        super().__init__(**settings)
        self._make = make
        self._end = threading.Event()

    def start(self, publish: Callable[[Reading[Any]], None], emit: Emit) -> None:
        super().start(publish, emit)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.is_set():
            self.feed(self._make(time.monotonic() - began))
            self._end.wait(1.0)

    def stop(self, wait: float = 0.5) -> None:
        super().stop(wait)
        self._end.set()
