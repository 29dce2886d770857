"""Libpod's answers: each field's way into a ContainerState, the choice at its edges, and any answer at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import libpod
from console.clients.libpod import Inspect, Listed, PodmanEvent, Ulimit, container_state
from console.core.model import ContainerState, Mount, PortMapping

FULL: dict[str, Any] = {
    "Id": "i" * 64,
    "Name": "triton",
    "Created": "2026-01-01T00:00:01Z",
    "Path": "tritonserver",
    "Args": ["", "--model-repository=/m"],
    "Image": "sha",
    "ImageName": "img:1",
    "RestartCount": 3,
    "State": {
        "Status": "exited",
        "OOMKilled": True,
        "Pid": 7,
        "ExitCode": 137,
        "Error": "no\nway",
        "StartedAt": "2026-01-01T00:00:02Z",
        "FinishedAt": "2026-01-01T00:00:03Z",
        "Health": {"Status": "healthy"},
    },
    "Mounts": [
        {"Type": "volume", "Source": "/s", "Destination": "/d", "RW": False},
        {"Source": "/s2", "Destination": "/d2"},
    ],
    "Config": {"Env": ["CUDA_VERSION=12"], "Labels": {"PODMAN_SYSTEMD_UNIT": "t.service", "a": "b"}, "StopTimeout": 9},
    "HostConfig": {
        "NetworkMode": "bridge",
        "AutoRemove": True,
        "ShmSize": 64,
        "CpusetCpus": "0-3",
        "Devices": [{"PathOnHost": "/dev/h"}, {"PathOnHost": "/dev/h", "PathInContainer": "/dev/c"}],
    },
    "NetworkSettings": {"Ports": {"8001/udp": [{"HostIp": "::", "HostPort": "2"}], "8000": [{"HostPort": "1"}]}},
}


def state(**changes: Any) -> ContainerState:
    return container_state(msgspec.convert({**FULL, **changes}, Inspect), "name", 4.0)


def test_every_field() -> None:
    assert state() == ContainerState(
        id="i" * 64,
        name="triton",
        state="exited",
        found_by="name",
        image="img:1",
        image_id="sha",
        image_created_wall=4.0,
        env_versions={"CUDA_VERSION": "12"},
        command=("tritonserver", "--model-repository=/m"),
        created_wall=1767225601.0,
        started_wall=1767225602.0,
        finished_wall=1767225603.0,
        exit_code=137,
        error="no ⏎ way",
        oom_killed=True,
        restarts=3,
        health="healthy",
        pid=7,
        ports=(PortMapping(8000, "tcp", "", 1), PortMapping(8001, "udp", "", 2)),
        mounts=(Mount("/s", "/d", True, "volume"), Mount("/s2", "/d2", False, "bind")),
        devices=("/dev/h", "/dev/c"),
        network="bridge",
        shm_size=64,
        cpuset="0-3",
        stop_timeout=9,
        auto_remove=True,
        unit="t.service",
        unit_origin="label PODMAN_SYSTEMD_UNIT",
        labels={"PODMAN_SYSTEMD_UNIT": "t.service", "a": "b"},
        control_mode="none",
        strict_readiness=True,
        exit_timeout=30,
    )


def test_an_empty_answer_is_unknown_not_zero() -> None:
    found = container_state(Inspect("x"), "label")
    assert (found.exit_code, found.pid, found.error, found.health, found.network) == (None,) * 5
    assert (found.shm_size, found.cpuset, found.stop_timeout, found.unit, found.unit_origin) == (None,) * 5
    assert (found.started_wall, found.created_wall, found.image_created_wall) == (None,) * 3
    assert (found.oom_killed, found.auto_remove, found.restarts) == (False, False, 0)
    assert (found.ports, found.mounts, found.devices, found.cdi, found.command) == ((),) * 5
    assert found.control_mode is None


@pytest.mark.parametrize("status", ["running", "paused", "stopping"])
def test_a_live_container_has_no_exit_code_though_it_ended_before(status: str) -> None:
    assert state(State={**FULL["State"], "Status": status}).exit_code is None


def test_an_exit_code_of_zero_is_one() -> None:
    assert state(State={**FULL["State"], "ExitCode": 0}).exit_code == 0


def test_health_by_either_name() -> None:
    assert state(State={"Healthcheck": {"Status": "starting"}}).health == "starting"
    assert state(State={"Health": {"Status": ""}}).health is None


def test_errors_are_bounded() -> None:
    error = state(State={"Error": "x" * 5000}).error
    assert error == "x" * 2000 + "… +3000"


@pytest.mark.parametrize(
    ("soft", "hard", "text"),
    [
        (5, 5, "5"),
        (5, 6, "5:6"),
        (-1, -1, "unlimited"),
        (2**64 - 1, 2**63 - 1, "unlimited"),
        (5, -1, "5:unlimited"),
    ],
)
def test_limits(soft: int, hard: int, text: str) -> None:
    assert libpod._limit(Ulimit("RLIMIT_NOFILE", soft, hard)) == text


def test_ports_are_in_order_of_the_containers_and_only_numbers() -> None:
    bindings = [{"HostIp": "1.2.3.4", "HostPort": "9"}, {"HostPort": "8"}, {"HostPort": ""}]
    settings = {"Ports": {"x/tcp": [{"HostPort": "1"}], "9/udp": None, "9/tcp": bindings, "8/tcp": [{"HostPort": "7"}]}}
    assert state(NetworkSettings=settings).ports == (
        PortMapping(8, "tcp", "", 7),
        PortMapping(9, "tcp", "", 8),
        PortMapping(9, "tcp", "1.2.3.4", 9),
    )


def test_device_names() -> None:
    command = ["run", "--device", "nvidia.com/gpu=0", "--device=nvidia.com/gpu=all", "--device=nvidia.com/gpu=0"]
    assert libpod.cdi_names(command) == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert libpod.cdi_names(["--device", "/dev/nvidia0:/dev/x=1"]) == ()
    assert libpod.cdi_names(["x", "--device"]) == ()


def test_times() -> None:
    assert libpod.wall_time("1970-01-01T00:00:01Z") == 1.0
    assert libpod.wall_time("1970-01-01T00:00:00Z") is None
    assert PodmanEvent(time_nano=1_500_000_000, time=9).wall == 1.5
    assert PodmanEvent(time=9).wall == 9.0


def test_what_an_answer_leaves_out() -> None:
    empty = msgspec.convert({"Id": "x" * 64}, Listed)
    assert (empty.name, empty.image, empty.state, empty.started_at, empty.pid, empty.is_infra) == (
        "x" * 12,
        "",
        "",
        0,
        0,
        False,
    )
    assert libpod.ListedPort() == libpod.ListedPort(0, 0, 1, "tcp", "")
    assert libpod.Image("x").created == 0
    assert libpod.OnceStats() == libpod.OnceStats(0, 0, 0, 0)
    assert libpod.State() == libpod.State("", False, 0, 0, 0, "", "", "")
    assert libpod.Config().tty is False
    assert libpod.HostConfig() == libpod.HostConfig("", False, 0, "")
    assert libpod.InspectMount().read_write is True
    assert libpod.Ulimit() == libpod.Ulimit("", 0, 0)
    assert PodmanEvent() == PodmanEvent("", "", libpod.Actor(""), 0, 0, "")


# ------------------------------------------------------------------------------------------------------------- choice


def listed(name: str, **more: Any) -> Listed:
    return msgspec.convert({"Id": name * 16, "Names": [name], "State": "running", **more}, Listed)


IMAGE = "tritonserver:1"


def chosen(*containers: Listed, **how: Any) -> tuple[str | None, str | None, tuple[str, ...]]:
    found, others = libpod.find_triton(containers, **how)
    return (found.container.name, found.found_by, others) if found else (None, None, others)


def test_names_that_mean_triton() -> None:
    for name in ("triton", "my-triton", "triton_1", "Triton-Server", "tritonserver", "a.triton.b", "triton-server-2"):
        assert chosen(listed(name))[:2] == (name, "name")
    for name in ("tritonic", "nottriton", "web"):
        assert chosen(listed(name))[0] is None


def test_the_order_of_preference() -> None:
    label, name, image = listed("l", Labels={libpod.MANAGED_LABEL: ""}), listed("triton"), listed("i", Image=IMAGE)
    assert chosen(image, name, label) == ("l", "label", ("triton", "i"))
    assert chosen(image, name) == ("triton", "name", ("i",))
    stopped = listed("triton", State="exited")
    assert chosen(stopped, image) == ("i", "image", ("triton",)), "a running one goes first"
    young = listed("j", Image=IMAGE, StartedAt=5)
    assert chosen(image, young) == ("j", "image", ("i",))


def test_a_container_told_by_name_or_identity() -> None:
    a, b = listed("a"), listed("triton")
    assert chosen(a, b, wanted="a") == ("a", "name", ("triton",))
    assert chosen(a, b, wanted="a" * 12) == ("a", "name", ("triton",))
    assert chosen(a, b, wanted="a" * 11) == (None, None, ("triton",))
    assert chosen(a, b, wanted="a" * 17)[0] is None
    assert chosen(listed("a", IsInfra=True), wanted="a") == (None, None, ())


def test_the_clients_image_is_no_server_even_by_its_name() -> None:
    assert chosen(listed("triton", Image="x/tritonserver:24.05-py3-sdk"))[0] is None
    assert chosen(listed("triton", Image="x/tritonserver:1-sdk", Command=["tritonserver"]))[1] == "name"
    assert libpod.is_sdk_image("reg:5000/a-sdk/b") is False
    assert libpod.is_triton_image("reg:5000/tritonserver/base:1") is False
    assert libpod.is_triton_image("reg:5000/x/my_triton_server@sha256:1") is True


def port(inside: int, host: int, **more: Any) -> dict[str, Any]:
    return {"container_port": inside, "host_port": host, **more}


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ([port(8000, 9000), port(8001, 9001)], True),
        ([port(8000, 9000), port(8002, 9002)], True),
        ([port(8000, 9000)], False),
        ([port(8000, 9000, range=2)], True),
        ([port(8000, 9000, range=0)], False),
        ([port(8000, 9001), port(8001, 9002)], False),
        ([port(80, 9000), port(8001, 9001), port(8002, 9002)], True),
        ([], False),
    ],
)
def test_published_ports(ports: list[dict[str, Any]], found: bool) -> None:
    assert (chosen(listed("x", Ports=ports), port=9000)[1] == "port") is found
    assert chosen(listed("x", Ports=ports))[0] is None, "no port was asked for"


def test_a_range_is_not_followed_for_ever() -> None:
    wide = [port(8000, 1, range=10**9)]
    assert chosen(listed("x", Ports=wide), port=1024, port_told=True)[1] == "port"
    assert chosen(listed("x", Ports=wide), port=1025, port_told=True)[0] is None


# ---------------------------------------------------------------------------------------------------------- hypothesis

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from([*FULL, *FULL["State"], *FULL["Config"], *FULL["HostConfig"], "Ports", "HostPort"])
answers = st.dictionaries(field_names, json_values | st.dictionaries(field_names, json_values, max_size=4), max_size=6)


@given(answers)
def test_any_answer_is_a_state_or_refused_by_type(answer: dict[str, Any]) -> None:
    try:
        told = msgspec.convert({**FULL, **answer}, Inspect)
    except msgspec.ValidationError:
        return
    found = container_state(told, "name")
    assert found.pid != 0
    assert "\n" not in (found.error or "")


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_none(text: str) -> None:
    seconds = libpod.wall_time(text)
    assert seconds is None or seconds > 0


@given(st.lists(st.text(max_size=30), max_size=6), st.text(max_size=30))
def test_any_command_and_image_are_survived(words: list[str], image: str) -> None:
    assert len(libpod.cdi_names(words)) <= len(words)
    chosen(listed("x", Command=words, Image=image), port=1)
