"""Takes a change back by the change that its outcome names, if the box is still as that change left it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from console.actions import audit, registry
from console.actions.audit import Change
from console.actions.base import Planner
from console.actions.box import Box
from console.actions.journal import Journal, request_of
from console.actions.masks import Masks, is_masked
from console.actions.who import operator
from console.core import units
from console.core.plan import Outcome, Plan, Refused, UndoSpec, WrongInput
from console.core.text import one_line

LAST = "last"
"""The target that stands for one's own newest change that can be taken back."""


class Undo(Planner):
    """Take a change back: its id from `gpuconsole audit`, or `last` for the newest of one's own."""

    NAME = "undo"
    TARGET = "change"
    PHASES = ()

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """The inverse, planned by the action that does it; `values` choose among its ways."""
        change = _wanted(box, target)
        spec = still_as_left(box, change.id)
        action = registry.find().get(spec.action)
        plan = action.plan(box, spec.target, action.checked({**spec.values, **values}))
        note = f"takes back {units.moment(change.record.wall)}"
        return replace(plan, undoes=change.id, note=f"{plan.note}, {note}" if plan.note else note)


def still_as_left(box: Box, id: str) -> UndoSpec:  # noqa: A002 (the word of the audit)
    """How the change is taken back. Refused when it cannot be: it was already, or the box is no longer as it left
    it. A fresh look."""
    change = _by_id(box, id)
    if change.undo_off:
        raise Refused(f"change {id} cannot be taken back: {change.undo_off}")
    outcome, masks = _whole(box, change)
    assert outcome.undo is not None
    if is_masked(outcome.undo):
        raise Refused(f"change {id} cannot be taken back: it took secrets, and its journal that held them is gone")
    action = registry.find().get(change.record.action)
    target = change.record.target
    if masks is None:
        target = request_of(Journal(box.state, id)).plan.target
    now: Mapping[str, str] = action.state(box, target)
    if masks is not None:
        now = masks.mapping(now)
    for name, left in outcome.left.items():
        if now.get(name) != left:
            raise Refused(
                f"the box is no longer as that change left it ({one_line(name)}: {one_line(left, 200) or 'none'} then, "
                f"{one_line(now.get(name, ''), 200) or 'none'} now): nothing was done; make the change that you want"
            )
    return outcome.undo


def _whole(box: Box, change: Change) -> tuple[Outcome, Masks | None]:
    """The outcome from the journal, which holds secrets; else the audit's, with the masks that were on it."""
    ended = Journal(box.state, change.id).ended()
    if ended is not None and ended.outcome.undo is not None:
        return ended.outcome, None
    assert change.result is not None
    found = registry.find().by_name.get(change.record.action)
    return change.result, Masks(found.FIELDS if found else (), {}, box.settings)


def _wanted(box: Box, target: str) -> Change:
    if target != LAST:
        return _by_id(box, target)
    me = operator()
    for change in reversed(_changes(box)):
        who = change.record.operator
        is_mine = who.uid == me.uid and who.login_uid == me.login_uid
        if is_mine and not change.undo_off and not change.record.undoes:
            return change
    raise Refused("there is no change of yours that could be taken back; `gpuconsole audit` lists all")


def _by_id(box: Box, id: str) -> Change:  # noqa: A002
    for change in _changes(box):
        if change.id == id:
            return change
    raise WrongInput(f"there is no change {one_line(id, 80)!r}; `gpuconsole audit` lists all with their ids")


def _changes(box: Box) -> tuple[Change, ...]:
    try:
        return audit.changes(box.state)
    except OSError as error:
        raise Refused(f"{box.state / audit.NAME} cannot be read ({error.strerror}): nothing was done") from error
