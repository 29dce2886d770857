"""How the model repository is laid out, and whether what lies in it serves: L01 L02."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote

from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.models_disk import (
    CONFIG_TEXTS,
    INDEX,
    KNOWN_FILES,
    NEEDS,
    Model,
    config,
    counted,
    elsewhere,
    file,
    loads_all,
    over,
    ready,
    repository,
)
from console.clients.pbtxt import PbtxtError
from console.clients.triton_config import Policy
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

# ----------------------------------------------------------------------------------------------------------------- L01


@check(
    "L01",
    "the newest version on disk serves",
    group="models",
    slug="newer-version",
    needs=(*NEEDS, *CONFIG_TEXTS, INDEX),
    why="A version that was copied in but never loaded serves nobody, and the next restart brings it in unasked. "
    "Either is better decided than forgotten.",
    source="Triton model_repository.md, model_configuration.md (version policy)",
)
def newer(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    facts.answer(INDEX)  # what serves can be told by the server alone
    serving = ready(facts) or {}
    waiting: list[tuple[Model, int, int]] = []
    pinned: list[str] = []
    blind: Unknowable | None = None
    looked = 0
    for model in repository(facts):
        now = max(serving.get(model.name, ()), default=None)
        if now is None:
            continue
        looked += 1
        try:
            newest = max((one.number for one in model.versions if one.names or _is_ensemble(facts, model)), default=now)
            policy = _policy(facts, model)
        except Unknowable as missing:
            blind = blind or missing
            continue
        if newest <= now:
            continue
        if policy is not None and newest not in policy.serves(one.number for one in model.versions):
            pinned.append(f"{model.name} {now} by {policy.text}")
        else:
            waiting.append((model, now, newest))
    if waiting:
        model, now, newest = waiting[0]
        lines = tuple(Evidence(f"{one.path}/{number}", f"version {serves} serves") for one, serves, number in waiting)
        more = f"; {len(waiting) - 1} more models so" if len(waiting) > 1 else ""
        return warn(
            f"{model.name}: {newest} lies on disk, {now} serves{more}", lines, _swap(model, newest), model=model.name
        )
    if blind is not None:
        raise blind
    if not looked:
        return skip("no model of this folder serves")
    if pinned:
        return note(f"held back on purpose: {counted(pinned)}")
    return ok(f"{looked} models serve their newest version")


def _swap(model: Model, version: int) -> Fix:
    return Fix(
        "B",
        (f"gpuconsole do model.swap {quote(model.name)} version={version}",),
        "loads it beside the one that serves, watches, and goes back by itself; both are in memory meanwhile",
        f"gpuconsole do undo, or model.swap {model.name} with the version of before",
    )


def _policy(facts: Facts, model: Model) -> Policy | None:
    """The version policy of the file; None where it cannot be parsed."""
    try:
        return config(facts, model).policy
    except PbtxtError:
        return None


def _is_ensemble(facts: Facts, model: Model) -> bool:
    try:
        return config(facts, model).is_ensemble
    except PbtxtError:
        return False


# ----------------------------------------------------------------------------------------------------------------- L02

_MEANT = re.compile(r"v?\d{1,18}(?:[._-][\w.-]*|old|bak|new|tmp)?")
"""Names of folders that somebody took for a version."""


@check(
    "L02",
    "model folders are laid out right",
    group="models",
    slug="model-layout",
    needs=(*NEEDS, *CONFIG_TEXTS, INDEX),
    why="Triton takes a folder for a model, and a folder with a plain number in it for a version: what is named "
    "otherwise is passed over without a word. One folder that is no model can end the start of the whole server.",
    source="Triton model_repository.md; server#6571, server#3384, server#8766",
)
def layout(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    models = repository(facts)
    if not models:
        return warn(f"{facts.one('models')} holds no model folder", (Evidence(facts.one("models"), "no folder in it"),))
    broken, blind = over(models, lambda model: _missing(facts, model))
    serving = ready(facts) or {}
    broken = [(model, fault) for model, fault in broken if not serving.get(model.name)]
    if broken:
        lines = tuple(Evidence(model.path, fault) for model, fault in broken)
        more = f"; {len(broken) - 1} more folders so" if len(broken) > 1 else ""
        text = f"{broken[0][0].name}: {broken[0][1]}{more}"
        say = fail if loads_all(facts) is not False else warn
        return say(text, lines, _look(broken[0][0]), model=broken[0][0].name)
    ignored, blind_too = over(models, lambda model: _ignored(facts, model))
    if ignored:
        lines = tuple(Evidence(model.path, fault) for model, fault in ignored)
        more = f"; {len(ignored) - 1} more so" if len(ignored) > 1 else ""
        return warn(f"{ignored[0][0].name}: {ignored[0][1]}{more}", lines, _look(ignored[0][0]))
    if blind or blind_too:
        raise blind or blind_too or Unknowable("")
    stray = _loose(facts)
    if stray:
        return note(f"{len(models)} models; beside them {counted(list(stray))} is no model", tuple(stray.values()))
    return ok(f"{len(models)} models, {sum(len(one.versions) for one in models)} version folders")


def _missing(facts: Facts, model: Model) -> str | None:
    """Why Triton cannot load the folder at all."""
    try:
        found = config(facts, model)
        ensemble, has_config = found.is_ensemble, bool(found.path)
    except PbtxtError:
        ensemble, has_config = False, True
    if not model.versions:
        return (
            "no version folder (1, 2, …)" if has_config or not _lies_flat(model) else "its files lie beside, not in, 1/"
        )
    if ensemble:
        return None
    if all(not one.names for one in model.versions):
        return f"its version folder {model.newest} is empty"
    if not has_config and not any(KNOWN_FILES & set(one.names) for one in model.versions):
        return "no config.pbtxt, and no file that tells what it is"
    return None


def _lies_flat(model: Model) -> bool:
    return bool(KNOWN_FILES & set(model.names))


def _ignored(facts: Facts, model: Model) -> str | None:
    """A folder that was meant as a version and is passed over."""
    numbers = {str(one.number) for one in model.versions}
    for name in model.names:
        if name in numbers or not _MEANT.fullmatch(name):
            continue
        if file(facts, f"{model.path}/{name}").kind != "dir":
            continue
        return f"{one_line(name, 40)}/ is no version: only plain numbers from 1 on count"
    return None


def _loose(facts: Facts) -> Mapping[str, Evidence]:
    """Files beside the model folders that were perhaps meant as models."""
    found: dict[str, Evidence] = {}
    for folder in facts.every("models"):
        for name in facts.names(folder):
            if name in KNOWN_FILES or name == "config.pbtxt" or name.endswith((".plan", ".onnx", ".engine")):
                found[name] = Evidence(f"{folder}/{name}", "a file where only folders are models")
    return found


def _look(model: Model) -> Fix:
    return Fix(
        "S",
        (f"ls -lR {quote(model.path)}",),
        "a model is FOLDER/config.pbtxt with FOLDER/1/model.*; move what is no model out of the repository",
    )
