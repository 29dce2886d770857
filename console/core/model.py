"""The nouns: what the console knows about one box, as frozen structs.

Conventions, everywhere in the product:

* `wall` is Unix time in seconds (what a person reads), `mono` is `time.monotonic()` in seconds (what ages and rates
  are computed from; a changed clock never makes a rate wrong).
* Sizes are bytes, powers watts, temperatures degrees Celsius, clocks MHz, durations seconds unless the name ends in
  `_ms`, `_us` or `_ns`. Shares (`busy`, `..._share`) are 0 to 1; names that end in `_pct` are 0 to 100.
* `None` means "not known": why it is not known stands beside it (`missing`, `Reading.error`). It is never 0 or -1.
* Text that came from outside (names, reasons, log lines) is kept as it came, less control characters; who shows it
  must treat it as literal text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, field

from console.core.finding import Report
from console.core.sign import Sign as Sign

T = TypeVar("T")

ErrorKind = Literal["unavailable", "permission", "timeout", "protocol", "bug"]


class SourceError(Exception):
    """Why a source could not be read. Raised by clients and sources, carried by a Reading as `Failure`."""

    def __init__(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.hint = hint

    def failure(self) -> Failure:
        """The same as plain data."""
        return Failure(self.kind, self.message, self.hint)


class Failure(Struct, frozen=True):
    """What went wrong (kind, one plain sentence) and what the operator can do about it."""

    kind: ErrorKind
    message: str
    hint: str = ""


class Reading(Struct, Generic[T], frozen=True):
    """The last good value of one part beside the newest error.

    `value` stays when a later read fails, so that the screen can say "71 °C (stale 14 s: podman timed out)".
    """

    part: str
    interval: float
    value: T | None = None
    wall: float | None = None
    """When `value` was taken."""
    mono: float | None = None
    error: Failure | None = None
    """Why the newest read failed; None when it succeeded or none was tried yet."""
    error_mono: float | None = None
    """When the present run of failures began."""
    error_wall: float | None = None
    duration: float | None = None
    """Seconds that the newest read took."""
    reads: int = 0
    """Good reads so far."""

    def age(self, now_mono: float) -> float | None:
        """Seconds since the last good value; None when there never was one."""
        return None if self.mono is None else max(0.0, now_mono - self.mono)

    def is_old(self, now_mono: float) -> bool:
        """True when the value is older than three intervals (then it is shown with `~` and `▲ 33 s old`)."""
        age = self.age(now_mono)
        return age is not None and age > max(3 * self.interval, 3.0)

    @property
    def tried(self) -> bool:
        """False until the first read has ended, well or badly."""
        return self.mono is not None or self.error is not None


# ---------------------------------------------------------------------------------------------------------------- GPU


class GpuProcess(Struct, frozen=True):
    """A process with a context on the card, as NVML lists it, with what /proc tells about it."""

    pid: int
    kind: str
    """"C" compute, "G" graphics, "C+G" both."""
    memory: int | None
    """None when the driver does not tell (WSL, vGPU, other PID namespace, MIG without rights)."""
    sm_pct: float | None = None
    user: str | None = None
    command: str | None = None
    started_wall: float | None = None
    container_id: str | None = None
    """64 hex digits from the cgroup path; None when the process is not in a container or /proc could not be read."""
    in_container: bool | None = None
    """None when its cgroup could not be read."""
    model: str | None = None
    """Model name where the command line tells it (Python back-end stubs do); None otherwise."""


class MigInstance(Struct, frozen=True):
    """One MIG device of a parent card."""

    index: int
    uuid: str | None
    profile: str | None
    """Such as `1g.10gb`."""
    memory_total: int | None
    memory_used: int | None
    processes: tuple[GpuProcess, ...] = ()


class ThrottleCounter(Struct, frozen=True):
    """Time that the driver counted for one clocks-event reason, since the driver was loaded."""

    reason: str
    """power_cap, heat_software, heat_hardware, power_brake, sync_boost, board_limit, low_utilization, reliability;
    `heat` where the driver does not tell its software from its hardware slowdown."""
    seconds: float


class GpuState(Struct, frozen=True):
    """One card. Any field may be None; `missing` then holds why, under the field's name."""

    index: int
    uuid: str | None = None
    name: str | None = None
    serial: str | None = None
    pci_bus_id: str | None = None
    architecture: str | None = None
    util_pct: float | None = None
    mem_ctrl_pct: float | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    """Without the driver's own share when `memory_reserved` is known (NVML's v2 struct)."""
    memory_free: int | None = None
    memory_reserved: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    temp_c: float | None = None
    temp_slowdown_c: float | None = None
    temp_shutdown_c: float | None = None
    temp_memory_c: float | None = None
    """Of the card's memory (HBM cards)."""
    temp_memory_max_c: float | None = None
    fan_pct: float | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    pstate: int | None = None
    throttle_now: tuple[str, ...] | None = None
    """Names of the clocks-event reasons set now, idle left out; () = none; None = not told."""
    throttle_bits: int | None = None
    throttle_counters: tuple[ThrottleCounter, ...] = ()
    """Empty when this driver has none: then only what was seen once a second is known."""
    ecc_on: bool | None = None
    ecc_corrected_now: int | None = None
    ecc_uncorrected_now: int | None = None
    """Since the driver was loaded."""
    ecc_corrected_ever: int | None = None
    ecc_uncorrected_ever: int | None = None
    retired_pages: int | None = None
    retired_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    pcie_rx_bps: float | None = None
    pcie_tx_bps: float | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    recovery_action: str | None = None
    """What the driver wants done: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset; None = not told."""
    mig_on: bool | None = None
    mig: tuple[MigInstance, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    """None when they could not be listed; () when there are none."""
    lost: Failure | None = None
    """Set when this card no longer answers (NVML 15 and kin); other fields are then the last ones known or None."""
    lost_wall: float | None = None
    """When this console first saw it lost; None while it answers."""
    slow_mono: float | None = None
    """When the slow-moving fields (ECC, pages, PCIe, limits, modes) were last read; every 5 s."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Field name -> why it is None; also `processes.memory`, `processes.sm_pct`, `processes.PID` (what /proc did not
    tell) and `throttle_counters.REASON`."""


class GpuBox(Struct, frozen=True):
    """All cards of the box as NVML tells them."""

    driver: str | None = None
    cuda: str | None = None
    """Highest CUDA version that the driver supports, such as `12.4`."""
    nvml: str | None = None
    gpus: tuple[GpuState, ...] = ()
    pci_devices: int | None = None
    """Display devices of vendor 10de on the PCI bus (/sys): tells "no card" from "no driver"; None = not told."""


# ------------------------------------------------------------------------------------------------------------- Triton


class TritonServer(Struct, frozen=True):
    """Metadata and the two lamps. `ready` alone never says that nothing serves: one failed model holds it at 400."""

    url: str
    live: bool | None
    ready: bool | None
    version: str | None = None
    extensions: tuple[str, ...] = ()
    latency_ms: float | None = None
    """Time of the live request, on its own connection."""
    note: str | None = None
    """Such as "403: expecting header 'key'"."""


ModelState = Literal["READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN"]


class IndexEntry(Struct, frozen=True):
    """One line of the repository index. `version` and `state` are None for a directory never loaded or failed early."""

    name: str
    version: str | None = None
    state: ModelState | None = None
    reason: str | None = None
    since_wall: float | None = None
    """When this console first saw the present state; None when it was so at the first read."""
    since_mono: float | None = None


class TritonIndex(Struct, frozen=True):
    """The repository index; `entries` keeps the server's order."""

    entries: tuple[IndexEntry, ...] = ()


class BatchStat(Struct, frozen=True):
    """Cumulative cost of executions of one batch size (sum of client batch sizes)."""

    size: int
    count: int
    input_ns: int
    infer_ns: int
    output_ns: int

    @property
    def total_ns(self) -> int:
        """Input, infer and output together."""
        return self.input_ns + self.infer_ns + self.output_ns


class ModelStats(Struct, frozen=True):
    """Cumulative statistics of one model version, as `/v2/models/stats` gives them."""

    name: str
    version: str
    last_inference_ms: int = 0
    """Unix milliseconds; 0 = never."""
    inference_count: int = 0
    execution_count: int = 0
    success_count: int = 0
    success_ns: int = 0
    fail_count: int = 0
    fail_ns: int = 0
    queue_count: int = 0
    queue_ns: int = 0
    input_count: int = 0
    input_ns: int = 0
    infer_count: int = 0
    infer_ns: int = 0
    output_count: int = 0
    output_ns: int = 0
    cache_hit_count: int = 0
    cache_hit_ns: int = 0
    cache_miss_count: int = 0
    cache_miss_ns: int = 0
    batches: tuple[BatchStat, ...] = ()
    memory_bytes: int | None = None
    """Sum of GPU `memory_usage` entries; None when the back end reports none (most do not)."""


class BatchWindow(Struct, frozen=True):
    """Executions of one batch size within a window."""

    size: int
    runs: int
    ms_per_run: float


class Window(Struct, frozen=True):
    """What one model version did over one interval, by differences of cumulative statistics.

    Means are per successful request, in ms; None when nothing was counted. Derived as triton.md 2.3 tells.
    """

    span: float
    """True seconds between the two samples."""
    success: int
    failed: int
    executions: int
    inferences: int
    cache_hits: int
    rate: float
    """Successful requests a second."""
    fail_rate: float
    """Failures a second *that Triton counts* (not: queue full, bad input, error answers of Python models)."""
    request_ms: float | None
    queue_ms: float | None
    input_ms: float | None
    infer_ms: float | None
    output_ms: float | None
    compute_ms: float | None
    """input + infer + output."""
    mean_batch: float | None
    """inferences / executions; None without executions."""
    busy_seconds: float
    """Σ over batch sizes of the time that instances spent executing; / (span · instances) is the busy share."""
    batches: tuple[BatchWindow, ...]
    crosses_reset: bool
    """True when the counters began anew inside the window (reload, restart): Why does not judge such a window."""
    cache_misses: int = 0
    """Requests that were looked up in the response cache and not found."""


class ModelFlow(Struct, frozen=True):
    """Rates of one model version over several windows, computed in the statistics source's thread."""

    key: ModelKey
    stats: ModelStats
    w1: Window | None = None
    """Since the sample before (about a second): for history."""
    w10: Window | None = None
    w30: Window | None = None
    w120: Window | None = None
    w300: Window | None = None
    epoch_mono: float | None = None
    """When this run of counters began, as far as this console saw it; None = before the console started."""
    resets: int = 0
    """How often the counters began anew while the console watched."""


class ModelKey(Struct, frozen=True, order=True):
    """Identity of a model version. Never merge two versions: a difference of sums over versions is wrong."""

    name: str
    version: str
    namespace: str = ""


class TritonStats(Struct, frozen=True):
    """All models' flows."""

    flows: tuple[ModelFlow, ...] = ()


class FailureCount(Struct, frozen=True):
    """Failures by reason from the metrics page: total as exported and rate over the last 10 and 30 s."""

    reason: str
    """REJECTED, CANCELED, BACKEND, OTHER, or "" before 24.07 (one series without a reason)."""
    total: float
    rate10: float | None
    rate30: float | None


class Quantile(Struct, frozen=True):
    """A percentile of the server's own summary (60 s window) in ms."""

    q: float
    ms: float


class Histogram(Struct, frozen=True):
    """Observations of one histogram over an interval, by differences of its buckets (core/histograms.py)."""

    family: str
    model: ModelKey | None
    """None where its labels name no model."""
    labels: str
    """Its other labels as they were spelled."""
    span: float
    """True seconds between the two pages; 0 at the first one."""
    bounds: tuple[float, ...]
    """Finite upper bounds in the family's unit, ascending."""
    counts: tuple[float, ...]
    """Observations of each bucket; one more than `bounds`: the last lie beyond the last bound."""

    @property
    def total(self) -> float:
        """All observations."""
        return sum(self.counts)


class ModelMetrics(Struct, frozen=True):
    """What only the metrics page knows about one model version."""

    key: ModelKey
    pending: float | None = None
    """Requests waiting now, not those executing (23.09 and later)."""
    pending_samples: tuple[float, ...] = ()
    """The last 30 one-second samples of `pending`, oldest first."""
    success_total: float | None = None
    failures: tuple[FailureCount, ...] = ()
    request_summary: tuple[Quantile, ...] = ()
    """Percentiles of the request time where summary_latencies is on; () otherwise."""
    load_seconds: float | None = None
    first_response: Histogram | None = None
    """Milliseconds to the first response where histogram_latencies is on (24.11: decoupled models, 26.01: all)."""


class CustomSample(Struct, frozen=True):
    """One series of a custom family."""

    text: str
    """Its labels as they were spelled; begins with `_sum` or `_count` for those of a histogram or summary."""
    value: float
    model: ModelKey | None = None
    """None where its labels name no model."""
    labels: tuple[tuple[str, str], ...] = ()
    """All labels, unescaped."""
    rate10: float | None = None
    """A second over the last 10 s, of counters; None for gauges and at the first page."""


class CustomFamily(Struct, frozen=True):
    """A metric family that is not Triton's own (vllm:..., nv_trt_llm_..., models' own)."""

    name: str
    kind: str
    """counter, gauge, histogram, summary, untyped."""
    samples: tuple[CustomSample, ...]
    """At most the first 64; buckets are in `TritonMetrics.histograms`."""


class TritonMetrics(Struct, frozen=True):
    """The metrics page."""

    url: str
    models: tuple[ModelMetrics, ...] = ()
    pinned_total: float | None = None
    pinned_used: float | None = None
    cpu_utilization: float | None = None
    """Of the host, not of the container; kept for comparison, not shown as the container's."""
    gpu_families: bool = False
    """False when DCGM is off (MIG, CPU): NVML is used anyway."""
    has_pending: bool = False
    has_summaries: bool = False
    has_histograms: bool = False
    custom: tuple[CustomFamily, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    """Of custom families; Triton's own is in `ModelMetrics.first_response`."""


class EnsembleStep(Struct, frozen=True):
    """One step of an ensemble."""

    model: str
    version: str
    """"-1" = latest."""


class InstanceGroup(Struct, frozen=True):
    """`count` instances per listed GPU (KIND_GPU) or in all (KIND_CPU, KIND_MODEL)."""

    kind: str
    count: int
    gpus: tuple[int, ...] = ()


class QueuePolicy(Struct, frozen=True):
    """Limits of the default queue; 0 = none."""

    max_queue_size: int = 0
    timeout_us: int = 0
    timeout_action: str = "REJECT"


class ModelConfig(Struct, frozen=True):
    """The served configuration of one model version, in the words of config.pbtxt."""

    name: str
    version: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int = 0
    dynamic_batching: bool = False
    delay_us: int = 0
    preferred: tuple[int, ...] = ()
    queue: QueuePolicy = QueuePolicy()
    priority_levels: int = 0
    preserve_ordering: bool = False
    sequence_batching: bool = False
    decoupled: bool = False
    response_cache: bool = False
    warmup_samples: int = 0
    rate_limited: bool = False
    version_policy: str = ""
    """"latest 1", "all", "specific 1 3"; what the config says, which after an in-place update may be old."""
    instance_groups: tuple[InstanceGroup, ...] = ()
    steps: tuple[EnsembleStep, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    raw: str = "{}"
    """The JSON as served, secrets in `parameters` masked."""

    @property
    def instances(self) -> int | None:
        """Σ count · max(1, listed GPUs); None for an ensemble or when no group is known."""
        if self.steps or not self.instance_groups:
            return None
        return sum(group.count * max(1, len(group.gpus)) for group in self.instance_groups)


class TensorSpec(Struct, frozen=True):
    """Input or output; `shape` without the batch dimension, -1 = variable."""

    name: str
    datatype: str
    """FP32, INT64, BYTES ... (metadata vocabulary)."""
    shape: tuple[int, ...]
    optional: bool = False


class TritonConfigs(Struct, frozen=True):
    """Served configurations by model name and version."""

    configs: tuple[ModelConfig, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    """Model name -> why its configuration could not be had."""


class Asked(Struct, frozen=True):
    """One request that the console made of a model, and what came of it."""

    model: str
    version: str | None
    """None = the server chose."""
    ok: bool | None
    """True: 200 and each output has its data. False: an error, no answer, or an output without data. None: not sent."""
    wall: float
    millis: float | None
    """From the request to the end of its answer, connection included."""
    text: str
    """The first values of each output, or the error in Triton's words, or why nothing was sent; literal text."""
    sent: str = ""
    """Such as `FEATURES FP32 [1, 4] zeros`."""
    status: int | None = None
    """Of HTTP."""
    compared: str | None = None
    """Against the kept (golden) answer: "" = the same within its tolerance, else where it differs. None: no question
    is kept for this model, or no answer came that could be compared."""

    @property
    def good(self) -> bool:
        """True when the answer is whole and, where one is kept, as kept."""
        return bool(self.ok) and not self.compared


class DiskVersion(Struct, frozen=True):
    """A numeric version folder on disk."""

    version: int
    size: int | None
    mtime_wall: float | None
    usable: bool = True
    """False when the folder is empty."""


class ConfigDifference(Struct, frozen=True):
    """One field where the served configuration differs from config.pbtxt (defaults added by the server left out)."""

    path: str
    live: str
    disk: str


class DiskModel(Struct, frozen=True):
    """A model folder of the repository, as seen from the host."""

    name: str
    path: str
    versions: tuple[DiskVersion, ...] = ()
    config_mtime_wall: float | None = None
    config_error: str | None = None
    """Why config.pbtxt could not be read or parsed; None when good or absent."""
    differences: tuple[ConfigDifference, ...] = ()


class Repository(Struct, frozen=True):
    """The model repository on this host's disk."""

    path: str
    in_container: str | None = None
    models: tuple[DiskModel, ...] = ()
    disk_total: int | None = None
    disk_free: int | None = None


# ---------------------------------------------------------------------------------------------------------- container


class SocketTry(Struct, frozen=True):
    """One Podman socket that was tried and what came of it."""

    path: str
    origin: str
    """rootful, rootless, CONTAINER_HOST, settings, containers.conf."""
    error: str | None


class PortMapping(Struct, frozen=True):
    """A published port; `host_ip` "" = all addresses."""

    container_port: int
    protocol: str
    host_ip: str
    host_port: int


class Mount(Struct, frozen=True):
    """A mount of the container."""

    source: str
    target: str
    read_only: bool
    kind: str = "bind"


class ContainerUsage(Struct, frozen=True):
    """Resource use of the container now."""

    cpu_cores: float | None = None
    """Cores in use (2.8 = two cores and most of a third)."""
    memory: int | None = None
    memory_limit: int | None = None
    pids: int | None = None
    shm_used: int | None = None
    oom_kills: int | None = None
    throttled_share: float | None = None
    """Share of scheduling periods in which its CPU quota held it back; None = no quota or not told."""


class ContainerState(Struct, frozen=True):
    """The Triton container as Podman inspects it."""

    id: str
    name: str
    state: str
    """running, exited, created, paused, stopping ..."""
    found_by: str
    """name, label, image, port."""
    image: str = ""
    image_id: str = ""
    image_created_wall: float | None = None
    env_versions: Mapping[str, str] = field(default_factory=dict)
    """CUDA_VERSION, TRT_VERSION, TRITON_SERVER_VERSION, NVIDIA_REQUIRE_CUDA ... from the environment, if there."""
    command: tuple[str, ...] = ()
    """Secrets masked."""
    created_wall: float | None = None
    started_wall: float | None = None
    finished_wall: float | None = None
    exit_code: int | None = None
    error: str | None = None
    oom_killed: bool | None = None
    restarts: int | None = None
    health: str | None = None
    pid: int | None = None
    ports: tuple[PortMapping, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    """CDI names where the create command tells them (`nvidia.com/gpu=all`)."""
    network: str | None = None
    shm_size: int | None = None
    ulimits: Mapping[str, str] = field(default_factory=dict)
    cpuset: str | None = None
    stop_timeout: int | None = None
    auto_remove: bool | None = None
    log_driver: str | None = None
    """k8s-file, journald, passthrough, none; None = not told."""
    unit: str | None = None
    """Owning systemd unit (label PODMAN_SYSTEMD_UNIT or the cgroup of conmon); None = none found."""
    unit_origin: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    control_mode: str | None = None
    """none, poll, explicit: from the command line; None = not told."""
    strict_readiness: bool = True
    exit_timeout: int | None = None
    usage: ContainerUsage = ContainerUsage()


class UnitState(Struct, frozen=True):
    """The systemd unit that owns the container, as `systemctl show` tells it."""

    name: str
    active: str
    """active, activating, failed, inactive ..."""
    sub: str
    """running, auto-restart, dead ..."""
    restarts: int | None = None
    """Starts by Restart= since the unit was last started by hand."""
    exit_status: int | None = None
    """Of its last main process; None while none has ended."""
    exit_wall: float | None = None
    since_wall: float | None = None
    """When its state last changed."""
    restart: str | None = None
    """`Restart=` of the unit: no, on-failure, always ..."""
    kind: str | None = None
    """Where its file comes from: hand-written, Quadlet, generated by Podman; None = not told."""
    user: bool = False
    """True for a unit of the user's own systemd."""


class KeptContainer(Struct, frozen=True):
    """An old container that was kept, under another name, when a new one took its place."""

    name: str
    state: str
    since_wall: float | None = None
    """When it stopped; None for one that never ran, or where Podman does not tell."""


class PodmanState(Struct, frozen=True):
    """Podman and the Triton container."""

    socket: str | None
    origin: str | None
    api_version: str | None = None
    latency_ms: float | None = None
    tried: tuple[SocketTry, ...] = ()
    container: ContainerState | None = None
    others: tuple[str, ...] = ()
    """Names of other containers that could be meant (second Triton, other owners)."""
    images: tuple[str, ...] = ()
    """Triton images on this box, running or not."""
    last_log: tuple[str, ...] = ()
    """Last lines of a container that is not running; the unit's last journal lines where the container is gone."""
    unit: UnitState | None = None
    """The owning unit; also when the container is gone. None where there is none, or no systemd."""
    kept: tuple[KeptContainer, ...] = ()
    """Old ones of this container (`triton-old-1`), the newest first."""


# --------------------------------------------------------------------------------------------------------------- host


class DiskRate(Struct, frozen=True):
    """Throughput of a block device."""

    name: str
    read_bps: float
    write_bps: float


class NetRate(Struct, frozen=True):
    """Throughput of an interface."""

    name: str
    rx_bps: float
    tx_bps: float


class Pressure(Struct, frozen=True):
    """PSI "some" averages over 10 s, percent; None where the kernel has no PSI (RHEL 8 needs psi=1)."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None


class HostState(Struct, frozen=True):
    """The machine around the card."""

    hostname: str = ""
    os_name: str = ""
    """Such as `Rocky 8.10`."""
    kernel: str = ""
    boot_wall: float | None = None
    cpus: int | None = None
    cpu_pct: float | None = None
    iowait_pct: float | None = None
    steal_pct: float | None = None
    load1: float | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    memory_available: int | None = None
    swap_used: int | None = None
    shm_total: int | None = None
    shm_used: int | None = None
    pressure: Pressure = Pressure()
    disks: tuple[DiskRate, ...] = ()
    nets: tuple[NetRate, ...] = ()
    triton_cores: float | None = None
    """Cores used by the container's processes, from its cgroup or /proc; None = not told."""
    triton_rss: int | None = None
    stub_pids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """`model/version` -> PIDs of living Python back-end stubs."""
    stub_cores: Mapping[str, float] = field(default_factory=dict)
    """`model/version` -> cores used by its stubs together."""
    zombies: tuple[int, ...] = ()
    """Zombie children of tritonserver."""
    missing: Mapping[str, str] = field(default_factory=dict)


class KernelFault(Struct, frozen=True):
    """An Xid or an OOM kill from the kernel log."""

    wall: float
    kind: str
    """xid, oom."""
    text: str
    xid: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None


class KernelLog(Struct, frozen=True):
    """What the kernel log of this boot says about cards and memory. Unreadable without rights on some systems."""

    source: str
    """journal, /dev/kmsg."""
    since_wall: float | None = None
    faults: tuple[KernelFault, ...] = ()


# --------------------------------------------------------------------------------------------------- events and lines


class Event(Struct, frozen=True):
    """Something that happened, with how it is known."""

    wall: float
    sign: Sign
    text: str
    origin: str
    """(server log), (podman), (kernel), (journal), (rpm), (disk), not made by a gpuconsole ..."""
    kind: str = ""
    """container.start, container.stop, model.ready, model.failed, reload, config, xid, oom, boot, source ..."""
    model: str | None = None
    detail: tuple[str, ...] = ()
    repeats: int = 1
    marks_chart: bool = True
    """False for events that no chart needs a letter for."""


class LogLine(Struct, frozen=True):
    """One line of the container's log, as text (control characters removed, invalid UTF-8 replaced)."""

    wall: float | None
    stream: str
    """stdout, stderr, journal."""
    text: str
    level: str | None = None
    """I, W, E, F, V from Triton's prefix; None when the line has none."""
    origin: str | None = None
    """File or model that the line names."""
    truncated: int = 0
    """Characters cut from an over-long line."""


class Standing(Struct, frozen=True):
    """A stream (log, Podman's events) that does not run, and why."""

    stream: str
    """logs, events.podman."""
    failure: Failure
    since_mono: float
    """When it was first seen to have ended."""


class Gaps(Struct, frozen=True):
    """What of past events, streams and answers did not reach the console."""

    unread: tuple[tuple[str, str], ...] = ()
    """Places of past events that could not be read (server log, podman, journal, kernel, packages), with the reason."""
    read: tuple[tuple[str, int], ...] = ()
    """Places that were read, with how many events they gave."""
    standing: tuple[Standing, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    """What was thrown away, in words, and how many of it; without those of which none was."""

    def stands(self, stream: str) -> Standing | None:
        """Why this stream stands; None while it runs."""
        return next((one for one in self.standing if one.stream == stream), None)


# ------------------------------------------------------------------------------------------------------- what we join


class ModelRow(Struct, frozen=True):
    """One model version as the union of index, statistics, metrics, configuration and disk sees it.

    Each source lies in its own way (triton.md 1.3 and 3), so `seen_in` names who knows it.
    """

    name: str
    version: str | None
    state: ModelState | None
    """None = a folder that was never loaded or whose configuration could not be read: the index cannot tell which."""
    reason: str | None = None
    since_wall: float | None = None
    since_mono: float | None = None
    seen_in: tuple[str, ...] = ()
    ensemble: bool = False
    flow: ModelFlow | None = None
    metrics: ModelMetrics | None = None
    config: ModelConfig | None = None
    disk: DiskModel | None = None
    instances: int | None = None
    busy: float | None = None
    """Share of the instances' time spent executing over w10, clamped to 1; None for ensembles, unknown instances and
    models whose one run takes over 6 s."""
    busy_clamped: bool = False
    memory: int | None = None
    memory_origin: str | None = None
    """"seen at load" or "back end"."""
    live_only: bool = False
    """True when the served configuration differs from config.pbtxt (shown as ≠)."""
    newer_on_disk: int | None = None
    """Highest usable version folder above the served one that the version policy would deploy."""
    failed_load: bool = False

    @property
    def key(self) -> ModelKey:
        """Identity; version "" when none is known."""
        return ModelKey(self.name, self.version or "")


ServingWord = Literal["SERVING", "DOWN", "STARTING", "NOT ANSWERING", "NOTHING LOADED", "NOTHING SERVES YET", "UNKNOWN"]


class Serving(Struct, frozen=True):
    """The header's word. `of` counts models with a READY, LOADING or failed version, not those unloaded on purpose."""

    word: ServingWord
    ready: int = 0
    of: int = 0
    detail: str = ""
    since_mono: float | None = None


class Traffic(Struct, frozen=True):
    """Load of the box from outside: an ensemble's inner requests are counted once."""

    rate: float | None = None
    through_ensembles: tuple[tuple[str, float], ...] = ()
    approximate: bool = False
    waiting: float | None = None
    fail_rate: float | None = None


class Proposal(Struct, frozen=True):
    """What may help against a verdict."""

    text: str
    """What would be done, in the imperative."""
    ground: str
    """Why it may help: the rule, and what of this box it rests on."""
    action: str = ""
    """Name of the action that does it, as `gpuconsole do` knows it; "" = by hand, or not on this box."""
    target: str = ""
    """What it is done to: a model, a card."""
    values: Mapping[str, str] = {}
    """Of the action."""
    key: str = ""
    """Opens the screen where it is done."""
    price: str = ""
    """What it costs or risks; "" = nothing is known to."""

    @property
    def deed(self) -> tuple[object, ...]:
        """What tells it from others, while its words change with the figures."""
        return self.action, self.target, tuple(sorted(self.values.items())) if self.action else self.text


Helps = Literal["yes", "no", "cannot tell"]


class Effect(Struct, frozen=True):
    """What a proposal would come to, by the batcher model (planning/effect.py; here, since that loads numpy)."""

    text: str
    """`mean 2.94 → 1.84 ±0.1 ms, batch 4.3 → 1.9`; or why nothing can be said."""
    helps: Helps = "cannot tell"
    """Whether the mean of a request's time falls by more than the prediction may be off, or all are served that now are
    not."""
    trust: str = ""
    """good, fair, poor; "" = nothing was predicted."""
    reasons: tuple[str, ...] = ()
    """Why the trust is not better."""


class Verdict(Struct, frozen=True):
    """One sentence of Why, with its proof (screens.md section 3)."""

    id: str
    """V01 ... V40."""
    sign: Sign
    title: str
    """One line; model names literal."""
    lines: tuple[str, ...] = ()
    trust: str = "sure"
    """sure, likely, cannot tell."""
    model: str | None = None
    next_key: str = ""
    since_mono: float | None = None
    since_wall: float | None = None
    rule: str = ""
    figures: str = ""
    source: str = ""
    means: str = ""
    does_not: str = ""
    consequences: tuple[str, ...] = ()
    """Verdicts folded under this one, as sentences."""
    subject: str = ""
    """model, gpu, container, server, box: where enter leads."""
    version: str | None = None
    """Of `model`, where the verdict is about one version of it."""
    not_so: tuple[str, ...] = ()
    """What was looked at for this model before this verdict matched, in two or three words each."""
    proposals: tuple[Proposal, ...] = ()
    """What may help, the likeliest first; () where nothing is known to."""


class Snapshot(Struct, frozen=True):
    """All that is known at one moment. Parts that did not change stay the same objects (`is`)."""

    seq: int = 0
    wall: float = 0.0
    mono: float = 0.0
    gpu: Reading[GpuBox] = Reading("gpu", 1.0)
    server: Reading[TritonServer] = Reading("triton.server", 1.0)
    index: Reading[TritonIndex] = Reading("triton.index", 1.0)
    stats: Reading[TritonStats] = Reading("triton.stats", 1.0)
    metrics: Reading[TritonMetrics] = Reading("triton.metrics", 1.0)
    configs: Reading[TritonConfigs] = Reading("triton.config", 5.0)
    repository: Reading[Repository] = Reading("repository", 10.0)
    container: Reading[PodmanState] = Reading("container", 2.0)
    host: Reading[HostState] = Reading("host", 1.0)
    kernel: Reading[KernelLog] = Reading("kernel_log", 2.0)
    checks: Reading[Report] = Reading("checks", 300.0)
    models: tuple[ModelRow, ...] = ()
    serving: Serving = Serving("UNKNOWN")
    traffic: Traffic = Traffic()
    events: tuple[Event, ...] = ()
    """Oldest first, bounded."""
    verdicts: tuple[Verdict, ...] = ()
    """Why: problems and notes in the order of the screen; "cannot tell" ones last."""
    gaps: Gaps = Gaps()

    def reading(self, part: str) -> Reading[Any]:
        """The Reading of a part by its name; KeyError for a name that is none."""
        value: Reading[Any] = getattr(self, PART_FIELDS[part])
        return value


PART_FIELDS: Mapping[str, str] = {
    "gpu": "gpu",
    "triton.server": "server",
    "triton.index": "index",
    "triton.stats": "stats",
    "triton.metrics": "metrics",
    "triton.config": "configs",
    "repository": "repository",
    "container": "container",
    "host": "host",
    "kernel_log": "kernel",
    "checks": "checks",
}
"""Part name (what sources publish) -> field of Snapshot."""
