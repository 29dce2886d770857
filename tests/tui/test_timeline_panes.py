"""Timeline: one clock for all charts, letters at their columns, and a comparison that knows noise from change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from console.core.history import History
from console.core.model import Failure, Gaps, Standing
from console.tui.panes.base import View
from console.tui.panes.timeline_charts import Chart, TimelineCharts, charts, risen
from console.tui.panes.timeline_compare import TimelineCompare, compare, mean, noise, side
from console.tui.panes.timeline_events import TimelineEvents, key_of, shown
from console.tui.panes.timeline_scale import SPANS, STEPS, Scale, step_for
from console.tui.screens.timeline import wall_of
from tests.fakes import drawn
from tests.fakes.boxes import drawn_box, empty_box
from tests.fakes.drawn import MONO, NOW, at, mono_at
from tests.tui.pure import lines_of, made, text_of, view_of


def test_the_charts_are_as_drawn() -> None:
    lines = lines_of(TimelineCharts(), view_of(drawn_box()))
    names = [line[:12].strip() for line in lines[:11]]
    assert names == [
        "req/s",
        "mean ms",
        "wait ms",
        "ms at b=4",
        "batch",
        "fail/s *",
        "util %",
        "SM MHz",
        "throttle s",
        "°C",
        "VRAM GiB",
    ]
    assert lines[0].endswith("0–2000")
    assert lines[2].endswith("0–4")
    assert lines[3][12:18].strip() == "1.60"
    assert lines[10].endswith("0–15")


def test_letters_stand_under_their_columns_and_times_on_the_axis() -> None:
    view = view_of(drawn_box())
    pane = TimelineCharts()
    scale = pane.scale(view)
    lines = lines_of(pane, view)
    for letter, clock in (("a", "13:40:02"), ("d", "14:01:58"), ("e", "14:03:10")):
        column = scale.column_of_wall(at(clock))
        assert column is not None
        assert lines[-2][19 + column] == letter
    ten = scale.column_of_wall(at("13:50:00"))
    assert ten is not None
    assert lines[-1][19 + ten - 2 : 19 + ten + 3] == "05:50"


def test_the_cursor_reads_the_figures_where_it_stands() -> None:
    view = view_of(drawn_box())
    pane = TimelineCharts()
    pane.at = mono_at("13:50:00")
    lines = lines_of(pane, view)
    assert lines[1][12:18].strip().startswith("1.8")
    assert made(pane.note(view)) == "cursor 05:50:00"
    pane.at = mono_at("14:01:58")
    assert made(pane.note(view)) == "cursor d 06:01:58"


def test_an_ensemble_has_no_queue_of_its_own() -> None:
    box = drawn_box()
    reco = next(row for row in box.snapshot.models if row.name == "reco")
    view = view_of(box)
    chosen = type(view)(view.snapshot, view.history, NOW, MONO, 116, 40, chosen=reco.key)
    assert [chart.name for chart in charts(chosen)][:3] == ["req/s", "mean ms", "fail/s *"]


def test_without_anything_measured_it_says_so() -> None:
    assert "nothing was measured yet" in text_of(TimelineCharts(), view_of(empty_box()))


@given(st.sampled_from([span for _, span in SPANS]), st.integers(10, 300))
def test_steps_are_known_ones_and_cover_the_span(span: int, columns: int) -> None:
    step = step_for(span, columns)
    assert step in STEPS
    assert step * columns >= 0.95 * span or step == STEPS[-1]


@given(st.integers(1, 120), st.integers(10, 200), st.floats(1e5, 1e6), st.floats(0, 1e4))
def test_a_moment_and_its_column_agree(step: int, columns: int, mono: float, back: float) -> None:
    scale = Scale(mono, 1.7e9, step, columns)
    column = scale.column(mono - back)
    if column is None:
        assert back > step * (columns - 1) - step
    else:
        assert scale.start_of(column) <= mono - back < scale.start_of(column) + step


def test_letters_outside_the_span_are_left_out() -> None:
    scale = Scale(1000.0, 5000.0, 10, 20)
    assert scale.letters([("a", 4000.0), ("b", 4995.0)]).strip() == "b"


def test_rises_of_running_totals() -> None:
    history = History()
    for second, total in enumerate([0, 1, 2, 2, 2, 5, 1, 2]):
        history.record(100.0 + second, {"x": float(total)})
    rise = risen(history, ("x",), Scale(107.0, 0.0, 1, 7))
    assert rise == [1, 1, 0, 0, 3, 1, 1]


def test_rises_without_any_counter_are_unknown() -> None:
    assert risen(History(), ("x",), Scale(107.0, 0.0, 1, 3)) == [None, None, None]
    assert Chart("x", "y", str).values(History(), Scale(107.0, 0.0, 1, 3)) == [None] * 3


def test_before_and_after_a_change() -> None:
    view = view_of(drawn_box(), 54)
    found = {one.name: one for one in compare(view, mono_at("14:01:58"), 150)}
    assert found["mean ms"].before == pytest.approx(1.84, abs=0.01)
    assert found["mean ms"].after == pytest.approx(2.94, abs=0.01)
    assert found["mean ms"].same is False
    assert found["req/s"].same is True
    assert found["ms at b=4"].same is True
    assert found["execs/s"].before == pytest.approx(1650 / 1.85, rel=0.01)
    pane = TimelineCompare()
    pane.at = mono_at("14:01:58")
    text = text_of(pane, view)
    assert "mean ms          1.84     2.94   + 60 % ▲" in text
    assert "so: 1.10 ms more, 20 points of util less" in text


def test_unlike_load_is_not_compared() -> None:
    history = History()
    for second in range(200):
        busy = second >= 100
        values = {"model.ranking/2.rate": 200.0 if busy else 100.0, "model.ranking/2.request_ms": 3.0 if busy else 2.0}
        history.record(MONO - 200 + second, values)
    box = drawn_box()
    view = view_of(box, 54)
    pane = TimelineCompare()
    pane.at = MONO - 100
    text = text_of(pane, type(view)(box.snapshot, history, NOW, MONO, 54, 20))
    assert "the load changed" in text
    assert "so:" not in text


def test_a_moment_without_samples_cannot_be_told() -> None:
    pane = TimelineCompare()
    pane.at = MONO - 50
    assert "? nothing was sampled" in text_of(pane, view_of(empty_box(), 54))


def test_few_samples_have_no_mean_and_no_noise() -> None:
    assert mean([1.0] * 4) is None
    assert noise([1.0] * 5) is None
    assert noise([0.0] * 60) is None
    assert noise([2.0] * 60) == 0.0


@given(st.lists(st.floats(1, 100), min_size=12, max_size=80))
def test_noise_is_a_share_and_never_negative(values: list[float]) -> None:
    found = noise(values)
    assert found is not None
    assert 0 <= found < 10


def test_sides_do_not_overlap() -> None:
    history = History()
    for second in range(100):
        history.record(1000.0 + second, {"x": float(second)})
    assert side(history, "x", 1099.0, 1010.0, 1020.0) == [float(value) for value in range(10, 20)]


@pytest.mark.parametrize(("which", "count"), [("all", 7), ("acts", 4), ("faults", 3)])
def test_events_by_kind(which: str, count: int) -> None:
    assert sum(shown(event, which) for event in drawn.events()) == count  # type: ignore[arg-type]


def test_the_newest_event_is_open_and_the_chosen_one_tells_all() -> None:
    view = view_of(drawn_box(), 58)
    pane = TimelineEvents()
    lines = lines_of(pane, view)
    assert lines[0].startswith("e 06:03:10  ▲ ranking 3 appeared on disk")
    assert lines[1].strip() == "(disk)"
    pane.cursor = key_of(drawn.events()[5])
    text = text_of(pane, view)
    assert "mean 1.84 → 2.94 ms over 60 s each" in text
    assert "3 times" in text


def test_an_events_filter_is_literal() -> None:
    pane = TimelineEvents()
    pane.filter = "rerank"
    assert len(lines_of(pane, view_of(drawn_box(), 58))) == 2
    pane.filter = "[.*"
    assert lines_of(pane, view_of(drawn_box(), 58)) == ["none of this kind"]


@pytest.mark.parametrize(
    ("text", "back"),
    [("06:04", 31.0), ("06:04:30", 1.0), (" 06:04:31 ", 0.0), ("06:05", 86400.0 - 29)],
)
def test_a_time_of_day_is_the_newest_such_moment(text: str, back: float) -> None:
    assert wall_of(text, NOW, utc=True) == NOW - back


@pytest.mark.parametrize("text", ["", "later", "25:00", "14", "14:61", "[/x]", "-1:00"])
def test_what_is_no_time_of_day(text: str) -> None:
    assert wall_of(text, NOW, utc=True) is None


# ----------------------------------------------------------------------------------------- what the list does not have

STANDS = Standing("events.podman", Failure("unavailable", "/run/podman.sock: nobody [/x] answers\x1b[31m"), MONO - 12)
GAPS = Gaps(
    unread=(("journal", "no systemd unit owns the container"), ("packages", "no package log could be read")),
    read=(("kernel", 1), ("server log", 7)),
    standing=(STANDS,),
    dropped=(("log lines and events that came too fast", 120),),
)


def foot(gaps: Gaps, width: int = 84, height: int = 24) -> list[str]:
    box = drawn_box()
    snapshot = changed(box.snapshot, gaps=gaps)
    view = View(snapshot, box.history, NOW, MONO, width, height, utc=True)
    return [made(line).rstrip() for line in TimelineEvents().foot_lines(view)]


def test_what_is_not_in_the_list_stands_under_it() -> None:
    assert foot(GAPS) == [
        "▲ Podman's event stream stands since 06:04:19: /run/podman.sock: nobody [/x]",
        r"  answers\x1b[31m",
        "▲ left out: 120 log lines and events that came too fast",
        "? journal not read: no systemd unit owns the container",
        "? packages not read: no package log could be read",
        "  from before the start: kernel 1, server log 7",
    ]


def test_with_all_there_nothing_is_said() -> None:
    assert foot(Gaps()) == []


def test_in_little_room_places_share_a_line_and_what_is_urgent_comes_first() -> None:
    lines = foot(GAPS, height=9)
    assert [line[:22] for line in lines] == [
        "▲ Podman's event strea",
        "▲ left out: 120 log li",
        "? not read: journal (n",
    ]
    assert foot(GAPS, height=3) == lines[:1]
    unread = foot(changed(GAPS, standing=(), dropped=()), height=6)
    assert unread == [
        "? journal not read: no systemd unit owns the container",
        "? packages not read: no package log could be read",
    ]


def test_a_stream_without_a_name_of_its_own_is_called_as_it_is() -> None:
    other = changed(STANDS, stream="x")
    assert foot(Gaps(standing=(other,)), height=3)[0].startswith("▲ x stands since")
