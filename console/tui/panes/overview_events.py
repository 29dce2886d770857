"""Events on the Overview: newest first, each with its letter in the charts, and who did it or how it is known."""

from __future__ import annotations

import time
from typing import NamedTuple

from console.core.model import Event
from console.core.store import lettered
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, Segment, between, cut, line_width
from console.tui.widgets.lines import Row

DAY = 86400.0


class EventKey(NamedTuple):
    """Identity of an event on the screen."""

    wall: float
    text: str


class OverviewEvents(Pane):
    """What happened, as far back as the logs tell."""

    FIELDS = ("events",)
    NUMBER = "7"

    def title(self, view: View) -> Line:
        return (("Events", "title"),)

    def filterable(self) -> bool:
        return True

    def lines(self, view: View) -> list[Row]:
        found = [
            (letter, event)
            for letter, event in reversed(lettered(view.snapshot.events))
            if not self.filter or self.wanted(f"{event.text} {event.origin}")
        ]
        if not found:
            return [Row((("nothing happened yet, and no log tells of before", "dim"),))]
        rows: list[Row] = []
        for letter, event in found[:200]:
            rows += event_rows(letter, event, view, details=not view.compact and view.height > 4)
        return rows


def event_rows(letter: str, event: Event, view: View, *, details: bool) -> list[Row]:
    """One event: `d 14:01:58  ranking delay 500 → 2000 µs   ops@192.0.2.7`, then its details."""
    gap = " " if view.compact else "  "
    sign: Line = ()
    if event.sign in ("fail", "warn"):
        sign = ((f"{SIGNS[event.sign]} ", SIGN_STYLES[event.sign]),)
    again = f", {event.repeats} times" if event.repeats > 1 and not details else ""
    origin: Line = ((f"  {one_line(event.origin, 40)}", "dim"), ("" if view.compact else "   ", ""))
    start: list[Segment] = [(f"{letter or ' '} ", "key"), (f"{moment(event.wall, view)}{gap}", "dim"), *sign]
    text = one_line(event.text, 400) + again
    room = view.width - line_width(tuple(start))
    if view.compact and len(text) > room - line_width(origin):
        origin = ()
    start.append((cut(text, max(4, room - line_width(origin))), "text"))
    rows = [Row(between(tuple(start), origin, view.width), EventKey(event.wall, event.text))]
    if details:
        told = [*event.detail, *([f"the same {event.repeats} times since"] if event.repeats > 1 else [])]
        rows += [Row(((" " * (10 + len(gap)), ""), (one_line(line, 300), "dim"))) for line in told]
    return rows


def moment(wall: float, view: View) -> str:
    """Time of day; the date where it is over a day ago. Always eight cells."""
    if view.wall - wall < DAY:
        return view.clock(wall)
    day = time.gmtime(wall) if view.utc else time.localtime(wall)
    return time.strftime("%m-%d", day).ljust(8)
