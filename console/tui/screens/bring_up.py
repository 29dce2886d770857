"""Bring-up: shown over the Overview while a card is there and no server was ever seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from textual.geometry import Region

from console.tui.panes.base import Pane, View
from console.tui.panes.bring_up import BringUpList, BringUpStep
from console.tui.screens.base import BoxScreen, Places
from console.tui.widgets.lines import LineView

LIST_HEIGHT = 12
DETAILS_LEAST = 4


class BringUpScreen(BoxScreen):
    """The steps from a bare card to a first answer."""

    NAME = "bring_up"
    FOOTER = (
        "open",
        "bring_up.create",
        "bring_up.pull",
        "pane.next",
        ("go.overview", "Overview"),
        "problems",
        "why",
        "copy",
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
