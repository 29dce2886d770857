"""The form of a card's settings: persistence, clock lock, power limit, compute mode. Each is a change of its own."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from console.actions.box import Box
from console.actions.forms import OpenForm, given
from console.actions.gpu import NOT_KNOWN, RESET, Clocks, ComputeMode, GpuSetting, Persistence, PowerLimit, find_card
from console.core.form import Judged, Look, Present, Remark, Wish
from console.core.model import GpuState, SourceError
from console.core.plan import Field, Refused, WrongInput
from console.core.text import one_line, whole_number

SETTINGS: Mapping[str, GpuSetting] = {
    "persistence": Persistence(),
    "clocks": Clocks(),
    "power_limit": PowerLimit(),
    "compute_mode": ComputeMode(),
}
"""By the name of the form's field: two of them call their own `mode`."""


class GpuForm(OpenForm):
    """The settings of one card."""

    def __init__(self, box: Box, target: str) -> None:
        card = find_card(box, target)
        self._uuid = card.uuid or ""
        self.look = Look(
            action="gpu",
            target=self._uuid,
            title=f"Settings of GPU {card.index}, {one_line(card.name or 'unnamed', 60)}",
            rows=tuple(_row(box, card, name, setting) for name, setting in SETTINGS.items()),
            told=("each setting is a change with a plan of its own; a reboot ends them all",),
        )

    def judge(self, box: Box, values: Mapping[str, str]) -> Judged:
        remarks: list[Remark] = []
        wishes: list[Wish] = []
        lines: list[str] = []
        for name, value in given(values).items():
            setting = SETTINGS[name]
            asked = {setting.field.name: value}
            try:
                plan = setting.plan(box, self._uuid, setting.checked(asked))
            except (WrongInput, Refused, SourceError) as error:
                text = error.message if isinstance(error, SourceError) else str(error)
                remarks.append(Remark(name, "fail", text.replace(f"`{setting.field.name}`", f"`{name}`")))
                continue
            if plan.refused:
                remarks.append(Remark(name, "warn", plan.refused))
            identity = {"uuid": self._uuid}
            wishes.append(Wish(setting.NAME, self._uuid, asked, (name,), identity))
            lines += [f"  {plan.title}", *(f"    {line}" for line in (*plan.effects, *plan.by_hand))]
        return Judged(frozenset(given(values)), tuple(remarks), tuple(wishes), tuple(lines))


def _row(box: Box, card: GpuState, name: str, setting: GpuSetting) -> Present:
    now = setting.now(box, card)
    field = replace(setting.field, name=name)
    start = "" if now in (NOT_KNOWN, RESET) else now
    live = setting.shown(now)
    if name == "power_limit":
        field = _watts(field, card)
    cannot = setting.refusal(card, now) if name != "compute_mode" else ""
    return Present(field, setting.WHAT, start, live, cannot)


def _watts(field: Field, card: GpuState) -> Field:
    """Stepped by whole watts within the card's limits, where these are whole; another one is typed."""
    low, high = card.power_min_w, card.power_max_w
    told = f"watts from {low:g} to {high:g}" if low is not None and high is not None else field.help
    if card.power_limit_w is None or whole_number(f"{card.power_limit_w:g}") is None:
        return replace(field, help=told)
    bounds = [None if one is None else int(one) for one in (low, high)]
    return replace(field, kind="int", low=bounds[0], high=bounds[1], help="the most that it may draw")
