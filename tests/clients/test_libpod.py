"""Libpod's recorded answers (Podman 4.3.1) as ContainerState; the choice of the Triton container."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from console.clients import libpod
from console.clients.libpod import Inspect, Listed, ListedPort

DATA = Path(__file__).parents[1] / "data" / "podman"


def inspected(name: str) -> Inspect:
    return msgspec.json.decode((DATA / name).read_bytes(), type=Inspect)


def test_a_running_container() -> None:
    state = libpod.container_state(inspected("inspect_running.json"), "name", 5.0)
    assert (state.name, state.state, state.found_by, state.image) == (
        "triton",
        "running",
        "name",
        "localhost/tritonserver:24.05-fake",
    )
    assert state.image_created_wall == 5.0
    assert state.env_versions["CUDA_VERSION"] == "12.4.1"
    assert state.command[-1] == "--http-restricted-api=model-repository:admin=***"
    assert (state.control_mode, state.exit_timeout, state.stop_timeout) == ("explicit", 20, 40)
    assert state.exit_code is None
    assert state.finished_wall is None
    assert state.started_wall is not None
    assert [(port.container_port, port.host_ip, port.host_port) for port in state.ports] == [(8000, "127.0.0.1", 18770)]
    assert [(mount.target, mount.read_only) for mount in state.mounts] == [("/models", True)]
    assert state.devices == ("/dev/nvidia0",)
    assert (state.network, state.shm_size, state.cpuset, state.health, state.unit) == (
        "bridge",
        67108864,
        None,
        None,
        None,
    )
    assert state.ulimits == {"nofile": "20000", "nproc": "4096"}


def test_an_exited_container() -> None:
    state = libpod.container_state(inspected("inspect_exited.json"), "image")
    assert (state.state, state.exit_code, state.pid) == ("exited", 126, None)
    assert state.finished_wall is not None
    assert (state.unit, state.unit_origin) == ("triton.service", "label PODMAN_SYSTEMD_UNIT")


def test_no_secret_survives() -> None:
    for name in ("inspect_running.json", "inspect_exited.json"):
        text = msgspec.json.encode(libpod.container_state(inspected(name), "name"))
        for secret in (b"supersecret", b"geheim", b"hf_secret"):
            assert secret not in text


def test_odd_answers() -> None:
    text = b"""{"Id":"1","Path":"","Args":null,"State":{"Status":"exited","FinishedAt":"nonsense","ExitCode":1,
      "Healthcheck":{"Status":"unhealthy"},"Error":"x\\u001b[31m token=hush"},"Mounts":null,"Config":{"Env":null,
      "CreateCommand":["podman","run","--device","nvidia.com/gpu=all","--device=/dev/null:/dev/x","--device"]},
      "HostConfig":{"Ulimits":[{"Name":"RLIMIT_MEMLOCK","Soft":-1,"Hard":18446744073709551615},
      {"Name":"RLIMIT_STACK","Soft":1,"Hard":2}],"NetworkMode":"host"},
      "NetworkSettings":{"Ports":{"8000/tcp":null,"8001/tcp":[{"HostIp":"0.0.0.0","HostPort":"81"},{"HostPort":"x"}]}}}"""
    state = libpod.container_state(msgspec.json.decode(text, type=Inspect), "name")
    assert state.exit_code is None, "never ended as far as it tells"
    assert state.health == "unhealthy"
    assert state.error == "x\\x1b[31m token=***"
    assert state.cdi == ("nvidia.com/gpu=all",)
    assert state.ulimits == {"memlock": "unlimited", "stack": "1:2"}
    assert [(port.host_ip, port.host_port) for port in state.ports] == [("", 81)]
    assert state.network == "host"


def test_times() -> None:
    assert libpod.wall_time("2026-11-30T10:41:02.026366363Z") == pytest.approx(1796035262.026366)
    assert libpod.wall_time("0001-01-01T00:00:00Z") is None
    assert libpod.wall_time("") is None


def listed(name: str, **more: object) -> Listed:
    return msgspec.convert({"Id": name * 8, "Names": [name], "State": "running", **more}, Listed)


SERVER = "nvcr.io/nvidia/tritonserver:24.05-py3"
PORTS = [{"container_port": 8000, "host_port": 8000, "range": 3}]


@pytest.mark.parametrize(
    ("containers", "name", "how"),
    [
        ([listed("web"), listed("inference", Image=SERVER)], "inference", "image"),
        ([listed("inference", Command=["/opt/tritonserver/bin/tritonserver"])], "inference", "image"),
        ([listed("a", Image=SERVER), listed("triton", Image="my/own")], "triton", "name"),
        ([listed("triton-old-1", Image=SERVER, State="exited"), listed("srv", Image=SERVER)], "srv", "image"),
        ([listed("triton", Image=SERVER), listed("x", Labels={"io.gpuconsole.managed": "1"})], "x", "label"),
        ([listed("triton-sdk", Image=SERVER + "-sdk")], None, None),
        ([listed("x", Ports=PORTS)], "x", "port"),
        ([listed("web", Ports=[{"container_port": 80, "host_port": 8000}])], None, None),
        ([listed("triton", IsInfra=True)], None, None),
        ([listed("a", Image=SERVER, StartedAt=1), listed("b", Image=SERVER, StartedAt=2)], "b", "image"),
        ([listed("a", Image=SERVER, State="exited")], "a", "image"),
        ([], None, None),
    ],
)
def test_which_is_the_triton(containers: list[Listed], name: str | None, how: str | None) -> None:
    found, _ = libpod.find_triton(containers, port=8000)
    assert (found.container.name if found else None, found.found_by if found else None) == (name, how)


def test_a_told_container_and_the_others() -> None:
    containers = [listed("mine", Image="x", State="exited"), listed("triton", Image=SERVER)]
    found, others = libpod.find_triton(containers, wanted="mine")
    assert found is not None
    assert (found.container.name, found.found_by, others) == ("mine", "name", ("triton",))
    found, others = libpod.find_triton(containers, wanted="minemineminem")
    assert found is not None
    found, others = libpod.find_triton(containers, wanted="absent")
    assert (found, others) == (None, ("triton",))


def test_a_told_port_is_enough() -> None:
    found, _ = libpod.find_triton(
        [listed("web", Ports=[{"container_port": 80, "host_port": 9}])], port=9, port_told=True
    )
    assert found is not None
    assert found.found_by == "port"
    assert Listed("abcdefabcdefabcdef").name == "abcdefabcdef"
    assert ListedPort().range == 1


@pytest.mark.parametrize(
    ("name", "server"),
    [
        (SERVER, True),
        (SERVER + "-sdk", False),
        ("localhost/tritonserver@sha256:1", True),
        ("reg:5000/x/triton-server:1", True),
        ("tritonserver/other:1", False),
        ("<none>", False),
        ("", False),
    ],
)
def test_images(name: str, server: bool) -> None:
    assert libpod.is_triton_image(name) is server


def test_a_stopped_container_has_the_ports_that_it_will_have_again() -> None:
    answer = {
        "Id": "a",
        "State": {"Status": "exited"},
        "NetworkSettings": {"Ports": {}},
        "HostConfig": {"PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18000"}]}},
    }
    (port,) = libpod.container_state(msgspec.convert(answer, Inspect), "name").ports
    assert (port.container_port, port.host_ip, port.host_port) == (8000, "127.0.0.1", 18000)


def test_kept_old_ones_are_told_by_their_names() -> None:
    names = (
        "triton",
        "triton-old-1",
        "triton-old-12",
        "triton-old-2",
        "triton-old-x",
        "my-triton-old-3",
        "trixon-old-1",
    )
    listed = [libpod.Listed(id=name, names=[name], state="exited", exited_at=at) for at, name in enumerate(names, -1)]
    kept = libpod.kept_of(listed, "triton")
    assert [(one.name, one.since_wall) for one in kept] == [
        ("triton-old-12", 1.0), ("triton-old-2", 2.0), ("triton-old-1", None),
    ]  # fmt: skip
    assert libpod.kept_of(listed, "tri.on") == ()
