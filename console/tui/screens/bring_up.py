"""Bring-up: shown over the Overview while a card is there and no server was ever seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.tui.acts import Act
from console.tui.desk import Request
from console.tui.panes.base import Pane, View
from console.tui.panes.bring_up import BringUpList, BringUpStep, steps
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.checks import All
from console.tui.widgets.lines import LineView

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

LIST_HEIGHT = 12
DETAILS_LEAST = 4


class BringUpScreen(BoxScreen):
    """The steps from a bare card to a first answer."""

    NAME = "bring_up"
    FOOTER = (
        "open",
        "bring_up.fix",
        ("copy", "copy commands"),
        "bring_up.all",
        "bring_up.create",
        "bring_up.pull",
        "pane.next",
        ("go.overview", "Overview"),
        "problems",
        "why",
        "palette",
        "help",
        ("back", "back"),
    )

    def make_panes(self) -> Iterable[Pane]:
        yield BringUpList(id="bring-up")
        yield BringUpStep(id="bring-up-step")

    @property
    def step(self) -> BringUpStep:
        """The lower pane."""
        return cast("BringUpStep", self.panes["bring-up-step"])

    def place(self, body: Region) -> Places:
        upper, lower = body.split_horizontal(min(LIST_HEIGHT, max(0, body.height - DETAILS_LEAST)))
        return {"bring-up": upper, "bring-up-step": lower}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        if isinstance(message.key, tuple) and message.key[:1] == ("step",):
            self.step.number = int(message.key[1])
            self.step.again()

    def open_chosen(self) -> None:
        """`enter`: to the step's details."""
        self.set_focus(self.step, scroll_visible=False)


class FixStep(Act):
    """Fix what holds up the chosen step, where its class allows it (plan first)."""

    ID, KEYS, LABEL, SCOPE, ACTION = "bring_up.fix", ("f",), "fix", "bring_up", "check.fix"

    def _check(self, app: ConsoleApp) -> str:
        if not isinstance(app.box, BringUpScreen):
            return ""
        return steps(app.box.snapshot)[app.box.step.number - 1].fix

    def why_not(self, app: ConsoleApp) -> str | None:
        return None if self._check(app) else "nothing of this step can be mended from here: y copies its commands"

    def run(self, app: ConsoleApp) -> None:
        app.acting.request(Request(self.ACTION, self._check(app)))


class AllHere(All):
    """Run all checks."""

    ID, SCOPE = "bring_up.all", "bring_up"
