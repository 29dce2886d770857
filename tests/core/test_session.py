"""A session starts, reads on demand and stops all of its threads; one made later tells what prevents it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from console.core.model import Asked, Event, Gaps, Reading, SourceError
from console.core.session import Later, Session

WAIT = 10.0
"""Seconds after which a test gives up; none waits that long when it passes."""


class Counter:
    """A source that counts its reads."""

    name, interval = "count", 3600.0

    def __init__(self) -> None:
        self.reads = 0
        self.closed = 0

    def open(self) -> None:
        """Nothing to open."""

    def read(self) -> Any:
        self.reads += 1
        return self.reads

    def close(self) -> None:
        self.closed += 1


class Told:
    """A stream that emits one word and rests."""

    name = "told"

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        emit("word")
        stop.wait()


class Heard:
    """Both callbacks, to wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.values: list[Any] = []
        self.emitted: list[Any] = []

    def publish(self, reading: Reading[Any]) -> None:
        with self._changed:
            self.values.append(reading.value)
            self._changed.notify_all()

    def emit(self, told: Any) -> None:
        with self._changed:
            self.emitted.append(told)
            self._changed.notify_all()

    def until(self, ready: Callable[[], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(ready, WAIT)


PAST = Event(1.0, "note", "x", "(journal)")


def test_all_is_started_read_on_demand_and_stopped() -> None:
    source, heard, closed = Counter(), Heard(), []
    session = Session((source,), (Told(),), backfill=(lambda: [PAST],), close=lambda: closed.append(1))
    session.start(heard.publish, heard.emit)
    assert heard.until(lambda: 1 in heard.values and len(heard.emitted) == 2)
    assert "word" in heard.emitted
    assert PAST in heard.emitted
    session.read_now("count")
    assert heard.until(lambda: 2 in heard.values)
    session.read_now("no such part")
    session.stop(WAIT)
    assert closed == [1]
    assert session.ask is None
    assert session.simulated is None


class Broken:
    """A stream that cannot run."""

    name = "logs"

    def __init__(self) -> None:
        self.tried = threading.Semaphore(0)

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        self.tried.release()
        raise SourceError("unavailable", "no socket")


class Places:
    """What of the past was read."""

    def unread(self) -> dict[str, str]:
        return {"journal": "no systemd", "a": "x"}

    def found(self) -> dict[str, int]:
        return {"kernel": 1}


def test_gaps_of_past_streams_and_drops() -> None:
    broken = Broken()
    session = Session((), (Told(), broken), past=Places(), dropped=lambda: {"events": 3, "lines": 0})
    before = session.gaps()
    assert before == Gaps((("a", "x"), ("journal", "no systemd")), (("kernel", 1),), (), (("events", 3),))
    session.start(lambda reading: None, lambda item: None)
    assert broken.tried.acquire(timeout=WAIT)
    assert broken.tried.acquire(timeout=WAIT)
    standing = session.gaps().stands("logs")
    assert standing is not None
    assert standing.failure.message == "no socket"
    assert session.gaps().stands("told") is None
    session.stop(WAIT)
    assert Session(()).gaps() == Gaps()


def test_a_session_made_later() -> None:
    source, heard, made = Counter(), Heard(), threading.Event()

    def make() -> Session:
        made.wait(WAIT)
        return Session(
            (source,),
            ask=lambda model, version: Asked(model, version, True, 1.0, 2.0, "fine"),
            dropped=lambda: {"events": 1},
        )

    session = Later(make, simulated="healthy")
    session.start(heard.publish, heard.emit)
    session.read_now("count")
    assert session.ask is not None
    assert session.gaps() == Gaps()
    early = session.ask("m", "1")
    assert (early.ok, early.model, early.version, early.millis) == (None, "m", "1", None)
    assert "try again" in early.text
    made.set()
    assert heard.until(lambda: heard.values == [1])
    assert session.ask("m", None).ok
    assert session.gaps().dropped == (("events", 1),)
    session.read_now("count")
    assert heard.until(lambda: 2 in heard.values)
    session.stop(WAIT)
    assert session.simulated == "healthy"


def test_what_prevents_a_session_is_told() -> None:
    heard = Heard()

    def make() -> Session:
        raise SourceError("unavailable", "no simulator")

    session = Later(make)
    session.start(heard.publish, heard.emit)
    assert heard.until(lambda: bool(heard.emitted))
    [event] = heard.emitted
    assert (event.sign, event.text, event.kind) == ("fail", "no simulator", "session")
    assert session.ask is not None
    assert not session.ask("m", None).ok
    session.stop()


def test_a_session_stopped_before_it_is_made_never_starts() -> None:
    source, heard, asked, go = Counter(), Heard(), threading.Event(), threading.Event()

    def make() -> Session:
        asked.set()
        go.wait(WAIT)
        return Session((source,))

    session = Later(make)
    session.start(heard.publish, heard.emit)
    assert asked.wait(WAIT)
    session.stop()
    go.set()
    for thread in threading.enumerate():
        if thread.name == "session":
            thread.join(WAIT)
    assert source.reads == 0
    assert heard.values == []
