"""What the container's own log says since its last start: the markers of Triton's image and of its back ends."""

from __future__ import annotations

import re

from console.checks.box import BUS, CONTAINER, INSPECT, at, no_container
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.container import strings
from console.checks.errors import Diagnosis, diagnose
from console.checks.machine import may_have_gpu
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix

LOG = "@podman.log"
_BANNER = re.compile(r"^\s*=+ (?:Triton|TensorRT) Inference Server")
"""Stands once in each start of NVIDIA's image: what is before it is of an earlier start."""
_SPLIT = re.compile(r"\bbut\s{0,10}\n\s{1,20}version ")
_GPU_RULES = frozenset(
    {
        *("driver-not-detected", "built-for-driver", "cuda-too-old", "compute-capability", "pinned-memory"),
        *("cuda-100", "cuda-802", "cuda-803", "cuda-999", "version-mismatch", "no-driver-talk"),
        *("nvml-permission", "nvml-unknown", "nvml-no-devices", "nvml-lost", "nvml-library", "nvml-failed"),
    }
)
_RULES = _GPU_RULES | {
    *("shm-default", "shm-full", "repository-absent", "models-permission", "gpu-memory", "backend-missing"),
    *("engine-device", "engine-other-card", "engine-magic", "engine-version", "engine-load", "http-port"),
}
"""Tables of errors.toml that tell of the box. What single models say is the business of E07 and the models' checks."""


def since_start(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines of the last start; all where no start is among them."""
    starts = [at for at, line in enumerate(lines) if _BANNER.match(line)]
    return lines[starts[-1] :] if starts else lines


def log_says(facts: Facts) -> tuple[Diagnosis, ...]:
    """What the log since the last start says of the box, causes first. Unknowable where there is no log. Needs LOG."""
    lines = strings(facts.answer(LOG))
    if not lines:
        raise Unknowable("the container's log is empty", "podman logs --tail 200 triton")
    text = _SPLIT.sub("but version ", "\n".join(since_start(lines)))
    return tuple(one for one in diagnose(text) if one.rule in _RULES)


def evidence_of(one: Diagnosis) -> tuple[Evidence, ...]:
    """The lines of a diagnosis."""
    return tuple(Evidence(f"podman logs, {line.where}", line.text) for line in one.evidence)


@check(
    "E05",
    "the server's log shows no fault of the box",
    group="container",
    slug="log-markers",
    needs=(*CONTAINER, LOG, BUS),
    why="Triton's image looks at driver, shared memory and repository when it starts and writes down what is wrong. "
    "The server may well go on after that, without its GPU or without a model.",
    source="SeldonIO/seldon-core#4887, omarabid59/yolov8-triton#6, triton server#1931, nvidia-docker#1479",
)
def log_markers(facts: Facts) -> Answer:
    """The log through the table of error texts."""
    if why := no_container(facts):
        return skip(why)
    if at(facts.answer(INSPECT), "State", "Status") in ("created", "configured"):
        return skip("it was never started")
    found = log_says(facts)
    lines = since_start(strings(facts.answer(LOG)))
    if not found:
        return ok(f"none of the known markers in {len(lines)} lines")
    has_gpu = may_have_gpu(facts)
    serious = [one for one in found if has_gpu or one.rule not in _GPU_RULES]
    first = serious[0] if serious else found[0]
    evidence = tuple(line for one in [first, *(one for one in found if one is not first)] for line in evidence_of(one))[
        :8
    ]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    data = {"marker": first.rule, "checks": " ".join(first.checks)}
    if not serious:
        return note(f"{first.title}: this box has no NVIDIA device", evidence, **data)
    answer = {"fail": fail, "warn": warn}.get(first.sign)
    if answer is None:
        return note(f"{first.title}{more}", evidence, **data)
    return answer(f"{first.title}{more}", evidence, _fix(first), **data)


def _fix(one: Diagnosis) -> Fix | None:
    if not one.do:
        return None
    return Fix("S", (), effect=f"{one.do}; {', '.join(one.checks)} tell the cause", again=one.checks)


def found_rule(found: tuple[Diagnosis, ...], *rules: str) -> Diagnosis | None:
    """The first diagnosis of one of these tables."""
    return next((one for one in found if one.rule in rules), None)
