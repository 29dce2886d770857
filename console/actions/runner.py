"""The one path of every change: plan it, take the box's lock, write it down, look again, do it, write down the end.

`prepare` is called by whoever shows the plan; `perform` runs in the detached runner's process alone.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from console.actions import audit, registry, undo
from console.actions.base import Action
from console.actions.box import READ_ONLY, Box
from console.actions.journal import Ended, Journal, Request, find, request_of
from console.actions.lock import Lock, holder
from console.actions.masks import Masks
from console.core.gap import PLANNED, SECONDS
from console.core.model import SourceError
from console.core.plan import UNAUDITED, AuditRecord, Check, JournalLine, Outcome, Plan, Refused, Tick, WrongInput
from console.core.text import one_line

log = logging.getLogger(__name__)
LOCK_PAUSE = 0.2
"""Seconds between two tries to get the box's lock."""


def prepare(box: Box, name: str, target: str, values: Mapping[str, str]) -> Plan:
    """The plan of an action for a person to say yes to; sends nothing that changes anything. Blocks for some seconds.

    Choosing another way or ticking a box is calling it again with the same name and target. The plan's action may be
    another one than `name`: what is undone or finished is planned by the action that does it.
    WrongInput for what cannot be; Refused in read-only mode (the first guard); SourceError where the box cannot be
    looked at.
    """
    action = registry.find().get(name)
    if box.read_only:
        raise Refused(READ_ONLY)
    given = dict(values)
    unaudited = given.pop(UNAUDITED, "")
    plan = action.plan(box, target, action.checked(given))
    plan = _audited(plan, box.state, unaudited=unaudited == "true")
    return masks_of(plan, box).told(plan)


def masks_of(plan: Plan, box: Box) -> Masks:
    """What must not be told of this plan."""
    found = registry.find().by_name.get(plan.action)
    return Masks(found.FIELDS if found else (), plan.values, box.settings)


def _audited(plan: Plan, state: Path, *, unaudited: bool) -> Plan:
    trouble = audit.trouble(state)
    if not trouble:
        return plan
    text = f"no audit record can be written: {trouble}"
    tick = Tick(UNAUDITED, "go on without it: the record goes to syslog", unaudited)
    remedy = "free space there" if "full" in trouble else "see to the rights there"
    refused = "" if unaudited else f"{text}; {remedy}, or go on unaudited (do: --unaudited)"
    return msgspec.structs.replace(
        plan,
        checks=(*plan.checks, Check("warn" if unaudited else "fail", text)),
        ticks=(*plan.ticks, tick),
        values={**plan.values, **({UNAUDITED: "true"} if unaudited else {})},
        refused=plan.refused or refused,
    )


class JournalRun:
    """The `Run` of a runner (base.py): everything goes to the journal first."""

    def __init__(self, plan: Plan, journals: tuple[Journal, ...], masks: Masks, cancelled: threading.Event) -> None:
        """`journals`: its own, and that of the interrupted change that it finishes or undoes, which so knows all."""
        self.cancelled = cancelled
        self._plan = plan
        self._journals = journals
        self._masks = masks
        self._phase = ""
        self._began = time.monotonic()
        self._kept = {
            name: value
            for journal in reversed(journals)
            for line in journal.lines()
            if line.state == "kept"
            for name, value in line.data.items()
        }

    @contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        """See Run."""
        outer, self._phase = self._phase, name
        self._write(JournalLine(time.time(), "begin", name, text or self._planned(name)))
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            self._write(JournalLine(time.time(), "failed", name, sentence(error), time.monotonic() - began))
            raise
        else:
            self._write(JournalLine(time.time(), "done", name, "", time.monotonic() - began))
        finally:
            self._phase = outer

    def note(self, text: str) -> None:
        """See Run."""
        self._write(JournalLine(time.time(), "note", self._phase, text))

    def keep(self, **facts: str) -> None:
        """See Run."""
        self._kept.update(facts)
        for journal in self._journals:
            journal.append(JournalLine(time.time(), "kept", self._phase, data=facts))

    def kept(self) -> Mapping[str, str]:
        """See Run."""
        return dict(self._kept)

    def left(self) -> float:
        """See Run."""
        return max(0.0, self._plan.limit - (time.monotonic() - self._began))

    def wait(self, seconds: float) -> bool:
        """See Run."""
        return self.cancelled.wait(seconds)

    def _planned(self, phase: str) -> str:
        return next((step.text for step in self._plan.steps if step.phase == phase), "")

    def _write(self, line: JournalLine) -> None:
        told = msgspec.structs.replace(line, text=self._masks.text(line.text))
        for journal in self._journals:
            journal.append(told)


