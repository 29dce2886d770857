"""NVML and the driver's settings of a card: G01 G02 G03 G16 G17 G19 G20 G21."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.checks.box import BUS, NO_DEVICE, UNITS, gpus, unit
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.gpu_cards import NEEDS, answer, cards, each, has_device, missing, seen
from console.clients.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
)
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.model import GpuState
from console.core.text import one_line
from console.core.units import size
from console.core.xid_incidents import pci_address

# ----------------------------------------------------------------------------------------------------------------- G01

_SEE: Mapping[int, str] = {
    DRIVER_NOT_LOADED: "A05",
    LIBRARY_NOT_FOUND: "A11",
    LIB_RM_VERSION_MISMATCH: "A06",
    NO_PERMISSION: "A16",
    GPU_IS_LOST: "G12",
}


def _mend(code: int | None) -> Fix | None:
    if code == DRIVER_NOT_LOADED:
        return Fix(
            "B",
            ("sudo modprobe nvidia", "sudo modprobe nvidia-uvm"),
            "takes effect now; where it fails its words and the kernel log say why",
            "sudo modprobe -r nvidia-uvm nvidia",
            deeds=(Deed("run", ("modprobe", "nvidia")), Deed("run", ("modprobe", "nvidia-uvm"))),
            back=(Deed("run", ("modprobe", "-r", "nvidia-uvm", "nvidia")),),
            again=("A05", "A16", "G02"),
        )
    if code == LIB_RM_VERSION_MISMATCH:
        return Fix("R", ("sudo reboot",), "loads the module that fits the libraries", reboot=True, again=("A06", "B07"))
    if code == NO_PERMISSION:
        return Fix("S", ("ls -lZ /dev/nvidia*", "id"), "shows who may use the device nodes; A16 and D06 say what to do")
    if code == LIBRARY_NOT_FOUND:
        return Fix(
            "S", ("ldconfig -p | grep libnvidia-ml",), "shows whether the driver's libraries are there; A11 says more"
        )
    return None


@check(
    "G01",
    "NVML answers",
    group="gpu",
    slug="nvml-init",
    needs=NEEDS,
    why="NVML is how nvidia-smi, Triton's GPU metrics and this console talk to the driver. Where it fails, a new start "
    "of the container will very probably find no GPU either.",
    source="nvml.h, nvmlReturn_t",
)
def nvml_init(facts: Facts) -> Answer:
    try:
        box, (code, text) = answer(facts)
    except Unknowable:
        if not has_device(facts):
            return skip(NO_DEVICE)
        raise
    if box is not None:
        if not box.gpus and not has_device(facts):
            return skip(NO_DEVICE)
        driver = box.driver or "?"
        return ok(f"NVML of driver {driver} answers, {_cards(len(box.gpus))}", driver=driver)
    if not has_device(facts):
        return skip(NO_DEVICE)
    see = f", see {_SEE[code]}" if code is not None and code in _SEE else ""
    text = text.removeprefix(f"NVML error {code}: ")
    words = f"NVML error {code}: {text or 'no text'}{see}" if code is not None else f"NVML: {text}"
    return fail(words, (Evidence("NVML", f"error {code}: {text}"),), _mend(code), error=str(code))


def _cards(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"


# ----------------------------------------------------------------------------------------------------------------- G02


@check(
    "G02",
    "NVML lists every card of the PCI bus",
    group="gpu",
    slug="gpu-count",
    needs=(*NEEDS, "stat /sys/bus/pci/devices/{gpu}/driver"),
    why="A card that is on the bus but not in NVML serves nothing. It has fallen off, was not initialised, or another "
    "driver holds it.",
    source="sysfs; nvmlDeviceGetCount",
)
def count(facts: Facts) -> Answer:
    found = cards(facts)
    if not found:
        return skip(NO_DEVICE)
    bus = gpus(facts)
    known = {pci_address(card.pci_bus_id) for card in found if card.pci_bus_id and card.lost is None}
    lost = [card for card in found if card.lost is not None]
    unlisted = [one for one in bus if pci_address(one) not in known]
    listed = len(found) - len(lost)
    if listed >= len(bus):
        return ok(f"{_cards(listed)} of {len(bus)} on the bus")
    if unlisted and len(known) < listed:
        unlisted = []  # a card that does not tell its address: which one is absent cannot be said
    owners = {one: _owner(facts, one) for one in unlisted}
    elsewhere = {one: owner for one, owner in owners.items() if owner not in ("", "nvidia")}
    words = f"NVML lists {listed} of {len(bus)} cards"
    lines = tuple(Evidence(f"/sys/bus/pci/devices/{one}", f"driver {owner or 'none'}") for one, owner in owners.items())
    data = {"missing": " ".join(unlisted)}
    if unlisted and len(elsewhere) == len(unlisted):
        first, owner = next(iter(elsewhere.items()))
        return warn(f"{words}: {first} belongs to {owner}", lines, None, **data)
    fix = Fix(
        "S",
        ("sudo dmesg | grep -E 'NVRM|Xid' | tail -n 20",),
        "shows what the driver said of that card; G13 reads it too",
    )
    where = f": not {', '.join(unlisted[:2])}" if unlisted else ""
    return fail(words + where, lines, fix, **data)


def _owner(facts: Facts, address: str) -> str:
    """Driver that holds a BUS device; "" where none does or it is not told."""
    try:
        target = facts.file(f"/sys/bus/pci/devices/{address}/driver").target
    except Unknowable:
        return ""
    return (target or "").rsplit("/", 1)[-1]


# ----------------------------------------------------------------------------------------------------------------- G03

_PERSISTENCED = "nvidia-persistenced.service"


@check(
    "G03",
    "persistence mode is on",
    group="gpu",
    slug="persistence",
    needs=(*NEEDS, UNITS, f"stat /usr/lib/systemd/system/{_PERSISTENCED}"),
    why="Without it the driver tears its state down when the last process leaves the card. The next start is slow, and "
    "clock locks and power limits are lost.",
    source="docs.nvidia.com/deploy/driver-persistence",
)
def persistence(facts: Facts) -> Answer:
    daemon = _persistenced(facts)

    def judge(card: GpuState) -> Answer:
        if card.persistence is None:
            return missing(card, "persistence")
        if card.persistence:
            by_hand = daemon is not None and daemon.get("ActiveState") != "active"
            later = daemon is not None and daemon.get("UnitFileState") not in ("enabled", "static")
            if by_hand and later:
                return note("on, but set by hand: a reboot ends it", seen(card, "persistence mode on"))
            return ok("on", seen(card, "persistence mode on"))
        line = seen(card, "persistence mode off")
        return warn("off: the driver's state goes with the last process", line, _persistence_fix(facts, daemon))

    return each(facts, judge)


def _persistenced(facts: Facts) -> Mapping[str, str] | None:
    """Properties of the daemon's unit; None where it is not installed, or systemd did not tell."""
    try:
        found = unit(facts, _PERSISTENCED)
    except Unknowable:
        return None
    return found if found.get("LoadState") == "loaded" else None


