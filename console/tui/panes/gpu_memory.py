"""GPU memory, where it is (design 1.12): driver, server, models seen at load, the rest, others, free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from console.core import units
from console.core.model import GpuProcess, GpuState, ModelRow, Snapshot
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import failed, not_read, sign
from console.tui.widgets.cells import Line, Segment, left, right
from console.tui.widgets.lines import Row

WHO = 28
MIG_NAME = 16
GIB_CELLS = 7
MOST_MODELS = 12
NO_DEVICE = "no NVIDIA device on the PCI bus"
"""How the GPU source says that this host has no card."""


class Ledger(NamedTuple):
    """Bytes by owner; None where it cannot be told."""

    server: int | None
    others: int | None
    untold: int
    """Processes whose memory the driver does not tell."""
    gap: int | None
    """Used on the card beyond what its processes add up to; negative when they add up to more."""


def ledger(card: GpuState, snapshot: Snapshot) -> Ledger:
    """Who holds the card's used memory, as far as its processes tell."""
    if card.processes is None:
        return Ledger(None, None, 0, None)
    server = others = 0
    untold = 0
    for process in card.processes:
        if process.memory is None:
            untold += not is_stub(process)
        elif is_ours(process, snapshot):
            server += process.memory
        else:
            others += process.memory
    gap = None if card.memory_used is None else card.memory_used - server - others
    return Ledger(server, others, untold, gap)


def is_ours(process: GpuProcess, snapshot: Snapshot) -> bool:
    """True when the process belongs to the Triton container, or is a tritonserver where there is no container."""
    container = snapshot.container.value.container if snapshot.container.value else None
    if container is not None and process.container_id:
        return process.container_id == container.id
    command = process.command or ""
    return "tritonserver" in command or "triton_python_backend_stub" in command


def is_stub(process: GpuProcess) -> bool:
    """True for a Python back end's stub: it has a context or none, and often no memory of its own."""
    return "triton_python_backend_stub" in (process.command or "")


class CardPane(Pane):
    """Base of the panes about the card in focus."""

    AGE = "gpu"

    def note(self, view: View) -> Line:
        """The age of the figures; a host without a card has none to be old."""
        return () if has_no_device(view) else super().note(view)


def has_no_device(view: View) -> bool:
    """True where the PCI bus of this host holds no NVIDIA device."""
    error = view.snapshot.gpu.error
    return error is not None and error.message.startswith(NO_DEVICE)


class GpuMemory(CardPane):
    """The ledger, then what a reload of each model needs: both copies are there at once."""

    FIELDS = ("gpu", "models", "container")

    def title(self, view: View) -> Line:
        number = "" if view.card is None else f" {view.card.index}"
        return ((f"GPU{number}  memory, where it is", "title"),)

    def lines(self, view: View) -> list[Row]:
        card = view.card
        if card is None:
            return no_card(view)
        if card.lost is not None:
            return failed(card.lost, view.width, "fail")
        if card.mig_on:
            return list(_mig(card))
        return list(_ledger_rows(card, view.snapshot))


def no_card(view: View) -> list[Row]:
    """Why there is no card to show. A host without an NVIDIA device is no fault."""
    reading = view.snapshot.gpu
    if has_no_device(view) and reading.error is not None:
        first = Row((sign("none"), (f" {one_line(reading.error.message, 200)}", "")))
        return [first, Row((("  Triton on CPU is shown as usual", "dim"),))]
    if reading.value is not None and reading.error is None:
        return [Row((sign("none"), (" no NVIDIA card on this box", "")))]
    return not_read("NVML", (reading,), view.width)


def _ledger_rows(card: GpuState, snapshot: Snapshot) -> Iterator[Row]:
    found = ledger(card, snapshot)
    container = snapshot.container.value.container if snapshot.container.value else None
    yield Row(((f"{left('WHO', WHO)}{right('GiB', GIB_CELLS)}", "label"),))
    if card.memory_reserved is not None:
        yield _line("driver, held back", card.memory_reserved)
    server = f"triton  (container {one_line(container.name, 40)})" if container else "triton"
    yield _line(server, found.server, "" if found.server is not None else _why(card, "processes"))
    if found.server:
        yield from _models(found.server, card, snapshot)
    yield _line("others", found.others)
    if found.untold:
        yield _line("not told by the driver", None, f"{found.untold} processes")
    if found.gap is not None and abs(found.gap) > units.GIB // 10:
        word = "no process owns it" if found.gap > 0 else "processes add up to more"
        yield _line("gap", found.gap, word, "warn")
    yield _line("free", card.memory_free, _why(card, "memory_free") if card.memory_free is None else "")
    yield _line("", card.memory_total)
    yield from _reloads(card, snapshot)


