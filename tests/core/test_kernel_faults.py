"""Kernel messages -> faults, events, and what NVIDIA says of an Xid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core import kernel_faults, xid
from console.core.model import Event, KernelFault


def fault(message: str) -> KernelFault:
    found = kernel_faults.parse(5.0, message)
    assert found is not None
    return found


def told(message: str) -> Event:
    return kernel_faults.event(fault(message))


def test_xid_with_process() -> None:
    found = fault("NVRM: Xid (PCI:0000:3b:00): 13, pid=4242, name=tritonserver, Graphics SM Warp Exception")
    assert (found.kind, found.xid, found.pci_bus_id, found.pid, found.process) == (
        "xid",
        13,
        "0000:3b:00",
        4242,
        "tritonserver",
    )


@pytest.mark.parametrize(
    ("message", "number", "pid", "name"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            79,
            None,
            None,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, None, None),
        ("NVRM: Xid (0000:3b:00): 31, pid=1, Ch 00000010", 31, 1, None),
        ("[ 12.3] NVRM: Xid (PCI:0000:3b:00): 43", 43, None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid='77', name=a b, x", 43, 77, "a b"),
    ],
)
def test_xid_forms(message: str, number: int, pid: int | None, name: str | None) -> None:
    found = fault(message)
    assert (found.xid, found.pid, found.process) == (number, pid, name)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ("Out of memory: Killed process 1234 (python3) total-vm:1kB", "the host's memory ran out"),
        ("Out of memory: Kill process 1234 (python3) score 9 or sacrifice child", "the host's memory ran out"),
        ("Memory cgroup out of memory: Killed process 1234 (python3) total-vm:1kB", "a container's memory limit"),
        ("Out of memory (oom_kill_allocating_task): Killed process 1234 (python3)", "the host's memory ran out"),
    ],
)
def test_oom(message: str, where: str) -> None:
    found = fault(message)
    assert (found.kind, found.pid, found.process) == ("oom", 1234, "python3")
    event = kernel_faults.event(found)
    assert (event.sign, event.kind, event.text) == ("fail", "oom", f"the kernel killed python3 (1234): {where}")


@pytest.mark.parametrize(
    "message", ["", "NVRM: loading", "Xid nothing", "process ran out of memory", "out of memory: x"]
)
def test_no_fault(message: str) -> None:
    assert kernel_faults.parse(5.0, message) is None


def test_events_of_xids() -> None:
    event = told("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    assert (event.sign, event.origin, event.kind) == ("fail", "(kernel)", "xid")
    assert event.text == "GPU 0000:3b:00: Xid 79, the GPU has fallen off the bus"
    assert event.detail[0] == "NVIDIA's action: restart the host"
    assert told("NVRM: Xid (PCI:0000:3b:00): 13, x").sign == "warn"
    assert told("NVRM: Xid (PCI:0000:3b:00): 63, x").sign == "note"


def test_the_drivers_own_words_outrank_the_table() -> None:
    event = told(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    )
    assert event.sign == "fail"
    assert event.detail[0] == "NVIDIA's action: Node Reboot Required"
    back = xid.describe(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")
    assert back.sign == "note"
    assert xid.describe(154).action == xid.LOOK_AT_OTHERS


def test_table() -> None:
    assert xid.describe(109).action == xid.REPEATED
    assert xid.describe(54).action == xid.CHECK_POWER
    assert xid.describe(146).action == xid.LOOK_AT_OTHERS
    assert xid.describe(9999).sign == "warn"
    listed = [number for _, _, numbers in xid._ACTIONS for number in numbers]
    assert len(listed) == len(set(listed)), "no Xid has two actions"
    assert len(listed) > 90
    assert set(xid._MEANINGS) <= set(listed) | {154}


def test_worst_of_an_incident() -> None:
    found = [xid.describe(number) for number in (45, 31, 79, 109)]
    worst = xid.worst(found)
    assert worst is not None
    assert worst.xid == 79
    assert xid.worst([]) is None
    drained = xid.describe(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)")
    told = xid.worst([*found, drained])
    assert told is not None
    assert told.xid == 154


@given(st.text(max_size=300))
def test_any_message_is_survived(message: str) -> None:
    found = kernel_faults.parse(1.0, message)
    if found is not None:
        kernel_faults.event(found)


@given(st.integers(0, 9999), st.integers(1, 2**22), st.text(alphabet="abcXYZ /[]-_.", min_size=1, max_size=15))
def test_what_is_written_is_read(number: int, pid: int, name: str) -> None:
    found = fault(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid={pid}, name={name}, text")
    assert (found.xid, found.pid) == (number, pid)
