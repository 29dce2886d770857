"""From a key to the first changed cell of the screen. `scripts/bench keys` does it quiet, and while a load runs at the
client's ceiling that was begun on the Load screen of the very console that is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from tests.bench.load import TRIVIAL, server
from tests.bench.terminal import Terminal
from tests.lab.own import OwnTriton

KEYS = 40
CALLERS = 64
COLUMNS, ROWS = 160, 45
AT_ONCE = 6
"""Lines from the first of the form down to the callers of a closed loop; the next is how long."""


class Watched:
    """A console on a pseudo-terminal, with what its screen shows."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.terminal = Terminal(command, COLUMNS, ROWS, env)
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0

    def wait(self, seconds: float) -> None:
        """Take in what is drawn meanwhile."""
        self.terminal.read(seconds)
        self._stream.feed(bytes(self.terminal.output[self._fed :]))
        self._fed = len(self.terminal.output)

    def press(self, *keys: str) -> None:
        """One after another, as a person would."""
        for key in keys:
            self.terminal.send(key.encode())
            self.wait(0.3)

    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self._screen.display)

    def until(self, words: str, seconds: float) -> None:
        """Wait for words on the screen; RuntimeError with the screen where they do not come."""
        end = time.monotonic() + seconds
        while words not in self.text():
            if time.monotonic() > end:
                raise RuntimeError(f"{words!r} did not come:\n{self.text()}")
            self.wait(0.2)

    def delays(self, keys: int = KEYS) -> list[float]:
        """Seconds from writing a motion key to the first changed cell of a list, on the screen that is open."""
        found: list[float] = []
        for number in range(keys):
            began = time.monotonic()
            self.terminal.send(b"j" if number % 3 else b"k")
            while time.monotonic() - began < 2:
                before = self._cursor_rows()
                self.wait(0.004)
                if self._cursor_rows() != before:
                    found.append(time.monotonic() - began)
                    break
            self.wait(0.137)
        return found or [float("inf")]

    def _cursor_rows(self) -> list[int]:
        """Rows whose background differs from the row above: where the cursor stands."""
        buffer = self._screen.buffer
        return [y for y in range(3, 43) if buffer[y][5].bg != buffer[y - 1][5].bg]


def key_delays(command: Sequence[str], env: Mapping[str, str]) -> list[float]:
    """On the Models screen of a console that nothing else is asked of."""
    watched = Watched(command, env)
    try:
        watched.wait(8)
        watched.press("2")
        watched.wait(4)
        return watched.delays()
    finally:
        watched.terminal.close()


def told(name: str, delays: Sequence[float]) -> str:
    """A line with the median and the 95th percentile."""
    last = 1000 * sorted(delays)[int(0.95 * len(delays))]
    middle = 1000 * statistics.median(delays)
    return f"{name:<28} median {middle:.0f} ms   95th percentile {last:.0f} ms   of {len(delays)} keys on Models"


def under_load(env: Mapping[str, str]) -> int:
    """Both in one console: quiet, then with its own load at the ceiling of a trivial model."""
    with server() as own, tempfile.TemporaryDirectory() as state:
        watched = Watched(_command(own), {**env, "XDG_STATE_HOME": state})
        try:
            watched.until(TRIVIAL, 20)
            watched.press("2")
            watched.wait(4)
            print(told("key to changed cell, quiet", watched.delays()), flush=True)
            _begin(watched)
            watched.press("2")
            print(told("the same under its own load", watched.delays()), flush=True)
            running = "LOAD 1" in watched.text()
            watched.until("SERVING 2 of 2   live", 90)
        finally:
            watched.terminal.close()
        (run,) = [json.loads(line) for line in next(Path(state).rglob("runs.jsonl")).read_text().splitlines()]
    client = run["client"]
    rate = client["in_time"] / client["seconds"]
    print(
        f"the load: {CALLERS} at once on {run['model']}, {rate:.0f}/s, p99 {client['latency']['p99']:.1f} ms, ended by "
        f"{run['ended']}{'' if running else '; IT HAD ENDED BEFORE THE LAST KEY'}"
    )
    return 0 if running else 1


def _command(own: OwnTriton) -> list[str]:
    where = ("--socket", own.socket, "--container", own.name, "--host", "127.0.0.1")
    ports = ("--http-port", str(own.port), "--grpc-port", str(own.port + 1), "--metrics-port", str(own.port + 2))
    return [sys.executable, "-m", "console", "--theme", "dark", *where, *ports]


def _begin(watched: Watched) -> None:
    """From Models to a running load on the trivial model."""
    for _ in range(4):
        watched.press("j")
    watched.press("L")
    watched.wait(2)
    form = watched.text()
    if f"model       {TRIVIAL}" not in form:
        raise RuntimeError(f"Load did not open with {TRIVIAL}:\n{form}")
    watched.press(*"j" * AT_ONCE, "\r", "\x15", str(CALLERS), "\r", "j", "\r", "\x15", "40s", "\r")
    watched.press("A")
    watched.until("[ Start ]", 20)
    watched.wait(1)
    watched.press("\t", "\r")
    watched.until("LOAD 1", 20)
    watched.wait(4)
