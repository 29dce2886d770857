"""The simulated machine around the box: a folder that stands for `/`, with the files of /proc, /sys and /etc.

The clients read a machine under a root folder; in a demo this is theirs, so that no fact of the real machine gets among
the simulated ones, and so that a Mac has a /proc. Counters go on between two whole seconds at the rate of the last one.
Left out, because they are asked of the file system and not read from a file: sizes of disks and of /dev/shm.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from console.simulator.card import DRIVER, UPDATED_LIBRARY, UUID
from console.simulator.containers import Container

NS_PER_SECOND = 1_000_000_000
MIB = 1024 * 1024
HOSTNAME = "simulated"
KERNEL = "4.18.0-553.el8_10.x86_64"
CORES = 16
TICKS = 100
"""Clock ticks a second, in which the kernel counts CPU time (USER_HZ of every Linux)."""
PAGE = 4096
SECTOR = 512
MEMORY = 126 * 1024 * MIB
MEMORY_USED = 41 * 1024 * MIB
TRITON_MEMORY = 6550 * MIB
TRITON_TASKS = 214
UP_BEFORE_S = 3 * 3600 + 12 * 60 + 30
"""The machine was booted this long before the simulation begins."""
UPDATE_BEFORE_S = 12 * 60
"""Where the driver was updated without a reboot: this long before."""
CONTROLLERS = ("cpu,cpuacct", "memory", "pids")


CARD = "0000:3b:00.0"
"""The GPU's PCI address."""
CARD_NODES = ("/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128")
DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
HOOK = "/usr/bin/nvidia-cdi-hook"
LIBRARIES = (
    "libEGL_nvidia.so", "libGLX_nvidia.so", "libcuda.so", "libcudadebugger.so", "libnvcuvid.so",
    "libnvidia-allocator.so", "libnvidia-cfg.so", "libnvidia-eglcore.so", "libnvidia-encode.so", "libnvidia-glcore.so",
    "libnvidia-glsi.so", "libnvidia-gpucomp.so", "libnvidia-ml.so", "libnvidia-nvvm.so", "libnvidia-opencl.so",
    "libnvidia-ptxjitcompiler.so", "libnvidia-rtcore.so", "libnvidia-tls.so", "libnvoptix.so",
)  # fmt: skip
"""What the driver's packages put in /usr/lib64, less the version at the end."""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            67108864             67108864             bytes
Max processes             4194304              4194304              processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
DOMAIN = "system_u:system_r:container_t:s0:c112,c517"
"""What SELinux calls the container's processes."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What one second adds to the counters."""

    triton_cpu_ns: int = 0
    other_cpu_ns: int = 0
    iowait_ns: int = 0
    received: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0


