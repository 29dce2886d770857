"""Why (w): one verdict at a time, with its rule, figures, source, and what it does not tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from textual.geometry import Region

from console.core.model import Verdict
from console.tui.panes.base import Pane
from console.tui.panes.problems import ProblemsPane, key_of
from console.tui.panes.why_details import WhyPane
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.problems import open_details


class WhyScreen(BoxScreen):
    """All verdicts with their proof."""

    NAME = "why"
    FOOTER = (
        ("move.down", "k next"),
        ("open", "open its screen"),
        "why.tune",
        "copy",
        ("escape", "back"),
        "palette",
        "help",
    )

    def make_panes(self) -> Iterable[Pane]:
        yield WhyPane(id="why-details")

    @property
    def pane(self) -> WhyPane:
        """The verdict shown."""
        return cast("WhyPane", self.panes["why-details"])

    def place(self, body: Region) -> Places:
        return {"why-details": body}

    def on_screen_resume(self) -> None:
        """Over Problems: the verdict under its cursor; else the one about the chosen model, or the first."""
        below = self.app_.box_below
        problems = below.panes.get("problems") if below is not None else None
        verdict = problems.verdict() if isinstance(problems, ProblemsPane) else None
        if verdict is None and self.app_.chosen is not None:
            view = below.panes and next(iter(below.panes.values())).view if below is not None else None
            verdicts = view.snapshot.verdicts if view else ()
            verdict = next((one for one in verdicts if one.model == self.app_.chosen.name), None)
        if verdict is not None:
            self.pane.choose(key_of(verdict))

    def verdict(self) -> Verdict | None:
        return self.pane.verdict()

    def open_chosen(self) -> None:
        verdict = self.pane.verdict()
        if verdict is not None:
            open_details(self, verdict)
