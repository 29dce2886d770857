"""Figures of windows over spans other than a second, what is kept and what is forgotten."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from console.core import rates
from console.core.model import BatchStat, ModelStats
from console.core.rates import COARSE, FINE, LAZY, MIN_SPAN, STILL, MetricsTracker, Rates, StatsTracker
from tests.core.test_rates import only, served, stats, window

ALL = ModelStats(
    "rank",
    "1",
    inference_count=64,
    execution_count=16,
    success_count=40,
    success_ns=400_000_000,
    fail_count=8,
    fail_ns=999,
    queue_count=50,
    queue_ns=80_000_000,
    input_count=32,
    input_ns=32_000_000,
    infer_count=16,
    infer_ns=64_000_000,
    output_count=8,
    output_ns=24_000_000,
    cache_hit_count=10,
    cache_hit_ns=5,
    cache_miss_count=3,
    cache_miss_ns=7,
    batches=(BatchStat(4, 10, 1_000_000, 20_000_000, 3_000_000), BatchStat(2, 6, 0, 6_000_000, 0)),
)


def test_every_figure_over_two_seconds() -> None:
    tracker = StatsTracker()
    tracker.update(10.0, [stats()])
    w = window(only(tracker.update(12.0, [ALL])).w1)
    assert (w.span, w.success, w.failed, w.executions, w.inferences, w.cache_hits) == (2.0, 40, 8, 16, 64, 10)
    assert (w.rate, w.fail_rate) == (20.0, 4.0)
    assert (w.request_ms, w.queue_ms) == (10.0, 2.0)
    assert (w.input_ms, w.infer_ms, w.output_ms, w.compute_ms) == (1.0, 4.0, 3.0, 8.0)
    assert w.mean_batch == 4.0
    assert [(b.size, b.runs) for b in w.batches] == [(2, 6), (4, 10)]
    assert [b.ms_per_run for b in w.batches] == [pytest.approx(1.0), pytest.approx(2.4)]
    assert w.busy_seconds == pytest.approx(0.030)


def test_compute_is_known_without_input_and_output() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [stats()])
    w = window(only(tracker.update(1.0, [stats(infer_count=2, infer_ns=8_000_000)])).w1)
    assert (w.input_ms, w.output_ms, w.compute_ms, w.infer_ms) == (None, None, 4.0, 4.0)


def test_the_shortest_span() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(0)])
    assert window(only(tracker.update(MIN_SPAN, [served(5)])).w1).span == pytest.approx(MIN_SPAN)
    assert MIN_SPAN == 0.1


def test_each_poll_of_the_last_forty_seconds_is_kept_and_then_one_in_five() -> None:
    tracker = StatsTracker()
    for second in range(400):
        tracker.update(float(second), [served(second)])
    kept = tracker._polls.times
    fine = [moment for moment in kept if moment >= 399 - FINE]
    coarse = [moment for moment in kept if moment < 399 - FINE]
    assert fine == [float(second) for second in range(359, 400)]
    assert {b - a for a, b in pairwise(coarse)} == {COARSE}
    assert 399 - 306 <= coarse[0] <= 399 - 300


def test_the_nearest_poll_to_a_moment() -> None:
    polls = rates._Polls()
    assert polls.nearest(0.0) is None
    polls.add(1.0)
    assert polls.nearest(1.0) is None, "the newest is not one of the past"
    for moment in (2.0, 4.0, 5.0):
        polls.add(moment)
    assert [polls.nearest(at) for at in (0.0, 1.4, 1.5, 1.6, 3.0, 3.1, 9.0)] == [1.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


def test_polls_in_a_span() -> None:
    polls = rates._Polls()
    polls.add(1.0)
    polls.add(3.0)
    told = [polls.any_in(1.0, 2.0), polls.any_in(1.5, 3.0), polls.any_in(3.0, 3.1), polls.any_in(3.1, 9.0)]
    assert told == [True, False, True, False]


def test_a_reload_renews_the_long_windows_at_once() -> None:
    tracker = StatsTracker()
    for second in range(10):
        tracker.update(float(second), [served(100 * second)])
    flow = only(tracker.update(10.0, [served(40)]))
    assert window(flow.w300).success == 940
    assert window(flow.w300).crosses_reset
    flow = only(tracker.update(11.0, [served(20)]))
    assert window(flow.w300).success == 960


def test_a_series_that_begins_anew_has_no_old_long_windows() -> None:
    tracker = StatsTracker()
    for second in range(10):
        tracker.update(float(second), [served(100 * second)])
    odd = replace(served(950), execution_count=899)
    flow = only(tracker.update(10.0, [odd]))
    assert (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300) == (None,) * 5
    assert flow.epoch_mono == 10.0
    assert flow.resets == 1


def test_long_windows_of_a_busy_model_are_renewed_every_five_seconds() -> None:
    tracker = StatsTracker()
    spans = []
    for second in range(30):
        flow = only(tracker.update(float(second), [served(10 * second)]))
        if flow.w300 is not None:
            spans.append(flow.w300.span)
    assert {b - a for a, b in pairwise(sorted(set(spans)))} == {LAZY}


def test_models_take_turns_with_their_long_windows() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(0, name=f"m{n}") for n in range(10)])
    renewed: dict[int, int] = {}
    before: dict[str, float] = {}
    for second in range(1, 21):
        for flow in tracker.update(float(second), [served(second, name=f"m{n}") for n in range(10)]).flows:
            if flow.w300 is not None and before.get(flow.key.name) != flow.w300.span:
                before[flow.key.name] = flow.w300.span
                renewed[second] = renewed.get(second, 0) + 1
    assert max(count for second, count in renewed.items() if second > 6) <= 2


def test_a_settled_model_is_computed_again_until_its_windows_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(0)])
    for second in range(1, 400):
        flow = only(tracker.update(float(second), [served(50)]))
    assert window(flow.w300).success == 0
    series = tracker._series["rank", "1"]
    assert series.due == float("inf")
    monkeypatch.setattr(rates._Round, "flow", None)
    for second in range(400, 420):
        assert only(tracker.update(float(second), [served(50)])) is flow


def test_models_gone_for_longest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_SERIES", 3)
    tracker = StatsTracker()
    for moment, names in enumerate((["a"], ["b"], ["c"], ["d"], ["d", "e"])):
        tracker.update(float(moment), [stats(name) for name in names])
    assert [name for name, _ in tracker._series] == ["c", "d", "e"]
    tracker.update(9.0, [stats(name) for name in "wxyz"])
    assert [name for name, _ in tracker._series] == ["w", "x", "y", "z"], "those that are there are kept"


def test_metrics_that_went_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_SERIES", 2)
    tracker: MetricsTracker[str] = MetricsTracker()
    tracker.update(0.0, {"a": 1.0, "b": 1.0})
    tracker.update(1.0, {"b": 1.0, "c": 1.0})
    assert set(tracker._counters) == {"b", "c"}


# --------------------------------------------------------------------------------------------------- single counters


def test_a_counter_that_stands_still_has_a_rate_of_zero() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    tracker.update(0.0, {"x": 5.0})
    assert tracker.update(1.0, {"x": 5.0})["x"] is STILL
    assert Rates(0.0, 0.0) == STILL
    assert tracker.update(2.0, {"x": 9.0})["x"] == Rates(2.0, 2.0)
    for second in range(3, 60):
        told = tracker.update(float(second), {"x": 9.0})["x"]
    assert told is STILL


def test_a_second_read_just_after_the_first_gives_no_rate() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    tracker.update(0.0, {"x": 5.0})
    assert tracker.update(0.05, {"x": 6.0})["x"] == Rates(None, None)


def test_a_counter_back_after_a_gap() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    tracker.update(0.0, {"x": 5.0})
    tracker.update(1.0, {})
    assert tracker.update(2.0, {"x": 5.0})["x"] == Rates(None, None), "it did not fall: where it stood is not known"
    assert tracker.update(4.0, {"x": 9.0})["x"] == Rates(2.0, 2.0)
    tracker.update(5.0, {})
    assert tracker.update(7.0, {"x": 4.0})["x"] == Rates(2.0, 2.0)


def test_counters_keep_forty_seconds() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    for second in range(100):
        tracker.update(float(second), {"x": float(second)})
    counter = tracker._counters["x"]
    assert counter.times[0] == 99 - FINE
    assert len(counter.times) == len(counter.totals) == FINE + 1
