"""Two Snapshots -> the events between them (pure). How each is known stands in its origin.

What Podman, the kernel log and the server's log tell by themselves comes from their streams; here is only what shows by
comparison: model states, configurations, reloads by nobody here, cards lost and found, sources gone silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.core.model import Event, GpuState, ModelConfig, ModelRow, Reading, Snapshot

NOT_OURS = "not made by a gpuconsole"
SILENT_AFTER = 3.0
"""Seconds of failure before a source's silence is an event: one missed poll is none."""


def changes(old: Snapshot, new: Snapshot) -> list[Event]:
    """Events that the step from `old` to `new` shows, in no special order; nothing at the first snapshot."""
    found = [*_sources(old, new), *_gpus(old, new)]
    if old.models is not new.models and old.index.value is not None and old.stats.value is not None:
        found += _models(old, new)
    return found


def _models(old: Snapshot, new: Snapshot) -> Iterator[Event]:
    before = {row.key: row for row in old.models}
    restarted = _server_came_back(old, new)
    for row in new.models:
        was = before.get(row.key)
        if was is row:
            continue
        yield from _state_change(was, row, new.wall)
        if was is None:
            continue
        yield from _reload(was, row, new.wall, restarted)
        yield from _disk_change(was, row, new.wall)


def _server_came_back(old: Snapshot, new: Snapshot) -> bool:
    """Each source backs off by itself, so statistics may be back some steps after the server's lamps."""
    silent = old.stats.error is not None and old.stats.error.kind == "unavailable"
    return silent or old.server.error is not None or new.server.error is not None


def _label(row: ModelRow) -> str:
    return f"{row.name} {row.version}" if row.version else row.name


def _state_change(was: ModelRow | None, row: ModelRow, wall: float) -> Iterator[Event]:
    before = was.state if was else None
    if row.state == before and not (row.failed_load and was is not None and row.reason != was.reason):
        return
    if row.state == "READY":
        yield Event(wall, "ok", f"{_label(row)} is READY", "(index)", "model.ready", row.name)
    elif row.failed_load:
        detail = tuple((row.reason or "").strip().splitlines()[:1])
        yield Event(wall, "fail", f"{_label(row)} failed to load", "(index)", "model.failed", row.name, detail)
    elif row.state == "UNAVAILABLE" and before is not None:
        yield Event(wall, "note", f"{_label(row)} was unloaded", "(index)", "model.unloaded", row.name)
    elif row.state == "LOADING":
        yield Event(wall, "note", f"{_label(row)} is loading", "(index)", "model.loading", row.name, marks_chart=False)


def _reload(was: ModelRow, row: ModelRow, wall: float, restarted: bool) -> Iterator[Event]:
    """A reload of the same version never shows in the index; its statistics begin anew though (triton.md 2.2)."""
    told = [] if was.config is None or row.config is None else config_changes(was.config, row.config)
    for text in told:
        yield Event(wall, "warn", f"{row.name} {text}", NOT_OURS, "config", row.name)
    reset = was.flow is not None and row.flow is not None and row.flow.resets > was.flow.resets
    if reset and not told and not restarted and was.state == row.state == "READY":
        yield Event(wall, "warn", f"{_label(row)} was reloaded", NOT_OURS, "reload", row.name)


def config_changes(was: ModelConfig, now: ModelConfig) -> list[str]:
    """What changed between two served configurations, in words: `delay 500 → 2000 µs`, `instances 2 → 1`."""
    if was is now or was.raw == now.raw:
        return []
    fields: tuple[tuple[str, object, object, str], ...] = (
        ("dynamic batching", _on(was.dynamic_batching), _on(now.dynamic_batching), ""),
        ("delay", was.delay_us, now.delay_us, " µs"),
        ("preferred sizes", _list(was.preferred), _list(now.preferred), ""),
        ("max batch size", was.max_batch_size, now.max_batch_size, ""),
        ("instances", was.instances, now.instances, ""),
        ("queue limit", was.queue.max_queue_size, now.queue.max_queue_size, ""),
        ("queue time-out", was.queue.timeout_us, now.queue.timeout_us, " µs"),
        ("priority levels", was.priority_levels, now.priority_levels, ""),
        ("response cache", _on(was.response_cache), _on(now.response_cache), ""),
    )
    told = [f"{name} {a} → {b}{unit}" for name, a, b, unit in fields if a != b]
    return told or (["configuration changed"] if was.version == now.version else [])


def _on(value: bool) -> str:
    return "on" if value else "off"


def _list(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "none"


def _disk_change(was: ModelRow, row: ModelRow, wall: float) -> Iterator[Event]:
    if row.newer_on_disk and row.newer_on_disk != was.newer_on_disk and was.disk is not None:
        text = f"{row.name} {row.newer_on_disk} appeared on disk, newer than the served {row.version}"
        yield Event(wall, "warn", text, "(disk)", "disk.version", row.name)


def _gpus(old: Snapshot, new: Snapshot) -> Iterator[Event]:
    if old.gpu.value is None or new.gpu.value is None or old.gpu.value is new.gpu.value:
        return
    before = {gpu.uuid or str(gpu.index): gpu for gpu in old.gpu.value.gpus}
    for gpu in new.gpu.value.gpus:
        was = before.get(gpu.uuid or str(gpu.index))
        if was is not None:
            yield from _gpu(was, gpu, new.wall)


def _gpu(was: GpuState, gpu: GpuState, wall: float) -> Iterator[Event]:
    name = f"GPU {gpu.index}"
    if gpu.lost and not was.lost:
        yield Event(wall, "fail", f"{name} is lost: {gpu.lost.message}", "(NVML)", "gpu.lost")
    elif was.lost and not gpu.lost:
        yield Event(wall, "ok", f"{name} answers again", "(NVML)", "gpu.back")
    if (gpu.ecc_uncorrected_now or 0) > (was.ecc_uncorrected_now or 0) and was.ecc_uncorrected_now is not None:
        text = f"{name}: uncorrectable ECC errors {was.ecc_uncorrected_now} → {gpu.ecc_uncorrected_now}"
        yield Event(wall, "fail", text, "(NVML)", "ecc")
    if was.power_limit_w and gpu.power_limit_w and abs(was.power_limit_w - gpu.power_limit_w) >= 1:
        text = f"{name}: power limit {was.power_limit_w:.0f} → {gpu.power_limit_w:.0f} W"
        yield Event(wall, "note", text, NOT_OURS, "gpu.power_limit")


_WATCHED = (("server", "Triton"), ("metrics", "the metrics port"), ("container", "Podman"), ("gpu", "NVML"))


def _sources(old: Snapshot, new: Snapshot) -> Iterator[Event]:
    for field, name in _WATCHED:
        was: Reading[object] = getattr(old, field)
        now: Reading[object] = getattr(new, field)
        if was is now and not _turned_silent(now, old, new):
            continue
        if _turned_silent(now, old, new) and now.value is not None and now.error is not None:
            when = now.error_wall or new.wall
            yield Event(when, "fail", f"{name} does not answer: {now.error.message}", "(polling)", f"silent.{field}")
        elif was.error_mono is not None and now.error is None and new.mono - was.error_mono > SILENT_AFTER:
            yield Event(new.wall, "ok", f"{name} answers again", "(polling)", f"back.{field}")


def _turned_silent(now: Reading[object], old: Snapshot, new: Snapshot) -> bool:
    """True in the one step in which the present run of failures grew longer than SILENT_AFTER."""
    if now.error is None or now.error_mono is None:
        return False
    return old.mono - now.error_mono <= SILENT_AFTER < new.mono - now.error_mono
