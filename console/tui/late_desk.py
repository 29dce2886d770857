"""The real Desk: `console.actions`, imported when it is needed and in the thread that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.clients.aside import Aside
from console.core.session import Session
from console.tui.desk import Following, Holder, Record, Request
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.actions.box import BoxSpec
    from console.core.model import Snapshot
    from console.core.plan import Interrupted, Plan

RUNNING_LOOKED_AT = 5
"""Newest journals among which the lock's holder is looked for."""


class LateDesk:
    """Changes of the box that a session reads; `folder` is the console's state folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._aside = Aside()

    @property
    def _state(self) -> Path:
        return place_of(self._session, self._folder)[1]

    @property
    def _spec(self) -> BoxSpec:
        return place_of(self._session, self._folder)[0]

    def ready(self) -> bool:
        """See Desk."""
        return self._session.spec is not None

    def plan(self, request: Request, snapshot: Snapshot) -> Plan:
        """See Desk."""
        wanted = (request.action, request.target, dict(request.values))
        plan: Plan = self._aside.call("console.actions.looks", "plan", self._spec, self._state, snapshot, *wanted)
        return plan

    def start(self, plan: Plan) -> str:
        """See Desk."""
        from console.actions import detached

        return detached.start(self._spec, self._state, plan)

    def follow(self, id: str) -> Following | None:  # noqa: A002
        """See Desk."""
        from console.actions.journal import Journal

        journal = Journal(self._state, id)
        alive = journal.runner() is not None  # before the rest: what it wrote last is then seen in any case
        try:
            request = journal.request()
        except (OSError, ValueError):
            return None
        ended = journal.ended()
        lines = tuple(line for line in journal.lines() if line.text or line.phase)
        outcome = None if ended is None else ended.outcome
        return Following(id, request.plan, request.operator, request.wall, lines, outcome, alive)

    def cancel(self, id: str) -> None:  # noqa: A002
        """See Desk."""
        from console.actions import detached
        from console.actions.box import READ_ONLY
        from console.actions.journal import Journal
        from console.core.plan import Refused

        if self._spec.settings.safety.read_only:
            raise Refused(READ_ONLY)  # a runner that is stopped goes back, which changes the box
        detached.cancel(Journal(self._state, id))

    def holder(self) -> Holder | None:
        """See Desk."""
        from console.actions import journal, lock

        found = lock.holder(self._spec)
        if found is None:
            return None
        newest = reversed(journal.all_of(self._state)[-RUNNING_LOOKED_AT:])
        mine = next((one.id for one in newest if found.pid and one.runner() == found.pid), "")
        return Holder(found.sentence(), mine, found.who, found.what)

    def records(self) -> tuple[Record, ...]:
        """See Desk."""
        from console.actions import audit
        from console.actions.who import operator

        me = operator()

        def told(one: audit.Change) -> Record:
            who = one.record.operator
            mine = (who.uid, who.login_uid) == (me.uid, me.login_uid)
            return Record(one.record, one.outcome, one.undone_by, one.undo_off, mine)

        return tuple(told(one) for one in reversed(audit.changes(self._state)))

    def stamp(self) -> object:
        """See Desk."""
        from console.actions import audit

        try:
            found = (self._state / audit.NAME).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def interrupted(self) -> tuple[Interrupted, ...]:
        """See Desk."""
        from console.actions import journal

        ends = (one.ended() for one in journal.all_of(self._state))
        if all(end is not None and (not end.open or end.resolved_by) for end in ends):
            return ()  # not worth a look at the box, nor loading every action
        from console.actions import recover
        from console.actions.box import Box

        box = Box(self._spec, self._state)
        try:
            return recover.interrupted(box)
        finally:
            box.close()
