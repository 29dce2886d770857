"""The container's own keys: start, stop, restart, reload, remove, back to the kept one, and pulling an image.

One that a systemd unit owns is started and stopped through that unit: behind systemd's back it would come again, or
stay away from the unit's point of view. One made with `--rm` vanishes when it stops, so its specification is kept
first, in a private file that `container.create` can read again.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from console.actions import powering, saved_specs, spec_changes
from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.container_spec import captured
from console.actions.outage import Outage, live_only, outage, stop_words
from console.actions.target import (
    ContainerView,
    another_words,
    chosen_name,
    identity,
    is_another,
    is_running,
    models_words,
)
from console.clients import host
from console.clients.podman_control import PodmanControl
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
    Tick,
    UndoSpec,
    Way,
)
from console.core.text import one_line

TIMEOUT = Field("timeout", "seconds that it gets to stop before it is killed", "int", low=0, high=86400, unit="s")
LONGER = Field("longer", "give it the stop_timeout of [actions], as its own is shorter than Triton drains", "bool")
DEFAULT_STOP = 10
"""Seconds; Podman's own default."""


class ContainerAction(Action):
    """One container, by its name."""

    TARGET = "container"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """Whether it is there, its id, state and start."""
        with ContainerView(box, target.name) as view:
            return identity(view.state())


def other_here(box: Box, plan: Plan) -> str:
    """That the name belongs to another container than the plan's: what was interrupted must not go on with that one.
    "" where it does not."""
    with ContainerView(box, plan.target.name) as view:
        state = view.state()
    return another_words(state) if state is not None and is_another(state, plan.target.identity) else ""


def stop_seconds(box: Box, state: ContainerState, values: Mapping[str, str]) -> tuple[int, tuple[Tick, ...]]:
    """Seconds that it gets, and the box to tick where its own time is shorter than Triton's drain."""
    own = DEFAULT_STOP if state.stop_timeout is None else state.stop_timeout
    if values.get("timeout"):
        return int(values["timeout"]), ()
    better = box.settings.actions.stop_timeout
    if state.unit or state.exit_timeout is None or own > state.exit_timeout or better <= own:
        return own, ()
    on = values.get("longer", "true") == "true"
    text = f"it gets {own} s, drains up to {state.exit_timeout}: requests in flight may be cut. Use {better}"
    return (better if on else own), (Tick("longer", text, on),)


def title(verb: str, state: ContainerState) -> str:
    """`Stop container triton on infer-01`."""
    return f"{verb} container {state.name} on {host.hostname()}"


def unit_words(box: Box, state: ContainerState, verb: str) -> str:
    """What a person would type for the unit."""
    return f"{box.units().command(state.unit or '', verb, box.unit_of_user)}"  # type: ignore[arg-type]


def managed(state: ContainerState) -> tuple[Check, ...]:
    """Who owns it, where a unit does."""
    if not state.unit:
        return ()
    return (Check("note", f"managed by {state.unit} ({state.unit_origin}): acts go through it"),)


def vanishes(state: ContainerState) -> tuple[str, ...]:
    """What --rm means."""
    if not state.auto_remove or state.unit:
        return ()
    return ("it was made with --rm: it vanishes when it stops; its specification is kept, undo creates it again",)


