"""Load (4): its keys at three sizes: type, plan, run, stop from everywhere, mark, compare, view, export; why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from textual.pilot import Pilot

from console.core.model import ModelKey
from console.tui.app import ConsoleApp
from console.tui.desk import Holder
from console.tui.panes.problems import ProblemsPane, key_of
from console.tui.panes.why_details import WhyPane
from console.tui.screens.load import CompareScreen, LoadScreen
from console.tui.screens.plan import PlanDialog
from console.tui.screens.tune import TuneScreen
from console.tui.widgets.small_dialogs import Sure
from tests.fakes.boxes import drawn_box, empty_box, hostile_box
from tests.tui.loading import FOREIGN, LIVE, NOT_VALID, RUNNING, FakeDoors, made_run, progress, some_runs, use_doors
from tests.tui.stage import SIZES, on_stage, press_fast, settled, shown, text_of
from tests.tui.tuning import FakeTuner, current, looked
from tests.tui.tuning import use as use_tuner

Size = tuple[int, int]
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    press_fast(monkeypatch)
    monkeypatch.setattr("console.tui.widgets.dialog.DEAF_FOR", 0.0)
    monkeypatch.setattr("console.tui.screens.load.CHECK_AFTER", 0.001)


def _notices(app: Any) -> list[str]:
    return [note.message for note in app._notifications]


async def _until(app: ConsoleApp, pilot: Pilot[None], what: Callable[[], object]) -> None:
    """Waits for what a thread does; it has no time of its own."""
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.005)
        await settled(app, pilot)


async def _opened(app: ConsoleApp, pilot: Pilot[None], doors: FakeDoors) -> LoadScreen:
    use_doors(app, doors)
    await pilot.press("4")
    screen = app.box
    assert isinstance(screen, LoadScreen)
    await _until(app, pilot, lambda: screen.listed.runs == doors.kept and screen.form.told)
    return screen


async def _begun(app: ConsoleApp, pilot: Pilot[None], doors: FakeDoors) -> LoadScreen:
    """A load runs, and 42 s of it are told."""
    screen = await _opened(app, pilot, doors)
    await pilot.press("A")
    await _until(app, pilot, lambda: isinstance(app.screen, PlanDialog) and app.screen.plan is not None)
    await pilot.press("right", "enter")
    await _until(app, pilot, doors.begun.is_set)
    assert doors.tell is not None
    for at in range(1, 43):
        doors.tell(progress(float(at)), LIVE)
    await _until(app, pilot, lambda: app.loads.current is not None and len(app.loads.current.samples) == 42)
    return screen


@sizes
async def test_a_load_is_typed_planned_run_and_kept(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        doors = FakeDoors(some_runs())
        screen = await _opened(app, pilot, doors)
        assert len(text_of(app).splitlines()) == size[1]
        assert "[4 Load]" in text_of(app)
        form = screen.form
        assert (screen.model, form.cursor) == ("ranking", "model")
        form.select("mode")
        await pilot.press("right", "right", "j")
        assert form.values()["mode"] == "open loop, Poisson"
        assert form.cursor == "rate"
        await pilot.press("enter", "ctrl+u", "8", "0", "0", "enter")
        form.select("duration")
        await pilot.press("right", "right")
        form.select("goal")
        await pilot.press("enter", "5", "enter")
        await _until(app, pilot, lambda: form.told == "open loop, Poisson, 800/s for 120 s, about 96000 requests")
        await pilot.press("A")
        await _until(app, pilot, lambda: isinstance(app.screen, PlanDialog) and app.screen.plan is not None)
        await _until(app, pilot, lambda: "others send ranking 1650/s now" in text_of(app))
        await pilot.press("enter")  # the focus is on No
        assert app.loads.current is None
        await pilot.press("A")
        await _until(app, pilot, lambda: isinstance(app.screen, PlanDialog) and app.screen.plan is not None)
        await pilot.press("right", "enter")
        await _until(app, pilot, doors.begun.is_set)
        assert doors.tell is not None
        doors.tell(progress(41.0), LIVE)
        doors.tell(progress(42.0), LIVE)
        await _until(app, pilot, lambda: app.loads.current is not None and app.loads.current.last is not None)
        if size[0] > 80:
            assert "LOAD 14 ranking 0:42 of 2:00 ctrl+x" in text_of(app)
            assert "judged at the end" in text_of(app)
        else:
            assert "LOAD 0:42/2:00 ctrl+x" in text_of(app)
        assert "Run 14   running" in text_of(app)
        await pilot.press("A")
        assert _notices(app)[-1] == "load 14 runs: x stops it"
        doors.ends.set()
        await _until(app, pilot, lambda: app.loads.current is None and screen.listed.cursor == 14)
        assert "LOAD" not in text_of(app).splitlines()[0]
        assert any("load 14 on ranking" in note for note in _notices(app))
        assert screen.form.others is None  # the rates of ten seconds are its own
        kinds = [(one.kind, one.origin) for one in shown(app).events if one.kind.startswith("load.")]
        assert kinds.count(("load.begin", "ops@192.0.2.7")) == kinds.count(("load.end", "ops@192.0.2.7")) == 5


@sizes
@pytest.mark.parametrize("where", ["1", "2", "3", "5", "6", "7", "8", "e", "w", "question_mark"])
async def test_ctrl_x_stops_it_from_every_screen(
    where: str, size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        doors = FakeDoors()
        await _begun(app, pilot, doors)
        await pilot.press(where)
        assert "ctrl+x" in text_of(app).splitlines()[0]
        await pilot.press("ctrl+x")
        assert doors.stopped.is_set()
        await _until(app, pilot, lambda: app.loads.current is None)
        await _until(app, pilot, lambda: [(run.id, run.ended) for run in app.loads.runs] == [(1, "stopped")])


async def test_ctrl_x_stops_it_within_a_field_a_filter_and_a_dialog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keys in (("tab", "tab", "tab", "slash", "r"), ("2", "x"), ("colon",)):
        async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
            doors = FakeDoors(some_runs())
            await _begun(app, pilot, doors)
            await pilot.press(*keys)
            await settled(app, pilot)
            await pilot.press("ctrl+x")
            assert doors.stopped.is_set(), keys
            await _until(app, pilot, lambda: app.loads.current is None)


async def test_x_stops_it_and_says_where_none_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors()
        await _begun(app, pilot, doors)
        await pilot.press("ctrl+z")
        assert "nobody would watch it" in _notices(app)[-1]
        await pilot.press("x")
        assert doors.stopped.is_set()
        await _until(app, pilot, lambda: app.loads.current is None)
        for key in ("x", "ctrl+x"):
            await pilot.press(key)
            assert _notices(app)[-1] == "no load of this console runs"


async def test_quitting_asks_and_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors()
        await _begun(app, pilot, doors)
        await pilot.press("1", "q")
        await settled(app, pilot)
        assert isinstance(app.screen, Sure)
        assert "Load 1 on ranking runs (0:42 of 0:30)" in text_of(app)
        await pilot.press("enter")
        assert app.is_running
        assert not doors.stopped.is_set()
        await pilot.press("q")
        await settled(app, pilot)
        await pilot.press("right", "enter")
        await pilot.pause()
    assert doors.stopped.is_set()
    assert [run.ended for run in doors.kept] == ["stopped"]


async def test_whatever_ends_the_console_ends_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors()
        await _begun(app, pilot, doors)
        app.exit(return_code=129)
        await pilot.pause()
    assert doors.stopped.is_set()


@sizes
async def test_what_cannot_be_stands_beside_its_field(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        doors = FakeDoors()
        screen = await _opened(app, pilot, doors)
        form = screen.form
        form.select("callers")
        await pilot.press("enter", "ctrl+u", "q", "1", "enter")
        await _until(app, pilot, lambda: "✗ at once must be a whole number" in text_of(app))
        await pilot.press("right")
        assert "q1 is no single number" in _notices(app)[-1]
        await pilot.press("A")
        assert "at once must be a whole number" in _notices(app)[-1]
        assert doors.planned == []
        await pilot.press("enter", "ctrl+u", "1", "dot", "dot", "1", "6", "escape")
        assert form.form.values["callers"] == "q1"
        assert app.box is screen
        await pilot.press("enter", "ctrl+u", "1", "full_stop", "full_stop", "1", "6", "down")
        assert form.form.values["callers"] == "1..16"
        assert form.cursor == "duration"
        await _until(app, pilot, lambda: not form.form.notes)
        doors.refuses = "--shape is wanted: TOKENS of ranking has the variable shape [-1]"
        await pilot.press("A")
        await _until(app, pilot, lambda: "✗ shapes is wanted: TOKENS" in text_of(app))
        await pilot.press("enter")
        assert app.loads.current is None
        assert form.form.notes[0].name == "shapes"


@sizes
async def test_runs_are_marked_compared_and_written(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        doors = FakeDoors(some_runs())
        screen = await _opened(app, pilot, doors)
        await pilot.press("tab", "tab", "tab")
        assert screen.focused is screen.listed
        assert screen.listed.cursor == 13
        await pilot.press("equals_sign")
        assert "mark two runs with space" in _notices(app)[-1]
        await pilot.press("space", "j")
        assert screen.listed.marked == (13,)
        await _until(app, pilot, lambda: screen.now.run is not None and screen.now.run.id == 12)
        await pilot.press("equals_sign")
        await _until(app, pilot, lambda: isinstance(app.box, CompareScreen) and app.box.pane.found is not None)
        assert "Run 12 and run 13" in text_of(app)
        assert "RUN 12" in text_of(app)
        await pilot.press("E")
        await _until(app, pilot, lambda: doors.written)
        name, files = doors.written[-1]
        assert name.startswith("compare-12-13-")
        assert set(files) == {"csv", "md"}
        await pilot.press("escape")
        assert app.box is screen
        await pilot.press("E")
        await _until(app, pilot, lambda: len(doors.written) == 2 and _notices(app)[-1].startswith("written to"))
        assert len(doors.written[-1][1]["csv"].splitlines()) == 5
        await pilot.press("j")
        assert screen.run is not None
        assert (screen.run.id, screen.run.not_valid) == (11, NOT_VALID)
        await pilot.press("t")
        assert "run 11 is not valid" in _notices(app)[-1]


@sizes
async def test_the_distribution_has_three_views(size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        screen = await _opened(app, pilot, FakeDoors(some_runs()))
        pane = screen.distribution
        await pilot.press("tab", "tab")
        await _until(app, pilot, lambda: pane.shape is not None)
        assert "Distribution   run 13" in text_of(app)
        for kind, second in (("log", 0), ("with", 12), ("linear", 0)):
            await pilot.press("v")
            await _shaped(app, pilot, kind, second)
            assert "█" in text_of(app)
        await pilot.press("tab")
        screen.listed.select(10)
        await pilot.press("space", "g")
        await pilot.press("shift+tab", "v", "v")
        await _until(app, pilot, lambda: pane.shape is not None and pane.shape.second == 10)


async def _shaped(app: ConsoleApp, pilot: Pilot[None], kind: str, second: int) -> None:
    screen = app.box
    assert isinstance(screen, LoadScreen)
    pane = screen.distribution
    await _until(app, pilot, lambda: pane.shape is not None and (pane.shape.kind, pane.shape.second) == (kind, second))


async def test_t_tunes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await _opened(app, pilot, FakeDoors(some_runs()))
        use_tuner(monkeypatch, app, FakeTuner(current()))
        await pilot.press("t")
        screen = await looked(app, pilot)
        assert isinstance(screen, TuneScreen)
        assert screen.model == "ranking"
        assert screen.live.measured is not None
        assert screen.live.measured.origin == "by load run 13"
        run = some_runs()[-1]
        assert screen.live.measured.after["p99"] == run.client.latency.p99
        assert screen.live.measured.after["wait"] == 0.39
        assert f"{run.client.latency.p99:.2f}" in text_of(app)
        await pilot.press("L")
        assert app.box.NAME == "load"


@pytest.mark.parametrize(("screen", "keys"), [("", ("L",)), ("models", ("L",)), ("tune", ("L",))])
async def test_l_opens_it_with_the_model(
    screen: str, keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen=screen) as (app, pilot):
        use_doors(app, FakeDoors())
        app.choose_model("recall")
        if screen == "models":
            app.box.panes["models-list"].select(next(
                row.key for row in app.box.panes["models-list"].rows if getattr(row.key, "model", "") == "recall"
            ))  # fmt: skip
        await pilot.press(*keys)
        await settled(app, pilot)
        assert isinstance(app.box, LoadScreen)
        assert app.box.model == "recall"
        assert app.box.form.values()["model"] == "recall"


@pytest.mark.parametrize("screen", ["why", "problems"])
async def test_l_of_a_verdict_leads_here(screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        use_doors(app, FakeDoors())
        first, *others = [one for one in shown(app).verdicts if one.sign in ("fail", "warn") and one.model]
        verdicts = (changed(first, next_key="L", model="recall"), *others)
        app.store.set_verdicts(verdicts)
        for verdict in verdicts:
            app.go(screen)
            await settled(app, pilot)
            pane = app.box.panes["why-details" if screen == "why" else "problems"]
            assert isinstance(pane, WhyPane | ProblemsPane)
            if isinstance(pane, WhyPane):
                pane.choose(key_of(verdict))
            else:
                assert pane.select(key_of(verdict))
                assert "4 Load" in text_of(app).split("OPENS")[1]
            await settled(app, pilot)
            await pilot.press("L")
            assert (app.box.NAME == "load") == (verdict.next_key == "L"), verdict.id
            if verdict.next_key == "L":
                assert app.chosen is not None
                assert app.chosen.name == "recall"
            app.go("overview")
            await settled(app, pilot)


async def test_another_model_keeps_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        screen = await _opened(app, pilot, FakeDoors())
        form = screen.form
        form.select("version")
        await pilot.press("right")
        assert form.values()["version"] == "2"
        form.select("model")
        await pilot.press("right")
        assert screen.model == "recall"
        assert form.values()["version"] == "any"
        assert app.chosen is not None
        assert app.chosen.name == "recall"
        await pilot.press("1")
        app.chosen = ModelKey("reco", "1")
        await pilot.press("4")
        assert form.values()["model"] == "reco"


async def test_read_only_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        app.read_only = True
        doors = FakeDoors(some_runs())
        screen = await _opened(app, pilot, doors)
        for key in ("A", "enter", "right"):
            await pilot.press(key)
            assert _notices(app)[-1] == "the console is read-only: no load is sent"
        assert "▲ the console is read-only: no load is" in text_of(app)
        assert doors.planned == []
        assert app.loads.start(doors.plan(screen.form.values())) == "the console is read-only: no load is sent"
        assert not doors.begun.is_set()


async def test_what_others_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        doors = FakeDoors(going=(RUNNING,))
        await _opened(app, pilot, doors)
        await _until(app, pilot, lambda: app.loads.going)
        assert "LOAD by ana, recall 0:42 of 2:00" in text_of(app).splitlines()[0]
        assert "also running: ana, recall open loop, constant, 800/s" in " ".join(text_of(app).split())
        app.acting.holder = Holder("ana is changing recall since 14:02")
        await pilot.press("A")
        assert _notices(app)[-1] == "ana is changing recall since 14:02"
        app.loads._seen(())
        await _until(
            app, pilot, lambda: [one for one in shown(app).events if one.text.endswith("ended: " + RUNNING.words)]
        )
        told = [one.text for one in shown(app).events if one.kind == "load.other"]
        assert told == [f"a load on recall {what}: open loop, constant, 800/s" for what in ("began", "ended")]
        assert "LOAD" not in text_of(app).splitlines()[0]


async def test_a_load_of_another_server_is_told_on_this_screen_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the same CPU and card, but is none of this server's."""
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        doors = FakeDoors(going=(changed(RUNNING, target="127.0.0.1:9000"), changed(RUNNING, target="[::1")))
        await _opened(app, pilot, doors)
        await _until(app, pilot, lambda: app.loads.going)
        assert "LOAD" not in text_of(app).splitlines()[0]
        assert "also running and 1 more: ana, recall" in " ".join(text_of(app).split())
        app.loads._seen(())
        await settled(app, pilot)
        assert [one for one in shown(app).events if one.kind == "load.other"] == []


