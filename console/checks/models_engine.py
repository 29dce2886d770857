"""TensorRT engines against the server's TensorRT and the card: L05 L06.

An engine file tells the TensorRT that wrote it, not the card: that only the server's log tells, or a name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from console.checks import gpu_cards
from console.checks.box import INSPECT, at
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import environment
from console.checks.models_disk import (
    CONFIG_TEXTS,
    INDEX,
    NEEDS,
    Config,
    configs,
    elsewhere,
    ready,
    repository,
)
from console.clients import trt_plan
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

LOG = "@podman.log"
IMAGE = "@podman.image"
HEADS = r"$ find {models} -mindepth 3 -maxdepth 3 -name '*.plan' -printf '%p\n' -exec od -A n -t x1 -N 28 {} ';'"
"""Each engine file's path, then its first bytes in hex: they are no text, which is all that a file's fact can hold."""
_TENSORRT = frozenset({"tensorrt", "tensorrt_plan"})


class Plan(Struct, frozen=True):
    """An engine file of a version that its model's policy picks."""

    model: str
    version: int
    path: str
    head: trt_plan.PlanHead | None
    """None where its first bytes were not read."""


def heads(facts: Facts) -> Mapping[str, bytes]:
    """First bytes of the engine files by path; {} where they could not be had. Needs HEADS."""
    found: dict[str, bytes] = {}
    for folder in facts.every("models"):
        words = HEADS.removeprefix("$ ").replace("{models}", shlex.quote(folder))
        try:
            out = facts.command(words).out
        except Unknowable:
            continue
        path = ""
        for line in out.splitlines():
            if line.startswith("/"):
                path = line
                found[path] = b""
            elif path and _HEX.fullmatch(line):
                found[path] += bytes.fromhex(line)
    return found


_HEX = re.compile(r"(?: [0-9a-f]{2}){1,16}")


def _plans(facts: Facts, begins: Mapping[str, bytes]) -> list[Plan]:
    found: list[Plan] = []
    for one in configs(facts, repository(facts)):
        if one.backend and one.backend not in _TENSORRT:
            continue
        for version in one.serves():
            for name in _named(one, version.names):
                path = f"{version.path}/{name}"
                head = trt_plan.head(begins[path]) if path in begins else None
                found.append(Plan(one.model.name, version.number, path, head))
    return found


def _named(one: Config, names: Iterable[str]) -> Iterator[str]:
    """The engine files among those of a version."""
    wanted = str(one.document.get("default_model_filename") or "model.plan")
    by_capability = one.document.get("cc_model_filenames")
    others = {str(name) for name in by_capability.values()} if isinstance(by_capability, Mapping) else set()
    yield from (name for name in names if name == wanted or name in others)


def _rebuild(model: str) -> Fix:
    return Fix(
        "S",
        ("trtexec --onnx=model.onnx --saveEngine=model.plan",),
        f"builds the engine of {model} anew, with the precision and shapes that it had before (--fp16, --minShapes and "
        "the like), in a container of the TensorRT image of the month of the one that serves it, and on this card",
    )


def _log_lines(facts: Facts, pattern: re.Pattern[str]) -> list[Evidence]:
    """Lines of the server's log that match; [] where there is no log."""
    try:
        log = facts.answer(LOG)
    except Unknowable:
        return []
    lines = log if isinstance(log, list) else []
    return [Evidence("podman logs", line) for line in lines if isinstance(line, str) and pattern.search(line[:2000])]


def _serves(facts: Facts, plans: Iterable[Plan]) -> bool:
    """Whether the server has each of these READY: then it could read them."""
    serving = ready(facts)
    return serving is not None and all(plan.version in serving.get(plan.model, ()) for plan in plans)


# ----------------------------------------------------------------------------------------------------------------- L05

_VERSION_FAULT = re.compile(
    r"not compatible with this version of TensorRT|Version tag does not match|[Mm]agic ?[Tt]ag"
    r"|Serialization assertion|Serialization Error|deserializeCudaEngine.{0,80}failed"
)
_LABELS = ("com.nvidia.tensorrt.version",)
_VARIABLES = ("TRT_VERSION", "TENSORRT_VERSION")


