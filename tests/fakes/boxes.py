"""Boxes to look at without a box: Snapshots built through the real structs and the real Store.

`drawn_box()` is the one of the drawings; the others are its troubles. Each gives what a session would: the Readings,
the events, the verdicts, the log lines, and what the Store made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from console.core.history import History
from console.core.model import (
    PART_FIELDS,
    ContainerState,
    DiskModel,
    DiskVersion,
    Event,
    Failure,
    GpuBox,
    GpuProcess,
    GpuState,
    HostState,
    IndexEntry,
    KernelFault,
    KernelLog,
    LogLine,
    MigInstance,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelStats,
    PodmanState,
    Reading,
    Repository,
    Snapshot,
    SocketTry,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
    Verdict,
    Window,
)
from console.core.store import Store
from tests.fakes import drawn, report
from tests.fakes.drawn import GIB, MIB, MONO, NOW, at

INTERVALS: Mapping[str, float] = {"triton.config": 5.0, "repository": 10.0, "container": 2.0, "kernel_log": 2.0}


@dataclass(frozen=True)
class Box:
    """One box at one moment."""

    readings: tuple[Reading[Any], ...]
    snapshot: Snapshot
    history: History
    events: tuple[Event, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    log_lines: tuple[LogLine, ...] = ()


def good(part: str, value: Any, *, old: float = 0.4, error: Failure | None = None) -> Reading[Any]:
    """A Reading taken `old` seconds ago; with `error` the reads since then have failed."""
    return Reading(
        part,
        INTERVALS.get(part, 1.0),
        value,
        NOW - old,
        MONO - old,
        error,
        error_mono=MONO - old + 1 if error else None,
        error_wall=NOW - old + 1 if error else None,
        duration=0.004,
        reads=30,
    )


def bad(part: str, kind: str, message: str, hint: str = "", since: float = 20.0) -> Reading[Any]:
    """A Reading that never had a value."""
    failure = Failure(kind, message, hint)  # type: ignore[arg-type]
    return Reading(
        part,
        INTERVALS.get(part, 1.0),
        error=failure,
        error_mono=MONO - since,
        error_wall=NOW - since,
        duration=0.002,
    )


def box_of(
    parts: Mapping[str, Reading[Any]],
    *,
    events: tuple[Event, ...] = (),
    verdicts: tuple[Verdict, ...] = (),
    log_lines: tuple[LogLine, ...] = (),
    past: Callable[[History], None] | None = None,
    memory: Mapping[str, int] | None = None,
) -> Box:
    """Fold Readings and events as the app does. `memory` = what each model took when its load was watched."""
    store = Store()
    if past is not None:
        past(store.history)
    for reading in parts.values():
        store.apply(reading)
    for event in events:
        store.add_event(event)
    store.set_verdicts(verdicts)
    snapshot = store.snapshot(NOW, MONO)
    if memory:
        rows = tuple(
            changed(row, memory=memory[row.name], memory_origin="seen at load") if row.name in memory else row
            for row in snapshot.models
        )
        snapshot = changed(snapshot, models=rows)
    return Box(tuple(parts.values()), snapshot, store.history, events, verdicts, log_lines)


def drawn_parts() -> dict[str, Reading[Any]]:
    """All parts of the drawn box, fresh."""
    values: dict[str, Any] = {
        "gpu": drawn.gpu_box(),
        "triton.server": drawn.server(),
        "triton.index": drawn.index(),
        "triton.stats": drawn.stats(),
        "triton.metrics": drawn.metrics(),
        "triton.config": drawn.configs(),
        "repository": drawn.repository(),
        "container": drawn.podman(),
        "host": drawn.host(),
        "kernel_log": drawn.kernel(),
        "checks": report.serving_report(),
    }
    return {part: good(part, value) for part, value in values.items()}


def drawn_box(**instead: Reading[Any]) -> Box:
    """The box of the drawings; `instead` replaces parts by the name of their Snapshot field."""
    by_field = {field: part for part, field in PART_FIELDS.items()}
    parts = drawn_parts() | {by_field[field]: reading for field, reading in instead.items()}
    return box_of(
        parts,
        events=drawn.events(),
        verdicts=drawn.verdicts(),
        log_lines=drawn.log_lines(),
        past=drawn.history,
        memory={"ranking": int(3.1 * GIB), "recall": int(1.7 * GIB)},
    )


# ----------------------------------------------------------------------------------------------------------- troubles


def nothing_serves_box() -> Box:
    """Design 1.3: the container cannot start because its CDI spec is older than the driver."""
    refused = "connection refused on 127.0.0.1:8000"
    gpu = changed(
        drawn.gpu_state(),
        util_pct=0.0,
        memory_used=0,
        memory_free=int(14.6 * GIB),
        power_w=10.0,
        temp_c=38.0,
        sm_mhz=300,
        pstate=8,
        pcie_gen=1,
        throttle_now=(),
        processes=(),
    )
    sockets = (
        SocketTry("/run/podman/podman.sock", "rootful", None),
        SocketTry("/run/user/1000/podman/podman.sock", "rootless", "no such file"),
    )
    last_log = (
        "Error: crun: error mounting /usr/lib64/libEGL_nvidia.so.550.90.07: no such file or directory",
        "triton.service: Main process exited, code=exited, status=126/n/a",
    )
    parts = {
        "gpu": good("gpu", GpuBox("570.86.15", "12.8", "12.570.86.15", (gpu,), 1)),
        "triton.server": bad("triton.server", "unavailable", refused),
        "triton.index": bad("triton.index", "unavailable", refused),
        "triton.stats": bad("triton.stats", "unavailable", refused),
        "triton.metrics": bad("triton.metrics", "unavailable", "connection refused on 127.0.0.1:8002"),
        "triton.config": bad("triton.config", "unavailable", refused),
        "repository": good("repository", drawn.repository(), old=9),
        "container": good(
            "container", PodmanState(sockets[0].path, "rootful", "4.9.4", 2.0, sockets, None, last_log=last_log)
        ),
        "host": good("host", drawn.host()),
        "kernel_log": good("kernel_log", KernelLog("journal", at("03:01:12"))),
        "checks": good("checks", report.down_report()),
    }
    events = (
        Event(at("02:57:40"), "note", "rpm: nvidia-driver 550.90.07 → 570.86.15, kernel", "(rpm)", "rpm"),
        Event(at("03:01:12"), "note", "host booted, kernel 4.18.0-553.27.1", "(kernel)", "boot"),
        Event(at("03:01:20"), "fail", "triton.service start 1 failed, exit 126", "(journal)", "unit.ended", repeats=7),
    )
    verdicts = (
        Verdict(
            "V01",
            "fail",
            "triton is not running: exit 126, error mounting libEGL_nvidia.so.550.90.07",
            ("the unit has failed to start since 03:01:20, each time in the same way.",),
            "sure",
            next_key="5",
            since_wall=at("03:01:20"),
            subject="container",
        ),
        Verdict("V39", "unknown", "models: cannot tell before the server answers.", trust="cannot tell"),
    )
    return box_of(parts, events=events, verdicts=verdicts)


def empty_box() -> Box:
    """A laptop: no NVIDIA device, no Podman, no Triton."""
    refused = "connection refused on 127.0.0.1:8000"
    hint = "start Triton, or give its address with --triton"
    tried = (
        SocketTry("/run/podman/podman.sock", "rootful", "no such file"),
        SocketTry("/run/user/1000/podman/podman.sock", "rootless", "no such file"),
    )
    host = HostState(
        hostname="laptop",
        os_name="Debian 12",
        kernel="6.1.0",
        boot_wall=at("08:00:00"),
        cpus=8,
        cpu_pct=4.0,
        memory_total=16 * GIB,
        memory_used=6 * GIB,
        memory_available=10 * GIB,
        missing={"triton_cores": "no container"},
    )
    parts = {
        "gpu": bad("gpu", "unavailable", "no NVIDIA device on the PCI bus of this host"),
        "triton.server": bad("triton.server", "unavailable", refused, hint),
        "triton.index": bad("triton.index", "unavailable", refused),
        "triton.stats": bad("triton.stats", "unavailable", refused),
        "triton.metrics": bad("triton.metrics", "unavailable", "connection refused on 127.0.0.1:8002"),
        "triton.config": bad("triton.config", "unavailable", refused),
        "repository": bad("repository", "unavailable", "no model repository known"),
        "container": good("container", PodmanState(None, None, tried=tried)),
        "host": good("host", host),
        "kernel_log": bad("kernel_log", "permission", "the kernel log may not be read", "group systemd-journal or adm"),
    }
    return box_of(parts)


def unread_box() -> Box:
    """The first second: nothing was read yet."""
    return Box((), Snapshot(wall=NOW, mono=MONO), History())


def bring_up_box() -> Box:
    """Design 1.10: a card on the bus, no driver, no server ever seen."""
    box = empty_box()
    parts = {reading.part: reading for reading in box.readings}
    message = "NVML error 12: libnvidia-ml.so.1 was not found; 1 NVIDIA device is on the PCI bus"
    parts["gpu"] = bad("gpu", "unavailable", message, "install the driver")
    return box_of(parts)


def stale_box() -> Box:
    """NVML has not answered for 33 s, statistics neither; the values of before stand."""
    slow = Failure("timeout", "NVML has not answered since 14:03:58", "the driver may hang")
    mute = Failure("timeout", "no answer within 2 s from /v2/models/stats")
    return drawn_box(
        gpu=good("gpu", drawn.gpu_box(), old=33, error=slow),
        stats=good("triton.stats", drawn.stats(), old=33, error=mute),
    )


def nvml_mismatch_box() -> Box:
    """NVML error 18: the driver's libraries are newer than the loaded module."""
    error = bad(
        "gpu",
        "unavailable",
        "NVML error 18: libraries 570.86.15, kernel 550.90.07",
        "the driver was updated without a reboot",
    )
    return drawn_box(gpu=error)


