"""Timeline (7): figures on one clock with the events that moved them, and what changed at one of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.widgets import Input

from console.core.model import Event
from console.core.store import lettered
from console.tui.commands import Command
from console.tui.panes.base import Pane, View
from console.tui.panes.timeline_charts import TimelineCharts, charts
from console.tui.panes.timeline_compare import TimelineCompare
from console.tui.panes.timeline_days import SHOWN, TimelineDays
from console.tui.panes.timeline_events import TimelineEvents, key_of
from console.tui.panes.timeline_scale import SPANS
from console.tui.screens.base import BoxScreen, Places

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

EDGES = 2
BELOW_LEAST = 7
DAYS_FROM = 118
"""Columns that the table of hours needs with what it says beside them."""
NEAR = 1.0
"""Seconds: an event that close to the cursor is the one under it."""


class TimelineScreen(BoxScreen):
    """Charts on one clock, events under them, before and after the cursor."""

    NAME = "timeline"
    FOOTER = (
        ("timeline.left", "→ cursor"),
        ("timeline.event_before", "] event"),
        ("sort.left", "> span"),
        "timeline.compare",
        "timeline.goto",
        ("view.next", "events"),
        "undo",
        "filter",
        ("escape", "back"),
        "palette",
        "help",
    )

    def __init__(self) -> None:
        super().__init__()
        self._chart_rows = 13
        """Rows that the charts would fill, letters and time axis included."""

    def make_panes(self) -> Iterable[Pane]:
        yield TimelineCharts(id="timeline-charts")
        yield TimelineEvents(id="timeline-events")
        yield TimelineCompare(id="timeline-compare")
        yield TimelineDays(id="timeline-days")

    @property
    def charts(self) -> TimelineCharts:
        """The upper pane."""
        return cast("TimelineCharts", self.panes["timeline-charts"])

    @property
    def compared(self) -> TimelineCompare:
        """The table at the lower left."""
        return cast("TimelineCompare", self.panes["timeline-compare"])

    @property
    def days(self) -> TimelineDays:
        """The table of hours below all."""
        return cast("TimelineDays", self.panes["timeline-days"])

    @property
    def listed(self) -> TimelineEvents:
        """The events at the lower right."""
        return cast("TimelineEvents", self.panes["timeline-events"])

    def place(self, body: Region) -> Places:
        """Under 100 columns the table stands in the events' place while there is a cursor."""
        wanted = self._chart_rows + (1 if self.compact else EDGES)
        upper, lower = body.split_horizontal(max(5, min(wanted, body.height - BELOW_LEAST)))
        if self.compact:
            below = "timeline-events" if self.charts.at is None else "timeline-compare"
            return {"timeline-charts": upper, below: lower}
        wanted_days = SHOWN + 1 + EDGES if self.days.minutes and lower.width >= DAYS_FROM else 0
        places = {"timeline-charts": upper}
        if wanted_days and lower.height - wanted_days >= BELOW_LEAST:
            lower, places["timeline-days"] = lower.split_horizontal(lower.height - wanted_days)
        left, right = lower.split_vertical(lower.width * 48 // 100)
        return {**places, "timeline-compare": left, "timeline-events": right}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        self._follow_cursor(view)
        had_days, self.days.minutes = bool(self.days.minutes), self.app_.days.minutes
        if had_days != bool(self.days.minutes):
            self.relayout()
        wanted = len(charts(view)) + 2
        if wanted != self._chart_rows:
            self._chart_rows = wanted
            self.relayout()

    def on_screen_resume(self) -> None:
        """Opened from an event: the cursor stands there, in a span that holds it."""
        self.app_.refresh_now()
        wall, self.app_.event = self.app_.event, None
        if wall is None:
            return
        while not self.charts.put_cursor(wall) and self.charts.span < len(SPANS) - 1:
            self.charts.shift_sort(1)
        self.cursor_moved()

    def _follow_cursor(self, view: View) -> None:
        at = self.charts.at
        moved = at != self.compared.at
        self.compared.at = at
        self.compared.letter = "" if at is None else self._letter(view, at)
        if moved and self.compact:
            self.relayout()

    def _letter(self, view: View, at: float) -> str:
        wall = view.wall - (view.mono - at)
        near = (letter for letter, event in lettered(view.snapshot.events) if letter and abs(event.wall - wall) < NEAR)
        return next(near, "")

    def cursor_moved(self) -> None:
        """After a key moved the cursor: the table and the list follow at once."""
        if self.charts.view is None:
            return
        self._follow_cursor(self.charts.view)
        self.compared.again()

    def go_to_event(self, step: int) -> bool:
        """The cursor to the event before (-1) or next (1) that has a letter; False when there is none in the span."""
        view = self.charts.view
        if view is None:
            return False
        scale = self.charts.scale(view)
        here = view.wall if self.charts.at is None else scale.wall_of(self.charts.at)
        marks = [event for letter, event in lettered(view.snapshot.events) if letter]
        marks = [event for event in marks if scale.column_of_wall(event.wall) is not None]
        found = [event for event in marks if (event.wall < here - NEAR if step < 0 else event.wall > here + NEAR)]
        if not found:
            return False
        return self.go_to(found[-1] if step < 0 else found[0])

    def go_to(self, event: Event) -> bool:
        """The cursor to an event; False when it lies outside the span."""
        if not self.charts.put_cursor(event.wall):
            return False
        self.listed.select(key_of(event))
        self.listed.again()
        self.cursor_moved()
        return True

    def go_to_time(self, text: str) -> None:
        """`@`: a time of day; says why where that is none, or lies outside the span. In a replay it is jumped to."""
        playback = self.app_.playback
        if playback is not None:
            why = playback.go(text, utc=self.app_.utc)
            self._jumped(why)
            return
        view = self.charts.view
        if view is None:
            return
        wall = wall_of(text, view.wall, utc=view.utc)
        if wall is None:
            self.app_.tell(f"{text!r} is no time of day: give hours and minutes, such as 14:01 or 14:01:58")
        elif not self.charts.put_cursor(wall):
            self.app_.tell("that time is outside the charts: > shows a longer span, at most an hour is kept")
        else:
            self.cursor_moved()

    def jump_to_event(self, *, forward: bool) -> None:
        """`[` `]` in a replay: recorded time goes to the event before or the next one, wherever it lies."""
        playback = self.app_.playback
        if playback is not None:
            found = playback.to_event(forward=forward)
            self._jumped("" if found else f"the recording has no event {'after' if forward else 'before'} this")

    def _jumped(self, why: str) -> None:
        self.charts.go_live()
        self.app_.refresh_now()
        self.cursor_moved()
        if why:
            self.app_.tell(why)

    def open_chosen(self) -> None:
        """`enter` on an event: the cursor goes there; on a change of ours: its record, with the plan."""
        event = self.listed.event()
        change = self.chosen_change()
        if self.focused is self.listed and change is not None:
            self.app_.show_record(change)
            return
        if self.focused is self.listed and event is not None and not self.go_to(event):
            self.app_.tell("that event is outside the charts: > shows a longer span, at most an hour is kept")

    def chosen_change(self) -> str | None:
        event = self.listed.event()
        return None if event is None else self.app_.acting.ids.get(key_of(event))

    def step_out(self) -> bool:
        if super().step_out():
            return True
        if self.charts.at is not None:
            self.charts.go_live()
            self.cursor_moved()
            return True
        return False

    def on_line_view_cursor_moved(self) -> None:
        """The event under the list's cursor opens its detail."""
        self.call_after_refresh(self.listed.again)


def wall_of(text: str, now: float, *, utc: bool) -> float | None:
    """The newest moment at or before `now` with this time of day; None for what is none."""
    for form in ("%H:%M:%S", "%H:%M"):
        try:
            clock = datetime.strptime(text.strip(), form).time()
        except ValueError:
            continue
        today = datetime.fromtimestamp(now, UTC) if utc else datetime.fromtimestamp(now, UTC).astimezone()
        moment = today.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
        if moment > today:
            moment -= timedelta(days=1)
        return moment.timestamp()
    return None


class AskTime(ModalScreen[str]):
    """One line to type a time of day in."""

    BINDINGS = [("escape", "dismiss('')", "back")]  # noqa: RUF012  (Textual's own form)
    DEFAULT_CSS = """
    AskTime { align: center bottom; background: transparent; }
    AskTime Input { border: none; height: 1; padding: 0; background: $surface; }
    AskTime Input:focus { border: none; }
    """

    def __init__(self, *, in_replay: bool = False) -> None:
        super().__init__()
        self._more = ", a date and time, or words of an event" if in_replay else ""

    def compose(self) -> ComposeResult:
        field = Input(placeholder=f"go to a time of day, such as 14:01 or 14:01:58{self._more}; esc goes back")
        field.cursor_blink = False
        yield field

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class _OnTimeline(Command):
    """Base of what works on the charts."""

    SCOPE = "timeline"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if isinstance(app.box, TimelineScreen) else "this works on Timeline only"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, TimelineScreen):
            self.on_timeline(app.box, app)

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        """Do it."""
        raise NotImplementedError


