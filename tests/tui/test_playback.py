"""The console on recorded time: what is shown, the keys that move it, and that nothing can be done."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

import console.tui.playback as playback_module
from console.clients.recorder import Recorder
from console.core.session import Session
from console.sources.replay import Player
from console.tui import commands
from console.tui.app import ConsoleApp
from console.tui.messages import LogBuffer
from console.tui.playback import REPLAY, SPEEDS, Playback, moments_of
from console.tui.screens.timeline import TimelineScreen
from console.tui.state import State
from console.tui.theme import folders, load
from tests.fakes.past import Second, seconds
from tests.tui.stage import text_of

LENGTH = 200


@pytest.fixture(scope="module")
def whole() -> list[Second]:
    return list(seconds(LENGTH))


@pytest.fixture(scope="module")
def folder(whole: list[Second], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    recorder = Recorder(made, simulated="odd-scene")
    recorder.switch(True)
    for snapshot, lines in whole[:100] + whole[140:]:
        recorder.put(snapshot, lines)
    recorder.close(60)
    return made


class Clock:
    """Stands in for `time` in playback."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(playback_module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def playback(folder: Path, clock: Clock) -> Playback:
    return Playback(Player(folder))


def test_it_plays_at_its_speed_and_holds(playback: Playback, clock: Clock) -> None:
    first = playback.player.first
    clock.now += 5
    assert playback.now()[0] == pytest.approx(first + 5)
    playback.faster(3)
    assert playback.speed == 10
    clock.now += 2
    assert playback.now()[0] == pytest.approx(first + 25)
    playback.toggle()
    clock.now += 60
    assert playback.now()[0] == pytest.approx(first + 25)
    assert playback.word(utc=True) == "REPLAY held 10x"
    playback.toggle()
    clock.now += 1
    assert playback.now()[0] == pytest.approx(first + 35)
    assert playback.word(utc=True) == "REPLAY ▸ 10x"


def test_speeds_end_at_both_ends(playback: Playback) -> None:
    playback.faster(-1)
    assert playback.speed == SPEEDS[0]
    for _ in range(20):
        playback.faster(1)
    assert playback.speed == SPEEDS[-1]


def test_at_the_end_it_holds_and_space_begins_anew(playback: Playback, clock: Clock) -> None:
    clock.now += 10_000
    assert playback.now()[0] == playback.player.last
    assert not playback.playing
    playback.toggle()
    assert playback.playing
    assert playback.player.wall == playback.player.first


def test_a_gap_is_marked_where_figures_are_of_before(playback: Playback, whole: list[Second]) -> None:
    playback.seek(whole[99][0].wall + 20)
    assert "≈ nothing recorded " in playback.word(utc=True)
    assert playback.short.endswith("≈")
    playback.seek(whole[150][0].wall)
    assert "≈" not in playback.word(utc=True)


def test_it_goes_to_times_and_to_events_by_their_words(playback: Playback, whole: list[Second]) -> None:
    wanted = whole[50][0].wall
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(wanted))
    assert playback.go(text, utc=True) == ""
    assert playback.player.wall == pytest.approx(int(wanted))
    assert playback.go(text.split()[1], utc=True) == ""
    assert playback.player.wall == pytest.approx(int(wanted))
    assert "is outside" in playback.go("1999-01-01T00:00", utc=True)
    assert playback.go("EVENT 66", utc=True) == ""
    assert playback.player.wall == pytest.approx(whole[66][0].wall, abs=0.001)
    assert playback.go("event 3", utc=True) == "", "past the last one it begins at the first"
    assert playback.player.wall == pytest.approx(whole[150][0].wall, abs=20) or playback.player.wall < wanted
    assert "no event of the recording has 'moon'" in playback.go("moon", utc=True)
    assert "is no time" in playback.go_to_time("moon", utc=True)


def test_events_before_and_after(playback: Playback, whole: list[Second]) -> None:
    playback.seek(whole[50][0].wall)
    assert playback.to_event(forward=True)
    after = playback.player.wall
    assert after > whole[50][0].wall
    assert playback.to_event(forward=False)
    assert playback.player.wall < after
    playback.seek(playback.player.last)
    assert not playback.to_event(forward=True)


