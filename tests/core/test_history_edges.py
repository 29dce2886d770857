"""Where slots, columns and spans begin and end."""

from __future__ import annotations

import math

from console.core.history import COARSE_SLOTS, COARSE_STEP, FINE_SLOTS, NAN, History, Series


def series_of(*samples: tuple[float, float]) -> Series:
    series = Series()
    for mono, value in samples:
        series.put(mono, value)
    return series


def test_ten_minutes_of_seconds_and_an_hour_of_ten_seconds() -> None:
    assert (FINE_SLOTS, COARSE_SLOTS * COARSE_STEP) == (600, 3600)
    series = series_of(*((float(second), float(second)) for second in range(4000)))
    assert series.values(3999, 600) == [float(second) for second in range(3400, 4000)]
    coarse = series.values(3999, 601)
    assert coarse[-1] == 3999.0
    assert coarse[0] == 3409.0, "ten seconds' slots, each with its highest"
    assert len(series.values(3999, 3600)) == 360
    assert math.isnan(NAN)


def test_values_begin_after_the_span_and_end_with_now() -> None:
    series = series_of((100, 1.0), (101, 2.0), (102, 3.0))
    assert series.values(102, 2) == [2.0, 3.0]
    assert series.values(102, 3) == [1.0, 2.0, 3.0]
    assert series.values(101, 1) == [2.0]


def test_columns_are_of_whole_steps_of_at_least_a_second() -> None:
    series = series_of((100, 1.0), (101, 2.0), (102, 3.0))
    assert series.columns(102, 0.2, 3) == [1.0, 2.0, 3.0]
    assert series.columns(102, 1.4, 3) == [1.0, 2.0, 3.0]
    assert series.columns(103, 2, 2) == [2.0, 3.0]
    assert series.columns(102, 1, 0) == []


def test_wide_charts_of_short_steps_use_the_seconds_as_far_as_they_reach() -> None:
    """Below ten seconds a step cannot be drawn from ten seconds' slots."""
    series = series_of(*((float(second), float(second)) for second in range(700)))
    columns = series.columns(699, 5, 140)
    assert columns[-1] == 699.0
    assert columns[-120] == 104.0
    assert columns[0] is None
    exact = series.columns(699, 10, 60)
    assert exact[0] == 109.0
    longer = series.columns(699, 10, 61)
    assert longer[0] == 99.0, "61 columns reach further back than the seconds"


def test_a_sample_out_of_order_counts_while_its_slot_is_kept() -> None:
    series = series_of((1000, 5.0), (995, 7.0), (995, 6.0))
    assert series.columns(1000, 1, 6) == [7.0, None, None, None, None, 5.0]
    late = series_of((1000, 5.0), (401, 7.0), (400, 9.0))
    assert late.columns(1000, 1, 600)[0] == 7.0
    assert late.columns(1000, 1, 601)[0] is None


def test_a_ring_that_went_round_holds_nothing_old() -> None:
    series = series_of(*((float(second), 9.0) for second in range(600)))
    series.put(602, 1.0)
    assert series.columns(602, 1, 5) == [9.0, 9.0, None, None, 1.0]
    series = series_of(*((float(second), 9.0) for second in range(600)))
    series.put(1199, 1.0)
    assert series.values(1199, 600) == [1.0]


def test_negative_peaks_are_kept_too() -> None:
    series = series_of((10, -5.0), (10.5, -3.0), (11, -9.0))
    assert series.columns(11, 2, 1) == [-3.0]


def test_nothing_before_the_first_sample() -> None:
    assert Series().columns(100, 1, 3) == [None, None, None]
    assert Series().values(100, 3) == []
    assert series_of((50, 1.0)).columns(52, 1, 5) == [None, None, 1.0, None, None]


def test_the_last_sample_is_told() -> None:
    series = series_of((10, 1.0), (11, 2.0), (12, float("inf")), (13, float("-inf")), (14, float("nan")))
    assert (series.last, series.last_mono) == (2.0, 11)


def test_a_dropped_series_stays_dropped_and_the_known_ones_go_on() -> None:
    history = History()
    history.record(1.0, dict.fromkeys((f"s{number}" for number in range(history.MAX_SERIES)), 1.0))
    history.record(2.0, {"new": 1.0, "s0": None, "s1": 2.0})
    assert history.series("new") is None
    assert history.values("s1", 2.0, 1.0) == [2.0]
    assert history.values("s0", 2.0, 1.0) == []
    assert history.MAX_SERIES == 8000


def test_forget_keeps_what_was_written_at_that_moment() -> None:
    history = History()
    history.record(5.0, {"a": 1.0, "never": float("nan")})
    history.record(6.0, {"b": 1.0})
    history.forget(5.0)
    assert history.keys() == ("a", "b")
    history.forget(5.5)
    assert history.keys() == ("b",)
