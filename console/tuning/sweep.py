"""batching.sweep: look for the best setting of a model's batching by few short live trials (`gpuconsole tune`).

Prediction proposes what to try, from what the server itself reports; each trial makes it know more (how instances slow
each other down, larger batches). A trial is a load with the whole configuration, as batching.set does it: the old copy
serves until the new one is up, instances change in place, the server is not restarted. The best is measured once more,
and offered; what ran before is loaded again unless it is to be kept.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from math import isfinite

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from console.actions import batching_apply as steps
from console.actions import model_look
from console.actions.base import Run
from console.actions.batching import records
from console.actions.batching_apply import Gauge, LoadFailed
from console.actions.batching_look import BatchingAction, BatchingLook, look, settings_digest, state_of
from console.actions.batching_records import Record
from console.actions.batching_revert import go_back
from console.actions.batching_tail import SUMMARY, TailReader, tail_of
from console.actions.box import Box
from console.clients.triton_wire import decode_config
from console.core import duration, units
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line
from console.loadgen import wish
from console.planning import batching_change as change
from console.planning.batching_change import Batching
from console.planning.observed import Observed, observe, together
from console.tuning import own_load, table
from console.tuning.space import (
    AXES,
    OBJECTIVES,
    Candidate,
    Objective,
    Proposed,
    Tried,
    grid,
    is_next_to,
    propose,
    values_of,
)
from console.tuning.table import Trial, best

BUDGET, LEAST_BUDGET, MOST_BUDGET = "5m", 15.0, 3600.0
SHARE = 0.1
"""Trials, the start and the confirmation among them, are at most this share of the grid."""
LEAST_TRIALS = 4
LEAST_S, MOST_S = 2.0, 30.0
"""Seconds of one trial's window."""
SETTLE_S = 1.0
"""Left out after a load: what waited meanwhile is served first."""
HEADROOM_MIB = 512
LOOKS_A_SECOND = 4
WORSE_TIMES, WORSE_MS = 6.0, 100.0
"""A trial ends early where requests take so many times, and so many ms more, than at the start."""
ENOUGH_BETTER = 0.02
"""Trials end where no other setting is predicted to be better than the best measured by this share."""
LEAST_REQUESTS = 20
MOST_OUT = 3
"""Settings that do not fit into the card's memory are told so many times."""


class Wanted(Struct, frozen=True):
    """What a sweep is asked for."""

    objective: Objective
    slo_p99_ms: float | None
    budget: float
    """Seconds."""
    load: str
    """Of its own; "" = it measures the traffic that comes."""
    instances: int
    """At most."""
    headroom: int
    """Bytes of card memory that stay free."""
    keep: bool


class Stopped(Exception):  # noqa: N818 (an end, not a fault)
    """The trials are over before their time; the text says why."""

    def __init__(self, text: str, *, left_alone: bool = False) -> None:
        super().__init__(text)
        self.left_alone = left_alone