@pytest.mark.parametrize("text", ["", "x", "25:00", "14", "14:01:99", "2026-13-01 10:00", "\x1b[31m"])
def test_what_is_no_time(text: str) -> None:
    assert moments_of(text, 1e9, utc=True) == []


def test_a_time_of_day_is_looked_for_on_the_days_around() -> None:
    now = 1_783_145_071.0
    day = 86_400
    here = now - now % day
    assert moments_of("00:00", now, utc=True) == [here, here - day, here + day]


def test_the_log_is_that_of_the_position(playback: Playback, whole: list[Second]) -> None:
    lines = LogBuffer()
    playback.seek(whole[90][0].wall)
    playback.take_log(lines)
    assert [one.text for one in lines.lines] == [one.text for one in playback.player.log]
    count = lines.count
    playback.take_log(lines)
    assert lines.count == count
    playback.seek(whole[20][0].wall)
    playback.take_log(lines)
    assert [one.text for one in lines.lines] == [one.text for one in playback.player.log]
    playback.player.play(whole[60][0].wall)
    playback.take_log(lines)
    assert [one.text for one in lines.lines] == [one.text for one in playback.player.log]


@asynccontextmanager
async def replayed(folder: Path, state: Path, size: tuple[int, int]) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    playback = Playback(Player(folder))
    session = Session((), simulated=playback.player.scene)
    app = ConsoleApp(session, load(folders()), State(state), host="here", read_only=True, playback=playback)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot
    playback.player.close()


@pytest.mark.parametrize("size", [(160, 45), (100, 30), (80, 24)])
async def test_screens_are_of_recorded_time(
    folder: Path, whole: list[Second], tmp_path: Path, size: tuple[int, int], clock: Clock
) -> None:
    async with replayed(folder, tmp_path, size) as (app, pilot):
        playback = app.playback
        assert playback is not None
        playback.seek(whole[60][0].wall)
        app.refresh_now()
        for key in "12345678":
            await pilot.press(key)
            await pilot.pause()
            head = text_of(app).splitlines()[0]
            assert "REPLAY ▸ 1x" in head
            assert "SIMULATED odd-scene" in head
            assert time.strftime("%M:%S", time.gmtime(playback.player.wall)) in head
        await pilot.press("space")
        await pilot.pause()
        assert "REPLAY held 1x" in text_of(app)
        seq = app.store.snapshot(0, 0).seq
        await pilot.press("right_parenthesis")
        await pilot.press("right_parenthesis")
        await pilot.press("left_parenthesis")
        await pilot.pause()
        assert app.store.snapshot(0, 0).seq == seq + 1
        await pilot.press("plus")
        await pilot.pause()
        assert "REPLAY held 2x" in text_of(app)


async def test_timeline_jumps_to_events_and_times(folder: Path, whole: list[Second], tmp_path: Path) -> None:
    async with replayed(folder, tmp_path, (120, 40)) as (app, pilot):
        playback = app.playback
        assert playback is not None
        playback.toggle()
        playback.seek(whole[50][0].wall)
        await pilot.press("7")
        await pilot.pause()
        assert isinstance(app.box, TimelineScreen)
        await pilot.press("right_square_bracket")
        after = playback.player.wall
        assert after > whole[50][0].wall
        await pilot.press("left_square_bracket")
        assert playback.player.wall < after
        app.box.go_to_time("event 94")
        assert playback.player.wall == pytest.approx(whole[94][0].wall, abs=0.001)
        assert f"event {94}" in text_of(app)


async def test_nothing_can_be_done_in_a_replay(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    async with replayed(folder, tmp_path, (120, 40)) as (app, _):
        monkeypatch.setattr(app, "tell", told.append)
        ran: list[str] = []
        for name, command in commands.COMMANDS.items():
            if command.KIND != "look" and name != "interrupt":
                monkeypatch.setattr(command, "run", lambda self, app: ran.append(self.ID))
                before = len(told)
                app.action_command(name)
                assert told[before:] == [REPLAY], name
        assert ran == []
        assert app.acting.why_off() == REPLAY
    kept: Any = State(tmp_path).get("last_visit")
    assert kept is None, "a replay is no visit to the box"
