"""Which settings a sweep may try, and which of them prediction would try next. Pure, but predicting takes seconds.

The grid is delay x instances x largest batch. Times are predicted for requests that come by themselves at the rate that
was seen (planning/prediction.py); throughput for callers that wait for their answers (planning/closed.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import exp, hypot, inf, log
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.planning import batching_change as change
from console.planning import closed, prediction
from console.planning.batching_change import Batching, Served
from console.planning.observed import Observed, scheduling_of
from console.planning.predicted import Prediction

Objective = Literal["throughput", "p99", "mean"]
OBJECTIVES: Final = ("throughput", "p99", "mean")
DELAYS: Final = (0, 100, 500, 1000, 2000, 5000, 10_000)
MOST_INSTANCES: Final = 4
LEAST_BATCH: Final = 4
"""A largest batch below it is not halved."""
UNSURE: Final = 0.1
"""Share by which a predicted throughput may be off: what instances cost each other is learned by trying."""
FAITH: Final = 0.25
"""How much the prediction as such counts beside a trial of the very same setting, which counts 1."""
EQUAL: Final = 0.02
"""Predictions that differ by less are of equals."""
WITHIN_S: Final = 3.0
"""Seconds that one round of predictions may take, about."""
AXES: Final = ("dynamic_batching", "delay_us", "max_batch_size", "instances")


class Candidate(Struct, frozen=True):
    """One point of the grid."""

    values: Mapping[str, str]
    """Of batching.set, all axes."""
    settings: Batching

    @property
    def text(self) -> str:
        """`delay 500, 2 instances, max 16`."""
        one = self.settings
        batching = f"delay {one.delay_us}" if one.dynamic_batching else "batching off"
        return f"{batching}, {one.total_instances} inst, max {one.max_batch_size}"


class Proposed(Struct, frozen=True):
    """What prediction says of one candidate."""

    candidate: Candidate
    predicted: float | None
    """By the objective: requests a second, or ms. None = cannot be told."""
    error: float | None = None
    p99_ms: float | None = None
    trust: str = ""
    modelled: float | None = None
    """`predicted` before it was corrected by what was tried."""


class Tried(Struct, frozen=True):
    """What came of a prediction."""

    settings: Batching
    predicted: float
    measured: float


def grid(start: Batching, facts: Served, most_instances: int = MOST_INSTANCES) -> tuple[Candidate, ...]:
    """All points that the server would take, the start among them, each once."""
    batches = [start.max_batch_size]
    if start.max_batch_size >= LEAST_BATCH:
        batches.append(start.max_batch_size // 2)
    one_group = len(start.instances) == 1
    instances = range(1, max(most_instances, start.total_instances) + 1) if one_group else (0,)
    batching: list[dict[str, str]] = [{"dynamic_batching": "false"}]
    if start.max_batch_size > 1 and not facts.is_sequence:
        batching += [{"dynamic_batching": "true", "delay_us": str(delay)} for delay in DELAYS]
    if facts.is_sequence:
        batching = [{}]
    found: dict[tuple[object, ...], Candidate] = {}
    for values, count, largest in product(batching, instances, batches):
        given = {**values, "max_batch_size": str(largest), **({"instances": str(count)} if count else {})}
        candidate = _candidate(start, facts, given)
        if candidate is not None:
            found.setdefault(_key(candidate.settings), candidate)
    found.setdefault(_key(start), Candidate(values_of(start), start))
    return tuple(found.values())


def _candidate(start: Batching, facts: Served, given: dict[str, str]) -> Candidate | None:
    try:
        settings = change.wanted(start, given)
    except WrongInput:
        return None
    if change.problems(facts, settings) or change.obstacles(facts, start, settings):
        return None
    return Candidate(values_of(settings), settings)


def values_of(settings: Batching) -> dict[str, str]:
    """The axes as batching.set takes them."""
    names = AXES if settings.dynamic_batching else ("dynamic_batching", "max_batch_size", "instances")
    found = {name: change.shown(name, settings) for name in names}
    return {name: {"on": "true", "off": "false"}.get(text, text) for name, text in found.items()}


def _key(settings: Batching) -> tuple[object, ...]:
    largest = settings.max_batch_size
    batching = (settings.dynamic_batching, settings.delay_us) if settings.dynamic_batching else (False, 0)
    return (*batching, largest, settings.instances)


def propose(
    seen: Observed,
    candidates: Sequence[Candidate],
    objective: Objective,
    *,
    waits: bool = False,
    callers: int | None = None,
    outside_ms: float = 0.0,
    tried: Sequence[Tried] = (),
) -> list[Proposed]:
    """The best first. With `waits` it is callers that wait for their answers (`callers` of them, None = as many as
    there seem to be), and a request takes `outside_ms` outside the server's times; else requests come by themselves.
    What was `tried` corrects what is predicted of its neighbours. WrongInput where nothing can be told of this
    model."""
    settings = [scheduling_of(one.settings) for one in candidates]
    if objective == "throughput" and waits:
        rates = closed.throughput(seen, settings, callers, outside_ms=outside_ms)
        found = [Proposed(one, rate, UNSURE * rate) for one, rate in zip(candidates, rates, strict=True)]
    else:
        told = prediction.grid(seen, settings, within_s=WITHIN_S)
        found = [_proposed(one, figures, objective) for one, figures in zip(candidates, told, strict=True)]
    found = [_corrected(one, tried) for one in found]
    start = next((one.settings for one in candidates if scheduling_of(one.settings) == seen.scheduling), None)

    def order(one: Proposed) -> tuple[float, int, int]:
        """Better first; of equals the one with fewer instances, then the one that changes less."""
        if not one.predicted:
            return (inf, 0, 0)
        steps = round(log(one.predicted) / log(1 + EQUAL))
        changes = len(change.changed(start, one.candidate.settings)) if start is not None else 0
        return (-steps if objective == "throughput" else steps, one.candidate.settings.total_instances, changes)

    return sorted(found, key=order)


def _corrected(one: Proposed, tried: Sequence[Tried]) -> Proposed:
    """By the shares by which predictions of near settings were off, the nearer the more."""
    if one.predicted is None:
        return one
    weights = [exp(-(_distance(one.candidate.settings, other.settings) ** 2) / 2) for other in tried]
    total = sum(weights) + FAITH
    off = sum(weight * log(other.measured / other.predicted) for weight, other in zip(weights, tried, strict=True))
    return replace(one, predicted=one.predicted * exp(off / total), modelled=one.predicted)


def _distance(one: Batching, other: Batching) -> float:
    """Of two settings: an instance, a doubling of the largest batch, or three steps of the delay are 1."""
    delays = [_step(settings) for settings in (one, other)]
    batches = [log(max(1, settings.max_batch_size), 2) for settings in (one, other)]
    instances = one.total_instances - other.total_instances
    return hypot((delays[0] - delays[1]) / 3, batches[0] - batches[1], instances)


def is_next_to(one: Batching, other: Batching) -> bool:
    """True for settings that differ by one step of the delay alone."""
    same = (one.total_instances, one.max_batch_size) == (other.total_instances, other.max_batch_size)
    return same and abs(_step(one) - _step(other)) == 1


def _step(settings: Batching) -> float:
    """Of the delay, on the ladder of DELAYS; batching off is one below none."""
    if not settings.dynamic_batching:
        return -1.0
    return float(sum(1 for delay in DELAYS if delay < settings.delay_us))


def _proposed(candidate: Candidate, told: Prediction, objective: Objective) -> Proposed:
    if objective == "throughput":
        return Proposed(candidate, min(told.rate, told.capacity), 0.0, told.p99_ms.value, told.trust)
    figure = told.p99_ms if objective == "p99" else told.mean_ms
    return Proposed(candidate, figure.value, figure.error, told.p99_ms.value, told.trust)
