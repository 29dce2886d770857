"""What Podman's service may do, from hand-made /proc trees: root's, a user's, one without the right to raise limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.actions.container_spec import UNLIMITED
from console.actions.service_rights import ServiceRights, rights_of
from tests.clients.test_cgroup import put

HOSTS = "         0          0 4294967295\n"
USERS = "         0        999          1\n         1     300000      65536\n"
ALL = "000001ffffffffff"
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             32768                32768                processes
Max open files            1024                 20000                files
Max locked memory         8192                 8192                 bytes
"""
HARD = {"nofile": 20000, "nproc": 32768, "memlock": 8192, "stack": UNLIMITED}


def service(root: Path, users: str, mask: str, lowest: str = "1024\n") -> Path:
    told = {"status": f"Name:\tpodman\nCapEff:\t{mask}\n", "limits": LIMITS, "uid_map": users}
    put(root, **{f"proc/7/{name}": text for name, text in told.items()})
    put(root, **{"proc/sys/net/ipv4/ip_unprivileged_port_start": lowest})
    return root


@pytest.mark.parametrize(
    ("users", "mask", "rights"),
    [
        (HOSTS, ALL, ServiceRights({}, 1)),
        (HOSTS, "000001fffeffffff", ServiceRights(HARD, 1)),
        (HOSTS, "0000000000000000", ServiceRights(HARD, 1024)),
        (USERS, ALL, ServiceRights(HARD, 1024)),
    ],
    ids=["root", "root without CAP_SYS_RESOURCE", "a user's systemd", "a user's Podman, all capabilities in its own"],
)
def test_rights(tmp_path: Path, users: str, mask: str, rights: ServiceRights) -> None:
    assert rights_of(7, service(tmp_path, users, mask)) == rights


def test_a_host_that_gives_users_low_ports(tmp_path: Path) -> None:
    told = rights_of(7, service(tmp_path, USERS, ALL, "80\n"))
    assert told is not None
    assert told.lowest_port == 80


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert rights_of(8, service(tmp_path, HOSTS, ALL)) is None
