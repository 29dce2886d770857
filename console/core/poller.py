"""The only threading code for reading: one daemon thread per source, fixed delay, back-off.

Fixed delay (not fixed rate), so nothing piles up when a read is slow. The threads are daemons: a driver that hangs
inside NVML can never hold up exit. Whoever listens gets every Reading by `publish`, called in the source's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from console.core.model import Failure, Reading, SourceError, Standing

log = logging.getLogger(__name__)

MAX_BACKOFF = 5.0
"""Seconds: in an incident the box must be seen to come back within one breath."""


class Source(Protocol):
    """Something that can be read. Its client is opened, used and closed by one thread only."""

    @property
    def name(self) -> str:
        """The part of the Snapshot that it fills."""

    @property
    def interval(self) -> float:
        """Seconds between the end of a read and the start of the next."""

    def open(self) -> None:
        """Make the client; raise SourceError when that fails. Called again after each failed read."""

    def read(self) -> Any:
        """One value; raise SourceError when it cannot be had."""

    def close(self) -> None:
        """Let go of the client; must not raise."""


class Stream(Protocol):
    """Something that tells by itself: a log to follow, events."""

    @property
    def name(self) -> str:
        """What it is called in the console's own log."""

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        """Emit items until `stop` is set or the peer ends; return or raise SourceError to be started again."""


Publish = Callable[[Reading[Any]], None]


class Poller:
    """Reads one source for ever."""

    def __init__(self, source: Source, publish: Publish) -> None:
        self.source = source
        self._publish = publish
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._reading: Reading[Any] = Reading(source.name, source.interval)
        self._failures = 0
        self._opened = False
        self._thread = threading.Thread(target=self._run, name=f"poll-{source.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait (a hung driver would hold us)."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True when the thread has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def read_now(self) -> None:
        """Cut the present pause short (after an action, or when an event says that something changed)."""
        self._wake.set()

    def step(self) -> Reading[Any]:
        """One read, in the calling thread (the poller's own, a headless command's, a test's)."""
        began = time.monotonic()
        value: Any = None
        failure: Failure | None = None
        try:
            if not self._opened:
                self.source.open()
                self._opened = True
            value = self.source.read()
        except SourceError as error:
            failure = error.failure()
        except Exception as error:
            log.exception("source %s", self.source.name)
            failure = Failure("bug", f"{type(error).__name__}: {error}", "this is a fault of gpuconsole; see its log")
        now = time.monotonic()
        self._reading = self._next(value, failure, now, now - began)
        if failure is None:
            self._failures = 0
        else:
            self._failures += 1
            self._close()
        return self._reading

    def _next(self, value: Any, failure: Failure | None, now: float, took: float) -> Reading[Any]:
        old = self._reading
        if failure is None:
            return Reading(
                old.part, self.source.interval, value, time.time(), now, None, None, None, took, old.reads + 1
            )
        since_mono = old.error_mono if old.error is not None else now
        since_wall = old.error_wall if old.error is not None else time.time()
        return Reading(
            old.part,
            self.source.interval,
            old.value,
            old.wall,
            old.mono,
            failure,
            since_mono,
            since_wall,
            took,
            old.reads,
        )

    def _close(self) -> None:
        if self._opened:
            self._opened = False
            self.source.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._publish(self.step())
            self._wake.wait(self._pause())
            self._wake.clear()
        self._close()

    def _pause(self) -> float:
        if not self._failures:
            return self.source.interval
        return float(max(self.source.interval, min(MAX_BACKOFF, 0.5 * 2 ** min(self._failures, 5))))


class Follower:
    """Keeps one stream running; starts it again with back-off when it ends."""

    def __init__(self, stream: Stream, emit: Callable[[Any], None]) -> None:
        self.stream = stream
        self._emit = emit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{stream.name}", daemon=True)
        self._standing: Standing | None = None
        self._began: float | None = None
        """When the present run began; None between two runs."""

    @property
    def standing(self) -> Standing | None:
        """Why the stream does not run (any thread); None while it does. Trying again is not running: that shows when
        something was told, or when a try has lasted for MAX_BACKOFF."""
        began = self._began
        return None if began is not None and time.monotonic() - began > MAX_BACKOFF else self._standing

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True when the thread has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = self._began = time.monotonic()
            failure: Failure | None = None
            try:
                self.stream.run(self._told, self._stop)
            except SourceError as error:
                failure = error.failure()
            except Exception as error:
                log.exception("stream %s", self.stream.name)
                failure = Failure("bug", f"{type(error).__name__}: {error}")
            now = time.monotonic()
            old, self._began = self.standing, None
            since = old.since_mono if old is not None else now
            self._standing = None if failure is None else Standing(self.stream.name, failure, since)
            failures = 0 if now - began > MAX_BACKOFF else failures + 1
            self._stop.wait(min(MAX_BACKOFF, 0.5 * 2 ** min(failures, 5)))

    def _told(self, item: Any) -> None:
        self._standing = None
        self._emit(item)