def perform(journal: Journal) -> Outcome:
    """Do what the journal asks for, in this process; its outcome is in the journal and the audit when this returns.

    Never raises for what goes wrong with the change: that is an outcome.
    """
    return _Performance(journal, journal.request()).outcome()


def _cancel_by_signal(cancelled: threading.Event) -> None:
    """SIGTERM and SIGINT set the event; by another thread, since a handler that interrupts `Event.wait` where that
    holds the event's own lock would wait for it for ever (SimpleQueue.put alone is made for handlers)."""
    told: queue.SimpleQueue[int] = queue.SimpleQueue()

    def wait() -> None:
        told.get()
        cancelled.set()

    threading.Thread(target=wait, name="cancel", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.put(number))


class _Performance:
    """One change, from its lock to its outcome."""

    def __init__(self, journal: Journal, request: Request) -> None:
        self.journal = journal
        self.request = request
        self.plan = request.plan
        self.box = Box(request.spec, Path(request.state))
        self.masks = masks_of(self.plan, self.box)
        self.cancelled = threading.Event()
        self.began = time.time()
        self.audited = False
        """An intent was written, so an outcome must be."""
        self.started = False
        """The action was let loose: from here on it is not known that nothing was done."""

    def outcome(self) -> Outcome:
        _cancel_by_signal(self.cancelled)
        self.journal.begun_by_this_process()
        lock = Lock(self.request.spec)
        is_open = False
        try:
            found = self._do(lock)
        except Refused as error:
            found, is_open = self._stopped(error, refused=True)
        except Exception as error:  # the runner's: whatever an action raises is an outcome, never a lost change
            log.exception("%s of %s", self.plan.action, self.plan.target.name)
            found, is_open = self._stopped(error, refused=False)
        finally:
            self.box.close()
        found = self._write_down(found, is_open=is_open)
        lock.release()
        return found

    def _do(self, lock: Lock) -> Outcome:
        self.box.changing()
        action = registry.find().get(self.plan.action)
        if action.LOCKS:
            self._take(lock)
        plan, old = self._interrupted() if self.plan.resolves else (self.plan, None)
        self._intent()
        if old is None:
            self._look_again(action)
        elif self.plan.how != "dismiss":
            action.recheck_left(self.box, self.plan)
        if self.cancelled.is_set():
            raise Refused("stopped before anything was done")
        run = JournalRun(plan, (self.journal, old) if old else (self.journal,), self.masks, self.cancelled)
        self.journal.append(JournalLine(time.time(), "begin"))
        self.started = True
        if self.plan.how == "dismiss":
            return Outcome("done", "taken note of")
        deed = {"run": action.run, "finish": action.finish, "undo": action.undo}[self.plan.how]
        return deed(self.box, plan, run)

    def _take(self, lock: Lock) -> None:
        until = time.monotonic() + self.request.wait
        said = ""
        while not lock.take(self.plan.target.name, self.request.operator, self.journal.id):
            who = holder(self.request.spec)
            text = who.sentence() if who else "another change is just ending"
            left = until - time.monotonic()
            if self.cancelled.is_set():
                raise Refused(f"stopped while it waited, as {text}: nothing was done")
            if left <= 0:
                raise Refused(f"{text}: nothing was done; wait for it, or let `do` wait with --wait SECONDS")
            if text != said:
                self.journal.append(JournalLine(time.time(), "note", text=f"waits: {text}"))
                said = text
            self.cancelled.wait(min(LOCK_PAUSE, left))

    def _interrupted(self) -> tuple[Plan, Journal]:
        """The plan and journal of the change that this one finishes or undoes; Refused when that is over."""
        old = find(self.box.state, self.plan.resolves)
        end = old.ended()
        if end is None and old.runner() is not None:
            raise Refused(f"change {old.id} still runs: nothing was done")
        if end is not None and (end.resolved_by or not end.open):
            by = f" by {end.resolved_by}" if end.resolved_by else ""
            raise Refused(f"change {old.id} is dealt with already{by}: nothing was done")
        return request_of(old).plan, old

    def _look_again(self, action: Action) -> None:
        try:
            if self.plan.undoes:
                undo.still_as_left(self.box, self.plan.undoes)
            action.recheck(self.box, self.plan)
        except SourceError as error:
            raise Refused(f"{sentence(error)}: nothing was done, as the target could not be looked at again") from error

    def _intent(self) -> None:
        record = self._record("intent")
        try:
            audit.write(self.box.state, record)
        except OSError as error:
            if not self.request.unaudited:
                raise Refused(
                    f"the audit record cannot be written to {self.box.state / audit.NAME} ({error.strerror}): nothing "
                    "was done; free space there, or go on unaudited (do: --unaudited)"
                ) from error
            audit.to_syslog(record)
        self.audited = True

    def _stopped(self, error: Exception, *, refused: bool) -> tuple[Outcome, bool]:
        """The outcome for what was raised, and whether the change can still be finished or undone."""
        text = sentence(error)
        if not self.started or (refused and not self._has_begun()):
            return Outcome("refused", text if refused else f"{text}: nothing was done"), False
        if self.plan.resolves:
            return Outcome("failed", text, (f"change {self.plan.resolves} can still be finished or undone",)), False
        now, finish, undo = self._asked()
        lines = [f"now: {now}"]
        for word, deed in (("finish", finish), ("undo", undo)):
            if deed:
                lines.append(f"{word}: {deed}  (gpuconsole do interrupted.{word} {self.journal.id})")
        return Outcome("failed", text, tuple(lines)), bool(finish or undo)

    def _has_begun(self) -> bool:
        """True when the action itself has told of a step."""
        return any(line.state == "begin" and line.phase for line in self.journal.lines())

    def _asked(self) -> tuple[str, str, str]:
        """What the action says of the state that it left."""
        try:
            action = registry.find().get(self.plan.action)
            return action.interrupted(self.box, self.plan, self.journal.lines())
        except Exception:  # the runner's: a second fault must not hide the first
            log.exception("interrupted of %s", self.plan.action)
            return ("what it did is not known: look at the target", "", "")

    def _write_down(self, found: Outcome, *, is_open: bool) -> Outcome:
        # JSON has no infinity: one figure that is none must not cost the whole outcome
        figures = {name: value for name, value in found.figures.items() if math.isfinite(value)}
        if SECONDS in figures and self.plan.gap_s:
            figures[PLANNED] = self.plan.gap_s
        told = msgspec.structs.replace(self.masks.outcome(found), figures=figures)
        if self.audited:
            told = self._audit_outcome(told)
        if self.plan.resolves and found.word in ("done", "undone"):
            self._resolve(self.plan.resolves, told)
        # its undo and the state that it left stay whole here: an undo needs them, and the folder is private
        kept = msgspec.structs.replace(told, undo=found.undo, left=found.left)
        self.journal.end(Ended(kept, time.time(), open=is_open))
        return told

    def _resolve(self, old_id: str, told: Outcome) -> None:
        word = {"finish": "finished", "undo": "undone", "dismiss": "taken note of"}.get(self.plan.how, "ended")
        outcome = Outcome("interrupted", f"interrupted, and {word} by {self.journal.id}: {told.text}")
        Journal(self.box.state, old_id).end(Ended(outcome, time.time(), resolved_by=self.journal.id))

    def _audit_outcome(self, told: Outcome) -> Outcome:
        record = self._record("outcome", told)
        try:
            audit.write(self.box.state, record)
        except OSError as error:
            log.exception("audit")
            sent = audit.to_syslog(record)
            where = "it went to syslog" if sent else "no syslog listens here either"
            line = f"no audit record of this outcome ({error.strerror}); {where}"
            return msgspec.structs.replace(told, lines=(*told.lines, line))
        return told

    def _record(self, kind: Literal["intent", "outcome"], outcome: Outcome | None = None) -> AuditRecord:
        return record(self.request, self.masks, kind, outcome, time.time() - self.began)


