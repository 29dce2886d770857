"""Pollers keep the last good value, say why the newest failed, and never hold up exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from console.core import poller as poller_module
from console.core.model import Event, Failure, LogLine, Reading, SourceError
from console.core.poller import Follower, Poller
from console.core.session import Session


class Scripted:
    """A source that plays a list: a value is returned, an exception raised."""

    name = "host"
    interval = 0.01

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.opened = 0
        self.closed = 0

    def open(self) -> None:
        self.opened += 1

    def read(self) -> Any:
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed += 1


def test_a_failure_keeps_the_last_good_value_and_its_age() -> None:
    source = Scripted(1, SourceError("timeout", "podman timed out", "restart it"), SourceError("timeout", "again"), 2)
    poller = Poller(source, lambda reading: None)
    first, second, third, fourth = (poller.step() for _ in range(4))
    assert (first.value, first.error, first.reads) == (1, None, 1)
    assert second.value == 1
    assert second.mono == first.mono
    assert second.error is not None
    assert (second.error.kind, second.error.message, second.error.hint) == ("timeout", "podman timed out", "restart it")
    assert third.error_mono == second.error_mono, "one run of failures has one beginning"
    assert (fourth.value, fourth.error, fourth.error_mono, fourth.reads) == (2, None, None, 2)
    assert source.opened == 3, "the client is made anew after each failure"
    assert source.closed == 2


def test_a_bug_in_a_source_is_shown_as_one() -> None:
    reading = Poller(Scripted(ZeroDivisionError("x")), lambda reading: None).step()
    assert reading.error is not None
    assert reading.error.kind == "bug"
    assert "ZeroDivisionError" in reading.error.message
    assert reading.value is None


def test_age_and_old() -> None:
    reading: Reading[int] = Reading("host", 1.0, 1, 100.0, 50.0)
    assert reading.age(51.5) == 1.5
    assert not reading.is_old(52.9)
    assert reading.is_old(53.1)
    assert Reading("host", 1.0).age(50.0) is None
    assert not Reading("host", 1.0).tried


def test_a_failing_source_is_asked_less_often_but_within_one_breath() -> None:
    poller = Poller(Scripted(*[SourceError("unavailable", "x")] * 12), lambda reading: None)
    pauses = []
    for _ in range(12):
        poller.step()
        pauses.append(poller._pause())
    assert pauses[0] < pauses[2] < pauses[-1] == 5.0


def test_the_thread_publishes_until_stopped_and_reads_now_on_demand() -> None:
    arrived: list[Reading[Any]] = []
    three = threading.Event()

    class Counting(Scripted):
        interval = 60.0

        def read(self) -> int:
            return len(arrived)

    def publish(reading: Reading[Any]) -> None:
        arrived.append(reading)
        if len(arrived) == 3:
            three.set()
        else:
            poller.read_now()

    poller = Poller(Counting(), publish)
    poller.start()
    assert three.wait(5)
    poller.stop()
    assert poller.join(5)
    assert [reading.value for reading in arrived[:3]] == [0, 1, 2]


def test_a_hung_read_never_holds_up_the_end() -> None:
    release = threading.Event()

    class Hung(Scripted):
        def read(self) -> None:
            release.wait(30)

    poller = Poller(Hung(), lambda reading: None)
    poller.start()
    poller.stop()
    assert not poller.join(0.05)
    assert poller._thread.daemon
    release.set()
    assert poller.join(5)


class Lines:
    """A stream that ends twice before it is stopped."""

    name = "log"

    def __init__(self) -> None:
        self.runs = 0

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        self.runs += 1
        emit(LogLine(None, "stdout", f"run {self.runs}"))
        if self.runs == 1:
            raise SourceError("unavailable", "service went away")
        stop.wait(5)


def test_a_stream_is_started_again_and_tells_why_it_ended() -> None:
    seen: list[LogLine] = []
    twice = threading.Event()

    def emit(line: LogLine) -> None:
        seen.append(line)
        if len(seen) == 2:
            twice.set()

    follower = Follower(Lines(), emit)
    follower.start()
    assert twice.wait(5)
    follower.stop()
    assert follower.join(5)
    assert [line.text for line in seen] == ["run 1", "run 2"]


class Failing:
    """A stream that fails until it is let through, and then tells or is silent."""

    name = "logs"

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.tried = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.end = threading.Event()
        self.tells = True

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        self.tried.release()
        self.go.acquire(timeout=10)
        if self.errors:
            raise self.errors.pop(0)
        if self.tells:
            emit("x")
        self.tried.release()
        self.end.wait(10)


def test_a_stream_stands_from_its_first_failure_until_it_tells_something(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Failing()
    stream.errors = [SourceError("unavailable", "gone"), RuntimeError("boom")]
    follower = Follower(stream, lambda item: None)
    monkeypatch.setattr(follower._stop, "wait", lambda pause: follower._stop.is_set())
    follower.start()
    found = []
    for _ in range(3):
        assert stream.tried.acquire(timeout=5)
        found.append(follower.standing)
        stream.go.release()
    assert stream.tried.acquire(timeout=5)
    assert follower.standing is None
    first, gone, boom = found
    assert first is None
    assert gone is not None
    assert (gone.stream, gone.failure) == ("logs", Failure("unavailable", "gone"))
    assert boom is not None
    assert (boom.failure.kind, boom.failure.message) == ("bug", "RuntimeError: boom")
    assert boom.since_mono == gone.since_mono
    follower.stop()
    stream.end.set()


def test_a_silent_stream_that_runs_for_a_while_does_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Failing()
    stream.errors, stream.tells = [SourceError("unavailable", "gone")], False
    follower = Follower(stream, lambda item: None)
    monkeypatch.setattr(follower._stop, "wait", lambda pause: follower._stop.is_set())
    follower.start()
    stream.go.release()
    stream.go.release()
    for _ in range(3):
        assert stream.tried.acquire(timeout=5)
    assert follower.standing is not None, "trying again is not yet running"
    monkeypatch.setattr(poller_module, "MAX_BACKOFF", -1.0)
    assert follower.standing is None
    follower.stop()
    stream.end.set()


def test_a_session_starts_all_and_stops_in_bounded_time() -> None:
    arrived: list[Any] = []
    both = threading.Event()
    closed: list[bool] = []

    def take(item: Any) -> None:
        arrived.append(item)
        kinds = {type(one) for one in arrived}
        if {Reading, Event} <= kinds:
            both.set()

    class Steady(Scripted):
        def read(self) -> int:
            return 1

    session = Session(
        [Steady()],
        [Lines()],
        backfill=[lambda: [Event(1.0, "note", "host booted", "(kernel)")]],
        close=lambda: closed.append(True),
    )
    session.start(take, take)
    assert both.wait(5)
    session.read_now("host")
    session.read_now("no such part")
    began = time.monotonic()
    session.stop(0.5)
    assert time.monotonic() - began < 5
    assert closed == [True]
