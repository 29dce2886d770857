"""Where a request's time goes: each rule at and around its thresholds, and the order among them."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.history import History
from console.core.model import (
    ContainerState,
    ContainerUsage,
    Event,
    GpuBox,
    GpuState,
    HostState,
    ModelRow,
    PodmanState,
    TritonMetrics,
    Verdict,
)
from tests.advisors.cases import MONO, NOW, config, good, ids, once, queue, row, snapshot, window


def judge(settings: dict[str, Any] | None = None, *, pending: tuple[float, ...] = (0.0,) * 30, **seen: Any) -> Verdict:
    """The one flow verdict of a model with these figures."""
    made = config(**(settings or {}))
    box = snapshot(
        row(window(instances=made.instances or 1, max_batch=made.max_batch_size, **seen), made, pending=pending)
    )
    found = once(box)
    assert len(found) == 1, ids(found)
    return found[0]


# ------------------------------------------------------------------------------------------------------- V12 and V15


def fails(reason: str, rate: float, failed: float, **settings: Any) -> Verdict:
    made = config(**settings)
    seen = window(rate=rate, fail_rate=failed, busy=0.3)
    return once(snapshot(row(seen, made, failures={reason: failed} if reason else None)))[0]


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("BACKEND", "m fails 40.0/s in the model"),
        ("REJECTED", "m: 40.0/s time out in the queue (policy 50 ms)"),
        ("CANCELED", "m: clients give up on 40.0/s"),
        ("OTHER", "m fails 40.0/s"),
        ("", "m fails 40.0/s"),
        ("SOMETHING NEW", "m fails 40.0/s"),
    ],
)
def test_failures_are_told_by_reason(reason: str, title: str) -> None:
    found = fails(reason, 100, 40, queue=queue(0, 50_000))
    assert (found.id, found.sign, found.title) == ("V12", "fail", title)
    assert found.lines[0] == "29 % of its requests fail"


@pytest.mark.parametrize(("failed", "id_"), [(1.0, "V31"), (1.1, "V12")])
def test_failures_count_from_one_percent(failed: float, id_: str) -> None:
    assert fails("BACKEND", 100, failed).id == id_


def test_a_small_share_has_a_digit_after_the_point() -> None:
    assert fails("BACKEND", 100, 3.1).lines[0] == "3.0 % of its requests fail"


@pytest.mark.parametrize(("failed", "id_"), [(4 / 30, "V34"), (5 / 30, "V12")])
def test_a_handful_of_failures_is_enough_where_nothing_succeeds(failed: float, id_: str) -> None:
    seen = window(rate=0, fail_rate=failed, batch=None, wait=None, compute=None, busy=0)
    assert once(snapshot(row(seen, config())))[0].id == id_


@pytest.mark.parametrize(
    ("pending", "id_"),
    [
        ((0.0,) * 29 + (64.0,), "V15"),
        ((0.0,) * 29 + (61.0,), "V15"),
        ((0.0,) * 29 + (60.0,), "V31"),
        ((64.0,) + (0.0,) * 29, "V31"),
        ((), "V31"),
    ],
)
def test_a_queue_at_its_limit_in_one_of_ten_samples(pending: tuple[float, ...], id_: str) -> None:
    assert judge({"queue": queue(64)}, pending=pending, busy=0.4).id == id_


def test_a_queue_at_its_limit_while_instances_idle() -> None:
    found = judge({"queue": queue(64)}, pending=(64.0,) * 30, rate=46, busy=0.55)
    assert found.title == "m: the queue reaches its limit (64 of 64, 10 of 10 samples): Triton answers 503"
    assert found.lines[1] == "and the instances idle meanwhile (busy 55 %): it serves 46.0/s and can do more"
    assert len(judge({"queue": queue(64)}, pending=(64.0,) * 30, busy=0.71, wait=0.0).lines) == 1


def test_without_a_limit_a_long_queue_is_not_at_it() -> None:
    assert judge(pending=(0.0,) * 20 + (999.0,) * 10, busy=0.4).id == "V31"


# --------------------------------------------------------------------------------------------------------- V17 to V19

FULL: dict[str, Any] = {"rate": 225, "batch": 4.0, "wait": 174.0, "compute": 17.3, "busy": 0.99}


def test_at_its_cap() -> None:
    found = judge({"max_batch_size": 4}, pending=(39.0,) * 30, **FULL)
    assert found.id == "V17"
    assert found.title == "m is at its cap: 100 % of runs are 4 of 4, wait 174 ms, 39 waiting"
    assert found.lines == ("whether larger batches would help: cannot be told from the sizes seen",)


def test_at_its_cap_and_more_come_than_go() -> None:
    rising = tuple(75.0 * second for second in range(30))
    assert "and 75.0/s more come than go" in judge({"max_batch_size": 4}, pending=rising, **FULL).lines


@pytest.mark.parametrize(
    ("half", "full", "words"),
    [(14.0, 17.0, "larger batches would help:"), (14.0, 26.0, "larger batches would not help much:")],
)
def test_whether_larger_batches_help_is_told_from_the_sizes_seen(half: float, full: float, words: str) -> None:
    sizes = {2: (40, half), 4: (1600, full)}
    found = judge({"max_batch_size": 4}, **{**FULL, "batch": 3.95, "sizes": sizes})
    assert found.lines[0].startswith(words)


@pytest.mark.parametrize("change", [{"batch": 3.55}, {"busy": 0.94}])
def test_not_quite_at_its_cap_waits_for_an_instance(change: dict[str, Any]) -> None:
    assert judge({"max_batch_size": 4}, **{**FULL, **change}).id == "V22"


OFF = {"dynamic_batching": False}
ONE_BY_ONE: dict[str, Any] = {"rate": 70, "batch": 1.0, "wait": 98.0, "compute": 14.0, "busy": 0.99}


def test_batching_off() -> None:
    assert judge(OFF, **ONE_BY_ONE).title == "m waits 98.0 ms one by one: batching is off, 7.8 requests are in at once"
    assert "cannot batch" in judge({**OFF, "max_batch_size": 0}, **ONE_BY_ONE).title
    assert judge({"max_batch_size": 1}, **ONE_BY_ONE).id == "V18"


@pytest.mark.parametrize(
    ("settings", "change", "id_"),
    [
        (OFF, {"busy": 0.89}, "V22"),
        (OFF, {"wait": 13.0}, "V22"),
        ({**OFF, "instances": 7}, {}, "V22"),
        ({**OFF, "sequence_batching": True}, {}, "V22"),
    ],
)
def test_not_batching_off(settings: dict[str, Any], change: dict[str, Any], id_: str) -> None:
    assert judge(settings, **{**ONE_BY_ONE, **change}).id == id_


FEW: dict[str, Any] = {"rate": 130, "batch": 1.1, "wait": 0.15, "compute": 14.25, "busy": 0.84}


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({}, "V19"),
        ({"busy": 0.49}, "V31"),
        ({"rate": 160}, "V31"),
        ({"rate": 60, "busy": 0.53}, "V31"),
        ({"wait": 1.7, "rate": 110}, "V31"),
    ],
)
def test_too_few_in_flight(change: dict[str, Any], id_: str) -> None:
    assert judge({"instances": 2}, **{**FEW, **change}).id == id_


# --------------------------------------------------------------------------------------------------------- V20 and V21


@pytest.mark.parametrize(
    ("settings", "change", "id_"),
    [
        ({}, {}, "V20"),
        ({}, {"busy": 0.71}, "V24"),
        ({}, {"wait": 6.3}, "V32"),
        ({}, {"wait": 11.01}, "V32"),
        ({}, {"wait": 10.99}, "V20"),
        ({"delay_us": 0}, {}, "V32"),
        ({"dynamic_batching": False}, {}, "V32"),
        ({}, {"rate": 100, "wait": 7.5}, "V21"),
    ],
)
def test_waits_for_nothing(settings: dict[str, Any], change: dict[str, Any], id_: str) -> None:
    base = {"rate": 40.0, "batch": 1.4, "wait": 8.9, "compute": 15.0, "busy": 0.2}
    assert judge({"delay_us": 10_000, "instances": 2, **settings}, **{**base, **change}).id == id_


def test_what_a_delay_for_nothing_costs() -> None:
    found = judge({"delay_us": 10_000}, rate=40, batch=1.4, wait=8.9, compute=15.1, busy=0.2)
    assert found.title == "m waits for nothing: 0.4 requests come within its 10 ms delay"
    assert found.lines == ("off or shorter saves 8.90 of 24.0 ms",)
    assert found.figures.startswith("30 s: D 10.0 ms   R 40.0/s   RD 0.4   wait 8.90 ms   the delay alone makes 8.5")


GATHERS: dict[str, Any] = {"rate": 1650, "batch": 4.3, "wait": 1.23, "compute": 1.71, "busy": 0.31}


def test_waits_on_purpose_is_a_note() -> None:
    found = judge({"delay_us": 2000, "instances": 2}, **GATHERS)
    assert (found.id, found.sign) == ("V21", "note")
    assert found.lines[0] == "1.23 of its 2.94 ms is its delay of 2000 µs; instances are 31 % busy"
    assert found.means.startswith("42 % of a request's time")


def test_spent_filling_its_batch() -> None:
    found = judge({"delay_us": 50_000, "max_batch_size": 4}, rate=120, batch=4.0, wait=12.5, compute=10, busy=0.3)
    assert (found.id, found.sign) == ("V21", "note")
    assert "spent filling its batch of 4" in found.lines[0]


@pytest.mark.parametrize(
    ("event", "sign"),
    [
        (Event(NOW - 60, "warn", "m delay 500 → 2000 µs", "x", "config", "m"), "warn"),
        (Event(NOW - 3700, "warn", "m delay 500 → 2000 µs", "x", "config", "m"), "note"),
        (Event(NOW - 60, "warn", "n delay 500 → 2000 µs", "x", "config", "n"), "note"),
        (Event(NOW - 60, "warn", "m instances 1 → 2", "x", "config", "m"), "note"),
    ],
)
def test_a_delay_changed_within_the_hour_is_a_warning(event: Event, sign: str) -> None:
    made = config(delay_us=2000, instances=2)
    found = once(snapshot(row(window(instances=2, **GATHERS), made), events=(event,)))
    assert next(v.sign for v in found if v.id == "V21") == sign


def test_a_short_wait_by_a_changed_delay_is_a_note() -> None:
    event = Event(NOW - 60, "warn", "m delay 500 → 2000 µs", "x", "config", "m")
    seen = window(instances=2, **{**GATHERS, "compute": 5.0})
    assert once(snapshot(row(seen, config(delay_us=2000, instances=2)), events=(event,)))[0].sign == "note"


# --------------------------------------------------------------------------------------------------------- V22 to V24


def test_waits_for_an_instance() -> None:
    made = config(max_batch_size=4)
    seen = window(rate=150, batch=2.4, wait=18.4, compute=16.3, busy=0.97)
    found = once(snapshot(row(seen, made, memory=round(1.5 * (1 << 30)))))[0]
    assert found.title == "m waits for a free instance: 18.4 ms, batches 2.4 of 4"
    assert "(in place, + 1.5 GiB)" in found.lines[0]


def test_busy_with_room_by_the_full_size_seen() -> None:
    sizes = {3: (900, 15.0), 16: (20, 28.0)}
    found = judge({"instances": 2}, rate=400, batch=3.5, wait=5.7, compute=18.7, busy=0.96, sizes=sizes)
    assert found.title == "m is busy 96 %, but batches are 3.5 of 16"
    assert found.lines == ("it can take about 2.9 times as much",)


def test_busy_with_room_by_a_straight_line() -> None:
    sizes = {4: (100, 16.0), 6: (100, 18.0), 8: (100, 20.0)}
    found = judge({"instances": 2}, rate=400, batch=6.0, wait=5.7, compute=18.7, busy=0.96, sizes=sizes)
    assert found.lines == ("it can take about 2.9 times as much",)


@pytest.mark.parametrize(
    "sizes",
    [
        {2: (100, 14.0), 4: (100, 16.0), 7: (100, 19.0)},
        {4: (100, 16.0), 8: (100, 20.0)},
        {4: (100, 20.0), 6: (100, 18.0), 8: (100, 16.0)},
        {4: (19, 16.0), 6: (19, 18.0), 8: (19, 20.0)},
    ],
)
def test_room_that_cannot_be_told(sizes: dict[int, tuple[int, float]]) -> None:
    found = judge({"instances": 2}, rate=400, batch=3.5, wait=5.7, compute=18.7, busy=0.96, sizes=sizes)
    assert found.trust == "cannot tell"
    assert found.lines[0].startswith("how much more cannot be told: no batch above")


def test_busy_one_by_one() -> None:
    found = judge(OFF, rate=60, batch=1.0, wait=3.0, compute=15.0, busy=0.9)
    assert found.title == "m is busy 90 % with one request at a time"
    assert found.lines[0].startswith("it can take about 1.1 times")


@pytest.mark.parametrize(
    ("change", "id_"),
    [({}, "V24"), ({"busy": 0.49}, "V32"), ({"busy": 0.85, "wait": 10}, "V23"), ({"wait": 4.0}, "V31")],
)
def test_waits_at_peaks(change: dict[str, Any], id_: str) -> None:
    base = {"rate": 96, "batch": 1.0, "wait": 6.9, "compute": 13.9, "busy": 0.67}
    assert judge({**OFF, "instances": 2}, **{**base, **change}).id == id_


# --------------------------------------------------------------------------------------------------------- V25 to V27


def on_card(util: float, host: HostState | None = None, throttled: float | None = None, **seen: Any) -> Verdict:
    usage = ContainerUsage(throttled_share=throttled)
    container = ContainerState("c" * 64, "triton", "running", "name", usage=usage)
    figures: dict[str, Any] = {"rate": 100, "batch": 2.0, "wait": 30.0, "compute": 18.0, "busy": 0.95}
    model = row(window(**{**figures, **seen}), config(kind="KIND_GPU"))
    box = snapshot(
        model,
        gpu=good("gpu", GpuBox(gpus=(GpuState(0, util_pct=util),))),
        host=good("host", host or HostState(cpu_pct=20.0)),
        container=good("container", PodmanState("x", "rootful", container=container), 2.0),
    )
    return once(box)[0]


@pytest.mark.parametrize(
    ("host", "throttled", "words", "trust"),
    [
        (HostState(cpu_pct=20.0, stub_cores={"m/1": 0.97}), None, "a Python stub at 97 % of a core", "likely"),
        (HostState(cpu_pct=95.0), None, "the host's CPU is 95 % busy", "likely"),
        (HostState(cpu_pct=20.0), 0.3, "holds it back in 30 % of periods", "likely"),
        (HostState(cpu_pct=20.0, stub_cores={"m/1": 0.5}), 0.01, "cannot tell what they wait for", "cannot tell"),
        (HostState(), None, "cannot tell what they wait for", "cannot tell"),
    ],
)
def test_the_gpu_idles(host: HostState, throttled: float | None, words: str, trust: str) -> None:
    found = on_card(30.0, host, throttled)
    assert (found.id, found.trust) == ("V25", trust)
    assert words in found.lines[0]


@pytest.mark.parametrize(("util", "seen"), [(41.0, {}), (30.0, {"busy": 0.84})])
def test_the_gpu_does_not_idle(util: float, seen: dict[str, Any]) -> None:
    assert on_card(util, **seen).id != "V25"


def test_models_on_the_cpu_have_no_idle_card() -> None:
    box = snapshot(
        row(window(rate=100, batch=2.0, wait=30.0, compute=18.0, busy=0.95), config()),
        gpu=good("gpu", GpuBox(gpus=(GpuState(0, util_pct=1.0),))),
    )
    assert ids(once(box)) == ["V22"]


def test_util_is_a_mean_of_30_s_where_history_has_it() -> None:
    history = History()
    for second in range(30):
        history.record(MONO - second, {"gpu.0.util_pct": 60.0})
    box = snapshot(
        row(window(rate=100, batch=2.0, wait=30.0, compute=18.0, busy=0.95), config(kind="KIND_GPU")),
        gpu=good("gpu", GpuBox(gpus=(GpuState(0, util_pct=5.0),))),
    )
    assert ids(once(box, history)) == ["V22"]


LIMITED: dict[str, Any] = {"rate": 40, "batch": 1.0, "wait": 60.0, "compute": 20.0, "busy": 0.3}


def test_waits_though_free() -> None:
    found = judge({"rate_limited": True, "preserve_ordering": True}, pending=(3.0,) * 30, **LIMITED)
    assert (found.id, found.trust) == ("V26", "cannot tell")
    assert found.lines[1] == "its configuration has: a rate limiter, kept order"
    assert len(judge(pending=(3.0,) * 24 + (0.0,) * 6, **LIMITED).lines) == 1


@pytest.mark.parametrize(
    ("pending", "change", "id_"),
    [
        ((3.0,) * 23 + (0.0,) * 7, {}, "V32"),
        ((3.0,) * 30, {"wait": 6.0}, "V31"),
        ((3.0,) * 19, {}, "V32"),
        ((3.0,) * 30, {"busy": 0.51}, "V24"),
    ],
)
def test_not_waits_though_free(pending: tuple[float, ...], change: dict[str, Any], id_: str) -> None:
    assert judge(pending=pending, **{**LIMITED, **change}).id == id_


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({"inputs": 3.4}, "V27"),
        ({"outputs": 3.4}, "V27"),
        ({"inputs": 2.4}, "V31"),
        ({"inputs": 0.19, "compute": 0.5, "wait": 0.01}, "V31"),
    ],
)
def test_copies(change: dict[str, Any], id_: str) -> None:
    assert judge(**{"rate": 20, "wait": 0.1, "compute": 9.9, "busy": 0.2, **change}).id == id_


def test_what_makes_copies_slow() -> None:
    seen = window(rate=20, wait=0.1, compute=9.9, busy=0.2, inputs=3.4)
    model = row(seen, config(kind="KIND_GPU"))
    metrics = TritonMetrics("x", has_pending=True, has_summaries=True, pinned_total=100.0, pinned_used=96.0)
    card = GpuState(0, pcie_width=4, pcie_width_max=16)
    found = once(snapshot(model, gpu=good("gpu", GpuBox(gpus=(card,))), metrics=good("triton.metrics", metrics)))[0]
    assert found.title == "m: 34 % of the time goes into copying inputs"
    assert found.lines == ("PCIe of GPU 0 is 4 of 16 lanes wide", "the pinned memory pool is 96 % full")


# ------------------------------------------------------------------------------------------------------------ the rest


def test_nothing_stands_out_needs_all_inputs() -> None:
    plain: dict[str, Any] = {"rate": 40, "wait": 4.0, "compute": 11.0, "busy": 0.45}
    assert judge(**plain).id == "V32"
    blind = snapshot(row(window(**plain), config(), pending=()))
    assert once(blind) == ()


def test_without_a_configuration_nothing_is_well() -> None:
    box = snapshot(row(window(rate=40, wait=4.0, compute=11.0, busy=0.45), None))
    assert [(v.id, v.sign) for v in once(box)] == [("V39", "unknown")]


def test_streams_are_not_judged_by_times_that_are_not_theirs() -> None:
    assert ids(once(snapshot(row(window(rate=40, compute=15), config(decoupled=True))))) == ["V37"]


def test_a_model_whose_run_takes_longer_than_the_window_can_show_has_no_busy_share() -> None:
    seen = window(rate=2, batch=1.0, wait=1.0, compute=6500.0, sizes={1: (60, 6500.0)})
    assert once(snapshot(row(seen, config())))[0].id == "V31"


def test_two_versions_are_told_apart() -> None:
    one: ModelRow = row(window(compute=15), config())
    two = row(window(compute=15), config(version="2"), version="2")
    assert [v.title[:3] for v in once(snapshot(one, two))] == ["m 1", "m 2"]
