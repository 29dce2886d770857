"""Histograms: differences of buckets by the rules of all counters; percentiles claim no more than buckets show."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.histograms import SPAN, STEP, Buckets, Estimate, HistogramTracker, quantile, together
from console.core.model import Histogram, ModelKey

KEY = ModelKey("m", "1")


def page(*values: float, bounds: tuple[float, ...] = (10.0, 50.0, inf), labels: str = "") -> Buckets:
    return Buckets("f_ms", KEY, labels, tuple(zip(bounds, values, strict=True)))


def told(*counts: float, bounds: tuple[float, ...] = (10.0, 50.0)) -> Histogram:
    return Histogram("f_ms", KEY, "", 60.0, bounds, counts)


# ---------------------------------------------------------------------------------------------------------- windows


def test_the_first_page_is_a_baseline_and_the_second_a_difference() -> None:
    tracker = HistogramTracker()
    (first,) = tracker.update(100.0, [page(1, 2, 3)])
    assert (first.span, first.counts, first.bounds) == (0.0, (0, 0, 0), (10.0, 50.0))
    (second,) = tracker.update(101.5, [page(2, 5, 7)])
    assert (second.span, second.counts, second.total) == (1.5, (1, 2, 1), 4)
    assert (second.family, second.model, second.labels) == ("f_ms", KEY, "")


def test_a_series_that_is_new_later_began_at_zero() -> None:
    tracker = HistogramTracker()
    tracker.update(100.0, [])
    (one,) = tracker.update(101.0, [page(1, 1, 4)])
    assert (one.span, one.counts) == (1.0, (1, 0, 3))


def test_a_fall_is_a_new_beginning_and_nothing_is_lost() -> None:
    tracker = HistogramTracker()
    tracker.update(100.0, [page(5, 5, 5)])
    tracker.update(101.0, [page(7, 7, 7)])
    (one,) = tracker.update(102.0, [page(1, 3, 3)])
    assert (one.span, one.counts) == (2.0, (3, 2, 0))


def test_a_gap_is_no_zero() -> None:
    tracker = HistogramTracker()
    tracker.update(100.0, [page(5, 5, 5)])
    tracker.update(101.0, [])
    (back,) = tracker.update(102.0, [page(9, 9, 9)])
    assert (back.span, back.total) == (0.0, 0)
    tracker.update(103.0, [])
    (anew,) = tracker.update(104.0, [page(2, 2, 2)])
    assert (anew.span, anew.counts) == (1.0, (2, 0, 0))


def test_other_buckets_are_a_baseline() -> None:
    tracker = HistogramTracker()
    tracker.update(100.0, [page(5, 5, 5)])
    (one,) = tracker.update(101.0, [page(9, 9, 9, bounds=(10.0, 20.0, inf))])
    assert (one.span, one.total, one.bounds) == (0.0, 0, (10.0, 20.0))


def test_the_window_is_a_minute_and_at_most_a_step_more() -> None:
    tracker = HistogramTracker()
    spans = []
    for second in range(200):
        (one,) = tracker.update(100.0 + second, [page(second, second, second)])
        spans.append(one.span)
        assert one.counts == (one.span, 0, 0)
    assert spans[:3] == [0.0, 1.0, 2.0]
    assert all(SPAN <= span < SPAN + STEP for span in spans[70:])


def test_a_still_histogram_keeps_its_object() -> None:
    tracker = HistogramTracker()
    shown = [tracker.update(100.0 + second, [page(4, 5, 6)])[0] for second in range(80)]
    assert shown[-1] is shown[65]
    (moved,) = tracker.update(180.0, [page(4, 5, 7)])
    assert moved.counts == (0, 0, 1)


def test_two_reads_at_once_have_no_window_and_a_clock_set_back_starts_over() -> None:
    tracker = HistogramTracker()
    tracker.update(100.0, [page(1, 1, 1)])
    assert tracker.update(100.05, [page(2, 2, 2)])[0].span == 0.0
    assert tracker.update(50.0, [page(3, 3, 3)])[0].total == 0


@pytest.mark.parametrize("values", [(1.0, nan, 2.0), (1.0, 2.0, inf), (-1.0, 2.0, 3.0)])
def test_what_no_counts_can_be_is_left_out(values: tuple[float, float, float]) -> None:
    assert HistogramTracker().update(1.0, [page(*values)]) == ()
    assert HistogramTracker().update(1.0, [Buckets("f", None, "", ())]) == ()


def test_without_an_infinite_bucket_nothing_lies_beyond() -> None:
    tracker = HistogramTracker()
    tracker.update(1.0, [page(0, 0, bounds=(1.0, 2.0))])
    (one,) = tracker.update(2.0, [page(1, 3, bounds=(1.0, 2.0))])
    assert (one.bounds, one.counts) == ((1.0, 2.0), (1, 2, 0))


def test_a_page_written_while_it_counts_has_no_negative_bucket() -> None:
    tracker = HistogramTracker()
    tracker.update(1.0, [page(0, 0, 0)])
    (one,) = tracker.update(2.0, [page(3, 2, 4)])
    assert one.counts == (3, 0, 1)


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=2, max_size=40))
def test_all_that_was_counted_is_in_the_window(steps: list[list[int]]) -> None:
    tracker = HistogramTracker()
    cumulative, sums = [0, 0, 0], [0, 0, 0]
    tracker.update(0.0, [page(*cumulative)])
    for second, step in enumerate(steps, start=1):
        sums = [a + b for a, b in zip(sums, step, strict=True)]
        cumulative = [sums[0], sums[0] + sums[1], sum(sums)]
        (one,) = tracker.update(float(second), [page(*cumulative)])
    assert list(one.counts) == sums
    assert one.span == len(steps)


# ---------------------------------------------------------------------------------------------------- percentiles


@pytest.mark.parametrize(
    ("counts", "q", "wanted"),
    [
        ((0, 100, 0), 0.5, Estimate(30.0, 50.0, 10.0)),
        ((50, 50, 0), 0.75, Estimate(30.0, 50.0, 10.0)),
        ((50, 50, 0), 0.5, Estimate(None, 10.0, None)),
        ((100, 0, 0), 0.99, Estimate(None, 10.0, None)),
        ((0, 0, 100), 0.5, Estimate(None, None, 50.0)),
        ((50, 48, 2), 0.99, Estimate(None, None, 50.0)),
        ((0, 99, 0), 0.99, None),
        ((0, 0, 0), 0.5, None),
        ((0, 1, 0), 0.5, None),
        ((0, 2, 0), 0.5, Estimate(30.0, 50.0, 10.0)),
    ],
)
def test_percentiles(counts: tuple[float, ...], q: float, wanted: Estimate | None) -> None:
    assert quantile(told(*counts), q) == wanted


def test_without_a_finite_bucket_there_is_no_percentile() -> None:
    assert quantile(told(100, bounds=()), 0.5) is None


@given(
    st.lists(st.floats(0.01, 99.99), min_size=100, max_size=400),
    st.lists(st.integers(1, 90), min_size=1, max_size=8, unique=True).map(sorted),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values: list[float], bounds: list[int], q: float) -> None:
    counts = [0.0] * (len(bounds) + 1)
    for value in values:
        counts[next((at for at, bound in enumerate(bounds) if value <= bound), len(bounds))] += 1
    ordered = sorted(values)
    rank = q * len(values)
    true = ordered[min(len(values), max(1, -(-rank // 1).__int__())) - 1]
    found = quantile(told(*counts, bounds=tuple(map(float, bounds))), q)
    assert found is not None
    low = found.more_than if found.more_than is not None else 0.0
    high = found.at_most if found.at_most is not None else inf
    assert low <= true <= high
    assert found.value is None or low <= found.value <= high


def test_series_of_one_model_are_added() -> None:
    assert together([]) is None
    one, two = told(1, 2, 3), told(10, 0, 1)
    assert together([one]) is one
    both = together([one, two])
    assert both is not None
    assert both.counts == (11, 2, 4)
    assert together([one, told(1, 2, 3, bounds=(1.0, 2.0))]) is None
