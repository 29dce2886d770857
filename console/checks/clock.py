"""The clock (J01)."""

from __future__ import annotations

import re

from console.checks.check import Answer, check, ok, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

_TIMEDATECTL = "$ timedatectl show -p NTPSynchronized -p NTP"
_CHRONY = "$ chronyc -n tracking"


@check(
    "J01",
    "the clock is synchronised",
    group="time",
    slug="clock",
    needs=(_TIMEDATECTL, _CHRONY),
    why=(
        "Traces, metrics and logs of several boxes can be laid side by side only where their clocks agree. "
        "A clock that is far off also breaks TLS: pulls fail with a certificate that is not yet valid."
    ),
    source="timedatectl(1), chronyc(1)",
)
def clock(facts: Facts) -> Answer:
    blind: Unknowable | None = None
    told: dict[str, str] = {}
    try:
        answer = facts.command(_TIMEDATECTL[2:])
        told = dict(re.findall(r"^(NTP|NTPSynchronized)=(yes|no)$", answer.out, re.MULTILINE))
        if "NTPSynchronized" not in told:
            blind = Unknowable(
                f"timedatectl does not tell: {one_line(answer.err or answer.out, 100)}", _TIMEDATECTL[2:]
            )
    except Unknowable as why:
        blind = why
    evidence = [Evidence(_TIMEDATECTL, f"{name}={value}") for name, value in told.items()]
    leap, offset, lines = _tracking(facts)
    evidence += lines
    if told.get("NTPSynchronized") == "yes":
        return ok(f"synchronised{offset}", evidence)
    if leap == "Normal":  # without `rtcsync` chrony leaves the kernel's flag, which systemd reads, as it is
        return ok(f"synchronised by chrony{offset}", evidence)
    if blind is not None and leap != "Not synchronised":
        raise blind
    if told.get("NTP") == "no":
        fix = Fix(
            "B",
            ("sudo timedatectl set-ntp true",),
            "takes effect now and at each boot; the clock is brought near step by step",
            "sudo timedatectl set-ntp false",
            deeds=(Deed("run", ("timedatectl", "set-ntp", "true")),),
            back=(Deed("run", ("timedatectl", "set-ntp", "false")),),
        )
        return warn("nothing synchronises it", evidence, fix)
    fix = Fix("S", ("chronyc -n sources -v", "sudo chronyc makestep"), "the first tells which sources answer")
    return warn("a service is on, but it is not synchronised", evidence, fix)


def _tracking(facts: Facts) -> tuple[str, str, list[Evidence]]:
    """(chrony's leap status, how far the clock is off as words, the lines); empty where chrony does not answer."""
    try:
        answer = facts.command(_CHRONY[2:])
    except Unknowable:
        return "", "", []
    leap = re.search(r"^Leap status\s*: ([A-Za-z ]{1,30})$", answer.out, re.MULTILINE)
    off = re.search(r"^System time\s*: (\d{1,12}\.\d{1,12}) seconds (slow|fast)", answer.out, re.MULTILINE)
    if answer.code != 0 or leap is None:
        return "", "", []
    seconds = float(off.group(1)) if off is not None else None
    words = (
        ""
        if seconds is None
        else f", {seconds * 1e6:.0f} µs off"
        if seconds < 0.001
        else f", {seconds * 1e3:.1f} ms off"
    )
    return leap.group(1).strip(), words, [Evidence(_CHRONY, leap.group())]
