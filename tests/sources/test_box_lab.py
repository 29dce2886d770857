"""Container, host, log and events against the lab's real Podman and Triton."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable

import pytest

from console.clients.podman_stream import recent_log
from console.core.model import ContainerState, Event, LogLine, PodmanState
from console.core.poller import Follower, Poller
from console.core.triton_command import http_ports, model_repositories
from console.core.triton_log import LineReader
from console.sources.container import ContainerSettings, ContainerSource
from console.sources.events import Past, PodmanEvents
from console.sources.host import HostSource
from console.sources.logs import LogStream
from tests.lab import podman, processes
from tests.lab.fixtures import Lab

pytestmark = pytest.mark.lab


def found(lab: Lab) -> tuple[ContainerSource, PodmanState, ContainerState]:
    source = ContainerSource(ContainerSettings(socket=lab.podman_url))
    source.open()
    state = source.read()
    assert state.container is not None
    return source, state, state.container


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


def test_the_container_is_found_and_described(lab: Lab) -> None:
    source, state, container = found(lab)
    assert (container.name, container.state, container.found_by) == (lab.container, "running", "name")
    assert state.api_version is not None
    assert container.control_mode == "explicit"
    assert container.cdi == ("gpuconsole.test/gpu=all",)
    assert "/dev/nvidia0" in container.devices
    ports = http_ports(container)
    assert (ports.host, ports.http) == ("127.0.0.1", lab.port)
    assert model_repositories(container.command, container.mounts) == (("/models", str(lab.repository)),)
    assert any("tritonserver" in image for image in state.images)
    time.sleep(0.5)
    usage = source.read().container
    assert usage is not None
    assert usage.usage.cpu_cores is not None
    assert usage.usage.memory
    assert usage.usage.pids
    assert usage.usage.shm_used, "the Python stubs share memory there"
    source.close()


def test_the_host_knows_the_stubs(lab: Lab) -> None:
    _, _, container = found(lab)
    host = HostSource(lambda: container.pid)
    host.read()
    time.sleep(0.5)
    state = host.read()
    assert {"rank/1", "rank/2", "recall/1"} & set(state.stub_pids)
    assert state.triton_cores is not None
    assert state.triton_rss
    assert state.zombies == ()


def test_the_past(lab: Lab) -> None:
    source, _, _ = found(lab)
    past = Past(source.target, hours=24 * 365)
    events = [event for reader in past.readers() for event in reader()]
    texts = [event.text for event in events]
    assert f"container {lab.container} started" in texts
    assert [event for event in events if event.origin == "(server log)" and event.kind == "model.ready"]
    assert [event for event in events if event.kind == "model.failed"], "one model of the lab fails to load"
    assert [event for event in events if event.kind == "boot"]


def test_a_load_is_told_by_the_log(lab_alone: Lab) -> None:
    source, _, _ = found(lab_alone)
    seen: list[LogLine | Event] = []
    follower = Follower(LogStream(source.target), seen.append)
    follower.start()
    wait_for(lambda: len(seen) > 5)
    _, config = lab_alone.triton("GET", "/v2/models/recall/config")
    changed = config | {"dynamic_batching": {"max_queue_delay_microseconds": 1234}}

    def loads() -> list[Event]:
        return [one for one in seen if isinstance(one, Event) and one.kind == "model.ready" and one.model == "recall"]

    # A load without a change does nothing and logs nothing, and an override stays: so there, and back.
    for count, wanted in ((1, changed), (2, config)):
        body = {"parameters": {"config": json.dumps(wanted)}}
        status, _ = lab_alone.triton("POST", "/v2/repository/models/recall/load", body)
        assert status == 200
        wait_for(lambda count=count: len(loads()) >= count)  # type: ignore[misc]
    assert abs(loads()[0].wall - time.time()) < 60
    follower.stop()
    assert follower.join(5)


def test_restarts_of_the_container_and_of_podmans_service_are_survived(lab_alone: Lab) -> None:
    """Nothing doubles in the log, each event comes once, the source reads again by itself."""
    source, _, before = found(lab_alone)
    seen: list[LogLine | Event] = []
    reader = LineReader()

    def whole() -> list[str]:
        return [line.text for raw in recent_log(lab_alone.podman_url, before.id, None) for line in reader.read(raw)]

    at_first = len(whole())
    log = Follower(LogStream(source.target, history=0), seen.append)
    happened: list[Event] = []
    events = Follower(PodmanEvents(source.target, source.url), happened.append)
    poller = Poller(source, lambda reading: None)
    log.start()
    events.start()
    time.sleep(2)
    podman.run("restart", "-t", "45", lab_alone.container)
    wait_for(lambda: "container.start" in [event.kind for event in happened])
    processes.stop("podman-service")
    assert poller.step().error is not None
    podman.start_service()
    wait_for(lambda: poller.step().error is None)
    after = poller.step().value
    assert after is not None
    assert after.container is not None
    assert (after.container.id, after.container.pid != before.pid) == (before.id, True)
    wait_for(lambda: [one for one in seen if isinstance(one, Event) and one.kind == "server.start"])
    podman.run("stop", "-t", "45", lab_alone.container)
    wait_for(lambda: [event.kind for event in happened].count("container.died") == 2)

    def shown() -> list[str]:
        return [one.text for one in seen if isinstance(one, LogLine)]

    logged = whole()
    assert sum(text.startswith("Started HTTPService") for text in logged) == 2
    with contextlib.suppress(AssertionError):
        wait_for(lambda: len(shown()) >= len(logged) - at_first, 10)
    assert shown() == logged[-len(shown()) :]
    assert len(shown()) >= len(logged) - at_first - 2
    log.stop()
    events.stop()
    assert log.join(5)
    assert events.join(5)
    stopped = poller.step().value
    assert stopped is not None
    assert stopped.container is not None
    assert stopped.container.state == "exited"
    assert stopped.last_log
    assert threading.active_count() < 50
