"""The model repository as it lies on this host's disk, and what the server says of it, for the checks of group
`models`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import json_format
from msgspec import Struct

from console.checks.box import CONTAINER, INSPECT, argv, no_container
from console.checks.check import Answer, skip
from console.clients import pbtxt
from console.clients.triton_config import Policy, policy_of
from console.core import triton_command
from console.core.facts import Evidence, Facts, FileFact, NotNeededError, Unknowable
from console.core.model import SourceError

INDEX = "@triton.index"
CONFIGS = "@triton.configs"
FOLDERS = ("stat {models}", "stat {models}/*", "stat {models}/*/*")
FILES = ("stat {models}/*/*/*",)
CONFIG_TEXTS = ("{models}/*/config.pbtxt",)
NEEDS = (*CONTAINER, *FOLDERS)
"""Of `repository`."""

FILE_OF: Mapping[str, tuple[str, ...]] = {
    "tensorrt": ("model.plan",),
    "tensorrt_plan": ("model.plan",),
    "onnxruntime": ("model.onnx",),
    "onnxruntime_onnx": ("model.onnx",),
    "pytorch": ("model.pt", "model.py", "model.pt2"),
    "pytorch_libtorch": ("model.pt", "model.py", "model.pt2"),
    "tensorflow": ("model.savedmodel", "model.graphdef"),
    "tensorflow_savedmodel": ("model.savedmodel",),
    "tensorflow_graphdef": ("model.graphdef",),
    "python": ("model.py",),
    "openvino": ("model.xml",),
    "vllm": ("model.json",),
}
"""Backend or platform -> the file or folder of a version that it loads where the configuration names none."""
KNOWN_FILES = frozenset(name for names in FILE_OF.values() for name in names)
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


class Version(Struct, frozen=True):
    """A version folder."""

    number: int
    path: str
    fact: FileFact

    @property
    def names(self) -> tuple[str, ...]:
        """What lies in it; Unknowable where it cannot be listed."""
        if self.fact.names is None:
            raise Unknowable(f"{self.path}: {self.fact.why or 'it was not listed'}", f"sudo ls {self.path}")
        return self.fact.names


class Model(Struct, frozen=True):
    """A model folder."""

    name: str
    path: str
    names: tuple[str, ...]
    versions: tuple[Version, ...]
    """Ascending."""

    @property
    def newest(self) -> int | None:
        """Of its version folders."""
        return self.versions[-1].number if self.versions else None


def elsewhere(facts: Facts) -> Answer | None:
    """The answer where no folder on this host is the model repository; None where one is. Needs CONTAINER."""
    if facts.every("models"):
        return None
    if why := no_container(facts):
        return skip(why)
    told = triton_command.repository_paths(argv(facts.answer(INSPECT)))
    if told:
        return skip(f"its model repository {told[0]} is not on this host's disk")
    return skip("no folder on this host is known to be its model repository")


def repository(facts: Facts) -> tuple[Model, ...]:
    """Every model folder. Unknowable where one cannot be listed. Needs FOLDERS."""
    found = [model for folder in facts.every("models") for model in _of(facts, folder)]
    return tuple(sorted(found, key=lambda one: (one.name, one.path)))


def file(facts: Facts, path: str) -> FileFact:
    """What is known of a path below the repository. Unknowable where it holds more than was looked at."""
    try:
        return facts.file(path)
    except NotNeededError:  # the names of its folder are known; the collector stops after some thousand paths
        raise Unknowable(f"{path} was not looked at: the repository holds too much", f"sudo ls -lZ {path}") from None


def _of(facts: Facts, folder: str) -> list[Model]:
    found = []
    for name in facts.names(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if name.startswith(".") or name == "lost+found" or file(facts, path).kind != "dir":
            continue
        names = facts.names(path)
        versions = [
            Version(int(one), f"{path}/{one}", fact)
            for one in names
            if _VERSION.fullmatch(one) and (fact := file(facts, f"{path}/{one}")).kind == "dir"
        ]
        found.append(Model(name, path, names, tuple(sorted(versions, key=lambda one: one.number))))
    return found


# ------------------------------------------------------------------------------------------------------ configurations


class Config(Struct, frozen=True):
    """A model's configuration in the names of config.pbtxt."""

    model: Model
    document: Mapping[str, Any]
    path: str
    """Of the file; "" where it has none, so that Triton completes it by itself."""
    unknown: str = ""
    """`line:column: what` for a field that this console's schema does not have."""

    @property
    def backend(self) -> str:
        """As `backend_of`."""
        return backend_of(self.document)

    @property
    def is_ensemble(self) -> bool:
        """A pipeline of other models: it has no files of its own."""
        return "ensemble_scheduling" in self.document or self.document.get("platform") == "ensemble"

    @property
    def policy(self) -> Policy:
        """Which versions are served."""
        return policy_of(self.document)

    def serves(self) -> tuple[Version, ...]:
        """Version folders that its policy picks."""
        wanted = self.policy.serves(one.number for one in self.model.versions)
        return tuple(one for one in self.model.versions if one.number in wanted)

    def where(self, text: str) -> tuple[Evidence, ...]:
        """A line of evidence from it."""
        return (Evidence(self.path or self.model.path, text),)


