"""Each check is fit on one box, not fit on another, and unknown or skipped on a third.

Boxes are the recorded ones, those that faults.py breaks, and the few of VARIANTS that show what no fault is for. What a
check cannot say, by its nature, stands in NEVER with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from console.checks import run
from console.checks.check import Check
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact
from tests.checks import fault_effects as effects
from tests.checks.faults import faults
from tests.checks.tree import Tree, look, names, tree

FIT = frozenset({"ok", "note"})
NOT_FIT = frozenset({"warn", "fail"})
NOT_TOLD = frozenset({"none", "unknown"})

NEVER: Mapping[str, Mapping[str, str]] = {
    "A20": {"not fit": "host.md: INFO; the driver itself taints"},
    "D12": {"not fit": "the console runs, so it has a Python that will do"},
    "F18": {"not fit": "host.md: INFO"},
    "G17": {"not fit": "MPS is somebody's choice; it gains nothing"},
    "G19": {"not fit": "host.md: INFO"},
    "G22": {"not fit": "host.md: INFO; models of one card need no link"},
    "G21": {"not fit": "host.md: INFO; a card that its driver has dropped does not answer, which G01 and A08 tell"},
    "I05": {"not fit": "whether a proxy is wanted is not known"},
    "A15": {"not fit": "lockdown alone hurts nothing: it explains A14"},
    "D10": {"not fit": "either backend is fit; it explains I04"},
    "E22": {"fit": "no request is made to find out: without a failed pull nothing is known of the registry"},
    "F06": {"not fit": "the number of nodes is no fault; E14 judges where the container runs"},
    "F12": {"not fit": "host.md gives no limit: where the interrupts go is told"},
    "F17": {"not fit": "host.md: INFO"},
    "G04": {"not fit": "NVML does not tell a locked range; a low clock under load is G06's"},
    "G20": {"not fit": "host.md: INFO"},
    "I06": {"not fit": "host.md: INFO; one box alone needs no RDMA"},
    "L09": {"not fit": "no limit is Triton's default: told, not warned of"},
    "L10": {"not fit": "NGC images switch the cache off: told, not warned of"},
}
"""Check -> which cell of its row it cannot have -> why."""

Change = Callable[[Tree], None]
VARIANTS: dict[str, list[tuple[str, Change]]] = {}


def shows(*ids: str, on: str) -> Callable[[Change], Change]:
    """A box that these checks need for a cell of their rows."""

    def mark(change: Change) -> Change:
        for one in ids:
            VARIANTS.setdefault(one, []).append((on, change))
        return change

    return mark


# ------------------------------------------------------------------------------------------------------------ variants


def _break(box: Tree, name: str) -> None:
    """By the fault of that name."""
    next(one for one in faults() if one.name == name).change(box)


@shows("A01", on="rocky88")
def centos_8(box: Tree) -> None:
    box.put(
        "/usr/lib/os-release", 'NAME="CentOS Linux"\nVERSION="8"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="8"\n'
    )


@shows("A13", on="el8_rootful")
def precompiled_modules_and_all_is_well(box: Tree) -> None:
    _break(box, "kernel-packages-filtered")
    lines = box.text("/var/log/dnf.log").splitlines()
    box.put("/var/log/dnf.log", "\n".join(one for one in lines if "kernel" not in one) + "\n")


@shows("A20", on="el8_rootful")
def the_kernel_stumbled(box: Tree) -> None:
    box.put("/proc/sys/kernel/tainted", f"{12289 | 1 << 7}\n")


@shows("A22", on="el9_quadlet")
def fabric_manager_runs(box: Tree) -> None:
    _break(box, "fabric-manager-missing")
    running = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled"}
    effects.set_unit(box, "nvidia-fabricmanager.service", **running)
    words = effects.packages(box)
    box.run(words, box.commands[words].out + "nvidia-fabric-manager\t560.35.03\n")


def _mig(box: Tree) -> None:
    instance = {"index": 0, "uuid": "MIG-7b1c", "profile": "3g.20gb", "memory_total": 20 << 30, "memory_used": 1 << 30}
    effects.set_card(box, mig_on=True, mig=[{**instance, "processes": []}])
    for name in ("Current", "Pending"):
        text = f"        {name}                           : "
        effects.swap_line(box, "nvidia-smi -q", f"{text}Disabled", f"{text}Enabled")


@shows("B17", on="rocky88")
def mig_without_names_in_the_spec(box: Tree) -> None:
    _mig(box)


@shows("B17", on="rocky88")
def mig_with_names_in_the_spec(box: Tree) -> None:
    _mig(box)
    box.edit(effects.spec(box), "devices:\n", 'devices:\n- containerEdits: {}\n  name: "0:0"\n')


@shows("G18", on="rocky88")
def mig_waits_for_a_reset(box: Tree) -> None:
    text = "        Pending                           : "
    effects.swap_line(box, "nvidia-smi -q", f"{text}Disabled", f"{text}Enabled")


@shows("C04", on="el8_rootless")
def all_devices_where_a_narrow_boolean_would_do(box: Tree) -> None:
    box.put("/sys/fs/selinux/booleans/container_use_xserver_devices", "0 0")


@shows("D02", on="el8_rootful")
def triton_is_in_the_users_store(box: Tree) -> None:
    box.change(
        "@podman.ping", lambda ping: ping.update(rootless=True, uid=1000, socket="/run/user/1000/podman/podman.sock")
    )
    box.change("@podman.info", lambda info: info["host"]["security"].update(rootless=True))
    box.tell("@podman.inspect", None)
    box.tell("@podman.containers", [])


@shows("D12", on="el8_rootful")
def only_the_systems_python(box: Tree) -> None:
    box.remove("/usr/bin/python3.11")
    box.put("/usr/bin/python3.6", None, mode=0o755, size=12_000)


@shows("E17", on="debian12")
def user_without_the_group(box: Tree) -> None:
    for name in effects.NODES:
        box.stat(f"/dev/{name}", mode=0o660, gid=44)
    effects.set_container(box, "Config", User="1000")
    pid = effects.inspect(box)["State"]["Pid"]
    box.edit(
        f"/proc/{pid}/status",
        "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0",
        "Uid:\t1000\t1000\t1000\t1000\nGid:\t0\t0\t0\t0\nGroups:\t0 ",
    )


@shows("E22", on="el8_rootful")
def registry_wants_a_login(box: Tree) -> None:
    said = (
        "initializing source docker://nvcr.io/nvidia/tritonserver:24.05-py3: Requesting bearer token: invalid status "
        "code from registry 401 (Unauthorized)"
    )
    effects.down(box, said, 125)


@shows("F04", on="el9_quadlet")
def deep_sleep(box: Tree) -> None:
    box.put("/etc/tuned/active_profile", "throughput-performance\n")
    samples = {"seconds": 2.0, "cpuidle": {"POLL": 0.0, "C1": 0.1, "C1E": 0.1, "C6": 0.7}, "swap_in": 0, "swap_out": 0}
    box.tell("@samples", {**samples, "irqs": {}})


@shows("F11", on="debian12")
def server_is_swapped_out(box: Tree) -> None:
    samples = {"seconds": 2.0, "cpuidle": {}, "swap_in": 912, "swap_out": 4122}
    box.tell("@samples", {**samples, "irqs": {}})
    free = next(one for one in box.text("/proc/meminfo").splitlines() if one.startswith("SwapFree"))
    box.edit("/proc/meminfo", free, "SwapFree:         112233 kB")
    pid = effects.inspect(box)["State"]["Pid"]
    box.put(f"/proc/{pid}/status", box.text(f"/proc/{pid}/status") + "VmSwap:\t 2122332 kB\n")


def _ipc_host(box: Tree) -> None:
    effects.set_container(box, "HostConfig", IpcMode="host")


@shows("F15", on="debian12")
def shares_the_hosts_shm(box: Tree) -> None:
    _ipc_host(box)


@shows("F15", on="debian12")
def shares_the_hosts_full_shm(box: Tree) -> None:
    _ipc_host(box)
    box.room("/dev/shm", free=10 << 20)


@shows("F18", on="debian12")
def memory_is_short(box: Tree) -> None:
    text = (
        "some avg10=61.12 avg60=58.20 avg300=44.02 total=912233110\nfull avg10=41.12 avg60=38.20 avg300=30.02 total=1\n"
    )
    for name in ("cpu", "io", "memory"):
        box.put(f"/proc/pressure/{name}", text)


@shows("F19", on="debian12")
def guest_of_a_busy_host(box: Tree) -> None:
    box.run("systemd-detect-virt", "kvm\n")
    old = box.text("/proc/stat").splitlines()[0]
    box.edit("/proc/stat", old, "cpu  42118213 10211 9120341 321188120 112034 401221 220134 92118213 0 0")


@shows("G01", on="el8_rootful")
def no_driver(box: Tree) -> None:
    effects.no_nvml(box, 9, "Driver Not Loaded")


@shows("G17", on="debian12")
def mps_runs(box: Tree) -> None:
    daemon = {"pid": 1511, "parent": 1, "uid": 0, "user": "root", "name": "nvidia-cuda-mps-control"}
    box.change(
        "@processes", lambda found: found.append({**daemon, "argv": ["nvidia-cuda-mps-control", "-d"], "cgroup": "/"})
    )


@shows("G19", on="debian12")
def desktop_on_the_card(box: Tree) -> None:
    server = {"pid": 1611, "kind": "G", "memory": 120 << 20, "user": "root", "command": "/usr/lib/xorg/Xorg :0"}
    box.change("@nvml", lambda answer: answer["box"]["gpus"][0]["processes"].append(server))


@shows("G21", on="el9_quadlet")
def branch_that_dropped_the_card(box: Tree) -> None:
    effects.set_card(box, architecture="Volta", name="Tesla V100-PCIE-16GB")
    box.change("@nvml", lambda answer: answer["box"].update(driver="590.48.01"))


_LINKS = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c1f0f6e)\n\t Link 0: {}\n\t Link 1: 25 GB/s\n"


@shows("G22", on="rocky88")
def links_are_up(box: Tree) -> None:
    _break(box, "second-card-not-in-nvml")
    box.run("nvidia-smi nvlink --status", _LINKS.format("25 GB/s") + _LINKS.format("25 GB/s").replace("GPU 0", "GPU 1"))


@shows("G22", on="rocky88")
def links_are_down(box: Tree) -> None:
    _break(box, "second-card-not-in-nvml")
    dead = _LINKS.replace("25 GB/s", "{}").format("<inactive>", "<inactive>")
    box.run("nvidia-smi nvlink --status", dead + dead.replace("GPU 0", "GPU 1"))


@shows("H04", on="el8_rootful")
def reads_are_slow(box: Tree) -> None:
    text = box.text("/proc/diskstats")
    row = re.sub(r"(nvme0n1 912233 1022 41223311) \d+", r"\1 91223300", text)
    box.put("/proc/diskstats", row)


@shows("H05", on="debian12")
def no_room_for_the_first_pull(box: Tree) -> None:
    for path in ("/var/tmp", "/tmp", "/"):
        box.room(path, free=2 << 30)
    effects.down(box, "")
    for name in ("@podman.inspect", "@podman.image"):
        box.tell(name, None)
    for name in ("@podman.containers", "@podman.images"):
        box.tell(name, [])


@shows("H08", on="el8_rootful")
def raid_is_whole(box: Tree) -> None:
    box.put(
        "/proc/mdstat",
        "Personalities : [raid1] \nmd127 : active raid1 sdb1[1] sdc1[0]\n"
        "      937426944 blocks super 1.2 [2/2] [UU]\n      \nunused devices: <none>\n",
    )


@shows("I01", on="debian12")
def forwarder_died(box: Tree) -> None:
    effects.no_server(box)
    box.tell("@ports", [one for one in box.value("@ports") if one["port"] not in effects.PORTS])


@shows("I05", on="el8_rootful")
def proxy_in_the_shell_only(box: Tree) -> None:
    box.put("/etc/profile.d/proxy.sh", "export HTTPS_PROXY=http://proxy.example.internal:3128\n")


@shows("I06", on="el8_rootful")
def rdma_device(box: Tree) -> None:
    box.put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")


@shows("K01", on="debian12")
def nobody_manages_it(box: Tree) -> None:
    effects.set_container(box, "HostConfig", RestartPolicy={"Name": "", "MaximumRetryCount": 0})


def _engine(box: Tree, trt: str, log: str = "") -> None:
    effects.add_engine(box)
    header = "66 74 72 74 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 " + " ".join(
        f"{int(part):02x}" for part in trt.split(".")
    )
    for words in [one for one in box.commands if "*.plan" in one]:
        box.run(words, f"{effects.models(box)}/detector/1/model.plan\n {header}\n")
    index = {"name": "detector", "version": "1", "state": "READY"}
    box.change("@triton.index", lambda found: found.append(index))
    if log:
        effects.say(box, log)


@shows("L05", "L06", on="debian12")
def engine_of_this_server(box: Tree) -> None:
    _engine(box, "10.0.1.6")


@shows("L06", on="debian12")
def engine_of_another_card(box: Tree) -> None:
    _engine(
        box,
        "10.0.1.6",
        "E1130 08:40:11 1 logging.cc:40] 6: The engine plan file is generated on an incompatible device, expecting "
        "compute 7.5 got compute 8.6, please rebuild.",
    )
    reason = "Internal: unable to load plan file to auto complete config: /models/detector/1/model.plan"
    box.change("@triton.index", lambda found: found[-1].update(state="UNAVAILABLE", reason=reason))


@shows("L11", on="el8_rootful")
def tensors_larger_than_shm(box: Tree) -> None:
    effects.set_container(box, "HostConfig", ShmSize=16 << 20)


@shows("L12", on="el8_rootful")
def models_larger_than_the_card(box: Tree) -> None:
    box.stat(f"{effects.models(box)}/resnet50/1/model.onnx", size=30 << 30)
    reason = "Internal: failed to allocate memory: out of memory"
    box.change("@triton.index", lambda found: found[-1].update(state="UNAVAILABLE", reason=reason))


def blind(box: Tree) -> None:
    """Nothing can be read, nothing answers."""
    for path, fact in box.files.items():
        if fact.kind == "file":
            box.files[path] = FileFact("unknown", why="permission denied")
    box.commands = {words: CommandFact(why="timed out") for words in box.commands}
    box.answers = {name: AnswerFact(None, "timed out") for name in box.answers}
    box.spaces = {path: replace(one, why="timed out") for path, one in box.spaces.items()}


# ------------------------------------------------------------------------------------------------------------- judging


@cache
def seen(name: str) -> Facts:
    """A recorded box as all checks see it."""
    return look(tree(name))


@cache
def unseen() -> Facts:
    """A box of which nothing can be told."""
    box = tree("el8_rootless")
    blind(box)
    return look(box)


def sign(one: Check, on: str, change: Change) -> str:
    box = tree(on)
    change(box)
    return run.judged(one, look(box, one.needs)).sign


def row(one: Check) -> dict[str, set[str]]:
    """The signs that a check shows: on recorded boxes, and on broken ones until it has all cells."""
    found: set[str] = {run.judged(one, seen(name)).sign for name in names()}
    found |= {run.judged(one, unseen()).sign}
    boxes: list[tuple[str, Any]] = [*VARIANTS.get(one.id, ())]
    boxes += [(on, fault.change) for fault in faults() if one.id in fault.ids for on in fault.on]
    for on, change in boxes:
        if found & NOT_FIT and found & FIT:
            break
        found.add(sign(one, on, change))
    return {"fit": found & FIT, "not fit": found & NOT_FIT, "not told": found & NOT_TOLD}


@pytest.mark.parametrize("group", sorted({one.group for one in run.all_checks()[0]}))
def test_every_check_shows_all_three(group: str) -> None:
    missing = []
    for one in [one for one in run.all_checks()[0] if one.group == group]:
        cells = row(one)
        allowed = NEVER.get(one.id, {})
        missing += [
            f"{one.id} ({one.slug}) is never {cell}"
            for cell, signs in cells.items()
            if not signs and cell not in allowed
        ]
        missing += [f"{one.id} ({one.slug}) can be {cell} after all" for cell in allowed if cells[cell]]
    assert not missing, "\n".join(missing)
