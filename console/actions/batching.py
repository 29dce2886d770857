"""batching.set: change how a model batches, live, by one load with its whole configuration."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from console.actions import batching_apply as steps
from console.actions import model_look
from console.actions.base import Run
from console.actions.batching_apply import LoadFailed, Measured
from console.actions.batching_look import BatchingAction, BatchingLook, look, settings_digest, state_of
from console.actions.batching_records import Record, Records
from console.actions.box import Box
from console.clients import pbtxt_batching
from console.core import units
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line
from console.planning import batching_change as change
from console.planning.batching_change import PREDICTED, Batching

_MARGIN = 30.0
"""Seconds of the time limit beside the load and the two windows."""


def settings(values: Mapping[str, str]) -> dict[str, str]:
    """Of an action's values those that are batching fields."""
    return {name: value for name, value in values.items() if name in change.NAMES}


class BatchingSet(BatchingAction):
    """Change how a model batches, live: delay, sizes, instances, queue limits, priorities, response cache."""

    NAME = "batching.set"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        *change.FIELDS,
        Field("preset", "several fields at once; single ones given beside it win", "choice", tuple(change.PRESETS)),
        Field(PREDICTED, "what prediction said of it, for the log of experiments: mean=1.84,p99=2.3", "map"),
    )
    PHASES: ClassVar[tuple[str, ...]] = ("measure", "load", "verify", "watch")

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """WrongInput for values that the server's own rules refuse; nothing is sent."""
        given = _expanded(values)
        found = look(box, target)
        new = change.wanted(found.live, given)
        for problem in change.problems(found.facts, new):
            raise WrongInput(problem.text)
        names = change.changed(found.live, new)
        in_place = _is_in_place(found, names)
        refused = _refusal(found, new, names)
        return Plan(
            action=self.NAME,
            target=Target("model", found.name, state_of(found)),
            values={**given, **({PREDICTED: values[PREDICTED]} if values.get(PREDICTED) else {})},
            title=f"{found.name} {_versions(found)}: {_words(found.live, new, names)} on {box.host}",
            yes="Apply",
            danger="safe" if in_place else "caution",
            note="in place" if in_place else "one full reload",
            checks=() if refused else _checks(box, found, new, in_place=in_place),
            steps=_steps(found, self._window(box, values), steps.window_of(box), in_place=in_place),
            effects=_effects(box, found, new, in_place=in_place),
            difference=pbtxt_batching.difference(
                found.plain.document, change.override(found.plain.document, new, found.versions)
            ),
            by_hand=_by_hand(box, found, new, names),
            undo=f"batching.revert {found.name}: back by {'an update' if in_place else 'one more reload'}",
            limit=box.settings.actions.load_timeout * 2 + self._window(box, values) + steps.window_of(box) + _MARGIN,
            refused=refused,
            wall=time.time(),
        )

    def _window(self, box: Box, values: Mapping[str, str]) -> float:
        """Seconds for which the model is measured before the change."""
        return steps.window_of(box)

    # ----------------------------------------------------------------------------------------------------------- run

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Measure, load, look at all that must still be READY, measure again."""
        found = look(box, plan.target.name)
        new = change.wanted(found.live, settings(plan.values))
        with run.phase("measure"):
            before = steps.measure(box, run, found.name, found.versions, self._window(box, plan.values))
            run.note(f"before: {before.text if before is not None else 'the statistics do not answer'}")
            if before is not None:
                run.keep(before=msgspec.json.encode(before).decode())
            if wrong := steps.wrong_answer(box, steps.kept_question(box, found.name), max(found.versions)):
                run.note(f"the kept question is not answered as kept even now, so it is not asked after: {wrong}")
                run.keep(answers="no")
        if run.cancelled.is_set():
            return Outcome("undone", "stopped before anything was sent: nothing has changed")
        record = self._record(box, run, found, new, plan)
        try:
            with run.phase("load"):
                override = json.dumps(change.override(found.plain.document, new, found.versions))
                seconds = steps.load(box, run, found.name, override)
        except LoadFailed as error:
            return self._load_refused(box, run, found, record, error)
        except SourceError as error:
            return _no_end(found, error)
        return self._look_after(box, run, plan, record, before, seconds)

    def _record(self, box: Box, run: Run, found: BatchingLook, new: Batching, plan: Plan) -> Record:
        names = change.changed(found.live, new)
        before = steps.as_override(found.plain.document, found.versions)
        record = Record(
            id=secrets.token_hex(6),
            wall=time.time(),
            model=found.name,
            text=_words(found.live, new, names),
            before=before,
            was_on_disk=found.is_as_on_disk,
            after="",
            values=settings(plan.values),
        )
        records(box, found.name).add(record)
        ready = json.dumps(sorted(found.model.all_ready))
        run.keep(record=record.id, settings=settings_digest(found.document), ready=ready)
        return record

    def _load_refused(self, box: Box, run: Run, found: BatchingLook, record: Record, error: LoadFailed) -> Outcome:
        """The old copy serves on after a refused reload; an update in place may have got half way."""
        lines = tuple(one_line(line, 400) for line in (str(error), *error.lines))
        now = steps.served_now(box, found.name, max(found.versions))
        if settings_digest(now) == settings_digest(found.document) and not steps.ready_reason(box, found.name):
            records(box, found.name).drop(record.id)
            return Outcome("undone", f"the server refused the change: {found.name} serves on as before", lines)
        return self._back(box, run, record, f"the server could not do it all ({lines[0]})", lines)

    def _look_after(
        self, box: Box, run: Run, plan: Plan, record: Record, before: Measured | None, seconds: float
    ) -> Outcome:
        name = plan.target.name
        with run.phase("verify"):
            wrong = self._wrong_after(box, run, plan, record)
        if wrong or run.cancelled.is_set():
            return self._back(box, run, record, wrong or "stopped by the operator")
        found = look(box, name)
        record = replace(record, after=settings_digest(found.document), load_s=seconds)
        records(box, name).change(record.id, lambda _: record)
        return self._watch(box, run, plan, record, before)

    def _watch(self, box: Box, run: Run, plan: Plan, record: Record, before: Measured | None) -> Outcome:
        """It is live and all is READY: measure and judge."""
        name = plan.target.name
        with run.phase("watch"):
            after = steps.measure(box, run, name, look(box, name).versions, steps.window_of(box))
            run.note(f"after: {after.text if after is not None else 'the statistics do not answer'}")
        if run.cancelled.is_set():
            return self._back(box, run, record, "stopped by the operator")
        return Outcome(
            "done",
            f"{name}: {record.text} in {record.load_s or 0.0:.1f} s; {steps.verdict(before, after)}",
            (*window_lines(before, after), f"live only until batching.keep {name}"),
            UndoSpec("batching.revert", name, {"record": record.id}, f"{name} back from {record.text}"),
            state_of(look(box, name)),
            figures=figures_of(record, before, after),
        )

    def _wrong_after(self, box: Box, run: Run, plan: Plan, record: Record) -> str:
        """What makes the change no good; "" = nothing. SourceError where Triton does not answer."""
        name, kept = plan.target.name, run.kept()
        was = {(model, version) for model, version in json.loads(kept["ready"])}
        gone = steps.missing(box, run, tuple(was))
        if gone:
            return f"{model_words(gone)} no longer READY"
        versions = tuple(int(version) for model, version in was if model == name)
        if reason := steps.ready_reason(box, name):
            return f"the server says: {reason}"
        now = steps.served_now(box, name, max(versions))
        given = settings(plan.values)
        names = tuple(field for field in change.NAMES if field in given)
        new = change.wanted(change.read(json.loads(record.before)), given)
        if stale := change.came_out(now, new, names):
            return f"the served configuration does not show {', '.join(stale)} as wanted"
        if kept.get("answers") != "no":
            wrong = steps.wrong_answer(box, steps.kept_question(box, name), max(versions))
            return f"the kept question is not answered as kept: {wrong}" if wrong else ""
        return ""

    def _back(self, box: Box, run: Run, record: Record, why: str, lines: tuple[str, ...] = ()) -> Outcome:
        run.note(f"{why}: loading what ran before")
        try:
            steps.load(box, run, record.model, record.before)
        except (LoadFailed, SourceError) as error:
            text = f"{why}; what ran before could not be loaded again: {one_line(str(error), 400)}"
            return Outcome("failed", text, (*lines, *getattr(error, "lines", ())))
        was = tuple((model, version) for model, version in json.loads(run.kept()["ready"]))
        gone = steps.missing(box, run, was)
        if gone:
            return Outcome("failed", f"{why}; {record.model} is as before, but {model_words(gone)} is not READY", lines)
        records(box, record.model).drop(record.id)
        return Outcome("undone", f"{why}: {record.model} is as before", lines)

    # --------------------------------------------------------------------------------------------------- interrupted

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """measure: nothing was sent. load: sent, and either it is live or the old copy serves (a load goes on without
        its runner). verify, watch: it is live."""
        kept = {name: value for line in journal for name, value in line.data.items() if line.state == "kept"}
        name = plan.target.name
        if "record" not in kept:
            return (f"nothing was sent: {name} is as before", "make the change", "")
        try:
            now = settings_digest(look(box, name).document)
        except (SourceError, Refused) as error:
            return (f"how {name} batches is not known: {error}", "", "load what ran before")
        if now == kept["settings"]:
            return (
                f"{name} is as before; if the load was sent, it may still be going on in the server",
                "send the load (again)",
                "load what ran before, in case the load is still going on",
            )
        return (f"the change is live: {plan.title}", "look whether all is READY, and measure", "load what ran before")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Load again (the server does nothing where it is live already), look and measure."""
        kept = run.kept()
        if "record" not in kept:
            return self.run(box, plan, run)
        record = self._kept_record(box, plan, kept)
        document = json.loads(record.before)
        new = change.wanted(change.read(document), settings(plan.values))
        versions = document["version_policy"]["specific"]["versions"]
        try:
            with run.phase("load"):
                override = json.dumps(change.override(document, new, versions))
                seconds = steps.load(box, run, plan.target.name, override)
        except LoadFailed as error:
            return self._load_refused(box, run, look(box, plan.target.name), record, error)
        before = msgspec.json.decode(kept["before"], type=Measured) if "before" in kept else None
        return self._look_after(box, run, plan, record, before, seconds)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Load what ran before."""
        return self._back(box, run, self._kept_record(box, plan, run.kept()), "interrupted")

    def _kept_record(self, box: Box, plan: Plan, kept: Mapping[str, str]) -> Record:
        record = records(box, plan.target.name).get(kept.get("record", "-"))
        if record is None:
            raise Refused(f"what ran before is no longer noted in {box.state}: change {plan.target.name} anew")
        return record


def window_lines(before: Measured | None, after: Measured | None) -> tuple[str, ...]:
    """Both windows in words, as far as they were measured."""
    return tuple(f"{word}: {one.text}" for word, one in (("before", before), ("after", after)) if one is not None)


def figures_of(record: Record, before: Measured | None, after: Measured | None) -> dict[str, float]:
    """`Outcome.figures` of a change that was measured at both ends."""
    found = {} if record.load_s is None else {"load_s": record.load_s}
    found |= before.figures("before") if before is not None else {}
    return found | ({**after.figures("after"), "watch_s": after.span} if after is not None else {})


def model_words(models: tuple[tuple[str, str], ...]) -> str:
    """`ens 1, rank 2`."""
    return ", ".join(f"{one_line(name, 60)} {version}" for name, version in models)


def records(box: Box, model: str) -> Records:
    """Of a model of this box's server."""
    return Records(box.state, box.address().url, model)


