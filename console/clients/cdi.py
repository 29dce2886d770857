"""CDI spec files: which device names they define, whether this Podman reads them, and what they put into a container.

Podman says only `unresolvable CDI devices`, whatever is wrong: no file, one that it may not read, one of a newer
version, two of one folder that define the same name (host.md 3.2 and checks B03 to B11).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from msgspec import Struct

from console.core.text import one_line, whole_number

FOLDERS = ("etc/cdi", "var/run/cdi")
"""In the order in which a later one wins; Podman 4 reads these two whatever containers.conf says."""
MAX_FILE = 4 * 1024 * 1024
_ACCEPTED: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((5, 5), (1, 0)),
    ((5, 2), (0, 8)),
    ((5, 1), (0, 7)),
    ((4, 7), (0, 6)),
    ((4, 3), (0, 5)),
    ((4, 1), (0, 4)),
)
"""(Podman from, newest CDI version that it accepts); host.md section 0."""
_SINCE: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "": {"annotations": (0, 6)},
    "devices": {"annotations": (0, 6)},
    "containerEdits": {"additionalGids": (0, 7), "intelRdt": (0, 7), "netDevices": (1, 1)},
    "deviceNodes": {"hostPath": (0, 5)},
    "mounts": {"type": (0, 4)},
}
"""Keys by the table that they stand in -> the CDI version that first knew them. A reader that does not know one drops
the whole file, whatever version it declares (CDI SPEC.md, `released versions`)."""
_DRIVER = re.compile(r"\.so\.([0-9]{3}\.[0-9]{1,3}(?:\.[0-9]{1,3})?)$")
"""Libraries of the driver carry its version; those of others (`libnvidia-egl-wayland.so.1.1.13`) have small numbers."""


class SpecFile(Struct, frozen=True):
    """One file; `devices` maps full names (`nvidia.com/gpu=all`) to what they add."""

    path: str
    version: str = ""
    devices: Mapping[str, Mapping[str, Any]] = {}
    edits: Mapping[str, Any] = {}
    """What each of its devices adds."""
    error: str = ""
    """Why it is no use; "" = it can be read."""
    keys: Mapping[str, tuple[int, int]] = {}
    """Keys that it uses and that not every version knows -> the CDI version from which on they are known."""


class HostPath(Struct, frozen=True):
    """A path of this host that a spec puts into containers, or that runs for them."""

    kind: Literal["node", "mount", "hook"]
    path: str


class Resolved(Struct, frozen=True):
    """What is known of one device name."""

    name: str
    problem: str = ""
    """Why Podman will not resolve it, or the start will fail; "" = nothing wrong was found."""
    file: str = ""


def spec_files(root: Path = Path("/")) -> list[SpecFile]:
    """All spec files, in Podman's order."""
    found: list[SpecFile] = []
    for folder in FOLDERS:
        try:
            names = sorted(os.listdir(root / folder))
        except OSError:
            continue
        found += [_read(root / folder / name) for name in names if name.endswith((".yaml", ".yml", ".json"))]
    return found


def _read(path: Path) -> SpecFile:
    try:
        with path.open("rb") as file:
            return parsed(str(path), file.read(MAX_FILE))
    except OSError as error:
        return SpecFile(str(path), error=f"it cannot be read: {error.strerror}")


@lru_cache(16)
def parsed(path: str, data: bytes | str) -> SpecFile:
    """A spec file from its text; `error` set where it is none. The last ones are kept: many checks ask for the same."""
    try:
        document = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return SpecFile(path, error=f"it is no YAML or JSON: {one_line(str(error), 120)}")
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        return SpecFile(path, error="it names no kind")
    kind = document["kind"]
    devices = {
        f"{kind}={one.get('name')}": _table(one.get("containerEdits"))
        for one in _list(document, "devices")
        if isinstance(one, dict)
    }
    version = document.get("cdiVersion")
    return SpecFile(
        path,
        "" if version is None else str(version),
        devices,
        _table(document.get("containerEdits")),
        keys=_newer_keys(document),
    )


def _newer_keys(document: Mapping[str, Any]) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}

    def look(place: str, table: object) -> None:
        found.update({key: since for key, since in _SINCE[place].items() if key in _table(table)})

    look("", document)
    all_edits = [document.get("containerEdits")]
    devices = document.get("devices")
    for device in devices if isinstance(devices, list) else ():
        look("devices", device)
        all_edits.append(_table(device).get("containerEdits"))
    for edits in all_edits:
        look("containerEdits", edits)
        for name in ("deviceNodes", "mounts"):
            for one in _list(_table(edits), name):
                look(name, one)
    return found


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def environment(names: Sequence[str], root: Path = Path("/")) -> frozenset[str]:
    """Variables that these devices put into a container."""
    found: set[str] = set()
    for file in spec_files(root):
        for name in set(names) & file.devices.keys():
            for edits in (file.edits, file.devices[name]):
                found |= {str(line).partition("=")[0] for line in _list(edits, "env")}
    return frozenset(found)


