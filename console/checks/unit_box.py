"""The systemd unit of the Triton container: its properties and its text, for the checks of group `units`."""

from __future__ import annotations

from collections.abc import Mapping

from console.checks.box import INSPECT, at, unit
from console.clients import unit_lines
from console.clients.libpod import UNIT_LABEL
from console.clients.unit_lines import UnitLine
from console.core.facts import Facts

TEXTS = (
    "/etc/systemd/system/{unit}",
    "/usr/lib/systemd/system/{unit}",
    "/etc/systemd/system/{unit}.d/*.conf",
    "{home}/.config/systemd/user/{unit}",
    "{home}/.config/systemd/user/{unit}.d/*.conf",
)
"""Where the text of a unit that is no Quadlet may be; of `text`."""
QUADLETS = (
    "/etc/containers/systemd/*.container",
    "/usr/share/containers/systemd/*.container",
    "{home}/.config/containers/systemd/*.container",
)
"""Of `quadlets`."""


def name(facts: Facts) -> str:
    """The unit's name, such as `triton.service`; "" where none manages the container, or that is not known."""
    found = facts.every("unit")
    return found[0].removeprefix("user:") if found else ""


def is_user(facts: Facts) -> bool:
    """Whether the unit is one of the user's own systemd: the container is rootless."""
    found = facts.every("unit")
    return bool(found and found[0].startswith("user:")) or (facts.every("user") or ("root",))[0] != "root"


def systemctl(facts: Facts, *words: str) -> str:
    """A systemctl line for this unit's manager."""
    return " ".join(("systemctl", "--user", *words) if is_user(facts) else ("sudo", "systemctl", *words))


def console(facts: Facts, words: str) -> str:
    """A line of this console's own, as who owns the containers."""
    return f"{'' if is_user(facts) else 'sudo '}gpuconsole do {words}"


def argv(facts: Facts, *words: str) -> tuple[str, ...]:
    """The same as words, without sudo."""
    return ("systemctl", "--user", *words) if is_user(facts) else ("systemctl", *words)


def properties(facts: Facts) -> Mapping[str, str]:
    """`systemctl show` of the unit; Unknowable where systemd did not tell of it. Needs UNITS."""
    own = name(facts)
    return unit(facts, f"user:{own}" if is_user(facts) else own)


def text(facts: Facts) -> tuple[UnitLine, ...]:
    """The keys of the unit's file and its drop-ins, in the order in which they count; () where it has none of these
    files. Needs TEXTS."""
    own = name(facts)
    home = (facts.every("home") or ("",))[0]
    folders = [f"{home}/.config/systemd/user"] if is_user(facts) and home else []
    for folder in (*folders, "/etc/systemd/system", "/usr/lib/systemd/system"):
        path = f"{folder}/{own}"
        found = facts.maybe(path)
        if found is None:
            continue
        lines = list(unit_lines.parsed(path, found))
        for extra in (*folders, "/etc/systemd/system"):
            for one in facts.glob(f"{extra}/{own}.d/*.conf"):
                lines += unit_lines.parsed(one, facts.text(one))
        return tuple(lines)
    return ()


def quadlets(facts: Facts) -> tuple[tuple[str, tuple[UnitLine, ...]], ...]:
    """(path, keys) of each Quadlet file that makes the Triton container. Needs QUADLETS."""
    home = (facts.every("home") or ("",))[0]
    wanted = (facts.every("container") or ("",))[0]
    found = []
    for pattern in QUADLETS:
        if "{home}" in pattern and not home:
            continue
        for path in facts.glob(pattern.replace("{home}", home)):
            lines = unit_lines.parsed(path, facts.text(path))
            image = unit_lines.last(lines, "Container", "Image") or ""
            given = unit_lines.last(lines, "Container", "ContainerName") or ""
            execs = unit_lines.last(lines, "Container", "Exec") or ""
            if "tritonserver" in image or "tritonserver" in execs or (wanted and given == wanted):
                found.append((path, lines))
    return tuple(found)


def label(facts: Facts) -> str:
    """PODMAN_SYSTEMD_UNIT of the container; "" where it has none. Needs INSPECT."""
    return str(at(facts.answer(INSPECT), "Config", "Labels", UNIT_LABEL) or "")
