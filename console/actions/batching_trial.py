"""batching.trial: a batching change for a while, that goes back by itself; batching.accept: say keep to it.

Applied as batching.set applies it, then watched by the detached runner, so that neither a lost terminal
nor a closed console leaves it live. It goes back when the goal is broken long enough, when requests fail, when the time
is over, or when it is stopped. Where somebody else changed the model meanwhile it is left as it is, and that is said.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from math import isfinite

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from console.actions import batching_apply as steps
from console.actions import journal as journals
from console.actions.base import Run
from console.actions.batching import BatchingSet, figures_of, records, settings, window_lines
from console.actions.batching_apply import Gauge, Measured
from console.actions.batching_look import BatchingAction, look, settings_digest, state_of
from console.actions.batching_records import Record
from console.actions.batching_revert import go_back
from console.actions.batching_tail import SUMMARY, SUMMARY_S, Tail, TailReader, tail_of
from console.actions.box import Box
from console.actions.who import operator
from console.core import duration, units
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line
from console.planning.batching_change import PREDICTED
from console.planning.goal import Goal, GoalWatch, Seen

FOR, BROKEN_FOR = "5m", "10s"
LEAST_FOR, MOST_FOR = 5.0, 86_400.0
LOOK = 0.5
"""Seconds between two looks at the model."""
NOTE_EVERY = 5.0
BEFORE_SHARE, MOST_BEFORE = 0.1, 30.0
"""The window before the change is this share of the trial, and no longer than this many seconds."""
ENDS_WITHIN = 20.0
"""Seconds in which a trial that was said keep to ends."""
_TRYING, _GOING_BACK, _KEPT = "trying", "going back", "kept"


class BatchingTrial(BatchingSet):
    """Change how a model batches for a while: it goes back by itself when a goal is broken, or nobody says keep."""

    NAME = "batching.trial"
    FIELDS = (
        *BatchingSet.FIELDS,
        Field("for", f"how long it is tried, as in 5m; {FOR} where not given"),
        Field("slo_mean_ms", "the mean that must hold, by the server's statistics"),
        Field("slo_p99_ms", "the 99th percentile that must hold; wants a server that tells it"),
        Field("broken_for", f"how long a goal may be broken, as in 10s; {BROKEN_FOR} where not given"),
        Field("max_errors", "failed requests that are borne; 0 where not given", "int", low=0, high=1_000_000),
    )
    PHASES = ("measure", "load", "verify", "try", "file")

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """As that of batching.set, with the way back and what starts it. Refused for a p99 goal that nothing tells."""
        goal, length = goal_of(values), length_of(values)
        plan = super().plan(box, target, values)
        refused = plan.refused
        checks = plan.checks
        if goal.p99_ms is not None and not refused:
            tail = tail_of(box, target, look(box, target).versions)
            refused = _no_tail(target, tail, goal, length)
            if not refused:
                checks = (*checks, Check("ok", f"p99 is told by the server's {tail.source} of its last minute"))
        load, back = plan.steps[1], "what ran before is loaded again"
        return replace(
            plan,
            action=self.NAME,
            values={
                **settings(plan.values),
                "for": f"{length:g}s",
                "broken_for": f"{goal.broken_for:g}s",
                "max_errors": str(goal.max_errors),
                **{
                    name: values[name]
                    for name in ("slo_mean_ms", "slo_p99_ms", PREDICTED)
                    if values.get(name, "").strip()
                },
            },
            title=plan.title.replace(" on ", f" for {_length(length)} on ", 1),
            yes="Try",
            checks=checks,
            steps=(
                *plan.steps[:3],
                Step("try", f"watch it for {_length(length)}: {goal.text}", back),
                Step("file", "back to what ran before, unless somebody says keep", "it is said", load.calls),
            ),
            effects=(
                *plan.effects[:-1],
                f"it goes back by itself after {_length(length)}, when a goal is broken for {_length(goal.broken_for)}"
                + (", or when more requests fail" if goal.max_errors else ", or when a request fails")
                + ", also when this terminal is lost",
                f"batching.accept {target} (V on Tune) keeps it live; what somebody else changes meanwhile stays",
                "not seen: what Triton does not count as failed (queue full, bad input, error answers of a model)",
            ),
            undo="stopping it, or letting its time pass, takes it back",
            limit=plan.limit + length + box.settings.actions.load_timeout,
            refused=refused,
        )

    def _window(self, box: Box, values: Mapping[str, str]) -> float:
        """Longer than for a change alone, since the trial that it is held against is."""
        return max(steps.window_of(box), min(MOST_BEFORE, BEFORE_SHARE * length_of(values)))

    # ----------------------------------------------------------------------------------------------------------- run

    def _watch(self, box: Box, run: Run, plan: Plan, record: Record, before: Measured | None) -> Outcome:
        """It is live and all is READY: the trial begins."""
        record = replace(record, trial=True)
        records(box, record.model).change(record.id, lambda _: record)
        run.keep(stage=_TRYING, tried=str(time.time()))
        return self._try(box, run, plan, record, before)

    def _try(self, box: Box, run: Run, plan: Plan, record: Record, before: Measured | None) -> Outcome:
        trial = _Trial(box, run, plan, record, before)
        try:
            with run.phase("try"):
                end = trial.end()
        finally:
            trial.close()
        after = trial.gauge.measured()
        told = _Told(before, after, units.uptime(trial.passed))
        if end.left_alone:
            records(box, record.model).end_trial(record.id)
            text = (
                f"{record.model}: {record.text} was tried for {told.passed}, but {end.left_alone}: it is left as it is"
            )
            return Outcome("failed", text, told.lines, figures=figures_of(record, before, after))
        if end.kept_by:
            return self._keep(box, run, record, told, end.kept_by)
        return self._go_back(box, run, record, told, end.why)

    def _keep(self, box: Box, run: Run, record: Record, told: _Told, who: str) -> Outcome:
        run.keep(stage=_KEPT)
        records(box, record.model).end_trial(record.id)
        return Outcome(
            "done",
            f"{record.model}: {record.text} stays live after {told.passed} on trial, said by {one_line(who, 80)}; "
            f"{steps.verdict(told.before, told.after)}",
            (*told.lines, f"live only until batching.keep {record.model}"),
            UndoSpec("batching.revert", record.model, {"record": record.id}, f"{record.model} back from {record.text}"),
            state_of(look(box, record.model)),
            figures=figures_of(record, told.before, told.after),
        )

    def _go_back(self, box: Box, run: Run, record: Record, told: _Told, why: str) -> Outcome:
        """The file or an override, as batching.revert does it."""
        run.keep(stage=_GOING_BACK, why=why)
        run.note(f"{why}: back to what ran before")
        try:
            back = go_back(box, run, record)
        except Refused as error:  # no version is READY: then there is nothing to look at, and what ran before is loaded
            run.note(str(error))
            back = self._back(box, run, record, why)
        records(box, record.model).end_trial(record.id)
        figures = figures_of(record, told.before, told.after)
        tried = f"{record.model}: {record.text} was tried for {told.passed}, then {why}"
        if back.word == "failed":
            return Outcome("failed", f"{tried}; {back.text}", (*told.lines, *back.lines), still_going=back.still_going)
        took = back.figures.get("load_s")
        seconds = "" if took is None else f" in {took:.1f} s"
        verdict = steps.verdict(told.before, told.after)
        return Outcome("undone", f"{tried}: back to what ran before{seconds}; {verdict}", told.lines, figures=figures)

    # --------------------------------------------------------------------------------------------------- interrupted

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """Up to `verify` as batching.set. try: it is live and nobody watches it. file: it may be back or not."""
        kept = {name: value for line in journal for name, value in line.data.items() if line.state == "kept"}
        stage = kept.get("stage", "")
        name = plan.target.name
        if not stage:
            now, finish, undo = super().interrupted(box, plan, journal)
            return now, finish and f"{finish}, and go on with the trial", undo
        record = records(box, name).get(kept.get("record", "-"))
        if record is None or _is_other(box, record):
            return f"{name} is no longer served as the trial left it, or what ran before is no longer noted", "", ""
        if stage == _KEPT:
            return f"the trial's setting of {name} was said keep to and is live", "note that it is kept", ""
        if stage == _GOING_BACK:
            return f"{name} was going back to what ran before, and may be back or not", "go on until it is back", ""
        left = length_of(plan.values) - (time.time() - float(kept["tried"]))
        now = f"the trial's setting of {name} is live, and nobody watches it"
        if left <= 0:
            return f"{now}; its time is over", "go back to what ran before", "go back to what ran before"
        return f"{now}; {units.age(left)} of its time are left", "go on with the trial", "go back to what ran before"

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """From where it stopped; the time goes on from where the trial began."""
        kept = run.kept()
        if not kept.get("stage"):
            return super().finish(box, plan, run)
        record = self._kept_record(box, plan, kept)
        before = _before(kept)
        told = _Told(before, None, "a while")
        if kept["stage"] == _KEPT:
            return self._keep(box, run, record, told, "its operator")
        if kept["stage"] == _GOING_BACK:
            return self._go_back(box, run, record, told, kept.get("why", "interrupted"))
        return self._try(box, run, plan, record, before)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Back to what ran before."""
        kept = run.kept()
        if not kept.get("stage"):
            return super().undo(box, plan, run)
        record = self._kept_record(box, plan, kept)
        return self._go_back(box, run, record, _Told(_before(kept), None, "a while"), "interrupted")


