"""The figures that alerts are about, each per cause (a card, a model, the box), from a Snapshot.

A measure gives None while nothing is known about any of its causes, else a Sample for each: `value` None = not known
now. A cause that is missing while others are told is gone (a model that was unloaded, a card that was taken out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from console.core import units
from console.core.histograms import quantile
from console.core.history import History
from console.core.model import ContainerState, GpuState, KernelFault, ModelRow, Reading, Snapshot, UnitState
from console.core.slowing import HEAT, counted_share, seen_samples
from console.core.text import one_line
from console.core.xid_incidents import same_card

T = TypeVar("T")

RECENT_S = 600.0
"""Faults of the kernel and restarts are counted over the last ten minutes; so long after the last one it is over."""
SLOWED = (*HEAT, "power_brake")
"""Reasons that nobody wants; a power cap at full load is normal."""
SEEN_OF = 10
BOX = "the box"
DISK = "the model repository's disk"
MAX_NAME = 80


class Sample(Struct, frozen=True):
    """One figure of one cause."""

    value: float | None
    told: str = ""
    """The figure in words, with what belongs to it; literal text."""


Samples = Mapping[str, Sample]
UNKNOWN = Sample(None)


class Moment(Struct, frozen=True):
    """What a measure looks at."""

    snapshot: Snapshot
    history: History
    restarts: Restarts


Measure = Callable[[Moment], Samples | None]


class Restarts:
    """Rises of the restart counts of Podman and of systemd within the last ten minutes."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rises: list[float] = []

    def learn(self, snapshot: Snapshot) -> None:
        """Take in the counts of this moment."""
        podman = fresh(snapshot, snapshot.container)
        if podman is None:
            return
        one, unit = podman.container, podman.unit
        if one is not None and one.restarts is not None:
            self._count(f"podman {one.id}", one.restarts, _last_change(one), snapshot.wall)
        if unit is not None and unit.restarts is not None:
            self._count(f"unit {unit.name}", unit.restarts, _last_change(unit), snapshot.wall)
        self._rises = [wall for wall in self._rises if snapshot.wall - wall <= RECENT_S]

    def _count(self, what: str, count: int, changed_wall: float | None, wall: float) -> None:
        """At the first sight of a count one restart is known to be recent where the last change is."""
        before = self._counts.get(what)
        self._counts[what] = count
        if before is not None:
            self._rises += [wall] * max(0, count - before)
        elif count > 0 and changed_wall is not None and wall - changed_wall <= RECENT_S:
            self._rises.append(changed_wall)

    @property
    def recent(self) -> int:
        """How many of them."""
        return len(self._rises)


def _last_change(one: ContainerState | UnitState) -> float | None:
    if isinstance(one, UnitState):
        return one.since_wall
    return max((wall for wall in (one.started_wall, one.finished_wall) if wall is not None), default=None)


def fresh(snapshot: Snapshot, reading: Reading[T]) -> T | None:
    """Its value, unless it is old."""
    return None if reading.is_old(snapshot.mono) else reading.value


# ------------------------------------------------------------------------------------------------------------- cards


def _cards(moment: Moment, measure: Callable[[GpuState], Sample]) -> Samples | None:
    box = fresh(moment.snapshot, moment.snapshot.gpu)
    if box is None:
        return None
    return {f"GPU {gpu.index}": UNKNOWN if gpu.lost else measure(gpu) for gpu in box.gpus}


def temperature(moment: Moment) -> Samples | None:
    """°C of each card's core."""

    def one(gpu: GpuState) -> Sample:
        slows = f", slows at {gpu.temp_slowdown_c:.0f}" if gpu.temp_slowdown_c is not None else ""
        return Sample(gpu.temp_c, f"{units.whole(gpu.temp_c)} °C{slows}")

    return _cards(moment, one)


