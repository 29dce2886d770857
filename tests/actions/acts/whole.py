"""An action without a target, whose box is nothing at all."""

from __future__ import annotations

from collections.abc import Mapping

from console.actions.base import Action, Run
from console.actions.box import Box
from console.core.plan import Field, Outcome, Plan, Target


class Whole(Action):
    """Say two words."""

    NAME = "test.whole"
    FIELDS = (Field("word", "the first"), Field("more", "the second"))

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        return Plan(self.NAME, Target("server", "triton"), values, "Say it", "Say", "safe")

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return {}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return Outcome("done", f"{plan.values['word']} {plan.values['more']}")
