"""What the kernel, systemd and NVML answer, as the JSON that checks read. Each function is one question, for a thread
of its own."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.clients import host as machine
from console.clients import nvml as nvml_client
from console.clients import proc
from console.clients.journal import Kmsg, boot_wall, kernel_entries
from console.clients.systemd import UNIT_NAME, SystemdView
from console.core.model import SourceError
from console.core.text import whole_number
from console.sources.facts_host import Host
from console.sources.gpu import GpuSource

SYSTEM_UNITS = (
    "podman.socket",
    "podman.service",
    "podman-restart.service",
    "nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "tuned.service",
    "irqbalance.service",
    "chronyd.service",
    "chrony.service",
    "ntpd.service",
    "systemd-timesyncd.service",
    "firewalld.service",
)
USER_UNITS = ("podman.socket", "podman.service", "podman-restart.service")
PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus", "UnitFileState", "NRestarts"),
    *("NeedDaemonReload", "FragmentPath", "SourcePath", "Type", "Restart", "TimeoutStartUSec", "TimeoutStopUSec"),
    *("After", "Wants", "StartLimitBurst"),
)
MAX_LINES = 2000
"""Lines of the kernel log kept, the newest."""
JOURNAL_LIMIT = 1.0
"""Seconds that the journal has to tell what the ring buffer has lost."""
SAMPLED = 2.0
"""Seconds between the two looks of `@samples`."""
_PROCESSES = re.compile(
    r"podman|conmon|tritonserver|triton_python|nvidia-|nv-hostengine|nv-fabricmanager|X$|Xorg|Xwayland|gnome-shell|"
    r"rootlessport|slirp4netns|pasta|netavark|aardvark"
)
_KERNEL = re.compile(
    r"NVRM|nvidia|nouveau|\bXid\b|\boom[-_]|ut of memory|\bavc\b|module verification|unavailable key|unsigned module|"
    r"[Kk]ey was rejected|[Rr]equired key|\b[Gg][Ss][Pp]\b|[Ll]ockdown|\bAER\b|Hardware Error|vfio"
)


# ---------------------------------------------------------------------------------------------------------- who, where


def me() -> dict[str, Any]:
    """Who looks. sudo is not tried: for a user without the right that is a line in the security log."""
    uid = os.geteuid()
    groups = sorted({os.getegid(), *os.getgroups()})
    return {
        "uid": uid,
        "user": user_name(uid) or str(uid),
        "groups": [_group_name(one) or str(one) for one in groups],
        "sudo": True if uid == 0 else None,
    }


def settings(host: Host) -> dict[str, Any]:
    """As the console is set; 0 and "" = left to be found."""
    triton, podman = host.settings.triton, host.settings.podman
    return {
        "host": triton.host,
        "http_port": triton.http_port,
        "grpc_port": triton.grpc_port,
        "metrics_port": triton.metrics_port,
        "socket": podman.socket,
        "container": podman.container,
        "repository": host.settings.repository.path,
    }


def user_name(uid: int) -> str | None:
    """Of this machine's users; None where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def home_of(uid: int) -> str | None:
    """Home folder of one of this machine's users."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def _group_name(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None


# ----------------------------------------------------------------------------------------------------------- processes


def processes(root: Path) -> list[dict[str, Any]]:
    """Processes of containers and of the card. SourceError where /proc shows only one's own."""
    if root == Path("/") and not os.path.exists("/proc/1/stat"):
        raise SourceError("permission", "/proc hides the processes of others (hidepid), or is not there")
    found: list[dict[str, Any]] = []
    for one in machine.all_processes(root):
        if not _PROCESSES.match(one.name):
            continue
        folder = root / f"proc/{one.pid}"
        uid = _uid(_read(folder / "status"))
        found.append(
            {
                "pid": one.pid,
                "parent": one.parent,
                "uid": uid,
                "user": (user_name(uid) or str(uid)) if uid is not None else None,
                "name": one.name,
                "argv": list(machine.arguments(one.pid, root)),
                "cgroup": _read(folder / "cgroup"),
            }
        )
    return sorted(found, key=lambda row: int(row["pid"]))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _uid(status: str) -> int | None:
    match = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
    return int(match[1]) if match else None


