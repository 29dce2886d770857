"""Problems (e): what the header counts, newest cause first; enter jumps to the screen that holds the details."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from textual.geometry import Region

from console.core.model import Verdict
from console.tui.panes.base import Pane
from console.tui.panes.problems import ProblemsPane, digit_of
from console.tui.screens.base import BoxScreen, Places


class ProblemsScreen(BoxScreen):
    """The list of problems."""

    NAME = "problems"
    FOOTER = (
        ("open", "open its screen"),
        "why",
        "problems.tune",
        "problems.loadtest",
        "filter",
        "copy",
        ("escape", "back"),
        "palette",
        "help",
    )

    def make_panes(self) -> Iterable[Pane]:
        yield ProblemsPane(id="problems")

    @property
    def pane(self) -> ProblemsPane:
        """The list."""
        return cast("ProblemsPane", self.panes["problems"])

    def place(self, body: Region) -> Places:
        return {"problems": body}

    def verdict(self) -> Verdict | None:
        return self.pane.verdict()

    def open_chosen(self) -> None:
        check = self.pane.check()
        if check is not None:
            open_check(self, check)
        verdict = self.pane.verdict()
        if verdict is not None:
            open_details(self, verdict)


def open_check(screen: BoxScreen, id_: str) -> None:
    """Go to Checks, at this check."""
    from console.tui.screens.checks import ChecksScreen

    app = screen.app_
    app.go("checks")
    if isinstance(app.box, ChecksScreen):
        app.box.wanted = id_
        app.refresh_now()


def open_details(screen: BoxScreen, verdict: Verdict) -> None:
    """Go to the screen that holds the verdict's details, with its model and card chosen."""
    app = screen.app_
    digit = digit_of(verdict)
    if not digit:
        app.tell("no screen of this console holds more about it")
        return
    if verdict.model is not None:
        app.choose_model(verdict.model)
    app.go_digit(digit)
