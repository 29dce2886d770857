"""Tune (3): its keys at three sizes: step, type, presets, apply, keep, revert, measure; and why they do not work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from console.core.model import ModelKey, Proposal, Verdict
from console.core.plan import Operator
from console.tui.desk import Following, Request
from console.tui.screens.plan import PlanDialog
from console.tui.screens.tune import MEASURE_FOR, TuneScreen
from console.tui.tuner import LoadRun
from console.tui.widgets import dialog as dialog_module
from console.tui.widgets.small_dialogs import Choice, Typed
from tests.fakes.boxes import drawn_box, empty_box, with_verdicts
from tests.fakes.drawn import MONO, NOW
from tests.tui.stage import SIZES, on_stage, press_fast, settled, shown, text_of
from tests.tui.tuning import DRAWN, ENSEMBLE, FakeDesk, FakeTuner, current, looked, record, use

Size = tuple[int, int]
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    press_fast(monkeypatch)


def _notices(app: Any) -> list[str]:
    return [note.message for note in app._notifications]


@sizes
async def test_a_step_is_planned_and_shown_and_applied(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        desk = use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        screen = await looked(app, pilot)
        assert len(text_of(app).splitlines()) == size[1]
        assert "[3 Tune]" in text_of(app)
        assert screen.form.cursor == "dynamic_batching"
        await pilot.press("A")
        assert "nothing changed" in _notices(app)[-1]
        await pilot.press("j", "left", "left")
        await looked(app, pilot)
        assert screen.form.form.values == {"delay_us": "500"}
        assert "one field changed: one full reload of ranking" in text_of(app)
        assert "-   max_queue_delay_microseconds: 2000" in text_of(app)
        assert "not sent" in text_of(app)
        await pilot.press("A")
        await settled(app, pilot)
        assert isinstance(app.screen, PlanDialog)
        assert desk.requests[-1].action == "batching.set"
        assert desk.requests[-1].values == {"delay_us": "500"}
        assert desk.requests[-1].identity == {"ready": "2"}
        assert desk.started == []


@sizes
async def test_a_field_is_opened_typed_and_left(size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        desk = use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        screen = await looked(app, pilot)
        form = screen.form.form
        await pilot.press("j", "enter")
        assert form.opened == "delay_us"
        await pilot.press("ctrl+u", "q", "1", "5")
        assert (form.text, app.box.NAME) == ("q15", "tune")
        assert "q15_" in text_of(app)
        await pilot.press("enter")
        await looked(app, pilot)
        assert "✗ `delay_us` must be a whole number" in text_of(app)
        assert "cannot be applied" in text_of(app)
        before = len(desk.requests)
        await pilot.press("A")
        assert len(desk.requests) == before
        assert "`delay_us` must be a whole number" in _notices(app)[-1]
        await pilot.press("enter", "ctrl+u", "8", "escape")
        assert form.values == {"delay_us": "q15"}
        assert app.box.NAME == "tune"
        await pilot.press("enter", "ctrl+u", "8", "down")
        assert form.values == {"delay_us": "8"}
        assert screen.form.cursor == "preferred"
        await pilot.press("escape")
        assert app.box.NAME == "overview"
        await pilot.press("3")
        await looked(app, pilot)
        assert form.values == {"delay_us": "8"}


@sizes
async def test_the_form_scrolls_to_its_last_row(size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        screen = await looked(app, pilot)
        await pilot.press("G")
        await looked(app, pilot)
        assert screen.form.cursor == "warm_up"
        assert "warm-up" in text_of(app)
        await pilot.press("enter")
        assert "warm-up is shown only" in _notices(app)[-1]
        await pilot.press("right")
        assert "warm-up is shown only" in _notices(app)[-1]
        await pilot.press("g")
        assert "DYNAMIC BATCHING" in text_of(app)


@sizes
async def test_presets_fill_in_the_form(size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        monkeypatch.setattr("console.tui.widgets.dialog.DEAF_FOR", 0.0)
        await pilot.press("3")
        screen = await looked(app, pilot)
        await pilot.press("P")
        await settled(app, pilot)
        assert isinstance(app.screen, Choice)
        assert "throughput" in text_of(app)
        await pilot.press("down", "enter")
        await looked(app, pilot)
        assert screen.form.form.values == {"delay_us": "1000"}
        for name, wanted in [
            ("off", {"dynamic_batching": "off"}),
            ("throughput", {"delay_us": "5000"}),
            ("2000", {"delay_us": "2000"}),
            ("as live", {}),
        ]:
            screen.put_preset(name)
            await looked(app, pilot)
            meant = {key: text for key, text in screen.form.form.values.items() if key in screen.form.form.changed}
            assert meant == ({} if name == "2000" else wanted)


async def test_keep_and_revert_open_plans_of_this_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        mine = record("mine", "delay_us 500 → 2000", {"delay_us": "2000"})
        other = changed(mine.intent, id="other", target=changed(mine.intent.target, name="recall"))
        desk = use(monkeypatch, app, FakeTuner(current()), (type(mine)(other, mine.outcome), mine))
        await pilot.press("3")
        await looked(app, pilot)
        await pilot.press("W")
        await settled(app, pilot)
        assert (desk.requests[-1].action, desk.requests[-1].target) == ("batching.keep", "ranking")
        app.pop_screen()
        await looked(app, pilot)
        await pilot.press("u")
        await settled(app, pilot)
        assert (desk.requests[-1].action, desk.requests[-1].target) == ("undo", "mine")
        app.pop_screen()
        desk.past = (type(mine)(other, mine.outcome),)
        app.acting.read_records()
        await looked(app, pilot)
        while app.acting.records != desk.past:
            await settled(app, pilot)
        await looked(app, pilot)
        await pilot.press("u")
        await settled(app, pilot)
        assert (desk.requests[-1].action, desk.requests[-1].target) == ("batching.revert", "ranking")


async def test_an_experiment_opens_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()), (record("one", "delay_us 500 → 2000", {"delay_us": "2000"}),))
        await pilot.press("3")
        screen = await looked(app, pilot)
        while not screen.experiments.records:
            await settled(app, pilot)
        assert "2.94 → 1.84" in text_of(app)
        await pilot.press("tab", "tab", "tab", "right")
        assert "press tab" in _notices(app)[-1]
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.box.NAME == "audit"


async def test_m_measures_a_window_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = drawn_box()
    async with on_stage(box, tmp_path, monkeypatch) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        screen = await looked(app, pilot)
        await pilot.press("m")
        await settled(app, pilot)
        assert "measuring: 0 %" in text_of(app)
        reading = shown(app).stats
        assert reading.value is not None
        assert reading.mono is not None
        flows = tuple(
            changed(
                flow,
                stats=changed(
                    flow.stats,
                    success_count=flow.stats.success_count + 1000,
                    success_ns=flow.stats.success_ns + 5_000_000_000,
                    execution_count=flow.stats.execution_count + 500,
                    inference_count=flow.stats.inference_count + 1000,
                ),
            )
            for flow in reading.value.flows
        )
        later = changed(reading, value=changed(reading.value, flows=flows), mono=reading.mono + MEASURE_FOR)
        app.store.apply(later)
        await looked(app, pilot)
        told = screen.live.measured
        assert told is not None
        assert (told.origin, round(told.after["rate"]), told.after["mean"]) == ("by m, 10 s", 100, 5.0)
        await pilot.press("m")
        begun = [changed(flow, stats=changed(flow.stats, success_count=1)) for flow in flows]
        app.store.apply(changed(later, value=changed(reading.value, flows=tuple(begun)), mono=MONO + 2 * MEASURE_FOR))
        await looked(app, pilot)
        assert "loaded anew meanwhile" in _notices(app)[-1]


async def test_read_only_shows_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        desk = use(monkeypatch, app, FakeTuner(current()))
        app.read_only = True
        await pilot.press("3")
        screen = await looked(app, pilot)
        assert "▲ the console is read-only" in text_of(app)
        for key in ("A", "W", "P", "left", "right", "enter", "u"):
            await pilot.press(key)
            assert "read-only" in _notices(app)[-1], key
        assert screen.form.form.values == {}
        assert desk.requests == []


async def test_what_cannot_be_tuned_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        tuner = FakeTuner(current(), "no version of ranking is READY: load it first (model.load ranking)")
        use(monkeypatch, app, tuner)
        await pilot.press("3")
        screen = await looked(app, pilot)
        assert "no version of ranking is READY" in text_of(app)
        await pilot.press("right")
        assert "no version of ranking is READY" in _notices(app)[-1]
        tuner.error, tuner.now = "", current(ENSEMBLE, None)
        screen._looked = float("-inf")
        await looked(app, pilot)
        assert "is an ensemble: it has no batcher" in text_of(app)
        assert "DISK ?: the repository is on s3://" in text_of(app)


async def test_a_box_without_models_has_an_empty_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(empty_box(), tmp_path, monkeypatch) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("t")
        assert "there is no model to tune" in _notices(app)[-1]
        await pilot.press("3")
        screen = await looked(app, pilot)
        assert screen.model == ""
        for key in ("A", "W", "P", "m", "left", "enter"):
            await pilot.press(key)
        assert app.box.NAME == "tune"


async def test_t_leads_here_from_models_and_from_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("G", "g", "t")
        screen = await looked(app, pilot)
        assert (screen.model, app.chosen) == ("ranking", ModelKey("ranking", "2"))
        app.go("overview")
        verdicts = [changed(one, next_key="t") if one.model == "ranking" else one for one in drawn_box().verdicts]
        app.store.set_verdicts(tuple(verdicts))
        for key in ("w", "e"):
            app.go("overview")
            await settled(app, pilot)
            await pilot.press(key)
            await settled(app, pilot)
            pane = next(iter(app.box.panes.values()))
            for _ in verdicts:
                verdict = app.box.verdict()
                if verdict is not None and verdict.model == "ranking" and verdict.next_key == "t":
                    break
                await pilot.press("t")
                assert "Tune does not help here" in _notices(app)[-1]
                pane.move(1)
            else:
                continue
            await pilot.press("t")
            assert isinstance(app.box, TuneScreen)


async def test_a_reload_elsewhere_is_looked_at_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        tuner = FakeTuner(current())
        use(monkeypatch, app, tuner)
        await pilot.press("3")
        screen = await looked(app, pilot)
        screen.put_preset("500")
        await looked(app, pilot)
        assert (tuner.looks, screen.form.form.values) == (1, {"delay_us": "500"})
        reading = shown(app).configs
        assert reading.value is not None
        tuner.now = current({**screen_document(), "dynamic_batching": {"max_queue_delay_microseconds": 500}})
        configs = tuple(
            changed(one, delay_us=500, raw="{}2") if one.name == "ranking" else one for one in reading.value.configs
        )
        app.store.apply(changed(reading, value=changed(reading.value, configs=configs)))
        await looked(app, pilot)
        await looked(app, pilot)
        assert tuner.looks == 2
        assert screen.form.form.values == {}, "what is live now is no change any more"


def screen_document() -> dict[str, Any]:
    """What ranking serves in the drawn box."""
    from tests.tui.tuning import RANKING

    return dict(RANKING)


@pytest.mark.parametrize(
    ("values", "typed"),
    [({"delay_us": "500"}, {"delay_us": "500"}), ({"instances": "3"}, {"instances:gpu0": "3"})],
    ids=["delay", "instances"],
)
async def test_t_on_a_verdict_fills_in_what_it_proposes(
    values: dict[str, str], typed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = (
        Proposal("look elsewhere", "it is not here"),
        Proposal("do it", "it helps", "batching.set", "ranking", values, "3"),
    )
    verdict = Verdict("V20", "warn", "ranking waits for nothing", model="ranking", proposals=proposals)
    async with on_stage(with_verdicts(drawn_box(), (verdict,)), tmp_path, monkeypatch) as (app, pilot):
        use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("w", "t")
        screen = await looked(app, pilot)
        assert screen.form.form.values == typed
        assert "not sent" in text_of(app)


async def test_a_prediction_stands_beside_and_goes_into_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        tuner = FakeTuner(current())
        tuner.predicted = DRAWN
        desk = use(monkeypatch, app, tuner)
        await pilot.press("3")
        await looked(app, pilot)
        assert tuner.asked == [], "nothing is predicted of what is live"
        await pilot.press("j", "left", "left")
        await looked(app, pilot)
        assert tuner.asked[-1].delay_us == 500
        assert "1.84 ±0.10" in text_of(app)
        assert "trust good" in text_of(app)
        await pilot.press("A")
        await settled(app, pilot)
        assert desk.requests[-1].values == {"delay_us": "500", "predicted": "mean=1.84,wait=0.4,p99=2.3,batch=1.9"}


async def _asked(app: Any, pilot: Any, desk: FakeDesk, action: str) -> Request:
    """The newest request, when it is of this action."""
    until = time.monotonic() + 10
    while not desk.requests or desk.requests[-1].action != action:
        assert time.monotonic() < until, desk.requests
        await settled(app, pilot)
    await settled(app, pilot)
    return desk.requests[-1]


async def test_v_tries_with_the_words_typed_and_keeps_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        desk = use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        await looked(app, pilot)
        await pilot.press("V")
        assert "nothing changed" in _notices(app)[-1]
        await pilot.press("j", "left", "left")
        await looked(app, pilot)
        await pilot.press("V")
        await settled(app, pilot)
        assert isinstance(app.screen, Typed)
        await pilot.press(*" slo_mean_ms=4", "enter")
        asked = await _asked(app, pilot, desk, "batching.trial")
        assert asked.values == {"delay_us": "500", "for": "5m", "slo_mean_ms": "4"}
        assert isinstance(app.screen, PlanDialog)
        app.pop_screen()
        plan = desk.plan(asked, app.box.snapshot)
        app.acting.running = Following("20260101-000000-000000", plan, Operator("ops", 1000), NOW)
        await pilot.press("A")
        assert "is under way" in _notices(app)[-1]
        await pilot.press("V")
        assert (await _asked(app, pilot, desk, "batching.accept")).target == "ranking"


async def test_s_asks_for_a_sweep_and_what_is_no_value_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        desk = use(monkeypatch, app, FakeTuner(current()))
        await pilot.press("3")
        await looked(app, pilot)
        await pilot.press("S")
        await settled(app, pilot)
        await pilot.press("enter")
        asked = await _asked(app, pilot, desk, "batching.sweep")
        assert asked.target == "ranking"
        assert asked.values == {"objective": "throughput", "budget": "5m"}
        app.pop_screen()
        await settled(app, pilot)
        await pilot.press("S")
        await settled(app, pilot)
        await pilot.press(*" fast", "enter")
        await settled(app, pilot)
        assert "'fast' is no value; write name=value" in _notices(app)[-1]
        assert len([one for one in desk.requests if one.action == "batching.sweep"]) == 1


async def test_experiments_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        tuner = FakeTuner(current())
        tuner.past = (LoadRun(9, NOW - 300, 2.4),)
        use(monkeypatch, app, tuner, (record("one", "delay_us 500 → 2000", {"delay_us": "2000"}),))
        written: dict[str, list[tuple[str, ...]]] = {}
        monkeypatch.setattr("console.tui.screens.load.export", lambda _, name, rows: written.update({name: rows}))
        await pilot.press("3")
        screen = await looked(app, pilot)
        while not (screen.experiments.records and screen.experiments.runs):
            await settled(app, pilot)
        await pilot.press("E")
        await settled(app, pilot)
        (rows,) = written.values()
        assert list(written) == ["experiments-ranking"]
        assert "run 9" in rows[1]
