"""Events by comparison of two snapshots: which step makes which, and which makes none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core.changes import NOT_OURS, SILENT_AFTER, changes, config_changes
from console.core.model import (
    Event,
    Failure,
    GpuBox,
    GpuState,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelRow,
    ModelStats,
    QueuePolicy,
    Reading,
    Snapshot,
    TritonIndex,
    TritonServer,
    TritonStats,
)

BASE = Snapshot(
    wall=1000.0,
    mono=100.0,
    server=Reading("triton.server", 1.0, TritonServer("u", True, True), 1000.0, 100.0),
    index=Reading("triton.index", 1.0, TritonIndex(), 1000.0, 100.0),
    stats=Reading("triton.stats", 1.0, TritonStats(), 1000.0, 100.0),
)


def step(old: tuple[ModelRow, ...], new: tuple[ModelRow, ...], **later: Any) -> list[Event]:
    return changes(replace(BASE, models=old), replace(BASE, wall=1001.0, mono=101.0, models=new, **later))


def row(state: str | None = "READY", **more: Any) -> ModelRow:
    return ModelRow(**{"name": "rank", "version": "1", "state": state, **more})


def flow(resets: int) -> ModelFlow:
    return ModelFlow(ModelKey("rank", "1"), ModelStats("rank", "1"), resets=resets)


# ------------------------------------------------------------------------------------------------------------- models


def test_each_state_has_its_event() -> None:
    failed = row("UNAVAILABLE", reason=" boom \nmore", failed_load=True)
    assert step((row("LOADING"),), (row(),)) == [
        Event(1001.0, "ok", "rank 1 is READY", "(index)", "model.ready", "rank")
    ]
    assert step((row("LOADING"),), (failed,)) == [
        Event(1001.0, "fail", "rank 1 failed to load", "(index)", "model.failed", "rank", ("boom ",))
    ]
    assert step((row(),), (row("UNAVAILABLE"),)) == [
        Event(1001.0, "note", "rank 1 was unloaded", "(index)", "model.unloaded", "rank")
    ]
    assert step((row("UNAVAILABLE"),), (row("LOADING"),)) == [
        Event(1001.0, "note", "rank 1 is loading", "(index)", "model.loading", "rank", marks_chart=False)
    ]


def test_what_is_no_change_of_state() -> None:
    assert step((row(),), (row(since_mono=5.0),)) == []
    assert step((), (row("UNAVAILABLE"),)) == [], "it was unloaded when it was first seen"
    assert step((row(None),), (row("UNAVAILABLE"),)) == []
    assert step((row(),), (row("UNLOADING"),)) == []
    assert step((row(),), ()) == []


def test_a_failed_load_is_told_again_for_another_reason_only() -> None:
    failed = row("UNAVAILABLE", reason="a", failed_load=True)
    assert step((failed,), (replace(failed, since_mono=9.0),)) == []
    [event] = step((failed,), (replace(failed, reason="b"),))
    assert event.detail == ("b",)
    [event] = step((), (failed,))
    assert event.kind == "model.failed"
    [event] = step((row(),), (replace(failed, reason=None),))
    assert event.detail == ()


def test_a_name_without_a_version() -> None:
    [event] = step((row(None, version=None),), (row(version=None),))
    assert event.text == "rank is READY"


def test_nothing_is_compared_with_what_was_never_read() -> None:
    for part in ("index", "stats"):
        blind = replace(BASE, **{part: Reading(part, 1.0)})
        assert changes(blind, replace(BASE, models=(row(),))) == []


def test_a_reload_shows_by_the_counters_alone() -> None:
    reloaded = step((row(flow=flow(0)),), (row(flow=flow(1)),))
    assert reloaded == [Event(1001.0, "warn", "rank 1 was reloaded", NOT_OURS, "reload", "rank")]
    assert step((row(flow=flow(1)),), (row(flow=flow(1), since_mono=2.0),)) == []
    assert step((row(flow=None),), (row(flow=flow(1)),)) == []
    assert step((row(flow=flow(0)),), (row(flow=None),)) == []
    loading = step((row("LOADING", flow=flow(0)),), (row(flow=flow(1)),))
    assert [event.kind for event in loading] == ["model.ready"]


@pytest.mark.parametrize("side", ["old", "new"])
def test_counters_that_begin_anew_with_the_server_are_no_reload(side: str) -> None:
    silent = replace(BASE.server, error=Failure("unavailable", "refused"), error_mono=100.5)
    old = replace(BASE, models=(row(flow=flow(0)),), server=silent if side == "old" else BASE.server)
    new = replace(BASE, wall=1001.0, models=(row(flow=flow(1)),), server=silent if side == "new" else BASE.server)
    assert [event for event in changes(old, new) if event.kind == "reload"] == []


def test_a_version_on_disk_is_told_once() -> None:
    from console.core.model import DiskModel

    disk = DiskModel("rank", "/m/rank")
    before, after = row(disk=disk), row(disk=disk, newer_on_disk=3)
    assert [event.text for event in step((before,), (after,))] == ["rank 3 appeared on disk, newer than the served 1"]
    assert step((after,), (replace(after, since_mono=1.0),)) == []
    assert [event.kind for event in step((after,), (replace(after, newer_on_disk=4),))] == ["disk.version"]
    assert step((row(),), (after,)) == [], "the repository was not read before"


# ------------------------------------------------------------------------------------------------------ configuration

CONFIG = ModelConfig("rank", "1", raw="{0}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dynamic_batching": True}, "dynamic batching off → on"),
        ({"delay_us": 500}, "delay 0 → 500 µs"),
        ({"preferred": (4, 8)}, "preferred sizes none → 4,8"),
        ({"max_batch_size": 8}, "max batch size 0 → 8"),
        ({"queue": QueuePolicy(64)}, "queue limit 0 → 64"),
        ({"queue": QueuePolicy(0, 900)}, "queue time-out 0 → 900 µs"),
        ({"priority_levels": 2}, "priority levels 0 → 2"),
        ({"response_cache": True}, "response cache off → on"),
        ({"backend": "python"}, "configuration changed"),
    ],
)
def test_each_setting_in_words(change: dict[str, Any], told: str) -> None:
    after = replace(CONFIG, raw="{1}", **change)
    assert config_changes(CONFIG, after) == [told]
    assert step((row(config=CONFIG),), (row(config=after),)) == [
        Event(1001.0, "warn", f"rank {told}", NOT_OURS, "config", "rank")
    ]


def test_the_same_text_is_no_change_and_another_version_says_nothing_vague() -> None:
    assert config_changes(CONFIG, replace(CONFIG, delay_us=9)) == [], "the text as served decides"
    assert config_changes(CONFIG, replace(CONFIG, version="2", raw="{1}")) == []
    assert step((row(config=None),), (row(config=CONFIG),)) == []
    assert step((row(config=CONFIG),), (row(config=None),)) == []


def test_a_changed_configuration_explains_its_reload() -> None:
    after = replace(CONFIG, raw="{1}", delay_us=5)
    events = step((row(config=CONFIG, flow=flow(0)),), (row(config=after, flow=flow(1)),))
    assert [event.kind for event in events] == ["config"]


# --------------------------------------------------------------------------------------------------------------- GPUs


def cards(*gpus: GpuState) -> Reading[GpuBox]:
    return Reading("gpu", 1.0, GpuBox("550", gpus=gpus), 1000.0, 100.0)


def gpu_step(was: GpuState, now: GpuState) -> list[Event]:
    return changes(replace(BASE, gpu=cards(was)), replace(BASE, wall=1001.0, gpu=cards(now)))


def test_a_card_lost_and_found() -> None:
    card, lost = GpuState(2, uuid="u"), GpuState(2, uuid="u", lost=Failure("unavailable", "gone"))
    assert gpu_step(card, lost) == [Event(1001.0, "fail", "GPU 2 is lost: gone", "(NVML)", "gpu.lost")]
    assert gpu_step(lost, card) == [Event(1001.0, "ok", "GPU 2 answers again", "(NVML)", "gpu.back")]
    assert gpu_step(lost, replace(lost, temp_c=5.0)) == []
    assert gpu_step(card, replace(card, temp_c=5.0)) == []


def test_cards_are_told_apart_by_identity_else_by_number() -> None:
    lost = Failure("unavailable", "gone")
    assert gpu_step(GpuState(0, uuid="a"), GpuState(0, uuid="b", lost=lost)) == [], "another card"
    assert [event.kind for event in gpu_step(GpuState(0), GpuState(0, lost=lost))] == ["gpu.lost"]
    assert gpu_step(GpuState(0), GpuState(1, lost=lost)) == []


def test_uncorrectable_errors_that_rose() -> None:
    assert gpu_step(GpuState(0, ecc_uncorrected_now=1), GpuState(0, ecc_uncorrected_now=3)) == [
        Event(1001.0, "fail", "GPU 0: uncorrectable ECC errors 1 → 3", "(NVML)", "ecc")
    ]
    assert gpu_step(GpuState(0, ecc_uncorrected_now=3), GpuState(0, ecc_uncorrected_now=3, temp_c=1.0)) == []
    assert gpu_step(GpuState(0, ecc_uncorrected_now=None), GpuState(0, ecc_uncorrected_now=3)) == []
    assert gpu_step(GpuState(0, ecc_uncorrected_now=3), GpuState(0, ecc_uncorrected_now=None)) == []
    [event] = gpu_step(GpuState(0, ecc_uncorrected_now=0), GpuState(0, ecc_uncorrected_now=1))
    assert event.text.endswith("0 → 1")


def test_a_power_limit_that_was_set() -> None:
    assert gpu_step(GpuState(0, power_limit_w=70.0), GpuState(0, power_limit_w=69.0)) == [
        Event(1001.0, "note", "GPU 0: power limit 70 → 69 W", NOT_OURS, "gpu.power_limit")
    ]
    assert gpu_step(GpuState(0, power_limit_w=70.0), GpuState(0, power_limit_w=70.9)) == []
    assert gpu_step(GpuState(0, power_limit_w=None), GpuState(0, power_limit_w=70.0)) == []
    assert gpu_step(GpuState(0, power_limit_w=70.0), GpuState(0, power_limit_w=None)) == []


def test_cards_not_read_on_one_side() -> None:
    card = cards(GpuState(0, lost=Failure("unavailable", "x")))
    assert changes(BASE, replace(BASE, gpu=card)) == []
    assert changes(replace(BASE, gpu=card), BASE) == []


# ------------------------------------------------------------------------------------------------------------ sources


@pytest.mark.parametrize(
    ("field", "name"),
    [("server", "Triton"), ("metrics", "the metrics port"), ("container", "Podman"), ("gpu", "NVML")],
)
def test_a_source_gone_silent_and_back(field: str, name: str) -> None:
    good: Reading[Any] = Reading(field, 1.0, GpuBox("550") if field == "gpu" else object(), 1000.0, 100.0)
    failing = replace(good, error=Failure("unavailable", "refused"), error_mono=101.0, error_wall=1001.0)
    early = replace(BASE, mono=101.0 + SILENT_AFTER, wall=1004.0, **{field: failing})
    late = replace(early, mono=early.mono + 0.5, wall=1004.5)
    assert changes(replace(BASE, **{field: good}), early) == []
    assert changes(early, late) == [
        Event(1001.0, "fail", f"{name} does not answer: refused", "(polling)", f"silent.{field}")
    ]
    later = replace(late, mono=late.mono + 1)
    assert changes(late, later) == [], "told once"
    assert changes(later, replace(later, wall=1009.0, **{field: good})) == [
        Event(1009.0, "ok", f"{name} answers again", "(polling)", f"back.{field}")
    ]
    assert changes(early, replace(early, **{field: good})) == [], "nobody was told that it was silent"


def test_a_source_that_never_answered_is_not_told_as_gone() -> None:
    never: Reading[Any] = Reading("container", 1.0, error=Failure("unavailable", "no socket"), error_mono=50.0)
    old = replace(BASE, mono=52.0, container=never)
    assert changes(old, replace(old, mono=54.0)) == []


def test_a_silence_of_unknown_beginning() -> None:
    good: Reading[Any] = Reading("server", 1.0, TritonServer("u", True, True), 1000.0, 100.0)
    failing = replace(good, error=Failure("unavailable", "refused"), error_mono=101.0)
    old = replace(BASE, mono=102.0, server=failing)
    [event] = changes(old, replace(old, mono=105.0, wall=1005.0))
    assert event.wall == 1005.0
    assert changes(old, replace(old, mono=105.0, server=replace(failing, error_mono=None))) == []


states = st.sampled_from([None, "READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN"])
rows = st.builds(
    ModelRow,
    name=st.sampled_from(["a", "[/x]", ""]),
    version=st.sampled_from([None, "1", "2"]),
    state=states,
    reason=st.none() | st.text(max_size=20),
    failed_load=st.booleans(),
    flow=st.none() | st.integers(0, 3).map(flow),
    newer_on_disk=st.none() | st.integers(0, 5),
)


@given(st.lists(rows, max_size=5), st.lists(rows, max_size=5))
def test_any_two_lists_of_models(old: list[ModelRow], new: list[ModelRow]) -> None:
    for event in step(tuple(old), tuple(new)):
        assert event.wall == 1001.0
        assert event.model in {one.name for one in new}
    assert step(tuple(old), tuple(old)) == [] or len({one.key for one in old}) < len(old)
