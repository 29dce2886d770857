"""The per-minute lines on disk: a file a day beside the recordings, seven of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from console.clients.files import append_synced
from console.core.minutes import DAYS, Minute, line_of, read_lines

PREFIX, SUFFIX = "minutes-", ".jsonl"
MAX_BYTES = 16 << 20
"""Of a day's file that are read: a line has about 500 bytes, 300 KiB an hour with many models."""


def append(folder: Path, minute: Minute) -> None:
    """Write one line; files of more than seven days ago go. OSError."""
    append_synced(folder / _name(minute.t), line_of(minute))
    oldest = _name(minute.t - (DAYS - 1) * 86_400)
    for path in _files(folder):
        if path.name < oldest:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def read(folders: Sequence[Path], until: float) -> list[Minute]:
    """The minutes of the seven days before a moment, oldest first; what cannot be read is left out: it is a table of
    what was seen, and says where nothing was."""
    found: dict[int, Minute] = {}
    for folder in folders:
        try:
            paths = _files(folder)
        except OSError:
            continue
        for path in paths:
            if not _name(until - DAYS * 86_400) <= path.name <= _name(until):
                continue
            try:
                with path.open("rb") as file:
                    minutes = read_lines(file.read(MAX_BYTES).splitlines())
            except OSError:
                continue
            for one in minutes:
                if until - DAYS * 86_400 <= one.t <= until and (one.t not in found or found[one.t].s < one.s):
                    found[one.t] = one
    return [found[at] for at in sorted(found)]


def _name(wall: float) -> str:
    return f"{PREFIX}{time.strftime('%Y%m%d', time.gmtime(wall))}{SUFFIX}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith(PREFIX) and path.name.endswith(SUFFIX))