class Host:
    """Counters of the machine, advanced in whole simulated seconds."""

    def __init__(self, *, start_ns: int, container_started_ns: int) -> None:
        self.boot_s = start_ns // NS_PER_SECOND - UP_BEFORE_S
        self._container_started_ns = container_started_ns
        self._start_ns = start_ns
        self._second_ns = start_ns
        self._rates = Rates()
        self._totals = {field.name: 0 for field in fields(Rates)}
        self._load = 0.0
        self._pressure = 0.0

    def settle(self, at_ns: int) -> None:
        """Let the last second stand for all the time since the container started (for the machine: since the boot)."""
        up_s = (at_ns - self._container_started_ns) // NS_PER_SECOND
        for name in self._totals:
            seconds = up_s if name == "triton_cpu_ns" else UP_BEFORE_S
            self._totals[name] = getattr(self._rates, name) * seconds
        self._second_ns = at_ns
        self._load = (self._rates.triton_cpu_ns + self._rates.other_cpu_ns) / NS_PER_SECOND

    def step(self, at_ns: int, requests: int, rng: random.Random, *, running: bool) -> None:
        """One second up to `at_ns`, in which the models ended that many requests."""
        for name in self._totals:
            self._totals[name] += getattr(self._rates, name)
        self._second_ns = at_ns
        # about 2.8 cores at 1850 requests a second, as in the drawing of the Overview
        cores = (0.3 + 0.00135 * requests) * (1 + rng.gauss(0, 0.02)) * running
        others = 0.9 + abs(rng.gauss(0, 0.15))
        self._rates = Rates(
            triton_cpu_ns=round(max(0.0, cores) * NS_PER_SECOND),
            other_cpu_ns=round(others * NS_PER_SECOND),
            iowait_ns=round(abs(rng.gauss(0.02, 0.01)) * NS_PER_SECOND),
            received=requests * 612 + 4_000,
            sent=requests * 348 + 9_000,
            read=rng.choice((0, 0, 0, 16_384)),
            written=rng.randint(20, 90) * 4096,
        )
        self._load += (cores + others - self._load) / 20
        self._pressure = 0.2 + 0.1 * rng.random()

    def triton_cpu_ns(self, now_ns: int) -> int:
        """CPU time of the container since it started."""
        return self._at("triton_cpu_ns", now_ns)

    def network_bytes(self, now_ns: int) -> tuple[int, int]:
        """Received and sent, since the boot."""
        return self._at("received", now_ns), self._at("sent", now_ns)

    def _at(self, name: str, now_ns: int) -> int:
        passed_ns = max(0, now_ns - self._second_ns)
        rate: int = getattr(self._rates, name)
        return self._totals[name] + rate * passed_ns // NS_PER_SECOND

    def began(self, started_ns: int) -> None:
        """A container started: what is counted for it begins anew."""
        self._container_started_ns = started_ns
        self._totals["triton_cpu_ns"] = 0
        self._rates = replace(self._rates, triton_cpu_ns=0)

    def fixed_files(self, mismatch: bool) -> dict[str, str]:
        """Files that do not change while the box runs, by their path below the root."""
        library = UPDATED_LIBRARY if mismatch else DRIVER
        return {
            "etc/os-release": 'NAME="Rocky Linux"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n',
            "proc/sys/kernel/osrelease": f"{KERNEL}\n",
            "proc/sys/kernel/hostname": f"{HOSTNAME}\n",
            "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Release Build\n",
            "sys/module/nvidia/version": f"{DRIVER}\n",
            **{path.lstrip("/"): "" for path in (*CARD_NODES, *DRIVER_NODES, *_mounted(library), HOOK)},
            "sys/devices/system/cpu/online": f"0-{CORES - 1}\n",
            "sys/block/nvme0n1/size": "1875385008\n",
            f"sys/bus/pci/devices/{CARD}/vendor": "0x10de\n",
            f"sys/bus/pci/devices/{CARD}/class": "0x030200\n",
            "etc/cdi/nvidia.json": _cdi_spec(),
            "dev/kmsg": f"5,0,0,-;Linux version {KERNEL}\n",
            "var/log/dnf.rpm.log": self._package_log() if mismatch else "",
        }

    def _package_log(self) -> str:
        at = datetime.fromtimestamp(self._start_ns // NS_PER_SECOND - UPDATE_BEFORE_S, tz=UTC)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S+0000")
        return "".join(
            f"{stamp} SUBDEBUG Upgrade: {name}-3:{UPDATED_LIBRARY}-1.el8.x86_64\n"
            f"{stamp} SUBDEBUG Upgraded: {name}-3:{DRIVER}-1.el8.x86_64\n"
            for name in ("nvidia-driver", "nvidia-driver-cuda", "kmod-nvidia-latest-dkms")
        )

    def container_files(self, container: Container) -> dict[str, str]:
        """Files of a container that runs: its process and its control groups."""
        scope = f"machine.slice/libpod-{container.id}.scope"
        process, pid = f"proc/{container.pid}", container.pid
        files = {
            f"{process}/attr/current": f"{DOMAIN}\0",
            f"{process}/cmdline": "\0".join(container.command) + "\0",
            f"{process}/limits": LIMITS,
            f"{process}/status": "Name:\ttritonserver\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
            f"VmLck:\t0 kB\nVmSwap:\t0 kB\nCpus_allowed_list:\t0-{CORES - 1}\nMems_allowed_list:\t0\n",
            f"{process}/cgroup": "".join(f"{n}:{name}:/{scope}\n" for n, name in enumerate(CONTROLLERS, start=2)),
        }
        folders = {name: f"sys/fs/cgroup/{name}/{scope}" for name in CONTROLLERS}
        files |= {f"{folder}/cgroup.procs": f"{pid}\n" for folder in folders.values()}
        return files | {
            f"{folders['cpu,cpuacct']}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            f"{folders['memory']}/memory.usage_in_bytes": f"{TRITON_MEMORY + 900 * MIB}\n",
            f"{folders['memory']}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{folders['memory']}/memory.stat": f"total_inactive_file {900 * MIB}\n",
            f"{folders['memory']}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            f"{folders['pids']}/pids.current": f"{TRITON_TASKS}\n",
        }

    def moving_files(self, container: Container | None, now_ns: int) -> dict[str, str]:
        """Files whose figures change, as of `now_ns`."""
        files = {
            "proc/stat": self._stat(now_ns),
            "proc/loadavg": f"{self._load:.2f} {self._load:.2f} {self._load:.2f} 4/1480 41391\n",
            "proc/meminfo": self._meminfo(container is not None),
            "proc/diskstats": self._diskstats(now_ns),
            "proc/net/dev": self._net(now_ns),
        }
        for what, share in (("cpu", self._pressure), ("memory", 0.0), ("io", self._pressure / 4)):
            files[f"proc/pressure/{what}"] = f"some avg10={share:.2f} avg60={share:.2f} avg300={share:.2f} total=0\n"
        if container is not None:
            cpu_ns = self.triton_cpu_ns(now_ns)
            scope = f"sys/fs/cgroup/cpu,cpuacct/machine.slice/libpod-{container.id}.scope"
            files[f"{scope}/cpuacct.usage"] = f"{cpu_ns}\n"
            files[f"proc/{container.pid}/stat"] = self._process_stat(container.pid, cpu_ns)
        return files

    def _stat(self, now_ns: int) -> str:
        up_ticks = (now_ns - self.boot_s * NS_PER_SECOND) * CORES * TICKS // NS_PER_SECOND
        per_tick = NS_PER_SECOND // TICKS
        user = self.triton_cpu_ns(now_ns) // per_tick
        system, iowait = self._at("other_cpu_ns", now_ns) // per_tick, self._at("iowait_ns", now_ns) // per_tick
        idle = max(0, up_ticks - user - system - iowait)
        return f"cpu  {user} 0 {system} {idle} {iowait} 0 0 0 0 0\nbtime {self.boot_s}\n"

    def _meminfo(self, running: bool) -> str:
        used = MEMORY_USED if running else MEMORY_USED - TRITON_MEMORY
        sizes = {"MemTotal": MEMORY, "MemFree": 0, "MemAvailable": MEMORY - used, "SwapTotal": 0, "SwapFree": 0}
        sizes["MemFree"] = sizes["MemAvailable"] // 2
        return "".join(f"{name}: {size // 1024:>15} kB\n" for name, size in sizes.items())

    def _diskstats(self, now_ns: int) -> str:
        read, written = self._at("read", now_ns) // SECTOR, self._at("written", now_ns) // SECTOR
        return f" 259       0 nvme0n1 {read // 8} 0 {read} 0 {written // 8} 0 {written} 0 0 0 0\n"

    def _net(self, now_ns: int) -> str:
        received, sent = self.network_bytes(now_ns)
        head = "Inter-|   Receive    |  Transmit\n face |bytes packets errs drop|bytes packets\n"
        return f"{head}  eno1: {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n"

    def _process_stat(self, pid: int, cpu_ns: int) -> str:
        ticks = cpu_ns * TICKS // NS_PER_SECOND
        start = (self._container_started_ns - self.boot_s * NS_PER_SECOND) * TICKS // NS_PER_SECOND
        pages = TRITON_MEMORY // PAGE
        before = f"{pid} (tritonserver) S 1 {pid} {pid} 0 -1 4194560 0 0 0 0"
        return f"{before} {ticks} 0 0 0 20 0 {TRITON_TASKS} 0 {start} {TRITON_MEMORY * 3} {pages}\n"


def _mounted(version: str) -> list[str]:
    """What a container gets of the driver of that version."""
    programs = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced")
    paths = [f"/usr/lib64/{name}.{version}" for name in LIBRARIES]
    return [*paths, *(f"/usr/bin/{name}" for name in programs), "/run/nvidia-persistenced/socket"]


def _cdi_spec() -> str:
    """What nvidia-ctk wrote when the driver that runs was installed."""
    arguments = {
        "create-symlinks": ["--link", "libcuda.so.1::/usr/lib64/libcuda.so"],
        "enable-cuda-compat": [f"--host-driver-version={DRIVER}"],
        "update-ldcache": ["--folder", "/usr/lib64"],
    }
    hook = {"hookName": "createContainer", "path": HOOK}
    shared = {
        "deviceNodes": [{"path": node} for node in DRIVER_NODES],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": [hook | {"args": ["nvidia-cdi-hook", name, *words]} for name, words in arguments.items()],
        "mounts": [
            {"hostPath": path, "containerPath": path, "options": ["ro", "nosuid", "nodev", "bind"]}
            for path in _mounted(DRIVER)
        ],
    }
    own = {"deviceNodes": [{"path": node} for node in CARD_NODES]}
    devices = [{"name": name, "containerEdits": own} for name in ("0", UUID, "all")]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": shared}
    return json.dumps(spec, indent=2) + "\n"


class HostFolder:
    """Writes a host's files below a folder. A reader never sees one half written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[str, str] = {}

    def write(self, files: dict[str, str]) -> None:
        """Write the files that changed, making folders as needed."""
        for name, text in files.items():
            if self._written.get(name) == text:
                continue
            self._written[name] = text
            path = self.root / name
            partial = path.with_name(f".{path.name}.new")
            try:
                partial.write_text(text, encoding="utf-8")
            except FileNotFoundError:
                path.parent.mkdir(parents=True)
                partial.write_text(text, encoding="utf-8")
            partial.replace(path)

    def remove(self, files: Iterable[str]) -> None:
        """Remove files, and the folders that they leave empty."""
        for name in files:
            self._written.pop(name, None)
            path = self.root / name
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.parent.rmdir()
