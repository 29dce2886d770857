"""Make the container anew with changes, make one from nothing, go back to a kept one.

A new container is checked as far as can be before the running one is touched (preflight.py); the old one is kept under
another name, and comes back by itself when the new one is not good in time (replacing.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from console.actions import powering, replacing, saved_specs, spec_changes
from console.actions.base import Run
from console.actions.box import Box
from console.actions.container import ContainerAction, managed, stop_seconds, title
from console.actions.container_spec import Body, captured, create_body, shown_command
from console.actions.outage import Outage, outage, stop_words
from console.actions.preflight import first_failure, preflight
from console.actions.replacing import Facts, Replacement
from console.actions.service_rights import service_limits
from console.actions.target import ContainerView, another_words, chosen_name, identity, is_running, plain_name
from console.clients import cdi, libpod
from console.core.model import ContainerState, SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line

IN_POD = "it is in a pod: recreate the pod"


class Replacing(ContainerAction):
    """What is the same of all that put one container in the place of another: how a killed run goes on, or back."""

    PHASES = replacing.PHASES

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        return _found(box, plan, journal)

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        if not replacing.has_facts(run.kept()):
            return self.run(box, plan, run)
        return _forward(box, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return _undone(box, run)


def _forward(box: Box, run: Run) -> Outcome:
    with Replacement(box, replacing.facts_of(run), run) as walk:
        return walk.forward()


class Recreate(Replacing):
    """Make the container anew with changes; the old one is kept, and comes back by itself if the new one is no good."""

    NAME = "container.recreate"
    FIELDS = spec_changes.FIELDS

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            old, new, missing = _bodies(view, values)
            checks = preflight(box, view, new, powering.published(state), state.id)
            seen = outage(box, view, state)
        seconds, _ = stop_seconds(box, state, {})
        difference = spec_changes.difference(old, new)
        return Plan(
            action=self.NAME,
            target=Target("container", name, identity(state)),
            values=dict(values),
            title=title(box, "Recreate", state),
            yes="Recreate",
            danger="danger",
            note="a gap",
            checks=(*checks, *seen.checks, *managed(state), *_image_moved(old, state, box)),
            steps=_steps(name, new),
            effects=(
                *seen.lines,
                stop_words(state, seconds, seen.waiting),
                seen.gap_words,
                *_kept_words(state, name),
                *missing,
            ),
            difference=difference or ("  nothing changes: it is made anew as it is",),
            by_hand=_by_hand(name, seconds, new),
            undo="back to the kept old one (b)" if not state.auto_remove else "recreate it with the values before",
            limit=seconds + 60 + 2 * box.settings.actions.start_timeout + powering.PORT_PATIENCE,
            gap_s=seen.gap_s,
            refused=_refused(state, new, checks),
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = plan.target.name
        with ContainerView(box, name) as view:
            state = view.known()
            _, new, _ = _bodies(view, plan.values)
            failure = first_failure(preflight(box, view, new, powering.published(state), state.id))
            if failure:
                raise Refused(f"{failure}: nothing was touched")
            replacing.note_ready(box, name, is_running(state), run)
            saved = saved_specs.save(box, view)
        facts = _facts(box, state, saved, body=json.dumps(new))
        replacing.keep(run, facts)
        return _forward(box, run)


def _bodies(view: ContainerView, values: Mapping[str, str]) -> tuple[Body, Body, tuple[str, ...]]:
    """(as it is, as it is to be, what could not be captured)."""
    inspected = view.inspect() or {}
    now = captured(view)
    argv = [word for word in (inspected.get("Path"), *(inspected.get("Args") or ())) if word]
    return now.body, spec_changes.changed(now.body, values, argv), now.not_captured


def _facts(box: Box, state: ContainerState, saved: str, *, body: str = "", kept: ContainerState | None = None) -> Facts:
    control = box.podman()
    try:
        names = control.names()
    finally:
        control.close()
    seconds, _ = stop_seconds(box, state, {})
    vanishes = bool(state.auto_remove)
    return Facts(
        name=state.name,
        old=state.id,
        aside="" if vanishes else replacing.free_name(names, state.name),
        vanishes=vanishes,
        ran=is_running(state),
        saved=saved,
        body=body,
        kept=kept.name if kept is not None else "",
        kept_id=kept.id if kept is not None else "",
        seconds=seconds,
    )


def _refused(state: ContainerState, new: Body, checks: Sequence[Check]) -> str:
    if state.unit:
        return (
            f"it belongs to {state.unit}: change the unit instead (key U), then daemon-reload and restart; made anew "
            "behind systemd's back it would come again as it was"
        )
    return first_failure(checks)


def _image_moved(old: Body, state: ContainerState, box: Box) -> tuple[Check, ...]:
    """A pulled image takes its tag away from the one that runs."""
    from console.actions.image_pull import image_state

    now = image_state(box, old["image"])["image"]
    if now in ("not here", state.image_id[:12]):
        return ()
    return (Check("note", f"{one_line(old['image'], 120)} means a newer image now: {state.image_id[:12]} → {now}"),)


def _kept_words(state: ContainerState, name: str) -> tuple[str, ...]:
    if state.auto_remove:
        return ("it was made with --rm: the old one vanishes when it stops; going back creates it from what is kept",)
    return (f"the old one is kept, stopped, under another name ({name}-old-…), until you remove it (X)",)


def _steps(name: str, new: Body) -> tuple[Step, ...]:
    return (
        Step("note", "note what is READY, keep the old specification", "nothing is changed"),
        Step("stop", "stop the old one", "the old one is started again", (f"POST /containers/{name}/stop",)),
        Step("aside", "give it another name", "it gets its name back", (f"POST /containers/{name}/rename",)),
        Step("create", f"create the new one from {one_line(new['image'], 100)}", _BACK, ("POST /containers/create",)),
        Step("start", "start it", _BACK, (f"POST /containers/{name}/start",)),
        Step("ready", "wait until every model that was READY is READY again", _BACK),
    )


_BACK = "the new one is removed, the old one gets its name back and starts"


def _by_hand(name: str, seconds: int, new: Body) -> tuple[str, ...]:
    return (
        f"podman stop --time {seconds} {name}",
        f"podman rename {name} {name}-old-1",
        shown_command(new),
    )


def _found(box: Box, plan: Plan, journal: Sequence[JournalLine]) -> tuple[str, str, str]:
    """What a killed replacement left, from Podman's own words."""
    kept: dict[str, str] = {}
    for line in journal:
        kept.update(line.data if line.state == "kept" else {})
    if not replacing.has_facts(kept):
        return ("nothing was touched", "do it", "")
    told: dict[str, Any] = json.loads(kept["facts"])
    now = replacing.stood(box, Facts(**told))
    old = "is gone" if now.old is None else f"is {now.old.name}, {now.old.state}"
    other = replacing.foreign(now, Facts(**told), kept)
    if other is not None:
        back = "once that name is free again: the old one gets it back and starts"
        return f"the old one {old}; {another_words(other)}", "", back
    new = "there is no new one yet"
    if now.in_place and now.new is not None:
        new = f"the new one is {now.new.state}"
    return (
        f"the old one {old}; {new}",
        "go on: what is left of the steps, then wait for the models",
        "take the new one away, the old one gets its name back and starts",
    )


