"""Runs a program in a pseudo-terminal and measures what it costs: CPU, bytes to the terminal, memory, first paint."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

import psutil
from msgspec import Struct


class Cost(Struct):
    """What a run cost."""

    cpu_pct: float
    """Of one core, user and system, children included, over the measured span."""
    bytes_per_second: float
    rss: int
    """Resident bytes of the whole process tree at the end."""


class Terminal:
    """A program on a pseudo-terminal of a given size."""

    def __init__(self, command: Sequence[str], columns: int, rows: int, environ: Mapping[str, str]) -> None:
        self.began = time.monotonic()
        self.output = bytearray()
        self.seen = 0
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environ),
            start_new_session=True,
            close_fds=True,
            # the pseudo-terminal becomes the controlling one, as under sshd or tmux
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.master = master

    def read(self, seconds: float, until: bytes | None = None) -> bool:
        """Take output in for `seconds`, or until `until` was drawn; True when it was."""
        end = time.monotonic() + seconds
        start = len(self.output)
        while (left := end - time.monotonic()) > 0:
            if until is not None and until in self.output[max(0, start - len(until)) :]:
                return True
            if not select.select([self.master], [], [], min(left, 0.05))[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += len(data)
            self.output += data
            self._answer(data)
        return until is not None and until in self.output[start:]

    def _answer(self, data: bytes) -> None:
        """A terminal answers where its cursor is (CSI 6n); without an answer programs wait for their time-out."""
        for _ in range(data.count(b"\x1b[6n")):
            os.write(self.master, b"\x1b[1;2R")

    def send(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def cpu(self) -> float:
        """CPU seconds of the tree so far."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for one in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    total += times.user + times.system
            times = root.cpu_times()
            total += times.children_user + times.children_system
        return total

    def rss(self) -> int:
        """Resident bytes of the tree."""
        total = 0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for one in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += int(one.memory_info().rss)
        return total

    def close(self) -> None:
        """End the program: hang up, then terminate, then kill its own process group."""
        with contextlib.suppress(OSError):
            os.close(self.master)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        self.process.wait(5)


def measure(
    command: Sequence[str],
    marker: bytes,
    seconds: float,
    *,
    settle: float = 5.0,
    columns: int = 160,
    rows: int = 45,
    environ: Mapping[str, str] | None = None,
) -> Cost:
    """Start, wait for the marker, let it settle, then measure over `seconds`."""
    terminal = Terminal(command, columns, rows, environ or os.environ)
    try:
        terminal.read(20, until=marker)
        terminal.read(settle)
        cpu, seen, began = terminal.cpu(), terminal.seen, time.monotonic()
        terminal.read(seconds)
        span = time.monotonic() - began
        return Cost(100 * (terminal.cpu() - cpu) / span, (terminal.seen - seen) / span, terminal.rss())
    finally:
        terminal.close()


def first_paint(command: Sequence[str], marker: bytes, environ: Mapping[str, str]) -> float:
    """Seconds from the start until the marker was drawn; infinity when it never was."""
    terminal = Terminal(command, 160, 45, environ)
    try:
        painted = terminal.read(20, until=marker)
        return time.monotonic() - terminal.began if painted else float("inf")
    finally:
        terminal.close()