def _expanded(values: Mapping[str, str]) -> dict[str, str]:
    preset = values.get("preset", "")
    given = settings(values)
    if preset and preset not in change.PRESETS:
        raise WrongInput(f"`preset` must be one of {', '.join(change.PRESETS)}, not {one_line(preset, 40)!r}")
    given = {**change.PRESETS.get(preset, {}), **given}
    if not given:
        raise WrongInput(
            f"a change of batching wants a field at least, as in delay_us=500; they are {', '.join(change.NAMES)}"
        )
    return given


def _versions(found: BatchingLook) -> str:
    return ", ".join(str(version) for version in found.versions)


def _words(old: Batching, new: Batching, names: tuple[str, ...]) -> str:
    told = [f"{name} {change.shown(name, old)} → {change.shown(name, new)}" for name in names]
    return ", ".join(told) or "nothing changes"


def _is_in_place(found: BatchingLook, names: tuple[str, ...]) -> bool:
    live_policy = found.document.get("version_policy")
    return change.is_in_place(names, found.facts, policy_changes=live_policy != change.pinned(found.versions))


def _refusal(found: BatchingLook, new: Batching, names: tuple[str, ...]) -> str:
    if not names:
        return f"{found.name} is so already: nothing would change"
    mode = model_look.mode_refusal(found.model)
    if mode:
        return mode
    for problem in change.obstacles(found.facts, found.live, new):
        return problem.text
    if found.model.loading:
        return f"{found.name} is being loaded or unloaded ({', '.join(found.model.loading)}): wait until that has ended"
    return ""


