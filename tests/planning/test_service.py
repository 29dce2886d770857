"""Service times by batch size: what was seen, what is told of sizes that were not, and how surely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.planning.service import Seen, curve, line


def seen(*points: tuple[int, int, float]) -> list[Seen]:
    return [Seen(size, runs, ms, 1) for size, runs, ms in points]


def test_on_a_line_it_is_the_line_everywhere() -> None:
    told = curve(seen((1, 300, 5.3), (2, 200, 5.6), (4, 50, 6.2), (7, 3, 7.1)), 32)
    assert [told.ms[n] for n in (1, 3, 7, 16, 32)] == pytest.approx([5.3, 5.9, 7.1, 9.8, 14.6])
    assert told.low[32] == pytest.approx(told.high[32], abs=0.01)
    assert (told.smallest, told.largest, told.sizes) == (1, 7, 4)


def test_a_mean_of_few_runs_is_evened_towards_the_line() -> None:
    told = curve(seen((1, 1000, 5.0), (2, 1000, 6.0), (3, 1, 12.0), (4, 1000, 8.0)), 4)
    assert told.ms[3] == pytest.approx(7.0, abs=0.5)


def test_a_mean_of_many_runs_stands_though_it_is_off_the_line() -> None:
    """A card takes the same for 5 to 8 where it works in eights."""
    told = curve(seen((1, 5000, 5.0), (4, 5000, 5.2), (5, 5000, 9.0), (8, 5000, 9.1)), 8)
    assert told.ms[4] == pytest.approx(5.2, abs=0.02)
    assert told.ms[5] == pytest.approx(9.0, abs=0.02)


def test_scatter_widens_the_bounds_and_more_so_beyond_what_was_seen() -> None:
    told = curve(seen((1, 50, 5.0), (2, 50, 6.5), (3, 50, 6.1), (4, 50, 8.2)), 32)
    assert told.high[3] - told.low[3] > 0.3
    assert told.high[32] - told.low[32] > 4 * (told.high[3] - told.low[3])


def test_of_one_size_larger_ones_gain_nothing_but_might() -> None:
    told = curve(seen((2, 100, 6.0)), 8)
    assert told.ms[8] == pytest.approx(24.0)
    assert (told.low[8], told.high[8]) == pytest.approx((6.0, 24.0))
    assert told.low[1] <= told.ms[1] <= told.high[1] == pytest.approx(6.0)


def test_two_sizes_tell_a_line_but_not_how_surely() -> None:
    told = curve(seen((1, 100, 5.0), (2, 100, 6.0)), 4)
    assert told.ms[4] == pytest.approx(8.0)
    assert told.low[4] <= 6.0
    assert told.high[4] >= 12.0
    assert line(seen((1, 100, 5.0), (2, 100, 6.0))).error(4) is None


@given(
    st.dictionaries(
        st.integers(1, 40),
        st.tuples(st.integers(1, 10_000), st.floats(0.01, 1000)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 64),
)
def test_whatever_was_seen_times_rise_and_lie_within_their_bounds(
    found: dict[int, tuple[int, float]], largest: int
) -> None:
    told = curve([Seen(size, runs, ms, 1) for size, (runs, ms) in found.items()], largest)
    assert len(told.ms) == len(told.low) == len(told.high) == largest + 1
    for n in range(1, largest + 1):
        assert told.ms[n] > 0
        assert told.low[n] <= told.ms[n] * (1 + 1e-9)
        assert told.ms[n] <= told.high[n] * (1 + 1e-9)
        assert n == 1 or told.ms[n - 1] <= told.ms[n] * (1 + 1e-9)
