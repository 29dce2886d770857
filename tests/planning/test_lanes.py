"""The fast engine against the plain ones, the same arrivals and the same batches; and against what was measured."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from console.planning import lanes
from console.planning.ahead import Ahead
from console.planning.batcher import NS_PER_MS, Batcher, OnDone, Scheduling, ServiceTime, poisson_arrivals

REQUESTS = 3000
END = 100
"""Of the last ones, batches end as nobody comes any more."""


def table(base: float, item: float, largest: int) -> list[float]:
    return [0.0] + [base + item * n for n in range(1, largest + 1)]


def drawn(seed: int, *, delays: Sequence[float], instances: Sequence[int]) -> list[lanes.Lane]:
    """Settings and loads that have little in common."""
    chance = random.Random(seed)
    made = []
    for _ in range(12):
        largest, count = chance.choice([1, 2, 4, 8, 16, 32]), chance.choice(instances)
        held = table(chance.uniform(1, 15), chance.uniform(0.05, 1.5), largest)
        rate = chance.choice([0.3, 0.6, 0.85]) * count * largest / held[largest]
        made.append(lanes.Lane(chance.randrange(3), largest, count, chance.choice(delays), 1 / rate, held))
    return made


def arrivals_ms(lane: lanes.Lane, streams: lanes.Streams) -> list[float]:
    own = streams.flat[lane.stream * streams.width :][: streams.length] - streams.offset * lane.stream
    return [float(one) for one in own * lane.gap]


def batcher_latencies(lane: lanes.Lane, streams: lanes.Streams) -> list[float]:
    """In the order of arrival, by the batcher that decides as an instance frees."""
    told: list[tuple[int, int]] = []

    class Table(ServiceTime):
        def split_ns(self, size: int, factor: float = 1.0) -> tuple[int, int, int]:
            return 0, round(lane.held[size] * NS_PER_MS), 0

    batcher = Batcher(Scheduling(lane.largest, lane.instances, dynamic_batching=lane.largest > 1), Table(0, 0))
    at = [round(one * NS_PER_MS) for one in arrivals_ms(lane, streams)]
    done: OnDone = lambda one: told.append((one.arrival_ns, one.finish_ns))  # noqa: E731
    batcher.run(at[-1] + 10**13, [(one, 1, done) for one in at])
    return [(finish - arrival) / NS_PER_MS for arrival, finish in sorted(told)]


def ahead_latencies(lane: lanes.Lane, streams: lanes.Streams) -> tuple[list[float], list[int]]:
    """In the order of arrival, and the size of each run, by the plain form."""
    delay = 0.0 if lane.largest == 1 else lane.delay
    at = arrivals_ms(lane, streams)
    last = [at[-1] + 1e9 * n for n in range(1, 3)]  # so long after that all before is done
    runs = Ahead(lane.largest, lane.instances, delay, lane.held.__getitem__).run([*at, *last])
    told = sorted((one, run.start + run.held - one) for run in runs for one in run.arrivals if one <= at[-1])
    return [latency for _, latency in told], [len(run.arrivals) for run in runs]


def mean_batch(told: lanes.Told) -> float:
    return float(told.sizes @ np.arange(len(told.sizes))) / told.runs


@pytest.mark.parametrize("seed", range(6))
def test_without_a_delay_each_request_takes_what_the_plain_batcher_says(seed: int) -> None:
    streams = lanes.Streams(3, REQUESTS, 80, seed=seed)
    some = drawn(seed, delays=[0.0], instances=[1, 2, 3])
    for lane, told in zip(some, lanes.run(some, streams), strict=True):
        own = told.latencies[:-END]
        for expected in (batcher_latencies(lane, streams), ahead_latencies(lane, streams)[0]):
            assert own == pytest.approx(expected[REQUESTS - len(told.latencies) : -END], abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_one_instance_with_a_delay_is_the_plain_form(seed: int) -> None:
    """All but few requests take the same; a tie of two events is what may differ."""
    streams = lanes.Streams(3, REQUESTS, 80, seed=seed)
    some = drawn(seed, delays=[0.5, 1, 2, 5], instances=[1])
    for lane, told in zip(some, lanes.run(some, streams), strict=True):
        expected, _ = ahead_latencies(lane, streams)
        same = np.isclose(told.latencies[:-END], expected[REQUESTS - len(told.latencies) : -END], atol=1e-6)
        assert same.mean() > 0.9
        assert float(told.latencies[:-END].mean()) == pytest.approx(np.mean(expected[300:-END]), rel=0.005)


@pytest.mark.parametrize("seed", range(6))
def test_several_instances_with_a_delay_are_near_the_plain_form(seed: int) -> None:
    """What is left out (module docstring) is a few percent, and only near full."""
    streams = lanes.Streams(3, REQUESTS, 80, seed=seed)
    some = drawn(seed, delays=[0.5, 1, 2, 5], instances=[2, 3])
    for lane, told in zip(some, lanes.run(some, streams), strict=True):
        expected, sizes = ahead_latencies(lane, streams)
        assert float(told.latencies.mean()) == pytest.approx(np.mean(expected[300:]), rel=0.06)
        assert float(np.percentile(told.latencies, 99)) == pytest.approx(np.percentile(expected[300:], 99), rel=0.10)
        assert mean_batch(told) == pytest.approx(np.mean(sizes[len(sizes) // 10 : -3]), rel=0.05)


@pytest.mark.parametrize(
    ("largest", "instances", "delay", "rate", "batch", "wait"),
    [
        (16, 2, 5, 400, 3.52, 7.59),
        (16, 2, 0, 400, 3.48, 5.66),
        (4, 1, 2, 150, 2.41, 18.38),
        (16, 2, 10, 150, 2.55, 7.33),
        (16, 2, 20, 300, 7.08, 11.86),
        (16, 2, 5, 20, 1.14, 5.00),
    ],
)
def test_near_the_real_server_under_load(
    largest: int, instances: int, delay: float, rate: float, batch: float, wait: float
) -> None:
    """screens.md section 4: Triton 2.51.0 over 12 s, so the tolerance is the noise of a short window. A batcher that
    decides as an instance frees would give 4.6 ms for the first of these and 9.5 for the third."""
    streams = lanes.Streams(8, 5000, 80, seed=1)
    held = table(13.25, 1.0, largest)
    some = [lanes.Lane(at, largest, instances, delay, 1e3 / rate, held) for at in range(8)]
    told = lanes.run(some, streams)
    sizes = sum(one.sizes for one in told)
    numbers = np.arange(largest + 1)
    compute = float((sizes * numbers) @ np.array(held)) / float(sizes @ numbers)
    waited = float(np.concatenate([one.latencies for one in told]).mean()) - compute
    assert float(sizes @ numbers) / float(sizes.sum()) == pytest.approx(batch, rel=0.08)
    assert waited == pytest.approx(wait, rel=0.15, abs=0.4)


def test_bursts_are_as_wide_as_they_are_told() -> None:
    for dispersion in (0.2, 1.0, 4.0):
        streams = lanes.Streams(1, 100_000, 0, dispersion=dispersion, seed=5)
        counts = np.bincount((streams.flat[:100_000] // 100).astype(int))[:-1]
        assert float(counts.var() / counts.mean()) == pytest.approx(dispersion, rel=0.15)


def test_a_time_limit_ends_it_with_what_was_done() -> None:
    streams = lanes.Streams(1, 50_000, 80, seed=1)
    lane = lanes.Lane(0, 1, 1, 0.0, 2.0, table(1, 0, 1))
    told = lanes.run([lane], streams, within_s=0.0)[0]
    assert 0 < len(told.latencies) < 1000


def test_poisson_of_the_plain_batcher_and_of_the_streams_agree() -> None:
    """Two sources of chance, one law: mean and variance of the spaces."""
    at = poisson_arrivals(random.Random(1), 100.0, 0, 200 * 10**9)
    spaces = np.diff(np.array(at)) / 1e7
    own = np.diff(lanes.Streams(1, 20_000, 0, seed=2).flat[:20_000])
    assert float(spaces.mean()) == pytest.approx(float(own.mean()), rel=0.03)
    assert float(spaces.var()) == pytest.approx(float(own.var()), rel=0.06)
