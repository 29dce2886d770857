"""Errors of a card's memory, and what the card has done about them: G08 G09 G10 G11."""

from __future__ import annotations

import re

from console.checks.check import Answer, check, fail, note, ok, warn
from console.checks.gpu_cards import (
    NEEDS,
    SMI_QUERY,
    address,
    each,
    missing,
    pending,
    seen,
    start_line,
    stop_line,
    waiting,
)
from console.core.facts import Facts
from console.core.finding import Fix
from console.core.model import GpuState

_DATA_CENTRE = re.compile(r"\b(?:Tesla|[AHBL]\d{1,3}[SGL]?|GB?H?\d{3}|[TPVK]\d{1,3}|RTX PRO 6000)\b")
_WORKSTATION = re.compile(r"GeForce|Quadro|TITAN|\bRTX (?!PRO)|GTX", re.IGNORECASE)


def reset_fix(facts: Facts, card: GpuState, effect: str) -> Fix:
    """A reset of one card: all that uses it has to go first."""
    lines = reset_lines(facts, str(card.index), bool(card.persistence))
    return Fix("R", lines, f"{effect}. {CLOSE_FIRST}", again=("G10", "G11", "G12"))


CLOSE_FIRST = "Close this console, DCGM and other monitors first: they hold the card"


def reset_lines(facts: Facts, card: str, persistence: bool) -> tuple[str, ...]:
    """What resets a card, named as nvidia-smi names it. Persistence mode holds it as well: the reset is refused with
    `In use by another client` (NVSentinel#1690, gpu-operator#118)."""
    lines = [f"sudo nvidia-smi --gpu-reset -i {card}"]
    if persistence:
        lines = [f"sudo nvidia-smi -i {card} -pm 0", *lines, f"sudo nvidia-smi -i {card} -pm 1"]
    return tuple(line for line in (stop_line(facts), *lines, start_line(facts)) if line)


# ----------------------------------------------------------------------------------------------------------------- G08


@check(
    "G08",
    "ECC of the card's memory",
    group="gpu",
    slug="ecc-mode",
    needs=(*NEEDS, SMI_QUERY),
    why="Without ECC a flipped bit in the card's memory gives a wrong answer that nobody sees. Data-centre cards come "
    "with it switched on.",
    source="nvmlDeviceGetEccMode; nvidia-smi(1)",
)
def ecc_mode(facts: Facts) -> Answer:
    modes = pending(facts, "ECC Mode")

    def judge(card: GpuState) -> Answer:
        if card.ecc_on is None:
            return missing(card, "ecc_on")
        current, later = modes.get(address(card), ("", ""))
        line = seen(card, f"ECC {'on' if card.ecc_on else 'off'}{f', pending {later}' if later else ''}")
        if (change := waiting(current, later, line)) is not None:
            return change
        if card.ecc_on:
            return ok("on", line)
        name = card.name or ""
        if _WORKSTATION.search(name) or not _DATA_CENTRE.search(name):
            return note("off, as this kind of card comes", line)
        fix = Fix(
            "R",
            (f"sudo nvidia-smi -i {card.index} -e 1", "sudo reboot"),
            "takes effect with the reboot; some memory and bandwidth go to ECC on cards without HBM",
            f"sudo nvidia-smi -i {card.index} -e 0, then reboot",
            reboot=True,
        )
        return warn("off: a flipped bit gives a wrong answer unseen", line, fix)

    return each(facts, judge)


# ----------------------------------------------------------------------------------------------------------------- G09


@check(
    "G09",
    "no uncorrected memory errors",
    group="gpu",
    slug="ecc-errors",
    needs=NEEDS,
    why="An uncorrected error ends the application that met it, and Triton with it. Many of them are a card on its way "
    "out.",
    source="nvmlDeviceGetTotalEccErrors",
)
def ecc_errors(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        now, ever = card.ecc_uncorrected_now, card.ecc_uncorrected_ever
        if now is None:
            return missing(card, "ecc_uncorrected_now")
        told = {
            "corrected": card.ecc_corrected_now,
            "corrected ever": card.ecc_corrected_ever,
            "uncorrected ever": ever,
        }
        rest = "".join(f", {name} {value}" for name, value in told.items() if value is not None)
        line = seen(card, f"ECC since the driver was loaded: uncorrected {now}{rest}")
        if now > 0:
            return fail(f"{now} uncorrected since the driver was loaded", line, reset_fix(facts, card, _AFTER))
        if ever is None:
            return ok("none since the driver was loaded", line)
        if ever > 0:
            return note(f"none since the driver was loaded; {ever} in the card's life", line)
        return ok("none in the card's life", line)

    return each(facts, judge)


_AFTER = "a reset lets the card take bad rows out of use; errors that come again are a case for the vendor"


# ----------------------------------------------------------------------------------------------------------------- G10


@check(
    "G10",
    "no memory pages wait for retirement",
    group="gpu",
    slug="retired-pages",
    needs=NEEDS,
    why="Cards before Ampere take bad pages out of use, and each is only out of use after the driver was loaded anew. "
    "Until then it can fail again.",
    source="docs.nvidia.com/deploy/dynamic-page-retirement",
)
def retired(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        if card.retired_pending is None:
            return missing(card, "retired_pending")
        count = "" if card.retired_pages is None else f", {card.retired_pages} retired so far"
        line = seen(card, f"retired pages pending: {'yes' if card.retired_pending else 'no'}{count}")
        if card.retired_pending:
            fix = reset_fix(facts, card, "the pages are out of use after the reset; nothing serves meanwhile")
            return warn(f"a page waits for a reset of the card{count}", line, fix)
        if card.retired_pages:
            return note(f"none wait{count}", line)
        return ok(f"none wait{count}", line)

    return each(facts, judge)


# ----------------------------------------------------------------------------------------------------------------- G11


@check(
    "G11",
    "no memory rows wait for remapping",
    group="gpu",
    slug="row-remap",
    needs=NEEDS,
    why="Cards from Ampere on put spare rows in the place of bad ones, at the next reset. Where no spare row is left "
    "the card has to go back.",
    source="docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt",
)
def remapped(facts: Facts) -> Answer:
    def judge(card: GpuState) -> Answer:
        if card.remap_failed is None or card.remap_pending is None:
            return missing(card, "remap_failed" if card.remap_failed is None else "remap_pending")
        unc, cor = card.remapped_uncorrectable or 0, card.remapped_correctable or 0
        line = seen(
            card,
            f"rows remapped: {cor} for correctable, {unc} for uncorrectable errors; pending "
            f"{'yes' if card.remap_pending else 'no'}, failed {'yes' if card.remap_failed else 'no'}",
        )
        if card.remap_failed:
            fix = Fix(
                "S",
                (f"nvidia-smi -i {card.index} -q -d ROW_REMAPPER",),
                "the vendor asks for it: the card is to go back",
            )
            return fail("a row could not be remapped: the card has to go back", line, fix)
        if card.remap_pending:
            fix = reset_fix(facts, card, "when it suits: work goes on until then; nothing serves during the reset")
            return warn("a remapped row waits for a reset; work goes on", line, fix)
        if unc + cor:
            return note(f"none wait; {unc + cor} remapped so far", line)
        return ok("none", line)

    return each(facts, judge)
