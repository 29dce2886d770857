"""Who uses the lab on this machine: many side by side, or one alone, over all test runs."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from typing import IO

from tests.lab import paths

LOCK = paths.LOCK.with_name("gpuconsole-lab-tests.lock")
TURN = paths.LOCK.with_name("gpuconsole-lab-turn.lock")
"""Held by who waits to be alone: without it, users that overlap one another would keep him waiting for ever."""
WAIT_S = 90.0
TURN_S = 30.0
"""So long those that come later let him go first: somebody may have the lab for an hour, by hand."""

_held = 0
"""Blocks that this process is within."""


class BusyError(Exception):
    """Somebody else has the lab, longer than anybody should."""


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Use the lab beside others. BusyError after `WAIT_S`."""
    # Within a block nothing more is taken: who waits to be alone waits for this process, which must not wait for him.
    with contextlib.ExitStack() if _held else _taken(fcntl.LOCK_SH), _within():
        yield


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Use the lab alone; not within another block. BusyError after `WAIT_S`."""
    with _taken(fcntl.LOCK_EX), _within():
        yield


@contextlib.contextmanager
def _within() -> Iterator[None]:
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1


def _taken(kind: int) -> contextlib.ExitStack:
    held = contextlib.ExitStack()
    try:
        lock, turn = held.enter_context(LOCK.open("a")), held.enter_context(TURN.open("a"))
    except OSError:
        return held  # not root: such a test can only read, and finds out what is there
    try:
        deadline = time.monotonic() + WAIT_S
        if kind == fcntl.LOCK_SH:
            with contextlib.suppress(BusyError):
                _wait(turn, kind, time.monotonic() + TURN_S)
        else:
            _wait(turn, kind, deadline)
        _wait(lock, kind, deadline)
    except BusyError:
        held.close()
        raise
    turn.close()
    return held


def _wait(file: IO[str], kind: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BusyError(f"another test run has held the lab for {WAIT_S:.0f} s ({file.name})") from None
            time.sleep(0.1)
