"""G12 G13."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import gpu_xid
from console.core.facts import Facts
from tests.checks.cards import bare, box, card, refused, says, second

LOST = card(lost={"kind": "unavailable", "message": "NVML error 15: the GPU is lost"}, lost_wall=1.0)


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none"),
        (box(card(recovery_action="gpu_reset")), "fail", "asks for a reset of the card"),
        (box(card(recovery_action="node_reboot")), "fail", "asks for a reboot of the host"),
        (box(card(recovery_action="drain_p2p")), "warn", "drained"),
        (box(card(recovery_action="unknown (9)")), "warn", "unknown (9)"),
        (box(LOST), "fail", "no longer answers: NVML error 15"),
        (
            box(card(), second(lost={"kind": "unavailable", "message": "gone"})),
            "fail",
            "no longer answers (GPU 1): gone",
        ),
        (
            box(card(recovery_action=None, missing={"recovery_action": "not supported by this card or driver"})),
            "none",
            "not",
        ),
        (box(card(recovery_action=None, missing={"recovery_action": "NVML error 999: x"})), "unknown", "999"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_recovery(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_xid, "G12", facts)
    assert found.sign == sign
    assert text in found.text


NOW = 1_790_000_000.0


def log(*lines: tuple[float, str], source: str = "kmsg") -> dict[str, Any]:
    return {"@kernel.log": {"source": source, "lines": [{"wall": NOW - ago, "text": text} for ago, text in lines]}}


def xid(number: int, rest: str = "pid=2211, name=tritonserver, x", pci: str = "PCI:0000:3b:00") -> str:
    return f"NVRM: Xid ({pci}): {number}, {rest}"


NAMES = {"unit": ("triton.service",), "user": ("root",)}
DAY = 86400.0


@pytest.mark.parametrize(
    ("answers", "sign", "text"),
    [
        (log(), "ok", "none as far back as the log goes (kmsg)"),
        (log((5, "NVRM: loading NVIDIA UNIX"), (4, "Out of memory: Killed process 5 (python)")), "ok", "none"),
        (log((60, xid(79))), "fail", "Xid 79 60 s ago, the GPU has fallen off the bus: restart the host"),
        (log((60, xid(31))), "warn", "Xid 31"),
        (log((2 * DAY, xid(31))), "note", "Xid 31 2 d ago"),
        (log((2 * DAY, xid(48)), (2 * DAY - 1, xid(95))), "warn", "Xid 95"),
        (log((60, xid(43))), "note", "Xid 43"),
        (log((60, xid(45))), "note", "Xid 45 60 s ago: work was removed, as after each kill of a process"),
        (log((70, xid(31)), (60, xid(45))), "warn", "Xid 31 with 45"),
        (log((70, xid(48)), (66, xid(63)), (60, xid(45)), (30, xid(94))), "warn", "Xid 94 with 48, 63, 45"),
        (log((4000, xid(13)), (60, xid(79))), "fail", "2 incidents in all"),
        (log((60, "NVRM: Xid (0000:3b:00): 31, Ch 00000010")), "warn", "Xid 31"),
        (
            log((60, xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"))),
            "fail",
            "Node Reboot Required",
        ),
        (log((60, xid(109, "ctx switch timeout"))), "fail", "reset the GPU if it repeats"),
        (log((60, xid(9999))), "warn", "Xid 9999"),
        ({"@kernel.log": refused("kernel log: permission denied")}, "unknown", "permission denied"),
        ({"@kernel.log": "garbage"}, "unknown", "could not be read"),
        (
            {"@kernel.log": {"source": 7, "lines": [None, 3, {"text": None}, {"wall": 1e300, "text": xid(31)}]}},
            "warn",
            "Xid 31",
        ),
    ],
)
def test_xid(answers: dict[str, Any], sign: str, text: str) -> None:
    found = says(gpu_xid, "G13", box(answers=answers, variables=NAMES, wall=NOW))
    assert found.sign == sign
    assert text in found.text
    assert says(gpu_xid, "G13", bare(answers)).sign == "none"


def test_each_class_of_xid_has_its_own_remedy() -> None:
    def fix(number: int) -> Any:
        return says(gpu_xid, "G13", box(answers=log((60, xid(number))), variables=NAMES, wall=NOW)).fix

    assert (fix(79).kind, fix(79).reboot) == ("R", True)
    assert fix(119).commands[2] == "sudo nvidia-smi --gpu-reset -i 0"
    assert (fix(119).kind, fix(119).deeds) == ("R", ())
    assert fix(31).commands == ("sudo systemctl restart triton.service",)
    assert fix(54).kind == "S"


def test_two_cards_make_two_incidents_and_the_evidence_is_the_lines() -> None:
    answers = log((60, xid(31)), (59, xid(79, pci="PCI:0000:af:00")))
    found = says(gpu_xid, "G13", box(card(), second(), answers=answers, wall=NOW))
    assert found.sign == "fail"
    assert found.data == {"xid": "79", "gpu": "0000:af:00"}
    assert "2 incidents" in found.text
    assert found.evidence[0].text.startswith("NVRM: Xid (PCI:0000:af:00): 79")
    assert found.evidence[0].where.startswith("kmsg, 2026-09-21")


def test_an_old_lost_card_still_fails_while_it_does_not_answer() -> None:
    answers = log((3 * DAY, xid(79)))
    assert says(gpu_xid, "G13", box(answers=answers, wall=NOW)).sign == "warn"
    assert says(gpu_xid, "G13", box(LOST, answers=answers, wall=NOW)).sign == "fail"
    assert says(gpu_xid, "G13", box(answers={**answers, "@nvml": refused()}, wall=NOW)).sign == "fail"
