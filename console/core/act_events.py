"""Changes of the box as events: who, what, what came of it. The console makes them from what it follows and from the
audit, a recorder without a screen from the audit alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.core.model import Event, Sign

if TYPE_CHECKING:
    # what only a change needs is imported when there is one: the first paint does not wait for it
    from console.core.plan import AuditRecord, Operator, Outcome, Plan

OUTCOME_SIGNS: Mapping[str, Sign] = {
    "done": "ok",
    "undone": "warn",
    "refused": "warn",
    "failed": "fail",
    "interrupted": "fail",
}
"""`Outcome.word` -> sign."""


def outcome_sign(outcome: Outcome, how: str = "run") -> Sign:
    """How well it ended; to have undone what broke off is what was wanted (`how` of the Plan)."""
    return "ok" if outcome.word == "undone" and how == "undo" else OUTCOME_SIGNS[outcome.word]


def event_of(plan: Plan, outcome: Outcome, operator: Operator, wall: float) -> Event:
    """A change of ours as it stands in Timeline."""
    good = outcome_sign(outcome, plan.how) == "ok"
    model = plan.target.name if plan.target.kind == "model" else None
    return _event(plan.action, plan.title, model, outcome, operator, wall, good=good)


def event_from_audit(intent: AuditRecord, end: AuditRecord | None) -> Event | None:
    """The same from both lines of the audit; None while no end is known."""
    if end is None or end.outcome is None:
        return None
    good = end.outcome.word == "done" or (end.outcome.word == "undone" and bool(intent.resolves))
    model = intent.target.name if intent.target.kind == "model" else None
    return _event(intent.action, intent.title, model, end.outcome, intent.operator, end.wall, good=good)


def _event(
    action: str, title: str, model: str | None, outcome: Outcome, operator: Operator, wall: float, *, good: bool
) -> Event:
    sign: Sign = "note" if good else OUTCOME_SIGNS[outcome.word]
    text = title if good else f"{title}: {outcome.word}"
    return Event(wall, sign, text, operator.short, f"act.{action}", model, (outcome.text, *outcome.lines))
