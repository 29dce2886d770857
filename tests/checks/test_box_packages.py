"""Installed packages and kernel log lines, as the checks read them."""

from __future__ import annotations

import shlex

import pytest

from console.checks.box import DEB_ALL, KERNEL_LOG, RPM_ALL, debs, kernel_lines, rpms
from console.core.facts import AnswerFact, CommandFact, Evidence, Facts, NotNeededError, Unknowable
from tests.checks.told import told

RPM, DEB = RPM_ALL[2:], DEB_ALL[2:]


def test_the_programs_get_their_formats_whole() -> None:
    assert shlex.split(RPM) == ["rpm", "-qa", "--qf", r"%{NAME}\t%{VERSION}\n"]
    assert shlex.split(DEB) == ["dpkg-query", "-W", r"-f=${Package}\t${Version}\t${Status}\n"]


def test_rpms() -> None:
    facts = told(commands={RPM: "kernel\t4.18.0\nkernel\t4.18.0\ncontainer-selinux\t2.229.0\nwarning: a lock\n"})
    assert rpms(facts) == (("kernel", "4.18.0"), ("kernel", "4.18.0"), ("container-selinux", "2.229.0"))


def test_debs_are_those_installed() -> None:
    out = (
        "podman\t4.3.1+ds1-8\tinstall ok installed\n"
        "nvidia-driver\t525\tdeinstall ok config-files\n"
        "x\t1\thold ok installed\n"
    )
    assert debs(told(commands={DEB: out})) == (("podman", "4.3.1+ds1-8"), ("x", "1"))


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (CommandFact(1, "", "error: cannot open Packages database"), "rpm listed no packages (it ended with 1)"),
        (CommandFact(0, "\x00\xff" * 40), "rpm listed no packages (it ended with 0)"),
        (CommandFact(None, why="not installed"), f"{RPM}: not installed"),
    ],
)
def test_no_list_is_not_an_empty_list(fact: CommandFact, why: str) -> None:
    with pytest.raises(Unknowable) as missing:
        rpms(told(commands={RPM: fact}))
    assert missing.value.why == why
    assert missing.value.settle == RPM


def test_kernel_lines() -> None:
    lines = [
        {"wall": 1782439201.5, "text": "NVRM: API mismatch: the client"},
        {"wall": None, "text": "NVRM: loading"},
        {"wall": 1.0, "text": "usb 1-1: new device"},
        {"wall": "x"},
        7,
    ]
    facts = told(answers={KERNEL_LOG: {"source": "journal", "lines": lines}})
    assert kernel_lines(facts, "^NVRM") == (
        Evidence("kernel log, 2026-06-26 02:00:01 UTC", "NVRM: API mismatch: the client"),
        Evidence("kernel log", "NVRM: loading"),
    )


@pytest.mark.parametrize("value", [None, [], {"lines": "text"}, AnswerFact(why="needs root", settle="sudo dmesg")])
def test_a_log_that_could_not_be_read_is_unknown(value: object) -> None:
    with pytest.raises(Unknowable):
        kernel_lines(told(answers={KERNEL_LOG: value}), "NVRM")


def test_what_is_not_asked_for_is_a_fault() -> None:
    for read in (rpms, debs):
        with pytest.raises(NotNeededError):
            read(Facts())
