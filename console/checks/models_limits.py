"""What models need of caches and memory: L10 L11 L12."""

from __future__ import annotations

import math
from collections.abc import Mapping
from shlex import quote
from typing import Any

from msgspec import Struct

from console.checks import gpu_cards
from console.checks.box import INSPECT, NO_DEVICE, at, container_name, no_container
from console.checks.check import Answer, check, note, ok, skip, warn
from console.checks.container import NEEDS as OWNER
from console.checks.container import environment, recreate
from console.checks.models_disk import (
    CONFIG_TEXTS,
    CONFIGS,
    FILES,
    INDEX,
    NEEDS,
    Config,
    backend_of,
    configs,
    counted,
    documents,
    elsewhere,
    file,
    loads_all,
    ready,
    repository,
)
from console.core import units
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.secrets import MASK
from console.core.text import one_line, whole_number

MIB = 1024 * 1024
GIB = 1024 * MIB


# ----------------------------------------------------------------------------------------------------------------- L10

_COMPILES = ("pytorch", "onnxruntime", "tensorflow", "python")
"""Beginnings of the back ends whose kernels the driver may have to compile."""


@check(
    "L10",
    "kernel cache of CUDA is large enough",
    group="models",
    slug="cuda-cache",
    needs=(*NEEDS, *OWNER, *CONFIG_TEXTS, CONFIGS),
    why="Kernels that a back end brings for no exact kind of this card are compiled by the driver at their first use "
    "and kept in a cache. Where that is off or too small the first requests after each start wait for it again.",
    source="CUDA programming guide, environment variables (CUDA_CACHE_MAXSIZE); S2 6.1",
)
def cuda_cache(facts: Facts) -> Answer:
    if why := no_container(facts):
        return skip(why)
    found = facts.answer(INSPECT)
    env = environment(found)
    where = f"podman inspect {container_name(facts)}, Env"
    models = [name for name, one in sorted(documents(facts).items()) if backend_of(one).startswith(_COMPILES)]
    if env.get("CUDA_CACHE_DISABLE") in ("1", "true"):
        # NVIDIA's own images set it
        off = (Evidence(where, f"CUDA_CACHE_DISABLE={env['CUDA_CACHE_DISABLE']}"),)
        if not models:
            return ok("off, and no back end here compiles kernels", off)
        fix = _with_variable(facts, "CUDA_CACHE_DISABLE=0")
        return Answer("note", f"off (CUDA_CACHE_DISABLE=1); {counted(models)} may compile kernels", off, fix)
    told = env.get("CUDA_CACHE_MAXSIZE")
    line = (Evidence(where, f"CUDA_CACHE_MAXSIZE={told}" if told is not None else "no CUDA_CACHE_MAXSIZE"),)
    if told is not None:
        size = whole_number(told.strip())
        if size is None and told != MASK:
            return warn(f"CUDA_CACHE_MAXSIZE={one_line(told, 40)!r} is no number of bytes", line, _bigger(facts))
        if size is not None and size < 64 * MIB:
            return warn(f"CUDA_CACHE_MAXSIZE is {units.size(size)}: too small to keep kernels", line, _bigger(facts))
        return ok("set" if size is None else f"{units.size(size)}", line)
    if not models:
        return ok("not set, and no back end here compiles kernels", line)
    text = f"not set, the driver's default holds; {counted(models)} may compile kernels"
    return Answer("note", text, line, _bigger(facts))


def _bigger(facts: Facts) -> Fix:
    return _with_variable(facts, f"CUDA_CACHE_MAXSIZE={2 * GIB}")


def _with_variable(facts: Facts, value: str) -> Fix:
    return recreate(facts, {"env": value}, f"--env={value}")


# ----------------------------------------------------------------------------------------------------------------- L11

_SIZES: Mapping[str, int] = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_UINT16", "TYPE_INT16", "TYPE_FP16", "TYPE_BF16"), 2),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_INT32", "TYPE_FP32"), 4),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_INT64", "TYPE_FP64"), 8),
}
REGION = MIB
"""Bytes that each instance of a Python model begins with, and grows by (shm-default-byte-size)."""


class Need(Struct, frozen=True):
    """Shared memory that Python models want at their largest batch."""

    bytes: int
    instances: int
    open_ended: bool
    """A tensor of variable size counts as one element of each open dimension: the need is larger."""


@check(
    "L11",
    "shared memory holds the models' tensors",
    group="models",
    slug="shm-models",
    needs=(*NEEDS, *OWNER, *CONFIG_TEXTS, CONFIGS),
    why="Each instance of a Python model passes its tensors through /dev/shm. When that is full requests fail, and the "
    "message names the shared memory but not its size.",
    source="Triton python_backend README (shm-default-byte-size); server#4869; S2 6.1 (2x is a rule of thumb)",
)
def shm(facts: Facts) -> Answer:
    if why := no_container(facts):
        return skip(why)
    found = facts.answer(INSPECT)
    if at(found, "HostConfig", "IpcMode") == "host":
        return skip("it shares the host's IPC: /dev/shm is the host's, see F15")
    size = at(found, "HostConfig", "ShmSize")
    if not isinstance(size, int) or size <= 0:
        raise Unknowable("the size of /dev/shm is not told", f"podman exec {container_name(facts)} df /dev/shm")
    python = {name: one for name, one in documents(facts).items() if backend_of(one) in ("python", "vllm")}
    line = Evidence(f"podman inspect {container_name(facts)}", f"ShmSize {size}")
    if not python:
        return ok(f"{units.size(size)}; no Python model passes tensors through it", (line,))
    needs = {name: _need(one) for name, one in python.items()}
    total = sum(one.bytes for one in needs.values())
    lines = (line, *(Evidence(f"configuration of {name}", _need_words(one)) for name, one in sorted(needs.items())))
    least = "at least " if any(one.open_ended for one in needs.values()) else ""
    figures = f"{units.size(size)} for {least}{units.size(total)} of tensors"
    if total > size:
        wanted = f"{math.ceil(2 * total / GIB)}g"
        fix = recreate(facts, {"shm_size": wanted}, f"--shm-size={wanted}")
        return warn(f"{figures} at the largest batches", lines, fix, shm=str(size))
    if 2 * total > size:
        return note(f"{figures}: less than twice that, the usual rule", lines, shm=str(size))
    return ok(figures, lines, shm=str(size))


