"""Clocks, power, throttling and heat of a card, from one sample and the driver's counters: G04 G05 G06 G07.

One sample proves no throttling: what is set in it counts as a fault only where the driver's own counters of lost time
say the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.gpu_cards import NEEDS, cards, each, missing, seen
from console.core.facts import Facts
from console.core.finding import Fix
from console.core.model import GpuState

BUSY_PCT = 50.0
"""Utilisation in per cent from which a card counts as loaded in a sample."""
_NOT_ROOT_PROOF = "takes effect now; a reboot, or a reload of the driver, ends it"


def is_busy(card: GpuState) -> bool:
    """Whether the sample shows it at work."""
    return card.util_pct is not None and card.util_pct >= BUSY_PCT


# ----------------------------------------------------------------------------------------------------------------- G04


@check(
    "G04",
    "SM clock under load",
    group="gpu",
    slug="gpu-clocks",
    needs=NEEDS,
    why="An idle card lowers its clock, so that the first requests after a pause are slower: jitter of the tail. A "
    "locked clock takes that away at the price of heat and power.",
    source="NVIDIA/TensorRT#2042; nvidia-smi(1)",
)
def clocks(facts: Facts) -> Answer:
    single = len(cards(facts)) == 1

    def judge(card: GpuState) -> Answer:
        if card.sm_mhz is None:
            return missing(card, "sm_mhz")
        if card.sm_max_mhz is None:
            return missing(card, "sm_max_mhz")
        figures = f"{card.sm_mhz} of {card.sm_max_mhz} MHz"
        line = seen(card, f"SM clock {figures}, utilisation {_percent(card)}, reasons {_reasons(card)}")
        if "applications_clocks" in (card.throttle_now or ()):
            return note(f"{figures}: held by clocks that somebody has set", line)
        if card.sm_mhz >= 0.9 * card.sm_max_mhz:
            return ok(figures, line)
        if is_busy(card):
            if card.throttle_now:
                return ok(f"{figures} under load, see G06", line)
            return note(f"{figures} under load, and the driver gives no reason: a clock lock?", line)
        fix = Fix(
            "B",
            (f"sudo nvidia-smi -i {card.index} -lgc {card.sm_max_mhz}",),
            "takes effect now and ends with a reboot; the card draws more power while idle. Only where the tail "
            "matters",
            f"sudo nvidia-smi -i {card.index} -rgc",
            action="gpu.clocks" if single else "",
            values={"range": str(card.sm_max_mhz)} if single else {},
        )
        return Answer("note", f"{figures} while idle: it rises with the load", line, fix)

    return each(facts, judge)


def _percent(card: GpuState) -> str:
    return "not told" if card.util_pct is None else f"{card.util_pct:.0f} %"


def _reasons(card: GpuState) -> str:
    return "not told" if card.throttle_now is None else ", ".join(card.throttle_now) or "none"


# ----------------------------------------------------------------------------------------------------------------- G05


@check(
    "G05",
    "power limit is at its default",
    group="gpu",
    slug="power-limit",
    needs=NEEDS,
    why="Below its default limit the card lowers its clock earlier, and every answer takes longer. Some hosts lower it "
    "to save power, and nobody remembers.",
    source="nvmlDeviceGetPowerManagementLimit, nvidia-smi(1)",
)
def power(facts: Facts) -> Answer:
    single = len(cards(facts)) == 1

    def judge(card: GpuState) -> Answer:
        limit, default = card.power_limit_w, card.power_default_w
        if limit is None:
            return missing(card, "power_limit_w")
        if default is None:
            return missing(card, "power_default_w")
        line = seen(card, f"power limit {limit:g} W, default {default:g} W, {_bounds(card)}")
        if limit < default - 0.5:
            fix = Fix(
                "B",
                (f"sudo nvidia-smi -i {card.index} -pl {default:g}",),
                f"{_NOT_ROOT_PROOF}; the host's supply and cooling must bear {default:g} W",
                f"sudo nvidia-smi -i {card.index} -pl {limit:g}",
                action="gpu.power_limit" if single else "",
                values={"watts": f"{default:g}"} if single else {},
            )
            return warn(f"{limit:g} W, below the default of {default:g} W", line, fix)
        if limit > default + 0.5:
            return note(f"{limit:g} W, above the default of {default:g} W", line)
        return ok(f"{limit:g} W, the default", line)

    return each(facts, judge)


def _bounds(card: GpuState) -> str:
    if card.power_min_w is None or card.power_max_w is None:
        return "bounds not told"
    return f"may be {card.power_min_w:g} to {card.power_max_w:g} W"


# ----------------------------------------------------------------------------------------------------------------- G06

_HARD: Mapping[str, str] = {
    "heat_hardware": "the hardware slows it for heat",
    "power_brake": "the host's power brake slows it",
    "hw_slowdown": "the hardware slows it",
}
_SOFT: Mapping[str, str] = {"heat_software": "the driver slows it for heat", "reliability": "its voltage is held low"}
PROOF_SECONDS = 10.0
"""Seconds counted for a hardware reason from which a sample that shows it is no accident."""


@check(
    "G06",
    "nothing slows the card down",
    group="gpu",
    slug="throttle",
    needs=NEEDS,
    why="Heat or a weak power supply lowers the clock: the same request takes longer, and the tail grows. The reasons "
    "here are one sample; the counters run since the driver was loaded.",
    source="nvml.h, nvmlClocksEventReasons and violation counters",
)
def throttle(facts: Facts) -> Answer:
    return each(facts, _throttled)


def _throttled(card: GpuState) -> Answer:
    if card.throttle_now is None:
        return missing(card, "throttle_now")
    counted = {one.reason: one.seconds for one in card.throttle_counters}
    times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in counted.items() if seconds >= 1)
    line = seen(card, f"reasons now: {_reasons(card)}; counted since the driver was loaded: {times or 'none told'}")
    data = {"reasons": " ".join(card.throttle_now)}
    hard = [name for name in _HARD if name in card.throttle_now]
    if hard:
        proof = max((counted.get(name, 0.0) for name in ("heat_hardware", "power_brake", "heat")), default=0.0)
        hardest = next((name for name in hard if name != "hw_slowdown"), hard[0])
        words = f"{_HARD[hardest]}{_heat(card)}"
        if proof >= PROOF_SECONDS:
            return fail(f"{words}, {proof:.0f} s so far", line, _cooling(card), **data)
        return warn(f"{words}, in this sample", line, _cooling(card), **data)
    soft = [name for name in _SOFT if name in card.throttle_now]
    if soft:
        return warn(f"{_SOFT[soft[0]]}{_heat(card)}, in this sample", line, _cooling(card), **data)
    lost = {name: counted[name] for name in ("heat_hardware", "power_brake") if counted.get(name, 0.0) >= PROOF_SECONDS}
    if lost:
        name, seconds = max(lost.items(), key=lambda pair: pair[1])
        return note(f"not now; {_HARD[name]}: {seconds:.0f} s so far", line, **data)
    if "power_cap" in card.throttle_now:
        limit = "" if card.power_limit_w is None else f" of {card.power_limit_w:g} W"
        return note(f"at its power limit{limit} in this sample, as under full load", line, **data)
    return ok(f"no reason set{_heat(card)}" if not card.throttle_now else f"only {_reasons(card)}", line, **data)


def _heat(card: GpuState) -> str:
    return "" if card.temp_c is None else f" at {card.temp_c:.0f} °C"


def _cooling(card: GpuState) -> Fix:
    return Fix(
        "S",
        (f"nvidia-smi -i {card.index} -q -d PERFORMANCE,TEMPERATURE,POWER",),
        "shows it again; the remedy is air, fans, dust and the supply of the host, or a lower power limit",
    )


# ----------------------------------------------------------------------------------------------------------------- G07


@check(
    "G07",
    "temperature below its limit",
    group="gpu",
    slug="gpu-temperature",
    needs=NEEDS,
    why="At its slowdown temperature the card halves its clock or worse, and at its shutdown temperature it is gone. "
    "Passive cards depend on the host's fans.",
    source="nvmlDeviceGetTemperatureThreshold",
)
def temperature(facts: Facts) -> Answer:
    return each(facts, _hot)


MARGIN_C = 5.0
"""Degrees below the slowdown temperature from which it is worth a warning."""


def _hot(card: GpuState) -> Answer:
    if card.temp_c is None:
        return missing(card, "temp_c")
    limit = card.temp_slowdown_c if card.temp_slowdown_c is not None else card.temp_shutdown_c
    memory = ""
    if card.temp_memory_c is not None and card.temp_memory_max_c is not None:
        memory = f", memory {card.temp_memory_c:.0f} of {card.temp_memory_max_c:.0f} °C"
    line = seen(
        card,
        f"{card.temp_c:.0f} °C, slowdown {_degrees(card.temp_slowdown_c)}, shutdown "
        f"{_degrees(card.temp_shutdown_c)}{memory}",
    )
    if limit is None:
        if card.temp_c >= 0:
            return skip(f"{card.temp_c:.0f} °C, and this card tells no threshold")
        return missing(card, "temp_slowdown_c")
    figures = f"{card.temp_c:.0f} °C of {limit:.0f}"
    if card.temp_c >= limit:
        return fail(f"{figures}: the card slows itself down", line, _cooling(card))
    too_warm = card.temp_memory_c is not None and (card.temp_memory_max_c or 0) > 0
    if too_warm and (card.temp_memory_c or 0) >= (card.temp_memory_max_c or 0):
        return fail(f"its memory is at its limit{memory.removeprefix(', memory')}", line, _cooling(card))
    if card.temp_c >= limit - MARGIN_C:
        return warn(f"{figures}: {limit - card.temp_c:.0f} below its slowdown", line, _cooling(card))
    return ok(figures, line)


def _degrees(value: float | None) -> str:
    return "not told" if value is None else f"{value:.0f} °C"
