"""The plan of a load in the words of every plan: what was looked at, what is sent, who feels it, where it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import Sign, Snapshot
from console.core.plan import Check, Danger, Plan, Step, Target
from console.core.text import one_line

if TYPE_CHECKING:
    from console.loadgen.announce import Running
    from console.loadgen.measure import Asked
    from console.loadgen.measure import Plan as LoadPlan

ACTION = "load.test"
SAID = 0.05
"""Requests a second under which nothing is said to be served."""
BUSY = 0.8
"""Share of the instances' time from which a load is felt at once."""
OTHERS = 4
"""Models that are named."""


def shown_plan(
    plan: LoadPlan,
    number: int,
    host: str,
    snapshot: Snapshot,
    going: Sequence[Running],
    settling: Set[str],
    command: str,
    values: Mapping[str, str],
    wall: float,
) -> Plan:
    """For the dialog; nothing in it is carried out by `console.actions`. `settling`: models that were loaded from here
    just now, so that their rates are not others'."""
    mine, others = checks_of(plan, host, snapshot, settling)
    busy = [_loaded_by(one) for one in going]
    felt = any(check.sign == "warn" for check in (*mine, *others, *busy))
    danger: Danger = "caution" if felt else "safe"
    return Plan(
        action=ACTION,
        target=Target("model", plan.model),
        values=dict(values),
        title=f"Load {one_line(plan.names, 80)} for {lasting(plan.load.seconds)}",
        yes="Start",
        danger=danger,
        note="live traffic is there" if felt else "",
        checks=(*mine, *others, *busy),
        steps=steps_of(plan, number),
        effects=effects_of(plan),
        by_hand=(command,),
        undo="nothing of the box is changed; what was sent cannot be taken back",
        limit=plan.load.seconds + (plan.warm_up.seconds if plan.warm_up else 0.0) + plan.timeout_s,
        wall=wall,
        here=True,
    )


def lasting(seconds: float) -> str:
    """`30 s`, `2 m`."""
    return f"{seconds / 60:g} m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g} s"


def most_requests(plan: LoadPlan) -> int | None:
    """How many are sent within the measured part; None in a closed loop, where the server's pace tells."""
    load = plan.load
    if load.loop == "closed":
        return load.count or None
    return min(load.most, round(sum((step.first + step.last) / 2 * step.seconds for step in load.steps)))


def checks_of(plan: LoadPlan, host: str, snapshot: Snapshot, settling: Set[str]) -> tuple[list[Check], list[Check]]:
    """About the models, and about what else the box serves; a figure that is not known says so."""
    where = f"{one_line(plan.address.where, 80)}: this machine, {one_line(host, 60)}"
    made = []
    for one in plan.asked:
        made += _of_model(one.model, where, snapshot, one.model in settling)
    return made, _elsewhere(plan, snapshot, settling)


def _of_model(name: str, where: str, snapshot: Snapshot, settling: bool) -> list[Check]:
    rows = [row for row in snapshot.models if row.name == name and row.state == "READY"]
    windows = [row.flow.w10 for row in rows if row.flow is not None and row.flow.w10 is not None]
    model = one_line(name, 80)
    versions = ", ".join(row.version or "?" for row in rows)
    made = [Check("ok", f"{model} {versions} answers at {where}".replace("  ", " "))]
    if settling:
        made.append(Check("unknown", f"what others send {model} cannot be told for ten seconds after a load on it"))
    elif not windows:
        made.append(Check("unknown", f"what {model} serves others now is not known: its statistics were not read"))
    else:
        rate = sum(one.rate for one in windows)
        means = [one.request_ms for one in windows if one.request_ms is not None]
        mean = f", mean {units.millis(max(means))} ms" if means else ""
        told = f"others send {model} {units.rate(rate)}/s now{mean}: they wait longer while it runs"
        none = f"nobody else asks {model} (the last 10 s)"
        made.append(Check("warn", told) if rate > SAID else Check("ok", none))
    shares = [row.busy for row in rows if row.busy is not None and not settling]
    if shares:
        busy = max(shares)
        sign: Sign = "warn" if busy >= BUSY else "ok"
        made.append(Check(sign, f"the instances of {model} are busy {units.percent(busy)} % of the time"))
    return made


def _elsewhere(plan: LoadPlan, snapshot: Snapshot, settling: Set[str]) -> list[Check]:
    mine = settling | {one.model for one in plan.asked}
    found = [
        (row.flow.w10.rate, f"{one_line(row.name, 60)} {units.rate(row.flow.w10.rate)}/s")
        for row in snapshot.models
        if row.name not in mine and row.flow is not None and row.flow.w10 is not None and row.flow.w10.rate > SAID
    ]
    if not found:
        return []
    named = ", ".join(text for _, text in sorted(found, reverse=True)[:OTHERS])
    more = f" and {len(found) - OTHERS} more" if len(found) > OTHERS else ""
    return [Check("warn", f"other models serve beside it and share CPU and card: {named}{more}")]


def _loaded_by(one: Running) -> Check:
    told = f"{one_line(one.by, 40)} loads {one_line(one.model, 60)} now ({one_line(one.words, 80)})"
    return Check("warn", f"{told}: the figures are not this load's alone")


def steps_of(plan: LoadPlan, number: int) -> tuple[Step, ...]:
    """Warm up, measure, keep."""
    from console.clients.triton import model_path  # with what speaks HTTP: not before the first paint

    made = []
    if plan.warm_up is not None:
        level = plan.warm_up.words()
        made.append(Step("warm-up", f"warm-up for {plan.warm_up.seconds:g} s: {level}; left out of the figures"))
    most = most_requests(plan)
    count = f"about {most} requests" if most is not None else "each caller asks again when it is answered"
    what = "; ".join(_asked(one, len(plan.asked)) for one in plan.asked)
    calls = tuple(f"POST {model_path(one.model, one.version or None)}/infer" for one in plan.asked)
    measured = f"measure for {lasting(plan.load.seconds)}: {plan.load.words()}; {count}; {what}"
    made.append(Step("measure", measured, calls=calls))
    made.append(Step("keep", f"compare with Triton's own counters and keep it as run {number}"))
    return tuple(made)


def _asked(one: Asked, of: int) -> str:
    size = max(len(request.body) for request in one.inputs.requests)
    share = f"{one_line(one.model, 60)} gets {100 * one.share:.0f} % of them, " if of > 1 else ""
    return f"{share}inputs: {one.inputs.text}, {units.size(size)} a request"


def effects_of(plan: LoadPlan) -> tuple[str, ...]:
    """How answers are judged, and what ends it."""
    goal = [f"goal: p99 ≤ {plan.goal_ms:g} ms, a failed request counting as slower than all"] if plan.goal_ms else []
    limits = [
        f"stops itself when the mean of {one_line(name, 60) or 'a model'} that others ask goes above {most:g} ms"
        for name, most in plan.live_limits.items()
    ]
    return (
        *goal,
        f"answers: {plan.answers}",
        *limits,
        f"stops itself above {100 * plan.max_errors:g} % errors, and when the model is loaded anew",
        "x here and ctrl+x everywhere stop it at once; it ends with this console, and with its terminal",
    )