class Start(ContainerAction):
    """Start a container that is there and does not run."""

    NAME = "container.start"
    PHASES = ("start", "ready")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            after = view.serving_after(state)
        took = (
            "how long the last start took is not known" if after is None else f"≈ {after:.0f} s until ready last time"
        )
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=title("Start", state),
            yes="Start",
            danger="safe",
            checks=(*managed(state), *_ports_free(box, state)),
            steps=(
                Step("start", _through(box, state, "start"), "it stays stopped", (f"POST /containers/{name}/start",)),
                Step("ready", "wait until Triton answers", "its log tells why"),
            ),
            effects=(took, "nothing that serves is touched"),
            by_hand=(unit_words(box, state, "start") if state.unit else f"podman start {name}",),
            undo="stop it again",
            limit=box.settings.actions.start_timeout + powering.PORT_PATIENCE,
            refused="it runs already" if is_running(state) else "",
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with ContainerView(box, plan.target.name) as view:
            return started(box, view, run)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        runs = _runs(box, plan)
        return ("it runs", "", "stop it again") if runs else ("it does not run", "start it", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with ContainerView(box, plan.target.name) as view, run.phase("start", "stop it again"):
            return _stopped_again(box, view, run)


def started(box: Box, view: ContainerView, run: Run) -> Outcome:
    """Start it and wait until Triton answers."""
    state = view.known()
    with run.phase("start", f"start {state.name}"):
        if state.unit:
            powering.through_unit(box, view, state, "start", run)
        elif not is_running(state):
            control = box.podman()
            try:
                powering.start(control, state.id, powering.published(state), run, box.root)
            finally:
                control.close()
    with run.phase("ready", "wait until Triton answers"):
        ready = powering.wait_ready(box, view, frozenset(), run, box.settings.actions.start_timeout)
    undo = UndoSpec("container.stop", state.name, {}, f"stop {state.name} again")
    left = identity(view.state())
    if ready.ended:
        return Outcome("failed", f"{state.name}: {ready.words}", ready.lines, left=left)
    if not ready.good or not _answers(view):
        text = f"{state.name} runs, but Triton does not answer after {ready.seconds:.0f} s"
        return Outcome("failed", text, ready.lines, undo, left, still_going="it may still load models: see its log")
    return Outcome("done", f"{state.name} serves: {ready.words}", (), undo, left, figures={"start_s": ready.seconds})


def _answers(view: ContainerView) -> bool:
    try:
        view.ready()
    except SourceError:
        return False
    return True


class Stop(ContainerAction):
    """Stop a container: it drains first, and is killed when its time is over."""

    NAME = "container.stop"
    FIELDS = (TIMEOUT, LONGER)
    PHASES = ("stop",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            seen = outage(box, view, state)
            spec_lines = _kept_words(view, state)
        seconds, ticks = stop_seconds(box, state, values)
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values={**values, "timeout": str(seconds)},
            title=title("Stop", state),
            yes="Stop",
            danger="danger",
            note="a gap",
            checks=(*seen.checks, *managed(state)),
            ticks=ticks,
            steps=(
                Step(
                    "stop",
                    _through(box, state, "stop") + ("" if state.unit else f", at most {seconds} s"),
                    "look at it again: Podman may still be stopping it",
                    (f"POST /containers/{name}/stop?timeout={seconds}",),
                ),
            ),
            effects=(
                *seen.lines,
                stop_words(state, seconds, seen.waiting),
                *((seen.stop_words,) if seen.running else ()),
                *vanishes(state),
                *spec_lines,
                _stays(state),
            ),
            by_hand=(unit_words(box, state, "stop") if state.unit else f"podman stop --time {seconds} {name}",),
            undo=f"start it again ({seen.back})",
            limit=seconds + 30.0,
            gap_s=None if seen.running else 0.0,
            refused="" if seen.running else f"it does not run (it is {state.state})",
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with ContainerView(box, plan.target.name) as view:
            state = view.known()
            undo = _undo_of_stop(box, view, state, run)
            with run.phase("stop", f"stop {state.name}"):
                went = powering.stop(box, view, state, int(plan.values["timeout"]), run)
            left = identity(view.state())
        return Outcome("done", f"{state.name} {went.words}", (), undo, left, figures={"stop_s": went.seconds})

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        if _runs(box, plan):
            return ("it runs, or is stopping still", "stop it", "")
        return ("it is stopped", "", "start it again")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return _bring_back(box, plan, run)


def _bring_back(box: Box, plan: Plan, run: Run) -> Outcome:
    """Start what was stopped; where it vanished, create it from what was kept."""
    name = plan.target.name
    with ContainerView(box, name) as view:
        if view.state() is None:
            created = saved_specs.create_again(box, name, run.kept().get("spec", ""))
            run.note(f"created again from the kept specification{created}")
        outcome = started(box, view, run)
    word = "undone" if outcome.word == "done" else outcome.word
    return Outcome(word, outcome.text, outcome.lines, left=outcome.left)


def _undo_of_stop(box: Box, view: ContainerView, state: ContainerState, run: Run) -> UndoSpec:
    """How a stop is taken back; a container that vanishes is captured first."""
    if not state.auto_remove or state.unit:
        return UndoSpec("container.start", state.name, {}, f"start {state.name} again")
    saved = saved_specs.save(box, view)
    run.keep(spec=saved)
    return UndoSpec("container.create", state.name, {"saved": saved}, f"create {state.name} again and start it")


def _kept_words(view: ContainerView, state: ContainerState) -> tuple[str, ...]:
    """What cannot be kept of a container that vanishes."""
    if not state.auto_remove or state.unit:
        return ()
    return captured(view).not_captured


def _stays(state: ContainerState) -> str:
    if state.unit:
        return f"managed by {state.unit}: stopped through it, so it stays down"
    return "it stays down until somebody starts it"


def _stopped_again(box: Box, view: ContainerView, run: Run) -> Outcome:
    state = view.known()
    seconds, _ = stop_seconds(box, state, {})
    went = powering.stop(box, view, state, seconds, run)
    return Outcome("undone", f"{state.name} {went.words}", left=identity(view.state()))


class Restart(ContainerAction):
    """Stop the container and start it again, and wait until all models that were READY are READY again."""

    NAME = "container.restart"
    FIELDS: ClassVar[tuple[Field, ...]] = (TIMEOUT, LONGER)
    PHASES: ClassVar[tuple[str, ...]] = ("note", "stop", "start", "ready")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            seen = outage(box, view, state)
        seconds, ticks = stop_seconds(box, state, values)
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values={**values, "timeout": str(seconds)},
            title=title("Restart", state),
            yes="Restart",
            danger="danger",
            note="a gap",
            checks=(*seen.checks, *managed(state)),
            ticks=ticks,
            steps=_restart_steps(box, state, seconds),
            effects=(*seen.lines, stop_words(state, seconds, seen.waiting), seen.gap_words),
            by_hand=(unit_words(box, state, "restart") if state.unit else f"podman restart --time {seconds} {name}",),
            undo="nothing to undo: it runs as before, less its live-only settings",
            limit=seconds + 30 + box.settings.actions.start_timeout,
            gap_s=seen.gap_s,
            refused="" if seen.running else f"it does not run (it is {state.state}): start it",
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with ContainerView(box, plan.target.name) as view:
            state = view.known()
            with run.phase("note", "note what is READY"):
                wanted = noted(view, run)
            began = time.monotonic()
            if state.unit:
                with run.phase("stop", f"systemctl restart {state.unit}"):
                    powering.through_unit(box, view, state, "restart", run)
            elif state.auto_remove:
                with run.phase("stop", "podman restart: one made with --rm would vanish if stopped first"):
                    run.keep(spec=saved_specs.save(box, view))
                    _restart_in_one(box, view, state, int(plan.values["timeout"]), run)
            else:
                with run.phase("stop", f"stop {state.name}"):
                    powering.stop(box, view, state, int(plan.values["timeout"]), run)
                with run.phase("start", f"start {state.name}"):
                    _start_again(box, state, run)
            return _ready_again(box, view, state, wanted, began, run)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        if _runs(box, plan):
            return ("it runs", "wait until all models that were READY are READY again", "")
        return ("it is stopped", "start it and wait for its models", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        wanted = parsed_models(run.kept().get("ready", ""))
        with ContainerView(box, plan.target.name) as view:
            state = view.state()
            if state is None:
                saved_specs.create_again(box, plan.target.name, run.kept().get("spec", ""))
                state = view.known()
            began = time.monotonic()
            with run.phase("start", f"start {state.name}"):
                if state.unit:
                    powering.through_unit(box, view, state, "start", run)
                else:
                    _start_again(box, state, run)
            return _ready_again(box, view, state, wanted, began, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.finish(box, plan, run)


def _restart_steps(box: Box, state: ContainerState, seconds: int) -> tuple[Step, ...]:
    return (
        Step("note", "note what is READY", "nothing is changed"),
        Step(
            "stop",
            _through(box, state, "restart" if state.unit else "stop")
            + ("" if state.unit else f", at most {seconds} s"),
            "look at it again: Podman may still be stopping it",
            (f"POST /containers/{state.name}/stop?timeout={seconds}",),
        ),
        Step("start", "start it", "tried again while a port is held", (f"POST /containers/{state.name}/start",)),
        Step("ready", "wait until all that was READY is READY again", "told with the log's reason"),
    )


def noted(view: ContainerView, run: Run) -> frozenset[tuple[str, str]]:
    """What is READY now, kept in the journal; empty where Triton does not answer."""
    try:
        ready = view.ready()
    except SourceError as error:
        run.note(f"Triton does not answer, so nothing is waited for afterwards: {error.message}")
        ready = frozenset()
    run.keep(ready=json.dumps(sorted(ready)))  # a folder's name, and so a model's, may hold any separator
    run.note(f"{len(ready)} READY" + (f": {models_words(ready)}" if ready else ""))
    return ready


def parsed_models(text: str) -> frozenset[tuple[str, str]]:
    """What `noted` kept."""
    return frozenset((name, version) for name, version in json.loads(text or "[]"))


def _restart_in_one(box: Box, view: ContainerView, state: ContainerState, seconds: int, run: Run) -> None:
    control = box.podman()
    try:
        powering.waited(
            lambda: control.restart(state.id, seconds), run, lambda spent: f"{spent:.0f} s: stopping, then starting"
        )
    finally:
        control.close()


def _start_again(box: Box, state: ContainerState, run: Run) -> None:
    control = box.podman()
    try:
        powering.start(control, state.id, powering.published(state), run, box.root)
    finally:
        control.close()


def _ready_again(
    box: Box, view: ContainerView, state: ContainerState, wanted: frozenset[tuple[str, str]], began: float, run: Run
) -> Outcome:
    with run.phase("ready", "wait until all that was READY is READY again"):
        ready = powering.wait_ready(box, view, wanted, run, box.settings.actions.start_timeout)
    figures = {"gap_s": time.monotonic() - began}
    left = identity(view.state())
    if ready.good:
        return Outcome("done", f"{state.name} restarted: {ready.words}", left=left, figures=figures)
    going = "" if ready.ended else "Triton may still be loading: see Models and its log"
    return Outcome("failed", f"{state.name} restarted, but {ready.words}", ready.lines, None, left, going, figures)


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
                title=title("Reload (by a restart) all models of", state),
                values={**restart.values, "way": way},
                ways=ways,
                way=way,
                effects=(*why, *restart.effects),
            )
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values={**values, "way": way},
            title=title("Reload all models of", state),
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


class Remove(ContainerAction):
    """Remove a container that does not run; what it was made of is kept, so that it can be made again."""

    NAME = "container.remove"
    PHASES = ("keep", "remove")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            missing = captured(view).not_captured
        refused = f"it is {state.state}: stop it first" if is_running(state) else ""
        if state.unit and not refused:
            refused = f"it belongs to {state.unit}, which makes it anew at each start: disable the unit instead"
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=title("Remove", state),
            yes="Remove",
            danger="danger",
            checks=managed(state),
            steps=(
                Step("keep", "keep its specification in the console's state folder", "nothing is removed"),
                Step("remove", "remove it", "it is still there", (f"DELETE /containers/{name}",)),
            ),
            effects=("its log and whatever was written inside it are lost", *missing),
            by_hand=(f"podman rm {name}",),
            undo="create it again from the kept specification (stopped); its log does not come back",
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = plan.target.name
        with ContainerView(box, name) as view:
            state = view.known()
            with run.phase("keep", "keep its specification"):
                saved = saved_specs.save(box, view)
                run.keep(spec=saved)
            with run.phase("remove", f"remove {name}"):
                control = box.podman()
                try:
                    control.remove(state.id)
                finally:
                    control.close()
            left = identity(view.state())
        undo = UndoSpec("container.create", name, {"saved": saved, "start": "false"}, f"create {name} again")
        return Outcome("done", f"{name} is removed", (), undo, left)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        with ContainerView(box, plan.target.name) as view:
            there = view.state() is not None
        return ("it is still there", "remove it", "") if there else ("it is removed", "", "create it again")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("remove", "create it again"):
            saved_specs.create_again(box, plan.target.name, run.kept().get("spec", ""))
        return Outcome("undone", f"{plan.target.name} is there again, stopped")


class Pull(Action):
    """Pull an image; running containers keep the one that they were made from."""

    NAME = "image.pull"
    TARGET = "image"
    FIELDS = (Field("tls_verify", "false for a registry without a good certificate", "bool"),)
    PHASES = ("pull",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        reference = spec_changes.image(target.strip())
        here = image_state(box, reference)
        insecure = values.get("tls_verify") == "false"
        return Plan(
            action=self.NAME,
            target=Target("image", reference, here),
            values=dict(values),
            title=f"Pull {reference} on {host.hostname()}",
            yes="Pull",
            danger="safe",
            checks=(_image_check(here),),
            steps=(
                Step("pull", "pull it layer by layer", "what was there stays", (f"POST /images/create {reference}",)),
            ),
            effects=(
                "no container is touched: a running one keeps its image until it is recreated",
                "no bytes are told for a registry without TLS" if insecure else "the bytes of each layer are told",
            ),
            by_hand=(f"podman pull{' --tls-verify=false' if insecure else ''} {reference}",),
            undo="not undone: `podman rmi` removes an image that nothing uses",
            limit=24 * 3600.0,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return image_state(box, target.name)

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        control = box.podman()
        try:
            with run.phase("pull", f"pull {plan.target.name}"):
                stopped = _pull(control, plan.target.name, plan.values.get("tls_verify") != "false", run)
        finally:
            control.close()
        if stopped:
            return Outcome("undone", "stopped by the operator; layers already pulled are kept for the next try")
        return Outcome("done", f"{plan.target.name} is here", left=image_state(box, plan.target.name))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        here = image_state(box, plan.target.name)
        return ("the image is " + here["image"], "pull it", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)


def image_state(box: Box, reference: str) -> dict[str, str]:
    """Which image has this name now."""
    from console.clients.podman import Podman

    client = Podman(box.podman_url)
    try:
        found = client.image_id(reference)
    finally:
        client.close()
    return {"image": found[:12] if found else "not here"}


def _image_check(here: Mapping[str, str]) -> Check:
    if here["image"] == "not here":
        return Check("note", "no image of this name is here yet")
    return Check("note", f"an image of this name is here ({here['image']}): a newer one takes its name")


def _pull(control: PodmanControl, reference: str, tls_verify: bool, run: Run) -> bool:
    """True when the operator stopped it."""
    layers: dict[str, tuple[int, int | None]] = {}
    done: set[str] = set()
    told = 0.0
    for progress in control.pull(reference, tls_verify=tls_verify):
        if run.cancelled.is_set():
            return True
        if progress.layer and progress.current is not None:
            layers[progress.layer] = (progress.current, progress.total)
        if progress.layer and "complete" in progress.status.lower():
            done.add(progress.layer)
        if time.monotonic() - told > powering.TELL_EVERY:
            told = time.monotonic()
            run.note(_pull_words(layers, done, progress.status))
    return False


def _pull_words(layers: Mapping[str, tuple[int, int | None]], done: set[str], status: str) -> str:
    from console.core import units

    if not layers:
        return f"{len(done)} layers complete; {one_line(status, 100)}"
    current = sum(pair[0] for pair in layers.values())
    total = sum(pair[1] or 0 for pair in layers.values())
    of = f" of {units.size(total)}" if total >= current else ""
    return f"{units.size(current)}{of} in {len(layers)} layers, {len(done)} complete"


def _through(box: Box, state: ContainerState, verb: str) -> str:
    return unit_words(box, state, verb) if state.unit else f"{verb} it through Podman's API"


def _ports_free(box: Box, state: ContainerState) -> tuple[Check, ...]:
    if is_running(state) or not state.ports:
        return ()
    holder = powering.port_holder(powering.published(state), box.root)
    return (Check("warn", f"held by {holder}"),) if holder else (Check("ok", "its ports are free"),)


def _runs(box: Box, plan: Plan) -> bool:
    with ContainerView(box, plan.target.name) as view:
        return is_running(view.state())