class Sweep(BatchingAction):
    """Find the best batching setting of a model by prediction and few short live trials, within a budget of time."""

    NAME = "batching.sweep"
    FIELDS = (
        Field("objective", "what is to be best; throughput where not given", "choice", OBJECTIVES),
        Field("slo_p99_ms", "only settings whose 99th percentile is within it"),
        Field("budget", f"how long it may take, as in 5m; {BUDGET} where not given"),
        Field("load", "a load of its own, as in concurrency=16 or rate=200 poisson; else the traffic that comes"),
        Field("instances", "at most so many; 4 where not given", "int", low=1, high=64),
        Field("headroom_mib", f"card memory that stays free; {HEADROOM_MIB} where not given", "int", low=0, high=10**7),
        Field("keep", "leave the best live instead of what ran before", "bool"),
    )
    PHASES = ("start", "trials", "confirm", "restore", "file", "load", "verify")

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """How many of which grid, what is held, what is restored; nothing is sent."""
        asked = wanted(values)
        found = look(box, target)
        if asked.load:
            own_load.wished(asked.load, target, str(max(found.versions)), LEAST_S)
        points = grid(found.live, found.facts, asked.instances)
        trials = most_trials(len(points))
        effects = (
            f"at most {trials} trials of a grid of {len(points)}: {_axes(points)}",
            f"each one load over {found.model.route.name}, instances in place; no restart, no request is refused by it",
            "while a trial lasts, requests are served under its setting: slower ones end early",
            "it stops at once where a request fails, and where somebody else changes the model",
            f"afterwards {'the best stays live' if asked.keep else 'what ran before is loaded again'}, "
            "also when this terminal is lost; stopping it restores too and tells what was tried",
        )
        return Plan(
            action=self.NAME,
            target=Target("model", found.name, state_of(found)),
            values={name: value for name, value in values.items() if value.strip()},
            title=f"Sweep {found.name} for the best {asked.objective}, {units.age(asked.budget)} on {box.host}",
            yes="Sweep",
            danger="caution",
            note="short reloads",
            checks=self._checks(box, found, asked),
            steps=(
                Step("start", "measure what runs now, and predict the grid from it", "nothing has changed"),
                Step("trials", "load and measure what is predicted best, again and again", "what ran before is loaded"),
                Step("confirm", "measure the best once more", "what ran before is loaded"),
                Step("restore", "the best stays live" if asked.keep else "load what ran before", "it is said"),
            ),
            effects=effects,
            undo=f"batching.revert {found.name}" if asked.keep else "it takes itself back",
            limit=asked.budget + 2 * box.settings.actions.load_timeout + 60.0,
            refused=_refusal(box, found, asked, points),
            wall=time.time(),
        )

    def _checks(self, box: Box, found: BatchingLook, asked: Wanted) -> tuple[Check, ...]:
        made = [
            Check("ok", f"{found.name} {max(found.versions)} READY; its configuration was read just now"),
            model_look.route_check(found.model),
            _traffic(found, asked),
        ]
        if not found.model.on_cpu:
            one, how = _one_instance(box, found)
            free, why = model_look.gpu_free(box, found.model)
            if one is not None and free is not None:
                text = f"an instance takes {units.size(one)} ({how}), free {units.size(free)}, kept free "
                made.append(Check("ok", f"{text}{units.size(asked.headroom)}: what does not fit is left out"))
            elif free is None:
                made.append(Check("warn", f"free memory of the card is not known: {why}"))
        return tuple(made)

    # ----------------------------------------------------------------------------------------------------------- run

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Measure, try, confirm, restore."""
        found = look(box, plan.target.name)
        record = Record(
            id=secrets.token_hex(6),
            wall=time.time(),
            model=found.name,
            text="a sweep",
            before=steps.as_override(found.plain.document, found.versions),
            was_on_disk=found.is_as_on_disk,
            after="",
        )
        run.keep(record=record.id, began=str(time.time()), live=settings_digest(found.document))
        records(box, found.name).add(record)
        return self._sweep(box, plan, run, record)

    def _sweep(self, box: Box, plan: Plan, run: Run, record: Record) -> Outcome:
        """From where it stands: what was measured before a kill is in the journal."""
        sweep = _Sweep(box, run, wanted(plan.values), record)
        why = ""
        try:
            with run.phase("start"):
                sweep.start()
            with run.phase("trials"):
                sweep.search()
            with run.phase("confirm"):
                sweep.confirm()
        except Stopped as error:
            why = str(error)
            if error.left_alone:
                records(box, record.model).drop(record.id)
                return self._told(sweep, record, "failed", f"{why}; it is left as it is")
        except (LoadFailed, SourceError) as error:
            why = one_line(str(error), 300)
        return self._end(box, run, sweep, record, why)

    def _end(self, box: Box, run: Run, sweep: _Sweep, record: Record, why: str) -> Outcome:
        chosen = sweep.best()
        if sweep.asked.keep and not why and chosen is not None and chosen.what != "start":
            with run.phase("restore"):
                sweep.apply(chosen.values)
            return self._kept(box, sweep, record, chosen)
        with run.phase("restore"):
            back = go_back(box, run, record)
        if back.word == "failed":
            return self._told(sweep, record, "failed", f"{why or 'the trials are over'}, but {back.text}")
        if why:
            return self._told(sweep, record, "undone", f"{why}: what ran before is loaded again")
        return self._told(sweep, record, "done", f"{sweep.words()}; what ran before is loaded again")

    def _kept(self, box: Box, sweep: _Sweep, record: Record, chosen: Trial) -> Outcome:
        found = look(box, record.model)
        text = f"a sweep: {chosen.text}"
        record = replace(record, after=settings_digest(found.document), text=text, values=dict(chosen.values))
        records(box, record.model).change(record.id, lambda _: record)
        undo = UndoSpec("batching.revert", record.model, {"record": record.id}, f"{record.model} back from {text}")
        told = self._told(sweep, record, "done", f"{sweep.words()}; it stays live, only until batching.keep")
        return msgspec.structs.replace(told, undo=undo, left=state_of(found))

    def _told(self, sweep: _Sweep, record: Record, word: str, text: str) -> Outcome:
        chosen = sweep.best()
        lines = table.lines(sweep.trials, chosen, sweep.asked.objective)
        if chosen is not None and chosen.what != "start" and not sweep.asked.keep:
            values = " ".join(f"{name}={value}" for name, value in chosen.values.items())
            lines = (*lines, f"take the best: gpuconsole do batching.set {record.model} {values}")
        figures = {"trials": float(len(sweep.measured)), "grid": float(len(sweep.points))}
        figures |= _figures(sweep.trials[0], "before") if sweep.trials else {}
        figures |= _figures(chosen, "after") if chosen is not None else {}
        return Outcome(word, f"{record.model}: {text}", lines, figures=figures)  # type: ignore[arg-type]

    # --------------------------------------------------------------------------------------------------- interrupted

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """A trial's setting may be live in any phase; before the first load nothing has changed."""
        kept = {name: value for line in journal for name, value in line.data.items() if line.state == "kept"}
        name = plan.target.name
        if "record" not in kept or records(box, name).get(kept["record"]) is None:
            return (f"nothing was sent: {name} is as before", "sweep", "")
        found = look(box, name)
        now = settings_digest(found.document)
        done = len(_trials(kept))
        record = records(box, name).get(kept["record"])
        assert record is not None
        first = change.read(json.loads(record.before))
        if now not in kept["live"].split(",") and not _is_loaded(kept, found.document, first):
            return (f"{name} is no longer served as the sweep left it: somebody changed it since", "", "")
        if now == kept["live"].split(",")[0]:
            return (f"{name} is served as before the sweep; {done} settings were measured", "go on with the sweep",
                    "load what ran before, in case a load is still going on")  # fmt: skip
        return (f"a trial's setting of {name} is live; {done} settings were measured", "go on with the sweep",
                "load what ran before")  # fmt: skip

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """With what was measured already; the budget of time begins anew."""
        record = records(box, plan.target.name).get(run.kept().get("record", "-"))
        return self.run(box, plan, run) if record is None else self._sweep(box, plan, run, record)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Load what ran before, and tell what was measured."""
        record = records(box, plan.target.name).get(run.kept().get("record", "-"))
        if record is None:
            raise Refused("what ran before is no longer noted: look at the model and change it anew")
        sweep = _Sweep(box, run, wanted(plan.values), record)
        return self._end(box, run, sweep, record, "interrupted")


class _Sweep:
    """The trials. Everything measured goes to the journal at once."""

    def __init__(self, box: Box, run: Run, asked: Wanted, record: Record) -> None:
        self.box, self.run, self.asked, self.record = box, run, asked, record
        self.document = json.loads(record.before)
        self.version: int = max(self.document["version_policy"]["specific"]["versions"])
        self.first = change.read(self.document)
        self.found = look(box, record.model)
        self.points = grid(self.first, self.found.facts, asked.instances)
        self.trials: list[Trial] = list(_trials(run.kept()))
        self.seen: Observed | None = None
        self._until = time.monotonic() + asked.budget
        self._load_s = 1.0
        self._live = run.kept()["live"].split(",")
        if _is_loaded(run.kept(), self.found.document, self.first):
            self._live.append(settings_digest(self.found.document))
        self._one, _ = _one_instance(box, self.found)
        self._callers_ms = 0.0
        self._out: list[dict[str, str]] = []
        """Settings that do not fit; the first of them stand in the table."""
        self.window_s: float | None = None
        """Seconds of a trial where they are given, and not a share of the budget."""

    @property
    def measured(self) -> list[Trial]:
        """Those with figures."""
        return [one for one in self.trials if one.rate is not None]

    def best(self) -> Trial | None:
        """So far. What was measured twice counts by both."""
        return best(_averaged(self.measured), self.asked.objective, self.asked.slo_p99_ms)

    @property
    def window(self) -> float:
        """Seconds of a trial: the budget by the trials that it must be enough for, less their loads."""
        if self.window_s is not None:
            return self.window_s
        number = most_trials(len(self.points))
        least = LEAST_S + (1.0 if self.asked.load else 0.0)  # its progress is told once a second
        return min(MOST_S, max(least, self.asked.budget / (number + 1) - self._load_s - SETTLE_S))

    # ------------------------------------------------------------------------------------------------------- the steps

    def start(self) -> None:
        """Measure what runs; what was measured by a killed runner stays."""
        here = values_of(self.first)
        if self.trials:
            self.apply(here)
        one = self._measure(Candidate(here, self.first), None, "start")
        if not one.requests or one.requests < LEAST_REQUESTS:
            raise Stopped(f"only {one.requests} requests came in {self.window:.0f} s: a sweep wants traffic, or a load")
        if self.asked.objective == "p99" and one.p99_ms is None:
            raise Stopped("no p99 is known here: the server tells none, so give a load of its own (load=...)")
        self.trials = [one, *(other for other in self.trials if other.what != "start")]
        self._note_all()

    def search(self) -> None:
        """Try what is predicted best until nothing better is expected, or trials or time are used up."""
        most = most_trials(len(self.points)) - 1  # one is for the confirmation
        while len(self.measured) < most:
            following = self._next()
            if following is None:
                return
            if self._until - time.monotonic() < 2 * (self.window + self._load_s + SETTLE_S):
                self.run.note("the rest of the budget is for the confirmation")
                return
            self._try(following)

    def confirm(self) -> None:
        """The best once more, where it is not what ran before."""
        chosen = self.best()
        if chosen is None or chosen.what == "start":
            return
        self.apply(chosen.values)
        one = self._measure(Candidate(chosen.values, self._settings(chosen.values)), None, "confirmed")
        self._add(replace(one, predicted=chosen.predicted))

    def words(self) -> str:
        """`best of 5 tried is delay 500, 2 inst, max 16: 412 → 530 req/s`."""
        start, chosen, tried = self.trials[0], self.best(), len(self.measured)
        objective = self.asked.objective
        if chosen is None:
            return f"none of {tried} settings measured meets the goal"
        if chosen.what == "start":
            return f"none of {tried} settings measured is better than what runs"
        before, after = start.figure(objective), chosen.figure(objective)
        shown = units.rate if objective == "throughput" else units.millis
        unit = "req/s" if objective == "throughput" else f"ms {objective}"
        return f"best of {tried} measured is {chosen.text}: {shown(before)} → {shown(after)} {unit}"

    # ------------------------------------------------------------------------------------------------------- proposing

    def _next(self) -> Proposed | None:
        """The best predicted that was not tried, where it is worth a trial."""
        if self.seen is None:
            raise Stopped("the statistics did not answer: nothing can be predicted")
        try:
            found = propose(
                self.seen,
                self.points,
                self.asked.objective,
                waits=self._waits(),
                callers=self._callers(),
                outside_ms=self._callers_ms,
                tried=self._tried(),
            )
        except WrongInput as error:
            raise Stopped(f"nothing can be predicted: {error}") from error
        tried = [*(dict(one.values) for one in self.trials), *self._out]
        rest = [one for one in found if dict(one.candidate.values) not in tried and one.predicted is not None]
        slo = self.asked.slo_p99_ms
        if slo is not None:
            rest = [one for one in rest if one.p99_ms is not None and one.p99_ms <= 1.2 * slo] or rest[:1]
        now = self.best()
        if not rest:
            return None
        best_now = now.figure(self.asked.objective) if now is not None else None
        here = self._settings(now.values) if now is not None else self.first
        # the model is not as fine as the steps of the delay: what is beside the best is tried last, or when no more is
        # expected of anything else
        beside = next((one for one in rest if is_next_to(one.candidate.settings, here)), None)
        is_last = len(self.measured) + 2 >= most_trials(len(self.points))
        if beside is not None and is_last:
            return beside
        return rest[0] if best_now is None or self._is_worth(rest[0], best_now) else beside

    def _waits(self) -> bool:
        """True for callers that wait for their answers: of the traffic that comes that is taken."""
        return not self.asked.load or self._own().concurrency is not None

    def _callers(self) -> int | None:
        """How many, where that is known."""
        return max(1, round(wish.checked(self._own()).load.peak)) if self.asked.load and self._waits() else None

    def _own(self, seconds: float = LEAST_S) -> wish.Wish:
        return own_load.wished(self.asked.load, self.record.model, str(self.version), seconds, len(self.trials))

    def _tried(self) -> list[Tried]:
        found = []
        for one in self.trials:
            figure = one.figure(self.asked.objective)
            if one.modelled and figure and not one.what:
                found.append(Tried(self._settings(one.values), one.modelled, figure))
        return found

    def _is_worth(self, one: Proposed, now: float) -> bool:
        assert one.predicted is not None
        error = one.error or 0.0
        if self.asked.objective == "throughput":
            return one.predicted + error > now * (1 + ENOUGH_BETTER)
        return one.predicted - error < now * (1 - ENOUGH_BETTER)

    # ---------------------------------------------------------------------------------------------------------- trying

    def _try(self, proposed: Proposed) -> None:
        candidate = proposed.candidate
        unfit = self._does_not_fit(candidate.settings)
        if unfit:
            self._out.append(dict(candidate.values))
            if len(self._out) <= MOST_OUT:
                self._add(Trial(candidate.text, candidate.values, proposed.predicted, left_out=unfit))
            return
        self.run.note(f"{candidate.text}, {len(self.measured) + 1} of at most {most_trials(len(self.points))}")
        try:
            self.apply(candidate.values)
        except LoadFailed as error:
            refused = f"the server refused it: {one_line(str(error), 160)}"
            self._add(Trial(candidate.text, candidate.values, proposed.predicted, left_out=refused))
            return
        one = replace(self._measure(candidate, proposed.predicted, ""), modelled=proposed.modelled)
        self._add(one)
        if one.failed:
            raise Stopped(f"{one.failed} requests failed under {candidate.text}")

    def apply(self, values: Mapping[str, str]) -> None:
        """Make a setting live; where it is live already nothing is sent. LoadFailed, SourceError, Stopped."""
        self._must_be_ours()
        settings = self._settings(values)
        override = change.override(self.document, settings, [self.version])
        if not change.changed(change.read(steps.served_now(self.box, self.record.model, self.version)), settings):
            return
        self.run.keep(loading=json.dumps(dict(values)))
        seconds = steps.load(self.box, self.run, self.record.model, json.dumps(override))
        self._load_s = max(seconds, 0.1)
        if reason := steps.ready_reason(self.box, self.record.model):
            raise LoadFailed(reason)
        now = settings_digest(steps.served_now(self.box, self.record.model, self.version))
        if now not in self._live:
            self._live.append(now)
        self.run.keep(live=",".join(self._live), loading="")
        if self.run.wait(SETTLE_S):
            raise Stopped("it was stopped by the operator")

    def _settings(self, values: Mapping[str, str]) -> Batching:
        return change.wanted(self.first, values)

    def _must_be_ours(self) -> None:
        now = settings_digest(steps.served_now(self.box, self.record.model, self.version))
        if now not in self._live:
            raise Stopped("somebody else changed the model meanwhile", left_alone=True)

    def _does_not_fit(self, settings: Batching) -> str:
        """Why the card's memory does not hold it beside what runs, with the headroom; "" = it does."""
        if all(group.kind == "KIND_CPU" for group in settings.instances):
            return ""
        live = change.read(steps.served_now(self.box, self.record.model, self.version))
        names = change.changed(live, settings)
        free, why = model_look.gpu_free(self.box, self.found.model)
        more = settings.total_instances - (live.total_instances if names == ("instances",) else 0)
        if more <= 0:
            return ""
        if self._one is None or free is None:
            return f"not tried: {why or 'what an instance takes is not known'}, so the headroom cannot be held"
        needs = more * self._one
        if needs + self.asked.headroom <= free:
            return ""
        return f"not tried: needs {units.size(needs)} more, free {units.size(free)}"

    # ------------------------------------------------------------------------------------------------------- measuring

    def _measure(self, candidate: Candidate, predicted: float | None, what: str) -> Trial:
        config = decode_config(
            self.box.served_config(self.record.model, str(self.version)).encode(), self.record.model, str(self.version)
        )
        made = Trial(candidate.text, candidate.values, predicted, load_s=self._load_s, what=what)
        gauges: list[Gauge] = []
        made = self._by_load(made, gauges) if self.asked.load else self._by_traffic(made, gauges)
        if gauges:
            before, after, span = gauges[0].ends()
            told = gauges[0].measured()
            version = str(self.version)
            if version in before and version in after and span > 0 and told is not None:
                seen = observe(before[version], after[version], config, span, [one.count for one in told.slices])
                self.seen = seen if self.seen is None else together(seen if what == "start" else self.seen, seen)
        self._must_be_ours()
        return made

    def _by_traffic(self, made: Trial, gauges: list[Gauge]) -> Trial:
        gauge = Gauge(self.box, self.record.model, [self.version])
        gauges.append(gauge)
        tail = TailReader(self.box, self.record.model, [self.version])
        ended = ""
        try:
            tail.read()  # what was counted before is not of this trial
            for _ in range(round(self.window * LOOKS_A_SECOND)):
                if self.run.wait(1 / LOOKS_A_SECOND):
                    raise Stopped("it was stopped by the operator")
                one = gauge.look()
                if one is not None and (ended := self._ended(one.mean_ms, one.failed)):
                    break
            told_now = tail.read()
            p99 = None if told_now.source == SUMMARY else told_now.ms
        finally:
            tail.close()
        told = gauge.measured()
        if told is None:
            return replace(made, left_out="the statistics did not answer")
        return replace(
            made, rate=told.rate, mean_ms=told.mean_ms, p99_ms=p99, batch=told.batch, requests=told.requests,
            failed=told.failed, left_out=ended,
        )  # fmt: skip

    def _by_load(self, made: Trial, gauges: list[Gauge]) -> Trial:
        name = self.record.model
        load = self._own(self.window)

        def each_second() -> None:
            if not gauges:
                gauges.append(Gauge(self.box, name, [self.version]))
            gauges[0].look()

        found = own_load.measured(self.box, self.run, load, each_second)
        if self.run.cancelled.is_set():
            raise Stopped("it was stopped by the operator")
        client, failed = found.client, sum(one.count for one in found.client.errors.values())
        server = found.server
        if made.what == "start" and server is not None and server.total_ms and client.latency.mean:
            self._callers_ms = max(0.0, client.latency.mean - server.total_ms)
        ended = found.not_valid or (
            f"the load ended: {found.ended}" if found.ended not in ("duration", "count") else ""
        )
        return replace(
            made, rate=client.throughput, mean_ms=client.latency.mean, p99_ms=client.latency.p99,
            batch=server.batch if server is not None else None, requests=client.done, failed=failed, left_out=ended,
        )  # fmt: skip

    def _ended(self, mean_ms: float | None, failed: int) -> str:
        """Why a trial is not gone on with: those who ask now must not suffer for it."""
        start = self.trials[0].mean_ms if self.trials else None
        if failed:
            return "requests failed"
        if mean_ms is not None and start and mean_ms > max(WORSE_TIMES * start, start + WORSE_MS):
            return f"ended early: {mean_ms:.0f} ms a request"
        return ""

    def _add(self, one: Trial) -> None:
        self.trials.append(one)
        self._note_all()

    def _note_all(self) -> None:
        self.run.keep(trials=msgspec.json.encode(self.trials).decode())


