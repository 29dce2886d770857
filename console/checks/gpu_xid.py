"""What the driver asks for and what the kernel log tells of it: G12 G13.

One fault of a card writes several lines: those of one card within a minute are one incident, with its weightiest
action.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.checks.box import KERNEL_LOG, NO_DEVICE
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.gpu_cards import NEEDS, address, cards, each, has_device, missing, restart_line, seen
from console.checks.gpu_memory_faults import CLOSE_FIRST, reset_fix, reset_lines
from console.core import kernel_faults, units
from console.core import xid as xids
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.model import GpuState, KernelFault, Sign
from console.core.sign import WORST_FIRST
from console.core.text import one_line
from console.core.xid_incidents import Incident, incidents

# ----------------------------------------------------------------------------------------------------------------- G12

_HOST_ACTIONS = ("node_reboot", "system_reboot", "recover_imex_domain")
_SAID: Mapping[str, str] = {
    "gpu_reset": "a reset of the card",
    "bus_reset": "a reset of the card through its bus",
    "node_reboot": "a reboot of the host",
    "system_reboot": "a reboot of the host",
    "drain_p2p": "its traffic to other cards to be drained",
    "drain_and_reset": "work to be drained, then a reset",
}


@check(
    "G12",
    "the driver asks for no recovery",
    group="gpu",
    slug="recovery-action",
    needs=NEEDS,
    why="After a fault the driver says itself whether the card wants a reset or the host a reboot. Until then new work "
    "on the card fails or hangs.",
    source="nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; Xid catalogue",
)
def recovery(facts: Facts) -> Answer:
    found = cards(facts)
    if not found:
        return skip(NO_DEVICE)
    for card in found:
        if card.lost is not None:
            more = f" (GPU {card.index})" if len(found) > 1 else ""
            return fail(
                f"the card no longer answers{more}: {card.lost.message}", seen(card, card.lost.message), _reboot()
            )

    def judge(card: GpuState) -> Answer:
        action = card.recovery_action
        if action is None:
            return missing(card, "recovery_action")
        line = seen(card, f"recovery action {action}")
        if action == "none":
            return ok("none", line)
        if action.startswith("unknown"):
            return warn(f"the driver asks for something new here: {one_line(action, 40)}", line, _look(card))
        words = f"the driver asks for {_SAID.get(action, action)}"
        if action in _HOST_ACTIONS:
            return fail(words, line, _reboot(), action=action)
        if action == "drain_p2p":
            return warn(words, line, _look(card), action=action)
        return fail(words, line, reset_fix(facts, card, "nothing serves on this card during the reset"), action=action)

    return each(facts, judge)


def _reboot() -> Fix:
    return Fix(
        "R", ("sudo reboot",), "a card that is lost comes back with a restart of the host, if at all", reboot=True
    )


def _look(card: GpuState) -> Fix:
    return Fix("S", (f"nvidia-smi -q -i {card.index}", "sudo dmesg | grep -E 'NVRM|Xid'"), "shows what the driver says")


# ----------------------------------------------------------------------------------------------------------------- G13

OLD = 86400.0
"""Seconds after which an incident that the card has survived weighs less."""


@check(
    "G13",
    "no Xid in the kernel log",
    group="gpu",
    slug="xid",
    needs=(*NEEDS, KERNEL_LOG),
    why="An Xid is the driver's report of a fault: of the card, its memory, its bus, or of a program that used it "
    "wrongly. The number says which, and what NVIDIA wants done.",
    source="docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
)
def xid(facts: Facts) -> Answer:
    if not has_device(facts):
        return skip(NO_DEVICE)
    log = facts.answer(KERNEL_LOG)
    lines = log.get("lines") if isinstance(log, Mapping) else None
    if not isinstance(lines, list):
        raise Unknowable("the kernel log could not be read", "sudo dmesg | grep Xid")
    source = one_line(str(log.get("source") or "kernel log"), 40)
    faults = [fault for line in lines if (fault := _fault(line)) is not None]
    found = incidents(sorted(faults, key=lambda one: one.wall))
    if not found:
        return ok(f"none as far back as the log goes ({source})")
    weighed = [(_weight(facts, one), one) for one in found]
    sign, worst = min(weighed, key=lambda pair: (WORST_FIRST.index(pair[0]), -pair[1].last))
    return _told(facts, sign, worst, len(found), source)


def _fault(line: object) -> KernelFault | None:
    if not isinstance(line, Mapping) or not isinstance(line.get("text"), str):
        return None
    wall = line.get("wall")
    return kernel_faults.parse(wall if isinstance(wall, int | float) and 0 < wall < 1e11 else 0.0, line["text"])


def _weight(facts: Facts, one: Incident) -> Sign:
    """How much an incident weighs today: one that the card has survived for a day weighs less."""
    sign = one.sign
    if one.follows_nothing:
        return "note"
    if not facts.wall or not one.last or facts.wall - one.last < OLD or not _answers(facts, one.pci):
        return sign
    return "warn" if sign == "fail" else "note"


def _answers(facts: Facts, pci: str) -> bool:
    """Whether NVML reads this card now and wants nothing of it."""
    try:
        found = cards(facts)
    except Unknowable:
        return False
    return any(card.lost is None and card.recovery_action in (None, "none") and address(card) == pci for card in found)


def _told(facts: Facts, sign: Sign, one: Incident, count: int, source: str) -> Answer:
    beside = f" with {', '.join(map(str, one.others[:4]))}" if one.others else ""
    age = f" {units.age(facts.wall - one.last)} ago" if facts.wall and one.last else ""
    more = f"; {count} incidents in all" if count > 1 else ""
    text = f"Xid {one.lead.xid}{beside}{age}, {one.lead.meaning}: {one.action}{more}"
    evidence = tuple(Evidence(_where(source, fault), fault.text) for fault in one.faults[:5])
    data = {"xid": str(one.lead.xid), "gpu": one.pci}
    if one.follows_nothing:
        return note(f"Xid 45{age}: work was removed, as after each kill of a process{more}", evidence, **data)
    if sign == "note":
        return note(text, evidence, **data)
    fix = _mend(facts, one)
    return fail(text, evidence, fix, **data) if sign == "fail" else warn(text, evidence, fix, **data)


def _where(source: str, fault: KernelFault) -> str:
    return f"{source}, {units.moment(fault.wall, utc=True)} UTC" if fault.wall else source


def _mend(facts: Facts, one: Incident) -> Fix | None:
    action = one.action
    if action == xids.RESTART_HOST or "Reboot" in action:
        return Fix("R", ("sudo reboot",), "NVIDIA's action for it; look at seating, power and heat too", reboot=True)
    if action == xids.CHECK_POWER:
        return Fix("S", ("sudo poweroff",), "then plug the card's power cable in, and start the host")
    if action == xids.RESTART_APPLICATION:
        line = restart_line(facts)
        if not line:
            return None
        return Fix("S", (line,), "only where the models fail since then: each request that runs is lost")
    if action in (xids.RESET_GPU, xids.REPEATED) or "Reset" in action:
        card = _card(facts, one.pci)
        index = f"{one.pci}.0" if card is None else str(card.index)
        lines = reset_lines(facts, index, card is not None and bool(card.persistence))
        return Fix("R", lines, f"nothing serves on this card during the reset. {CLOSE_FIRST}", again=("G12",))
    return Fix("S", ("sudo dmesg | grep -E 'NVRM|Xid'",), "shows the lines around it")


def _card(facts: Facts, pci: str) -> GpuState | None:
    """The card that a line of the log names; None where NVML does not list it."""
    try:
        return next((card for card in cards(facts) if address(card) == pci), None)
    except Unknowable:
        return None
