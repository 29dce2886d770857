"""What an action is, and what it gets to work with.

An action is one file here with one or more classes that derive from `Action`; `registry.find()` finds them. It plans in
any thread, and runs in the detached runner only. It never prints, never asks, and never imports the tui.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

from msgspec.structs import replace

from console.actions.box import Box
from console.actions.values import checked
from console.core.model import SourceError
from console.core.plan import Field, JournalLine, Outcome, Plan, Refused, Target, WrongInput

SEEN = "can be seen"
"""In the identity of an interrupted change's target."""


class Run(Protocol):
    """The runner's side of a running action (runner.py); all that it is told goes to the journal first."""

    cancelled: threading.Event
    """Set when the operator asked to stop and go back. Look at it between steps and while waiting."""

    def phase(self, name: str, text: str = "") -> AbstractContextManager[None]:
        """A step: its beginning is on disk before the block runs, its end and time (or failure) after."""

    def note(self, text: str) -> None:
        """Progress within a step: `11.1 GiB and rising`."""

    def keep(self, **facts: str) -> None:
        """Facts that finishing or undoing will need (old name, backup path, version before); synced before it
        returns."""

    def kept(self) -> Mapping[str, str]:
        """All facts kept so far, of a run before as well when this run finishes or undoes that one."""

    def left(self) -> float:
        """Seconds to the plan's limit, 0 at least."""

    def wait(self, seconds: float) -> bool:
        """Sleep unless cancelled; True when cancelled."""


class Action(abc.ABC):
    """One change. The docstring's first line is its help."""

    NAME: ClassVar[str] = ""
    """`container.stop`; "" = a base class."""
    TARGET: ClassVar[str] = ""
    """What `do ACTION TARGET` wants there: `container`, `model`, `gpu`, `image`."""
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    LOCKS: ClassVar[bool] = True
    """False for what only says a word to a change that runs, and so must not wait for its end."""
    PHASES: ClassVar[tuple[str, ...]] = ("do",)
    """Every phase that `run` can be in when it is killed; a test reaches each."""

    @classmethod
    def help(cls) -> str:
        """One sentence: the docstring's first line."""
        return next(iter((cls.__doc__ or "").strip().splitlines()), "")

    @classmethod
    def checked(cls, values: Mapping[str, str]) -> Mapping[str, str]:
        """The values held against FIELDS, in one form each; WrongInput otherwise. The runner calls it before `plan`."""
        return checked(cls.FIELDS, values)

    @abc.abstractmethod
    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """What would be done, from a fresh look at the box. Sends nothing that changes anything. WrongInput for
        values and targets that cannot be; `Plan.refused` where it cannot be done now."""

    @abc.abstractmethod
    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """The state of the target that this action changes, few and comparable facts (a fresh look): an undo is
        refused when they are not those of `Outcome.left`. Also what `recheck` compares with `Target.identity`."""

    def recheck(self, box: Box, plan: Plan) -> None:
        """Just before the first step: Refused when the target is no longer what the plan was made for."""
        _must_hold(plan, self.state(box, plan.target))

    def left(self, box: Box, target: Target) -> Target:
        """The target as an interrupted run has left it, for the plan that finishes or undoes that."""
        return replace(target, identity={**target.identity, **self._seen(box, target)})

    def recheck_left(self, box: Box, plan: Plan) -> None:
        """Just before an interrupted run is finished or undone: Refused when the target is no longer as `left` saw
        it."""
        _must_hold(plan, self._seen(box, plan.target))

    def _seen(self, box: Box, target: Target) -> Mapping[str, str]:
        """`state`, and whether it can be had: a server that went down with the runner has none."""
        try:
            return {**self.state(box, target), SEEN: "yes"}
        except (Refused, SourceError, WrongInput):
            return {SEEN: "no"}

    @abc.abstractmethod
    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Do it. On failure or cancel go back and return `undone`, or `failed` with the state that is left. Client
        errors that it cannot handle may be raised: the runner calls `interrupted` then."""

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """For a run that was killed: (state now, what finishing does, what undoing does), "" where it cannot be."""
        return ("what it did is not known: look at the target", "", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Finish an interrupted run; `run.kept()` has its facts."""
        raise NotImplementedError

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Undo an interrupted run."""
        raise NotImplementedError


def _must_hold(plan: Plan, now: Mapping[str, str]) -> None:
    for name, was in plan.target.identity.items():
        if now.get(name, was) != was:
            raise Refused(
                f"{plan.target.name} has changed since the plan was made ({name}: {was} then, {now[name]} now): "
                "nothing was done; look again and plan anew"
            )


class Planner(Action):
    """An action that plans another one's deed, as `undo` does: its plan names the action that the runner then runs."""

    @classmethod
    def checked(cls, values: Mapping[str, str]) -> Mapping[str, str]:
        """As they are: the action that is planned holds them against its own fields."""
        return values

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """It has none."""
        return {}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Never by way of a plan of its own."""
        raise Refused(f"{self.NAME} only plans: nothing was done")
