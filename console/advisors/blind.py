"""What cannot be told: V33 to V39. They never hide another verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from console.advisors.figures import Figures, enough
from console.advisors.gpu import BROKEN_DRIVER, nvml_code
from console.advisors.rule import Look, flow_rule, flow_verdict, has_work, rule, verdict
from console.core import units
from console.core.model import Failure, ModelRow, Reading, Verdict
from console.core.text import one_line

ERROR_LENGTH = 160
FROZEN_FROM = 20
"""Requests that statistics must have counted before a counter that stands at 0 is called frozen."""


@rule("V33")
def idle(look: Look) -> Iterator[Verdict]:
    """Models that nobody asks."""
    entry = look.entry("V33")
    if look.fresh(look.snapshot.stats) is None:
        return
    silent: list[tuple[ModelRow, float | None]] = []
    for row in look.ready:
        if row.flow is None:
            continue
        last = row.flow.stats.last_inference_ms
        age = look.wall - last / 1000 if last > 0 else None
        if (age is None or age >= entry.limit("silent_s")) and not _recently(row):
            silent.append((row, age))
    if len(silent) > look.table.evaluation.listed:
        yield _many(look, "V33", [row for row, _ in silent])
        return
    for row, age in silent:
        title = (
            entry.say("never", m=look.label(row))
            if age is None
            else entry.say("title", m=look.label(row), age=units.uptime(age))
        )
        since = None if age is None else look.wall - age
        yield verdict(look, "V33", title, model=row, since_wall=since, source="/v2/models/stats")


def _recently(row: ModelRow) -> bool:
    """True when something came within the last window that is at most a minute or so long, or waits now."""
    if row.metrics is not None and row.metrics.pending:
        return True
    windows = (row.flow.w10, row.flow.w30) if row.flow else ()
    return any(w is not None and (w.success or w.failed) for w in windows)


def _many(look: Look, id_: str, rows: Sequence[ModelRow]) -> Verdict:
    listed = look.table.evaluation.listed
    names = ", ".join(look.label(row) for row in rows[:listed]) + (" …" if len(rows) > listed else "")
    title = look.entry(id_).say("many", n=len(rows), names=names)
    return verdict(look, id_, title, subject="server", source="/v2/models/stats")


@flow_rule("V34")
def too_few(look: Look, figures: Figures) -> Verdict | None:
    """Too few requests or runs for means to say anything."""
    by, failing = look.table.evaluation, look.entry("V12")
    window = figures.window
    if enough(window, by):
        return None
    if window.success == 0 and window.failed >= failing.limit("min_failures"):
        return None
    entry = look.entry("V34")
    span = f"{window.span:.0f}"
    if figures.requests < by.min_requests:
        return flow_verdict(look, figures, "V34", entry.say("title", m=figures.label, n=figures.requests, span=span))
    return flow_verdict(look, figures, "V34", entry.say("runs", m=figures.label, x=window.executions, span=span))


@rule("V35")
def tail(look: Look) -> Iterator[Verdict]:
    """No source of percentiles, and traffic that would have one."""
    metrics = look.metrics
    if metrics is None or metrics.has_summaries or metrics.has_histograms:
        return
    if any(has_work(row) for row in look.ready):
        yield verdict(look, "V35", look.entry("V35").say("title"), source="metrics")


@rule("V36")
def front_end(look: Look) -> Iterator[Verdict]:
    """A client saw much more than Triton's own times."""
    entry = look.entry("V36")
    for figures in look.active:
        answer = look.asked.get(figures.row.name)
        if answer is None or not answer.ok or answer.millis is None or figures.request_ms is None:
            continue
        if answer.millis >= max(entry.limit("times") * figures.request_ms, figures.request_ms + entry.limit("more_ms")):
            title = entry.say(
                "title", m=figures.label, asked=units.millis(answer.millis), T=units.millis(figures.request_ms)
            )
            yield verdict(
                look,
                "V36",
                title,
                [entry.say("line")],
                model=figures.row,
                since_wall=answer.wall,
                source="asked with a",
            )


@rule("V37")
def streaming(look: Look) -> Iterator[Verdict]:
    """Models whose answers are streams."""
    entry = look.entry("V37")
    for row in look.ready:
        if row.config is None or not (row.flow is not None and has_work(row)):
            continue
        backend = row.config.backend.lower()
        if row.config.decoupled or backend in entry.limits["backends"]:
            lines = [entry.say("vllm")] if backend == "vllm" and not _exports(look, "vllm:") else []
            title = entry.say("title", m=look.label(row))
            yield verdict(look, "V37", title, lines, model=row, source="configuration")


