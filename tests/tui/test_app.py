"""The app as a whole: Readings in, screens out; every global key; what it tells when something is not possible."""

from __future__ import annotations

import asyncio
import threading
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from textual.command import CommandPalette
from textual.pilot import Pilot

from console.core.history import History
from console.core.model import Asked, Event, Gaps, LogLine, ModelKey, Snapshot, Verdict
from console.tui import commands
from console.tui.app import ConsoleApp
from console.tui.messages import MAX_LOG_LINES, Inbox, LogBuffer
from console.tui.screens.base import FilterLine
from console.tui.state import State
from console.tui.theme import folders, load
from console.tui.widgets.cells import plain
from tests.fakes import boxes
from tests.fakes.boxes import ALL_BOXES, drawn_box
from tests.fakes.drawn import NOW
from tests.fakes.session import FakeSession
from tests.tui.stage import SIZES, console_of, on_stage, settled, text_of

MonkeyPatch = pytest.MonkeyPatch


def notices(app: ConsoleApp) -> list[str]:
    """Texts of the notifications so far."""
    return [one.message for one in app._notifications]


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Wait until something that a thread does has happened."""
    for _ in range(400):
        if true():
            return
        await pilot.pause(0.02)
    raise AssertionError("waited in vain")


# ---------------------------------------------------------------------------------------------------------- life


async def test_session_starts_after_the_first_paint_and_data_shows(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, _):
        assert isinstance(app.session, FakeSession)
        assert app.session.started
        text = text_of(app)
        assert "● SERVING 3 of 4" in text
        assert "ranking             2 READY          1650" in text
        assert "┌ Trends  ranking and GPU 0" in text


async def test_before_any_reading_nothing_is_claimed(tmp_path: Path) -> None:
    app = ConsoleApp(FakeSession(), load(folders()), State(tmp_path), host="box")
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        text = text_of(app)
        assert "? looking" in text
        assert "not read yet" in text
        assert " 0 %" not in text


async def test_readings_of_one_part_replace_each_other(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        assert isinstance(app.session, FakeSession)
        reading = drawn_box().snapshot.host
        for pct in range(500):
            assert reading.value is not None
            app.session.publish(changed(reading, value=changed(reading.value, cpu_pct=float(pct % 100))))
        await settled(app, pilot)
        assert "cpu 99 % of 16" in text_of(app)


async def test_lines_and_events_come_through_the_inbox(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        assert isinstance(app.session, FakeSession)
        before = app.log_lines.count
        for number in range(100):
            app.session.emit(LogLine(NOW, "stderr", f"line {number}"))
        app.session.emit(Event(NOW, "fail", "[/x] fell over", "(kernel)", "xid"))
        await settled(app, pilot)
        assert app.log_lines.count == before + 100
        assert "✗ [/x] fell over" in text_of(app)


def test_inbox_is_bounded_and_counts() -> None:
    inbox = Inbox(limit=3)
    assert [inbox.put(number) for number in range(5)] == [True, False, False, False, False]
    assert inbox.take() == [2, 3, 4]
    assert inbox.dropped == 2
    assert inbox.take() == []


def test_log_buffer_forgets_the_oldest() -> None:
    buffer = LogBuffer(limit=2)
    for number in range(4):
        buffer.add(LogLine(None, "stdout", str(number)))
    assert ([line.text for line in buffer.lines], buffer.count) == (["2", "3"], 4)
    assert LogBuffer().lines.maxlen == MAX_LOG_LINES


async def test_verdicts_are_asked_for_and_counted(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    box = drawn_box()

    class Judge:
        def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
            return box.verdicts

    monkeypatch.setattr("console.tui.app.JUDGE_EVERY", 0.0)
    app = console_of(boxes.with_verdicts(box, ()), tmp_path)
    app.judge = Judge()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        await settled(app, pilot)
        assert "✗1 ▲3 ?1 e" in text_of(app)


async def test_a_theme_file_with_a_fault_is_one_notice(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("name = ")
    app = ConsoleApp(FakeSession(), load([*folders(), tmp_path]), State(tmp_path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(app, pilot)
        assert len(notices(app)) == 1
        assert "a.toml" in notices(app)[0]


# ----------------------------------------------------------------------------------------------------------- keys


async def test_q_goes_back_then_quits(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("2")
        assert app.box.NAME == "models"
        await pilot.press("8")
        assert app.box.NAME == "gpu"
        assert len(app.screen_stack) == 2, "a digit replaces a digit's screen"
        await pilot.press("question_mark")
        assert app.box.NAME == "help"
        await pilot.press("q")
        assert app.box.NAME == "gpu"
        await pilot.press("escape")
        assert app.box.NAME == "overview"
        await pilot.press("escape")
        assert app.is_running, "esc never quits"
        await pilot.press("q")
        assert app._exit


async def test_hold_keeps_the_screen_while_measuring_goes_on(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        assert isinstance(app.session, FakeSession)
        await pilot.press("p")
        host = drawn_box().snapshot.host
        assert host.value is not None
        app.session.publish(changed(host, value=changed(host.value, cpu_pct=77.0)))
        await settled(app, pilot)
        assert "PAUSED at" in text_of(app)
        assert "cpu 23 %" in text_of(app)
        assert app.box.snapshot.host.value is not None
        assert app.box.snapshot.host.value.cpu_pct == 77.0
        await pilot.press("p")
        await settled(app, pilot)
        assert "cpu 77 %" in text_of(app)


async def test_zone_gpu_and_theme(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(boxes.eight_gpus_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("z")
        assert "06:04:31 UTC " in text_of(app)
        await pilot.press("comma")
        assert "GPU 7 of 8" in text_of(app)
        await pilot.press("full_stop", "full_stop")
        assert "GPU 1 of 8" in text_of(app)
        app.use_theme("light")
        assert app.look.theme.name == "light"
        assert State(tmp_path).get("theme") == "light"
        app.use_theme("no such")
        assert app.look.theme.name == "light"


async def test_filter_line(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("slash", "r", "e", "c")
        await settled(app, pilot)
        assert isinstance(app.focused, FilterLine)
        assert "● recall" in text_of(app)
        assert "● ranking " not in text_of(app)
        await pilot.press("enter")
        assert app.pane is app.box.panes["models"]
        await pilot.press("slash", "home", "exclamation_mark", "enter")
        await settled(app, pilot)
        assert "● ranking " in text_of(app)
        await pilot.press("escape")
        await settled(app, pilot)
        assert "● recall" in text_of(app)
        assert app.box.NAME == "overview"
        await pilot.press("slash", "escape")
        assert not isinstance(app.focused, FilterLine)


async def test_digits_and_letters_are_text_in_the_filter(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("slash", *"12qpz")
        assert app.box.NAME == "overview"
        assert isinstance(app.focused, FilterLine)
        assert app.focused.value == "12qpz"


async def test_maximise_and_back(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        for leave in ("M", "escape"):
            await pilot.press("M")
            await settled(app, pilot)
            assert "Trends" not in text_of(app)
            await pilot.press("tab")
            assert app.pane is app.box.panes["models"], "the widened pane keeps the keys"
            await pilot.press(leave)
            await settled(app, pilot)
            assert "Trends" in text_of(app)


async def test_tab_goes_round_the_panes_that_are_shown(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (120, 40)) as (app, pilot):
        seen = []
        for _ in range(6):
            seen.append(app.pane.id if app.pane else None)
            await pilot.press("tab")
        assert seen == ["models", "why", "events", "gpu", "service", "models"]
        await pilot.press("shift+tab")
        assert app.pane is app.box.panes["models"]


async def test_cursor_chooses_the_model(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        await pilot.press("j")
        await settled(app, pilot)
        assert app.chosen == ModelKey("recall", "7")
        assert "┌ Trends  recall and GPU 0" in text_of(app)
        assert "a recall request, mean of 10 s" in text_of(app)


async def test_enter_opens_what_is_under_the_cursor(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        for pane, screen in (("models", "models"), ("events", "timeline"), ("gpu", "gpu"), ("service", "container")):
            app.box.set_focus(app.box.panes[pane])
            await pilot.press("enter")
            await settled(app, pilot)
            assert screen in app.box.NAME
            await pilot.press("1")
            await settled(app, pilot)
        app.box.set_focus(app.box.panes["why"])
        await pilot.press("enter")
        assert app.box.NAME == "models"
        assert app.chosen is not None
        assert app.chosen.name == "rerank"


async def test_copy_and_write(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("y")
        assert app.clipboard == "ranking"
        await pilot.press("ctrl+s")
        text = next((tmp_path / "screens").glob("overview-*.txt"))
        assert "● SERVING 3 of 4" in text.read_text()
        assert text.stat().st_mode & 0o777 == 0o600
        assert next((tmp_path / "screens").glob("*.svg")).read_text().startswith("<svg")


async def test_a_screen_that_cannot_be_written_is_a_notice(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        (tmp_path / "screens").write_text("in the way")
        await pilot.press("ctrl+s")
        assert any("could not be written" in told for told in notices(app))


async def test_what_does_not_work_says_why(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("comma")
        assert notices(app)[-1] == "this box has one GPU at most"
        await pilot.press("ctrl+c")
        assert notices(app)[-1] == "q quits"
        app.box.set_focus(app.box.panes["gpu"])
        await pilot.press("slash", "less_than_sign", "i", "v", "space", "y")
        assert notices(app)[-6:] == [
            "this pane has nothing to filter",
            "this pane has no columns to sort and no span",
            "this pane has no order to turn round",
            "this pane has one view only",
            "nothing to mark or fold here",
            "nothing to copy here",
        ]


async def test_help_lists_the_keys_of_the_screen_below(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (140, 60)) as (app, pilot):
        await pilot.press("h")
        await settled(app, pilot)
        text = text_of(app)
        assert "this screen: overview" in text
        assert "Ask the chosen model once" in text
        assert "(this box has one GPU at most)" in text
        pane = app.box.panes["help"]
        assert pane.select("zone")
        before = app.utc
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.box.NAME == "overview"
        assert app.utc is not before


async def test_palette_offers_commands_screens_and_themes(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        titles = [entry.title for entry in app.get_system_commands(app.screen)]
        assert {"goto Models", "theme mono", "mouse", "ask once (ask)", "hold (hold)"} <= set(titles)
        await pilot.press("colon")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press(*"theme mono")
        await pilot.pause(0.3)
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.look.theme.name == "mono")


# -------------------------------------------------------------------------------------------------------------- asking


async def test_ask_once_shows_answer_and_time(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: "ranking" in app.answers)
        assert app.answers["ranking"].ok
        assert "ranking answered in 2.1 ms: output FP32 [1,8]: 0.1 0.2 [/x]" in notices(app)
        assert app.asking is None


async def test_ask_once_at_a_time_and_failures_are_told(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    go = threading.Event()

    def ask(model: str, version: str | None) -> Asked:
        go.wait(20)
        return Asked(model, version, ok=False, wall=NOW, millis=None, text="500: no such [/x]")

    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        app.session.ask = ask
        await pilot.press("a", "a")
        assert notices(app)[-1] == "ranking is being asked"
        go.set()
        await until(pilot, lambda: app.asking is None)
        assert notices(app)[-1] == "ranking did not answer: 500: no such [/x]"


async def test_an_answer_is_told_against_the_kept_one(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        answers = [
            Asked("ranking", "2", ok=True, wall=NOW, millis=2.0, text="y FP32 [1] 2", compared=""),
            Asked("ranking", "2", ok=True, wall=NOW, millis=2.0, text="y FP32 [1] 3", compared="y: value 0 is [3]"),
            Asked("ranking", "2", ok=None, wall=NOW, millis=None, text="it answers in a stream"),
        ]
        app.session.ask = lambda model, version: answers[0]
        told = (
            "ranking answered as kept in 2.0 ms: y FP32 [1] 2",
            "ranking did not answer as kept in 2.0 ms: y: value 0 is [3]",
            "ranking was not asked: it answers in a stream",
        )
        for words, row in zip(told, ("● as kept", "✗ differs", "? not asked"), strict=True):
            await pilot.press("a")
            await until(pilot, lambda: app.asking is None)
            assert notices(app)[-1] == words
            assert row in text_of(app)
            answers.pop(0)


async def test_read_only_asks_nobody(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        app.read_only = True
        await pilot.press("a")
        assert "read-only" in notices(app)[-1]
        app.refresh_now()
        await pilot.pause()
        assert "READ-ONLY" in text_of(app)


async def test_nothing_to_ask(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(boxes.empty_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("a")
        assert notices(app)[-1] == "there is no model to ask"
        app.session.ask = None
        await pilot.press("a")
        assert notices(app)[-1] == "this session cannot ask models"


# -------------------------------------------------------------------------------------------------------- bring-up


async def test_bring_up_leads_once_and_goes_when_a_server_is_seen(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(boxes.bring_up_box(), tmp_path, monkeypatch) as (app, pilot):
        await settled(app, pilot)
        assert app.box.NAME == "bring_up"
        await pilot.press("q")
        await settled(app, pilot)
        assert app.box.NAME == "overview", "left once, it does not come again"
        app.go("bring_up")
        assert isinstance(app.session, FakeSession)
        app.session.feed(drawn_box().snapshot)
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.box.NAME == "overview"


# ----------------------------------------------------------------------------------------------- every key, every box


@pytest.mark.parametrize(
    ("box_name", "size"),
    [*(("drawn", size) for size in SIZES), ("empty", (120, 40)), ("hostile", (100, 30))],
    ids=str,
)
async def test_every_key_on_the_overview(
    box_name: str, size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(commands.Suspend, "run", lambda self, app: None)
    async with on_stage(ALL_BOXES[box_name](), tmp_path, monkeypatch, size) as (app, pilot):
        for scope in ("overview", commands.EVERYWHERE):
            for command in commands.in_scope(scope):
                for key in command.KEYS:
                    if command.ID == "back":
                        continue
                    app.go("overview")
                    await pilot.press(key)
                    text = text_of(app)
                    assert text.strip(), key
                    assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"], key
                    if isinstance(app.screen, CommandPalette) or isinstance(app.focused, FilterLine):
                        await pilot.press("escape")
                    app.box.maximised = None
        assert app.return_code in (None, 0)


@pytest.mark.parametrize("name", ALL_BOXES)
async def test_every_box_at_every_size(name: str, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    box = ALL_BOXES[name]()
    async with on_stage(box, tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        for size in ((160, 45), (120, 40), (100, 30), (80, 24), (60, 15), (20, 5), (200, 60)):
            await pilot.resize_terminal(*size)
            await settled(app, pilot)
            lines = text_of(app).splitlines()
            assert len(lines) <= size[1]
            assert lines[0].strip() if size[0] >= 60 else "too small" in lines[0]


async def test_what_does_not_reach_the_console_is_on_timeline(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(boxes.drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        unread = (("journal", "no systemd unit owns the container"),)
        monkeypatch.setattr(app.session, "gaps", lambda: Gaps(unread, dropped=(("odd figures", 2),)))
        app._inbox.dropped = 7
        await pilot.press("7")
        await settled(app, pilot)
        app.refresh_now()
        foot = [plain(line) for row in app.box.panes["timeline-events"].foot if not callable(line := row.line)]
        assert foot == [
            "▲ left out: 7 log lines and events that came too fast",
            "▲ left out: 2 odd figures",
            "? journal not read: no systemd unit owns the container",
        ]


async def test_a_burst_of_sources_never_blocks_keys(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with on_stage(boxes.many_models_box(200), tmp_path, monkeypatch) as (app, pilot):
        session = app.session
        assert isinstance(session, FakeSession)
        done = threading.Event()

        def flood() -> None:
            for number in range(3000):
                session.emit(LogLine(NOW, "stderr", f"{number} " + "x" * 200))
            done.set()

        threading.Thread(target=flood, daemon=True).start()
        await pilot.press("j", "j")
        assert app.pane is not None
        await until(pilot, done.is_set)
        await settled(app, pilot)
        assert app.log_lines.count + app.dropped == 3000
        await asyncio.sleep(0)
