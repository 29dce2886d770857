"""The box of the drawings (design 1.1, 1.5, 1.8, 1.12), part by part; all figures fit together.

ranking: 1650/s Poisson, 2 instances, 1.2 + 0.1 b ms a batch, max 16, delay 2000 µs; an hour of its past goes with it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from msgspec.structs import replace as changed

from console.core.history import History
from console.core.model import (
    BatchStat,
    BatchWindow,
    ConfigDifference,
    ContainerState,
    ContainerUsage,
    DiskModel,
    DiskVersion,
    EnsembleStep,
    Event,
    FailureCount,
    GpuBox,
    GpuProcess,
    GpuState,
    HostState,
    IndexEntry,
    InstanceGroup,
    KernelLog,
    LogLine,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelStats,
    Mount,
    PodmanState,
    PortMapping,
    Repository,
    SocketTry,
    ThrottleCounter,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
    Verdict,
    Window,
)

ZONE = timezone(timedelta(hours=8))
MIB, GIB = 1 << 20, 1 << 30
MONO = 100_000.0
CONTAINER_ID = "9f3c2e1a77b0" + "0" * 52
RERANK_REASON = "engine made with TensorRT 8.5.3, this server has 10.0.1: rebuild it in this image"


def at(clock: str, day: str = "2026-07-04") -> float:
    """Unix time of a moment in the drawings' zone (UTC+8)."""
    return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZONE).timestamp()


NOW = at("14:04:31")


def mono_at(clock: str) -> float:
    """The monotonic time that belongs to a wall time of the drawings."""
    return MONO - (NOW - at(clock))


# --------------------------------------------------------------------------------------------------------------- GPU


def gpu_state(index: int = 0) -> GpuState:
    """The Tesla T4 of the drawings."""
    return GpuState(
        index=index,
        uuid="GPU-3f1c60d4-7a58-4b0e-9c5b-52d1a4e0809a",
        name="Tesla T4",
        pci_bus_id="00000000:3B:00.0",
        architecture="Turing",
        util_pct=64.0,
        mem_ctrl_pct=31.0,
        memory_total=15 * GIB,
        memory_used=int(5.7 * GIB),
        memory_free=int(8.9 * GIB),
        memory_reserved=int(0.4 * GIB),
        power_w=44.0,
        power_limit_w=70.0,
        power_default_w=70.0,
        power_min_w=60.0,
        power_max_w=70.0,
        temp_c=66.0,
        temp_slowdown_c=93.0,
        temp_shutdown_c=96.0,
        sm_mhz=1590,
        sm_max_mhz=1590,
        memory_mhz=5000,
        memory_max_mhz=5000,
        pstate=0,
        throttle_now=(),
        throttle_bits=0,
        throttle_counters=(
            ThrottleCounter("power_cap", 250.0),
            ThrottleCounter("heat_software", 0.0),
            ThrottleCounter("heat_hardware", 0.0),
            ThrottleCounter("power_brake", 0.0),
        ),
        ecc_on=True,
        ecc_corrected_now=0,
        ecc_uncorrected_now=0,
        ecc_corrected_ever=0,
        ecc_uncorrected_ever=0,
        retired_pages=0,
        retired_pending=False,
        pcie_gen=3,
        pcie_gen_max=3,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=0,
        persistence=True,
        compute_mode="default",
        recovery_action="none",
        mig_on=None,
        processes=(
            GpuProcess(41233, "C", int(5.7 * GIB), 62.0, "root", "tritonserver", at("13:39:55"), CONTAINER_ID, True),
            GpuProcess(
                41391,
                "C",
                None,
                None,
                "root",
                "triton_python_backend_stub",
                at("13:39:57"),
                CONTAINER_ID,
                True,
                "recall",
            ),
        ),
        slow_mono=MONO - 3,
        missing={"fan_pct": "passive card", "mig_on": "this card has no MIG"},
    )


def gpu_box() -> GpuBox:
    """Driver and card."""
    return GpuBox("550.90.07", "12.4", "12.550.90.07", (gpu_state(),), pci_devices=1)


# ------------------------------------------------------------------------------------------------------------- Triton

RANKING_RUNS = {1: 150, 2: 460, 3: 806, 4: 844, 5: 578, 6: 500, 7: 332, 8: 110, 9: 40, 10: 10, 11: 4, 12: 2, 14: 1}
RECALL_RUNS = {1: 1490, 2: 140, 3: 10}


