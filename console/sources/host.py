"""The machine around the card, and what the container's processes take of it. Under 5 ms of CPU a read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from console.clients import cgroup, host, proc
from console.core.model import DiskRate, HostState, NetRate, Pressure, SourceError

T = TypeVar("T")

ZOMBIES_EVERY = 30.0
"""Seconds between two walks over all of /proc for zombies that died before this console began to watch."""
TREE_EVERY = 5.0
"""Seconds between two walks over all of /proc for the processes of a container without a cgroup of its own."""
NO_CONTAINER = "no running container is known"


class _Counters(Struct, frozen=True):
    """What rates are made from."""

    mono: float
    cpu: host.CpuTimes | None
    disks: dict[str, tuple[int, int]]
    nets: dict[str, tuple[int, int]]


class _Identity(Struct, frozen=True):
    """What does not change while the machine runs."""

    hostname: str
    os_name: str
    kernel: str
    boot_wall: float | None
    cpus: int | None


class _Share(Struct, frozen=True):
    """What the container's processes take."""

    cores: float | None = None
    rss: int | None = None
    stubs: dict[str, tuple[int, ...]] = {}
    stub_cores: dict[str, float] = {}
    zombies: tuple[int, ...] = ()


class HostSource:
    """Reads HostState. What cannot be read is None with its reason in `missing`; the rest lives."""

    name = "host"
    interval = 1.0

    def __init__(
        self,
        pid: Callable[[], int | None] = lambda: None,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._root = root
        self._clock = clock
        self._identity: _Identity | None = None
        self._before: _Counters | None = None
        self._missing: dict[str, str] = {}
        self._container: ContainerProcesses | None = None

    def open(self) -> None:
        """Nothing to open; the first read has no rates."""

    def close(self) -> None:
        """Forget the counters: rates over a gap would be means over it."""
        self._before = None

    def read(self) -> HostState:
        """One reading. Where there is no /proc (macOS) only what psutil gives, with one reason for the rest."""
        if not (self._root / "proc/stat").exists():
            return portable()
        self._missing = {}
        if self._identity is None:
            self._identity = self._identify()
        now = _Counters(
            self._clock(),
            self._try("cpu_pct", host.cpu_times),
            self._try("disks", host.disk_bytes) or {},
            self._try("nets", host.net_bytes) or {},
        )
        before, self._before = self._before, now
        return self._state(self._identity, before, now)

    def _identify(self) -> _Identity:
        return _Identity(
            host.hostname(self._root),
            host.os_name(self._root),
            host.kernel_release(self._root),
            self._try("boot_wall", host.boot_time),
            self._try("cpus", host.cpu_count),
        )

    def _state(self, identity: _Identity, before: _Counters | None, now: _Counters) -> HostState:
        span = now.mono - before.mono if before else 0.0
        cpu, iowait, steal = _cpu(before.cpu if before else None, now.cpu)
        memory = self._try("memory_used", host.memory)
        shm = self._try("shm_used", lambda root: host.filesystem(root / "dev/shm"))
        share = self._share()
        if cpu is None:
            self._missing.setdefault("cpu_pct", "needs two readings")
        return HostState(
            hostname=identity.hostname,
            os_name=identity.os_name,
            kernel=identity.kernel,
            boot_wall=identity.boot_wall,
            cpus=identity.cpus,
            cpu_pct=cpu,
            iowait_pct=iowait,
            steal_pct=steal,
            load1=self._try("load1", host.load1),
            memory_total=memory.total if memory else None,
            memory_used=memory.total - memory.available if memory else None,
            memory_available=memory.available if memory else None,
            swap_used=memory.swap_used if memory else None,
            shm_total=shm[0] if shm else None,
            shm_used=shm[1] if shm else None,
            pressure=self._pressure(),
            disks=tuple(DiskRate(*one) for one in _rates(before.disks if before else {}, now.disks, span)),
            nets=tuple(NetRate(*one) for one in _rates(before.nets if before else {}, now.nets, span)),
            triton_cores=share.cores,
            triton_rss=share.rss,
            stub_pids=share.stubs,
            stub_cores=share.stub_cores,
            zombies=share.zombies,
            missing=self._missing,
        )

    def _pressure(self) -> Pressure:
        if not (self._root / "proc/pressure").is_dir():
            self._missing["pressure"] = "this kernel has no PSI (RHEL 8 needs psi=1 on its command line)"
            return Pressure()
        return Pressure(*(self._try("pressure", partial(host.pressure, what)) for what in ("cpu", "memory", "io")))

    def _share(self) -> _Share:
        pid = self._pid()
        if pid is None:
            self._missing["triton_cores"] = NO_CONTAINER
            return _Share()
        try:
            if self._container is None or self._container.pid != pid:
                self._container = ContainerProcesses(pid, self._root)
            return self._container.read(self._clock())
        except SourceError as error:
            self._container = None
            self._missing["triton_cores"] = error.message
            return _Share()

    def _try(self, name: str, read: Callable[[Path], T]) -> T | None:
        try:
            return read(self._root)
        except OSError as error:
            self._missing[name] = f"{error.filename}: {error.strerror}"
        except (ValueError, IndexError) as error:
            self._missing[name] = f"not understood: {error}"
        return None


_LINUX_ONLY = ("disks", "nets", "pressure", "shm_used", "iowait_pct", "triton_cores")


def portable() -> HostState:
    """What psutil tells on a system without /proc."""
    told = host.portable()
    return HostState(
        hostname=host.hostname(),
        os_name=host.os_name(),
        kernel=host.kernel_release(),
        boot_wall=told.boot_wall,
        cpus=told.cpus,
        cpu_pct=told.cpu_pct,
        load1=told.load1,
        memory_total=told.memory.total,
        memory_used=told.memory.total - told.memory.available,
        memory_available=told.memory.available,
        swap_used=told.memory.swap_used,
        missing=dict.fromkeys(_LINUX_ONLY, "read on Linux only"),
    )


def _cpu(before: host.CpuTimes | None, now: host.CpuTimes | None) -> tuple[float | None, float | None, float | None]:
    """Percent busy, waiting for disks, stolen, over the time between. iowait may run backwards (proc(5)): then 0."""
    if before is None or now is None or now.total <= before.total:
        return None, None, None
    total = now.total - before.total
    parts = (now.busy - before.busy, now.iowait - before.iowait, now.steal - before.steal)
    busy, iowait, steal = (min(100.0, max(0.0, 100.0 * part / total)) for part in parts)
    return busy, iowait, steal


def _rates(
    before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]], span: float
) -> Iterable[tuple[str, float, float]]:
    """Bytes a second each way; what is new or began anew is left out this time."""
    for name, (one, other) in now.items():
        was = before.get(name)
        if was is not None and span > 0 and one >= was[0] and other >= was[1]:
            yield name, (one - was[0]) / span, (other - was[1]) / span


