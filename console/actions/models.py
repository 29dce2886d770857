"""Load, unload and reload models. The READY set of the whole server is compared before and after each of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.gap import Gap, answer_for_model, count_model
from console.actions.model_load import load, lost, ready_versions, wait_gone
from console.actions.model_look import (
    load_seconds,
    look,
    mode_refusal,
    model_state,
    taken,
)
from console.actions.model_reload import default_way, marked, ways
from console.actions.model_words import (
    ROUTE,
    SPARE,
    UNLOAD_LIMIT,
    by_hand,
    call,
    control_checks,
    disk_checks,
    load_again,
    load_failure,
    load_refusal,
    one_version,
    reload_effects,
    reload_failed,
    reload_refusal,
    reloaded,
    room,
    route_of,
    title,
    traffic,
    undo_unload,
    unloaded_words,
    waits,
    wanted_version,
)
from console.actions.swap_spec import listed
from console.core import units
from console.core.plan import Field, JournalLine, Outcome, Plan, Step, Target, UndoSpec
from console.core.text import one_line, whole_number


class _ModelAction(Action):
    """What loading, unloading and reloading have in common."""

    TARGET = "model"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """READY versions, and the container that they are in."""
        return model_state(box, target.name)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """See Action. All of them can simply be done again."""
        name = plan.target.name
        entries = [e for e in box.index().entries if e.name == name]
        now = ", ".join(f"{e.version} {e.state}" for e in entries if e.state not in (None, "UNAVAILABLE"))
        return f"{name}: {now or 'nothing is READY'}", plan.title, ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        return self.run(box, plan, run)


class Load(_ModelAction):
    """Load a model that is not served."""

    NAME = "model.load"
    FIELDS = (Field("version", "this version alone; what its policy says where none is given", "int", low=1), ROUTE)
    PHASES = ("load", "check")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        seen = look(box, target, route=route_of(values), traffic=False)
        version = wanted_version(seen, values)
        deployed = (version,) if version is not None else seen.from_disk
        shown = listed(deployed) if deployed is not None else "what its policy says"
        refused = mode_refusal(seen) or load_refusal(seen, version)
        return Plan(
            action=self.NAME,
            target=seen.target(),
            values={"version": "" if version is None else str(version), "route": values.get("route") or "auto"},
            title=title(box, "Load", seen, f"{target} {shown}"),
            yes="Load",
            danger="caution",
            checks=() if refused else (*disk_checks(seen, deployed), *control_checks(seen), room(box, seen, deployed)),
            steps=(
                Step("load", f"load {target} over {seen.route.name}", "it stays as it is", (call(seen, "Load"),)),
                Step("check", "its versions are READY, and all other models as before", "told"),
            ),
            effects=(
                *waits(box, seen),
                *((f"it failed before: {seen.reason}",) if seen.reason else ()),
                *(
                    (f"only until a restart: by its policy on disk a start serves {listed(seen.from_disk)}",)
                    if version is not None and seen.from_disk not in (None, (version,))
                    else ()
                ),
            ),
            by_hand=(by_hand(box, target, "load"),),
            undo="unload it again",
            limit=box.settings.actions.load_timeout + SPARE,
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        name, version = plan.target.name, whole_number(plan.values["version"])
        control = box.triton_control(route_of(plan.values))
        others, since = frozenset(box.ready()), time.time()
        with run.phase("load"):
            config = None if version is None else one_version(look(box, name, traffic=False), version)
            end = load(box, control, name, config, run, min(box.settings.actions.load_timeout, run.left()))
        figures = {"load_s": end.seconds}
        if end.word != "ok":
            return load_failure(box, end, name, since, figures)
        with run.phase("check"):
            gone = lost(control, others, name)
            ready = ready_versions(control, name)
        if not ready:
            text = f"{name}: the load answered well, but no version is READY"
            return Outcome("failed", text, box.load_cause(name, since), figures=figures)
        if gone:
            text = f"{name} {listed(ready)} is READY, but {', '.join(gone)} dropped out"
            return Outcome("failed", text, box.load_cause(name, since), figures=figures)
        undo = UndoSpec("model.unload", name, {}, f"unload {name} again")
        return Outcome("done", f"{name} {listed(ready)} is READY", (), undo, model_state(box, name), figures=figures)


class Unload(_ModelAction):
    """Unload a model; requests in flight are answered first."""

    NAME = "model.unload"
    FIELDS = (
        Field("dependents", "unload the models that only an ensemble brought in as well", "bool"),
        ROUTE,
    )
    PHASES = ("unload", "check")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        seen = look(box, target, route=route_of(values))
        dependents = values.get("dependents") == "true"
        refused = mode_refusal(seen)
        if not refused and not seen.ready and not seen.loading:
            refused = f"{target} is not loaded: there is nothing to unload"
        if not refused and seen.loading:
            refused = f"{target} is LOADING: an unload waits for the load's end; try again when it is done"
        busy = bool(seen.rate) or seen.rate is None
        took, origin = taken(box, seen, seen.served) if seen.served is not None else (None, "")
        return Plan(
            action=self.NAME,
            target=seen.target(),
            values={"dependents": "true" if dependents else "false", "route": values.get("route") or "auto"},
            title=title(box, "Unload", seen, f"{target} {listed(seen.ready)}"),
            yes="Unload",
            danger="danger" if busy or seen.users else "caution",
            note="under traffic" if seen.rate else "traffic not known" if busy else "",
            checks=() if refused else (*control_checks(seen), traffic(seen)),
            steps=(
                Step("unload", f"tell Triton to unload {target}", "it stays as it is", (call(seen, "Unload"),)),
                Step("check", "wait for its end; all other models as before", "told"),
            ),
            effects=(
                *unloaded_words(seen),
                *((f"models that only {target} brought in go too",) if dependents else ()),
                *((f"live-only settings are lost: {', '.join(seen.live_only[:4])}",) if seen.live_only else ()),
                f"card memory back: {units.size(took)} ({origin})"
                if took
                else "how much memory comes back is not known",
                "the server's ready is 400 until it has ended",
            ),
            by_hand=(by_hand(box, target, "unload"),),
            undo=load_again(seen),
            limit=UNLOAD_LIMIT + SPARE,
            gap_s=None,
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action. A gap begins that lasts until somebody loads it: nobody watches for that, so it has no end."""
        name = plan.target.name
        control = box.triton_control(route_of(plan.values))
        seen = look(box, name, traffic=False)
        gap = Gap(run)
        with run.phase("unload"):
            if seen.ready:
                count_model(box, name, run)
                gap.begin()
            else:
                gap.go_on()  # of a killed run
            began = time.monotonic()
            control.unload(name, plan.values["dependents"] == "true")
        with run.phase("check"):
            over = wait_gone(control, name, seen.ready, run, min(UNLOAD_LIMIT, run.left()))
            down = lost(control, seen.all_ready, name, settle=0.3)
        figures = {"unload_s": time.monotonic() - began}
        expected = {f"{one} {version}" for one, version in seen.all_ready if one in seen.users}
        more = [one for one in down if one not in expected]
        lines = [f"{', '.join(sorted(expected & set(down)))} went down with it"] if expected & set(down) else []
        if told := answer_for_model(box, name):
            gap.got(told)
            lines.append(f"clients get from now on: {one_line(told, 200)}")
        if more and plan.values["dependents"] != "true":
            lines.append(f"{', '.join(more)} is not READY any more either")
        elif more:
            lines.append(f"{', '.join(more)} went too, as its dependents")
        if not over:
            text = f"{name} is told to unload and answers no new requests, but has not ended"
            going = "requests in flight hold it: the index says UNLOADING until they are answered"
            return Outcome("failed", text, tuple(lines), still_going=going, figures=figures)
        undo = undo_unload(seen)
        left = model_state(box, name)
        return Outcome("done", f"{name} {listed(seen.ready)} is unloaded", tuple(lines), undo, left, figures=figures)


