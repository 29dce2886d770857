"""Keys that lead from every screen to what explains it: problems, why, the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.tui.commands import Command

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class Problems(Command):
    """Problems, newest cause first; enter jumps."""

    ID, KEYS, LABEL = "problems", ("e",), "problems"

    def run(self, app: ConsoleApp) -> None:
        app.go("problems")


class Why(Command):
    """Why: all verdicts with rule, figures and source."""

    ID, KEYS, LABEL = "why", ("w",), "why"

    def run(self, app: ConsoleApp) -> None:
        app.go("why")


class Log(Command):
    """Log of the Triton container, filtered to the chosen model; on Container: the log over the whole screen."""

    ID, KEYS, LABEL = "log", ("l",), "log"

    def run(self, app: ConsoleApp) -> None:
        # here and not above: no screen but the Overview is imported before the first paint
        from console.tui.screens.container import ContainerScreen

        if isinstance(app.box, ContainerScreen):
            app.box.toggle_maximised(app.box.log_pane)
            return
        name = app.chosen.name if app.chosen is not None else ""
        app.go("container")
        if isinstance(app.box, ContainerScreen):
            app.box.show_model(name)
            app.refresh_now()
