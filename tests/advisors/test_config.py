"""What was changed: V28 to V30b."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.advisors.memory import Cost, costs_between, slower
from console.advisors.why import Why
from console.core.changes import NOT_OURS
from console.core.history import History
from console.core.model import (
    BatchStat,
    ConfigDifference,
    DiskModel,
    Event,
    GpuBox,
    GpuState,
    ModelRow,
    Snapshot,
    Verdict,
)
from tests.advisors.cases import NOW, config, good, ids, later, once, row, snapshot, window

# ------------------------------------------------------------------------------------------------------------- V28


def served(
    ms: float, *, runs: int = 100, version: str = "1", resets: int = 0, raw: str = "a", size: int = 4
) -> ModelRow:
    stats = {"batches": (BatchStat(size, runs, 0, round(runs * ms * 1e6), 0),)}
    made = config(version=version, raw=raw)
    model = row(window(rate=40, compute=ms, busy=0.3), made, version=version, stats=stats)
    assert model.flow
    return replace(model, flow=replace(model.flow, resets=resets))


def across(before: Snapshot, after: Snapshot, seconds: float = 10.0) -> list[Verdict]:
    why = Why(hold=False)
    why.evaluate(before, History())
    why.evaluate(later(after, 5, counts=False), History())
    found = why.evaluate(later(after, 5 + seconds, counts=False), History())
    return [one for one in found if one.id == "V28"]


def test_a_new_version_that_is_slower() -> None:
    found = across(snapshot(served(1.6)), snapshot(served(3.1, version="2")))
    assert found[0].title == "each batch of 4 of m takes 3.10 ms, 1.60 ms before version 1 → 2"
    assert found[0].lines == ("the new one is slower",)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (served(3.1, resets=1), "before the reload at "),
        (served(2.4, runs=200, raw="b"), "before the change at "),
    ],
)
def test_a_reload_or_a_change_after_which_it_is_slower(after: ModelRow, words: str) -> None:
    """Counters go on across an in-place change: there the runs before are taken off."""
    found = across(snapshot(served(1.6)), snapshot(after))
    if words.endswith("change at "):
        assert found == [], "at the moment of the change nothing ran since"
    else:
        assert words in found[0].title


def test_the_configuration_that_comes_after_a_reload_belongs_to_it() -> None:
    """Counters are read each second, configurations every five: the second is no event of its own."""
    why = Why(hold=False)
    boxes = (served(1.6), served(3.1, resets=1), served(3.1, runs=200, resets=1, raw="b"))
    for at, one in enumerate(boxes):
        found = why.evaluate(later(snapshot(one), 5.0 * at, counts=False), History())
    assert "before the reload at " in next(one.title for one in found if one.id == "V28")


def test_an_in_place_change_is_judged_by_what_ran_since() -> None:
    why = Why(hold=False)
    why.evaluate(snapshot(served(1.6)), History())
    why.evaluate(later(snapshot(served(1.6, raw="b")), 5, counts=False), History())
    since = later(snapshot(served((100 * 1.6 + 80 * 2.4) / 180, runs=180, raw="b")), 10, counts=False)
    found = [one for one in why.evaluate(since, History()) if one.id == "V28"]
    assert found[0].title.startswith("each batch of 4 of m takes 2.40 ms, 1.60 ms before the change at ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (served(1.6), served(1.8, resets=1)),
        (served(1.6, runs=49), served(3.1, resets=1)),
        (served(1.6), served(3.1, runs=49, resets=1)),
        (served(1.6, size=2), served(3.1, resets=1)),
        (served(1.6), served(3.1)),
    ],
)
def test_like_work_that_is_not_slower_or_too_little_of_it(before: ModelRow, after: ModelRow) -> None:
    assert across(snapshot(before), snapshot(after)) == []


def test_after_an_hour_it_is_no_news() -> None:
    assert across(snapshot(served(1.6)), snapshot(served(3.1, resets=1)), seconds=3700) == []


def test_a_card_that_became_slower_is_blamed_not_the_model() -> None:
    def at(mhz: int, model: ModelRow) -> Snapshot:
        return snapshot(model, gpu=good("gpu", GpuBox(gpus=(GpuState(0, sm_mhz=mhz, sm_max_mhz=1590, util_pct=20.0),))))

    why = Why(hold=False)
    for second in (0, 5):
        why.evaluate(later(at(1590, served(1.6)), second, counts=False), History())
    for second in (10, 15, 20):
        found = why.evaluate(later(at(1110, served(3.1, resets=1)), second, counts=False), History())
    told = next(one for one in found if one.id == "V28")
    assert told.lines == ("the SM clock fell too (1590 → 1110 MHz): the card is slower, not the model",)


def test_costs_are_differences_and_compared_by_like_sizes() -> None:
    old = (BatchStat(1, 10, 0, 10_000_000, 0),)
    new = (BatchStat(1, 30, 0, 50_000_000, 0), BatchStat(2, 5, 1_000_000, 1_000_000, 3_000_000))
    assert costs_between(old, new) == {1: Cost(20, 2.0), 2: Cost(5, 1.0)}
    assert costs_between(new, old) == {}
    found = slower({1: Cost(100, 1.0), 2: Cost(100, 2.0)}, {1: Cost(60, 1.0), 2: Cost(300, 3.0), 4: Cost(90, 9.0)}, 50)
    assert found is not None
    assert found[0] == 2
    assert found[3] == pytest.approx((60 * 1 + 100 * 3) / (60 * 1 + 100 * 2))
    assert slower({}, {1: Cost(100, 1.0)}, 50) is None
    assert slower({1: Cost(100, 0.0)}, {1: Cost(100, 1.0)}, 50) is None


# ------------------------------------------------------------------------------------------------------------- V29


def event(seconds: float, kind: str = "reload", text: str = "m 1 was reloaded", **other: Any) -> Event:
    return Event(NOW - seconds, "warn", text, **{"origin": NOT_OURS, "kind": kind, "model": "m", **other})


SERVES = row(window(rate=40, compute=15, busy=0.2), config())


@pytest.mark.parametrize(
    ("events", "title"),
    [
        ((event(60),), "m was reloaded at "),
        ((event(60), event(30, "config", "m delay 500 → 2000 µs")), "m delay 500 → 2000 µs at "),
        ((event(299),), "m was reloaded at "),
    ],
)
def test_a_reload_or_change_by_somebody_else(events: tuple[Event, ...], title: str) -> None:
    found = [one for one in once(snapshot(SERVES, events=events)) if one.id == "V29"]
    assert len(found) == 1
    assert found[0].title.startswith(title)
    assert found[0].title.endswith(", not by a gpuconsole")
    assert found[0].since_wall == events[-1].wall


@pytest.mark.parametrize(
    "other",
    [
        event(301),
        event(60, origin="ana@192.0.2.9"),
        event(60, model=None),
        event(60, model="n"),
        event(60, "model.ready"),
    ],
)
def test_what_is_old_ours_or_of_no_served_model_is_not_told(other: Event) -> None:
    assert "V29" not in ids(once(snapshot(SERVES, events=(other,))))


# ----------------------------------------------------------------------------------------------------- V30 and V30b


def live_only(*differences: ConfigDifference) -> Snapshot:
    disk = DiskModel("m", "/models/m", differences=differences)
    return snapshot(replace(SERVES, live_only=True, disk=disk))


def told(box: Snapshot, id_: str) -> Verdict | None:
    return next((one for one in once(box) if one.id == id_), None)


@pytest.mark.parametrize(
    ("path", "disk", "back_to"),
    [
        ("dynamic_batching.max_queue_delay_microseconds", "500", "500 µs"),
        ("max_batch_size", "8", "max_batch_size 8"),
        ("dynamic_batching", "", "dynamic_batching unset"),
    ],
)
def test_a_live_only_setting(path: str, disk: str, back_to: str) -> None:
    found = told(live_only(ConfigDifference(path, "2000", disk)), "V30")
    assert found
    assert found.title == f"m runs on a live-only setting: a restart goes back to {back_to}"
    assert found.lines == (f"{path}: live 2000, on disk {disk}",)


def test_more_than_one_field_is_counted() -> None:
    one = ConfigDifference("a", "1", "2")
    found = told(live_only(one, one, one), "V30")
    assert found
    assert found.lines[-1] == "and 2 more fields"


def test_a_live_only_setting_is_dated_by_its_change() -> None:
    box = replace(live_only(ConfigDifference("a", "1", "2")), events=(event(400, "config", "m delay 1 → 2 µs"),))
    found = told(box, "V30")
    assert found
    assert found.since_wall == NOW - 400


def test_two_versions_of_one_file_are_told_once() -> None:
    box = live_only(ConfigDifference("a", "1", "2"))
    both = replace(box, models=(*box.models, replace(box.models[0], version="2")))
    assert [one.id for one in once(both)].count("V30") == 1


def test_without_a_known_difference_nothing_is_live_only() -> None:
    assert told(live_only(), "V30") is None


def test_a_newer_version_on_disk() -> None:
    disk_event = Event(NOW - 50, "warn", "m 3 appeared on disk", "(disk)", "disk.version", "m")
    found = told(snapshot(replace(SERVES, newer_on_disk=3), events=(disk_event,)), "V30b")
    assert found
    assert found.title == "m 3 is on disk: the next reload or restart would deploy it"
    assert found.since_wall == NOW - 50


def test_only_what_is_newer_than_the_highest_served_is_told() -> None:
    one, two = replace(SERVES, newer_on_disk=2), replace(SERVES, version="2")
    assert told(snapshot(one, two), "V30b") is None
    three = snapshot(replace(SERVES, newer_on_disk=3), replace(SERVES, version="2", newer_on_disk=3))
    assert [one.id for one in once(three)].count("V30b") == 1
