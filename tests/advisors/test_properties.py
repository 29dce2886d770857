"""No rule falls over on any box, and nothing is called well where data is missing (hypothesis)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from console.advisors.table import SIGN_ORDER, table
from console.advisors.why import Why
from console.core.history import History
from console.core.model import (
    Asked,
    BatchStat,
    BatchWindow,
    ConfigDifference,
    ContainerState,
    ContainerUsage,
    DiskModel,
    EnsembleStep,
    Event,
    Failure,
    FailureCount,
    GpuBox,
    GpuProcess,
    GpuState,
    HostState,
    IndexEntry,
    InstanceGroup,
    KernelFault,
    KernelLog,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelRow,
    ModelStats,
    PodmanState,
    QueuePolicy,
    Reading,
    Repository,
    Serving,
    Snapshot,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
    Window,
)
from console.core.store import Store
from tests.advisors.cases import MONO, NOW
from tests.fakes.boxes import ALL_BOXES

maybe = st.none
names = st.sampled_from(["m", "n", "ens", "[/x]", "{m}", "a\x1b[2Jb", "模型", "", "x" * 300])
numbers = st.sampled_from([0.0, 0.1, 1.0, 12.5, 40.0, 99.0, 1e4, 1e12]) | st.floats(0, 1e6)
ms = maybe() | numbers
counts = st.sampled_from([0, 1, 19, 20, 50, 51, 1000, 10**12])
texts = st.sampled_from(["", "x", "{}", "{0}", "NVML error 18: y", "unknown model: '/r::m'", "a\nb", "é" * 5000])


@st.composite
def windows(draw: st.DrawFn) -> Window:
    span = draw(st.sampled_from([0.0, 0.5, 1.0, 10.0, 30.0, 120.0]))
    sizes = draw(st.lists(st.tuples(st.sampled_from([0, 1, 2, 4, 8, 16]), counts, numbers), max_size=4))
    return Window(
        span=span,
        success=draw(counts),
        failed=draw(counts),
        executions=draw(counts),
        inferences=draw(counts),
        cache_hits=draw(counts),
        rate=draw(numbers),
        fail_rate=draw(numbers),
        request_ms=draw(ms),
        queue_ms=draw(ms),
        input_ms=draw(ms),
        infer_ms=draw(ms),
        output_ms=draw(ms),
        compute_ms=draw(ms),
        mean_batch=draw(ms),
        busy_seconds=draw(numbers),
        batches=tuple(BatchWindow(*one) for one in sizes),
        crosses_reset=draw(st.booleans()),
    )


configs = st.builds(
    ModelConfig,
    names,
    st.sampled_from(["1", "2", ""]),
    backend=st.sampled_from(["python", "vllm", "", "onnxruntime"]),
    max_batch_size=st.sampled_from([0, 1, 4, 16]),
    dynamic_batching=st.booleans(),
    delay_us=st.sampled_from([0, 500, 10_000, 10**9]),
    preferred=st.sampled_from([(), (4,), (4, 8), (0,)]),
    queue=st.builds(QueuePolicy, st.sampled_from([0, 2, 64]), st.sampled_from([0, 50_000])),
    priority_levels=st.integers(0, 2),
    preserve_ordering=st.booleans(),
    sequence_batching=st.booleans(),
    decoupled=st.booleans(),
    rate_limited=st.booleans(),
    instance_groups=st.sampled_from(
        [(), (InstanceGroup("KIND_CPU", 1),), (InstanceGroup("KIND_GPU", 2, (0, 1)),), (InstanceGroup("KIND_GPU", 0),)]
    ),
    steps=st.sampled_from([(), (), (EnsembleStep("m", "-1"),)]),
    raw=st.sampled_from(["{}", "{1}"]),
)


@st.composite
def flows(draw: st.DrawFn, key: ModelKey) -> ModelFlow:
    window = maybe() | windows()
    stats = ModelStats(
        key.name,
        key.version,
        last_inference_ms=draw(st.sampled_from([0, int(NOW * 1000), int((NOW - 90) * 1000), 10**15])),
        success_count=draw(counts),
        execution_count=draw(counts),
        batches=tuple(
            BatchStat(size, draw(counts), 0, draw(counts), 0) for size in draw(st.sampled_from([(), (1, 4)]))
        ),
    )
    w10, w30, w120, w300 = (draw(window) for _ in range(4))
    return ModelFlow(key, stats, None, w10, w30, w120, w300, resets=draw(st.integers(0, 2)))


@st.composite
def rows(draw: st.DrawFn) -> ModelRow:
    key = ModelKey(draw(names), draw(st.sampled_from(["1", "2", ""])))
    config = draw(maybe() | configs)
    pending = draw(st.lists(numbers, max_size=30))
    metrics = ModelMetrics(
        key,
        draw(ms),
        tuple(pending),
        failures=draw(
            st.lists(
                st.builds(FailureCount, st.sampled_from(["", "BACKEND", "REJECTED", "X"]), numbers, ms, ms), max_size=2
            ).map(tuple)
        ),
    )
    disk = DiskModel(key.name, "/m", differences=draw(st.sampled_from([(), (ConfigDifference("a.b", "", "1"),)])))
    return ModelRow(
        key.name,
        key.version or None,
        draw(st.sampled_from(["READY", "READY", "READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN", None])),
        reason=draw(maybe() | texts),
        since_mono=draw(maybe() | st.just(MONO - 30)),
        ensemble=bool(config and config.steps),
        flow=draw(maybe() | flows(key)),
        metrics=draw(maybe() | st.just(metrics)),
        config=config,
        disk=draw(maybe() | st.just(disk)),
        instances=config.instances if config else None,
        memory=draw(maybe() | counts),
        live_only=draw(st.booleans()),
        newer_on_disk=draw(maybe() | st.integers(0, 9)),
        failed_load=draw(st.booleans()),
    )


processes = st.builds(
    GpuProcess,
    st.integers(1, 9),
    st.just("C"),
    maybe() | st.sampled_from([0, 1 << 28, 1 << 34]),
    ms,
    maybe() | names,
    maybe() | names,
    container_id=maybe() | st.sampled_from(["a" * 64, "c" * 64]),
    in_container=maybe() | st.booleans(),
)
gpus = st.builds(
    GpuState,
    st.integers(0, 2),
    pci_bus_id=maybe() | st.sampled_from(["00000000:3B:00.0", "", "nonsense"]),
    util_pct=ms,
    memory_total=maybe() | st.sampled_from([0, 1 << 34]),
    memory_used=maybe() | st.sampled_from([0, 1 << 33]),
    memory_free=maybe() | st.sampled_from([0, 1 << 30]),
    temp_c=ms,
    sm_mhz=maybe() | st.integers(0, 2000),
    sm_max_mhz=maybe() | st.integers(0, 2000),
    throttle_now=maybe() | st.sampled_from([(), ("power_cap",), ("heat_hardware", "x")]),
    throttle_bits=maybe() | st.integers(0, 1 << 9),
    recovery_action=maybe() | st.sampled_from(["none", "gpu_reset"]),
    mig_on=maybe() | st.booleans(),
    pcie_width=maybe() | st.integers(0, 16),
    pcie_width_max=maybe() | st.integers(0, 16),
    processes=maybe() | st.lists(processes, max_size=2).map(tuple),
    lost=maybe() | st.just(Failure("unavailable", "NVML error 15")),
)
events = st.builds(
    Event,
    st.sampled_from([NOW - 5000, NOW - 60, NOW + 60]),
    st.sampled_from(["fail", "warn", "note"]),
    texts,
    st.sampled_from(["not made by a gpuconsole", "(podman)"]),
    st.sampled_from(["config", "reload", "unit.ended", "container.start", "model.ready", "ecc", "gpu.lost", ""]),
    model=maybe() | names,
)


@st.composite
def readings(draw: st.DrawFn, part: str, values: st.SearchStrategy[Any]) -> Reading[Any]:
    value = draw(maybe() | values)
    age = draw(st.sampled_from([0.0, 0.5, 60.0]))
    failed = draw(st.booleans())
    error = Failure(draw(st.sampled_from(["unavailable", "timeout", "permission"])), draw(texts)) if failed else None
    return Reading(
        part,
        1.0,
        value,
        None if value is None else NOW - age,
        None if value is None else MONO - age,
        error,
        draw(maybe() | st.just(MONO - 10.0)) if failed else None,
    )


@st.composite
def boxes(draw: st.DrawFn) -> Snapshot:
    models = draw(st.lists(rows(), max_size=4))
    container = st.builds(
        ContainerState,
        st.just("c" * 64),
        names,
        st.sampled_from(["running", "exited", "created"]),
        st.just("name"),
        started_wall=ms,
        exit_code=maybe() | st.integers(0, 137),
        usage=st.builds(ContainerUsage, throttled_share=ms),
    )
    faults = st.builds(
        KernelFault, st.just(NOW - 5), st.just("xid"), texts, maybe() | st.sampled_from([13, 48, 79, 154])
    )
    return Snapshot(
        seq=1,
        wall=NOW,
        mono=MONO,
        gpu=draw(readings("gpu", st.builds(GpuBox, gpus=st.lists(gpus, max_size=2).map(tuple)))),
        server=draw(
            readings(
                "triton.server", st.builds(TritonServer, st.just("x"), maybe() | st.booleans(), maybe() | st.booleans())
            )
        ),
        index=draw(readings("triton.index", st.just(TritonIndex((IndexEntry("m", "1", "READY"),))))),
        stats=draw(readings("triton.stats", st.just(TritonStats()))),
        metrics=draw(
            readings(
                "triton.metrics",
                st.builds(TritonMetrics, st.just("x"), pinned_total=ms, pinned_used=ms, has_pending=st.booleans()),
            )
        ),
        configs=draw(readings("triton.config", st.just(TritonConfigs(failures={"m": "{x}"})))),
        repository=draw(readings("repository", st.just(Repository("/m", models=(DiskModel("m", "/m"),))))),
        container=draw(
            readings(
                "container",
                st.builds(
                    PodmanState,
                    st.just("x"),
                    st.just("rootful"),
                    container=maybe() | container,
                    last_log=st.lists(texts, max_size=2).map(tuple),
                ),
            )
        ),
        host=draw(
            readings(
                "host",
                st.builds(
                    HostState,
                    cpu_pct=ms,
                    stub_pids=st.sampled_from([{}, {"m/1": (4,)}]),
                    stub_cores=st.sampled_from([{}, {"m/1": 0.9}]),
                    zombies=st.sampled_from([(), (7,)]),
                ),
            )
        ),
        kernel=draw(
            readings("kernel_log", st.builds(KernelLog, st.just("x"), faults=st.lists(faults, max_size=2).map(tuple)))
        ),
        models=tuple(models),
        serving=Serving(draw(st.sampled_from(["SERVING", "DOWN", "STARTING", "NOT ANSWERING", "UNKNOWN"]))),
        events=tuple(draw(st.lists(events, max_size=4))),
    )


answers = st.dictionaries(
    st.sampled_from(["m", "n"]),
    st.builds(Asked, names, maybe() | st.just("1"), st.booleans(), st.just(NOW), ms, texts),
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(st.lists(boxes(), min_size=1, max_size=3), answers)
def test_no_box_makes_a_rule_fall_over(looks: list[Snapshot], asked: dict[str, Asked]) -> None:
    history = History()
    for second in range(31):
        history.record(MONO - second, {"gpu.0.throttle.heat_software": float(second), "gpu.0.util_pct": 10.0})
    once, held = Why(hold=False), Why()
    for at, box in enumerate(looks):
        moved = replace(box, wall=NOW + 5 * at, mono=MONO + 5 * at)
        for one in (*once.evaluate(moved, history, asked), *held.evaluate(moved, history, asked)):
            assert one.id in table().entries
            assert one.sign in SIGN_ORDER
            assert one.sign != "ok"
            assert one.trust in ("sure", "likely", "cannot tell")
            assert one.title
            assert "\x1b" not in one.title
            assert "\n" not in one.title
            assert not any("\x1b" in line or "\n" in line for line in one.lines)
            assert one.since_mono is not None
            assert math.isfinite(one.since_mono)
            assert "nan" not in one.title.split()


@QUICK
@given(boxes())
def test_a_box_always_gives_the_same_verdicts(box: Snapshot) -> None:
    assert Why(hold=False).evaluate(box, History()) == Why(hold=False).evaluate(box, History())


@QUICK
@given(boxes())
def test_nothing_is_well_where_data_is_missing(box: Snapshot) -> None:
    """`nothing stands out` needs every figure; each READY model with traffic is told of or named as not judged."""
    for one in Why(hold=False).evaluate(box, History()):
        if one.id != "V32":
            continue
        row = next(r for r in box.models if r.name == one.model and (r.version or "") == (one.version or ""))
        assert row.config is not None
        assert row.instances
        assert row.metrics is not None
        assert row.metrics.pending_samples


@QUICK
@given(boxes())
def test_at_most_one_flow_verdict_stands_for_a_model(box: Snapshot) -> None:
    flow = set(table().evaluation.flow_order)
    seen = [
        (v.model, v.version) for v in Why(hold=False).evaluate(box, History()) if v.id in flow and v.model is not None
    ]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", sorted(ALL_BOXES))
def test_the_boxes_of_the_drawings_can_be_judged(name: str) -> None:
    box = ALL_BOXES[name]()
    for hold in (True, False):
        assert isinstance(Why(hold=hold).evaluate(box.snapshot, box.history), tuple)


def test_an_empty_store_says_nothing() -> None:
    store = Store()
    assert Why(hold=False).evaluate(store.snapshot(NOW, MONO), store.history) == ()
