"""Overview (1): the box on one page, in the form that the terminal's size and the box's state allow."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.geometry import Region

from console.tui.commands import COMMANDS, Command
from console.tui.messages import AskEnded
from console.tui.panes.base import Pane, View
from console.tui.panes.overview_events import EventKey, OverviewEvents
from console.tui.panes.overview_gpu import OverviewGpu
from console.tui.panes.overview_models import OverviewModels, on_disk
from console.tui.panes.overview_service import OverviewService
from console.tui.panes.overview_trends import MOST_LINES, OverviewTrends
from console.tui.panes.overview_why import OverviewWhy, VerdictKey
from console.tui.panes.problems import KEY_DIGITS
from console.tui.screens import SCREENS
from console.tui.screens.base import COMPACT_BELOW, BoxScreen, Places

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

WIDE = 160
FRAMED_FROM = 28
"""Rows under which panes have rules instead of frames, at any width."""
FACTS = 8
"""Lines of GPU and Service in full."""
LEAST = 3
"""Lines that Why and Events shrink to where rows are few."""


@dataclass(frozen=True)
class Wants:
    """What the panes would show if there were room, and the form they are in."""

    models: int = 4
    why: int = 10
    nothing_serves: bool = False


class OverviewScreen(BoxScreen):
    """The box on one page."""

    NAME = "overview"
    FOOTER = (
        "pane.next",
        "open",
        "problems",
        "why",
        "log",
        "swap",
        "tune",
        "loads.open",
        "ask",
        "filter",
        "palette",
        "help",
        ("back", "quit"),
    )

    FOOTER_DOWN = (
        "pane.next",
        "open",
        "problems",
        "why",
        "log",
        ("go.container", "container"),
        "palette",
        "help",
        ("back", "quit"),
    )
    """Where nothing serves there is no model to act on: what can be done stands on Container."""
    FOOTER_LAST = (*BoxScreen.FOOTER_LAST, "go.container")

    def __init__(self) -> None:
        super().__init__()
        self._wants = Wants()

    @property
    def compact(self) -> bool:
        return super().compact or self.size.height < FRAMED_FROM

    def make_panes(self) -> Iterable[Pane]:
        yield OverviewModels(id="models")
        yield OverviewWhy(id="why")
        yield OverviewEvents(id="events")
        yield OverviewGpu(id="gpu")
        yield OverviewService(id="service")
        yield OverviewTrends(id="trends")

    def place(self, body: Region) -> Places:
        return place(body, self._wants)

    def adapt(self, view: View) -> None:
        for name, pane in self.panes.items():
            pane.frame = "box" if not view.compact else "none" if name in ("gpu", "service") else "rule"
        events = self.panes["events"]
        assert isinstance(events, OverviewEvents)
        acting = self.app_.acting
        events.own, events.ids, events.may_undo = acting.own, acting.ids, acting.why_off() is None
        models, why = self.panes["models"], self.panes["why"]
        assert isinstance(models, OverviewModels)
        assert isinstance(why, OverviewWhy)
        if not view.snapshot.server.tried:
            return
        wants = Wants(models.wants(models.fitted(view)), why.wants(why.fitted(view)), on_disk(view))
        if wants != self._wants:
            self._wants = wants
            if self.place(self.body) != self._placed and self.maximised is None:
                self.relayout()

    def footer(self) -> Sequence[tuple[str, str, int]]:
        parts = super().footer()
        if not self._wants.nothing_serves:
            return parts
        return [*(part for part in parts if part[1] == "screens"), *self._parts(self.FOOTER_DOWN)]

    def open_chosen(self) -> None:
        """`enter`: the model's details, the problem's screen, the event in Timeline, or the pane's own screen."""
        pane = self.app_.pane
        key = pane.cursor if pane is not None else None
        if isinstance(key, VerdictKey):
            self._open_verdict(key)
            return
        if isinstance(key, EventKey):
            self.app_.event = key.wall
        super().open_chosen()

    def _open_verdict(self, key: VerdictKey) -> None:
        """The screen that the verdict names, else the list of all verdicts with their proofs."""
        digits = {entry.digit for entry in SCREENS}
        for verdict in self.snapshot.verdicts:
            digit = KEY_DIGITS.get(verdict.next_key, verdict.next_key)
            if VerdictKey(verdict.id, verdict.model) == key and digit in digits:
                self.app_.choose_model(verdict.model)
                self.app_.go_digit(digit)
                return
        if "why" in COMMANDS:
            self.app_.action_command("why")


def place(body: Region, wants: Wants) -> Places:
    """Where each pane stands. Under 100 columns lines without frames; from 160 two columns and Trends; between them
    GPU above Service, or beside it where nothing serves."""
    if body.width < COMPACT_BELOW or body.height + 2 < FRAMED_FROM:
        return _narrow(body, wants)
    if body.width < WIDE:
        return _middle(body, wants)
    return _wide(body, wants)


