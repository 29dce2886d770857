"""Model rows with given figures, for judging without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from console.advisors.why import Why
from console.core.history import History
from console.core.model import (
    BatchStat,
    BatchWindow,
    FailureCount,
    InstanceGroup,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelRow,
    ModelStats,
    QueuePolicy,
    Reading,
    Snapshot,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
    Verdict,
    Window,
)

NOW, MONO = 1_783_000_000.0, 5_000.0


def spread(mean: float, largest: int) -> dict[int, float]:
    """Shares of runs by batch size with that mean: the two sizes around it (all of a size where it is whole)."""
    mean = min(max(mean, 1.0), float(max(1, largest)))
    low = int(mean)
    high_share = mean - low
    return {low: 1.0} if high_share == 0 else {low: 1 - high_share, low + 1: high_share}


def window(
    *,
    span: float = 30.0,
    rate: float = 100.0,
    batch: float | None = 1.0,
    wait: float | None = 0.1,
    compute: float | None = 14.0,
    busy: float = 0.5,
    instances: int = 1,
    fail_rate: float = 0.0,
    max_batch: int = 16,
    inputs: float = 0.05,
    outputs: float = 0.05,
    sizes: Mapping[int, tuple[int, float]] | None = None,
    reset: bool = False,
) -> Window:
    """A Window with these figures (ms, per second, share); `sizes`: batch size -> (runs, ms a run)."""
    success, failed = round(rate * span), round(fail_rate * span)
    executions = round(success / batch) if batch else 0
    busy_seconds = busy * span * instances
    if sizes is None:
        each = busy_seconds / executions * 1000 if executions else 0.0
        sizes = {
            size: (round(share * executions), each)
            for size, share in spread(batch or 1.0, max_batch).items()
            if round(share * executions)
        }
    request = None if wait is None or compute is None else wait + compute
    return Window(
        span=span,
        success=success,
        failed=failed,
        executions=executions,
        inferences=success,
        cache_hits=0,
        rate=success / span,
        fail_rate=failed / span,
        request_ms=request,
        queue_ms=wait,
        input_ms=inputs,
        infer_ms=None if compute is None else compute - inputs - outputs,
        output_ms=outputs,
        compute_ms=compute,
        mean_batch=batch if executions else None,
        busy_seconds=busy_seconds,
        batches=tuple(BatchWindow(size, runs, ms) for size, (runs, ms) in sizes.items()),
        crosses_reset=reset,
    )


def config(
    name: str = "m", version: str = "1", *, instances: int = 1, kind: str = "KIND_CPU", **other: Any
) -> ModelConfig:
    """A configuration with dynamic batching up to 16 unless told otherwise."""
    plain: dict[str, Any] = {"max_batch_size": 16, "dynamic_batching": True, "raw": f"{instances} {other!r}"}
    return ModelConfig(name, version, instance_groups=(InstanceGroup(kind, instances),), **{**plain, **other})


BEGAN = 4_000.0
"""Monotonic time at which the counters began."""


def stats_of(name: str, version: str, seen: Window | None, mono: float = MONO, **other: Any) -> ModelStats:
    """Cumulative statistics of a model that has done since BEGAN what it does in the window."""
    if seen is None:
        return ModelStats(name, version, **other)
    times = (mono - BEGAN) / seen.span
    success, executions = round(times * seen.success), round(times * seen.executions)

    def ns(ms: float | None) -> int:
        return round((ms or 0.0) * success * 1e6)

    batches = tuple(
        BatchStat(b.size, round(times * b.runs), 0, round(times * b.runs) * round(b.ms_per_run * 1e6), 0)
        for b in seen.batches
    )
    counts: dict[str, Any] = {
        "success_count": success,
        "success_ns": ns(seen.request_ms),
        "queue_count": success,
        "queue_ns": ns(seen.queue_ms),
        "input_count": success,
        "input_ns": ns(seen.input_ms),
        "infer_count": success,
        "infer_ns": ns(seen.infer_ms),
        "output_count": success,
        "output_ns": ns(seen.output_ms),
        "fail_count": round(times * seen.failed),
        "execution_count": executions,
        "inference_count": round(times * seen.inferences),
        "batches": batches,
        "last_inference_ms": int((NOW + mono - MONO) * 1000) if seen.success else 0,
    }
    return ModelStats(name, version, **{**counts, **other})


def row(
    seen: Window | None,
    settings: ModelConfig | None,
    *,
    name: str = "m",
    version: str = "1",
    pending: Sequence[float] = (0.0,) * 30,
    failures: Mapping[str, float] | None = None,
    windows: Mapping[str, Any] | None = None,
    stats: Mapping[str, Any] | None = None,
    **other: Any,
) -> ModelRow:
    """A READY row whose 30 s window is `seen`; `windows` sets other ones (w10, w120 ...)."""
    key = ModelKey(name, version)
    flow = ModelFlow(key, stats_of(name, version, seen, **(stats or {})), w30=seen, **(windows or {}))
    counts = tuple(FailureCount(reason, 1.0, each, each) for reason, each in (failures or {}).items())
    metrics = ModelMetrics(key, pending[-1] if pending else None, tuple(pending), failures=counts)
    plain: dict[str, Any] = {
        "state": "READY",
        "flow": flow,
        "metrics": metrics,
        "config": settings,
        "instances": settings.instances if settings else None,
        "ensemble": bool(settings and settings.steps),
    }
    return ModelRow(name, version, **{**plain, **other})


def good(part: str, value: Any, interval: float = 1.0, age: float = 0.3) -> Reading[Any]:
    return Reading(part, interval, value, NOW - age, MONO - age, reads=1)


def snapshot(*rows: ModelRow, ready: bool = True, **other: Any) -> Snapshot:
    """A box whose Triton answers and serves these rows."""
    plain: dict[str, Any] = {
        "wall": NOW,
        "mono": MONO,
        "server": good("triton.server", TritonServer("http://127.0.0.1:8000", True, ready, "2.51.0")),
        "index": good("triton.index", TritonIndex()),
        "stats": good("triton.stats", TritonStats(tuple(one.flow for one in rows if one.flow))),
        "metrics": good("triton.metrics", TritonMetrics("http://127.0.0.1:8002", has_pending=True, has_summaries=True)),
        "configs": good("triton.config", TritonConfigs(), 5.0),
        "models": tuple(rows),
    }
    return Snapshot(**{**plain, **other})


def once(box: Snapshot, history: History | None = None, **asked: Any) -> tuple[Verdict, ...]:
    """What one look says."""
    return Why(hold=False).evaluate(box, history or History(), **asked)


def ids(verdicts: Sequence[Verdict]) -> list[str]:
    return [one.id for one in verdicts]


def _moved(one: ModelRow, mono: float) -> ModelRow:
    if one.flow is None or one.flow.w30 is None or one.flow.stats.success_count + one.flow.stats.fail_count == 0:
        return one
    stats = stats_of(one.name, one.version or "", one.flow.w30, mono)
    return replace(one, flow=replace(one.flow, stats=stats))


def later(box: Snapshot, seconds: float, *, counts: bool = True) -> Snapshot:
    """The same box some seconds later, all parts read anew; the counters go on unless `counts` is False."""
    fields = ("server", "index", "stats", "metrics", "configs", "gpu", "host", "container", "kernel", "repository")
    moved: dict[str, Any] = {}
    for name in fields:
        reading = getattr(box, name)
        if reading.mono is not None and reading.error is None:
            moved[name] = replace(reading, wall=reading.wall + seconds, mono=reading.mono + seconds)
    rows = tuple(_moved(one, MONO + seconds) if counts else one for one in box.models)
    return replace(box, models=rows, seq=box.seq + 1, wall=box.wall + seconds, mono=box.mono + seconds, **moved)


def queue(size: int = 0, timeout_us: int = 0) -> QueuePolicy:
    return QueuePolicy(max_queue_size=size, timeout_us=timeout_us)
