"""`scripts/bench load`: the load generator beside perf_analyzer, on the same server in the same run.

Both are run as a user runs them, in turns, and medians of the pairs' ratios are told: a machine that is busy meanwhile
is busy for both. perf_analyzer is made to take any window (`-s`): on a busy machine it would tell nothing at all.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from console.loadgen import perf_analyzer
from console.loadgen.announce import going_on
from console.loadgen.record import Foreign
from tests.bench import peer
from tests.lab import podman
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config, write

LEVELS = (1, 4, 16, 64)
SLEEPING, TRIVIAL = "rank", "trivial"
WARM_S = 1.0
WINDOWS = 3
"""perf_analyzer's fewest."""
FROZEN_S, FROZEN_RUN_S = 1.0, 12.0


class Figures(Struct, frozen=True):
    """Of one run; ms."""

    rate: float
    p50: float
    p99: float
    mean: float
    server: float
    """Mean within the server, by its statistics."""
    cpu_ms: float = 0.0
    """Of the sender, for each request."""
    missed: int = 0
    """Requests by which the server's count differs from ours."""
    batch: float = 0.0


class Side:
    """A server with both models, and both clients of it."""

    def __init__(self, own: OwnTriton, binary: Path, state: str, seconds: float) -> None:
        self.own, self.binary, self.state, self.seconds = own, binary, state, seconds

    def words(self, model: str, *more: str) -> list[str]:
        """`gpuconsole loadtest` as a command."""
        port = self.own.port
        where = ("--host", "127.0.0.1", "--http-port", str(port), "--metrics-port", str(port + 2))
        return [sys.executable, "-m", "console", "loadtest", model, *where, "--look-before", "0", *more, "--json"]

    def environ(self) -> Mapping[str, str]:
        """Of a user without settings."""
        return {**os.environ, "XDG_STATE_HOME": self.state, "XDG_CONFIG_HOME": self.state}

    def ours(self, model: str, callers: int) -> Figures:
        """One run of ours."""
        more = ("--concurrency", str(callers), "--duration", f"{self.seconds}s", "--warmup", f"{WARM_S}s")
        done = subprocess.run(self.words(model, *more), env=self.environ(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"loadtest ended with {done.returncode}: {done.stderr or done.stdout[-500:]}")
        found = json.loads(done.stdout)
        client, server = found["client"], found["server"]
        at = client["latency"]
        return Figures(
            client["in_time"] / client["seconds"], at["p50"], at["p99"], at["mean"], server["total_ms"],
            1000 * client["cpu_s"] / client["sent"], server["requests"] - client["done"], server["batch"],
        )  # fmt: skip

    def theirs(self, model: str, callers: int) -> Figures:
        """One run of perf_analyzer."""
        window = round(1000 * self.seconds / WINDOWS)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.csv"
            words = [str(self.binary), "-m", model, "-u", f"127.0.0.1:{self.own.port}", "--concurrency-range",
                     str(callers), "-p", str(window), "-s", "999", "-r", str(WINDOWS), "--input-data", "zero",
                     "--verbose-csv", "-f", str(report)]  # fmt: skip
            done = subprocess.run(words, env=peer.environment(self.binary), capture_output=True, text=True, check=False)
            if not report.exists():
                raise RuntimeError(f"perf_analyzer told nothing: {done.stdout[-300:]}{done.stderr[-300:]}")
            blank = Foreign("", 0, 0.0, "", "", model, "", 0, 0.0)
            (one,) = perf_analyzer.read_csv(report.read_bytes(), report.name, blank)
        told = [one.p50_ms, one.p99_ms, one.mean_ms, one.queue_ms, one.input_ms, one.infer_ms, one.output_ms]
        p50, p99, mean, *parts = (value for value in told if value is not None)
        counts = [int(re.findall(rf"{name} count: ([0-9]+)", done.stdout)[-1]) for name in ("Inference", "Execution")]
        return Figures(one.items, p50, p99, mean, sum(parts), batch=counts[0] / counts[1])


def against_perf_analyzer(repeats: int, seconds: float, binary: str) -> int:
    """All of it: the ratio at each level, the ceiling of both, and a frozen server."""
    found = Path(binary) if binary else peer.perf_analyzer()
    if not os.access(found, os.X_OK):
        print(f"{found} is no program that can be run", file=sys.stderr)
        return 1
    print(
        f"load average {_load()} at the beginning; {os.cpu_count()} cores; {repeats} pairs a level, {seconds:g} s each"
    )
    with server() as own, tempfile.TemporaryDirectory() as state:
        side = Side(own, found, state, seconds)
        print("\nsleeping model (4 ms + 0.5 ms an item, at most 8); ours / perf_analyzer, medians of the pairs' ratios")
        for callers in LEVELS:
            _told(callers, *_pairs(side, SLEEPING, callers, repeats))
        print("\ntrivial model: what both can drive at most")
        for callers in LEVELS[2:]:
            _told(callers, *_pairs(side, TRIVIAL, callers, repeats))
        _frozen(side)
    print(f"\nload average {_load()} at the end")
    return 0


@contextmanager
def server() -> Iterator[OwnTriton]:
    """With a sleeping and a trivial model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the container's user reads the models
        root = Path(folder) / "models"
        write(SLEEPING, sleeper_config(SLEEPING, base_us=4000, item_us=500), root=root)
        write(TRIVIAL, sleeper_config(TRIVIAL, base_us=0, max_batch=64), root=root)
        with own_triton(root, wait=False) as own:
            own.wait_ready({(SLEEPING, "1"), (TRIVIAL, "1")})
            yield own


def _pairs(side: Side, model: str, callers: int, repeats: int) -> tuple[list[Figures], list[Figures]]:
    """In turns, each first as often as the other."""
    ours: list[Figures] = []
    theirs: list[Figures] = []
    for number in range(repeats):
        for mine in (True, False) if number % 2 == 0 else (False, True):
            (ours if mine else theirs).append((side.ours if mine else side.theirs)(model, callers))
    return ours, theirs


def _told(callers: int, ours: Sequence[Figures], theirs: Sequence[Figures]) -> None:
    def of(figures: Sequence[Figures], name: str) -> list[float]:
        return [float(getattr(one, name)) for one in figures]

    def both(name: str) -> str:
        found = sorted(a / b for a, b in zip(of(ours, name), of(theirs, name), strict=True))
        middles = f"{median(of(ours, name)):.2f} and {median(of(theirs, name)):.2f}"
        return f"{median(found):.3f} ({found[0]:.2f} to {found[-1]:.2f}): {middles}"

    print(f"  {callers:>3} at once   throughput {both('rate')}/s   p50 {both('p50')} ms   mean batch {both('batch')}")
    for name, figures in (("ours", ours), ("theirs", theirs)):
        mean, server = median(of(figures, "mean")), median(of(figures, "server"))
        rest = median(one.mean - one.server for one in figures)
        cpu = f", of it {median(of(ours, 'cpu_ms')):.3f} ms CPU of the sender" if name == "ours" else ""
        p99 = median(of(figures, "p99"))
        print(
            f"      {name:<7} p99 {p99:.2f}, mean {mean:.2f} = server {server:.2f} + {rest:.2f} outside its times{cpu}"
        )
    off = [one.missed for one in ours if one.missed]
    exact = len(ours) - len(off)
    print(f"      counts  {exact} of {len(ours)} runs of ours counted by Triton to the request {off or ''}", flush=True)


def _frozen(side: Side) -> None:
    """An open and a closed loop beside each other while the server stands still for a second."""
    pid = int(podman.run("inspect", "--format", "{{.State.Pid}}", side.own.name).stdout)
    long = ("--duration", f"{FROZEN_RUN_S:g}s", "--warmup", "500ms")
    commands = {
        "open loop, 100/s": side.words(SLEEPING, "--rate", "100", *long),
        "closed loop, 1 at once": side.words(SLEEPING, "--concurrency", "1", *long),
    }
    running = {
        name: subprocess.Popen(words, env=side.environ(), stdout=subprocess.PIPE, text=True)
        for name, words in commands.items()
    }
    while not {one.pid for one in running.values()} <= {one.pid for one in going_on()}:
        time.sleep(0.05)
    time.sleep(FROZEN_RUN_S / 2)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(FROZEN_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    print(f"\nthe server stands still for {FROZEN_S:g} s")
    for name, process in running.items():
        found: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
        at = found["client"]["latency"]
        figures = f"p50 {at['p50']:.1f}   p99 {at['p99']:.1f}   max {at['max']:.1f} ms"
        print(f"  {name:<24} {figures}   {found['steady'] or 'steady'}")


def _load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())
