"""Private files of the console's own: written whole or not at all, lines appended and synced."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner may enter, and those above it; OSError when that fails."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all; OSError when that fails."""
    private_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def append_synced(path: Path, line: bytes) -> None:
    """Append one line to a file that only its owner can read; it is on disk when this returns. OSError when not.

    One `write` on a descriptor opened for appending: two processes never mix their lines.
    """
    private_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        data = line.rstrip(b"\n") + b"\n"
        if os.write(handle, data) != len(data):
            raise OSError(28, os.strerror(28), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)
