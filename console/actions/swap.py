"""Swap a model to another version, as Triton allows it.

There is no shift step: unversioned requests go to the largest READY version. So upwards traffic moves the moment the
new version is READY, and the kept question is the first request after it; downwards the new version is asked while the
old one still takes the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.model_look import (
    ModelLook,
    look,
    model_state,
)
from console.actions.model_probe import Probe
from console.actions.pin import recover
from console.actions.swap_instances import InstancesSwapper, instances
from console.actions.swap_plan import SwapPlan
from console.actions.swap_restart import RestartSwapper
from console.actions.swap_run import Settings, Swapper
from console.actions.swap_spec import Spec, WayName, counts_in, listed, probe_kind, spec_of, warmup_of
from console.actions.swap_ways import NAMES, fit, memory
from console.clients import golden_store, triton_config
from console.core.golden import Golden
from console.core.model import SourceError
from console.core.plan import Field, JournalLine, Outcome, Plan, Target, WrongInput
from console.core.text import one_line, whole_number


class Swap(Action):
    """Swap a model to another version: loaded beside the old one, probed, watched, and taken back where it is worse."""

    NAME = "model.swap"
    TARGET = "model"
    FIELDS = (
        Field("version", "the version to serve; the newest on disk where none is given", "int", low=1),
        Field(
            "way",
            "beside: both in memory. instances: the same with 1 instance of each meanwhile. gap: unload, wait for "
            "memory, load. restart: the container anew, with the new version only",
            "choice",
            NAMES,
        ),
        Field("watch", "how long fail rate and latency are watched", unit="s"),
        Field("probe", "what the answers are held against", "choice", ("answer", "form", "off")),
        Field("warmup", "run the kept question's shapes before READY", "bool"),
        Field("recover", "after a crash: pin the old version in config.pbtxt and start the server", "bool"),
        Field("route", "how the load is sent", "choice", ("auto", "gRPC", "HTTP")),
    )
    PHASES = (
        *("note", "lower", "gap", "memory", "stop", "start", "ready"),
        *("load", "probe", "watch", "unload", "raise", "check", "back", "recover"),
    )

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        seen = look(box, target, route=_route(values))
        new = _version(seen, values)
        return SwapPlan(box, seen, new, _golden(box, target), values).plan(self.NAME)

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """READY versions, and the container that they are in."""
        return model_state(box, target.name)

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        with run.phase("note"):
            seen = look(box, plan.target.name, route=_route(plan.values), traffic=False)
            golden = _golden(box, plan.target.name)
            warmup = warmup_of(seen, golden) if plan.values["warmup"] == "true" else None
            new = int(plan.values["version"])
            spec = _with_memory(box, seen, spec_of(seen, new, warmup, restart=plan.way == "restart"), plan.way)
            probe = _probe(box, plan, spec, golden)
            run.keep(spec=spec.dumped())
        return _swapper(box, plan, run, spec, probe).go()

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """See Action."""
        kept = {name: text for line in journal for name, text in line.data.items() if line.state == "kept"}
        name = plan.target.name
        try:
            entries = [e for e in box.index().entries if e.name == name]
        except SourceError as error:
            return _silent(kept, error, plan.way)
        ready = tuple(
            sorted(int(e.version) for e in entries if e.state == "READY" and e.version and e.version.isdecimal())
        )
        busy = [f"{e.version} {e.state}" for e in entries if e.state in ("LOADING", "UNLOADING")]
        now = f"READY: {listed(ready)}" + (f"; {', '.join(busy)}" if busy else "")
        if "spec" not in kept:
            return f"{now}; nothing was sent", f"swap to {plan.values['version']} from the beginning", ""
        spec = Spec.loaded(kept["spec"])
        if plan.way == "instances":
            now += _count_words(box, spec, ready)
        if ready == spec.before and not busy:
            back = f"pin {listed(spec.before)}, whatever of the new version is in memory goes"
            if plan.way == "instances":
                back += f", with {instances(spec.counts)}"
            return f"{now}, as before", f"swap to {spec.new} from the beginning", back
        verdict = (
            f"; {spec.new} takes the traffic and nobody has judged it" if max(ready, default=0) == spec.new else ""
        )
        return now + verdict, f"ask and watch {spec.new}, then go on to its end", f"back to {listed(spec.before)}"

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        try:
            box.ready()
        except SourceError as error:
            if plan.way != "restart":
                return _recovered(box, run, error)
        swapper = self._resumed(box, plan, run)
        return self.run(box, plan, run) if swapper is None else swapper.resume()

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        swapper = self._resumed(box, plan, run)
        if swapper is None:
            return Outcome("undone", "nothing had been sent", left=model_state(box, plan.target.name))
        return swapper.take_back()

    def _resumed(self, box: Box, plan: Plan, run: Run) -> Swapper | None:
        text = run.kept().get("spec")
        if text is None:
            return None
        spec = Spec.loaded(text)
        probe = _probe(box, plan, spec, _golden(box, spec.name))
        return _swapper(box, plan, run, spec, probe)


def _swapper(box: Box, plan: Plan, run: Run, spec: Spec, probe: Probe) -> Swapper:
    """What goes this way."""
    way = cast("WayName", plan.way)
    patience = box.settings.actions.load_timeout
    settings = Settings(float(plan.values["watch"]), patience, way, plan.values["recover"] == "true")
    if way == "instances":
        return InstancesSwapper(box, plan, run, spec, settings, probe)
    if way == "restart":
        return RestartSwapper(box, plan, run, spec, settings, probe)
    return Swapper(box, plan, run, spec, settings, probe)


def _with_memory(box: Box, seen: ModelLook, spec: Spec, way: str) -> Spec:
    """What the way waits for."""
    if way not in ("gap", "instances") or seen.on_cpu:
        return spec
    found = memory(box, seen, spec.new)
    if way == "gap":
        return replace(spec, needs=fit(seen, spec.new, found).needs)
    return replace(spec, took=found.each, scale=found.scale)


def _count_words(box: Box, spec: Spec, ready: tuple[int, ...]) -> str:
    """`, 2 with 1 instance`: as the server has them now."""
    told = ""
    for version in ready:
        try:
            live = triton_config.parsed(box.served_config(spec.name, str(version)), spec.name)
        except SourceError:
            continue
        told += f", {version} with {instances(counts_in(live))}"
    return told


def _silent(kept: Mapping[str, str], error: SourceError, way: str) -> tuple[str, str, str]:
    """For a server that went down with the runner, or that the runner stopped."""
    now = f"Triton does not answer: {error.message}"
    if "spec" not in kept:
        return f"{now}; nothing was sent", "", ""
    spec = Spec.loaded(kept["spec"])
    if way == "restart":
        start = f"start container {spec.container}"
        return now, f"{start}, wait for {spec.new}, ask and watch it", f"{start}, then load {spec.old} again"
    deed = f"pin {listed(spec.before)} in config.pbtxt of {spec.name} and start container {spec.container}"
    return now, deed if spec.container else "", ""


def _recovered(box: Box, run: Run, error: SourceError) -> Outcome:
    text = run.kept().get("spec")
    if text is None:
        raise error
    spec = Spec.loaded(text)
    with run.phase("recover"):
        return recover(
            box, run, spec.container, spec.name, spec.before, spec.others, "it was interrupted", [], {}, "done"
        )


def _route(values: Mapping[str, str]) -> str:
    told = values.get("route", "")
    return "" if told == "auto" else told


def _golden(box: Box, name: str) -> Golden | None:
    try:
        return golden_store.load(box.state, name)
    except SourceError:
        return None


def _version(seen: ModelLook, values: Mapping[str, str]) -> int:
    told = whole_number(values.get("version") or "")
    folders = seen.folders or ()
    if told is None:
        newest = max(folders, default=None)
        if newest is None or newest == seen.served:
            raise WrongInput(f"which version of {one_line(seen.name, 80)}? on disk: {listed(folders)}; give version=N")
        told = newest
    if told == seen.served:
        raise WrongInput(f"{one_line(seen.name, 80)} serves version {told} already; give another one (version=N)")
    if seen.folders is not None and told not in folders:
        raise WrongInput(f"{one_line(seen.name, 80)} has no usable version {told} on disk; it has {listed(folders)}")
    return told


def _probe(box: Box, plan: Plan, spec: Spec, golden: Golden | None) -> Probe:
    """What the new version is held against; the old one is asked first where it serves."""
    kind = probe_kind(plan.values, golden, wanted=True)
    probe = Probe(box.address(), spec.name, kind, golden)
    try:
        serves = (spec.name, str(spec.old)) in box.ready()
    except SourceError:
        return probe  # a restart that was interrupted: it is made ready by its first question
    wrong = probe.prepare(spec.old if serves else None)
    if wrong and kind == "answer":
        # The old version does not give the kept answer either: then that is no measure for the new one.
        probe = Probe(box.address(), spec.name, "form", golden)
        probe.prepare(spec.old)
    return probe
