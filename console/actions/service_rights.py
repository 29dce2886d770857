"""What Podman's service may do on this host: raise limits, publish low ports. Its own process tells.

A user's Podman runs in a user namespace of its own, where it has every capability and the kernel grants it none of
what is asked for here: these are looked for in the host's namespace (user_namespaces(7)).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from console.actions.box import Box
from console.actions.container_spec import UNLIMITED

NET_BIND_SERVICE = 10
SYS_RESOURCE = 24
"""Bits of a capability mask: who has them may listen on any port, raise any limit."""
_LIMIT_ROWS = {
    "nofile": "Max open files",
    "nproc": "Max processes",
    "memlock": "Max locked memory",
    "stack": "Max stack size",
    "core": "Max core file size",
    "as": "Max address space",
}
_CREDENTIALS = struct.Struct("3i")


class ServiceRights(Struct, frozen=True):
    """Of the process that serves Podman's socket."""

    limits: Mapping[str, int]
    """Hard limits that it may not go beyond; {} where it may raise them all."""
    lowest_port: int
    """The lowest port that it may publish."""


def service_rights(box: Box) -> ServiceRights | None:
    """None where the process cannot be looked at."""
    pid = _service_pid(box.podman_url)
    return None if pid is None else rights_of(pid)


def service_limits(box: Box) -> Mapping[str, int] | None:
    """The hard limits of Podman's service; {} where it may raise them all; None where it cannot be looked at."""
    told = service_rights(box)
    return None if told is None else told.limits


def rights_of(pid: int, root: Path = Path("/")) -> ServiceRights | None:
    """Of one process; None where it is gone or may not be looked at."""
    folder = root / "proc" / str(pid)
    try:
        status, limits = (folder / "status").read_text(), (folder / "limits").read_text()
        mask = _capabilities(status) if _is_hosts((folder / "uid_map").read_text()) else 0
        lowest = (root / "proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip()
    except OSError:
        return None
    return ServiceRights(
        {} if mask >> SYS_RESOURCE & 1 else _hard_limits(limits),
        1 if mask >> NET_BIND_SERVICE & 1 or not lowest.isdecimal() else int(lowest),
    )


def _capabilities(status: str) -> int:
    return int(next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0"), 16)


def _is_hosts(uid_map: str) -> bool:
    """True in the first user namespace: every user stands for itself."""
    return [line.split() for line in uid_map.splitlines()] == [["0", "0", "4294967295"]]


def _service_pid(url: str) -> int | None:
    """Who listens on the socket; with socket activation that is systemd, which gives its rights on."""
    if not url.startswith("unix://"):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(url.removeprefix("unix://"))
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    return int(_CREDENTIALS.unpack(raw)[0]) or None


def _hard_limits(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, row in _LIMIT_ROWS.items():
        line = next((line for line in text.splitlines() if line.startswith(row)), "")
        words = line.removeprefix(row).split()
        if len(words) >= 2:
            found[name] = UNLIMITED if words[1] == "unlimited" else int(words[1])
    return found
