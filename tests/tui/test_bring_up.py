"""Bring-up fed by the checklist: one root at a time, its commands for this box, and what waits for it."""

from __future__ import annotations

import pytest

from console.core.finding import Report
from console.tui.panes.bring_up import CHECKS, Step, steps
from tests.checks import tree
from tests.checks.faults import faults
from tests.fakes.boxes import box_of, bring_up_box, good


def told(report: Report) -> tuple[Step, ...]:
    parts = {reading.part: reading for reading in bring_up_box().readings}
    return steps(box_of({**parts, "checks": good("checks", report)}).snapshot)


def broken(name: str, on: str) -> Report:
    box = tree.tree(on)
    next(one for one in faults() if one.name == name).change(box)
    return tree.judge(box)


def test_nouveau_holds_the_card() -> None:
    made = told(broken("nouveau-owns-the-gpu", "rocky88"))
    driver = made[1]
    assert (driver.sign, driver.fix) == ("fail", "")
    assert driver.state == "nouveau is loaded and holds 0000:3b:00.0"
    assert driver.commands[-1] == "sudo systemctl reboot"
    assert driver.next == f"y copy {len(driver.commands)} commands, reboot"
    assert not any("modprobe nvidia" in line for line in driver.commands), "what follows is not mended by itself"
    assert (made[2].sign, made[2].next, made[2].fix) == ("none", "after 2", "")
    assert (made[7].next, made[8].next) == ("after 2", "after 2")


def test_a_socket_that_is_off_is_mended_from_here() -> None:
    podman = told(broken("podman-socket-off", "el9_quadlet"))[3]
    assert (podman.sign, podman.fix, podman.next) == ("fail", "D01", "f fix D01 (plan first)")


@pytest.mark.parametrize("name", ["el8_rootful", "el8_rootless", "el9_quadlet", "debian12"])
def test_a_healthy_box_has_no_step_that_fails_for_a_check(name: str) -> None:
    report = tree.judge(tree.tree(name))
    plain = told(Report(causes=(), findings=()))
    for number, step in enumerate(told(report)):
        assert step.sign != "fail" or plain[number].sign == "fail"
        assert not step.fix or step.sign == "warn"


def test_each_check_of_a_step_is_there() -> None:
    known = {one.id for one in tree.judge(tree.tree("laptop")).findings}
    assert {id_ for ids in CHECKS for id_ in ids} <= known
