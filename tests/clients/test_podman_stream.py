"""Podman's endless answers: recorded bytes, cut anywhere; ended by the stop event; errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.clients import podman_stream, podman_wire
from console.core.model import SourceError
from tests.fakes.libpod import DATA, RUNNING, FakeLibpod, Request

LOGS = f"/containers/{RUNNING[0]}/logs"


@pytest.fixture
def libpod(tmp_path: Path) -> Iterator[FakeLibpod]:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        yield fake


def test_recent_log(libpod: FakeLibpod) -> None:
    libpod.routes[LOGS] = (200, (DATA / "logs_long_line.bin").read_bytes())
    lines = podman_stream.recent_log(libpod.url, RUNNING[0], 10, since=5)
    assert [line.data[:6] for line in lines] == [b"before", b"xxxxxx", b"bad \xff\xfe", b"no new"]
    path, query = libpod.calls[-1]
    assert path == LOGS
    assert (query["tail"], query["since"], query["follow"], query["timestamps"]) == ("10", "5", "false", "true")


def test_follow_ends_with_the_stop_event(libpod: FakeLibpod) -> None:
    frames = (DATA / "logs_server.bin").read_bytes()

    def serve(request: Request) -> None:
        request.start_stream()
        for position in range(0, len(frames), 37):
            request.send_chunk(frames[position : position + 37])
        libpod.stop.wait(30)

    libpod.routes[LOGS] = serve
    stop = threading.Event()
    seen = []
    for line in podman_stream.follow_log(libpod.url, RUNNING[0], stop, tail=20):
        seen.append(line)
        if len(seen) == 20:
            threading.Timer(0.1, stop.set).start()
    assert len(seen) == 20
    assert all(line.data.startswith(b"I1130") for line in seen)


def test_headers_kept_back_do_not_hold_the_stop_event(libpod: FakeLibpod) -> None:
    """Podman before 5.3 sends none before the first line."""
    libpod.routes[LOGS] = lambda request: libpod.stop.wait(30)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert list(podman_stream.follow_log(libpod.url, RUNNING[0], stop)) == []


def test_a_quiet_stream_keeps_its_connection(libpod: FakeLibpod) -> None:
    def serve(request: Request) -> None:
        request.start_stream()
        libpod.stop.wait(3 * podman_wire.TURN)
        request.send_chunk(b"\x01\0\0\0\0\0\0\x02a\n")
        request.send_chunk(b"")

    libpod.routes[LOGS] = serve
    assert [line.data for line in podman_stream.follow_log(libpod.url, RUNNING[0], threading.Event())] == [b"a"]
    assert len(libpod.calls) == 1


def test_a_time_limit_ends_it(libpod: FakeLibpod) -> None:
    libpod.routes[LOGS] = lambda request: libpod.stop.wait(30)
    began = time.monotonic()
    assert podman_stream.recent_log(libpod.url, RUNNING[0], 1, limit_s=0.2) == []
    assert time.monotonic() - began < 20


def test_a_lost_connection_is_an_error(libpod: FakeLibpod) -> None:
    def serve(request: Request) -> None:
        request.start_stream()
        request.send_chunk(b"\x01\0\0\0\0\0\0\x02a\n")
        request.close_connection = True

    libpod.routes[LOGS] = serve
    lines = podman_stream.follow_log(libpod.url, RUNNING[0], threading.Event())
    assert next(lines).data == b"a"
    with pytest.raises(SourceError, match="the stream ended") as caught:
        next(lines)
    assert caught.value.kind == "unavailable"


def test_no_service_and_no_container(libpod: FakeLibpod, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="404") as caught:
        podman_stream.recent_log(libpod.url, "absent", 5)
    assert caught.value.kind == "protocol"
    with pytest.raises(SourceError) as caught:
        podman_stream.recent_log(f"unix://{tmp_path}/none.sock", "x", 5)
    assert caught.value.kind == "unavailable"
    with pytest.raises(SourceError):
        podman_stream.recent_log("tcp://127.0.0.1:1", "x", 5)


def test_events(libpod: FakeLibpod) -> None:
    body = (DATA / "events.jsonl").read_bytes()

    def serve(request: Request) -> None:
        request.start_stream()
        for position in range(0, len(body), 1000):
            request.send_chunk(body[position : position + 1000])
        request.send_chunk(b'not json\n\xff\n\n{"Action":"half')
        request.send_chunk(b"")

    libpod.routes["/events"] = serve
    found = list(podman_stream.events(libpod.url, threading.Event(), since=7, follow=False, limit_s=5))
    died = [one for one in found if one.action == "died" and (one.actor.attributes or {}).get("name") == "exited"]
    assert [(one.actor.attributes or {})["containerExitCode"] for one in died] == ["126"]
    assert all(one.wall > 1.7e9 for one in found)
    assert libpod.calls[-1][1]["since"] == "7"


def test_a_clock_that_is_set_back_ends_the_events(libpod: FakeLibpod, monkeypatch: pytest.MonkeyPatch) -> None:
    off = [0.0]
    clock = SimpleNamespace(time=lambda: time.time() + off[0], monotonic=time.monotonic)
    monkeypatch.setattr(podman_stream, "time", clock)

    def serve(request: Request) -> None:
        request.start_stream()
        off[0] = -60.0
        libpod.stop.wait(30)

    libpod.routes["/events"] = serve
    assert list(podman_stream.events(libpod.url, threading.Event(), since=7)) == []
