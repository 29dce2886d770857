"""Libpod's answers recorded from Podman 5.4.2 (Debian 13, rootful, cgroup v1) through the same structs as 4.3.1's."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.actions.container_spec import capture
from console.clients import libpod
from console.clients.libpod import Inspect, Listed

DATA = Path(__file__).parents[1] / "data" / "podman" / "v5"


def inspected(name: str) -> Inspect:
    return msgspec.json.decode((DATA / name).read_bytes(), type=Inspect)


def test_a_running_container() -> None:
    state = libpod.container_state(inspected("inspect_running.json"), "name")
    assert (state.state, state.control_mode, state.exit_timeout, state.stop_timeout) == ("running", "explicit", 30, 60)
    assert state.pid
    assert [port.container_port for port in state.ports] == [8000, 8001, 8002]
    assert [(mount.target, mount.read_only) for mount in state.mounts][-1] == ("/models", True)
    assert (state.shm_size, state.exit_code, state.cdi) == (128 << 20, None, ("gpuconsole.test/gpu=all",))
    assert state.ulimits["nofile"]
    assert state.health


def test_an_exited_container() -> None:
    state = libpod.container_state(inspected("inspect_exited.json"), "name")
    assert (state.state, state.exit_code, state.pid) == ("exited", 0, None)
    assert state.finished_wall
    assert state.started_wall
    assert [port.host_port for port in state.ports], "those that it had are told"


def test_the_list_the_images_and_a_sample() -> None:
    (listed,) = msgspec.json.decode((DATA / "containers.json").read_bytes(), type=list[Listed])
    assert (listed.state, listed.name[:4]) == ("running", "own-")
    images = msgspec.json.decode((DATA / "images.json").read_bytes(), type=list[libpod.Image])
    assert libpod.is_triton_image((images[0].names or [""])[0])
    sample = msgspec.json.decode((DATA / "stats.json").read_bytes(), type=libpod.StatsAnswer)
    assert sample.stats
    assert sample.stats[0].memory
    assert sample.stats[0].cpu_nano


def test_events() -> None:
    lines = (DATA / "events.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=libpod.PodmanEvent) for line in lines]
    assert {event.kind for event in events} == {"container"}
    assert all(event.wall and event.actor.id for event in events)


def test_the_annotations_that_podman_5_makes_itself_are_not_carried_over() -> None:
    """They hold the stop time as it was: kept, they would go against a changed one."""
    answer = msgspec.json.decode((DATA / "inspect_running.json").read_bytes())
    assert "org.systemd.property.TimeoutStopUSec" in answer["Config"]["Annotations"]
    assert "annotations" not in capture(answer, {}).body
