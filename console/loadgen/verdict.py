"""What a run's figures mean: the server's side of it, steady or why not, the client's own share, the goal (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from console.core import units
from console.core.model import ModelStats
from console.loadgen import errors, live
from console.loadgen.errors import total
from console.loadgen.record import WHOLE, Client, Run, Server, Share, Slice, Stage
from console.loadgen.schedule import Load

STEADY_WITHIN = 0.10
"""The last third of a run may differ so much from the third before."""
STALLED_RATE, STALLED_P50 = 0.5, 5.0
"""A slice with this share of the answers, or this many times the p50, of the median slice is a stall."""
SHORTEST = 6
"""Slices of a second that it takes to speak of steady."""
FEWEST = 100
"""Answers within a third, likewise."""
LATE_SHARE = 0.01
IN_TIME = 0.97
"""Of what was due; with less answered in time the server (or the client) does not keep up."""
BUSY = 0.9
"""Of one core: above it the sender itself is the limit."""


class ResetError(Exception):
    """The counters began anew: the model was loaded meanwhile."""


def served(before: Sequence[ModelStats], after: Sequence[ModelStats]) -> Server:
    """The difference of a model's statistics, over all its versions. ResetError when a counter fell or went."""
    old = {one.version: one for one in before}
    new = {one.version: one for one in after}
    if not old.keys() <= new.keys():
        raise ResetError
    sums: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
    for version, one in new.items():
        for name in _COUNTERS:
            change = getattr(one, name) - (getattr(old[version], name) if version in old else 0)
            if change < 0:
                raise ResetError
            sums[name] += change
    return Server(
        requests=sums["success_count"],
        failures=sums["fail_count"],
        total_ms=_mean(sums, "success"),
        queue_ms=_mean(sums, "queue"),
        input_ms=_mean(sums, "input"),
        infer_ms=_mean(sums, "infer"),
        output_ms=_mean(sums, "output"),
        batch=sums["inference_count"] / sums["execution_count"] if sums["execution_count"] else None,
        executions=sums["execution_count"],
    )


_COUNTERS = tuple(
    name for name in ModelStats.__struct_fields__ if name.endswith(("_count", "_ns")) and not name.startswith("cache")
)


def _mean(sums: Mapping[str, int], part: str) -> float | None:
    """Per counted request, in ms."""
    count = sums[f"{part}_count"]
    return sums[f"{part}_ns"] / count / 1e6 if count else None


def others(client: Client | Share, server: Server) -> int:
    """Requests that the server counted and we did not send: other clients' (0 for a few, which are of the edges).

    A failed one of ours may be among those that it calls successes: seen are errors that the model answers, answers
    that came after the time-out, and answers that Triton 2.51 never sent (374 of 50 000 at 10 000 a second over 1 024
    connections, many of them the first on theirs: by the kernel's bytes of its sockets it had got one request more on
    each of these than it had answered, and neither end had any in a queue).
    """
    return round(live.others(server.requests, client.done + total(client.errors)))


def met(client: Client, goal_ms: float | None) -> bool | None:
    """Whether p99 (of each model, where there are several) is within the goal, a failed request counting as slower than
    all; None without a goal."""
    if goal_ms is None:
        return None
    seen: Sequence[Client | Share] = client.shares or (client,)
    found = [one.shape().percentile_of(99, total(one.errors)) for one in seen]
    return all(p99 is not None and p99 <= goal_ms for p99 in found)


def steady(load: Load, client: Client, ended: str) -> str:
    """ "" for a steady run; else why it is not, in one sentence."""
    if len(load.steps) > 1 or load.steps[0].first != load.steps[0].last:
        return "not judged: the level changes by itself"
    slices = [one for one in client.slices if one.span < 1.5]
    if ended not in WHOLE:
        return "not judged: it was ended early"
    moved, before, last = _judged(slices)
    if not before or not moved:
        return moved
    why = _reasons(load, client, before, last)
    return f"{moved}: {why}" if why else moved


def stage_steady(load: Load, stage: Stage, slices: Sequence[Slice]) -> str:
    """As `steady`, for one step of a load; `slices` are of the whole run."""
    if stage.first != stage.last:
        return "not judged: the level changes by itself"
    if load.loop == "open" and stage.sent >= FEWEST and stage.done < IN_TIME * stage.sent:
        asked, got = stage.sent / stage.seconds, stage.throughput
        return f"more was due ({units.rate(asked)}/s) than was answered in time ({units.rate(got)}/s)"
    end = stage.begin + stage.seconds
    own = [one for one in slices if one.span < 1.5 and one.at - one.span >= stage.begin - 0.05 and one.at <= end + 0.05]
    return _judged(own)[0]


