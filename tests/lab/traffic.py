"""A load tool for tests: bounded in time, loopback only, every answer checked, its counts kept second by second.

It shares no code with the product, so that the product's figures can be held against its counts.
Open loop: requests leave when they are due, whatever the server does, and latency counts from then.
Closed loop: a number of callers, each asks again when it has its answer.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import http.client
import json
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.lab import triton
from tests.lab.paths import LabError, UsageError

LONGEST_S = 3600.0
ANSWER_WITHIN_S = 30.0
MOST_CONNECTIONS = 512
_USERS = 200


@dataclasses.dataclass(frozen=True)
class Flow:
    """What one model gets: `rank=150`, `rank:1=50`, `rank=50..200` (rising evenly over the run)."""

    label: str
    model: str
    version: str | None
    first: float
    last: float

    @classmethod
    def parse(cls, text: str) -> Flow:
        """Read one word of the command line; raise UsageError if it is not of the form above."""
        label, equals, amount = text.partition("=")
        model, _, version = label.partition(":")
        low, _, high = amount.partition("..")
        try:
            first, last = float(low), float(high or low)
        except ValueError:
            first = last = math.nan
        if not equals or not model or not (0 < first < 1e6 and 0 < last < 1e6):
            raise UsageError(f"{text!r} is no flow: write MODEL=NUMBER, as in rank=150, rank:1=50 or rank=50..200.")
        return cls(label, model, version or None, first, last)


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run."""

    port: int
    flows: tuple[Flow, ...]
    seconds: float
    closed: bool
    poisson: bool
    batch: int
    seed: int


class Tally:
    """What happened to one flow's requests."""

    def __init__(self) -> None:
        self.sent = 0
        self.ok = 0
        self.errors: collections.Counter[str] = collections.Counter()
        self.latency_ms: list[float] = []
        self.latest_ms = 0.0
        self._buckets: dict[int, list[int]] = {}

    def note_sent(self, late_s: float) -> None:
        """Count a request that has just left, `late_s` after it was due."""
        self.sent += 1
        self.latest_ms = max(self.latest_ms, late_s * 1000)
        self._bucket()[0] += 1

    def note_ok(self, latency_s: float) -> None:
        """Count a right answer."""
        self.ok += 1
        self.latency_ms.append(latency_s * 1000)
        self._bucket()[1] += 1

    def note_error(self, kind: str) -> None:
        """Count anything else."""
        self.errors[kind] += 1
        self._bucket()[2] += 1

    def _bucket(self) -> list[int]:
        return self._buckets.setdefault(int(time.time()), [0, 0, 0])

    def second(self, when: int) -> list[int]:
        """Return sent, ok and errors of one second of the wall clock."""
        return self._buckets.get(when, [0, 0, 0])

    def result(self) -> dict[str, Any]:
        """Return the JSON form."""
        seconds = range(min(self._buckets, default=0), max(self._buckets, default=-1) + 1)
        ordered = sorted(self.latency_ms)
        return {
            "sent": self.sent,
            "ok": self.ok,
            "errors": dict(self.errors),
            "latest_send_ms": round(self.latest_ms, 3),
            "latency_ms": _latency(ordered),
            "buckets": [
                {"t": when, **dict(zip(("sent", "ok", "errors"), self.second(when), strict=True))} for when in seconds
            ],
        }


