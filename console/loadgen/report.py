"""A run as lines of text: the plan, progress, the result, the list of runs, two compared."""

from __future__ import annotations

from collections.abc import Sequence

from console.core import units
from console.core.sign import SIGNS
from console.core.text import one_line
from console.loadgen import cards, verdict
from console.loadgen.errors import total
from console.loadgen.measure import Plan
from console.loadgen.order import Progress
from console.loadgen.record import WHOLE, Client, Comparison, Foreign, Kept, Live, Model, Run, Server, Share

BAR = 40
MOST_LIVE = 6
"""Models told of."""


def plan_lines(plan: Plan) -> list[str]:
    """What will be sent."""
    load = plan.load
    until = f"{load.seconds:g} s" + (f", at most {load.count} requests" if load.count else "")
    warm = f" after {plan.warm_up.seconds:g} s of warm-up" if plan.warm_up else ""
    names = " + ".join(f"{one.model} ({one.version or 'any version'})" for one in plan.asked)
    lines = [f"load on {names} at {plan.address.where}", f"  {load.words()}, for {until}{warm}"]
    for one in plan.asked:
        size = max(len(sent.body) for sent in one.inputs.requests)
        if len(plan.asked) > 1:
            lines.append(f"  {one.model}: {100 * one.share:g} % of the requests")
        lines += [
            f"  inputs   {one.inputs.text} ({units.size(size)} a request)",
            f"  answers  {one.answers}; stops itself above {100 * plan.max_errors:g} % errors",
        ]
    lines += [f"  others   {words}" for words in _limits(plan)]
    if plan.goal_ms is not None:
        lines.append(f"  goal     p99 <= {plan.goal_ms:g} ms{' for each model' if len(plan.asked) > 1 else ''}")
    return lines


def _limits(plan: Plan) -> list[str]:
    found = [
        f"stops itself above a mean of {limit:g} ms of {model or 'any model that others ask'}"
        for model, limit in plan.live_limits.items()
    ]
    return [f"looked at for {plan.look_s:g} s before", *found] if plan.look_s else found


def progress_line(plan: Plan, at: Progress, live: Sequence[Live] = ()) -> str:
    """One line a second; `live` is what others ask."""
    when = f"warm-up {abs(at.at):4.1f} s left" if at.at <= 0 else f"{at.at:5.1f} of {plan.load.seconds:g} s"
    waiting = f"   {at.waiting} waiting for a connection" if at.waiting else ""
    late = f"   late {at.late}" if at.late else ""
    errors = f"   errors {at.errors}" if at.errors else ""
    theirs = [one.during for one in live if one.ours and one.during is not None and one.during.rate]
    mean = f", mean {units.millis(theirs[0].mean_ms)}" if len(theirs) == 1 else ""
    others = f"   others {units.rate(sum(one.rate for one in theirs))}/s{mean}" if theirs else ""
    return (
        f"  {when}   {units.rate(at.rate)}/s   p50 {units.millis(at.p50)}   p99 {units.millis(at.p99)} ms   "
        f"in flight {at.in_flight}{late}{waiting}{errors}{others}"
    )


def result_lines(run: Run) -> list[str]:
    """All that a run found."""
    client, at = run.client, run.client.latency
    since = "intended sending time" if run.load.loop == "open" else "sending (a closed loop hides stalls)"
    figures = (at.p50, at.p90, at.p95, at.p99, at.p99_9, at.max)
    lines = [
        f"run {run.id}: {_names(run)}, {run.load.words()}, {client.seconds:.1f} s",
        f"  done         {units.rate(client.throughput)}/s   sent {client.sent}, good {client.done}, "
        f"errors {total(client.errors)}",
        "  latency ms       p50     p90     p95     p99   p99.9     max    mean",
        "            " + "".join(f"{units.millis(value):>8}" for value in (*figures, at.mean)),
        f"               from {since}",
    ]
    lines += [
        f"  error        {one.count} x {kind}{': ' + one_line(one.text, 160) if one.text else ''}"
        for kind, one in sorted(client.errors.items(), key=lambda item: -item[1].count)
    ]
    lines += _stage_lines(run)
    for model, seen in zip(run.models, client.shares, strict=False):
        lines += _model_lines(run, model, seen)
    if not run.models:
        lines += _server_lines(run.server, run.server_unknown, client, client.wall_s)
    if gap := verdict.gap(run):
        lines.append(f"  difference   {gap}")
    limited = verdict.limit(run.load, client)
    lines.append(
        f"  client       {SIGNS['warn'] + ' ' + limited if limited else SIGNS['ok'] + ' not the limit'}: "
        f"{100 * client.cpu_share:.0f} % of one core, {client.connections} connections"
    )
    lines += [f"  live users   {words}" for words in live_words(run)]
    lines += [f"  GPU {card.index:<2}       {cards.words(card)}" for card in run.cards]
    if not run.cards:
        lines.append(f"  GPU          {SIGNS['unknown']} {run.cards_unknown}")
    lines.append(f"  steady       {_steady(run.steady)}")
    if run.met is not None:
        lines.append(f"  goal         {_goal(run)}")
    lines += [f"  note         {note}" for note in run.notes if note != limited]
    if run.ended not in WHOLE:
        lines.append(f"  ended        {SIGNS['warn']} {run.ended}")
    if run.not_valid:
        lines.append(f"  not valid    {SIGNS['fail']} {run.not_valid}")
    return lines


