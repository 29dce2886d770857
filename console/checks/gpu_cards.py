"""The cards as NVML tells them, for the checks of group `gpu`: one answer of many cards, why a figure is absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from console.checks import unit_box
from console.checks.box import BUS, NO_DEVICE, NVML, gpus, nvml
from console.checks.check import Answer, skip, unknown, warn
from console.clients.nvml import NOT_GIVEN, UNSUPPORTED
from console.clients.nvml_card import MIG_PARENT
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.model import GpuBox, GpuState
from console.core.sign import WORST_FIRST
from console.core.text import one_line
from console.core.xid_incidents import pci_address

NEEDS = (NVML, BUS)
"""Of `cards`."""

_LASTING = re.compile(
    "|".join([*map(re.escape, (UNSUPPORTED, NOT_GIVEN, MIG_PARENT)), "this driver's NVML has no ", "before driver "])
)
"""Reasons that will not change by asking again: the figure does not exist for this card and driver."""


def answer(facts: Facts) -> tuple[GpuBox | None, tuple[int | None, str]]:
    """What NVML said: the cards, or None and its error (code or None, words). Needs NVML."""
    value = facts.answer(NVML)
    if not isinstance(value, Mapping):
        raise Unknowable("NVML was not asked", "nvidia-smi")
    error = value.get("error")
    if isinstance(error, Mapping):
        code = error.get("code")
        return None, (code if isinstance(code, int) else None, one_line(str(error.get("text") or ""), 200))
    return nvml(facts), (None, "")


def has_device(facts: Facts) -> bool:
    """Whether an NVIDIA display device is on the PCI bus. Needs BUS."""
    return bool(gpus(facts))


def cards(facts: Facts) -> tuple[GpuState, ...]:
    """Every card that NVML lists; () where there surely is no NVIDIA device. Unknowable where NVML fails although a
    device is there: G01 says why. Needs NEEDS."""
    try:
        box, (code, text) = answer(facts)
    except Unknowable:
        if not has_device(facts):
            return ()
        raise
    if box is not None and box.gpus:
        return box.gpus
    if not has_device(facts):
        return ()
    if box is None:
        raise Unknowable(
            f"NVML answers with error {code}: {text}" if code is not None else f"NVML: {text}", "nvidia-smi"
        )
    raise Unknowable("NVML lists no card", "nvidia-smi")


def each(facts: Facts, judge: Callable[[GpuState], Answer]) -> Answer:
    """One answer for all cards: the worst one is named, the others are counted. Needs NEEDS."""
    found = cards(facts)
    if not found:
        return skip(NO_DEVICE)
    judged = [(card, _judged(card, judge)) for card in found]
    card, worst = min(judged, key=lambda pair: WORST_FIRST.index(pair[1].sign))
    if len(found) == 1:
        return worst
    alike = sum(one.sign == worst.sign for _, one in judged) - 1
    if worst.sign in ("ok", "none") and alike == len(found) - 1:
        return msgspec.structs.replace(worst, text=f"{worst.text} (GPU {card.index}, {alike} more alike)")
    rest = f"; {alike} more so" if alike else "; the others not"
    text = f"GPU {card.index}: {worst.text}{rest}"
    return msgspec.structs.replace(worst, text=text, data={"gpu": str(card.index), **worst.data})


def _judged(card: GpuState, judge: Callable[[GpuState], Answer]) -> Answer:
    if card.lost is not None:
        return unknown(f"the card no longer answers: {card.lost.message}", "nvidia-smi")
    return judge(card)


def missing(card: GpuState, field: str) -> Answer:
    """The answer for a figure that is None: skip where this card and driver do not have it, else unknown."""
    why = card.missing.get(field) or "the driver does not tell it"
    if _LASTING.match(why):
        return skip(f"{field.replace('_', ' ')}: {why}")
    return unknown(f"{field.replace('_', ' ')}: {why}", f"nvidia-smi -q -i {card.index}")


def address(card: GpuState) -> str:
    """BUS address without the function, as `pci_address` has it; "" where NVML does not tell it."""
    return pci_address(card.pci_bus_id or "")


def seen(card: GpuState, text: str) -> tuple[Evidence, ...]:
    """A line of evidence from NVML."""
    return (Evidence(f"NVML, GPU {card.index}{f' ({one_line(card.name, 40)})' if card.name else ''}", text),)


# ---------------------------------------------------------------------------------------------------------- nvidia-smi

SMI_QUERY = "$ nvidia-smi -q"


def pending(facts: Facts, section: str) -> Mapping[str, tuple[str, str]]:
    """(current, pending) of a mode by BUS address (`pci_address`), as `nvidia-smi -q` prints it; {} where the program
    did not tell. `section` is `ECC Mode` or `MIG Mode`. Needs SMI_QUERY."""
    try:
        out = facts.command(SMI_QUERY.removeprefix("$ ")).out
    except Unknowable:
        return {}
    found: dict[str, list[str]] = {}
    address, inside = "", False
    for line in out.splitlines():
        name, _, value = (part.strip() for part in line.partition(" : "))
        if line.startswith("GPU "):
            address, inside = pci_address(line), False
        elif name.casefold() == section.casefold() and not value:
            inside = True
        elif inside and name in ("Current", "Pending"):
            found.setdefault(address, []).append(value)
        elif name:
            inside = False
    return {where: (modes[0], modes[1]) for where, modes in found.items() if len(modes) == 2}


def waiting(current: str, later: str, line: tuple[Evidence, ...]) -> Answer | None:
    """The answer where a mode of `pending` changes with the next reset of the card; None where it does not."""
    if later == current or later not in ("Enabled", "Disabled"):
        return None
    fix = Fix("R", ("sudo reboot",), "the pending mode takes effect with a reset of the card", reboot=True)
    return warn(f"{current}, and {later} after the next reset of the card", line, fix)


# ------------------------------------------------------------------------------------------------- container's commands


def restart_line(facts: Facts) -> str:
    """What restarts the Triton container here: through its unit where one manages it; "" where there is none."""
    return _line(facts, "restart")


def stop_line(facts: Facts) -> str:
    """What stops it; "" where there is none."""
    return _line(facts, "stop")


def start_line(facts: Facts) -> str:
    """What starts it; "" where there is none."""
    return _line(facts, "start")


def _line(facts: Facts, verb: str) -> str:
    if unit := unit_box.name(facts):
        return unit_box.systemctl(facts, verb, unit)
    if containers := facts.every("container"):
        return f"{'' if unit_box.is_user(facts) else 'sudo '}podman {verb} {containers[0]}"
    return ""