def resolve(name: str, podman: str | None, root: Path = Path("/")) -> Resolved:
    """Whether this Podman (an API version such as "4.9.4"; None = not known) will take a device name."""
    files = spec_files(root)
    holding = [file for file in files if name in file.devices]
    if not holding:
        return Resolved(name, _absent(name, files))
    chosen = holding[-1]
    same = [file for file in holding if Path(file.path).parent == Path(chosen.path).parent]
    if len(same) > 1:
        return Resolved(name, f"{same[0].path} and {same[1].path} both define it: Podman takes neither", chosen.path)
    why = skipped(chosen, podman)
    if why:
        return Resolved(name, f"{chosen.path} {why}: it skips the file", chosen.path)
    missing = next(_missing(chosen, name, root), "")
    return Resolved(name, f"{chosen.path} names {missing}, which is not there" if missing else "", chosen.path)


def _absent(name: str, files: Sequence[SpecFile]) -> str:
    broken = next((file for file in files if file.error), None)
    if broken is not None:
        return f"no CDI spec file defines it ({broken.path}: {broken.error})"
    if not files:
        return "there is no CDI spec file: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    known = ", ".join(sorted({device for file in files for device in file.devices})[:6])
    return f"no CDI spec file defines it; there are {known or 'none'}"


def host_paths(file: SpecFile, names: Iterable[str] | None = None) -> tuple[HostPath, ...]:
    """Absolute paths of this host that a spec names for these devices (None = for all), each once, in its order."""
    found: dict[tuple[str, str], HostPath] = {}
    for edits in (file.edits, *(file.devices[name] for name in (file.devices if names is None else names))):
        nodes = (_table(one).get("hostPath") or _table(one).get("path") for one in _list(edits, "deviceNodes"))
        mounts = (_table(one).get("hostPath") for one in _list(edits, "mounts"))
        hooks = (_table(one).get("path") for one in _list(edits, "hooks"))
        kinds: tuple[tuple[Literal["node", "mount", "hook"], Iterable[object]], ...] = (
            ("node", nodes),
            ("mount", mounts),
            ("hook", hooks),
        )
        for kind, paths in kinds:
            for path in paths:
                if isinstance(path, str) and path.startswith("/"):
                    found.setdefault((kind, path), HostPath(kind, path))
    return tuple(found.values())


def driver_version(file: SpecFile) -> str:
    """The driver's version as the names of the mounted libraries have it; "" where none tells, the most frequent one
    where they differ."""
    found = [m[1] for one in host_paths(file) if one.kind == "mount" and (m := _DRIVER.search(one.path))]
    return max(dict.fromkeys(found), key=found.count, default="")


def taken(files: Sequence[SpecFile], podman: str | None) -> Mapping[str, SpecFile]:
    """Device names that this Podman knows -> the file that it takes each from: those that it can read and accepts, and
    of two that define one name the later. `files` in Podman's order; podman None = not known: it accepts all."""
    return {name: file for file in files if not file.error and not skipped(file, podman) for name in file.devices}


def skipped(file: SpecFile, podman: str | None) -> str:
    """Why this Podman drops the whole file: the rest of a sentence that begins with its path; "" where it does not, or
    where that is not known."""
    version = _version(file.version)
    if version is None:
        return f"has no cdiVersion that is one ({one_line(file.version, 20) or 'none is given'})"
    newest = accepted(podman)
    if newest is None or _is_later(podman):
        return ""
    if newest == (0, 0):
        return f"is of CDI {file.version}, Podman {podman} reads none"
    limit = ".".join(map(str, newest))
    if version > newest:
        return f"is of CDI {file.version}, Podman {podman} reads up to {limit}"
    unknown = next((key for key, since in file.keys.items() if since > newest), "")
    return f"has the key {unknown}, which Podman {podman} (CDI up to {limit}) does not know" if unknown else ""


def _missing(file: SpecFile, name: str, root: Path) -> Iterator[str]:
    for one in host_paths(file, [name]):
        if not os.path.exists(root / one.path.lstrip("/")):
            yield one.path


def _list(edits: Mapping[str, Any], name: str) -> Sequence[object]:
    value = edits.get(name)
    return value if isinstance(value, list) else ()


def _is_later(podman: str | None) -> bool:
    """Later than the table, and so perhaps reading more; what it tells of the older ones it reads too."""
    return (_version(podman or "") or (0, 0)) > _ACCEPTED[0][0]


def accepted(podman: str | None) -> tuple[int, int] | None:
    """The newest CDI version (major, minor) that a Podman accepts; None where that is not known. (0, 0) = none."""
    version = _version(podman or "")
    if version is None:
        return None
    return next((newest for since, newest in _ACCEPTED if version >= since), (0, 0))


def _version(text: str) -> tuple[int, int] | None:
    major, minor, *_ = (whole_number(part) for part in f"{text}.".split("."))
    return None if major is None or minor is None or major < 0 or minor < 0 else (major, minor)
