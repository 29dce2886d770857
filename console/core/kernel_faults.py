"""Lines of the kernel log -> Xids and OOM kills, and their events (pure)."""

from __future__ import annotations

import re

from console.core import xid as xids
from console.core.model import Event, KernelFault
from console.core.text import one_line

MAX_TEXT = 500

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]{4,20})\): (?P<xid>\d{1,4})(?:, (?P<rest>.*))?", re.DOTALL
)
_PID = re.compile(r"\bpid='?(?P<pid>\d+)")
_NAME = re.compile(r"\bname=(?P<name>[^,<]{1,80})")
_OOM = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory)[^:]{0,60}: Kill(?:ed)? process (?P<pid>\d+) "
    r"\((?P<name>[^)]{0,80})\)"
)


def parse(wall: float, message: str) -> KernelFault | None:
    """The fault that one kernel message tells; None for all others."""
    if "Xid" in message:
        match = _XID.search(message)
        if match is not None:
            return _xid(wall, message, match)
    if "ut of memory" in message:
        match = _OOM.search(message)
        if match is not None:
            text = one_line(message, MAX_TEXT)
            return KernelFault(wall, "oom", text, pid=int(match["pid"]), process=one_line(match["name"], 80))
    return None


def _xid(wall: float, message: str, match: re.Match[str]) -> KernelFault:
    rest = match["rest"] or ""
    pid, name = _PID.search(rest), _NAME.search(rest)
    return KernelFault(
        wall,
        "xid",
        one_line(message, MAX_TEXT),
        xid=int(match["xid"]),
        pci_bus_id=match["pci"],
        pid=int(pid["pid"]) if pid else None,
        process=one_line(name["name"], 80) if name else None,
    )


def event(fault: KernelFault) -> Event:
    """The Timeline's words for a fault."""
    detail = (fault.text,)
    if fault.kind == "xid" and fault.xid is not None:
        known = xids.describe(fault.xid, fault.text)
        text = f"GPU {fault.pci_bus_id}: Xid {fault.xid}, {known.meaning}"
        return Event(
            fault.wall, known.sign, text, "(kernel)", "xid", detail=(f"NVIDIA's action: {known.action}", *detail)
        )
    where = "a container's memory limit" if "cgroup" in fault.text else "the host's memory ran out"
    text = f"the kernel killed {fault.process or 'a process'} ({fault.pid}): {where}"
    return Event(fault.wall, "fail", text, "(kernel)", "oom", detail=detail)
