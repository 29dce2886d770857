"""Processes on the card (design 1.12) with their container, and the gap between their sum and the card's own figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.core import units
from console.core.model import GpuProcess, GpuState, Snapshot
from console.core.text import one_line
from console.tui.panes.base import View
from console.tui.panes.gpu_memory import CardPane, is_ours, is_stub, ledger, no_card
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

SORTS = ("PID", "USER", "GiB", "UTIL %", "SINCE")


@dataclass(frozen=True)
class Columns:
    """Cells of the columns that grow with the pane."""

    user: int
    command: int
    container: int


class GpuProcesses(CardPane):
    """One row a process; `<` `>` sort, `y` copies the process id."""

    FIELDS = ("gpu", "container")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.sort = 2
        self.turned = False
        self.pinned = 1

    def title(self, view: View) -> Line:
        order = "" if (self.sort, self.turned) == (2, False) else f"  by {SORTS[self.sort]}"
        order += "  turned round" if self.turned else ""
        found = f"  /{one_line(self.filter, 30)}" if self.filter else ""
        return ((f"Processes{order}{found}", "title"),)

    def lines(self, view: View) -> list[Row]:
        card = view.card
        if card is None:
            return no_card(view)
        found = processes(card)
        if found is None:
            reason = card.missing.get("processes", card.lost.message if card.lost else "not given")
            return [Row((("? ", "unknown"), (one_line(reason, 200), "")))]
        columns = Columns(8, max(12, min(21, view.width - 72)), 13)
        made = [Row(((_head(columns), "label"),))]
        made += [
            Row(_line(one, instance, view, columns), ("process", one.pid, instance))
            for instance, one in self._sorted(found)
            if self.wanted(f"{one.pid} {one.user} {one.command} {one.model}")
        ]
        if not found:
            made.append(Row((("– none", "dim"),)))
        return [*made, *_gap(card, view.snapshot)]

    def _sorted(self, found: list[tuple[int | None, GpuProcess]]) -> list[tuple[int | None, GpuProcess]]:
        keys: dict[str, Callable[[GpuProcess], tuple[float, str]]] = {
            "PID": lambda one: (float(one.pid), ""),
            "USER": lambda one: (0.0, one.user or "~"),
            "GiB": lambda one: (-(one.memory if one.memory is not None else -1.0), ""),
            "UTIL %": lambda one: (-(one.sm_pct if one.sm_pct is not None else -1.0), ""),
            "SINCE": lambda one: (one.started_wall or 0.0, ""),
        }
        key = keys[SORTS[self.sort]]
        return sorted(found, key=lambda pair: (*key(pair[1]), pair[1].pid), reverse=self.turned)

    def shift_sort(self, steps: int) -> bool:
        self.sort = (self.sort + steps) % len(SORTS)
        self.again()
        return True

    def turn_sort(self) -> bool:
        self.turned = not self.turned
        self.again()
        return True

    def filterable(self) -> bool:
        return True

    def yank(self) -> str:
        return str(self.cursor[1]) if isinstance(self.cursor, tuple) else ""

    def changes(self) -> object:
        return (self.sort, self.turned)


def processes(card: GpuState) -> list[tuple[int | None, GpuProcess]] | None:
    """(MIG instance, process) of the card; None when they could not be listed."""
    if card.mig_on:
        return [(one.index, process) for one in card.mig for process in one.processes]
    return None if card.processes is None else [(None, process) for process in card.processes]


def _head(columns: Columns) -> str:
    return (
        f"{left('PID', 9)}{left('USER', columns.user)}{left('COMMAND', columns.command)}"
        f"{left('CONTAINER', columns.container)}{right('GiB', 5)}{right('UTIL %', 9)}   {left('SINCE', 9)}NOTE"
    )


def _line(one: GpuProcess, instance: int | None, view: View, columns: Columns) -> Line:
    known = one.memory is not None or is_stub(one)
    memory = units.gib(one.memory) if known else "?"
    command = one_line(one.command or "?", 200).rsplit("/", 1)[-1].removeprefix("triton_")
    ours = is_ours(one, view.snapshot)
    return (
        (left(str(one.pid), 9), ""),
        (left(one_line(one.user or "?", 40), columns.user), ""),
        (left(left(command, columns.command - 1), columns.command), "" if ours else "warn"),
        (left(left(_container(one, view.snapshot), columns.container - 1), columns.container), ""),
        (right(memory, 5), "value" if known else "unknown"),
        (right(units.whole(one.sm_pct), 9), "value"),
        (f"   {left(units.uptime(None if one.started_wall is None else view.wall - one.started_wall), 9)}", ""),
        (_note(one, instance, ours), "dim"),
    )


def _container(one: GpuProcess, snapshot: Snapshot) -> str:
    if one.in_container is None:
        return "?"
    if not one.in_container:
        return "host"
    container = snapshot.container.value.container if snapshot.container.value else None
    if container is not None and one.container_id == container.id:
        return one_line(container.name, 40)
    return one_line(one.container_id or "another", 12)[:12]


def _note(one: GpuProcess, instance: int | None, ours: bool) -> str:
    notes = [f"MIG {instance}"] if instance is not None else []
    if one.model:
        notes.append(f"of {one_line(one.model, 40)}")
    if is_stub(one):
        notes.append("uses no GPU memory" if not one.memory else "a Python back end")
    elif one.memory is None:
        notes.append("the driver does not tell its memory")
    elif ours and "tritonserver" in (one.command or ""):
        notes.append("all in-process models share it")
    if not ours:
        notes.append("not of this container")
    return ", ".join(notes)


def _gap(card: GpuState, snapshot: Snapshot) -> list[Row]:
    found = ledger(card, snapshot)
    if found.gap is None or card.mig_on or abs(found.gap) <= units.GIB // 10:
        return []
    if found.gap > 0:
        why = (
            "memory not told for some" if found.untold else "a process that cannot be seen from here, or one that died"
        )
        text = f"{units.gib(found.gap)} GiB of the card's {units.gib(card.memory_used)} belong to no process: {why}"
    else:
        text = f"the processes add up to {units.gib(-found.gap)} GiB more than the card's own figure"
    return [Row((("▲ ", "warn"), (text, "")))]
