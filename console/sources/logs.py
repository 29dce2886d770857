"""The Triton container's log, followed through restarts of the container, of Podman's service, and of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from console.clients.journal import follow_unit
from console.clients.podman_stream import follow_log
from console.core.model import Event, LogLine, SourceError
from console.core.podman_frames import RawLine, Resume
from console.core.triton_log import LineReader, ServerEvents
from console.sources.container import Target

HISTORY = 500
"""Lines from before this console began that are shown."""
PAUSE = 1.0
"""Seconds between two looks at a container that is not running, and after a lost connection."""
PASSED_ON = ("passthrough", "passthrough-tty")
"""Log drivers with which Podman hands the container's output on to whoever started it: Quadlet's default at first."""
NO_LOG_HINT = "make it anew with --log-driver=journald or k8s-file"
MARK = "gpuconsole"
"""`LogLine.stream` of lines that this console puts in by itself."""


class LogStream:
    """Emits LogLines, and Events for what new lines tell (loads, failures, crashes).

    What the log told before the console began is the backwards fill's, so those lines give no events here.
    """

    name = "logs"

    def __init__(
        self,
        target: Callable[[], Target | None],
        history: int = HISTORY,
        follow: Callable[..., Any] = follow_log,
        follow_journal: Callable[..., Any] = follow_unit,
        wall: Callable[[], float] = time.time,
        told: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """`told` hears each event too: what the log says now, the sources may read now."""
        self._told = told
        self._target = target
        self._history = history
        self._follow = follow
        self._follow_journal = follow_journal
        self._events_from = wall()
        self._id: str | None = None
        self._read_out: Target | None = None
        self._resume = Resume()
        self._reader = LineReader()
        self._events = ServerEvents()

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        """Follow until `stop` is set; SourceError when the connection is lost (the next call goes on where it was).

        The log of a container that has ended is read once, and again when it is started: each time Podman reads the
        whole file for it.
        """
        while not stop.is_set():
            target = self._target()
            if target is not None and target != self._read_out:
                self._follow_one(target, emit, stop)
                self._read_out = None if target.running else target
            stop.wait(PAUSE)

    def _follow_one(self, target: Target, emit: Callable[[Any], None], stop: threading.Event) -> None:
        self._begin(target, emit)
        since = self._resume.since()
        tail = self._history if since is None else None
        try:
            for raw in self._lines(target, stop, since, tail):
                if self._resume.is_new(raw):
                    self._emit(raw, emit)
        except SourceError as error:
            if error.kind != "protocol":
                raise

    def _lines(self, target: Target, stop: threading.Event, since: int | None, tail: int | None) -> Iterator[RawLine]:
        """From Podman, or from the unit's journal where Podman keeps no log and the unit has it."""
        if target.log_driver == "none":
            raise SourceError("unavailable", "Podman keeps no log of this container (log driver none)", NO_LOG_HINT)
        if target.log_driver not in PASSED_ON:
            yield from self._follow(target.url, target.id, stop, since=since, tail=tail)
        elif target.unit is None:
            what = f"Podman passes this container's log on ({target.log_driver}), and no unit is known that has it"
            raise SourceError("unavailable", what, NO_LOG_HINT)
        else:
            yield from self._follow_journal(
                target.unit, lambda: stop.is_set() or self._elsewhere(target), since, tail, target.user_unit
            )

    def _elsewhere(self, target: Target) -> bool:
        """True when the log is to be had somewhere else now. The unit's journal goes on while its container is gone,
        and through those that the unit makes anew."""
        now = self._target()
        return now is not None and (now.unit != target.unit or now.log_driver not in PASSED_ON)

    def _begin(self, target: Target, emit: Callable[[Any], None]) -> None:
        """A container made anew has a log of its own: told with a mark, and read from its first line."""
        if self._id is not None and target.id != self._id:
            emit(LogLine(time.time(), MARK, f"container {target.name} was made anew: {target.id[:12]}"))
        if target.id != self._id:
            self._id = target.id
            self._resume = Resume()

    def _emit(self, raw: RawLine, emit: Callable[[Any], None]) -> None:
        for line in self._reader.read(raw):
            emit(line)
            for event in self._events.feed(line):
                if event.wall >= self._events_from:
                    emit(event)
                    self._told(event)