class _Told(Struct, frozen=True):
    """What the outcome tells of a trial."""

    before: Measured | None
    after: Measured | None
    passed: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Both windows."""
        return window_lines(self.before, self.after)


class _End(Struct, frozen=True):
    """Why a trial is over: one of them."""

    why: str = ""
    """It goes back."""
    kept_by: str = ""
    left_alone: str = ""


class _Trial:
    """Looks again and again until the trial is over."""

    def __init__(self, box: Box, run: Run, plan: Plan, record: Record, before: Measured | None) -> None:
        self.goal, self.length = goal_of(plan.values), length_of(plan.values)
        self._box, self._run, self._record = box, run, record
        self._watch = GoalWatch(self.goal, before.rate if before is not None else 0.0)
        self._versions = look(box, record.model).versions
        self.gauge = Gauge(box, record.model, self._versions)
        wants_tail = self.goal.p99_ms is not None
        self._tail = TailReader(box, record.model, self._versions) if wants_tail else None
        self._began = time.monotonic() - max(0.0, time.time() - float(run.kept()["tried"]))
        self._noted = 0.0

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()

    @property
    def passed(self) -> float:
        """Seconds since it began, a killed runner's part included."""
        return time.monotonic() - self._began

    def end(self) -> _End:
        """When it is over."""
        while True:
            if self.passed >= self.length:
                return self._over(_End(why=f"nobody said keep within {_length(self.length)}"))
            if self._run.wait(max(0.05, min(LOOK, self.length - self.passed))):
                return _End(why="it was stopped by the operator")
            if who := records(self._box, self._record.model).accepted(self._record.id):
                return _End(kept_by=who)
            if changed := _is_other(self._box, self._record):
                return _End(left_alone=changed)
            self._look()
            if broken := self._watch.broken():
                return self._over(_End(why=broken))

    def _over(self, end: _End) -> _End:
        """The word may come, or somebody else's change, while the last look is taken."""
        if who := records(self._box, self._record.model).accepted(self._record.id):
            return _End(kept_by=who)
        changed = _is_other(self._box, self._record)
        return _End(left_alone=changed) if changed else end

    def _look(self) -> None:
        began = time.monotonic()
        one = self.gauge.look()
        p99 = self._p99()
        if one is None:
            self._watch.add(Seen(LOOK + time.monotonic() - began, answered=False))
        else:
            self._watch.add(Seen(one.span, one.requests, one.failed, one.mean_ms, p99))
        if self.passed - self._noted >= NOTE_EVERY or not self._noted:
            self._noted = self.passed
            self._run.note(self._words(one, p99))

    def _p99(self) -> float | None:
        """None where none is wanted, and while the server's summary still has what was before the change."""
        if self._tail is None:
            return None
        told = self._tail.read()
        return None if told.source == SUMMARY and self.passed < SUMMARY_S else told.ms

    def _words(self, one: Measured | None, p99: float | None) -> str:
        """`4:12 left; goal mean ≤ 5 ms; 412/s, mean 2.94 ms, wait 1.23, batch 4.3`."""
        left = max(0.0, self.length - self.passed)
        trouble = self._watch.trouble()
        tail = "" if p99 is None else f", p99 {p99:.2f} ms"
        state = f"▲ {trouble}" if trouble else "holds"
        seen = "the statistics do not answer" if one is None else f"{one.text}{tail}"
        return f"{int(left) // 60}:{int(left) % 60:02d} left; goal {self.goal.text}: {state}; {seen}"


