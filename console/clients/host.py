"""The machine's own files (/proc, /sys, statvfs), cumulative figures as the kernel gives them.

Each function takes the root folder, so that recorded trees can stand for other machines. A file that is not there is
FileNotFoundError, one of another form ValueError; both are what the caller turns into a reason.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from console.clients import proc
from console.core.text import one_line, whole_number

SECTOR = 512
"""Bytes: /proc/diskstats counts in these whatever the device's own sector is."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd", "dm-", "md")
_NOT_NETS = ("lo", "veth", "cni", "podman", "docker", "virbr", "br-", "ifb", "dummy", "sit", "tunl")


class CpuTimes(Struct, frozen=True):
    """Ticks since boot of all processors together."""

    busy: int
    idle: int
    iowait: int
    steal: int

    @property
    def total(self) -> int:
        """All ticks."""
        return self.busy + self.idle + self.iowait + self.steal


class Memory(Struct, frozen=True):
    """Bytes."""

    total: int
    available: int
    swap_used: int


class Process(Struct, frozen=True):
    """One process at one moment. (pid, start_ticks) is its identity."""

    pid: int
    parent: int
    name: str
    state: str
    cpu_seconds: float
    rss: int
    start_ticks: int


class Listening(Struct, frozen=True):
    """A listening TCP socket; inode 0 = not told."""

    address: str
    port: int
    inode: int


def head(path: Path, size: int = 4096) -> str:
    """The first bytes of a kernel file; the kernel does not even make the rest (/proc/stat is long on big machines)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, size).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def cpu_times(root: Path = Path("/")) -> CpuTimes:
    """user and nice hold guest time already, so that is not added again (proc(5))."""
    words = head(root / "proc/stat").partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        raise ValueError("/proc/stat has no line of all processors")
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) for word in words[1:9])
    return CpuTimes(user + nice + system + irq + softirq, idle, iowait, steal)


def cpu_count(root: Path = Path("/")) -> int:
    """Processors online."""
    spans = (root / "sys/devices/system/cpu/online").read_text().strip().split(",")
    pairs = (span.partition("-") for span in spans)
    return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)


def load1(root: Path = Path("/")) -> float:
    """Load average over one minute."""
    return float(head(root / "proc/loadavg").split()[0])


def memory(root: Path = Path("/")) -> Memory:
    """MemAvailable is what can be had without swapping; "used" is the rest."""
    pairs = (line.split() for line in head(root / "proc/meminfo").splitlines())
    sizes = {
        pair[0].rstrip(":"): value * 1024
        for pair in pairs
        if len(pair) >= 2 and (value := whole_number(pair[1])) is not None
    }
    try:
        return Memory(sizes["MemTotal"], sizes["MemAvailable"], sizes["SwapTotal"] - sizes["SwapFree"])
    except KeyError as error:
        raise ValueError(f"/proc/meminfo has no {error.args[0]}") from error


def pressure(what: str, root: Path = Path("/")) -> float:
    """PSI `some avg10` in percent of cpu, memory or io. OSError where the kernel has none or it is off."""
    for word in head(root / "proc/pressure" / what).split():
        if word.startswith("avg10="):
            return float(word.removeprefix("avg10="))
    raise ValueError(f"/proc/pressure/{what} has no avg10")


def disk_bytes(root: Path = Path("/")) -> dict[str, tuple[int, int]]:
    """Device -> (read, written) bytes since boot; whole devices only, those never used left out."""
    found: dict[str, tuple[int, int]] = {}
    for line in (root / "proc/diskstats").read_text().splitlines():
        words = line.split()
        if len(words) < 10 or words[2].startswith(_NOT_DISKS) or not (root / "sys/block" / words[2]).exists():
            continue
        read, written = int(words[5]) * SECTOR, int(words[9]) * SECTOR
        if read or written:
            found[words[2]] = (read, written)
    return found


def net_bytes(root: Path = Path("/")) -> dict[str, tuple[int, int]]:
    """Interface -> (received, sent) bytes; loopback, bridges and containers' ends left out: they count twice."""
    found: dict[str, tuple[int, int]] = {}
    for line in (root / "proc/net/dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) < 9 or name.strip().startswith(_NOT_NETS):
            continue
        received, sent = int(words[0]), int(words[8])
        if received or sent:
            found[name.strip()] = (received, sent)
    return found


def filesystem(path: Path) -> tuple[int, int]:
    """(total, used) bytes of the file system at a path."""
    told = os.statvfs(path)
    return told.f_blocks * told.f_frsize, (told.f_blocks - told.f_bfree) * told.f_frsize


def boot_time(root: Path = Path("/")) -> float:
    """Unix time of the boot."""
    for line in reversed((root / "proc/stat").read_text().splitlines()):
        if line.startswith("btime "):
            return float(line.split()[1])
    raise ValueError("/proc/stat has no btime")


_SHORT = {
    "red hat enterprise linux": "RHEL",
    "rocky linux": "Rocky",
    "almalinux": "Alma",
    "oracle linux server": "Oracle",
}


def os_name(root: Path = Path("/")) -> str:
    """Such as `Rocky 8.10`, `RHEL 9.4`, `Debian 12`; the system's own name where os-release is missing."""
    try:
        lines = (root / "etc/os-release").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.system()} {platform.release()}"
    pairs = {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}
    name = pairs.get("NAME", "Linux")
    short = _SHORT.get(name.lower()) or name.replace(" GNU/Linux", "").replace(" Linux", "")
    return f"{short} {pairs.get('VERSION_ID', '')}".strip()


