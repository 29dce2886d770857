"""Parts -> what they mean together: the model rows, the header's word and the traffic from outside (pure).

The model list is the union of index, statistics and metrics, because each lies in its own way (triton.md 1.3): the
index drops a model whose folder was deleted though it still serves, statistics hold loaded versions only, and the
metrics page keeps failure series of models long gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from console.core.model import (
    ContainerState,
    DiskModel,
    IndexEntry,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelRow,
    Reading,
    Serving,
    Snapshot,
    Traffic,
)

UNLOADED = "unloaded"
LONG_RUN_MS = 6000.0
"""Above this one execution spans windows and a busy share over 10 s means nothing."""
STARTING_LIMIT = 120.0
"""Seconds after its start in which a container that serves nothing is called STARTING."""


class RowCache:
    """Keeps rows whose inputs are the same objects, so that a thousand idle models cost next to nothing."""

    def __init__(self) -> None:
        self._rows: dict[ModelKey, tuple[tuple[Any, ...], ModelRow]] = {}

    def rows(self, snapshot: Snapshot, at_load: Mapping[ModelKey, int] = MappingProxyType({})) -> tuple[ModelRow, ...]:
        """One row per model version, by name, READY versions first, then by version downwards.

        `at_load` holds the GPU memory that was seen to be taken when a version loaded. A row has no `metrics` while
        the page is old.
        """
        index = _index_entries(snapshot)
        flows = {flow.key: flow for flow in (snapshot.stats.value.flows if snapshot.stats.value else ())}
        metrics = {one.key: one for one in (snapshot.metrics.value.models if snapshot.metrics.value else ())}
        configs = _by_version(snapshot.configs.value.configs if snapshot.configs.value else ())
        disk = {one.name: one for one in (snapshot.repository.value.models if snapshot.repository.value else ())}
        seen: dict[ModelKey, tuple[tuple[Any, ...], ModelRow]] = {}
        keys = _keys(index, flows, metrics)
        shared = _shared(keys)
        # An old page names models, but its waiting requests say nothing about now (verdicts and columns take them so).
        told = {} if snapshot.metrics.is_old(snapshot.mono) else metrics
        for key in keys:
            entry = index.get(ModelKey(key.name, key.version) if key.namespace else key)
            inputs = (
                entry,
                flows.get(key),
                told.get(key),
                configs.get((key.name, key.version)) or configs.get((key.name, "")),
                None if key.name in shared else disk.get(key.name),
                at_load.get(key),
                key.name in shared,
            )
            kept = self._rows.get(key)
            if kept is not None and all(a is b for a, b in zip(kept[0], inputs, strict=True)):
                seen[key] = kept
            else:
                seen[key] = (inputs, _row(key, *inputs))
        self._rows = seen
        return tuple(sorted((row for _, row in seen.values()), key=_order))


def _index_entries(snapshot: Snapshot) -> dict[ModelKey, IndexEntry]:
    entries = snapshot.index.value.entries if snapshot.index.value else ()
    return {ModelKey(entry.name, entry.version or ""): entry for entry in entries}


def _by_version(configs: Iterable[ModelConfig]) -> dict[tuple[str, str], ModelConfig]:
    known: dict[tuple[str, str], ModelConfig] = {}
    for config in configs:
        known[config.name, config.version] = config
        known[config.name, ""] = config
    return known


def _keys(
    index: dict[ModelKey, IndexEntry], flows: dict[ModelKey, ModelFlow], metrics: dict[ModelKey, ModelMetrics]
) -> list[ModelKey]:
    """Whoever is in the index or in statistics; metrics alone only with live series (failure zombies are no models)."""
    keys = dict.fromkeys([*index, *flows])
    if not flows:
        living = [key for key, one in metrics.items() if one.success_total is not None]
        keys.update(dict.fromkeys(living))
        for key in living:
            if key.namespace:
                # With --model-namespacing only the metrics page tells two models of one name apart.
                keys.pop(ModelKey(key.name, key.version), None)
    named = {key.name for key in keys if key.version}
    return [key for key in keys if key.version or key.name not in named]


def _shared(keys: Iterable[ModelKey]) -> frozenset[str]:
    """Names that models of more than one namespace have."""
    spaces: dict[str, set[str]] = {}
    for key in (one for one in keys if one.namespace):
        spaces.setdefault(key.name, set()).add(key.namespace)
    return frozenset(name for name, found in spaces.items() if len(found) > 1)


def _row(
    key: ModelKey,
    entry: IndexEntry | None,
    flow: ModelFlow | None,
    metrics: ModelMetrics | None,
    config: ModelConfig | None,
    disk: DiskModel | None,
    at_load: int | None,
    shared: bool,
) -> ModelRow:
    """`shared`: models of other namespaces have this name too; then it is written as Triton's log does (`/repo::a`)."""
    instances = config.instances if config else None
    told = flow.stats.memory_bytes if flow else None
    busy, clamped = _busy(flow, instances)
    state = entry.state if entry else ("READY" if flow is not None or metrics is not None else None)
    present = (("index", entry), ("statistics", flow), ("metrics", metrics), ("config", config), ("disk", disk))
    return ModelRow(
        name=f"{key.namespace}::{key.name}" if shared and key.namespace else key.name,
        version=key.version or None,
        state=state,
        reason=entry.reason if entry else None,
        since_wall=entry.since_wall if entry else None,
        since_mono=entry.since_mono if entry else None,
        seen_in=tuple(name for name, value in present if value is not None),
        ensemble=bool(config and config.steps),
        flow=flow,
        metrics=metrics,
        config=config,
        disk=disk,
        instances=instances,
        busy=busy,
        busy_clamped=clamped,
        memory=told or at_load or told,
        memory_origin="back end" if told else "seen at load" if at_load else None,
        live_only=bool(disk and disk.differences and state == "READY"),
        newer_on_disk=_newer(key, state, config, disk),
        failed_load=bool(entry and entry.state == "UNAVAILABLE" and entry.reason and entry.reason != UNLOADED),
    )


