"""The batcher against figures that were measured or drawn, and against Triton's rules one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.planning.batcher import (
    NS_PER_MS,
    NS_PER_SECOND,
    Batcher,
    Completion,
    Outcome,
    Request,
    Scheduling,
    ServiceTime,
    Statistics,
    poisson_arrivals,
    simulate_poisson,
)

RANKING = ServiceTime(1.2, 0.1)
EVEN = ServiceTime(10, 0)
"""Ten milliseconds whatever the batch size."""


def at(*milliseconds: float, size: int = 1) -> list[Request]:
    return [(int(ms * NS_PER_MS), size, None) for ms in milliseconds]


def sizes(statistics: Statistics) -> dict[int, int]:
    return {size: times.count for size, times in statistics.batches.items()}


@pytest.mark.parametrize(
    ("delay_us", "wait", "compute", "batch", "busy"),
    [(2000, 1.23, 1.71, 4.3, 0.31), (500, 0.40, 1.43, 1.85, 0.61)],
)
def test_the_drawings_figures(delay_us: int, wait: float, compute: float, batch: float, busy: float) -> None:
    """screens.md: ranking under 1650/s Poisson, the run that its drawings come from."""
    scheduling = Scheduling(max_batch_size=16, instances=2, max_queue_delay_us=delay_us)
    figures = simulate_poisson(scheduling, RANKING, 1650, seconds=60, seed=1)
    assert figures.requests_per_second == pytest.approx(1650, rel=0.01)
    assert figures.wait_ms == pytest.approx(wait, abs=0.01)
    assert figures.compute_ms == pytest.approx(compute, abs=0.01)
    assert figures.mean_batch == pytest.approx(batch, rel=0.01)
    assert figures.busy == pytest.approx(busy, abs=0.01)


@pytest.mark.parametrize(
    ("delay_us", "rate", "wait", "batch", "busy"),
    [
        (5000, 20, 5.00, 1.14, 0.13),
        (10000, 150, 7.33, 2.55, 0.47),
        (20000, 150, 12.68, 4.08, 0.32),
        (20000, 300, 11.86, 7.08, 0.44),
    ],
)
def test_near_the_real_server(delay_us: int, rate: float, wait: float, batch: float, busy: float) -> None:
    """screens.md section 4: measured on Triton 2.51.0 over 12 s, so the tolerance is the noise of one short window."""
    scheduling = Scheduling(max_batch_size=16, instances=2, max_queue_delay_us=delay_us)
    figures = simulate_poisson(scheduling, ServiceTime(12.4, 1.1), rate, seconds=200, seed=1)
    assert figures.wait_ms == pytest.approx(wait, rel=0.1)
    assert figures.mean_batch == pytest.approx(batch, rel=0.12)
    assert figures.busy == pytest.approx(busy, abs=0.04)


def test_a_full_batch_leaves_before_its_delay() -> None:
    batcher = Batcher(Scheduling(max_batch_size=4, max_queue_delay_us=50_000), EVEN)
    batcher.run(9 * NS_PER_MS, at(1, 2, 3, 4))
    assert batcher.running == 1
    assert batcher.pending == 0
    batcher.run(20 * NS_PER_MS)
    assert sizes(batcher.statistics) == {4: 1}
    assert batcher.statistics.queue_ns == (3 + 2 + 1 + 0) * NS_PER_MS


def test_an_oldest_request_waits_exactly_the_delay() -> None:
    batcher = Batcher(Scheduling(max_batch_size=4, max_queue_delay_us=5000), EVEN)
    batcher.run(30 * NS_PER_MS, at(1, 2))
    assert sizes(batcher.statistics) == {2: 1}
    assert batcher.statistics.queue_ns == (5 + 4) * NS_PER_MS
    assert batcher.statistics.last_inference_ns == 16 * NS_PER_MS


def test_without_delay_what_is_queued_goes_when_an_instance_frees() -> None:
    batcher = Batcher(Scheduling(max_batch_size=8), EVEN)
    batcher.run(30 * NS_PER_MS, at(1, 2, 3, 4))
    assert sizes(batcher.statistics) == {1: 1, 3: 1}
    assert batcher.statistics.queue_ns == (0 + 9 + 8 + 7) * NS_PER_MS


def test_without_dynamic_batching_each_request_runs_alone() -> None:
    batcher = Batcher(Scheduling(max_batch_size=8, instances=2, dynamic_batching=False), EVEN)
    batcher.run(60 * NS_PER_MS, [*at(1, 1, 1), *at(2, size=4)])
    assert sizes(batcher.statistics) == {1: 3, 4: 1}
    assert batcher.statistics.inference_count == 7
    assert batcher.statistics.execution_count == batcher.statistics.success_count == 4


def test_a_preferred_size_leaves_the_rest_behind_until_it_is_overdue() -> None:
    preferred = Scheduling(max_batch_size=16, max_queue_delay_us=30_000, preferred_batch_sizes=(4, 8))
    batcher = Batcher(preferred, EVEN)
    batcher.run(100 * NS_PER_MS, at(1, 1, 1, 1, 2, 2, 2, 2, 2, 2))
    # 4 leave at once; of the 6 that queue up meanwhile 4 make a preferred size; the last 2 wait out their delay
    assert sizes(batcher.statistics) == {4: 2, 2: 1}
    assert batcher.statistics.last_inference_ns == (2 + 30 + 10) * NS_PER_MS


def test_requests_larger_than_one_are_never_split() -> None:
    batcher = Batcher(Scheduling(max_batch_size=4, max_queue_delay_us=100_000), EVEN)
    batcher.run(50 * NS_PER_MS, at(1, 2, size=3))
    assert sizes(batcher.statistics) == {3: 1}
    assert batcher.pending == 1


def test_a_full_queue_refuses_and_counts_nothing() -> None:
    ends: list[Completion] = []
    batcher = Batcher(Scheduling(max_batch_size=1, max_queue_size=2), EVEN)
    batcher.run(100 * NS_PER_MS, [(NS_PER_MS, 1, ends.append) for _ in range(10)])
    assert batcher.statistics.success_count == 3
    assert batcher.statistics.fail_count == 0
    assert batcher.statistics.refused == 7
    assert [end.outcome for end in ends].count(Outcome.QUEUE_FULL) == 7


def test_a_queue_timeout_fires_late_and_counts_as_rejected() -> None:
    ends: list[Completion] = []
    slow = ServiceTime(3000, 0)
    batcher = Batcher(Scheduling(max_batch_size=1, queue_timeout_us=200_000), slow)
    batcher.run(2 * NS_PER_SECOND, [(0, 1, None), (NS_PER_MS, 1, ends.append)])
    assert [end.outcome for end in ends] == [Outcome.TIMED_OUT]
    assert ends[0].finish_ns == 500 * NS_PER_MS
    assert batcher.statistics.failures["REJECTED"] == 1
    assert batcher.statistics.fail_ns == 499 * NS_PER_MS
    assert batcher.pending == 0


def test_statistics_are_written_when_a_run_ends() -> None:
    batcher = Batcher(Scheduling(max_batch_size=1), EVEN)
    batcher.run(10 * NS_PER_MS, at(1))
    assert batcher.statistics.success_count == 0
    batcher.run(11 * NS_PER_MS)
    assert batcher.statistics.success_count == 1


def test_compute_is_counted_once_per_request_and_busy_once_per_run() -> None:
    batcher = Batcher(Scheduling(max_batch_size=4), EVEN)
    batcher.run(30 * NS_PER_MS, at(1, 2, 3))
    stats = batcher.statistics
    assert stats.input_ns + stats.infer_ns + stats.output_ns == 30 * NS_PER_MS
    assert stats.busy_ns == 20 * NS_PER_MS
    assert stats.success_ns == stats.queue_ns + 30 * NS_PER_MS


def test_scaling_keeps_every_mean() -> None:
    batcher = Batcher(Scheduling(max_batch_size=4), RANKING)
    batcher.run(NS_PER_SECOND, at(*range(1, 900)))
    stats = batcher.statistics
    before = (stats.queue_ns / stats.success_count, stats.busy_ns / stats.execution_count)
    stats.scale(70)
    assert (stats.queue_ns / stats.success_count, stats.busy_ns / stats.execution_count) == before


def test_a_slower_card_stretches_every_run() -> None:
    batcher = Batcher(Scheduling(max_batch_size=1), EVEN)
    batcher.slowdown = 1.5
    batcher.run(NS_PER_SECOND, at(1))
    assert batcher.statistics.busy_ns == 15 * NS_PER_MS


def test_jitter_is_reproducible_and_keeps_the_mean() -> None:
    service = ServiceTime(1.2, 0.1, jitter=0.05)
    scheduling = Scheduling(max_batch_size=16, instances=2)
    first = simulate_poisson(scheduling, service, 500, seconds=20, seed=3)
    assert first == simulate_poisson(scheduling, service, 500, seconds=20, seed=3)
    assert first != simulate_poisson(scheduling, service, 500, seconds=20, seed=4)
    plain = simulate_poisson(scheduling, RANKING, 500, seconds=20, seed=3)
    assert first.compute_ms == pytest.approx(plain.compute_ms, rel=0.01)


def test_no_traffic_gives_no_means() -> None:
    figures = simulate_poisson(Scheduling(max_batch_size=4), RANKING, 0, seconds=1)
    assert figures.wait_ms is figures.compute_ms is figures.mean_batch is None
    assert figures.busy == 0.0


SCHEDULINGS = st.builds(
    Scheduling,
    max_batch_size=st.integers(1, 8),
    instances=st.integers(1, 3),
    dynamic_batching=st.booleans(),
    max_queue_delay_us=st.sampled_from([0, 300, 4000]),
    preferred_batch_sizes=st.sampled_from([(), (2,), (3, 4)]),
    max_queue_size=st.sampled_from([0, 5]),
    queue_timeout_us=st.sampled_from([0, 3000]),
)


@given(SCHEDULINGS, st.integers(0, 10_000), st.integers(1, 400))
def test_reading_more_often_changes_nothing(scheduling: Scheduling, seed: int, steps: int) -> None:
    """The event sequence does not depend on how finely the clock is stepped."""
    end_ns = NS_PER_SECOND // 2
    arrivals = [(ns, 1, None) for ns in poisson_arrivals(random.Random(seed), 800, 0, end_ns)]
    service = ServiceTime(1.5, 0.2, jitter=0.1)
    once = Batcher(scheduling, service, rng=random.Random(seed))
    once.run(end_ns, arrivals)
    often = Batcher(scheduling, service, rng=random.Random(seed))
    for step in range(steps):
        low, high = end_ns * step // steps, end_ns * (step + 1) // steps
        often.run(high, [a for a in arrivals if low <= a[0] < high])
    assert often.statistics == once.statistics
    assert (often.pending, often.running) == (once.pending, once.running)


@given(SCHEDULINGS, st.lists(st.tuples(st.integers(0, 40_000_000), st.integers(1, 3)), max_size=60))
def test_every_request_ends_exactly_once(scheduling: Scheduling, raw: list[tuple[int, int]]) -> None:
    ends: list[Completion] = []
    batcher = Batcher(scheduling, RANKING)
    batcher.run(NS_PER_SECOND * 5, [(ns, size, ends.append) for ns, size in sorted(raw)])
    stats = batcher.statistics
    assert batcher.pending == batcher.running == 0
    assert len(ends) == len(raw) == stats.success_count + stats.fail_count + stats.refused
    assert stats.success_ns == stats.queue_ns + stats.input_ns + stats.infer_ns + stats.output_ns
    assert stats.execution_count == sum(sizes(stats).values())
    assert stats.inference_count == sum(size * count for size, count in sizes(stats).items())
    assert all(size <= max(3, scheduling.max_batch_size) for size in stats.batches)
    done = [end for end in ends if end.outcome is Outcome.SUCCESS]
    assert stats.queue_ns == sum(end.queue_ns for end in done)
    assert all(
        end.finish_ns - end.arrival_ns == end.queue_ns + end.input_ns + end.infer_ns + end.output_ns for end in done
    )


def test_instances_change_while_it_runs() -> None:
    """More start at once; fewer take effect as their runs end, and nothing is lost."""
    batcher = Batcher(Scheduling(max_batch_size=1), ServiceTime(10.0, 0.0))
    batcher.run(0, [(0, 1, None)] * 6)
    assert (batcher.running, batcher.pending) == (1, 5)
    batcher.set_instances(3)
    assert (batcher.running, batcher.pending) == (3, 3)
    batcher.set_instances(1)
    batcher.run(10 * NS_PER_MS)
    assert (batcher.running, batcher.pending) == (1, 2)
    batcher.run(60 * NS_PER_MS)
    assert batcher.statistics.success_count == 6
