"""From a key that changes the box to the outcome: plan, dialog, runner, progress, event. Owned by the app.

Whatever may block is done in daemon threads, which tell the UI thread by one message; the actions themselves run in the
detached runner, which goes on when this console ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from textual.message import Message

from console.core.act_events import event_from_audit, event_of, outcome_sign
from console.core.changes import NOT_OURS
from console.core.model import Event, SourceError
from console.core.text import one_line
from console.tui.desk import Desk, Following, Holder, Record, Request
from console.tui.lane import attempt
from console.tui.own_changes import EventKey, OwnChanges, own_changes
from console.tui.playback import REPLAY

if TYPE_CHECKING:
    # what only a change needs is imported when there is one: the first paint does not wait for it
    from console.core.plan import Interrupted, Operator, Plan
    from console.tui.app import ConsoleApp
    from console.tui.screens.plan import PlanDialog
    from console.tui.screens.running import RunningDialog, Wish

Result = TypeVar("Result")
FOLLOW_EVERY = 0.3
LOOK_EVERY = 3.0
"""Seconds between looks at who holds the box's lock."""
EVENTS_FROM_AUDIT = 50
"""Changes of the past that become events at the start."""
READ_ONLY = "the console is read-only: nothing that changes the box is done"
VISIT = "last_visit"
READ_AFTER = ("container", "triton.server", "triton.index", "triton.stats", "triton.config", "repository", "gpu")
"""Sources that are asked at once when a change has ended: each shows another side of it."""
OURS_FOR = 15.0
"""Seconds after the end of a change in which what shows by comparison of readings is still its work: configurations
are read every ten."""