def kernel_release(root: Path = Path("/")) -> str:
    """Such as `4.18.0-553.8.1.el8_10.x86_64`."""
    try:
        return (root / "proc/sys/kernel/osrelease").read_text().strip()
    except OSError:
        return platform.release()


def hostname(root: Path = Path("/")) -> str:
    """The kernel's name of this machine."""
    try:
        return (root / "proc/sys/kernel/hostname").read_text().strip()
    except OSError:
        return platform.node()


class Portable(Struct, frozen=True):
    """What every system tells through psutil; `cpu_pct` is since the call before."""

    cpu_pct: float
    cpus: int | None
    load1: float
    memory: Memory
    boot_wall: float


def portable() -> Portable:
    """The machine through psutil, for systems without /proc."""
    import psutil  # here, as 4 MiB are saved where it is not needed

    told = psutil.virtual_memory()
    return Portable(
        cpu_pct=psutil.cpu_percent(None),
        cpus=psutil.cpu_count(),
        load1=psutil.getloadavg()[0],
        memory=Memory(told.total, told.available, psutil.swap_memory().used),
        boot_wall=psutil.boot_time(),
    )


# ---------------------------------------------------------------------------------------------------------- processes


def process(pid: int, root: Path = Path("/")) -> Process | None:
    """One process (zombies included); None when it is gone or /proc hides it."""
    try:
        data = (root / f"proc/{pid}/stat").read_bytes()
        return parse_process(pid, data)
    except (OSError, ValueError):
        return None


def parse_process(pid: int, data: bytes) -> Process:
    """A /proc/PID/stat; the name may hold blanks and parentheses. ValueError for anything else."""
    name, start = proc.parse_stat(data)
    fields = data.rpartition(b")")[2].split()
    if len(fields) < 22:
        raise ValueError("not a /proc/PID/stat line")
    state, parent = fields[0].decode("ascii", "replace"), int(fields[1])
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return Process(pid, parent, name, state, cpu, int(fields[21]) * _PAGE, start)


def user_name(uid: int) -> str:
    """The user's name; its number where it has none."""
    try:
        return one_line(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, OverflowError):
        return str(uid)


def real_uid(pid: int, root: Path = Path("/")) -> int | None:
    """The user of any process; None when it is gone or hidden."""
    try:
        for line in (root / f"proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return None


def arguments(pid: int, root: Path = Path("/")) -> tuple[str, ...]:
    """Command line of a process; () for a zombie and where it may not be read."""
    try:
        return proc.parse_cmdline((root / f"proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ()


def all_processes(root: Path = Path("/")) -> Iterator[Process]:
    """Every process that /proc shows. Tens of µs each: not for every second."""
    try:
        names = os.listdir(root / "proc")
    except OSError:
        return
    for name in names:
        found = process(int(name), root) if name.isdigit() else None
        if found is not None:
            yield found


def descendants(pid: int, root: Path = Path("/")) -> tuple[int, ...]:
    """A process and all that it started, by one walk over all processes: within a container, all that runs there."""
    children: dict[int, list[int]] = {}
    for one in all_processes(root):
        children.setdefault(one.parent, []).append(one.pid)
    found = [pid]
    for one_pid in found:
        found += children.get(one_pid, ())
    return tuple(sorted(found))


def listener(port: int, root: Path = Path("/")) -> int | None:
    """PID of a process that listens on a TCP port of this network namespace; None when nobody does or it is hidden."""
    inodes = _listening(port, root)
    if not inodes:
        return None
    for folder in (root / "proc").glob("[0-9]*"):
        try:
            links = [os.readlink(entry.path) for entry in os.scandir(folder / "fd")]
        except OSError:
            continue
        if inodes.intersection(links):
            return int(folder.name)
    return None


def _listening(port: int, root: Path) -> set[str]:
    return {f"socket:[{one.inode}]" for one in listening(root) if one.port == port}


def listening(root: Path = Path("/")) -> list[Listening]:
    """Listening TCP sockets of this network namespace; a table that cannot be read has none."""
    found: list[Listening] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (root / "proc/net" / name).read_text("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) < 10 or words[3] != "0A":
                continue
            address, _, port = words[1].rpartition(":")
            with contextlib.suppress(ValueError, OSError):
                found.append(Listening(_address(address), int(port, 16), whole_number(words[9]) or 0))
    return found


def _address(text: str) -> str:
    """Of /proc/net/tcp{,6}: words of four bytes in the machine's own order, which is little-endian where GPUs are."""
    data = bytes.fromhex(text)
    swapped = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return socket.inet_ntop(socket.AF_INET if len(swapped) == 4 else socket.AF_INET6, swapped)
