"""What the checks of the container and of SELinux share: its name, its unit, lines that a person types, and how a
setting of the container is changed on this box."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.checks.box import CONTAINER, PING, UNITS, at, inspect, rootless
from console.clients.libpod import UNIT_LABEL
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

NEEDS = (*CONTAINER, PING, UNITS)
"""What the functions below want."""
GAP = "the container is made anew: a gap in service; the old one is kept, and comes back if the new one is no good"


class Unit(Struct, frozen=True):
    """A systemd unit."""

    name: str
    user: bool = False
    """Of a user's own systemd."""
    properties: Mapping[str, Any] = {}
    """As `systemctl show` tells them; {} where it was not asked."""

    @property
    def systemctl(self) -> str:
        """The command that changes it."""
        return "systemctl --user" if self.user else "sudo systemctl"

    def property(self, name: str) -> str:
        """A property's text; "" where it is not told."""
        return str(self.properties.get(name) or "")


def units(facts: Facts) -> dict[str, Unit]:
    """The units that were asked, by their plain names; Unknowable where systemd was not. Needs UNITS."""
    answer = facts.answer(UNITS)
    found = answer if isinstance(answer, dict) else {}
    told = {key: one for key, one in found.items() if isinstance(one, dict)}
    return {
        key.removeprefix("user:"): Unit(key.removeprefix("user:"), key.startswith("user:"), one)
        for key, one in sorted(told.items(), reverse=True)
    }


def unit_of(facts: Facts) -> Unit | None:
    """The unit that manages the Triton container; None where none does. Needs NEEDS."""
    label = None if facts.why_not(CONTAINER[0]) else at(facts.answer(CONTAINER[0]), "Config", "Labels", UNIT_LABEL)
    names = (*facts.every("unit"), *((label,) if isinstance(label, str) and label else ()))
    if not names:
        return None
    name = names[0].removeprefix("user:")
    known = {} if facts.why_not(UNITS) else units(facts)
    return known.get(name) or Unit(name, names[0].startswith("user:") or is_rootless(facts))


def is_rootless(facts: Facts) -> bool:
    """The same as box.rootless; False where it is not told. Only for the words of a fix. Needs PING."""
    try:
        return rootless(facts)
    except Unknowable:
        return False


def name_of(found: Mapping[str, Any]) -> str:
    """The container's name."""
    return str(found.get("Name") or "triton").lstrip("/")


def sudo(facts: Facts) -> str:
    """`sudo ` where the containers are root's. Needs PING."""
    return "" if is_rootless(facts) else "sudo "


def podman(facts: Facts, words: str) -> str:
    """A podman command as its owner types it. Needs PING."""
    return f"{sudo(facts)}podman {words}"


def seen(found: Mapping[str, Any], *paths: str) -> tuple[Evidence, ...]:
    """Values of the inspect answer as evidence: `seen(found, "HostConfig.ShmSize")`."""
    where = f"podman inspect {name_of(found)}"
    values = ((path, at(found, *path.split("."))) for path in paths)
    return tuple(Evidence(where, f"{path} = {one_line(str(value), 160)}") for path, value in values)


def environment(*found: Any) -> dict[str, str]:
    """Variables of inspected containers and images; those of the first one win."""
    told: dict[str, str] = {}
    for one in reversed(found):
        lines = at(one, "Config", "Env")
        for line in lines if isinstance(lines, list) else ():
            name, _, value = str(line).partition("=")
            told[name] = value
    return told


def strings(value: Any) -> tuple[str, ...]:
    """A JSON list as texts; () for what is none."""
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def number(value: Any) -> int | None:
    """A whole number of JSON, written as a number or as text; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value) if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def recreate(facts: Facts, values: Mapping[str, str], option: str, again: Sequence[str] = ()) -> Fix:
    """The fix for a setting that only a new container takes: the console's own action, or an edit of the unit that
    makes it, since what is made anew behind systemd's back does not last. `option` is what `podman run` wants, or, with
    values["flags"], the server."""
    name = shlex.quote(name_of(inspect(facts)))
    owner = unit_of(facts)
    if owner is None:
        pairs = " ".join(f"{key}={shlex.quote(value)}" for key, value in values.items())
        return Fix(
            "B",
            (f"{sudo(facts)}gpuconsole do container.recreate {name} {pairs}",),
            effect=GAP,
            undo=f"{sudo(facts)}gpuconsole do container.back {name}",
            action="container.recreate",
            values=values,
            again=tuple(again),
        )
    unit, quadlet = shlex.quote(owner.name), owner.property("SourcePath")
    edit = f"{owner.systemctl} edit --full {unit}"
    what = f"add {option} to {'the server' if 'flags' in values else 'its podman run'}"
    if quadlet.endswith(".container"):
        edit = f"{'vi' if owner.user else 'sudoedit'} {shlex.quote(quadlet)}"
        what = f"add {option} to Exec=" if "flags" in values else f"add PodmanArgs={option} to [Container]"
    return Fix(
        "S",
        (edit, f"{owner.systemctl} daemon-reload", f"{owner.systemctl} restart {unit}"),
        effect=f"{what}: {owner.name} makes the container, so it is changed there; the restart is a gap in service",
        undo="take it out again, daemon-reload, restart",
        again=tuple(again),
    )
