"""Faults and their events, whole, and how much of a message is kept."""

from __future__ import annotations

from console.core import kernel_faults
from console.core.kernel_faults import MAX_TEXT
from console.core.model import Event, KernelFault

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=5, name=x, gone"


def test_an_xid() -> None:
    fault = kernel_faults.parse(7.0, XID)
    assert fault == KernelFault(7.0, "xid", XID, xid=79, pci_bus_id="0000:3b:00", pid=5, process="x")
    event = kernel_faults.event(fault)
    assert (event.wall, event.origin, event.kind) == (7.0, "(kernel)", "xid")
    assert event.detail == ("NVIDIA's action: restart the host", XID)
    assert event.model is None


def test_an_oom() -> None:
    text = "Out of memory: Killed process 12 (python3) total-vm:1kB"
    fault = kernel_faults.parse(7.0, text)
    assert fault == KernelFault(7.0, "oom", text, pid=12, process="python3")
    said = "the kernel killed python3 (12): the host's memory ran out"
    assert kernel_faults.event(fault) == Event(7.0, "fail", said, "(kernel)", "oom", detail=(text,))
    nameless = KernelFault(7.0, "oom", text, pid=12)
    assert kernel_faults.event(nameless).text.startswith("the kernel killed a process (12)")


def test_a_fault_without_its_number_is_told_as_what_it_is() -> None:
    assert kernel_faults.event(KernelFault(7.0, "oom", "x", pid=1, xid=79)).kind == "oom"


def test_how_much_is_kept() -> None:
    assert MAX_TEXT == 500
    fault = kernel_faults.parse(7.0, XID + "x" * 1000)
    assert fault is not None
    assert fault.text.partition("… +")[0] == (XID + "x" * 1000)[:500]
    named = kernel_faults.parse(7.0, f"NVRM: Xid (PCI:0000:3b:00): 79, pid=5, name={'n' * 80}, x")
    assert named is not None
    assert named.process == "n" * 80
    killed = kernel_faults.parse(7.0, f"Out of memory: Killed process 12 ({'n' * 80})")
    assert killed is not None
    assert killed.process == "n" * 80
    assert kernel_faults.parse(7.0, f"Out of memory: Killed process 12 ({'n' * 81})") is None