def _no_tail(model: str, tail: Tail, goal: Goal, length: float) -> str:
    """Why a p99 goal cannot be watched; "" = it can."""
    if not tail.source:
        return (
            f"no p99 of {model} is known here: {one_line(tail.why, 200)}; set slo_mean_ms instead, or measure p99 by "
            f"a load run (gpuconsole loadtest {model})"
        )
    if tail.source == SUMMARY and length < SUMMARY_S + goal.broken_for:
        return (
            f"the server's p99 is of its last {SUMMARY_S:.0f} s, so for as long it tells of what was before: try it "
            f"for longer than {SUMMARY_S + goal.broken_for:.0f} s, or set slo_mean_ms"
        )
    return ""


def _is_other(box: Box, record: Record) -> str:
    """What somebody else did to the model meanwhile; "" = nothing, or it cannot be told now."""
    versions = json.loads(record.before)["version_policy"]["specific"]["versions"]
    try:
        now = settings_digest(steps.served_now(box, record.model, max(versions)))
    except SourceError:
        return _unloaded(box, record.model)
    return "" if now == record.after else "somebody changed it meanwhile (a restart, a reload or another change)"


def _unloaded(box: Box, model: str) -> str:
    """Said where somebody unloaded it on purpose; "" = not, or it cannot be told."""
    try:
        entries = [one for one in box.index().entries if one.name == model]
    except SourceError:
        return ""
    return "somebody unloaded it" if entries and all(one.reason == "unloaded" for one in entries) else ""


