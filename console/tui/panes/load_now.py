"""The figures of the load that runs, or of the run under the cursor (design 1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import Sign
from console.core.text import one_line
from console.tui.loads import Current, Told, failed, is_whole, minutes
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import nice_top, trend

if TYPE_CHECKING:
    from console.loadgen.record import Foreign, Live, Run

LABEL = 12
LEAST, MOST = 7, 10
"""Cells of a column of figures."""
WIDE = 80
"""Cells from which the heads are long."""
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9", "max")
DROPPED = ("p95", "p90")
"""Left out first where there is no room."""
LATE = "LATE > 1 ms"
MOST_LIVE = 4
"""Models that others ask which are told."""


class LoadNow(Pane):
    """ASKED, SENT, DONE, LATE, ERRORS, latency, goal, steady, client, p99 of each second."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.current: Current | None = None
        self.run: Run | None = None
        """Shown while none runs."""
        self.foreign: Foreign | None = None
        """Shown in its place: what another program measured."""
        self.told = ""
        """What stands here without either."""
        self.means: Told | None = None
        """What the run's figures mean; None = not yet known."""

    def title(self, view: View) -> Line:
        if self.current is not None:
            return (("Now", "title"), (f"   {self.current.phase()}", "key"))
        if self.foreign is not None:
            return ((f"Run {self.foreign.id}", "title"), (f"   by {one_line(self.foreign.engine, 60)}", "dim"))
        if self.run is not None:
            return ((f"Run {self.run.id or '(not kept)'}", "title"), (f"   {_ending(self.run)}", "dim"))
        return (("Now", "title"),)

    def lines(self, view: View) -> list[Row]:
        if self.current is not None:
            return running(self.current, view.width)
        if self.foreign is not None:
            return foreign(self.foreign, view.width)
        if self.run is not None:
            return ended(self.run, view.width, self.means or Told())
        return [Row(((line, "dim"),)) for line in wrapped(self.told, view.width, most=4)]

    def changes(self) -> object:
        now = self.current
        run = None if now is None else (len(now.samples), now.stopping, now.number)
        return (run, self.run, self.foreign, self.told, self.means)


def _ending(run: Run) -> str:
    if run.not_valid:
        return "not valid"
    return "ended" if is_whole(run) else one_line(run.ended, 60)


# ------------------------------------------------------------------------------------------------------------- running


def running(now: Current, cells: int) -> list[Row]:
    """What the sender told in its last second; what only the end can tell is not guessed."""
    last = now.last
    load = now.plan.load
    if last is None:
        told = f"warm-up: {abs(now.samples[-1].at):.0f} s left" if now.samples else "the sender opens its connections"
        return [Row(((told, ""),)), *_live(now.live, cells)]
    before = now.samples[-2] if len(now.samples) > 1 else None
    span = last.at - before.at if before is not None and before.at > 0 else last.at
    sent = (last.sent - (before.sent if before is not None and before.at > 0 else 0)) / span if span > 0 else None
    asked = _level(now, last.at)
    closed = load.loop == "closed"
    figures = [
        ("AT ONCE" if closed else "ASKED", units.whole(asked) if closed else units.rate(asked)),
        ("SENT", units.rate(sent)),
        ("DONE", units.rate(last.rate)),
        ("LATE" if cells < WIDE else LATE, units.NONE if closed else _share(last.late, last.sent)),
        ("ERRORS", str(last.errors)),
    ]
    made = _table("req/s", figures, cells)
    made += _table("latency ms", [("p50", units.millis(last.p50)), ("p99", units.millis(last.p99))], cells,
                   "of the last second")  # fmt: skip
    if now.plan.goal_ms is not None:
        made.append(_told("goal", f"p99 ≤ {now.plan.goal_ms:g} ms, judged at the end"))
    made += _live(now.live, cells)
    made += _chart([one.p99 for one in now.samples if one.at > 0], cells)
    waiting = f", waiting for a connection {last.waiting}" if last.waiting else ""
    counts = f"sent {last.sent}, done {last.done}, in flight {last.in_flight}{waiting}"
    made += _text("in all", counts, cells)
    return made


def _level(now: Current, at: float) -> float:
    """What is asked for at that time: requests a second, or in flight."""
    for step in now.plan.load.steps:
        if at <= step.seconds:
            return step.first + (step.last - step.first) * at / step.seconds
        at -= step.seconds
    return now.plan.load.steps[-1].last


def _live(lives: Sequence[Live], cells: int, unknown: str = "") -> list[Row]:
    """What others ask; of a model that this load asks too the mean is of all, since Triton tells no client apart."""
    made: list[Row] = []
    for one in lives[:MOST_LIVE]:
        before, during = one.before, one.during
        means = " → ".join(units.millis(part.mean_ms) if part is not None else "?" for part in (before, during))
        rates = " → ".join(units.rate(part.rate) if part is not None else "?" for part in (before, during))
        ours = ", ours too" if one.ours else ""
        told = f"{one_line(one.model, 60)}: mean {means} ms{ours}; others {rates}/s"
        made += _text("live users" if not made else "", told, cells)
    if len(lives) > MOST_LIVE:
        made += _text("", f"and {len(lives) - MOST_LIVE} more models", cells)
    if unknown:
        made += _judged("live users" if not made else "", "unknown", unknown, cells)
    return made or _text("live users", "none seen", cells)


