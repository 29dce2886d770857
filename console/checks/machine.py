"""What the checks of the host share: processors, NUMA nodes, memory, virtual or not, services, and how heavy a tuning
fault weighs on a box without a GPU. Needs stand beside each, for the checks that use it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from console.checks import box
from console.checks.check import Answer, note
from console.core.facts import Evidence, Facts, Unknowable
from console.core.text import whole_number

# ---------------------------------------------------------------------------------------------------------- processors

CPUS = "/sys/devices/system/cpu/online"
NODES = "/sys/devices/system/node/online"
_MOST = 8192
"""Processors and nodes that a list can name: more is no list of the kernel."""


def members(text: str) -> tuple[int, ...]:
    """`0-3,8` is (0, 1, 2, 3, 8); Unknowable where it is no list of the kernel."""
    found: list[int] = []
    for span in text.strip().split(","):
        first, _, last = span.partition("-")
        start, end = whole_number(first), whole_number(last or first)
        if start is None or end is None or not 0 <= start <= end < _MOST:
            raise Unknowable("a list of processors or nodes is not as the kernel writes it")
        found += range(start, end + 1)
    return tuple(found)


def cpus(facts: Facts) -> int:
    """Processors (hardware threads) online. Needs CPUS."""
    return len(members(facts.text(CPUS)))


def nodes(facts: Facts) -> int:
    """NUMA nodes; 1 where the kernel knows none. Needs NODES."""
    text = facts.maybe(NODES)
    return 1 if text is None else len(members(text))


# -------------------------------------------------------------------------------------------------------------- memory

MEMINFO = "/proc/meminfo"


def meminfo(facts: Facts) -> Mapping[str, int]:
    """Fields of /proc/meminfo in bytes (HugePages_* in pages); Unknowable where MemTotal is missing. Needs MEMINFO."""
    found: dict[str, int] = {}
    for line in facts.text(MEMINFO).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        value = whole_number(words[0]) if words else None
        if value is not None:
            found[name.strip()] = value * 1024 if words[1:] == ["kB"] else value
    if not found.get("MemTotal"):
        raise Unknowable(f"{MEMINFO} has no MemTotal", f"head {MEMINFO}")
    return found


# ------------------------------------------------------------------------------------------------------ virtual or not

VIRTUAL = ("$ systemd-detect-virt", "/proc/cpuinfo")
_CONTAINERS = frozenset(
    {"docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "rkt", "wsl", "proot", "pouch"}
    | {"container-other"}
)


def virtual(facts: Facts) -> str:
    """What the box runs in, as systemd names it (`kvm`, `vmware`, `docker`); "" = on the bare machine. Unknowable
    where neither systemd nor the processor tells. Needs VIRTUAL."""
    try:
        answer = facts.command(VIRTUAL[0].removeprefix("$ "))
        word = answer.out.strip()
        if word == "none":
            return ""
        if answer.code == 0 and re.fullmatch(r"[a-z0-9-]{2,30}", word):
            return word
    except Unknowable:
        pass
    flags = re.search(r"^flags\s*:(.*)$", facts.text(VIRTUAL[1]), re.MULTILINE)
    if flags is None:
        raise Unknowable("whether this is a virtual machine is not told", "systemd-detect-virt")
    return "hypervisor" if "hypervisor" in flags.group(1).split() else ""


def is_container(word: str) -> bool:
    """Whether `virtual` names a container rather than a machine."""
    return word in _CONTAINERS


# ------------------------------------------------------------------------------------------------------------ services

_RUNS = frozenset({"active", "reloading", "refreshing"})


def active(facts: Facts, name: str) -> bool:
    """Whether a service runs: tuned, irqbalance, firewalld; Unknowable where systemd was not asked. Needs box.UNITS."""
    state = str(box.unit(facts, f"{name}.service").get("ActiveState") or "")
    if not state:
        raise Unknowable(f"systemd does not tell whether {name} runs", f"systemctl is-active {name}")
    return state in _RUNS


# --------------------------------------------------------------------------------------------------------------- texts


def texts(facts: Facts, paths: Iterable[str]) -> tuple[dict[str, str], Unknowable | None]:
    """(path -> its text, stripped; why the first unreadable one could not be read). Those that went are left out."""
    found: dict[str, str] = {}
    blind: Unknowable | None = None
    for path in paths:
        try:
            text = facts.maybe(path)
        except Unknowable as why:
            blind = blind or why
        else:
            if text is not None:
                found[path] = text.strip()
    return found, blind


def counted(text: str) -> int | None:
    """A count of the kernel's; None for what is none, a negative one too."""
    number = whole_number(text.strip())
    return number if number is not None and number >= 0 else None


def seen(path: str, text: str) -> tuple[Evidence, ...]:
    """A small file's text as evidence."""
    return (Evidence(path, text.strip()),)


# -------------------------------------------------------------------------------------------------------------- weight


def may_have_gpu(facts: Facts) -> bool:
    """Whether the box has an NVIDIA device; True too where the bus could not be listed. Needs BUS."""
    try:
        return bool(box.gpus(facts))
    except Unknowable:
        return True


def weighed(facts: Facts, answer: Answer) -> Answer:
    """A tuning warning as it is where the box has a GPU or may have one; only worth knowing where it has none.
    Needs BUS."""
    if may_have_gpu(facts) or answer.sign != "warn":
        return answer
    return note(answer.text, answer.evidence, **answer.data)
