"""Keys that change the box, from the key to the outcome, over a Desk that only remembers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual import events
from textual.pilot import Pilot

import console.tui.acting as acting_module
import console.tui.app as app_module
import console.tui.widgets.dialog as dialog_module
from console.core.changes import NOT_OURS
from console.core.model import Event, PodmanState, UnitState
from console.core.plan import Interrupted, Outcome, Plan, Refused, UndoSpec
from console.tui import commands
from console.tui.app import ConsoleApp
from console.tui.desk import Holder, Request
from console.tui.screens.plan import PlanDialog
from console.tui.screens.running import RunningDialog
from console.tui.screens.since import SinceDialog
from console.tui.screens.versions import VersionDialog
from console.tui.state import State
from console.tui.theme import folders, load
from console.tui.widgets.dialog import Dialog
from console.tui.widgets.small_dialogs import Sure, Typed
from tests.fakes.boxes import Box, drawn_box, empty_box, good
from tests.fakes.desk import DONE, OPS, RUNNING, STOP, SWAP, FakeDesk, record
from tests.fakes.drawn import NOW
from tests.fakes.session import FakeSession
from tests.tui.stage import SIZES, BoxClock, answer, settled, text_of

MonkeyPatch = pytest.MonkeyPatch
SCOPES = (commands.EVERYWHERE, "overview", "models", "container")
ACTS = [
    one for one in commands.COMMANDS.values() if one.KIND == "plan" and one.SCOPE in SCOPES and one.ID != "interrupt"
]


@asynccontextmanager
async def acting(
    desk: FakeDesk,
    folder: Path,
    monkeypatch: MonkeyPatch,
    size: tuple[int, int] = (160, 45),
    *,
    box: Box | None = None,
    screen: str = "",
    deaf: float = 0.0,
    read_only: bool = False,
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    """The drawn box with this desk behind it; dialogs hear at once unless `deaf`."""
    monkeypatch.setattr(dialog_module, "DEAF_FOR", deaf)
    monkeypatch.setattr(acting_module, "FOLLOW_EVERY", 0.01)
    monkeypatch.setattr(acting_module, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(app_module, "time", BoxClock())
    made = box or drawn_box()
    session = FakeSession(made.snapshot, items=made.log_lines, ask=answer)
    app = ConsoleApp(session, load(folders()), State(folder), host="infer-01", desk=desk, read_only=read_only)
    app.store.history = made.history
    app.store.set_verdicts(made.verdicts)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        if screen:
            app.go(screen)
            await settled(app, pilot)
        yield app, pilot


async def until(pilot: Pilot[None], true: Callable[[], Any]) -> None:
    """Wait for what a thread does."""
    for _ in range(500):
        if true():
            await pilot.pause()
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


async def planned(app: ConsoleApp, pilot: Pilot[None], key: str) -> PlanDialog:
    """Press a key and wait for its plan."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
    assert isinstance(app.screen, PlanDialog)
    return app.screen


def top(app: ConsoleApp) -> object:
    """What is shown now; a call, so that no type checker takes the answer for one that stays."""
    return app.screen


def focus(dialog: Dialog[Any]) -> object:
    """Where its keys go now."""
    return dialog.focus_on


def notices(app: ConsoleApp) -> list[str]:
    """Texts of the notifications so far."""
    return [one.message for one in app._notifications]


