"""Model rows, the header's word and the traffic from outside, at their edges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core import derive
from console.core.derive import LONG_RUN_MS, STARTING_LIMIT, RowCache, counted, serving, traffic
from console.core.model import (
    BatchWindow,
    ContainerState,
    DiskModel,
    DiskVersion,
    EnsembleStep,
    Failure,
    IndexEntry,
    InstanceGroup,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelRow,
    ModelStats,
    PodmanState,
    Reading,
    Repository,
    Serving,
    Snapshot,
    Traffic,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
)
from tests.core.test_store import window

LIVE = TritonServer("u", live=True, ready=True)


def good(value: Any, part: str = "x") -> Reading[Any]:
    return Reading(part, 1.0, value, 1000.0, 100.0, reads=1)


def flow(name: str, version: str = "1", memory: int | None = None, **figures: Any) -> ModelFlow:
    one = window(**figures)
    return ModelFlow(ModelKey(name, version), ModelStats(name, version, memory_bytes=memory), w1=one, w10=one)


def config(name: str, version: str = "1", count: int = 2, **more: Any) -> ModelConfig:
    groups = () if more.get("steps") else (InstanceGroup("KIND_GPU", count, (0,)),)
    return ModelConfig(name, version, instance_groups=groups, **more)


def snapshot(**parts: Any) -> Snapshot:
    return replace(Snapshot(wall=1000.0, mono=100.0), **{name: good(value) for name, value in parts.items()})


def rows_of(**parts: Any) -> tuple[ModelRow, ...]:
    return RowCache().rows(snapshot(**parts))


# --------------------------------------------------------------------------------------------------------------- rows


def test_a_row_takes_each_field_from_whom_it_is_of() -> None:
    entry = IndexEntry("rank", "2", "READY", "fine", 900.0, 90.0)
    one, metrics, served = flow("rank", "2", memory=5), ModelMetrics(ModelKey("rank", "2")), config("rank", "2")
    disk = DiskModel("rank", "/m/rank")
    [row] = rows_of(
        index=TritonIndex((entry,)),
        stats=TritonStats((one,)),
        metrics=TritonMetrics("u", (metrics,)),
        configs=TritonConfigs((served,)),
        repository=Repository("/m", models=(disk,)),
    )
    assert (row.name, row.version, row.state, row.reason) == ("rank", "2", "READY", "fine")
    assert (row.since_wall, row.since_mono) == (900.0, 90.0)
    assert row.seen_in == ("index", "statistics", "metrics", "config", "disk")
    assert (row.flow, row.metrics, row.config, row.disk) == (one, metrics, served, disk)
    assert (row.instances, row.memory, row.memory_origin) == (2, 5, "back end")
    assert (row.ensemble, row.live_only, row.newer_on_disk, row.failed_load) == (False, False, None, False)


def test_memory_without_a_figure_has_no_origin() -> None:
    for told in (None, 0):
        [row] = rows_of(stats=TritonStats((flow("rank", memory=told),)))
        assert (row.memory, row.memory_origin) == (told, None)


def test_the_configuration_of_the_version_goes_before_any_other_of_the_model() -> None:
    first, second = config("rank", "1", count=1), config("rank", "2", count=4)
    stats = TritonStats((flow("rank", "1"), flow("rank", "3")))
    instances = {row.version: row.instances for row in rows_of(stats=stats, configs=TritonConfigs((first, second)))}
    assert instances == {"1": 1, "3": 4}


def test_what_waited_when_the_metrics_page_last_came_is_not_what_waits_now() -> None:
    page = TritonMetrics("u", (ModelMetrics(ModelKey("rank", "1"), pending=5.0, success_total=0.0),))
    now = snapshot(stats=TritonStats((flow("rank"),)), metrics=page)
    old = replace(now, mono=(now.metrics.mono or 0.0) + 3.5)
    cache = RowCache()
    assert [row.metrics for row in cache.rows(now)] == [page.models[0]]
    assert [row.metrics for row in cache.rows(old)] == [None]
    [named] = cache.rows(replace(old, stats=Reading("triton.stats", 1.0)))
    assert (named.name, named.metrics) == ("rank", None), "the page still names the model"


def test_metrics_name_models_only_where_statistics_do_not() -> None:
    live = TritonMetrics("u", (ModelMetrics(ModelKey("m", "1"), success_total=0.0),))
    assert [row.state for row in rows_of(metrics=live)] == ["READY"]
    assert [row.name for row in rows_of(metrics=live, stats=TritonStats((flow("n"),)))] == ["n"]


def test_order_is_by_name_then_ready_then_newest() -> None:
    entries = [
        IndexEntry("b", "1", "READY"),
        IndexEntry("a", "9", "UNAVAILABLE"),
        IndexEntry("a", "8", "UNLOADING"),
        IndexEntry("a", "7", "LOADING"),
        IndexEntry("a", "2", "READY"),
        IndexEntry("a", "10", "READY"),
    ]
    rows = rows_of(index=TritonIndex(tuple(entries)))
    assert [(row.name, row.version) for row in rows] == [
        ("a", "10"), ("a", "2"), ("a", "7"), ("a", "8"), ("a", "9"), ("b", "1"),
    ]  # fmt: skip


def test_rows_are_kept_while_their_inputs_are_the_same_objects() -> None:
    cache, shot = RowCache(), snapshot(stats=TritonStats((flow("a"), flow("b"))))
    first = cache.rows(shot)
    assert all(one is two for one, two in zip(first, cache.rows(shot), strict=True))
    renewed = replace(shot, repository=good(Repository("/m", models=(DiskModel("b", "/m/b"),))))
    again = cache.rows(renewed)
    assert again[0] is first[0]
    assert again[1] is not first[1]
    assert again[1].disk is not None


@pytest.mark.parametrize(
    ("state", "reason", "failed"),
    [
        ("UNAVAILABLE", "no engine", True),
        ("UNAVAILABLE", "unloaded", False),
        ("UNAVAILABLE", "", False),
        ("UNAVAILABLE", None, False),
        ("LOADING", "no engine", False),
    ],
)
def test_what_is_a_failed_load(state: Any, reason: str | None, failed: bool) -> None:
    [row] = rows_of(index=TritonIndex((IndexEntry("m", "1", state, reason),)))
    assert row.failed_load is failed


@pytest.mark.parametrize(
    ("busy_seconds", "ms_per_run", "busy", "clamped"),
    [
        (5.0, 5.0, 0.25, False),
        (20.0, 5.0, 1.0, False),
        (20.1, 5.0, 1.0, True),
        (5.0, LONG_RUN_MS, 0.25, False),
        (5.0, LONG_RUN_MS + 1, None, False),
        (0.0, 5.0, 0.0, False),
    ],
)
def test_busy(busy_seconds: float, ms_per_run: float, busy: float | None, clamped: bool) -> None:
    stats = TritonStats((flow("m", busy_seconds=busy_seconds, ms_per_run=ms_per_run),))
    [row] = rows_of(stats=stats, configs=TritonConfigs((config("m"),)))
    assert (row.busy, row.busy_clamped) == (busy, clamped)


def test_busy_needs_a_window_of_some_length() -> None:
    one = flow("m")
    assert one.w10 is not None
    empty = replace(one, w10=replace(one.w10, span=0.0, batches=(BatchWindow(1, 1, 1.0),)))
    [row] = rows_of(stats=TritonStats((empty,)), configs=TritonConfigs((config("m"),)))
    assert row.busy is None
    [row] = rows_of(stats=TritonStats((replace(one, w10=None),)), configs=TritonConfigs((config("m"),)))
    assert row.busy is None


def disk(*versions: tuple[int, bool]) -> Repository:
    folders = tuple(DiskVersion(number, 1, 1.0, usable) for number, usable in versions)
    return Repository("/m", models=(DiskModel("m", "/m/m", folders),))


@pytest.mark.parametrize(
    ("versions", "state", "newer"),
    [
        (((1, True), (2, True)), "READY", None),
        (((2, True), (3, True)), "READY", 3),
        (((2, True), (3, False)), "READY", None),
        (((2, True), (3, True)), "LOADING", None),
        ((), "READY", None),
    ],
)
def test_a_newer_folder(versions: Any, state: Any, newer: int | None) -> None:
    [row] = rows_of(index=TritonIndex((IndexEntry("m", "2", state),)), repository=disk(*versions))
    assert row.newer_on_disk == newer


def test_a_newer_folder_of_a_version_that_is_no_number() -> None:
    [row] = rows_of(index=TritonIndex((IndexEntry("m", None, "READY"),)), repository=disk((3, True)))
    assert row.newer_on_disk is None


# ------------------------------------------------------------------------------------------------------------- header


def row(name: str, state: Any, version: str = "1", failed: bool = False) -> ModelRow:
    return ModelRow(name, version, state, failed_load=failed)


def test_models_are_counted_not_versions() -> None:
    rows = [
        row("a", "READY"),
        row("a", "UNAVAILABLE", "2", failed=True),
        row("b", "LOADING"),
        row("c", "UNLOADING"),
        row("d", "UNAVAILABLE", failed=True),
        row("e", "UNAVAILABLE"),
        row("f", None),
    ]
    assert counted(rows) == (1, 4)


def container(state: str = "running", started: float | None = 950.0) -> Reading[Any]:
    return good(PodmanState("s", "rootful", container=ContainerState("i", "t", state, "name", started_wall=started)))


def word(rows: tuple[ModelRow, ...] = (), **parts: Reading[Any]) -> Serving:
    return serving(replace(Snapshot(wall=1000.0, mono=100.0), **parts), rows, 100.0)


SERVER, INDEX = good(LIVE), good(TritonIndex())
REFUSED: Reading[Any] = Reading("x", 1.0, error=Failure("unavailable", "refused"), error_mono=90.0)
LOADING = (row("a", "LOADING"),)


def test_words_of_a_server_that_answers() -> None:
    assert word((row("a", "READY"), row("b", "LOADING")), server=SERVER) == Serving("SERVING", 1, 2)
    assert word(server=SERVER) == Serving("UNKNOWN"), "the index was not read yet"
    refused = Reading[Any]("triton.index", 1.0, error=Failure("permission", "403"))
    assert word(server=SERVER, index=refused) == Serving("UNKNOWN"), "an index that may not be read is no empty one"
    assert word(LOADING, server=SERVER, index=INDEX) == Serving("DOWN", 0, 1, "no model is READY")
    assert word(server=SERVER, index=INDEX) == Serving("NOTHING LOADED", 0, 0)
    starting = Serving("STARTING", 0, 1, "50 s")
    assert word(LOADING, server=SERVER, index=INDEX, container=container()) == starting
    assert word() == Serving("UNKNOWN")


@pytest.mark.parametrize(
    ("started", "said"),
    [(1000.0 - STARTING_LIMIT, "DOWN"), (1000.5 - STARTING_LIMIT, "STARTING"), (1005.0, "STARTING"), (None, "DOWN")],
)
def test_how_long_a_container_starts(started: float | None, said: str) -> None:
    found = word(LOADING, server=SERVER, index=INDEX, container=container(started=started))
    assert found.word == said
    if said == "STARTING":
        assert found.detail == f"{max(0.0, 1000.0 - (started or 0.0)):.0f} s"


def test_words_of_a_server_that_does_not_answer() -> None:
    nor = "nor does the metrics port"
    assert word(server=REFUSED) == Serving("NOTHING SERVES YET", 0, 0, "", 90.0)
    assert word(LOADING, server=REFUSED) == Serving("DOWN", 0, 1, "refused", 90.0)
    assert word(server=REFUSED, container=container()) == Serving("STARTING", 0, 0, "50 s", 90.0)
    assert word(server=REFUSED, container=container("exited")) == Serving("DOWN", 0, 0, "refused", 90.0)
    old = container(started=500.0)
    assert word(server=REFUSED, container=old) == Serving("NOT ANSWERING", 0, 0, nor, 90.0)
    held = replace(REFUSED, error=Failure("timeout", "timed out"))
    assert word(server=held) == Serving("NOT ANSWERING", 0, 0, nor, 90.0)
    found = word(server=held, metrics=good(TritonMetrics("u")))
    assert found.detail == "metrics port does: HTTP workers held?"
    stale = replace(good(TritonMetrics("u")), error=Failure("timeout", "x"))
    assert word(server=held, metrics=stale).detail == nor
    gone = replace(SERVER, error=Failure("unavailable", "refused"), error_mono=95.0)
    assert word(server=gone) == Serving("DOWN", 0, 0, "refused", 95.0), "it served once"


def test_a_server_that_says_that_it_is_not_live() -> None:
    dead = good(replace(LIVE, live=False))
    assert word((row("a", "READY"),), server=dead, index=INDEX).word == "DOWN"


# ------------------------------------------------------------------------------------------------------------ traffic


def traffic_of(*rows: ModelRow) -> Traffic:
    return traffic(rows, good(TritonStats()))


def flowing(name: str, rate: float, version: str = "1", **more: Any) -> ModelRow:
    fail_rate = more.pop("fail_rate", 0.0)
    return ModelRow(name, version, "READY", flow=flow(name, version, rate=rate, fail_rate=fail_rate), **more)


def calls(*models: str) -> ModelConfig:
    return config("e", steps=tuple(EnsembleStep(name, "-1") for name in models))


def test_traffic_that_cannot_be_known() -> None:
    assert traffic((flowing("a", 5.0),), Reading("x", 1.0)) == Traffic()
    assert traffic((), good(TritonStats())) == Traffic()
    assert traffic((ModelRow("a", "1", "READY"),), good(TritonStats())) == Traffic()


def test_inner_requests_are_taken_out_once_for_each_step() -> None:
    ensemble = flowing("e", 10.0, config=calls("a", "a", "b"), ensemble=True)
    found = traffic_of(flowing("a", 25.0), flowing("b", 10.0), ensemble)
    assert found.rate == pytest.approx(10.0 + 5.0 + 0.0)
    assert found.through_ensembles == (("e", 10.0),)
    assert not found.approximate


def test_versions_of_a_model_are_taken_together() -> None:
    ensemble = flowing("e", 30.0, config=calls("a"), ensemble=True)
    found = traffic_of(flowing("a", 20.0), flowing("a", 15.0, "2"), ensemble)
    assert found.rate == pytest.approx(30.0 + 5.0)
    assert not found.approximate


@pytest.mark.parametrize(("inner", "approximate"), [(100.0, False), (97.6, False), (97.5, True)])
def test_small_differences_are_those_of_two_clocks(inner: float, approximate: bool) -> None:
    found = traffic_of(flowing("a", inner), flowing("e", 100.0, config=calls("a"), ensemble=True))
    assert found.approximate is approximate
    assert found.rate == pytest.approx(100.0)


def test_failures_are_counted_where_they_happen_and_waiting_where_it_is_told() -> None:
    pending = ModelMetrics(ModelKey("a", "1"), 4.0)
    a = flowing("a", 5.0, fail_rate=2.0, metrics=pending)
    b = flowing("b", 5.0, fail_rate=1.0, metrics=ModelMetrics(ModelKey("b", "1")))
    found = traffic_of(a, b, flowing("e", 1.0, fail_rate=3.0, config=calls("a"), ensemble=True))
    assert found.fail_rate == pytest.approx(3.0)
    assert found.waiting == 4.0
    assert traffic_of(b).waiting is None


@given(
    st.lists(st.tuples(st.sampled_from("abe"), st.sampled_from("12"), st.floats(0, 1e6)), min_size=1, max_size=6),
)
def test_traffic_is_never_negative_nor_more_than_all(told: list[tuple[str, str, float]]) -> None:
    rows = [
        flowing(name, rate, version, config=calls("a", "b") if name == "e" else None)
        for (name, version), rate in {(name, version): rate for name, version, rate in told}.items()
    ]
    found = traffic_of(*rows)
    assert found.rate is not None
    total = sum(row.flow.w10.rate for row in rows if row.flow and row.flow.w10)
    assert -1e-9 <= found.rate <= total * (1 + 1e-9) + 1e-9


def test_the_limits() -> None:
    assert (derive.LONG_RUN_MS, derive.STARTING_LIMIT) == (6000.0, 120.0)


def test_models_of_one_name_in_two_namespaces_are_two_rows() -> None:
    """Seen on 2.51.0 with --model-namespacing: two equal lines in the index, no statistics, namespaces in metrics."""
    index = TritonIndex((IndexEntry("a", "1", "READY"), IndexEntry("a", "1", "READY"), IndexEntry("b", "1", "READY")))
    spaces = tuple(ModelMetrics(ModelKey("a", "1", space), success_total=0.0) for space in ("/m0", "/m1"))
    metrics = TritonMetrics("url", models=(*spaces, ModelMetrics(ModelKey("b", "1", "/m0"), success_total=0.0)))
    rows = rows_of(index=index, metrics=metrics)
    assert [(r.name, r.version, r.state) for r in rows] == [
        ("/m0::a", "1", "READY"),
        ("/m1::a", "1", "READY"),
        ("b", "1", "READY"),
    ]
    assert counted(rows) == (3, 3)
