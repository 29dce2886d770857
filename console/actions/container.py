"""Start, stop and restart a container.

One that a systemd unit owns is started and stopped through that unit: behind systemd's back it would come again, or
stay away from the unit's point of view. One made with `--rm` vanishes when it stops, so its specification is kept
first, in a private file that `container.create` can read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import ClassVar

from console.actions import powering, saved_specs
from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.container_spec import captured
from console.actions.gap import Gap, answer_of_server, count_container
from console.actions.outage import outage, stop_words
from console.actions.target import (
    ContainerView,
    another_words,
    chosen_name,
    identity,
    is_another,
    is_running,
    models_words,
)
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
)

TIMEOUT = Field("timeout", "seconds that it gets to stop before it is killed", "int", low=0, high=86400, unit="s")
LONGER = Field("longer", "give it the stop_timeout of [actions], as its own is shorter than Triton drains", "bool")
UNIT = ".service"
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


def title(box: Box, verb: str, state: ContainerState) -> str:
    """`Stop container triton on infer-01`."""
    return f"{verb} container {state.name} on {box.host}"


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
            if view.state() is None and (making := _making(box, name)) is not None:
                return self._by_unit(box, name, values, *making)
            state = view.known()
            after = view.serving_after(state)
        took = (
            "how long the last start took is not known" if after is None else f"≈ {after:.0f} s until ready last time"
        )
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=title(box, "Start", state),
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

    def _by_unit(self, box: Box, name: str, values: Mapping[str, str], unit: str, user: bool) -> Plan:
        """There is no container: the unit makes it, as those with --rm and Quadlet's do at each start."""
        what = f"container {name}" if name != unit else "its container"
        here = f"no container {name} is there; the file of {unit} makes one of this name"
        if name == unit:
            here = f"no container of {unit} is there; each start of it makes one"
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(None)),
            values=dict(values),
            title=f"Start {unit}, which makes {what}, on {box.host}",
            yes="Start",
            danger="safe",
            checks=(Check("note", here),),
            steps=(
                Step("start", box.units().command(unit, "start", user), "its journal tells why"),
                Step("ready", "wait until Triton answers", "its log tells why"),
            ),
            effects=("how long it takes until ready is not known", "nothing that serves is touched"),
            by_hand=(box.units().command(unit, "start", user),),
            undo="stop it again",
            limit=box.settings.actions.start_timeout + powering.PORT_PATIENCE,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = _its_name(box, plan.target.name)
        with ContainerView(box, name) as view:
            if view.state() is None and (making := _making(box, name)) is not None:
                with run.phase("start", f"start {making[0]}"):
                    name = powering.make_by_unit(box, view, *making, run).name
        with ContainerView(box, name) as view:
            return started(box, view, run)

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """See ContainerAction; of the unit's container where the target is a unit."""
        return super().state(box, Target("container", _its_name(box, target.name)))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        runs = _runs(box, plan)
        return ("it runs", "", "stop it again") if runs else ("it does not run", "start it", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = _its_name(box, plan.target.name)
        with ContainerView(box, name) as view, run.phase("start", "stop it again"):
            return _stopped_again(box, view, run)


def _making(box: Box, name: str) -> tuple[str, bool] | None:
    """The unit that makes a container that is gone, and whether it is the user's own. `name` is the container's, or the
    unit's own (`triton.service`): all that a screen knows of a container that is gone."""
    if not name.endswith(UNIT):
        return box.unit_making(name)
    state = box.podman_state()
    user = state.unit.user if state.unit is not None and state.unit.name == name else state.origin == "rootless"
    known = box.units().show(name, ("LoadState",), user).get("LoadState") == "loaded"
    return (name, user) if known else box.unit_making(name)


def _its_name(box: Box, name: str) -> str:
    """The container's own name, where `name` is its unit's and it is there."""
    found = powering.container_of_unit(box, name) if name.endswith(UNIT) else None
    return name if found is None else found.name


def started(box: Box, view: ContainerView, run: Run) -> Outcome:
    """Start it and wait until Triton answers."""
    state = view.known()
    with run.phase("start", f"start {state.name}"):
        if is_running(state):
            run.note("it runs")
        elif state.unit:
            powering.through_unit(box, view, state, "start", run)
        else:
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
    if not ready.good or not view.answers():
        text = f"{state.name} runs, but Triton does not answer after {ready.seconds:.0f} s"
        return Outcome("failed", text, ready.lines, undo, left, still_going="it may still load models: see its log")
    return Outcome("done", f"{state.name} serves: {ready.words}", (), undo, left, figures={"start_s": ready.seconds})


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
            title=title(box, "Stop", state),
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
            gap = Gap(run, drains=True)
            with run.phase("stop", f"stop {state.name}"):
                count_container(view, run)
                gap.begin()
                went = powering.stop(box, view, state, int(plan.values["timeout"]), run)
                gap.got(answer_of_server(view))
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
            created = saved_specs.create_again(box, name, run.kept().get("saved", ""))
            run.note(f"created again from the kept specification{created}")
        outcome = started(box, view, run)
    word = "undone" if outcome.word == "done" else outcome.word
    return Outcome(word, outcome.text, outcome.lines, left=outcome.left)


def _undo_of_stop(box: Box, view: ContainerView, state: ContainerState, run: Run) -> UndoSpec:
    """How a stop is taken back; a container that vanishes is captured first."""
    if not state.auto_remove or state.unit:
        return UndoSpec("container.start", state.name, {}, f"start {state.name} again")
    saved = saved_specs.save(box, view)
    run.keep(saved=saved)
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
            title=title(box, "Restart", state),
            yes="Restart",
            danger="danger",
            note="a gap",
            checks=(*seen.checks, *managed(state)),
            ticks=ticks,
            steps=restart_steps(box, state, seconds),
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
                count_container(view, run)
            gap = Gap(run, drains=True)
            go_round(box, view, state, int(plan.values["timeout"]), gap, run)
            return _ready_again(box, view, state, wanted, gap, run)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        if other := other_here(box, plan):
            return (other, "", "")
        if _runs(box, plan):
            return ("it runs", "wait until all models that were READY are READY again", "")
        return ("it is stopped", "start it and wait for its models", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        wanted = parsed_models(run.kept().get("ready", ""))
        with ContainerView(box, plan.target.name) as view:
            gap = Gap(run, drains=True)
            state = up_again(box, view, gap, run)
            return _ready_again(box, view, state, wanted, gap, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.finish(box, plan, run)


def restart_steps(box: Box, state: ContainerState, seconds: int) -> tuple[Step, ...]:
    """As a plan tells them."""
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


def go_round(box: Box, view: ContainerView, state: ContainerState, seconds: int, gap: Gap, run: Run) -> None:
    """Stop it and start it again, as who owns it does; `seconds` to stop before it is killed. The gap begins."""
    if state.unit:
        with run.phase("stop", f"systemctl restart {state.unit}"):
            gap.begin()
            powering.through_unit(box, view, state, "restart", run)
    elif state.auto_remove:
        with run.phase("stop", "podman restart: one made with --rm would vanish if stopped first"):
            run.keep(saved=saved_specs.save(box, view))
            gap.begin()
            _restart_in_one(box, view, state, seconds, run)
    else:
        with run.phase("stop", f"stop {state.name}"):
            gap.begin()
            powering.stop(box, view, state, seconds, run)
            gap.got(answer_of_server(view))
        with run.phase("start", f"start {state.name}"):
            _start_again(box, state, run)


def up_again(box: Box, view: ContainerView, gap: Gap, run: Run) -> ContainerState:
    """After a killed `go_round`: start it where it is down, make it again where it vanished. An open gap goes on."""
    state = view.state()
    with run.phase("start", f"start {view.name}"):
        if not is_running(state):
            gap.go_on()
        if state is None and (making := box.unit_making(view.name)) is not None:
            return powering.make_by_unit(box, view, *making, run)
        if state is None:
            saved_specs.create_again(box, view.name, run.kept().get("saved", ""))
        state = view.known()
        if state.unit:
            powering.through_unit(box, view, state, "start", run)
        else:
            _start_again(box, state, run)
        return state


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
    box: Box, view: ContainerView, state: ContainerState, wanted: frozenset[tuple[str, str]], gap: Gap, run: Run
) -> Outcome:
    with run.phase("ready", "wait until all that was READY is READY again"):
        ready = powering.wait_ready(box, view, wanted, run, box.settings.actions.start_timeout)
        if ready.good:
            gap.end()
    left = identity(view.state())
    if ready.good:
        return Outcome("done", f"{state.name} restarted: {ready.words}", left=left, figures=gap.figures)
    going = "" if ready.ended else "Triton may still be loading: see Models and its log"
    return Outcome("failed", f"{state.name} restarted, but {ready.words}", ready.lines, None, left, going)


def _through(box: Box, state: ContainerState, verb: str) -> str:
    return unit_words(box, state, verb) if state.unit else f"{verb} it through Podman's API"


def _ports_free(box: Box, state: ContainerState) -> tuple[Check, ...]:
    if is_running(state) or not state.ports:
        return ()
    holder = powering.port_holder(powering.published(state), box.root)
    return (Check("warn", f"held by {holder}"),) if holder else (Check("ok", "its ports are free"),)


def _runs(box: Box, plan: Plan) -> bool:
    with ContainerView(box, _its_name(box, plan.target.name)) as view:
        return is_running(view.state())
