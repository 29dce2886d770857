"""A `podman run` in parts, as typed and as put together from an inspect answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients.run_words import Option, from_inspect, of_container, parse

TYPED = [
    *("podman", "--root", "/x", "run", "-dit", "--name", "triton", "-p8001:8001", "-p", "8000:8000", "-e", "A=1"),
    *("--device=nvidia.com/gpu=all", "--privileged", "--shm-size", "1g", "img:1", "tritonserver", "-x", "--y=z"),
]


def test_typed() -> None:
    words = parse(TYPED)
    assert words is not None
    assert words.global_options == (Option("root", "/x"),)
    assert (words.image, words.command) == ("img:1", ("tritonserver", "-x", "--y=z"))
    assert words.values("publish") == ("8001:8001", "8000:8000")
    assert Option("privileged") in words.options
    assert [option.word for option in words.without("publish", "env")] == [
        *("--detach", "--interactive", "--tty", "--name=triton", "--device=nvidia.com/gpu=all", "--privileged"),
        "--shm-size=1g",
    ]


@pytest.mark.parametrize("words", [[], ["podman"], ["podman", "run"], ["podman", "run", "-d"], ["podman", "ps", "x"]])
def test_no_run(words: list[str]) -> None:
    assert parse(words) is None


def test_container_run_double_dash_and_a_missing_value() -> None:
    words = parse(["podman", "container", "create", "--net=host", "--", "img", "cmd"])
    assert words is not None
    assert (words.values("network"), words.image, words.command) == (("host",), "img", ("cmd",))
    assert parse(["podman", "run", "--name"]) is None


def test_a_variable_of_the_shell_gets_its_value() -> None:
    inspect = {"Config": {"CreateCommand": ["podman", "run", "-e", "A", "-e", "B", "img"], "Env": ["A=1", "X=2"]}}
    assert of_container(inspect).values("env") == ("A=1", "B")


def test_from_an_answer_of_the_api() -> None:
    inspect = {
        "ImageName": "quay.io/triton:1",
        "Config": {
            "Cmd": ["tritonserver"],
            "Env": ["PATH=/bin", "FROM_IMAGE=1", "MINE=2"],
            "Labels": {"a": "b", "maintainer": "x", "PODMAN_SYSTEMD_UNIT": "t.service"},
            "User": "triton",
        },
        "HostConfig": {
            "PortBindings": {
                "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18000"}],
                "53/udp": [{"HostIp": "::1", "HostPort": "53"}],
            },
            "ShmSize": 1 << 30,
            "Ulimits": [{"Name": "RLIMIT_MEMLOCK", "Soft": -1, "Hard": 2**64 - 1}],
            "NetworkMode": "host",
            "IpcMode": "host",
            "Devices": [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}],
            "SecurityOpt": ["label=disable"],
            "NanoCpus": 1_500_000_000,
            "Memory": 1 << 20,
            "PidsLimit": 2048,
        },
        "Mounts": [
            {"Type": "bind", "Source": "/m", "Destination": "/models", "RW": False, "Mode": "z"},
            {"Type": "volume", "Name": "cache", "Destination": "/cache", "RW": True},
        ],
    }
    image = {"Config": {"Env": ["FROM_IMAGE=1"], "Labels": {"maintainer": "x"}}}
    words = from_inspect(inspect, image)
    assert not words.told
    assert {option.word for option in words.options} == {
        *("--publish=127.0.0.1:18000:8000", "--publish=[::1]:53:53/udp", "--shm-size=1073741824b"),
        *("--ulimit=memlock=-1", "--network=host", "--ipc=host", "--device=/dev/nvidia0"),
        *("--security-opt=label=disable", "--cpus=1.5", "--memory=1048576b", "--volume=/m:/models:ro,z"),
        *("--volume=cache:/cache", "--env=MINE=2", "--label=a=b", "--user=triton"),
    }


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_words(words: list[str]) -> None:
    found = parse(["podman", "run", *words])
    if found is not None:
        assert found.image in words


@given(st.dictionaries(st.text(max_size=8), st.none() | st.text() | st.lists(st.text())))
def test_any_answer(config: dict[str, object]) -> None:
    assert from_inspect({"Config": config}, {}).image == str(config.get("Image") or "")
    of_container({"Config": config})


def test_rarer_parts_of_an_answer() -> None:
    host = {
        "Tmpfs": {"/t": "size=1m", "/u": ""},
        "CpusetCpus": "0-3",
        "CpusetMems": "0",
        "PidsLimit": 100,
        "Privileged": True,
        "ReadonlyRootfs": True,
        "Init": True,
        "ExtraHosts": ["a:1.2.3.4"],
        "Devices": [{"PathOnHost": "/dev/a", "PathInContainer": "/dev/b"}],
        "Ulimits": [{"Name": "RLIMIT_NOFILE", "Soft": 1, "Hard": 2}],
    }
    assert {option.word for option in from_inspect({"HostConfig": host}, {}).options} == {
        *("--tmpfs=/t:size=1m", "--tmpfs=/u", "--cpuset-cpus=0-3", "--cpuset-mems=0", "--pids-limit=100"),
        *("--privileged", "--read-only", "--init", "--add-host=a:1.2.3.4", "--device=/dev/a:/dev/b"),
        "--ulimit=nofile=1:2",
    }
    assert parse(["podman", "kube", "play", "run", "x"]) is None
    assert parse(["podman", "run", "-p"]) is None
