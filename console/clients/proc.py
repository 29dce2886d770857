"""What /proc tells about a process: user, command, start, container, and the model a Python back-end stub serves.

The identity of a process is its PID with its start time: PIDs come back. The PIDs that NVML gives are those of the
host; where this console runs in a PID namespace of its own, /proc may not hold them, and then nothing is told.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from console.core.text import decode, one_line

_CONTAINER_ID = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_NOT_THE_CONTAINER = re.compile(r"libpod_pod_[0-9a-f]{64}|conmon-[0-9a-f]{64}")
"""A pod's slice and the monitor's scope bear 64 digits too."""
_INTERPRETER = re.compile(r"^(python|python\d[\d.]*|bash|sh|perl|ruby|node|java)$", re.ASCII)
_STUB = "triton_python_backend_stub"
_TEMPORARY = re.compile(r"^folder\w{6}$", re.ASCII)
"""The folder that Triton makes for a model from cloud storage."""
_INSTANCE = re.compile(r"^(.+)_\d+_\d+$", re.ASCII | re.DOTALL)


class ModelOfStub(Struct, frozen=True):
    """The model that a Python back-end stub serves; `version` None where the command line does not tell it."""

    name: str
    version: str | None


class ProcInfo(Struct, frozen=True):
    """One process. Any field may be None; `reason` then says why."""

    pid: int
    start_ticks: int | None = None
    """Clock ticks after boot: with `pid` the identity of the process."""
    started_wall: float | None = None
    user: str | None = None
    command: str | None = None
    """The program's name; for an interpreter with the script's. No further arguments: they may hold secrets."""
    container_id: str | None = None
    in_container: bool | None = None
    model: ModelOfStub | None = None
    reason: str | None = None


class ProcReader:
    """Reads /proc, keeping what does not change while a process lives. Used by one thread."""

    def __init__(self, root: str = "/", user_name: Callable[[int], str | None] | None = None) -> None:
        self._proc = Path(root) / "proc"
        self._ask_name = user_name or _user_name
        self._names: dict[int, str | None] = {}
        self._known: dict[int, tuple[tuple[int, str], ProcInfo]] = {}
        self._boot: float | None = None
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self, pid: int) -> ProcInfo:
        """What is known about `pid` now."""
        try:
            comm, ticks = parse_stat(self._bytes(pid, "stat"))
        except (OSError, ValueError) as error:
            self._known.pop(pid, None)
            return ProcInfo(pid, reason=_why(error))
        # The name is part of the key because exec keeps PID and start time.
        identity = (ticks, comm)
        known = self._known.get(pid)
        if known is None or known[0] != identity:
            known = (identity, self._describe(pid, comm, ticks))
            self._known[pid] = known
        return known[1]

    def keep_only(self, pids: Iterable[int]) -> None:
        """Forget all other processes."""
        wanted = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in wanted}

    def _describe(self, pid: int, comm: str, ticks: int) -> ProcInfo:
        argv = parse_cmdline(self._bytes_or_none(pid, "cmdline") or b"")
        container_id, in_container = self._container(pid)
        return ProcInfo(
            pid,
            start_ticks=ticks,
            started_wall=self._started(ticks),
            user=self._user(pid),
            command=command_name(argv) or one_line(comm, 200),
            container_id=container_id,
            in_container=in_container,
            model=stub_model(argv),
        )

    def _container(self, pid: int) -> tuple[str | None, bool | None]:
        data = self._bytes_or_none(pid, "cgroup")
        if data is None:
            return None, None
        text = decode(data)
        found = container_id_of(text)
        if found is not None:
            return found, True
        other_namespace = self._other_pid_namespace(pid)
        if other_namespace is None and "/user.slice" in text and not all_unified(text):
            # Rootless Podman on cgroup v1 leaves its containers in the user's own cgroup.
            return None, None
        return None, bool(other_namespace)

    def _other_pid_namespace(self, pid: int) -> bool | None:
        try:
            ours = os.readlink(self._proc / "self/ns/pid")
            return os.readlink(self._proc / str(pid) / "ns/pid") != ours
        except OSError:
            return None

    def _user(self, pid: int) -> str | None:
        data = self._bytes_or_none(pid, "status")
        match = re.search(rb"^Uid:\s+(\d+)", data or b"", re.MULTILINE)
        if match is None:
            return None
        uid = int(match.group(1))
        if uid not in self._names:
            self._names[uid] = self._ask_name(uid)
        return self._names[uid] or str(uid)

    def _started(self, ticks: int) -> float | None:
        if self._boot is None:
            try:
                match = re.search(rb"^btime (\d+)", (self._proc / "stat").read_bytes(), re.MULTILINE)
            except OSError:
                return None
            if match is None:
                return None
            # Kept: the kernel derives it from the clock at each read, and a start must not wander by a second.
            self._boot = float(match.group(1))
        return self._boot + ticks / self._ticks

    def _bytes(self, pid: int, name: str) -> bytes:
        return (self._proc / str(pid) / name).read_bytes()

    def _bytes_or_none(self, pid: int, name: str) -> bytes | None:
        try:
            return self._bytes(pid, name)
        except OSError:
            return None


def established(pid: int, port: int, root: Path = Path("/")) -> int | None:
    """Open connections to a TCP port in the network namespace of a process, from /proc/PID/net/tcp and tcp6; None
    where neither can be read."""
    counts = [_established(root / f"proc/{pid}/net/{name}", port) for name in ("tcp", "tcp6")]
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def _established(table: Path, port: int) -> int | None:
    try:
        rows = table.read_text("ascii", "replace").splitlines()[1:]
    except OSError:
        return None
    wanted = f":{port:04X}"
    fields = (row.split() for row in rows)
    return sum(1 for row in fields if len(row) > 3 and row[3] == "01" and row[1].endswith(wanted))


def parse_stat(data: bytes) -> tuple[str, int]:
    """(name, start in clock ticks after boot) of a /proc/PID/stat; the name may hold blanks and parentheses.

    Raises ValueError for anything else.
    """
    head, closing, tail = data.rpartition(b")")
    _, opening, name = head.partition(b"(")
    fields = tail.split()
    if not closing or not opening or len(fields) < 20:
        raise ValueError("not a /proc/PID/stat line")
    return decode(name), int(fields[19])


def parse_cmdline(data: bytes) -> tuple[str, ...]:
    """Arguments of a /proc/PID/cmdline; () for a zombie or a kernel thread."""
    return tuple(decode(part) for part in data.rstrip(b"\0").split(b"\0")) if data.strip(b"\0") else ()


def command_name(argv: tuple[str, ...]) -> str | None:
    """Program name, and for an interpreter the script's or module's name too; None for ()."""
    if not argv or not argv[0]:
        return None
    # Programs that set their title (postgres: ...) write one string without arguments.
    name = _base(argv[0].split(" ")[0])
    if _INTERPRETER.match(name):
        script = _script(argv[1:])
        name = f"{name} {script}" if script else name
    return one_line(name, 200)


def _script(arguments: tuple[str, ...]) -> str | None:
    words = iter(arguments)
    for word in words:
        if word in ("-m", "-jar"):
            return _base(next(words, "")) or None
        if word == "-c":
            return None
        if not word.startswith("-"):
            return _base(word)
    return None


def stub_model(argv: tuple[str, ...]) -> ModelOfStub | None:
    """The model of a Triton Python back-end stub, from `stub REPO/MODEL/VERSION/model.py ... MODEL_0_0 DEFAULT`.

    Models from cloud storage run from /tmp/folderXXXXXX and those of Python-based back ends (vLLM) from the back
    end's folder; then only the instance name (such as `post-processing_0_5`) tells. None when this is no stub.
    """
    if not argv or _base(argv[0]) != _STUB or len(argv) < 2:
        return None
    parts = argv[1].split("/")
    by_path = ModelOfStub(parts[-3], parts[-2]) if len(parts) >= 3 and parts[-2].isdecimal() and parts[-3] else None
    by_instance = next((match.group(1) for word in reversed(argv[2:]) if (match := _INSTANCE.match(word))), None)
    if by_path is not None and not _TEMPORARY.match(by_path.name):
        return by_path
    return ModelOfStub(by_instance, by_path.version if by_path else None) if by_instance else None


def container_id_of(cgroup: str) -> str | None:
    """64 hex digits of the innermost container in a /proc/PID/cgroup (Podman, Docker, CRI-O; v1 and v2), else None."""
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        found = _CONTAINER_ID.findall(_NOT_THE_CONTAINER.sub("", path))
        if found:
            return str(found[-1])
    return None


def all_unified(cgroup: str) -> bool:
    """True when the process is in the unified hierarchy (cgroup v2) only."""
    return all(line.startswith("0::") for line in cgroup.splitlines() if line)


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, PermissionError):
        return "not permitted: /proc hides the processes of others (hidepid)"
    if isinstance(error, (FileNotFoundError, ProcessLookupError)):
        return "not in /proc here: it has ended, or it is in another PID namespace"
    return f"/proc cannot be read: {error}"
