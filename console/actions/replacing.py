"""Putting one container in another's place, and back: the engine of recreate and of going back to a kept one.

The old one is stopped and renamed, never removed, until the new one is good: every model that was READY is READY
again. Each step first looks whether it is still to be done, so the same walk begins, finishes and, the other way,
undoes a change whose runner was killed anywhere. What it needs to know stands in the journal (`run.keep`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from msgspec import Struct

from console.actions import powering, saved_specs
from console.actions.base import Run
from console.actions.box import Box
from console.actions.container import noted, parsed_models
from console.actions.container_spec import Body, create_body
from console.actions.gap import Gap, answer_of_server, count_container
from console.actions.target import ContainerView, another_words, identity, is_running
from console.clients.podman_control import PodmanControl
from console.core.model import ContainerState, SourceError
from console.core.plan import Outcome, Refused, UndoSpec, WrongInput
from console.core.text import one_line

PHASES = ("note", "stop", "aside", "create", "start", "ready", "back")
"""note: what is READY. aside: the old one gets another name. back: the way back when the new one is not good."""


class Facts(Struct, frozen=True):
    """What is to be done, as the journal keeps it."""

    name: str
    old: str = ""
    """Identity of the container that has the name now; "" = there is none."""
    aside: str = ""
    """The name under which the old one is kept."""
    vanishes: bool = False
    """The old one was made with --rm: nothing of it can be kept but `saved`."""
    ran: bool = False
    ready: str = ""
    saved: str = ""
    """File of the old one's specification."""
    body: str = ""
    """What to create, as JSON; "" where `kept` takes the place."""
    kept: str = ""
    """Name of a kept container that takes the place."""
    kept_id: str = ""
    seconds: int = 10
    """That the old one gets to stop."""

    @property
    def wanted(self) -> frozenset[tuple[str, str]]:
        """Models that must be READY again."""
        return parsed_models(self.ready)


def facts_of(run: Run) -> Facts:
    """What was kept; Refused where the runner died before anything was."""
    kept = run.kept()
    if "facts" not in kept:
        raise Refused("nothing was kept, so nothing was done: look at the container and plan anew")
    told = json.loads(kept["facts"])
    return Facts(**{**told, "ready": kept.get("ready", "")})


def has_facts(kept: Mapping[str, str]) -> bool:
    """False where the runner died before anything was changed."""
    return "facts" in kept


def keep(run: Run, facts: Facts) -> None:
    """Put it into the journal before the first step."""
    import msgspec

    run.keep(facts=msgspec.json.encode(facts).decode())


def free_name(names: Mapping[str, str], base: str) -> str:
    """`triton-old-1`, or the next number that is free."""
    return next(name for number in range(1, 10_000) if (name := f"{base}-old-{number}") not in names)


class Stood(Struct, frozen=True):
    """What Podman has now under the names of a change."""

    old: ContainerState | None
    """The old one, wherever it is."""
    new: ContainerState | None
    """The one that took, or takes, its place: under the name, or a kept one still under its own."""
    in_place: bool
    """The new one has the name."""


def stood(box: Box, facts: Facts) -> Stood:
    """Look at it anew."""
    at_name = _state(box, facts.name)
    old = _state(box, facts.old) if facts.old else None
    if at_name is not None and at_name.id != facts.old:
        return Stood(old, at_name, True)
    waiting = _state(box, facts.kept_id) if facts.kept_id else None
    return Stood(old, waiting, False)


def foreign(now: Stood, facts: Facts, kept: Mapping[str, str]) -> ContainerState | None:
    """The container under the name, where this change did not put it there; None where it did, or there is none."""
    new = now.new
    if not now.in_place or new is None:
        return None
    ours = {facts.kept_id} if facts.kept else {kept.get("new"), kept.get("again")}
    # A runner that died between Podman's answer and its note leaves one that was never started.
    return None if new.id in ours or (new.state == "created" and not facts.kept) else new


