"""The quantities, and which window they are taken from."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.advisors.figures import Figures, delay_text, judged_window, plain, proof
from console.advisors.memory import Memory
from console.advisors.table import table
from console.advisors.why import Why
from console.core.history import History
from console.core.model import ModelFlow, ModelKey, ModelStats, Window
from tests.advisors.cases import config, ids, later, row, snapshot, window

BY = table().evaluation


def figures(settings: dict[str, Any] | None = None, **seen: Any) -> Figures:
    made = config(**(settings or {}))
    used = window(instances=made.instances or 1, **seen)
    one = row(used, made)
    return Figures(one, used, made, "m")


@pytest.mark.parametrize(
    ("settings", "rate", "alone"),
    [
        ({"delay_us": 5000}, 19.9, 4.77),
        ({"delay_us": 10_000}, 39.6, 8.58),
        ({"delay_us": 20_000}, 149.8, 12.50),
        ({"delay_us": 20_000}, 297.6, 11.44),
        ({"delay_us": 2000, "max_batch_size": 4}, 225.3, 1.69),
        ({"delay_us": 50_000, "max_batch_size": 4}, 120, 12.5),
        ({"delay_us": 50_000, "preferred": (2,)}, 120, 1000 / 240),
        ({"delay_us": 0}, 100, None),
        ({"delay_us": 5000, "dynamic_batching": False}, 100, None),
    ],
)
def test_the_wait_that_a_delay_alone_makes(settings: dict[str, Any], rate: float, alone: float | None) -> None:
    """The first five are the formula's values of the measured table."""
    seen = figures(settings, rate=rate).alone_ms
    assert seen == (None if alone is None else pytest.approx(alone, rel=0.005))


def test_requests_that_bring_several_items_fill_a_batch_sooner() -> None:
    made = config(delay_us=50_000, max_batch_size=8)
    used = replace(window(rate=60), inferences=60 * 30 * 4)
    assert Figures(row(used, made), used, made, "m").alone_ms == pytest.approx(1000 / 120)


def test_littles_law() -> None:
    assert figures(rate=50, wait=4.0, compute=16.0).in_flight == pytest.approx(1.0)
    assert figures(rate=0, batch=None, wait=None, compute=None).in_flight is None


@pytest.mark.parametrize(("sizes", "busy"), [({1: (10, 5900.0)}, 0.5), ({1: (10, 6100.0)}, None), ({}, 0.5)])
def test_a_run_that_spans_windows_has_no_busy_share(sizes: dict[int, tuple[int, float]], busy: float | None) -> None:
    assert figures(sizes=sizes, busy=0.5).busy == busy


def test_busy_is_at_most_all_of_the_time() -> None:
    assert figures(busy=1.2).busy == 1.0


def test_waiting_is_a_mean_of_ten_samples() -> None:
    made = config()
    used = window()
    assert Figures(row(used, made, pending=(0.0,) * 20 + (1.0, 3.0) * 5), used, made, "m").waiting == 2.0
    assert Figures(row(used, made, pending=()), used, made, "m").waiting is None


@pytest.mark.parametrize(("us", "text"), [(2000, "2000 µs"), (10_000, "10 ms"), (10_500, "10500 µs"), (0, "0 µs")])
def test_delays_as_words(us: int, text: str) -> None:
    assert delay_text(us) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.42, "0.4"), (9.96, "10"), (12.0, "12")])
def test_small_figures(value: float | None, text: str) -> None:
    assert plain(value) == text


def test_proof_lists_what_is_asked_for() -> None:
    assert proof(figures(rate=40, busy=0.2), ["R", "busy", "util", "?"], {"util": "30 %"}) == (
        "30 s: R 40.0/s   busy 20 %   util 30 %"
    )


# ----------------------------------------------------------------------------------------------------- which window


