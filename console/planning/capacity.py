"""How many instances and cards a rate needs, from measured service times; and the rule of thumb beside it. Pure.

Searched are instances from one on, with the delays and largest batches of `DELAYS_US` and up to the model's own
largest batch (a larger one than the engine was built for fails to load). A setting holds when the rate is at most (1
- headroom) of what its instances can do, and its predicted p99 with its uncertainty is within the goal. Taken are the
fewest instances, then the shortest p99.

The rule of thumb (seed S1, 5.1): one instance does 1000 / t(b) * b a second, of which 70 % is real; what comes is to
be at most half of that. It knows no waiting, and no goal.
"""

from __future__ import annotations

from math import ceil, inf

from msgspec import Struct

from console.core.plan import WrongInput
from console.planning.batcher import Scheduling
from console.planning.calibration import calibrate
from console.planning.observed import Observed
from console.planning.predicted import Prediction
from console.planning.prediction import capacity, grid, instances_of
from console.planning.service import Seen, curve

DELAYS_US = (0, 200, 500, 1000, 2000, 5000)
MOST_INSTANCES = 16
"""Of one model on one box that are searched; where that is not enough the plan says so."""
LARGEST_BATCH = 128
HEADROOM = 0.5
RULE_REAL = 0.7
"""Share of the arithmetic rate that queueing and overhead leave (seed S1, 5.1)."""
RULE_BATCH = 8
"""The batch size of the seed's example."""


class Memory(Struct, frozen=True):
    """GPU memory in bytes; None = not known."""

    instance: int | None = None
    """Of one instance, as the server or the user tells."""
    free: int | None = None
    """On the card, with what serves now."""
    total: int | None = None


class Thumb(Struct, frozen=True):
    """The seed's estimate."""

    batch: int
    batch_ms: float
    one_per_s: float
    """What one instance really does."""
    instances: int
    """For the rate, with the headroom."""


class CapacityPlan(Struct, frozen=True):
    """What a rate needs."""

    rate: float
    goal_p99_ms: float
    headroom: float
    best: Prediction | None
    """The cheapest setting that holds; None where none does."""
    nearest: Prediction | None
    """Where none holds: the one with the shortest p99, if any can keep up."""
    reason: str
    """Where none holds: why."""
    if_shared: str
    """What becomes of it if instances slow each other down, where that is not known; "" where it is."""
    cards: int | None
    """Cards that its instances take by their memory; None = not known."""
    fit_now: int | None
    """More instances that the free memory of this card takes."""
    fit_card: int | None
    """Instances that an empty card takes."""
    memory_unknown: str
    """Why cards or fits are not known; "" where they are."""
    thumb: Thumb
    tried: int
    """Settings that were looked at."""


def plan(
    observed: Observed,
    rate: float,
    goal_p99_ms: float,
    *,
    headroom: float = HEADROOM,
    memory: Memory | None = None,
    seed: int = 0,
) -> CapacityPlan:
    """The cheapest setting for `rate` requests a second. WrongInput for what cannot be, or cannot be told."""
    if not 0 < rate < inf:
        raise WrongInput(f"the rate must be above 0, not {rate:g}")
    if not 0 < goal_p99_ms < inf:
        raise WrongInput(f"the goal for p99 must be above 0 ms, not {goal_p99_ms:g}")
    if not 0 <= headroom < 1:
        raise WrongInput(f"the headroom is a share from 0 to below 1, not {headroom:g}")
    if observed.unfit:
        raise WrongInput(f"no capacity can be told: {observed.unfit}")
    if not observed.service:
        raise WrongInput(f"nothing ran on {observed.model}, so no service time is known; send it a load meanwhile")
    lost = calibrate(observed, seed=seed).machine.lost_ms if observed.rate else 0.0
    best, nearest, tried = _search(observed, rate, goal_p99_ms, headroom, lost, seed)
    chosen = best or nearest
    memory = memory or Memory()
    cards, fit_now, fit_card, unknown = _cards(memory, chosen.scheduling.instances if chosen else None)
    reason = "" if best is not None else _why_not(observed, rate, goal_p99_ms, headroom, lost, nearest)
    return CapacityPlan(
        rate, goal_p99_ms, headroom, best, nearest if best is None else None, reason,
        _shared(observed, best, rate, goal_p99_ms, headroom), cards, fit_now, fit_card, unknown,
        rule_of_thumb(observed, rate, headroom), tried,
    )  # fmt: skip


def rule_of_thumb(observed: Observed, rate: float, headroom: float = HEADROOM) -> Thumb:
    """With the batch of the seed's example, or the model's largest where that is smaller."""
    batch = max(1, min(RULE_BATCH, observed.scheduling.max_batch_size if observed.scheduling.dynamic_batching else 1))
    times = curve(_of_most_runs(observed), batch)
    one = 1000 / times.ms[batch] * batch / observed.items * RULE_REAL
    return Thumb(batch, times.ms[batch], one, ceil(rate / (one * (1 - headroom))))


