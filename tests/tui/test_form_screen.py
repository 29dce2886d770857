"""Form screens from the key to the plan, at three sizes: over forms that hold values against the actions' own rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

import console.tui.screens.form as form_module
from console.actions.base import Action
from console.actions.recreate import Recreate
from console.actions.unit import Write
from console.core.form import Judged, Look, Present, Remark, Wish
from console.core.model import Snapshot
from console.core.plan import Field, Outcome, Plan, Refused, WrongInput
from console.tui.app import ConsoleApp
from console.tui.late_forms import LateForms
from console.tui.late_shell import LateShell
from console.tui.panes.form_pane import FormPane
from console.tui.screens.form import FormScreen
from console.tui.screens.plan import PlanDialog
from tests import wrong_values
from tests.actions.test_gpu import a_box
from tests.fakes.boxes import Box, bring_up_box, empty_box, nothing_serves_box
from tests.fakes.desk import STOP, FakeDesk
from tests.fakes.forms import ActionOpened, FakeForms
from tests.fakes.session import FakeSession
from tests.tui.stage import SIZES, press_fast, settled, text_of
from tests.tui.test_acts import acting, notices, until

SECRET = wrong_values.SECRET
STARTS = {"image": "tritonserver:24.05-py3", "ports": "8000:8000", "mode": "explicit", "shm_size": "1g"}


@asynccontextmanager
async def form_of(
    opened: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int] = (120, 40),
    *,
    key: str = "c",
    screen: str = "container",
    desk: FakeDesk | None = None,
    box: Box | None = None,
    error: str = "",
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None], FakeForms]]:
    """The form that this key opens on this screen."""
    forms = FakeForms(opened, error)
    monkeypatch.setattr(form_module, "LateForms", lambda session, state: forms)
    monkeypatch.setattr(form_module, "JUDGED_AFTER", 0.001)
    press_fast(monkeypatch)
    async with acting(desk or FakeDesk(STOP), folder, monkeypatch, size, box=box, screen=screen) as (app, pilot):
        await pilot.press(key)
        assert isinstance(app.box, FormScreen), notices(app)
        await judged(app, pilot)
        yield app, pilot, forms


async def judged(app: ConsoleApp, pilot: Pilot[None]) -> FormScreen:
    """The form, with all that it asked for answered."""
    screen = app.box
    assert isinstance(screen, FormScreen)
    await settled(app, pilot)
    await asyncio.sleep(0.003)
    await until(pilot, lambda: not screen._lane.busy)
    await settled(app, pilot)
    return screen


async def typed(app: ConsoleApp, pilot: Pilot[None], name: str, text: str) -> None:
    """Open a field, put this text in the place of what it holds, close it."""
    screen = app.box
    assert isinstance(screen, FormScreen)
    assert screen.fields.select(name)
    await pilot.press("enter", "ctrl+u")
    assert screen.fields.form.opened == name
    screen.fields.post_message(events.Paste(text))
    await pilot.pause()
    await pilot.press("enter")
    await judged(app, pilot)


# ------------------------------------------------------------------------------------------------------------ drawing


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_fields_with_what_is_so_now_and_the_help_of_the_one_under_the_cursor(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ActionOpened(Recreate, STARTS, "it belongs to triton.service [/x]")
    async with form_of(opened, tmp_path, monkeypatch, size) as (app, pilot, forms):
        assert forms.asked[0] == ("container", "triton")
        text = text_of(app)
        assert "Form of container.recreate" in text
        assert all(word in text for word in ("FIELD", "NOW", "NEW", "tritonserver:24.05-py3", "explicit"))
        assert "the image to make it from" in text
        assert "it belongs to triton.service [/x]" in text
        assert "A plan" in text
        for field in Recreate.FIELDS:
            await pilot.press("home")
            while app.box.panes["form-fields"].cursor != field.name:
                await pilot.press("down")
            assert field.name.replace("_", " ") in text_of(app)
        await pilot.press("end")
        assert "(0 to 86400 s)" in text_of(app)
        await typed(app, pilot, "shm_size", "2g")
        assert "2g" in text_of(app)
        await pilot.press("tab")
        assert "+ --shm_size" in text_of(app)
        await pilot.press("escape", "escape")
        assert app.box.NAME == "container"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_only_what_was_changed_is_asked_for_and_nothing_before_yes(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = FakeDesk(STOP)
    opened = ActionOpened(Recreate, STARTS)
    async with form_of(opened, tmp_path, monkeypatch, size, desk=desk) as (app, pilot, _):
        await typed(app, pilot, "shm_size", "2g")
        await typed(app, pilot, "mode", "poll")
        await typed(app, pilot, "mode", "explicit")  # as it is: no change
        await typed(app, pilot, "env", f"HF_TOKEN={SECRET}")
        assert SECRET not in text_of(app)
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        (request,) = desk.asked
        assert (request.action, request.target) == ("container.recreate", "triton")
        assert request.values == {"shm_size": "2g", "env": f"HF_TOKEN={SECRET}"}
        assert request.identity == {"id": "9f3c2e1a77b0"}
        assert desk.started == []
        await pilot.press("escape")
        screen = await judged(app, pilot)
        assert screen.fields.form.values == {"shm_size": "2g", "env": f"HF_TOKEN={SECRET}"}


async def test_a_secret_is_never_drawn_and_goes_with_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with form_of(ActionOpened(Recreate), tmp_path, monkeypatch) as (app, pilot, _):
        screen = app.box
        assert isinstance(screen, FormScreen)
        screen.fields.select("env")
        await pilot.press("enter", *SECRET)
        assert SECRET not in text_of(app)
        await pilot.press("enter")
        assert "***" in text_of(app)
        assert SECRET not in text_of(app)
        assert screen.fields.yank() == ""
        await pilot.press("escape")
        assert app.box.NAME == "container"
        assert screen.fields.form.values == {}
        await pilot.press("c")
        await judged(app, pilot)
        assert screen.fields.form.values == {}


async def test_steps_go_through_choices_and_letters_are_text_only_in_an_open_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = FakeDesk(STOP)
    async with form_of(ActionOpened(Recreate, STARTS), tmp_path, monkeypatch, desk=desk) as (app, pilot, _):
        screen = app.box
        assert isinstance(screen, FormScreen)
        screen.fields.select("mode")
        await pilot.press("right")
        assert screen.fields.form.values == {"mode": "none"}
        await pilot.press("left")
        assert screen.fields.form.values == {}
        screen.fields.select("shm_size")
        await pilot.press("right")
        assert "enter opens it" in notices(app)[-1]
        await pilot.press("enter", "A", "q", "escape")
        assert desk.asked == []
        assert app.box.NAME == "form"
        assert screen.fields.form.values == {}


# ------------------------------------------------------------------------------------------------------- wrong values


@pytest.mark.parametrize("action", wrong_values.actions(), ids=lambda action: action.NAME)
async def test_each_wrong_value_of_each_action_is_a_sentence_and_asks_for_nothing(
    action: type[Action], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = FakeDesk(STOP)
    async with form_of(ActionOpened(action), tmp_path, monkeypatch, desk=desk) as (app, pilot, _):
        screen = app.box
        assert isinstance(screen, FormScreen)
        for field in action.FIELDS:
            # control characters are shown as escapes before they reach a field
            wrong = [value for value in wrong_values.wrong(field) if value != wrong_values.NOT_TEXT]
            for number, value in enumerate(wrong[:2]):
                if number:  # the keys were tried with the first one
                    screen.fields.form.put(field.name, value)
                    screen.on_form_pane_edited(FormPane.Edited(screen.fields))
                    await judged(app, pilot)
                else:
                    await typed(app, pilot, field.name, value)
                beside = [note for note in screen.fields.form.notes if note.name == field.name]
                assert [note.sign for note in beside] == ["fail"], value
                assert not (field.secret and SECRET in beside[0].text)
                assert f"`{field.name}`" in beside[0].text
                assert " ".join(beside[0].text.split()[:4]) in text_of(app)
                screen.plan()
                await pilot.pause()
                assert notices(app)[-1].startswith("nothing is asked for: ")
            await pilot.press("A")
            assert app.screen is app.box
            screen.fields.form.reset()
        assert desk.asked == []


@pytest.mark.parametrize(
    ("action", "field", "value"),
    wrong_values.every_wrong_value(),
    ids=lambda one: getattr(one, "NAME", None) or getattr(one, "name", None) or repr(one)[:12],
)
def test_an_actions_rules_tell_it_in_one_line(action: type[Action], field: Field, value: str) -> None:
    for one in (value, wrong_values.too_long()):
        with pytest.raises(WrongInput) as caught:
            action.checked({field.name: one})
        text = str(caught.value)
        assert f"`{field.name}`" in text
        assert "\n" not in text
        assert text.isprintable()
        assert len(text) < 300
        assert not (field.secret and SECRET in text)


# --------------------------------------------------------------------------------------------------------------- keys


async def test_a_plan_waits_until_what_was_typed_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = FakeDesk(STOP)
    async with form_of(ActionOpened(Recreate, STARTS), tmp_path, monkeypatch, desk=desk) as (app, pilot, forms):
        await pilot.press("A")
        assert "nothing is changed yet" in notices(app)[-1]
        forms.gate.clear()
        screen = app.box
        assert isinstance(screen, FormScreen)
        screen.fields.select("mode")
        await pilot.press("right")
        await settled(app, pilot)
        assert "reckoning …" in text_of(app)
        await pilot.press("A")
        assert desk.asked == []
        forms.gate.set()
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        assert desk.asked[0].values == {"mode": "none"}
        await pilot.press("escape")
        await judged(app, pilot)
        assert len(forms.asked) == 2, "after a plan the box is looked at again"


async def test_what_was_carried_out_is_no_longer_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Once(ActionOpened):
        done = False

        def judge(self, box: Any, values: Any) -> Judged:
            if self.done and values:
                return Judged(frozenset(), (Remark("env", "note", "sets HF_TOKEN"),))
            return super().judge(box, values)

    opened = Once(Recreate, STARTS)
    async with form_of(opened, tmp_path, monkeypatch) as (app, pilot, _):
        screen = app.box
        assert isinstance(screen, FormScreen)
        await typed(app, pilot, "env", f"HF_TOKEN={SECRET}")
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        opened.done = True
        await pilot.press("escape")
        await judged(app, pilot)
        assert screen.fields.form.values == {}
        assert "sets HF_TOKEN" not in text_of(app)


async def test_why_there_is_no_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "no Podman service answers here: enable podman.socket, or name it with --socket"
    async with form_of(None, tmp_path, monkeypatch, error=told) as (app, pilot, _):
        assert told in text_of(app)
        await pilot.press("A", "enter")
        assert told in notices(app)[-2]
        assert "no field is under the cursor" in notices(app)[-1]
        await pilot.press("escape")
        assert app.box.NAME == "container"


async def test_the_unit_may_be_written_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Always(ActionOpened):
        def judge(self, box: Any, values: Any) -> Judged:
            lines = ("  /etc/systemd/system/triton.service", "DIFFERENCE", "-  --old", "+  --new \\")
            return Judged(frozenset(), (), (Wish("unit.write", "triton", dict(values)),), lines)

    desk = FakeDesk(STOP)
    opened = Always(Write)
    opened.look = Look("unit.write", "triton", "Unit of container triton", opened.look.rows, needs_change=False)
    async with form_of(opened, tmp_path, monkeypatch, key="U", desk=desk) as (app, pilot, forms):
        assert forms.asked[0] == ("unit", "triton")
        text = text_of(app)
        assert "/etc/systemd/system/triton.service" in text
        assert "+  --new \\" in text
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog))
        assert (desk.asked[0].action, desk.asked[0].values) == ("unit.write", {})
        await pilot.press("escape")


class Card:
    """Two settings, each a change of its own."""

    look = Look(
        "gpu",
        "GPU-1",
        "Settings of GPU 0, Tesla T4",
        (
            Present(Field("persistence", "on or off", "choice", ("on", "off")), "persistence", "on", "on"),
            Present(Field("power_limit", "watts from 60 to 70", "int", low=60, high=70), "power limit", "70", "70 W"),
            Present(Field("clocks", "MHz"), "clock lock", off="the driver does not tell"),
        ),
    )

    def judge(self, box: Any, values: Any) -> Judged:
        wishes = tuple(Wish(f"gpu.{name}", "GPU-1", {name: value}, (name,)) for name, value in values.items())
        return Judged(frozenset(values), (Remark("persistence", "warn", "in use"),), wishes)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_each_setting_of_a_card_has_a_plan_of_its_own(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = FakeDesk(STOP)
    async with form_of(Card(), tmp_path, monkeypatch, size, screen="gpu", desk=desk) as (app, pilot, forms):
        assert forms.asked[0][0] == "gpu"
        assert forms.asked[0][1].startswith("GPU-")
        await pilot.press("right", "down", "left")
        await judged(app, pilot)
        assert "in use" in text_of(app)
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        assert desk.asked[-1].action == "gpu.power_limit"
        assert "1 more change after this" in notices(app)[-1]
        await pilot.press("escape")
        await judged(app, pilot)
        await pilot.press("up", "A")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        assert desk.asked[-1].values == {"persistence": "off"}
        await pilot.press("escape")
        await judged(app, pilot)
        await pilot.press("end", "enter")
        assert notices(app)[-1] == "the driver does not tell"
        assert "the driver does not tell" in text_of(app)


@pytest.mark.parametrize(
    ("screen", "key", "about"), [("container", "c", "container"), ("container", "U", "unit"), ("gpu", "c", "gpu")]
)
async def test_read_only_opens_no_form(
    screen: str, key: str, about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, screen=screen, read_only=True) as (app, pilot):
        await pilot.press(key)
        assert screen == app.box.NAME
        assert "read-only" in notices(app)[-1]


async def test_where_nothing_is_there_is_nothing_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, screen="gpu", box=empty_box()) as (app, pilot):
        await pilot.press("c")
        assert "there is no GPU here" in notices(app)[-1]
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, screen="container", box=empty_box()) as (app, pilot):
        await pilot.press("U")
        assert "there is no Triton container here" in notices(app)[-1]


# --------------------------------------------------------------------------------------------------- nothing serves


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_where_no_container_is_c_makes_one(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = nothing_serves_box()
    async with form_of(ActionOpened(Recreate), tmp_path, monkeypatch, size, box=box) as (app, pilot, forms):
        assert forms.asked[0] == ("container", "")
        await pilot.press("escape", "1")
        await settled(app, pilot)
        assert "5 container" in text_of(app).splitlines()[-1]
        assert " s swap" not in text_of(app).splitlines()[-1]


async def test_bring_up_names_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forms = FakeForms(ActionOpened(Recreate))
    monkeypatch.setattr(form_module, "LateForms", lambda session, state: forms)
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, (120, 40), box=bring_up_box()) as (app, pilot):
        await settled(app, pilot)
        assert app.box.NAME == "bring_up"
        text = text_of(app)
        assert "c create, after 3 and 7" in text
        assert "P pull" in text
        await pilot.press("c")
        await judged(app, pilot)
        assert forms.asked == [("container", "")]
        await pilot.press("escape")
        assert app.box.NAME == "bring_up"
        await pilot.press("P")
        await settled(app, pilot)
        assert "Pull an image" in text_of(app)
        await pilot.press("escape")


# --------------------------------------------------------------------------------------------------------------- shell


class FakeShell:
    """Remembers what was entered and how it ended."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.entered: list[Plan] = []
        self.codes: list[int] = []

    def enter(self, plan: Plan) -> Any:
        if self.error:
            raise Refused(self.error)
        self.entered.append(plan)
        return type("Entered", (), {"argv": ("podman", "exec", "--interactive", "--tty", "9f3c", "sh")})()

    def left(self, entered: Any, code: int) -> Any:
        self.codes.append(code)
        return Outcome("done", f"the shell was left with exit {code} after 3 s")


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A terminal that can be given away; what is run in it."""
    import console.tui.shell_act as shell_act

    ran: list[Any] = []

    async def step_aside(app: ConsoleApp, argv: Any, told: str) -> int:
        ran.append(argv)
        return 3

    monkeypatch.setattr(shell_act, "can_step_aside", lambda app: True)
    monkeypatch.setattr(shell_act, "step_aside", step_aside)
    return ran


async def test_a_shell_is_planned_written_down_and_left(
    stepping: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgspec.structs import replace

    import console.tui.late_shell as late_shell

    shells = FakeShell()
    monkeypatch.setattr(late_shell, "LateShell", lambda session, state: shells)
    plan = replace(
        STOP, action="container.shell", title="Shell inside triton", yes="Enter", danger="caution", here=True
    )
    desk = FakeDesk(plan)
    async with acting(desk, tmp_path, monkeypatch, screen="container") as (app, pilot):
        await pilot.press("!")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        assert "goes on without this terminal" not in text_of(app)
        await pilot.press("enter")
        await settled(app, pilot)
        assert stepping == [], "enter is No"
        await pilot.press("!")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: shells.codes)
        await settled(app, pilot)
        assert desk.started == [], "no runner has a terminal"
        assert [one.title for one in shells.entered] == ["Shell inside triton"]
        assert stepping[0][:2] == ("podman", "exec")
        assert shells.codes == [3]
        await until(pilot, lambda: "left with exit 3" in notices(app)[-1])
        shells.error = "triton has changed since the plan was made"
        await pilot.press("!")
        await until(pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: shells.error in notices(app)[-1])
        assert len(stepping) == 1


async def test_where_no_shell_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, screen="container") as (app, pilot):
        await pilot.press("!")
        assert "no terminal of its own" in notices(app)[-1]
        app.session.simulated = "queue-bound"
        await pilot.press("!")
        assert "simulated" in notices(app)[-1]
    async with acting(FakeDesk(STOP), tmp_path, monkeypatch, screen="container", read_only=True) as (app, pilot):
        await pilot.press("!")
        assert "read-only" in notices(app)[-1]


# ------------------------------------------------------------------------------------------------------ the real ones


def test_the_real_forms_over_a_simulated_card(tmp_path: Path) -> None:
    session = FakeSession()
    forms = LateForms(session, tmp_path / "state")
    with pytest.raises(Refused, match="nothing is read yet"):
        forms.open("gpu", "0", Snapshot())
    session.spec = a_box(tmp_path).spec
    found = forms.open("gpu", "0", Snapshot())
    assert found.look.title == "Settings of GPU 0, Tesla T4"
    judged_ = forms.judge(found, {"power_limit": "65"}, Snapshot())
    assert [one.action for one in judged_.wishes] == ["gpu.power_limit"]
    with pytest.raises(WrongInput, match="there is no GPU"):
        forms.open("gpu", "7", Snapshot())


def test_the_real_shell_wants_a_box(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing is read yet"):
        LateShell(FakeSession(), tmp_path).enter(STOP)
