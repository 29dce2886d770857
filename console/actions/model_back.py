"""Back to the version that served before: which one that was is what the audit tells of the changes of this user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from console.actions import audit
from console.actions.audit import Change
from console.actions.base import Planner
from console.actions.box import Box
from console.actions.model_look import largest_ready
from console.actions.swap import Swap
from console.actions.swap_spec import listed
from console.core import units
from console.core.model import SourceError
from console.core.plan import Check, Plan, Refused, WrongInput
from console.core.text import one_line


class Back(Planner):
    """Swap a model back to the version that served before, by the audit; else to the next smaller one on disk."""

    NAME = "model.back"
    TARGET = "model"
    FIELDS = tuple(field for field in Swap.FIELDS if field.name != "version")
    PHASES = ()

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """Swap's own, to that version, with a line that says how it is known."""
        served = max((int(v) for n, v in box.ready() if n == target and v.isdecimal()), default=None)
        action = Swap()
        if served is None:
            return action.plan(box, target, action.checked(values))
        version, known = _before(box, target, served)
        plan = action.plan(box, target, action.checked({**values, "version": str(version)}))
        return plan if plan.refused else replace(plan, checks=(known, *plan.checks))


def _before(box: Box, name: str, served: int) -> tuple[int, Check]:
    """The version, and how it is known."""
    folders = _folders(box, name)
    told, why = _served_before(box, name, served)
    if told is not None and (folders is None or told in folders):
        return told, Check("ok", f"{told} served before {served}: {why}")
    smaller = max((one for one in folders or () if one < served), default=None)
    why = f"{told} served before ({why}), but it is no longer on disk" if told is not None else why
    if smaller is None:
        disk = "the disk cannot be seen" if folders is None else f"on disk: {listed(folders)}"
        raise WrongInput(
            f"which version of {one_line(name, 80)} served before {served} is not known: {why}; no smaller one is "
            f"there ({disk}); model.swap takes version=N"
        )
    return smaller, Check("warn", f"{why}: {smaller} is the next smaller on disk")


def _served_before(box: Box, name: str, served: int) -> tuple[int | None, str]:
    """By the changes of this user, the newest first: the first other version that one of them left or found."""
    try:
        changes = audit.changes(box.state)
    except OSError as error:
        return None, f"the audit cannot be read ({error.strerror})"
    for change in reversed(changes):
        for version in _versions(change, name):
            if version != served:
                moment = units.moment(change.record.wall)
                return version, f"{change.record.action} of {moment} by {change.record.operator.short}"
    return None, "the audit tells of no change of version"


def _versions(change: Change, name: str) -> Iterator[int]:
    """What served after a change that was done, and what served before it."""
    result, target = change.result, change.record.target
    if result is None or result.word != "done" or (target.kind, target.name) != ("model", name):
        return
    for told in (result.left, target.identity):
        version = largest_ready(told)
        if version is not None:
            yield version


def _folders(box: Box, name: str) -> tuple[int, ...] | None:
    """Usable versions on disk; None where that cannot be seen."""
    try:
        found = [model for model in box.repository().models if model.name == name]
    except (SourceError, Refused):
        return None
    return tuple(one.version for one in found[0].versions if one.usable) if len(found) == 1 else None
