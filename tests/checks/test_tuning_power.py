"""F04, F05."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import tuning_power
from console.checks.machine import VIRTUAL
from console.core.facts import CommandFact, FileFact
from tests.checks.host_told import GARBAGE, NO_GPU, ONE_GPU, PODMAN, container, facts_for, said, units
from tests.checks.told import folder

IDLE = "/sys/devices/system/cpu/cpu0/cpuidle"
PROFILE = "/etc/tuned/active_profile"
TUNED = {"/usr/lib/tuned": folder("accelerator-performance", "latency-performance", "throughput-performance")}
DETECT = VIRTUAL[0][2:]


def states(*found: tuple[str, int, int]) -> dict[str, str | FileFact]:
    """(name, latency, disable) each."""
    return {
        f"{IDLE}/state{at}/{name}": f"{value}\n"
        for at, one in enumerate(found)
        for name, value in zip(("name", "latency", "disable"), one, strict=True)
    }


DEEP = states(("POLL", 0, 0), ("C1E", 10, 0), ("C6", 133, 0))
SHALLOW = states(("POLL", 0, 0), ("C1E", 10, 0), ("C6", 133, 1))


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({}, "none", "no idle states here: a virtual machine, or they are off"),
        ({"/proc/cmdline": "ro idle=poll quiet\n"}, "ok", "idle=poll: CPUs never sleep"),
        (SHALLOW, "ok", "C1E is the deepest: 10 µs to wake"),
        (DEEP, "note", "C6 (133 µs to wake) is allowed; --slow tells how much it is used"),
        (DEEP | {PROFILE: "throughput-performance\n"}, "note", None),
        (DEEP | {PROFILE: "accelerator-performance\n"}, "ok", "accelerator-performance keeps CPUs out of C6 (133 µs)"),
        (
            DEEP | {PROFILE: "our-box\n", "/etc/tuned/our-box/tuned.conf": "[main]\ninclude=latency-performance\n"},
            "ok",
            "latency-performance keeps CPUs out of C6 (133 µs)",
        ),
        (
            DEEP | {f"{IDLE}/state2/latency": FileFact("file", why="denied")},
            "unknown",
            f"{IDLE}/state2/latency: denied",
        ),
        (states(("C6", 1, 0)) | {f"{IDLE}/state0/latency": "slow"}, "unknown", None),
    ],
)
def test_f04(files: dict[str, str | FileFact], sign: str, text: str | None) -> None:
    facts = facts_for(tuning_power.deep_sleep, files, answers={"@units": units(tuned="active")})
    finding = said(tuning_power.deep_sleep, facts)
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_f04_a_profile_holds_nothing_while_tuned_does_not_run() -> None:
    files = DEEP | {PROFILE: "accelerator-performance\n"}
    facts = facts_for(tuning_power.deep_sleep, files, answers={"@units": units(tuned="inactive")})
    assert said(tuning_power.deep_sleep, facts).sign == "note"


@pytest.mark.parametrize(
    ("samples", "status", "sign", "text"),
    [
        (
            {"seconds": 2.0, "cpuidle": {"C1E": 0.9, "C6": 0.01}},
            "running",
            "ok",
            "1 % of CPU time in 2 s in states over 100 µs",
        ),
        (
            {"seconds": 2.0, "cpuidle": {"C1E": 0.2, "C6": 0.7}},
            "running",
            "warn",
            "70 % of CPU time in 2 s in states over 100 µs",
        ),
        (
            {"seconds": 2.0, "cpuidle": {"C6": 0.7}},
            "exited",
            "note",
            "70 % of CPU time in 2 s in states over 100 µs, and no server runs",
        ),
        ({"seconds": 2.0, "cpuidle": {}}, "running", "unknown", "idle states were not sampled"),
        ("garbage", "running", "unknown", "idle states were not sampled"),
        (
            {"seconds": "x", "cpuidle": {"C6": "much", "C1E": None}},
            "running",
            "ok",
            "0 % of CPU time in states over 100 µs",
        ),
    ],
)
def test_f04_measured(samples: Any, status: str, sign: str, text: str) -> None:
    answers = {"@samples": samples, "@podman.inspect": container(status), "@units": units(tuned="active")}
    facts = facts_for(tuning_power.deep_sleep, DEEP | TUNED | {PROFILE: "balanced\n"}, answers=answers, slow=True)
    finding = said(tuning_power.deep_sleep, facts)
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert finding.fix.commands == ("sudo tuned-adm profile accelerator-performance",)


def test_f04_without_tuned_the_states_are_closed_by_hand() -> None:
    answers = {"@samples": {"seconds": 2, "cpuidle": {"C6": 0.9}}, "@podman.inspect": container()}
    fix = said(tuning_power.deep_sleep, facts_for(tuning_power.deep_sleep, DEEP, answers=answers, slow=True)).fix
    assert fix is not None
    assert (fix.kind, fix.commands, fix.deeds) == ("S", ("sudo cpupower idle-set -D 100",), ())


def test_f04_asks_podman_only_for_the_weight() -> None:
    answers = {"@samples": {"seconds": 2, "cpuidle": {"C6": 0.9}}}
    facts = facts_for(tuning_power.deep_sleep, DEEP | PODMAN, answers=answers, slow=True)
    assert said(tuning_power.deep_sleep, facts).sign == "unknown"


@pytest.mark.parametrize(
    ("profile", "detect", "tuned", "sign", "text"),
    [
        ("latency-performance", "none", "active", "ok", "latency-performance"),
        ("accelerator-performance ours", "none", "active", "ok", "accelerator-performance ours"),
        (
            "throughput-performance",
            "none",
            "active",
            "note",
            "throughput-performance; accelerator-performance also limits idle states",
        ),
        ("virtual-guest", "kvm", "active", "ok", "virtual-guest"),
        ("virtual-guest", "none", "active", "warn", "virtual-guest on the bare machine"),
        ("balanced", "none", "active", "warn", "balanced saves energy"),
        ("powersave", "none", "inactive", "warn", "powersave saves energy"),
        ("latency-performance", "none", "inactive", "warn", "latency-performance is chosen, but tuned does not run"),
        ("latency-performance", "none", None, "unknown", "systemd was not asked about tuned.service"),
        ("", "none", "active", "note", "no profile is chosen: F01 to F04 judge what it would set"),
        (None, "none", "active", "none", "tuned is not installed: F01 to F04 judge what it would set"),
    ],
)
def test_f05(profile: str | None, detect: str, tuned: str | None, sign: str, text: str) -> None:
    files = TUNED | ({PROFILE: f"{profile}\n", "/etc/tuned/profile_mode": "manual\n"} if profile is not None else {})
    facts = facts_for(
        tuning_power.profile,
        files,
        {DETECT: CommandFact(1 if detect == "none" else 0, detect)},
        {"@units": units(tuned=tuned) if tuned else {}},
        variables=ONE_GPU,
    )
    finding = said(tuning_power.profile, facts)
    assert (finding.sign, finding.text) == (sign, text)


def test_f05_keeps_the_profile_that_tuned_chose_by_itself() -> None:
    files = TUNED | {PROFILE: "balanced\n", "/etc/tuned/profile_mode": "auto\n"}
    facts = facts_for(tuning_power.profile, files, answers={"@units": units(tuned="inactive")}, variables=ONE_GPU)
    fix = said(tuning_power.profile, facts).fix
    assert fix is not None
    assert fix.kind == "P"
    assert [deed.argv for deed in fix.deeds] == [
        ("systemctl", "enable", "--now", "tuned"),
        ("tuned-adm", "profile", "accelerator-performance"),
    ]
    assert [deed.argv for deed in fix.back] == [
        ("tuned-adm", "auto_profile"),
        ("systemctl", "disable", "--now", "tuned"),
    ]


def test_f05_is_only_worth_knowing_on_a_laptop() -> None:
    files: dict[str, str | FileFact] = {PROFILE: "balanced-battery\n"}
    assert said(tuning_power.profile, facts_for(tuning_power.profile, files, variables=NO_GPU)).sign == "note"


@pytest.mark.parametrize("text", [*GARBAGE, "--help; rm -rf /"])
def test_garbage(text: str) -> None:
    files = states(("C6", 133, 0)) | {f"{IDLE}/state0/latency": text, PROFILE: text, "/etc/tuned/profile_mode": text}
    facts = facts_for(tuning_power.deep_sleep, files, answers={"@units": text})
    assert said(tuning_power.deep_sleep, facts).sign == "unknown"
    facts = facts_for(tuning_power.profile, {PROFILE: text}, answers={"@units": units(tuned="active")})
    assert said(tuning_power.profile, facts).sign == "note"