def _persistence_fix(facts: Facts, daemon: Mapping[str, str] | None) -> Fix:
    installed = daemon is not None
    if not installed:
        try:
            installed = facts.exists(f"/usr/lib/systemd/system/{_PERSISTENCED}")
        except Unknowable:
            installed = False
    if installed:
        enable, disable = (("systemctl", verb, "--now", _PERSISTENCED) for verb in ("enable", "disable"))
        return Fix(
            "P",
            (f"sudo {' '.join(enable)}",),
            "takes effect now and at every boot; what runs on the card goes on",
            f"sudo {' '.join(disable)}",
            deeds=(Deed("run", enable),),
            back=(Deed("run", disable),),
        )
    try:
        single = len(cards(facts)) == 1
    except Unknowable:
        single = False
    return Fix(
        "B",
        ("sudo nvidia-smi -pm 1",),
        "takes effect now and ends with a reboot: nvidia-persistenced, which lasts, is not installed here",
        "sudo nvidia-smi -pm 0",
        action="gpu.persistence" if single else "",
        values={"mode": "on"} if single else {},
    )


# ----------------------------------------------------------------------------------------------------------------- G16


@check(
    "G16",
    "compute mode lets processes use the card",
    group="gpu",
    slug="compute-mode",
    needs=NEEDS,
    why="In mode `prohibited` no process can create a CUDA context, so no GPU model loads. In `exclusive_process` a "
    "second process, such as the stub of a Python model, gets none.",
    source="nvml.h, nvmlComputeMode_t; nvidia-smi(1)",
)
def compute_mode(facts: Facts) -> Answer:
    single = len(cards(facts)) == 1

    def judge(card: GpuState) -> Answer:
        mode = card.compute_mode
        if mode is None:
            return missing(card, "compute_mode")
        line = seen(card, f"compute mode {mode}")
        if mode == "default":
            return ok("default", line)
        if mode == "prohibited":
            fix = Fix(
                "B",
                (f"sudo nvidia-smi -i {card.index} -c 0",),
                "takes effect now; only while no process uses the card",
                f"sudo nvidia-smi -i {card.index} -c 2",
                action="gpu.compute_mode" if single else "",
                values={"mode": "default"} if single else {},
            )
            return fail("prohibited: no process can use the card", line, fix, mode=mode)
        return note(f"{mode}: one process alone, Python models' stubs get no CUDA", line, mode=mode)

    return each(facts, judge)


# ----------------------------------------------------------------------------------------------------------------- G17


