"""Who acts: the kernel's word on the user, the environment's on the SSH client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from console.clients import host
from console.clients.host import user_name
from console.core.plan import Operator
from console.core.text import decode, one_line

NOBODY_LOGGED_IN = 4294967295
"""(uid)-1 in /proc/PID/loginuid: the process descends from no login (a daemon, a container without audit)."""
_GENERATIONS = 32
"""Parents that are asked: su, sudo, shells and multiplexers stand between a console and its login."""


def operator(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Operator:
    """The one who runs this process."""
    login = login_uid(os.getpid(), root)
    return Operator(
        user=user_name(os.getuid()),
        uid=os.getuid(),
        login_uid=login,
        login_user=None if login is None else user_name(login),
        ssh=_ssh_client(root, environ),
        terminal=_terminal(),
        pid=os.getpid(),
    )


def login_uid(pid: int, root: Path = Path("/")) -> int | None:
    """As whom the session of this process was opened (it stays through sudo and su); None = not told."""
    try:
        uid = int((root / f"proc/{pid}/loginuid").read_bytes())
    except (OSError, ValueError):
        return None
    return None if uid == NOBODY_LOGGED_IN else uid


def _ssh_client(root: Path, environ: Mapping[str, str]) -> str | None:
    """Of this process, else of the nearest parent whose environment may be read: sudo drops SSH_CONNECTION."""
    told = environ.get("SSH_CONNECTION", "")
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        if told or pid <= 1:
            break
        told = _variable(pid, b"SSH_CONNECTION", root)
        parent = host.process(pid, root)
        pid = parent.parent if parent is not None else 0
    words = told.split()
    return one_line(words[0], 64) if words else None


def _variable(pid: int, name: bytes, root: Path) -> str:
    try:
        pairs = (root / f"proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((decode(pair[len(name) + 1 :]) for pair in pairs if pair.startswith(name + b"=")), "")


def _terminal() -> str | None:
    for descriptor in (0, 1, 2):
        try:
            return os.ttyname(descriptor)
        except OSError:
            continue
    return None
