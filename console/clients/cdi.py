"""CDI spec files: which device names they define, whether this Podman reads them, and what they put into a container.

Podman says only `unresolvable CDI devices`, whatever is wrong: no file, one that it may not read, one of a newer
version, two of one folder that define the same name (host.md 3.2 and checks B03 to B11).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from console.core.text import one_line

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


class SpecFile(Struct, frozen=True):
    """One file; `devices` maps full names (`nvidia.com/gpu=all`) to what they add."""

    path: str
    version: str = ""
    devices: Mapping[str, Mapping[str, Any]] = {}
    edits: Mapping[str, Any] = {}
    """What each of its devices adds."""
    error: str = ""
    """Why it is no use; "" = it can be read."""


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


def parsed(path: str, data: bytes | str) -> SpecFile:
    """A spec file from its text; `error` set where it is none."""
    try:
        document = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return SpecFile(path, error=f"it is no YAML or JSON: {one_line(str(error), 120)}")
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        return SpecFile(path, error="it names no kind")
    kind = document["kind"]
    devices = {
        f"{kind}={one.get('name')}": _table(one.get("containerEdits"))
        for one in document.get("devices") or ()
        if isinstance(one, dict)
    }
    return SpecFile(path, str(document.get("cdiVersion", "")), devices, _table(document.get("containerEdits")))


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
    newest = accepted(podman)
    version = _version(chosen.version)
    if newest is not None and version is not None and version > newest:
        limit = ".".join(map(str, newest))
        why = f"{chosen.path} is of CDI {chosen.version}, Podman {podman} reads up to {limit}: it skips the file"
        return Resolved(name, why, chosen.path)
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


def _missing(file: SpecFile, name: str, root: Path) -> Iterator[str]:
    for edits in (file.edits, file.devices[name]):
        for one in _list(edits, "deviceNodes"):
            yield from _gone(root, _table(one).get("hostPath") or _table(one).get("path"))
        for one in _list(edits, "mounts"):
            yield from _gone(root, _table(one).get("hostPath"))
        for one in _list(edits, "hooks"):
            yield from _gone(root, _table(one).get("path"))


def _gone(root: Path, path: object) -> Iterator[str]:
    if isinstance(path, str) and path.startswith("/") and not os.path.exists(root / path.lstrip("/")):
        yield path


def _list(edits: Mapping[str, Any], name: str) -> Sequence[object]:
    value = edits.get(name)
    return value if isinstance(value, list) else ()


def accepted(podman: str | None) -> tuple[int, int] | None:
    """The newest CDI version (major, minor) that a Podman accepts; None where that is not known. (0, 0) = none."""
    version = _version(podman or "")
    if version is None:
        return None
    return next((newest for since, newest in _ACCEPTED if version >= since), (0, 0))


def _version(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not (parts[0].isascii() and parts[0].isdigit() and parts[1].isascii() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])
