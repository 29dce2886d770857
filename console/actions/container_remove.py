"""Remove a container that does not run; what it was made of is kept in a private file."""

from __future__ import annotations

import time
from collections.abc import Mapping

from console.actions import saved_specs
from console.actions.base import Run
from console.actions.box import Box
from console.actions.container import ContainerAction, managed, other_here, title
from console.actions.container_spec import captured
from console.actions.target import (
    ContainerView,
    chosen_name,
    identity,
    is_running,
)
from console.core.plan import (
    JournalLine,
    Outcome,
    Plan,
    Step,
    Target,
    UndoSpec,
)


class Remove(ContainerAction):
    """Remove a container that does not run; what it was made of is kept, so that it can be made again."""

    NAME = "container.remove"
    PHASES = ("keep", "remove")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            missing = captured(view).not_captured
        refused = f"it is {state.state}: stop it first" if is_running(state) else ""
        if state.unit and not refused:
            refused = f"it belongs to {state.unit}, which makes it anew at each start: disable the unit instead"
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=title(box, "Remove", state),
            yes="Remove",
            danger="danger",
            checks=managed(state),
            steps=(
                Step("keep", "keep its specification in the console's state folder", "nothing is removed"),
                Step("remove", "remove it", "it is still there", (f"DELETE /containers/{name}",)),
            ),
            effects=("its log and whatever was written inside it are lost", *missing),
            by_hand=(f"podman rm {name}",),
            undo="create it again from the kept specification (stopped); its log does not come back",
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = plan.target.name
        with ContainerView(box, name) as view:
            state = view.known()
            with run.phase("keep", "keep its specification"):
                saved = saved_specs.save(box, view)
                run.keep(saved=saved)
            with run.phase("remove", f"remove {name}"):
                control = box.podman()
                try:
                    control.remove(state.id)
                finally:
                    control.close()
            left = identity(view.state())
        undo = UndoSpec("container.create", name, {"saved": saved, "start": "false"}, f"create {name} again")
        return Outcome("done", f"{name} is removed", (), undo, left)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        with ContainerView(box, plan.target.name) as view:
            there = view.state() is not None
        return ("it is still there", "remove it", "") if there else ("it is removed", "", "create it again")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("remove", "create it again"):
            saved_specs.create_again(box, plan.target.name, run.kept().get("saved", ""))
        return Outcome("undone", f"{plan.target.name} is there again, stopped")