def throttle(moment: Moment) -> Samples | None:
    """Percent of the last 30 s in which a card was slowed by heat or its power brake, as the driver counted; where it
    has no counters, of the last ten looks."""
    snapshot, history = moment.snapshot, moment.history

    def one(gpu: GpuState) -> Sample:
        share = counted_share(history, snapshot.mono, gpu.index, SLOWED)
        if share is None and gpu.throttle_now is None:
            return UNKNOWN
        how = "counted by the driver"
        if share is None:
            share = seen_samples(history, snapshot.mono, gpu.index, SLOWED) / SEEN_OF
            how = "seen once a second"
        clock = f"SM {units.whole(gpu.sm_mhz)} of {units.whole(gpu.sm_max_mhz)} MHz"
        return Sample(100 * share, f"{100 * share:.0f} % of the time, {how}; {clock}")

    return _cards(moment, one)


def vram(moment: Moment) -> Samples | None:
    """Percent of each card's memory that is taken."""

    def one(gpu: GpuState) -> Sample:
        if not gpu.memory_total or gpu.memory_free is None:
            return UNKNOWN
        taken = 100 * (1 - gpu.memory_free / gpu.memory_total)
        return Sample(taken, f"{taken:.0f} % of {units.size(gpu.memory_total)}, {units.size(gpu.memory_free)} free")

    return _cards(moment, one)


def lost(moment: Moment) -> Samples | None:
    """1 for a card that answers no longer, 0 for one that does."""
    box = fresh(moment.snapshot, moment.snapshot.gpu)
    if box is None:
        return None
    return {f"GPU {gpu.index}": Sample(float(gpu.lost is not None), _lost_text(gpu)) for gpu in box.gpus}


def _lost_text(gpu: GpuState) -> str:
    return one_line(gpu.lost.message, 200) if gpu.lost else "answers"


def xids(moment: Moment) -> Samples | None:
    """Xids of each card in the last ten minutes; those of a card that NVML does not list stand under their address."""
    found = _recent(moment, "xid")
    if found is None:
        return None
    box = moment.snapshot.gpu.value
    cards = box.gpus if box else ()
    by: dict[str, list[KernelFault]] = {f"GPU {gpu.index}": [] for gpu in cards}
    for fault in found:
        card = next((gpu for gpu in cards if same_card(fault.pci_bus_id, gpu.pci_bus_id)), None)
        name = f"GPU {card.index}" if card else f"GPU at {one_line(fault.pci_bus_id or '?', MAX_NAME)}"
        by.setdefault(name, []).append(fault)
    return {
        name: Sample(float(len(faults)), f"Xid {', '.join(_numbers(faults))}" if faults else "no Xid")
        for name, faults in by.items()
    }


def _numbers(faults: Iterable[KernelFault]) -> list[str]:
    return list(dict.fromkeys(str(fault.xid) for fault in faults))


# ------------------------------------------------------------------------------------------------------------ models


def _models(moment: Moment, measure: Callable[[ModelRow], Sample]) -> Samples | None:
    """Of READY models; while statistics are not read nothing is known of any."""
    snapshot = moment.snapshot
    if fresh(snapshot, snapshot.stats) is None or fresh(snapshot, snapshot.index) is None:
        return None
    return {label(row): measure(row) for row in snapshot.models if row.state == "READY"}


def label(row: ModelRow) -> str:
    """`ranking 2`."""
    return one_line(f"{row.name} {row.version}" if row.version else row.name, MAX_NAME)


def _rests(row: ModelRow) -> bool:
    """True where nothing was asked for 10 s and nothing waits: it has no time to be measured, and is not slow."""
    window = row.flow.w10 if row.flow else None
    pending = row.metrics.pending if row.metrics else None
    return window is not None and not (window.success or window.failed or window.executions) and pending == 0


def queue(moment: Moment) -> Samples | None:
    """Milliseconds that a request of each model waits, mean of 10 s."""

    def one(row: ModelRow) -> Sample:
        window = row.flow.w10 if row.flow else None
        if row.ensemble or window is None or window.queue_ms is None:
            return Sample(0.0, "no requests") if _rests(row) else UNKNOWN
        return Sample(window.queue_ms, f"waits {units.millis(window.queue_ms)} ms, mean of 10 s")

    return _models(moment, one)