def _is_loaded(kept: Mapping[str, str], document: Mapping[str, object], first: Batching) -> bool:
    """True when what is served is what a load was just bringing when its runner was killed."""
    if not kept.get("loading"):
        return False
    wanted_then = change.wanted(first, json.loads(kept["loading"]))
    return not change.came_out(document, wanted_then, AXES)


def _figures(one: Trial, when: str) -> dict[str, float]:
    """By the names of `Outcome.figures` of a change that was measured at both ends."""
    found = {f"mean_{when}_ms": one.mean_ms, f"rate_{when}": one.rate, f"batch_{when}": one.batch}
    return {name: value for name, value in found.items() if value is not None}


def _trials(kept: Mapping[str, str]) -> Sequence[Trial]:
    return msgspec.json.decode(kept["trials"], type=tuple[Trial, ...]) if "trials" in kept else ()


def _averaged(trials: Sequence[Trial]) -> list[Trial]:
    """One for each setting: of what was measured twice the mean of both; the wish for luck is not rewarded."""
    by_values: dict[str, list[Trial]] = {}
    for one in trials:
        by_values.setdefault(json.dumps(dict(one.values), sort_keys=True), []).append(one)
    return [_average(found) for found in by_values.values()]


def _average(found: Sequence[Trial]) -> Trial:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return replace(
        found[0],
        rate=mean([one.rate for one in found]),
        mean_ms=mean([one.mean_ms for one in found]),
        p99_ms=mean([one.p99_ms for one in found]),
        left_out=next((one.left_out for one in found if one.left_out), ""),
    )


