"""Predictions: what must hold whatever the figures, where they are not to be believed, and that they cannot be had."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from console.clients.aside import Aside
from console.core.plan import WrongInput
from console.planning.ahead import Ahead
from console.planning.batcher import Scheduling
from console.planning.batching_change import Batching, Group
from console.planning.calibration import calibrate
from console.planning.observed import Observed, scheduling_of
from console.planning.predicted import Prediction
from console.planning.prediction import grid, predict
from console.planning.service import Seen

NOW = Scheduling(max_batch_size=16, instances=1, max_queue_delay_us=1000)


def held(size: int) -> float:
    """ms of a run of the model of these tests."""
    return 4.0 + 0.5 * size


def reality(
    scheduling: Scheduling, rate: float, *, lost: float = 0.0, wins: float = 0.0, seconds: float = 200.0
) -> Observed:
    """What a server would tell of it, by the plain form of its batcher."""
    chance = random.Random(7)
    at, arrivals = 0.0, []
    while at < seconds * 1e3:
        at += chance.expovariate(rate / 1e3)
        arrivals.append(at)
    delay = scheduling.max_queue_delay_us / 1e3 if scheduling.max_batch_size > 1 else 0.0
    runs = Ahead(
        scheduling.max_batch_size, scheduling.instances, delay, lambda n: held(n) + lost, wins=wins, rng=chance
    ).run(arrivals)
    sizes = [len(run.arrivals) for run in runs]
    waits = [run.start + lost - one for run in runs for one in run.arrivals]
    times = [held(size) for size in sizes for _ in range(size)]
    counts = np.bincount(sizes)
    return Observed(
        "rank", "1", scheduling,
        tuple(Seen(size, int(count), held(size), scheduling.instances) for size, count in enumerate(counts) if count),
        requests=len(waits), seconds=seconds, rate=rate, wait_ms=float(np.mean(waits)),
        compute_ms=float(np.mean(times)), request_ms=float(np.mean(waits) + np.mean(times)),
        batch=float(np.mean(sizes)), busy=0.5,
    )  # fmt: skip


def value(one: Prediction, name: str) -> float:
    found = getattr(one, name).value
    assert found is not None
    return float(found)


@pytest.fixture(scope="module")
def seen() -> Observed:
    return reality(NOW, 200.0)


def test_what_is_in_use_is_told_as_it_was_seen(seen: Observed) -> None:
    told = predict(seen, NOW)
    assert value(told, "wait_ms") == pytest.approx(seen.wait_ms, rel=0.03)
    assert value(told, "batch") == pytest.approx(seen.batch, rel=0.02)
    assert value(told, "mean_ms") == pytest.approx(seen.request_ms, rel=0.03)
    assert value(told, "throughput") == pytest.approx(200)
    assert told.trust == "good"
    assert told.reasons == ()
    assert told.queue_share == pytest.approx(value(told, "wait_ms") / value(told, "mean_ms"))


@pytest.mark.parametrize(
    "other",
    [
        Scheduling(16, 1, max_queue_delay_us=0),
        Scheduling(16, 1, max_queue_delay_us=5000),
        Scheduling(4, 2, max_queue_delay_us=2000),
        Scheduling(2, 3, max_queue_delay_us=500),
        Scheduling(1, 3),
    ],
)
def test_other_settings_are_told_from_one_look(seen: Observed, other: Scheduling) -> None:
    """Another run of the plain form says what would come: the same law, other arrivals."""
    real, told = reality(other, 200.0), predict(seen, other)
    assert value(told, "mean_ms") == pytest.approx(real.request_ms, rel=0.04)
    assert value(told, "batch") == pytest.approx(real.batch, rel=0.02)
    assert value(told, "compute_ms") == pytest.approx(real.compute_ms, rel=0.02)


def test_what_a_machine_loses_between_runs_is_found_and_carried_over() -> None:
    slow = reality(Scheduling(16, 1), 120.0, lost=0.8)
    found = calibrate(slow)
    assert found.machine.lost_ms == pytest.approx(0.8, abs=0.25)
    assert found.quick.lost_ms <= found.machine.lost_ms <= found.late.lost_ms
    other = Scheduling(4, 1, max_queue_delay_us=0)
    told = predict(slow, other)
    assert value(told, "mean_ms") == pytest.approx(reality(other, 120.0, lost=0.8).request_ms, rel=0.04)


def test_how_often_the_batcher_is_first_is_found_and_carried_over() -> None:
    seen = reality(NOW, 250.0, wins=0.5)
    found = calibrate(seen)
    assert found.machine.wins == pytest.approx(0.5, abs=0.2)
    other = Scheduling(8, 1, max_queue_delay_us=3000)
    told = predict(seen, other)
    assert value(told, "mean_ms") == pytest.approx(reality(other, 250.0, wins=0.5).request_ms, rel=0.05)


def test_inputs_that_vary_in_shape_let_each_arrival_join() -> None:
    other = Scheduling(8, 1, max_queue_delay_us=3000)
    joined = reality(other, 250.0, wins=1.0)
    told = predict(replace(reality(NOW, 250.0, wins=1.0), variable=True), other)
    assert value(told, "mean_ms") == pytest.approx(joined.request_ms, rel=0.04)
    assert "vary in shape" in reasons(told)


def test_a_grid_is_in_order_and_under_the_same_arrivals(seen: Observed) -> None:
    settings = [Scheduling(size, 1, max_queue_delay_us=delay) for size in (8, 16) for delay in (0, 500, 2000)]
    told = grid(seen, settings)
    assert [one.scheduling for one in told] == settings
    alone = predict(seen, settings[3])
    assert value(told[3], "mean_ms") == pytest.approx(value(alone, "mean_ms"), rel=0.03)
    p99 = [value(one, "p99_ms") for one in told[3:]]
    assert p99 != sorted(p99, reverse=True)


def test_more_of_each_is_never_worse_where_it_cannot_be(seen: Observed) -> None:
    """Instances that do not slow each other down; the same arrivals."""
    told = grid(seen, [Scheduling(16, count) for count in (1, 2, 3, 4)])
    waits = [value(one, "wait_ms") for one in told]
    assert waits == sorted(waits, reverse=True)


def test_saturated_it_says_so_and_gives_no_wait(seen: Observed) -> None:
    told = predict(seen, Scheduling(1, 1), rate=400.0)
    assert told.saturated
    assert told.mean_ms.value is None
    assert told.p99_ms.value is None
    assert told.capacity == pytest.approx(1e3 / held(1), rel=0.05)
    assert value(told, "throughput") == told.capacity
    assert told.trust == "poor"
    assert "grows without end" in told.reasons[0]


def reasons(one: Prediction) -> str:
    return "; ".join(one.reasons)


def test_it_is_not_to_be_believed_where_too_little_was_seen(seen: Observed) -> None:
    one_size = replace(seen, service=seen.service[:1])
    assert predict(one_size, NOW).trust == "poor"
    assert "only batches of 1" in reasons(predict(one_size, NOW))
    few = replace(seen, requests=30)
    assert predict(few, NOW).trust == "poor"
    low = replace(seen, service=seen.service[:3])
    above = predict(low, Scheduling(16, 1, max_queue_delay_us=5000), rate=500.0)
    assert "the largest seen" in reasons(above)
    assert above.trust != "good"


def test_a_queue_limit_that_is_reached_wastes_the_instance(seen: Observed) -> None:
    told = predict(replace(seen, wait_ms=None), Scheduling(4, 1, max_queue_size=2), rate=700.0)
    assert value(told, "refused_per_s") > 10
    assert value(told, "throughput") + value(told, "refused_per_s") == pytest.approx(700, rel=0.01)
    assert value(told, "busy") < 0.8
    assert value(told, "throughput") < 0.8 * told.capacity
    assert "a full queue leaves instances idle" in reasons(told)


def test_time_outs(seen: Observed) -> None:
    told = predict(seen, Scheduling(1, 1, queue_timeout_us=100_000), rate=400.0)
    assert value(told, "timed_out_per_s") > 50
    assert "time-outs fire late" in reasons(told)


def test_preferred_sizes(seen: Observed) -> None:
    plain = predict(seen, Scheduling(16, 1, max_queue_delay_us=5000))
    told = predict(seen, Scheduling(16, 1, max_queue_delay_us=5000, preferred_batch_sizes=(2, 4)))
    assert value(told, "batch") < value(plain, "batch")
    assert value(told, "p50_ms") < value(plain, "p50_ms")


def test_growth_with_instances_is_unknown_until_it_was_seen(seen: Observed) -> None:
    told = predict(seen, Scheduling(16, 2, max_queue_delay_us=1000))
    assert told.trust == "fair"
    assert "seen with 1 instance only, not with 2 instances" in reasons(told)
    assert told.shared_p99_ms is not None
    assert told.shared_p99_ms > value(told, "p99_ms")
    grown = tuple(Seen(one.size, one.runs, one.ms * 1.6, 2) for one in seen.service)
    known = replace(seen, service=seen.service + grown)
    own = predict(known, Scheduling(16, 2, max_queue_delay_us=1000))
    assert own.shared_p99_ms is None
    assert "were seen with" not in reasons(own)
    third = predict(known, Scheduling(16, 3, max_queue_delay_us=1000))
    assert third.shared_p99_ms is None
    assert value(third, "compute_ms") > 1.9 * value(told, "compute_ms")


def test_bursts_lengthen_waits(seen: Observed) -> None:
    even, poisson, bursts = (
        value(predict(replace(seen, dispersion=one, wait_ms=None), Scheduling(4, 1)), "p99_ms") for one in (0.1, 1, 5)
    )
    assert even < poisson < bursts


def test_requests_of_several_items(seen: Observed) -> None:
    """Four items each: batches of 16 items hold four of them."""
    told = predict(replace(seen, items=4.0), Scheduling(16, 1, max_queue_delay_us=1000))
    assert 4 <= value(told, "batch") <= 16
    unlike = predict(replace(seen, items=1.5), NOW)
    assert unlike.trust == "poor"
    assert "unlike sizes" in reasons(unlike)


def test_a_largest_batch_beyond_all_reason(seen: Observed) -> None:
    told = predict(replace(seen, items=50.0), Scheduling(2**31 - 1, 40, max_queue_delay_us=500), rate=20.0)
    assert value(told, "batch") >= 50


def test_uncertainty_grows_with_what_is_not_known(seen: Observed) -> None:
    firm = predict(replace(seen, requests=1_000_000), NOW).mean_ms
    loose = predict(replace(seen, requests=600), NOW).mean_ms
    assert firm.error is not None
    assert loose.error is not None
    assert loose.error > 2 * firm.error


@pytest.mark.parametrize(
    ("changes", "rate", "words"),
    [
        ({"unfit": "reco is an ensemble: its steps wait"}, None, "ensemble"),
        ({"service": ()}, None, "nothing ran"),
        ({"rate": None}, None, "no rate"),
        ({"rate": 0.0}, None, "no rate"),
        ({}, 0.0, "above 0"),
        ({}, float("inf"), "above 0"),
        ({}, float("nan"), "above 0"),
    ],
)
def test_where_nothing_can_be_told(seen: Observed, changes: dict[str, object], rate: float | None, words: str) -> None:
    with pytest.raises(WrongInput, match=words):
        predict(replace(seen, **changes), NOW, rate=rate)


def test_from_a_form() -> None:
    form = Batching(dynamic_batching=True, delay_us=500, preferred=(8,), max_batch_size=8,
                    instances=(Group("KIND_GPU", 2, (0, 1)),), max_queue_size=9, timeout_us=7)  # fmt: skip
    assert scheduling_of(form) == Scheduling(8, 4, True, 500, (), 9, 7)


def test_aside_in_a_process_of_its_own(seen: Observed) -> None:
    aside = Aside()
    try:
        settings: Sequence[Scheduling] = [NOW, Scheduling(8, 1)]
        told = aside.call("console.planning.prediction", "grid", seen, settings)
        assert told == grid(seen, settings)
        with pytest.raises(WrongInput):
            aside.call("console.planning.prediction", "grid", replace(seen, service=()), settings)
    finally:
        aside.close()


def test_within_a_time_limit_it_tells_by_less_traffic(seen: Observed) -> None:
    whole, short = predict(seen, NOW), grid(seen, [NOW], within_s=0.0)[0]
    assert short.simulated_requests < whole.simulated_requests / 2
    assert value(short, "mean_ms") == pytest.approx(value(whole, "mean_ms"), rel=0.5)


def test_who_gets_a_prediction_from_the_helper_loads_no_numpy() -> None:
    """Unpickling imports where the class is, and numpy would stay in the console's memory."""
    code = "import sys, console.planning.predicted, console.planning.observed; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert Prediction.__module__ == "console.planning.predicted"