def _checks(box: Box, found: BatchingLook, new: Batching, *, in_place: bool) -> tuple[Check, ...]:
    made = [Check("ok", f"{found.name} {_versions(found)} READY; its configuration was read just now")]
    made.append(model_look.route_check(found.model))
    if not in_place:
        made.append(_memory(box, found))
    made += [Check("warn", f"{one.field}: {one.text}") for one in change.warnings(found.facts, found.live, new)]
    if in_place and found.facts.backend == "python" and _server_may_write(found):
        made.append(
            Check("warn", "the server may write into the model's folder: then the first update after a start reloads")
        )
    if found.on_disk is None:
        made.append(Check("unknown", f"config.pbtxt cannot be held against it: {found.file_unknown}"))
    return tuple(made)


def _server_may_write(found: BatchingLook) -> bool:
    container, disk = found.model.container, found.model.disk
    if container is None or disk is None:
        return True
    mounts = [mount for mount in container.mounts if mount.source and disk.path.startswith(mount.source)]
    longest = max(mounts, key=lambda mount: len(mount.source), default=None)
    return longest is None or not longest.read_only


def _memory(box: Box, found: BatchingLook) -> Check:
    """Both copies are in memory from the load's start until the old one is gone (domain facts 1.4)."""
    if found.model.on_cpu:
        return Check("note", "both copies are in the host's memory while it loads, and a while after")
    needs, how = model_look.taken(box, found.model, max(found.versions))
    free, why = model_look.gpu_free(box, found.model)
    if needs is None or free is None:
        unknown = "how much one takes is not known" if needs is None else f"free memory is not known: {why}"
        return Check("warn", f"both copies are in the card's memory while it loads; {unknown}")
    text = f"both copies at once: needs {units.size(needs)} more ({how}), free {units.size(free)}"
    return Check("ok" if needs < free else "warn", text if needs < free else f"{text}: the load may fail")


