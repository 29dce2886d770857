"""Events on the Overview: newest first, each with its letter in the charts, and who did it or how it is known."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from console.core.model import Event
from console.core.store import lettered
from console.core.text import one_line
from console.tui import own_changes
from console.tui.own_changes import OwnChanges
from console.tui.panes.base import Pane, View
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, Segment, between, cut, line_width
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.tui.desk import Record

DAY = 86400.0
ALONGSIDE = 15.0
"""Seconds after the end of a change of ours in which what shows by comparison is its work."""
SEEN = ("config", "reload")
"""Kinds of events that show by comparison."""


class EventKey(NamedTuple):
    """Identity of an event on the screen."""

    wall: float
    text: str


class OverviewEvents(Pane):
    """What happened, as far back as the logs tell."""

    FIELDS = ("events",)
    NUMBER = "7"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.own = OwnChanges()
        """Changes that the audit tells of."""
        self.ids: Mapping[own_changes.EventKey, str] = {}
        """Events of changes -> ids in the audit."""
        self.may_undo = False
        """True while `u` works."""

    def changes(self) -> object:
        return (self.own, len(self.ids), self.may_undo)

    def record_of(self, event: Event) -> Record | None:
        """The change that this event tells of."""
        id_ = self.ids.get((event.wall, event.kind, event.text))
        return None if id_ is None else self.own.by_id.get(id_)

    def title(self, view: View) -> Line:
        return (("Events", "title"),)

    def filterable(self) -> bool:
        return True

    def lines(self, view: View) -> list[Row]:
        found = [
            (letter, event)
            for letter, event in reversed(lettered(view.snapshot.events))
            if not self._told_by_change(event)
            if not self.filter or self.wanted(f"{event.text} {event.origin}")
        ]
        if not found:
            return [Row((("nothing happened yet, and no log tells of before", "dim"),))]
        rows: list[Row] = []
        for letter, event in found[:200]:
            details = not view.compact and view.height > 4
            rows += event_rows(letter, event, view, details=details, change=self._change(event))
        return rows

    def _change(self, event: Event) -> Change | None:
        record = self.record_of(event)
        if record is None:
            return None
        outcome = own_changes.outcome_of(record)
        figures = own_changes.measured(outcome) if outcome is not None and outcome.word == "done" else ""
        hint = "undo" if self.may_undo and record.intent.id == self.own.undoable else ""
        return Change(own_changes.headline(record), figures, hint or ("taken back" if record.undone_by else ""))

    def _told_by_change(self, event: Event) -> bool:
        """True for what was seen of a change of ours that has its own line."""
        if event.kind not in SEEN:
            return False
        for record in self.own.records:
            if record.wall + ALONGSIDE < event.wall:
                return False
            same = record.intent.target.name == event.model and record.intent.operator.short == event.origin
            if same and record.outcome is not None and record.intent.wall <= event.wall:
                return True
        return False


class Change(NamedTuple):
    """How a change of ours stands among the events."""

    headline: str
    figures: str
    """What was measured; "" = nothing."""
    then: str
    """`undo` for the one that `u` takes back, `taken back`, or ""."""


def event_rows(letter: str, event: Event, view: View, *, details: bool, change: Change | None = None) -> list[Row]:
    """One event: `d 14:01:58  ranking delay 500 → 2000 µs   ops@192.0.2.7  u undo`, then its details or figures."""
    gap = " " if view.compact else "  "
    sign: Line = ()
    if event.sign in ("fail", "warn"):
        sign = ((f"{SIGNS[event.sign]} ", SIGN_STYLES[event.sign]),)
    again = f", {event.repeats} times" if event.repeats > 1 and not details else ""
    origin: Line = ((f"  {one_line(event.origin, 40)}", "dim"), ("" if view.compact else "   ", ""))
    if change is not None and change.then:
        then: Line = (("  u", "key"), (" undo", "dim")) if change.then == "undo" else ((f"  {change.then}", "dim"),)
        origin = (origin[0], *then)
    start: list[Segment] = [(f"{letter or ' '} ", "key"), (f"{moment(event.wall, view)}{gap}", "dim"), *sign]
    text = one_line(event.text if change is None else change.headline, 400) + again
    room = view.width - line_width(tuple(start))
    if view.compact and len(text) > room - line_width(origin):
        origin = ()
    start.append((cut(text, max(4, room - line_width(origin))), "text"))
    rows = [Row(between(tuple(start), origin, view.width), EventKey(event.wall, event.text))]
    if details:
        told = [*([change.figures] if change is not None and change.figures else event.detail)]
        told += [*([f"the same {event.repeats} times since"] if event.repeats > 1 else [])]
        rows += [Row(((" " * (10 + len(gap)), ""), (one_line(line, 300), "dim"))) for line in told]
    return rows


def moment(wall: float, view: View) -> str:
    """Time of day; the date where it is over a day ago. Always eight cells."""
    if view.wall - wall < DAY:
        return view.clock(wall)
    day = time.gmtime(wall) if view.utc else time.localtime(wall)
    return time.strftime("%m-%d", day).ljust(8)
