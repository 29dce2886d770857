"""Each figure by its definition, each as the text that sentences and proofs use, and the edges of the windows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.advisors.figures import Figures, _line, _rest_ms, delay_text, enough, judged_window, plain, proof, words
from console.advisors.table import table
from console.core.model import BatchWindow, ModelFlow, ModelKey, ModelStats, Window
from tests.advisors.cases import config, queue, row, window

BY = table().evaluation

SEEN = replace(
    window(
        rate=40.0, fail_rate=2.0, batch=4.0, wait=6.0, compute=14.0, busy=0.25, instances=2, inputs=0.5, outputs=0.7
    ),
    batches=(BatchWindow(4, 240, 10.0), BatchWindow(8, 60, 15.0)),
)
SETTINGS = config(instances=2, max_batch_size=8, delay_us=2500, queue=queue(64))


def of(seen: Window = SEEN, pending: tuple[float, ...] = (0.0,) * 20 + (3.0,) * 10, **settings: Any) -> Figures:
    made = replace(SETTINGS, **settings)
    return Figures(row(seen, made, pending=pending), seen, made, "m")


def unknown() -> Figures:
    seen = window(rate=0, batch=None, wait=None, compute=None, busy=0.0)
    return Figures(row(seen, None, pending=()), seen, None, "m")


def test_every_figure() -> None:
    figures = of()
    assert (figures.requests, figures.rate, figures.fail_rate, figures.run_rate) == (1260, 40.0, 2.0, 10.0)
    assert (figures.batch, figures.wait_ms, figures.compute_ms, figures.request_ms) == (4.0, 6.0, 14.0, 20.0)
    assert (figures.input_ms, figures.output_ms) == (0.5, 0.7)
    assert figures.in_flight == pytest.approx(0.8)
    assert (figures.instances, figures.max_batch, figures.delay_ms, figures.batching) == (2, 8, 2.5, True)
    assert figures.busy == pytest.approx(0.25)
    assert (figures.queue_limit, figures.waiting) == (64, 3.0)
    assert figures.company == pytest.approx(0.1)
    assert figures.alone_ms == pytest.approx(2.5 * 1.05 / 1.1)
    assert figures.fill_ms == pytest.approx(7 / 80 * 1000)
    assert (figures.runs(4), figures.runs(8), figures.runs(1)) == (240, 60, 0)
    assert (figures.run_ms(4), figures.run_ms(8, 60), figures.run_ms(8, 61), figures.run_ms(1)) == (10, 15, None, None)
    assert figures.run_ms(8, 20) == 15.0
    assert (figures.full_share, figures.largest) == (0.2, 8)


def test_every_figure_as_words() -> None:
    assert words(of()) == {
        "m": "m", "R": "40.0", "F": "2.0", "B": "4.0", "M": "8", "I": "2", "L": "0.8", "P": "3.0", "q": "6.00",
        "c": "14.0", "T": "20.0", "D": "2500 µs", "RD": "0.1", "busy": "25", "h": "20", "limit": "64",
    }  # fmt: skip


def test_every_figure_as_proof() -> None:
    names = "n R X B M h q c T ci co D RD w busy I L P F limit"
    assert proof(of(), names.split()) == (
        "30 s: requests 1260   R 40.0/s   runs 10.0/s   batch 4.0   max 8   full 20 %   wait 6.00 ms   "
        "compute 14.0 ms   request 20.0 ms   input 0.50 ms   output 0.70 ms   D 2.5 ms   RD 0.1   "
        "the delay alone makes 2.39   busy 25 %   instances 2   in at once 0.8   waiting 3.0   failures 2.0/s   "
        "limit 64"
    )
    assert proof(of(), ["x", "y"], {"y": "z"}) == "30 s: y z"
    assert proof(of(), ["y"]) == "30 s: "


def test_what_is_not_known_is_no_figure() -> None:
    figures = unknown()
    assert (figures.batch, figures.wait_ms, figures.in_flight, figures.instances, figures.max_batch) == (None,) * 5
    assert (figures.delay_ms, figures.batching, figures.busy, figures.company, figures.alone_ms) == (None,) * 5
    assert (figures.fill_ms, figures.waiting, figures.full_share, figures.largest) == (None,) * 4
    assert (figures.queue_limit, figures.run_rate, figures.client_batch) == (0, 0.0, 1.0)
    assert words(figures)["M"] == words(figures)["I"] == words(figures)["D"] == "–"
    assert proof(figures, ["M", "I", "P"]) == "30 s: max –   instances –   waiting –"


def test_a_window_without_length_makes_no_figure() -> None:
    figures = Figures(row(SEEN, SETTINGS), replace(SEEN, span=0.0), SETTINGS, "m")
    assert (figures.run_rate, figures.busy) == (0.0, None)


def test_waiting_falls_back_to_the_gauge() -> None:
    figures = of(pending=(2.0,))
    assert figures.waiting == 2.0
    assert figures.row.metrics is not None
    lone = replace(figures.row, metrics=replace(figures.row.metrics, pending=7.0, pending_samples=()))
    assert Figures(lone, SEEN, SETTINGS, "m").waiting == 7.0


@pytest.mark.parametrize(
    ("settings", "batching"),
    [
        ({}, True),
        ({"max_batch_size": 1}, False),
        ({"max_batch_size": 2}, True),
        ({"dynamic_batching": False}, False),
        ({"dynamic_batching": False, "sequence_batching": True}, True),
    ],
)
def test_batching(settings: dict[str, Any], batching: bool) -> None:
    assert of(**settings).batching is batching


@pytest.mark.parametrize(
    ("change", "items"),
    [
        ({"success": 100, "failed": 0, "inferences": 400}, 4.0),
        ({"success": 100, "failed": 1, "inferences": 400}, 1.0),
        ({"success": 100, "failed": 0, "inferences": 50}, 1.0),
        ({"success": 100, "failed": 0, "inferences": 200, "cache_hits": 50}, 4.0),
        ({"success": 50, "failed": 0, "inferences": 200, "cache_hits": 50}, 1.0),
    ],
)
def test_items_of_a_request(change: dict[str, Any], items: float) -> None:
    assert of(replace(SEEN, **change)).client_batch == items


def test_filling_takes_the_smallest_size_that_lets_a_batch_go() -> None:
    assert of(preferred=(4, 6)).fill_ms == pytest.approx(3 / 80 * 1000)
    assert of(preferred=(0,)).fill_ms == pytest.approx(7 / 80 * 1000)
    assert of(max_batch_size=0).fill_ms is None
    assert of(max_batch_size=1).fill_ms == 0.0
    assert of(replace(SEEN, rate=0.0)).fill_ms is None


def test_the_wait_of_a_delay_is_that_of_filling_where_that_is_less_than_half() -> None:
    fast = replace(SEEN, rate=4000.0, failed=0, inferences=SEEN.success)
    assert of(fast).alone_ms == pytest.approx(7 / 8000 * 1000)
    edge = replace(SEEN, rate=2800.0, failed=0, inferences=SEEN.success)
    assert of(edge).fill_ms == pytest.approx(1.25)
    assert of(edge).alone_ms == pytest.approx(2.5 * (1 + 3.5) / 8)


# ------------------------------------------------------------------------------------------------------ most it can do


def test_the_most_from_runs_of_the_full_size() -> None:
    assert of().top(20, 3, 4.0) == pytest.approx(2 * 8 / 15.0 * 1000)
    assert of().top(61, 3, 4.0) is None, "60 full runs are too few, and one size makes no line"
    assert unknown().top(20, 3, 4.0) is None
    assert of(max_batch_size=1, dynamic_batching=False).top(1000, 3, 4.0) is None


def test_the_most_of_a_model_that_does_not_batch() -> None:
    single = replace(SEEN, failed=0, inferences=SEEN.success, batches=(BatchWindow(1, 100, 5.0),))
    assert of(single, dynamic_batching=False).top(20, 3, 4.0) == pytest.approx(2 / 5.0 * 1000)


def test_the_most_by_a_straight_line() -> None:
    sizes = tuple(BatchWindow(size, 50, 4.0 + size) for size in (1, 2, 4))
    figures = of(replace(SEEN, batches=sizes))
    assert figures.top(50, 3, 2.0) == pytest.approx(2 * 8 / 12.0 * 1000)
    assert figures.top(50, 3, 1.9) is None, "8 lies too far from the 4 that were seen"
    assert figures.top(50, 4, 2.0) is None
    assert figures.top(51, 3, 2.0) is None
    falling = tuple(BatchWindow(size, 50, 9.0 - size) for size in (1, 2, 4))
    assert of(replace(SEEN, batches=falling)).top(20, 3, 2.0) is None


@pytest.mark.parametrize(
    ("points", "x", "y"),
    [
        ([(1.0, 3.0, 1.0), (3.0, 7.0, 1.0)], 5.0, 11.0),
        ([(1.0, 3.0, 9.0), (3.0, 7.0, 1.0)], 2.0, 5.0),
        ([(1.0, 4.0, 1.0), (3.0, 4.0, 5.0)], 9.0, 4.0),
        ([(1.0, 4.0, 1.0), (3.0, 3.0, 1.0)], 9.0, None),
        ([(2.0, 4.0, 1.0), (2.0, 5.0, 1.0)], 9.0, None),
        ([(0.0, 0.0, 1.0), (0.0, 2.0, 1.0), (2.0, 4.0, 2.0)], 1.0, 2.5),
        ([(0.0, 0.0, 3.0), (1.0, 4.0, 1.0), (2.0, 4.0, 1.0)], 1.0, 2.5),
    ],
)
def test_a_weighted_line(points: list[tuple[float, float, float]], x: float, y: float | None) -> None:
    found = _line(points, x)
    assert found is None if y is None else found == pytest.approx(y)


# ----------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("us", "text"), [(9999, "9999 µs"), (9000, "9000 µs"), (10_000, "10 ms"), (10_001, "10001 µs"), (11_000, "11 ms")]
)
def test_delays(us: int, text: str) -> None:
    assert delay_text(us) == text


@pytest.mark.parametrize(("value", "text"), [(9.94, "9.9"), (9.95, "10"), (0.0, "0.0"), (None, "–")])
def test_plain(value: float | None, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    ("success", "failed", "executions", "says"),
    [
        (BY.min_requests, 0, BY.min_executions, True),
        (BY.min_requests - 1, 0, BY.min_executions, False),
        (BY.min_requests, 0, BY.min_executions - 1, False),
        (0, BY.min_requests, 0, True),
        (BY.min_requests, BY.min_requests, 0, False),
    ],
)
def test_enough(success: int, failed: int, executions: int, says: bool) -> None:
    assert enough(replace(SEEN, success=success, failed=failed, executions=executions), BY) is says


def test_the_mean_of_the_rest() -> None:
    longer = replace(SEEN, success=100, request_ms=20.0)
    assert _rest_ms(replace(SEEN, success=50, request_ms=30.0), longer) == pytest.approx(10.0)
    assert _rest_ms(replace(SEEN, success=0, request_ms=None), longer) == pytest.approx(20.0)
    assert _rest_ms(replace(SEEN, success=50, request_ms=90.0), longer) == 0.0
    assert _rest_ms(replace(SEEN, success=100), longer) is None
    assert _rest_ms(replace(SEEN, success=50), replace(longer, request_ms=None)) is None
    assert _rest_ms(replace(SEEN, success=99, request_ms=20.0), longer) == pytest.approx(20.0)


def flow(**windows: Window | None) -> ModelFlow:
    return ModelFlow(ModelKey("m", "1"), ModelStats("m", "1"), **windows)  # type: ignore[arg-type]


IDLE = window(span=10.0, rate=0, batch=None, wait=None, compute=None, busy=0, sizes={})


def test_traffic_has_stopped_where_ten_requests_were_to_be_expected() -> None:
    for rate, stopped in ((1.0, True), (0.9, False)):
        usual = window(rate=rate)
        assert (judged_window(flow(w10=IDLE, w30=usual), None, BY, 1) is None) is stopped
    failing = window(rate=0.5, fail_rate=0.5)
    assert judged_window(flow(w10=IDLE, w30=failing), None, BY, 1) is None
    for one in ("success", "failed", "executions"):
        barely = replace(IDLE, **{one: 1})
        assert judged_window(flow(w10=barely, w30=window(rate=5.0)), None, BY, 1) is not None


def test_a_shorter_window_counts_only_where_it_is_shorter_by_some_seconds() -> None:
    usual = window(rate=40.0)
    for span, taken in ((28.0, True), (28.5, False), (30.0, False), (31.0, False)):
        other = window(span=span, rate=120.0)
        assert (judged_window(flow(w10=other, w30=usual), None, BY, 1) is other) is taken


def test_a_longer_window_where_thirty_seconds_hold_too_few() -> None:
    few, some, many = window(rate=0.1), window(span=120.0, rate=0.1), window(span=300.0, rate=1.0)
    assert judged_window(flow(w30=few, w120=some, w300=many), None, BY, 1) is many
    assert judged_window(flow(w30=few, w120=window(span=120.0, rate=1.0), w300=many), None, BY, 1) is not many
    assert judged_window(flow(w30=few, w120=some, w300=replace(many, crosses_reset=True)), None, BY, 1) is few
    assert judged_window(flow(w30=few), None, BY, 1) is few


def test_after_a_reset_the_first_short_window_that_says_something() -> None:
    few, good = window(span=10.0, rate=0.1), window(span=5.0, rate=40.0)
    assert judged_window(flow(w10=few), good, BY, 1) is good
    assert judged_window(flow(w10=few), None, BY, 1) is few
    assert judged_window(flow(w10=few), replace(good, crosses_reset=True), BY, 1) is few


def test_a_change_of_the_busy_share_alone() -> None:
    usual = window(rate=40.0, busy=0.5)
    for busy, changed in ((0.5 + BY.changed_busy * 0.6, False), (0.5 + BY.changed_busy, True)):
        short = window(span=10.0, rate=40.0, busy=busy)
        assert (judged_window(flow(w10=short, w30=usual), None, BY, 1) is short) is changed
        assert judged_window(flow(w10=short, w30=usual), None, BY, None) is usual, "instances are not known"


times = st.none() | st.floats(0, 1e4)
windows = st.builds(
    window,
    span=st.sampled_from([5.0, 10.0, 30.0]),
    rate=st.floats(0, 1e4),
    batch=st.none() | st.floats(0.5, 16),
    wait=times,
    compute=times,
    busy=st.floats(0, 2),
    fail_rate=st.floats(0, 1e3),
    reset=st.booleans(),
)


@given(
    st.none() | windows, st.none() | windows, st.none() | windows, st.none() | windows, st.none() | st.integers(0, 4)
)
def test_any_windows(w10: Any, w30: Any, newest: Any, w120: Any, instances: int | None) -> None:
    chosen = judged_window(flow(w10=w10, w30=w30, w120=w120), newest, BY, instances)
    assert chosen is None or (chosen in (w10, w30, newest, w120) and not chosen.crosses_reset)
    if chosen is not None:
        figures = Figures(row(chosen, SETTINGS), chosen, SETTINGS, "m")
        assert proof(figures, ["R", "B", "busy", "w"])
        assert figures.busy is None or 0 <= figures.busy <= 1