def _steps(found: BatchingLook, before: float, after: float, *, in_place: bool) -> tuple[Step, ...]:
    call = (
        f"gRPC RepositoryModelLoad {found.name}, parameter config"
        if found.model.route.name == "gRPC"
        else f"POST /v2/{_load_path(found)}, parameter config"
    )
    what = "the server updates its instances as it runs" if in_place else "the old copy serves until the new one is up"
    back = "what ran before is loaded again"
    return (
        Step("measure", f"measure mean, wait and batch for {before:g} s", "nothing was sent"),
        Step(
            "load", f"load with the whole configuration; {what}", "the old copy serves on, the cause is shown", (call,)
        ),
        Step("verify", "all that was READY is READY, the configuration reads back as wanted", back),
        Step("watch", f"measure again for {after:g} s and compare", "the change stays: batching.revert takes it back"),
    )


def _effects(box: Box, found: BatchingLook, new: Batching, *, in_place: bool) -> tuple[str, ...]:
    took = _last_load(box, found) if not in_place else None
    made = [
        f"one load over {found.model.route.name} with the whole configuration"
        + ("" if in_place else f", {took:.1f} s last time" if took is not None else ", how long is not known"),
        "no reload and no second copy: only the added instances start, or one more is idle and ends"
        if in_place
        else "requests in flight and waiting finish on the old copy; none is refused",
        _pin(found),
    ]
    if not in_place and found.model.users:
        made.append(f"{', '.join(found.model.users)} reload too, as ensembles of it")
    if found.plain.left_out and not new.preferred:
        made.append(f"left out: {', '.join(found.plain.left_out)}, which the server had added")
    made.append(f"live only until batching.keep {found.name}: a restart or an unload goes back to what is on disk")
    return tuple(made)