def backend_of(document: Mapping[str, Any]) -> str:
    """Backend, else platform; "" where the configuration tells neither."""
    return str(document.get("backend") or document.get("platform") or "")


def config(facts: Facts, model: Model) -> Config:
    """A model's configuration on disk. PbtxtError where Triton would refuse its file, Unknowable where that cannot be
    read. Needs CONFIG_TEXTS."""
    path = f"{model.path}/config.pbtxt"
    text = facts.maybe(path) if "config.pbtxt" in model.names else None
    if text is None:
        return Config(model, {}, "")
    if facts.file(path).cut:
        raise Unknowable(f"{path}: only its first part was read", f"sudo cat {path}")
    try:
        parsed = pbtxt.parse(text)
        document = json_format.MessageToDict(parsed.message, preserving_proto_field_name=True)
    except SourceError as error:
        raise Unknowable(error.message) from error
    return Config(model, document, path, parsed.unknown or "")


def configs(facts: Facts, models: tuple[Model, ...]) -> tuple[Config, ...]:
    """Of all models whose file can be read and parsed: what is wrong with the others is L03's. Needs CONFIG_TEXTS."""
    found = []
    for model in models:
        try:
            found.append(config(facts, model))
        except (pbtxt.PbtxtError, Unknowable):
            continue
    return tuple(found)


# --------------------------------------------------------------------------------------------------- what serves now


def ready(facts: Facts) -> Mapping[str, frozenset[int]] | None:
    """READY versions by model; None where the server was not asked. Needs INDEX."""
    try:
        index = facts.answer(INDEX)
    except Unknowable:
        return None
    if not isinstance(index, list):
        return None
    found: dict[str, set[int]] = {}
    for entry in index:
        if not isinstance(entry, Mapping):
            continue
        versions = found.setdefault(str(entry.get("name")), set())
        version = str(entry.get("version") or "")
        if entry.get("state") == "READY" and _VERSION.fullmatch(version):
            versions.add(int(version))
    return {name: frozenset(versions) for name, versions in found.items()}


def served(facts: Facts) -> Mapping[str, Mapping[str, Any]]:
    """Configuration of the newest served version by model; {} where the server was not asked. Needs CONFIGS."""
    try:
        told = facts.answer(CONFIGS)
    except Unknowable:
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for name, versions in told.items() if isinstance(told, Mapping) else ():
        if not isinstance(versions, Mapping):
            continue
        numbers = [one for one in versions if _VERSION.fullmatch(str(one))]
        newest = max(numbers, key=int, default=None)
        document = versions.get(newest) if newest is not None else None
        if isinstance(document, str):
            document = _loaded(document)
        if isinstance(document, Mapping):
            found[str(name)] = document
    return found


def documents(facts: Facts) -> Mapping[str, Mapping[str, Any]]:
    """Configurations by model: as served, else as on disk. Needs CONFIGS, FOLDERS and CONFIG_TEXTS."""
    return served(facts) or {one.model.name: one.document for one in configs(facts, repository(facts))}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def loads_all(facts: Facts) -> bool | None:
    """Whether the server loads every model at its start (control mode none or poll); None where that is not told.
    Needs INSPECT."""
    try:
        found = facts.answer(INSPECT)
    except Unknowable:
        return None
    if not isinstance(found, Mapping):
        return None
    words = argv(found)
    mode = triton_command.control_mode(words)
    if mode == "explicit":
        return "*" in triton_command.flag_values(words, "load-model")
    return mode in ("none", "poll") if mode is not None else None


# -------------------------------------------------------------------------------------------------------- many models


def counted(names: list[str]) -> str:
    """`ranking`, `ranking and 3 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def over(
    models: tuple[Model, ...], judge: Callable[[Model], str | None]
) -> tuple[list[tuple[Model, str]], Unknowable | None]:
    """Models with a fault and what it is, and the first reason why one could not be looked at."""
    found: list[tuple[Model, str]] = []
    blind: Unknowable | None = None
    for model in models:
        try:
            fault = judge(model)
        except Unknowable as missing:
            blind = blind or missing
            continue
        if fault:
            found.append((model, fault))
    return found, blind
