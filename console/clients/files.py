"""Files written whole or not at all; those of the console's own private, lines appended and synced."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

FOR_EVERYBODY: tuple[Path, ...] = (Path("/dev/shm"), Path("/run/lock"), Path("/tmp"))
"""Where all users of a machine meet: the first that everybody may write in, so that all choose the same."""
_EVERYBODY = 0o1777


def is_for_everybody(folder: Path) -> bool:
    """Whether it is there, everybody may write in it, and nobody may remove another's files (sticky)."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and mode & _EVERYBODY == _EVERYBODY


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner may enter, and those above it; OSError when that fails."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):  # mkdir(parents=True) would leave those above to the umask
        folder.mkdir(mode=0o700, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all; OSError when that fails."""
    private_folder(path.parent)
    write_whole(path, text.encode("utf-8", "replace"), 0o600)


def write_whole(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Put a file in place, whole or not at all; `owner` None = the caller. OSError when that fails.

    The new file is made in the same folder, so that SELinux gives it that folder's label.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
        sync_folder(path.parent)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Put a folder's names on disk: without it a new file may be gone after a power loss. OSError when that fails."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_synced(path: Path, line: bytes) -> None:
    """Append one line to a file that only its owner can read; it is on disk when this returns. OSError when not.

    One `write` on a descriptor opened for appending: two processes never mix their lines. Where a writer died within
    its line (or the disk was full), that torn line is ended first, so that it spoils no other.
    """
    private_folder(path.parent)
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle, is_new = os.open(path, flags), False
    except FileNotFoundError:
        handle, is_new = os.open(path, flags | os.O_CREAT, 0o600), True
    try:
        data = line.rstrip(b"\n") + b"\n"
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        sync_folder(path.parent)
