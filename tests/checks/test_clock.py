"""J01."""

from __future__ import annotations

import pytest

from console.checks import clock
from console.core.facts import CommandFact
from tests.checks.host_told import GARBAGE, facts_for, said

TIMEDATECTL = "timedatectl show -p NTPSynchronized -p NTP"
CHRONY = "chronyc -n tracking"
NO_SYSTEMD = CommandFact(1, "", "System has not been booted with systemd as init system (PID 1). Can't operate.")


def tracking(leap: str) -> str:
    """As chrony 4 prints it, shortened."""
    return (
        "Reference ID    : C0A80101 (192.168.1.1)\nStratum         : 3\n"
        f"System time     : 0.000012417 seconds slow of NTP time\nLeap status     : {leap}\n"
    )


@pytest.mark.parametrize(
    ("commands", "sign", "text"),
    [
        ({TIMEDATECTL: "NTP=yes\nNTPSynchronized=yes\n"}, "ok", "synchronised"),
        ({TIMEDATECTL: "NTPSynchronized=yes\nNTP=no\n", CHRONY: tracking("Normal")}, "ok", "synchronised, 12 µs off"),
        ({TIMEDATECTL: "NTP=yes\nNTPSynchronized=no\n"}, "warn", "a service is on, but it is not synchronised"),
        ({TIMEDATECTL: "NTP=no\nNTPSynchronized=no\n"}, "warn", "nothing synchronises it"),
        (
            {TIMEDATECTL: "NTP=no\nNTPSynchronized=no\n", CHRONY: tracking("Normal")},
            "ok",
            "synchronised by chrony, 12 µs off",
        ),
        ({TIMEDATECTL: NO_SYSTEMD, CHRONY: tracking("Normal")}, "ok", "synchronised by chrony, 12 µs off"),
        (
            {TIMEDATECTL: NO_SYSTEMD, CHRONY: tracking("Not synchronised")},
            "warn",
            "a service is on, but it is not synchronised",
        ),
        ({TIMEDATECTL: NO_SYSTEMD, CHRONY: CommandFact(1, "506 Cannot talk to daemon")}, "unknown", None),
        ({}, "unknown", f"{TIMEDATECTL}: timedatectl is not installed"),
    ],
)
def test_j01(commands: dict[str, str | CommandFact], sign: str, text: str | None) -> None:
    finding = said(clock.clock, facts_for(clock.clock, commands=commands))
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_j01_is_switched_on_and_off_again() -> None:
    fix = said(clock.clock, facts_for(clock.clock, commands={TIMEDATECTL: "NTP=no\nNTPSynchronized=no\n"})).fix
    assert fix is not None
    assert [deed.argv for deed in fix.deeds] == [("timedatectl", "set-ntp", "true")]
    assert [deed.argv for deed in fix.back] == [("timedatectl", "set-ntp", "false")]


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage(text: str) -> None:
    facts = facts_for(clock.clock, commands={TIMEDATECTL: text, CHRONY: text})
    assert said(clock.clock, facts).sign == "unknown"