def lost_gpu_box() -> Box:
    """NVML error 15 with Xid 79 in the kernel log."""
    lost = changed(
        drawn.gpu_state(),
        lost=Failure("unavailable", "NVML error 15: the GPU is lost", "restart the host"),
        recovery_action="node_reboot",
    )
    xid = KernelFault(
        at("14:03:12"),
        "xid",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        79,
        "0000:3b:00",
    )
    return drawn_box(
        gpu=good("gpu", GpuBox("550.90.07", "12.4", "12.550.90.07", (lost,), 1)),
        kernel=good("kernel_log", KernelLog("journal", at("10:52:01"), (xid,))),
    )


def _a100(index: int = 0) -> GpuState:
    return changed(
        drawn.gpu_state(index),
        uuid=f"GPU-a100-{index:04d}",
        name="NVIDIA A100-PCIE-40GB",
        memory_total=40 * GIB,
        memory_used=10 * GIB,
        memory_free=29 * GIB,
        memory_reserved=1 * GIB,
        power_w=190.0 + index,
        power_limit_w=400.0,
        temp_c=51.0 + index,
    )


def mig_box() -> Box:
    """MIG on: no utilisation for the parent card, processes by instance."""
    triton = GpuProcess(41233, "C", int(6.1 * GIB), None, "root", "tritonserver", at("13:39:55"), None, True)
    other = GpuProcess(51000, "C", int(3.0 * GIB), None, "jup", "python", at("12:00:00"), None, False)
    parent = changed(
        _a100(),
        util_pct=None,
        mem_ctrl_pct=None,
        mig_on=True,
        mig=(
            MigInstance(0, "MIG-0", "1g.10gb", int(9.8 * GIB), int(6.1 * GIB), (triton,)),
            MigInstance(1, "MIG-1", "1g.10gb", int(9.8 * GIB), 0, ()),
            MigInstance(2, "MIG-2", "1g.10gb", int(9.8 * GIB), int(3.0 * GIB), (other,)),
        ),
        processes=None,
        missing={"util_pct": "not given for a MIG card", "processes": "listed by instance"},
    )
    return drawn_box(gpu=good("gpu", GpuBox("550.90.07", "12.4", "12.550.90.07", (parent,), 1)))


