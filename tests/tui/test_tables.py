"""`E`: what is written of each chart and table."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.tui.export_acts import SCOPES
from console.tui.panes.base import Pane
from console.tui.panes.checks_list import ChecksList
from console.tui.panes.gpu_facts import GpuFacts
from console.tui.panes.gpu_processes import GpuProcesses
from console.tui.panes.models_list import ModelsList
from console.tui.panes.overview_events import OverviewEvents
from console.tui.panes.overview_models import OverviewModels
from console.tui.panes.overview_trends import OverviewTrends
from console.tui.panes.problems import ProblemsPane
from console.tui.panes.timeline_charts import TimelineCharts
from console.tui.panes.timeline_events import TimelineEvents
from console.tui.tables import csv_of, table_of
from tests.fakes.boxes import ALL_BOXES, Box, drawn_box
from tests.tui.pure import view_of
from tests.tui.stage import on_stage, settled

PANES = (
    TimelineCharts,
    OverviewTrends,
    OverviewModels,
    ModelsList,
    TimelineEvents,
    OverviewEvents,
    ProblemsPane,
    ChecksList,
    GpuProcesses,
)


def _rows(pane: Pane, box: Box) -> list[dict[str, str]]:
    table = table_of(pane, view_of(box))
    assert table is not None
    return list(csv.DictReader(io.StringIO(csv_of(table))))


@pytest.mark.parametrize("make", PANES)
@pytest.mark.parametrize("name", ALL_BOXES)
def test_every_box_gives_a_whole_table(make: type[Pane], name: str) -> None:
    table = table_of(make(), view_of(ALL_BOXES[name]()))
    assert table is not None
    assert {len(row) for row in table} == {len(table[0])}
    text = csv_of(table)
    assert len(text.splitlines()) == len(table)
    assert not any(ord(char) < 32 and char != "\n" for char in text)


def test_models_with_exact_figures() -> None:
    rows = {row["model"]: row for row in _rows(ModelsList(), drawn_box())}
    ranking = rows["ranking"]
    assert (ranking["version"], ranking["state"], ranking["delay_us"], ranking["live_only"]) == (
        "2",
        "READY",
        "2000",
        "1",
    )
    assert float(ranking["mean_ms"]) == pytest.approx(2.94, abs=0.005)
    assert float(ranking["wait_ms"]) + float(ranking["compute_ms"]) == pytest.approx(
        float(ranking["mean_ms"]), abs=0.01
    )
    assert rows["reco"]["wait_ms"] == ""
    assert rows["rerank"]["req_per_s"] == ""
    assert rows["rerank"]["reason"].startswith("engine made with TensorRT 8.5.3")


def test_charts_have_a_row_a_column() -> None:
    pane = TimelineCharts()
    box = drawn_box()
    rows = _rows(pane, box)
    scale = pane.scale(view_of(box))
    assert len(rows) == scale.columns
    times = [float(row["unix_s"]) for row in rows]
    assert {round(b - a) for a, b in pairwise(times)} == {scale.step}
    assert rows[-1]["time"].endswith("+00:00")
    assert float(rows[-2]["util %"]) == pytest.approx(64, abs=3)
    assert rows[0]["req/s"] == "", "no sample is an empty cell, never 0"


def test_events_keep_to_the_view_and_the_filter() -> None:
    pane = TimelineEvents()
    assert len(_rows(pane, drawn_box())) == len(drawn_box().snapshot.events)
    pane.which = "faults"
    faults = _rows(pane, drawn_box())
    assert {row["sign"] for row in faults} <= {"fail", "warn"}
    pane.filter = "rerank"
    assert len(_rows(pane, drawn_box())) == 1


def test_problems_and_checks() -> None:
    assert next(row["id"] for row in _rows(ProblemsPane(), drawn_box())) == "V04"
    checks = _rows(ChecksList(), drawn_box())
    report = drawn_box().snapshot.checks.value
    assert report is not None
    assert len(checks) == len(report.findings)


def test_what_is_no_table() -> None:
    assert table_of(GpuFacts(), view_of(drawn_box())) is None


def test_a_hostile_text_stays_in_its_cell() -> None:
    box = drawn_box()
    odd = tuple(replace(row, reason='a\n"b",c\x1b[2J') for row in box.snapshot.models)
    hostile = Box(box.readings, replace(box.snapshot, models=odd), box.history)
    assert len(_rows(ModelsList(), hostile)) == len(odd)


async def test_the_key_writes_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        for screen in SCOPES:
            app.go(screen)
            await settled(app, pilot)
            if screen == "gpu":
                app.box.set_focus(app.box.panes["gpu-processes"])
            await pilot.press("E")
            (found,) = (tmp_path / "exports").glob(f"{app.pane.id if app.pane else '?'}-*.csv")
            assert found.stat().st_mode & 0o777 == 0o600
            if screen != "gpu":
                assert len(found.read_text().splitlines()) > 1
            found.unlink()


async def test_what_cannot_be_written_is_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        (tmp_path / "exports").write_text("in the way")
        await pilot.press("E")
        told = [one.message for one in app._notifications]
        assert any("nothing could be written to" in one for one in told)
        app.box.set_focus(app.box.panes["gpu"])
        await pilot.press("E")
        assert [one.message for one in app._notifications][-1] == "this pane is neither a chart nor a table"
