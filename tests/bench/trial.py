"""`scripts/bench trial`: a setting that breaks its goal, told from outside: when is the old one back, and who felt it?

Each time the trial is begun by a console (`gpuconsole do`) that is killed as soon as its runner works. Independent
clients (callers.py) ask all the time; a watcher apart reads the served delay ten times a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from console.actions import journal
from tests.bench import callers
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

ROOT = Path(__file__).parents[2]
MODEL = "rank"
DELAY, BAD = 1000, 60_000
GOAL_MS, BROKEN_FOR = 30.0, 4.0
LONGEST = 120.0


class Watcher(threading.Thread):
    """When the served delay changed."""

    def __init__(self, own: OwnTriton) -> None:
        super().__init__(daemon=True)
        self.own, self.stop = own, threading.Event()
        self.changes: list[tuple[float, int]] = []

    def run(self) -> None:
        while not self.stop.wait(0.1):
            status, config = self.own.triton("GET", f"/v2/models/{MODEL}/config")
            delay = int(config["dynamic_batching"]["max_queue_delay_microseconds"]) if status == 200 else -1
            if not self.changes or self.changes[-1][1] != delay:
                self.changes.append((time.monotonic(), delay))


def one(own: OwnTriton, state: Path) -> tuple[float, float, str]:
    """Seconds that the bad delay was served, the console's life, and how the change ended."""
    words = ["--http-port", str(own.port), "--grpc-port", str(own.port + 1), "--metrics-port", str(own.port + 2)]
    words += ["--host", "127.0.0.1", "--socket", own.socket, "--container", own.name]
    trial = [f"delay_us={BAD}", "for=5m", f"slo_mean_ms={GOAL_MS:g}", f"broken_for={BROKEN_FOR:g}s"]
    command = [sys.executable, "-m", "console", *words, "do", "batching.trial", MODEL, *trial, "--yes", "--wait", "60"]
    environ = {**os.environ, "XDG_STATE_HOME": str(state)}
    watcher = Watcher(own)
    watcher.start()
    began = time.monotonic()
    console = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True
    )
    until = began + LONGEST
    while not any(delay == BAD for _, delay in watcher.changes) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(console.pid, signal.SIGKILL)
    console.wait()
    lived = time.monotonic() - began
    changes = journal.all_of(state / "gpuconsole")
    while (not changes or changes[-1].ended() is None) and time.monotonic() < until:
        time.sleep(0.2)
    watcher.stop.set()
    watcher.join(5)
    bad = next((at for at, delay in watcher.changes if delay == BAD), None)
    back = next((at for at, delay in watcher.changes if bad is not None and at > bad and delay == DELAY), None)
    ended = changes[-1].ended() if changes else None
    took = float("nan") if bad is None or back is None else back - bad
    return took, lived, "no end" if ended is None else f"{ended.outcome.word}: {ended.outcome.text}"


def goes_back(times: int) -> int:
    """So many trials, one after another."""
    config = sleeper_config(
        MODEL, batching=f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}", base_us=4000, instances=2
    )
    asked = ("--kept", "3", "--rest", "0.02", "--every", "0.1")
    with (
        tempfile.TemporaryDirectory(prefix="bench-trial-") as name,
        own_triton(Path(name) / "models", [(MODEL, config, (1,))]) as own,
    ):
        told = Path(name) / "told.jsonl"
        command = [sys.executable, "-m", "tests.bench.callers", str(own.port), f"{MODEL}:-", *asked]
        print(
            f"goal: mean ≤ {GOAL_MS:g} ms, broken for {BROKEN_FOR:g} s; delay {DELAY} → {BAD} µs; the console is killed"
        )
        with told.open("w") as file, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file) as process:
            time.sleep(2.0)
            for number in range(times):
                took, lived, end = one(own, Path(name) / f"state{number}")
                print(f"  {number + 1}: the bad delay was served for {took:.1f} s (console killed after {lived:.1f} s)")
                print(f"     {end}", flush=True)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(callers.GIVE_UP_S + 10)
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        for route, counts in lines[-1]["totals"].items():
            print(f"  {route}: {counts}")
        for line in [one for one in lines[:-1] if one["kind"] != "ok"][:10]:
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(goes_back(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