def ports(root: Path) -> list[dict[str, Any]]:
    """Listening TCP sockets of this network namespace with who holds them, as far as /proc/PID/fd may be read."""
    rows: list[dict[str, Any]] = [msgspec.to_builtins(one) for one in machine.listening(root)]
    if not rows and not os.path.exists(root / "proc/net/tcp"):
        raise SourceError("unavailable", "/proc/net/tcp cannot be read")
    holders = _holders(root, {int(row["inode"]) for row in rows})
    for row in rows:
        row["pids"] = sorted(holders.get(row["inode"], ()))
        first = row["pids"][0] if row["pids"] else None
        row["process"] = _process_name(root, first) if first is not None else None
    return rows


def _holders(root: Path, inodes: set[int]) -> dict[int, set[int]]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes if inode}
    found: dict[int, set[int]] = {}
    try:
        names = [name for name in os.listdir(root / "proc") if name.isdigit()] if wanted else []
    except OSError:
        return found
    for name in names:
        folder = f"{root}/proc/{name}/fd"
        try:
            files = os.listdir(folder)
        except OSError:
            continue
        for file in files:
            try:
                target = os.readlink(f"{folder}/{file}")
            except OSError:
                continue
            if target in wanted:
                found.setdefault(wanted[target], set()).add(int(name))
    return found


def _process_name(root: Path, pid: int) -> str | None:
    argv = machine.arguments(pid, root)
    return proc.command_name(argv) or _read(root / f"proc/{pid}/comm").strip() or None


# --------------------------------------------------------------------------------------------------------------- units


def units(more: Sequence[str], user_more: Sequence[str], owner: int | None, limit_s: float) -> dict[str, Any]:
    """System units of interest, and those of the user `owner` where the containers are a user's own.

    Where the user's systemd does not answer each of its units is `{"error": why}`. SourceError without systemd.
    """
    systemd = SystemdView(owner)
    found: dict[str, Any] = dict(systemd.show_all(_names(SYSTEM_UNITS, more), PROPERTIES, timeout=limit_s))
    if owner is None:
        return found
    own = _names(USER_UNITS, user_more)
    try:
        told = systemd.show_all(own, PROPERTIES, user=True, timeout=limit_s)
        found |= {f"user:{name}": one for name, one in told.items()}
    except SourceError as error:
        found |= {f"user:{name}": {"error": error.message} for name in own}
    return found


