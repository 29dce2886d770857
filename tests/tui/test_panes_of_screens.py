"""Every pane over every box at every width: nothing breaks, nothing is markup, no control character gets through."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest

from console.tui.panes.base import Pane
from console.tui.panes.bring_up import BringUpList, BringUpStep
from console.tui.panes.container_facts import ContainerFacts
from console.tui.panes.container_log import KINDS, ContainerLog
from console.tui.panes.container_resources import ContainerResources
from console.tui.panes.gpu_facts import GpuFacts
from console.tui.panes.gpu_faults import GpuFaults
from console.tui.panes.gpu_memory import GpuMemory
from console.tui.panes.gpu_processes import GpuProcesses
from console.tui.panes.gpu_throttle import GpuThrottle
from console.tui.panes.model_details import ModelDetails
from console.tui.panes.models_list import ModelsList
from console.tui.panes.problems import ProblemsPane
from console.tui.panes.timeline_charts import TimelineCharts
from console.tui.panes.timeline_compare import TimelineCompare
from console.tui.panes.timeline_events import TimelineEvents
from console.tui.panes.why_details import WhyPane
from console.tui.widgets.cells import plain
from tests.fakes.boxes import ALL_BOXES
from tests.fakes.drawn import MONO
from tests.tui.pure import lines_of, view_of

PANES: tuple[Callable[[], Pane], ...] = (
    ModelsList,
    ModelDetails,
    ContainerFacts,
    ContainerResources,
    ContainerLog,
    TimelineCharts,
    TimelineEvents,
    TimelineCompare,
    GpuMemory,
    GpuFacts,
    GpuThrottle,
    GpuProcesses,
    GpuFaults,
    ProblemsPane,
    WhyPane,
    BringUpList,
    BringUpStep,
)
WIDTHS = (156, 76, 40, 20)
CONTROL = {"Cc", "Cs", "Zl", "Zp"}


def _literal(text: str) -> bool:
    return not any(unicodedata.category(char) in CONTROL for char in text)


@pytest.mark.parametrize("box_name", sorted(ALL_BOXES))
@pytest.mark.parametrize("make", PANES, ids=lambda make: str(make.__name__))
def test_every_pane_says_something_literal_about_every_box(make: Callable[[], Pane], box_name: str) -> None:
    box = ALL_BOXES[box_name]()
    for width in WIDTHS:
        view = view_of(box, width)
        pane = make()
        if isinstance(pane, ContainerLog):
            pane.source = box.log_lines
        lines = lines_of(pane, view)
        assert lines
        assert all(_literal(line) for line in lines)
        assert _literal(plain(pane.title(view)))
        assert _literal(plain(pane.note(view)))


@pytest.mark.parametrize("box_name", sorted(ALL_BOXES))
def test_every_other_way_of_showing_is_literal_too(box_name: str) -> None:
    box = ALL_BOXES[box_name]()
    view = view_of(box, 76)
    details, compare, charts = ModelDetails(), TimelineCompare(), TimelineCharts()
    details.whole_difference = True
    compare.at = charts.at = MONO - 153
    panes: list[Pane] = [details, compare, charts]
    for kind in KINDS:
        log = ContainerLog()
        log.source, log.kind = box.log_lines, kind
        panes.append(log)
    for number in range(1, 10):
        step = BringUpStep()
        step.number = number
        panes.append(step)
    for pane in panes:
        assert all(_literal(line) for line in lines_of(pane, view))


@pytest.mark.parametrize("make", PANES, ids=lambda make: str(make.__name__))
def test_nothing_that_was_not_read_shows_as_a_zero_or_as_well(make: Callable[[], Pane]) -> None:
    pane = make()
    view = view_of(ALL_BOXES["unread"]())
    text = "\n".join(lines_of(pane, view))
    assert "●" not in text
    assert not any(word in text.split() for word in ("0", "0.0", "0.00", "0%"))
