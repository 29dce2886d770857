"""What a killed runner left: named at the next start, then finished or undone by the same path as any change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from console.actions import audit, detached, registry, runner
from console.actions.base import Planner
from console.actions.box import Box
from console.actions.journal import Ended, Journal, Request, all_of, find, request_of
from console.core.model import SourceError
from console.core.plan import AuditRecord, Check, Interrupted, Outcome, Plan, Refused, Step, Target

UNREADABLE = (OSError, msgspec.DecodeError, UnicodeDecodeError)
"""A journal that was damaged is no change that can be told of."""


def interrupted(box: Box) -> tuple[Interrupted, ...]:
    """All changes on this box whose runner died half way, oldest first; blocks while the box is looked at.

    What died before it did anything, and an attempt to finish another one, is only noted as ended.
    """
    found: list[Interrupted] = []
    all_journals = all_of(box.state)
    worked_on = set(_worked_on(all_journals))
    for journal in all_journals:
        with contextlib.suppress(*UNREADABLE):
            request = journal.request()
            if journal.id in worked_on or not _is_left(journal, request):
                continue
            over = _nothing_to_do(journal, request)
            if over:
                _close(box, journal, request, over)
            else:
                found.append(_described(box, journal, request))
    return tuple(found)


def _worked_on(journals: tuple[Journal, ...]) -> Iterator[str]:
    """Ids of those that a living runner finishes or undoes just now."""
    for journal in journals:
        with contextlib.suppress(*UNREADABLE):
            if detached.is_at_work(journal) and journal.ended() is None:
                yield journal.request().plan.resolves


class _Recovery(Planner):
    """One way to deal with an interrupted change."""

    TARGET = "change"
    PHASES = ()
    HOW: Literal["finish", "undo", "dismiss"]
    YES: str
    TITLE: str

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """The old plan's, with what its action says of the state that it left."""
        journal = find(box.state, target)
        request = request_of(journal)
        if not _is_left(journal, request):
            raise Refused(f"change {target} runs or has ended: there is nothing to {self.HOW}")
        left = _described(box, journal, request)
        deed = {"finish": left.finish, "undo": left.undo, "dismiss": "no longer name it at each start"}[self.HOW]
        old = request.plan
        return replace(
            old,
            target=self._target(box, old),
            title=f"{self.TITLE}: {old.title}",
            yes=self.YES,
            danger="safe" if self.HOW == "dismiss" else "caution" if old.danger == "safe" else old.danger,
            note="interrupted",
            checks=(Check("note", f"now: {left.found}"),),
            ways=(),
            ticks=(),
            steps=(Step(self.HOW, deed),) if deed else (),
            effects=() if self.HOW == "dismiss" else old.effects,
            difference=(),
            by_hand=(),
            undo="",
            gap_s=0.0 if self.HOW == "dismiss" else old.gap_s,
            refused="" if deed else f"it cannot be done by gpuconsole: {left.found}",
            wall=time.time(),
            how=self.HOW,
            resolves=journal.id,
        )

    def _target(self, box: Box, old: Plan) -> Target:
        """As it is now: what is finished or undone must still be so when it is said yes to."""
        action = registry.find().by_name.get(old.action)
        return old.target if action is None or self.HOW == "dismiss" else action.left(box, old.target)


class Finish(_Recovery):
    """Finish a change whose runner was killed: its id from `gpuconsole audit`."""

    NAME, HOW, YES, TITLE = "interrupted.finish", "finish", "Finish", "Finish what was interrupted"


class UndoInterrupted(_Recovery):
    """Undo what a killed change has done so far: its id from `gpuconsole audit`."""

    NAME, HOW, YES, TITLE = "interrupted.undo", "undo", "Undo", "Undo what was interrupted"


class Dismiss(_Recovery):
    """Take note of an interrupted change, so that it is no longer named: its id from `gpuconsole audit`."""

    NAME, HOW, YES, TITLE = "interrupted.dismiss", "dismiss", "Take note", "Leave what was interrupted as it is"


def _is_left(journal: Journal, request: Request) -> bool:
    """True when nobody works on it any more and nobody has dealt with it."""
    alive = detached.is_at_work(journal)  # before the end is looked for: it may be written in between
    ended = journal.ended()
    if ended is not None:
        return ended.open and not ended.resolved_by
    return not alive


def _nothing_to_do(journal: Journal, request: Request) -> str:
    """Why there is nothing to finish or undo; "" = there may be."""
    if request.plan.resolves:
        return f"it was ended from outside; change {request.plan.resolves} can still be finished or undone"
    if request.spec.simulated is not None and not Path(request.spec.root).exists():
        return "its simulated box is gone"
    if not any(line.state == "begin" for line in journal.lines()):
        return "it was ended from outside before anything was done"
    return ""


def _close(box: Box, journal: Journal, request: Request, text: str) -> None:
    outcome = Outcome("interrupted", text)
    masks = runner.masks_of(request.plan, box)
    has_intent = any(change.id == journal.id and change.outcome is None for change in audit.changes(box.state))
    if has_intent:
        line: AuditRecord = runner.record(request, masks, "outcome", outcome, time.time() - request.wall)
        audit.write(box.state, line)
    journal.end(Ended(outcome, time.time()))


def _described(box: Box, journal: Journal, request: Request) -> Interrupted:
    plan = request.plan
    lines = journal.lines()
    masks = runner.masks_of(plan, box)
    found, finish, undo = f"its action {plan.action} is not here: look at the target", "", ""
    action = registry.find().by_name.get(plan.action)
    if action is not None:
        try:
            found, finish, undo = action.interrupted(box, plan, lines)
        except (SourceError, Refused) as error:
            found = f"the target could not be looked at: {runner.sentence(error)}"
    phases = [line for line in lines if line.phase]
    last = phases[-1] if phases else None
    return Interrupted(
        journal.id,
        masks.plan(plan),
        request.operator,
        last.phase if last else "",
        last.wall if last else request.wall,
        masks.text(found),
        masks.text(finish),
        masks.text(undo),
    )
