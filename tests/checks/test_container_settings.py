"""E06, E08, E09, E11: ports, shared memory, limits, stop time."""

from __future__ import annotations

from typing import Any

import pytest

from console.actions import spec_changes
from console.checks.container_settings import published_ports, shm_size, stop_timeout, ulimits
from tests.checks.container_told import NOTHING, PID, SERVICE, bindings, container, finding
from tests.checks.told import DENIED

ROOTLESS = {"@podman.ping": {"rootless": True}}
UNIT = {"variables": {"unit": ("triton.service",)}}
LABEL = {"Labels": {"PODMAN_SYSTEMD_UNIT": "triton.service"}}


@pytest.mark.parametrize(("changes", "sign", "text"), NOTHING)
def test_skips(changes: Any, sign: str, text: str) -> None:
    for judge in (published_ports, shm_size, ulimits, stop_timeout):
        found = finding(judge, **dict(changes))
        assert (found.sign, text in found.text) == (sign, True), judge


# --------------------------------------------------------------------------------------------------------------- ports


def _ports(*ports: str, args: tuple[str, ...] = (), **host: Any) -> dict[str, Any]:
    return container(HostConfig={"PortBindings": bindings(*ports), **host}, Args=["tritonserver", *args])


LOCAL = ("127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002")


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (_ports(*LOCAL), "ok", "127.0.0.1:8000, 127.0.0.1:8001, 127.0.0.1:8002"),
        (_ports("127.0.0.1:8000"), "warn", "8001 (grpc) is not published; 8002 (metrics) is not published"),
        (_ports(*LOCAL[:2], ":8002"), "warn", "8002 open on all addresses, without a login"),
        (_ports("0.0.0.0:8000", *LOCAL[1:]), "warn", "8000 open on all addresses"),
        (_ports(":8000"), "warn", "8001 (grpc) is not published; 8002 (metrics) is not published; 8000 open"),
        (_ports("127.0.0.1:8000", args=("--allow-grpc=false", "--allow-metrics=0")), "ok", "127.0.0.1:8000"),
        (_ports("127.0.0.1:9000", *LOCAL[1:], args=("--http-port=9000",)), "ok", "9000"),
        (
            _ports("0.0.0.0:8000", *LOCAL[1:], args=("--http-restricted-api=model-repository:k=***",)),
            "note",
            "with a key",
        ),
        (_ports(NetworkMode="host"), "warn", "in the host's network: 8000, 8001, 8002 open on all addresses"),
        (_ports(NetworkMode="container:abc"), "none", "another's network"),
        (
            container(HostConfig={"PortBindings": {"8000/tcp": None, "x": 7, "8001/udp": [{}]}}),
            "warn",
            "8000 (http) is not",
        ),
        (container(HostConfig={"PortBindings": "garbage"}), "warn", "8000 (http) is not published"),
    ],
)
def test_ports(inspect: Any, sign: str, text: str) -> None:
    found = finding(published_ports, inspect=inspect)
    assert found.sign == sign
    assert text in found.text