def _busy(flow: ModelFlow | None, instances: int | None) -> tuple[float | None, bool]:
    window = flow.w10 if flow else None
    if window is None or not instances or window.span <= 0:
        return None, False
    if any(batch.ms_per_run > LONG_RUN_MS for batch in window.batches):
        return None, False
    share = window.busy_seconds / (window.span * instances)
    return min(1.0, share), share > 1.0


def _newer(key: ModelKey, state: str | None, config: ModelConfig | None, disk: DiskModel | None) -> int | None:
    """Under `latest n` a higher usable folder than the served one is deployed by any load or restart."""
    if state != "READY" or disk is None or not key.version.isdecimal():
        return None
    policy = config.version_policy if config else ""
    if policy and not policy.startswith("latest"):
        return None
    highest = max((v.version for v in disk.versions if v.usable), default=0)
    return highest if highest > int(key.version) else None


_STATE_ORDER = {"READY": 0, "LOADING": 1, "UNLOADING": 2}


def _order(row: ModelRow) -> tuple[str, int, int]:
    number = int(row.version) if row.version and row.version.isdecimal() else 0
    return row.name, _STATE_ORDER.get(row.state or "", 3), -number


def counted(rows: Iterable[ModelRow]) -> tuple[int, int]:
    """(ready, of): models with a READY version; models with a READY, LOADING, UNLOADING or failed version."""
    ready: set[str] = set()
    every: set[str] = set()
    for row in rows:
        if row.state == "READY":
            ready.add(row.name)
        if row.state in ("READY", "LOADING", "UNLOADING") or row.failed_load:
            every.add(row.name)
    return len(ready), len(every)


