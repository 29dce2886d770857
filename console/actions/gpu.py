"""Settings of a card: persistence, clock lock, power limit, compute mode. Never a reset, never MIG.

All of these live in the driver: a reboot (or reloading the driver) ends them, and every plan says so. A card is known
by its UUID alone. NVML has no getter for a clock lock, so the lock that this console has set is kept in the state
folder, with the boot in which it was set.
"""

from __future__ import annotations

import abc
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from console.actions.base import Action, Run
from console.actions.box import Box
from console.clients.files import write_private
from console.clients.nvml_control import NvmlControl
from console.core.model import GpuState, SourceError
from console.core.plan import (
    Check,
    Danger,
    Field,
    JournalLine,
    Outcome,
    Plan,
    Refused,
    Step,
    Target,
    UndoSpec,
    WrongInput,
)
from console.core.text import one_line, whole_number

RESET = "reset"
NOT_KNOWN = "not known"
_NOT_ROOT = "you are not root: the driver lets only root change this"
_REBOOT = "it lives in the driver: a reboot, or reloading the driver, ends it"
_LIMIT = 30.0
MOST_MHZ = 100_000
"""Where the driver does not tell which clocks it takes: NVML's own number has 32 bits, and ctypes drops the rest."""


class GpuSetting(Action):
    """One setting of one card."""

    TARGET = "gpu"
    PHASES = ("set",)
    WHAT: ClassVar[str] = ""
    """`power limit`."""

    # ------------------------------------------------------------------------------------- what each setting differs in

    @abc.abstractmethod
    def wanted(self, box: Box, card: GpuState, value: str) -> str:
        """The value as it is kept and compared; WrongInput for one that cannot be on this card."""

    @abc.abstractmethod
    def now(self, box: Box, card: GpuState) -> str:
        """The value now, in the same form; NOT_KNOWN where the card does not tell."""

    @abc.abstractmethod
    def apply(self, box: Box, control: NvmlControl, uuid: str, value: str) -> None:
        """Set it."""

    @abc.abstractmethod
    def smi(self, value: str) -> str:
        """The words of nvidia-smi that do the same."""

    @abc.abstractmethod
    def effects(self, card: GpuState, value: str) -> Sequence[str]:
        """What it does, a line each."""

    def refusal(self, card: GpuState, before: str) -> str:
        """Why it cannot be set now; "" = it can."""
        missing = card.missing.get(self.WHAT.replace(" ", "_"), "the driver does not tell")
        return f"GPU {card.index}: {self.WHAT} cannot be read: {missing}" if before == NOT_KNOWN else ""

    def shown(self, value: str) -> str:
        """A value as a person reads it."""
        return value.replace("_", " ")

    def danger(self, card: GpuState, value: str) -> Danger:
        """caution where it may be felt."""
        return "caution"

    # ------------------------------------------------------------------------------------------ the path of them all

    @property
    def field(self) -> Field:
        """The one value that it takes."""
        return self.FIELDS[0]

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        card = find_card(box, target)
        value = values.get(self.field.name, "").strip().lower()
        if not value:
            raise WrongInput(f"{self.NAME} wants {self.field.name}=: {self.field.help}")
        wanted = self.wanted(box, card, value)
        before = self.now(box, card)
        refused = self.refusal(card, before) or _same(self, card, before, wanted)
        name = _name(card)
        return Plan(
            action=self.NAME,
            target=Target("gpu", card.uuid or "", {"uuid": card.uuid or "", self.field.name: before}),
            values={self.field.name: wanted},
            title=f"{self.WHAT.capitalize()} {self.shown(before)} → {self.shown(wanted)}, {name} on {box.host}",
            yes="Set",
            danger=self.danger(card, wanted),
            checks=(
                Check("ok" if before != NOT_KNOWN else "unknown", f"{name}, {card.uuid}: now {self.shown(before)}"),
                *_rights(box),
            ),
            steps=(Step("set", f"{self.WHAT} → {self.shown(wanted)}, then read it back", "nothing has changed"),),
            effects=(*self.effects(card, wanted), _REBOOT),
            by_hand=(f"sudo nvidia-smi -i {card.uuid} {self.smi(wanted)}",),
            undo=self._undo_text(before),
            limit=_LIMIT,
            refused=refused,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        card = find_card(box, target.name)
        return {"uuid": card.uuid or "", self.field.name: self.now(box, card)}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        before = plan.target.identity[self.field.name]
        run.keep(before=before)
        return self._set(box, plan, run, plan.values[self.field.name], before, "done")

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        before, wanted = plan.target.identity[self.field.name], plan.values[self.field.name]
        now = self.state(box, plan.target)[self.field.name]
        finish = f"set {self.WHAT} to {self.shown(wanted)}"
        undo = f"set {self.WHAT} back to {self.shown(before)}"
        if now == wanted:
            return f"{self.WHAT} is {self.shown(now)}, as it was to be", "", undo
        return f"{self.WHAT} is {self.shown(now)}", finish, ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        before = plan.target.identity[self.field.name]
        return self._set(box, plan, run, plan.values[self.field.name], before, "done")

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self._set(box, plan, run, plan.target.identity[self.field.name], "", "undone")

    def _set(self, box: Box, plan: Plan, run: Run, value: str, before: str, word: str) -> Outcome:
        uuid = plan.target.name
        try:
            with run.phase("set", f"{self.WHAT} → {self.shown(value)}"), box.nvml_control() as control:
                self.apply(box, control, uuid, value)
        except SourceError as error:
            by_hand = f"; by hand: {plan.by_hand[0]}" if error.kind == "permission" and plan.by_hand else ""
            if error.kind in ("permission", "protocol"):
                return Outcome("undone", f"nothing was changed: {error.message}{by_hand}")
            return Outcome("failed", f"whether {self.WHAT} was changed is not known: {error.message}")
        now = self.state(box, plan.target)
        if now[self.field.name] != value:
            return Outcome(
                "failed",
                f"the driver took {self.shown(value)} and now says {self.shown(now[self.field.name])}",
                left=now,
            )
        text = f"{self.WHAT} of {plan.target.name} is {self.shown(value)}"
        if word == "undone":
            return Outcome("undone", text, left=now)
        return Outcome("done", text, lines=(_REBOOT,), undo=self._undo(uuid, before), left=now)

    def _undo(self, uuid: str, before: str) -> UndoSpec | None:
        if before == NOT_KNOWN:
            return None
        return UndoSpec(self.NAME, uuid, {self.field.name: before}, f"{self.WHAT} back to {self.shown(before)}")

    def _undo_text(self, before: str) -> str:
        if before == NOT_KNOWN:
            return f"cannot be undone by itself: {self.WHAT} before is not known"
        return f"u sets it back to {self.shown(before)}"


class Persistence(GpuSetting):
    """Keep the driver's state while no process uses the card (persistence mode), or not."""

    NAME = "gpu.persistence"
    WHAT = "persistence"
    FIELDS = (Field("mode", "on or off", "choice", choices=("on", "off")),)

    def wanted(self, box: Box, card: GpuState, value: str) -> str:
        return _choice(self.field, value)

    def now(self, box: Box, card: GpuState) -> str:
        return NOT_KNOWN if card.persistence is None else "on" if card.persistence else "off"

    def apply(self, box: Box, control: NvmlControl, uuid: str, value: str) -> None:
        control.set_persistence(uuid, value == "on")

    def smi(self, value: str) -> str:
        return f"-pm {int(value == 'on')}"

    def danger(self, card: GpuState, value: str) -> Danger:
        return "safe" if value == "on" else "caution"

    def effects(self, card: GpuState, value: str) -> Sequence[str]:
        boot = "for every boot: sudo systemctl enable --now nvidia-persistenced"
        if value == "on":
            return ("what runs on the card goes on; the driver keeps its state when the last process leaves", boot)
        return (
            "what runs on the card goes on",
            "when the last process leaves the driver lets its state go: the next start takes seconds longer, and a "
            "clock lock or power limit is lost then",
        )


class PowerLimit(GpuSetting):
    """The most that the card may draw, in watts."""

    NAME = "gpu.power_limit"
    WHAT = "power limit"
    FIELDS = (Field("watts", "watts, within the card's limits", "text", unit="W"),)

    def wanted(self, box: Box, card: GpuState, value: str) -> str:
        try:
            watts = float(value)
        except ValueError:
            watts = float("nan")
        if not 0 < watts < 100_000:
            raise WrongInput(f"the power limit is a number of watts, not {one_line(value, 40)!r}")
        low, high = card.power_min_w, card.power_max_w
        if low is not None and high is not None and not low <= watts <= high:
            raise WrongInput(f"GPU {card.index} takes a power limit from {low:g} to {high:g} W, not {watts:g}")
        return _watts(watts)

    def now(self, box: Box, card: GpuState) -> str:
        return NOT_KNOWN if card.power_limit_w is None else _watts(card.power_limit_w)

    def apply(self, box: Box, control: NvmlControl, uuid: str, value: str) -> None:
        control.set_power_limit(uuid, round(float(value) * 1000))

    def smi(self, value: str) -> str:
        return f"-pl {value}"

    def shown(self, value: str) -> str:
        return value if value == NOT_KNOWN else f"{value} W"

    def refusal(self, card: GpuState, before: str) -> str:
        if card.power_limit_w is None:
            why = card.missing.get("power_limit_w", "the driver does not tell it")
            return f"GPU {card.index} has no power limit that can be set: {why}"
        if card.power_min_w is None or card.power_max_w is None:
            return f"GPU {card.index} does not tell between which limits its power can be set"
        return ""

    def effects(self, card: GpuState, value: str) -> Sequence[str]:
        now = "" if card.power_w is None else f"; it draws {card.power_w:.0f} W now"
        default = "" if card.power_default_w is None else f", default {card.power_default_w:g}"
        return (
            f"limits {card.power_min_w:g} to {card.power_max_w:g} W{default}{now}",
            "nothing stops; below what the work draws the card lowers its clock and answers take longer",
        )


class ComputeMode(GpuSetting):
    """Which processes may use the card; set only while none does."""

    NAME = "gpu.compute_mode"
    WHAT = "compute mode"
    FIELDS = (
        Field(
            "mode", "default, exclusive_process or prohibited", "choice", ("default", "exclusive_process", "prohibited")
        ),
    )
    _SMI: ClassVar[Mapping[str, str]] = {
        "default": "DEFAULT",
        "exclusive_process": "EXCLUSIVE_PROCESS",
        "prohibited": "PROHIBITED",
    }
    _MEANS: ClassVar[Mapping[str, str]] = {
        "default": "any number of processes may use the card",
        "exclusive_process": "one process alone may use the card: a second one fails, such as the stub of a Python "
        "model that uses CUDA",
        "prohibited": "no process can use the card: Triton will not load a GPU model until this is set back",
    }

    def wanted(self, box: Box, card: GpuState, value: str) -> str:
        return _choice(self.field, value)

    def now(self, box: Box, card: GpuState) -> str:
        return card.compute_mode or NOT_KNOWN

    def apply(self, box: Box, control: NvmlControl, uuid: str, value: str) -> None:
        # Looked at again here: a process may have come since the plan.
        card = find_card(box, uuid)
        if why := _busy(card):
            raise Refused(why)
        control.set_compute_mode(uuid, value)

    def smi(self, value: str) -> str:
        return f"-c {self._SMI.get(value, 'DEFAULT')}"

    def refusal(self, card: GpuState, before: str) -> str:
        return super().refusal(card, before) or _busy(card)

    def effects(self, card: GpuState, value: str) -> Sequence[str]:
        return (self._MEANS[value],)


class Clocks(GpuSetting):
    """Lock the graphics clock between two values in MHz, or take the lock away."""

    NAME = "gpu.clocks"
    WHAT = "clock lock"
    FIELDS = (Field("range", "lowest,highest in MHz (one number for both), or reset", "text", unit="MHz"),)

    def wanted(self, box: Box, card: GpuState, value: str) -> str:
        if value == RESET:
            return RESET
        parts = [whole_number(part.strip()) for part in value.replace("-", ",").split(",")]
        numbers = [part for part in parts if part is not None and 0 < part <= MOST_MHZ]
        if len(numbers) != len(parts) or not 1 <= len(numbers) <= 2:
            raise WrongInput(f"the clock lock is lowest,highest in MHz, or reset, not {one_line(value, 40)!r}")
        low, high = numbers[0], numbers[-1]
        if low > high:
            raise WrongInput(f"the lowest clock ({low} MHz) is above the highest ({high} MHz)")
        with box.nvml_view() as view:
            supported = view.supported_clocks(card.uuid or "")
        if supported is not None and not supported[0] <= low <= high <= supported[1]:
            raise WrongInput(
                f"GPU {card.index} takes clocks from {supported[0]} to {supported[1]} MHz, not {low} to {high}"
            )
        return f"{low},{high}"

    def now(self, box: Box, card: GpuState) -> str:
        return kept_lock(box.state, card.uuid or "", box.root)

    def apply(self, box: Box, control: NvmlControl, uuid: str, value: str) -> None:
        if value == RESET:
            control.reset_clocks(uuid)
        else:
            low, high = value.split(",")
            control.lock_clocks(uuid, int(low), int(high))
        keep_lock(box.state, uuid, value, box.root)

    def smi(self, value: str) -> str:
        return "-rgc" if value == RESET else f"-lgc {value}"

    def shown(self, value: str) -> str:
        if value in (RESET, NOT_KNOWN):
            return {RESET: "none"}.get(value, value)
        low, high = value.split(",")
        return f"{low} MHz" if low == high else f"{low} to {high} MHz"

    def refusal(self, card: GpuState, before: str) -> str:
        return ""

    def effects(self, card: GpuState, value: str) -> Sequence[str]:
        now = "" if card.sm_mhz is None else f"; it is {card.sm_mhz} MHz now"
        lines = [
            "nothing stops; a lower clock makes answers take longer, heat and the power limit still come first" + now,
            "NVML does not tell a lock: what somebody else set with nvidia-smi is not seen, and is lost by this",
        ]
        if not card.persistence:
            lines.append("persistence is not on: the lock is lost when the last process leaves the card")
        return lines

    def _undo(self, uuid: str, before: str) -> UndoSpec | None:
        if before == NOT_KNOWN:
            return UndoSpec(self.NAME, uuid, {"range": RESET}, "take the clock lock away")
        return super()._undo(uuid, before)

    def _undo_text(self, before: str) -> str:
        if before == NOT_KNOWN:
            return "u takes the lock away: whether there was one before is not known (NVML does not tell)"
        return super()._undo_text(before)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        wanted, before = plan.values["range"], plan.target.identity["range"]
        if self.state(box, plan.target)["range"] == wanted:
            found = f"the clock lock {self.shown(wanted)} was set"
        else:
            found = f"whether the clock lock {self.shown(wanted)} was set is not known: NVML does not tell"
        back = "take the lock away" if before in (RESET, NOT_KNOWN) else f"set the lock back to {self.shown(before)}"
        return found, f"set the clock lock to {self.shown(wanted)}", back

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        before = plan.target.identity["range"]
        return self._set(box, plan, run, RESET if before == NOT_KNOWN else before, "", "undone")


# -------------------------------------------------------------------------------------------------------------- helpers


def find_card(box: Box, target: str) -> GpuState:
    """The card of a UUID, or of an index (`0`, `gpu0`); WrongInput where there is none."""
    wanted = target.strip()
    cards = box.gpus().gpus
    number = whole_number(wanted.lower().removeprefix("gpu").strip())
    for card in cards:
        by_index = number is not None and number == card.index
        if (wanted and card.uuid == wanted) or by_index or (not wanted and len(cards) == 1):
            if card.lost is not None:
                raise Refused(f"GPU {card.index} answers no more: {card.lost.message}")
            if card.uuid is None:
                raise Refused(f"GPU {card.index} tells no UUID: it cannot be told apart from another card")
            return card
    known = ", ".join(f"{card.index} ({card.uuid})" for card in cards) or "none"
    raise WrongInput(f"there is no GPU {one_line(wanted, 60)!r} here: give an index or a UUID of {known}")


def _name(card: GpuState) -> str:
    return f"GPU {card.index} ({one_line(card.name or 'unnamed', 60)})"


def _same(setting: GpuSetting, card: GpuState, before: str, wanted: str) -> str:
    # A clock lock that this console remembers may have been taken away by somebody else: setting it again is right.
    if before != wanted or setting.NAME == Clocks.NAME:
        return ""
    return f"{setting.WHAT} of GPU {card.index} is {setting.shown(wanted)} already: there is nothing to do"


def _rights(box: Box) -> tuple[Check, ...]:
    if box.spec.nvml or os.geteuid() == 0:
        return ()
    return (Check("warn", _NOT_ROOT),)


def _busy(card: GpuState) -> str:
    if card.processes is None:
        return f"cannot tell which processes use GPU {card.index}: its compute mode is set only while none does"
    if not card.processes:
        return ""
    names = ", ".join(f"{one_line(one.command or '?', 40)} ({one.pid})" for one in card.processes[:3])
    more = "" if len(card.processes) <= 3 else f" and {len(card.processes) - 3} more"
    return (
        f"GPU {card.index} is used by {names}{more}: its compute mode is set only while no process uses it; "
        "stop the container first"
    )


def _choice(field: Field, value: str) -> str:
    if value not in field.choices:
        raise WrongInput(f"{field.name} is one of {', '.join(field.choices)}, not {one_line(value, 40)!r}")
    return value


def _watts(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


class _Lock(msgspec.Struct, frozen=True):
    range: str
    boot: str


def _locks_file(state: Path) -> Path:
    return state / "gpu_clocks.json"


def _locks(state: Path) -> dict[str, _Lock]:
    try:
        return msgspec.json.decode(_locks_file(state).read_bytes(), type=dict[str, _Lock])
    except (OSError, msgspec.DecodeError):
        return {}


def _boot(root: Path) -> str:
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def kept_lock(state: Path, uuid: str, root: Path = Path("/")) -> str:
    """The lock (`300,1590`) or `reset` that this console set last in this boot; NOT_KNOWN where it set none."""
    kept = _locks(state).get(uuid)
    return kept.range if kept is not None and kept.boot == _boot(root) else NOT_KNOWN


def keep_lock(state: Path, uuid: str, value: str, root: Path = Path("/")) -> None:
    """Remember what was set."""
    locks = {**_locks(state), uuid: _Lock(value, _boot(root))}
    write_private(_locks_file(state), msgspec.json.encode(locks).decode())