def _steady(why: str) -> str:
    unjudged = why.startswith("not judged")
    return f"{SIGNS['ok' if not why else 'unknown' if unjudged else 'warn']} {why or 'yes'}"


_STAGES = (-12, -8, -8, -8, -7, -7, 40)


def _stage_lines(run: Run) -> list[str]:
    """A line for each step of the load, and each part of its ramps."""
    if not run.client.stages:
        return []
    level = "at once" if run.load.loop == "closed" else "asked/s"
    lines = [f"  {_row((level, 'SENT/s', 'DONE/s', 'p50', 'p99', 'ERRORS', 'STEADY'), _STAGES)}"]
    for one in run.client.stages:
        sent, steady = one.sent / one.seconds, _steady(one.steady) if one.first == one.last else units.NONE
        cells = (one.level(), units.rate(sent), units.rate(one.throughput), units.millis(one.latency.p50),
                 units.millis(one.latency.p99), str(one.errors), steady)  # fmt: skip
        lines.append(f"  {_row(cells, _STAGES)}")
    return lines


def live_words(run: Run) -> list[str]:
    """What others asked before and meanwhile, a line for each model."""
    lines = [_live(one) for one in run.live[:MOST_LIVE]]
    if len(run.live) > MOST_LIVE:
        lines.append(f"and {len(run.live) - MOST_LIVE} more models that others ask")
    if run.live_unknown:
        lines.append(f"{SIGNS['unknown']} of other models nothing is known: {run.live_unknown}")
    return lines or ["none seen"]


def _live(one: Live) -> str:
    before, during = one.before, one.during
    means = [units.millis(t.mean_ms) if t is not None else "?" for t in (before, during)]
    rates = [f"{units.rate(t.rate)}" if t is not None else "?" for t in (before, during)]
    also = " (ours among them)" if one.ours else ""
    return f"{one_line(one.model, 60)}: mean {means[0]} → {means[1]} ms{also}, others {rates[0]} → {rates[1]}/s"


def _goal_sign(run: Run) -> str:
    return SIGNS["none" if run.met is None else "ok" if run.met else "fail"]


def _goal(run: Run) -> str:
    failed = total(run.client.errors)
    seen = run.client.shares or (run.client,)
    p99 = " and ".join(units.millis(one.latency.p99) for one in seen)
    beside = f", with {failed} failed requests counted as slower than all" if failed else ""
    return f"{_goal_sign(run)} p99 {p99} {'<=' if run.met else 'against'} {run.goal_ms:g} ms{beside}"


def _names(run: Run) -> str:
    return run.names if run.models else f"{run.model} {run.version or 'any version'}"


def _model_lines(run: Run, model: Model, seen: Share) -> list[str]:
    """One of several models."""
    at, seconds = seen.latency, run.client.seconds
    rate = units.rate(seen.in_time / seconds if seconds else None)
    share = f"{100 * seen.sent / run.client.sent:.0f} % of the requests, " if run.client.sent else ""
    figures = ", ".join(f"{name} {units.millis(v)}" for name, v in (("p50", at.p50), ("p90", at.p90), ("p99", at.p99)))
    return [
        f"  {one_line(model.name, 60)}: {share}done {rate}/s, {figures}, max {units.millis(at.max)} ms, "
        f"sent {seen.sent}, good {seen.done}, errors {total(seen.errors)}",
        *_server_lines(model.server, model.server_unknown, seen, run.client.wall_s),
    ]


def _server_lines(server: Server | None, unknown: str, seen: Client | Share, seconds: float) -> list[str]:
    if server is None:
        return [f"  server       {SIGNS['unknown']} {unknown}"]
    parts = [
        ("wait", server.queue_ms),
        ("input", server.input_ms),
        ("infer", server.infer_ms),
        ("output", server.output_ms),
    ]
    split = " + ".join(f"{name} {units.millis(value)}" for name, value in parts)
    batch = "" if server.batch is None else f"; {server.executions} executions, mean batch {server.batch:.2f}"
    return [
        f"  server       mean {units.millis(server.total_ms)} ms = {split}{batch}",
        f"  counts       {verdict.counted(seen, server, seconds)}",
    ]


