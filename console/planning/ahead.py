"""Triton's dynamic batcher as its threads really go about it: batches are formed ahead of a free instance. Pure.

With a delay and no queue policy the batcher's thread does not wait for an instance. It closes a batch when the oldest
request's delay is over, and puts it in a line of at most two for each instance, where it stays until an instance
takes it (core's `dynamic_batch_scheduler.cc`, `GetDynamicBatch`, `Enqueue`; `rate_limiter.cc`; `instance_queue.cc`).
What comes meanwhile joins a closed batch only when the thread is woken, and an arrival wakes it only when as many
wait as would fill a batch. So under load batches stay smaller and waits grow longer than those of a batcher that
decides when an instance frees (`batcher.py`): measured on 2.51.0 18.4 ms against 9.5 of that model and 17.6 of this
one (one instance, batches up to 4, delay 2 ms, 150 requests a second of 13 + b ms). Without a delay every arrival
wakes the thread, and both are the same.

When a run ends, its thread wakes the batcher's and then takes the next batch from the line. Mostly it is there first.
Where the batcher's is, what waits still joins that batch. Which, is chance: `wins` is the batcher's share, 0.1 to 0.4
in the lab.

Where an input has no fixed shape each arrival wakes the thread, and joins: as if it always won (measured 35.1 ms mean
where this gives 34.7, and 45.2 if it did not: batches up to 8, delay 3 ms, 120 a second of 16 + 2 b ms).

This is the plain form, one event after another: for preferred sizes, and for tests of the fast one (`lanes.py`). Not
modelled: the thread's own half-second timer, requests of more than one item, queue policies (with one nothing is
formed ahead, see `asleep.py`), priorities.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

LINE_OF_EACH = 2
"""Batches that may stand ready for each instance (`PayloadSlotAvailable`)."""


@dataclass(slots=True)
class Run:
    """One execution: when it was taken from the line, how long the instance was held, whose requests it had."""

    start: float
    held: float
    arrivals: list[float]


@dataclass(slots=True)
class _Payload:
    arrivals: list[float] = field(default_factory=list)
    taken: bool = False
    listed: bool = False


class Ahead:
    """One model's batcher. Times are any unit on one base; `held` gives an instance's time for a batch of n."""

    def __init__(
        self,
        largest: int,
        instances: int,
        delay: float,
        held: Callable[[int], float],
        preferred: Sequence[int] = (),
        *,
        wins: float = 0.0,
        rng: random.Random | None = None,
    ) -> None:
        self._wins = wins
        self._rng = rng or random.Random(0)
        self._largest = max(1, largest)
        self._delay = delay
        self._held = held
        self._preferred = sorted(preferred) or [self._largest]
        """Triton puts the largest batch there where nothing is set (domain facts 1.7)."""
        self._most = LINE_OF_EACH * instances
        self._idle = instances
        self._queue: deque[float] = deque()
        self._line: deque[_Payload] = deque()
        self._running: list[float] = []
        self._current = _Payload()
        self._saturated = False
        self._wakes_at = 0
        """An arrival wakes the thread when so many wait (`next_preferred_batch_size_`)."""
        self._alarm = inf
        self.runs: list[Run] = []

    def run(self, arrivals: Sequence[float]) -> list[Run]:
        """All runs that begin up to the last arrival, in the order of their beginning."""
        at = 0
        while at < len(arrivals):
            now = min(arrivals[at], self._running[0] if self._running else inf, self._alarm)
            if self._running and self._running[0] == now:
                heapq.heappop(self._running)
                if self._wins and self._rng.random() < self._wins:
                    self._wake(now)
                self._idle += 1
                self._take(now)
                self._wake(now)
            elif self._alarm == now:
                self._wake(now)
            else:
                at += 1
                self._queue.append(now)
                stale = self._saturated or self._current.taken
                if len(self._line) < self._most and (stale or len(self._queue) >= self._wakes_at):
                    self._wake(now)
        return self.runs

    def _wake(self, now: float) -> None:
        """One round of the batcher's thread, until it has nothing to do (`BatcherThread`)."""
        self._alarm = inf
        while True:
            if self._saturated or self._current.taken:
                self._current, self._saturated, self._wakes_at = _Payload(), False, 0
            if not self._queue or len(self._line) >= self._most:
                return
            count, due = self._form(now)
            if count is None:
                self._alarm = due
                return
            current = self._current
            current.arrivals += [self._queue.popleft() for _ in range(count)]
            if current.arrivals and not current.listed:
                current.listed = True
                self._line.append(current)
                self._take(now)

    def _form(self, now: float) -> tuple[int | None, float]:
        """How many of the queue join the current batch now; or None and when to look again (`GetDynamicBatch`)."""
        target, inside = self._preferred[-1], len(self._current.arrivals)
        best = count = 0
        full = False
        for _ in self._queue:
            if inside + count:
                if inside + count + 1 > target and not best:
                    best, self._saturated = count, True
                if inside + count + 1 > self._largest:
                    full = True
                    break
            count += 1
            if inside + count in self._preferred:
                best = count
        due = self._queue[0] + self._delay
        overdue = self._delay > 0 and now >= due
        if best and not overdue:
            self._saturated = self._saturated or not self._delay
            return best, now
        if not count:
            return 0, now
        if full or inside + count >= target:
            self._saturated = True
            return count, now
        if overdue or not self._delay:
            return count, now
        following = next((size for size in self._preferred if size > inside + count), self._preferred[0])
        self._wakes_at = following - inside
        if inside and inside not in self._preferred and not self._saturated:
            return count, now
        return None, due

    def _take(self, now: float) -> None:
        """Idle instances take from the line; what stands behind and is overdue joins where it fits (`Dequeue`)."""
        while self._idle and self._line:
            batch = self._line.popleft()
            batch.taken = True
            while self._delay and self._largest > 1 and self._line and now - self._line[0].arrivals[0] > self._delay:
                self._line[0].taken = True
                if len(batch.arrivals) + len(self._line[0].arrivals) > self._largest:
                    break
                batch.arrivals += self._line.popleft().arrivals
            held = self._held(len(batch.arrivals))
            self._idle -= 1
            heapq.heappush(self._running, now + held)
            self.runs.append(Run(now, held, batch.arrivals))
