"""`scripts/bench`: see there for what it measures. Prints figures and judges nothing."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from console.simulator import launch
from tests.bench.changes import under_change
from tests.bench.keys import key_delays, told, under_load
from tests.bench.load import against_perf_analyzer
from tests.bench.prediction import against_reality, grid_cost
from tests.bench.proxy import Proxy
from tests.bench.recording import record_costs
from tests.bench.sweep import against_the_grid
from tests.bench.terminal import Cost, first_paint, measure
from tests.bench.trial import goes_back
from tests.lab import podman
from tests.lab.fixtures import Lab

BARE = ([sys.executable, "-m", "tests.bench.bare"], b"BARE APP READY")
NVITOP = ([sys.executable, "-m", "nvitop", "--monitor", "full"], b"PID")
MARKER = b"looking"
"""Stands on the console's first full frame."""


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Timed figures, beside references of the same run."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    overhead = commands.add_parser("overhead", help="cost on the lab, beside nvitop and a bare Textual app")
    overhead.add_argument("--seconds", type=float, default=60.0)
    models = commands.add_parser("models", help="cost with many models, and from key to changed cell")
    models.add_argument("--models", type=int, default=1000)
    models.add_argument("--seconds", type=float, default=30.0)
    changes = commands.add_parser("changes", help="what independent clients feel while the console changes the box")
    changes.add_argument("--swaps", type=int, default=200)
    changes.add_argument("--batching", type=int, default=200)
    changes.add_argument("--instances", type=int, default=50)
    changes.add_argument("--recreates", type=int, default=20)
    check = commands.add_parser("check", help="seconds that `gpuconsole check` takes here, the lab's Podman as its own")
    check.add_argument("--runs", type=int, default=5)
    prediction = commands.add_parser("prediction", help="what is told of batching settings, and what comes of them")
    prediction.add_argument("--settings", type=int, default=24)
    prediction.add_argument("--grid", action="store_true", help="how long 200 settings take instead")
    prediction.add_argument("--seed", default="development", help="the hash of the commit that froze the code")
    load = commands.add_parser(
        "load", help="the load generator beside perf_analyzer, and with a server that stands still"
    )
    load.add_argument("--repeats", type=int, default=5)
    load.add_argument("--seconds", type=float, default=6.0)
    load.add_argument("--perf-analyzer", default="", help="the binary; fetched where this is left out")
    commands.add_parser("keys", help="from a key to a changed cell, quiet and under a load at the client's ceiling")
    record = commands.add_parser("record", help="bytes, CPU and memory of a recording, and how long a jump takes")
    record.add_argument("--seconds", type=float, default=900.0)
    record.add_argument("--hours", type=float, default=24.0, help="of the made-up recording that is jumped in")
    record.add_argument("--scene", default="healthy")
    sweep = commands.add_parser("sweep", help="what a sweep finds, against every point of its grid; ten minutes a case")
    sweep.add_argument("--seconds", type=float, default=3.0, help="of one measurement")
    sweep.add_argument("--cases", default="", help="names with commas between; all where not given")
    trial = commands.add_parser("trial", help="when a setting that breaks its goal is back, with the console killed")
    trial.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if options.command == "sweep":
        return against_the_grid(options.seconds, options.cases)
    if options.command == "keys":
        with tempfile.TemporaryDirectory() as folder:
            return under_load(environ(folder))
    if options.command == "trial":
        return goes_back(options.times)
    if options.command == "record":
        return record_costs(options.seconds, options.hours, options.scene)
    if options.command == "prediction":
        return grid_cost() if options.grid else against_reality(options.settings, options.seed)
    if options.command == "check":
        return whole_checklist(options.runs)
    if options.command == "load":
        return against_perf_analyzer(options.repeats, options.seconds, options.perf_analyzer)
    if options.command == "changes":
        return under_change(options.swaps, options.batching, options.instances, options.recreates)
    if options.command == "overhead":
        return overhead_on_the_lab(options.seconds)
    return with_many_models(options.models, options.seconds)


