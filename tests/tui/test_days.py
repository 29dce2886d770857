"""The table of hours in Timeline, and the minutes that it and Why are read from."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.clients import minute_files
from console.clients.recorder import Recorder
from console.core.minutes import Minute
from console.tui.app import ConsoleApp
from console.tui.panes.base import View
from console.tui.panes.timeline_days import TimelineDays
from console.tui.state import State
from console.tui.theme import folders, load
from console.tui.widgets.cells import plain
from tests.core.test_minutes import HEAT, MONDAY
from tests.fakes.boxes import drawn_box
from tests.fakes.drawn import MONO
from tests.fakes.session import FakeSession
from tests.tui.pure import lines_of
from tests.tui.stage import settled
from tests.tui.stage import text_of as screen_of
from tests.tui.test_recording import Spec

WEDNESDAY_13 = MONDAY + 2 * 86_400 + 13 * 3600 + 1800.0


def recorded() -> list[Minute]:
    """Three days of which each afternoon is hot; on Wednesday from 8 to 10 nobody recorded."""
    hot = {13: 2, 14: 9, 15: 41, 16: 38, 17: 6}
    made: list[Minute] = []
    for day in range(3):
        for hour in range(24 if day < 2 else 14):
            if day == 2 and hour in (8, 9):
                continue
            heat = hot.get(hour, 0) / 60 if day < 2 else 0.0
            made += [
                Minute(MONDAY + day * 86_400 + hour * 3600 + at * 60, 60, {HEAT: (heat, heat)}) for at in range(60)
            ]
    return made


def view(width: int = 116) -> View:
    return View(drawn_box().snapshot, drawn_box().history, WEDNESDAY_13, MONO, width=width, height=4, utc=True)


def test_the_table_is_as_drawn() -> None:
    pane = TimelineDays()
    pane.minutes = recorded()
    lines = lines_of(pane, view())
    assert lines == [
        "        00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23"
        "     s throttled by heat, per hour",
        "Mon 06   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  2  9 41 38  6  ·  ·  ·  ·  ·  ·     · none   – not recorded",
        "Tue 07   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  2  9 41 38  6  ·  ·  ·  ·  ·  ·"
        "     the same hours each day: 15, 16",
        "Wed 08   ·  ·  ·  ·  ·  ·  ·  ·  –  –  ·  ·  ·  ·",
    ]
    assert plain(pane.note(view())) == "3 of 7 days"


def test_v_chooses_the_figure() -> None:
    pane = TimelineDays()
    pane.minutes = [Minute(MONDAY, 60, {"gpu.0.temp_c": (60.0, 71.0), "box.rate": (1650.0, 1700.0)})]
    pane.view = view()
    seen = []
    for _ in range(6):
        lines = lines_of(pane, view())
        seen.append((lines[0].split("23")[1].strip(), lines[1][7:10].strip()))
        pane.next_view()
    assert seen == [
        ("s throttled by heat, per hour", "–"),
        ("s at the power limit, per hour", "–"),
        ("highest °C", "71"),
        ("util %, mean", "–"),
        ("req/s from outside, mean", "2k"),
        ("s throttled by heat, per hour", "–"),
    ]


async def test_a_console_reads_the_minutes_at_its_start(tmp_path: Path) -> None:
    now = time.time()
    hour = now - now % 3600
    for day in (1, 2):
        heat = 30.0
        minute_files.append(tmp_path / "recordings", Minute(round(hour - day * 86_400), 60, {HEAT: (heat, heat)}))
    session = FakeSession(drawn_box().snapshot)
    session.spec = Spec()
    app = ConsoleApp(
        session,
        load(folders()),
        State(tmp_path),
        utc=True,
        make_recorder=lambda state, _: Recorder(state / "recordings"),
    )
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(app, pilot)
        end = time.monotonic() + 20
        while not app.days.minutes:
            assert time.monotonic() < end
            app.refresh_now()
            await pilot.pause(0.05)
        assert app.store.history.heat_hours == (time.gmtime(hour).tm_hour,)
        await pilot.press("7")
        await settled(app, pilot)
        assert "from the recorder" in screen_of(app)
        assert "2 of 7 days" in screen_of(app)


@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24)])
async def test_without_a_recording_there_is_no_table(tmp_path: Path, size: tuple[int, int]) -> None:
    app = ConsoleApp(FakeSession(drawn_box().snapshot), load(folders()), State(tmp_path))
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        await pilot.press("7")
        await settled(app, pilot)
        assert "from the recorder" not in screen_of(app)


def test_an_hour_that_is_not_over_is_no_gap() -> None:
    pane = TimelineDays()
    pane.minutes = [replace(recorded()[0])]
    later = View(drawn_box().snapshot, drawn_box().history, MONDAY + 60.0, MONO, width=116, height=4, utc=True)
    assert lines_of(pane, later)[1].split("     ")[0] == "Mon 06   ·"
