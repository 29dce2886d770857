"""The card's way to the host and to other cards: G14 G15 G18 G22."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.checks.box import BUS, NO_DEVICE, gpus
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.gpu_cards import NEEDS, SMI_QUERY, address, each, missing, pending, seen, waiting
from console.checks.gpu_clocks import is_busy
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.model import GpuState
from console.core.text import whole_number
from console.core.xid_incidents import pci_address

# ----------------------------------------------------------------------------------------------------------------- G14

_LINK = "/sys/bus/pci/devices/{gpu}/"


@check(
    "G14",
    "PCIe link at its full width",
    group="gpu",
    slug="pcie-link",
    needs=(*NEEDS, f"{_LINK}current_link_width", f"{_LINK}max_link_width"),
    why="A card with half of its lanes takes twice as long to load a model and to move tensors: a matter of slot, "
    "riser or board. Speed counts only under load, since idle cards slow their link down.",
    source="sysfs-bus-pci; nvmlDeviceGetCurrPcieLinkWidth",
)
def link(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        width, most, line = _width(facts, card)
        if not width or not most:
            return missing(card, "pcie_width") if card.pcie_width is None else skip("the link tells no width")
        speed = "" if card.pcie_gen is None else f", gen {card.pcie_gen} of {card.pcie_gen_max or '?'}"
        if width < most:
            fix = _show_link(card, "shows slot and card; seat it in a slot of full width")
            return warn(f"x{width} of x{most}{speed}", line, fix, width=str(width))
        if is_busy(card) and card.pcie_gen is not None and card.pcie_gen_max and card.pcie_gen < card.pcie_gen_max:
            fix = _show_link(card, "shows where the speed is lost: slot, riser, BIOS")
            return warn(f"x{width}, but gen {card.pcie_gen} of {card.pcie_gen_max} under load", line, fix)
        return ok(f"x{width}{speed}", line)

    return each(facts, judge)


def _show_link(card: GpuState, effect: str) -> Fix:
    return Fix("S", (f"sudo lspci -vv -s {_slot(card)} | grep -i lnk",), effect)


def _slot(card: GpuState) -> str:
    return address(card) + ".0"


def _folder(facts: Facts, card: GpuState) -> str:
    """Of the card in sysfs; "" where the bus does not show it."""
    found = (one for one in facts.every("gpu") if pci_address(one) == address(card))
    return next((f"/sys/bus/pci/devices/{one}/" for one in found), "")


def _width(facts: Facts, card: GpuState) -> tuple[int | None, int | None, tuple[Evidence, ...]]:
    """Lanes now and at most, by sysfs where it tells, else by NVML."""
    folder = _folder(facts, card)
    if folder:
        try:
            now, most = (
                whole_number((facts.maybe(f"{folder}{name}_link_width") or "").strip()) for name in ("current", "max")
            )
        except Unknowable:
            now = most = None
        if now and most:
            lines = (Evidence(f"{folder}current_link_width", str(now)), Evidence(f"{folder}max_link_width", str(most)))
            return now, most, lines
    now, most = card.pcie_width, card.pcie_width_max
    return now, most, seen(card, f"PCIe x{now} of x{most}")


# ----------------------------------------------------------------------------------------------------------------- G15

_AER = ("aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable")
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d{1,18})$", re.MULTILINE)


@check(
    "G15",
    "no PCIe errors",
    group="gpu",
    slug="pcie-errors",
    needs=(*NEEDS, *(f"{_LINK}{name}" for name in _AER)),
    why="Packets that are sent again cost time, and a link that gets worse ends with a card that falls off the bus "
    "(Xid 79).",
    source="sysfs-bus-pci-devices-aer_stats; nvmlDeviceGetPcieReplayCounter",
)
def errors(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        counts, lines = _aer(facts, card)
        replays = card.pcie_replays
        line = (
            *lines,
            *(seen(card, f"PCIe replays since the driver was loaded: {replays}") if replays is not None else ()),
        )
        hard = {name: counts[name] for name in ("aer_dev_fatal", "aer_dev_nonfatal") if counts.get(name)}
        if hard:
            name, number = next(iter(hard.items()))
            fix = Fix(
                "S", (f"sudo lspci -vv -s {_slot(card)}",), "shows the link; look at seating, riser, slot and heat"
            )
            return warn(
                f"{number} {'fatal' if name.endswith('_fatal') else 'uncorrected'} errors of its link", line, fix
            )
        if replays is None and not counts:
            return missing(card, "pcie_replays")
        if replays or counts.get("aer_dev_correctable"):
            told = [f"{replays} replays"] if replays else []
            told += [f"{counts['aer_dev_correctable']} corrected errors"] if counts.get("aer_dev_correctable") else []
            return note(f"{', '.join(told)} so far: watch whether they grow", line)
        return ok("none", line)

    return each(facts, judge)


def _aer(facts: Facts, card: GpuState) -> tuple[Mapping[str, int], tuple[Evidence, ...]]:
    """Error totals of the device by file, where this kernel counts them."""
    counts: dict[str, int] = {}
    lines: list[Evidence] = []
    folder = _folder(facts, card)
    for name in _AER if folder else ():
        path = folder + name
        try:
            text = facts.maybe(path) or ""
        except Unknowable:
            continue
        if match := _TOTAL.search(text):
            counts[name] = int(match[1])
            lines.append(Evidence(path, match[0]))
    return counts, tuple(lines)


# ----------------------------------------------------------------------------------------------------------------- G18


@check(
    "G18",
    "MIG is as it is meant to be",
    group="gpu",
    slug="mig",
    needs=(*NEEDS, SMI_QUERY),
    why="With MIG on a card is only usable through its instances, and a CDI spec names each of them. A change of the "
    "mode waits for a reset of the card.",
    source="docs.nvidia.com/datacenter/tesla/mig-user-guide",
)
def mig(facts: Facts) -> Answer:
    modes = pending(facts, "MIG Mode")

    def judge(card: GpuState) -> Answer:
        if card.mig_on is None:
            return missing(card, "mig_on")
        current, later = modes.get(address(card), ("", ""))
        line = seen(
            card,
            f"MIG {'on' if card.mig_on else 'off'}, {len(card.mig)} instances{f', pending {later}' if later else ''}",
        )
        if (change := waiting(current, later, line)) is not None:
            return change
        if not card.mig_on:
            return ok("off", line)
        if not card.mig:
            fix = Fix(
                "S",
                (f"sudo nvidia-smi mig -i {card.index} -lgip",),
                "lists the profiles from which instances are made (-cgi)",
            )
            return warn("on, and no instance is made: nothing can use the card", line, fix)
        profiles = ", ".join(dict.fromkeys(one.profile or "?" for one in card.mig))
        return note(f"{len(card.mig)} instances: {profiles}", line, instances=str(len(card.mig)))

    return each(facts, judge)


# ----------------------------------------------------------------------------------------------------------------- G22

_NVLINK = "nvidia-smi nvlink --status"


@check(
    "G22",
    "NVLink between cards",
    group="gpu",
    slug="nvlink",
    needs=(BUS, f"$ {_NVLINK}"),
    why="Models that are spread over cards talk through NVLink where there is one; without it they go through PCIe, "
    "which is several times slower.",
    source="nvidia-smi(1), nvlink",
)
def nvlink(facts: Facts) -> Answer:
    found = gpus(facts)
    if not found:
        return skip(NO_DEVICE)
    if len(found) < 2:
        return skip("one card alone: nothing to link")
    out = facts.command(_NVLINK)
    links = re.findall(r"^\s+Link \d{1,3}: (.{1,80})$", out.out, re.MULTILINE)
    if out.code != 0 and not links:
        return unknown(f"nvidia-smi nvlink ended with {out.code}", _NVLINK)
    if not links:
        return skip("these cards have no NVLink")
    active = sum("inactive" not in one.lower() for one in links)
    line = (Evidence(f"$ {_NVLINK}", f"{active} of {len(links)} links active"),)
    if not active:
        return note("no link is active: the cards talk through PCIe", line)
    return ok(f"{active} of {len(links)} links active", line)
