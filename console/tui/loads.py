"""Load tests of this console and the loads of others on this machine. Owned by the app.

One load at a time: a thread of this console carries it out, and the requests leave a process of their own, which ends
with the console however that ends. Whatever may block is done in daemon threads, which tell the UI thread by a message.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

from console.core import units
from console.core.model import Event, Sign
from console.core.text import one_line
from console.tui.acting import FromThread
from console.tui.lane import attempt

if TYPE_CHECKING:
    # what only a load needs is imported when there is one: the first paint does not wait for it
    from console.loadgen.announce import Running
    from console.loadgen.measure import Plan
    from console.loadgen.order import Progress
    from console.loadgen.record import Comparison, Foreign, Kept, Live, Run
    from console.loadgen.wish import Checked
    from console.tui.app import ConsoleApp

Result = TypeVar("Result")
READ_ONLY = "the console is read-only: no load is sent"
LOOK_EVERY = 2.0
"""Seconds between looks at who loads this machine."""
EVENTS_OF_PAST = 20
"""Kept runs that become events."""
ENDS_WITHIN = 1.2
"""Seconds that a load which is stopped by quitting has to be kept."""
SAME_LOAD = 5.0
"""Seconds within which a kept run and an announced load of one model began, if they are the same."""
SETTLES = 12.0
"""Seconds after a load in which the rates of ten seconds still hold its own requests."""
NAME = 40
"""Characters of a model's name in the header."""


@dataclass(frozen=True)
class Told:
    """What a run's figures mean, in sentences."""

    gap: str = ""
    """Why the client's mean is above the server's."""
    counts: str = ""
    """How the server's count compares with the client's."""
    limit: str = ""
    """How the client itself may have set the figures; "" = it did not."""
    cards: tuple[str, ...] = ()
    """What the cards did meanwhile."""


class Doors(Protocol):
    """Where loads are planned, sent and kept. Every method but `ready` may take seconds and is called in a thread;
    Refused, WrongInput, SourceError and OSError carry one plain sentence."""

    def ready(self) -> bool:
        """True when the box is known; never blocks."""

    def host(self) -> str:
        """The box's name."""

    def by(self) -> str:
        """Who uses this console."""

    def checked(self, values: Mapping[str, str]) -> Checked:
        """What the form's values mean, as far as no server is asked."""

    def plan(self, values: Mapping[str, str]) -> Plan:
        """What would be sent, from a fresh look at the model."""

    def command(self, values: Mapping[str, str]) -> str:
        """The same as a person would type it."""

    def measure(
        self, plan: Plan, tell: Callable[[Progress, Sequence[Live]], None], begun: Callable[[Callable[[], None]], None]
    ) -> Run:
        """Carry it out and keep it; `begun` is given what stops it. The run's id is 0 where it is not kept, and its
        last note then says why."""

    def runs(self) -> tuple[tuple[Run, ...], tuple[Foreign, ...]]:
        """All kept runs, ours and those of other programs, oldest first; imports nothing where none is kept."""

    def told(self, run: Run) -> Told:
        """What the figures mean."""

    def shares(self, run: Run, bounds_ms: Sequence[float]) -> tuple[float, ...]:
        """Of its latencies up to each bound, and above the last."""

    def compare(self, first: Kept, second: Kept) -> Comparison:
        """Two runs side by side."""

    def going_on(self) -> tuple[Running, ...]:
        """All loads that run on this machine, this console's too."""

    def export(self, name: str, texts: Mapping[str, str]) -> str:
        """Write files (ending -> text) that only their owner can read; the path without its ending."""


@dataclass
class Current:
    """The load of this console that runs."""

    plan: Plan
    number: int
    """The one that it is expected to have once it is kept."""
    wall: float
    samples: list[Progress] = field(default_factory=list)
    """What the sender told, one a second; those of the warm-up have a negative time."""
    stopping: bool = False
    stopper: Callable[[], None] | None = None
    live: Sequence[Live] = ()
    """What others ask, before it and meanwhile."""

    @property
    def last(self) -> Progress | None:
        """The newest of the measured part."""
        return self.samples[-1] if self.samples and self.samples[-1].at > 0 else None

    def phase(self) -> str:
        """`0:42 of 2:00`, `warm-up 3 s`."""
        if self.stopping:
            return "stopping"
        if self.last is None:
            return f"warm-up {abs(self.samples[-1].at):.0f} s" if self.samples else "begins"
        return f"{minutes(self.last.at)} of {minutes(self.plan.load.seconds)}"

    def stop(self) -> None:
        """Send no more; any thread."""
        self.stopping = True
        if self.stopper is not None:
            self.stopper()

    def begun(self, stopper: Callable[[], None]) -> None:
        """It can be stopped from now on (and is, where that was wished before); called in its thread."""
        self.stopper = stopper
        if self.stopping:
            stopper()


