"""What each rule measures, and that each default limit is reached by the trouble that it is about.

Scenes of the simulator fire not_serving and restarts (triton-down), not_ready (load-failed), throttle_pct and
temperature_c (throttled), vram_pct (vram-full): test_scenes.py. No scene has the others, so each is fired here by the
smallest change of a box: gpu_lost, xid, oom, fail_per_s, p99_ms, queue_ms, disk_pct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from console.alerts.engine import Engine
from console.alerts.measure import BOX, DISK, RECENT_S, Moment, Restarts, Samples
from console.alerts.rules import RULES, thresholds
from console.config import Alerts
from console.core.model import (
    Failure,
    FailureCount,
    GpuBox,
    Histogram,
    KernelFault,
    KernelLog,
    ModelRow,
    Quantile,
    Reading,
    Serving,
    Snapshot,
)
from tests.alerts.test_scenes import BY_SCENE
from tests.fakes import drawn
from tests.fakes.boxes import Box, bad, drawn_box, empty_box, good, lost_gpu_box, stale_box, unread_box
from tests.fakes.drawn import NOW

MEASURES = {rule.key: rule.measure for rule in RULES}
LATER = 90.0
"""Seconds; more than any default hold time."""


def _of(box: Box, key: str, snapshot: Snapshot | None = None) -> Samples | None:
    seen = snapshot or box.snapshot
    restarts = Restarts()
    restarts.learn(seen)
    return MEASURES[key](Moment(seen, box.history, restarts))


def _values(samples: Samples | None) -> dict[str, float | None] | None:
    return None if samples is None else {name: one.value for name, one in samples.items()}


def test_the_drawn_box() -> None:
    box = drawn_box()
    told = {rule.key: _values(_of(box, rule.key)) for rule in RULES}
    assert told["not_serving"] == {BOX: 0}
    assert told["not_ready"] == {"ranking": 0, "recall": 0, "reco": 0, "rerank": 1}
    assert told["temperature_c"] == {"GPU 0": 66}
    assert told["queue_ms"] == {
        "ranking 2": pytest.approx(1.23, abs=0.01),
        "recall 7": pytest.approx(0.42, abs=0.01),
        "reco 1": None,
    }
    assert told["p99_ms"] == {"ranking 2": None, "recall 7": None, "reco 1": None}
    assert told["fail_per_s"] == {"ranking 2": 0, "recall 7": 0, "reco 1": 0}
    assert told["xid"] == {"GPU 0": 0}
    assert told["gpu_lost"] == {"GPU 0": 0}
    assert told["restarts"] == {BOX: 0}
    assert told["oom"] == {BOX: 0}
    assert told["disk_pct"] == {DISK: 64}
    full = _of(box, "vram_pct")
    assert full is not None
    assert full["GPU 0"].told == "41 % of 15.0 GiB, 8.9 GiB free"


@pytest.mark.parametrize("make", [unread_box, empty_box])
def test_nothing_is_known_of_a_box_that_is_not_there(make: Callable[[], Box]) -> None:
    box = make()
    told = {rule.key: _values(_of(box, rule.key)) for rule in RULES}
    assert told.pop("not_serving") == {BOX: None}
    assert set(told.values()) == {None}


def test_what_is_old_is_not_known() -> None:
    box = stale_box()
    for key in ("temperature_c", "throttle_pct", "vram_pct", "gpu_lost", "queue_ms", "p99_ms", "fail_per_s"):
        assert _of(box, key) is None, key


def test_a_lost_card_has_no_temperature() -> None:
    box = lost_gpu_box()
    assert _values(_of(box, "temperature_c")) == {"GPU 0": None}
    assert _values(_of(box, "gpu_lost")) == {"GPU 0": 1}
    assert _of(box, "gpu_lost")["GPU 0"].told == "NVML error 15: the GPU is lost"  # type: ignore[index]


# ------------------------------------------------------------------------------------- default limits, one by one


def _kernel(*faults: KernelFault) -> Reading[Any]:
    return good("kernel_log", KernelLog("journal", NOW - 3600, faults))


def _lost() -> Snapshot:
    return lost_gpu_box().snapshot


def _xid() -> Snapshot:
    fault = KernelFault(NOW - 30, "xid", "NVRM: Xid ...", 94, drawn.gpu_state().pci_bus_id)
    return drawn_box(kernel=_kernel(fault)).snapshot


def _oom() -> Snapshot:
    return drawn_box(kernel=_kernel(KernelFault(NOW - 30, "oom", "Out of memory ...", process="tritonserver"))).snapshot


def _full_disk() -> Snapshot:
    found = replace(drawn.repository(), disk_total=1000, disk_free=70)
    return drawn_box(repository=good("repository", found)).snapshot


def _with_ranking(change: Callable[[ModelRow], ModelRow]) -> Snapshot:
    snapshot = drawn_box().snapshot
    return replace(snapshot, models=tuple(change(row) if row.name == "ranking" else row for row in snapshot.models))


def _window(**fields: Any) -> Snapshot:
    def change(row: ModelRow) -> ModelRow:
        assert row.flow is not None
        assert row.flow.w10 is not None
        return replace(row, flow=replace(row.flow, w10=replace(row.flow.w10, **fields)))

    return _with_ranking(change)


def _metrics(**fields: Any) -> Snapshot:
    def change(row: ModelRow) -> ModelRow:
        assert row.metrics is not None
        return replace(row, metrics=replace(row.metrics, **fields))

    return _with_ranking(change)


def _slow_buckets() -> Snapshot:
    return _metrics(first_response=Histogram("f", None, "", 60.0, (500.0, 1000.0, 5000.0), (0.0, 0.0, 500.0, 0.0)))


CASES: dict[str, tuple[Callable[[], Snapshot], str]] = {
    "gpu_lost": (_lost, "GPU 0"),
    "xid": (_xid, "GPU 0"),
    "oom": (_oom, BOX),
    "disk_pct": (_full_disk, DISK),
    "fail_per_s": (lambda: _window(fail_rate=0.3), "ranking 2"),
    "queue_ms": (lambda: _window(queue_ms=120.0), "ranking 2"),
    "p99_ms": (lambda: _metrics(request_summary=(Quantile(0.99, 1200.0),)), "ranking 2"),
}


@pytest.mark.parametrize("key", CASES)
def test_its_trouble_fires_the_default(key: str) -> None:
    make, subject = CASES[key]
    snapshot, history = make(), drawn_box().history
    engine = Engine({key: thresholds(Alerts())[key]})
    later = replace(snapshot, mono=snapshot.mono + LATER, wall=snapshot.wall + LATER)
    # time passes, the readings stay fresh
    fresh = {
        field: replace(one, mono=one.mono + LATER)
        for field in ("gpu", "stats", "index", "metrics", "repository", "kernel", "container")
        if (one := getattr(later, field)).mono is not None
    }
    began = (*engine.look(snapshot, history).began, *engine.look(replace(later, **fresh), history).began)
    assert [(one.rule, one.subject) for one in began] == [(key, subject)]
    healthy = drawn_box()
    quiet = Engine({key: thresholds(Alerts())[key]})
    quiet.look(healthy.snapshot, healthy.history)
    assert quiet.active == ()


def test_every_default_rule_is_fired_by_a_scene_or_by_a_case() -> None:
    by_scene = {key for keys in BY_SCENE.values() for key in keys}
    assert by_scene | CASES.keys() == {rule.key for rule in RULES} == set(thresholds(Alerts()))
    assert not by_scene & CASES.keys()


# ------------------------------------------------------------------------------------------------------- fine points


def test_what_the_queue_refused_is_a_failure() -> None:
    refused = _metrics(failures=(FailureCount("REJECTED", 90, 9.0, 3.0), FailureCount("CANCELED", 5, 5.0, 5.0)))
    assert _values(_of(drawn_box(), "fail_per_s", refused))["ranking 2"] == 9  # type: ignore[index]


def test_of_a_histogram_the_sure_part_counts() -> None:
    found = _of(drawn_box(), "p99_ms", _slow_buckets())
    assert found is not None
    assert found["ranking 2"].value == 1000
    assert "histogram" in found["ranking 2"].told


def test_a_model_at_rest_is_not_slow() -> None:
    idle = _window(success=0, failed=0, executions=0, queue_ms=None)
    waiting = [_values(_of(drawn_box(), key, idle))["ranking 2"] for key in ("queue_ms", "p99_ms")]  # type: ignore[index]
    assert waiting == [None, None]  # two wait and none was answered: how long they do is not known
    resting = replace(
        idle,
        models=tuple(
            replace(row, metrics=replace(row.metrics, pending=0.0)) if row.metrics else row for row in idle.models
        ),
    )
    assert _values(_of(drawn_box(), "queue_ms", resting))["ranking 2"] == 0.0  # type: ignore[index]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("SERVING", 0),
        ("DOWN", 1),
        ("NOT ANSWERING", 1),
        ("STARTING", None),
        ("NOTHING LOADED", None),
        ("UNKNOWN", None),
    ],
)
def test_serving(word: Any, value: float | None) -> None:
    snapshot = replace(drawn_box().snapshot, serving=Serving(word))
    assert _values(_of(drawn_box(), "not_serving", snapshot)) == {BOX: value}
    known = _of(drawn_box(), "not_ready", snapshot) is not None
    assert known == (word in ("SERVING", "DOWN"))


def test_what_was_unloaded_on_purpose_is_no_cause() -> None:
    def unload(row: ModelRow) -> ModelRow:
        return replace(row, state="UNAVAILABLE", failed_load=False, reason="unloaded")

    assert "ranking" not in (_of(drawn_box(), "not_ready", _with_ranking(unload)) or {})


def test_old_faults_no_longer_count() -> None:
    old = KernelFault(NOW - RECENT_S - 1, "oom", "", process="python")
    assert _values(_of(drawn_box(kernel=_kernel(old)), "oom")) == {BOX: 0}


def test_an_xid_of_a_card_that_nvml_does_not_list_stands_under_its_address() -> None:
    fault = KernelFault(NOW - 5, "xid", "", 79, "0000:af:00")
    box = drawn_box(kernel=_kernel(fault), gpu=good("gpu", GpuBox("550.90.07")))
    assert _values(_of(box, "xid")) == {"GPU at 0000:af:00": 1}


def _restarted(count: int | None, started: float, id_: str = "a" * 64) -> Snapshot:
    podman = drawn.podman()
    assert podman.container is not None
    one = replace(podman.container, restarts=count, started_wall=started, finished_wall=None, id=id_)
    return drawn_box(container=good("container", replace(podman, container=one, unit=None))).snapshot


def test_restarts_are_rises_of_the_count() -> None:
    seen = Restarts()
    told = []
    for snapshot in (
        _restarted(3, NOW - 7200),
        _restarted(4, NOW),
        _restarted(4, NOW),
        _restarted(None, NOW),
        _restarted(6, NOW),
        _restarted(0, NOW, "b" * 64),
    ):
        seen.learn(snapshot)
        told.append(seen.recent)
    assert told == [0, 1, 1, 1, 3, 3]
    seen.learn(replace(_restarted(6, NOW), wall=NOW + RECENT_S + 1))
    assert seen.recent == 0


def test_one_that_restarted_just_before_the_start_is_known() -> None:
    seen = Restarts()
    seen.learn(_restarted(5, NOW - 20))
    assert seen.recent == 1


def test_podman_that_is_not_read_is_not_known() -> None:
    silent = drawn_box(container=bad("container", "unavailable", "no socket"))
    assert _of(silent, "restarts") is None
    assert Failure("unavailable", "no socket").kind == silent.snapshot.container.error.kind  # type: ignore[union-attr]
