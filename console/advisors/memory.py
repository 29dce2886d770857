"""What Why remembers between evaluations: what batches cost before an event, and what the card held before a reload."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import takewhile

from msgspec import Struct

from console.core.model import BatchStat, GpuBox, ModelFlow, ModelRow, ModelStats, Snapshot, Window
from console.core.rates import window_between

KEPT = 900.0
"""Seconds of card samples."""
SAMPLE_EVERY = 5.0
SETTLES_WITHIN = 40.0
"""Seconds within which each configuration is read anew (30 s in turn, at the latest)."""
LOOK_EVERY = 4.0
"""Seconds that must lie between two looks for their difference to be a window."""
YOUNG = 2.0
"""Seconds that counters which began anew must have run: their beginning is known to a second."""


class Cost(Struct, frozen=True):
    """Runs of one batch size and the milliseconds that one took."""

    runs: int
    ms: float


Costs = Mapping[int, Cost]
"""By batch size."""


class Epoch(Struct, frozen=True):
    """A stretch of time in which one model version ran under one configuration, and what its batches cost."""

    version: str
    began_wall: float
    costs: Costs
    sm_mhz: float | None = None
    """Mean SM clock of the first card while it ran; None where no card tells."""


class Break(Struct, frozen=True):
    """An event that parts two epochs of a model."""

    wall: float
    kind: str
    """version, reload, change."""
    before: Epoch


class CardSample(Struct, frozen=True):
    """What one card held at one moment, and who held it."""

    mono: float
    used: int
    pids: frozenset[int]


class Silence(Struct, frozen=True):
    """Since when a model finishes no request, and since when requests wait meanwhile (None: none waits)."""

    counted: tuple[int, int, int]
    since_mono: float
    waiting_mono: float | None


class Seen(Struct, frozen=True):
    """A model version's counters at a look."""

    mono: float
    stats: ModelStats
    resets: int
    began_mono: float | None
    """When these counters began at 0; None unless that was within the last ten seconds."""


class _Track:
    """One model name's present epoch."""

    __slots__ = ("base", "began_wall", "config", "last", "resets", "settling", "sm_runs", "sm_sum", "version")

    def __init__(self, row: ModelRow, wall: float, base: tuple[BatchStat, ...]) -> None:
        self.version = row.version or ""
        self.resets = row.flow.resets if row.flow else 0
        self.config = row.config.raw if row.config else None
        self.began_wall = wall
        self.base = base
        self.last = base
        self.settling = False
        """True until the configuration of a version that was loaded anew is known: it is read after the counters."""
        self.sm_sum = 0.0
        self.sm_runs = 0

    def epoch(self) -> Epoch:
        clock = self.sm_sum / self.sm_runs if self.sm_runs else None
        return Epoch(self.version, self.began_wall, costs_between(self.base, self.last), clock)


