"""The followed log: through breaks, a container made anew, a service that goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from console.core.model import Event, LogLine, SourceError
from console.core.podman_frames import RawLine
from console.sources import logs
from console.sources.container import Target
from console.sources.logs import LogStream


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE", 0.0)


def target(identity: str = "a") -> Target:
    return Target("unix:///x", identity * 64, "triton", True, 1)


class Server:
    """Follow calls in turn: each serves what its log holds since the time asked for, then ends or fails."""

    def __init__(self, *turns: list[RawLine] | SourceError) -> None:
        self.turns = list(turns)
        self.asked: list[tuple[int | None, int | None]] = []
        self.stop = threading.Event()

    def follow(
        self, url: str, identity: str, stop: threading.Event, since: int | None, tail: int | None
    ) -> Iterator[RawLine]:
        self.asked.append((since, tail))
        turn = self.turns.pop(0)
        if not self.turns:
            self.stop.set()
        if isinstance(turn, SourceError):
            raise turn
        yield from (line for line in turn if since is None or (line.wall or 0) >= since)


def line(wall: float, text: str) -> RawLine:
    return RawLine(wall, "stderr", text.encode())


def run(server: Server, where: Callable[[], Target | None] = target, now: float = 0.0) -> list[LogLine | Event]:
    stream = LogStream(where, 7, server.follow, wall=lambda: now)
    seen: list[LogLine | Event] = []
    while not server.stop.is_set():
        try:
            stream.run(seen.append, server.stop)
        except SourceError:
            continue
    return seen


def test_nothing_doubles_when_the_container_restarts() -> None:
    one = [line(1.0, "a"), line(2.0, "b"), line(2.0, "c")]
    server = Server(one, SourceError("unavailable", "gone"), [*one, line(2.0, "d"), line(3.0, "e")])
    assert [item.text for item in run(server)] == ["a", "b", "c", "d", "e"]
    assert server.asked == [(None, 7), (1, None), (1, None)]


def test_a_container_made_anew_is_marked_and_read_from_its_start() -> None:
    server = Server([line(5.0, "old")], [line(1.0, "new")])
    targets = iter([target("a"), target("b")])
    seen = run(server, lambda: next(targets))
    assert [item.text for item in seen] == ["old", f"container triton was made anew: {'b' * 12}", "new"]
    mark = seen[1]
    assert isinstance(mark, LogLine)
    assert mark.stream == logs.MARK
    assert server.asked == [(None, 7), (None, 7)]


def test_events_come_from_new_lines_only() -> None:
    prefix = "I0704 13:39:57.501 1 model_lifecycle.cc:472] "
    server = Server([line(1.0, prefix + "loading: old:1"), line(100.0, prefix + "loading: rank:2")])
    events = [item for item in run(server, now=50.0) if isinstance(item, Event)]
    assert [event.text for event in events] == ["rank 2 is loading"]


def test_who_listens_hears_the_events_that_are_told() -> None:
    prefix = "I0704 13:39:57.501 1 model_lifecycle.cc:472] "
    server = Server([line(1.0, prefix + "loading: old:1"), line(100.0, prefix + "loading: rank:2")])
    heard: list[Event] = []
    stream = LogStream(target, 7, server.follow, wall=lambda: 50.0, told=heard.append)
    stream.run(lambda item: None, server.stop)
    assert [event.kind for event in heard] == ["model.loading"]


def test_a_container_that_vanished_is_waited_for() -> None:
    server = Server(SourceError("protocol", "404"), [line(1.0, "a")])
    assert [item.text for item in run(server)] == ["a"]


def test_no_container_is_waited_for() -> None:
    targets = iter([None, target("a")])
    server = Server([line(1.0, "a")])
    assert [item.text for item in run(server, lambda: next(targets))] == ["a"]


def test_an_ended_containers_log_is_read_once_per_start() -> None:
    ended = Target("unix:///x", "a" * 64, "triton", False, None, 5.0)
    again = Target("unix:///x", "a" * 64, "triton", False, None, 6.0)
    targets = iter([ended, ended, ended, again])
    one = [line(1.0, "a")]
    server = Server(one, [*one, line(2.0, "b")])
    assert [item.text for item in run(server, lambda: next(targets))] == ["a", "b"]


def test_a_lost_service_is_told_to_the_follower() -> None:
    stream = LogStream(target, 7, Server(SourceError("unavailable", "refused"), []).follow)
    with pytest.raises(SourceError, match="refused"):
        stream.run(lambda item: None, threading.Event())


# ------------------------------------------------------------------------------------- logs that Podman does not keep


def owned(driver: str, unit: str | None = "triton.service", identity: str = "a") -> Target:
    return Target("unix:///x", identity * 64, "triton", True, 1, log_driver=driver, unit=unit)


@pytest.mark.parametrize(
    ("where", "said"),
    [(owned("none"), "keeps no log"), (owned("passthrough", None), "no unit is known that has it")],
)
def test_a_log_that_nobody_keeps_says_so(where: Target, said: str) -> None:
    stream = LogStream(lambda: where, follow=Server([]).follow)
    with pytest.raises(SourceError, match=said) as caught:
        stream.run(lambda item: None, threading.Event())
    assert "--log-driver=journald" in caught.value.hint


def test_what_podman_passes_on_comes_from_the_units_journal_through_a_container_made_anew() -> None:
    stop = threading.Event()
    now = [owned("passthrough")]
    asked: list[tuple[str, int | None, int | None, bool]] = []

    def journal(
        unit: str, ended: Callable[[], bool], since: int | None, tail: int | None, user: bool
    ) -> Iterator[RawLine]:
        asked.append((unit, since, tail, user))
        yield RawLine(1.0, "journal", b"E0704 13:39:57.501 1 server.cc:674] broken")
        now[0] = owned("passthrough", identity="b")
        assert not ended(), "another container of the same unit is in the same journal"
        yield RawLine(2.0, "journal", b"up again")
        now[0] = owned("k8s-file", identity="c")
        assert ended()
        stop.set()

    seen: list[LogLine] = []
    LogStream(lambda: now[0], 7, Server([]).follow, journal).run(seen.append, stop)
    assert asked == [("triton.service", None, 7, False)]
    assert [(one.stream, one.level, one.text) for one in seen] == [
        ("journal", "E", "broken"),
        ("journal", None, "up again"),
    ]
