"""What the names in braces stand for: found from files and answers, of a live box as of a recorded one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.clients import cdi, cgroup, units
from console.clients.libpod import UNIT_LABEL
from console.clients.nvidia_host import DISPLAY_CLASSES, NVIDIA_VENDOR
from console.clients.podman import user_of
from console.clients.tree import MAX_SPEC, Tree
from console.core.text import whole_number
from console.sources import facts_system
from console.sources.facts_host import Host

_SYSTEM_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
_PART = re.compile(r"\d+|[A-Za-z]+")


# -------------------------------------------------------------------------------------------------------------- kernel


def release(tree: Tree) -> tuple[str, ...]:
    """Of the kernel that runs."""
    text = (tree.text("/proc/sys/kernel/osrelease") or "").strip()
    return (text,) if text else ()


def next_release(tree: Tree) -> tuple[str, ...]:
    """The newest folder of /lib/modules: what a reboot will probably run. Debug kernels are never the default."""
    names = [name for name in tree.names("/lib/modules") or () if name[:1].isdigit() and "debug" not in name]
    return (max(names, key=version_key),) if names else ()


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts as rpm does: numbers as numbers, a number after a word, the longer after the shorter."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _PART.findall(text))


def gpus(tree: Tree) -> tuple[str, ...] | None:
    """PCI addresses of NVIDIA display-class devices; None where the bus could not be listed."""
    bus = "/sys/bus/pci/devices"
    names = tree.names(bus)
    if names is None:
        return None
    return tuple(
        name
        for name in names
        if (tree.text(f"{bus}/{name}/vendor") or "").strip() == NVIDIA_VENDOR
        and (tree.text(f"{bus}/{name}/class") or "").startswith(DISPLAY_CLASSES)
    )


def cdi_paths(tree: Tree) -> tuple[str, ...]:
    """Every host path that a CDI spec for NVIDIA devices names: nodes, libraries, hooks."""
    found: dict[str, None] = {}
    for folder in cdi.FOLDERS:
        for name in tree.names(f"/{folder}") or ():
            if not name.endswith((".yaml", ".yml", ".json")):
                continue
            text = tree.look(f"/{folder}/{name}", most=MAX_SPEC).text
            spec = cdi.parsed(name, text) if text else cdi.SpecFile(name)
            if any(device.startswith("nvidia.com/") for device in spec.devices):
                found |= dict.fromkeys(one.path for one in cdi.host_paths(spec))
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------- user


class Owner(Struct, frozen=True):
    """Whose containers these are; fields None where that is not told."""

    uid: int | None = None
    user: str | None = None
    home: str | None = None


def owner(host: Host, ping: Mapping[str, Any] | None) -> Owner:
    """Of the Podman that answers; where none does, whoever looks at this machine."""
    uid = _uid(host, ping)
    if uid is None:
        return Owner()
    told = _accounts(host.tree).get(uid)
    if told is not None:
        return Owner(uid, *told)
    if host.is_live:
        return Owner(uid, facts_system.user_name(uid) or str(uid), facts_system.home_of(uid))
    return Owner(uid, "root" if uid == 0 else None, "/root" if uid == 0 else None)


def _uid(host: Host, ping: Mapping[str, Any] | None) -> int | None:
    if ping is not None:
        path = str(ping.get("socket") or "")
        user, told = user_of(path), ping.get("uid")
        if user is not None or isinstance(told, int):
            return told if user is None else user
        if ping.get("rootless") is False:
            return 0
        found = host.tree.look(path, text=False).uid if path.startswith("/") else None
        if found is not None:
            return found
    me = host.answer("@me")
    if me is None:
        return int(facts_system.me()["uid"]) if host.is_live else 0
    uid = me.value.get("uid") if isinstance(me.value, Mapping) else None
    return uid if isinstance(uid, int) else None


def _accounts(tree: Tree) -> dict[int, tuple[str, str]]:
    """uid -> (name, home folder), from /etc/passwd."""
    found: dict[int, tuple[str, str]] = {}
    for line in (tree.text("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        uid = whole_number(fields[2]) if len(fields) >= 6 else None
        if uid is not None:
            found.setdefault(uid, (fields[0], fields[5]))
    return found


# ---------------------------------------------------------------------------------------------------------------- unit


def unit(
    host: Host, inspect: Mapping[str, Any] | None, processes: Sequence[Any], who: Owner, stop: threading.Event
) -> tuple[str, ...]:
    """The systemd unit that manages the container: by its label, by the cgroup of what runs it, by a unit's file.

    Where there is no container (any more), a unit whose file runs tritonserver.
    """
    user = who.uid not in (None, 0)
    if inspect is None:
        return _first(_by_file(host.tree, who, user, None, stop))
    labels = at(inspect, "Config", "Labels")
    label = labels.get(UNIT_LABEL) if isinstance(labels, Mapping) else None
    if label:
        return (str(label),)
    found = _by_cgroup(host.tree, inspect, processes)
    if found is not None:
        return (found,)
    named = _first(_by_file(host.tree, who, user, str(inspect.get("Name") or ""), stop))
    # another one's file may name it for a start that never came
    runs = at(inspect, "State", "Status") == "running"
    return () if named and runs and host.is_live and not _is_up(named[0], user) else named


def _by_cgroup(tree: Tree, inspect: Mapping[str, Any], processes: Sequence[Any]) -> str | None:
    """A hand-written unit leaves no label, and Podman moves conmon and the container to cgroups of their own: what
    stays in the unit's is the `podman run` in the foreground, which has the create command as its own."""
    for key in ("ConmonPid", "Pid"):
        pid = at(inspect, "State", key)
        found = cgroup.unit_of(tree.text(f"/proc/{pid}/cgroup") or "") if isinstance(pid, int) and pid > 0 else None
        if found is not None:
            return found
    command = at(inspect, "Config", "CreateCommand")
    for one in processes if isinstance(command, list) and command else ():
        if isinstance(one, Mapping) and one.get("name") == "podman" and list(one.get("argv") or ()) == command:
            found = cgroup.unit_of(str(one.get("cgroup") or ""))
            if found is not None:
                return found
    return None


def _by_file(tree: Tree, who: Owner, user: bool, container: str | None, stop: threading.Event) -> Iterator[str]:
    folders: Sequence[str] = _SYSTEM_FOLDERS
    if user:
        folders = (f"{who.home}/.config/systemd/user", f"/run/user/{who.uid}/systemd/generator")
    for folder in folders:
        for name in tree.names(folder) or ():
            if stop.is_set():
                return
            if not name.endswith(".service"):
                continue
            text = (tree.text(f"{folder}/{name}") or "").encode()
            if units.runs_triton(text) if container is None else container and units.names_container(text, container):
                yield name


def _first(found: Iterator[str]) -> tuple[str, ...]:
    name = next(found, None)
    return () if name is None else (name,)


def _is_up(name: str, user: bool) -> bool:
    told = units.unit_state(name, user)
    return told is not None and told.active not in ("inactive", "failed")


def at(found: Any, *path: str) -> Any:
    """A value deep in JSON, by keys; None where a step is missing."""
    for step in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found