async def test_a_run_of_another_terminal_tells_its_end_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors(going=(RUNNING,))
        await _opened(app, pilot, doors)
        await _until(app, pilot, lambda: app.loads.going)
        doors.kept = (made_run(1, model="recall", wall=RUNNING.wall + 5.5),)
        app.loads._seen(())
        await _until(app, pilot, lambda: any(one.kind == "load.end" for one in shown(app).events))
        kinds = [one.kind for one in shown(app).events if one.kind.startswith("load.")]
        assert sorted(kinds) == ["load.end", "load.other"]


@pytest.mark.parametrize("box", [empty_box, hostile_box])
@sizes
async def test_it_stands_on_any_box(
    size: Size, box: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(box(), tmp_path, monkeypatch, size) as (app, pilot):
        use_doors(app, FakeDoors())
        await pilot.press("4")
        await settled(app, pilot)
        assert "no run is kept yet" in text_of(app)
        await pilot.press("A")
        await settled(app, pilot)
        if box is empty_box:
            assert _notices(app)[-1] == "there is no model to load"


async def test_runs_that_cannot_be_kept_or_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors()
        screen = await _begun(app, pilot, doors)
        doors.result = made_run(0, notes=("the run is not kept: /state/load: No space left on device",))
        doors.ends.set()
        await _until(app, pilot, lambda: app.loads.current is None and app.loads.runs)
        assert any("No space left" in note for note in _notices(app))
        await _until(app, pilot, lambda: screen.now.run is not None)
        assert "not kept" in text_of(app)

        def broken() -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(doors, "runs", broken)
        app.loads.read_runs()
        await _until(app, pilot, lambda: app.loads.error)
        assert "Permission denied" in app.loads.error


async def test_a_load_that_cannot_be_sent_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        doors = FakeDoors()

        def broken(*_: Any) -> Any:
            raise OSError("no process can be made [/x]")

        monkeypatch.setattr(doors, "measure", broken)
        screen = await _opened(app, pilot, doors)
        assert app.loads.start(doors.plan(screen.form.values())) == ""
        await _until(app, pilot, lambda: app.loads.current is None)
        assert _notices(app)[-1] == "load 1 on ranking: no process can be made [/x]"
        assert "no process can be made [/x]" in text_of(app)
        assert [one.sign for one in shown(app).events if one.kind == "load.end"] == ["fail"]


@sizes
async def test_another_programs_run_is_looked_at_and_compared(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        doors = FakeDoors(some_runs())
        doors.foreign = (FOREIGN,)
        screen = await _opened(app, pilot, doors)
        assert app.loads.next_number == 15
        await pilot.press("tab", "tab", "tab")
        screen.listed.select(14)
        await settled(app, pilot)
        assert "Run 14   by perf_analyzer 2.51.0" in text_of(app)
        assert "tells no distribution" in text_of(app)
        await pilot.press("space", "j", "space", "equals_sign")
        await _until(app, pilot, lambda: "Run 13 and run 14" in text_of(app) and "RUN 14" in text_of(app))
        await pilot.press("escape")
        screen.listed.select(14)
        use_tuner(monkeypatch, app, FakeTuner(current()))
        await pilot.press("t")
        tune = await looked(app, pilot)
        assert tune.live.measured is not None
        assert tune.live.measured.after["p99"] == 3.9