def _undone(box: Box, run: Run) -> Outcome:
    if not replacing.has_facts(run.kept()):
        return Outcome("undone", "nothing was touched")
    with Replacement(box, replacing.facts_of(run), run) as walk:
        return walk.back("undone by the operator")


class Back(Replacing):
    """Go back to a kept old container; the present one is kept instead."""

    NAME = "container.back"
    FIELDS = (Field("kept", "which kept container; empty = the newest"),)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.state()
            seen = outage(box, view, state) if state is not None else Outage(False)
        kept = _kept(box, name, values.get("kept", ""))
        seconds = stop_seconds(box, state, {})[0] if state is not None else 0
        running = state is not None and is_running(state)
        effects = [*seen.lines]
        if state is not None and running:
            effects += [stop_words(state, seconds, seen.waiting), seen.gap_words]
        effects.append(f"{kept.name} was made from {one_line(kept.image, 120)}")
        return Plan(
            action=self.NAME,
            target=Target("container", name, {**identity(state), "kept": kept.name, "kept_id": kept.id[:12]}),
            values={**values, "kept": kept.name},
            title=f"Back to {kept.name} on {box.host}, container {name}",
            yes="Go back",
            danger="danger",
            note="a gap" if running else "",
            checks=(*seen.checks, *(managed(state) if state is not None else ())),
            steps=(
                Step("note", "note what is READY", "nothing is changed"),
                Step("stop", "stop the present one", "it is started again"),
                Step("aside", "give it another name", "it gets its name back"),
                Step("create", f"give {kept.name} the name {name}", "names go back"),
                Step("start", "start it", "names go back, the present one starts"),
                Step("ready", "wait until every model that was READY is READY again", "as before"),
            ),
            effects=tuple(effects),
            by_hand=(
                f"podman stop {name}",
                f"podman rename {name} {name}-old-…",
                f"podman rename {kept.name} {name}",
                f"podman start {name}",
            ),
            undo="the same again: the present one is kept",
            limit=seconds + 60 + 2 * box.settings.actions.start_timeout + powering.PORT_PATIENCE,
            gap_s=seen.gap_s,
            refused=_runs_already(kept) or (_refused(state, {}, ()) if state is not None else ""),
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        found = dict(super().state(box, target))
        kept = target.identity.get("kept")
        if kept:
            with ContainerView(box, kept) as view:
                there = view.state()
            found |= {"kept": kept, "kept_id": there.id[:12] if there is not None else "absent"}
        return found

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name, kept = plan.target.name, _kept(box, plan.target.name, plan.values.get("kept", ""))
        with ContainerView(box, name) as view:
            state = view.state()
            replacing.note_ready(box, name, is_running(state), run)
            saved = saved_specs.save(box, view) if state is not None else ""
        if state is None:
            facts = Facts(name=name, kept=kept.name, kept_id=kept.id)
        else:
            facts = _facts(box, state, saved, kept=kept)
        replacing.keep(run, facts)
        return _forward(box, run)


def _runs_already(kept: ContainerState) -> str:
    """One that serves under its own name is no spare one: on the way back it would be stopped."""
    return f"{kept.name} runs: a kept one is stopped; stop it first, or leave it" if is_running(kept) else ""


def _kept(box: Box, name: str, wanted: str) -> ContainerState:
    from console.clients.podman import Podman

    client = Podman(box.podman_url)
    try:
        names = {one.name: one.state for one in client.containers()}
    finally:
        client.close()
    found = libpod.kept_names(names, name)
    if wanted and wanted not in found:
        raise WrongInput(
            f"there is no kept container {one_line(wanted, 80)} of {one_line(name, 80)}; kept are "
            f"{', '.join(found) or 'none'}"
        )
    if not wanted and not found:
        raise WrongInput(f"no old container of {one_line(name, 80)} is kept here ({name}-old-1 would be its name)")
    with ContainerView(box, wanted or found[0]) as view:
        return view.known()


# ----------------------------------------------------------------------------------------------------- from nothing

NVIDIA = "nvidia.com/gpu=all"
DEFAULT_PORTS = "127.0.0.1:8000:8000,127.0.0.1:8001:8001,127.0.0.1:8002:8002"
STACK = 67108864
"""Bytes; NVIDIA's own advice for this image, as is memlock=-1."""


class Create(ContainerAction):
    """Make a Triton container from nothing, or again as it was kept."""

    NAME = "container.create"
    FIELDS = (
        Field("models", "folder of the model repository on this host"),
        Field("image", "the image; empty = the newest Triton image on this box"),
        Field("ports", f"ports to publish; empty = {DEFAULT_PORTS}", "list"),
        Field("mode", "model control mode; empty = explicit, all models loaded", "choice", spec_changes.MODES),
        Field("shm_size", "size of /dev/shm; empty = 1g"),
        Field("ulimits", "limits; empty = memlock=-1 and stack=67108864 where Podman may set them", "map"),
        Field("cpus", "CPUs that it may use; empty = all"),
        Field("numa", "memory nodes that it may use; empty = all"),
        Field("env", "variables, NAME=value", "list", secret=True),
        Field("flags", "further server flags, --name=value", "list"),
        Field("devices", f"devices; empty = {NVIDIA} where a CDI spec has it", "list"),
        Field(
            "stop_timeout", "seconds that it gets to stop; empty = as in [actions]", "int", low=0, high=86400, unit="s"
        ),
        Field("start", "start it too", "bool"),
        Field("saved", "a kept specification of a container that is gone; then nothing else counts"),
    )
    PHASES = ("create", "start", "ready")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = plain_name(target or "triton")
        body = wanted_body(box, name, values)
        starts = values.get("start", "true") == "true"
        with ContainerView(box, name) as view:
            there = view.state()
            checks = preflight(box, view, body, () if starts else _host_ports(body))
        return Plan(
            action=self.NAME,
            target=Target("container", name, {"container": "absent"}),
            values=dict(values),
            title=f"Create container {name} on {box.host}",
            yes="Create",
            danger="safe",
            checks=checks,
            steps=(
                Step(
                    "create",
                    f"create it from {one_line(body['image'], 100)}",
                    "nothing is left",
                    ("POST /containers/create",),
                ),
                *((Step("start", "start it", "it is removed again"),) if starts else ()),
                *(
                    (Step("ready", "wait until Triton answers", "it is removed again, its log is told"),)
                    if starts
                    else ()
                ),
            ),
            effects=("nothing that runs is touched", *_listens(body)),
            by_hand=(shown_command(body),),
            undo="stop it, then remove it" if starts else "remove it",
            limit=60 + powering.PORT_PATIENCE + box.settings.actions.start_timeout,
            refused=f"there is a container {name} already: recreate it, or choose another name"
            if there is not None
            else first_failure(checks),
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self._onwards(box, plan, run)

    def _onwards(self, box: Box, plan: Plan, run: Run) -> Outcome:
        name = plan.target.name
        starts = plan.values.get("start", "true") == "true"
        control = box.podman()
        try:
            with ContainerView(box, name) as view:
                if (other := _not_ours(view.state(), run.kept())) is not None:
                    raise Refused(another_words(other))
                if view.state() is None:
                    with run.phase("create", f"create {name}"):
                        _created(control, wanted_body(box, name, plan.values), run)
                if not starts:
                    undo = UndoSpec("container.remove", name, {}, f"remove {name}")
                    return Outcome("done", f"{name} is created, not started", (), undo, identity(view.state()))
                try:
                    ready = self._up(box, view, control, run)
                except SourceError as error:
                    return self._gone_again(view, control, error.message, (error.hint,) if error.hint else ())
                if not ready.good:
                    return self._gone_again(view, control, ready.words, ready.lines)
                undo = UndoSpec("container.stop", name, {}, f"stop {name}")
                return Outcome("done", f"{name} serves: {ready.words}", (), undo, identity(view.state()))
        finally:
            control.close()

    def _up(self, box: Box, view: ContainerView, control: Any, run: Run) -> powering.Readiness:
        state = view.known()
        if not is_running(state):
            with run.phase("start", f"start {state.name}"):
                powering.start(control, state.name, powering.published(state), run, box.root)
        with run.phase("ready", "wait until Triton answers"):
            return powering.wait_ready(box, view, frozenset(), run, box.settings.actions.start_timeout)

    def _gone_again(self, view: ContainerView, control: Any, cause: str, lines: tuple[str, ...]) -> Outcome:
        control.remove(view.known().id, force=True)
        return Outcome("undone", f"{one_line(cause, 300)}; it was removed again", lines, None, identity(view.state()))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        with ContainerView(box, plan.target.name) as view:
            state = view.state()
        if state is None:
            return ("there is no container of this name", "create it", "")
        kept = {name: value for line in journal if line.state == "kept" for name, value in line.data.items()}
        if (other := _not_ours(state, kept)) is not None:
            return (another_words(other), "", "")
        return (f"it is {state.state}", "start it and wait for its models", "remove it")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self._onwards(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with ContainerView(box, plan.target.name) as view:
            state = view.state()
        if (other := _not_ours(state, run.kept())) is not None:
            raise Refused(another_words(other))
        control = box.podman()
        try:
            with run.phase("create", f"remove {plan.target.name}"):
                if state is not None:
                    control.remove(state.id, force=True)
        finally:
            control.close()
        return Outcome("undone", f"{plan.target.name} is removed")


def _not_ours(state: ContainerState | None, kept: Mapping[str, str]) -> ContainerState | None:
    """The container that has the name, where it is not the one that was created here. A runner that died between
    Podman's answer and its note leaves one that was never started."""
    ours = state is None or state.id == kept.get("new") or ("new" not in kept and state.state == "created")
    return None if ours else state


def _host_ports(body: Body) -> tuple[int, ...]:
    """What is created only may have ports that another one has now: it is the start that wants them."""
    return tuple(int(one.get("host_port") or 0) for one in body.get("portmappings") or ())


def _created(control: Any, body: Body, run: Run) -> None:
    made = control.create(create_body(body))
    run.keep(new=made.id)
    for line in (
        *(f"Podman warns: {text}" for text in made.warnings),
        *replacing.unlike(body, control.inspect(made.id)),
    ):
        run.note(line)


def wanted_body(box: Box, name: str, values: Mapping[str, str]) -> Body:
    if values.get("saved"):
        return {**saved_specs.load(box, values["saved"]), "name": name}
    models = values.get("models", "").strip()
    if not models.startswith("/"):
        raise WrongInput("models: give the model repository's folder on this host, as in models=/data/models")
    image = values.get("image") or next(iter(box.podman_state().images), "")
    if not image:
        raise WrongInput("image: no Triton image is on this box: pull one first (image.pull), then name it")
    body: Body = {
        "name": name,
        "image": spec_changes.image(image),
        "command": ["tritonserver", "--model-repository=/models", "--exit-timeout-secs=30", "--exit-on-error=false"],
        "mounts": [{"type": "bind", "source": models, "destination": "/models", "options": ["ro", "z", "rbind"]}],
        "labels": {libpod.MANAGED_LABEL: "1"},
        "restart_policy": "no",
        "devices": _default_devices(box),
        "r_limits": _default_limits(box),
    }
    return spec_changes.changed(body, _with_defaults(box, values), ())


def _with_defaults(box: Box, values: Mapping[str, str]) -> dict[str, str]:
    given = {key: value for key, value in values.items() if value and key not in ("models", "image", "start", "saved")}
    defaults = {"ports": DEFAULT_PORTS, "mode": "explicit", "shm_size": "1g"}
    return {**defaults, "stop_timeout": str(box.settings.actions.stop_timeout), **given}


def _default_devices(box: Box) -> list[Body]:
    found = cdi.resolve(NVIDIA, None, box.root)
    return [] if not found.file else [{"path": NVIDIA}]


def _default_limits(box: Box) -> list[Body]:
    """memlock and stack as NVIDIA advises. Naming any drops the defaults for nofile and nproc, so these are named too;
    what Podman may not raise is left as high as it may."""
    told = service_limits(box)
    asked = [("memlock", "-1"), ("stack", str(STACK)), ("nofile", "1048576"), ("nproc", "1048576")]
    found = [spec_changes.ulimit(f"{name}={value}") for name, value in asked]
    if told is None:
        return []
    for one in found:
        most = told.get(one["type"])
        if most is not None and most < one["hard"]:
            one["soft"] = one["hard"] = most
    return found


def _listens(body: Body) -> tuple[str, ...]:
    open_ports = [one for one in body.get("portmappings") or () if not str(one.get("host_ip") or "").startswith("127.")]
    if not open_ports:
        return ("it is published on this host only: other machines cannot reach it",)
    return (
        f"published to the network: {', '.join(str(one.get('host_port')) for one in open_ports)}, model control too",
    )
