"""What keys do on Models, Container, Timeline, GPU, Problems, Why and Bring-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from textual.geometry import Region

from console.core.model import LogLine, ModelKey, Proposal, Verdict
from console.tui.panes.models_list import VersionKey
from console.tui.screens.bring_up import BringUpScreen
from console.tui.screens.container import ContainerScreen
from console.tui.screens.models import ModelsScreen
from console.tui.screens.stack import LEAST, stacked
from console.tui.screens.timeline import TimelineScreen
from console.tui.screens.why import WhyScreen
from tests.fakes.boxes import (
    bring_up_box,
    drawn_box,
    eight_gpus_box,
    empty_box,
    good,
    many_models_box,
    with_verdicts,
)
from tests.fakes.drawn import GIB, MONO, NOW, gpu_box, mono_at
from tests.tui.stage import EVERY_SIZE, on_stage, press_fast, settled, text_of

ALL = ("models", "container", "timeline", "gpu", "problems", "why", "bring_up")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    press_fast(monkeypatch)


def _models(app: Any) -> ModelsScreen:
    screen = app.box
    assert isinstance(screen, ModelsScreen)
    return screen


def _focused(app: Any) -> str:
    return str(app.focused.id)


def _container(app: Any) -> ContainerScreen:
    screen = app.box
    assert isinstance(screen, ContainerScreen)
    return screen


def _timeline(app: Any) -> TimelineScreen:
    screen = app.box
    assert isinstance(screen, TimelineScreen)
    return screen


@pytest.mark.parametrize("size", EVERY_SIZE, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_screen_fills_every_size(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, size) as (app, pilot):
        for name in ALL:
            app.go(name)
            await settled(app, pilot)
            lines = text_of(app).splitlines()
            assert len(lines) == size[1]
            roomy = bool(app.box.FOOTERS) and size[0] >= 100
            assert lines[-1].startswith(("box  o start", "model  s swap") if roomy else "1-8 screens")
            shown = app.box.panes.values()
            assert all(pane.size.height for pane in shown if pane.id in app.box.regions(app.size))


async def test_models_opens_at_the_busiest_and_follows_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        screen = _models(app)
        assert screen.listed.cursor == VersionKey("ranking", "2")
        assert app.chosen == ModelKey("ranking", "2")
        await pilot.press("G")
        assert screen.listed.cursor == VersionKey("rerank", "3")
        assert "engine made with TensorRT 8.5.3" in text_of(app)
        assert app.chosen == ModelKey("rerank", "3")
        await pilot.press("g", "j")
        assert screen.listed.cursor == VersionKey("ranking", "3")
        assert app.chosen == ModelKey("ranking", "2")


async def test_models_shows_the_difference_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        await pilot.press("d")
        assert "live against disk" in text_of(app)
        await pilot.press("escape")
        assert "live against disk" not in text_of(app)
        assert app.box.NAME == "models"
        await pilot.press("enter")
        assert _focused(app) == "model-details"
        await pilot.press("escape")
        assert _focused(app) == "models-list"
        await pilot.press("escape")
        assert app.box.NAME == "overview"


async def test_models_sorts_filters_and_changes_its_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        await pilot.press("less_than_sign")
        assert "by MEAN ms" in text_of(app)
        await pilot.press("i")
        assert "turned round" in text_of(app)
        await pilot.press("greater_than_sign", "i", "v", "v")
        assert "loaded" in text_of(app).splitlines()[2]
        await pilot.press("slash", *"!re", "enter")
        assert "1 of 4" in text_of(app).splitlines()[2]
        await pilot.press("escape")
        assert "1 of 4" not in text_of(app).splitlines()[2]


async def test_the_cursor_stays_on_its_model_when_the_order_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(many_models_box(200), tmp_path, monkeypatch, screen="models") as (app, pilot):
        screen = _models(app)
        await pilot.press("G")
        chosen = screen.listed.cursor
        await pilot.press("i")
        assert screen.listed.cursor == chosen


async def test_a_model_is_asked_once_and_its_answer_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        await pilot.press("a")
        for _ in range(200):
            await pilot.pause(0.01)
            if app.answers:
                break
        await settled(app, pilot)
        assert "output FP32 [1,8]: 0.1 0.2 [/x]" in text_of(app)


async def test_details_take_the_body_of_a_small_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (80, 24), "models") as (app, pilot):
        await pilot.press("enter")
        assert app.box.maximised == "model-details"
        await pilot.press("escape")
        assert app.box.maximised is None
        assert _focused(app) == "models-list"


async def test_l_shows_the_chosen_models_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="models") as (app, pilot):
        await pilot.press("G", "l")
        await settled(app, pilot)
        assert _container(app).log_pane.filter == "rerank"
        assert "connection reset" not in text_of(app)
        await pilot.press("l")
        assert app.box.maximised == "container-log"
        await pilot.press("l", "escape")
        assert "connection reset" in text_of(app)


async def test_the_log_follows_until_someone_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="container") as (app, pilot):
        log = _container(app).log_pane
        last = log.cursor
        app.log_lines.add(LogLine(NOW, "stderr", "a new line", "I", "x.cc"))
        await settled(app, pilot)
        assert log.cursor != last
        assert "a new line" in text_of(app)
        await pilot.press("k")
        assert not log.follow
        reading = log.cursor
        app.log_lines.add(LogLine(NOW, "stderr", "another line", "I", "x.cc"))
        await settled(app, pilot)
        assert log.cursor == reading
        assert "1 new below" in text_of(app)
        await pilot.press("f")
        assert log.follow
        assert log.cursor != reading


async def test_a_held_screen_holds_the_log_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="container") as (app, pilot):
        await pilot.press("p")
        await settled(app, pilot)
        app.log_lines.add(LogLine(NOW, "stderr", "while it was held", "I", "x.cc"))
        await settled(app, pilot)
        assert "while it was held" not in text_of(app)
        await pilot.press("p")
        await settled(app, pilot)
        assert "while it was held" in text_of(app)


async def test_matches_are_gone_through_in_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="container") as (app, pilot):
        log = _container(app).log_pane
        await pilot.press("n")
        assert not log.filter
        await pilot.press("v", "v", "v", "slash", *"rerank", "enter", "g")
        found = []
        for _ in range(3):
            await pilot.press("n")
            found.append(log.cursor)
        await pilot.press("n")
        found.append(log.cursor)
        await pilot.press("N")
        assert [*found, log.cursor] == [2, 3, 4, 4, 3]


async def test_enter_opens_a_long_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="container") as (app, pilot):
        await pilot.press("g", "j")
        assert "Serialized Engine Version" not in text_of(app)
        await pilot.press("enter")
        assert "Serialized Engine Version" in text_of(app)
        await pilot.press("enter")
        assert "Serialized Engine Version" not in text_of(app)


async def test_only_new_rows_of_the_log_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="container") as (app, pilot):
        log = _container(app).log_pane
        before = list(log.rows)
        app.log_lines.add(LogLine(NOW, "stderr", "new", "I", "x.cc"))
        await settled(app, pilot)
        assert [a is b for a, b in zip(before[:-1], log.rows, strict=False)] == [True] * (len(before) - 1)


async def test_seven_bracket_equals_tells_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("7")
        await settled(app, pilot)
        screen = _timeline(app)
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert screen.charts.at == pytest.approx(mono_at("14:01:58"))
        assert "cursor d" in text_of(app)
        assert "+ 60 % ▲" in text_of(app)
        span = screen.compared.span
        await pilot.press("equals_sign")
        assert screen.compared.span != span
        await pilot.press("right_square_bracket")
        assert "cursor e" in text_of(app)
        await pilot.press("escape")
        assert screen.charts.at is None
        assert "live" in text_of(app)


async def test_the_cursor_walks_and_comes_back_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="timeline") as (app, pilot):
        charts = _timeline(app).charts
        await pilot.press("right")
        assert charts.at is None
        await pilot.press("left", "left")
        at = charts.at
        assert at is not None
        assert at < MONO
        await pilot.press("right", "right")
        assert charts.at is None


async def test_going_to_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="timeline") as (app, pilot):
        await pilot.press("z", "at", *"06:01", "enter")
        await settled(app, pilot)
        assert _timeline(app).charts.at == pytest.approx(mono_at("14:01:00"))
        assert "cursor 06:01:00" in text_of(app)
        await pilot.press("at", *"x", "enter")
        assert _timeline(app).charts.at == pytest.approx(mono_at("14:01:00"))
        await pilot.press("at", "escape")
        assert app.box.NAME == "timeline"


async def test_spans_end_at_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="timeline") as (app, pilot):
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
        assert "Timeline   1 h" in text_of(app)
        await pilot.press(*["less_than_sign"] * 5)
        assert "Timeline   10 min" in text_of(app)


async def test_an_event_of_the_list_puts_the_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="timeline") as (app, pilot):
        await pilot.press("tab", "j")
        await settled(app, pilot)
        assert "mean 1.84 → 2.94 ms over 60 s each" in text_of(app)
        await pilot.press("enter")
        assert _timeline(app).charts.at == pytest.approx(mono_at("14:01:58"))


async def test_a_small_timeline_shows_the_table_while_there_is_a_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (80, 24), "timeline") as (app, pilot):
        assert "Events" in text_of(app)
        await pilot.press("left_square_bracket")
        await settled(app, pilot)
        assert "BEFORE" in text_of(app)


async def test_another_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(eight_gpus_box(), tmp_path, monkeypatch, screen="gpu") as (app, pilot):
        assert "GPU 0  NVIDIA A100" in text_of(app)
        await pilot.press("comma")
        assert "GPU 7  NVIDIA A100" in text_of(app)
        await pilot.press("full_stop", "full_stop")
        assert "GPU 1  NVIDIA A100" in text_of(app)
        await pilot.press(*["full_stop"] * 4)
        assert "NVML error 15" in text_of(app)


async def test_gpu_panes_of_a_small_terminal_open_as_tab_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (80, 24), "gpu") as (app, pilot):
        assert "power brake" not in text_of(app)
        await pilot.press("tab", "tab")
        await settled(app, pilot)
        assert "power brake" in text_of(app)


async def test_problems_lead_to_their_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, screen="gpu") as (app, pilot):
        await pilot.press("e")
        await settled(app, pilot)
        assert "└ ready is 400 for that reason" in text_of(app)
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.box.NAME == "models"
        assert app.chosen == ModelKey("rerank", "3")


async def test_why_over_problems_proves_the_one_under_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("e")
        await settled(app, pilot)
        await pilot.press("j", "j", "w")
        await settled(app, pilot)
        text = text_of(app)
        assert "Why   ranking   2 of 5" in text
        assert "RULE" in text
        assert "the delay alone makes 1.23" in text
        await pilot.press("j")
        assert "3 of 5" in text_of(app)
        await pilot.press("escape", "escape")
        assert app.box.NAME == "overview"


async def test_a_box_that_never_served_opens_with_its_bring_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(bring_up_box(), tmp_path, monkeypatch) as (app, pilot):
        await settled(app, pilot)
        await settled(app, pilot)
        assert isinstance(app.box, BringUpScreen)
        text = text_of(app)
        assert "1 ● card on the bus" in text
        assert "2 ✗ driver" in text
        await pilot.press("j", "j", "j")
        await settled(app, pilot)
        assert "as root: systemctl enable --now podman.socket" in text_of(app)
        await pilot.press("1")
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.box.NAME == "overview"


async def test_bring_up_goes_when_a_server_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(bring_up_box(), tmp_path, monkeypatch) as (app, pilot):
        await settled(app, pilot)
        assert app.box.NAME == "bring_up"
        for reading in drawn_box().readings:
            app.store.apply(reading)
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.box.NAME == "overview"


async def test_a_laptop_is_no_bring_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(empty_box(), tmp_path, monkeypatch) as (app, pilot):
        await settled(app, pilot)
        assert app.box.NAME == "overview"


async def test_figures_that_change_change_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(drawn_box(), tmp_path, monkeypatch, (160, 45), "gpu") as (app, pilot):
        box = gpu_box()
        hotter = changed(box, gpus=(changed(box.gpus[0], temp_c=88.0, memory_used=6 * GIB),))
        app.store.apply(good("gpu", hotter))
        await settled(app, pilot)
        assert "temp           88 °C" in text_of(app)
        assert "0.3  no process owns it" in text_of(app)


def test_stacked_panes_fill_their_body() -> None:
    for height in range(1, 40):
        for focused in ("a", "c", None, "not there"):
            places = stacked(Region(0, 2, 80, height), ("a", "b", "c"), focused)
            assert sum(region.height for region in places.values()) == height
            assert (focused if focused in ("a", "c") else "a") in places
            if len(places) > 1:
                assert all(region.height >= LEAST for region in places.values())


async def test_why_tells_what_may_help_and_what_is_expected_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The helper process is real; the drawn box has no window to predict from, which is said."""
    proposals = (
        Proposal("wait less", "batches are 1.4", "batching.set", "ranking", {"delay_us": "500"}, "3", "more runs"),
        Proposal("ask more at once", "clients are few"),
    )
    verdict = Verdict("V20", "warn", "ranking waits for nothing", model="ranking", proposals=proposals)
    async with on_stage(with_verdicts(drawn_box(), (verdict,)), tmp_path, monkeypatch, (160, 45)) as (app, pilot):
        await pilot.press("w")
        screen = app.box
        assert isinstance(screen, WhyScreen)
        for _ in range(200):
            await settled(app, pilot)
            if screen.pane.effects:
                break
            await pilot.pause(0.05)
        text = text_of(app)
        assert "WHAT MAY HELP" in text
        assert "  wait less   3" in text
        assert "WHY       batches are 1.4" in text
        assert "EXPECTED  ? not predicted: " in text
        assert "PRICE     more runs" in text
        assert "  ask more at once" in text