@check(
    "L05",
    "engines are of this TensorRT",
    group="models",
    slug="engine-version",
    needs=(*NEEDS, *CONFIG_TEXTS, HEADS, IMAGE, LOG, INDEX),
    why="An engine runs on the TensorRT that built it, or on a later one where it was built to be version compatible. "
    "After a change of the image the old engines do not load, and the server may not start.",
    source="TensorRT docs, version compatibility; trtexec --getPlanVersionOnly; S1 6.3; server#317, TensorRT#1059",
)
def engine_version(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    plans = _plans(facts, heads(facts))
    if not plans:
        return skip("no TensorRT engine in the repository")
    if _serves(facts, plans):
        return ok(f"{len(plans)} engines serve", [Evidence(plans[0].path, _head_words(plans[0]))])
    faults = _log_lines(facts, _VERSION_FAULT)
    if faults:
        model = _refused(facts, plans)
        match = next((found for line in reversed(faults) if (found := _WANTED.search(line.text[:2000]))), None)
        words = (
            f"{model}: TensorRT {match[1]} wanted, the engine is of {match[2]}"
            if match
            else f"{model}, by the log: {one_line(faults[-1].text, 200)}"
        )
        return fail(words, faults[-3:], _rebuild(model), model=model)
    for plan in plans:
        if plan.head is not None and plan.head.kind in ("pointer", "empty", "other"):
            return fail(f"{plan.model}: {_ODD[plan.head.kind]}", [Evidence(plan.path, _head_words(plan))], _fetch(plan))
    told = [plan for plan in plans if plan.head is not None and plan.head.version is not None]
    if not told:
        return unknown(
            f"which TensorRT built {plans[0].path} was not read",
            f"trtexec --getPlanVersionOnly --loadEngine={plans[0].path}",
        )
    have, where = _of_image(facts)
    return _compared(told, have, where, len(plans))


_ODD: Mapping[str, str] = {
    "pointer": "the engine is a Git LFS pointer, its content was not fetched",
    "empty": "the engine file is empty",
    "other": "model.plan does not begin like an engine",
}


_WANTED = re.compile(r"expecting library version (\S{1,20}) got (\S{1,20}?)[,.]?(?: |$)")
_FAILED = re.compile(r"failed to load '([^']{1,200})'")


def _refused(facts: Facts, plans: list[Plan]) -> str:
    """The model that the server's log names last; else one whose engine does not serve."""
    names = [plan.model for plan in plans]
    told = [match[1] for line in _log_lines(facts, _FAILED) if (match := _FAILED.search(line.text))]
    for name in reversed(told):
        if name in names:
            return name
    serving = ready(facts) or {}
    return next((plan.model for plan in plans if plan.version not in serving.get(plan.model, ())), names[0])


def _fetch(plan: Plan) -> Fix:
    folder = plan.path.rsplit("/", 1)[0]
    if plan.head is not None and plan.head.kind == "pointer":
        return Fix(
            "S", (f"cd {shlex.quote(folder)} && git lfs pull",), "fetches the file's content; then load the model"
        )
    lines = (f"ls -l {shlex.quote(folder)}", f"head -c 64 {shlex.quote(plan.path)} | xxd")
    return Fix("S", lines, "shows what it is; copy the right file there")


def _head_words(plan: Plan) -> str:
    if plan.head is None:
        return "its first bytes were not read"
    return f"built by TensorRT {plan.head.text}" if plan.head.version else f"begins like: {plan.head.kind}"


def _of_image(facts: Facts) -> tuple[tuple[int, ...], str]:
    """TensorRT of the container's image as numbers, and where it stood; Unknowable where nothing tells."""
    places: list[tuple[str, str]] = []
    for name in (INSPECT, IMAGE):
        try:
            document = facts.answer(name)
        except Unknowable:
            continue
        for labels in (at(document, "Config", "Labels"), at(document, "Labels")):
            places += [(f"label {key}", str(at(labels, key) or "")) for key in _LABELS if isinstance(labels, Mapping)]
        env = environment(document)
        places += [(f"variable {key}", env[key]) for key in env if key in _VARIABLES]
    for where, text in places:
        if match := re.match(r"\d{1,3}(?:\.\d{1,4}){2,3}", text):
            return tuple(int(part) for part in match[0].split(".")), where
    raise Unknowable("which TensorRT the image has is not told", "podman image inspect IMAGE | grep -i tensorrt")


def _compared(told: list[Plan], have: tuple[int, ...], where: str, count: int) -> Answer:
    """Engines of a newer minor version never load; older ones only where they were built to."""
    image = ".".join(str(part) for part in have)
    newer: list[Plan] = []
    older: list[Plan] = []
    for plan in told:
        version = plan.head.version if plan.head is not None else None
        if version is None or version[:3] == have[:3]:
            continue
        (newer if version[:2] > have[:2] else older).append(plan)
    lines = [Evidence(plan.path, _head_words(plan)) for plan in (newer + older) or told[:1]]
    lines.append(Evidence(where, image))
    odd = newer or older
    if not odd:
        rest = "" if len(told) == count else f", {count - len(told)} more tell nothing"
        return ok(f"{len(told)} engines of TensorRT {image}{rest}", lines)
    first = odd[0]
    built = first.head.text if first.head is not None else "?"
    text = f"{first.model}: engine of TensorRT {built}, the server has {image}"
    data = {"engine": built, "tensorrt": image, "model": first.model}
    if newer:
        return fail(text, lines, _rebuild(first.model), **data)
    return warn(f"{text}: loads only if built version compatible", lines, _rebuild(first.model), **data)


# ----------------------------------------------------------------------------------------------------------------- L06

_DEVICE_FAULT = re.compile(r"generated on an incompatible device")
_OTHER_MODEL = re.compile(r"across different models of devices is not recommended")
_HINT = re.compile(r"sm[_-]?(\d{2,3})(?!\d)", re.IGNORECASE)
_CAPABILITY: Mapping[str, frozenset[str]] = {
    "Volta": frozenset({"70", "72"}),
    "Turing": frozenset({"75"}),
    "Ampere": frozenset({"80", "86", "87"}),
    "Ada": frozenset({"89"}),
    "Hopper": frozenset({"90"}),
    "Blackwell": frozenset({"100", "101", "103", "110", "120", "121"}),
}
"""Architecture as NVML names it -> compute capabilities, as in sm_86."""


@check(
    "L06",
    "engines are for this kind of card",
    group="models",
    slug="engine-card",
    needs=(*NEEDS, *CONFIG_TEXTS, LOG, INDEX, *gpu_cards.NEEDS),
    why="An engine is built for one compute capability, unless it was built hardware compatible. On another card it "
    "does not load; on another model of the same capability it runs, perhaps slower.",
    source="TensorRT docs, hardware compatibility; TensorRT#3130, TensorRT#2176",
)
def engine_card(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    plans = _plans(facts, {})
    if not plans:
        return skip("no TensorRT engine in the repository")
    other = _log_lines(facts, _OTHER_MODEL)
    if _serves(facts, plans):
        if other:
            return note("they serve, but were built on another model of card", other[-2:])
        return ok(f"{len(plans)} engines serve")
    faults = _log_lines(facts, _DEVICE_FAULT)
    if faults:
        match = re.search(r"expecting compute (\d{1,2}\.\d) got compute (\d{1,2}\.\d)", faults[-1].text)
        words = (
            f"an engine is for compute {match[2]}, this card is {match[1]}" if match else one_line(faults[-1].text, 120)
        )
        return fail(words, faults[-3:], _rebuild(plans[0].model), model=plans[0].model)
    hinted = _hinted(facts, plans)
    if hinted is not None:
        return hinted
    return skip("the files do not tell for which card they are")


def _hinted(facts: Facts, plans: list[Plan]) -> Answer | None:
    """Names that say sm_86 and the like against the card; None where none does, or no card is known."""
    try:
        known = {card.architecture for card in gpu_cards.cards(facts) if card.architecture}
    except Unknowable:
        return None
    able = frozenset[str]().union(*(_CAPABILITY.get(name, frozenset()) for name in known))
    if not able:
        return None
    hints = [(plan, match[1]) for plan in plans if (match := _HINT.search(plan.path))]
    wrong = [(plan, number) for plan, number in hints if number not in able]
    if wrong:
        plan, number = wrong[0]
        return warn(
            f"{plan.model}: named sm_{number}, the card is {', '.join(sorted(known))}",
            [Evidence(plan.path, f"sm_{number}")],
            _rebuild(plan.model),
        )
    return ok(f"{len(hints)} engines are named for this card") if hints else None
