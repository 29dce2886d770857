"""A plan, its progress and its outcome as lines of text, for `do`."""

from __future__ import annotations

from collections.abc import Iterator

from console.core import units
from console.core.gap import figure_words
from console.core.plan import JournalLine, Outcome, Plan
from console.core.sign import SIGNS, Sign
from console.core.text import literal, one_line

DANGER = {"safe": "", "caution": "CAUTION", "danger": "DANGEROUS"}
OUTCOME: dict[str, Sign] = {"done": "ok", "failed": "fail", "undone": "warn", "refused": "warn", "interrupted": "fail"}


def plan_lines(plan: Plan, *, utc: bool = False) -> list[str]:
    """All of a plan: what, what was checked, ways, steps, what it means, how to undo it."""
    danger = ": ".join(part for part in (DANGER[plan.danger], plan.note) if part)
    made = [f"{plan.title}   {danger}".rstrip()]
    for part in (_checks(plan, utc), _ways(plan), _steps(plan), _difference(plan)):
        made += part
    made += [f"[{'x' if tick.on else ' '}] {tick.text}   ({tick.name}={tick.value})" for tick in plan.ticks]
    made += plan.effects
    made += [f"by hand: {command}" for command in plan.by_hand]
    if plan.undo:
        made.append(f"undo: {plan.undo}")
    if plan.refused:
        made.append(f"{SIGNS['fail']} {plan.refused}")
    return [_flat(line) for line in made]


def progress_line(line: JournalLine, plan: Plan) -> str:
    """One line of a journal; "" for one that says nothing to a person."""
    phases = [step.phase for step in plan.steps]
    where = f"{phases.index(line.phase) + 1}/{len(phases)} " if line.phase in phases else ""
    took = "" if line.seconds is None else f"   {line.seconds:.1f} s"
    text = one_line(line.text) or line.phase
    if line.state == "begin" and line.phase:
        return f"▸ {where}{text}"
    if line.state == "done":
        return f"{SIGNS['ok']} {where}{line.phase}{took}"
    if line.state == "failed":
        return f"{SIGNS['fail']} {where}{line.phase}: {one_line(line.text)}{took}"
    return f"    {text}" if line.state == "note" and line.text else ""


def outcome_lines(outcome: Outcome, id: str = "") -> list[str]:  # noqa: A002 (the word of the audit)
    """What came of it, what goes on, and how it is taken back."""
    made = [f"{SIGNS[OUTCOME[outcome.word]]} {outcome.word}: {outcome.text}", *(f"  {line}" for line in outcome.lines)]
    if gap := figure_words(outcome.figures):
        made.append(f"  {gap}")
    if outcome.still_going:
        made.append(f"  still going on: {outcome.still_going}")
    if outcome.figures:
        made.append("  " + "   ".join(f"{name} {value:.3g}" for name, value in outcome.figures.items()))
    if outcome.undo is not None and id:
        made.append(f"  undo ({outcome.undo.text or outcome.undo.action}): gpuconsole do undo {id}")
    return [_flat(line) for line in made]


def _checks(plan: Plan, utc: bool) -> Iterator[str]:
    if plan.checks:
        yield f"CHECKED {units.clock(plan.wall, utc=utc) if plan.wall else 'just now'}"
        yield from (f"  {SIGNS[check.sign]} {check.text}" for check in plan.checks)


def _ways(plan: Plan) -> Iterator[str]:
    if plan.ways:
        yield "WAYS"
    for way in plan.ways:
        yield f"  ({'•' if way.id == plan.way else ' '}) {way.text}   (way={way.id})"
        yield f"      clients see: {way.clients_see}   gap: {way.gap}"
        if way.impossible:
            yield f"      {SIGNS['fail']} {way.impossible}"


def _steps(plan: Plan) -> Iterator[str]:
    if plan.steps:
        yield "STEPS"
    for number, step in enumerate(plan.steps, 1):
        yield f"  {number} {step.text}"
        yield from (f"      {call}" for call in step.calls)
        if step.if_it_fails:
            yield f"      if it fails: {step.if_it_fails}"


def _difference(plan: Plan) -> Iterator[str]:
    if plan.difference:
        yield "DIFFERENCE"
    yield from (f"  {line}" for line in plan.difference)


def _flat(line: str) -> str:
    """One line with its indent kept; whatever others named is literal."""
    body = line.lstrip(" ")
    return literal(" " * min(40, len(line) - len(body))) + one_line(body)