def test_on_the_hosts_network_an_address_counts() -> None:
    flags = tuple(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics"))
    assert finding(published_ports, inspect=_ports(args=flags, NetworkMode="host")).sign == "ok"


def test_missing_ports_are_published_on_loopback() -> None:
    fix = finding(published_ports, inspect=_ports("127.0.0.1:8000", ":8001")).fix
    assert fix is not None
    assert (fix.kind, fix.action) == ("B", "container.recreate")
    assert fix.values == {"ports": "127.0.0.1:8000:8000,8001:8001,127.0.0.1:8002:8002"}


def test_open_ports_are_closed_by_hand_only() -> None:
    """Clients of other hosts would lose the server."""
    fix = finding(published_ports, inspect=_ports(*LOCAL[:2], ":8002")).fix
    assert fix is not None
    assert (fix.kind, fix.action, fix.deeds) == ("S", "", ())


# ------------------------------------------------------------------------------------------------------- shared memory


@pytest.mark.parametrize(
    ("host", "sign", "text"),
    [
        ({"ShmSize": 1 << 30}, "ok", "1.0 GiB"),
        ({"ShmSize": 65536000}, "warn", "62 MiB, where 1 GiB is advised"),
        ({"IpcMode": "host", "ShmSize": 0}, "note", "the host's /dev/shm"),
        ({"IpcMode": "container:abc"}, "none", "another container's"),
        ({"ShmSize": None}, "unknown", "is not told"),
        ({"ShmSize": "\x00"}, "unknown", "is not told"),
    ],
)
def test_shm(host: Any, sign: str, text: str) -> None:
    found = finding(shm_size, inspect=container(HostConfig=host))
    assert found.sign == sign
    assert text in found.text


SMALL = container(HostConfig={"ShmSize": 65536000})


@pytest.mark.parametrize(
    ("answers", "variables", "kind", "commands"),
    [
        ({}, {}, "B", ("sudo gpuconsole do container.recreate triton shm_size=1g",)),
        (ROOTLESS, {}, "B", ("gpuconsole do container.recreate triton shm_size=1g",)),
        (
            {"@units": {"triton.service": SERVICE}},
            {"unit": ("triton.service",)},
            "S",
            (
                "sudo systemctl edit --full triton.service",
                "sudo systemctl daemon-reload",
                "sudo systemctl restart triton.service",
            ),
        ),
        (
            {"@units": {"triton.service": {**SERVICE, "SourcePath": "/etc/containers/systemd/triton.container"}}},
            {"unit": ("triton.service",)},
            "S",
            (
                "sudoedit /etc/containers/systemd/triton.container",
                "sudo systemctl daemon-reload",
                "sudo systemctl restart triton.service",
            ),
        ),
        (
            {**ROOTLESS, "@units": {"user:triton.service": SERVICE}},
            {"unit": ("triton.service",)},
            "S",
            (
                "systemctl --user edit --full triton.service",
                "systemctl --user daemon-reload",
                "systemctl --user restart triton.service",
            ),
        ),
    ],
)
def test_who_changes_a_setting(answers: Any, variables: Any, kind: str, commands: tuple[str, ...]) -> None:
    fix = finding(shm_size, inspect=SMALL, answers=answers, variables=variables).fix
    assert fix is not None
    assert (fix.kind, fix.commands) == (kind, commands)
    assert (fix.action == "container.recreate") == (kind == "B")
    assert kind == "B" or "--shm-size=1g" in fix.effect


# -------------------------------------------------------------------------------------------------------------- limits


def _limits(
    memlock: str = "unlimited", stack: str = "67108864", nofile: str = "1048576", hard: str = ""
) -> dict[str, str]:
    rows = (
        ("Max stack size", stack, "bytes"),
        ("Max open files", nofile, "files"),
        ("Max locked memory", memlock, "bytes"),
    )
    head = f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units"
    lines = [head, *(f"{name:<26}{value:<21}{hard or value:<21}{unit}" for name, value, unit in rows)]
    return {f"/proc/{PID}/limits": "\n".join(lines)}


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        (_limits(), "ok", "memlock unlimited, stack 64 MiB, nofile 1048576"),
        (_limits(stack="unlimited", nofile="unlimited"), "ok", "nofile unlimited"),
        (_limits(memlock="65536"), "warn", "memlock 64 KiB: too low"),
        (_limits(memlock="8388608"), "warn", "memlock 8 MiB: too low"),
        (_limits(memlock="67108864"), "ok", "memlock 64 MiB"),
        (_limits(nofile="1024"), "warn", "nofile 1024: too low"),
        (_limits(memlock="0", nofile="1024"), "warn", "memlock 0 B, nofile 1024: too low"),
        (_limits(stack="8388608"), "note", "NVIDIA advises a stack of 64 MiB"),
        ({}, "unknown", "limits are not told"),
        ({f"/proc/{PID}/limits": "\x00garbage\xff"}, "unknown", "limits are not told"),
        ({f"/proc/{PID}/limits": DENIED}, "unknown", "permission denied"),
    ],
)
def test_limits(files: Any, sign: str, text: str) -> None:
    found = finding(ulimits, files=files)
    assert found.sign == sign
    assert text in found.text


def test_limits_of_a_container_that_does_not_run() -> None:
    asked = [
        {"Name": "RLIMIT_MEMLOCK", "Soft": 2**64 - 1, "Hard": 2**64 - 1},
        {"Name": "RLIMIT_NOFILE", "Soft": 1, "Hard": 1},
    ]
    found = finding(ulimits, inspect=container(HostConfig={"Ulimits": asked}), variables={"container_pid": ()})
    assert (found.sign, found.text) == ("warn", "nofile 1: too low")


def test_rootful_limits_are_set_by_a_new_container() -> None:
    fix = finding(ulimits, files=_limits(memlock="65536")).fix
    assert fix is not None
    assert fix.values == {"ulimits": "memlock=-1,stack=67108864"}


