"""Overview (1): the box on one page."""

from __future__ import annotations

from collections.abc import Iterable

from textual.geometry import Region

from console.tui.panes.base import Pane
from console.tui.screens.base import BoxScreen, Places


class OverviewScreen(BoxScreen):
    """The box on one page."""

    NAME = "overview"
    FOOTER = ("pane.next", "open", "problems", "why", "log", "ask", "filter", "palette", "help", ("back", "quit"))

    def make_panes(self) -> Iterable[Pane]:
        return ()

    def place(self, body: Region) -> Places:
        return {}
