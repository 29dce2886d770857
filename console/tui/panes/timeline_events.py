"""Events of Timeline (design 1.11): newest first, with their letters, who or how each is known, and its detail."""

from __future__ import annotations

from typing import Literal, NamedTuple

from console.core.model import Event, Gaps, Sign
from console.core.store import lettered
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut, width
from console.tui.widgets.lines import Row

Which = Literal["all", "acts", "faults", "alerts"]
WHICH: tuple[Which, ...] = ("all", "acts", "faults", "alerts")
ACTS = ("act.", "config", "reload", "model.", "container.", "gpu.power", "disk.")
"""Kinds (or their beginnings) of what somebody did."""
INDENT = 6
MOST_DETAIL = 4
STREAMS = {"logs": "the log", "events.podman": "Podman's event stream"}
"""Names of streams -> how a person calls them."""
EventKey = tuple[float, str, str]
"""Identity of an event: wall time, kind, text."""


def key_of(event: Event) -> EventKey:
    """The event's identity."""
    return (event.wall, event.kind, event.text)


def shown(event: Event, which: Which) -> bool:
    """True when the view lets the event through."""
    if which == "acts":
        return event.kind.startswith(ACTS) and event.sign != "fail"
    if which == "alerts":
        return event.kind.startswith("alert.")
    return which == "all" or event.sign in ("fail", "warn")


class TimelineEvents(Pane):
    """The list. The event under the cursor shows who did it or how it is known, and all its detail."""

    FIELDS = ("events", "gaps")
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.which: Which = "all"

    def title(self, view: View) -> Line:
        text = f"Events   {self.which}" + (f"   /{one_line(self.filter, 30)}" if self.filter else "")
        return ((text, "title"),)

    def note(self, view: View) -> Line:
        return (("v: ", "key"), (", ".join(WHICH), "dim"))

    def lines(self, view: View) -> list[Row]:
        made: list[Row] = []
        known = [(letter, event) for letter, event in lettered(view.snapshot.events) if self._passes(event)]
        for letter, event in reversed(known):
            open_ = key_of(event) == self.cursor or (self.cursor is None and not made)
            made.append(Row(_head(letter, event, view, open_), key_of(event)))
            if open_:
                made += [Row(line) for line in _details(event, view.width)]
        if not made:
            made.append(Row((("no event yet" if not view.snapshot.events else "none of this kind", "dim"),)))
        return made

    def foot_lines(self, view: View) -> list[Line]:
        """What is not in the list: streams that stand, what was left out, places of the past that were not read."""
        gaps = view.snapshot.gaps
        room = max(1, view.height // 3)
        made: list[Line] = []
        for missing, most in ((_each(gaps), 2), (_each(gaps), 1), (_together(gaps), 1)):
            made = [
                line for one in (*_standing(gaps, view), *_dropped(gaps), *missing) for line in one.lines(view, most)
            ]
            if len(made) <= room:
                break
        found = ", ".join(f"{place} {count}" for place, count in gaps.read)
        if found:
            made.append(((f"  from before the start: {found}", "dim"),))
        return made[:room]

    def _passes(self, event: Event) -> bool:
        return shown(event, self.which) and self.wanted(f"{event.text} {event.origin} {event.model or ''}")

    def event(self) -> Event | None:
        """The one under the cursor."""
        events = self.view.snapshot.events if self.view else ()
        return next((event for event in events if key_of(event) == self.cursor), None)

    def next_view(self) -> bool:
        self.which = WHICH[(WHICH.index(self.which) + 1) % len(WHICH)]
        self.again()
        return True

    def filterable(self) -> bool:
        return True

    def changes(self) -> object:
        return (self.which, self.cursor)

    def yank(self) -> str:
        event = self.event()
        if event is None or self.view is None:
            return ""
        return "  ".join((self.view.clock(event.wall), event.text, event.origin, *event.detail))


class _Missing(NamedTuple):
    """Something that the list lacks."""

    mark: Sign
    what: str
    why: str

    def lines(self, view: View, most: int) -> list[Line]:
        """On one line that the frame cuts, or on `most`."""
        text = f"{self.what}: {one_line(self.why, 300)}" if self.why else self.what
        style = "warn" if self.mark == "warn" else "dim"
        pieces = wrapped(text, view.width - 2, most=most) if most > 1 else [text]
        return [(sign(self.mark) if not at else (" ", ""), (f" {piece}", style)) for at, piece in enumerate(pieces)]


def _standing(gaps: Gaps, view: View) -> list[_Missing]:
    made = []
    for one in gaps.standing:
        since = view.clock(view.wall - (view.mono - one.since_mono))
        made.append(
            _Missing("warn", f"{STREAMS.get(one.stream, one.stream)} stands since {since}", one.failure.message)
        )
    return made


def _dropped(gaps: Gaps) -> list[_Missing]:
    return [_Missing("warn", f"left out: {count} {what}", "") for what, count in gaps.dropped]


def _each(gaps: Gaps) -> list[_Missing]:
    return [_Missing("unknown", f"{place} not read", why) for place, why in gaps.unread]


def _together(gaps: Gaps) -> list[_Missing]:
    places = ", ".join(f"{place} ({one_line(why, 80)})" for place, why in gaps.unread)
    return [_Missing("unknown", "not read", places)] if places else []


def _head(letter: str, event: Event, view: View, open_: bool) -> Line:
    times = f"  {event.repeats} times" if event.repeats > 1 else ""
    origin = "" if open_ else f"  {one_line(event.origin, 60)}" if event.origin else ""
    text = one_line(event.text, 300)
    mark = (sign(event.sign), (" ", "")) if event.sign in ("fail", "warn", "unknown") else ()
    head: Line = (
        (f"{letter or ' '} ", "note"),
        (f"{view.clock(event.wall)}  ", "dim"),
        *mark,
    )
    used = sum(width(part) for part, _ in head)
    room = view.width - used - len(times)
    if width(text) + width(origin) > room:
        origin = origin if width(text) + 12 < room else ""
        text = cut(text, max(10, room - width(origin))) if width(text) > room else text
    return (*head, (text, ""), (cut(origin, max(0, room - width(text))), "dim"), (times, "dim"))


def _details(event: Event, cells: int) -> list[Line]:
    lines = [one_line(event.origin, 200)] if event.origin else []
    lines += [one_line(part) for part in event.detail]
    made: list[Line] = []
    for line in lines:
        made += [((" " * INDENT + part, "dim"),) for part in wrapped(line, cells - INDENT, most=MOST_DETAIL)]
    return made