def _models(run: Run, cells: int) -> list[Row]:
    """A line for each model of a load that asks several."""
    heads = ("SHARE", "DONE/s", "p50", "p99", "ERRORS", "SERVER")
    sizes = (7, 8, 8, 8, 8, 8)
    room = max(8, cells - sum(sizes))
    made = [Row(((left("model", room) + "".join(map(right, heads, sizes)), "label"),))]
    for model, seen in zip(run.models, run.client.shares, strict=False):
        mean = units.NONE if model.server is None else units.millis(model.server.total_ms)
        done = seen.in_time / run.client.seconds if run.client.seconds else None
        texts = (f"{100 * model.share:.0f} %", units.rate(done), units.millis(seen.latency.p50),
                 units.millis(seen.latency.p99), str(sum(one.count for one in seen.errors.values())), mean)  # fmt: skip
        name = left(one_line(f"{model.name} {model.version}", 80), room)
        made.append(Row(((name, ""), ("".join(map(right, texts, sizes)), "value"))))
    return made


def _stages(run: Run, cells: int) -> list[Row]:
    """A line for each level of a load that has several."""
    stages = run.client.stages
    if not stages:
        return []
    heads = ("AT ONCE" if run.load.loop == "closed" else "ASKED", "DONE/s", "p50", "p99", "ERRORS")
    sizes = (11, 8, 8, 8, 8)
    made = [Row((("levels", "label"), ("".join(map(right, heads, sizes)), "label")))]
    for one in stages:
        texts = (one.level(), units.rate(one.throughput), units.millis(one.latency.p50),
                 units.millis(one.latency.p99), str(one.errors))  # fmt: skip
        sure = "" if not one.steady or one.steady.startswith("not judged") else "  not steady"
        made.append(Row((("      ", ""), ("".join(map(right, texts, sizes)), "value"), (sure, "warn"))))
    return made if cells > sum(sizes) + 6 else []


# --------------------------------------------------------------------------------------------------------------- ended


def ended(run: Run, cells: int, means: Told) -> list[Row]:
    """All that a run found, as it is kept."""
    client = run.client
    closed = run.load.loop == "closed"
    wrong = client.errors.get("wrong content")
    seconds = client.seconds or 1.0
    asked = run.load.peak if closed else sum((step.first + step.last) / 2 * step.seconds for step in run.load.steps)
    figures = [
        ("AT ONCE" if closed else "ASKED", units.whole(asked) if closed else units.rate(asked / run.load.seconds)),
        ("SENT", units.rate(client.sent / seconds)),
        ("DONE", units.rate(client.throughput)),
        ("LATE" if cells < WIDE else LATE, units.NONE if closed else _share(client.late, client.sent)),
        ("ERRORS", str(failed(run) - (wrong.count if wrong else 0))),
        ("WRONG" if cells < WIDE else "WRONG ANSWERS", str(wrong.count if wrong else 0)),
    ]
    made = _table("req/s", figures, cells)
    at = client.latency
    values = (at.p50, at.p90, at.p95, at.p99, at.p99_9, at.max)
    named = dict(zip(PERCENTILES, map(units.millis, values), strict=True))
    for name in DROPPED:
        if LABEL + LEAST * len(named) > cells:
            del named[name]
    since = "from sending; a closed loop hides stalls" if closed else "from the intended sending time"
    made += _table("latency ms", list(named.items()), cells, since)
    if run.not_valid:
        made += _judged("not valid", "warn", run.not_valid, cells)
    server = run.server
    if run.models:
        made += _models(run, cells)
    elif server is not None and server.total_ms is not None:
        parts = f"wait {units.millis(server.queue_ms)} + input {units.millis(server.input_ms)} + infer "
        parts += f"{units.millis(server.infer_ms)} + output {units.millis(server.output_ms)}"
        batch = f", batch {server.batch:.1f}" if server.batch is not None else ""
        made += _text("server", f"mean {units.millis(server.total_ms)} ms: {parts}{batch}", cells)
    else:
        made += _judged("server", "unknown", run.server_unknown or "not known", cells)
    if means.gap:
        made += _text("difference", means.gap, cells)
    if run.met is not None and run.goal_ms is not None:
        text = f"p99 {units.millis(at.p99)} {'≤' if run.met else 'against'} {run.goal_ms:g} ms"
        beside = f", {failed(run)} failed ones count as slower" if failed(run) else ""
        made += _judged("goal", "ok" if run.met else "fail", text + beside, cells)
    unjudged = run.steady.startswith("not judged")
    steady: Sign = "ok" if not run.steady else "unknown" if unjudged else "warn"
    made += _judged("steady", steady, run.steady or "from its beginning to its end", cells)
    share = f"{100 * client.cpu_share:.0f} % of one core, {client.connections} connections"
    limit = means.limit
    told = "not the limit" if not limit else "see steady" if limit in run.steady else limit
    made += _judged("client", "warn" if limit else "ok", f"{share}; {told}", cells)
    made += _live(run.live, cells, run.live_unknown)
    made += _chart([one.p99 for one in client.slices], cells)
    made += _errors(run, cells)
    made += _stages(run, cells)
    for text in means.cards or (f"not known: {run.cards_unknown}",):
        made += _text("card", text, cells)
    if means.counts:
        made += _text("counts", means.counts, cells)
    made += [row for note in run.notes if note != limit for row in _judged("note", "note", note, cells)]
    return made


