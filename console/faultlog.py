"""Where traces of faults go that the console survives: a private file, never the terminal.

A source that fails in a way nobody foresaw is named on screen in one sentence; its trace would tear the screen apart,
and is no use to the operator. Without a handler Python's logging prints it to standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

NAME = "gpuconsole.log"
LIMIT = 1024 * 1024
"""Bytes, with one older file of the same size: a fault that comes back every five seconds must not fill the disk."""


def path(folder: Path) -> Path:
    """Of the log in `folder`."""
    return folder / NAME


def set_up(folder: Path) -> None:
    """Send warnings and traces of this process to `folder`/gpuconsole.log, made at the first of them."""
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Private)]:
        root.removeHandler(handler)
    root.addHandler(_Private(path(folder)))


class _Private(logging.Handler):
    """Opens its file at the first record; one that cannot be written to is no further fault."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record with its trace (which has no local variables)."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > LIMIT:
                self._path.replace(self._path.with_suffix(".log.1"))
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
                file.write(self.format(record) + "\n")
