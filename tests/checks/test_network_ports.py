"""I01, I02."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import network_ports
from console.core.facts import AnswerFact
from tests.checks.host_told import GARBAGE, NO_PODMAN, PODMAN, container, facts_for, said

IDS = {"container_id": ("a" * 64,), "container": ("triton",)}
ROOTFUL = {"@podman.ping": {"version": "4.9.4", "rootless": False}, "@units": {}}


def listening(*rows: tuple[int, int | None, str]) -> list[dict[str, Any]]:
    """(port, pid, process) each."""
    return [
        {"address": "0.0.0.0", "port": port, "inode": 7, "pids": [pid] if pid else [], "process": name}
        for port, pid, name in rows
    ]


CONMON = [(port, 812, "conmon") for port in (8000, 8001, 8002)]


@pytest.mark.parametrize(
    ("found", "ports", "sign", "text"),
    [
        (container(), listening(*CONMON), "ok", "8000, 8001, 8002 listen"),
        (container(), listening(*CONMON[:1]), "fail", "nothing listens on 8001, 8002, which triton publishes"),
        (container(), [], "fail", "nothing listens on 8000, 8001, 8002, which triton publishes"),
        (container("exited"), [], "none", "the container does not run"),
        (container(PortBindings={}), [], "none", "the container publishes no port (E06)"),
        (container(PortBindings=None, NetworkMode="host"), listening((8000, 9, "tritonserver")), "note", None),
        (container(), AnswerFact(why="/proc/net/tcp cannot be read"), "unknown", "/proc/net/tcp cannot be read"),
        (container(), "garbage", "unknown", "listening sockets were not told"),
        (None, [], "none", "no Triton container"),
        (NO_PODMAN, [], "unknown", "/run/podman/podman.sock: no such file"),
    ],
)
def test_i01(found: Any, ports: Any, sign: str, text: str | None) -> None:
    answers = ROOTFUL | {"@podman.inspect": found, "@ports": ports}
    finding = said(network_ports.listen, facts_for(network_ports.listen, dict(PODMAN), answers=answers, variables=IDS))
    assert finding.sign == sign
    assert text is None or finding.text == text
    if sign == "fail":
        assert finding.fix is not None
        assert (finding.fix.action, finding.fix.commands) == ("container.restart", ("sudo podman restart triton",))
        assert finding.data["port"] in ("8000", "8001")


def test_i01_believes_a_server_that_answers() -> None:
    answers = ROOTFUL | {"@podman.inspect": container(), "@ports": [], "@triton.metadata": {"live": True}}
    facts = facts_for(network_ports.listen, dict(PODMAN), answers=answers, variables=IDS)
    assert said(network_ports.listen, facts).sign == "note"


def test_i01_is_restarted_through_its_unit() -> None:
    answers = ROOTFUL | {"@podman.inspect": container(), "@ports": []}
    facts = facts_for(network_ports.listen, answers=answers, variables=IDS | {"unit": ("triton.service",)})
    fix = said(network_ports.listen, facts).fix
    assert fix is not None
    assert fix.commands == ("sudo systemctl restart triton.service",)


@pytest.mark.parametrize(
    ("host", "args", "ports"),
    [
        ({}, [], (8000, 8001, 8002)),
        ({"PortBindings": {"8000/tcp": [{"HostPort": "9000"}], "5/udp": [{"HostPort": "5"}]}}, [], (9000,)),
        ({"PortBindings": {"8000/tcp": None}}, [], ()),
        ({"PortBindings": "x"}, [], ()),
        ({"NetworkMode": "host"}, [], (8000, 8001, 8002)),
        ({"NetworkMode": "host"}, ["--http-port=9000", "--allow-metrics=false"], (9000, 8001)),
    ],
)
def test_published(host: dict[str, Any], args: list[str], ports: tuple[int, ...]) -> None:
    assert network_ports.published(container(**host) | {"Args": args}) == ports


def test_published_of_a_running_container_are_those_it_was_given() -> None:
    found = container(PortBindings={"8000/tcp": [{"HostPort": "0"}]})
    found["NetworkSettings"] = {"Ports": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "41233"}]}}
    assert network_ports.published(found) == (41233,)


SETTINGS = {"@settings": {"http_port": 0, "grpc_port": 0, "metrics_port": 0}, "@me": {"uid": 0, "user": "root"}}


def process(pid: int, name: str, *argv: str, uid: int = 0, user: str = "root", cgroup: str = "") -> dict[str, Any]:
    return {"pid": pid, "parent": 1, "uid": uid, "user": user, "name": name, "argv": list(argv), "cgroup": cgroup}


SERVICE = process(77, "podman", "podman", "system", "service", cgroup="0::/system.slice/podman.service\n")
LEFT = process(812, "conmon", "conmon", "-c", "b" * 64, "-n", "old")


@pytest.mark.parametrize(
    ("found", "ports", "processes", "sign", "text"),
    [
        (container("exited"), [], [], "ok", "8000, 8001, 8002 are free"),
        (NO_PODMAN, listening((22, 1, "sshd")), [], "ok", "8000, 8001, 8002 are free"),
        (container(), listening(*CONMON), [], "ok", "the running container has 8000, 8001, 8002 through conmon"),
        (container(), listening((8000, None, "")), [], "ok", "the running container has 8000"),
        (
            container("created"),
            listening((8000, 77, "podman")),
            [SERVICE],
            "fail",
            "8000: podman system service (77) keeps it, as after a start that failed",
        ),
        (None, listening((8000, 77, "podman")), [SERVICE], "fail", None),
        (NO_PODMAN, listening((8000, 77, "podman")), [SERVICE], "fail", None),
        (
            container("exited"),
            listening((8000, 812, "conmon")),
            [LEFT],
            "fail",
            "8000 is held by conmon (812) of old, left over: the container cannot start",
        ),
        (container("stopping"), listening((8000, 812, "conmon")), [LEFT], "note", None),
        (
            container("exited"),
            listening((8001, 55, "nginx")),
            [],
            "fail",
            "8001 is held by nginx (55): the container cannot start",
        ),
        (
            container("exited"),
            listening((8001, None, "")),
            [],
            "fail",
            "8001 is held by a process that only root may see: the container cannot start",
        ),
        (
            None,
            listening((8000, 55, "python3")),
            [],
            "note",
            "8000 is held by python3 (55); no Triton container wants it now",
        ),
        (
            None,
            listening((8000, 9, "tritonserver")),
            [process(9, "tritonserver", "tritonserver")],
            "note",
            "8000 is held by a tritonserver outside of the container (9); no Triton container wants it now",
        ),
        (NO_PODMAN, listening((8000, 55, "python3")), [], "unknown", "/run/podman/podman.sock: no such file"),
        (None, AnswerFact(why="no /proc"), [], "unknown", "no /proc"),
    ],
)
def test_i02(found: Any, ports: Any, processes: Any, sign: str, text: str | None) -> None:
    answers = ROOTFUL | SETTINGS | {"@podman.inspect": found, "@ports": ports, "@processes": processes}
    facts = facts_for(network_ports.holder, dict(PODMAN), answers=answers, variables=IDS)
    finding = said(network_ports.holder, facts)
    assert finding.sign == sign
    assert text is None or finding.text == text


@pytest.mark.parametrize(("state", "sign"), [("failed", "warn"), ("activating", "warn"), ("active", "note")])
def test_i02_a_unit_whose_container_is_gone_may_want_the_port(state: str, sign: str) -> None:
    answers = ROOTFUL | SETTINGS | {"@podman.inspect": None, "@ports": listening((8000, 55, "nginx"))}
    answers["@units"] = {"triton.service": {"ActiveState": state}}
    variables = IDS | {"unit": ("triton.service",)}
    finding = said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=variables))
    assert finding.sign == sign
    if sign == "warn":
        assert finding.text == "8000 is held by nginx (55); triton.service may want it and does not come up"


def test_i02_another_container_is_named() -> None:
    listed = [
        {"Id": "a" * 64, "Names": ["triton"], "State": "exited", "Ports": [{"host_port": 8000}]},
        {"Id": "c" * 64, "Names": ["web"], "State": "running", "Ports": [{"host_port": 8000, "range": 2}]},
    ]
    answers = ROOTFUL | SETTINGS | {"@podman.inspect": container("exited"), "@podman.containers": listed}
    answers["@ports"] = listening((8001, 812, "conmon"))
    finding = said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=IDS))
    assert (finding.sign, finding.text) == ("fail", "8001 is held by container web: the container cannot start")
    assert finding.data == {"port": "8001", "holder": "container web", "pid": "812"}
    assert finding.fix is not None
    assert finding.fix.commands == ("sudo podman stop web",)


def test_i02_a_port_that_the_console_is_set_to_ask_belongs_to_somebody_else() -> None:
    answers = ROOTFUL | SETTINGS | {"@podman.inspect": container(), "@settings": {"metrics_port": 9100}}
    answers["@ports"] = listening(*CONMON, (9100, 5, "node_exporter"))
    finding = said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=IDS))
    assert finding.sign == "note"
    assert finding.text == "9100 is set here, but node_exporter (5) has it and the container does not publish it"


@pytest.mark.parametrize(
    ("row", "me", "kind", "command", "argv"),
    [
        (SERVICE, 0, "B", "sudo systemctl restart podman.service", ("systemctl", "restart", "podman.service")),
        (
            process(77, "podman", "podman", "system", "service", uid=1000, user="ops"),
            1000,
            "B",
            "systemctl --user restart podman.service",
            ("systemctl", "--user", "restart", "podman.service"),
        ),
        (
            process(77, "podman", "podman", "system", "service", uid=1000, user="ops"),
            0,
            "B",
            "sudo -u ops XDG_RUNTIME_DIR=/run/user/1000 systemctl --user restart podman.service",
            (
                *[
                    "runuser",
                    "-u",
                    "ops",
                    "--",
                    "env",
                    "XDG_RUNTIME_DIR=/run/user/1000",
                    "systemctl",
                    "--user",
                    "restart",
                    "podman.service",
                ],
            ),
        ),
        (
            process(77, "podman", "podman", "system", "service", cgroup="0::/user.slice/session-3.scope\n"),
            1000,
            "S",
            "sudo kill 77",
            None,
        ),
    ],
)
def test_i02_the_leak_is_ended_where_it_lives(
    row: dict[str, Any], me: int, kind: str, command: str, argv: tuple[str, ...] | None
) -> None:
    answers = ROOTFUL | SETTINGS | {"@podman.inspect": container("created"), "@me": {"uid": me}}
    answers |= {"@ports": listening((8000, 77, "podman")), "@processes": [row]}
    finding = said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=IDS))
    assert finding.data == {"port": "8000", "holder": "podman system service", "pid": "77"}
    assert finding.fix is not None
    assert (finding.fix.kind, finding.fix.commands) == (kind, (command,))
    assert [deed.argv for deed in finding.fix.deeds] == ([argv] if argv else [])


@pytest.mark.parametrize("text", [*GARBAGE, 7, [1, "x", None, {}], {"State": []}])
def test_garbage(text: Any) -> None:
    answers = {**ROOTFUL, **SETTINGS, "@podman.inspect": container("exited"), "@ports": text}
    for judge in (network_ports.listen, network_ports.holder):
        given = {
            name: one
            for name, one in answers.items()
            if judge is network_ports.holder or name in ("@ports", "@podman.inspect")
        }
        assert said(judge, facts_for(judge, answers=given, variables=IDS)).sign in ("unknown", "none", "ok")
    answers |= {"@ports": listening((8000, 5, "x")), "@processes": text, "@podman.containers": text, "@settings": text}
    assert said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=IDS)).sign == "fail"
    answers["@podman.inspect"] = {"HostConfig": text, "NetworkSettings": text, "State": text, "Args": None}
    assert said(network_ports.holder, facts_for(network_ports.holder, answers=answers, variables=IDS)).sign in (
        "fail",
        "note",
    )