def eight_gpus_box() -> Box:
    """Eight cards, one of them lost."""
    gpus = [_a100(index) for index in range(8)]
    gpus[5] = changed(gpus[5], lost=Failure("unavailable", "NVML error 15: the GPU is lost"))
    return drawn_box(gpu=good("gpu", GpuBox("550.90.07", "12.4", "12.550.90.07", tuple(gpus), 8)))


def metrics_off_box() -> Box:
    """The metrics port refuses: no waiting count, no failures by reason."""
    return drawn_box(metrics=bad("triton.metrics", "unavailable", "connection refused on 127.0.0.1:8002"))


def idle_gpu_box() -> Box:
    """A driver that gives next to nothing (all optional fields absent)."""
    bare = GpuState(index=0, name="Tesla T4", memory_total=15 * GIB, missing={"util_pct": "not supported"})
    return drawn_box(gpu=good("gpu", GpuBox("470.1", None, None, (bare,), 1)))


# ------------------------------------------------------------------------------------------------------------ hostile

EVIL_NAMES = (
    "[/x]",
    "[bold red]model[/]",
    "\x1b[31mred\x1b[0m",
    "模型排序" * 6,
    "a" * 300,
    "broken\udcff\ufffdutf8",
    "new\nline\ttab",
    "\u202egnp.exe",
)


