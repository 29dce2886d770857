"""Throughput of a model whose callers each wait for their answer before they ask again (a closed loop). Pure.

With so many callers at once, what a setting changes is how many are served a second. The batcher is that of
`ahead.py`; the time of a run is the one seen under the nearest number of instances (fewer ones where none is as near),
so that what instances cost each other is unknown until it was tried: the figure is then the best that can be hoped for.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

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
SPREADS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""ms; the least that fits clearly better than a smaller one is taken."""
CLEARLY = 0.05


class Closed(Ahead):
    """`Ahead` under callers that send again some time after each answer."""

    def serve(self, callers: int, outside: Callable[[], float], requests: int) -> Served:
        """After WARM_UP. `outside` gives the ms between an answer and the next request of the same caller."""
        waiting = [outside() + at / callers for at in range(callers)]
        heapq.heapify(waiting)
        known = served = runs = 0
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
                    heapq.heappush(waiting, run.start + run.held + outside())
                if served < WARM_UP <= served + len(run.arrivals):
                    began, served = run.start, WARM_UP
                else:
                    served += len(run.arrivals)
                    runs += served > WARM_UP
            known = len(self.runs)
        done = served - WARM_UP
        return Served(1e3 * done / (now - began) if now > began else inf, done / max(1, runs))


class Served(Struct, frozen=True):
    """What came of it."""

    rate: float
    """Requests a second."""
    batch: float
    """Requests a run."""


class Callers(Struct, frozen=True):
    """Who asks, as far as it makes the settings in use serve what was seen."""

    count: int
    outside_ms: float
    spread_ms: float
    """Mean of what answers take longer than `outside_ms`, each for itself: it keeps callers out of step."""
    lost_ms: float
    """Between two runs of an instance."""


def throughput(
    observed: Observed, settings: Sequence[Scheduling], callers: int | None = None, *, outside_ms: float = 0.0
) -> tuple[float, ...]:
    """Requests a second of each setting, for so many callers; None = as many as are in the server now, by Little's
    law, and outside of it. WrongInput where nothing can be told of this model."""
    if observed.unfit:
        raise WrongInput(observed.unfit)
    if not observed.service or not observed.rate:
        raise WrongInput(f"no requests of {observed.model} were seen, so nothing can be predicted")
    who = fitted(observed, callers, outside_ms)
    return tuple(_served(observed, one, who).rate for one in settings)


def fitted(observed: Observed, callers: int | None, outside_ms: float) -> Callers:
    """The spread that gives the batches seen, and with it what is lost between runs to serve as many as were seen."""
    assert observed.rate is not None
    found: tuple[float, Callers] | None = None
    for spread in SPREADS:
        inside = observed.rate * ((observed.request_ms or 0.0) + outside_ms + spread) / 1e3
        who = _with_loss(observed, Callers(callers or max(1, round(inside)), outside_ms, spread, 0.0))
        served = _served(observed, observed.scheduling, who)
        items = (observed.batch or served.batch) / max(1.0, observed.items)
        off = abs(served.batch / items - 1) + abs(served.rate / observed.rate - 1)
        if found is None or off < found[0] - CLEARLY:
            found = off, who
    assert found is not None
    return found[1]


def _with_loss(observed: Observed, who: Callers) -> Callers:
    assert observed.rate is not None
    low, high = 0.0, max(one.ms for one in observed.service)
    if _served(observed, observed.scheduling, who).rate <= observed.rate:
        return who
    for _ in range(CALIBRATION):
        middle = (low + high) / 2
        slow = _served(observed, observed.scheduling, replace(who, lost_ms=middle)).rate <= observed.rate
        low, high = (low, middle) if slow else (middle, high)
    return replace(who, lost_ms=(low + high) / 2)


def _served(observed: Observed, setting: Scheduling, who: Callers) -> Served:
    items = max(1, round(observed.items))
    batched = setting.dynamic_batching and setting.max_batch_size > 1
    cap = max(1, setting.max_batch_size // items) if batched else 1
    largest = min(cap, who.count)
    times = curve(_nearest(observed.service, setting.instances), items * largest).ms
    rng = random.Random(0)

    def held(count: int) -> float:
        return (times[items * min(count, largest)] + who.lost_ms) * max(0.5, rng.gauss(1.0, JITTER))

    def outside() -> float:
        return who.outside_ms + (rng.expovariate(1 / who.spread_ms) if who.spread_ms else 0.0)

    delay = setting.max_queue_delay_us / 1e3 if batched else 0.0
    preferred: Sequence[int] = sorted({max(1, size // items) for size in setting.preferred_batch_sizes})
    return Closed(cap, setting.instances, delay, held, preferred).serve(who.count, outside, REQUESTS)


def _nearest(seen: Sequence[Seen], instances: int) -> list[Seen]:
    """Of the number of instances that is nearest, the smaller of two."""
    count = min({one.instances for one in seen}, key=lambda one: (abs(one - instances), one))
    return [one for one in seen if one.instances == count]
