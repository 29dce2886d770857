"""LineView: only changed cells are sent, the cursor keeps to its row, nothing wraps."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from console.tui.signs import Charset, encode
from console.tui.theme import Look, folders, load
from console.tui.widgets.cells import Line, between, cut, cut_line, left, line_width, plain, right, width
from console.tui.widgets.lines import LineView, Row, changed_spans
from console.tui.widgets.trend import meter, nice_top, split_bar, trend

TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Mn", "Me", "Zl", "Zp")), max_size=30)
LOOK = Look(load(folders()).found["dark"])
LINE = st.lists(st.tuples(TEXT, st.sampled_from(["", "fail", "dim"])), max_size=5).map(tuple)


def _cells(line: Line, cells: int) -> list[str]:
    """What a terminal holds after writing the line into `cells` cells."""
    shown: list[str] = []
    for char in LOOK.strip(line, cells, "").text:
        shown += [char, *[""] * (width(char) - 1)] if width(char) else []
    return shown


@given(LINE, LINE, st.integers(1, 80))
def test_sending_the_changed_spans_makes_the_new_line(old: Line, new: Line, cells: int) -> None:
    before, after = _cells(old, cells), _cells(new, cells)
    assert len(before) == len(after) == cells
    for x, count in changed_spans((old, ""), (new, ""), cells):
        before[x : x + count] = after[x : x + count]
    assert before == after


@given(LINE, st.integers(1, 60))
def test_an_equal_line_sends_nothing(line: Line, cells: int) -> None:
    assert changed_spans((line, ""), (line, ""), cells) == []


@given(TEXT, st.integers(0, 40))
def test_text_is_cut_and_padded_to_the_cell(text: str, cells: int) -> None:
    assert width(cut(text, cells)) <= cells
    assert width(left(text, cells)) == width(right(text, cells)) == cells


@given(LINE, LINE, st.integers(0, 60))
def test_lines_are_cut_and_joined_to_the_cell(start: Line, end: Line, cells: int) -> None:
    assert line_width(cut_line(start, cells)) <= cells
    if line_width(end) <= cells:
        assert line_width(between(start, end, cells)) == cells


@given(TEXT, st.sampled_from(Charset))
def test_signs_keep_their_cells(text: str, charset: Charset) -> None:
    assert width(encode(text, charset)) == width(text)


@given(TEXT)
def test_ascii_is_ascii(text: str) -> None:
    assert encode(text, Charset.ASCII).isascii()


def test_signs_have_forms_of_their_own() -> None:
    assert encode("● ▲ ✗ – ┌─┐│█▓▒░▁█ 模", Charset.ASCII) == "o ! x - +-+|#=%._# ??"
    assert encode("● 模 ▁", Charset.NARROW) == "o 模 _"
    assert encode("● ┌─█ ▁", Charset.CONSOLE) == "o ┌─█ _"


# ------------------------------------------------------------------------------------------------------ small figures


def test_trend_levels_and_gaps() -> None:
    assert trend([0, 12.5, 25, 50, 99, 100, 250, None, -3], 0, 100, 9) == "▁▂▃▅██" + "█ ▁"
    assert trend([1, 2], 0, 4, 4) == "  ▃▅"
    assert trend([5.0], 5, 5, 1) == "▁"
    assert trend([1.0], 0, 1, 0) == ""


@given(st.one_of(st.none(), st.floats(-1, 2)), st.integers(0, 50))
def test_meter_has_its_width(share: float | None, cells: int) -> None:
    full, rest = meter(share, cells)
    assert len(full + rest) == cells
    assert share is None or share <= 0 or cells == 0 or full


@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), st.integers(0, 80))
def test_split_bar_has_its_width(parts: list[float], cells: int) -> None:
    assert len("".join(split_bar(parts, cells))) == cells


def test_split_bar_of_the_drawing() -> None:
    assert [len(part) for part in split_bar((1.23, 0.08, 1.53, 0.10), 40)] == [17, 1, 21, 1]


@given(st.floats(1e-6, 1e9))
def test_a_scale_ends_little_above_its_highest(value: float) -> None:
    assert value <= nice_top(value) * (1 + 1e-9)
    assert nice_top(value) <= value * 2.6


# ----------------------------------------------------------------------------------------------------------- on screen


class Stage(App[None]):
    """One LineView that has the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.view = LineView(frame="box")
        self.moved: list[Hashable] = []

    def compose(self) -> ComposeResult:
        yield self.view

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        assert message.control is self.view
        self.moved.append(message.key)