def most_trials(points: int) -> int:
    """Live measurements of a sweep at most, the start and the confirmation among them."""
    return max(LEAST_TRIALS, int(SHARE * points))


def wanted(values: Mapping[str, str]) -> Wanted:
    """WrongInput says what cannot be."""
    budget = duration.seconds(values.get("budget", "").strip() or BUDGET, "`budget`")
    if not LEAST_BUDGET <= budget <= MOST_BUDGET:
        raise WrongInput(f"`budget` must be from {LEAST_BUDGET:g}s to {MOST_BUDGET / 60:g}m, not {budget:g}s")
    return Wanted(
        objective=values.get("objective") or "throughput",  # type: ignore[arg-type]
        slo_p99_ms=_slo(values.get("slo_p99_ms", "").strip()),
        budget=budget,
        load=values.get("load", "").strip(),
        instances=int(values.get("instances") or 4),
        headroom=int(values.get("headroom_mib") or HEADROOM_MIB) * units.MIB,
        keep=values.get("keep", "false") == "true",
    )


def _slo(text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not (isfinite(found) and found > 0):
        raise WrongInput(f"`slo_p99_ms` must be milliseconds above 0, not {one_line(text, 40)!r}")
    return found


def _refusal(box: Box, found: BatchingLook, asked: Wanted, points: Sequence[Candidate]) -> str:
    if mode := model_look.mode_refusal(found.model):
        return mode
    for problem in change.obstacles(found.facts, found.live, found.live):
        return problem.text
    if found.model.loading:
        return f"{found.name} is being loaded or unloaded ({', '.join(found.model.loading)}): wait until that has ended"
    if len(found.versions) > 1:
        return f"{found.name} serves {len(found.versions)} versions: what is measured would mix them; keep one READY"
    if len(points) < 2:
        return f"there is nothing to choose for {found.name}: it does not batch and its instances are in several groups"
    if (asked.objective == "p99" or asked.slo_p99_ms is not None) and not asked.load:
        tail = tail_of(box, found.name, found.versions)
        own = "give a load of its own (load=rate=200), which measures it"
        if tail.source == SUMMARY:
            return f"the server's p99 is of its last minute, longer than a trial: {own}"
        if not tail.source:
            return f"no p99 of {found.name} is known here: {one_line(tail.why, 200)}; {own}"
    if not asked.load and not found.model.rate:
        return f"nobody asks {found.name} now: a sweep wants traffic, or a load of its own (load=concurrency=8)"
    return ""


def _traffic(found: BatchingLook, asked: Wanted) -> Check:
    rate = f"{found.model.rate:.0f} requests a second come now" if found.model.rate else "no requests come now"
    if asked.load:
        return Check("note", f"it sends a load of its own: {one_line(asked.load, 80)}; {rate}")
    return Check("ok" if found.model.rate else "warn", f"it measures the traffic that comes: {rate}")


def _one_instance(box: Box, found: BatchingLook) -> tuple[int | None, str]:
    """Bytes of card memory for each instance."""
    needs, how = model_look.taken(box, found.model, max(found.versions))
    return (None if needs is None else -(-needs // max(1, found.live.total_instances))), how


def _axes(points: Sequence[Candidate]) -> str:
    delays = {one.settings.delay_us for one in points if one.settings.dynamic_batching}
    told = [f"delay {min(delays)} to {max(delays)} µs"] if delays else []
    instances = {one.settings.total_instances for one in points}
    largest = {one.settings.max_batch_size for one in points}
    told.append(f"instances {min(instances)} to {max(instances)}")
    return ", ".join([*told, f"max batch {' or '.join(map(str, sorted(largest)))}"])