# --------------------------------------------------------------------------------------------------------- the search


def _search(
    observed: Observed, rate: float, goal: float, headroom: float, lost: float, seed: int
) -> tuple[Prediction | None, Prediction | None, int]:
    nearest: Prediction | None = None
    tried = 0
    for instances in range(1, MOST_INSTANCES + 1):
        some = [
            one
            for one in candidates(observed, instances, goal)
            if capacity(observed, one, lost) * (1 - headroom) >= rate
        ]
        if not some:
            continue
        told = grid(observed, some, rate=rate, seed=seed)
        tried += len(told)
        able = [one for one in told if one.p99_ms.value is not None]
        holding = [one for one in able if _surely(one) <= goal]
        if holding:
            return min(holding, key=_surely), None, tried
        best = min(able, key=_surely, default=None)
        if best is not None and (nearest is None or _surely(best) < _surely(nearest)):
            nearest = best
        elif best is not None and nearest is not None:
            break  # one instance more no longer helps
    return None, nearest, tried


def candidates(observed: Observed, instances: int, goal_p99_ms: float) -> list[Scheduling]:
    """Settings of that many instances: no batching, and largest batches by powers of two with each delay."""
    base = _plain(observed.scheduling, instances)
    most = min(max(1, base.max_batch_size), LARGEST_BATCH)
    sizes = sorted({2**n for n in range(1, 8) if 2**n <= most} | ({most} if most > 1 else set()))
    made = [Scheduling(base.max_batch_size, instances, dynamic_batching=False)]
    made += [
        Scheduling(size, instances, dynamic_batching=True, max_queue_delay_us=delay)
        for size in sizes
        for delay in DELAYS_US
        if delay / 1e3 < goal_p99_ms
    ]
    return made


def _plain(scheduling: Scheduling, instances: int) -> Scheduling:
    """The same with other instances, less queue limits and time-outs: a plan is for requests that are served."""
    return Scheduling(
        scheduling.max_batch_size, instances, scheduling.dynamic_batching, scheduling.max_queue_delay_us,
        scheduling.preferred_batch_sizes,
    )  # fmt: skip


def _surely(one: Prediction) -> float:
    """p99 with its uncertainty; infinite where it has none."""
    value, error = one.p99_ms.value, one.p99_ms.error
    return inf if value is None or error is None else value + error


def _why_not(
    observed: Observed, rate: float, goal: float, headroom: float, lost: float, nearest: Prediction | None
) -> str:
    fastest = curve(_of_most_runs(observed), 1).ms[1] + lost
    if fastest > goal:
        return f"one run alone takes {fastest:.3g} ms, more than the goal of {goal:g}: only a faster model helps"
    if nearest is None:
        return f"{MOST_INSTANCES} instances cannot take {rate:g}/s with {headroom:.0%} to spare: it takes more boxes"
    return f"no setting of up to {MOST_INSTANCES} instances is surely within {goal:g} ms"


def _shared(observed: Observed, best: Prediction | None, rate: float, goal: float, headroom: float) -> str:
    """Growth of service times with instances is not known: what would become of it at worst."""
    if best is None or best.shared_p99_ms is None:
        return ""
    known = sorted({one.instances for one in observed.service})
    seen = " and ".join(instances_of(count) for count in known)
    if best.shared_p99_ms == inf:
        worst = "this could not keep up"
    elif best.shared_p99_ms <= goal:
        worst = f"p99 is {best.shared_p99_ms:.3g} ms, still within the goal"
    else:
        worst = f"p99 is {best.shared_p99_ms:.3g} ms, above the goal"
    return f"service times were seen with {seen} only; if more of them share the card wholly, {worst}"


def _of_most_runs(observed: Observed) -> list[Seen]:
    counts = {one.instances for one in observed.service}
    most = max(counts, key=lambda count: sum(one.runs for one in observed.service if one.instances == count))
    return [one for one in observed.service if one.instances == most]


def _cards(memory: Memory, instances: int | None) -> tuple[int | None, int | None, int | None, str]:
    if not memory.instance:
        return None, None, None, "memory of one instance: the server does not report it; give --instance-gib"
    fit_now = None if memory.free is None else memory.free // memory.instance
    fit_card = None if memory.total is None else memory.total // memory.instance
    if fit_card is None:
        return None, fit_now, None, "the card's memory could not be read"
    if not fit_card:
        return None, fit_now, 0, "one instance takes more than the card has"
    return None if instances is None else ceil(instances / fit_card), fit_now, fit_card, ""