class ContainerProcesses:
    """CPU and memory of the processes in the container's cgroup; Python stubs by model; zombies.

    Of one without a cgroup of its own (rootless Podman on cgroup v1): of its first process and all that this started.
    """

    def __init__(self, pid: int, root: Path) -> None:
        """`pid` is the container's first process."""
        self.pid = pid
        self._root = root
        self._cgroup = _own_cgroup(pid, root)
        self._tree: tuple[float, tuple[int, ...]] = (float("-inf"), ())
        self._cpu: tuple[float, float] | None = None
        self._before: dict[tuple[int, int], tuple[float, float]] = {}
        self._models: dict[tuple[int, int], str | None] = {}
        self._members: dict[int, int] = {}
        self._zombies: tuple[int, ...] = ()
        self._walked = float("-inf")

    def read(self, now: float) -> _Share:
        """One reading at monotonic time `now`. SourceError when no process is left."""
        members = self._cgroup.processes() if self._cgroup else self._descendants(now)
        found = [one for member in members if (one := host.process(member, self._root)) is not None]
        if not found:
            raise SourceError(
                "unavailable", f"process {self.pid} is gone, or its container's processes cannot be seen from here"
            )
        zombies = self._find_zombies(found, now)
        stubs, stub_cores = self._stubs(found, now)
        return _Share(self._cores(now, found), sum(one.rss for one in found), stubs, stub_cores, zombies)

    def _descendants(self, now: float) -> tuple[int, ...]:
        if now - self._tree[0] >= TREE_EVERY:
            self._tree = (now, host.descendants(self.pid, self._root))
        return self._tree[1]

    def _cores(self, now: float, found: list[host.Process]) -> float | None:
        used = self._cgroup.sample().cpu_seconds if self._cgroup else sum(one.cpu_seconds for one in found)
        before, self._cpu = self._cpu, (None if used is None else (now, used))
        if used is None or before is None or now <= before[0] or used < before[1]:
            return None
        return (used - before[1]) / (now - before[0])

    def _stubs(self, found: list[host.Process], now: float) -> tuple[dict[str, tuple[int, ...]], dict[str, float]]:
        stubs: dict[str, tuple[int, ...]] = {}
        cores: dict[str, float] = {}
        seen: dict[tuple[int, int], tuple[float, float]] = {}
        for one in found:
            key = (one.pid, one.start_ticks)
            model = self._model(key) if one.state != "Z" else None
            if model is None:
                continue
            stubs[model] = (*stubs.get(model, ()), one.pid)
            seen[key] = (now, one.cpu_seconds)
            was = self._before.get(key)
            if was is not None and now > was[0]:
                cores[model] = cores.get(model, 0.0) + max(0.0, one.cpu_seconds - was[1]) / (now - was[0])
        self._before = seen
        self._models = {key: model for key, model in self._models.items() if key[0] in {one.pid for one in found}}
        return stubs, cores

    def _model(self, key: tuple[int, int]) -> str | None:
        """`model/version` of a stub, read once per process; asked again while a fork has not yet become the stub."""
        model = self._models.get(key)
        if model is None:
            told = proc.stub_model(host.arguments(key[0], self._root))
            model = f"{told.name}/{told.version or '?'}" if told else None
            self._models[key] = model
        return model

    def _find_zombies(self, found: list[host.Process], now: float) -> tuple[int, ...]:
        """A zombie leaves its cgroup's list at once: vanished members are looked at, and now and then all of /proc."""
        members = {one.pid: one.start_ticks for one in found}
        suspects = {pid for pid in self._members if pid not in members} | set(self._zombies)
        if now - self._walked >= ZOMBIES_EVERY:
            self._walked = now
            suspects |= {one.pid for one in host.all_processes(self._root) if one.state == "Z"}
        self._members = members
        looked = [one for pid in suspects if (one := host.process(pid, self._root)) is not None]
        dead = {one.pid for one in (*found, *looked) if one.state == "Z" and one.parent in members}
        self._zombies = tuple(sorted(dead))
        return self._zombies


def _own_cgroup(pid: int, root: Path) -> cgroup.Cgroup | None:
    try:
        return cgroup.container_cgroup(pid, root)
    except SourceError:
        return None
