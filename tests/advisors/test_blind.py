"""What cannot be told: V33 to V39."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.core.model import (
    Asked,
    CustomFamily,
    Failure,
    GpuBox,
    GpuState,
    ModelRow,
    Reading,
    Snapshot,
    TritonConfigs,
    TritonMetrics,
    Verdict,
)
from tests.advisors.cases import MONO, NOW, config, good, ids, once, row, snapshot, window

IDLE = window(rate=0, batch=None, wait=None, compute=None, busy=0, sizes={})
BUSY = row(window(rate=40, compute=15, busy=0.2), config())


def broken(part: str, message: str = "403: expecting header 'key'", hint: str = "", **other: Any) -> Reading[Any]:
    return Reading(part, 1.0, error=Failure("protocol", message, hint), error_mono=MONO - 5, **other)


def titles(box: Snapshot, id_: str = "V39") -> list[str]:
    return [one.title for one in once(box) if one.id == id_]


def idle(name: str = "m", seconds: float | None = 252.0) -> ModelRow:
    last = 0 if seconds is None else int((NOW - seconds) * 1000)
    return row(IDLE, config(name), name=name, stats={"last_inference_ms": last})


# ----------------------------------------------------------------------------------------------------- V33 and V34


@pytest.mark.parametrize(
    ("seconds", "title"),
    [
        (252.0, "m: no requests for 4m12s"),
        (60.0, "m: no requests for 1m00s"),
        (None, "m: no requests since it was loaded"),
    ],
)
def test_a_model_that_nobody_asks(seconds: float | None, title: str) -> None:
    found = once(snapshot(idle(seconds=seconds)))
    assert [(v.id, v.sign, v.title) for v in found] == [("V33", "none", title)]


def test_a_short_pause_is_none() -> None:
    assert once(snapshot(idle(seconds=59.0))) == ()


def test_a_model_that_only_fails_or_waits_is_asked() -> None:
    failing = row(window(rate=0, fail_rate=5, batch=None, wait=None, compute=None, busy=0), config())
    assert "V33" not in ids(once(snapshot(failing)))
    waiting = replace(idle(), metrics=BUSY.metrics and replace(BUSY.metrics, pending=3.0))
    assert "V33" not in ids(once(snapshot(waiting)))


def test_many_idle_models_are_one_line() -> None:
    found = once(snapshot(*(idle(f"m{number}") for number in range(4))))
    assert [v.title for v in found] == ["no requests for a minute or more: 4 models (m0, m1, m2 …)"]
    assert len(once(snapshot(*(idle(f"m{number}") for number in range(3))))) == 3


@pytest.mark.parametrize(
    ("success", "span", "executions", "title"),
    [
        (49, 30.0, 49, "m: too few requests to judge: 49 in 30 s"),
        (400, 30.0, 19, "m: too few runs to judge: 19 in 30 s"),
    ],
)
def test_too_few_to_judge(success: int, span: float, executions: int, title: str) -> None:
    seen = replace(window(rate=success / span, span=span, compute=15), executions=executions)
    assert titles(snapshot(row(seen, config())), "V34") == [title]


def test_longer_windows_are_tried_first() -> None:
    few, more = window(rate=1, compute=15, busy=0.02), window(rate=1, span=120.0, compute=15, busy=0.02)
    assert ids(once(snapshot(row(few, config(), windows={"w120": more})))) == ["V31"]
    assert ids(once(snapshot(row(few, config(), windows={"w300": more})))) == ["V31"]
    assert ids(once(snapshot(row(few, config(), windows={"w120": replace(more, crosses_reset=True)})))) == ["V34"]


def test_many_with_too_few_are_one_line() -> None:
    few = window(rate=1, compute=15)
    rows = [row(few, config(f"m{number}"), name=f"m{number}") for number in range(5)]
    assert titles(snapshot(*rows), "V34") == ["too few requests to judge: 5 models (m0, m1, m2 …)"]


# ----------------------------------------------------------------------------------------------------- V35 to V38


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        (TritonMetrics("x", has_pending=True), ["V31", "V35"]),
        (TritonMetrics("x", has_pending=True, has_summaries=True), ["V31"]),
        (TritonMetrics("x", has_pending=True, has_histograms=True), ["V31"]),
    ],
)
def test_no_percentiles(metrics: TritonMetrics, told: list[str]) -> None:
    assert ids(once(snapshot(BUSY, metrics=good("triton.metrics", metrics)))) == told


def test_without_traffic_no_percentile_is_missed() -> None:
    metrics = good("triton.metrics", TritonMetrics("x", has_pending=True))
    assert "V35" not in ids(once(snapshot(idle(), metrics=metrics)))


@pytest.mark.parametrize(
    ("millis", "ok", "told"), [(36.0, True, True), (34.0, True, False), (None, True, False), (99.0, False, False)]
)
def test_a_client_that_saw_more(millis: float | None, ok: bool, told: bool) -> None:
    answer = Asked("m", None, ok, NOW - 3, millis, "x")
    assert ("V36" in ids(once(snapshot(BUSY), asked={"m": answer}))) == told


@pytest.mark.parametrize(
    ("settings", "families", "lines"),
    [
        ({"decoupled": True}, (), ()),
        ({"backend": "vllm"}, (), ("KV cache use is not exported, from the log only",)),
        ({"backend": "vllm"}, (CustomFamily("vllm:kv_cache_usage", "gauge", ()),), ()),
        ({"backend": "tensorrtllm"}, (), ()),
    ],
)
def test_streaming(settings: dict[str, Any], families: tuple[CustomFamily, ...], lines: tuple[str, ...]) -> None:
    metrics = TritonMetrics("x", has_pending=True, has_summaries=True, custom=families)
    box = snapshot(row(window(rate=40, compute=15), config(**settings)), metrics=good("triton.metrics", metrics))
    assert [v.lines for v in once(box) if v.id == "V37"] == [lines]


# ------------------------------------------------------------------------------------------------------------- V39


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("stats", "traffic, times and batches: cannot tell"),
        ("index", "states of models: cannot tell"),
        ("metrics", "waiting, failure reasons and tail: cannot tell"),
        ("container", "container: cannot tell"),
        ("repository", "config.pbtxt and versions on disk: cannot tell"),
        ("host", "CPU and Python processes: cannot tell"),
    ],
)
def test_a_source_that_does_not_answer(part: str, words: str) -> None:
    found = titles(replace(snapshot(BUSY), **{part: broken(part, hint="set [triton] headers")}))
    assert len(found) == 1
    assert found[0].startswith(words)
    assert "403: expecting header 'key'" in found[0]


def test_what_is_needed_is_told() -> None:
    found = once(snapshot(BUSY, stats=broken("stats", hint="set [triton] headers")))
    assert next(v.lines for v in found if v.id == "V39") == ("needed: set [triton] headers",)


def test_statistics_under_namespacing() -> None:
    found = titles(snapshot(BUSY, stats=broken("stats", "400: unknown model: '/repo::rank'")))
    assert found[0].startswith("statistics: cannot tell, they fail under model namespacing")


def test_a_page_without_pending_counts_and_one_with_frozen_counters() -> None:
    assert BUSY.metrics
    old = TritonMetrics("x", models=(BUSY.metrics,), has_summaries=True)
    assert titles(snapshot(BUSY, metrics=good("triton.metrics", old)))[0].startswith("waiting: cannot tell")
    assert BUSY.flow
    for counted, frozen in ((19, False), (20, True)):
        flow = replace(BUSY.flow, stats=replace(BUSY.flow.stats, success_count=counted))
        for shown in (0.0, 5.0, None):
            page = replace(BUSY.metrics, success_total=shown)
            found = titles(snapshot(replace(BUSY, flow=flow, metrics=page)))
            told = any(title.startswith("counters on the metrics page") for title in found)
            assert told == (frozen and shown == 0), (counted, shown)


def test_a_model_whose_configuration_cannot_be_had() -> None:
    configs = good("triton.config", TritonConfigs(failures={"m": "403: restricted"}), 5.0)
    found = titles(snapshot(replace(BUSY, config=None, instances=None), configs=configs))
    assert found == ["m: cannot judge without its configuration (403: restricted)"]


def test_before_the_first_configuration_nothing_is_missing() -> None:
    box = snapshot(replace(BUSY, config=None, instances=None), configs=Reading("triton.config", 5.0))
    assert titles(box) == []


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        (broken("gpu", "NVML has not answered for 9 s"), 1),
        (broken("gpu", "no NVIDIA device on the PCI bus of this host"), 0),
        (broken("gpu", "NVML error 18: libraries 570, kernel 550"), 0),
        (good("gpu", GpuBox(pci_devices=0)), 0),
        (good("gpu", GpuBox(gpus=(GpuState(0, mig_on=True),))), 1),
        (good("gpu", GpuBox(gpus=(GpuState(0, mig_on=True, util_pct=3.0),))), 0),
    ],
)
def test_cards_that_cannot_be_seen(gpu: Reading[GpuBox], told: int) -> None:
    assert len(titles(snapshot(BUSY, gpu=gpu))) == told


def test_the_kernel_log_matters_where_there_is_a_card() -> None:
    kernel = broken("kernel_log", "may not be read")
    assert titles(snapshot(BUSY, kernel=kernel)) == []
    gpu = good("gpu", GpuBox(gpus=(GpuState(0),), pci_devices=1))
    assert titles(snapshot(BUSY, kernel=kernel, gpu=gpu))[0].startswith("Xid and OOM: cannot tell")


def test_blind_spots_hide_nothing() -> None:
    found: tuple[Verdict, ...] = once(snapshot(BUSY, metrics=broken("metrics"), host=broken("host")))
    assert ids(found)[0] == "V31"
    assert ids(found).count("V39") == 2
