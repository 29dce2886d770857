"""Xids of one card within a minute are one incident, with the worst action."""

from __future__ import annotations

import pytest

from console.core.kernel_faults import parse
from console.core.model import KernelFault
from console.core.xid_incidents import TOGETHER, incidents, pci_address, same_card


def faults(*lines: tuple[float, str]) -> list[KernelFault]:
    return [fault for wall, text in lines if (fault := parse(wall, text)) is not None]


def of_one_card(*numbers: int) -> list[KernelFault]:
    return faults(*((float(at), f"NVRM: Xid (PCI:0000:3b:00): {number}, x") for at, number in enumerate(numbers)))


def test_xids_further_apart_or_of_another_card_are_other_incidents() -> None:
    found = incidents(
        faults(
            (1000.0, "NVRM: Xid (PCI:0000:3b:00): 31, pid=9, MMU Fault"),
            (1000.0 + TOGETHER + 1, "NVRM: Xid (PCI:0000:3b:00): 13, pid=9, x"),
            (1001.0, "NVRM: Xid (0000:af:00): 48, pid=9, x"),
            (1001.0, "Out of memory: Killed process 5 (python)"),
            (1000.0 + 2 * TOGETHER, "NVRM: Xid (PCI:0000:3b:00): 45, pid=9, x"),
        )
    )
    assert [(one.pci, one.lead.xid, one.others, one.places) for one in found] == [
        ("0000:3b:00", 31, (), (0,)),
        ("0000:3b:00", 13, (45,), (1, 4)),
        ("0000:af:00", 48, (), (2,)),
    ]


@pytest.mark.parametrize(
    ("numbers", "lead", "sign", "action"),
    [
        ([13, 45], 13, "warn", "restart the application"),
        ([94, 45], 94, "warn", "restart the application"),
        ([48, 63, 45], 48, "warn", "look at"),
        ([31, 119], 119, "fail", "reset the GPU"),
        ([109], 109, "fail", "if it repeats"),
        ([43], 43, "note", "none"),
        ([999], 999, "warn", "not in NVIDIA's catalogue"),
        ([154], 154, "warn", "look at"),
        ([45, 154], 154, "warn", "look at"),
    ],
)
def test_the_action_is_that_of_the_worst(numbers: list[int], lead: int, sign: str, action: str) -> None:
    one = incidents(of_one_card(*numbers))[0]
    assert (one.lead.xid, one.sign) == (lead, sign)
    assert action in one.action


@pytest.mark.parametrize(
    ("word", "action", "sign"),
    [
        ("Node Reboot Required", "Node Reboot Required", "fail"),
        ("GPU Reset Required", "GPU Reset Required", "fail"),
        ("Drain P2P", "Drain P2P", "warn"),
        ("None", "restart the host", "fail"),
    ],
)
def test_what_154_says_outranks_the_catalogue_unless_it_says_nothing(word: str, action: str, sign: str) -> None:
    summary = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 ({word})"
    one = incidents(faults((1.0, "NVRM: Xid (PCI:0000:3b:00): 79, x"), (2.0, summary)))[0]
    assert (one.lead.xid, one.action, one.sign, one.last) == (79, action, sign, 2.0)


def test_only_45_follows_nothing() -> None:
    assert incidents(of_one_card(45, 45))[0].follows_nothing
    assert not incidents(of_one_card(45, 13))[0].follows_nothing


@pytest.mark.parametrize("text", ["00000000:3B:00.0", "PCI:0000:3b:00", "0000:3b:00.0", "0000:3B:00"])
def test_addresses_of_kernel_and_nvml_agree(text: str) -> None:
    assert pci_address(text) == "0000:3b:00"
    assert same_card(text, "0000:3b:00")
    assert not same_card(text, "00010000:3B:00.0")
    assert same_card(text, None)