@check(
    "G17",
    "no MPS daemon in the way",
    group="gpu",
    slug="mps",
    needs=("@processes", BUS),
    why="MPS shares a card between several processes. One Triton process gains nothing by it, and a container needs "
    "the daemon's pipe folder and the host's IPC to reach it.",
    source="docs.nvidia.com/deploy/mps",
)
def mps(facts: Facts) -> Answer:
    if not has_device(facts):
        return skip(NO_DEVICE)
    processes = facts.answer("@processes")
    if not isinstance(processes, list):
        raise Unknowable("the processes were not listed", "pgrep -a nvidia-cuda-mps")
    for one in processes:
        words = one if isinstance(one, Mapping) else {}
        name = str((words.get("argv") or [""])[0] if isinstance(words.get("argv"), list) and words.get("argv") else "")
        if name.rsplit("/", 1)[-1].startswith("nvidia-cuda-mps") or str(words.get("name", "")).startswith(
            "nvidia-cuda-mps"
        ):
            line = Evidence(f"process {words.get('pid')}", name or str(words.get("name")))
            return note(f"an MPS daemon runs (process {words.get('pid')}): one Triton gains nothing", (line,))
    return ok("no MPS daemon runs")


# ----------------------------------------------------------------------------------------------------------------- G19


@check(
    "G19",
    "no desktop draws on the card",
    group="gpu",
    slug="display",
    needs=NEEDS,
    why="A display server takes memory of the card and time between kernels. A server for inference needs none.",
    source="nvmlDeviceGetGraphicsRunningProcesses",
)
def display(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        if card.processes is None:
            return missing(card, "processes")
        drawing = [one for one in card.processes if "G" in one.kind]
        if not drawing:
            return ok("none")
        most = max(drawing, key=lambda one: one.memory or 0)
        name = one_line((most.command or "a process").split(" ")[0].rsplit("/", 1)[-1] or "a process", 40)
        memory = f", {size(most.memory)}" if most.memory is not None else ""
        more = f" and {len(drawing) - 1} more" if len(drawing) > 1 else ""
        return note(
            f"{name} ({most.pid}{memory}){more} draws on it", seen(card, f"graphics: {name}, process {most.pid}")
        )

    return each(facts, judge)


# ----------------------------------------------------------------------------------------------------------------- G20


@check(
    "G20",
    "firmware of the GPU's system processor",
    group="gpu",
    slug="gsp-version",
    needs=(BUS, "/proc/driver/nvidia/gpus/{gpu}/information"),
    why="From Turing on the driver runs parts of itself on the card (GSP). Its firmware must be the driver's own; "
    "faults of it show as Xid 119 and 120.",
    source="NVIDIA driver README, chapter GSP firmware",
)
def gsp(facts: Facts) -> Answer:
    found = gpus(facts)
    if not found:
        return skip(NO_DEVICE)
    told: list[tuple[str, Evidence]] = []
    for one in found:
        path = f"/proc/driver/nvidia/gpus/{one}/information"
        lines = facts.lines(path, r"^(?:GPU|GSP) Firmware\s*:")
        if lines:
            told.append((lines[0].text.partition(":")[2].strip(), lines[0]))
    if not told:
        return skip("this driver does not tell it")
    version, line = told[0]
    if version.casefold() in ("", "n/a"):
        return ok("the driver runs without it", (line,))
    return note(f"GSP firmware {one_line(version, 40)}", (line,), gsp=version)


# ----------------------------------------------------------------------------------------------------------------- G21

_LAST_BRANCH: Mapping[str, int] = {"Kepler": 470, "Maxwell": 580, "Pascal": 580, "Volta": 580}
"""Architecture -> the last driver branch that supports it (host.md, section 0)."""


@check(
    "G21",
    "driver branch supports the card",
    group="gpu",
    slug="driver-branch",
    needs=NEEDS,
    why="NVIDIA drops old architectures from newer driver branches. An update past the last one takes the card away.",
    source="docs.nvidia.com/datacenter/tesla/driver-installation-guide; supported drivers",
)
def branch(facts: Facts) -> Answer:
    driver = ""
    if cards(facts):
        box, _ = answer(facts)
        driver = (box.driver if box is not None else None) or ""
    major = int(match[0]) if (match := re.match(r"\d{3,4}", driver)) else None

    def judge(card: GpuState) -> Answer:
        if card.architecture is None:
            return missing(card, "architecture")
        if major is None:
            return unknown("the driver's version is not told", "cat /proc/driver/nvidia/version")
        last = _LAST_BRANCH.get(card.architecture)
        line = seen(card, f"{card.architecture}, driver {driver}")
        if last is None:
            return ok(f"driver {driver}, {card.architecture}", line, branch=str(major))
        return note(f"R{last} is the last branch for {card.architecture}; this is R{major}", line, branch=str(major))

    return each(facts, judge)