def _before(kept: Mapping[str, str]) -> Measured | None:
    return msgspec.json.decode(kept["before"], type=Measured) if "before" in kept else None


def goal_of(values: Mapping[str, str]) -> Goal:
    """The goal that the values set. WrongInput."""
    return Goal(
        _millis(values, "slo_mean_ms"),
        _millis(values, "slo_p99_ms"),
        _seconds(values, "broken_for", BROKEN_FOR, 1.0),
        int(values.get("max_errors") or 0),
    )


def length_of(values: Mapping[str, str]) -> float:
    """Seconds of the trial. WrongInput."""
    return _seconds(values, "for", FOR, LEAST_FOR)


def _seconds(values: Mapping[str, str], name: str, default: str, least: float) -> float:
    found = duration.seconds(values.get(name, "").strip() or default, f"`{name}`")
    if not least <= found <= MOST_FOR:
        raise WrongInput(f"`{name}` must be from {least:g}s to {MOST_FOR / 3600:g}h, not {found:g}s")
    return found


def _millis(values: Mapping[str, str], name: str) -> float | None:
    text = values.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not (isfinite(found) and found > 0):
        raise WrongInput(f"`{name}` must be milliseconds above 0, not {one_line(text, 40)!r}")
    return found


def _length(seconds: float) -> str:
    """`5 min`, `90 s`."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if seconds >= 60 and minutes == int(minutes) else f"{seconds:g} s"


# --------------------------------------------------------------------------------------------------------- say keep


class BatchingAccept(BatchingAction):
    """Say keep to the batching change of a model that is on trial: it stays live."""

    NAME = "batching.accept"
    PHASES = ("say",)
    LOCKS = False

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """Refused where no trial of this model runs."""
        found = look(box, target)
        record = records(box, target).on_trial()
        if record is None or not is_tried(box, target):
            died = "" if record is None else ": its runner was killed, so finish that first (gpuconsole audit)"
            raise Refused(f"no batching change of {found.name} is on trial{died or ' here'}: there is nothing to keep")
        return Plan(
            action=self.NAME,
            target=Target("model", found.name, state_of(found)),
            values={"record": record.id},
            title=f"Keep {record.text} of {found.name} live on {box.host}",
            yes="Keep",
            danger="safe",
            checks=(Check("ok", f"it is on trial since {units.clock(record.wall)}, and its runner watches it"),),
            steps=(Step("say", "the trial ends and its setting stays live", "the trial goes on"),),
            effects=(
                "nothing is loaded and nothing stops",
                f"live only until batching.keep {found.name}: a restart or an unload goes back to what is on disk",
            ),
            undo=f"batching.revert {found.name}",
            limit=ENDS_WITHIN + 10.0,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Tell the trial's runner, and wait until it has ended."""
        box.changing()
        name, held = plan.target.name, records(box, plan.target.name)
        record = held.get(plan.values["record"])
        if record is None or not record.trial:
            raise Refused(f"the trial of {name} has just ended: nothing was said")
        with run.phase("say"):
            held.accept(record.id, operator().short)
            until = time.monotonic() + ENDS_WITHIN
            while (now := held.get(record.id)) is not None and now.trial and time.monotonic() < until:
                time.sleep(steps.PAUSE)
        if now is None or now.reverted:
            return Outcome("failed", f"the trial of {name} had just gone back: change it anew")
        if now.trial:
            return Outcome(
                "failed", f"the trial of {name} did not take the word within {ENDS_WITHIN:.0f} s; it goes on"
            )
        return Outcome("done", f"{name}: {record.text} stays live", (f"live only until batching.keep {name}",))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """The word was said or not; the trial tells."""
        record = records(box, plan.target.name).get(plan.values["record"])
        if record is None or not record.trial:
            return (f"the trial of {plan.target.name} has ended", "", "")
        return ("the trial still runs; the word may not have been said", "say keep", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Say it again."""
        return self.run(box, plan, run)


def is_tried(box: Box, model: str) -> bool:
    """True while a runner of this user watches a trial of the model."""
    for journal in reversed(journals.all_of(box.state)):
        with contextlib.suppress(OSError, ValueError):
            plan = journal.request().plan
            if plan.action == BatchingTrial.NAME and plan.target.name == model and journal.ended() is None:
                return journal.runner() is not None
    return False
