"""Memory of the console with an hour behind it: 3 600 seconds of changing readings at 160x45, without waiting.

    python -m tests.bench.hour [--record]

The session is fed with the box of the drawings, its figures changing each second, a log line a second and an event a
minute; the clock of the application runs with it. Without a terminal Textual writes no frames, so its caches of written
pieces (bounded; about 20 MiB when full, after some 20 minutes) are not in the figure: add them.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from msgspec.structs import replace

import console.tui.app as app_module
from console.advisors.why import Why
from console.clients.recorder import Recorder
from console.core.model import Event, LogLine, Reading, Snapshot
from console.tui.app import ConsoleApp
from console.tui.state import State
from console.tui.theme import folders, load
from tests.fakes.boxes import drawn_box
from tests.fakes.drawn import MONO, NOW
from tests.fakes.session import FakeSession, readings_of

HOUR = 3600


def changed(reading: Reading[Any], second: int, rng: random.Random) -> Reading[Any]:
    """The same part `second` seconds later, with figures that moved."""
    value: Any = reading.value
    if reading.part == "gpu":
        gpus = tuple(
            replace(gpu, util_pct=rng.uniform(40, 95), power_w=rng.uniform(30, 70), temp_c=rng.randint(50, 80))
            for gpu in value.gpus
        )
        value = replace(value, gpus=gpus)
    elif reading.part == "host":
        value = replace(value, cpu_pct=rng.uniform(5, 60), triton_cores=rng.uniform(1, 4))
    elif reading.part == "triton.stats":
        value = replace(value, flows=tuple(_moved(flow, rng) for flow in value.flows))
    return replace(reading, value=value, wall=NOW + second, mono=MONO + second, reads=reading.reads + second)


def _moved(flow: Any, rng: random.Random) -> Any:
    factor = rng.uniform(0.8, 1.2)
    windows = {
        name: replace(window, rate=window.rate * factor, request_ms=(window.request_ms or 1.0) * factor)
        for name in ("w1", "w10", "w30")
        if (window := getattr(flow, name)) is not None
    }
    return replace(flow, **windows)


async def hour() -> None:
    """Run and print resident memory every ten minutes of the box's time."""
    rng = random.Random(1)
    first: Snapshot = drawn_box().snapshot
    readings = list(readings_of(first))
    now = SimpleNamespace(second=0)
    clock = SimpleNamespace(time=lambda: NOW + now.second, monotonic=lambda: MONO + now.second)
    vars(app_module)["time"] = clock
    with tempfile.TemporaryDirectory() as folder:
        session = FakeSession(first)
        session.spec = SimpleNamespace(state_in=lambda state: state)
        app = ConsoleApp(
            session,
            load(folders()),
            State(Path(folder)),
            host="infer-01",
            judge=Why(),
            make_recorder=lambda state, scene: Recorder(state / "recordings", simulated=scene),
        )
        async with app.run_test(size=(160, 45)) as pilot:
            while not session.started:
                await asyncio.sleep(0.01)
            if "--record" in sys.argv:
                app.refresh_now()
                app.recording.toggle()
            for second in range(1, HOUR + 1):
                now.second = second
                for reading in readings:
                    session.publish(changed(reading, second, rng))
                session.emit(LogLine(NOW + second, "stderr", f"I0704 server.cc:1] line {second} {rng.random()}", "I"))
                if second % 60 == 0:
                    session.emit(Event(NOW + second, "note", f"event {second}", "(bench)", f"bench.{second}"))
                await asyncio.sleep(0)
                app.refresh_now()
                await asyncio.sleep(0)
                if second % 20 == 0:
                    await pilot.pause(0)
                if second % 600 == 0:
                    process = psutil.Process()
                    rss, files = process.memory_info().rss / 2**20, process.num_fds()
                    series = len(app.store.history.keys())
                    print(f"{second // 60:3} min   RSS {rss:6.1f} MiB   {files} descriptors   history {series} series")


if __name__ == "__main__":
    asyncio.run(hour())
