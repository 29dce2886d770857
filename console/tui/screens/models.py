"""Models (2): the union list at the left, all that is known about the chosen model at the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.core.model import ModelKey
from console.tui.commands import COMMANDS, Command, shown
from console.tui.panes.base import Pane, View
from console.tui.panes.model_details import Key, ModelDetails
from console.tui.panes.models_list import ModelsList, VersionKey
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.overview import Ask
from console.tui.widgets.lines import LineView

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

LIST_WIDTH, NARROW_LIST = 44, 42
WIDE = 120
KEYS = (
    ("models.swap", ""),
    ("models.load", ""),
    ("models.unload", ""),
    ("models.reload", ""),
    ("models.back", ""),
    ("models.tune", ""),
    ("models.ask", "ask"),
    ("models.diff", ""),
    ("models.trace", ""),
    ("models.keep", ""),
    ("copy", "copy name"),
    ("log", "its log"),
)
"""Commands that the details list, with other words than their labels where these say too little."""
LIST_SHARE = 3
"""Under 100 columns the list takes one of so many parts of the height, the details the rest."""


class ModelsScreen(BoxScreen):
    """Every model, every version, and what is known about the chosen one."""

    NAME = "models"
    FOOTER = (
        "models.swap",
        "models.load",
        "models.unload",
        "models.reload",
        "models.ask",
        "filter",
        ("sort.left", "> sort"),
        "view.next",
        ("escape", "back"),
        "palette",
        "help",
    )
    FOOTERS = (
        (
            "list",
            (
                ("sort.left", "> sort column"),
                "sort.turn",
                "filter",
                ("view.next", "show: all, on disk, loaded"),
                "maximise",
                "open",
                ("escape", "back"),
                "palette",
                "help",
            ),
        ),
        (
            "model",
            (
                "models.swap",
                "models.load",
                "models.unload",
                "models.reload",
                "models.back",
                "models.tune",
                "models.loadtest",
                "models.ask",
                "models.diff",
                "log",
                "models.trace",
                "models.keep",
                "undo",
            ),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._arriving = True
        """True until the first showing after the screen was opened."""

    def make_panes(self) -> Iterable[Pane]:
        yield ModelsList(id="models-list")
        yield ModelDetails(id="model-details")

    @property
    def listed(self) -> ModelsList:
        """The left pane."""
        return cast("ModelsList", self.panes["models-list"])

    @property
    def details(self) -> ModelDetails:
        """The right pane."""
        return cast("ModelDetails", self.panes["model-details"])

    def place(self, body: Region) -> Places:
        if self.compact:
            height = max(5, body.height // LIST_SHARE)
            top, bottom = body.split_horizontal(min(height, body.height))
            return {"models-list": top, "model-details": bottom}
        left, right = body.split_vertical(LIST_WIDTH if body.width >= WIDE else NARROW_LIST)
        return {"models-list": left, "model-details": right}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        self.details.answers = dict(self.app_.answers)
        self.details.own = self.app_.acting.own
        self.details.keys = tuple(self._keys())
        if self._arriving and view.snapshot.models:
            self._arriving = False
            self._arrive(view)

    def _keys(self) -> Iterator[Key]:
        for id_, word in KEYS:
            command = COMMANDS[id_]
            yield Key(shown(command.KEYS[0]), word or command.LABEL, command().why_off(self.app_) is None)

    def on_screen_resume(self) -> None:
        self._arriving = True

    def _arrive(self, view: View) -> None:
        """The list's cursor stands on the model that was chosen elsewhere, or on the busiest."""
        key = self.app_.chosen or (view.model.key if view.model is not None else None)
        here = self.listed.cursor
        if key is None or (isinstance(here, VersionKey) and here.model == key.name):
            return
        target = VersionKey(key.name, key.version)
        self.listed.cursor = target
        self._choose(target, view)
        self.call_after_refresh(self.listed.select, target)

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        if isinstance(message.key, VersionKey) and self.listed.view is not None:
            self._choose(message.key, self.listed.view)

    def _choose(self, key: VersionKey, view: View) -> None:
        """The details follow the cursor; so do the trends of other screens, where the server knows the version."""
        rows = [row for row in view.snapshot.models if row.name == key.model]
        known = next((row.key for row in rows if row.version == key.version), None)
        served = next((row.key for row in rows if row.state == "READY"), rows[0].key if rows else None)
        self.details.chosen = ModelKey(key.model, key.version) if key.version else served or ModelKey(key.model, "")
        self.app_.chosen = known or served or self.app_.chosen
        self.details.top = 0
        self.details.again()

    def open_chosen(self) -> None:
        """`enter`: to the details, over the whole body where they have little room."""
        self.set_focus(self.details, scroll_visible=False)
        if self.compact and self.maximised is None:
            self.toggle_maximised(self.details)

    def step_out(self) -> bool:
        if self.details.whole_difference:
            self.toggle_difference()
            return True
        if super().step_out():
            if self.compact:
                self.set_focus(self.listed, scroll_visible=False)
            return True
        if self.focused is self.details:
            self.set_focus(self.listed, scroll_visible=False)
            return True
        return False

    def toggle_difference(self) -> None:
        """`d`: the whole difference live / disk in the details' place; again: the details."""
        self.details.whole_difference = not self.details.whole_difference
        self.details.top = 0
        self.details.again()


class Difference(Command):
    """Difference between the served configuration and config.pbtxt."""

    ID, KEYS, LABEL, SCOPE = "models.diff", ("d",), "diff", "models"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if isinstance(app.box, ModelsScreen) else "this works on Models only"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, ModelsScreen):
            app.box.toggle_difference()


class AskHere(Ask):
    """Ask the chosen model once: its kept question, else one made from its metadata; shows the answer and its time."""

    ID, SCOPE = "models.ask", "models"
