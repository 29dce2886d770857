"""An App that ends well: on a crash, a signal, a lost terminal. The terminal is left clean, nothing secret is printed.

Uses two private hooks of Textual 8.2.8 (`_handle_exception`, `panic`), because its own print local variables.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual.app import App

from console.tui import crash, terminal

LOST_TERMINAL = 129
"""Exit code when the terminal went away (128 + SIGHUP)."""

CHECK_EVERY = 2.0
"""Seconds between looks at whether the terminal is still there."""


class CarefulApp(App[None]):
    """Ends on SIGTERM, SIGINT, SIGHUP and when the terminal is gone; logs its own failures to a private file."""

    def __init__(self, logs: Path) -> None:
        super().__init__()
        self._logs = logs
        self.leaving: Callable[[int], None] = lambda code: None
        """Called with the exit code as soon as the app is to end."""

    def watch_terminal(self) -> None:
        """Begin to listen to signals and to look whether the terminal is there; call when the app is mounted."""
        if not self.is_headless:
            self.listen_to_signals()
            self.app_resume_signal.subscribe(self, self._came_back)
            self.set_interval(CHECK_EVERY, self._check_terminal)

    def _came_back(self, app: App[Any]) -> None:
        """After `fg`: Textual 8.2.8 sends only what changes from then on, into an empty screen."""
        self.screen.refresh(layout=True)

    def listen_to_signals(self) -> None:
        """A kill leaves the terminal clean, too; SIGHUP stays ignored where a supervisor wants it so."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))

    def exit(self, result: None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        self.leaving(return_code)
        super().exit(result, return_code, message)

    def _check_terminal(self) -> None:
        if terminal.is_lost():
            self.exit(return_code=LOST_TERMINAL)

    def _handle_exception(self, error: Exception) -> None:
        self._exception = self._exception or error
        self._exception_event.set()
        self._fail(crash.log_exception(error, self._logs))

    def panic(self, *renderables: RenderableType) -> None:
        if not self.is_headless and terminal.is_lost():
            self.exit(return_code=LOST_TERMINAL)
            return
        self._fail(crash.log_renderables(renderables, self._logs))

    def _fail(self, line: str) -> None:
        self.leaving(crash.EXIT_CODE)
        self._return_code = crash.EXIT_CODE
        self._exit_renderables[:] = [Text(line)]
        self._close_messages_no_wait()
