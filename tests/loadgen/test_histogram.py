"""Percentiles against the sorted list, merge against the whole, and its text form."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.loadgen.histogram import LONGEST_US, Histogram

latencies = st.lists(st.integers(1, 10_000_000), min_size=1, max_size=200)


def made(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@settings(max_examples=50, deadline=None)
@given(latencies)
def test_figures_are_those_of_the_sorted_list_within_a_thousandth(values: list[int]) -> None:
    figures, ordered = made(values).latency(), sorted(values)
    assert figures.count == len(values)
    assert figures.mean == pytest.approx(sum(values) / len(values) / 1e3)
    assert figures.max == pytest.approx(ordered[-1] / 1e3, rel=2e-3)
    for q, found in ((50, figures.p50), (90, figures.p90), (95, figures.p95), (99, figures.p99), (99.9, figures.p99_9)):
        rank = max(1, int(q / 100 * len(ordered) + 0.5))
        near = ordered[max(0, rank - 2) : rank + 1]
        assert found is not None
        assert min(near) * 0.998 <= found * 1e3 <= max(near) * 1.002


@settings(max_examples=30, deadline=None)
@given(latencies, latencies)
def test_merged_is_as_recorded_together(first: list[int], second: list[int]) -> None:
    merged = made(first)
    merged.add(made(second))
    assert merged.latency() == made(first + second).latency()


@settings(max_examples=30, deadline=None)
@given(latencies)
def test_its_text_gives_it_back(values: list[int]) -> None:
    histogram = made(values)
    assert Histogram.decoded(histogram.encoded(), histogram.sum_us).latency() == histogram.latency()


def test_an_empty_one_has_no_figures() -> None:
    empty = Histogram()
    assert empty.latency().p99 is None
    assert empty.percentile(50) is None
    assert empty.shares([1.0]) == []
    again = Histogram.decoded(empty.encoded(), 0)
    again.add(Histogram())
    assert again.count == 0


def test_out_of_range_is_kept_at_the_end_of_the_range() -> None:
    histogram = made([0, -5, 2 * LONGEST_US])
    assert histogram.count == 3
    assert histogram.latency().max == pytest.approx(LONGEST_US / 1e3, rel=2e-3)


def test_shares_sum_to_one() -> None:
    assert made([500, 1500, 1600, 9000]).shares([1.0, 2.0]) == [0.25, 0.5, 0.25]


def test_failed_requests_count_as_slower_than_all() -> None:
    histogram = made([1000] * 98)
    assert histogram.percentile_of(95, 2) == pytest.approx(1.0, rel=2e-3)
    assert histogram.percentile_of(99, 2) is None
    assert histogram.percentile_of(99, 0) == pytest.approx(1.0, rel=2e-3)
    assert Histogram().percentile_of(99, 5) is None


@pytest.mark.parametrize("text", ["", "abc", "!!!!", "HISTFAAAAA", "HISTFAAAABh4nA==", "€"])
def test_a_damaged_text_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"no histogram|codec"):
        Histogram.decoded(text, 0)
