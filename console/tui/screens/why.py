"""Why (w): one verdict at a time, with its rule, figures, source, and what it does not tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from textual.geometry import Region

from console.clients.aside import Aside
from console.core.model import Effect, Proposal, Verdict
from console.tui.lane import Lane
from console.tui.panes.base import Pane, View
from console.tui.panes.problems import ProblemsPane, key_of
from console.tui.panes.why_details import WhyPane
from console.tui.screens.base import TUNED, BoxScreen, Places
from console.tui.screens.problems import open_details

AGAIN_S = 30.0
"""Seconds after which effects are reckoned anew: traffic changes."""
RECKONING = "reckoning what the batcher model expects …"


class WhyScreen(BoxScreen):
    """All verdicts with their proof."""

    NAME = "why"
    FOOTER = (
        ("move.down", "k next"),
        ("open", "open its screen"),
        "why.tune",
        "why.loadtest",
        "copy",
        ("escape", "back"),
        "palette",
        "help",
    )

    def __init__(self) -> None:
        super().__init__()
        self._aside = Aside()
        self._lane = Lane(self.later)
        self._asked: tuple[tuple[object, ...], ...] = ()
        """Deeds of the proposals whose effects were asked for last."""
        self._at = float("-inf")

    def make_panes(self) -> Iterable[Pane]:
        yield WhyPane(id="why-details")

    @property
    def pane(self) -> WhyPane:
        """The verdict shown."""
        return cast("WhyPane", self.panes["why-details"])

    def place(self, body: Region) -> Places:
        return {"why-details": body}

    def adapt(self, view: View) -> None:
        verdicts = view.snapshot.verdicts
        shown = verdicts[self.pane.place(verdicts)] if verdicts else None
        proposals = shown.proposals if shown is not None else ()
        deeds = tuple(one.deed for one in proposals)
        if not proposals or self._lane.busy or (deeds == self._asked and view.mono - self._at < AGAIN_S):
            return
        self._asked, self._at = deeds, view.mono
        self.pane.reckoning = RECKONING
        targets = {one.target for one in proposals}
        rows = tuple(row for row in view.snapshot.models if row.name in targets)
        self._lane.ask(
            lambda: self._aside.call("console.planning.effect", "effects", rows, proposals),
            lambda found, error: self._told(proposals, found, error),
        )

    def _told(self, proposals: tuple[Proposal, ...], found: tuple[Effect, ...] | None, error: str) -> None:
        pane = self.pane
        if found is None:
            pane.effects, pane.reckoning = {}, error
        else:
            pane.effects = dict(zip((one.deed for one in proposals), found, strict=True))
        pane.again()

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

    def proposal(self) -> Proposal | None:
        """The first that helps by the batcher model, as far as that was reckoned."""
        verdict, effects = self.pane.verdict(), self.pane.effects
        found = [one for one in verdict.proposals if one.action == TUNED] if verdict is not None else []
        good = [one for one in found if one.deed in effects and effects[one.deed].helps == "yes"]
        return next(iter(good or found), None)

    def open_chosen(self) -> None:
        verdict = self.pane.verdict()
        if verdict is not None:
            open_details(self, verdict)