def test_a_users_hard_limit_is_raised_first() -> None:
    fix = finding(ulimits, files=_limits(memlock="65536"), answers=ROOTLESS, variables={"user": ("ana",)}).fix
    assert fix is not None
    assert fix.kind == "P"
    assert [deed.kind for deed in fix.deeds] == ["write", "write", "run"]
    assert fix.deeds[0].text == "ana - memlock unlimited\n"
    assert fix.deeds[1].text == "[Service]\nLimitMEMLOCK=infinity\n"
    assert (
        fix.commands[0]
        == r"printf '%s\n' 'ana - memlock unlimited' | sudo tee -a /etc/security/limits.d/90-gpuconsole.conf"
    )
    assert not any("container.recreate" in line for line in fix.commands)
    assert "container.recreate" in fix.effect
    pam, unit = (deed.path for deed in fix.deeds[:2])
    before = {pam: "bob - nofile 4096\nana - memlock 1\n", unit: "[Service]\nLimitNOFILE=4096\nLimitMEMLOCK=1\n"}
    beside = finding(
        ulimits,
        files={**_limits(memlock="65536"), **before},
        answers=ROOTLESS,
        variables={"user": ("ana",)},
    ).fix
    assert beside is not None
    assert [deed.text for deed in beside.deeds[:2]] == [
        "bob - nofile 4096\nana - memlock unlimited\n",
        "[Service]\nLimitNOFILE=4096\nLimitMEMLOCK=infinity\n",
    ]
    enough = finding(ulimits, files=_limits(memlock="65536", hard="unlimited"), answers=ROOTLESS).fix
    assert enough is not None
    assert enough.action == "container.recreate"


# ----------------------------------------------------------------------------------------------------------------- stop


def _stop(seconds: Any, *args: str) -> dict[str, Any]:
    return container(Config={"StopTimeout": seconds}, Args=["tritonserver", *args])


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (_stop(60), "ok", "60 s, Triton drains for up to 30 s"),
        (_stop(10), "warn", "10 s against 30 s: every stop becomes a kill"),
        (_stop(0), "warn", "0 s against 30 s"),
        (_stop(35), "warn", "35 s against 30 s: a slow stop becomes a kill"),
        (_stop(40), "ok", "40 s"),
        (_stop(20, "--exit-timeout-secs=5"), "ok", "drains for up to 5 s"),
        (_stop(60, "--exit-timeout-secs=120"), "warn", "60 s against 120 s"),
        (container(Config={"StopTimeout": 10}, Path="/start.sh", Args=[]), "warn", "10 s against 30 s"),
        (_stop(None), "unknown", "is not told"),
        (_stop("garbage"), "unknown", "is not told"),
        (container(Config={"StopTimeout": 60}, Args=7), "ok", "60 s"),
    ],
)
def test_stop(inspect: Any, sign: str, text: str) -> None:
    found = finding(stop_timeout, inspect=inspect)
    assert found.sign == sign
    assert text in found.text


def test_the_unit_may_give_it_the_time() -> None:
    stop = "{ path=/usr/bin/podman ; argv[]=/usr/bin/podman stop --ignore -t 60 triton ; ignore_errors=no ; }"
    found = finding(stop_timeout, inspect=_stop(10), answers={"@units": {"triton.service": {"ExecStop": stop}}}, **UNIT)
    assert found.sign == "note"
    assert "stops it with 60 s" in found.text
    short = {"@units": {"triton.service": {"ExecStop": stop.replace("-t 60", "-t 10")}}}
    assert finding(stop_timeout, inspect=_stop(10), answers=short, **UNIT).sign == "warn"


def test_the_new_stop_time_is_longer_than_the_drain() -> None:
    fix = finding(stop_timeout, inspect=_stop(60, "--exit-timeout-secs=120")).fix
    assert fix is not None
    assert fix.values == {"stop_timeout": "150"}


# --------------------------------------------------------------------------------------------------------- the contract


def test_every_value_is_one_that_the_action_takes() -> None:
    cases = [
        finding(published_ports, inspect=_ports(":8000", ":8001")),
        finding(shm_size, inspect=SMALL),
        finding(ulimits, files=_limits(memlock="65536", nofile="1024")),
        finding(stop_timeout, inspect=_stop(10)),
    ]
    body: dict[str, Any] = {"env": {}, "command": ["tritonserver"], "image": "x"}
    for found in cases:
        assert found.fix is not None
        changed = spec_changes.changed(body, found.fix.values, ["tritonserver"])
        assert changed != body
