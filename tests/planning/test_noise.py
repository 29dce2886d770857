"""The error of a mean and the verdict of two windows, held against the exact table and against simulated traffic."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from console.planning import noise
from console.planning.batcher import Batcher, Scheduling, ServiceTime, poisson_arrivals
from console.planning.noise import Slice, estimate, is_like_load, judge, quantile_t

TABLE = {4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 15: 2.131, 30: 2.042, 120: 1.980}
"""Student's t, two-sided 95 %, as any table of it has."""


@pytest.mark.parametrize(("freedom", "value"), TABLE.items())
def test_students_t(freedom: int, value: float) -> None:
    assert quantile_t(freedom) == pytest.approx(value, rel=0.004)


def even(rate: int, means: Sequence[float]) -> list[Slice]:
    """A slice of a second for each mean."""
    return [Slice(1.0, rate, rate * mean) for mean in means]


def test_the_mean_is_by_requests_and_not_by_slices() -> None:
    found = estimate([Slice(1.0, 90, 90.0), *[Slice(1.0, 2, 20.0)] * 5])
    assert found is not None
    assert found.mean == pytest.approx(190 / 100)


def test_slices_without_requests_tell_nothing() -> None:
    assert estimate([Slice(1.0, 0, 0.0)] * 20) is None
    assert estimate([*even(10, [1, 2, 3, 4]), *[Slice(1.0, 0, 0.0)] * 6]) is None


def test_slices_that_hang_together_widen_the_error() -> None:
    alternating, in_waves = even(50, [1.0, 2.0] * 20), even(50, [1.0] * 10 + [2.0] * 10 + [1.0] * 10 + [2.0] * 10)
    one, other = estimate(alternating), estimate(in_waves)
    assert one is not None
    assert other is not None
    assert other.error > 2 * one.error


JITTER = [9.7, 10.3, 10.0, 9.9, 10.1, 10.2, 9.8, 10.0, 10.1, 9.9]


@pytest.mark.parametrize(
    ("rate", "scale", "words"),
    [
        (100, 0.8, "better: mean 10.00 → 8.00 ms"),
        (109, 1.2, "worse: mean 10.00 → 12.00 ms"),
        (100, 1.01, "no difference: mean 10.00 → 10.10 ms"),
        (100, 1.001, "no difference"),
        (140, 0.5, "better: mean 10.00 → 5.00 ms (-5.00 ±0.14), and the load went from 100 to 140/s"),
        (140, 1.3, "not to be compared: the load went from 100 to 140/s"),
        (60, 0.5, "not to be compared: the load went from 100 to 60/s"),
        (60, 1.5, "worse: mean 10.00 → 15.00 ms"),
    ],
)
def test_the_verdict(rate: int, scale: float, words: str) -> None:
    found = judge(even(100, JITTER), even(rate, [scale * one for one in JITTER]))
    assert found.text.startswith(words)
    assert found.text.startswith(found.word)
    assert ";" not in found.text


def test_what_noise_can_have_made_is_no_difference() -> None:
    wild = [2.0, 30.0, 5.0, 11.0, 3.0, 22.0, 9.0, 1.0, 14.0, 3.0]
    assert judge(even(100, wild), even(100, [1.2 * one for one in wild])).word == "no difference"


def test_few_requests_are_not_judged() -> None:
    assert "hardly any" in judge([Slice(1.0, 1, 3.0)], even(10, JITTER)).text
    few = [Slice(0.2, count, 10.0 * count) for count in (3, 0, 0, 2, 0, 0, 0, 0, 0, 4)]
    assert (
        judge(few, even(10, JITTER)).text
        == "not known: too few requests, or too short a time, to tell a difference from chance"
    )


def test_rates_of_few_requests_differ_by_chance() -> None:
    assert is_like_load(even(5, [1.0, 1.0]), even(7, [1.0, 1.0]))
    assert not is_like_load(even(500, [1.0, 1.0]), even(700, [1.0, 1.0]))


def windows(seed: int, *, delay_us: int, seconds: int = 20, rate: float = 150.0) -> list[Slice]:
    """Slices of half a second of the batcher under Poisson traffic, after two seconds of it."""
    rng = random.Random(seed)
    service = ServiceTime(12.0, 1.0, jitter=0.05)
    batcher = Batcher(Scheduling(8, 2, max_queue_delay_us=delay_us), service, rng=random.Random(seed + 1))
    arrivals = iter(poisson_arrivals(rng, rate, 0, (seconds + 2) * 10**9))
    made: list[Slice] = []
    at, late = 0, next(arrivals, None)
    before = (0, 0)
    for step in range(2 * (seconds + 2)):
        at = (step + 1) * 5 * 10**8
        due = []
        while late is not None and late < at:
            due.append((late, 1, None))
            late = next(arrivals, None)
        batcher.run(at, due)
        now = (batcher.statistics.success_count, batcher.statistics.success_ns)
        if step >= 4:
            made.append(Slice(0.5, now[0] - before[0], (now[1] - before[1]) / 1e6))
        before = now
    return made


def test_the_same_setting_twice_is_hardly_ever_told_a_difference() -> None:
    told = [judge(windows(seed, delay_us=2000), windows(seed + 500, delay_us=2000)).word for seed in range(100)]
    assert told.count("better") + told.count("worse") <= 8, "5 of 100 by the interval's own promise"


def test_a_difference_that_is_there_is_found() -> None:
    told = [judge(windows(seed, delay_us=500), windows(seed + 500, delay_us=6000)).word for seed in range(40)]
    assert told.count("worse") >= 38


def test_of_equal_slices_nothing_is_chance() -> None:
    found = noise.difference(*(estimate(even(10, [mean] * 8)) or pytest.fail("none") for mean in (4.0, 5.0)))
    assert (found.change, found.margin, found.is_chance) == (1.0, 0.0, False)
