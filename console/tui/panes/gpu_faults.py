"""Faults of the card (design 1.12): Xids from the kernel log with what they mean, and what the driver wants done."""

from __future__ import annotations

from collections.abc import Iterator

from console.core.model import GpuState, KernelFault, KernelLog
from console.core.text import one_line
from console.core.xid import describe
from console.core.xid_incidents import same_card
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import failed, sign, wrapped
from console.tui.widgets.cells import Line
from console.tui.widgets.lines import Row

MOST = 20
ACTIONS = {
    "gpu_reset": "reset the GPU",
    "node_reboot": "restart the host",
    "drain_p2p": "drain peer traffic",
    "drain_and_reset": "drain, then reset the GPU",
}
"""NVML's recovery actions in words."""


class GpuFaults(Pane):
    """Newest first; an unreadable kernel log is no clean bill of health."""

    FIELDS = ("gpu", "kernel")
    AGE = "kernel"

    def title(self, view: View) -> Line:
        return (("Faults", "title"),)

    def lines(self, view: View) -> list[Row]:
        made = list(_card(view))
        kernel = view.snapshot.kernel
        if kernel.value is None:
            if kernel.error is not None:
                made += failed(kernel.error, view.width)
            elif not kernel.tried:
                made.append(Row((("… the kernel log was not read yet", "dim"),)))
            return made
        faults = _of_card(kernel.value, view.card)
        for fault in reversed(faults[-MOST:]):
            made += _fault(fault, view)
        if not made:
            made.append(_clean(kernel.value, view))
        return made


def _card(view: View) -> Iterator[Row]:
    card = view.card
    if card is None:
        return
    if card.lost is not None:
        yield from failed(card.lost, view.width, "fail")
    if card.recovery_action and card.recovery_action != "none":
        wanted = ACTIONS.get(card.recovery_action, one_line(card.recovery_action, 60))
        yield Row((sign("fail"), (f" the driver wants: {wanted}", "")))


def _of_card(log: KernelLog, card: GpuState | None) -> list[KernelFault]:
    """Xids of this card (or of no card that is named), and kills for want of memory."""
    return [fault for fault in log.faults if fault.kind != "xid" or same_bus(fault.pci_bus_id, card)]


def same_bus(bus_id: str | None, card: GpuState | None) -> bool:
    """The kernel writes `0000:3b:00`, NVML `00000000:3B:00.0`."""
    return card is None or same_card(bus_id, card.pci_bus_id)


def _fault(fault: KernelFault, view: View) -> list[Row]:
    """When, which, what it means, what NVIDIA says to do, and the line itself."""
    if fault.xid is None:
        name = "out of memory" if fault.kind == "oom" else one_line(fault.kind, 40)
        made = [Row((sign("fail"), (_fault_head(fault, name, view), "")))]
    else:
        known = describe(fault.xid, fault.text)
        told = f": {known.meaning}; NVIDIA says: {known.action}"
        made = [Row((sign(known.sign), (_fault_head(fault, f"Xid {fault.xid}", view), ""), (one_line(told, 200), "")))]
    return [*made, *(Row(((f"    {line}", "dim"),)) for line in wrapped(one_line(fault.text), view.width - 4, most=2))]


def _fault_head(fault: KernelFault, name: str, view: View) -> str:
    return f" {view.clock(fault.wall)}  {view.since(fault.wall)} ago  {name}"


def _clean(log: KernelLog, view: View) -> Row:
    since = f" since {view.clock(log.since_wall)}" if log.since_wall else ""
    action = view.card.recovery_action if view.card else None
    told = f", no recovery action{since}" if action == "none" else f"{since}; the recovery action is not told"
    return Row((sign("ok"), (f" no Xid{told}", ""), (f"   ({one_line(log.source, 40)}, this boot only)", "dim")))
