"""Xids of one card within a minute are one incident: which of them leads it, and what is to be done (pure).

Source: host.md 6.1. 45 follows others, 154 sums them up: neither names an incident, and what 154 says outranks the
catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from console.core import xid
from console.core.model import KernelFault, Sign
from console.core.xid import XidMeaning

TOGETHER = 60.0
"""Seconds; lines of one card no further apart belong together."""
FOLLOWER, SUMMARY = 45, 154
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})")


class Incident(Struct, frozen=True):
    """Xids of one card, each within a minute of the one before."""

    pci: str
    """Address without the function: 0000:3b:00."""
    faults: tuple[KernelFault, ...]
    places: tuple[int, ...]
    """Of these faults in what was given."""
    lead: XidMeaning
    """The worst of those that are neither FOLLOWER nor SUMMARY, where there is one."""
    action: str
    sign: Sign

    @property
    def last(self) -> float:
        """Unix time of its last line."""
        return self.faults[-1].wall

    @property
    def others(self) -> tuple[int, ...]:
        """Its other Xids, each once."""
        numbers = dict.fromkeys(fault.xid for fault in self.faults if fault.xid is not None)
        return tuple(number for number in numbers if number != self.lead.xid)

    @property
    def follows_nothing(self) -> bool:
        """Only 45: an application was ended, as by each kill of a process that used the card."""
        return self.lead.xid == FOLLOWER


def pci_address(text: str) -> str:
    """`00000000:3B:00.0` of NVML and `PCI:0000:3b:00` of the kernel as sysfs has them, without the function."""
    match = _ADDRESS.search(text.lower())
    return f"{match[1].lstrip('0').zfill(4)}:{match[2]}:{match[3]}" if match else text.lower()


def same_card(one: str | None, other: str | None) -> bool:
    """Whether two addresses, in whichever spelling, are of one card; True where one of them is not told."""
    return not one or not other or pci_address(one) == pci_address(other)


def incidents(faults: Sequence[KernelFault]) -> tuple[Incident, ...]:
    """Of faults in the order of their lines; by the first line of each. What is no Xid is left out."""
    chains: list[tuple[str, list[int]]] = []
    open_: dict[str, list[int]] = {}
    for place, fault in enumerate(faults):
        if fault.kind != "xid" or fault.xid is None:
            continue
        pci = pci_address(fault.pci_bus_id or "")
        chain = open_.get(pci)
        if chain is None or abs(fault.wall - faults[chain[-1]].wall) > TOGETHER:
            chain = open_[pci] = []
            chains.append((pci, chain))
        chain.append(place)
    return tuple(_incident(pci, chain, faults) for pci, chain in chains)


def _incident(pci: str, places: Sequence[int], faults: Sequence[KernelFault]) -> Incident:
    own = tuple(faults[place] for place in places)
    known = [xid.describe(fault.xid, fault.text) for fault in own if fault.xid is not None]
    lead = xid.worst([one for one in known if one.xid not in (FOLLOWER, SUMMARY)] or known)
    told = [one for one in known if one.xid == SUMMARY and one.action not in (xid.LOOK_AT_OTHERS, "None")]
    heavy = told[-1] if told else xid.worst([one for one in known if one.xid != FOLLOWER] or known)
    if lead is None or heavy is None:
        raise ValueError("an incident has at least one Xid")
    return Incident(pci, own, tuple(places), lead, heavy.action, heavy.sign)
