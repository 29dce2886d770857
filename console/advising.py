"""`gpuconsole advise`: what may help against what Why says, and what the batcher model expects of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from console.core.encode import to_json
from console.core.model import Effect, Helps, Snapshot, Verdict
from console.core.plan import WrongInput
from console.core.sign import ASCII_SIGNS, SIGNS, Sign
from console.core.text import ascii_text, literal, one_line
from console.planning.effect import effects

SCHEMA = 1
LEAST_S, MOST_S = 2.0, 300.0
"""Of `--window`."""
HELPS: Mapping[Helps, Sign] = {"yes": "ok", "no": "warn", "cannot tell": "unknown"}


class Advice(Struct, frozen=True):
    """A verdict with what may help against it, each with its effect."""

    verdict: Verdict
    effects: tuple[Effect, ...]
    """Of the verdict's proposals, in their order."""


def window_s(seconds: float) -> float:
    """How long to watch; WrongInput."""
    if not LEAST_S <= seconds <= MOST_S:
        raise WrongInput(f"--window must be from {LEAST_S:g}s to {MOST_S / 60:g}m, not {seconds:g}s")
    return seconds


def advise(snapshot: Snapshot, model: str) -> tuple[Advice, ...]:
    """Of all verdicts, or of one model's; those without a proposal too. WrongInput for a model that is not served."""
    served = sorted({row.name for row in snapshot.models})
    if model and model not in served:
        there = ", ".join(served[:20]) or "none is"
        raise WrongInput(f"there is no model {one_line(model, 80)!r} here; served are {one_line(there, 400)}")
    told = [one for one in snapshot.verdicts if not model or one.model in (model, None)]
    return tuple(Advice(one, effects(snapshot.models, one.proposals)) for one in told)


def show(found: Sequence[Advice], *, as_json: bool, ascii_only: bool = False) -> bytes:
    """What is printed."""
    if as_json:
        return to_json({"schema": SCHEMA, "advice": found}) + b"\n"
    text = "\n".join(literal(line) for line in _lines(found, ascii_only)) + "\n"
    return (ascii_text(text) if ascii_only else text).encode("utf-8", "replace")


def _lines(found: Sequence[Advice], ascii_only: bool) -> Iterator[str]:
    signs = ASCII_SIGNS if ascii_only else SIGNS
    if not found:
        yield "nothing is judged: no model serves, or nothing came meanwhile"
    for one in found:
        yield f"{signs[one.verdict.sign]} {one_line(one.verdict.title, 300)}  ({one.verdict.trust}, {one.verdict.id})"
        for proposal, effect in zip(one.verdict.proposals, one.effects, strict=True):
            yield f"    {proposal.text}"
            yield f"      why      {proposal.ground}"
            trust = f"   (trust {effect.trust})" if effect.trust else ""
            yield f"      expected {signs[HELPS[effect.helps]]} {effect.text}{trust}"
            yield from (f"               {reason}" for reason in effect.reasons)
            if proposal.price:
                yield f"      price    {proposal.price}"
            if proposal.action:
                values = " ".join(shlex.quote(f"{name}={value}") for name, value in proposal.values.items())
                yield f"      do       gpuconsole do {proposal.action} {shlex.quote(proposal.target)} {values}".rstrip()