def _exports(look: Look, prefix: str) -> bool:
    return look.metrics is not None and any(family.name.startswith(prefix) for family in look.metrics.custom)


@rule("V38")
def ensemble(look: Look) -> Iterator[Verdict]:
    """Ensembles with traffic: their waiting shows on their steps."""
    for row in look.ready:
        if row.ensemble and has_work(row):
            title = look.entry("V38").say("title", m=look.label(row))
            yield verdict(look, "V38", title, model=row, source="configuration")


# ------------------------------------------------------------------------------------------------- sources that do not


@rule("V39")
def blind_spots(look: Look) -> Iterator[Verdict]:
    """One line for each thing that cannot be seen, with what it would need."""
    if look.snapshot.server.tried and not look.serves:
        if look.should_serve:
            yield _blind(look, "server", subject="server", error=look.snapshot.server.error)
    elif look.serves:
        yield from _triton(look)
    yield from _gpu(look)
    yield from _around(look)


def _triton(look: Look) -> Iterator[Verdict]:
    snapshot, metrics = look.snapshot, look.metrics
    stats = _error(snapshot.stats)
    if stats is not None:
        yield _blind(look, "namespacing" if "unknown model: '/" in stats.message else "stats", "server", stats)
    index = _error(snapshot.index)
    if index is not None:
        yield _blind(look, "index", "server", index)
    if metrics is None or snapshot.metrics.error is not None:
        error = _error(snapshot.metrics)
        if error is not None:
            yield _blind(look, "metrics", "server", error)
    elif not metrics.has_pending and metrics.models:
        yield _blind(look, "pending", "server", None)
    if any(_frozen(row) for row in look.ready):
        yield _blind(look, "frozen", "server", None)
    yield from _configs(look)


def _frozen(row: ModelRow) -> bool:
    """True where the page's counters stand at 0 while statistics count: counter_latencies=false (triton.md 2.1).

    A reload sets only statistics back to 0, so the page is never behind them otherwise.
    """
    if row.flow is None or row.metrics is None:
        return False
    return row.metrics.success_total == 0 and row.flow.stats.success_count >= FROZEN_FROM


def _configs(look: Look) -> Iterator[Verdict]:
    configs = look.snapshot.configs
    if not configs.tried:
        return
    unknown = [row for row in look.ready if row.config is None and row.flow is not None and has_work(row)]
    for row in unknown[: look.table.evaluation.listed]:
        told = configs.value.failures.get(row.name) if configs.value else None
        error = Failure("protocol", told) if told else configs.error
        yield _blind(look, "config", "model", error, model=row, m=look.label(row))


def _gpu(look: Look) -> Iterator[Verdict]:
    gpu = look.snapshot.gpu
    error = _error(gpu)
    devices = gpu.value.pci_devices if gpu.value else None
    if error is not None and devices != 0 and "no NVIDIA device" not in error.message:
        if nvml_code(error.message) not in BROKEN_DRIVER:
            yield _blind(look, "gpu", "gpu", error)
        return
    for card in gpu.value.gpus if gpu.value else ():
        if card.mig_on and card.util_pct is None:
            yield _blind(look, "mig", "gpu", None, gpu=card.index)


def _around(look: Look) -> Iterator[Verdict]:
    snapshot = look.snapshot
    devices = snapshot.gpu.value.pci_devices if snapshot.gpu.value else None
    has_card = bool(devices) or bool(snapshot.gpu.value and snapshot.gpu.value.gpus)
    cases: tuple[tuple[str, str, Reading[Any], bool], ...] = (
        ("kernel", "box", snapshot.kernel, has_card),
        ("podman", "container", snapshot.container, True),
        ("repository", "model", snapshot.repository, look.serves and bool(look.ready)),
        ("host", "box", snapshot.host, True),
    )
    for case, subject, reading, matters in cases:
        error = _error(reading)
        if matters and error is not None:
            yield _blind(look, case, subject, error)


def _error(reading: Reading[Any]) -> Failure | None:
    return reading.error


def _blind(
    look: Look, case: str, subject: str, error: Failure | None, *, model: ModelRow | None = None, **words: object
) -> Verdict:
    entry = look.entry("V39")
    told = one_line(error.message, ERROR_LENGTH) if error else "no reason told"
    title = entry.say(case, error=told, **words)
    lines = [entry.say("need", hint=one_line(error.hint, ERROR_LENGTH))] if error and error.hint else []
    return verdict(look, "V39", title, lines, model=model, subject=subject)