def _pin(found: BatchingLook) -> str:
    text = f"pinned to version {_versions(found)}"
    if found.waiting:
        return f"{text}, else the load would deploy what is on disk: {found.waiting}"
    return f"{text}, so that a newer folder on disk is not deployed by it"


def _last_load(box: Box, found: BatchingLook) -> float | None:
    """By the log; where that is gone the longest of the records, since updates in place stand among them."""
    told = model_look.load_seconds(box, found.name)
    return told or max((one.load_s for one in records(box, found.name).all() if one.load_s), default=None)


def _by_hand(box: Box, found: BatchingLook, new: Batching, names: tuple[str, ...]) -> tuple[str, ...]:
    """With jq, since the whole configuration goes along and may hold secrets."""
    url = box.address().url
    document = change.override(found.plain.document, new, found.versions)
    batcher = document.get("dynamic_batching")
    if batcher is not None:
        parts = [f".dynamic_batching = {json.dumps(batcher)}"]
    else:
        parts = ["del(.dynamic_batching)"] if found.live.dynamic_batching else []
    for name, key in (("max_batch_size", "max_batch_size"), ("response_cache", "response_cache")):
        if name in names:
            parts.append(f".{key} = {json.dumps(document[key])}")
    if "instances" in names:
        parts += [f".instance_group[{at}].count = {group.count}" for at, group in enumerate(new.instances)]
    parts.append(f".version_policy = {json.dumps(document['version_policy'])}")
    program = shlex.quote(" | ".join([*parts, "{parameters: {config: tojson}}"]))
    read, load = (shlex.quote(f"{url}/v2/{path}") for path in (f"models/{found.name}/config", _load_path(found)))
    return (f"curl -s {read} | jq {program} > load.json", f"curl -s -d @load.json {load}")


def _load_path(found: BatchingLook) -> str:
    return f"repository/models/{found.name}/load"


def _no_end(found: BatchingLook, error: SourceError) -> Outcome:
    if error.kind == "timeout":
        return Outcome(
            "failed",
            f"the load had no end in time: {found.name} serves on as before until it has",
            (one_line(error.message, 300),),
            still_going=f"the load of {found.name}; Tune shows the live values when it ends, the log what went wrong",
        )
    return Outcome("failed", f"the way to Triton broke during the load: {one_line(error.message, 300)}")