def hostile_box() -> Box:
    """Names, reasons and lines made to break a terminal or a markup parser."""
    long_reason = "[/x] \x1b[2J" + "r" * 100_000
    entries = tuple(
        IndexEntry(name, "1", "READY" if number % 2 else "UNAVAILABLE", None if number % 2 else long_reason)
        for number, name in enumerate(EVIL_NAMES)
    )
    ready = drawn.stats().flows[0]
    flows = tuple(
        changed(ready, key=ModelKey(entry.name, "1"), stats=ModelStats(entry.name, "1", success_count=5))
        for entry in entries
        if entry.state == "READY"
    )
    served = drawn.configs().configs[0]
    parts = drawn_parts()
    podman = drawn.podman()
    container = podman.container
    assert container is not None
    evil = changed(
        container,
        name=EVIL_NAMES[1],
        image=EVIL_NAMES[2] + "/" + EVIL_NAMES[4],
        unit=EVIL_NAMES[0],
        error=long_reason,
        ulimits={EVIL_NAMES[2]: EVIL_NAMES[1]},
    )
    process = GpuProcess(1, "C", 5 * GIB, 3.0, EVIL_NAMES[2], long_reason, NOW - 60, EVIL_NAMES[4], True, EVIL_NAMES[3])
    gpu = changed(drawn.gpu_state(), name=EVIL_NAMES[1], processes=(process,))
    parts |= {
        "gpu": good("gpu", GpuBox(EVIL_NAMES[0], None, None, (gpu,), 1)),
        "triton.index": good("triton.index", TritonIndex(entries)),
        "triton.stats": good("triton.stats", TritonStats(flows)),
        "triton.metrics": good(
            "triton.metrics",
            TritonMetrics("http://x", tuple(ModelMetrics(ModelKey(name, "1"), 1.0) for name in EVIL_NAMES)),
        ),
        "triton.config": good(
            "triton.config",
            TritonConfigs(
                tuple(changed(served, name=name, version="1", raw='{"[/x]": "\\u001b[31m"}') for name in EVIL_NAMES),
                {EVIL_NAMES[0]: long_reason},
            ),
        ),
        "repository": good(
            "repository",
            Repository(
                "/data/[/x]",
                models=tuple(
                    DiskModel(name, f"/data/{name}", (DiskVersion(1, MIB, NOW),), config_error=long_reason)
                    for name in EVIL_NAMES
                ),
            ),
        ),
        "container": good("container", changed(podman, container=evil)),
        "kernel_log": good(
            "kernel_log", KernelLog("journal", NOW, (KernelFault(NOW - 5, "xid", long_reason, 79, EVIL_NAMES[2]),))
        ),
        "triton.server": good("triton.server", TritonServer("http://[/x]", True, False, EVIL_NAMES[2], note="[/x]")),
    }
    events = tuple(
        Event(NOW - 60 * number, "fail", f"{name} failed", EVIL_NAMES[2], "model.failed", name, (long_reason,))
        for number, name in enumerate(EVIL_NAMES)
    )
    verdicts = tuple(
        Verdict(f"V{number:02d}", "fail", f"{name} is bad", (long_reason,), model=name, figures=name, subject="model")
        for number, name in enumerate(EVIL_NAMES, 1)
    )
    lines = tuple(LogLine(NOW - 9, "stderr", name, "E", name) for name in EVIL_NAMES)
    lines += (LogLine(NOW - 5, "stderr", "x" * 100_000, "W", "[/x]", 96_000),)
    return box_of(parts, events=events, verdicts=verdicts, log_lines=lines, past=drawn.history)


