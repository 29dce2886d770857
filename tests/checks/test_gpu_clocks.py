"""G04 G05 G06 G07."""

from __future__ import annotations

import pytest

from console.checks import gpu_clocks
from console.core.facts import Facts
from tests.checks.cards import bare, box, card, refused, says, second

NOT_HERE = "not supported by this card or driver"


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "note", "300 of 1590 MHz while idle"),
        (box(card(sm_mhz=1590, util_pct=90.0)), "ok", "1590 of 1590 MHz"),
        (box(card(sm_mhz=900, util_pct=90.0, throttle_now=["power_cap"])), "ok", "900 of 1590 MHz under load, see G06"),
        (box(card(sm_mhz=1590)), "ok", "1590 of 1590 MHz"),
        (box(card(sm_mhz=900, util_pct=90.0)), "note", "a clock lock?"),
        (box(card(sm_mhz=1100, throttle_now=["applications_clocks"])), "note", "somebody has set"),
        (box(card(sm_mhz=None)), "unknown", "sm mhz"),
        (box(card(sm_max_mhz=None, missing={"sm_max_mhz": NOT_HERE})), "none", "not supported"),
        (box(card(util_pct=None, throttle_now=None)), "note", "while idle"),
        (bare(), "none", "no NVIDIA device"),
        (box(answers={"@nvml": refused()}), "unknown", "timed out"),
    ],
)
def test_clocks(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_clocks, "G04", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "70 W, the default"),
        (box(card(power_limit_w=60.0)), "warn", "60 W, below the default of 70 W"),
        (box(card(power_limit_w=75.0)), "note", "75 W, above the default"),
        (box(card(), second(power_limit_w=60.0)), "warn", "GPU 1: 60 W, below the default of 70 W; the others not"),
        (
            box(card(power_limit_w=60.0), second(power_limit_w=60.0)),
            "warn",
            "GPU 0: 60 W, below the default of 70 W; 1 more so",
        ),
        (box(card(power_default_w=None)), "unknown", "power default w"),
        (box(card(power_limit_w=None, missing={"power_limit_w": "the driver answers N/A"})), "none", "N/A"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_power(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_clocks, "G05", facts)
    assert found.sign == sign
    assert text in found.text


def test_the_power_limit_goes_back_to_its_default() -> None:
    found = says(gpu_clocks, "G05", box(card(power_limit_w=60.0)))
    assert found.fix is not None
    assert found.fix.commands == ("sudo nvidia-smi -i 0 -pl 70",)
    assert (found.fix.action, dict(found.fix.values)) == ("gpu.power_limit", {"watts": "70"})
    two = says(gpu_clocks, "G05", box(card(), second(power_limit_w=60.0)))
    assert two.fix is not None
    assert two.fix.commands == ("sudo nvidia-smi -i 1 -pl 70",)
    assert two.fix.action == ""  # which card the action would take could not be said


def counters(**seconds: float) -> list[dict[str, object]]:
    return [{"reason": name, "seconds": value} for name, value in seconds.items()]


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "no reason set at 41 °C"),
        (box(card(throttle_now=["applications_clocks"])), "ok", "only applications_clocks"),
        (box(card(throttle_now=["power_cap"])), "note", "at its power limit of 70 W"),
        (box(card(throttle_now=["heat_software"], temp_c=88.0)), "warn", "slows it for heat at 88 °C, in this sample"),
        (
            box(card(throttle_now=["hw_slowdown", "heat_hardware"], temp_c=94.0)),
            "warn",
            "the hardware slows it for heat at 94 °C",
        ),
        (
            box(card(throttle_now=["hw_slowdown", "heat_hardware"], throttle_counters=counters(heat_hardware=125.4))),
            "fail",
            "125 s so far",
        ),
        (box(card(throttle_now=["power_brake"], throttle_counters=counters(power_brake=3.0))), "warn", "power brake"),
        (
            box(card(throttle_counters=counters(power_brake=40.0))),
            "note",
            "not now; the host's power brake slows it: 40 s",
        ),
        (box(card(throttle_counters=counters(power_cap=90000.0))), "ok", "no reason set"),
        (box(card(throttle_now=None)), "unknown", "throttle now"),
        (box(card(throttle_now=None, missing={"throttle_now": NOT_HERE})), "none", "not supported"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_throttle(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_clocks, "G06", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "41 °C of 93"),
        (box(card(temp_c=89.0)), "warn", "89 °C of 93: 4 below its slowdown"),
        (box(card(temp_c=94.0)), "fail", "94 °C of 93: the card slows itself down"),
        (box(card(temp_memory_c=96.0, temp_memory_max_c=95.0)), "fail", "its memory is at its limit 96 of 95 °C"),
        (box(card(temp_slowdown_c=None)), "ok", "41 °C of 96"),
        (box(card(temp_slowdown_c=None, temp_shutdown_c=None)), "none", "tells no threshold"),
        (box(card(temp_c=None)), "unknown", "temp c"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_temperature(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_clocks, "G07", facts)
    assert found.sign == sign
    assert text in found.text
