"""How a model batches now, live and on disk: what the Tune form shows and every batching plan begins with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from console.actions import model_look
from console.actions.base import Action
from console.actions.box import Box
from console.actions.model_look import ModelLook
from console.clients import config_file, pbtxt_batching, triton_config
from console.clients.config_file import ConfigFile, FileRefused
from console.clients.pbtxt import PbtxtError
from console.clients.pbtxt_batching import OnDisk
from console.core.model import SourceError
from console.core.plan import Refused, Target, WrongInput
from console.core.text import one_line
from console.core.triton_command import flag_value, is_tritonserver
from console.planning import batching_change as change
from console.planning.batching_change import Batching, How, Plain, Problem, Served


class BatchingLook(Struct, frozen=True):
    """One fresh look."""

    model: ModelLook
    document: Mapping[str, Any]
    """The served configuration, with its secrets."""
    plain: Plain
    """The same less what the server added."""
    live: Batching
    facts: Served
    file: ConfigFile | None = None
    on_disk: OnDisk | None = None
    file_unknown: str = ""
    """Why there is no `file` or no `on_disk`."""

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def versions(self) -> tuple[int, ...]:
        """READY now; an override pins these."""
        return self.model.ready

    @property
    def is_as_on_disk(self) -> bool:
        """True when the file says what is served, so that a plain load of it changes nothing but versions."""
        return self.on_disk is not None and not self.on_disk.fields and not self.on_disk.others

    @property
    def disk_serves_the_same(self) -> bool:
        """True when a plain load would serve the versions that are served now."""
        return self.model.from_disk == self.versions

    @property
    def waiting(self) -> str:
        """What a plain load would serve instead of what is served now; "" when the same, or not known."""
        found = self.model.from_disk
        if found is None or found == self.versions:
            return ""
        return ", ".join(str(version) for version in found) or "nothing"


class FieldNow(Struct, frozen=True):
    """One row of the Tune form; values as they are typed, `–` where there is none, `?` where it cannot be seen."""

    name: str
    help: str
    live: str
    disk: str
    how: How


class Current(Struct, frozen=True):
    """What the Tune screen needs to know of a model."""

    model: str
    versions: tuple[int, ...]
    fields: tuple[FieldNow, ...]
    settings: Batching
    facts: Served
    left_out: tuple[str, ...]
    disk_unknown: str
    """Why the file cannot be seen; "" = it is seen."""


class Validated(Struct, frozen=True):
    """What the server's rules say to the values of a form, before anything is sent."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    changed: tuple[str, ...]
    in_place: bool


def look(box: Box, name: str) -> BatchingLook:
    """WrongInput for a model that the server does not know, Refused where none of it is READY, SourceError where
    Triton does not answer."""
    model = model_look.look(box, name)
    if not model.ready or not model.live:
        why = f" ({model.reason})" if model.reason else ""
        raise Refused(f"no version of {name} is READY{why}: load it first (model.load {name})")
    document = triton_config.parsed(model.live, name)
    file, paths, unknown = _file(model)
    plain = change.plain(document, paths)
    live = change.read(plain.document)
    on_disk = None
    if file is not None and paths is not None:
        try:
            on_disk = pbtxt_batching.on_disk(file.text, document, live)
        except (PbtxtError, SourceError) as error:
            unknown = one_line(str(error), 200)
    return BatchingLook(model, document, plain, live, _facts(box, model, document), file, on_disk, unknown)


def _file(model: ModelLook) -> tuple[ConfigFile | None, frozenset[str] | None, str]:
    if model.disk is None:
        return None, None, model.disk_unknown or "its folder is not to be seen on this host"
    folder = Path(model.disk.path)
    chosen = flag_value(model.container.command, "model-config-name") if model.container is not None else None
    try:
        file = config_file.read(str(folder.parent), folder.name, chosen or "")
        return file, pbtxt_batching.paths(file.text), ""
    except FileRefused as error:
        return None, None, str(error)
    except PbtxtError as error:
        return file, None, f"{file.path}: {error}"


def _facts(box: Box, model: ModelLook, document: Mapping[str, Any]) -> Served:
    users: dict[str, Mapping[str, Any]] = {}
    for user in model.users:
        try:
            users[user] = triton_config.parsed(box.served_config(user), user)
        except SourceError:
            continue  # it has just gone
    command = model.container.command if model.container is not None else ()
    known = is_tritonserver(command)
    return change.served(
        document,
        users,
        server=_server_version(box),
        has_cache=flag_value(command, "cache-config", "response-cache-byte-size") is not None if known else None,
    )


def _server_version(box: Box) -> tuple[int, int] | None:
    http = box.http()
    try:
        text = str(json.loads(http.get("/v2").body).get("version", ""))
        major, minor = text.split(".")[:2]
        return int(major), int(minor)
    except (SourceError, ValueError, AttributeError):
        return None
    finally:
        http.close()


def current(box: Box, name: str) -> Current:
    """Live and disk values of every field. Raises as `look`; blocks for about half a second."""
    found = look(box, name)
    rows = tuple(
        FieldNow(
            field.name,
            field.help,
            change.shown(field.name, found.live),
            change.shown(field.name, found.on_disk.batching) if found.on_disk is not None else "?",
            change.how(field.name, found.facts),
        )
        for field in change.FIELDS
    )
    unknown = "" if found.on_disk is not None else found.file_unknown
    return Current(name, found.versions, rows, found.live, found.facts, found.plain.left_out, unknown)


def validate(now: Current, values: Mapping[str, str]) -> Validated:
    """Hold a form's values against the server's rules; sends nothing and looks at nothing."""
    wrong: list[Problem] = []
    good: dict[str, str] = {}
    for name, text in values.items():
        try:
            change.wanted(now.settings, {"dynamic_batching": "on", name: text})
        except WrongInput as error:
            wrong.append(Problem(name, str(error)))
        else:
            good[name] = text
    try:
        new = change.wanted(now.settings, good)
    except WrongInput as error:
        return Validated((*wrong, Problem(next(iter(good), ""), str(error))), (), (), in_place=False)
    names = change.changed(now.settings, new)
    found = (*wrong, *change.obstacles(now.facts, now.settings, new), *change.problems(now.facts, new))
    in_place = change.is_in_place(names, now.facts, policy_changes=True)
    return Validated(found, change.warnings(now.facts, now.settings, new), names, in_place)


def settings_digest(document: Mapping[str, Any]) -> str:
    """A name for a served configuration less its version policy, which is stale after an update in place (1.7)."""
    told = {key: value for key, value in document.items() if key != "version_policy"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def state_of(found: BatchingLook) -> dict[str, str]:
    """Few facts that tell whether batching of this model is still as it was."""
    file = found.file.digest if found.file is not None else ""
    known = model_look.identity(found.name, found.model.all_ready, found.model.container)
    return {**known, "settings": settings_digest(found.document), "file": file}


class BatchingAction(Action):
    """One model, by how it batches."""

    TARGET = "model"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """Settings, versions and file of the model, and its server."""
        return state_of(look(box, target.name))
