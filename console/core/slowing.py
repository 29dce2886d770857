"""How much of the last seconds a card was slowed, from what History holds of the driver's counters and reason bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from console.core.history import History

HEAT = ("heat_software", "heat_hardware", "heat")
COUNTED_S, SEEN_S = 30, 10


def counted_share(history: History, mono: float, gpu: int, reasons: Sequence[str]) -> float | None:
    """Largest share of the last 30 s that the driver counted for one of the reasons; None without counters."""
    shares = []
    for reason in reasons:
        column = history.columns(f"gpu.{gpu}.throttle.{reason}", mono, 1, COUNTED_S + 1)
        known = [(second, value) for second, value in enumerate(column) if value is not None]
        if len(known) < 2:
            continue
        rise = sum(max(0.0, b[1] - a[1]) for a, b in pairwise(known))
        shares.append(min(1.0, rise / (known[-1][0] - known[0][0])))
    return max(shares, default=None)


def seen_samples(history: History, mono: float, gpu: int, reasons: Sequence[str]) -> int:
    """In how many of the last ten seconds one of the reasons' bits was set."""
    columns = [history.columns(f"gpu.{gpu}.throttled.{reason}", mono, 1, SEEN_S) for reason in reasons]
    return sum(any(column[second] is not None for column in columns) for second in range(SEEN_S))
