"""A running load tells all consoles of this machine, also those of other users, that it runs.

Each process that runs one has a file of its own in a folder for everybody; its name holds the process and its start by
the kernel's clock, so that a file that a killed process left is known for what it is. Who runs it is the file's owner,
by the kernel, and counts only where the process is that owner's. All else in the file is another user's word: shown as
literal, short text, and nothing is decided by it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from itertools import islice
from math import isfinite
from pathlib import Path

import msgspec
from msgspec import Struct

from console.clients import host
from console.clients.files import FOR_EVERYBODY, is_for_everybody
from console.core.encode import to_json
from console.core.text import one_line
from console.loadgen.schedule import LONGEST_S

FOLDERS = FOR_EVERYBODY
_NAME = re.compile(r"gpuconsole-load\.([0-9]{1,10})\.([0-9]{1,20})\.[0-9a-f]{8}")
_MOST = 64
"""Files that are looked at: nobody may make all consoles read without end."""
_LONGEST = 2048
_WORD, _WORDS = 80, 160
"""Characters shown."""


class _Told(Struct, frozen=True):
    """What stands in the file."""

    wall: float
    model: str
    target: str
    words: str
    seconds: float | None = None


class Running(Struct, frozen=True):
    """A load that runs on this machine."""

    pid: int
    ticks: int
    """The process's start, in the kernel's ticks since boot: with `pid` its identity."""
    by: str
    """The user, by the kernel."""
    wall: float
    """When it began, by its own word."""
    model: str
    target: str
    """host:port, by its own word."""
    words: str
    """Such as `open loop, Poisson, 800/s`, by its own word."""
    seconds: float | None = None
    """How long it may take at most, with its warm-up, by its own word; None where it says nothing."""


def mine(model: str, target: str, words: str, seconds: float | None) -> Running:
    """A load that this process begins now."""
    process = host.process(os.getpid())
    ticks = 0 if process is None else process.start_ticks
    return Running(os.getpid(), ticks, host.user_name(os.getuid()), time.time(), model, target, words, seconds)


@contextlib.contextmanager
def announced(running: Running) -> Iterator[str]:
    """All consoles of this machine know of it within the block. Gives "", or why they do not."""
    told = _Told(running.wall, running.model, running.target, running.words, running.seconds)
    path, why = None, ""
    try:
        path = _made(running, to_json(told))
    except OSError as error:
        why = f"other consoles do not see this load: {one_line(error.strerror or str(error), 120)}"
    try:
        yield why
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _made(running: Running, data: bytes) -> Path:
    """The file; OSError where there can be none."""
    folder = _folder()
    if folder is None:
        raise FileNotFoundError(f"none of {', '.join(map(str, FOLDERS))} is for everybody")
    path = folder / f"gpuconsole-load.{running.pid}.{running.ticks}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        os.write(handle, data)
        os.fchmod(handle, 0o644)  # whole when others may read it; the umask would keep them out
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    return path


def going_on() -> tuple[Running, ...]:
    """All loads that run on this machine and say so, oldest first; this process's own too.

    Removes what this user's own killed processes left.
    """
    folder = _folder()
    if folder is None:
        return ()
    try:
        with os.scandir(folder) as entries:
            matches = ((entry.path, match) for entry in entries if (match := _NAME.fullmatch(entry.name)))
            found = [_read(Path(path), int(match[1]), int(match[2])) for path, match in islice(matches, _MOST)]
    except OSError:
        return ()
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.wall, one.pid)))


def _folder() -> Path | None:
    return next((folder for folder in FOLDERS if is_for_everybody(folder)), None)


def _read(path: Path, pid: int, ticks: int) -> Running | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # it ended just now, is not for us, or is no file
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return None
        data = os.read(handle, _LONGEST)
    except OSError:
        return None
    finally:
        os.close(handle)
    if not _lives(pid, ticks, found.st_uid):
        if found.st_uid == os.geteuid():
            with contextlib.suppress(OSError):
                path.unlink()
        return None
    try:
        told = msgspec.json.decode(data, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return _shown(pid, ticks, found.st_uid, told)


def _lives(pid: int, ticks: int, uid: int) -> bool:
    """Whether that very process runs, and is this user's; where /proc hides it, whether one of another user does."""
    process = host.process(pid)
    if process is not None:
        return process.start_ticks == ticks and process.state not in "ZX" and host.real_uid(pid) == uid
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False  # one of our own is never hidden from us: it began just now, under an old number


def _shown(pid: int, ticks: int, uid: int, told: _Told) -> Running:
    now = time.time()
    wall = told.wall if isfinite(told.wall) and 0 < told.wall <= now else now
    seconds = told.seconds
    if seconds is not None and not (isfinite(seconds) and 0 < seconds <= 2 * LONGEST_S):
        seconds = None
    words = one_line(told.words, _WORDS)
    return Running(
        pid, ticks, host.user_name(uid), wall, one_line(told.model, _WORD), one_line(told.target, _WORD), words, seconds
    )