def _run_ms(size: int, fixed: float, each: float) -> float:
    return fixed + each * size


def _window(
    span: float, runs: dict[int, int], cost: tuple[float, float], times: tuple[float, float, float, float]
) -> Window:
    """A window of `span` s; `runs` are those of 10 s, `cost` = (fixed, each) ms, `times` = wait, in, infer, out."""
    factor = span / 10.0
    batches = tuple(
        BatchWindow(size, round(count * factor), _run_ms(size, *cost))
        for size, count in runs.items()
        if count * factor >= 0.5
    )
    executions = round(sum(runs.values()) * factor)
    inferences = round(sum(size * count for size, count in runs.items()) * factor)
    queue, inp, infer, out = times
    return Window(
        span=span,
        success=inferences,
        failed=0,
        executions=executions,
        inferences=inferences,
        cache_hits=0,
        rate=inferences / span,
        fail_rate=0.0,
        request_ms=queue + inp + infer + out,
        queue_ms=queue,
        input_ms=inp,
        infer_ms=infer,
        output_ms=out,
        compute_ms=inp + infer + out,
        mean_batch=inferences / executions,
        busy_seconds=sum(batch.runs * batch.ms_per_run for batch in batches) / 1000.0,
        batches=batches,
        crosses_reset=False,
    )


def _ensemble_window(span: float, rate: float, request_ms: float) -> Window:
    count = round(rate * span)
    return Window(
        span=span,
        success=count,
        failed=0,
        executions=0,
        inferences=0,
        cache_hits=0,
        rate=rate,
        fail_rate=0.0,
        request_ms=request_ms,
        queue_ms=None,
        input_ms=None,
        infer_ms=None,
        output_ms=None,
        compute_ms=None,
        mean_batch=None,
        busy_seconds=0.0,
        batches=(),
        crosses_reset=False,
    )


def _stats(name: str, version: str, runs: dict[int, int], cost: tuple[float, float], seconds: float) -> ModelStats:
    batches = tuple(
        BatchStat(
            size,
            round(count * seconds / 10),
            0,
            round(count * seconds / 10 * _run_ms(size, *cost) * 1e6),
            0,
        )
        for size, count in runs.items()
    )
    success = sum(batch.size * batch.count for batch in batches)
    return ModelStats(
        name,
        version,
        last_inference_ms=round(NOW * 1000),
        inference_count=success,
        execution_count=sum(batch.count for batch in batches),
        success_count=success,
        batches=batches,
    )


def flow(
    name: str, version: str, runs: dict[int, int], cost: tuple[float, float], times: tuple[float, float, float, float]
) -> ModelFlow:
    """A model under steady load since 14:01:59."""
    since = at("14:01:59")
    return ModelFlow(
        ModelKey(name, version),
        _stats(name, version, runs, cost, NOW - since),
        w1=_window(1.0, runs, cost, times),
        w10=_window(10.0, runs, cost, times),
        w30=_window(30.0, runs, cost, times),
        w120=_window(120.0, runs, cost, times),
        epoch_mono=mono_at("14:01:59"),
        resets=1,
    )


def stats() -> TritonStats:
    """ranking, recall and the ensemble of the two."""
    count = round(180 * (NOW - at("13:39:58")))
    ensemble = ModelFlow(
        ModelKey("reco", "1"),
        ModelStats("reco", "1", last_inference_ms=round(NOW * 1000), success_count=count, inference_count=count),
        w1=_ensemble_window(1.0, 180.0, 5.61),
        w10=_ensemble_window(10.0, 180.0, 5.61),
        w30=_ensemble_window(30.0, 180.0, 5.61),
        w120=_ensemble_window(120.0, 180.0, 5.61),
    )
    return TritonStats(
        (
            flow("ranking", "2", RANKING_RUNS, (1.2, 0.1), (1.23, 0.08, 1.53, 0.10)),
            flow("recall", "7", RECALL_RUNS, (2.0, 0.24), (0.42, 0.05, 2.10, 0.08)),
            ensemble,
        )
    )


def index() -> TritonIndex:
    """Three READY, one failed."""
    return TritonIndex(
        (
            IndexEntry("ranking", "2", "READY", None, at("14:01:59"), mono_at("14:01:59")),
            IndexEntry("recall", "7", "READY"),
            IndexEntry("reco", "1", "READY"),
            IndexEntry("rerank", "3", "UNAVAILABLE", RERANK_REASON, at("13:40:02"), mono_at("13:40:02")),
        )
    )


