"""The batcher under a queue policy (a limit or time-outs): it may sleep while an instance is idle. Pure.

With a policy nothing is formed ahead. When a run ends the batcher's thread is woken at the same moment as the
instance's goes for its next batch; where the former is first it finds no idle instance and sleeps again, until the
next request is taken in, or half a second after it lay down (core's `dynamic_batch_scheduler.cc`, `rate_limiter.cc`).
A full queue takes none in: then instances idle for hundreds of ms beside a full queue. One instance of 60 + 5 b ms,
batches up to 8, 100 requests a second, limit 64: Triton 2.51.0 served 46 a second (screens.md section 4), the plain
batcher 80, this one 48 with `misses` 0.25; limits 16 and 4: 48 and 24 against 48 and 22.
"""

from __future__ import annotations

import random
from typing import Any

from console.planning.batcher import Batcher, Request, Scheduling, ServiceTime


class Asleep(Batcher):
    """As the plain batcher, but that it misses a share of the ends of runs."""

    def __init__(
        self, scheduling: Scheduling, service: ServiceTime, *, misses: float, rng: random.Random | None = None
    ) -> None:
        super().__init__(scheduling, service, rng=rng)
        self._misses = misses
        self._asleep = False

    def _finish(self, finish_ns: int, number: int, run: Any) -> None:
        super()._finish(finish_ns, number, run)
        if self._rng.random() < self._misses:
            self._asleep = True

    def _enqueue(self, request: Request) -> None:
        limit = self.scheduling.max_queue_size
        if not limit or len(self._queue) < limit:
            self._asleep = False
        super()._enqueue(request)

    def _dispatch(self) -> None:
        if self._asleep and self.now_ns < self._policy_check_ns:
            return
        self._asleep = False
        super()._dispatch()

    def _next_event_ns(self) -> int | None:
        if not self._asleep:
            return super()._next_event_ns()
        due = self._running[0][0] if self._running else None
        if not self._queue:
            return due
        wakes = max(self._policy_check_ns, self.now_ns)
        return wakes if due is None else min(wakes, due)
