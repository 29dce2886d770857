"""`!`: a shell inside the container. The console steps aside for it; who was inside and how long is in the audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from console.core.act_events import OUTCOME_SIGNS
from console.core.text import one_line
from console.tui.acting import FromThread
from console.tui.acts import ContainerAct, container_here
from console.tui.aside import can_step_aside, step_aside
from console.tui.desk import Request
from console.tui.lane import Lane

if TYPE_CHECKING:
    from console.core.plan import Outcome, Plan
    from console.tui.app import ConsoleApp
    from console.tui.late_shell import Entered, LateShell

TOLD = "\r\ngpuconsole steps aside: exit, or ctrl+d, comes back. Inside {name}:\r\n"


class ShellInside(ContainerAct):
    """Shell inside the container: the console steps aside, and who was inside is audited (plan first)."""

    ID, KEYS, LABEL, ACTION, WANTS = "container.shell", ("exclamation_mark",), "shell", "container.shell", "running"

    def why_not(self, app: ConsoleApp) -> str | None:
        if app.session.simulated is not None:
            return "this box is simulated: there is no container to enter"
        if not can_step_aside(app):
            return "the console has no terminal of its own here that a shell could have"
        return super().why_not(app)

    def run(self, app: ConsoleApp) -> None:
        found = container_here(app)
        if found is not None:
            identity = {"id": found.id[:12], "state": found.state}
            app.acting.request(Request(self.ACTION, found.name, {}, identity), partial(enter, app))


def enter(app: ConsoleApp, plan: Plan) -> None:
    """After Yes: write it down in a thread, then give the terminal away."""
    from console.tui.late_shell import LateShell

    shells = LateShell(app.session, app.state.folder)

    def begun(entered: Entered | None, error: str) -> None:
        if entered is None:
            app.notify(error, severity="error", timeout=15, markup=False)
        else:
            app.run_worker(_inside(app, shells, plan, entered), name="shell")

    _lane(app).ask(lambda: shells.enter(plan), begun)


async def _inside(app: ConsoleApp, shells: LateShell, plan: Plan, entered: Entered) -> None:
    code = await step_aside(app, entered.argv, TOLD.format(name=one_line(plan.target.name, 100)))

    def ended(outcome: Outcome | None, error: str) -> None:
        text = one_line(outcome.text, 300) if outcome else f"that the shell ended is not written down: {error}"
        good = outcome is not None and OUTCOME_SIGNS[outcome.word] == "ok"
        app.notify(text, severity="information" if good else "error", timeout=8, markup=False)
        app.acting.read_records()

    _lane(app).ask(lambda: shells.left(entered, code), ended)


def _lane(app: ConsoleApp) -> Lane:
    def later(call: Callable[[], None]) -> None:
        app.post_message(FromThread(call))

    return Lane(later)