def configs() -> TritonConfigs:
    """Served configurations."""
    return TritonConfigs(
        (
            ModelConfig(
                "ranking",
                "2",
                backend="tensorrt",
                platform="tensorrt_plan",
                max_batch_size=16,
                dynamic_batching=True,
                delay_us=2000,
                warmup_samples=1,
                version_policy="latest 1",
                instance_groups=(InstanceGroup("KIND_GPU", 2, (0,)),),
            ),
            ModelConfig(
                "recall",
                "7",
                backend="python",
                max_batch_size=8,
                dynamic_batching=True,
                version_policy="latest 1",
                instance_groups=(InstanceGroup("KIND_GPU", 1, (0,)),),
            ),
            ModelConfig(
                "reco",
                "1",
                platform="ensemble",
                version_policy="latest 1",
                steps=(EnsembleStep("recall", "-1"), EnsembleStep("ranking", "-1")),
            ),
        )
    )


def metrics() -> TritonMetrics:
    """The metrics page: pending requests and failures by reason."""
    failures = tuple(FailureCount(reason, 0, 0.0, 0.0) for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"))
    return TritonMetrics(
        "http://127.0.0.1:8002/metrics",
        models=(
            ModelMetrics(ModelKey("ranking", "2"), 2, (2.0,) * 30, 1.0, failures),
            ModelMetrics(ModelKey("recall", "7"), 0, (0.0,) * 30, 1.0, failures),
            ModelMetrics(ModelKey("reco", "1"), None, (), 1.0, failures),
        ),
        gpu_families=True,
        has_pending=True,
    )


def server() -> TritonServer:
    """Live, not ready: rerank failed."""
    return TritonServer("http://127.0.0.1:8000", True, False, "2.46.0", ("statistics", "model_repository"), 0.6)


def repository() -> Repository:
    """/data/models, as the host sees it."""
    return Repository(
        "/data/models",
        "/models",
        (
            DiskModel(
                "ranking",
                "/data/models/ranking",
                (
                    DiskVersion(1, 412 * MIB, at("11:20:00", "2026-06-30")),
                    DiskVersion(2, 418 * MIB, at("16:41:00", "2026-07-02")),
                    DiskVersion(3, 418 * MIB, at("14:03:10")),
                ),
                at("09:12:00", "2026-07-02"),
                differences=(ConfigDifference("max_queue_delay_microseconds", "2000", "500"),),
            ),
            DiskModel("recall", "/data/models/recall", (DiskVersion(7, int(1.6 * GIB), at("10:02:00", "2026-06-28")),)),
            DiskModel("reco", "/data/models/reco", (DiskVersion(1, 0, at("10:03:00", "2026-06-28")),)),
            DiskModel("rerank", "/data/models/rerank", (DiskVersion(3, 220 * MIB, at("10:05:00", "2026-06-28")),)),
        ),
        disk_total=500 * GIB,
        disk_free=180 * GIB,
    )


# ---------------------------------------------------------------------------------------------------------- container


def podman() -> PodmanState:
    """The container `triton` under a hand-written unit."""
    container = ContainerState(
        id=CONTAINER_ID,
        name="triton",
        state="running",
        found_by="name",
        image="nvcr.io/nvidia/tritonserver:24.05-py3",
        image_id="sha256:51ab",
        image_created_wall=NOW - 35 * 86400,
        env_versions={
            "CUDA_VERSION": "12.4.1",
            "TRT_VERSION": "10.0.1",
            "TRITON_SERVER_VERSION": "2.46.0",
            "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=tesla,driver>=535,driver<536",
        },
        command=("tritonserver", "--model-repository=/models", "--model-control-mode=explicit"),
        created_wall=at("13:39:54"),
        started_wall=at("13:39:55"),
        restarts=0,
        pid=41233,
        ports=tuple(PortMapping(port, "tcp", "", port) for port in (8000, 8001, 8002)),
        mounts=(Mount("/data/models", "/models", True),),
        cdi=("nvidia.com/gpu=all",),
        network="bridge",
        shm_size=GIB,
        ulimits={"memlock": "unlimited", "stack": "67108864"},
        stop_timeout=10,
        unit="triton.service",
        unit_origin="label",
        control_mode="explicit",
        exit_timeout=30,
        usage=ContainerUsage(2.8, int(6.1 * GIB), None, 214, int(0.2 * GIB), 0),
    )
    path = "/run/podman/podman.sock"
    return PodmanState(
        path,
        "rootful",
        "4.9.4",
        2.0,
        (SocketTry(path, "rootful", None),),
        container,
        images=("nvcr.io/nvidia/tritonserver:24.05-py3",),
    )


def host() -> HostState:
    """The machine around it."""
    return HostState(
        hostname="infer-01",
        os_name="Rocky 8.10",
        kernel="4.18.0-553.8.1.el8_10.x86_64",
        boot_wall=at("10:52:01"),
        cpus=16,
        cpu_pct=23.0,
        iowait_pct=0.3,
        load1=3.4,
        memory_total=126 * GIB,
        memory_used=41 * GIB,
        memory_available=85 * GIB,
        shm_total=1 * GIB,
        shm_used=int(0.2 * GIB),
        triton_cores=2.8,
        triton_rss=int(6.1 * GIB),
        stub_pids={"recall/7": (41391,)},
        stub_cores={"recall/7": 0.4},
    )


def kernel() -> KernelLog:
    """No Xid since boot."""
    return KernelLog("journal", at("10:52:01"))


# -------------------------------------------------------------------------------------------- events, verdicts, lines


def events() -> tuple[Event, ...]:
    """a to e of the drawings, and two that mark no chart."""
    return (
        Event(at("10:52:01"), "note", "host booted", "(kernel)", "boot", marks_chart=False),
        Event(at("13:39:55"), "note", "container triton started", "(podman)", "container.start", marks_chart=False),
        Event(at("13:40:02"), "fail", "rerank 3 failed to load", "(server log)", "model.failed", "rerank", repeats=3),
        Event(at("13:57:20"), "warn", "recall instances 2 → 1", "not made by a gpuconsole", "config", "recall"),
        Event(at("13:58:40"), "note", "ana@192.0.2.9 opened a console", "(presence)", "console"),
        Event(
            at("14:01:58"),
            "note",
            "ranking delay 500 → 2000 µs, live only",
            "ops@192.0.2.7",
            "config",
            "ranking",
            ("mean 1.84 → 2.94 ms over 60 s each; reload 1.1 s, 0 refused",),
        ),
        Event(
            at("14:03:10"),
            "warn",
            "ranking 3 appeared on disk, newer than the served 2",
            "(disk)",
            "disk.version",
            "ranking",
        ),
    )


def verdicts() -> tuple[Verdict, ...]:
    """The five of the drawing."""

    def one(
        number: str, sign: str, title: str, clock: str, *lines: str, trust: str = "sure", model: str = "", key: str = ""
    ) -> Verdict:
        return Verdict(
            number,
            sign,  # type: ignore[arg-type]
            title,
            lines,
            trust,
            model or None,
            key,
            mono_at(clock),
            at(clock),
            subject="model" if model else "server",
        )

    rerank = one(
        "V04",
        "fail",
        "rerank 3 cannot load: its engine was made by another TensorRT",
        "13:40:02",
        "so ready is 400 and load balancers may drop this box, though 3 models",
        "serve. Unloading it does not clear that; a good load or a restart does.",
        model="rerank",
        key="2",
    )
    waits = Verdict(
        "V21",
        "warn",
        "ranking waits on purpose",
        (
            "1.23 of its 2.94 ms is its delay of 2000 µs; instances are 31 % busy.",
            "since d 14:01:58: mean 1.84 → 2.94 ms, batch 1.9 → 4.3, util 84 → 64 %.",
            "a shorter delay: less waiting, more and smaller batches.",
        ),
        "sure",
        "ranking",
        "2",
        mono_at("14:01:58"),
        at("14:01:58"),
        rule="delay > 0, busy < 70 %, wait from 0.75 of what the delay alone makes to 1.1 of the delay",
        figures="30 s: D 2.0 ms   R 1650/s   RD 3.3   wait 1.23 ms   the delay alone makes 1.23   busy 31 %",
        source="/v2/models/stats 14:04:01 and 14:04:31, batch_stats of ranking 2",
        means="42 % of a request's time is spent waiting for company. It buys batches of 4.3 and 20 points of util."
        " If users matter more than the card, shorten it.",
        does_not="tell the tail; the clients' own time; whether users notice.",
        subject="model",
    )
    return (
        changed(rerank, consequences=("ready is 400 for that reason",)),
        waits,
        one(
            "V30",
            "warn",
            "ranking runs on a live-only setting: a restart goes back to 500 µs.",
            "14:01:58",
            model="ranking",
            key="2",
        ),
        one(
            "V30b",
            "warn",
            "ranking 3 is on disk: the next reload or restart would deploy it.",
            "14:03:10",
            model="ranking",
            key="2",
        ),
        one(
            "V35",
            "unknown",
            "tail latency: cannot tell, the server gives means only.",
            "13:39:55",
            trust="cannot tell",
        ),
    )


def log_lines() -> tuple[LogLine, ...]:
    """The log of drawing 1.8."""
    serialization = (
        "Error Code 1: Serialization (Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed."
        "Version tag does not match. Note: Current Version: 238, Serialized Engine Version: 205) " + "x" * 60
    )
    rows: tuple[tuple[str, str, str, str], ...] = (
        ("13:39:57.501", "I", "server.cc", "| ranking | 2 | READY |"),
        ("13:40:01.377", "E", "rerank", serialization),
        (
            "13:40:01.377",
            "E",
            "rerank",
            "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.0.1.6"
            " got 8.5.3.1, please rebuild.",
        ),
        (
            "13:40:02.020",
            "E",
            "model_lifecycle.cc",
            "failed to load 'rerank' version 3: Internal: unable to load plan file to auto complete config:"
            " /models/rerank/3/model.plan",
        ),
        ("14:01:58.127", "I", "model_lifecycle.cc", "loading: ranking:2"),
        ("14:01:59.214", "I", "model_lifecycle.cc", "successfully loaded 'ranking'"),
        ("14:01:59.640", "I", "model_lifecycle.cc", "successfully unloaded 'ranking' version 2"),
        *((("14:02:11.002", "W", "http_server.cc", "failed to read body: connection reset"),) * 41),
        (
            "14:04:30.118",
            "I",
            "python",
            "[/x] \\x1b[31mnot a colour\\x1b[0m: shown as it came, 模型 ranking 已加载",
        ),
    )
    return tuple(LogLine(at(clock), "stderr", text, level, origin) for clock, level, origin, text in rows)


# ------------------------------------------------------------------------------------------------------------ history


def history(target: History, seconds: int = 1800) -> None:
    """The past of drawings 1.1 and 1.11, a sample a second, ending at MONO."""
    change, dropped = mono_at("14:01:58"), mono_at("13:39:55")
    for back in range(seconds, -1, -1):
        mono = MONO - back
        up, long_delay = mono >= dropped, mono >= change
        wobble = (int(mono) * 7919 % 11 - 5) / 5.0
        values: dict[str, float | None] = {
            "gpu.0.util_pct": (64 if long_delay else 84) + 2 * wobble if up else 0.0,
            "gpu.0.sm_mhz": 1590 if up else 300,
            "gpu.0.temp_c": round((66 if long_delay else 68) + wobble) if up else 38,
            "gpu.0.power_w": (44 if long_delay else 50) + wobble if up else 10,
            "gpu.0.memory_used": (8.8 if change <= mono < change + 1 else 5.7 if up else 0.0) * GIB,
            "gpu.0.throttle.power_cap": 250.0 if back < 600 else 238.0 + min(12, (seconds - back) / 60),
            "gpu.0.throttle.heat_software": 0.0,
            "gpu.0.throttle.heat_hardware": 0.0,
            "gpu.0.throttle.power_brake": 0.0,
            "host.cpu_pct": 23 + wobble,
        }
        if up:
            values |= {
                "box.rate": 1650 + 8 * wobble,
                "box.waiting": 2.0,
                "model.ranking/2.rate": 1650 + 8 * wobble,
                "model.ranking/2.request_ms": (2.94 if long_delay else 1.84) + 0.02 * wobble,
                "model.ranking/2.queue_ms": (1.23 if long_delay else 0.40) + 0.02 * wobble,
                "model.ranking/2.batch": (4.3 if long_delay else 1.85) + 0.05 * wobble,
                "model.ranking/2.fail_rate": 0.0,
                "model.ranking/2.run_ms.4": 1.60,
                "model.ranking/2.busy": 0.31 if long_delay else 0.61,
                "model.ranking/2.pending": 2.0,
                "model.recall/7.rate": 180 + 6 * wobble,
                "model.recall/7.request_ms": 2.65,
                "model.recall/7.queue_ms": 0.42,
                "model.recall/7.batch": 1.1,
                "model.recall/7.fail_rate": 0.0,
                "model.reco/1.rate": 180 + 6 * wobble,
                "model.reco/1.request_ms": 5.61,
                "model.reco/1.fail_rate": 0.0,
            }
        target.record(mono, values)
