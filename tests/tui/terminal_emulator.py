"""A console in a pseudo-terminal: what it wrote, the keys it gets, the signals, how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 20.0
"""Seconds after which a test gives up; a limit for a slow machine, not a claim about speed."""
LEFT = b"\x1b[?1049l"
"""The alternate screen was left."""


class PtyConsole:
    """One child process with a terminal of its own."""

    def __init__(self, size: tuple[int, int], env: dict[str, str], *, ignore_hangup: bool = False) -> None:
        self.master, self._slave = pty.openpty()
        self.written = b""
        self.answer_position: bytes | None = None
        """What the terminal says when it is asked for the cursor's position."""
        self.resize(*size)
        self.modes = termios.tcgetattr(self._slave)

        def prepare() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore_hangup else signal.SIG_DFL)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tui.child"],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            cwd=ROOT,
            env=env,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def resize(self, width: int, height: int) -> None:
        """Change the terminal's size; the kernel tells the child (SIGWINCH)."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def send(self, data: bytes) -> None:
        """Type."""
        os.write(self.master, data)

    def read(self, seconds: float) -> bytes:
        """What it writes within so many seconds."""
        start = len(self.written)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                continue
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                break
            self.written += chunk
            if b"\x1b[6n" in chunk and self.answer_position is not None:
                os.write(self.master, self.answer_position)
        return self.written[start:]

    def until(self, wanted: Callable[[bytes], bool] | bytes, *, after: int = 0) -> bytes:
        """Read until what was written (from byte `after` on) holds `wanted`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            seen = self.written[after:]
            if (wanted in seen) if isinstance(wanted, bytes) else wanted(seen):
                return seen
            assert time.monotonic() < deadline, f"waited in vain; the end of what came: {seen[-600:]!r}"
            assert self.process.poll() is None or self.read(0.3), f"it ended: {seen[-600:]!r}"
            self.read(0.1)

    def state(self) -> str:
        """The process's state letter: R, S, T (stopped), Z."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def until_state(self, letters: str) -> None:
        """Wait until the process is in one of these states."""
        deadline = time.monotonic() + PATIENCE
        while self.state() not in letters:
            assert time.monotonic() < deadline, f"state is {self.state()}"
            self.read(0.05)

    def end(self) -> int:
        """Wait for its end, reading what it still writes; the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            if self.master >= 0:
                self.read(0.1)
            else:
                time.sleep(0.05)
        if self.master >= 0:
            self.read(0.2)
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal as a lost SSH line does."""
        os.close(self._slave)
        os.close(self.master)
        self.master = self._slave = -1

    def left_clean(self) -> bool:
        """True when the screen, the cursor and the line's modes are as before."""
        after: list[Any] = termios.tcgetattr(self._slave)
        shown = self.written.rfind(b"\x1b[?25h") > self.written.rfind(b"\x1b[?25l")
        return LEFT in self.written and shown and after[:4] == self.modes[:4]

    def close(self) -> None:
        """End what is left of it."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for handle in (self.master, self._slave):
            if handle >= 0:
                os.close(handle)


@contextmanager
def console(
    folder: Path,
    size: tuple[int, int] = (100, 30),
    env: Mapping[str, str] | None = None,
    *,
    ignore_hangup: bool = False,
) -> Iterator[PtyConsole]:
    """A console in a terminal; `env` on top of a plain UTF-8 environment."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    plain = {"LANG": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor", "XDG_STATE_HOME": str(folder)}
    one = PtyConsole(size, {**kept, **plain, **(env or {})}, ignore_hangup=ignore_hangup)
    try:
        yield one
    finally:
        one.close()