def minutes(seconds: float) -> str:
    """`2:00`."""
    whole = int(max(0.0, seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class Loads:
    """What runs, what was run, who else loads this machine."""

    def __init__(self, app: ConsoleApp, doors: Doors | None) -> None:
        self.app = app
        self.doors = doors
        self.current: Current | None = None
        self.runs: tuple[Run, ...] = ()
        """Kept ones, oldest first."""
        self.foreign: tuple[Foreign, ...] = ()
        """Kept ones that other programs measured."""
        self.error = ""
        """Why they could not be read."""
        self.going: tuple[Running, ...] = ()
        """Loads of others on this machine, of this server and of others."""
        self.told = ""
        """Why the last one came to nothing; "" = it did not."""
        self._ended_at: dict[str, float] = {}
        """Model -> when a load of mine on it ended."""
        self.by = ""
        """Who uses this console, as its runs say it."""
        self._known: set[int] = set()
        """Ids of runs that are events."""
        self._others: deque[Running] = deque(maxlen=EVENTS_OF_PAST)
        """Whose beginning is an event."""
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    # ------------------------------------------------------------------------------------------------- what is so now

    def why_off(self) -> str | None:
        """Why no load can be begun; None when one can."""
        if self.app.read_only:
            return READ_ONLY
        if self.doors is None:
            return "this session cannot send a load"
        if self.current is not None:
            return f"load {self.current.number} runs: x stops it"
        return self.app.acting.why_off()

    def words(self, wall: float) -> tuple[str, str]:
        """For the header: `LOAD 13 ranking 0:42 of 2:00 ctrl+x` and its short form; "" while nobody loads."""
        now = self.current
        if now is not None:
            phase = now.phase()
            name = one_line(now.plan.names, NAME)
            return f"LOAD {now.number} {name} {phase} ctrl+x", f"LOAD {phase.replace(' of ', '/')} ctrl+x"
        here = [one for one in self.going if self.is_here(one)]
        if not here:
            return "", ""
        other = here[0]
        more = f" and {len(here) - 1} more" if len(here) > 1 else ""
        of = "" if other.seconds is None else f" of {minutes(other.seconds)}"
        since = minutes(wall - other.wall)
        by = one_line(other.by, 20)
        return f"LOAD by {by}, {one_line(other.model, NAME)} {since}{of}{more}", f"LOAD by {by}{more}"

    def is_here(self, one: Running) -> bool:
        """True where it goes to the server that this console shows, or where that cannot be told."""
        server = self.app.box.snapshot.server.value
        try:
            ours, theirs = urlsplit(server.url if server is not None else ""), urlsplit(f"//{one.target}")
            same_port = ours.port == theirs.port
        except ValueError:  # its target is another user's word
            return False
        near = {"localhost", "127.0.0.1", "::1"}
        same_host = ours.hostname == theirs.hostname or {ours.hostname, theirs.hostname} <= near
        return ours.hostname is None or (same_port and same_host)

    # -------------------------------------------------------------------------------------------------- life and death

    def begin(self) -> None:
        """After the first paint: look who loads this machine, again and again."""
        if self.doors is not None:
            threading.Thread(target=self._watch, args=(self.doors,), name="loads", daemon=True).start()

    def _watch(self, doors: Doors) -> None:
        while not doors.ready() and not self._closing.wait(0.2):
            pass
        self.by = doors.by()
        self.later(self.read_runs)
        last: tuple[Running, ...] = ()
        while not self._closing.is_set():
            found = doors.going_on()
            if found != last:
                last = found
                self.later(partial(self._seen, found))
            self._closing.wait(LOOK_EVERY)

    def _seen(self, found: tuple[Running, ...]) -> None:
        before, self.going = self.going, tuple(one for one in found if one.pid != os.getpid())
        for one in self.going:
            if one not in before and self.is_here(one):
                self._others.append(one)
                self._tell_other(one, one.wall, "began")
        for one in before:
            if one not in self.going and one in self._others:
                self.read_runs(partial(self._end_of_other, one, time.time()))
        self.app.refresh_now()

    def _end_of_other(self, one: Running, wall: float) -> None:
        """What another terminal of this user kept tells its end with its figures."""
        if not any(_is_run_of(run, one) for run in self.runs):
            self._tell_other(one, wall, "ended")

    def may_quit(self) -> bool:
        """False while a load of mine runs: then it is asked, and the app is left by the answer."""
        if self.current is None:
            return True
        from console.tui.widgets.small_dialogs import Sure

        name = one_line(self.current.plan.names, NAME)
        lines = (
            f"Load {self.current.number} on {name} runs ({self.current.phase()}).",
            "It ends with the console; what was measured until then is kept.",
        )
        self.app.push_screen(Sure("Quit", lines, "Stop it and quit"), lambda yes: self.app.exit() if yes else None)
        return False

    def close(self) -> None:
        """The console ends, and the load with it."""
        self._closing.set()
        if self.current is not None:
            self.current.stop()
            if self._thread is not None:
                self._thread.join(ENDS_WITHIN)

    # --------------------------------------------------------------------------------------------------------- a load

    @property
    def next_number(self) -> int:
        """The one that the next run will have, where no other console keeps one before."""
        kept: tuple[Kept, ...] = (*self.runs, *self.foreign)
        return max((run.id for run in kept), default=0) + 1

    def start(self, plan: Plan) -> str:
        """Begin what somebody said yes to; "" or why not."""
        why = self.why_off()
        doors = self.doors
        if why is not None or doors is None:
            return why or ""
        now = self.current = Current(plan, self.next_number, time.time())
        self.told = ""

        def tell(progress: Progress, live: Sequence[Live]) -> None:
            self.later(partial(self._progress, now, progress, live))

        def ended(run: Run | None, error: str) -> None:
            self.later(partial(self._ended, now, run, error))

        self._thread = threading.Thread(
            target=lambda: attempt(lambda: doors.measure(plan, tell, now.begun), ended), name="load", daemon=True
        )
        self._thread.start()
        words = f"load {now.number} on {one_line(plan.names, NAME)} began: {plan.load.words()}"
        self.app.store.add_event(Event(now.wall, "note", words, self.by, "load.begin", plan.model))
        self.app.refresh_now()
        return ""

    def stop(self) -> bool:
        """`x` and `ctrl+x`: at once, without asking; False when none of mine runs."""
        if self.current is None:
            return False
        self.current.stop()
        self.app.refresh_now()
        return True

    def _progress(self, now: Current, progress: Progress, live: Sequence[Live]) -> None:
        if now is self.current:
            now.samples.append(progress)
            now.live = live
            self.app.refresh_now()

    def settling(self, wall: float) -> frozenset[str]:
        """Models of which nobody can tell yet what others send: a load of mine on them ended just now."""
        return frozenset(name for name, ended in self._ended_at.items() if wall - ended < SETTLES)

    def _ended(self, now: Current, run: Run | None, error: str) -> None:
        self.current, self._thread = None, None
        self._ended_at |= {one.model: time.time() for one in now.plan.asked}
        name = one_line(now.plan.names, NAME)
        if run is None or not run.client.sent:
            self.told = error or "stopped before anything was measured"
            text = f"load {now.number} on {name}: {self.told}"
            sign: Sign = "fail" if error else "note"
            self.app.store.add_event(Event(time.time(), sign, text, self.by, "load.end", now.plan.model))
            self.app.notify(text, severity="error" if error else "information", timeout=10, markup=False)
            self.app.refresh_now()
            return
        if not run.id:
            self.app.notify(run.notes[-1], severity="warning", timeout=15, markup=False)
        if not run.id or all(one.id != run.id for one in self.runs):
            self.runs = (*self.runs, run)
        sign = sign_of(run)
        severity = "information" if sign == "ok" else "warning"
        self.app.notify(outcome_words(run), severity=severity, timeout=10, markup=False)  # type: ignore[arg-type]
        self._known.add(run.id)
        self.app.store.add_event(end_event(run))
        self.read_runs()

    # ---------------------------------------------------------------------------------------------------- kept runs

    def read_runs(self, then: Callable[[], None] = lambda: None) -> None:
        """Read the kept runs anew, then do `then`."""
        doors = self.doors
        if doors is None:
            then()
            return

        def read(found: tuple[tuple[Run, ...], tuple[Foreign, ...]] | None, error: str) -> None:
            self.error = error
            if found is not None:
                unkept = tuple(run for run in self.runs if not run.id)
                self.runs, self.foreign = (*found[0], *unkept), found[1]
                self._add_events()
            then()
            self.app.refresh_now()

        self.work(doors.runs, read)

    def _add_events(self) -> None:
        for run in self.runs[-EVENTS_OF_PAST:]:
            if run.id and run.id not in self._known:
                self._known.add(run.id)
                if not any(_is_run_of(run, one) for one in self._others):
                    words = f"load {run.id} on {one_line(run.names, NAME)} began: {run.load.words()}"
                    self.app.store.add_event(Event(run.wall, "note", words, run.by, "load.begin", run.model))
                self.app.store.add_event(end_event(run))
        for one in self.foreign[-EVENTS_OF_PAST:]:
            if not one.file and one.id not in self._known:
                self._known.add(one.id)
                words = (
                    f"load {one.id} on {one_line(one.model, NAME)} began, by {one_line(one.engine, 40)}: {one.load()}"
                )
                self.app.store.add_event(Event(one.wall, "note", words, one.by, "load.begin", one.model))

    def _tell_other(self, one: Running, wall: float, what: str) -> None:
        words = f"a load on {one_line(one.model, NAME)} {what}: {one_line(one.words, 80)}"
        detail = (f"to {one_line(one.target, 80)}, by process {one.pid} of this machine",)
        self.app.store.add_event(Event(wall, "note", words, one_line(one.by, 40), "load.other", one.model, detail))

    # -------------------------------------------------------------------------------------------------------- threads

    def later(self, call: Callable[[], None]) -> None:
        """Have it done in the UI thread; any thread, also when the app has ended."""
        self.app.post_message(FromThread(call))

    def work(self, job: Callable[[], Result], then: Callable[[Result | None, str], None]) -> None:
        """`job` in a thread; then, in the UI thread, `then` with its result or one sentence."""

        def ended(result: Result | None, error: str) -> None:
            self.later(lambda: then(result, error))

        threading.Thread(target=lambda: attempt(job, ended), name="loads", daemon=True).start()


def _is_run_of(run: Run, one: Running) -> bool:
    """Whether this run is what came of that load."""
    names = " + ".join(part.name for part in run.models) or run.model
    return names == one.model and abs(run.wall - run.warmup_s - one.wall) < SAME_LOAD


# ------------------------------------------------------------------------------------------------------ a run in words


def own(run: Kept) -> Run | None:
    """The run, where this program measured it; None for another program's."""
    from console.loadgen.record import Run

    return run if isinstance(run, Run) else None


def failed(run: Run) -> int:
    """Requests without a good answer."""
    return sum(one.count for one in run.client.errors.values())


def is_whole(run: Run) -> bool:
    """True for a run that was not cut short."""
    return run.ended in ("duration", "count")


def sign_of(run: Run) -> Sign:
    """How well it ended."""
    if run.not_valid:
        return "warn"
    if run.met is False:
        return "fail"
    return "ok" if is_whole(run) else "warn"


def outcome_words(run: Run) -> str:
    """`load 12 on ranking: 799/s, p99 4.60 ms, goal met`."""
    number = run.id or "(not kept)"
    told = [f"{units.rate(run.client.throughput)}/s", f"p99 {units.millis(run.client.latency.p99)} ms"]
    if failed(run):
        told.append(f"{failed(run)} errors")
    if run.goal_ms is not None:
        told.append(f"goal p99 ≤ {run.goal_ms:g} ms {'met' if run.met else 'missed'}")
    if not is_whole(run):
        told.append(one_line(run.ended, 200))
    if run.not_valid:
        told.append(f"not valid: {one_line(run.not_valid, 200)}")
    return f"load {number} on {one_line(run.names, NAME)}: {', '.join(told)}"


def end_event(run: Run) -> Event:
    """The end of a run as it stands in Timeline."""
    return Event(run.wall + run.client.wall_s, sign_of(run), outcome_words(run), run.by, "load.end", run.model)
