"""Independent clients of one model, in a process of their own: raw sockets and asyncio, nothing of the product's.

    python -m tests.bench.callers PORT MODEL:VERSION_OR_-:SCALE ... [--kept 32] [--every 0.002]

Each of `--kept` keep-alive connections asks, reads the answer, rests `--rest` seconds and asks again; beside them a
fresh connection is made every `--every` seconds for one request. The targets take turns. An answer counts as good when
it is 200, the version is one that was asked for, and the score is the mean of what was sent. A line of JSON goes to
standard output for all that is not good and for what took over a second, and one at the end with the totals; the end
of standard input ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter

STALL_S = 1.0
GIVE_UP_S = 30.0


class Route:
    """One way of asking: over kept or fresh connections, of any version or of one."""

    def __init__(self, kind: str, model: str, version: str) -> None:
        self.name = f"{kind} {model}" + (f":{version}" if version else "")
        self.path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
        self.version = version
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0

    def request(self) -> tuple[bytes, float]:
        """The bytes of one request and the right answer."""
        values = [random.randrange(1000) / 4 for _ in range(4)]
        body = json.dumps({"inputs": [{"name": "FEATURES", "shape": [1, 4], "datatype": "FP32", "data": values}]})
        head = f"POST {self.path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + body).encode(), sum(values) / 4

    def tell(self, kind: str, began: float, text: str = "") -> None:
        """Count one request; what is not good or was slow is a line at once."""
        seconds = time.time() - began
        self.counts[kind] += 1
        self.slowest = max(self.slowest, seconds)
        if seconds > STALL_S:
            self.counts["stalled"] += 1
        if kind != "ok" or seconds > STALL_S:
            line = {"route": self.name, "kind": kind, "wall": began, "seconds": round(seconds, 3), "text": text[:200]}
            print(json.dumps(line), flush=True)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """One request and its answer on a connection."""
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    return status, await reader.readexactly(length)


def verdict(route: Route, status: int, body: bytes, right: float) -> tuple[str, str]:
    """(kind, what it said)."""
    if status != 200:
        return f"http {status}", body.decode(errors="replace")
    told = json.loads(body)
    if route.version and told["model_version"] != route.version:
        return "wrong version", str(told["model_version"])
    got = told["outputs"][0]["data"][0]
    return ("ok", "") if abs(got - right) < 1e-3 else ("wrong answer", f"{got}, not {right}")


async def once(port: int, route: Route, kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] | None) -> None:
    """Ask once; `kept` holds the connection to use again, [] = make it anew."""
    request, right = route.request()
    began = time.time()
    try:
        async with asyncio.timeout(GIVE_UP_S):
            pair = kept.pop() if kept else await asyncio.open_connection("127.0.0.1", port)
            try:
                status, body = await exchange(*pair, request)
            except BaseException:
                pair[1].close()
                raise
            if kept is None:
                pair[1].close()
            else:
                kept.append(pair)
        route.tell(*_first(verdict(route, status, body, right), began))
    except TimeoutError:
        route.tell("no answer", began)
    except ConnectionRefusedError:
        route.tell("refused", began)
    except (OSError, asyncio.IncompleteReadError) as error:
        route.tell("broken off", began, type(error).__name__)


def _first(told: tuple[str, str], began: float) -> tuple[str, float, str]:
    return told[0], began, told[1]


async def keep_asking(port: int, route: Route, rest: float, stop: asyncio.Event) -> None:
    """A client with a connection of its own."""
    kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    while not stop.is_set():
        await once(port, route, kept)
        await asyncio.sleep(rest * random.uniform(0.5, 1.5))
    for _, writer in kept:
        writer.close()


async def fresh(port: int, routes: list[Route], every: float, stop: asyncio.Event) -> None:
    """One request on a new connection every so often, whether or not the one before has ended."""
    running: set[asyncio.Task[None]] = set()
    due = time.monotonic()
    for route in itertools.cycle(routes):
        if stop.is_set():
            break
        task = asyncio.create_task(once(port, route, None))
        running.add(task)
        task.add_done_callback(running.discard)
        due = max(due + every, time.monotonic() - 1.0)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*running)


async def run(options: argparse.Namespace) -> None:
    """Until standard input ends."""
    stop = asyncio.Event()
    targets = [target.split(":") for target in options.targets]
    kinds = {kind: [Route(kind, m, "" if v == "-" else v) for m, v in targets] for kind in ("kept", "fresh")}
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)))
    callers = [
        keep_asking(options.port, kinds["kept"][number % len(targets)], options.rest, stop)
        for number in range(options.kept)
    ]
    began = time.time()
    await asyncio.gather(*callers, fresh(options.port, kinds["fresh"], options.every, stop))
    totals = {
        route.name: {**route.counts, "slowest_s": round(route.slowest, 3)}
        for routes in kinds.values()
        for route in routes
    }
    print(json.dumps({"totals": totals, "seconds": round(time.time() - began, 1)}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("targets", nargs="+", help="MODEL:VERSION, - for any version")
    parser.add_argument("--kept", type=int, default=32)
    parser.add_argument("--every", type=float, default=0.002)
    parser.add_argument("--rest", type=float, default=0.1)
    asyncio.run(run(parser.parse_args()))