class FromThread(Message, bubble=False):
    """Something to do in the UI thread."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self.call = call


class Acting:
    """What is planned, what runs, who else changes the box."""

    def __init__(self, app: ConsoleApp, desk: Desk | None) -> None:
        self.app = app
        self.desk = desk
        self.running: Following | None = None
        """My change that runs now."""
        self.holder: Holder | None = None
        """Somebody else who changes the box now."""
        self.records: tuple[Record, ...] = ()
        """The audit as it was read last, newest first."""
        self._own = OwnChanges()
        self.ids: dict[EventKey, str] = {}
        """Events of changes -> ids of their records."""
        self._changed: list[tuple[float, Plan, Operator]] = []
        """Changes of mine that ended just now: (when, what, who)."""
        self._others = (0.0, "")
        """When somebody else last held the box, and who."""
        app.store.attribute = self.attribute
        self._dialog: RunningDialog | None = None
        self._followed = ""
        self._closing = threading.Event()

    # ------------------------------------------------------------------------------------------------- what is so now

    def why_off(self) -> str | None:
        """Why no change can be planned now; None when one can."""
        if self.app.playback is not None:
            return REPLAY
        if self.app.read_only:
            return READ_ONLY
        if self.desk is None:
            return "this session cannot change the box"
        if self.running is not None:
            return f"{one_line(self.running.plan.title, 100)} is under way: ctrl+c shows it"
        if self.holder is not None:
            return one_line(self.holder.text, 200)
        return None

    def word(self, wall: float) -> str:
        """For the header: `SWAP lm 4/6, 0:29, by ops`; "" while nothing runs."""
        if self.running is not None:
            from console.tui.panes.running_lines import acting_word

            return acting_word(self.running, wall)
        return "" if self.holder is None else one_line(self.holder.text, 80)

    @property
    def own(self) -> OwnChanges:
        """What the audit tells, for panes; the same object until it was read anew."""
        if self._own.records is not self.records:
            self._own = own_changes(self.records)
        return self._own

    # -------------------------------------------------------------------------------------------------- life and death

    def begin(self) -> None:
        """After the first paint: tell what happened meanwhile, then look who holds the box."""
        if self.desk is not None:
            threading.Thread(target=self._watch, args=(self.desk,), name="acting", daemon=True).start()

    def may_quit(self) -> bool:
        """False while something of mine runs: then it is asked, and the app is left by the answer."""
        lines: tuple[str, ...] = ()
        if self.running is not None:
            lines = (
                f"{self.running.plan.title} is under way ({self.word(time.time())}).",
                "It goes on by itself when the console is closed; the next session tells how it ended.",
            )
        if self.app.recording.on:
            lines = (*lines, "The recording ends with the console; `gpuconsole record` goes on without one.")
        if not lines:
            return True
        from console.tui.widgets.small_dialogs import Sure

        self.app.push_screen(Sure("Quit", lines, "Quit"), lambda yes: self.app.exit() if yes else None)
        return False

    def close(self) -> None:
        """The console ends; what runs goes on."""
        self._closing.set()
        if self.app.playback is None:
            self.app.state.keep(VISIT, f"{time.time():.3f}")

    def _watch(self, desk: Desk) -> None:
        from console.core.plan import Refused

        while not desk.ready() and not self._closing.wait(0.2):
            pass
        self._work(lambda: (desk.records(), desk.interrupted()), self._tell_past)
        last: Holder | None = None
        stamp: object = ""
        while not self._closing.is_set():
            try:
                holder = desk.holder()
                before, stamp = stamp, desk.stamp()
                if before not in ("", stamp):
                    self._later(self.read_records)
            except (Refused, SourceError, OSError):
                holder = None  # said when a change is tried
            if holder != last:
                last = holder
                self._later(partial(self._held, holder))
            self._closing.wait(LOOK_EVERY)

    def _held(self, holder: Holder | None) -> None:
        if holder is not None and holder.id:
            self.holder = None
            if self.running is None and holder.id != self._followed:
                self._follow(holder.id, show=False)
        else:
            if self.holder is not None:
                self._others = (time.monotonic(), self.holder.text)
                self.app.store.add_event(event_of_other(self.holder, time.time()))
            self.holder = holder
        self.app.refresh_now()

    def attribute(self, event: Event) -> Event:
        """Who made a change that shows by comparing readings: one of ours or another gpuconsole's, else nobody here."""
        if event.origin != NOT_OURS:
            return event
        now = time.monotonic()
        self._changed = [one for one in self._changed if now - one[0] < OURS_FOR]
        acts = [(plan, who) for _, plan, who in self._changed]
        if self.running is not None:
            acts.append((self.running.plan, self.running.operator))
        for plan, who in reversed(acts):
            if _may_cause(plan, event):
                # the change itself is the mark in the charts; this tells what of it was seen
                return msgspec.structs.replace(event, origin=who.short, sign="note", marks_chart=False)
        if self.holder is not None or now - self._others[0] < OURS_FOR:
            text = self.holder.text if self.holder is not None else self._others[1]
            return msgspec.structs.replace(event, origin=f"another gpuconsole: {text}", sign="note")
        return event

    # ------------------------------------------------------------------------------------------------------- planning

    def request(self, request: Request, then: Callable[[Plan], None] | None = None, *, beside: bool = False) -> None:
        """Plan it and show the plan; what was said yes to is begun, or given to `then`. `beside`: it only says a word
        to the change of mine that runs, so that is no reason against it."""
        why = None if beside and self.running is not None and not self.app.read_only else self.why_off()
        if why is not None:
            self.app.tell(why)
            return
        from console.tui.screens.plan import PlanDialog

        dialog = PlanDialog(request, self._plan, utc=self.app.utc)
        begin = then or self.start
        self.app.push_screen(dialog, lambda plan: None if plan is None else begin(plan))

    def _plan(self, dialog: PlanDialog, request: Request) -> None:
        desk, snapshot = self.desk, self.app.box.snapshot
        assert desk is not None

        def work() -> Plan:
            from console.core.plan import Refused

            plan = desk.plan(request, snapshot)
            for name, was in request.identity.items():
                now = plan.target.identity.get(name, was)
                if now != was:
                    raise Refused(f"{request.target} has changed since the key was pressed ({name}: {was} then, "
                                  f"{now} now): look again")  # fmt: skip
            return plan

        self._work(work, lambda plan, error: dialog.planned(request, plan, error))

    def start(self, plan: Plan) -> None:
        """Begin what somebody said yes to, and show how it goes."""
        desk = self.desk
        if desk is None:
            return

        def begun(id_: str | None, error: str) -> None:
            if id_ is None:
                self.app.notify(error, severity="error", timeout=15, markup=False)
            else:
                self._follow(id_, show=True)

        self._work(lambda: desk.start(plan), begun)

    # ------------------------------------------------------------------------------------------------------ following

    def _follow(self, id_: str, *, show: bool) -> None:
        desk = self.desk
        if desk is None:
            return
        self._followed = id_

        def work() -> None:
            shown: object = None
            while not self._closing.is_set():
                found = desk.follow(id_)
                state = None if found is None else (len(found.lines), found.outcome, found.alive)
                if state != shown or shown is None:
                    first = shown is None
                    shown = state
                    self._later(partial(self._told, found, show=show and first))
                if found is None or found.outcome is not None or not found.alive:
                    return
                self._closing.wait(FOLLOW_EVERY)

        self._work(work, lambda _, error: self._lost(error) if error else None)

    def _told(self, found: Following | None, *, show: bool) -> None:
        if found is None:
            self._lost("its journal cannot be read")
            return
        over = found.outcome is not None or not found.alive
        self.running = None if over else found
        if show:
            self._show(found)
        elif self._dialog is not None and self._dialog.following.id == found.id:
            self._dialog.told(found)
        if over:
            self._ended(found)
        self.app.refresh_now()

    def _lost(self, error: str) -> None:
        self.running = None
        self.app.notify(f"the change cannot be followed: {error}", severity="error", timeout=15, markup=False)

    def _show(self, found: Following, *, asking: bool = False) -> None:
        from console.tui.screens.running import RunningDialog

        self._dialog = dialog = RunningDialog(found, utc=self.app.utc, asking=asking)
        self.app.push_screen(dialog, lambda wish: self._wished(dialog, wish))

    def _wished(self, dialog: RunningDialog, wish: Wish | None) -> None:
        if self._dialog is dialog:
            self._dialog = None
        if dialog.following.outcome is None and not dialog.following.alive:
            self.tell_broken()
        elif wish == "stop":
            self._cancel(dialog.following.id)
        elif wish == "undo":
            self.request(Request("undo", dialog.following.id))

    def _cancel(self, id_: str) -> None:
        desk = self.desk
        if desk is None:
            return
        if self.app.read_only:
            self.app.tell(READ_ONLY)
            return
        told = "asked to stop and go back; it does so between two steps"
        self._work(lambda: desk.cancel(id_), lambda _, error: self.app.tell(error or told))

    def interrupt(self) -> bool:
        """`ctrl+c`: show what runs and ask whether to stop it; False when nothing of mine runs."""
        if self.running is None:
            return False
        self._show(self.running, asking=not self.app.read_only)
        return True

    def show_running(self) -> None:
        """The steps of what runs, again."""
        if self.running is None:
            self.app.tell("nothing is being changed by this user")
        else:
            self._show(self.running)

    def _ended(self, found: Following) -> None:
        from console.core.plan import Outcome

        outcome = found.outcome or Outcome("interrupted", "its runner died")
        for part in READ_AFTER:
            self.app.session.read_now(part)
        sign = outcome_sign(outcome, found.plan.how)
        self._changed.append((time.monotonic(), found.plan, found.operator))
        self._add_event(event_of(found.plan, outcome, found.operator, time.time()), found.id)
        severity = "information" if sign == "ok" else "warning" if sign == "warn" else "error"
        undo = "   u takes it back" if outcome.undo is not None else ""
        going = f"   still going on: {outcome.still_going}" if outcome.still_going else ""
        told = one_line(f"{found.plan.title}: {outcome.word}. {outcome.text}{going}", 600)
        if self._dialog is None or self._dialog.following.id != found.id:  # there it stands already
            self.app.notify(f"{told}{undo}", severity=severity, timeout=12, markup=False)  # type: ignore[arg-type]
        self.app.state.keep(VISIT, f"{time.time():.3f}")
        self.read_records()
        if found.outcome is None and self._dialog is None:
            self.tell_broken()

    def _add_event(self, event: Event, id_: str) -> None:
        self.ids[(event.wall, event.kind, event.text)] = id_
        self.app.store.add_event(event)

    # -------------------------------------------------------------------------------------------- the audit, and undo

    def read_records(self, then: Callable[[], None] = lambda: None) -> None:
        """Read the audit anew, then do `then`."""
        desk = self.desk
        if desk is None:
            then()
            return

        def read(records: tuple[Record, ...] | None, error: str) -> None:
            if records is None:
                self.app.tell(f"the audit cannot be read: {error}")
                return
            self.records = records
            self._add_past()
            then()
            self.app.refresh_now()

        self._work(desk.records, read)

    def undo(self, id_: str | None) -> None:
        """`u`: plan to take back this change, or the newest of mine that can be."""
        self.request(Request("undo", id_ or "last"))

    def _tell_past(self, found: tuple[tuple[Record, ...], tuple[Interrupted, ...]] | None, error: str) -> None:
        if found is None:
            self.app.tell(f"what was changed before cannot be told: {error}")
            return
        self.records, interrupted = found
        visit = visited(self.app.state.get(VISIT))
        self._add_past()
        new = [one for one in self.records if visit is not None and one.outcome is not None and one.wall > visit]
        if new or interrupted:
            self._tell_since(tuple(new), interrupted)
        self.app.refresh_now()

    def _add_past(self) -> None:
        """Events for changes that have none yet: those from before the start, and those of `gpuconsole do`."""
        known = {*self.ids.values(), *((self.running.id,) if self.running is not None else ())}
        for record in reversed(self.records[:EVENTS_FROM_AUDIT]):
            event = None if record.intent.id in known else event_from_audit(record.intent, record.outcome)
            if event is not None:
                self._add_event(event, record.intent.id)

    def tell_broken(self) -> None:
        """What broke off, and what can be done about it; a notice where nothing did."""
        desk = self.desk
        if desk is None:
            return

        def found(broken: tuple[Interrupted, ...] | None, error: str) -> None:
            if broken:
                self._tell_since((), broken)
            else:
                self.app.tell(error or "nothing broke off half way")

        self._work(desk.interrupted, found)

    def _tell_since(self, ended: tuple[Record, ...], interrupted: tuple[Interrupted, ...]) -> None:
        from console.tui.screens.since import SinceDialog

        def answered(wish: tuple[str, str] | None) -> None:
            if wish is None:
                return
            what, id_ = wish
            if what == "record":
                self.app.show_record(id_)
            else:
                self.request(Request(what, id_))

        self.app.push_screen(SinceDialog(ended, interrupted, utc=self.app.utc), answered)

    # -------------------------------------------------------------------------------------------------------- threads

    def _later(self, call: Callable[[], None]) -> None:
        self.app.post_message(FromThread(call))

    def _work(self, job: Callable[[], Result], then: Callable[[Result | None, str], None]) -> None:
        """`job` in a thread; then, in the UI thread, `then` with its result or one sentence."""

        def ended(result: Result | None, error: str) -> None:
            self._later(lambda: then(result, error))

        threading.Thread(target=lambda: attempt(job, ended), name="acting", daemon=True).start()


def _may_cause(plan: Plan, event: Event) -> bool:
    """True where this change can have led to what is seen: of the same model, or of the server with all its models."""
    if event.model is None:
        return plan.target.kind == "gpu"
    return (
        event.model == plan.target.name if plan.target.kind == "model" else plan.target.kind in ("container", "server")
    )


def visited(kept: str | None) -> float | None:
    """When the operator was last here; None at the first visit."""
    try:
        return float(kept) if kept else None
    except ValueError:
        return None


def event_of_other(holder: Holder, wall: float) -> Event:
    """Another operator's change has ended. What came of it stands in an audit that is theirs alone."""
    text = f"{one_line(holder.what, 120) or 'this box'}: a change by another gpuconsole ended"
    detail = (
        one_line(holder.text, 200),
        "how it ended stands in that user's audit; what it changed shows here as it is read",
    )
    return Event(wall, "note", text, one_line(holder.who, 80), "act.other", None, detail)
