"""Throughput of a model whose callers each wait for their answer before they ask again (a closed loop). Pure.

With so many callers at once, what a setting changes is how many are served a second. The batcher is that of
`ahead.py`; the time of a run is the one seen under the nearest number of instances (fewer ones where none is as near),
so that what instances cost each other is unknown until it was tried: the figure is then the best that can be hoped for.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from math import inf

from console.core.plan import WrongInput
from console.planning.ahead import Ahead
from console.planning.batcher import Scheduling
from console.planning.observed import Observed
from console.planning.service import Seen, curve

REQUESTS = 1500
"""Of one setting, after as many as warm it up."""
WARM_UP = 200
JITTER = 0.05
"""Standard deviation of a run's time as a share of it: without any, callers fall into a step that no server keeps."""
CALIBRATION = 6
"""Halvings in which the time that is lost between runs is found."""


class Closed(Ahead):
    """`Ahead` under callers that send again `outside` ms after each answer."""

    def rate(self, callers: int, outside: float, requests: int) -> float:
        """Requests a second, after WARM_UP."""
        waiting = [outside * at / callers for at in range(callers)]
        heapq.heapify(waiting)
        known = served = 0
        began, now = 0.0, 0.0
        while served < WARM_UP + requests:
            now = min(waiting[0] if waiting else inf, self._running[0] if self._running else inf, self._alarm)
            if self._running and self._running[0] == now:
                heapq.heappop(self._running)
                self._idle += 1
                self._take(now)
                self._wake(now)
            elif self._alarm == now:
                self._wake(now)
            else:
                self._queue.append(heapq.heappop(waiting))
                stale = self._saturated or self._current.taken
                if len(self._line) < self._most and (stale or len(self._queue) >= self._wakes_at):
                    self._wake(now)
            for run in self.runs[known:]:
                for _ in run.arrivals:
                    heapq.heappush(waiting, run.start + run.held + outside)
                if served < WARM_UP <= served + len(run.arrivals):
                    began, served = run.start, WARM_UP
                else:
                    served += len(run.arrivals)
            known = len(self.runs)
        return 1e3 * (served - WARM_UP) / (now - began) if now > began else inf


def throughput(
    observed: Observed, settings: Sequence[Scheduling], callers: int, *, outside_ms: float = 0.0
) -> tuple[float, ...]:
    """Requests a second of each setting. WrongInput where nothing can be told of this model."""
    if observed.unfit:
        raise WrongInput(observed.unfit)
    if not observed.service or not observed.rate:
        raise WrongInput(f"no requests of {observed.model} were seen, so nothing can be predicted")
    lost = _lost(observed, callers, outside_ms)
    return tuple(_rate(observed, one, callers, outside_ms, lost) for one in settings)


def _lost(observed: Observed, callers: int, outside_ms: float) -> float:
    """ms between two runs of an instance that make the settings in use serve what they were seen to serve."""
    assert observed.rate is not None
    low, high = 0.0, max(one.ms for one in observed.service)
    if _rate(observed, observed.scheduling, callers, outside_ms, 0.0) <= observed.rate:
        return 0.0
    for _ in range(CALIBRATION):
        middle = (low + high) / 2
        slow = _rate(observed, observed.scheduling, callers, outside_ms, middle) <= observed.rate
        low, high = (low, middle) if slow else (middle, high)
    return (low + high) / 2


def _rate(observed: Observed, setting: Scheduling, callers: int, outside_ms: float, lost: float) -> float:
    items = max(1, round(observed.items))
    batched = setting.dynamic_batching and setting.max_batch_size > 1
    largest = max(1, min(setting.max_batch_size // items, callers)) if batched else 1
    cap = max(1, setting.max_batch_size // items) if batched else 1
    times = curve(_nearest(observed.service, setting.instances), items * largest).ms
    rng = random.Random(0)

    def held(count: int) -> float:
        return (times[items * min(count, largest)] + lost) * max(0.5, rng.gauss(1.0, JITTER))

    delay = setting.max_queue_delay_us / 1e3 if batched else 0.0
    preferred: Sequence[int] = sorted({max(1, size // items) for size in setting.preferred_batch_sizes})
    return Closed(cap, setting.instances, delay, held, preferred).rate(callers, outside_ms, REQUESTS)


def _nearest(seen: Sequence[Seen], instances: int) -> list[Seen]:
    """Of the number of instances that is nearest, the smaller of two."""
    count = min({one.instances for one in seen}, key=lambda one: (abs(one - instances), one))
    return [one for one in seen if one.instances == count]
