"""Series keep peaks, tell gaps from zeros and move one column at a time."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from console.core.history import COARSE_SLOTS, COARSE_STEP, FINE_SLOTS, History, Series


def test_a_column_shows_its_highest_sample() -> None:
    series = Series()
    for second, value in enumerate([1, 9, 2, 3, 4, 5]):
        series.put(1000 + second, value)
    assert series.columns(1005, 5, 2) == [9, 5]


def test_a_gap_is_none_and_zero_is_zero() -> None:
    series = Series()
    series.put(1000, 0)
    series.put(1010, 5)
    assert series.columns(1010, 5, 3) == [0, None, 5]


def test_only_the_last_column_changes_within_its_step() -> None:
    series = Series()
    for second in range(60):
        series.put(2000 + second, second)
    before = series.columns(2059, 5, 10)
    series.put(2059.5, 100)
    after = series.columns(2059.9, 5, 10)
    assert before[:-1] == after[:-1]
    assert after[-1] == 100


def test_an_hour_is_kept_in_ten_second_slots() -> None:
    series = Series()
    for second in range(3600):
        series.put(second, 1 if second != 60 else 50)
    columns = series.columns(3599, 60, 60)
    assert len(columns) == 60
    assert columns[1] == 50
    assert all(value is not None for value in columns)


def test_old_slots_do_not_come_back_after_a_long_gap() -> None:
    series = Series()
    series.put(0, 7)
    series.put(FINE_SLOTS * 3 + 2, 1)
    assert series.columns(FINE_SLOTS * 3 + 2, 1, 100)[:-1] == [None] * 99


def test_values_leave_gaps_out() -> None:
    series = Series()
    for second in (100, 101, 105):
        series.put(second, second)
    assert series.values(105, 5) == [101, 105]


def test_history_ignores_none_and_what_is_no_number() -> None:
    history = History()
    history.record(10, {"a": None, "b": 1.0, "c": float("nan"), "d": float("inf")})
    assert history.series("a") is None
    assert history.series("b") is not None
    assert history.columns("c", 10, 1, 2) == [None, None]
    assert history.columns("unknown", 10, 1, 2) == [None, None]
    assert history.values("unknown", 10, 5) == []


def test_history_is_bounded_and_forgets() -> None:
    history = History()
    history.record(1, {f"s{n}": 1.0 for n in range(History.MAX_SERIES + 50)})
    assert len(history.keys()) == History.MAX_SERIES
    history.record(100, {"s1": 2.0})
    history.forget(50)
    assert history.keys() == ("s1",)


def test_series_without_a_sample_left_make_room_for_new_ones() -> None:
    history = History()
    history.record(1, {f"s{n}": 1.0 for n in range(History.MAX_SERIES)})
    history.record(100, {"s1": 2.0, "new": 1.0})
    assert history.series("new") is None
    history.record(3602, {"new": 1.0})
    assert history.keys() == ("s1", "new")


@given(st.lists(st.tuples(st.floats(0, 10_000), st.floats(-1e6, 1e6, width=32)), max_size=60))
def test_any_order_of_samples_gives_samples_that_were_put(samples: list[tuple[float, float]]) -> None:
    series = Series()
    for mono, value in samples:
        series.put(mono, value)
    put = {value for _, value in samples}
    now = max((mono for mono, _ in samples), default=0.0)
    for step, width in ((1, 50), (5, 120), (COARSE_STEP, COARSE_SLOTS)):
        for column in series.columns(now, step, width):
            assert column is None or (column in put and math.isfinite(column))
