"""The Store folds readings and events; what did not change stays the same object."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from console.core import derive
from console.core.changes import SILENT_AFTER, config_changes
from console.core.model import (
    BatchWindow,
    ConfigDifference,
    ContainerState,
    DiskModel,
    DiskVersion,
    EnsembleStep,
    Event,
    Failure,
    Gaps,
    GpuBox,
    GpuState,
    HostState,
    IndexEntry,
    InstanceGroup,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelStats,
    PodmanState,
    Reading,
    Repository,
    Snapshot,
    ThrottleCounter,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
    Verdict,
    Window,
)
from console.core.store import Store, lettered, rows_named


def good(part: str, value: Any, mono: float = 100.0) -> Reading[Any]:
    return Reading(part, 1.0, value, 1000.0 + mono, mono, reads=1)


def bad(part: str, message: str, since: float, kind: Any = "unavailable", value: Any = None) -> Reading[Any]:
    return Reading(part, 1.0, value, None, None, Failure(kind, message), since, 1000.0 + since)


def window(rate: float = 10.0, busy_seconds: float = 3.0, ms_per_run: float = 5.0, fail_rate: float = 0.0) -> Window:
    return Window(
        span=10.0,
        success=int(rate * 10),
        failed=int(fail_rate * 10),
        executions=50,
        inferences=100,
        cache_hits=0,
        rate=rate,
        fail_rate=fail_rate,
        request_ms=3.0,
        queue_ms=1.0,
        input_ms=0.1,
        infer_ms=1.8,
        output_ms=0.1,
        compute_ms=2.0,
        mean_batch=2.0,
        busy_seconds=busy_seconds,
        batches=(BatchWindow(2, 50, ms_per_run),),
        crosses_reset=False,
    )


def flow(name: str, version: str = "1", resets: int = 0, **kwargs: float) -> ModelFlow:
    one = window(**kwargs)
    return ModelFlow(ModelKey(name, version), ModelStats(name, version), w1=one, w10=one, resets=resets)


def config(name: str, count: int = 2, **kwargs: Any) -> ModelConfig:
    groups = (InstanceGroup("KIND_GPU", count, (0,)),) if not kwargs.get("steps") else ()
    raw = msgspec.json.encode([name, count, str(sorted(kwargs.items()))]).decode()
    return ModelConfig(name, kwargs.pop("version", "1"), max_batch_size=16, instance_groups=groups, raw=raw, **kwargs)


SERVER = TritonServer("http://127.0.0.1:8000", live=True, ready=True, version="2.51.0")


def box(*flows: ModelFlow, **parts: Any) -> Store:
    store = Store()
    names = {(one.key.name, one.key.version) for one in flows}
    index = TritonIndex(tuple(IndexEntry(name, version, "READY") for name, version in sorted(names)))
    store.apply(good("triton.server", SERVER))
    store.apply(good("triton.index", parts.pop("index", index)))
    store.apply(good("triton.stats", TritonStats(flows)))
    for part, value in parts.items():
        store.apply(good(part.replace("_", ".", 1), value))
    return store


def test_a_snapshot_without_news_is_the_same_object() -> None:
    store = box(flow("rank"))
    first = store.snapshot(1100.0, 100.0)
    assert store.snapshot(1101.0, 101.0) is first


def test_what_does_not_reach_the_console_is_in_the_snapshot() -> None:
    store = box(flow("rank"))
    first = store.snapshot(1100.0, 100.0)
    assert first.gaps == Gaps()
    store.set_gaps(Gaps(dropped=(("lines", 3),)))
    second = store.snapshot(1101.0, 101.0)
    assert second.gaps.dropped == (("lines", 3),)
    assert second.models is first.models
    store.set_gaps(Gaps(dropped=(("lines", 3),)))
    assert store.snapshot(1102.0, 102.0) is second


def test_parts_and_rows_that_did_not_change_stay_the_same_objects() -> None:
    rank, recall = flow("rank"), flow("recall")
    store = box(rank, recall)
    first = store.snapshot(1100.0, 100.0)
    store.apply(good("triton.stats", TritonStats((rank, flow("recall", rate=20.0))), 101.0))
    second = store.snapshot(1101.0, 101.0)
    assert second.index is first.index
    assert second.models[0] is first.models[0]
    assert second.models[1] is not first.models[1]


def test_models_are_the_union_of_what_each_source_knows() -> None:
    index = TritonIndex(
        (IndexEntry("rank", "2", "READY"), IndexEntry("broken"), IndexEntry("old", "1", "UNAVAILABLE", "unloaded"))
    )
    store = box(flow("rank", "2"), flow("gone_from_index"), index=index)
    rows = {row.name: row for row in store.snapshot(1100.0, 100.0).models}
    assert set(rows) == {"rank", "broken", "old", "gone_from_index"}
    assert rows["gone_from_index"].state == "READY"
    assert rows["gone_from_index"].seen_in == ("statistics",)
    assert rows["broken"].state is None
    assert not rows["old"].failed_load


def test_a_directory_entry_beside_versions_is_no_second_model() -> None:
    index = TritonIndex((IndexEntry("rank"), IndexEntry("rank", "2", "READY")))
    rows = box(flow("rank", "2"), index=index).snapshot(1100.0, 100.0).models
    assert [(row.name, row.version) for row in rows] == [("rank", "2")]


def test_failure_zombies_of_the_metrics_page_are_no_models() -> None:
    metrics = TritonMetrics(
        "u", (ModelMetrics(ModelKey("zombie", "1")), ModelMetrics(ModelKey("live", "1"), success_total=5.0))
    )
    store = Store()
    store.apply(good("triton.metrics", metrics))
    assert [row.name for row in store.snapshot(1100.0, 100.0).models] == ["live"]


def test_busy_is_over_all_instances_clamped_and_unknown_where_it_means_nothing() -> None:
    configs = TritonConfigs((config("a"), config("b"), config("c"), config("e", steps=(EnsembleStep("a", "-1"),))))
    store = box(
        flow("a", busy_seconds=6.0),
        flow("b", busy_seconds=30.0),
        flow("c", ms_per_run=7000.0),
        flow("d"),
        flow("e"),
        triton_config=configs,
    )
    rows = {row.name: row for row in store.snapshot(1100.0, 100.0).models}
    assert rows["a"].busy == pytest.approx(0.3)
    assert (rows["b"].busy, rows["b"].busy_clamped) == (1.0, True)
    assert rows["c"].busy is None
    assert rows["d"].busy is None, "instances unknown"
    assert rows["e"].busy is None
    assert rows["e"].ensemble


def test_traffic_from_outside_counts_an_ensembles_requests_once() -> None:
    configs = TritonConfigs(
        (
            config("ranking"),
            config("recall"),
            config("reco", steps=(EnsembleStep("recall", "-1"), EnsembleStep("ranking", "-1"))),
        )
    )
    store = box(flow("ranking", rate=1650), flow("recall", rate=180), flow("reco", rate=180), triton_config=configs)
    traffic = store.snapshot(1100.0, 100.0).traffic
    assert traffic.rate == pytest.approx(1650)
    assert traffic.through_ensembles == (("reco", 180.0),)
    assert not traffic.approximate


def test_traffic_is_approximate_where_a_step_ran_less_than_its_ensemble() -> None:
    configs = TritonConfigs((config("recall"), config("reco", steps=(EnsembleStep("recall", "-1"),))))
    store = box(flow("recall", rate=50), flow("reco", rate=180), triton_config=configs)
    assert store.snapshot(1100.0, 100.0).traffic.approximate


def test_a_version_that_latest_would_deploy_is_named() -> None:
    disk = DiskModel(
        "rank", "/m/rank", (DiskVersion(2, 1, 1.0), DiskVersion(3, 1, 1.0), DiskVersion(9, 0, 1.0, usable=False))
    )
    for policy, newer in (("latest 1", 3), ("", 3), ("specific 2", None), ("all", None)):
        configs = TritonConfigs((config("rank", version="2", version_policy=policy),))
        store = box(flow("rank", "2"), triton_config=configs)
        store.apply(good("repository", Repository("/m", models=(disk,))))
        assert store.snapshot(1100.0, 100.0).models[0].newer_on_disk == newer, policy


def test_live_only_settings_are_marked() -> None:
    disk = DiskModel("rank", "/m/rank", differences=(ConfigDifference("delay", "2000", "500"),))
    store = box(flow("rank"))
    store.apply(good("repository", Repository("/m", models=(disk,))))
    assert store.snapshot(1100.0, 100.0).models[0].live_only


# ------------------------------------------------------------------------------------------------------------ serving


def serving_of(**readings: Reading[Any]) -> str:
    snapshot = msgspec.structs.replace(Snapshot(wall=1100.0, mono=100.0), **readings)
    rows = derive.RowCache().rows(snapshot)
    word = derive.serving(snapshot, rows, 100.0)
    return f"{word.word} {word.ready}/{word.of} {word.detail}".strip()


def container(state: str, started: float = 0.0) -> Reading[Any]:
    return good(
        "container",
        PodmanState("s", "rootful", container=ContainerState("i", "triton", state, "name", started_wall=started)),
    )


INDEX = good(
    "triton.index",
    TritonIndex(
        (
            IndexEntry("rank", "1", "READY"),
            IndexEntry("rerank", "3", "UNAVAILABLE", "engine made with another TensorRT"),
            IndexEntry("gone", "1", "UNAVAILABLE", "unloaded"),
        )
    ),
)
NONE_READY = good("triton.index", TritonIndex((IndexEntry("rank", "1", "LOADING"),)))
REFUSED = bad("triton.server", "connection refused", 90.0)


def test_the_headers_word() -> None:
    live = good("triton.server", TritonServer("u", live=True, ready=False))
    assert serving_of() == "UNKNOWN 0/0"
    assert serving_of(server=live) == "UNKNOWN 0/0"
    assert serving_of(server=live, index=INDEX) == "SERVING 1/2"
    assert serving_of(server=live, index=NONE_READY) == "DOWN 0/1 no model is READY"
    assert serving_of(server=live, index=NONE_READY, container=container("running", 1060.0)) == "STARTING 0/1 40 s"
    assert serving_of(server=live, index=good("triton.index", TritonIndex())) == "NOTHING LOADED 0/0"
    assert serving_of(server=REFUSED) == "NOTHING SERVES YET 0/0"
    assert serving_of(server=REFUSED, container=container("exited")) == "DOWN 0/0 connection refused"
    assert serving_of(server=REFUSED, container=container("running", 1090.0)).startswith("STARTING")
    assert serving_of(server=REFUSED, container=container("running")) == "NOT ANSWERING 0/0 nor does the metrics port"
    held = bad("triton.server", "timed out", 90.0, "timeout")
    metrics = good("triton.metrics", TritonMetrics("u"))
    assert "metrics port does" in serving_of(server=held, container=container("running"), metrics=metrics)


# ------------------------------------------------------------------------------------------------------------- events


def texts(snapshot: Snapshot) -> list[str]:
    return [f"{event.sign}: {event.text} {event.origin}" for event in snapshot.events]


def follow(store: Store, *steps: list[Reading[Any]]) -> Snapshot:
    snapshot = store.snapshot(1100.0, 100.0)
    for number, readings in enumerate(steps, 1):
        for reading in readings:
            store.apply(reading)
        snapshot = store.snapshot(1100.0 + number, 100.0 + number)
    return snapshot


def test_the_first_snapshot_makes_no_events() -> None:
    assert texts(box(flow("rank")).snapshot(1100.0, 100.0)) == []


def test_model_states_become_events() -> None:
    store = box(flow("rank"))
    steps = [
        [good("triton.index", TritonIndex((IndexEntry("rank", "1", "READY"), IndexEntry("rank", "2", "LOADING"))))],
        [good("triton.index", TritonIndex((IndexEntry("rank", "1", "UNLOADING"), IndexEntry("rank", "2", "READY"))))],
        [
            good(
                "triton.index",
                TritonIndex((IndexEntry("rank", "1", "UNAVAILABLE", "unloaded"), IndexEntry("rank", "2", "READY"))),
            )
        ],
        [
            good(
                "triton.index",
                TritonIndex((IndexEntry("rank", "1", "UNAVAILABLE", "boom\nline 2"), IndexEntry("rank", "2", "READY"))),
            )
        ],
    ]
    snapshot = follow(store, *steps)
    assert texts(snapshot) == [
        "note: rank 2 is loading (index)",
        "ok: rank 2 is READY (index)",
        "note: rank 1 was unloaded (index)",
        "fail: rank 1 failed to load (index)",
    ]
    assert snapshot.events[-1].detail == ("boom",)


def test_a_reload_by_nobody_here_shows_by_its_statistics() -> None:
    snapshot = follow(box(flow("rank")), [good("triton.stats", TritonStats((flow("rank", resets=1),)), 101.0)])
    assert texts(snapshot) == ["warn: rank 1 was reloaded not made by a gpuconsole"]


def test_a_restart_is_no_reload() -> None:
    store = box(flow("rank"))
    store.snapshot(1100.0, 100.0)
    store.apply(bad("triton.server", "refused", 101.0, value=SERVER))
    store.snapshot(1101.0, 101.0)
    store.apply(good("triton.server", SERVER, 102.0))
    store.apply(good("triton.stats", TritonStats((flow("rank", resets=1),)), 102.0))
    assert not any("reloaded" in text for text in texts(store.snapshot(1102.0, 102.0)))


def test_a_restart_is_no_reload_where_statistics_come_back_last() -> None:
    store = box(flow("rank"))
    store.snapshot(1100.0, 100.0)
    for moment in (101.0, 105.0):
        store.apply(bad("triton.server", "refused", 101.0, value=SERVER))
        store.apply(bad("triton.stats", "refused", 101.0, value=TritonStats((flow("rank"),))))
        store.snapshot(1000.0 + moment, moment)
    for moment in (106.0, 107.0):
        store.apply(good("triton.server", SERVER, moment))
        store.snapshot(1000.0 + moment, moment)
    store.apply(good("triton.stats", TritonStats((flow("rank", resets=1),)), 108.0))
    assert not any("reloaded" in text for text in texts(store.snapshot(1108.0, 108.0)))


def test_what_statistics_told_before_they_failed_is_no_new_sample() -> None:
    store = box(flow("rank"))
    store.snapshot(1100.0, 100.0)
    store.apply(bad("triton.stats", "refused", 103.0, value=TritonStats((flow("rank"),))))
    store.snapshot(1103.0, 103.0)
    assert store.history.columns("box.rate", 103.0, 1, 4) == [10.0, None, None, None]


def test_a_fault_that_two_sources_tell_each_time_is_counted_once_a_time() -> None:
    store = Store()
    for back in (0.0, 100.0, 200.0):
        for origin, late in (("(server log)", 0.0), ("(index)", 0.4)):
            store.add_event(Event(1000.0 + back + late, "fail", "rank 1 failed to load", origin, "model.failed"))
    [event] = store.snapshot(1.0, 1.0).events
    assert (event.wall, event.repeats) == (1000.0, 3)
    store.add_event(Event(900.0, "fail", "rank 1 failed to load", "(server log)", "model.failed", repeats=5))
    [event] = store.snapshot(2.0, 2.0).events
    assert (event.wall, event.repeats) == (900.0, 8), "the past counts its own repeats"


def test_configuration_changes_are_told_in_words() -> None:
    before, after = config("rank", 2, delay_us=500), config("rank", 1, delay_us=2000)
    store = box(flow("rank"), triton_config=TritonConfigs((before,)))
    snapshot = follow(store, [good("triton.config", TritonConfigs((after,)), 101.0)])
    assert texts(snapshot) == [
        "warn: rank delay 500 → 2000 µs not made by a gpuconsole",
        "warn: rank instances 2 → 1 not made by a gpuconsole",
    ]
    assert config_changes(before, before) == []
    assert config_changes(before, msgspec.structs.replace(before, raw="{}")) == ["configuration changed"]


def test_a_new_version_on_disk_is_an_event_once() -> None:
    def disk(*versions: int) -> Reading[Any]:
        models = (DiskModel("rank", "/m/rank", tuple(DiskVersion(v, 1, 1.0) for v in versions)),)
        return good("repository", Repository("/m", models=models))

    snapshot = follow(box(flow("rank", "2")), [disk(2)], [disk(2, 3)], [disk(2, 3)])
    assert texts(snapshot) == ["warn: rank 3 appeared on disk, newer than the served 2 (disk)"]


def test_a_source_gone_silent_is_an_event_after_seconds_and_its_return_too() -> None:
    store = box(flow("rank"))
    store.snapshot(1100.0, 100.0)
    store.apply(bad("triton.server", "connection refused", 100.5, value=SERVER))
    assert texts(store.snapshot(1101.0, 101.0)) == []
    silent = store.snapshot(1104.0, 100.5 + SILENT_AFTER + 0.1)
    assert texts(silent) == ["fail: Triton does not answer: connection refused (polling)"]
    assert len(store.snapshot(1105.0, 105.0).events) == 1
    store.apply(good("triton.server", SERVER, 106.0))
    assert texts(store.snapshot(1106.0, 106.0))[-1] == "ok: Triton answers again (polling)"


def test_a_lost_card_and_rising_ecc_are_events() -> None:
    def gpu(**kwargs: Any) -> Reading[Any]:
        return good(
            "gpu",
            GpuBox("550", gpus=(GpuState(0, uuid="u", ecc_uncorrected_now=0, power_limit_w=70.0),))
            if not kwargs
            else GpuBox("550", gpus=(GpuState(0, uuid="u", **kwargs),)),
        )

    steps = [
        [gpu()],
        [gpu(ecc_uncorrected_now=2, power_limit_w=60.0)],
        [gpu(lost=Failure("unavailable", "the GPU is lost"))],
        [gpu(ecc_uncorrected_now=2)],
    ]
    assert texts(follow(Store(), *steps)) == [
        "fail: GPU 0: uncorrectable ECC errors 0 → 2 (NVML)",
        "note: GPU 0: power limit 70 → 60 W not made by a gpuconsole",
        "fail: GPU 0 is lost: the GPU is lost (NVML)",
        "ok: GPU 0 answers again (NVML)",
    ]


def test_the_same_thing_told_twice_is_one_event_and_repeated_faults_are_counted() -> None:
    store = Store()
    fault = Event(1000.0, "fail", "rerank 3 failed to load", "(server log)", "model.failed", "rerank")
    for wall in (1000.0, 1001.0, 1100.0, 1200.0, 900.0):
        store.add_event(msgspec.structs.replace(fault, wall=wall))
    store.add_event(Event(950.0, "note", "x", "(podman)"))
    events = store.snapshot(2000.0, 1.0).events
    assert [(event.wall, event.repeats) for event in events] == [(900.0, 4), (950.0, 1)]


def test_events_stand_in_time_and_are_bounded() -> None:
    store = Store()
    for number in range(1500):
        store.add_event(Event(float(-number), "note", str(number), "(x)", f"kind{number}"))
    events = store.snapshot(1.0, 1.0).events
    assert len(events) == 1000
    assert [event.wall for event in events] == sorted(event.wall for event in events)


def test_letters_mark_the_newest_events_of_charts() -> None:
    events = [Event(float(n), "note", str(n), "(x)", marks_chart=n % 2 == 0) for n in range(60)]
    letters = lettered(events)
    assert len(letters) == 60
    assert letters[-2][0] == "z"
    assert letters[-1][0] == ""
    assert letters[0][0] == ""
    assert len({letter for letter, _ in letters if letter}) == 26


# ------------------------------------------------------------------------------------------------------------ history


def test_good_readings_become_history_and_failures_a_gap() -> None:
    store = box(flow("rank", rate=12.0), triton_config=TritonConfigs((config("rank"),)))
    gpu = GpuState(
        0, util_pct=64.0, throttle_counters=(ThrottleCounter("power_cap", 12.0),), throttle_now=("power_cap",)
    )
    store.apply(good("gpu", GpuBox("550", gpus=(gpu, GpuState(1, lost=Failure("unavailable", "x"))))))
    store.apply(good("host", HostState(cpu_pct=23.0)))
    store.apply(
        good("container", PodmanState("s", "rootful", container=ContainerState("i", "triton", "running", "name")))
    )
    store.apply(bad("host", "x", 101.0, value=HostState(cpu_pct=23.0)))
    store.snapshot(1100.0, 100.0)
    history = store.history
    assert history.values("model.rank/1.rate", 100.0, 5) == [12.0]
    assert history.values("gpu.0.util_pct", 100.0, 5) == [64.0]
    assert history.values("gpu.0.throttle.power_cap", 100.0, 5) == [12.0]
    assert history.values("gpu.0.throttled.power_cap", 100.0, 5) == [1.0]
    assert history.values("host.cpu_pct", 101.0, 5) == [23.0]
    assert history.values("box.rate", 100.0, 5) == [12.0]
    assert not any(key.startswith("gpu.1.") for key in tuple(history.keys()))


def test_an_idle_model_has_a_rate_of_zero_and_no_times() -> None:
    idle = msgspec.structs.replace(window(rate=0.0), success=0, executions=0, failed=0)
    one = ModelFlow(ModelKey("rank", "1"), ModelStats("rank", "1"), w1=idle, w10=idle)
    store = box(one)
    assert store.history.values("model.rank/1.rate", 100.0, 5) == [0.0]
    assert store.history.values("model.rank/1.request_ms", 100.0, 5) == []


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        Store().apply(good("no such part", 1))


def test_verdicts_stand_in_the_next_snapshot() -> None:
    store = box(flow("rank"), flow("rank", "2"))
    store.set_verdicts((Verdict("V32", "note", "nothing stands out"),))
    snapshot = store.snapshot(1100.0, 100.0)
    assert snapshot.verdicts[0].id == "V32"
    assert [row.version for row in rows_named(snapshot.models, "rank")] == ["2", "1"]


def test_a_reload_and_what_it_changed_are_one_event_at_the_time_of_the_reload() -> None:
    store = Store()
    store.add_event(Event(1000.0, "warn", "a 1 was reloaded", "not made by a gpuconsole", "reload", "a"))
    store.add_event(Event(1002.0, "warn", "a delay 0 → 700 µs", "not made by a gpuconsole", "config", "a"))
    store.add_event(Event(1003.0, "warn", "b delay 1 → 2 µs", "not made by a gpuconsole", "config", "b"))
    events = store.snapshot(1.0, 1.0).events
    assert [(event.wall, event.text) for event in events] == [
        (1000.0, "a delay 0 → 700 µs"),
        (1003.0, "b delay 1 → 2 µs"),
    ]


def test_a_change_that_is_seen_before_its_reload_is_one_event_too() -> None:
    store = Store()
    store.add_event(Event(1000.0, "warn", "a delay 0 → 700 µs", "not made by a gpuconsole", "config", "a"))
    store.add_event(Event(1000.5, "warn", "a 1 was reloaded", "not made by a gpuconsole", "reload", "a"))
    store.add_event(Event(1006.0, "warn", "a 1 was reloaded", "not made by a gpuconsole", "reload", "a"))
    events = store.snapshot(1.0, 1.0).events
    assert [(event.wall, event.kind) for event in events] == [(1000.0, "config"), (1006.0, "reload")], "one more later"