def _why(card: GpuState, field: str) -> str:
    return one_line(card.missing.get(field, ""), 60)


def _line(who: str, size: int | None, note: str = "", style: str = "") -> Row:
    figure = "?" if size is None and note else units.gib(size)
    return Row(
        ((left(left(who, WHO - 1), WHO), style), (right(figure, GIB_CELLS), style or "value"), (f"  {note}", "dim"))
    )


def _models(server: int, card: GpuState, snapshot: Snapshot) -> Iterator[Row]:
    """Processes of their own tell their memory. In-process models share one: what was seen when each loaded, and a
    rest line for all that was not."""
    shares = [*_own_processes(card, snapshot), *_seen(snapshot)]
    shares.sort(key=lambda share: -share[1])
    for name, size, origin in shares[:MOST_MODELS]:
        yield _line(f"  {name}", size, origin)
    if len(shares) > MOST_MODELS:
        yield _line(f"  {len(shares) - MOST_MODELS} more models", sum(size for _, size, _ in shares[MOST_MODELS:]))
    told = sum(size for _, size, _ in shares)
    yield _line("  contexts, pools, not told", max(0, server - told), "rest" if shares else "no load was seen")


def _own_processes(card: GpuState, snapshot: Snapshot) -> Iterator[tuple[str, int, str]]:
    found: dict[str, list[int]] = {}
    for process in card.processes or ():
        if process.model and process.memory and is_ours(process, snapshot):
            found.setdefault(process.model, []).append(process.memory)
    for name, sizes in found.items():
        count = f", {len(sizes)} processes" if len(sizes) > 1 else ""
        yield f"{one_line(name, 60)}{count}", sum(sizes), "its own process" if not count else "its own"


def _seen(snapshot: Snapshot) -> Iterator[tuple[str, int, str]]:
    for row in snapshot.models:
        if row.state == "READY" and row.memory:
            yield _name(row), row.memory, row.memory_origin or ""


def _name(row: ModelRow) -> str:
    count = f", {row.instances} instance{'' if row.instances == 1 else 's'}" if row.instances else ""
    return f"{one_line(row.name, 60)} {row.version or ''}{count}"


def _reloads(card: GpuState, snapshot: Snapshot) -> Iterator[Row]:
    rows = [row for row in snapshot.models if not row.ensemble and (row.state == "READY" or row.failed_load)]
    if not rows:
        return
    names = Counter(row.name for row in rows)
    yield Row((("RELOAD NEEDS, both copies at once", "label"),))
    for row in rows[:MOST_MODELS]:
        version = f" {row.version}" if names[row.name] > 1 and row.version else ""
        label = left(one_line(row.name, 60), min(11 - len(version), len(row.name))) + version
        yield Row((("  " + left(label, 12), ""), *_fits(row, card.memory_free)))
    if len(rows) > MOST_MODELS:
        yield Row(((f"  … {len(rows) - MOST_MODELS} more models", "dim"),))


def _fits(row: ModelRow, free: int | None) -> tuple[Segment, ...]:
    if row.failed_load:
        return (("?     ", "unknown"), ("never loaded here", "dim"))
    if row.memory is None:
        return (("?     ", "unknown"), ("its load was not seen", "dim"))
    need = (f"{units.gib(row.memory)}   ", "value")
    if free is None:
        return (need, ("? free is not told", "unknown"))
    fits = row.memory <= free
    return (need, sign("ok" if fits else "warn"), (" fits" if fits else f" does not fit, free {units.gib(free)}", ""))


def _mig(card: GpuState) -> Iterator[Row]:
    """A MIG parent: memory stands with its instances."""
    yield Row(((f"{left('MIG INSTANCE', MIG_NAME)}{right('USED', GIB_CELLS)}   OF GiB   WHO", "label"),))
    for one in card.mig:
        who = ", ".join(dict.fromkeys(one_line(process.command or str(process.pid), 30) for process in one.processes))
        name = f"{one.index}  {one_line(one.profile or '?', 30)}"
        yield Row(
            (
                (left(name, MIG_NAME), ""),
                (right(units.gib(one.memory_used), GIB_CELLS), "value"),
                (f"   {right(units.gib(one.memory_total), 6)}   ", ""),
                (who or "free", "" if who else "dim"),
            )
        )
    if not card.mig:
        yield Row((sign("none"), (" MIG is on, and no instance is made", "")))
    yield Row((("the whole card's own figures:", "dim"),))
    yield _line("used", card.memory_used)
    yield _line("free", card.memory_free)