class Replacement:
    """One walk. For one thread; a context manager."""

    def __init__(self, box: Box, facts: Facts, run: Run) -> None:
        self._box = box
        self._facts = facts
        self._run = run
        self._control: PodmanControl = box.podman()
        self._gap = Gap(run, drains=True)

    def __enter__(self) -> Replacement:
        return self

    def __exit__(self, *_error: object) -> None:
        self._control.close()

    # --------------------------------------------------------------------------------------------------------- onwards

    def forward(self) -> Outcome:
        """All steps that are still to be done; on failure, or when the operator stops it, the way back.

        Refused, with nothing touched, where somebody else's container has the name already.
        """
        self._must_be_ours(self._stood())
        self._still_open()
        try:
            for step in (self._stop, self._aside, self._create, self._start):
                if self._run.cancelled.is_set():
                    return self.back("stopped by the operator")
                step()
            with self._run.phase("ready", "wait until every model that was READY is READY again"):
                ready = self._wait()
        except SourceError as error:
            return self.back(error.message, (error.hint,) if error.hint else ())
        except (Refused, WrongInput) as error:  # a container that somebody took away meanwhile
            return self.back(str(error))
        if not ready.good or not self._answers():
            words = ready.words if not ready.good else "Triton does not answer"
            return self.back(f"the new one was not good: {words}", ready.lines)
        return self._done(ready)

    def _stood(self) -> Stood:
        return stood(self._box, self._facts)

    def _stop(self) -> None:
        now = self._stood()
        if not is_running(now.old) or now.old is None:
            return
        with self._run.phase("stop", f"stop the old one, at most {self._facts.seconds} s"):
            with ContainerView(self._box, self._facts.old) as view:
                self._gap.begin()
                went = powering.stop(self._box, view, now.old, self._facts.seconds, self._run)
                self._gap.got(answer_of_server(view))
            self._run.note(went.words)

    def _still_open(self) -> None:
        """The gap of the interrupted run that this one goes on with, where neither of the two runs."""
        now = self._stood()
        if not is_running(now.old) and not (now.in_place and is_running(now.new)):
            self._gap.go_on()

    def _aside(self) -> None:
        old = self._stood().old
        if old is None or not self._facts.aside or old.name == self._facts.aside:
            return
        with self._run.phase("aside", f"rename it to {self._facts.aside}"):
            self._control.rename(self._facts.old, self._facts.aside)

    def _create(self) -> None:
        now = self._stood()
        if now.in_place:
            self._must_be_ours(now)
            return
        facts = self._facts
        if facts.kept:
            with self._run.phase("create", f"rename {facts.kept} to {facts.name}"):
                self._control.rename(facts.kept_id, facts.name)
            return
        with self._run.phase("create", f"create the new {facts.name}"):
            made = self._control.create(create_body(json.loads(facts.body)))
            self._run.keep(new=made.id)
            for warning in made.warnings:
                self._run.note(f"Podman warns: {warning}")
            for line in unlike(json.loads(facts.body), self._control.inspect(made.id) or {}):
                self._run.note(line)

    def _must_be_ours(self, now: Stood) -> None:
        """Refused where somebody else has put a container under the name: what was interrupted is finished or undone
        hours later too, and must neither start nor remove that one."""
        other = foreign(now, self._facts, self._run.kept())
        if other is not None:
            raise Refused(another_words(other))

    def _start(self) -> None:
        new = self._stood().new
        if is_running(new) or new is None:
            return
        with self._run.phase("start", f"start the new {self._facts.name}"):
            powering.start(self._control, new.id, powering.published(new), self._run, self._box.root)

    def _wait(self) -> powering.Readiness:
        limit = self._box.settings.actions.start_timeout
        with ContainerView(self._box, self._facts.name) as view:
            return powering.wait_ready(self._box, view, self._facts.wanted, self._run, limit)

    def _answers(self) -> bool:
        with ContainerView(self._box, self._facts.name) as view:
            return view.answers()

    def _done(self, ready: powering.Readiness) -> Outcome:
        facts = self._facts
        self._gap.end()
        undo = _undo_of(facts)
        kept = f"; the old one is kept as {facts.aside}, stopped" if facts.old and not facts.vanishes else ""
        left = identity(_state(self._box, facts.name))
        text = f"{facts.name} serves: {ready.words}{kept}"
        return Outcome("done", text, (), undo, left, figures=self._gap.figures)

    # ------------------------------------------------------------------------------------------------------------ back

    def back(self, cause: str, lines: tuple[str, ...] = ()) -> Outcome:
        """As it was: the new one removed (a kept one renamed), the old one renamed back and started."""
        run = _Steady(self._run)
        with run.phase("back", "back to the old one"):
            self._still_open()
            lines = lines or self._last_words()
            try:
                self._must_have_old()
                self._away(run)
                self._return(run)
                if not self._facts.old:
                    return self._undone(cause, f"no container is called {self._facts.name}, as before", lines)
                if _state(self._box, self._facts.name) is None:
                    return self._stuck(cause, "nothing of the old one was kept", lines)
            except (SourceError, Refused) as error:
                return self._stuck(cause, str(error), lines)
            if not self._facts.ran:
                return self._undone(cause, "the old one is there again, stopped as it was", lines)
            try:
                ready = self._bring_up(run)
            except SourceError as error:
                return self._stuck(cause, error.message, lines)
        if not ready.good:
            return self._stuck(cause, f"the old one runs again, but {ready.words}", (*lines, *ready.lines))
        self._gap.end()
        return self._undone(cause, "the old one serves again", lines)

    def _last_words(self) -> tuple[str, ...]:
        """Of the new one, before it is removed with its log."""
        now = self._stood()
        if not now.in_place or now.new is None or now.new.started_wall is None:
            return ()
        with ContainerView(self._box, now.new.id) as view:
            return view.last_words(now.new.started_wall)

    def _must_have_old(self) -> None:
        """Refused where there would be nothing to go back to: then the new one is better than none."""
        if self._facts.old and self._stood().old is None and "again" not in self._run.kept():
            saved_specs.load(self._box, self._facts.saved)

    def _away(self, run: Run) -> None:
        now = self._stood()
        if not now.in_place or now.new is None or now.new.id == run.kept().get("again"):
            return
        self._must_be_ours(now)
        if is_running(now.new) and self._facts.ran and not self._gap.is_open:
            self._gap.begin()
        if not self._facts.kept:
            run.note("remove the new one")
            self._control.remove(now.new.id, force=True)
            return
        if is_running(now.new):
            with ContainerView(self._box, now.new.id) as view:
                powering.stop(self._box, view, now.new, self._facts.seconds, run)
        self._control.rename(now.new.id, self._facts.kept)

    def _return(self, run: Run) -> None:
        facts, old = self._facts, self._stood().old
        if old is None:
            if facts.saved and facts.old and "again" not in run.kept():
                run.note("create the old one again from its kept specification")
                saved_specs.create_again(self._box, facts.name, facts.saved)
                made = _state(self._box, facts.name)
                run.keep(again=made.id if made is not None else "")
        elif old.name != facts.name:
            self._control.rename(facts.old, facts.name)

    def _bring_up(self, run: Run) -> powering.Readiness:
        limit = self._box.settings.actions.start_timeout
        with ContainerView(self._box, self._facts.name) as view:
            state = view.known()
            if not is_running(state):
                run.note("start the old one")
                powering.start(self._control, state.id, powering.published(state), run, self._box.root)
            return powering.wait_ready(self._box, view, self._facts.wanted, run, limit)

    def _undone(self, cause: str, how: str, lines: tuple[str, ...]) -> Outcome:
        left = identity(_state(self._box, self._facts.name))
        return Outcome("undone", f"{one_line(cause, 300)}; {how}", lines, None, left, figures=self._gap.figures)

    def _stuck(self, cause: str, why: str, lines: tuple[str, ...]) -> Outcome:
        facts, old = self._facts, self._stood().old
        where = "is gone" if old is None else f"is {old.name}, {old.state}"
        text = f"{one_line(cause, 300)}; going back failed too: {one_line(why, 300)}. The old one {where}"
        again = "" if old is None or is_running(old) else f" (by hand: podman start {old.name})"
        return Outcome("failed", text + again, lines, None, identity(_state(self._box, facts.name)))