# --------------------------------------------------------------------------------------------------------- the dialog


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_plan_fits_and_its_first_and_last_line_stay(
    size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    async with acting(FakeDesk(), tmp_path, monkeypatch, size, screen="models") as (app, pilot):
        await planned(app, pilot, "r")
        for key in (None, "pagedown", "end"):
            if key is not None:
                await pilot.press(key)
            text = text_of(app)
            assert "Swap lm 3 → 4" in text
            assert "CAUTION: a gap" in text
            assert "[▸No ]" in text
            assert "[ Swap ]" in text
        assert "undo: u: swap back to 3" in text
        await pilot.press("home")
        text = text_of(app)
        assert "CHECKED JUST NOW" in text
        assert "↑ ↓ for more" in text or size != (80, 24)
        await pilot.press("escape")


async def test_the_drawn_columns(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with acting(FakeDesk(), tmp_path, monkeypatch, (120, 45), screen="models") as (app, pilot):
        await planned(app, pilot, "r")
        text = text_of(app)
        assert "● config.pbtxt: parses, same inputs and outputs as 3                ● explicit mode" in text
        assert "WAYS                                        CLIENTS SEE                          GAP" in text
        assert "(•) unload 3, wait for memory, load 4       404 no available versions" in text
        assert "0 s    ✗ has 1 instance" in text
        assert "STEPS                                                                   IF IT FAILS" in text
        assert "y copies all 4 lines" in text
        assert "[▸No ]   [ Swap ]     esc = No" in text


async def test_focus_is_on_no_and_enter_takes_it(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await planned(app, pilot, "r")
        assert focus(dialog) == "no"
        await pilot.press("enter")
        assert top(app) is app.box
        for leave in ("escape", "n", "q", "ctrl+c", "ctrl+q"):
            await planned(app, pilot, "r")
            await pilot.press(leave)
            assert top(app) is app.box, leave
        assert not desk.started


async def test_y_copies_and_is_never_yes(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await planned(app, pilot, "r")
        await pilot.press("y", "Y", "o", "x", "1", "space")
        assert top(app) is dialog
        assert app.clipboard == "grpcurl 1\ngrpcurl 2\ngrpcurl 3\ngrpcurl 4"
        assert not desk.started


@pytest.mark.parametrize(
    "path", [("tab", "enter"), ("right", "enter"), ("left", "enter"), ("shift+tab",) * 3 + ("enter",)]
)
async def test_yes_is_one_step_and_enter(path: tuple[str, ...], tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        await planned(app, pilot, "r")
        await pilot.press(*path)
        await until(pilot, lambda: desk.started)
        assert desk.started == [SWAP]


async def test_a_dialog_is_deaf_when_it_appears(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models", deaf=3600.0) as (app, pilot):
        dialog = await planned(app, pilot, "r")
        await pilot.press("tab", "enter", "escape", "y", "n", "q", "ctrl+c")
        assert top(app) is dialog
        assert focus(dialog) == "no"
        assert not desk.started
        monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
        dialog.appear()
        await pilot.press("escape")
        assert top(app) is app.box


async def test_pasted_text_is_dropped_outside_a_field(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk(STOP)
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        app.post_message(events.Paste("xo\n\n"))
        await pilot.pause()
        assert not desk.asked
        dialog = await planned(app, pilot, "x")
        await pilot.press("tab")
        app.post_message(events.Paste("n\ntriton\n"))
        await pilot.pause()
        assert top(app) is dialog
        assert dialog.field is not None
        assert dialog.field.text == ""
        await pilot.press("shift+tab")
        app.post_message(events.Paste("triton\nmore"))
        await pilot.pause()
        assert dialog.field.text == "triton"
        assert not desk.started


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_danger_wants_the_name_letter_by_letter(
    size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    desk = FakeDesk(STOP)
    async with acting(desk, tmp_path, monkeypatch, size, screen="container") as (app, pilot):
        dialog = await planned(app, pilot, "x")
        assert "DANGEROUS" in text_of(app)
        assert "type triton to go on:" in text_of(app)
        assert focus(dialog) == "field"
        await pilot.press("y", "n", "q", "1", "enter")
        assert notices(app)[-1] == "the name is triton, letter by letter"
        assert top(app) is dialog
        await pilot.press("ctrl+u", *"Triton", "tab", "tab", "enter")
        assert top(app) is dialog, "Yes cannot be reached"
        await pilot.press("ctrl+u")
        while dialog.focus_on != "field":
            await pilot.press("tab")
        await pilot.press("ctrl+u", *"tritom", "backspace", "n", "enter")
        assert focus(dialog) == "yes"
        assert not desk.started
        await pilot.press("enter")
        await until(pilot, lambda: desk.started)


async def test_an_empty_field_and_enter_is_no(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk(STOP)
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        await planned(app, pilot, "x")
        await pilot.press("enter")
        assert top(app) is app.box
        assert not desk.started


async def test_a_way_and_a_tick_are_planned_anew(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk(replace(SWAP, ticks=STOP.ticks))
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await planned(app, pilot, "r")
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: len(desk.asked) == 2 and not dialog.planning)
        assert desk.asked[-1].values["way"] == "restart"
        assert "(•) restart the container" in text_of(app)
        dialog.focus_on = ("tick", "longer")
        await pilot.press("space")
        await until(pilot, lambda: len(desk.asked) == 3 and not dialog.planning)
        assert desk.asked[-1].values == {"way": "restart", "longer": "true"}
        assert "[x] give it 60 s" in text_of(app)
        await pilot.press("space")
        await until(pilot, lambda: len(desk.asked) == 4 and not dialog.planning)
        assert desk.asked[-1].values["longer"] == "false"


async def test_while_planning_yes_is_off_and_esc_leaves(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        desk.gate.clear()
        await pilot.press("r")
        await until(pilot, lambda: desk.asked)
        assert "planning … model.reload ranking" in text_of(app)
        await pilot.press("tab", "enter")
        assert not desk.started
        await pilot.press("escape")
        assert top(app) is app.box
        desk.gate.set()
        await pilot.pause(0.05)
        assert top(app) is app.box


async def test_what_cannot_be_planned_is_one_sentence_and_one_button(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    def refuse(request: Request) -> Plan:
        raise Refused("the mode is poll: [/x] change the files instead")

    async with acting(FakeDesk(refuse), tmp_path, monkeypatch, (80, 24), screen="models") as (app, pilot):
        dialog = await planned(app, pilot, "o")
        text = text_of(app)
        assert "✗ the mode is poll: [/x] change the files instead" in text
        assert "[▸Close ]" in text
        assert len(dialog.buttons()) == 1
        await pilot.press("tab", "right", "enter")
        assert top(app) is app.box


async def test_a_refused_plan_has_no_yes_but_its_ticks(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    def full_disk(request: Request) -> Plan:
        ticked = request.values.get("longer") == "true"
        return replace(STOP, refused="" if ticked else "no audit record can be written: the disk is full")

    desk = FakeDesk(full_disk)
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        dialog = await planned(app, pilot, "x")
        assert "✗ no audit record can be written" in text_of(app)
        assert [one.name for one in dialog.buttons()] == ["no"]
        await pilot.press("down", "space")
        await until(pilot, lambda: len(desk.asked) == 2 and not dialog.planning)
        assert [one.name for one in dialog.buttons()] == ["no", "yes"]


async def test_a_target_that_changed_since_the_key_is_refused(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    plan = replace(STOP, target=replace(STOP.target, identity={"id": "another", "state": "running"}))
    async with acting(FakeDesk(plan), tmp_path, monkeypatch, screen="container") as (app, pilot):
        await planned(app, pilot, "x")
        assert "✗ triton has changed since the key was pressed (id: 9f3c2e1a77b0 then, another" in text_of(app)


async def test_no_text_of_others_is_markup_or_drives_the_terminal(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    evil = "[/x] \x1b[31m模型 \u202e" + "w" * 100_000
    plan = replace(
        SWAP, title=evil, note=evil, effects=(evil,), refused=evil, undo=evil, by_hand=(evil,), difference=("+" + evil,)
    )
    for size in SIZES:
        async with acting(FakeDesk(plan), tmp_path, monkeypatch, size, screen="models") as (app, pilot):
            await planned(app, pilot, "r")
            text = text_of(app)
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert "[▸Close ]" in text


# ------------------------------------------------------------------------------------------------------------ running


async def begun(app: ConsoleApp, pilot: Pilot[None], desk: FakeDesk, key: str = "r") -> RunningDialog:
    """A change under way, its dialog on the screen."""
    await planned(app, pilot, key)
    await pilot.press("right", "enter")
    await until(pilot, lambda: isinstance(app.screen, RunningDialog))
    assert isinstance(app.screen, RunningDialog)
    return app.screen


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_steps_hide_header_and_end(size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, size, screen="models") as (app, pilot):
        dialog = await begun(app, pilot, desk)
        desk.tell(*RUNNING)
        await until(pilot, lambda: dialog.following.lines)
        text = text_of(app)
        for told in (
            "● 1 noted, 3 answered as kept",
            "▸ 4 loading 4",
            "– 5 ask 4 the kept",
            "VRAM 11.1 GiB and rising",
        ):
            assert told in text, told
        assert "1.4 s" in text
        await pilot.press("escape")
        await settled(app, pilot)
        assert top(app) is app.box
        assert "▲ SWAP lm 4/6, 0:00, by ops" in text_of(app)
        await pilot.press("o")
        assert notices(app)[-1].endswith("is under way: ctrl+c shows it")
        desk.tell(outcome=DONE)
        await until(pilot, lambda: app.acting.running is None and notices(app)[-1].startswith("Swap"))
        assert notices(app)[-1].startswith("Swap lm 3 → 4 on infer-01, container triton, GPU 0: done. lm 4 serves")
        event = app.store.snapshot(NOW, 0.0).events[-1]
        assert (event.text, event.origin, event.kind) == (SWAP.title, "ops@192.0.2.7", "act.model.swap")
        await settled(app, pilot)
        assert "SWAP lm" not in text_of(app)


async def test_ctrl_c_asks_then_cancels(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await begun(app, pilot, desk)
        await pilot.press("ctrl+c")
        assert "stop it and go back" in text_of(app)
        await pilot.press("enter")
        assert not dialog.asking
        await pilot.press("n", "escape")
        assert top(app) is app.box
        await pilot.press("ctrl+c")
        assert isinstance(app.screen, RunningDialog)
        assert app.screen.asking
        await pilot.press("right", "enter")
        await until(pilot, lambda: desk.cancelled)
        await pilot.pause()
        desk.tell(outcome=Outcome("undone", "stopped; lm 3 serves as before"))
        await until(pilot, lambda: app.acting.running is None)
        assert "undone" in notices(app)[-1]
        await pilot.press("ctrl+c")
        assert notices(app)[-1] == "q quits"


async def test_the_end_offers_undo(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await begun(app, pilot, desk)
        desk.tell(*RUNNING, outcome=DONE)
        await until(pilot, lambda: not dialog.running)
        assert "● done: lm 4 serves, gap 39 s" in text_of(app)
        assert "undo: lm back to 3" in text_of(app)
        await planned(app, pilot, "u")
        assert (desk.asked[-1].action, desk.asked[-1].target) == ("undo", "20260704-060431-000001")


async def test_a_runner_that_died_is_told(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        dialog = await begun(app, pilot, desk)
        desk.tell(*RUNNING, alive=False)
        await until(pilot, lambda: not dialog.running)
        await settled(app, pilot)
        assert "its runner died" in text_of(app)
        desk.broken = (Interrupted("a", SWAP, OPS, "load", NOW, "lm 3 is unloaded", "load 4", "load 3"),)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, SinceDialog))
        await settled(app, pilot)
        assert "finish it: load 4" in text_of(app)


async def test_a_change_that_cannot_begin_says_why(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        await planned(app, pilot, "r")
        desk.held = Holder("ana (pid 7) is changing recall since 14:02:11")
        await pilot.press("right", "enter")
        await until(pilot, lambda: notices(app))
        assert notices(app)[-1] == "ana (pid 7) is changing recall since 14:02:11"
        assert top(app) is app.box


async def test_a_change_of_mine_is_found_again_after_a_restart(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    desk.start(SWAP)
    desk.tell(*RUNNING)
    assert desk.now is not None
    desk.held = Holder("ops is changing lm", desk.now.id)
    async with acting(desk, tmp_path, monkeypatch) as (app, pilot):
        await until(pilot, lambda: app.acting.running is not None)
        await settled(app, pilot)
        assert "SWAP lm 4/6" in text_of(app)
        assert top(app) is app.box, "it is shown in the header only"


async def test_quitting_asks_while_a_change_runs(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        await begun(app, pilot, desk)
        await pilot.press("escape", "1", "q")
        assert isinstance(app.screen, Sure)
        assert "goes on by itself" in text_of(app)
        await pilot.press("enter")
        assert top(app) is app.box
        assert not app._exit
        await pilot.press("q", "right", "enter")
        assert app._exit


async def test_what_shows_by_comparison_is_told_of_who_did_it(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    seen = Event(NOW, "warn", "lm instances 2 → 1", NOT_OURS, "config", "lm")
    other = replace(seen, model="recall")
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        assert app.store.attribute(seen) == seen
        await begun(app, pilot, desk)
        desk.tell(*RUNNING, outcome=DONE)
        await until(pilot, lambda: app.acting.running is None)
        ours = replace(seen, origin="ops@192.0.2.7", sign="note", marks_chart=False)
        assert app.store.attribute(seen) == ours
        assert app.store.attribute(other) == other
        monkeypatch.setattr(acting_module, "OURS_FOR", 0.0)
        assert app.store.attribute(seen) == seen
        desk.held = Holder("ana (pid 7) is changing recall")
        await until(pilot, lambda: app.acting.holder)
        assert app.store.attribute(other).origin == "another gpuconsole: ana (pid 7) is changing recall"


# --------------------------------------------------------------------------------------------------------- who may act


@pytest.mark.parametrize("command", ACTS, ids=lambda one: one.ID)
async def test_read_only_closes_every_key(
    command: type[commands.Command], tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    desk = FakeDesk()
    screen = "" if command.SCOPE in (commands.EVERYWHERE, "overview") else command.SCOPE
    async with acting(desk, tmp_path, monkeypatch, screen=screen, read_only=True) as (app, pilot):
        for key in command.KEYS:
            await pilot.press(key)
        assert notices(app)[-1] == "the console is read-only: nothing that changes the box is done"
        assert not desk.asked
        assert top(app) is app.box


async def test_the_holder_of_the_box_is_named_and_the_keys_are_grey(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        who = "root (pid 7) from 192.0.2.7"
        desk.held = Holder(f"{who} is changing rank since 14:02:11", "", who, "rank")
        await until(pilot, lambda: app.acting.holder)
        await settled(app, pilot)
        assert "▲ root (pid 7) from 192.0.2.7 is changing rank" in text_of(app)
        grey = app.box._grey()
        assert {"o", "x", "r", "u"} <= grey
        assert "f" not in grey
        await pilot.press("x")
        assert notices(app)[-1] == desk.held.text
        desk.held = None
        await until(pilot, lambda: app.acting.holder is None)
        assert not app.box._grey()
        await settled(app, pilot)
        ended = next(one for one in app.box.snapshot.events if one.kind == "act.other")
        assert (ended.text, ended.origin) == ("rank: a change by another gpuconsole ended", who)


async def test_without_a_desk_nothing_can_be_changed(tmp_path: Path) -> None:
    app = ConsoleApp(FakeSession(drawn_box().snapshot), load(folders()), State(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        await pilot.press("s")
        assert notices(app)[-1] == "this session cannot change the box"


# ------------------------------------------------------------------------------------------------------- keys and plans


@pytest.mark.parametrize(
    ("screen", "key", "action", "target"),
    [
        ("models", "o", "model.load", "ranking"),
        ("models", "x", "model.unload", "ranking"),
        ("models", "r", "model.reload", "ranking"),
        ("models", "b", "model.back", "ranking"),
        ("models", "W", "golden.keep", "ranking"),
        ("models", "T", "trace.set", "ranking"),
        ("container", "x", "container.stop", "triton"),
        ("container", "r", "container.restart", "triton"),
        ("container", "b", "container.back", "triton"),
        ("container", "V", "log.verbose", "triton"),
        ("gpu", "u", "undo", "last"),
    ],
)
async def test_each_key_asks_for_its_action(
    screen: str, key: str, action: str, target: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen=screen) as (app, pilot):
        await planned(app, pilot, key)
        assert (desk.asked[-1].action, desk.asked[-1].target) == (action, target)
        await pilot.press("escape")


async def test_swap_asks_which_version(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("s")
        assert isinstance(app.screen, VersionDialog)
        text = text_of(app)
        assert "Swap ranking to which version?" in text
        assert "READY: serves now" in text
        assert "newer than the served one" in text
        await pilot.press("escape")
        assert not desk.asked
        await pilot.press("s", "down", "enter")
        await until(pilot, lambda: desk.asked)
        assert desk.asked[-1].action == "model.swap"
        assert desk.asked[-1].values == {"version": "1"}
        assert desk.asked[-1].identity == {"ready": "2"}


async def test_what_cannot_be_acted_on_says_why(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="models") as (app, pilot):
        await pilot.press("slash", *"recall", "enter", "s", "b")
        await settled(app, pilot)
        assert notices(app)[-2:] == [
            "recall has no other version: copy one into its folder first",
            "recall has no other version on disk",
        ]
        app.go("container")
        await settled(app, pilot)
        await pilot.press("o", "X")
        assert notices(app)[-2:] == [
            "triton runs already",
            "triton runs: only a stopped one can be removed; x stops it",
        ]
        assert not desk.asked


async def test_a_container_that_is_gone_comes_through_its_unit(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    gone = PodmanState("/run/podman/podman.sock", "rootful", unit=UnitState("triton.service", "inactive", "dead"))
    desk = FakeDesk(STOP)
    box = drawn_box(container=good("container", gone))
    async with acting(desk, tmp_path, monkeypatch, box=box, screen="container") as (app, pilot):
        await pilot.press("x")
        assert notices(app)[-1] == "the container is gone; its unit makes it anew: o starts triton.service"
        await pilot.press("o")
        await until(pilot, lambda: desk.asked)
        assert desk.asked == [Request("container.start", "triton.service")]
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, box=empty_box(), screen="container") as (app, pilot):
        await pilot.press("o")
        assert "there is no Triton" in notices(app)[-1]
    assert not desk.asked


async def test_a_container_that_is_gone_is_made_again_as_it_was_kept(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    gone = drawn_box(container=good("container", PodmanState("/run/podman/podman.sock", "rootful")))
    kept = Outcome("done", "triton is stopped", undo=UndoSpec("container.create", "triton", {"saved": "t-1.json"}))
    desk = FakeDesk(STOP)
    desk.past = (record("1", NOW - 99, kept, STOP),)
    async with acting(desk, tmp_path, monkeypatch, box=gone, screen="container") as (app, pilot):
        await until(pilot, lambda: app.acting.records)
        while isinstance(app.screen, Dialog):
            await pilot.press("escape")
        await pilot.press("o")
        await until(pilot, lambda: desk.asked)
        assert desk.asked[-1] == Request("container.create", "triton", {"saved": "t-1.json"})


async def test_pull_asks_for_the_image(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        await pilot.press("P")
        assert isinstance(app.screen, Typed)
        await pilot.press("ctrl+u", "tab", "tab")
        assert app.screen.buttons()[1].off
        while app.screen.focus_on != "field":
            await pilot.press("tab")
        await pilot.press(*"q.io/n:1", "enter")
        await until(pilot, lambda: desk.asked)
        assert (desk.asked[-1].action, desk.asked[-1].target) == ("image.pull", "q.io/n:1")


async def test_the_palette_has_every_act(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch) as (app, pilot):
        entries = {entry.title: entry for entry in app.get_system_commands(app.screen)}
        assert {"audit", "running", "container.reload (container)", "model.load_all (server)"} <= set(entries)
        entries["running"].callback()
        await pilot.pause()
        assert notices(app)[-1] == "nothing is being changed by this user"
        entries["model.load_all (server)"].callback()
        await until(pilot, lambda: desk.asked)
        assert desk.asked[-1].action == "model.load_all"


# ------------------------------------------------------------------------------------------------- what was done before


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_audit_view_and_undo(size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    failed = Outcome("failed", "lm 4 did not load: [/x]")
    desk.past = (record("c", NOW - 60, None), record("b", NOW - 600, failed, STOP), record("a", NOW - 3600))
    async with acting(desk, tmp_path, monkeypatch, size) as (app, pilot):
        await until(pilot, lambda: app.acting.records)
        app.go("audit")
        await settled(app, pilot)
        await until(pilot, lambda: "Audit   3" in text_of(app))
        text = text_of(app)
        assert "no end is known" in text
        assert "failed" in text
        assert "WHO        root (uid 0), logged in as ops, from 192.0.2.7" in text
        await pilot.press("j")
        await settled(app, pilot)
        assert "✗ failed: lm 4 did not load: [/x]" in text_of(app)
        await pilot.press("j")
        await planned(app, pilot, "u")
        assert (desk.asked[-1].action, desk.asked[-1].target) == ("undo", "a")
        await pilot.press("escape", "enter", "escape", "escape")
        assert app.box.NAME == "overview"


async def test_past_changes_are_events_and_enter_opens_the_record(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    desk.past = (record("a", NOW - 60),)
    async with acting(desk, tmp_path, monkeypatch, screen="timeline") as (app, pilot):
        await until(pilot, lambda: app.acting.ids)
        await settled(app, pilot)
        assert "Swap lm 3 → 4" in text_of(app)
        app.box.set_focus(app.box.panes["timeline-events"])
        key = next(iter(app.acting.ids))
        assert app.box.panes["timeline-events"].select(key)
        assert app.chosen_change() == "a"
        await pilot.press("enter")
        assert app.box.NAME == "audit"
        await pilot.press("q")
        await planned(app, pilot, "u")
        assert desk.asked[-1].target == "a"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_what_happened_meanwhile_is_told(size: tuple[int, int], tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    State(tmp_path).keep(acting_module.VISIT, str(NOW - 100))
    desk = FakeDesk()
    figures = {"gap_s": 39.0, "gap_plan_s": 38.0, "gap_rate": 41.0}
    desk.past = (record("b", NOW - 60, replace(DONE, figures=figures)), record("a", NOW - 3600))
    async with acting(desk, tmp_path, monkeypatch, size) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, SinceDialog))
        await settled(app, pilot)
        text = text_of(app)
        assert "While you were away: Swap lm 3 → 4" in text
        assert text.count("While you were away") == 1
        assert "gap 39 s (plan 38), ≈ 1 600 requests fell into it" in text
        assert "● done: lm 4 serves, gap 39 s" in text
        assert "u  undo" in text
        await pilot.press("enter")
        await until(pilot, lambda: app.box.NAME == "audit")
    assert float(State(tmp_path).get(acting_module.VISIT) or 0) > NOW - 100


async def test_the_first_visit_tells_of_nothing_ended(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    desk = FakeDesk()
    desk.past = (record("b", NOW - 60),)
    async with acting(desk, tmp_path, monkeypatch) as (app, pilot):
        await until(pilot, lambda: app.acting.records)
        assert not isinstance(app.screen, Dialog)


@pytest.mark.parametrize(
    ("steps", "action"),
    [(1, "interrupted.finish"), (2, "interrupted.undo"), (3, "interrupted.dismiss")],
)
async def test_an_interrupted_change_can_be_finished_or_undone(
    steps: int, action: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    desk = FakeDesk()
    desk.broken = (Interrupted("a", SWAP, OPS, "load", NOW, "lm 3 is unloaded", "load 4", "load 3"),)
    async with acting(desk, tmp_path, monkeypatch, (80, 24)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, SinceDialog))
        await settled(app, pilot)
        text = text_of(app)
        assert "now: lm 3 is unloaded" in text
        assert "finish it: load 4" in text
        await pilot.press(*["down"] * steps, "enter")
        await until(pilot, lambda: desk.asked)
        assert (desk.asked[-1].action, desk.asked[-1].target) == (action, "a")


async def test_a_fault_while_planning_is_told(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("threading.excepthook", seen.append)

    def fault(request: Request) -> Plan:
        raise ZeroDivisionError

    async with acting(FakeDesk(fault), tmp_path, monkeypatch, screen="models") as (app, pilot):
        await planned(app, pilot, "r")
        assert "a fault of gpuconsole" in text_of(app)
    assert len(seen) == 1
