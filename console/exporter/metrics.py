"""Snapshot -> metric families, named by Prometheus' rules: base units, `_total` for counters, HELP for each.

Means and rates are of the last ten seconds. What is old or not known has no sample; `gpuconsole_reading_age_seconds`
tells why. Labels are bounded: names are cut, and beyond MOST of a kind the rest is counted, not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from console import __version__
from console.alerts.engine import Alert
from console.core.model import PART_FIELDS, GpuState, ModelRow, Reading, Snapshot, Window
from console.core.sign import WORST_FIRST
from console.core.text import one_line

T = TypeVar("T")

MOST = 300
"""Models, verdicts, alerts; each of them."""
MOST_CHECKS = 1000
MAX_LABEL = 120
MEGA = 1_000_000
PREFIX = "gpuconsole_"


class Told(Struct, frozen=True):
    """What is exported: one moment."""

    snapshot: Snapshot = Snapshot()
    alerts: tuple[Alert, ...] = ()


class _Families:
    """Families in the making, by name."""

    def __init__(self) -> None:
        self._made: dict[str, Metric] = {}
        self._seen: set[tuple[str, ...]] = set()

    def gauge(self, name: str, told: str, value: float | None, /, **labels: str) -> None:
        """Add a sample; None adds none, but the family stands, so that its HELP does."""
        family = self._made.get(name)
        if family is None:
            family = self._made[name] = GaugeMetricFamily(PREFIX + name, told, labels=tuple(labels))
        self._add(family, labels, value)

    def counter(self, name: str, told: str, value: float | None, /, **labels: str) -> None:
        """The same for a running total; `name` without `_total`."""
        family = self._made.get(name)
        if family is None:
            family = self._made[name] = CounterMetricFamily(PREFIX + name, told, labels=tuple(labels))
        self._add(family, labels, value)

    def _add(self, family: Any, labels: dict[str, str], value: float | None) -> None:
        """Prometheus refuses a whole scrape for one series told twice, as names that are cut alike would be."""
        told = [one_line(text, MAX_LABEL) for text in labels.values()]
        key = (family.name, *told)
        if value is not None and key not in self._seen:
            self._seen.add(key)
            family.add_metric(told, float(value))

    def all(self) -> Iterator[Metric]:
        """Those that have samples."""
        return (family for family in self._made.values() if family.samples)


def families(told: Told) -> Iterator[Metric]:
    """All that is known at this moment."""
    made, snapshot = _Families(), told.snapshot
    made.gauge("build_info", "Version of gpuconsole.", 1, version=__version__)
    _readings(made, snapshot)
    _cards(made, snapshot)
    _serving(made, snapshot)
    _models(made, snapshot)
    _box(made, snapshot)
    _judgements(made, told)
    return made.all()


def _fresh(snapshot: Snapshot, reading: Reading[T]) -> T | None:
    return None if reading.is_old(snapshot.mono) else reading.value


def _readings(made: _Families, snapshot: Snapshot) -> None:
    for part in PART_FIELDS:
        reading = snapshot.reading(part)
        if not reading.tried:
            continue
        age = "Seconds since a part of the box was read well; no sample where it never was."
        made.gauge("reading_age_seconds", age, reading.age(snapshot.mono), part=part)
        failed = "1 where the newest read of a part failed."
        made.gauge("reading_failed", failed, float(reading.error is not None), part=part)


# ------------------------------------------------------------------------------------------------------------- cards


def _cards(made: _Families, snapshot: Snapshot) -> None:
    box = _fresh(snapshot, snapshot.gpu)
    for gpu in box.gpus if box else ():
        index = str(gpu.index)
        made.gauge("gpu_lost", "1 for a card that answers no longer.", float(gpu.lost is not None), gpu=index)
        if gpu.lost is None:
            _card(made, snapshot, gpu, index, (box.driver if box else None) or "")


def _card(made: _Families, snapshot: Snapshot, gpu: GpuState, index: str, driver: str) -> None:
    about = {"uuid": gpu.uuid or "", "name": gpu.name or "", "driver": driver}
    made.gauge("gpu_info", "The card; join by gpu.", 1, gpu=index, **about)
    used = None if not gpu.memory_total or gpu.memory_free is None else gpu.memory_total - gpu.memory_free
    util = None if gpu.util_pct is None else gpu.util_pct / 100
    hertz = None if gpu.sm_mhz is None else gpu.sm_mhz * MEGA
    for name, told, value in (
        ("gpu_utilization_ratio", "Share of time in which a kernel ran, as NVML samples it.", util),
        ("gpu_memory_used_bytes", "Memory taken, the driver's own included.", used),
        ("gpu_memory_size_bytes", "Memory of the card.", gpu.memory_total),
        ("gpu_power_watts", "Power drawn.", gpu.power_w),
        ("gpu_power_limit_watts", "Power limit in force.", gpu.power_limit_w),
        ("gpu_temperature_celsius", "Temperature of the core.", gpu.temp_c),
        ("gpu_slowdown_celsius", "Temperature at which the card slows itself down.", gpu.temp_slowdown_c),
        ("gpu_sm_clock_hertz", "SM clock.", hertz),
    ):
        made.gauge(name, told, value, gpu=index)
    for counter in gpu.throttle_counters:
        told = "Seconds that the driver counted for a reason of lower clocks, since it was loaded."
        made.counter("gpu_slowed_seconds", told, counter.seconds, gpu=index, reason=counter.reason)
    for reason in gpu.throttle_now or ():
        made.gauge("gpu_slowed", "1 for each reason of lower clocks that is set now.", 1, gpu=index, reason=reason)
    for owner, size in _owners(snapshot, gpu):
        made.gauge("gpu_owner_memory_bytes", "Memory of a card by who holds it.", size, gpu=index, owner=owner)


def _owners(snapshot: Snapshot, gpu: GpuState) -> Iterator[tuple[str, int]]:
    """Of processes whose memory and container are both told: the Triton container, and everybody else."""
    podman = snapshot.container.value
    ours = podman.container.id if podman and podman.container else None
    if gpu.processes is None or ours is None:
        return
    sizes = {"triton": 0, "others": 0}
    for one in gpu.processes:
        if one.memory is None or (one.container_id is None and one.in_container is not False):
            continue
        sizes["triton" if one.container_id == ours else "others"] += one.memory
    yield from sizes.items()


# ------------------------------------------------------------------------------------------------------------ models


def _serving(made: _Families, snapshot: Snapshot) -> None:
    word = snapshot.serving
    value = {"SERVING": 1.0, "DOWN": 0.0, "NOT ANSWERING": 0.0, "STARTING": 0.0, "NOTHING LOADED": 0.0}.get(word.word)
    made.gauge("serving", "1 while the server serves at least one model.", value)
    if value is None:
        return
    made.gauge("models_ready", "Models that serve.", word.ready)
    made.gauge("models_wanted", "Models that serve, load, or failed to load.", word.of)
    if _fresh(snapshot, snapshot.stats) is not None:
        told = "Requests from outside: those within an ensemble are counted once."
        made.gauge("outside_requests_per_second", told, snapshot.traffic.rate)


def _models(made: _Families, snapshot: Snapshot) -> None:
    if _fresh(snapshot, snapshot.stats) is None or _fresh(snapshot, snapshot.index) is None:
        return
    rows = sorted(snapshot.models, key=lambda row: (row.state != "READY", -_rate(row), row.name, row.version or ""))
    rows = [row for row in rows if row.state in ("READY", "LOADING") or row.failed_load]
    for row in _bounded(made, rows, "models"):
        _model(made, row)


def _rate(row: ModelRow) -> float:
    window = row.flow.w10 if row.flow else None
    return window.rate if window else 0.0


def _model(made: _Families, row: ModelRow) -> None:
    who = {"model": row.name, "version": row.version or ""}
    made.gauge("model_ready", "1 for a version that serves.", float(row.state == "READY"), **who)
    if row.state != "READY":
        return
    pending = row.metrics.pending if row.metrics else None
    made.gauge("model_waiting_requests", "Requests that wait now.", pending, **who)
    made.gauge("model_busy_ratio", "Share of the instances' time spent executing.", row.busy, **who)
    made.gauge("model_instances", "Instances of the served configuration.", row.instances, **who)
    made.gauge("model_gpu_memory_bytes", "Card memory seen to be taken at its load, or told by it.", row.memory, **who)
    live = "1 where the served configuration differs from config.pbtxt: a restart goes back."
    made.gauge("model_live_only", live, float(row.live_only), **who)
    newer = "1 where a newer version lies on disk that the next load or restart deploys."
    made.gauge("model_newer_on_disk", newer, float(row.newer_on_disk is not None), **who)
    window = row.flow.w10 if row.flow else None
    if window is not None:
        _flow(made, row, window, who)


def _flow(made: _Families, row: ModelRow, window: Window, who: dict[str, str]) -> None:
    made.gauge("model_requests_per_second", "Successful requests.", window.rate, **who)
    failures = "Failures that Triton counts (not: queue full, bad input, errors of Python models)."
    made.gauge("model_failures_per_second", failures, window.fail_rate, **who)
    made.gauge("model_request_seconds", "Mean time of a request in the server.", _seconds(window.request_ms), **who)
    if row.ensemble:
        return
    made.gauge("model_batch_size", "Mean size of a batch, by runs.", window.mean_batch, **who)
    parts = (
        ("queue", window.queue_ms),
        ("input", window.input_ms),
        ("compute", window.infer_ms),
        ("output", window.output_ms),
    )
    for part, millis in parts:
        told = "Mean time of a request by where it is spent; the parts make up the whole."
        made.gauge("model_time_seconds", told, _seconds(millis), **who, part=part)


def _seconds(millis: float | None) -> float | None:
    return None if millis is None else millis / 1000


# --------------------------------------------------------------------------------------------------------------- box


def _box(made: _Families, snapshot: Snapshot) -> None:
    podman = _fresh(snapshot, snapshot.container)
    if podman is not None and podman.container is not None:
        running = "1 while the Triton container runs."
        made.gauge("container_running", running, float(podman.container.state == "running"))
        restarts = "Restarts of this container by Podman, not by hand."
        made.counter("container_restarts", restarts, podman.container.restarts)
    host = _fresh(snapshot, snapshot.host)
    if host is not None:
        made.gauge("triton_cpu_cores", "Cores that the container's processes use.", host.triton_cores)
        made.gauge("triton_resident_bytes", "Resident memory of the container's processes.", host.triton_rss)
    disk = _fresh(snapshot, snapshot.repository)
    if disk is not None:
        made.gauge("repository_disk_free_bytes", "Free room on the model repository's disk.", disk.disk_free)
        made.gauge("repository_disk_size_bytes", "Size of the model repository's disk.", disk.disk_total)


def _judgements(made: _Families, told: Told) -> None:
    verdicts = {(one.id, one.sign, one.subject, one.model or ""): one for one in told.snapshot.verdicts}
    for id_, sign, subject, model in _bounded(made, sorted(verdicts), "verdicts"):
        text = "1 for each verdict of Why that stands (`gpuconsole advise` tells its words)."
        made.gauge("verdict", text, 1, verdict=id_, sign=sign, subject=subject, model=model)
    for alert in _bounded(made, told.alerts, "alerts"):
        made.gauge("alert", "1 for each alert that stands.", 1, rule=alert.rule, subject=alert.subject, sign=alert.sign)
    made.gauge("alerts", "Alerts that stand.", len(told.alerts))
    report = told.snapshot.checks.value
    if report is None:
        return
    signs = [one.sign for one in report.findings]
    for sign in WORST_FIRST:
        made.gauge("checks", "Findings of the checklist by sign.", signs.count(sign), sign=sign)
    text = "1 for each check with what it found (`gpuconsole explain ID` tells about it)."
    for one in report.findings[:MOST_CHECKS]:
        made.gauge("check", text, 1, check=one.id, group=one.group, sign=one.sign)


def _bounded(made: _Families, found: Sequence[T], what: str) -> Iterable[T]:
    made.gauge("left_out", "What there is too much of to be told, by kind.", max(0, len(found) - MOST), what=what)
    return found[:MOST]