def record(
    request: Request, masks: Masks, kind: Literal["intent", "outcome"], outcome: Outcome | None, duration: float
) -> AuditRecord:
    """A line of the audit; secrets are masked."""
    plan = masks.plan(request.plan)
    return AuditRecord(
        id=request.id,
        kind=kind,
        wall=time.time(),
        operator=request.operator,
        host=request.spec.host,
        action=plan.action,
        target=plan.target,
        title=plan.title,
        values=plan.values,
        plan=(*(step.text for step in plan.steps), *plan.effects) if kind == "intent" else (),
        outcome=outcome,
        duration=duration if kind == "outcome" else None,
        undoes=plan.undoes,
        resolves=plan.resolves,
    )


def sentence(error: BaseException) -> str:
    """What was raised as one line for a person; of a fault of ours its kind, as the trace is in the log."""
    if isinstance(error, SourceError):
        return one_line(f"{error.message}; {error.hint}" if error.hint else error.message, 1000)
    if isinstance(error, Refused | WrongInput):
        return one_line(str(error), 1000)
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return one_line(f"{error.strerror}{where}", 1000)
    text = one_line(str(error), 400)
    return f"a fault of gpuconsole ({type(error).__name__}{': ' + text if text else ''})"


def main(folder: str) -> int:
    """The runner's process: `gpuconsole _run FOLDER`, started by detached.py. 0 done, 1 anything else."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    path = Path(folder)
    request = msgspec.json.decode((path / "request.json").read_bytes(), type=Request)
    return 0 if perform(Journal(Path(request.state), path.name)).word == "done" else 1
