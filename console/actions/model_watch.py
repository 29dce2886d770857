"""Is the new version as good as the old one? Fail rate and mean latency over a while, by Triton's own counters."""

from __future__ import annotations

import time

from msgspec import Struct

from console.clients.triton import TritonAddress
from console.clients.triton_control import statistics
from console.core.model import ModelStats, SourceError

ENOUGH = 20
"""Requests below which a mean or a share says nothing."""
SLOWER = 2.0
LEAST_MS = 1.0
"""A mean must be this much longer too: twice a tenth of a millisecond is noise."""
LEAST_FAILS = 3
SILENCE = 1.0
"""Seconds without any answer that mean something: a busy host may stall for a tenth of it."""
MORE_FAILS = 0.05
"""Share of failures above that before."""


class Flow(Struct, frozen=True):
    """Requests of one version over a while."""

    done: int
    failed: int
    mean_ms: float | None
    """Of those that succeeded; None when none did."""
    seconds: float

    @property
    def share(self) -> float:
        """Of failures; 0 when there were no requests."""
        total = self.done + self.failed
        return self.failed / total if total else 0.0


class Meter:
    """Counts one version from a moment on. SourceError where its statistics cannot be had."""

    def __init__(self, address: TritonAddress, name: str, version: int) -> None:
        self._address = address
        self._name = name
        self._version = str(version)
        self._began = time.monotonic()
        self._first = self._read()

    def flow(self) -> Flow:
        """Since it was made. Probes of the console are in it."""
        now, first = self._read(), self._first
        if now.success_count + now.fail_count < first.success_count + first.fail_count:
            first = ModelStats(self._name, self._version)  # reloaded meanwhile: its counters began anew
        return flow_between(first, now, time.monotonic() - self._began)

    def _read(self) -> ModelStats:
        for one in statistics(self._address, self._name):
            if one.version == self._version:
                return one
        raise SourceError("unavailable", f"{self._name} {self._version} has no statistics: it is not ready")


def flow_between(first: ModelStats, now: ModelStats, seconds: float) -> Flow:
    """What happened between two readings of one version."""
    done = max(0, now.success_count - first.success_count)
    spent = max(0, now.success_ns - first.success_ns)
    failed = max(0, now.fail_count - first.fail_count)
    return Flow(done, failed, spent / done / 1e6 if done else None, seconds)


def since_load(stats: ModelStats) -> Flow:
    """Since the version was loaded, for where the last moments hold too few requests."""
    return flow_between(ModelStats(stats.name, stats.version), stats, 0.0)


def worse(before: Flow | None, now: Flow, *, latency: bool = True) -> str:
    """Why the new version is worse than what was before; "" where it is not, or cannot be told. Without `latency` only
    failures and silence count: the first moments after a load are slower by nature (twice, on a busy host)."""
    usual = before.share if before is not None and before.done + before.failed >= ENOUGH else 0.0
    if now.failed >= LEAST_FAILS and now.share > usual + MORE_FAILS:
        return f"{now.failed} of {now.done + now.failed} requests failed ({usual:.0%} before)"
    if before is None or before.mean_ms is None or before.done < ENOUGH:
        return ""
    expected = before.done / before.seconds * now.seconds if before.seconds > 0 else 0.0
    if now.seconds >= SILENCE and expected >= ENOUGH and now.done + now.failed == 0:
        return f"none of about {expected:.0f} requests was answered in {now.seconds:.1f} s"
    if not latency or now.done < ENOUGH or now.mean_ms is None:
        return ""
    if now.mean_ms > SLOWER * before.mean_ms and now.mean_ms - before.mean_ms > LEAST_MS:
        return f"mean {before.mean_ms:.2f} → {now.mean_ms:.2f} ms over {now.done} requests"
    return ""


def told(before: Flow | None, now: Flow) -> str:
    """The comparison in one line."""
    mean = "" if now.mean_ms is None else f", mean {now.mean_ms:.2f} ms"
    was = "" if before is None or before.mean_ms is None else f" (before {before.mean_ms:.2f} ms)"
    if now.done + now.failed < ENOUGH:
        return f"{now.done + now.failed} requests in {now.seconds:.1f} s, too few to judge latency{mean}{was}"
    return f"{now.done + now.failed} requests in {now.seconds:.1f} s, {now.failed} failed{mean}{was}"