def _judged(slices: Sequence[Slice]) -> tuple[str, Sequence[Slice], Sequence[Slice]]:
    """Why they are not steady or cannot be judged, and the two thirds that were compared."""
    if len(slices) < SHORTEST:
        return f"not judged: {len(slices)} s are too short to tell, it takes {SHORTEST}", (), ()
    third = len(slices) // 3
    before, last = slices[-2 * third : -third], slices[-third:]
    few = min(sum(one.done for one in part) for part in (before, last))
    if few < FEWEST:
        return f"not judged: {few} answers in a third of it are too few to tell, it takes {FEWEST}", (), ()
    return _stalled(slices) or _moved(before, last), before, last


def _stalled(slices: Sequence[Slice]) -> str:
    """A second in which answers nearly stood still, or waited many times as long as in the others."""
    rate = median(one.done / one.span for one in slices)
    middle = median(one.p50 for one in slices if one.p50 is not None)
    for one in slices:
        if one.done / one.span < STALLED_RATE * rate or (one.p50 or 0) > STALLED_P50 * middle:
            there = f"{units.rate(one.done / one.span)} answers a second, p50 {units.millis(one.p50)} ms"
            return f"a stall before second {one.at:.0f}: {there}; else {units.rate(rate)}, {units.millis(middle)} ms"
    return ""


def _moved(before: Sequence[Slice], last: Sequence[Slice]) -> str:
    """What differs between two thirds."""
    rates = [sum(one.done for one in part) / sum(one.span for one in part) for part in (before, last)]
    if _apart(*rates):
        return f"answers a second went from {units.rate(rates[0])} to {units.rate(rates[1])}"
    middles = [median(one.p50 for one in part if one.p50 is not None) for part in (before, last)]
    if _apart(*middles):
        return f"p50 went from {units.millis(middles[0])} to {units.millis(middles[1])} ms"
    return ""


def _apart(first: float, second: float) -> bool:
    return abs(second - first) > STEADY_WITHIN * max(first, second)


def _reasons(load: Load, client: Client, before: Sequence[Slice], last: Sequence[Slice]) -> str:
    """The likely ones; "" where nothing tells."""
    found = []
    shed = sum(one.count for kind, one in client.errors.items() if kind in errors.SHED)
    if shed:
        found.append(f"the server turned {shed} requests away")
    due = client.done + total(client.errors)
    if load.loop == "open" and client.in_time < IN_TIME * due:
        asked, got = due / client.seconds, client.throughput
        found.append(f"more was due ({units.rate(asked)}/s) than was answered in time ({units.rate(got)}/s)")
    if limited := limit(load, client):
        found.append(limited)
    rises = (last[-1].p50 or 0) < (before[0].p50 or 0)
    if not found and rises:
        found.append("it still gets faster (clocks, caches); a longer --warmup would leave that out")
    return "; ".join(found)


def limit(load: Load, client: Client) -> str:
    """How the client itself may have set the figures; "" where it did not."""
    if client.cpu_share > BUSY:
        return f"the sender used {100 * client.cpu_share:.0f} % of its core: the figures may be its own limit"
    if load.loop == "open" and client.sent and client.late / client.sent > LATE_SHARE:
        share = 100 * client.late / client.sent
        return f"{share:.1f} % left more than 1 ms late (at most {units.millis(client.late_max_ms)} ms)"
    return ""


def gap(run: Run) -> str:
    """Why the client's mean is above the server's, in one sentence; "" where it cannot be told."""
    client, server = run.client, run.server
    if server is None or server.total_ms is None or client.latency.mean is None:
        return ""
    if server.requests - client.done > live.FEW:  # its mean is of other requests too
        return ""
    rest = client.latency.mean - server.total_ms
    late = client.late_mean_ms if run.load.loop == "open" else 0.0
    cpu = client.cpu_s / client.sent * 1e3 if client.sent else 0.0
    waited = f"{units.millis(late)} by leaving late, " if late > 0.005 else ""
    own = f"this client: {units.millis(cpu)} of CPU a request"
    return (
        f"mean {units.millis(client.latency.mean)} = server {units.millis(server.total_ms)} + {units.millis(rest)} "
        f"outside its times ({waited}HTTP read and written, loopback, {own})"
    )


def counts(run: Run) -> str:
    """How the server's count compares with ours, in one sentence; "" without the server's."""
    return "" if run.server is None else counted(run.client, run.server, run.client.wall_s)


def counted(client: Client | Share, server: Server, seconds: float) -> str:
    """As `counts`, of one model over so many seconds."""
    answered = client.done + sum(one.count for kind, one in client.errors.items() if kind == errors.WRONG)
    if more := others(client, server):
        rate = units.rate(more / (server.span or seconds or 1))
        return f"others asked it too: {rate}/s, so its means are not ours alone"
    words = f"{server.requests} counted by Triton, {answered} answered 200 here"
    if server.requests > answered:
        return f"{words}: {server.requests - answered} of our failed requests are successes to it"
    missed = total(client.errors) - server.failures - (answered - client.done)
    return f"{words}; {missed} failures are in no counter of it" if missed > 0 else words