def _latency(ordered: list[float]) -> dict[str, float] | None:
    if not ordered:
        return None
    at = {f"p{p}": ordered[min(len(ordered) - 1, math.ceil(len(ordered) * p / 100) - 1)] for p in (50, 90, 99)}
    figures = {"mean": sum(ordered) / len(ordered), **at, "max": ordered[-1]}
    return {name: round(value, 3) for name, value in figures.items()}


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answered: Callable[[int, bytes], None] | None = None
        self._failed: Callable[[str], None] | None = None
        self._buffer = b""
        self.open = False
        self.since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    def ask(self, request: bytes, answered: Callable[[int, bytes], None], failed: Callable[[str], None]) -> None:
        """Send a request; exactly one of the callbacks is called later."""
        assert self._transport is not None
        self._answered, self._failed = answered, failed
        self.since = time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect the answer; when it is whole, hand it over."""
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _content_length(head)
        if len(rest) < length or self._answered is None:
            return
        self._buffer = rest[length:]
        answered, self._answered, self._failed = self._answered, None, None
        answered(int(head[9:12]), rest[:length])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        self.open = False
        self._fail("connection lost")

    def give_up(self, kind: str) -> None:
        """End the connection and fail its request."""
        self.open = False
        self._fail(kind)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, kind: str) -> None:
        failed, self._answered, self._failed = self._failed, None, None
        if failed is not None:
            failed(kind)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


class Sender:
    """Sends one flow's requests and checks the answers."""

    def __init__(self, plan: Plan, flow: Flow) -> None:
        self.plan, self.flow = plan, flow
        self.tally = Tally()
        self.random = random.Random(f"{plan.seed} {flow.label}")
        self.requests = list(_requests(plan, flow))
        self.idle: list[Connection] = []
        self.connections: set[Connection] = set()
        self.outstanding = 0

    async def run_open(self, started: float, stop: threading.Event) -> None:
        """Send each request when it is due, until the run ends."""
        tasks: set[asyncio.Task[bool]] = set()
        due = started
        end = started + self.plan.seconds
        while not stop.is_set():
            due += self._gap(due - started)
            if due >= end:
                break
            while (pause := due - time.monotonic()) > 0 and not stop.is_set():
                await asyncio.sleep(min(pause, 0.2))
            if stop.is_set():
                break
            task = asyncio.ensure_future(self._ask_once(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=ANSWER_WITHIN_S)

    async def run_closed(self, started: float, stop: threading.Event) -> None:
        """Keep a number of callers asking until the run ends."""
        end = started + self.plan.seconds

        async def caller() -> None:
            while not stop.is_set() and time.monotonic() < end:
                if not await self._ask_once(time.monotonic()):
                    await asyncio.sleep(0.1)  # a server that is away is not asked in a spin

        await asyncio.gather(*(caller() for _ in range(round(self.flow.first))))

    def _gap(self, into: float) -> float:
        share = min(1.0, into / self.plan.seconds)
        rate = self.flow.first + (self.flow.last - self.flow.first) * share
        return self.random.expovariate(rate) if self.plan.poisson else 1 / rate

    async def _ask_once(self, due: float) -> bool:
        try:
            connection = await self._connection()
        except OSError as error:
            self.tally.note_sent(time.monotonic() - due)
            self.tally.note_error("refused" if isinstance(error, ConnectionRefusedError) else "cannot connect")
            return False
        if connection is None:
            self.tally.note_sent(time.monotonic() - due)
            self.tally.note_error("no connection free")
            return False
        request, expected = self.requests[self.random.randrange(_USERS)]
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(status: int, body: bytes) -> None:
            self.idle.append(connection)
            problem = _problem(status, body, expected)
            if problem is None:
                self.tally.note_ok(time.monotonic() - due)
            else:
                self.tally.note_error(problem)
            if not done.done():
                done.set_result(problem is None)

        def failed(kind: str) -> None:
            self.connections.discard(connection)
            self.tally.note_error(kind)
            if not done.done():
                done.set_result(False)

        self.tally.note_sent(time.monotonic() - due)
        connection.ask(request, answered, failed)
        return await done

    async def _connection(self) -> Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.open:
                return connection
            self.connections.discard(connection)
        if len(self.connections) >= MOST_CONNECTIONS:
            return None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self.plan.port)
        self.connections.add(connection)
        return connection

    def give_up_on_late(self) -> None:
        """Fail what has waited too long for its answer."""
        oldest = time.monotonic() - ANSWER_WITHIN_S
        busy = self.connections.difference(self.idle)
        for connection in [c for c in busy if c.since and c.since < oldest]:
            connection.give_up("timeout")

    def close(self) -> None:
        """End every connection."""
        for connection in list(self.connections):
            connection.give_up("cut off at the end")


