"""A running change with a gap in service: since when, how long, what was refused; what of it stays at the end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from console.core.plan import JournalLine, Outcome, Plan
from console.tui.desk import Following
from console.tui.panes.running_lines import acting_word, outcome_rows, running_rows
from console.tui.widgets.cells import line_width, plain
from console.tui.widgets.lines import Row
from tests.fakes.desk import DONE, OPS, RUNNING, STOP, SWAP
from tests.fakes.drawn import NOW

PLAN = replace(SWAP, gap_s=38.0)
BEGAN = NOW + 0.1
GAP = (
    *RUNNING[:3],
    JournalLine(NOW, "kept", "unload", data={"gap_rate": "41", "gap_rate_unknown": ""}),
    JournalLine(NOW, "kept", "unload", data={"gap_began": f"{BEGAN:.3f}", "gap_ended": "", "gap_drains": "no"}),
    JournalLine(NOW, "kept", "unload", data={"gap_seen": "404 no available versions", "gap_seen_wall": f"{NOW + 1}"}),
    *RUNNING[3:],
)
ENDED = JournalLine(NOW + 39.1, "kept", "load", data={"gap_ended": f"{BEGAN + 39:.3f}"})


def following(
    lines: tuple[JournalLine, ...] = GAP, plan: Plan = PLAN, outcome: Outcome | None = None, *, alive: bool = True
) -> Following:
    return Following("20260704-060431-000001", plan, OPS, NOW, lines, outcome, alive)


def lines_of(row: Row) -> tuple[tuple[str, str], ...]:
    return row.line() if callable(row.line) else row.line


def shown(now: Following, wall: float, cells: int = 116) -> list[str]:
    return [plain(lines_of(row)).rstrip() for row in running_rows(now, wall, cells, utc=True)]


def style_of(now: Following, wall: float, word: str, cells: int = 116) -> set[str]:
    """The styles of the parts of rows that begin with a word."""
    return {
        style
        for row in running_rows(now, wall, cells, utc=True)
        for text, style in lines_of(row)
        if text.strip().lower().startswith(word)
    }


def test_the_gap_stands_beside_the_step_in_which_it_began() -> None:
    text = shown(following(), BEGAN + 29)
    (unloaded,) = [line for line in text if "2 unloaded" in line]
    assert unloaded.endswith("1.4 s   GAP since 06:04:31, 0:29 of ≈ 0:38")
    assert (
        "  refused so far: ≈ 1 190 requests, reckoned from 41/s before; our own, 06:04:32: 404 no available versions"
        in text
    )
    assert any("VRAM 11.1 GiB and rising" in line for line in text)


@pytest.mark.parametrize("cells", [76, 90, 116, 150])
def test_nothing_is_wider_than_the_dialog(cells: int) -> None:
    for now in (following(), following((*GAP, ENDED)), following((*GAP, ENDED), outcome=DONE)):
        assert all(line_width(lines_of(row)) <= cells for row in running_rows(now, BEGAN + 29, cells))


def test_on_a_narrow_terminal_it_stands_below() -> None:
    text = shown(following(), BEGAN + 29, 76)
    at = next(number for number, line in enumerate(text) if "2 unloaded" in line)
    assert text[at + 1] == "    GAP since 06:04:31, 0:29 of ≈ 0:38"


@pytest.mark.parametrize(("seconds", "style"), [(29, "value"), (38, "value"), (38.5, "warn"), (300, "warn")])
def test_longer_than_planned_is_a_warning(seconds: float, style: str) -> None:
    assert style_of(following(), BEGAN + seconds, "gap since") == {style}


@pytest.mark.parametrize("planned", [None, 0.0])
def test_where_the_plan_does_not_tell_how_long_nothing_is_compared(planned: float | None) -> None:
    now = following(plan=replace(PLAN, gap_s=planned))
    assert any(line.endswith("GAP since 06:04:31, 5:00") for line in shown(now, BEGAN + 300))
    assert style_of(now, BEGAN + 300, "gap since") == {"value"}


def test_when_it_serves_again_the_count_goes() -> None:
    text = shown(following((*GAP, ENDED)), NOW + 500)
    assert any(line.endswith("gap 06:04:31 to 06:05:10, 0:39 of ≈ 0:38") for line in text)
    assert not any("refused so far" in line for line in text)


def test_after_a_stop_it_has_no_end() -> None:
    data = {"gap_began": f"{BEGAN:.3f}", "gap_ended": "", "gap_drains": "yes"}
    lines = (JournalLine(NOW, "begin", "stop", "stop triton"), JournalLine(NOW, "kept", "stop", data=data))
    plan = replace(STOP, steps=(), gap_s=None)
    ended = (*lines, JournalLine(NOW + 3, "done", "stop", seconds=3.0))
    text = shown(following(ended, plan, Outcome("done", "triton stopped after 2.6 s")), NOW + 5000)
    assert text[0].endswith("GAP since 06:04:31")
    assert not any("refused so far" in line for line in text)
    running = shown(following(lines, plan), NOW + 5)
    assert any("refused so far: not known" in line for line in running)


def test_one_that_an_interrupted_run_left_open_is_told_without_its_step() -> None:
    data = {"gap_began": f"{NOW - 60:.3f}", "gap_ended": "", "gap_drains": "yes"}
    lines = (JournalLine(NOW, "kept", data=data), JournalLine(NOW, "begin", "start", "start triton"))
    assert "    GAP since 06:03:31, 1:05 of ≈ 0:38" in shown(following(lines), NOW + 5)


def test_without_a_gap_nothing_is_said_of_one() -> None:
    assert not any("gap since" in line.lower() or "refused" in line for line in shown(following(RUNNING), NOW + 9))


def test_the_header_says_that_nothing_serves() -> None:
    assert acting_word(following(), BEGAN + 29) == "SWAP lm 4/6, GAP 0:29, by ops"
    assert acting_word(following((*GAP, ENDED)), NOW + 45) == "SWAP lm 4/6, 0:45, by ops"
    assert acting_word(following(RUNNING), NOW + 29) == "SWAP lm 4/6, 0:29, by ops"


def test_the_outcome_tells_how_long_it_was() -> None:
    figures = {"gap_s": 39.0, "gap_plan_s": 38.0, "gap_rate": 41.0, "load_s": 31.0}
    text = [plain(lines_of(row)) for row in outcome_rows(replace(DONE, text="lm 4 serves", figures=figures), 116)]
    assert text[:2] == ["● done: lm 4 serves", "  gap 39 s (plan 38), ≈ 1 600 requests fell into it (41/s before)"]
    assert not any("gap" in plain(lines_of(row)) for row in outcome_rows(replace(DONE, text="lm 4 serves"), 116))
