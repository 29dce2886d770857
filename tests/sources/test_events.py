"""Events as they happen, the outbox, and the past."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import msgspec
import pytest

from console.clients import commands, journal
from console.clients.libpod import PodmanEvent
from console.core.model import Event, SourceError
from console.sources import events
from console.sources.container import Target
from console.sources.events import Outbox, Past, PodmanEvents, is_ours
from tests.clients.test_cgroup import put
from tests.fakes.libpod import DATA, RUNNING, FakeLibpod, Request


@pytest.fixture
def libpod(tmp_path: Path) -> Iterator[FakeLibpod]:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        yield fake


def target(url: str = "unix:///x") -> Target:
    return Target(url, RUNNING[0], "triton", True, 1)


def told(wall: float, action: str, name: str = "triton", **attributes: str) -> PodmanEvent:
    data = {
        "Type": "container", "Action": action, "timeNano": int(wall * 1e9),
        "Actor": {"ID": name, "Attributes": {"name": name, **attributes}},
        "HealthStatus": attributes.get("status", ""),
    }  # fmt: skip
    return msgspec.convert(data, PodmanEvent)


class Service:
    """The event stream in turns; the last one sets the stop event."""

    def __init__(self, *turns: list[PodmanEvent] | SourceError) -> None:
        self.turns = list(turns)
        self.asked: list[int] = []
        self.stop = threading.Event()

    def stream(self, url: str, stop: threading.Event, since: int) -> Iterator[PodmanEvent]:
        self.asked.append(since)
        turn = self.turns.pop(0)
        if not self.turns:
            self.stop.set()
        if isinstance(turn, SourceError):
            raise turn
        yield from turn


def run(service: Service, changed: list[int] | None = None) -> list[Event]:
    clock = chain([100.5], repeat(200.0))
    changes = [] if changed is None else changed
    stream = PodmanEvents(target, lambda: "unix:///x", lambda: changes.append(1), service.stream, lambda: next(clock))
    seen: list[Event] = []
    while not service.stop.is_set():
        try:
            stream.run(seen.append, service.stop)
        except SourceError:
            continue
    return seen


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.0)


@pytest.mark.usefixtures("no_pause")
def test_our_containers_events_once_each_through_a_lost_service() -> None:
    first = [told(99.0, "start"), told(101.0, "died", containerExitCode="137"), told(101.5, "start", "other")]
    service = Service(first, SourceError("unavailable", "gone"), [*first, told(102.0, "start"), told(103.0, "init")])
    changed = [0]
    assert [event.text for event in run(service, changed)] == [
        "container triton ended, exit 137",
        "container triton started",
    ]
    assert len(changed) == 3
    assert service.asked == [100, 101, 101]


@pytest.mark.usefixtures("no_pause")
def test_a_clock_set_back_holds_nothing_up() -> None:
    service = Service([told(101.0, "start")], [told(40.0, "died", containerExitCode="1"), told(41.0, "start")])
    clock = iter([100.5, 100.6, 39.0])
    stream = PodmanEvents(target, lambda: "unix:///x", stream=service.stream, wall=lambda: next(clock))
    seen: list[Event] = []
    stream.run(seen.append, service.stop)
    assert [event.wall for event in seen] == [101.0, 40.0, 41.0]
    assert service.asked == [100, 39]


@pytest.mark.usefixtures("no_pause")
def test_health_is_told_when_it_changes() -> None:
    walls = [(101.0, "healthy"), (102.0, "healthy"), (103.0, "unhealthy")]
    service = Service([told(wall, "health_status", status=status) for wall, status in walls])
    assert [event.kind for event in run(service)] == ["health.healthy", "health.unhealthy"]


@pytest.mark.usefixtures("no_pause")
def test_without_podman_it_waits() -> None:
    stop = threading.Event()
    asked: list[int] = []

    def url() -> None:
        asked.append(1)
        if len(asked) == 3:
            stop.set()

    PodmanEvents(target, url).run(lambda item: None, stop)
    assert len(asked) == 3


def test_whose_event() -> None:
    assert is_ours(RUNNING[0], {}, target())
    assert is_ours("new identity", {"name": "triton"}, target())
    assert not is_ours("x", {"name": "web"}, target())
    assert is_ours("x", {"image": "nvcr.io/nvidia/tritonserver:24.05-py3"}, None)
    assert is_ours("x", {"name": "triton"}, None)
    assert not is_ours("x", {"name": "web"}, None)


def test_outbox() -> None:
    box = Outbox()
    stop = threading.Event()
    seen: list[Event] = []

    def emit(event: Event) -> None:
        seen.append(event)
        stop.set()

    for number in range(1001):
        box.put(Event(float(number), "ok", "x", "y"))
    assert box.dropped == 1
    box.run(emit, stop)
    assert [event.wall for event in seen] == [0.0]
    timer = threading.Timer(0.05, stop.set)
    stop.clear()
    timer.start()
    Outbox().run(emit, stop)


# ------------------------------------------------------------------------------------------------------------ the past

LONG_AGO = 24 * 365 * 100.0


def past(root: Path, where: Target | None = None, **more: object) -> Past:
    return Past(lambda: where, root=root, wait_s=0.0, hours=LONG_AGO, **more)  # type: ignore[arg-type]


def read(reader: Past) -> list[Event]:
    return [event for place in reader.readers() for event in place()]


def test_nothing_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    reader = past(tmp_path)
    assert read(reader) == []
    assert set(reader.unread()) == {"server log", "podman", "journal", "kernel", "packages"}
    assert "rpm is not installed" in reader.unread()["packages"]
    assert reader.found() == {}


def test_everything_there(libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = (
        b'2026-11-30T10:41:07Z I1130 10:41:07.250000 1 model_lifecycle.cc:472] "loading: rank:1"\n',
        b"2026-11-30T10:41:08Z E1130 10:41:08.250000 1 model_lifecycle.cc:642] "
        b"\"failed to load 'rank' version 1: Internal: boom\"\n",
    )
    libpod.routes[f"/containers/{RUNNING[0]}/logs"] = (
        200, b"".join(b"\x02\0\0\0" + len(one).to_bytes(4, "big") + one for one in (*log, *log[1:])),
    )  # fmt: skip
    libpod.routes["/events"] = (200, (DATA / "events.jsonl").read_bytes())
    put(
        tmp_path,
        **{
            "proc/stat": "cpu 1 2 3\nbtime 1796034685\n",
            "proc/sys/kernel/osrelease": "4.18.0\n",
            "var/log/dpkg.log": "2026-11-30 10:35:01 install podman:amd64 <none> 4.3.1\n",
        },
    )
    entries = [journal.JournalEntry(1796035000.0, "t: Main process exited, code=exited, status=126/n/a", "c")]
    monkeypatch.setattr(journal, "unit_entries", lambda unit, since, user: entries)
    reader = past(tmp_path, target(libpod.url), unit=lambda: "triton.service")
    found = read(reader)
    assert reader.unread() == {}
    assert set(reader.found()) == {"server log", "podman", "journal", "kernel", "packages"}
    by_origin = {event.origin: event for event in found}
    assert set(by_origin) == {"(server log)", "(podman)", "(journal)", "(kernel)", "(dpkg)"}
    assert by_origin["(server log)"].repeats == 2, "the same failure again is counted"
    assert by_origin["(server log)"].wall == pytest.approx(1796035268.25)
    assert by_origin["(kernel)"].text == "host booted, kernel 4.18.0"
    assert "container triton started" in [event.text for event in found]
    assert not [event for event in found if "longline" in event.text]


def test_only_the_last_hours_but_always_the_boot(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{
            "proc/stat": "btime 5\n",
            "var/log/dnf.rpm.log": "2020-07-06T02:57:40+0800 SUBDEBUG Upgrade: podman-4.9.4-12.x86_64\n",
        },
    )
    reader = Past(lambda: None, root=tmp_path, wait_s=0.0, hours=1.0)
    assert [event.kind for event in read(reader)] == ["boot"]


def test_rpm_database_where_there_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = b"podman-4.9.4-12.x86_64   Sat Jul  6 02:57:40 2024\n"
    monkeypatch.setattr(commands, "run", lambda argv, limit: commands.Output(0, listed, b""))
    assert [event.text for event in past(tmp_path).package_log()] == ["rpm: podman 4.9.4-12 installed"]
    monkeypatch.setattr(commands, "run", lambda argv, limit: commands.Output(1, b"", b""))
    with pytest.raises(SourceError, match="no package log"):
        past(tmp_path).package_log()


def test_it_waits_for_the_container(libpod: FakeLibpod, tmp_path: Path) -> None:
    answers = iter([None, None, None, target(libpod.url), target(libpod.url), target(libpod.url)])
    reader = Past(lambda: next(answers), root=tmp_path, hours=LONG_AGO, wait_s=5.0)
    assert reader.server_log() == []


def test_a_log_that_never_ends_is_cut_by_time(
    libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LIMIT_S", 0.2)

    def serve(request: Request) -> None:
        request.start_stream()
        libpod.stop.wait(20)

    libpod.routes["/events"] = serve
    assert past(tmp_path, target(libpod.url)).podman() == []


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_LOG_BYTES", 10)
    (tmp_path / "log").write_text("first line\nlast line\n")
    assert events._tail(tmp_path / "log") == ["last line"]
    assert events._tail(tmp_path / "none") is None