def _problem(status: int, body: bytes, expected: list[float]) -> str | None:
    if status != 200:
        return f"http {status}"
    try:
        data = json.loads(body)["outputs"][0]["data"]
    except (ValueError, KeyError, IndexError, TypeError):
        return "unreadable answer"
    return None if data == expected else "wrong answer"


def _requests(plan: Plan, flow: Flow) -> Iterator[tuple[bytes, list[float]]]:
    """Yield for each user the whole HTTP request and the numbers of the right answer (exact in FP32)."""
    takes, gives = _tensors(plan.port, flow)
    path = f"/v2/models/{flow.model}" + (f"/versions/{flow.version}" if flow.version else "") + "/infer"
    for user in range(_USERS):
        features = [user + quarter / 4 for quarter in range(4)]
        given, shape, datatype = ([user], [1], "INT64") if takes == "USER" else (features, [4], "FP32")
        expected = features if gives == "FEATURES" else [user + 0.375]
        tensor = {"name": takes, "shape": [plan.batch, *shape], "datatype": datatype, "data": given * plan.batch}
        body = json.dumps({"inputs": [tensor]}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: lab\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        yield head.encode() + b"\r\n\r\n" + body, expected * plan.batch


def _tensors(port: int, flow: Flow) -> tuple[str, str]:
    path = f"/v2/models/{flow.model}" + (f"/versions/{flow.version}" if flow.version else "")
    try:
        status, metadata = triton.call(port, "GET", path)
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"No Triton answers on port {port}: {error}. Is the lab up (scripts/lab status)?") from error
    if status != 200:
        raise LabError(f"Triton does not serve {flow.label}: {metadata}.")
    takes, gives = metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]
    if takes not in ("USER", "FEATURES") or gives not in ("FEATURES", "SCORE"):
        raise LabError(f"{flow.model} takes {takes} and gives {gives}: this tool knows the lab's own models only.")
    return takes, gives


async def _drive(plan: Plan, stop: threading.Event, show: Callable[[str], None]) -> dict[str, Any]:
    senders = [Sender(plan, flow) for flow in plan.flows]
    began, started = time.time(), time.monotonic()
    runs = [s.run_closed(started, stop) if plan.closed else s.run_open(started, stop) for s in senders]
    watcher = asyncio.ensure_future(_watch(senders, show))
    await asyncio.gather(*runs)
    watcher.cancel()
    ended = time.time()
    for sender in senders:
        sender.close()
    return {
        "started": began,
        "ended": ended,
        "seconds": round(ended - began, 3),
        "loop": "closed" if plan.closed else "poisson" if plan.poisson else "even",
        "batch": plan.batch,
        "seed": plan.seed,
        "models": {s.flow.label: {"asked": _asked(s.flow), **s.tally.result()} for s in senders},
    }


def _asked(flow: Flow) -> float | list[float]:
    return flow.first if flow.first == flow.last else [flow.first, flow.last]


async def _watch(senders: list[Sender], show: Callable[[str], None]) -> None:
    shown = int(time.time())
    while True:
        await asyncio.sleep(1 - time.time() % 1 + 0.02)
        for sender in senders:
            sender.give_up_on_late()
        for second in range(shown, int(time.time())):
            parts = [
                "{} {} sent {} ok {} errors".format(sender.flow.label, *sender.tally.second(second))
                for sender in senders
            ]
            show(time.strftime("%H:%M:%S  ", time.localtime(second)) + "   ".join(parts))
        shown = int(time.time())


def drive(plan: Plan, *, stop: threading.Event | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run the plan, until `stop` is set if that comes first, and return its record.

    A line a second goes to standard error unless `quiet`.
    """

    def show(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    return asyncio.run(_drive(plan, stop or threading.Event(), show))


def loopback_port(url: str) -> int:
    """Return the port of a URL on this machine; raise UsageError for any other host."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.hostname not in ("127.0.0.1", "localhost") or parts.port is None:
        raise UsageError(f"{url} is not on 127.0.0.1: load goes to this machine only.")
    return parts.port
