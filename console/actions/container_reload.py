"""Load all models of a container again: in place where its control mode allows it, else by a restart."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping

from msgspec.structs import replace

from console.actions import powering
from console.actions.base import Run
from console.actions.box import Box
from console.actions.container import Restart, noted, other_here, title
from console.actions.outage import Outage, live_only, outage
from console.actions.target import (
    ContainerView,
    chosen_name,
    identity,
)
from console.clients.triton import model_path
from console.clients.triton_control import TritonControl, find_route
from console.core.model import ContainerState, SourceError
from console.core.plan import (
    Check,
    Field,
    JournalLine,
    Outcome,
    Plan,
    Step,
    Target,
    Way,
)
from console.core.text import one_line


class Reload(Restart):
    """Load all models again: in place where the control mode is explicit, else by a restart."""

    NAME = "container.reload"
    FIELDS = (*Restart.FIELDS, Field("way", "how", "choice", ("load", "restart")))
    PHASES = ("note", "load", "stop", "start", "ready")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            seen = outage(box, view, state)
            route = _route_words(view, seen)
            kept = live_only(box, view, seen.ready, "kept") if seen.ready else ()
        refused = _no_loads(state, seen)
        way = values.get("way") or ("restart" if refused else "load")
        ways = (
            Way(
                "load",
                "load each model in place",
                "nothing stops: the old copy serves until the new one is READY",
                "0 s",
                refused,
            ),
            Way("restart", "restart the container", "connection refused", _gap_words(seen)),
        )
        if way == "restart":
            restart = super().plan(box, name, {key: value for key, value in values.items() if key != "way"})
            why = (f"not in place: {refused}",) if refused else ()
            return replace(
                restart,
                action=self.NAME,
                title=title(box, "Reload (by a restart) all models of", state),
                values={**restart.values, "way": way},
                ways=ways,
                way=way,
                effects=(*why, *restart.effects),
            )
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values={**values, "way": way},
            title=title(box, "Reload all models of", state),
            yes="Reload",
            danger="caution",
            note="reload",
            checks=(*seen.checks, *route),
            ways=ways,
            way=way,
            steps=(
                Step("note", "note what is READY", "nothing is changed"),
                Step(
                    "load",
                    f"load {len(_names(seen.ready))} models from disk, one after the other",
                    "the old copy of that model serves on",
                    tuple(f"POST /v2/repository/models/{one}/load" for one in _names(seen.ready)[:5]),
                ),
                Step("ready", "look whether all that was READY is READY", "told"),
            ),
            effects=(
                "requests in flight end on the old copy of their model",
                "during its load a model needs memory for both copies",
                "Triton loads anew what is newer on disk than what it serves; for the rest it answers at once",
                *kept,
            ),
            by_hand=tuple(
                shlex.join(("curl", "-X", "POST", f"{view.address().url}/v2/repository{model_path(one)[3:]}/load"))
                for one in _names(seen.ready)[:5]
            ),
            undo="not undone: put the files back as they were and reload",
            limit=max(1, len(_names(seen.ready))) * box.settings.actions.load_timeout,
            refused=refused if seen.running else f"it does not run (it is {state.state}): start it",
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        if plan.values.get("way") != "load":
            return super().run(box, plan, run)
        with ContainerView(box, plan.target.name) as view:
            with run.phase("note", "note what is READY"):
                wanted = noted(view, run)
            return _loaded_all(box, view, wanted, run)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if plan.values.get("way") != "load":
            return super().interrupted(box, plan, journal)
        if other := other_here(box, plan):
            return (other, "", "")
        return ("some models are loaded anew, others are not; all serve", "load all of them", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run) if plan.values.get("way") == "load" else super().finish(box, plan, run)


def _names(ready: frozenset[tuple[str, str]]) -> list[str]:
    return sorted({name for name, _ in ready})


def _no_loads(state: ContainerState, seen: Outage) -> str:
    """Why models cannot be loaded in place; "" = they can."""
    if seen.silent:
        return f"Triton does not answer: {seen.silent}"
    if state.control_mode != "explicit":
        return f"its control mode is {state.control_mode or 'not known'}: loads are refused"
    return ""


def _gap_words(seen: Outage) -> str:
    return "not known" if seen.gap_s is None else f"≈ {seen.gap_s:.0f} s"


def _route_words(view: ContainerView, seen: Outage) -> tuple[Check, ...]:
    if seen.silent or not seen.running:
        return ()
    try:
        route = find_route(view.address())
    except SourceError as error:
        return (Check("unknown", f"how loads would be sent is not known: {error.message}"),)
    if route.name == "gRPC":
        return (Check("ok", "loads go by gRPC: no client of another model stalls"),)
    return (Check("warn", "loads go by HTTP: clients on kept connections may stall while a model loads"),)


def _loaded_all(box: Box, view: ContainerView, wanted: frozenset[tuple[str, str]], run: Run) -> Outcome:
    box.changing()
    control = TritonControl(view.address())
    failed: list[str] = []
    with run.phase("load", f"load {len(_names(wanted))} models"):
        for number, name in enumerate(_names(wanted), 1):
            if run.cancelled.is_set():
                failed.append(f"stopped by the operator before {one_line(name, 80)}")
                break
            run.note(f"{number} of {len(_names(wanted))}: {one_line(name, 80)}")
            try:
                control.load(name, None, box.settings.actions.load_timeout)
            except SourceError as error:
                failed.append(f"{one_line(name, 80)}: {one_line(error.message, 300)}")
    with run.phase("ready", "look whether all that was READY is READY"):
        ready = powering.wait_ready(box, view, wanted, run, READY_AFTER_LOADS)
    left = identity(view.state())
    lines = (*failed, *(() if ready.good else ready.lines))
    if failed or not ready.good:
        missing = "" if ready.good else f"; {ready.words}"
        return Outcome(
            "failed", f"{len(failed)} of {len(_names(wanted))} models were not loaded anew{missing}", lines, None, left
        )
    return Outcome("done", f"{len(_names(wanted))} models were loaded anew; {ready.words}", (), None, left)


READY_AFTER_LOADS = 30.0
"""Seconds: a load's answer comes when the model is READY; ensembles that it took along follow."""
