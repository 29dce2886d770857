"""A line a minute, and the table of hours that comes of it."""

from __future__ import annotations

from datetime import date

import pytest

from console.core.minutes import (
    FIGURES,
    HEAT_LEAST,
    Minute,
    Rollup,
    hours,
    line_of,
    read_lines,
    same_hours,
)
from tests.fakes.past import seconds

DAY = 86_400
MONDAY = 1_783_296_000
"""2026-07-06 00:00 UTC."""
HEAT = "gpu.0.throttle.heat_software"


def minute(day: int, hour: int, at: int = 0, **figures: float) -> Minute:
    """One of `day` days after that Monday."""
    return Minute(MONDAY + day * DAY + hour * 3600 + at * 60, 60, {HEAT: (figures["heat"],) * 2})


def test_a_minute_has_the_mean_and_the_highest_of_what_was_seen_in_it() -> None:
    rollup, made, seen = Rollup(), [], []
    for snapshot, _ in seconds(400):
        value = snapshot.gpu.value
        assert value is not None
        seen.append((int(snapshot.wall // 60) * 60, value.gpus[0].temp_c or 0.0))
        ended = rollup.add(snapshot)
        if ended is not None:
            made.append(ended)
    assert len(made) >= 5
    for one in made[1:]:
        temps = [temp for at, temp in seen if at == one.t]
        mean, high = one.v["gpu.0.temp_c"]
        assert 55 <= one.s <= 60
        assert mean == pytest.approx(sum(temps) / len(temps), rel=1e-3)
        assert high == max(temps)
        assert not any(".run_ms." in key for key in one.v)


def test_running_totals_are_their_rise_and_begin_anew_at_0() -> None:
    rollup = Rollup()
    for value in (100.0, 103.0, 104.5, 2.0):
        rollup._put(HEAT, value)
    rollup._minute = 0
    assert rollup._take().v[HEAT] == (6.5, 6.5)
    rollup._put(HEAT, 5.0)
    assert rollup._take().v[HEAT] == (3.0, 3.0)


def test_lines_come_back_and_torn_ones_are_passed_over() -> None:
    wanted = [minute(0, 1, heat=1.5), minute(0, 2, heat=0.0)]
    lines = [line_of(one) for one in wanted]
    assert read_lines([lines[0], b"", lines[1][:-5], b"\xff", b"[]", b'{"t":"x"}', lines[1]]) == wanted


def test_hours_sum_and_say_where_nothing_was_recorded() -> None:
    table = hours([minute(0, 14, at, heat=2.0) for at in range(20)] + [minute(1, 3, heat=0.0)], FIGURES[0], utc=True)
    assert list(table) == [date(2026, 7, 6), date(2026, 7, 7)]
    assert table[date(2026, 7, 6)][14] == 40.0
    assert table[date(2026, 7, 6)][13] is None
    assert table[date(2026, 7, 7)][3] == 0.0


def test_means_and_highest_of_an_hour() -> None:
    minutes = [Minute(MONDAY + at * 60, 60, {"gpu.0.temp_c": (50.0 + at, 60.0 + at)}) for at in range(3)]
    (_, row), *_ = hours(minutes, FIGURES[2], utc=True).items()
    assert row[0] == 62.0
    minutes = [Minute(MONDAY + at * 60, 60, {"gpu.0.util_pct": (50.0 + at, 99.0)}) for at in range(3)]
    (_, row), *_ = hours(minutes, FIGURES[3], utc=True).items()
    assert row[0] == 51.0


def test_the_same_hours_are_those_of_every_recorded_day() -> None:
    warm = [minute(day, hour, heat=30.0) for day in range(3) for hour in (15, 16)]
    once = [minute(0, 9, heat=30.0), minute(1, 9, heat=0.0), minute(2, 20, heat=30.0)]
    table = hours(warm + once, FIGURES[0], utc=True)
    assert same_hours(table, HEAT_LEAST) == (15, 16)
    assert same_hours(hours([minute(0, 15, heat=30.0)], FIGURES[0], utc=True), HEAT_LEAST) == (), "one day is no habit"