def _need_words(one: Need) -> str:
    least = "at least " if one.open_ended else ""
    return f"{one.instances} instances, {least}{units.size(one.bytes)} at the largest batch"


def _need(document: Mapping[str, Any]) -> Need:
    batch = max(1, _number(document.get("max_batch_size")))
    each, open_ended = 0, False
    for kind in ("input", "output"):
        tensors = document.get(kind)
        for tensor in tensors if isinstance(tensors, list) else ():
            if not isinstance(tensor, Mapping):
                continue
            dims = [_number(dim) for dim in _list(tensor.get("dims"))]
            open_ended = open_ended or any(dim < 1 for dim in dims) or str(tensor.get("data_type")) not in _SIZES
            each += math.prod(max(1, dim) for dim in dims[:32]) * _SIZES.get(str(tensor.get("data_type")), 1)
    instances = _instances(document)
    return Need(instances * (REGION + batch * each), instances, open_ended)


def _number(value: Any) -> int:
    """Numbers of 64 bits come as text from a file's configuration."""
    return value if isinstance(value, int) else whole_number(str(value)) or 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _groups(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = document.get("instance_group")
    return [one for one in groups if isinstance(one, Mapping)] if isinstance(groups, list) else []


def _instances(document: Mapping[str, Any]) -> int:
    return (
        sum(max(1, _number(one.get("count"))) * max(1, len(_list(one.get("gpus")))) for one in _groups(document)) or 1
    )


# ----------------------------------------------------------------------------------------------------------------- L12

_SHARES = ("tensorrt",)
"""Back ends whose instances on one card share the weights."""
_NO_WEIGHTS = ("ensemble", "python", "dali", "vllm", "tensorrtllm")
"""What lies in their folders says nothing of what they hold in the card's memory."""


@check(
    "L12",
    "models fit into the cards' memory",
    group="models",
    slug="models-fit",
    needs=(*NEEDS, *FILES, *CONFIG_TEXTS, INDEX, *gpu_cards.NEEDS),
    why="Weights take about as much of the card's memory as their files on disk, once for each instance that does not "
    "share them; batches and workspaces come on top. What does not fit fails its load, or the start.",
    source="S1 6.4; Triton model_configuration.md, instance groups",
)
def fit(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    cards = gpu_cards.cards(facts)
    if not cards:
        return skip(NO_DEVICE)
    totals = {card.index: card.memory_total for card in cards if card.memory_total}
    if not totals:
        raise Unknowable("the cards' memory is not told", "nvidia-smi")
    serving = ready(facts)
    every = loads_all(facts)
    wanted = [one for one in configs(facts, repository(facts)) if not one.backend.startswith(_NO_WEIGHTS)]
    if every is not True:
        if serving is None:
            raise Unknowable(
                "which models the server loads is not known", "curl -s -X POST localhost:8000/v2/repository/index"
            )
        wanted = [one for one in wanted if serving.get(one.model.name)]
    loads = {index: {one.model.name: _weight(facts, one, index, tuple(totals)) for one in wanted} for index in totals}
    fullest = max(totals, key=lambda index: sum(loads[index].values()) / (totals[index] or 1))
    used, total = sum(loads[fullest].values()), totals[fullest] or 0
    if not used:
        return skip("no model whose files tell of its weights")
    card = f"GPU {fullest}: " if len(totals) > 1 else ""
    text = f"{card}{units.size(used)} of model files for {units.size(total)}"
    weights = sorted(loads[fullest].items(), key=lambda pair: -pair[1])
    lines = tuple(
        Evidence(f"model {name}", f"{units.size(size)} of files, times its instances") for name, size in weights if size
    )
    if used <= total:
        return ok(text, lines)
    if serving is not None and all(serving.get(one.model.name) for one in wanted):
        return note(f"{text}, and yet all of them serve", lines)
    first = weights[0][0]
    fix = Fix(
        "S",
        (f"gpuconsole do batching.set {quote(first)} instances=1",),
        "fewer instances, fewer models, or lower precision; the order in which they load decides which one fails",
    )
    return warn(text, lines, fix, model=first)


def _weight(facts: Facts, one: Config, card: int, cards: tuple[int, ...]) -> int:
    """Bytes of a model's served versions on one card, times its instances there."""
    groups = _groups(one.document)
    copies = 0
    for group in groups or [{}]:
        kind = str(group.get("kind") or "KIND_AUTO")
        gpus = [_number(index) for index in _list(group.get("gpus"))] or list(cards)
        if kind in ("KIND_GPU", "KIND_AUTO") and card in gpus:
            copies += max(1, _number(group.get("count")))
    if copies and one.backend.startswith(_SHARES):
        copies = 1
    if not copies:
        return 0
    return copies * sum(_size(facts, version.path, version.fact.names or ()) for version in one.serves())


def _size(facts: Facts, folder: str, names: tuple[str, ...]) -> int:
    """Bytes of the files right in a version folder; what lies deeper is not counted."""
    sizes = 0
    for name in names:
        fact = file(facts, f"{folder}/{name}")
        sizes += (fact.size or 0) if fact.kind == "file" else 0
    return sizes
