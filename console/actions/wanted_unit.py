"""The unit that fits a container: its words from Podman, its kind and place from the host."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from console.actions.box import Box
from console.actions.target import ContainerView
from console.clients import podman_stream, run_words, unit_files, unit_text
from console.clients.run_words import Option, RunWords
from console.clients.unit_files import Place
from console.clients.unit_text import Kind, UnitImpossible, UnitText
from console.core.model import ContainerState, SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line

_INSPECT_LIMIT = 10.0
_OLDEST_QUADLET = (4, 4)
_NAME = re.compile(r"[A-Za-z0-9:_.@-]{1,200}")


class Wanted(Struct, frozen=True):
    """A unit to write, with all that its plan tells."""

    container: ContainerState
    made: UnitText
    kind: Kind
    user: bool
    place: Place
    base: str
    inspect: Mapping[str, Any]

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        """The unit, its environment, its secret words."""
        return self.place.all(self.base, self.kind)

    @property
    def texts(self) -> tuple[str, str, str]:
        """What these will hold; "" = no file."""
        return self.made.text, self.made.environment, self.made.arguments

    @property
    def digest(self) -> str:
        """Of the files as they will be."""
        return unit_files.digest_of(self.texts)


def wanted_unit(box: Box, name: str, values: Mapping[str, str]) -> Wanted:
    """The unit for a container, from a fresh look at it. WrongInput and Refused where there is none to make."""
    with ContainerView(box, name) as view:
        container = view.known()
    inspect = _document(box, f"/containers/{container.id}/json")
    image = _document(box, f"/images/{container.image_id}/json") if container.image_id else {}
    user = box.unit_of_user
    if user and box.owner not in (None, os.getuid()):
        # Root must not write where that user may have put a link.
        raise Refused(f"the container belongs to user {box.owner}, and so does its unit: run gpuconsole as that user")
    version = _version(box.podman_state().api_version)
    kind = _kind(box, values.get("kind", "auto"), version)
    base = values.get("name") or (container.unit or container.name).removesuffix(".service")
    if not _NAME.fullmatch(base):
        raise WrongInput(f"{one_line(base, 80)!r} cannot be a unit's name: letters, digits and : - _ . only")
    place = unit_files.place(user, box.root)
    words = _with_devices(run_words.of_container(inspect, image), values.get("devices", ""))
    asked = unit_text.Asked(
        container=container.name,
        words=words,
        kind=kind,
        base=base,
        folder=str(place.private),
        user=user,
        podman=shutil.which("podman") or "/usr/bin/podman",
        version=version,
    )
    try:
        made = unit_text.make(asked)
    except UnitImpossible as why:
        raise Refused(str(why)) from why
    return Wanted(container, made, kind, user, place, base, inspect)


def _document(box: Box, path: str) -> Mapping[str, Any]:
    data = b"".join(podman_stream.chunks(box.podman_url, path, {}, threading.Event(), _INSPECT_LIMIT))
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SourceError("protocol", f"Podman's answer to {path} is not understood: {error}") from error


def _with_devices(words: RunWords, devices: str) -> RunWords:
    added = tuple(Option("device", device.strip()) for device in devices.split(",") if device.strip())
    known = {option.word for option in words.options}
    return msgspec.structs.replace(
        words, options=(*words.options, *(option for option in added if option.word not in known))
    )


def _version(text: str | None) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else _OLDEST_QUADLET


def _kind(box: Box, told: str, version: tuple[int, int]) -> Kind:
    cgroup_v2 = (box.root / "sys/fs/cgroup/cgroup.controllers").exists()
    able = cgroup_v2 and version >= _OLDEST_QUADLET
    if told == "quadlet" and not able:
        why = f"this is Podman {version[0]}.{version[1]}" if cgroup_v2 else "this host has cgroup v1"
        raise Refused(f"a Quadlet wants cgroup v2 and Podman 4.4, and {why}: use kind=service")
    if told == "service" or not able:
        return "service"
    return "quadlet"
