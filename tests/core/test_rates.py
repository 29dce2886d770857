"""Rates against a plain computation over full histories, and properties over hostile ones."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.model import BatchStat, ModelFlow, ModelStats, TritonStats, Window
from console.core.rates import (
    COARSE,
    FINE,
    KEPT,
    MAX_SERIES,
    MIN_SPAN,
    SAME_SPAN,
    MetricsTracker,
    Rates,
    StatsTracker,
    window_between,
)


def stats(name: str = "rank", version: str = "1", **values: Any) -> ModelStats:
    return ModelStats(name, version, **values)


def served(requests: int, batch: int = 1, ms: int = 10, wait_ms: int = 2, **values: Any) -> ModelStats:
    """Counters after `requests` single requests that ran in batches of `batch`."""
    runs = requests // batch
    ns = ms * 1_000_000
    fields: dict[str, Any] = {
        "inference_count": requests,
        "execution_count": runs,
        "success_count": requests,
        "success_ns": requests * (ms + wait_ms) * 1_000_000,
        "queue_count": requests,
        "queue_ns": requests * wait_ms * 1_000_000,
        "input_count": requests,
        "infer_count": requests,
        "infer_ns": requests * ns,
        "output_count": requests,
        "batches": (BatchStat(batch, runs, 0, runs * ns, 0),) if runs else (),
    }
    return stats(**(fields | values))


def only(result: TritonStats) -> ModelFlow:
    (flow,) = result.flows
    return flow


def window(value: Window | None) -> Window:
    assert value is not None
    return value


def test_the_first_sample_is_a_baseline() -> None:
    flow = only(StatsTracker().update(100.0, [served(1000)]))
    assert (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300) == (None,) * 5
    assert flow.epoch_mono is None
    assert flow.resets == 0


def test_figures_of_one_interval() -> None:
    tracker = StatsTracker()
    tracker.update(100.0, [served(1000, batch=4)])
    flow = only(tracker.update(102.0, [served(1200, batch=4)]))
    w = window(flow.w1)
    assert w.span == pytest.approx(2.0)
    assert (w.success, w.inferences, w.executions) == (200, 200, 50)
    assert w.rate == pytest.approx(100.0)
    assert w.mean_batch == pytest.approx(4.0)
    assert w.request_ms == pytest.approx(12.0)
    assert w.queue_ms == pytest.approx(2.0)
    assert w.infer_ms == pytest.approx(10.0)
    assert w.compute_ms == pytest.approx(10.0)
    assert w.busy_seconds == pytest.approx(0.5)
    (b,) = w.batches
    assert (b.size, b.runs) == (4, 50)
    assert b.ms_per_run == pytest.approx(10.0)
    assert not w.crosses_reset
    assert flow.w300 == w


def test_a_window_between_two_answers_is_that_of_the_tracker() -> None:
    first, second = served(1000, batch=4), served(1200, batch=4)
    tracker = StatsTracker()
    tracker.update(100.0, [first])
    assert window_between(first, second, 2.0) == only(tracker.update(102.0, [second])).w1
    assert window_between(second, first, 2.0) is None, "the counters began anew"
    assert window_between(first, second, MIN_SPAN / 2) is None
    lacks = msgspec.structs.replace(second, batches=())
    between = window_between(first, lacks, 2.0)
    assert between is not None
    assert (between.executions, between.batches, between.busy_seconds) == (50, (), 0.0)


def test_cache_hits_are_taken_out_of_the_queue_mean() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [stats()])
    after = stats(
        success_count=10,
        success_ns=50,
        queue_count=10,
        queue_ns=6_000_000,
        cache_hit_count=4,
        infer_count=6,
        infer_ns=6,
    )
    w = window(only(tracker.update(1.0, [after])).w1)
    assert w.cache_hits == 4
    assert w.queue_ms == pytest.approx(1.0)
    all_hits = msgspec.structs.replace(after, queue_count=12, cache_hit_count=6, success_count=12)
    w = window(only(tracker.update(2.0, [all_hits])).w1)
    assert w.queue_ms is None
    assert w.compute_ms is None
    assert w.mean_batch is None


def test_failed_executions_make_a_mean_batch_below_one() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [stats()])
    w = window(
        only(tracker.update(1.0, [stats(inference_count=1, execution_count=2, success_count=1, fail_count=1)])).w1
    )
    assert w.mean_batch == pytest.approx(0.5)
    assert w.fail_rate == pytest.approx(1.0)


def test_windows_by_true_time_and_nearest_sample() -> None:
    tracker = StatsTracker()
    for second in range(401):
        tracker.update(second * 1.01, [served(10 * second)])
    flow = only(tracker.update(401 * 1.01, [served(4010)]))
    for w, age in ((flow.w1, 1), (flow.w10, 10), (flow.w30, 30), (flow.w120, 120), (flow.w300, 300)):
        w = window(w)
        assert abs(w.span - age) <= max(0.51, COARSE / 2 + 1.1 if age > FINE else 0)
        assert w.rate == pytest.approx(10 / 1.01)
        assert w.success == pytest.approx(w.span * 10 / 1.01)


def test_a_missed_poll_keeps_the_true_span() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(0)])
    tracker.update(1.0, [served(10)])
    w = window(only(tracker.update(8.0, [served(80)])).w1)
    assert w.span == pytest.approx(7.0)
    assert w.rate == pytest.approx(10.0)


def test_a_read_on_demand_just_after_a_poll_gives_no_wild_rate() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(0)])
    assert only(tracker.update(0.05, [served(5)])).w1 is None
    tracker.update(1.0, [served(10)])
    w = window(only(tracker.update(1.05, [served(11)])).w1)
    assert w.span == pytest.approx(1.0)


def test_a_new_series_began_at_zero_at_the_poll_before() -> None:
    tracker = StatsTracker()
    tracker.update(10.0, [served(5)])
    result = tracker.update(11.0, [served(5), served(30, name="new")])
    flow = result.flows[1]
    assert window(flow.w1).rate == pytest.approx(30.0)
    assert not window(flow.w1).crosses_reset
    assert flow.epoch_mono == 10.0
    assert flow.resets == 0


def test_a_reload_counts_what_came_since_and_is_marked() -> None:
    tracker = StatsTracker()
    for second in range(20):
        tracker.update(float(second), [served(100 * second)])
    flow = only(tracker.update(20.0, [served(40)]))
    assert window(flow.w1).success == 40
    assert window(flow.w1).crosses_reset
    assert window(flow.w10).success == 940
    assert window(flow.w10).busy_seconds == pytest.approx(9.4)
    assert window(flow.w120).success == 1940
    assert flow.resets == 1
    assert flow.epoch_mono == 19.0
    flow = only(tracker.update(21.0, [served(140)]))
    assert window(flow.w1).success == 100
    assert not window(flow.w1).crosses_reset
    assert window(flow.w10).success == 940
    assert window(flow.w10).crosses_reset
    for second in range(22, 33):
        flow = only(tracker.update(float(second), [served(100 * second - 1960)]))
    assert not window(flow.w10).crosses_reset
    assert window(flow.w30).crosses_reset


def test_two_reloads_within_a_window() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(1000)])
    tracker.update(1.0, [served(1100)])
    tracker.update(2.0, [served(50, batch=2)])
    tracker.update(3.0, [served(150, batch=2)])
    flow = only(tracker.update(4.0, [served(20, batch=4)]))
    w = window(flow.w10)
    assert w.success == 100 + 50 + 100 + 20
    assert {b.size: b.runs for b in w.batches} == {1: 100, 2: 75, 4: 5}
    assert flow.resets == 2


def test_a_missing_series_is_a_gap() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(10)])
    tracker.update(1.0, [served(20)])
    assert tracker.update(2.0, []).flows == ()
    flow = only(tracker.update(3.0, [served(5)]))
    assert window(flow.w10).success == 5
    assert window(flow.w10).span == pytest.approx(1.0)
    assert flow.epoch_mono == 2.0
    assert flow.resets == 1


def test_a_series_that_comes_back_higher_is_not_credited_with_all_it_ever_did() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(1_000_000)])
    tracker.update(1.0, [])
    flow = only(tracker.update(2.0, [served(1_000_050)]))
    assert flow.w1 is None
    assert flow.epoch_mono == 2.0
    assert window(only(tracker.update(3.0, [served(1_000_060)])).w10).success == 10


def test_versions_are_never_merged() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(1000, version="1")])
    result = tracker.update(1.0, [served(1010, version="1"), served(3, version="2")])
    assert [window(f.w1).success for f in result.flows] == [10, 3]
    flow = only(tracker.update(2.0, [served(23, version="2")]))
    assert flow.key.version == "2"
    assert window(flow.w1).success == 20


def test_contradicting_counters_claim_nothing() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(1000)])
    tracker.update(1.0, [served(1010)])
    odd = msgspec.structs.replace(served(1020), queue_ns=1)
    flow = only(tracker.update(2.0, [odd]))
    assert flow.w1 is None
    assert flow.resets == 1


def test_a_batch_size_that_vanishes_takes_no_work_back() -> None:
    tracker = StatsTracker()
    both = (BatchStat(1, 10, 0, 1000, 0), BatchStat(2, 10, 0, 2000, 0))
    tracker.update(0.0, [stats(execution_count=20, batches=both)])
    w = window(only(tracker.update(1.0, [stats(execution_count=21, batches=(BatchStat(1, 11, 0, 1100, 0),))])).w1)
    assert [(b.size, b.runs) for b in w.batches] == [(1, 1)]
    assert w.busy_seconds == pytest.approx(100e-9)
    back = (BatchStat(2, 11, 0, 2500, 0), BatchStat(1, 11, 0, 1100, 0))
    w = window(only(tracker.update(2.0, [stats(execution_count=22, batches=back)])).w1)
    assert [(b.size, b.runs) for b in w.batches] == [(2, 1)]
    assert w.busy_seconds == pytest.approx(500e-9)


def test_a_batch_size_that_fell_while_the_rest_rose_claims_nothing() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [stats(execution_count=20, batches=(BatchStat(1, 10, 0, 1000, 0),))])
    flow = only(tracker.update(1.0, [stats(execution_count=21, batches=(BatchStat(1, 9, 0, 2000, 0),))]))
    assert flow.w1 is None


def test_duplicates_of_one_version_are_taken_once() -> None:
    tracker = StatsTracker()
    tracker.update(0.0, [served(10), served(900)])
    result = tracker.update(1.0, [served(20), served(999)])
    assert window(only(result).w1).success == 10


def test_the_same_moment_twice_changes_nothing_and_a_clock_set_back_starts_again() -> None:
    tracker = StatsTracker()
    tracker.update(5.0, [served(10)])
    first = tracker.update(6.0, [served(20)])
    assert tracker.update(6.0, [served(99)]) is first
    assert only(tracker.update(1.0, [served(30)])).w1 is None
    assert window(only(tracker.update(2.0, [served(31)])).w1).success == 1


def test_idle_models_keep_their_object_and_zero_is_a_rate() -> None:
    tracker = StatsTracker()
    for second in range(400):
        result = tracker.update(float(second), [served(50)])
    before = only(result)
    assert window(before.w30).rate == 0.0
    assert window(before.w30).request_ms is None
    for second in range(400, 500):
        assert only(tracker.update(float(second), [msgspec.structs.replace(before.stats)])) is before


def test_the_long_windows_of_a_settled_model_still_move() -> None:
    tracker = StatsTracker()
    for second in range(61):
        flow = only(tracker.update(float(second), [served(10 * second)]))
    for second in range(61, 800):
        flow = only(tracker.update(float(second), [served(600)]))
        assert window(flow.w10).success <= 100
        idle = second - 60
        for w, age in ((window(flow.w120), 120), (window(flow.w300), 300)):
            left = max(0, min(60, age - idle)) * 10
            assert abs(w.success - left) <= 10 * (2 * COARSE + 3)
    assert window(flow.w300).success == 0


def test_memory_is_bounded() -> None:
    tracker = StatsTracker()
    for second in range(1500):
        tracker.update(float(second), [served(second), served(5, name="idle")])
    series = tracker._series["rank", "1"]
    assert len(series.times) <= FINE + KEPT / COARSE + 5
    assert len(series.samples) == len(series.times)
    assert len(tracker._series["idle", "1"].times) == 1
    for number in range(MAX_SERIES + 50):
        tracker.update(2000.0 + number, [stats(f"m{number}")])
    assert len(tracker._series) <= MAX_SERIES


def test_a_version_that_left_keeps_one_sample() -> None:
    tracker = StatsTracker()
    for second in range(60):
        tracker.update(float(second), [served(100 + 10 * second), served(5 * second, version="2")])
    tracker.update(60.0, [served(300, version="2")])
    left, stays = tracker._series["rank", "1"], tracker._series["rank", "2"]
    assert (left.times, len(left.samples), left.flow) == ([59.0], 1, None)
    assert len(stays.samples) > 40
    [flow, _] = tracker.update(61.0, [served(20), served(305, version="2")]).flows
    assert (flow.resets, flow.w1 and flow.w1.success) == (1, 20), "it fell, so it began anew since the poll before"


# ------------------------------------------------------------------------------------------- against a plain oracle

steps = st.lists(
    st.tuples(
        st.floats(0.3, 20.0),
        st.sampled_from(["run", "run", "run", "idle", "reload", "gap"]),
        st.integers(0, 200),
        st.integers(1, 8),
    ),
    min_size=2,
    max_size=60,
)


class Truth:
    """A server whose every request is written down: (moment, epoch)."""

    def __init__(self) -> None:
        self.done: list[tuple[float, int, int]] = []
        self.batches: dict[int, int] = {}
        self.requests = 0
        self.runs = 0

    def run(self, moment: float, runs: int, batch: int) -> None:
        self.batches[batch] = self.batches.get(batch, 0) + runs
        self.requests += runs * batch
        self.runs += runs
        self.done.append((moment, runs * batch, runs))

    def reload(self) -> None:
        self.batches, self.requests, self.runs = {}, 0, 0

    def answer(self) -> ModelStats:
        return stats(
            inference_count=self.requests,
            execution_count=self.runs,
            success_count=self.requests,
            success_ns=self.requests * 3_000_000,
            queue_count=self.requests,
            queue_ns=self.requests * 1_000_000,
            batches=tuple(BatchStat(b, n, n, n * 1000, n) for b, n in self.batches.items()),
        )


@given(steps)
@settings(max_examples=150, deadline=None)
def test_windows_equal_what_really_happened(plan: list[tuple[float, str, int, int]]) -> None:
    truth, tracker, now = Truth(), StatsTracker(), 0.0
    truth.run(0.0, 500, 2)
    tracker.update(now, [truth.answer()])
    gap_end = 0.0
    for pause, what, runs, batch in plan:
        before, now = now, now + pause
        if what == "gap":
            tracker.update(now, [])
            gap_end = math.inf
            continue
        if what == "reload":
            if truth.requests <= runs * batch:
                continue
            truth.reload()
        if what in ("run", "reload"):
            truth.run((before + now) / 2, runs, batch)
        flow = only(tracker.update(now, [truth.answer()]))
        if gap_end == math.inf:
            gap_end = now
        for w in (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300):
            if w is None or w in (flow.w120, flow.w300):
                continue
            assert 0 < w.span <= now + 1e-9
            if now - w.span < gap_end:
                continue
            if any(abs(moment - (now - w.span)) <= SAME_SPAN * w.span for moment, _, _ in truth.done):
                continue  # a window may keep the length that it had a moment ago
            inside = [item for item in truth.done if item[0] > now - w.span + 1e-9]
            assert w.success == sum(item[1] for item in inside)
            assert w.executions == sum(item[2] for item in inside)
            assert sum(b.runs for b in w.batches) == w.executions
            assert sum(b.runs * b.size for b in w.batches) == w.inferences
            assert w.busy_seconds == pytest.approx(w.executions * 1002e-9)
            assert w.rate == pytest.approx(w.success / w.span)


big = st.integers(0, 2**40)
hostile = st.builds(
    ModelStats,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["1", "2"]),
    inference_count=big,
    execution_count=big,
    success_count=big,
    success_ns=big,
    fail_count=big,
    queue_count=big,
    queue_ns=big,
    infer_count=big,
    infer_ns=big,
    cache_hit_count=big,
    batches=st.lists(st.builds(BatchStat, st.integers(0, 4), big, big, big, big), max_size=4).map(tuple),
)


@given(st.lists(st.tuples(st.floats(-50, 400), st.lists(hostile, max_size=5)), max_size=25))
@settings(max_examples=200, deadline=None)
def test_no_history_makes_a_negative_or_impossible_figure(polls: list[tuple[float, list[ModelStats]]]) -> None:
    tracker, now = StatsTracker(), 0.0
    claimed: dict[tuple[str, str], int] = {}
    for pause, models in polls:
        now += pause
        for m in {(m.name, m.version): m for m in reversed(models)}.values():
            claimed[m.name, m.version] = claimed.get((m.name, m.version), 0) + m.success_count
        for flow in tracker.update(now, models).flows:
            for w in (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300):
                if w is None:
                    continue
                assert w.span >= 0.1
                numbers = [w.success, w.failed, w.executions, w.inferences, w.cache_hits, w.rate, w.fail_rate]
                numbers += [w.busy_seconds, *(b.runs for b in w.batches), *(b.ms_per_run for b in w.batches)]
                numbers += [
                    x for x in (w.request_ms, w.queue_ms, w.infer_ms, w.compute_ms, w.mean_batch) if x is not None
                ]
                assert all(math.isfinite(x) and x >= 0 for x in numbers)
                assert w.success <= claimed[flow.key.name, flow.key.version]


# --------------------------------------------------------------------------------------------------- single counters


def test_counter_rates() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    assert tracker.update(0.0, {"x": 100.0}) == {"x": Rates(None, None)}
    for second in range(1, 41):
        rates = tracker.update(float(second), {"x": 100.0 + 5 * second})
    assert list(rates["x"]) == [pytest.approx(5.0), pytest.approx(5.0)]
    for second in range(41, 51):
        rates = tracker.update(float(second), {"x": 300.0})
    assert list(rates["x"]) == [pytest.approx(0.0), pytest.approx(100 / 30)]
    for second in range(51, 120):
        rates = tracker.update(float(second), {"x": 300.0})
    assert rates["x"] == Rates(0.0, 0.0)
    assert list(tracker.update(120.0, {"x": 310.0})["x"]) == [pytest.approx(1.0), pytest.approx(10 / 30)]


def test_counter_new_reset_and_missing() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    tracker.update(0.0, {"x": 100.0})
    rates = tracker.update(1.0, {"x": 4.0, "new": 7.0})
    assert rates == {"x": Rates(4.0, 4.0), "new": Rates(7.0, 7.0)}
    tracker.update(2.0, {"x": 4.0})
    assert tracker.update(3.0, {"x": 4.0, "new": 9.0})["new"] == Rates(None, None)
    tracker.update(4.0, {"new": 9.0})
    assert tracker.update(5.0, {"x": 1.0, "new": 9.0})["x"] == Rates(1.0, 1.0)


def test_counter_that_is_none_is_left_out_and_a_clock_set_back_starts_again() -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    assert tracker.update(0.0, {"x": math.nan, "y": -1.0, "z": math.inf}) == {}
    tracker.update(1.0, {"x": 5.0})
    assert tracker.update(0.5, {"x": 6.0}) == {"x": Rates(None, None)}


@given(st.lists(st.tuples(st.floats(-5, 60), st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e12)))))
@settings(max_examples=200, deadline=None)
def test_counter_rates_are_never_negative(polls: list[tuple[float, dict[str, float]]]) -> None:
    tracker: MetricsTracker[str] = MetricsTracker()
    now = 0.0
    for pause, values in polls:
        now += pause
        rates = tracker.update(now, values)
        assert set(rates) == set(values)
        for pair in rates.values():
            assert all(x is None or (math.isfinite(x) and x >= 0) for x in pair)
