"""What Why remembers between looks: epochs, costs, cards, silences; and what it forgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.advisors.memory import KEPT, LOOK_EVERY, SAMPLE_EVERY, SETTLES_WITHIN, Cost, Memory, costs_between, slower
from console.core.model import BatchStat, Failure, GpuBox, GpuProcess, GpuState, ModelRow, Snapshot
from tests.advisors.cases import config, good, row, snapshot, window

RAN = (BatchStat(1, 100, 0, 500_000_000, 0),)


def model(batches: tuple[BatchStat, ...] = RAN, resets: int = 0, version: str = "1", **settings: Any) -> ModelRow:
    made = row(window(), config(version=version, **settings), version=version, stats={"batches": batches})
    assert made.flow is not None
    return replace(made, flow=replace(made.flow, resets=resets))


def at(seconds: float, *rows: ModelRow, gpu: tuple[GpuState, ...] | None = None, **other: Any) -> Snapshot:
    box = snapshot(*rows, **other)
    box = replace(
        box,
        wall=box.wall + seconds,
        mono=box.mono + seconds,
        stats=replace(box.stats, mono=box.mono + seconds - 0.3) if "stats" not in other else box.stats,
    )
    return box if gpu is None else replace(box, gpu=replace(good("gpu", GpuBox("550", gpus=gpu)), mono=box.mono - 0.3))


def card(used: int | None = 100, pids: tuple[int, ...] = (1,), **other: Any) -> GpuState:
    return GpuState(0, memory_used=used, processes=tuple(GpuProcess(pid, "C", None) for pid in pids), **other)


def learned(*boxes: Snapshot) -> Memory:
    memory = Memory()
    for box in boxes:
        memory.learn(box)
    return memory


# ------------------------------------------------------------------------------------------------------------- epochs


def test_an_epoch_begins_with_what_the_counters_held() -> None:
    memory = learned(at(0, model()))
    epoch = memory.epoch("m")
    assert epoch is not None
    assert (epoch.version, epoch.began_wall, epoch.costs, epoch.sm_mhz) == (
        "1", at(0).wall, {1: Cost(100, 5.0)}, None,
    )  # fmt: skip
    assert memory.epoch("other") is None
    assert memory.breaks == {}


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ({"version": "2"}, "version"),
        ({"resets": 1}, "reload"),
        ({"delay_us": 77}, "change"),
        ({}, ""),
    ],
)
def test_what_parts_two_epochs(after: dict[str, Any], kind: str) -> None:
    memory = learned(at(0, model()), at(60, model(**after)))
    assert [one.kind for one in memory.breaks.values()] == ([kind] if kind else [])
    if kind:
        assert memory.breaks["m"].wall == at(60).wall
        assert memory.breaks["m"].before.costs == {1: Cost(100, 5.0)}


def test_costs_after_a_break_count_from_it() -> None:
    more = (BatchStat(1, 200, 0, 1_500_000_000, 0),)
    changed = learned(at(0, model()), at(60, model(delay_us=77)), at(70, model(more, delay_us=77)))
    epoch = changed.epoch("m")
    assert epoch is not None
    assert epoch.costs == {1: Cost(100, 10.0)}, "the counters went on"
    reloaded = learned(at(0, model()), at(60, model(resets=1)), at(70, model(more, resets=1)))
    epoch = reloaded.epoch("m")
    assert epoch is not None
    assert epoch.costs == {1: Cost(200, 7.5)}, "the counters began anew"


def test_the_configuration_read_after_a_reload_is_part_of_it() -> None:
    for seconds, kind in ((SETTLES_WITHIN, "reload"), (SETTLES_WITHIN + 1, "change")):
        steps = at(0, model()), at(10, model(resets=1)), at(10 + seconds, model(resets=1, delay_us=77))
        assert learned(*steps).breaks["m"].kind == kind
    twice = at(30, model(resets=1, delay_us=77)), at(31, model(resets=1, delay_us=88))
    assert learned(at(0, model()), at(10, model(resets=1)), *twice).breaks["m"].kind == "change"
    never = learned(at(0, model()), at(10, model(delay_us=77)), at(11, model(delay_us=88)))
    assert never.breaks["m"].wall == at(11).wall


def test_a_configuration_that_is_read_late_is_no_change() -> None:
    unknown = replace(model(), config=None)
    memory = learned(at(0, unknown), at(60, model()), at(120, unknown), at(180, model()))
    assert memory.breaks == {}
    memory.learn(at(240, model(delay_us=77)))
    assert memory.breaks["m"].kind == "change"


def test_the_clock_of_an_epoch_is_a_mean() -> None:
    boxes = (at(0, model()), *(at(n, model(), gpu=(card(sm_mhz=mhz),)) for n, mhz in ((5, 1000), (10, 2000))))
    epoch = learned(*boxes, at(15, model(), gpu=(card(sm_mhz=None),)), at(20, model(), gpu=())).epoch("m")
    assert epoch is not None
    assert epoch.sm_mhz == 1500.0


def test_models_that_went_are_forgotten() -> None:
    uncapped = (card(throttle_now=()),)
    memory = learned(at(0, model(), gpu=uncapped), at(60, model(resets=1), gpu=uncapped))
    assert (set(memory.breaks), set(memory.uncapped)) == ({"m"}, {"m"})
    memory.learn(at(70))
    assert memory.epoch("m") is None
    assert (memory.breaks, memory.uncapped) == ({}, {})
    memory.learn(at(80, model()))
    epoch = memory.epoch("m")
    assert epoch is not None
    assert epoch.began_wall == at(80).wall


def test_nothing_is_learned_from_old_statistics() -> None:
    box = at(0, model())
    failing = replace(box, stats=replace(box.stats, error=Failure("timeout", "x"), error_mono=box.mono))
    old = replace(box, stats=replace(box.stats, mono=box.mono - 60))
    assert learned(failing).epoch("m") is None
    assert learned(old).epoch("m") is None


def test_only_ready_versions_have_epochs_and_the_first_counts() -> None:
    assert learned(at(0, replace(model(), state="LOADING"))).epoch("m") is None
    assert learned(at(0, replace(model(), flow=None))).epoch("m") is None
    epoch = learned(at(0, model(version="2"), model(version="1"))).epoch("m")
    assert epoch is not None
    assert epoch.version == "2"


# ------------------------------------------------------------------------------------------- costs, looks and silences


@pytest.mark.parametrize(
    ("cards", "known"),
    [
        ((), True),
        ((card(throttle_now=()),), True),
        ((card(throttle_now=None),), True),
        ((card(throttle_now=("power_cap",)),), False),
        ((card(throttle_now=()), GpuState(1, throttle_now=("power_cap", "x"))), False),
        (None, False),
    ],
)
def test_costs_without_a_power_limit(cards: tuple[GpuState, ...] | None, known: bool) -> None:
    assert (learned(at(0, model(), gpu=cards)).uncapped != {}) is known


def test_costs_are_kept_by_size_and_not_across_a_reset() -> None:
    free = (card(throttle_now=()),)

    def sized(**sizes: Any) -> ModelRow:
        return row(window(**sizes), config())

    memory = learned(at(0, sized(sizes={1: (9, 5.0)}), gpu=free), at(5, sized(sizes={2: (8, 6.0)}), gpu=free))
    assert memory.uncapped == {"m": {1: Cost(9, 5.0), 2: Cost(8, 6.0)}}
    memory.learn(at(10, sized(sizes={4: (8, 6.0)}, reset=True), gpu=free))
    assert set(memory.uncapped["m"]) == {1, 2}


def served(seconds: float, count: int, resets: int = 0) -> Snapshot:
    one = row(window(), config(), stats={"success_count": count})
    assert one.flow is not None
    return at(seconds, replace(one, flow=replace(one.flow, resets=resets)))


def test_what_came_since_the_look_before() -> None:
    first, second = served(0, 100), served(LOOK_EVERY, 180)
    memory = learned(first, second)
    found = memory.newest(second.models[0])
    assert found is not None
    assert found.span == pytest.approx(LOOK_EVERY)
    assert found.success == 80
    early = learned(first, served(LOOK_EVERY - 0.5, 180))
    assert early.newest(first.models[0]) is None
    assert learned(first, served(5, 180, resets=1)).newest(first.models[0]) is None
    gone = learned(first, second, at(9))
    assert gone.newest(second.models[0]) is None


def test_what_came_since_the_counters_began_anew() -> None:
    def anew(seconds: float, began: float, *, fell: bool = True) -> Snapshot:
        one = row(window(reset=fell), config(), stats={"success_count": 90})
        assert one.flow is not None
        flow = replace(one.flow, w10=one.flow.w30, resets=1, epoch_mono=at(began).mono)
        return at(seconds, replace(one, flow=flow))

    first, after = served(0, 1000), anew(5, 2)
    found = learned(first, after).newest(after.models[0])
    assert found is not None
    assert found.span == pytest.approx(2.7), "statistics are 0.3 s older than the look"
    assert (found.success, found.crosses_reset) == (90, False)
    for other in (anew(5, 3.5), anew(5, 2, fell=False)):
        assert learned(first, other).newest(other.models[0]) is None, "too short, or no beginning at 0"


def test_looks_follow_one_another() -> None:
    memory = learned(served(0, 100), served(5, 180), served(7, 190), served(10, 200))
    found = memory.newest(served(10, 200).models[0])
    assert found is not None
    assert found.span == pytest.approx(5.0)
    assert found.success == 20


def waiting(seconds: float, count: int, pending: float | None = 3.0) -> Snapshot:
    one = row(window(), config(), pending=() if pending is None else (pending,), stats={"success_count": count})
    return at(seconds, one)


def test_since_when_nothing_ends_though_requests_wait() -> None:
    first = waiting(0, 10)
    one = first.models[0]
    assert learned(first).silent_since(one) == first.mono
    assert learned(first, waiting(5, 10)).silent_since(one) == first.mono
    assert learned(first, waiting(5, 11)).silent_since(one) == first.mono + 5
    for pending in (0.0, None):
        assert learned(first, waiting(5, 10, pending)).silent_since(one) is None
        assert learned(first, waiting(5, 10, pending), waiting(9, 10)).silent_since(one) == first.mono + 9
    assert Memory().silent_since(one) is None


def test_when_requests_began_to_wait_is_seen_between_the_looks() -> None:
    def at_look(seconds: float, *samples: float) -> Snapshot:
        one = row(window(), config(), pending=samples, stats={"success_count": 0})
        return at(seconds, one)

    free, held = at_look(0, 0.0, 0.0), at_look(5, 0.0, 2.0, 4.0, 4.0)
    one = held.models[0]
    assert learned(free, held).silent_since(one) == held.mono - 2
    assert learned(free, held, at_look(10, *[4.0] * 9)).silent_since(one) == held.mono - 2, "what was seen is kept"
    assert learned(held).silent_since(one) == held.mono, "whether any ended before the first look is not known"


# -------------------------------------------------------------------------------------------------------------- cards


def test_what_a_card_held() -> None:
    memory = learned(at(0, gpu=(card(100, (1, 2)),)), at(10, gpu=(card(200, (3,)),)))
    start = at(0).mono
    for mono, used in ((start, None), (start + 1, 100), (start + 10, 100), (start + 10.1, 200)):
        sample = memory.card_before(0, mono)
        assert (sample.used if sample else None) == used
    sample = memory.card_before(0, start + 1)
    assert sample is not None
    assert sample.pids == {1, 2}
    assert memory.card_before(1, start + 99) is None


def test_cards_are_sampled_every_five_seconds_and_kept_a_quarter_of_an_hour() -> None:
    assert (SAMPLE_EVERY, KEPT) == (5.0, 900.0)
    memory = Memory()
    for second in range(1000):
        memory.learn(at(second, gpu=(card(second),)))
    seconds = [sample.used for sample in memory.cards[0]]
    assert seconds == list(range(95, 1000, 5))
    assert learned(at(0, gpu=(card(),)), at(4.5, gpu=(card(),))).cards[0][-1].mono == at(4.5).mono
    assert len(learned(at(0, gpu=(card(),)), at(4.4, gpu=(card(),))).cards[0]) == 1


def test_cards_that_do_not_tell_are_not_sampled() -> None:
    lost = Failure("unavailable", "x")
    for gpu in (card(None), replace(card(), processes=None), card(lost=lost)):
        assert learned(at(0, gpu=(gpu,))).cards == {}
    assert set(learned(at(0, gpu=(card(None), replace(card(), index=1)))).cards) == {1}
    stale = at(0, gpu=(card(),))
    assert learned(replace(stale, gpu=replace(stale.gpu, mono=stale.mono - 60))).cards == {}


# ----------------------------------------------------------------------------------------------------- pure functions


def test_costs_between() -> None:
    old = (BatchStat(1, 10, 1_000_000, 8_000_000, 1_000_000), BatchStat(2, 5, 0, 5_000_000, 0))
    new = (
        BatchStat(1, 15, 2_000_000, 16_000_000, 2_000_000),
        BatchStat(2, 5, 0, 5_000_000, 0),
        BatchStat(4, 2, 0, 8_000_000, 0),
    )
    assert costs_between(old, new) == {1: Cost(5, 2.0), 4: Cost(2, 4.0)}
    assert costs_between((BatchStat(1, 1, 0, 9, 0),), (BatchStat(1, 2, 0, 5, 0),)) == {}
    assert costs_between((BatchStat(1, 1, 0, 9, 0),), (BatchStat(1, 2, 0, 9, 0),)) == {1: Cost(1, 0.0)}
    assert costs_between(new, old) == {}


def test_slower_compares_like_with_like() -> None:
    before, now = (
        {1: Cost(30, 2.0), 2: Cost(20, 4.0), 8: Cost(5, 1.0)},
        {1: Cost(20, 3.0), 2: Cost(40, 8.0), 4: Cost(99, 1.0)},
    )
    found = slower(before, now, 20)
    assert found is not None
    assert found[:3] == (2, Cost(20, 4.0), Cost(40, 8.0))
    assert found[3] == pytest.approx((60 + 160) / (40 + 80))
    assert slower(before, now, 21) is None
    assert slower({1: Cost(30, 0.0)}, now, 20) is None
    assert slower({1: Cost(30, 2.0)}, now, 20) == (1, Cost(30, 2.0), Cost(20, 3.0), 1.5)
    assert slower({}, {}, 0) is None


costs = st.dictionaries(st.integers(1, 8), st.builds(Cost, st.integers(0, 99), st.floats(0.001, 1e3)), max_size=4)


@given(costs, costs)
def test_slower_turned_round_is_as_many_times_faster(before: dict[int, Cost], now: dict[int, Cost]) -> None:
    one, other = slower(before, now, 1), slower(now, before, 1)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one[0] == other[0]
        assert one[3] * other[3] == pytest.approx(1.0)