def flow(w10: Window | None = None, w30: Window | None = None, **other: Window) -> ModelFlow:
    return ModelFlow(ModelKey("m", "1"), ModelStats("m", "1"), w10=w10, w30=w30, **other)  # type: ignore[arg-type]


USUAL = window(rate=40)


def ten(**seen: Any) -> Window:
    return window(span=10.0, **{"rate": 40.0, **seen})


def five(**seen: Any) -> Window:
    return window(span=5.0, **{"rate": 40.0, **seen})


def test_steady_traffic_is_judged_over_30_s() -> None:
    assert judged_window(flow(ten(), USUAL), five(), BY, 1) is USUAL
    assert judged_window(flow(None, USUAL), None, BY, 1) is USUAL


@pytest.mark.parametrize("seen", [{"rate": 90.0}, {"rate": 20.0}, {"compute": 30.0}, {"busy": 0.7}])
def test_changed_traffic_is_judged_by_what_is_new(seen: dict[str, Any]) -> None:
    new = ten(**seen)
    assert judged_window(flow(new, USUAL), None, BY, 1) is new
    newest = five(**seen)
    assert judged_window(flow(ten(), USUAL), newest, BY, 1) is newest


def test_of_new_windows_the_longest_that_is_of_one_kind() -> None:
    new = ten(rate=90.0)
    assert judged_window(flow(new, USUAL), five(rate=90.0), BY, 1) is new


def test_chance_is_no_change() -> None:
    """12 where 8 were to be expected is half a standard deviation over; 1.5 times as many of 400 is a change."""
    usual = window(rate=1.7)
    assert judged_window(flow(ten(rate=2.5), usual), None, BY, 1) is usual
    assert judged_window(flow(ten(rate=60.0), USUAL), None, BY, 1) is not USUAL


def test_new_traffic_that_is_too_little_is_not_judged_alone() -> None:
    assert judged_window(flow(ten(), USUAL), five(rate=9.0), BY, 1) is USUAL


def test_traffic_that_stopped_is_not_judged() -> None:
    idle = window(span=10.0, rate=0, batch=None, wait=None, compute=None, busy=0, sizes={})
    assert judged_window(flow(idle, USUAL), None, BY, 1) is None
    assert judged_window(flow(ten(), USUAL), replace(idle, span=5.0), BY, 1) is None
    rare = window(rate=0.5)
    assert judged_window(flow(idle, rare), None, BY, 1) is rare


def test_windows_across_a_reset_are_not_judged() -> None:
    across = window(rate=40, reset=True)
    assert judged_window(flow(ten(), across), None, BY, 1) is not None
    assert judged_window(flow(ten(reset=True), across), five(), BY, 1) is not None
    assert judged_window(flow(ten(reset=True), across), None, BY, 1) is None
    assert judged_window(flow(), None, BY, 1) is None


def test_what_is_new_is_what_came_since_the_look_before() -> None:
    memory = Memory()
    busy = snapshot(row(window(rate=40), config()))
    memory.learn(busy)
    assert memory.newest(busy.models[0]) is None
    memory.learn(later(busy, 2))
    assert memory.newest(busy.models[0]) is None, "two seconds are no window"
    memory.learn(later(busy, 5))
    newest = memory.newest(busy.models[0])
    assert newest is not None
    assert newest.span == pytest.approx(5.0)
    assert newest.rate == pytest.approx(40.0)


def test_a_situation_that_begins_is_told_at_the_second_look() -> None:
    """15 s after it began the 30 s before are still a mean of both; the verdict is of what is now."""
    jammed = window(rate=142, batch=1.0, wait=98.0, compute=14.0, busy=0.99)
    mixed = window(rate=60, wait=30.0, compute=15, busy=0.35)
    settings = config(dynamic_batching=False)
    begun = snapshot(row(mixed, settings, windows={"w10": replace(jammed, span=10.0)}))
    why = Why()
    assert ids(why.evaluate(begun, History())) == []
    assert ids(why.evaluate(later(begun, 3), History())) == ["V18"]