def _wide(body: Region, wants: Wants) -> Places:
    """screens.md 1.1: GPU and Service, Models, Trends, Why and Events."""
    facts, trends = FACTS + 2, MOST_LINES + 2
    models = wants.models + 2
    bottom = body.height - facts - models - trends
    if bottom < LEAST + 2:
        models = max(min(models, LEAST + 4), models - (LEAST + 2 - bottom))
        bottom = body.height - facts - models - trends
    if bottom < LEAST + 2:
        trends = 0
        models = min(wants.models + 2, max(LEAST + 2, body.height - facts - LEAST - 2))
        bottom = body.height - facts - models
    half = 70 * body.width // WIDE
    y = body.y
    places = {
        "gpu": Region(0, y, half, facts),
        "service": Region(half, y, body.width - half, facts),
        "models": Region(0, y + facts, body.width, models),
    }
    y += facts + models
    if trends:
        places["trends"] = Region(0, y, body.width, trends)
        y += trends
    half = body.width // 2
    places["why"] = Region(0, y, half, max(0, body.bottom - y))
    places["events"] = Region(half, y, body.width - half, max(0, body.bottom - y))
    return places


def _middle(body: Region, wants: Wants) -> Places:
    """100 to 159 columns: all below each other, no Trends; GPU beside Service where nothing serves (screens.md 1.3)."""
    side_by_side = wants.nothing_serves and body.width >= 120
    gpu = 6 if side_by_side else 4
    heights = {"service": gpu if side_by_side else FACTS, "models": wants.models, "why": wants.why, "events": 8}
    least = {"service": gpu if side_by_side else 4, "models": 4, "why": LEAST, "events": LEAST, "events-": 1}
    room = body.height - 2 * len(heights) - (0 if side_by_side else gpu + 2)
    shrink(heights, least, room, ("events", "why", "service", "events-", "models", "why"))
    half = body.width // 2
    y = body.y
    if side_by_side:
        places = {
            "gpu": Region(0, y, half, gpu + 2),
            "service": Region(half, y, body.width - half, gpu + 2),
        }
        y += gpu + 2
    else:
        places = {"gpu": Region(0, y, body.width, gpu + 2)}
        y += gpu + 2
        places["service"] = Region(0, y, body.width, heights["service"] + 2)
        y += heights["service"] + 2
    for name in ("models", "why", "events"):
        height = heights[name] + 2 if name != "events" else body.bottom - y
        places[name] = Region(0, y, body.width, max(0, min(height, body.bottom - y)))
        y += height
    return places


def _narrow(body: Region, wants: Wants) -> Places:
    """screens.md 1.2: two lines of GPU, two of Service and host, then rules instead of frames."""
    heights = {"models": wants.models, "why": max(LEAST, wants.why), "events": 4}
    least = {"models": 5, "why": LEAST, "events": LEAST, "events-": 0}
    room = body.height - 4 - len(heights)
    shrink(heights, least, room, ("why", "events", "events-", "models", "why"))
    y = body.y
    places = {"gpu": Region(0, y, body.width, 2), "service": Region(0, y + 2, body.width, 2)}
    y += 4
    for name in ("models", "why", "events"):
        height = heights[name] + 1 if name != "events" else max(0, body.bottom - y)
        if name == "why" and not heights["events"]:
            height = body.bottom - y
        places[name] = Region(0, y, body.width, max(0, min(height, body.bottom - y)))
        y += height
    return places


def shrink(heights: dict[str, int], least: dict[str, int], room: int, order: tuple[str, ...]) -> None:
    """Make `heights` fit into `room`: each in `order` gives way down to its least (`events-` is a second turn of
    events, with a least of its own); the last one further, to nothing."""
    for number, turn in enumerate(order):
        name = turn.removesuffix("-")
        over = sum(heights.values()) - room
        if over <= 0:
            break
        floor = min(heights[name], 0 if number == len(order) - 1 else least[turn])
        heights[name] = max(floor, heights[name] - over)


class Ask(Command):
    """Ask the chosen model once: its kept question, else one made from its metadata; shows the answer and its time."""

    ID, KEYS, LABEL, SCOPE, KIND = "ask", ("a",), "ask once", "overview", "safe"

    def why_off(self, app: ConsoleApp) -> str | None:
        if app.session.ask is None:
            return "this session cannot ask models"
        if app.read_only:
            return "the console is read-only: it sends no requests"
        if app.asking is not None:
            return f"{app.asking} is being asked"
        return None if app.chosen_key() is not None else "there is no model to ask"

    def run(self, app: ConsoleApp) -> None:
        ask, key = app.session.ask, app.chosen_key()
        if ask is None or key is None:
            return
        app.asking = key.name
        app.tell(f"asking {key.name} {key.version}")

        def work() -> None:
            app.post_message(AskEnded(ask(key.name, key.version or None)))

        threading.Thread(target=work, name="ask", daemon=True).start()
