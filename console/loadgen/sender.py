"""The process that sends a load: raw non-blocking sockets, one thread, one event loop of its own.

No general HTTP client reaches the rate (domain facts, section 4), and an event loop that also draws a screen would be
late. Requests are whole bytes, made before. Latency counts from the intended time in the open loop and from the send in
the closed one, to the moment at which the answer's last byte was taken. It never sends more than its order says, sends
nothing twice, and ends by itself: at its bound, on too many errors, and when whoever started it has gone.

`python -P -m console.loadgen.sender` reads an Order from standard input; see order.py for what is said.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import cycle

import msgspec

from console.loadgen import errors
from console.loadgen.answers import Checker, Head
from console.loadgen.connection import BrokenError, Connection
from console.loadgen.order import (
    DRAIN_STOPPED_S,
    FEW_ERRORS,
    GO,
    STOP,
    Broken,
    Ended,
    Message,
    Order,
    Progress,
    Warmed,
    encoder,
    orders,
)
from console.loadgen.schedule import Load, callers, intended, pieces
from console.loadgen.tally import SLICE_NS, Tally

NS = 1_000_000_000
TICK_NS = NS // 10
PAUSE_NS = NS // 50
"""After a connect that failed the closed loop waits this long: nothing is asked in a spin."""
OPEN_WITHIN_S = 5.0
FIRST_CONNECTIONS = 32
"""Of an open loop, opened side by side so that they spread over the server's workers; more as they are needed."""
LONGEST_WAIT_S = 0.05
READ = select.EPOLLIN
WRITE = select.EPOLLIN | select.EPOLLOUT
GONE = "its starter has gone"


