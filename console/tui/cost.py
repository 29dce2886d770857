"""What the console itself costs: CPU and memory of this process, for the header."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage

SPAN = 10.0
"""Seconds that the CPU figure is a mean of."""


class OwnCost:
    """CPU time and resident memory of this process."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque([(time.monotonic(), time.process_time())])

    def cpu_pct(self) -> float | None:
        """Percent of one core over the last ten seconds; None before there are two samples a second apart."""
        now = (time.monotonic(), time.process_time())
        self._samples.append(now)
        while len(self._samples) > 2 and now[0] - self._samples[1][0] >= SPAN:
            self._samples.popleft()
        first = self._samples[0]
        span = now[0] - first[0]
        return None if span < 1.0 else 100 * (now[1] - first[1]) / span

    @staticmethod
    def memory() -> int:
        """Resident bytes now (Linux); the highest so far elsewhere."""
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
        except (OSError, ValueError, IndexError):
            return getrusage(RUSAGE_SELF).ru_maxrss
