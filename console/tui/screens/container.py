"""Container (5): what runs, what it uses, and its live log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.tui.commands import Command
from console.tui.panes.base import Pane, View
from console.tui.panes.container_facts import ContainerFacts
from console.tui.panes.container_log import ContainerLog
from console.tui.panes.container_resources import ContainerResources
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.stack import stacked

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

FACTS_HEIGHT = 12
LOG_LEAST = 10


class ContainerScreen(BoxScreen):
    """The Triton container and its log."""

    NAME = "container"
    FOOTER = (
        "container.follow",
        "filter",
        "container.start",
        "container.stop",
        "container.restart",
        ("container.change", "change"),
        ("container.next", "N next match"),
        ("sort.left", "> span"),
        "view.next",
        ("copy", "copy line"),
        ("open", "meaning"),
        ("log", "full screen"),
        ("escape", "back"),
        "palette",
        "help",
    )
    FOOTERS = (
        (
            "log",
            (
                "container.follow",
                "filter",
                ("container.next", "N next match"),
                ("open", "meaning"),
                ("sort.left", "> span"),
                ("view.next", "wrap"),
                "container.verbose",
                ("copy", "copy line"),
                ("log", "full screen"),
                "palette",
                "help",
            ),
        ),
        (
            "box",
            (
                "container.start",
                "container.stop",
                "container.restart",
                "container.change",
                "container.pull",
                "container.back",
                "container.unit",
                "container.shell",
                "container.remove",
                "undo",
            ),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._shown: View | None = None
        """The View that was shown last; the same comes again while the screen is held."""
        self._model: str | None = None
        """The model that the log is to be filtered to, as soon as the screen is shown."""

    def make_panes(self) -> Iterable[Pane]:
        yield ContainerLog(id="container-log")
        yield ContainerFacts(id="container-facts")
        yield ContainerResources(id="container-resources")

    @property
    def log_pane(self) -> ContainerLog:
        """The log."""
        return cast("ContainerLog", self.panes["container-log"])

    def place(self, body: Region) -> Places:
        if self.compact:
            order = ("container-facts", "container-resources", "container-log")
            return stacked(body, order, self.focused.id if self.focused else "container-log")
        height = max(0, min(FACTS_HEIGHT, body.height - LOG_LEAST))
        top, bottom = body.split_horizontal(height)
        left, right = top.split_vertical(top.width // 2)
        return {"container-facts": left, "container-resources": right, "container-log": bottom}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        self.log_pane.source = self.app_.log_lines.lines
        self.log_pane.held = view is self._shown
        self._shown = view
        if self._model is not None:
            self.log_pane.filter, self._model = self._model, None
            self.log_pane.follow = True

    def on_descendant_focus(self) -> None:
        if self.compact:
            self.relayout()

    def open_chosen(self) -> None:
        """`enter`: the whole line, wrapped, and what it means; again: one row."""
        if self.focused is self.log_pane:
            self.log_pane.toggle_line()

    def show_model(self, name: str) -> None:
        """The log filtered to one model, from the next showing on."""
        self._model = name


class _OnLog(Command):
    """Base of what works on the log."""

    SCOPE = "container"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if isinstance(app.box, ContainerScreen) else "this works on Container only"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, ContainerScreen):
            self.on_log(app.box.log_pane, app)

    def on_log(self, log: ContainerLog, app: ConsoleApp) -> None:
        """Do it to the log."""
        raise NotImplementedError


class Follow(_OnLog):
    """Follow the log's end on, off."""

    ID, KEYS, LABEL = "container.follow", ("f",), "follow"

    def on_log(self, log: ContainerLog, app: ConsoleApp) -> None:
        log.toggle_follow()


class NextMatch(_OnLog):
    """Next match of the log's filter."""

    ID, KEYS, LABEL = "container.next", ("n",), "next match"

    def on_log(self, log: ContainerLog, app: ConsoleApp) -> None:
        app.tell_if_not(log.next_match(1), _no_match(log))


class PreviousMatch(_OnLog):
    """Previous match of the log's filter."""

    ID, KEYS, LABEL = "container.previous", ("N",), "match before"

    def on_log(self, log: ContainerLog, app: ConsoleApp) -> None:
        app.tell_if_not(log.next_match(-1), _no_match(log))


def _no_match(log: ContainerLog) -> str:
    return "no further match" if log.filter else "no filter is set: press /"
