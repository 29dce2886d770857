"""Swap a model to another version, as Triton allows it.

There is no shift step: unversioned requests go to the largest READY version. So upwards traffic moves the moment the
new version is READY, and the kept question is the first request after it; downwards the new version is asked while the
old one still takes the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.model_look import (
    ModelLook,
    look,
    model_state,
)
from console.actions.model_probe import Probe
from console.actions.pin import recover
from console.actions.swap_plan import SwapPlan, fit
from console.actions.swap_run import Settings, Swapper, Trouble
from console.actions.swap_spec import Spec, listed, probe_kind, spec_of, warmup_of
from console.clients import golden_store
from console.clients.triton import TritonAddress
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
        Field("way", "beside: both in memory. gap: unload, wait for memory, load", "choice", ("beside", "gap")),
        Field("watch", "how long fail rate and latency are watched", unit="s"),
        Field("probe", "what the answers are held against", "choice", ("answer", "form", "off")),
        Field("warmup", "run the kept question's shapes before READY", "bool"),
        Field("recover", "after a crash: pin the old version in config.pbtxt and start the server", "bool"),
        Field("route", "how the load is sent", "choice", ("auto", "gRPC", "HTTP")),
    )
    PHASES = ("note", "gap", "memory", "load", "probe", "watch", "unload", "check", "back", "recover")

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
            spec = spec_of(seen, new, warmup, fit(box, seen, new).needs if plan.way == "gap" else None)
            probe = _probe(box.address(), plan, spec, golden)
            run.keep(spec=spec.dumped())
        return Swapper(box, plan, run, spec, _settings(box, plan, spec), probe).go()

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """See Action."""
        kept = {name: text for line in journal for name, text in line.data.items() if line.state == "kept"}
        name = plan.target.name
        try:
            entries = [e for e in box.index().entries if e.name == name]
        except SourceError as error:
            return _silent(kept, error)
        ready = tuple(
            sorted(int(e.version) for e in entries if e.state == "READY" and e.version and e.version.isdecimal())
        )
        busy = [f"{e.version} {e.state}" for e in entries if e.state in ("LOADING", "UNLOADING")]
        now = f"READY: {listed(ready)}" + (f"; {', '.join(busy)}" if busy else "")
        if "spec" not in kept:
            return f"{now}; nothing was sent", f"swap to {plan.values['version']} from the beginning", ""
        spec = Spec.loaded(kept["spec"])
        if ready == spec.before and not busy:
            return (
                f"{now}, as before",
                f"swap to {spec.new} from the beginning",
                f"pin {listed(spec.before)}, whatever of the new version is in memory goes",
            )
        verdict = (
            f"; {spec.new} takes the traffic and nobody has judged it" if max(ready, default=0) == spec.new else ""
        )
        return now + verdict, f"ask and watch {spec.new}, then go on to its end", f"back to {listed(spec.before)}"

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        try:
            box.ready()
        except SourceError as error:
            return _recovered(box, run, error)
        swapper = self._resumed(box, plan, run)
        return self.run(box, plan, run) if swapper is None else swapper.resume()

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        swapper = self._resumed(box, plan, run)
        if swapper is None:
            return Outcome("undone", "nothing had been sent", left=model_state(box, plan.target.name))
        return swapper.back(Trouble("cancelled", "taken back after it was interrupted"))

    def _resumed(self, box: Box, plan: Plan, run: Run) -> Swapper | None:
        text = run.kept().get("spec")
        if text is None:
            return None
        spec = Spec.loaded(text)
        probe = _probe(box.address(), plan, spec, _golden(box, spec.name))
        return Swapper(box, plan, run, spec, _settings(box, plan, spec), probe)


def _silent(kept: Mapping[str, str], error: SourceError) -> tuple[str, str, str]:
    """For a server that went down with the runner."""
    now = f"Triton does not answer: {error.message}"
    if "spec" not in kept:
        return f"{now}; nothing was sent", "", ""
    spec = Spec.loaded(kept["spec"])
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


def _probe(address: TritonAddress, plan: Plan, spec: Spec, golden: Golden | None) -> Probe:
    kind = probe_kind(plan.values, golden, wanted=True)
    probe = Probe(address, spec.name, kind, golden)
    wrong = probe.prepare(spec.old)
    if wrong and kind == "answer":
        # The old version does not give the kept answer either: then that is no measure for the new one.
        probe = Probe(address, spec.name, "form", golden)
        probe.prepare(spec.old)
    return probe


def _settings(box: Box, plan: Plan, spec: Spec) -> Settings:
    return Settings(
        watch=float(plan.values["watch"]),
        load_timeout=box.settings.actions.load_timeout,
        gap=plan.way == "gap",
        needs=spec.needs,
        recover=plan.values["recover"] == "true",
    )
