"""A box being watched: its sources and streams, started and stopped together. Built by the composition root."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from console.core.model import Asked, Event, Gaps, Reading, SourceError
from console.core.poller import Follower, Poller, Source, Stream

Emit = Callable[[Any], None]


class PastPlaces(Protocol):
    """What of the past could be read, and what not; both may be asked in any thread."""

    def unread(self) -> Mapping[str, str]:
        """Place -> why it could not be read."""

    def found(self) -> Mapping[str, int]:
        """Place -> events found there."""


class Session:
    """Starts one thread per source; gives their Readings, log lines and events to two callbacks.

    Both callbacks are called in the sources' threads: whoever owns the screen hands them on with `post_message`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        streams: Sequence[Stream] = (),
        *,
        simulated: str | None = None,
        backfill: Sequence[Callable[[], Sequence[Event]]] = (),
        ask: Callable[[str, str | None], Asked] | None = None,
        past: PastPlaces | None = None,
        dropped: Callable[[], Mapping[str, int]] = dict,
        close: Callable[[], None] | None = None,
        spec: Any = None,
    ) -> None:
        self.sources = tuple(sources)
        self.streams = tuple(streams)
        self.simulated = simulated
        """The scene's name for the simulated box; None for a real one."""
        self.backfill = tuple(backfill)
        """Each reads the past from one place (server log, journal, kernel, packages), once, in a thread of its own."""
        self.ask = ask
        """Asks a model once; blocks, so call it in a thread."""
        self.spec = spec
        """What it takes to act on the same box, here or in another process (actions.box.BoxSpec); None = not known
        yet."""
        self._past = past
        self._dropped = dropped
        """What -> how many were thrown away so far; any thread."""
        self._close = close
        self._pollers: dict[str, Poller] = {}
        self._followers: list[Follower] = []

    def start(self, publish: Callable[[Reading[Any]], None], emit: Emit) -> None:
        """Begin reading; returns at once. `emit` gets LogLine and Event objects."""
        for source in self.sources:
            poller = self._pollers[source.name] = Poller(source, publish)
            poller.start()
        for stream in (*self.streams, *(_Backfill(read) for read in self.backfill)):
            follower = Follower(stream, emit)
            self._followers.append(follower)
            follower.start()

    def read_now(self, part: str) -> None:
        """Ask one source to read at once; unknown parts are ignored."""
        poller = self._pollers.get(part)
        if poller is not None:
            poller.read_now()

    def gaps(self) -> Gaps:
        """What does not reach the console now; never blocks, any thread."""
        standing = (follower.standing for follower in tuple(self._followers))
        return Gaps(
            unread=tuple(sorted(self._past.unread().items())) if self._past else (),
            read=tuple(sorted(self._past.found().items())) if self._past else (),
            standing=tuple(one for one in standing if one is not None),
            dropped=tuple((what, count) for what, count in self._dropped().items() if count),
        )

    def stop(self, wait: float = 0.5) -> None:
        """Ask all threads to end and wait at most `wait` seconds in all; hung ones are daemons and stay behind."""
        workers: list[Poller | Follower] = [*self._pollers.values(), *self._followers]
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(wait / max(1, len(workers)))
        if self._close is not None:
            self._close()


class Later(Session):
    """A session that is made in a thread of its own when it is started: its libraries load after the first paint."""

    def __init__(self, make: Callable[[], Session], *, simulated: str | None = None) -> None:
        super().__init__((), simulated=simulated)
        self._make = make
        self._made: Session | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self.ask = self._ask

    def start(self, publish: Callable[[Reading[Any]], None], emit: Emit) -> None:
        """Make and start the session; returns at once. What prevents it is told as an event."""
        threading.Thread(target=self._begin, args=(publish, emit), name="session", daemon=True).start()

    def _begin(self, publish: Callable[[Reading[Any]], None], emit: Emit) -> None:
        try:
            made = self._make()
        except SourceError as error:
            emit(Event(time.time(), "fail", error.message, "(gpuconsole)", "session"))
            return
        except ImportError as error:
            emit(Event(time.time(), "fail", f"nothing can be read: {error}; install again", "(gpuconsole)", "session"))
            return
        with self._lock:
            self._made = made
            self.spec = made.spec
            if not self._stopped:
                made.start(publish, emit)

    def _ask(self, model: str, version: str | None) -> Asked:
        if self._made is None or self._made.ask is None:
            return Asked(model, version, None, time.time(), None, "nothing is read yet: try again in a second")
        return self._made.ask(model, version)

    def read_now(self, part: str) -> None:
        """As Session; nothing before the session is made."""
        if self._made is not None:
            self._made.read_now(part)

    def gaps(self) -> Gaps:
        """As Session; none before the session is made."""
        return Gaps() if self._made is None else self._made.gaps()

    def stop(self, wait: float = 0.5) -> None:
        """As Session."""
        with self._lock:
            self._stopped = True
        if self._made is not None:
            self._made.stop(wait)


class _Backfill:
    """A stream that emits what one reader finds and then rests."""

    name = "backfill"

    def __init__(self, read: Callable[[], Sequence[Event]]) -> None:
        self._read = read
        self._done = False

    def run(self, emit: Emit, stop: Any) -> None:
        if not self._done:
            for event in self._read():
                emit(event)
            self._done = True
        stop.wait()