class Reload(_ModelAction):
    """Bring a model in anew: what changed on disk, or the same once more."""

    NAME = "model.reload"
    FIELDS = (
        Field(
            "way",
            "disk: what is newer there. anew: the same again, beside itself. gap: unload, then load from disk",
            "choice",
            ("disk", "anew", "gap"),
        ),
        ROUTE,
    )
    PHASES = ("unload", "load", "check")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        seen = look(box, target, route=route_of(values))
        refused = mode_refusal(seen) or reload_refusal(seen)
        way = values.get("way") or (default_way(seen) if not refused else "disk")
        load_s = load_seconds(box, target)
        gap = way == "gap"
        after = seen.ready if way == "anew" else seen.from_disk
        unload = Step("unload", f"unload {target}, wait for its end", "load it again")
        where = "what is on disk" if way != "anew" else "anew, as it is configured live"
        return Plan(
            action=self.NAME,
            target=seen.target(),
            values={"way": way, "route": values.get("route") or "auto"},
            title=title(box, "Reload", seen, f"{target} {listed(seen.ready)}"),
            yes="Reload",
            danger="danger" if gap else "caution",
            note="a gap" if gap else "reload",
            checks=() if refused else (*disk_checks(seen, after), *control_checks(seen), room(box, seen, after)),
            ways=() if refused else ways(seen, load_s),
            way=way,
            steps=(
                *((unload,) if gap else ()),
                Step(
                    "load",
                    f"load {target} over {seen.route.name}: {where}",
                    "no version serves" if gap else "what serves now serves on",
                    (call(seen, "Load"),),
                ),
                Step("check", "its versions are READY, and all other models as before", "told"),
            ),
            effects=() if refused else reload_effects(box, seen, way, load_s),
            by_hand=(by_hand(box, target, "load"),),
            undo="none: what was in memory is gone; a version that came in new is swapped back (model.swap)",
            limit=box.settings.actions.load_timeout + SPARE + (UNLOAD_LIMIT if gap else 0.0),
            gap_s=load_s if gap else 0.0,
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        name, way = plan.target.name, plan.way
        control = box.triton_control(route_of(plan.values))
        seen = look(box, name, traffic=False)
        since = time.time()
        gap = Gap(run)
        if way == "gap":
            with run.phase("unload"):
                count_model(box, name, run)
                gap.begin()
                control.unload(name)
                if not wait_gone(control, name, seen.ready, run, UNLOAD_LIMIT):
                    run.note("it has not ended yet: requests in flight hold it")
                gap.got(answer_for_model(box, name))
        with run.phase("load"):
            config = marked(seen) if way == "anew" and seen.live else None
            end = load(box, control, name, config, run, min(box.settings.actions.load_timeout, run.left()))
            if gap.is_open and end.word == "ok" and ready_versions(control, name):
                gap.end(end.ended)
        figures = {"load_s": end.seconds, **gap.figures}
        if end.word != "ok":
            return reload_failed(box, control, seen, end, since, figures)
        with run.phase("check"):
            gone = lost(control, seen.all_ready, name)
            ready = ready_versions(control, name)
        return reloaded(box, seen, ready, gone, end.seconds, since, figures)