def environ(folder: str, **more: str) -> dict[str, str]:
    """Of a user without settings, on a truecolor terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCONSOLE_", "SSH_"))}
    own = {"XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    return {**kept, **own, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}


def show(name: str, cost: Cost) -> None:
    """One line of the table."""
    print(
        f"{name:<28} CPU {cost.cpu_pct:5.2f} %   {cost.bytes_per_second:8.0f} B/s   RSS {cost.rss / 2**20:6.1f} MiB",
        flush=True,
    )


def show_first_paints(commands: Mapping[str, tuple[list[str], bytes]], env: Mapping[str, str], runs: int = 7) -> None:
    """Medians of runs taken in turn, so that a noisy machine is noisy for all; the first command is the reference."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, (command, marker) in commands.items():
            times[name].append(first_paint(command, marker, env))
    reference = statistics.median(next(iter(times.values())))
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(
            f"{name:<28} first paint {middle:.3f} s (median of {runs}), {middle / reference:.2f} x the first",
            flush=True,
        )


def overhead_on_the_lab(seconds: float) -> int:
    """The console on the lab at 160x45: truecolor and ANSI, beside nvitop and a bare Textual app."""
    lab = Lab.found()
    if lab is None:
        print("the lab is not up: scripts/lab up", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        counter = Path(folder) / "nvml.count"
        counter.write_bytes(bytes(8))
        library = {**_library(lab), "GPUCONSOLE_NVML_COUNT": str(counter)}
        env = environ(folder, **library)
        show("bare Textual app", measure(*BARE, seconds / 4, environ=env))
        show("nvitop", measure(*NVITOP, seconds / 2, environ=env))
        for theme in ("dark", "ansi-dark"):
            _console_on_the_lab(lab, theme, seconds, env, counter)
        console = [sys.executable, "-m", "console", "--socket", lab.podman_url]
        show_first_paints({"bare Textual app": BARE, "nvitop": NVITOP, "gpuconsole": (console, MARKER)}, env)
    return 0


def _library(lab: Lab) -> dict[str, str]:
    """What makes a program see the lab's card."""
    return {"LD_LIBRARY_PATH": str(lab.nvml_directory), "GPUCONSOLE_NVML_FILE": str(lab.nvml_values)}


def _console_on_the_lab(lab: Lab, theme: str, seconds: float, env: Mapping[str, str], counter: Path) -> None:
    metrics_port = int(lab.metrics_url.rsplit(":", 1)[1].split("/")[0])
    with Proxy(lab.port) as http, Proxy(metrics_port) as metrics:
        command = [
            *(sys.executable, "-m", "console", "--theme", theme, "--socket", lab.podman_url),
            *("--host", "127.0.0.1", "--http-port", str(http.port), "--metrics-port", str(metrics.port)),
        ]
        before = int.from_bytes(counter.read_bytes(), sys.byteorder)
        began = time.monotonic()
        cost = measure(command, MARKER, seconds, environ=env)
        span = time.monotonic() - began
        show(f"gpuconsole --theme {theme}", cost)
        polls = {
            "GPU": int.from_bytes(counter.read_bytes(), sys.byteorder) - before,
            "statistics": http.counts["/v2/models/stats"],
            "metrics": metrics.counts["/metrics"],
        }
        told = "   ".join(f"{name} {count / span:.2f}/s" for name, count in polls.items())
        print(f"{'':<28} polls counted by the servers: {told}")


def with_many_models(models: int, seconds: float) -> int:
    """The console on a simulated box of `models` models, a part of them under traffic."""
    with tempfile.TemporaryDirectory() as folder, launch.start("healthy", 1, models=models) as box:
        env = environ(folder)
        show("bare Textual app", measure(*BARE, seconds / 4, environ=env))
        at = box.addresses
        command = [
            *(sys.executable, "-m", "console", "--theme", "dark", "--socket", at.podman, "--host", "127.0.0.1"),
            *("--http-port", at.http.rsplit(":", 1)[1], "--metrics-port", at.metrics.rsplit(":", 1)[1]),
        ]
        show(f"gpuconsole, {models} models", measure(command, MARKER, seconds, environ=env))
        print(told("key to changed cell", key_delays(command, env)))
    return 0


def whole_checklist(runs: int) -> int:
    """Medians of runs taken in turn of all checks, beside a bare Python and Podman asked for its version."""
    lab = Lab.found()
    if lab is None:
        print("the lab is not up: scripts/lab up", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        env = {**environ(folder), **podman.environment()}
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "podman version": podman.command("version"),
            "gpuconsole check": [sys.executable, "-m", "console", "check", "--socket", lab.podman_url],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                began = time.monotonic()
                subprocess.run(command, env=env, capture_output=True, check=False)
                times[name].append(time.monotonic() - began)
    for name, taken in times.items():
        print(f"{name:<28} {statistics.median(taken):.2f} s   {min(taken):.2f} to {max(taken):.2f}, {runs} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
