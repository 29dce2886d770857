"""From a key to a real server and back: the dialogs, the detached runner and its journal, over a Triton of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

import console.tui.widgets.dialog as dialog_module
from console.actions.box import BoxSpec
from console.config import Actions
from console.tui.app import ConsoleApp
from console.tui.desk import Request
from console.tui.late_desk import LateDesk
from console.tui.screens.plan import PlanDialog
from console.tui.screens.running import RunningDialog
from console.tui.state import State
from console.tui.theme import folders, load
from tests.actions.own_box import settings
from tests.fakes.session import FakeSession
from tests.lab.fixtures import Lab
from tests.lab.own import own_triton

CONFIG = """name: "rank" backend: "python" max_batch_size: 4
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
parameters [ { key: "answer" value { string_value: "score" } }, { key: "base_us" value { string_value: "2000" } } ]
"""


async def _until(pilot: Pilot[None], true: Callable[[], Any]) -> None:
    for _ in range(1500):
        if true():
            await pilot.pause()
            return
        await asyncio.sleep(0.02)
    raise AssertionError("waited in vain")


def _top(app: ConsoleApp) -> object:
    return app.screen


async def _done(app: ConsoleApp, pilot: Pilot[None], request: Request) -> RunningDialog:
    """Plan it, say yes, wait for its end."""
    app.acting.request(request)
    await _until(pilot, lambda: isinstance(_top(app), PlanDialog) and not app.screen.planning)  # type: ignore[attr-defined]
    assert isinstance(app.screen, PlanDialog)
    assert app.screen.plan is not None, app.screen.error
    assert not app.screen.plan.refused
    await pilot.press("right", "enter")
    await _until(pilot, lambda: isinstance(_top(app), RunningDialog) and not app.screen.running)  # type: ignore[attr-defined]
    assert isinstance(app.screen, RunningDialog)
    return app.screen


@pytest.mark.lab
@pytest.mark.usefixtures("own_lock")
async def test_swap_and_its_undo(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
    with own_triton(tmp_path / "models", [("rank", CONFIG, (1, 2))]) as own:
        session = FakeSession()
        quick = replace(settings(own), actions=Actions(watch=0.2))
        session.spec = BoxSpec(quick)
        desk = LateDesk(session, tmp_path / "state")
        app = ConsoleApp(session, load(folders()), State(tmp_path / "state"), desk=desk)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            shown = await _done(app, pilot, Request("model.swap", "rank", {"version": "1"}, {"ready": "2"}))
            outcome = shown.following.outcome
            assert outcome is not None
            assert outcome.word == "done", outcome
            assert own.ready() == {("rank", "1")}
            await pilot.press("escape")
            shown = await _done(app, pilot, Request("undo", "last"))
            outcome = shown.following.outcome
            assert outcome is not None
            assert outcome.word == "done", outcome
            assert own.ready() == {("rank", "2")}
            assert shown.following.plan.undoes
            await _until(pilot, lambda: len(app.acting.records) == 2)
            assert [one.undo_off for one in app.acting.records][1].startswith("it was undone already")
