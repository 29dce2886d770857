"""Keys that lead from a screen to what explains it or where it is changed: problems, why, the log, Tune."""

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


class TuneChosen(Command):
    """Tune the chosen model."""

    ID, KEYS, LABEL, SCOPE = "tune", ("t",), "tune", "overview"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if self.model(app) is not None else "there is no model to tune"

    def model(self, app: ConsoleApp) -> str | None:
        """Name of the model; None where there is none."""
        from console.tui.acts import model_here

        key = model_here(app)
        return None if key is None else key.name

    def run(self, app: ConsoleApp) -> None:
        app.choose_model(self.model(app))
        app.go("tune")


class TuneListed(TuneChosen):
    """Tune the model under the cursor."""

    ID, SCOPE = "models.tune", "models"


class TuneJudged(TuneChosen):
    """Tune the model of this verdict, with the first proposal that helps filled in."""

    ID, SCOPE = "why.tune", "why"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if self.model(app) is not None else "Tune does not help here: enter opens the screen that does"

    def model(self, app: ConsoleApp) -> str | None:
        from console.tui.panes.problems import digit_of

        verdict, proposal = app.box.verdict(), app.box.proposal()
        if proposal is not None:
            return proposal.target
        return verdict.model if verdict is not None and digit_of(verdict) == "3" else None

    def run(self, app: ConsoleApp) -> None:
        proposal = app.box.proposal()
        super().run(app)
        if proposal is not None:
            from console.tui.screens.tune import TuneScreen

            if isinstance(app.box, TuneScreen):
                app.box.fill(proposal.target, proposal.values)


class TuneProblem(TuneJudged):
    """Tune the model of this problem, where that can help."""

    ID, SCOPE = "problems.tune", "problems"