class Sender:
    """One run."""

    def __init__(self, order: Order, inbox: int, outbox: int, said: bytes = b"") -> None:
        """`inbox` and `outbox` are descriptors; `said` was read of the inbox already, after the order."""
        self._order = order
        self._inbox, self._outbox = inbox, outbox
        self._said = said
        self._epoll = select.epoll()
        self._epoll.register(inbox, select.EPOLLIN)
        self._checkers = [Checker(asked.outputs, asked.golden) for asked in order.models]
        self._all: dict[int, Connection] = {}
        self._idle: deque[Connection] = deque()
        self._waiting: deque[int] = deque()
        """Intended times of requests that have no connection yet."""
        self._turns = [cycle(asked.requests) for asked in order.models]
        self._owed = [0.0 for _ in order.models]
        """Of each model, its share of what was sent less what it got of that."""
        self._active = 0
        self._tally = Tally()
        self._over = ""
        """Why no more is sent; "" while it goes on."""
        self._go = False
        self._measured = False
        """The measured part has begun."""
        self._open_loop = order.load.loop == "open"
        self._sending = False
        self._wanted = 0
        """Closed loop: requests that are to be in flight."""
        self._left = 0
        """Requests that may still be made in this part."""
        self._pause = 0
        self._ticked = 0
        self._parent = os.getppid()

    def run(self) -> None:
        """Open, warm up, wait for `go`, measure, tell."""
        self._hear(b"")
        try:
            self._open()
        except BrokenError as error:
            self._tell(Broken(str(error)))
            return
        warm = Tally((), len(self._turns))
        if self._order.warm_up is not None:
            warm = self._part(self._order.warm_up)
        self._tell(Warmed(warm.done, warm.failed, len(self._all), warm.answered))
        while not self._go and not self._over:
            self._turn(LONGEST_WAIT_S)
            self._look_after(time.monotonic_ns())
        wall, self._measured = time.time(), True
        tally = self._part(self._order.load)
        enough = bool(self._order.load.count) and not self._left
        ended = self._over or ("count" if enough else "duration")
        if self._over != GONE:
            self._tell(Ended(tally.client(time.monotonic_ns(), len(self._all)), ended, wall))

    def stop(self, *_: object) -> None:
        """Send no more."""
        self._over = self._over or "stopped"

    # -------------------------------------------------------------------------------------------------------- a part

    def _part(self, load: Load) -> Tally:
        tally = self._tally = Tally(pieces(load), len(self._turns))
        start = time.monotonic_ns()
        tally.begin(start, start + round(load.seconds * NS))
        self._left = load.most
        self._sending = True
        due = intended(load) if self._open_loop else iter(())
        upcoming = next(due, None)
        now = start
        while not self._over and now < tally.end and self._left:
            now = time.monotonic_ns()
            upcoming = self._feed(load, now, due, upcoming)
            self._dispatch()
            self._turn(self._patience(upcoming, time.monotonic_ns()))
            now = time.monotonic_ns()
            self._look_after(now)
        if self._open_loop and not self._over:
            self._feed(load, tally.end, due, upcoming)
        self._sending = False
        tally.cut(now, SLICE_NS // 2)
        self._drain()
        return tally

    def _feed(self, load: Load, now: int, due: Iterator[int], upcoming: int | None) -> int | None:
        """Put what is due by now into the queue; the next intended time."""
        start = self._tally.start
        if self._open_loop:
            while upcoming is not None and upcoming + start <= now and self._left:
                self._waiting.append(upcoming + start)
                self._left -= 1
                upcoming = next(due, None)
            return upcoming
        self._wanted = callers(load, (now - start) / NS)
        while self._active + len(self._waiting) < self._wanted and self._left and now >= self._pause:
            self._waiting.append(now)
            self._left -= 1
        return None

    def _patience(self, upcoming: int | None, now: int) -> float:
        """Seconds to the next thing to do by the clock."""
        until = self._tally.end - now
        if upcoming is not None:
            until = min(until, upcoming + self._tally.start - now)
        elif not self._open_loop and self._pause > now:
            until = min(until, self._pause - now)
        return max(0.0, min(until / NS, LONGEST_WAIT_S))

    def _drain(self) -> None:
        """Send what is still due, as long as an answer may take; then wait for the answers to what was sent, each as
        long as it may take. A run that was stopped sends no more and waits DRAIN_STOPPED_S."""
        until = time.monotonic_ns() + round(self._order.timeout_s * NS)
        stopped = 0
        while (self._active or self._waiting) and self._over != GONE:
            now = time.monotonic_ns()
            if self._over:
                self._waiting.clear()
                stopped = stopped or now + round(DRAIN_STOPPED_S * NS)
                if now >= stopped:
                    break
            elif now >= until:
                self._give_up_waiting()
            self._dispatch()
            self._turn(LONGEST_WAIT_S)
            self._look_after(time.monotonic_ns())
        for connection in [one for one in self._all.values() if one.busy]:
            self._lose(connection, BrokenError(errors.CUT))

    def _give_up_waiting(self) -> None:
        for _ in self._waiting:
            self._tally.bad(errors.NEVER_SENT, "", self._choose())
        self._waiting.clear()

    # ---------------------------------------------------------------------------------------------------- connections

    def _open(self) -> None:
        """All first connections side by side. BrokenError where none can be had."""
        wanted = FIRST_CONNECTIONS if self._open_loop else int(self._order.load.peak)
        failed = BrokenError(errors.UNREACHABLE)
        for _ in range(min(wanted, self._order.max_connections)):
            try:
                self._idle.append(self._connect())
            except BrokenError as error:
                failed = error
        deadline = time.monotonic() + OPEN_WITHIN_S
        while any(one.connecting for one in self._all.values()) and not self._over:
            if time.monotonic() > deadline:
                failed = BrokenError(errors.TIMEOUT, f"no connection within {OPEN_WITHIN_S:g} s")
                for one in [one for one in self._all.values() if one.connecting]:
                    self._forget(one)
                break
            self._turn(LONGEST_WAIT_S)
        if not self._all and not self._over:
            lost = self._tally.errors
            raise next((BrokenError(kind, one.text) for kind, one in lost.items()), failed)

    def _connect(self) -> Connection:
        made = Connection(self._order.address, self._order.port)
        self._all[made.fd] = made
        self._epoll.register(made.fd, WRITE if made.connecting else READ)
        return made

    def _free(self) -> Connection | None:
        """The one that is idle for longest, so that all are used; a new one where none is; None where none may be."""
        while self._idle:
            one = self._idle.popleft()
            if self._all.get(one.fd) is one:
                return one
        if len(self._all) >= self._order.max_connections:
            return None
        return self._connect()

    def _dispatch(self) -> None:
        while self._waiting:
            try:
                one = self._free()
            except BrokenError as error:
                self._waiting.popleft()
                self._failed(error, self._choose())
                continue
            if one is None:
                return
            self._begin(one, self._waiting.popleft())

    def _begin(self, one: Connection, due: int) -> None:
        model = self._choose()
        request = next(self._turns[model])
        now = time.monotonic_ns()
        if not self._open_loop:
            due = now
        self._active += 1
        try:
            one.begin(request, due, now, model)
        except BrokenError as error:
            self._lose(one, error)
            return
        if one.sent:
            self._tally.went(due, now, model)
        if one.wants_to_write:
            self._epoll.modify(one.fd, WRITE)

    def _choose(self) -> int:
        """The model that is owed most: shares hold from the first requests on, and without chance."""
        if len(self._owed) == 1:
            return 0
        for at, asked in enumerate(self._order.models):
            self._owed[at] += asked.share
        most = max(range(len(self._owed)), key=self._owed.__getitem__)
        self._owed[most] -= 1.0
        return most

    def _lose(self, one: Connection, error: BrokenError) -> None:
        """A connection broke; the request that it carried failed."""
        busy, connecting = one.busy, one.connecting
        self._forget(one)
        if busy:
            self._active -= 1
        if busy or connecting:
            self._failed(error, one.model)

    def _failed(self, error: BrokenError, model: int) -> None:
        self._tally.bad(error.kind, error.text, model)
        if error.kind in (errors.REFUSED, errors.UNREACHABLE):
            self._pause = time.monotonic_ns() + PAUSE_NS

    def _forget(self, one: Connection) -> None:
        if self._all.pop(one.fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(one.fd)
        one.close()

    # --------------------------------------------------------------------------------------------------------- events

    def _turn(self, patience: float) -> None:
        """Wait for events and deal with them.

        epoll alone waits in whole milliseconds, rounded up; its descriptor in a select waits to the microsecond, which
        an open loop wants.
        """
        if self._open_loop and patience > 0:
            select.select([self._epoll], [], [], patience)
            patience = 0.0
        for fd, event in self._epoll.poll(patience):
            one = self._all.get(fd)
            if one is None:
                if fd == self._inbox:
                    self._read_inbox()
                continue
            try:
                if one.wants_to_write:
                    self._writable(one)
                if event & ~select.EPOLLOUT:
                    found = one.readable()
                    if found is not None:
                        self._answered(one, *found)
            except BrokenError as error:
                self._lose(one, error)

    def _writable(self, one: Connection) -> None:
        was, now = one.sent, time.monotonic_ns()
        one.writable(now)
        if one.busy and not was and one.sent:
            self._tally.went(one.due, one.sent, one.model)
        if not one.wants_to_write:
            self._epoll.modify(one.fd, READ)

    def _answered(self, one: Connection, head: Head, body: bytes) -> None:
        now = time.monotonic_ns()
        due, model, tally = one.due, one.model, self._tally
        self._active -= 1
        if head.close:
            self._forget(one)
        elif self._waiting and self._open_loop:
            self._begin(one, self._waiting.popleft())
        elif self._sending and not self._open_loop and self._left and now < tally.end and self._active < self._wanted:
            self._left -= 1
            self._begin(one, now)  # before the look at the answer: the server has work meanwhile
        else:
            self._idle.append(one)
        problem = self._checkers[model].problem(head, body)
        if problem is None:
            tally.good(due, now, model)
        else:
            tally.bad(*problem, model)

    # --------------------------------------------------------------------------------------------------- looked after

    def _look_after(self, now: int) -> None:
        """Ten times a second: time-outs, progress, limits."""
        if now - self._ticked < TICK_NS:
            return
        self._ticked = now
        if os.getppid() != self._parent:
            self._over = GONE
        oldest = now - round(self._order.timeout_s * NS)
        for one in [one for one in self._all.values() if one.busy and (one.sent or one.due) < oldest]:
            self._lose(one, BrokenError(errors.TIMEOUT, f"no answer within {self._order.timeout_s:g} s"))
        tally = self._tally
        if not tally.end:
            return
        cut = tally.cut(now)
        if cut is not None:
            at = cut.at if self._measured else min(0.0, (now - tally.end) / NS)
            self._tell(
                Progress(at, tally.sent, tally.done, tally.failed, tally.late if self._open_loop else 0, self._active,
                         len(self._waiting), cut.done / cut.span, cut.p50, cut.p99, now / NS,
                         tally.answered)
            )  # fmt: skip
        failed = tally.failed
        if failed >= FEW_ERRORS and failed > self._order.max_errors * (failed + tally.done):
            kinds = ", ".join(f"{one.count} {kind}" for kind, one in tally.errors.items())
            self._over = self._over or f"errors: {failed} of {failed + tally.done} requests failed ({kinds})"

    def _read_inbox(self) -> None:
        try:
            said = os.read(self._inbox, 4096)
        except OSError:
            said = b""
        if not said:
            self._epoll.unregister(self._inbox)
            self._over = GONE
            return
        self._hear(said)

    def _hear(self, said: bytes) -> None:
        self._said += said
        if STOP in self._said:
            self.stop()
        if GO in self._said:
            self._go = True
        self._said = self._said[self._said.rfind(b"\n") + 1 :]

    def _tell(self, message: Message) -> None:
        """A line to whoever started it. Progress is left out where he does not read: nobody may slow the sender."""
        if isinstance(message, Progress) and not select.select([], [self._outbox], [], 0)[1]:
            return
        left = memoryview(encoder.encode(message) + b"\n")
        while left:
            left = left[os.write(self._outbox, left) :]


def _read_order(inbox: int) -> tuple[bytes, bytes]:
    """The order's line and what came after it; empty where the input ended before."""
    parts: list[bytes] = []
    while part := os.read(inbox, 1 << 20):
        line, newline, rest = part.partition(b"\n")
        parts.append(line)
        if newline:
            return b"".join(parts), rest
    return b"", b""


def _raise_limits() -> int:
    """Allow as many descriptors as may be; the connections that they are enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(1, soft - 64)


def main() -> None:
    """Entry point of the process."""
    inbox, outbox = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # what a library prints is no message
    line, said = _read_order(inbox)
    if not line:
        return
    order = orders.decode(line)
    del line
    most = min(order.max_connections, _raise_limits())
    sender = Sender(msgspec.structs.replace(order, max_connections=most), inbox, outbox, said)
    signal.signal(signal.SIGTERM, sender.stop)
    signal.signal(signal.SIGINT, sender.stop)
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a collection is a pause that would be measured
    with contextlib.suppress(BrokenPipeError):
        sender.run()


if __name__ == "__main__":
    main()
    sys.exit(0)