def p99(moment: Moment) -> Samples | None:
    """The 99th percentile of each model in milliseconds where the server tells one; of a histogram what is sure."""

    def one(row: ModelRow) -> Sample:
        if _rests(row):
            return Sample(0.0, "no requests")
        metrics = row.metrics
        for found in metrics.request_summary if metrics else ():
            if found.q == 0.99:
                return Sample(found.ms, f"p99 {units.millis(found.ms)} ms (summary)")
        estimate = quantile(metrics.first_response, 0.99) if metrics and metrics.first_response else None
        if estimate is None:
            return UNKNOWN
        sure = estimate.more_than or 0.0
        return Sample(sure, f"p99 over {units.millis(sure)} ms (histogram)")

    return _models(moment, one)


def failures(moment: Moment) -> Samples | None:
    """Failures a second of each model, mean of 10 s: what Triton counts and what its queue refused."""

    def one(row: ModelRow) -> Sample:
        window = row.flow.w10 if row.flow else None
        if window is None:
            return UNKNOWN
        refused = sum(
            found.rate10 or 0.0 for found in (row.metrics.failures if row.metrics else ()) if found.reason == "REJECTED"
        )
        value = window.fail_rate + refused
        return Sample(value, f"{units.one(value)} of {units.rate(window.rate + value)} a second fail")

    return _models(moment, one)


def not_ready(moment: Moment) -> Samples | None:
    """1 for a model of which no version serves though it was to (it failed to load, or still loads), 0 where one does.

    While the server starts or does not answer nothing is known; what was unloaded on purpose is no cause.
    """
    snapshot = moment.snapshot
    if fresh(snapshot, snapshot.index) is None or snapshot.index.error is not None:
        return None
    if snapshot.serving.word not in ("SERVING", "DOWN"):
        return None
    found: dict[str, Sample] = {}
    for row in snapshot.models:
        name = one_line(row.name, MAX_NAME)
        if row.state == "READY":
            found[name] = Sample(0.0, f"{row.version} is READY")
        elif row.failed_load or row.state == "LOADING":
            why = one_line(row.reason or "", 200) if row.failed_load else "still loads"
            found.setdefault(name, Sample(1.0, why or "failed to load"))
    return found


# --------------------------------------------------------------------------------------------------------------- box


def not_serving(moment: Moment) -> Samples | None:
    """1 where the server is gone or silent, 0 where it serves; while it starts or has nothing to serve neither."""
    serving = moment.snapshot.serving
    value = {"SERVING": 0.0, "DOWN": 1.0, "NOT ANSWERING": 1.0}.get(serving.word)
    return {BOX: Sample(value, one_line(f"{serving.word} {serving.detail}", 200).strip())}


def restarts(moment: Moment) -> Samples | None:
    """Restarts of the container by Podman or systemd, not by hand, in the last ten minutes."""
    podman = fresh(moment.snapshot, moment.snapshot.container)
    if podman is None or (podman.container is None and podman.unit is None):
        return None
    count = moment.restarts.recent
    return {BOX: Sample(float(count), f"{count} known of in ten minutes")}


def disk(moment: Moment) -> Samples | None:
    """Percent of the disk under the model repository that is taken."""
    found = fresh(moment.snapshot, moment.snapshot.repository)
    if found is None or not found.disk_total or found.disk_free is None:
        return None
    taken = 100 * (1 - found.disk_free / found.disk_total)
    return {DISK: Sample(taken, f"{taken:.0f} % taken, {units.size(found.disk_free)} free")}


def oom(moment: Moment) -> Samples | None:
    """Processes that the kernel killed for memory in the last ten minutes."""
    found = _recent(moment, "oom")
    if found is None:
        return None
    names = ", ".join(dict.fromkeys(one_line(fault.process or "?", MAX_NAME) for fault in found))
    return {BOX: Sample(float(len(found)), f"killed: {names}" if names else "nothing was killed")}


def _recent(moment: Moment, kind: str) -> list[KernelFault] | None:
    log = fresh(moment.snapshot, moment.snapshot.kernel)
    if log is None:
        return None
    wall = moment.snapshot.wall
    return [fault for fault in log.faults if fault.kind == kind and wall - fault.wall <= RECENT_S]