class Memory:
    """Fed with each Snapshot before the rules look; rules only read it."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._silences: dict[tuple[str, str | None], Silence] = {}
        self._seen: dict[tuple[str, str | None], tuple[Seen | None, Seen]] = {}
        self.breaks: dict[str, Break] = {}
        """Newest break by model name."""
        self.uncapped: dict[str, dict[int, Cost]] = {}
        """Cost by model name from windows in which no card was held by its power limit."""
        self.cards: dict[int, deque[CardSample]] = {}

    def learn(self, snapshot: Snapshot) -> None:
        """Take a moment in."""
        gpu = None if snapshot.gpu.is_old(snapshot.mono) else snapshot.gpu.value
        if gpu is not None:
            self._cards(gpu, snapshot.mono)
        if snapshot.stats.is_old(snapshot.mono) or snapshot.stats.error is not None:
            return
        ready = {row.name: row for row in reversed(snapshot.models) if row.state == "READY" and row.flow is not None}
        capped = gpu is None or any("power_cap" in (one.throttle_now or ()) for one in gpu.gpus)
        for name, row in ready.items():
            self._track(name, row, snapshot, gpu)
            if not capped:
                self._uncapped(name, row)
            self._silence(row, snapshot.mono)
        self._remember(snapshot)
        for name in self._tracks.keys() - {row.name for row in snapshot.models}:
            del self._tracks[name]
            self.breaks.pop(name, None)
            self.uncapped.pop(name, None)

    def newest(self, row: ModelRow) -> Window | None:
        """What the version did since the look before, or since its counters began anew; None where neither is known."""
        before, now = self._seen.get((row.name, row.version), (None, None))
        if before is None or now is None:
            return None
        if before.resets == now.resets:
            return window_between(before.stats, now.stats, now.mono - before.mono)
        if now.began_mono is None or now.mono - now.began_mono < YOUNG:
            return None
        return window_between(ModelStats(now.stats.name, now.stats.version), now.stats, now.mono - now.began_mono)

    def _remember(self, snapshot: Snapshot) -> None:
        mono = snapshot.stats.mono
        if mono is None:
            return
        kept: dict[tuple[str, str | None], tuple[Seen | None, Seen]] = {}
        for row in snapshot.models:
            if row.flow is None:
                continue
            key = (row.name, row.version)
            known = self._seen.get(key)
            if known is not None and mono - known[1].mono < LOOK_EVERY:
                kept[key] = known
            else:
                kept[key] = (known[1] if known else None, _seen(row.flow, mono))
        self._seen = kept

    def epoch(self, name: str) -> Epoch | None:
        """The present epoch of a model."""
        track = self._tracks.get(name)
        return track.epoch() if track else None

    def silent_since(self, row: ModelRow) -> float | None:
        """Since when (monotonic) requests wait and none ended; None when that is not so."""
        silence = self._silences.get((row.name, row.version))
        if silence is None or silence.waiting_mono is None:
            return None
        return max(silence.since_mono, silence.waiting_mono)

    def card_before(self, gpu: int, mono: float) -> CardSample | None:
        """The newest sample of a card that is older than `mono`."""
        older = [sample for sample in self.cards.get(gpu, ()) if sample.mono < mono]
        return older[-1] if older else None

    def _cards(self, box: GpuBox, mono: float) -> None:
        for gpu in box.gpus:
            if gpu.memory_used is None or gpu.processes is None or gpu.lost:
                continue
            samples = self.cards.setdefault(gpu.index, deque())
            if samples and mono - samples[-1].mono < SAMPLE_EVERY - 0.5:
                continue
            samples.append(CardSample(mono, gpu.memory_used, frozenset(one.pid for one in gpu.processes)))
            while samples[0].mono < mono - KEPT:
                samples.popleft()

    def _track(self, name: str, row: ModelRow, snapshot: Snapshot, gpu: GpuBox | None) -> None:
        flow = row.flow
        if flow is None:
            return
        track = self._tracks.get(name)
        batches = flow.stats.batches
        if track is None:
            self._tracks[name] = _Track(row, snapshot.wall, ())
            self._tracks[name].last = batches
            return
        kind = _kind(track, row)
        if kind == "change" and track.settling and snapshot.wall - track.began_wall <= SETTLES_WITHIN:
            track.config, track.settling = row.config.raw if row.config else None, False
        elif kind:
            self.breaks[name] = Break(snapshot.wall, kind, track.epoch())
            track = self._tracks[name] = _Track(row, snapshot.wall, batches if kind == "change" else ())
            track.settling = kind != "change"
        elif track.config is None and row.config is not None:
            track.config = row.config.raw
        track.last = batches
        if gpu is not None and gpu.gpus and gpu.gpus[0].sm_mhz is not None:
            track.sm_sum += gpu.gpus[0].sm_mhz
            track.sm_runs += 1

    def _uncapped(self, name: str, row: ModelRow) -> None:
        window = row.flow.w30 if row.flow else None
        if window is not None and window.batches and not window.crosses_reset:
            known = self.uncapped.setdefault(name, {})
            known.update({batch.size: Cost(batch.runs, batch.ms_per_run) for batch in window.batches})

    def _silence(self, row: ModelRow, mono: float) -> None:
        """Requests are seen to wait each second, not only at a look, so the samples tell when that began."""
        key = (row.name, row.version)
        if row.flow is None or row.metrics is None or row.metrics.pending is None:
            self._silences.pop(key, None)
            return
        stats = row.flow.stats
        counted = (stats.success_count, stats.fail_count, stats.execution_count)
        known = self._silences.get(key)
        if known is not None and known.counted != counted:
            known = None
        waiting: float | None = None
        if row.metrics.pending:
            waiting = known.waiting_mono if known else None
            if waiting is None:
                streak = sum(1 for _ in takewhile(lambda sample: sample > 0, reversed(row.metrics.pending_samples)))
                waiting = mono - max(0, streak - 1)
        self._silences[key] = Silence(counted, known.since_mono if known else mono, waiting)


def _seen(flow: ModelFlow, mono: float) -> Seen:
    """A fall of the counters shows as a window that crosses it; only then did they begin at 0."""
    fell = flow.w10 is not None and flow.w10.crosses_reset
    return Seen(mono, flow.stats, flow.resets, flow.epoch_mono if fell else None)


def _kind(track: _Track, row: ModelRow) -> str:
    if track.version != (row.version or ""):
        return "version"
    if row.flow is not None and row.flow.resets != track.resets:
        return "reload"
    if track.config is not None and row.config is not None and row.config.raw != track.config:
        return "change"
    return ""


def costs_between(old: tuple[BatchStat, ...], new: tuple[BatchStat, ...]) -> Costs:
    """Cost by batch size of what `new` counted beyond `old` (one run of counters)."""
    before = {batch.size: batch for batch in old}
    found: dict[int, Cost] = {}
    for batch in new:
        was = before.get(batch.size)
        runs = batch.count - (was.count if was else 0)
        ns = batch.total_ns - (was.total_ns if was else 0)
        if runs > 0 and ns >= 0:
            found[batch.size] = Cost(runs, ns / runs / 1e6)
    return found


def slower(before: Costs, now: Costs, min_runs: int) -> tuple[int, Cost, Cost, float] | None:
    """The like batches of two costs: (the size seen most, its cost before and now, how many times as long all take).

    None when no size has `min_runs` runs on both sides.
    """
    like = [
        size
        for size, cost in now.items()
        if cost.runs >= min_runs and size in before and before[size].runs >= min_runs and before[size].ms > 0
    ]
    if not like:
        return None
    weights = {size: min(before[size].runs, now[size].runs) for size in like}
    then = sum(before[size].ms * weights[size] for size in like)
    after = sum(now[size].ms * weights[size] for size in like)
    most = max(like, key=lambda size: (weights[size], size))
    return most, before[most], now[most], after / then
