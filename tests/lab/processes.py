"""The lab's own processes: started, recorded, and ended only when they are still the ones recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab import paths


def start(name: str, command: list[str], environment: Mapping[str, str]) -> int:
    """Start a background process in a session of its own, record it under `name`, return its pid."""
    paths.PIDS.mkdir(parents=True, exist_ok=True)
    paths.LOGS.mkdir(parents=True, exist_ok=True)
    with (paths.LOGS / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record = {"pid": child.pid, "started": start_time(child.pid), "command": command}
    (paths.PIDS / f"{name}.json").write_text(json.dumps(record))
    return child.pid


def running(name: str) -> int | None:
    """Return the pid recorded under `name` if that very process still runs."""
    try:
        record = json.loads((paths.PIDS / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    pid = int(record["pid"])
    # A pid is used again by the kernel; its start time with it is not.
    return pid if record["started"] is not None and start_time(pid) == record["started"] else None


def stop(name: str, seconds: float = 5.0) -> None:
    """End the process recorded under `name`: SIGTERM, then SIGKILL after `seconds`."""
    pid = running(name)
    if pid is not None:
        end(pid, seconds)
    (paths.PIDS / f"{name}.json").unlink(missing_ok=True)


def end(pid: int, seconds: float = 5.0) -> None:
    """End one process and wait until it is gone; none of that name is no error."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if start_time(pid) is None:
                return
            time.sleep(0.02)


def start_time(pid: int) -> int | None:
    """Return when a living process started, in clock ticks since boot; None if there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def holding_card() -> Iterator[tuple[int, list[str]]]:
    """Yield pid and command line of each process that runs with the lab's CDI device."""
    mark = f"{paths.MARK}=".encode()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if environment.startswith(mark) or b"\0" + mark in environment:
                yield pid, _command_line(pid)
        except OSError:
            continue  # it has just ended


def strays() -> Iterator[int]:
    """Yield the pids of what a killed `up` leaves: Podman, its monitors, and the base image's making."""
    for pid in _pids():
        try:
            command = _command_line(pid)
            root = os.readlink(f"/proc/{pid}/root")
        except OSError:
            continue  # it has just ended
        # debootstrap is a shell script, so its own name is the second word.
        ours = any(Path(word).name in _PROGRAMS for word in command[:2])
        names_lab = any(word.startswith((str(paths.STATE), str(paths.RUN))) for word in command[1:])
        if (ours and names_lab) or root == str(paths.BASE):
            yield pid


_PROGRAMS = frozenset(("conmon", "podman", "debootstrap", "tar", "runc"))


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _command_line(pid: int) -> list[str]:
    raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    return raw.rstrip(b"\0").decode(errors="replace").split("\0") if raw else []
