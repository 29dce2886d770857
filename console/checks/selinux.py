"""What the SELinux checks share: whether it is on, contexts, booleans, and the domain that Triton runs in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from console.checks.box import CONTAINER, OS_RELEASE, distro, inspect
from console.checks.container import seen
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix

ENFORCE = "/sys/fs/selinux/enforce"
NEEDS = (OS_RELEASE, ENFORCE)
DOMAIN = (*CONTAINER, "/proc/{container_pid}/attr/current")
BOOLEANS = "/sys/fs/selinux/booleans"
USE_DEVICES = "container_use_devices"
USE_XSERVER = "container_use_xserver_devices"
"""Opens /dev/nvidia* alone; container-selinux 2.232 and later."""
DEVICE_BOOLEANS = (f"{BOOLEANS}/{USE_DEVICES}", f"{BOOLEANS}/{USE_XSERVER}")
UNCONFINED = frozenset({"", "spc_t", "unconfined_t", "unconfined_service_t", "container_runtime_t"})
"""Domains in which nothing of the container's is denied; "" = label separation is off."""

Mode = Literal["enforcing", "permissive", "disabled"]
_CATEGORY = re.compile(r"c(\d{1,4})(?:\.c(\d{1,4}))?")


class Context(Struct, frozen=True):
    """A label: `system_u:object_r:container_file_t:s0:c1,c2`."""

    type: str
    categories: frozenset[int] = frozenset()


def context(label: str) -> Context | None:
    """None for what is no label."""
    parts = label.strip("\0 \n").split(":", 3)
    if len(parts) < 3 or not parts[2].strip():
        return None
    level = parts[3].rpartition("-")[2] if len(parts) == 4 else ""
    categories: set[int] = set()
    for first, last in _CATEGORY.findall(level.partition(":")[2]):
        categories.update(range(int(first), min(int(last or first), 1023) + 1))
    return Context(parts[2].strip(), frozenset(categories))


def mode(facts: Facts) -> Mode:
    """Whether the running kernel enforces. Needs ENFORCE."""
    text = facts.maybe(ENFORCE)
    if text is None:
        return "disabled"
    if text.strip() not in ("0", "1"):
        raise Unknowable(f"{ENFORCE} holds neither 0 nor 1", "getenforce")
    return "enforcing" if text.strip() == "1" else "permissive"


def off(facts: Facts) -> str:
    """Why the checks of SELinux do not apply; "" where it is on. Needs NEEDS."""
    if mode(facts) != "disabled":
        return ""
    return "this distribution uses AppArmor" if _is_debian(facts) else "SELinux is off"


def _is_debian(facts: Facts) -> bool:
    try:
        return distro(facts).is_debian
    except Unknowable:
        return False


def boolean(facts: Facts, name: str) -> tuple[bool, bool] | None:
    """(now, pending) of a boolean; None where the loaded policy has none of that name. Needs its file in BOOLEANS."""
    text = facts.maybe(f"{BOOLEANS}/{name}")
    if text is None:
        return None
    words = text.strip("\0 \n").split()
    if len(words) != 2 or not set(words) <= {"0", "1"}:
        raise Unknowable(f"{BOOLEANS}/{name} does not hold two numbers", f"getsebool {name}")
    return words[0] == "1", words[1] == "1"


class Domain(Struct, frozen=True):
    """What the container's processes run as."""

    type: str
    """"" where label separation is off."""
    categories: frozenset[int]
    evidence: tuple[Evidence, ...]

    @property
    def is_confined(self) -> bool:
        """False where nothing is denied to it for its label."""
        return self.type not in UNCONFINED


def domain(facts: Facts) -> Domain:
    """From the running process, else from Podman's ProcessLabel; SecurityOpt tells nothing of containers made through
    the API. Unknowable where there is no container. Needs DOMAIN."""
    found = inspect(facts)
    for pid in facts.every("container_pid"):
        path = f"/proc/{pid}/attr/current"
        text = _text(facts, path)
        own = context(text)
        if own is not None:
            return Domain(own.type, own.categories, (Evidence(path, text),))
    label = found.get("ProcessLabel")
    told = context(label) if isinstance(label, str) else None
    if told is None and label != "":
        raise Unknowable("the label that the container runs with is not told", "ps -eZ | grep tritonserver")
    evidence = seen(found, "ProcessLabel")
    return Domain(told.type, told.categories, evidence) if told else Domain("", frozenset(), evidence)


def _text(facts: Facts, path: str) -> str:
    try:
        return (facts.maybe(path) or "").strip("\0 \n")
    except Unknowable:
        return ""


def set_boolean(name: str, again: tuple[str, ...]) -> Fix:
    """Switch a boolean on, for good."""
    reach = "the GPU's nodes" if name == USE_XSERVER else "any device node that a container is given"
    what = reach if name in (USE_DEVICES, USE_XSERVER) else "what this boolean guards"
    return switch(
        {name: True}, f"takes 30 s or more, then holds at once and for every container: it opens {what}", again
    )


def switch(wanted: Mapping[str, bool], effect: str, again: tuple[str, ...]) -> Fix:
    """Set booleans for good; each is the other way round now."""
    words = {name: ("on", "off") if on else ("off", "on") for name, on in wanted.items()}
    return Fix(
        "P",
        tuple(f"sudo setsebool -P {name} {now}" for name, (now, _) in words.items()),
        effect=effect,
        undo="; ".join(f"sudo setsebool -P {name} {before}" for name, (_, before) in words.items()),
        deeds=tuple(Deed("run", ("setsebool", "-P", name, now), seconds=300.0) for name, (now, _) in words.items()),
        back=tuple(
            Deed("run", ("setsebool", "-P", name, before), seconds=300.0) for name, (_, before) in words.items()
        ),
        again=again,
    )


def open_devices(facts: Facts, again: tuple[str, ...]) -> Fix:
    """What lets a confined container use the GPU's nodes: the narrowest boolean that this policy has. Needs
    DEVICE_BOOLEANS."""
    for name in (USE_XSERVER, USE_DEVICES):
        if boolean(facts, name) is not None:
            return set_boolean(name, again)
    return Fix(
        "S",
        ("sudo dnf -y upgrade container-selinux", f"sudo setsebool -P {USE_DEVICES} on"),
        effect="the loaded policy has neither boolean: container-selinux 2.175 and later has the first one",
        again=again,
    )
