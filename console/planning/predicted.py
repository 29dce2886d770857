"""What a prediction says, apart from what makes it (prediction.py): that loads numpy, which must not stay in the memory
of a console that gets predictions from a helper.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from console.planning.batcher import Scheduling

Trust = Literal["good", "fair", "poor"]


class Figure(Struct, frozen=True):
    """A value, and how far off it may be; None = cannot be told."""

    value: float | None
    error: float | None = None


UNKNOWN = Figure(None)


class Prediction(Struct, frozen=True):
    """One setting under one rate. Times in ms as the server counts them, from the queue to the end of the run."""

    scheduling: Scheduling
    rate: float
    capacity: float
    """Requests a second that the instances can do at most."""
    mean_ms: Figure
    wait_ms: Figure
    compute_ms: Figure
    p50_ms: Figure
    p99_ms: Figure
    batch: Figure
    """Items a run."""
    executions_per_s: Figure
    throughput: Figure
    """Requests served a second."""
    busy: Figure
    """Share of the instances' time."""
    refused_per_s: Figure
    timed_out_per_s: Figure
    trust: Trust
    reasons: tuple[str, ...]
    """Why it is not better, the gravest first."""
    shared_p99_ms: float | None
    """p99 if instances shared the card wholly, where that is not known; infinite = it could not keep up."""
    simulated_requests: int
    simulated_s: float

    @property
    def saturated(self) -> bool:
        """More comes than can be served: waits grow for as long as it lasts."""
        return self.rate >= self.capacity

    @property
    def queue_share(self) -> float | None:
        """Part of a request's time that is waiting."""
        mean, wait = self.mean_ms.value, self.wait_ms.value
        return None if mean is None or wait is None or not mean else wait / mean
