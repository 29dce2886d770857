"""A stage for screens: a ConsoleApp over one of the boxes, with the box's clock and its past."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

import console.tui.app as app_module
from console.core.model import Asked, Snapshot
from console.tui.app import ConsoleApp
from console.tui.state import State
from console.tui.theme import folders, load
from tests.fakes.boxes import Box
from tests.fakes.drawn import MONO, NOW
from tests.fakes.session import FakeSession

SIZES = ((160, 45), (100, 30), (80, 24))
"""The three sizes that every key is pressed at."""
TURNS = 15
"""Turns of the event loop in which a key press is handled and painted."""
EVERY_SIZE = ((160, 45), (120, 40), (100, 30), (80, 24))


class BoxClock:
    """Stands in for `time` in the app: the box's moment, standing still or going on."""

    def __init__(self, *, moving: bool = False) -> None:
        self._began = time.monotonic() if moving else None
        self.strftime = time.strftime

    def _since(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def time(self) -> float:
        """The box's wall time."""
        return NOW + self._since()

    def monotonic(self) -> float:
        """The box's monotonic time."""
        return MONO + self._since()


def answer(model: str, version: str | None) -> Asked:
    """What a model says when it is asked here."""
    return Asked(model, version, ok=True, wall=NOW, millis=2.1, text="output FP32 [1,8]: 0.1 0.2 [/x]")


def console_of(box: Box, folder: Path) -> ConsoleApp:
    """The app over that box, its past and verdicts in its store."""
    session = FakeSession(box.snapshot, items=box.log_lines, ask=answer)
    app = ConsoleApp(session, load(folders()), State(folder), host="infer-01")
    app.store.history = box.history
    app.store.set_verdicts(box.verdicts)
    return app


@asynccontextmanager
async def on_stage(
    box: Box, folder: Path, monkeypatch: Any, size: tuple[int, int] = (120, 40), screen: str = ""
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    """The app running headless with everything of the box shown, on that screen."""
    monkeypatch.setattr(app_module, "time", BoxClock())
    app = console_of(box, folder)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        if screen:
            app.go(screen)
            await settled(app, pilot)
        yield app, pilot


async def _next_turns(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """Lets waiting messages be handled, without Textual's own waiting for an idle processor (60 ms a key)."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def press_fast(monkeypatch: Any) -> None:
    """Keys at the pace of the event loop, for tests that press hundreds of them."""
    monkeypatch.setattr("textual.app.wait_for_idle", _next_turns)
    monkeypatch.setattr("textual.pilot.wait_for_idle", _next_turns)


async def settled(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """After this what was sent is on the screen; the session, which starts after the first paint, has begun."""
    while isinstance(app.session, FakeSession) and not app.session.started:
        await asyncio.sleep(0.005)
    await pilot.pause()
    app.refresh_now()
    await pilot.pause()


def text_of(app: ConsoleApp) -> str:
    """The screen as a person reads it."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


def shown(app: ConsoleApp) -> Snapshot:
    """What the app knows now."""
    return app.store.snapshot(NOW, MONO)