def _at(view: LineView) -> Hashable:
    return view.cursor


def _rows(*names: str) -> list[Row]:
    return [Row(((name, ""),), name) for name in names]


async def test_cursor_keeps_to_its_row() -> None:
    app = Stage()
    async with app.run_test(size=(20, 6)) as pilot:
        view = app.view
        view.set_rows(_rows("a", "b", "c"))
        view.move(1)
        assert _at(view) == "b"
        view.set_rows(_rows("c", "b", "a"))
        assert _at(view) == "b"
        view.set_rows(_rows("x", "b2", "c", "d", "e", "f"))
        assert _at(view) == "b2", "the row that took its place"
        view.move_end(down=True)
        assert (view.cursor, view.top) == ("f", 2)
        view.move_end(down=False)
        assert (view.cursor, view.top) == ("x", 0)
        view.move_pages(1)
        assert _at(view) == "e"
        assert view.select("c")
        assert not view.select("gone")
        view.set_rows([])
        assert view.cursor is None
        view.move(1)
        await pilot.pause()
        assert app.moved[0] == "a"


async def test_pinned_rows_and_foot_stay() -> None:
    app = Stage()
    async with app.run_test(size=(20, 7)):
        view = app.view
        view.pinned = 1
        view.set_rows([Row((("HEAD", ""),)), *_rows(*"abcdefg")], foot=[Row((("FOOT", ""),))])
        view.move_end(down=True)
        drawn = [strip.text.strip("│ ") for strip in view.render_lines(view.size.region)]
        assert drawn[1:-1] == ["HEAD", "e", "f", "g", "FOOT"]


async def test_rows_without_keys_scroll() -> None:
    app = Stage()
    async with app.run_test(size=(20, 6)):
        view = app.view
        view.set_rows([Row(((str(number), ""),)) for number in range(10)])
        view.move_pages(1)
        assert view.top == 4
        view.move_end(down=True)
        assert view.top == 6
        view.scroll_rows(-100)
        assert view.top == 0


async def test_only_rows_on_the_screen_are_made() -> None:
    made: list[int] = []

    def line(number: int) -> Line:
        made.append(number)
        return ((str(number), ""),)

    app = Stage()
    async with app.run_test(size=(20, 6)):
        app.view.set_rows([Row(lambda number=number: line(number), number) for number in range(1000)])  # type: ignore[misc]
        assert max(made) < 10


async def test_a_long_line_is_cut_not_wrapped() -> None:
    app = Stage()
    async with app.run_test(size=(20, 4)):
        app.view.set_rows([Row((("x" * 100_000, ""),)), Row((("模" * 50, ""),))])
        drawn = [strip.text for strip in app.view.render_lines(app.view.size.region)]
        assert drawn[1] == "│ " + "x" * 15 + "… │"
        assert drawn[2] == "│ " + "模" * 7 + "…" + "  │"
        assert all(width(text) == 20 for text in drawn)


async def test_what_changed_is_refreshed_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Stage()
    async with app.run_test(size=(40, 5)) as pilot:
        app.view.set_rows([Row((("temp 66", ""),)), Row((("util 64", ""),))])
        await pilot.pause()
        seen: list[object] = []
        monkeypatch.setattr(app.view, "refresh", lambda *regions, **_: seen.extend(regions))
        app.view.set_rows([Row((("temp 67", ""),)), Row((("util 64", ""),))])
        assert [(region.x, region.y, region.width, region.height) for region in seen] == [(8, 1, 1, 1)]  # type: ignore[attr-defined]


def test_lines_of_a_theme_have_few_runs() -> None:
    strip = LOOK.strip((("a", "value"), ("   ", ""), ("b", "value"), ("  ", "dim"), ("c", "value")), 20, "")
    assert len(list(strip)) == 1
    assert plain((("a", ""), ("b", "dim"))) == "ab"
