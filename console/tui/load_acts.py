"""Keys of load tests beyond their screen: `ctrl+x` stops mine from everywhere, `L` opens Load with a model chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.tui.commands import Command
from console.tui.jumps import TuneChosen

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class StopLoad(Command):
    """Stop my running load, from every screen, at once, without asking."""

    ID, KEYS, LABEL, KIND = "loads.stop", ("ctrl+x",), "stop load", "safe"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if app.loads.current is not None else "no load of this console runs"

    def run(self, app: ConsoleApp) -> None:
        app.loads.stop()


class LoadChosen(TuneChosen):
    """Load, with the chosen model filled in."""

    ID, KEYS, LABEL, SCOPE = "loads.open", ("L",), "load test", "overview"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if self.model(app) is not None else "there is no model to load"

    def run(self, app: ConsoleApp) -> None:
        app.choose_model(self.model(app))
        app.go("load")


class LoadListed(LoadChosen):
    """Load, with the model under the cursor filled in."""

    ID, SCOPE = "models.loadtest", "models"


class LoadTuned(LoadChosen):
    """Load, with this model filled in."""

    ID, SCOPE = "tune.loadtest", "tune"


class LoadJudged(LoadChosen):
    """Load the model of this verdict, where a load tells more."""

    ID, SCOPE = "why.loadtest", "why"

    def why_off(self, app: ConsoleApp) -> str | None:
        from console.tui.panes.problems import digit_of

        verdict = app.box.verdict()
        if verdict is None or digit_of(verdict) != "4":
            return "a load tells no more here: enter opens the screen that does"
        return None

    def model(self, app: ConsoleApp) -> str | None:
        verdict = app.box.verdict()
        return None if verdict is None else verdict.model


class LoadProblem(LoadJudged):
    """Load the model of this problem, where a load tells more."""

    ID, SCOPE = "problems.loadtest", "problems"
