"""A Box that looks at a test's own Triton container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from console.actions.base import Action
from console.actions.box import Box, BoxSpec
from console.clients.podman_control import PodmanControl
from console.config import Actions, Podman, Safety, Settings
from console.core.plan import Outcome, Plan, Target
from tests.actions.fake_run import FakeRun
from tests.lab.own import OwnTriton


def settings(own: OwnTriton, read_only: bool = False, start_timeout: float = 30.0) -> Settings:
    """Those that name this container; short limits."""
    actions = Actions(start_timeout=start_timeout, stop_timeout=40)
    return Settings(podman=Podman(own.socket, own.name), actions=actions, safety=Safety(read_only))


@contextlib.contextmanager
def own_box(own: OwnTriton, state: Path, read_only: bool = False, start_timeout: float = 30.0) -> Iterator[Box]:
    """Closed afterwards."""
    box = Box(BoxSpec(settings(own, read_only, start_timeout)), state)
    try:
        yield box
    finally:
        box.close()


def done(
    action: Action, box: Box, target: str, run: FakeRun | None = None, values: Mapping[str, str] | None = None
) -> tuple[Plan, Outcome]:
    """Plan, check again, run."""
    plan = action.plan(box, target, values or {})
    assert not plan.refused, plan.refused
    action.recheck(box, plan)
    return plan, action.run(box, plan, run or FakeRun())


def left_as_told(action: Action, box: Box, plan: Plan, outcome: Outcome) -> bool:
    """An undo is possible: the state is the one that the outcome names."""
    now = action.state(box, Target(plan.target.kind, plan.target.name))
    return dict(now) == dict(outcome.left)


def containers(own: OwnTriton) -> dict[str, str]:
    """Name -> state of this test's containers."""
    control = PodmanControl(own.socket)
    try:
        names = control.names()
    finally:
        control.close()
    return {name: state for name, state in names.items() if name == own.name or name.startswith(f"{own.name}-")}