def _names(units_: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """A label may hold anything: what is no unit's name is left out."""
    return tuple(dict.fromkeys((*units_, *(one for one in more if UNIT_NAME.fullmatch(one) and one[0] != "-"))))


# ---------------------------------------------------------------------------------------------------------- kernel log


def kernel_log(host: Host) -> dict[str, Any]:
    """Lines about the card, its driver, memory and SELinux. SourceError where neither kmsg nor journal may be read."""
    try:
        kmsg = Kmsg(host.root / "dev/kmsg")
    except SourceError as refused:
        if not host.is_live:
            raise
        return _from_journal(refused)
    try:
        records = kmsg.read()
    finally:
        kmsg.close()
    boot = boot_wall() if host.is_live else machine.boot_time(host.root)
    lines = [(boot + record.mono, record.text) for record in records]
    if host.is_live and records and records[0].sequence > 0:
        lines = [*_older(records[0].mono), *lines]
    return _kept("/dev/kmsg", lines)


def _older(than: float) -> list[tuple[float, str]]:
    """What the ring has lost since the boot, from the journal; nothing where that takes too long."""
    found: list[tuple[float, str]] = []

    def ask() -> None:
        with contextlib.suppress(SourceError):
            entries = [one for one in kernel_entries() if one.mono is not None and one.mono < than]
            found.extend((one.wall, one.message) for one in entries)

    thread = threading.Thread(target=ask, name="facts.journal", daemon=True)
    thread.start()
    thread.join(JOURNAL_LIMIT)
    return list(found)


def _from_journal(refused: SourceError) -> dict[str, Any]:
    try:
        entries = kernel_entries()
    except SourceError as error:
        kind = "permission" if "permission" in (refused.kind, error.kind) else error.kind
        raise SourceError(kind, f"kernel log: {refused.message}; {error.message}", "sudo dmesg") from error
    return _kept("journal", [(entry.wall, entry.message) for entry in entries])


def _kept(source: str, lines: Iterable[tuple[float, str]]) -> dict[str, Any]:
    kept = [{"wall": wall, "text": text[:2000]} for wall, text in lines if _KERNEL.search(text)]
    return {"source": source, "lines": kept[-MAX_LINES:]}


# ---------------------------------------------------------------------------------------------------------------- NVML


def nvml(host: Host) -> dict[str, Any]:
    """All cards, or why there is no session with NVML's own code."""
    source = GpuSource(api=host.nvml, root=str(host.root))
    try:
        source.open()
        box = source.read()
    except SourceError as error:
        code = error.code if isinstance(error, nvml_client.SessionError) else None
        return {"error": {"code": code, "text": error.message, "hint": error.hint}, "box": None}
    finally:
        source.close()
    return {"error": None, "box": msgspec.to_builtins(box)}


# ------------------------------------------------------------------------------------------------------------- samples


def samples(root: Path) -> dict[str, Any]:
    """Rates over SAMPLED seconds: share of time by idle state, swapped pages a second, the card's interrupts a second
    by processor."""
    began = time.monotonic()
    first = _sample(root)
    time.sleep(SAMPLED)
    second, seconds = _sample(root), time.monotonic() - began
    pairs = zip(first[:3], second[:3], strict=True)
    idle, swap, irqs = ({key: now[key] - before.get(key, 0) for key in now} for before, now in pairs)
    cpus = max(1, first[3])
    return {
        "seconds": round(seconds, 3),
        "cpuidle": {name: round(passed / 1e6 / seconds / cpus, 4) for name, passed in idle.items()},
        "swap_in": round(swap.get("pswpin", 0) / seconds, 2),
        "swap_out": round(swap.get("pswpout", 0) / seconds, 2),
        "irqs": {cpu: round(count / seconds, 2) for cpu, count in irqs.items() if count},
    }


def _sample(root: Path) -> tuple[dict[str, int], dict[str, int], dict[str, int], int]:
    """(microseconds by idle state, pages swapped, interrupts by processor, processors)."""
    idle: dict[str, int] = {}
    cpus = 0
    for folder in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpuidle"):
        cpus += 1
        for state in folder.glob("state*"):
            name, passed = _read(state / "name").strip(), whole_number(_read(state / "time").strip())
            if name and passed is not None:
                idle[name] = idle.get(name, 0) + passed
    pairs = (line.split() for line in _read(root / "proc/vmstat").splitlines())
    swap = {one[0]: int(one[1]) for one in pairs if len(one) == 2 and one[0].startswith("pswp") and one[1].isdigit()}
    return idle, swap, _interrupts(_read(root / "proc/interrupts")), cpus


def _interrupts(text: str) -> dict[str, int]:
    lines = text.splitlines()
    cpus = [word.removeprefix("CPU") for word in lines[0].split()] if lines else []
    found: dict[str, int] = {}
    for line in lines[1:]:
        if "nvidia" not in line:
            continue
        counts: Mapping[str, str] = dict(zip(cpus, line.split()[1:], strict=False))
        for cpu, count in counts.items():
            if count.isdigit():
                found[cpu] = found.get(cpu, 0) + int(count)
    return found
