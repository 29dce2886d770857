"""Every key of every inner screen, pressed at three sizes over a full, an empty and a hostile box."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.tui import commands
from console.tui.app import ConsoleApp
from tests.fakes.boxes import ALL_BOXES
from tests.tui.stage import SIZES, on_stage, press_fast, text_of

SCREENS = ("models", "tune", "load", "compare", "container", "timeline", "gpu", "problems", "why", "bring_up")
LEAVING = frozenset({"q", "ctrl+q", "ctrl+z", "ctrl+s", "colon", "ctrl+p"})
"""Keys that quit, suspend or write files, or open Textual's own palette: tested with the app."""
CONTROL = {"Cc", "Cs"}


def _keys(screen: str) -> list[str]:
    scopes = (*commands.in_scope(screen), *commands.in_scope(commands.EVERYWHERE))
    return [key for command in scopes for key in command.KEYS if key not in LEAVING]


def _check(app: ConsoleApp, key: str) -> None:
    """What the panes drew; cheaper than composing the whole screen after each of hundreds of keys."""
    for pane in app.box.panes.values():
        for strip in pane._strips:
            bad = {char for char in strip.text if unicodedata.category(char) in CONTROL}
            assert not bad, f"control characters on the screen after {key}: {bad}"


def _is_on(app: ConsoleApp, screen: str) -> bool:
    shown = app.box.NAME
    return shown == screen


async def _type(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("box_name", ["drawn", "empty", "hostile"])
async def test_every_key_on_every_screen(
    box_name: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(ALL_BOXES[box_name](), tmp_path, monkeypatch, size) as (app, pilot):
        press_fast(monkeypatch)
        for screen in SCREENS:
            for key in _keys(screen):
                if not _is_on(app, screen):
                    app.go(screen)
                    await pilot.pause()
                await pilot.press(key)
                if key == "slash" and app.focused is not None and app.focused.id == "filter":
                    await _type(pilot, "r", "left_square_bracket", "enter", "escape")
                if key == "at":
                    await _type(pilot, "1", "4", "colon", "0", "1", "enter")
                if _is_on(app, screen):
                    _check(app, f"{key} on {screen}")
                assert app.is_running
            assert text_of(app).strip()
        assert app.return_code in (None, 0)