class CursorLeft(_OnTimeline):
    """The cursor one column back in time."""

    ID, KEYS, LABEL = "timeline.left", ("left",), "cursor"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        screen.charts.step_cursor(-1)
        screen.cursor_moved()


class CursorRight(_OnTimeline):
    """The cursor one column on; in the newest it is live again."""

    ID, KEYS, LABEL = "timeline.right", ("right",), "cursor on"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        if screen.charts.at is not None:
            screen.charts.step_cursor(1)
        screen.cursor_moved()


class EventBefore(_OnTimeline):
    """The cursor to the event before; in a replay time goes there."""

    ID, KEYS, LABEL = "timeline.event_before", ("left_square_bracket", "left_curly_bracket"), "event before"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        if app.playback is not None:
            screen.jump_to_event(forward=False)
            return
        app.tell_if_not(screen.go_to_event(-1), "no event before this in the charts")


class EventNext(_OnTimeline):
    """The cursor to the next event; in a replay time goes there."""

    ID, KEYS, LABEL = "timeline.event_next", ("right_square_bracket", "right_curly_bracket"), "next event"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        if app.playback is not None:
            screen.jump_to_event(forward=True)
            return
        app.tell_if_not(screen.go_to_event(1), "no later event in the charts")


class Compare(_OnTimeline):
    """Before and after the cursor; again: another span."""

    ID, KEYS, LABEL = "timeline.compare", ("equals_sign",), "before/after"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        if screen.charts.at is None and not screen.go_to_event(-1):
            app.tell("put the cursor where something changed first: ← or [")
            return
        screen.compared.other_span()


class GoToTime(_OnTimeline):
    """Go to a time of day; in a replay also to a date, or to the next event with some words."""

    ID, KEYS, LABEL = "timeline.goto", ("at",), "go to time"

    def on_timeline(self, screen: TimelineScreen, app: ConsoleApp) -> None:
        asking = AskTime(in_replay=app.playback is not None)
        app.push_screen(asking, lambda text: screen.go_to_time(text) if text else None)
