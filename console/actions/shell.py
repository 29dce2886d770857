"""A shell inside the container: planned like any change, held in the operator's own terminal, written down twice.

No runner does it: it needs a keyboard, and it ends with the terminal. The box's lock is not taken, as a shell may stay
open for hours; what is typed inside is not recorded, only who was inside, when and for how long.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping

from msgspec import Struct

from console.actions import audit, journal, runner
from console.actions.base import Run
from console.actions.box import Box
from console.actions.container import ContainerAction
from console.actions.target import ContainerView, chosen_name, identity, is_running
from console.actions.who import operator
from console.core import units
from console.core.plan import UNAUDITED, Check, Outcome, Plan, Refused, Step, Target

SHELL = "command -v bash >/dev/null && exec bash; exec sh"
"""bash where the image has it; in a shell without it `exec bash || exec sh` ends at the first."""
NOT_STARTED = {
    125: "Podman could not enter it",
    126: "its shell cannot be run",
    127: "no shell was found in it",
}
"""Exit codes of `podman exec` that are Podman's own (podman-exec(1))."""


class Entered(Struct, frozen=True):
    """A shell that is about to begin, and has been written down."""

    request: journal.Request
    argv: tuple[str, ...]
    """To be run with the terminal as it is; no shell of the host reads it."""


class Shell(ContainerAction):
    """Open a shell inside the running container, in this terminal."""

    NAME = "container.shell"
    PHASES = ("shell",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=f"Shell inside container {name} on {box.host}",
            yes="Enter",
            danger="caution",
            note="by hand from there",
            checks=(Check("ok" if is_running(state) else "fail", f"{name} is {state.state}"),),
            steps=(Step("shell", "the console steps aside until the shell ends (exit, or ctrl+d)", "it comes back"),),
            effects=(
                "nothing stops; what is done inside is up to you, and the console does not see or undo it",
                "written down: who was inside, when and for how long; not what was typed",
                "files changed inside are gone when the container is made anew; measuring goes on meanwhile",
                "others may change the box meanwhile: a shell takes no lock",
            ),
            by_hand=(shlex.join((*_command(box.podman_url, name), "sh")),),
            undo="cannot be undone: what is done inside is not known here",
            refused=self._refused(box, name, is_running(state)),
            wall=time.time(),
            here=True,
        )

    def _refused(self, box: Box, name: str, runs: bool) -> str:
        if box.spec.simulated is not None:
            return "this box is simulated: there is no container to enter"
        return "" if runs else f"{name} does not run: a shell needs a running container (o starts it)"

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Never in the runner, which has no terminal."""
        raise Refused(f"a shell needs a terminal of its own: press ! on Container, or type {plan.by_hand[0]}")


def enter(box: Box, plan: Plan) -> Entered:
    """Look again, write down the intent, and give the command. Refused and SourceError: nothing was begun."""
    box.changing()
    if plan.refused:
        raise Refused(plan.refused)
    Shell().recheck(box, plan)
    wall = time.time()
    request = journal.Request(
        journal.new_id(wall),
        wall,
        box.spec,
        plan,
        operator(box.root),
        str(box.state),
        plan.values.get(UNAUDITED) == "true",
    )
    _write(box, request, None)
    argv = (*_command(box.podman_url, plan.target.identity["id"]), "/bin/sh", "-c", SHELL)
    return Entered(request, argv)


def left(box: Box, entered: Entered, code: int) -> Outcome:
    """Write down that it ended, with `podman exec`'s exit code; a negative one is the signal that ended it."""
    took = units.age(time.time() - entered.request.wall)
    if code in NOT_STARTED:
        outcome = Outcome("failed", f"{NOT_STARTED[code]} (exit {code})")
    else:
        how = f"ended by signal {-code}" if code < 0 else f"left with exit {code}"
        outcome = Outcome("done", f"the shell was {how} after {took}")
    _write(box, entered.request, outcome)
    return outcome


def _command(url: str, container: str) -> tuple[str, ...]:
    """By Podman's own client over the service that knows the container, whoever's it is."""
    return ("podman", "--url", url, "exec", "--interactive", "--tty", container)


def _write(box: Box, request: journal.Request, outcome: Outcome | None) -> None:
    masks = runner.masks_of(request.plan, box)
    line = runner.record(
        request, masks, "intent" if outcome is None else "outcome", outcome, time.time() - request.wall
    )
    try:
        audit.write(box.state, line)
    except OSError as error:
        if request.unaudited or outcome is not None:
            audit.to_syslog(line)
            return
        raise Refused(
            f"the audit record cannot be written ({error.strerror}): nothing was done; free space "
            "there, or tick unaudited"
        ) from error
