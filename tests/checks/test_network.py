"""I03, I04, I05, I06."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import network
from console.core.facts import CommandFact, FileFact
from tests.checks.host_told import GARBAGE, NO_GPU, NO_PODMAN, ONE_GPU, PODMAN, container, facts_for, said, units
from tests.checks.told import DENIED, folder

NET = "/sys/class/net"


def nic(name: str, speed: str | FileFact, state: str = "up", device: bool = True) -> dict[str, str | FileFact]:
    found: dict[str, str | FileFact] = {f"{NET}/{name}/speed": speed, f"{NET}/{name}/operstate": f"{state}\n"}
    return found | ({f"{NET}/{name}/device": FileFact("dir", mode=0o755)} if device else {})


LINK_DOWN = FileFact("file", why="invalid argument")
WIFI = nic("wlan0", "866\n") | {f"{NET}/wlan0/wireless": FileFact("dir", mode=0o755)}


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        (nic("eno1", "25000\n"), "ok", "eno1 has 25 Gbit/s"),
        (nic("eno1", "1000\n") | nic("ens2", "10000\n"), "ok", "ens2 has 10 Gbit/s"),
        (nic("eno1", "1000\n"), "warn", "eno1 has 1 Gbit/s, the fastest here; 10 Gbit/s are usual"),
        (nic("eno1", "100\n") | nic("ens2", LINK_DOWN, "down"), "warn", None),
        (nic("eno1", "1000\n") | nic("ens2", "10000\n", "down"), "warn", None),
        (nic("eth0", "-1\n"), "none", "no network card here tells a speed"),
        (nic("veth0", "10000\n", device=False), "none", "no network card here tells a speed"),
        (nic("eno1", LINK_DOWN), "none", None),
        (WIFI, "none", None),
        ({}, "none", None),
    ],
)
def test_i03(files: dict[str, str | FileFact], sign: str, text: str | None) -> None:
    finding = said(network.speed, facts_for(network.speed, files, variables=ONE_GPU))
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_i03_a_laptop_may_be_slow() -> None:
    assert said(network.speed, facts_for(network.speed, nic("eno1", "1000\n"), variables=NO_GPU)).sign == "note"


RULES = "iptables-save -t nat"
TABLE = "nft list table inet netavark"
THERE = """*nat
-A NETAVARK-HOSTPORT-DNAT -p tcp -m tcp --dport 8000 -m comment --comment "dnat name: podman" -j NETAVARK-DN-1D87
-A NETAVARK-DN-1D87 -p tcp -m tcp --dport 8000 -j DNAT --to-destination 10.88.0.2:8000
-A NETAVARK-DN-1D87 -p tcp -m tcp --dport 8001:8002 -j DNAT --to-destination 10.88.0.2:8001-8002/8001
COMMIT
"""
NFT = "table inet netavark {\n tcp dport 8000 dnat to 10.88.0.2:8000\n tcp dport 8001-8002 dnat to 10.88.0.2\n"
DENIED_RULES = CommandFact(4, "", "Permission denied (you must be root)")
ROOTFUL, ROOTLESS = {"@podman.ping": {"rootless": False}}, {"@podman.ping": {"rootless": True}}


def sockets(address: str) -> list[dict[str, Any]]:
    return [{"address": address, "port": 8000, "inode": 1, "pids": [], "process": ""}]


@pytest.mark.parametrize(
    ("found", "firewalld", "answers", "commands", "sign", "text"),
    [
        (None, "active", ROOTFUL, {}, "none", "no Triton container"),
        (NO_PODMAN, "active", ROOTFUL, {}, "unknown", "/run/podman/podman.sock: no such file"),
        (container("exited"), "active", ROOTFUL, {}, "none", "the container does not run"),
        (container(), "inactive", ROOTFUL, {}, "none", "firewalld does not run"),
        (container(), None, ROOTFUL, {}, "unknown", "systemd was not asked about firewalld.service"),
        (container(PortBindings={}), "active", ROOTFUL, {}, "none", "the container publishes no port (E06)"),
        (container(), "active", ROOTFUL, {RULES: THERE}, "ok", "firewalld runs, 8000, 8001, 8002 have their rules"),
        (container(), "active", ROOTFUL, {RULES: "*nat\nCOMMIT\n", TABLE: NFT}, "ok", None),
        (
            container(),
            "active",
            ROOTFUL,
            {RULES: "*nat\nCOMMIT\n"},
            "warn",
            "8000, 8001, 8002: no rule leads to the container, as after a reload of firewalld",
        ),
        (
            container(),
            "active",
            ROOTFUL,
            {RULES: DENIED_RULES},
            "unknown",
            "whether the ports' rules are there only root may see",
        ),
        (
            container(),
            "active",
            ROOTFUL | {"@triton.metadata": {"name": "triton"}},
            {RULES: DENIED_RULES},
            "ok",
            "firewalld runs, and Triton answers through its published port",
        ),
        (
            container(),
            "active",
            ROOTLESS | {"@ports": sockets("0.0.0.0")},
            {},
            "note",
            "firewalld runs: a rootless container's ports (8000) are reached from outside only where a zone opens them",
        ),
        (
            container(),
            "active",
            ROOTLESS | {"@ports": sockets("127.0.0.1")},
            {},
            "ok",
            "firewalld runs; the ports are for this host alone",
        ),
        (container(NetworkMode="host"), "active", ROOTFUL | {"@ports": sockets("::")}, {}, "note", None),
    ],
)
def test_i04(
    found: Any,
    firewalld: str | None,
    answers: dict[str, Any],
    commands: dict[str, str | CommandFact],
    sign: str,
    text: str | None,
) -> None:
    given = answers | {"@podman.inspect": found, "@units": units(firewalld=firewalld) if firewalld else {}}
    finding = said(network.firewall, facts_for(network.firewall, dict(PODMAN), commands, given))
    assert finding.sign == sign
    assert text is None or finding.text == text
    if sign == "warn":
        assert finding.fix is not None
        assert (finding.fix.kind, finding.fix.commands) == ("B", ("sudo podman network reload --all",))


SECRET = "http://ana:hunter2@proxy:3128"
DROP_IN = "/etc/systemd/system/podman.service.d/proxy.conf"


@pytest.mark.parametrize(
    ("files", "ping", "sign", "text"),
    [
        ({}, ROOTFUL, "ok", "none is set: pulls go out directly"),
        (
            {"/etc/environment": f"# x\nHTTPS_PROXY={SECRET}\nno_proxy=localhost\n"},
            ROOTFUL,
            "note",
            "HTTPS_PROXY, no_proxy set for shells only: a pull through Podman's service does not use it",
        ),
        ({"/etc/profile.d/proxy.sh": f"export https_proxy='{SECRET}'\n"}, ROOTLESS, "note", None),
        (
            {DROP_IN: f'[Service]\nEnvironment="HTTPS_PROXY={SECRET}"\n'},
            ROOTFUL,
            "note",
            "HTTPS_PROXY set for Podman's service",
        ),
        ({"/etc/containers/containers.conf": f'env = ["HTTPS_PROXY={SECRET}"]\n'}, {}, "note", None),
        ({"/etc/containers/containers.conf": "#http_proxy = true\nhttp_proxy = true\n"}, {}, "ok", None),
        ({"/etc/environment": DENIED}, ROOTFUL, "unknown", "/etc/environment: permission denied"),
        ({"/etc/environment": DENIED, DROP_IN: f"Environment=HTTPS_PROXY={SECRET}\n"}, ROOTFUL, "note", None),
    ],
)
def test_i05(files: dict[str, str | FileFact], ping: dict[str, Any], sign: str, text: str | None) -> None:
    finding = said(network.proxy, facts_for(network.proxy, files, answers=ping))
    assert finding.sign == sign
    assert text is None or finding.text == text
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({}, "none", "no RDMA device; one box alone needs none"),
        (
            {
                "/sys/class/infiniband": folder("mlx5_0"),
                "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            },
            "note",
            "mlx5_0, mlx5_0 active",
        ),
        (
            {"/sys/class/infiniband": folder("mlx5_0"), "/sys/class/infiniband/mlx5_0/ports/1/state": "1: DOWN\n"},
            "note",
            "mlx5_0, no port is active",
        ),
        ({"/sys/class/infiniband": DENIED}, "unknown", "/sys/class/infiniband: permission denied"),
    ],
)
def test_i06(files: dict[str, str | FileFact], sign: str, text: str) -> None:
    finding = said(network.rdma, facts_for(network.rdma, files))
    assert (finding.sign, finding.text) == (sign, text)


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage(text: str) -> None:
    assert said(network.speed, facts_for(network.speed, nic("eno1", text), variables=ONE_GPU)).sign in ("none", "ok")
    answers = ROOTFUL | {"@podman.inspect": container(), "@units": units(firewalld="active")}
    facts = facts_for(
        network.firewall, commands={RULES: CommandFact(1, text), TABLE: CommandFact(1, text)}, answers=answers
    )
    assert said(network.firewall, facts).sign == "unknown"
    files = {"/etc/environment": text, DROP_IN: text, "/etc/containers/containers.conf": text}
    assert said(network.proxy, facts_for(network.proxy, dict(files))).sign == "ok"