def serving(snapshot: Snapshot, rows: tuple[ModelRow, ...], now: float) -> Serving:
    """The header's word. Never the server's ready flag alone: one failed model holds that at 400 for ever."""
    server, container = snapshot.server, _container(snapshot)
    ready, of = counted(rows)
    if not server.tried:
        return Serving("UNKNOWN")
    answering = server.error is None and server.value is not None and server.value.live is not False
    if answering:
        if ready:
            return Serving("SERVING", ready, of)
        if not snapshot.index.tried or (snapshot.index.value is None and not rows):
            return Serving("UNKNOWN")
        if _is_starting(container, snapshot.wall):
            return Serving("STARTING", 0, of, _running_for(container, snapshot.wall))
        return Serving("DOWN", 0, of, "no model is READY") if of else Serving("NOTHING LOADED", 0, 0)
    return _not_answering(snapshot, container, now, of)


def _not_answering(snapshot: Snapshot, container: ContainerState | None, now: float, of: int) -> Serving:
    server = snapshot.server
    since = server.error_mono
    if _is_starting(container, snapshot.wall):
        return Serving("STARTING", 0, of, _running_for(container, snapshot.wall), since)
    silent = server.error is not None and server.error.kind == "timeout"
    if silent or (container is not None and container.state == "running"):
        metrics_answer = snapshot.metrics.error is None and snapshot.metrics.value is not None
        detail = "metrics port does: HTTP workers held?" if metrics_answer else "nor does the metrics port"
        return Serving("NOT ANSWERING", 0, of, detail, since)
    unit = snapshot.container.value.unit if snapshot.container.value else None
    if container is None and unit is None and server.value is None and not of:
        return Serving("NOTHING SERVES YET", 0, 0, "", since)
    return Serving("DOWN", 0, of, server.error.message if server.error else "", since)


def _container(snapshot: Snapshot) -> ContainerState | None:
    return snapshot.container.value.container if snapshot.container.value else None


def _is_starting(container: ContainerState | None, wall: float) -> bool:
    if container is None or container.state != "running" or container.started_wall is None:
        return False
    return wall - container.started_wall < STARTING_LIMIT


def _running_for(container: ContainerState | None, wall: float) -> str:
    if container is None or container.started_wall is None:
        return ""
    return f"{max(0.0, wall - container.started_wall):.0f} s"


def traffic(rows: Iterable[ModelRow], stats: Reading[Any]) -> Traffic:
    """Requests from outside = Δsuccess of each model − Δsuccess of the ensembles that call it.

    "≈" (approximate) when an ensemble's step succeeded less often than the ensemble itself, as conditional steps do.
    """
    ready = [row for row in rows if row.flow is not None and row.flow.w10 is not None]
    if stats.value is None or not ready:
        return Traffic()
    rates = {row.key: row.flow.w10.rate for row in ready if row.flow and row.flow.w10}
    inner: dict[str, float] = {}
    through: list[tuple[str, float]] = []
    for row in ready:
        if row.config is None or not row.config.steps:
            continue
        own = rates[row.key]
        through.append((row.name, own))
        for step in row.config.steps:
            inner[step.model] = inner.get(step.model, 0.0) + own
    by_name: dict[str, float] = {}
    for key, value in rates.items():
        by_name[key.name] = by_name.get(key.name, 0.0) + value
    outside = 0.0
    approximate = False
    for name, value in by_name.items():
        own = value - inner.get(name, 0.0)
        if own < -0.02 * value - 0.5:
            approximate = True
        outside += max(0.0, own)
    pending = [row.metrics.pending for row in rows if row.metrics and row.metrics.pending is not None]
    failed = [row.flow.w10.fail_rate for row in ready if row.flow and row.flow.w10 and not row.ensemble]
    return Traffic(
        rate=outside,
        through_ensembles=tuple(through),
        approximate=approximate,
        waiting=sum(pending) if pending else None,
        fail_rate=sum(failed),
    )
