"""Capacity: the cheapest setting that holds a goal, why none does, cards by memory, and the rule of thumb."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.planning.batcher import Scheduling
from console.planning.capacity import Memory, candidates, plan, rule_of_thumb
from console.planning.observed import Observed
from console.planning.service import Seen

GIB = 1 << 30


def seen(base: float, item: float, *, largest: int = 16, instances: int = 1) -> Observed:
    """A model of base + item * b ms, under light load."""
    return Observed(
        "rank", "1", Scheduling(largest, instances),
        tuple(Seen(size, 5000, base + item * size, instances) for size in range(1, largest + 1)),
        requests=50_000, seconds=100.0, rate=500.0,
    )  # fmt: skip


def test_the_seeds_example() -> None:
    """S1 5.1: 3 ms for 8, so 2666/s, of which 70 % is real; 2000/s with half of it spare take more than one."""
    model = seen(2.0, 0.125)
    thumb = rule_of_thumb(model, 2000)
    assert thumb.batch == 8
    assert thumb.batch_ms == pytest.approx(3.0)
    assert thumb.one_per_s == pytest.approx(1866.7, abs=1)
    assert thumb.instances == 3
    found = plan(model, 2000, 50)
    assert found.best is not None
    assert found.thumb == thumb
    assert found.best.capacity * 0.5 >= 2000
    assert found.best.p99_ms.value is not None
    assert found.best.p99_ms.value < 50
    assert found.best.scheduling.instances == 1
    """By its largest batch of 16 in 4 ms one instance can do 4000/s, which the rule's 8 does not see."""


def test_the_fewest_instances_then_the_shortest_p99() -> None:
    model = seen(5.0, 1.0, largest=8)
    found = plan(model, 700, 100)
    assert found.best is not None
    assert found.best.scheduling.instances == 3
    assert found.best.scheduling.dynamic_batching
    assert "1 instance only" in found.if_shared


def test_headroom_takes_more_instances() -> None:
    counts = []
    for headroom in (0.1, 0.5, 0.7):
        found = plan(seen(5.0, 1.0, largest=8), 500, 200, headroom=headroom)
        assert found.best is not None
        counts.append(found.best.scheduling.instances)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_tight_goal_takes_more_instances_or_is_not_to_be_had() -> None:
    model = seen(5.0, 1.0, largest=8)
    loose, tight = plan(model, 200, 100, headroom=0.1), plan(model, 200, 9.0, headroom=0.1)
    assert loose.best is not None
    assert tight.best is not None
    assert tight.best.scheduling.instances > loose.best.scheduling.instances
    never = plan(model, 200, 5.5)
    assert never.best is None
    assert "only a faster model helps" in never.reason


def test_more_than_a_box_can_do() -> None:
    found = plan(seen(50.0, 10.0, largest=2), 5000, 500)
    assert found.best is None
    assert found.nearest is None
    assert "more boxes" in found.reason


def test_no_larger_batch_than_the_model_has_and_no_delay_beyond_the_goal() -> None:
    some = candidates(seen(5, 1, largest=12), 2, 1.5)
    assert {one.instances for one in some} == {2}
    assert max(one.max_batch_size for one in some) == 12
    assert max(one.max_queue_delay_us for one in some) == 1000
    assert sum(1 for one in some if not one.dynamic_batching) == 1


@pytest.mark.parametrize(
    ("memory", "cards", "now", "card", "words"),
    [
        (Memory(4 * GIB, 9 * GIB, 16 * GIB), 1, 2, 4, ""),
        (Memory(12 * GIB, 3 * GIB, 16 * GIB), 3, 0, 1, ""),
        (Memory(None, 9 * GIB, 16 * GIB), None, None, None, "does not report it"),
        (Memory(4 * GIB, None, None), None, None, None, "could not be read"),
        (Memory(20 * GIB, 9 * GIB, 16 * GIB), None, 0, 0, "more than the card has"),
    ],
)
def test_cards(memory: Memory, cards: int | None, now: int | None, card: int | None, words: str) -> None:
    found = plan(seen(5.0, 1.0, largest=8), 700, 100, memory=memory)
    assert (found.cards, found.fit_now, found.fit_card) == (cards, now, card)
    assert words in found.memory_unknown


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        ({"rate": 0.0}, {}, "rate must be above 0"),
        ({"goal": 0.0}, {}, "goal for p99 must be above 0"),
        ({"goal": float("nan")}, {}, "goal for p99 must be above 0"),
        ({"headroom": 1.0}, {}, "headroom"),
        ({}, {"service": ()}, "nothing ran"),
        ({}, {"unfit": "reco is an ensemble"}, "ensemble"),
    ],
)
def test_what_cannot_be_planned(given: dict[str, float], changes: dict[str, Any], words: str) -> None:
    model = replace(seen(5.0, 1.0), **changes)
    with pytest.raises(WrongInput, match=words):
        plan(model, given.get("rate", 100.0), given.get("goal", 50.0), headroom=given.get("headroom", 0.5))
