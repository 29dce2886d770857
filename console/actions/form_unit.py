"""The form of the container's systemd unit: the one that fits it, and its difference to what is installed."""

from __future__ import annotations

from collections.abc import Mapping

from console.actions.box import Box
from console.actions.forms import OpenForm, given, of_field, rows, wrong_ones
from console.actions.target import ContainerView, chosen_name
from console.actions.unit import Write
from console.actions.wanted_unit import wanted_unit
from console.clients import unit_text
from console.core.form import Judged, Look, Remark, Wish
from console.core.plan import WrongInput
from console.core.text import one_line

LABELS = {"kind": "kind", "name": "unit's name", "devices": "devices"}


class UnitForm(OpenForm):
    """`unit.write`."""

    def __init__(self, box: Box, target: str) -> None:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
        owner = state.unit or ""
        now = {
            "kind": ("auto", "auto"),
            "name": ("", owner.removesuffix(".service") or one_line(name, 80)),
            "devices": ("", "as the container has them"),
        }
        managed = f"managed by {owner} ({state.unit_origin})" if owner else "managed by no unit"
        self._identity = {"container": state.id}
        self.look = Look(
            action=Write.NAME,
            target=name,
            title=f"Unit of container {one_line(name, 80)}",
            rows=rows(Write.FIELDS, LABELS, now),
            needs_change=False,
            told=(f"{one_line(managed, 200)}; writing a unit starts and stops nothing",),
        )

    def judge(self, box: Box, values: Mapping[str, str]) -> Judged:
        wanted = given(values)
        name = self.look.target
        wrong = wrong_ones(Write, wanted, lambda one: None)
        if wrong:
            return Judged(frozenset(wanted), wrong)
        checked = Write.checked(wanted)
        try:
            plan = Write().plan(box, name, checked)
            made = wanted_unit(box, name, checked)
        except WrongInput as error:
            return Judged(frozenset(wanted), (of_field(error, tuple(LABELS)) or Remark("name", "fail", str(error)),))
        lines = (
            f"  {made.paths[0]}",
            *(f"! {plan.refused}" for _ in [0] if plan.refused),
            "DIFFERENCE to what is installed",
            *(plan.difference or ("  none",)),
            "GENERATED",
            *(f"  {line}" for line in unit_text.masked(made.made.text).splitlines()),
        )
        wish = Wish(Write.NAME, name, wanted, tuple(wanted), self._identity)
        return Judged(frozenset(wanted), (), (wish,), lines)
