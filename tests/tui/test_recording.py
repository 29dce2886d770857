"""`R`, the header's word, and what is said when recording ends by itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.clients import recorder as recorder_module
from console.clients.recorder import Recorder
from console.clients.recording import files
from console.core.model import LogLine
from console.sources.replay import Player
from console.tui.app import ConsoleApp
from console.tui.state import State
from console.tui.theme import folders, load
from tests.fakes.boxes import drawn_box
from tests.fakes.session import FakeSession
from tests.tui.stage import settled, text_of


class Spec:
    """Of a box whose state lies where the console's does."""

    def state_in(self, folder: Path) -> Path:
        return folder


@asynccontextmanager
async def recorded(tmp_path: Path, *, spec: bool = True) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    session = FakeSession(drawn_box().snapshot, items=[LogLine(1.0, "stderr", "a line")])
    session.spec = Spec() if spec else None
    app = ConsoleApp(
        session,
        load(folders()),
        State(tmp_path),
        make_recorder=lambda state, scene: Recorder(state / "recordings", simulated=scene),
    )
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(app, pilot)
        yield app, pilot


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Wait for the recorder's thread."""
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        await pilot.pause(0.02)


async def test_r_records_and_the_header_says_so(tmp_path: Path) -> None:
    async with recorded(tmp_path) as (app, pilot):
        assert "REC –" in text_of(app)
        await pilot.press("R")
        await until(pilot, lambda: app.recording.on)
        app.refresh_now()
        await pilot.pause()
        head = text_of(app).splitlines()[0]
        assert "REC " in head
        assert "REC –" not in head
        await pilot.press("R")
        await until(pilot, lambda: not app.recording.on)
    (path,) = files(tmp_path / "recordings")
    player = Player(path)
    assert player.snapshot.gpu.value == drawn_box().snapshot.gpu.value
    assert [line.text for line in player.log] == ["a line"]
    player.close()


async def test_quitting_asks_while_a_recording_runs(tmp_path: Path) -> None:
    async with recorded(tmp_path) as (app, pilot):
        await pilot.press("R")
        await until(pilot, lambda: app.recording.on)
        await pilot.press("q")
        await pilot.pause()
        assert "The recording ends with the console" in text_of(app)
        await pilot.press("escape")


async def test_a_recording_that_ends_by_itself_says_why_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "FLOOR", 1 << 60)
    told: list[str] = []
    async with recorded(tmp_path) as (app, pilot):
        monkeypatch.setattr(app, "notify", lambda text, **_: told.append(text))
        await pilot.press("R")
        recorder = app.recording.recorder
        assert recorder is not None
        await until(pilot, lambda: bool(recorder.state.why_off))
        for _ in range(3):
            app.refresh_now()
        assert len([text for text in told if "recording stopped: the disk" in text]) == 1


async def test_before_the_box_is_known_r_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    async with recorded(tmp_path, spec=False) as (app, pilot):
        monkeypatch.setattr(app, "tell", told.append)
        await pilot.press("R")
        assert told == ["nothing is read yet: try again in a second"]
    assert not (tmp_path / "recordings").exists()