def note_ready(box: Box, name: str, ran: bool, run: Run) -> None:
    """The first phase: what is READY, kept."""
    with run.phase("note", "note what is READY"):
        if not ran:
            run.keep(ready="")
            return
        with ContainerView(box, name) as view:
            noted(view, run)
            count_container(view, run)


def _undo_of(facts: Facts) -> UndoSpec | None:
    if not facts.old:
        return UndoSpec("container.stop", facts.name, {}, f"stop {facts.name}")
    if facts.vanishes:
        return None
    return UndoSpec("container.back", facts.name, {"kept": facts.aside}, f"back to {facts.aside}")


def _state(box: Box, name: str) -> ContainerState | None:
    with ContainerView(box, name) as view:
        return view.state()


def unlike(body: Body, made: Mapping[str, object]) -> tuple[str, ...]:
    """What Podman made other than asked for: rootless with cgroup v1 it drops limits with no error (host.md 3.3)."""
    host = made.get("HostConfig")
    if not isinstance(host, dict):
        return ()
    resources = body.get("resource_limits") or {}
    pairs = [
        ("shm size", body.get("shm_size"), host.get("ShmSize")),
        ("memory limit", (resources.get("memory") or {}).get("limit"), host.get("Memory")),
        ("CPU set", (resources.get("cpu") or {}).get("cpus"), host.get("CpusetCpus")),
        ("memory nodes", (resources.get("cpu") or {}).get("mems"), host.get("CpusetMems")),
    ]
    return tuple(
        f"{what} is {got or 'not set'}, asked for was {asked}" for what, asked, got in pairs if asked and asked != got
    )


class _Steady:
    """A run that goes on though the operator said stop: the way back is not stopped half way."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.cancelled = threading.Event()

    def phase(self, name: str, text: str = "") -> AbstractContextManager[None]:
        return self._run.phase(name, text)

    def note(self, text: str) -> None:
        self._run.note(text)

    def keep(self, **facts: str) -> None:
        self._run.keep(**facts)

    def kept(self) -> Mapping[str, str]:
        return self._run.kept()

    def left(self) -> float:
        return self._run.left()

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False
