"""Processes on a card: NVML's list, each one's share of the SMs, and what /proc tells about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from console.clients.nvml import NOT_FOUND, Absent, Nvml, Target, number
from console.clients.proc import ProcReader
from console.core.model import GpuProcess

_COMPUTE = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
_GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2")
"""The plain names are the v3 call (driver 510 and later)."""

_FIRST_LOOK_BACK_US = 2_000_000
SAMPLE_HOLDS_US = 3_000_000
"""The driver samples up to once a second: a process without a sample for three has done nothing since."""
_SUCCESS = 0
"""The wrapper raises this where the driver's sample buffer is empty."""


class Listed(Struct, frozen=True):
    """Processes of a card, None when they could not be listed, and the reasons for what is missing."""

    processes: tuple[GpuProcess, ...] | None
    missing: Mapping[str, str]


class _Entry:
    """One PID while the lists are merged: a process may stand in both, and once for each MIG instance."""

    __slots__ = ("kinds", "memory", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.kinds: set[str] = set()
        self.memory: int | None = None

    def add(self, kind: str, memory: int | None, instance: int | None) -> None:
        again = kind in self.kinds and instance is not None
        self.kinds.add(kind)
        if memory is not None:
            # Both lists give the process's whole memory; only its parts on MIG instances add up.
            self.memory = memory + (self.memory or 0) if again else max(memory, self.memory or 0)


class Processes:
    """Lists the processes of one card."""

    def __init__(self, nvml: Nvml, target: Target, proc: ProcReader, wall: Callable[[], float]) -> None:
        self._nvml = nvml
        self._target = target
        self._proc = proc
        self._wall = wall
        self._since_us: int | None = None
        self._shares: dict[int, tuple[int, float | None]] = {}

    def read(self, instances: tuple[tuple[GpuProcess, ...], ...] = ()) -> Listed:
        """The card's processes now; `instances` are those that its MIG devices listed."""
        missing: dict[str, str] = {}
        entries = self._entries(self._target)
        if isinstance(entries, Absent):
            if not any(instances):
                return Listed(None, {"processes": entries.reason})
            entries = {}
        for process in (process for listed in instances for process in listed):
            entry = entries.setdefault(process.pid, _Entry(process.pid))
            entry.kinds.add(process.kind)
            if entry.memory is None:
                entry.memory = process.memory
        answer = self._sm_shares() if entries else {}
        shares = None if isinstance(answer, Absent) else answer
        if isinstance(answer, Absent):
            missing["processes.sm_pct"] = answer.reason
        processes = tuple(self._process(entry, shares, missing) for _, entry in sorted(entries.items()))
        unknown = sum(1 for process in processes if process.memory is None)
        if unknown:
            missing["processes.memory"] = f"the driver does not tell it for {unknown} of {len(processes)}"
        return Listed(processes, missing)

    def of_instance(self, target: Target) -> tuple[GpuProcess, ...]:
        """Processes of one MIG device; () also where they cannot be listed."""
        entries = self._entries(target)
        if isinstance(entries, Absent):
            return ()
        return tuple(self._process(entry, None, {}) for _, entry in sorted(entries.items()))

    def _entries(self, target: Target) -> dict[int, _Entry] | Absent:
        compute = self._nvml.first(target, *_COMPUTE)
        graphics = self._nvml.first(target, *_GRAPHICS)
        if isinstance(compute, Absent):
            # A list without them would say that nothing computes here.
            return compute
        entries: dict[int, _Entry] = {}
        for kind, listed in (("C", compute), ("G", graphics)):
            for item in () if isinstance(listed, Absent) else listed:
                memory = item.usedGpuMemory
                instance = number(getattr(item, "gpuInstanceId", -1))
                entry = entries.setdefault(int(item.pid), _Entry(int(item.pid)))
                entry.add(kind, None if memory is None else number(memory), instance)
        return entries

    def _process(self, entry: _Entry, shares: Mapping[int, float | None] | None, missing: dict[str, str]) -> GpuProcess:
        info = self._proc.read(entry.pid)
        if info.reason is not None:
            missing[f"processes.{entry.pid}"] = info.reason
        return GpuProcess(
            pid=entry.pid,
            kind="C+G" if len(entry.kinds) > 1 else next(iter(entry.kinds)),
            memory=entry.memory,
            sm_pct=None if shares is None else shares.get(entry.pid, 0.0),
            user=info.user,
            command=info.command,
            started_wall=info.started_wall,
            container_id=info.container_id,
            in_container=info.in_container,
            model=info.model.name if info.model else None,
        )

    def _sm_shares(self) -> Mapping[int, float | None] | Absent:
        """SM share in percent by PID; who is not in it ran nothing in the last sample period."""
        now_us = int(self._wall() * 1e6)
        since = self._since_us if self._since_us is not None else now_us - _FIRST_LOOK_BACK_US
        function = "nvmlDeviceGetProcessUtilization"
        samples = self._nvml.query(self._target, function, since, key=function)
        if isinstance(samples, Absent):
            if samples.code not in (NOT_FOUND, _SUCCESS):
                return samples
            samples = ()
        # The newest sample of a process counts, the larger one of two at the same time.
        for sample in sorted(samples, key=lambda sample: (int(sample.timeStamp), int(sample.smUtil))):
            share = int(sample.smUtil)
            # Drivers have been seen to give figures over 100: those are no shares.
            self._shares[int(sample.pid)] = (now_us, float(share) if share <= 100 else None)
            self._since_us = max(self._since_us or 0, int(sample.timeStamp))
        self._shares = {pid: held for pid, held in self._shares.items() if now_us - held[0] <= SAMPLE_HOLDS_US}
        return {pid: share for pid, (_, share) in self._shares.items()}