def foreign(one: Foreign, cells: int) -> list[Row]:
    """All that another program told."""
    figures = [("AT ONCE", str(one.callers)), ("DONE", units.rate(one.throughput))]
    figures += [("ITEMS", units.rate(one.items))] if one.batch > 1 else []
    made = _table("req/s", figures, cells)
    values = (one.p50_ms, one.p90_ms, one.p95_ms, one.p99_ms, one.mean_ms)
    named = list(zip(("p50", "p90", "p95", "p99", "mean"), map(units.millis, values), strict=True))
    made += _table("latency ms", named, cells, "from sending; a closed loop hides stalls")
    parts = (("wait", one.queue_ms), ("input", one.input_ms), ("infer", one.infer_ms), ("output", one.output_ms))
    made += _text("server", " + ".join(f"{name} {units.millis(value)}" for name, value in parts), cells)
    if one.requests is not None:
        made += _text("in all", f"{one.requests} requests", cells)
    if one.file:
        made += _text("read of", one.file, cells)
    return made + _judged("not told", "unknown", ", ".join(one.unknown) or "nothing is left out", cells)


def _errors(run: Run, cells: int) -> list[Row]:
    client = run.client
    if not client.errors:
        told = f"none; sent {client.sent}, done {client.done} in {minutes(client.wall_s)}"
        return _text("errors", told, cells)
    made: list[Row] = []
    for kind, one in sorted(client.errors.items(), key=lambda item: -item[1].count):
        said = f": {one_line(one.text, 200)}" if one.text else ""
        made += _judged("errors" if not made else "", "fail", f"{one.count} {one_line(kind, 60)}{said}", cells)
    return made


# -------------------------------------------------------------------------------------------------------------- pieces


def _table(label: str, figures: Sequence[tuple[str, str]], cells: int, beside: str = "") -> list[Row]:
    """Heads, then figures under them."""
    column = max(LEAST, min(MOST, (cells - LABEL) // max(1, len(figures))))
    sizes = [max(column, len(head) + 2) for head, _ in figures]
    heads = "".join(right(head, size) for (head, _), size in zip(figures, sizes, strict=True))
    values = "".join(right(value, size) for (_, value), size in zip(figures, sizes, strict=True))
    rest = cells - LABEL - sum(sizes)
    note = (f"   {beside}", "dim") if beside and len(beside) + 3 <= rest else ("", "")
    made = [Row(((" " * LABEL + heads, "label"),)), Row(((left(label, LABEL), "label"), (values, "value"), note))]
    if beside and not note[0]:
        made.append(Row(((" " * LABEL + beside, "dim"),)))
    return made


def _text(label: str, text: str, cells: int) -> list[Row]:
    lines = wrapped(one_line(text, 1000), cells - LABEL, most=3)
    return [Row(((left(label if not at else "", LABEL), "label"), (line, ""))) for at, line in enumerate(lines)]


def _told(label: str, text: str) -> Row:
    return Row(((left(label, LABEL), "label"), (text, "")))


def _judged(label: str, value: Sign, text: str, cells: int) -> list[Row]:
    """A sentence with its sign."""
    made: list[Row] = []
    for at, line in enumerate(wrapped(one_line(text, 1000), cells - LABEL - 2, most=3)):
        mark = sign(value) if not at else (" ", "")
        made.append(Row(((left(label if not at else "", LABEL), "label"), mark, (f" {line}", ""))))
    return made


def _chart(values: Sequence[float | None], cells: int) -> list[Row]:
    """p99 of each second, the newest at the right; a second without answers is a gap."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    room = cells - LABEL - 12
    if room < 8:
        return []
    top = nice_top(max(known[-room:] if len(values) > room else known))
    drawn = trend(values, 0.0, top, min(room, len(values)))
    return [Row(((left("p99, 1 s", LABEL), "label"), (drawn, "value"), (f"  0–{top:g} ms", "dim")))]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else units.NONE
