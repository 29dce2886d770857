"""GPU (8): where its memory is, its figures, throttle in seconds, processes and faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.geometry import Region

from console.tui.form_acts import ChangeGpu
from console.tui.panes.base import Pane, View
from console.tui.panes.gpu_facts import GpuFacts
from console.tui.panes.gpu_faults import GpuFaults
from console.tui.panes.gpu_memory import GpuMemory
from console.tui.panes.gpu_processes import GpuProcesses
from console.tui.panes.gpu_throttle import GpuThrottle
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.stack import stacked

ORDER = ("gpu-memory", "gpu-facts", "gpu-throttle", "gpu-processes", "gpu-faults")
HEIGHTS = {"top": (9, 16), "gpu-throttle": (5, 9), "gpu-processes": (4, 14), "gpu-faults": (3, 14)}
"""Rows (least, wanted) with the frame; processes and faults grow with what they list."""
MEMORY_SHARE = 0.47
EDGES = 2


class GpuScreen(BoxScreen):
    """The card in focus."""

    NAME = "gpu"
    FOOTER = (
        "gpu.change",
        "undo",
        ("gpu.before", ". other GPU"),
        ("sort.left", "> sort"),
        "sort.turn",
        "filter",
        "copy",
        "pane.next",
        "maximise",
        ("escape", "back"),
        "palette",
        "help",
    )

    def __init__(self) -> None:
        super().__init__()
        self._wanted: tuple[int, int] = (4, 3)
        """Rows that processes and faults would fill, frames included."""

    def make_panes(self) -> Iterable[Pane]:
        yield GpuMemory(id="gpu-memory")
        yield GpuFacts(id="gpu-facts")
        yield GpuThrottle(id="gpu-throttle")
        yield GpuProcesses(id="gpu-processes")
        yield GpuFaults(id="gpu-faults")

    def place(self, body: Region) -> Places:
        if self.compact:
            return stacked(body, ORDER, self.focused.id if self.focused else ORDER[0])
        heights = shared(body.height, *self._wanted)
        places: Places = {}
        y = body.y
        for name in ("top", *ORDER[2:]):
            region = Region(body.x, y, body.width, heights[name])
            y += heights[name]
            if name == "top":
                places["gpu-memory"], places["gpu-facts"] = region.split_vertical(int(body.width * MEMORY_SHARE))
            else:
                places[name] = region
        return places

    def footer(self) -> Sequence[tuple[str, str, int]]:
        what = "" if self.compact else ": persistence, clock lock, power limit, compute mode"
        return [(keys, word + what if word == ChangeGpu.LABEL else word, rank) for keys, word, rank in super().footer()]

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        facts, throttle = self.panes["gpu-facts"], self.panes["gpu-throttle"]
        assert isinstance(facts, GpuFacts)
        assert isinstance(throttle, GpuThrottle)
        facts.own = throttle.own = self.app_.acting.own
        wanted = (len(self.panes["gpu-processes"].rows) + EDGES, len(self.panes["gpu-faults"].rows) + EDGES)
        if wanted != self._wanted:
            self._wanted = wanted
            if not self.compact:
                self.relayout()

    def on_descendant_focus(self) -> None:
        if self.compact:
            self.relayout()


def shared(height: int, processes: int, faults: int) -> dict[str, int]:
    """Rows of each strip: all get their least, then the upper ones what they want; the rest goes to the faults."""
    wanted = {name: most for name, (_, most) in HEIGHTS.items()}
    wanted["gpu-processes"] = min(wanted["gpu-processes"], processes)
    wanted["gpu-faults"] = min(wanted["gpu-faults"], faults)
    given = {name: least for name, (least, _) in HEIGHTS.items()}
    free = height - sum(given.values())
    for name in given:
        more = max(0, min(free, wanted[name] - given[name]))
        given[name] += more
        free -= more
    given["gpu-faults"] += max(0, free)
    return given
