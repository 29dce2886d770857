"""Package logs -> what changed about drivers, kernels and Podman (pure). Only names that matter to a GPU box."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from console.core.model import Event
from console.core.text import one_line

SAME_RUN = 180.0
"""Seconds: changes this close together are one run of the package manager."""

_WATCHED = re.compile(
    r"^(?:kmod-|akmod-|dkms-|lib)?(?:nvidia|cuda-drivers)|^(?:kernel|kernel-core|kernel-rt|linux-image)\b"
    r"|^podman$|^crun$|^runc$|^conmon$|^container-selinux$|^nvidia-container-toolkit|^libnvidia-container|^systemd$"
)
_NOT = re.compile(r"-(?:debuginfo|debugsource|doc|docs|dbg)$|^kernel-(?:headers|tools|tools-libs)$")
_DPKG = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<what>install|upgrade|remove|purge) "
    r"(?P<name>[^: ]+)(?::\S+)? (?P<old>\S+) (?P<new>\S+)$"
)
_DNF = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)) \S+ "
    r"(?P<what>Installed|Upgrade|Upgraded|Downgrade|Downgraded|Erase|Erased|Removed|Install): (?P<nevra>\S+)"
)
_NEVRA = re.compile(r"(?P<name>.+)-(?:\d+:)?(?P<version>[^-]+)-(?P<release>[^-]+)\.(?P<arch>[^.]+)$")
_QA_LAST = re.compile(r"(?P<nevra>\S+)\s+(?P<when>\S.*\S)$")


class Change(Struct, frozen=True):
    """One package changed; old None = installed, new None = removed."""

    wall: float
    name: str
    old: str | None
    new: str | None


def is_watched(name: str) -> bool:
    """True for drivers, kernels, Podman and what it runs containers with."""
    return bool(_WATCHED.search(name)) and not _NOT.search(name)


def from_dpkg(lines: Iterable[str]) -> list[Change]:
    """/var/log/dpkg.log; its times are of this host's zone."""
    found = []
    for line in lines:
        match = _DPKG.match(line)
        if match is None or not is_watched(match["name"]):
            continue
        when = _wall(match["when"])
        if when is not None:
            old = None if match["old"] == "<none>" else match["old"]
            new = None if match["new"] == "<none>" or match["what"] in ("remove", "purge") else match["new"]
            found.append(Change(when, match["name"], old, new))
    return found


def from_dnf(lines: Iterable[str]) -> list[Change]:
    """/var/log/dnf.rpm.log: `Upgrade: new` and `Upgraded: old` come as two lines of one run."""
    found: list[Change] = []
    for line in lines:
        match = _DNF.match(line)
        parts = _NEVRA.match(match["nevra"]) if match else None
        if match is None or parts is None or not is_watched(parts["name"]):
            continue
        when = _wall(match["when"])
        if when is None:
            continue
        version = f"{parts['version']}-{parts['release']}"
        if match["what"] in ("Upgraded", "Downgraded"):
            _complete(found, when, parts["name"], version)
        elif match["what"] in ("Erase", "Erased", "Removed"):
            found.append(Change(when, parts["name"], version, None))
        else:
            found.append(Change(when, parts["name"], None, version))
    return found


def _complete(found: list[Change], when: float, name: str, old: str) -> None:
    """Give the newest change of this package in the same run its old version."""
    for position in range(len(found) - 1, -1, -1):
        one = found[position]
        if when - one.wall > SAME_RUN:
            return
        if one.name == name and one.old is None:
            found[position] = Change(one.wall, name, old, one.new)
            return


def from_rpm_last(lines: Iterable[str]) -> list[Change]:
    """`rpm -qa --last` with LC_ALL=C: what is installed now and since when; old versions are not told."""
    found = []
    for line in lines:
        match = _QA_LAST.match(line)
        parts = _NEVRA.match(match["nevra"]) if match else None
        if match is None or parts is None or not is_watched(parts["name"]):
            continue
        when = _rpm_time(match["when"])
        if when is not None:
            found.append(Change(when, parts["name"], None, f"{parts['version']}-{parts['release']}"))
    return found


def events(changes: Iterable[Change], origin: str) -> list[Event]:
    """One event per run of the package manager: `rpm: nvidia-driver 550.90.07 → 570.86.15, podman ...`."""
    runs: list[list[Change]] = []
    for one in sorted(changes, key=lambda change: change.wall):
        if runs and one.wall - runs[-1][-1].wall <= SAME_RUN:
            runs[-1].append(one)
        else:
            runs.append([one])
    return [_event(run, origin) for run in runs]


def _event(run: list[Change], origin: str) -> Event:
    words = list(dict.fromkeys(one_line(_words(change), 120) for change in run))
    shown = ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    driver = any("nvidia" in change.name or change.name.startswith("cuda-drivers") for change in run)
    text = f"{origin.strip('()')}: {shown}"
    return Event(run[0].wall, "warn" if driver else "note", text, origin, "packages", detail=tuple(words))


def _words(change: Change) -> str:
    if change.old and change.new:
        return f"{change.name} {change.old} → {change.new}"
    return f"{change.name} {change.new} installed" if change.new else f"{change.name} {change.old or ''} removed"


def _wall(text: str) -> float | None:
    """An ISO time; one without a zone is of this host's."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


_RPM_FORMATS = ("%a %b %d %H:%M:%S %Y", "%a %d %b %Y %I:%M:%S %p %Z", "%a %d %b %Y %H:%M:%S %Z")


def _rpm_time(text: str) -> float | None:
    """`Sat Jul  6 02:57:40 2024`, or with a zone name (which is this host's own) as newer ones print it."""
    for pattern in _RPM_FORMATS:
        try:
            return datetime.strptime(text, pattern).timestamp()
        except (ValueError, OverflowError):
            continue
    return None
