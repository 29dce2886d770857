"""The grid of a sweep, and what prediction puts first in it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.planning import batching_change as change
from console.planning.batching_change import Batching, Group, Served
from console.planning.observed import Observed, scheduling_of
from console.planning.service import Seen
from console.tuning import space

START = Batching(dynamic_batching=True, delay_us=2000, max_batch_size=16, instances=(Group("KIND_CPU", 1),))


def seen(rate: float, *, mean_ms: float = 20.0, settings: Batching = START) -> Observed:
    """A model of 12 + 1 ms an item."""
    return Observed(
        model="rank",
        version="1",
        scheduling=scheduling_of(settings),
        service=tuple(Seen(size, 400, 12.0 + size, 1) for size in (1, 2, 4, 8)),
        requests=5000,
        seconds=30.0,
        rate=rate,
        wait_ms=mean_ms - 14.0,
        compute_ms=14.0,
        request_ms=mean_ms,
        batch=2.0,
        busy=0.5,
    )


def test_the_grid_has_each_point_once_and_the_start() -> None:
    found = space.grid(START, Served("rank"))
    assert len(found) == 2 * 4 * (len(space.DELAYS) + 1)
    assert any(one.settings == START for one in found)
    assert len({tuple(one.values.items()) for one in found}) == len(found)
    for one in found:
        assert change.wanted(START, one.values) == one.settings


def test_the_start_is_in_it_even_between_its_points() -> None:
    odd = replace(START, delay_us=777, max_queue_size=64)
    found = space.grid(odd, Served("rank"))
    assert len(found) == 2 * 4 * (len(space.DELAYS) + 1) + 1
    assert found[-1].settings == odd
    assert all(one.settings.max_queue_size == 64 for one in found if one.settings.dynamic_batching)


@pytest.mark.parametrize(
    ("start", "facts", "count"),
    [
        (replace(START, max_batch_size=0, dynamic_batching=False), Served("rank"), 4),
        (replace(START, instances=(Group("KIND_CPU", 1), Group("KIND_GPU", 1, (0,)))), Served("rank"), 16),
        (replace(START, dynamic_batching=False, delay_us=0), Served("rank", is_sequence=True), 8),
        (START, Served("rank", ensembles=(("reco", 16),)), 32),
        (replace(START, preferred=(16,)), Served("rank"), 36),
    ],
)
def test_what_the_server_would_refuse_is_not_in_it(start: Batching, facts: Served, count: int) -> None:
    assert len(space.grid(start, facts)) == count


def test_few_requests_want_no_delay_and_no_more_than_they_need() -> None:
    found = space.propose(seen(20.0), space.grid(START, Served("rank")), "mean")
    first = found[0].candidate.settings
    assert first.delay_us == 0 or not first.dynamic_batching
    assert first.max_batch_size == 16, "of equals the one that changes least"
    assert found[0].predicted is not None
    assert found[0].predicted < 20.0
    assert found[-1].predicted is None or found[-1].predicted > found[0].predicted


def test_p99_is_asked_of_the_tail() -> None:
    found = space.propose(seen(60.0), space.grid(START, Served("rank")), "p99")
    assert found[0].predicted == found[0].p99_ms


def test_sixteen_callers_are_best_in_two_full_batches_at_a_time() -> None:
    """By hand: 16 in batches of 8 on two instances, 20 ms each; alone in one batch of 16, 28 ms."""
    points = space.grid(START, Served("rank"))
    full = replace(seen(571.0, mean_ms=28.0), batch=16.0)
    found = space.propose(full, points, "throughput", waits=True, callers=16)
    best = found[0]
    two = next(one for one in found if one.candidate.text == "delay 2000, 2 inst, max 8")
    assert two.predicted == pytest.approx(800, rel=0.04)
    assert (best.predicted or 0.0) >= (two.predicted or 0.0)
    assert best.candidate.settings.max_batch_size == 8
    alone = next(one for one in found if one.candidate.settings == START)
    assert alone.predicted == pytest.approx(571, rel=0.04)


def test_of_requests_that_come_by_themselves_no_more_are_served_than_come() -> None:
    found = space.propose(seen(60.0), space.grid(START, Served("rank")), "throughput")
    assert found[0].predicted == 60.0


def test_what_was_tried_corrects_its_neighbours_and_not_what_is_far() -> None:
    points = space.grid(START, Served("rank"))
    plain = {one.candidate.text: one for one in space.propose(seen(20.0), points, "mean")}
    slow = plain["delay 0, 2 inst, max 16"]
    assert slow.predicted is not None
    tried = [space.Tried(slow.candidate.settings, slow.predicted, 2 * slow.predicted)]
    found = {one.candidate.text: one for one in space.propose(seen(20.0), points, "mean", tried=tried)}

    def times(text: str) -> float:
        one = found[text]
        assert one.predicted is not None
        assert one.modelled is not None
        return one.predicted / one.modelled

    assert 1.6 < times("delay 0, 2 inst, max 16") < 2
    assert times("delay 100, 2 inst, max 16") > times("delay 0, 3 inst, max 16") > times("delay 0, 4 inst, max 8") > 1
    assert times("delay 10000, 4 inst, max 8") < 1.05


def test_one_step_of_the_delay_alone_is_next_to() -> None:
    near = [one.settings for one in space.grid(START, Served("rank")) if space.is_next_to(one.settings, START)]
    assert [(one.delay_us, one.total_instances, one.max_batch_size) for one in near] == [(1000, 1, 16), (5000, 1, 16)]


def test_nothing_seen_nothing_predicted() -> None:
    with pytest.raises(WrongInput):
        space.propose(replace(seen(20.0), rate=None), space.grid(START, Served("rank")), "throughput", waits=True)


def test_values_are_those_of_batching_set() -> None:
    values: Mapping[str, str] = space.values_of(START)
    assert values == {"dynamic_batching": "true", "delay_us": "2000", "max_batch_size": "16", "instances": "cpu=1"}
    off = space.values_of(replace(START, dynamic_batching=False))
    assert off == {"dynamic_batching": "false", "max_batch_size": "16", "instances": "cpu=1"}