# --------------------------------------------------------------------------------------------------------------- many


def many_models_box(n: int = 1000) -> Box:
    """`n` models, every tenth busy, every hundredth failed."""
    base = drawn.flow("m", "1", {1: 10, 2: 5}, (1.2, 0.1), (0.3, 0.1, 1.1, 0.1))
    quiet = Window(10, 0, 0, 0, 0, 0, 0.0, 0.0, None, None, None, None, None, None, None, 0.0, (), False)
    entries, flows, configs = [], [], []
    served: ModelConfig = drawn.configs().configs[0]
    for number in range(n):
        name = f"model_{number:04d}"
        failed = number % 100 == 99
        entries.append(
            IndexEntry(name, "1", "UNAVAILABLE" if failed else "READY", "Internal: no such file" if failed else None)
        )
        configs.append(changed(served, name=name, version="1"))
        if failed:
            continue
        key = ModelKey(name, "1")
        stats = ModelStats(name, "1", success_count=number)
        busy = number % 10 == 0
        flows.append(changed(base, key=key, stats=stats) if busy else ModelFlow(key, stats, quiet, quiet, quiet))
    parts = drawn_parts() | {
        "triton.index": good("triton.index", TritonIndex(tuple(entries))),
        "triton.stats": good("triton.stats", TritonStats(tuple(flows))),
        "triton.config": good("triton.config", TritonConfigs(tuple(configs))),
        "triton.metrics": good("triton.metrics", TritonMetrics("http://127.0.0.1:8002/metrics")),
        "repository": good("repository", Repository("/data/models")),
    }
    return box_of(parts, events=drawn.events())


def stopped_container(box: Box) -> ContainerState | None:
    """The container of a box, as it is after a stop that became a kill."""
    value = box.snapshot.container.value
    if value is None or value.container is None:
        return None
    return changed(value.container, state="exited", exit_code=137, finished_wall=NOW - 30, pid=None)


def with_verdicts(box: Box, verdicts: tuple[Verdict, ...]) -> Box:
    """The same box with other verdicts."""
    return replace(box, snapshot=changed(box.snapshot, verdicts=verdicts), verdicts=verdicts)


ALL_BOXES: Mapping[str, Callable[[], Box]] = {
    "drawn": drawn_box,
    "nothing_serves": nothing_serves_box,
    "empty": empty_box,
    "unread": unread_box,
    "bring_up": bring_up_box,
    "stale": stale_box,
    "nvml_mismatch": nvml_mismatch_box,
    "lost_gpu": lost_gpu_box,
    "mig": mig_box,
    "eight_gpus": eight_gpus_box,
    "metrics_off": metrics_off_box,
    "idle_gpu": idle_gpu_box,
    "hostile": hostile_box,
    "many_models": many_models_box,
}
