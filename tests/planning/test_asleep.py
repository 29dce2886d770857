"""What a queue policy costs: against the plain batcher, and against what was measured on a real Triton."""

from __future__ import annotations

import random

import pytest

from console.planning.asleep import Asleep
from console.planning.batcher import NS_PER_MS, NS_PER_SECOND, Batcher, Scheduling, ServiceTime, poisson_arrivals

SLOW = ServiceTime(60, 5)
SPAN = 100 * NS_PER_SECOND


def served(batcher: Batcher, rate: float) -> float:
    """Requests a second."""
    arrivals = poisson_arrivals(random.Random(1), rate, 0, SPAN)
    batcher.run(SPAN, ((at, 1, None) for at in arrivals))
    return batcher.statistics.success_count / 100


@pytest.mark.parametrize("limit", [0, 4, 64])
def test_who_misses_nothing_is_the_plain_batcher(limit: int) -> None:
    scheduling = Scheduling(8, max_queue_delay_us=2000, max_queue_size=limit)
    plain, other = Batcher(scheduling, SLOW), Asleep(scheduling, SLOW, misses=0.0)
    served(plain, 70)
    served(other, 70)
    assert other.statistics == plain.statistics


@pytest.mark.parametrize(
    ("rate", "limit", "measured"),
    [(100, 64, 46), (100, 16, 48), (100, 8, 37), (100, 4, 24), (150, 64, 44), (150, 16, 39), (150, 4, 24)],
)
def test_a_full_queue_wastes_the_instance_as_it_was_measured(rate: float, limit: int, measured: float) -> None:
    """screens.md section 4, Triton 2.51.0: offered more than the 78/s that it can do, it serves half of that."""
    batcher = Asleep(Scheduling(8, max_queue_size=limit), SLOW, misses=0.25, rng=random.Random(2))
    assert served(batcher, rate) == pytest.approx(measured, rel=0.25)
    assert batcher.statistics.busy_ns / SPAN < 0.65


def test_without_a_limit_the_next_request_wakes_it() -> None:
    batcher = Asleep(Scheduling(8, queue_timeout_us=10_000_000), SLOW, misses=0.25, rng=random.Random(2))
    assert served(batcher, 70) == pytest.approx(70, rel=0.05)


def test_it_wakes_by_itself_half_a_second_after_the_run_began() -> None:
    batcher = Asleep(Scheduling(1, max_queue_size=1), ServiceTime(10, 0), misses=1.0)
    batcher.run(499 * NS_PER_MS, [(at * NS_PER_MS, 1, None) for at in (0, 1, 2)])
    assert (batcher.running, batcher.pending, batcher.statistics.refused) == (0, 1, 1)
    batcher.run(505 * NS_PER_MS)
    assert (batcher.running, batcher.pending) == (1, 0)
