"""The closed loop against what can be reckoned by hand, and against what a real Triton was seen to serve."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.planning import closed
from console.planning.batcher import Scheduling
from console.planning.observed import Observed
from console.planning.service import Seen


def observed(rate: float, setting: Scheduling, instances: int = 1) -> Observed:
    """A model of 12 + 1 ms an item."""
    times = tuple(Seen(size, 500, 12.0 + size, instances) for size in range(1, 17))
    return Observed("rank", "1", setting, times, 5000, 30.0, rate)


ONE = Scheduling(16)


def served(setting: Scheduling, callers: int, outside_ms: float = 0.0) -> float:
    """Where nothing is lost between runs."""
    (found,) = closed.throughput(observed(1e6, ONE), (setting,), callers, outside_ms=outside_ms)
    return found


@pytest.mark.parametrize(
    ("setting", "callers", "outside_ms", "rate"),
    [
        (Scheduling(16), 1, 0.0, 1e3 / 13),
        (Scheduling(16), 1, 7.0, 1e3 / 20),
        (Scheduling(16, dynamic_batching=False), 8, 0.0, 1e3 / 13),
        (Scheduling(16, 4, dynamic_batching=False), 8, 0.0, 4e3 / 13),
        (Scheduling(16, max_queue_delay_us=3000), 16, 0.0, 16e3 / 28),
        (Scheduling(16, 4, max_queue_delay_us=3000), 16, 0.0, 16e3 / 28),
        (Scheduling(16, max_queue_delay_us=10_000), 1, 0.0, 1e3 / 23),
    ],
)
def test_by_hand(setting: Scheduling, callers: int, outside_ms: float, rate: float) -> None:
    assert served(setting, callers, outside_ms) == pytest.approx(rate, rel=0.04)


def test_as_a_real_triton_served_sixteen_callers() -> None:
    """design/screens.md section 4: two instances of 12 + 1 ms an item, delay 0: 534.1 a second in batches of 5.1."""
    assert served(Scheduling(16, 2), 16) == pytest.approx(534.1, rel=0.08)


def test_what_is_lost_between_runs_is_taken_from_what_was_seen() -> None:
    seen = observed(50.0, ONE)
    assert closed.throughput(seen, (ONE,), 1)[0] == pytest.approx(50.0, rel=0.03)
    assert closed.throughput(seen, (Scheduling(16, 2),), 2)[0] == pytest.approx(100.0, rel=0.05)


def test_the_time_seen_under_as_many_instances_counts() -> None:
    slow = replace(observed(1e6, ONE), service=(Seen(1, 500, 10.0, 1), Seen(1, 500, 40.0, 4)))
    one, four = closed.throughput(slow, (ONE, Scheduling(16, 4, dynamic_batching=False)), 4)
    assert four == pytest.approx(100.0, rel=0.05)
    assert one > 0


@pytest.mark.parametrize(
    "seen", [replace(observed(5.0, ONE), unfit="an ensemble"), replace(observed(5.0, ONE), rate=None)]
)
def test_nothing_is_made_up(seen: Observed) -> None:
    with pytest.raises(WrongInput):
        closed.throughput(seen, (ONE,), 4)
