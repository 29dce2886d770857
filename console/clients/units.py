"""The systemd unit that owns the container: which it is, its state, and its last journal lines."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from console.clients import cgroup
from console.clients.commands import run
from console.core.model import SourceError, UnitState
from console.core.secrets import mask_text
from console.core.text import one_line, whole_number

ASK_EVERY = 5.0
"""Seconds between two questions to systemctl: each starts a process."""
_FOLDERS = ("etc/systemd/system", "run/systemd/generator", "usr/lib/systemd/system")
_PROPERTIES = "ActiveState,SubState,NRestarts,ExecMainStatus,ExecMainExitTimestamp,StateChangeTimestamp,LoadState"


def unit_of_processes(pids: Sequence[int], create_command: Sequence[str], root: Path = Path("/")) -> str | None:
    """The service in whose cgroup conmon, the container, or the `podman run` that made it lives; None = none found.

    A hand-written unit leaves no label, and Podman moves conmon and the container to cgroups of their own: what stays
    in the unit's cgroup is the `podman run` in the foreground, which has the create command as its own.
    """
    for pid in pids:
        unit = cgroup.owning_unit(pid, root)
        if unit is not None:
            return unit
    if not create_command:
        return None
    wanted = "\0".join(create_command).encode("utf-8", "surrogateescape")
    for folder in _processes(root):
        try:
            if (folder / "comm").read_bytes().strip() == b"podman" and (folder / "cmdline").read_bytes().rstrip(
                b"\0"
            ) == wanted:
                return cgroup.owning_unit(int(folder.name), root)
        except OSError:
            continue
    return None


def in_user_manager(pids: Sequence[int], root: Path = Path("/")) -> bool | None:
    """True when a process runs below a user's own systemd, False below the system's services; None = not told."""
    for pid in pids:
        group = cgroup.systemd_path(pid, root)
        if group is None:
            continue
        if re.search(r"/user@\d+\.service/", group):
            return True
        if group.startswith("/system.slice/"):
            return False
    return None


def _processes(root: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(root / "proc") if entry.name.isdigit()]
    except OSError:
        return []


def triton_unit(root: Path = Path("/")) -> str | None:
    """A system unit (Quadlet's generated ones included) whose file runs tritonserver; the first by name."""
    for folder in _FOLDERS:
        for file in sorted((root / folder).glob("*.service")):
            try:
                text = file.read_bytes()[:65536]
            except OSError:
                continue
            if b"podman" in text and b"tritonserver" in text:
                return file.name
    return None


def unit_naming(container: str, root: Path = Path("/"), user: bool = False) -> str | None:
    """A unit whose file runs Podman with this container name; the first by name.

    For a hand-written unit that leaves no trace on its container: no label, and `podman run -d` has ended.
    """
    pattern = re.compile(rb"--name[= ][\"']?" + re.escape(container.encode()) + rb"(?![\w.-])")
    for folder in _user_folders() if user else _FOLDERS:
        for file in sorted((root / folder).glob("*.service")):
            try:
                text = file.read_bytes()[:65536]
            except OSError:
                continue
            if b"podman" in text and pattern.search(text):
                return file.name
    return None


def _user_folders() -> tuple[str, ...]:
    home = Path(os.path.expanduser("~")).relative_to("/")
    return f"{home}/.config/systemd/user", f"run/user/{os.getuid()}/systemd/generator"


def unit_state(unit: str, user: bool = False) -> UnitState | None:
    """How systemd (the user's own where `user`) sees a unit; None where there is none, or it does not know the unit."""
    try:
        answer = run(["systemctl", *_scope(user), "show", unit, f"--property={_PROPERTIES}"])
    except SourceError:
        return None
    if answer.code != 0:
        return None
    return parse_unit(unit, answer.text)


def parse_unit(unit: str, text: str) -> UnitState | None:
    """The answer of `systemctl show`; None for a unit that is not loaded."""
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if pairs.get("LoadState", "not-found") == "not-found":
        return None
    exited = _stamp(pairs.get("ExecMainExitTimestamp", ""))
    return UnitState(
        name=unit,
        active=pairs.get("ActiveState", ""),
        sub=pairs.get("SubState", ""),
        restarts=whole_number(pairs.get("NRestarts", "")),
        exit_status=whole_number(pairs.get("ExecMainStatus", "")) if exited else None,
        exit_wall=exited,
        since_wall=_stamp(pairs.get("StateChangeTimestamp", "")),
    )


def _stamp(text: str) -> float | None:
    """`Sat 2024-07-06 03:12:40 CST` in this host's zone -> Unix seconds."""
    words = text.split()
    if len(words) < 3:
        return None
    try:
        return datetime.fromisoformat(f"{words[1]} {words[2]}").timestamp()
    except ValueError:
        return None


def _scope(user: bool) -> tuple[str, ...]:
    return ("--user",) if user else ()


def last_lines(unit: str, count: int, user: bool = False) -> tuple[str, ...]:
    """The unit's last journal lines, secrets masked; () where there is no journal or no right to read it."""
    try:
        answer = run(["journalctl", *_scope(user), "-u", unit, "-n", str(count), "-o", "cat", "--no-pager", "-q"])
    except SourceError:
        return ()
    return tuple(one_line(mask_text(line), 500) for line in answer.text.splitlines()[-count:] if line.strip())
