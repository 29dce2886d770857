"""Use of resources from the cgroup files of a process, v1 and v2 (RHEL 8 has v1). No process is started for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from console.clients.proc import container_id_of
from console.core.model import SourceError
from console.core.text import whole_number

_UNLIMITED = 2**60
"""v1 writes "no limit" as the largest page-aligned number."""
_LIBPOD = re.compile(r"/libpod-(?!conmon-)")
_UNIT = re.compile(r"/([^/]+\.service)(?=/|$)")


class CgroupSample(Struct, frozen=True):
    """Cumulative and present figures of one cgroup; None = the kernel does not tell."""

    cpu_seconds: float | None = None
    memory: int | None = None
    """Without page cache that could be dropped at once (as `podman stats` and the kubelet count it)."""
    memory_limit: int | None = None
    pids: int | None = None
    oom_kills: int | None = None
    periods: int | None = None
    """Scheduling periods under a CPU quota; 0 = no quota."""
    throttled: int | None = None


class Cgroup(Struct, frozen=True):
    """The cgroup of a container: one folder (v2), or one per controller (v1)."""

    folders: dict[str, Path]
    """Controller -> folder; "" is the unified one."""

    def processes(self) -> tuple[int, ...]:
        """PIDs in it and in the cgroups below (crun puts the payload one level down); () when it is gone."""
        start = self.folders.get("") or next(iter(self.folders.values()), None)
        if start is None:
            return ()
        found: list[int] = []
        for folder, _, files in os.walk(start):
            if "cgroup.procs" in files:
                found += [int(word) for word in (_text(Path(folder, "cgroup.procs")) or "").split()]
        return tuple(found)

    def sample(self) -> CgroupSample:
        """One reading; all None when the cgroup is gone."""
        return self._v2(self.folders[""]) if "" in self.folders else self._v1()

    def _v2(self, folder: Path) -> CgroupSample:
        cpu = _pairs(folder / "cpu.stat")
        used, inactive = _number(folder / "memory.current"), _pairs(folder / "memory.stat").get("inactive_file", 0)
        microseconds = cpu.get("usage_usec")
        return CgroupSample(
            cpu_seconds=None if microseconds is None else microseconds / 1e6,
            memory=None if used is None else max(0, used - inactive),
            memory_limit=_number(folder / "memory.max"),
            pids=_number(folder / "pids.current"),
            oom_kills=_pairs(folder / "memory.events").get("oom_kill"),
            periods=cpu.get("nr_periods"),
            throttled=cpu.get("nr_throttled"),
        )

    def _v1(self) -> CgroupSample:
        nowhere = Path("/nonexistent")
        cpu, memory = self.folders.get("cpu", nowhere), self.folders.get("memory", nowhere)
        nanoseconds = _number(self.folders.get("cpuacct", nowhere) / "cpuacct.usage")
        used = _number(memory / "memory.usage_in_bytes")
        limit = _number(memory / "memory.limit_in_bytes")
        quota = _pairs(cpu / "cpu.stat")
        return CgroupSample(
            cpu_seconds=None if nanoseconds is None else nanoseconds / 1e9,
            memory=None
            if used is None
            else max(0, used - _pairs(memory / "memory.stat").get("total_inactive_file", 0)),
            memory_limit=None if limit is None or limit >= _UNLIMITED else limit,
            pids=_number(self.folders.get("pids", nowhere) / "pids.current"),
            oom_kills=_pairs(memory / "memory.oom_control").get("oom_kill"),
            periods=quota.get("nr_periods"),
            throttled=quota.get("nr_throttled"),
        )


def container_cgroup(pid: int, root: Path = Path("/")) -> Cgroup:
    """The cgroup of the container that a process is in (the part of its path up to `libpod-...`).

    SourceError when the process is gone, its cgroup lies outside this console's namespace, or the container has none of
    its own: rootless Podman on cgroup v1 leaves it in its user's, whose figures are those of all that runs there.
    """
    folders: dict[str, Path] = {}
    base = root / "sys/fs/cgroup"
    for controllers, path in _lines(pid, root):
        if path.startswith("/..") or not _is_containers(path):
            continue
        if controllers == "":
            unified = base / "unified" if (base / "unified").is_dir() else base
            if (unified / path.lstrip("/") / "cpu.stat").exists() and base == unified:
                folders[""] = unified / _container_part(path)
            continue
        for controller in controllers.split(","):
            if not controller.startswith("name="):
                folders[controller] = _v1_folder(base, controllers, controller) / _container_part(path)
    if not folders:
        raise SourceError(
            "unavailable", f"the cgroup of process {pid} could not be read, or is not its container's own"
        )
    return Cgroup(folders)


def _v1_folder(base: Path, controllers: str, controller: str) -> Path:
    """Controllers mounted together share a folder (`cpu,cpuacct`); distributions also link the single names to it."""
    return base / controller if (base / controller).exists() else base / controllers


def _lines(pid: int, root: Path) -> list[tuple[str, str]]:
    text = _text(root / f"proc/{pid}/cgroup")
    if text is None:
        raise SourceError("unavailable", f"process {pid} is gone, or its cgroup may not be read")
    parts = [line.split(":", 2) for line in text.splitlines()]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def _is_containers(path: str) -> bool:
    return _LIBPOD.search(path) is not None or container_id_of(path) is not None


def _container_part(path: str) -> str:
    parts = path.strip("/").split("/")
    for position, part in enumerate(parts):
        if part.startswith("libpod-") and not part.startswith("libpod-conmon-"):
            return "/".join(parts[: position + 1])
    return "/".join(parts)


def container_of(pid: int, root: Path = Path("/")) -> str | None:
    """Identity of the container that a process is in; None when it is in none, or is gone."""
    return container_id_of(_text(root / f"proc/{pid}/cgroup") or "")


def owning_unit(pid: int, root: Path = Path("/")) -> str | None:
    """The service whose cgroup a process (conmon, or the container's first) is in; None when it is in none.

    `user@1000.service` owns every process of that user and is passed over for a service below it.
    """
    return unit_of(_text(root / f"proc/{pid}/cgroup") or "")


def unit_of(text: str) -> str | None:
    """The same of the text of a /proc/PID/cgroup."""
    for line in text.splitlines():
        units = [unit for unit in _UNIT.findall(line) if not unit.startswith(("user@", "podman.service"))]
        if units and not line.startswith("0::/init.scope"):
            return str(units[-1])
    return None


def systemd_path(pid: int, root: Path = Path("/")) -> str | None:
    """A process's path in systemd's own tree (`name=systemd` of cgroup v1, or v2's only one); None = not told."""
    pairs = [line.split(":", 2) for line in (_text(root / f"proc/{pid}/cgroup") or "").splitlines()]
    found = {pair[1]: pair[2] for pair in pairs if len(pair) == 3}
    return found.get("name=systemd") or found.get("")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    return whole_number((_text(path) or "").strip())


def _pairs(path: Path) -> dict[str, int]:
    """Files of `name number` lines."""
    parts = [line.split() for line in (_text(path) or "").splitlines()]
    return {part[0]: value for part in parts if len(part) == 2 and (value := whole_number(part[1])) is not None}