def _row(words: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        f"{word:<{width}}" if width > 0 else f"{word:>{-width}}" for word, width in zip(words, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


_LIST = (-4, 19, 18, 28, -8, -7, -7, -7, 4, 30)


def foreign_lines(run: Foreign) -> list[str]:
    """All that another program told."""
    figures = (run.p50_ms, run.p90_ms, run.p95_ms, run.p99_ms, run.mean_ms)
    parts = (("wait", run.queue_ms), ("input", run.input_ms), ("infer", run.infer_ms), ("output", run.output_ms))
    sent = "" if run.requests is None else f"   requests {run.requests}"
    name = f"{run.model} {run.version or 'any version'}" if run.model else "a model that it does not name"
    return [
        f"run {run.id}: {name}, {run.load()}, by {run.engine}{f' ({run.file})' if run.file else ''}",
        f"  done         {units.rate(run.throughput)}/s, taken as {run.batch} items a request{sent}",
        "  latency ms       p50     p90     p95     p99    mean",
        "            " + "".join(f"{units.millis(value):>8}" for value in figures),
        "               from sending (a closed loop hides stalls)",
        f"  server       {' + '.join(f'{name} {units.millis(value)}' for name, value in parts)}",
        f"  {SIGNS['unknown']} it does not tell: {', '.join(run.unknown)}",
    ]


def list_lines(runs: Sequence[Kept], *, utc: bool) -> list[str]:
    """Kept runs, oldest first."""
    if not runs:
        return ["no run is kept yet: gpuconsole loadtest MODEL makes one"]
    lines = [_row(("RUN", "STARTED", "MODEL", "LOAD", "DONE/s", "p50", "p99", "ERRORS", "GOAL", "NOTE"), _LIST)]
    for run in runs:
        if isinstance(run, Foreign):
            told = (str(run.id), units.moment(run.wall, utc=utc), f"{run.model} {run.version}".strip() or units.NONE,
                    run.load(), units.rate(run.throughput), units.millis(run.p50_ms), units.millis(run.p99_ms),
                    SIGNS["unknown"], SIGNS["none"], run.engine)  # fmt: skip
            lines.append(_row(told, _LIST))
            continue
        at = run.client.latency
        note = f"not valid: {run.not_valid}" if run.not_valid else run.ended if run.ended not in WHOLE else ""
        cells = (str(run.id), units.moment(run.wall, utc=utc), run.names, run.load.words(),
                 units.rate(run.client.throughput), units.millis(at.p50), units.millis(at.p99),
                 str(total(run.client.errors)), _goal_sign(run), one_line(note, 60))  # fmt: skip
        lines.append(_row(cells, _LIST))
    return lines


def compare_lines(first: Kept, second: Kept, found: Comparison) -> list[str]:
    """Two runs side by side: figures, what differs, the distributions."""
    widths = (max(12, *(len(row.name) for row in found.rows)), -10, -10, -8)
    lines = [_row(("", f"run {first.id}", f"run {second.id}", "change"), widths)]
    for row in found.rows:
        change = "" if row.change is None else f"{100 * row.change:+.1f} %"
        lines.append(_row((row.name, _figure(row.name, row.first), _figure(row.name, row.second), change), widths))
    lines += [f"{name}: {one or units.NONE} | {two or units.NONE}" for name, (one, two) in found.differs.items()]
    own = [run for run in (first, second) if isinstance(run, Run)]
    lines += [f"run {run.id} is not valid: {run.not_valid}" for run in own if run.not_valid]
    if not found.bounds_ms:
        return [*lines, f"{SIGNS['unknown']} no distribution: one of them is another program's, which tells none"]
    lines.append("distribution, share of the latencies")
    one, two = found.shares
    lower = 0.0
    for at, (a, b) in enumerate(zip(one, two, strict=True)):
        last = at == len(found.bounds_ms)
        name = f"{lower:g} ms and more" if last else f"{lower:g}-{found.bounds_ms[at]:g} ms"
        lines.append(f"{name:<18} {100 * a:5.1f} %  {'█' * round(BAR * a)}")
        lines.append(f"{'':<18} {100 * b:5.1f} %  {'▓' * round(BAR * b)}")
        lower = lower if last else found.bounds_ms[at]
    return lines


def _figure(name: str, value: float | None) -> str:
    if name.endswith(("errors", "%", "MHz", "W")):
        return units.whole(value)
    return units.rate(value) if name.endswith("done/s") else units.millis(value)
