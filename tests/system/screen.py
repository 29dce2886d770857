"""The real console in a pseudo-terminal, with the real command line; what it wrote, the keys it gets, how it ends."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.terminal import Terminal
from tests.system.headless import environment

PATIENCE = 20.0
LEFT = b"\x1b[?1049l"
_CODES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]")


class Screen:
    """A console that runs."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def until(self, text: str, patience: float = PATIENCE, *, after: int = 0) -> None:
        """Wait until this text was written (codes left out) from byte `after` on."""
        end = time.monotonic() + patience
        while text not in self.written(after):
            assert self.terminal.process.poll() is None, self.written(after)[-1500:]
            assert time.monotonic() < end, f"{text!r} never came: {self.written(after)[-3000:]}"
            self.terminal.read(0.1)

    def written(self, after: int = 0) -> str:
        """All that was written from byte `after` on, less colours and cursor moves."""
        return _CODES.sub(b"", bytes(self.terminal.output[after:])).decode("utf-8", "replace")

    def press(self, key: bytes, text: str, patience: float = PATIENCE) -> float:
        """Type and wait for what must then appear; the seconds it took."""
        at, began = len(self.terminal.output), time.monotonic()
        self.terminal.send(key)
        self.until(text, patience, after=at)
        return time.monotonic() - began

    def quit(self) -> float:
        """Press 1 and q (elsewhere q goes back); it must end with 0 and leave the terminal clean. Returns seconds."""
        self.press(b"5", "[5 Container]")
        self.press(b"1", "[2]")
        began = time.monotonic()
        self.terminal.send(b"q")
        while self.terminal.process.poll() is None:
            assert time.monotonic() < began + PATIENCE, "it does not end"
            self.terminal.read(0.05)
        took = time.monotonic() - began
        self.terminal.read(0.2)
        out = bytes(self.terminal.output)
        assert self.terminal.process.returncode == 0, self.written()[-1500:]
        assert LEFT in out
        assert out.rfind(b"\x1b[?25h") > out.rfind(b"\x1b[?25l")
        assert b"Traceback" not in out
        return took


@contextlib.contextmanager
def console(
    *words: str, home: Path, columns: int = 160, rows: int = 45, environ: Mapping[str, str] | None = None
) -> Iterator[Screen]:
    """Run the console with these words."""
    command = [sys.executable, "-m", "console", *words]
    plain = {"COLORTERM": "truecolor", "PWD": os.getcwd()}
    terminal = Terminal(command, columns, rows, {**environment(home, **plain), **(environ or {})})
    try:
        yield Screen(terminal)
    finally:
        terminal.close()
