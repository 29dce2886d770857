"""Starts the runner's process, follows it, and asks it to stop; a lost terminal ends none of it.

The runner has its own session, so that closing a terminal sends it nothing. Where systemd's logind is set to end all
processes of a session with it (KillUserProcesses, off by default), only a scope of its own saves it; that part was
written from systemd's manual and is untested, as no machine here runs systemd.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from console.actions import journal as journals
from console.actions.box import READ_ONLY, BoxSpec
from console.actions.journal import Ended, Journal, Request
from console.actions.who import operator
from console.clients.aside import environment
from console.clients.host import user_name
from console.core.plan import UNAUDITED, JournalLine, Operator, Outcome, Plan, Refused

START_WITHIN = 30.0
"""Seconds that a new runner gets to write its first line; an interpreter on a busy box takes some."""
POLL = 0.1
"""Seconds between two looks at a journal."""
SYSTEMD = Path("/run/systemd/system")
LINGER = Path("/var/lib/systemd/linger")


class Seen(Struct, frozen=True):
    """What is new in a journal."""

    lines: tuple[JournalLine, ...]
    outcome: Outcome | None
    """Not None: it is over."""


def start(
    spec: BoxSpec, state: Path, plan: Plan, who: Operator | None = None, *, unaudited: bool = False, wait: float = 0.0
) -> str:
    """Start doing what the plan says; returns its id when the runner lives. Blocks for about half a second.

    It goes on without an audit record where the plan was ticked so, or with `unaudited`.

    Refused when it cannot be done, in read-only mode, or when nothing can be written down.
    """
    if spec.settings.safety.read_only:
        raise Refused(READ_ONLY)
    if plan.refused:
        raise Refused(plan.refused)
    unaudited = unaudited or plan.values.get(UNAUDITED) == "true"
    request = Request("", time.time(), spec, plan, who or operator(), str(state), unaudited, wait)
    try:
        journal = journals.create(request, spare=unaudited)
    except OSError as error:
        raise Refused(
            f"what is done cannot be written down in {state} ({error.strerror}): nothing was done; free space there, "
            "or go on unaudited (do: --unaudited)"
        ) from error
    _launch(journal)
    return journal.id


class Tail:
    """Reads a journal as it grows. One thread; call `read` as often as the screen wants to know."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._told = 0

    def read(self) -> Seen:
        """The lines since the last call (those that say something), and the outcome when it is over."""
        alive = is_at_work(self._journal)  # before the rest: what it wrote last is then seen in any case
        ended = self._journal.ended()
        lines = self._journal.lines()
        new = tuple(line for line in lines[self._told :] if line.text or line.phase)
        self._told = len(lines)
        if ended is not None:
            return Seen(new, ended.outcome)
        return Seen(new, None if alive else self._lost())

    def _lost(self) -> Outcome:
        return Outcome(
            "interrupted",
            "its runner was ended from outside: it can be finished or undone",
            (f"gpuconsole do interrupted.finish {self._journal.id}, or interrupted.undo",),
        )


def is_at_work(journal: Journal) -> bool:
    """True while its runner lives, or is about to begin."""
    if journal.runner() is not None:
        return True
    return not journal.lines() and time.time() - journal.request().wall < START_WITHIN


def follow(journal: Journal) -> Iterator[JournalLine | Outcome]:
    """Each line as it comes, and the outcome last."""
    tail = Tail(journal)
    while True:
        seen = tail.read()
        yield from seen.lines
        if seen.outcome is not None:
            yield seen.outcome
            return
        time.sleep(POLL)


def cancel(journal: Journal) -> bool:
    """Ask the runner to stop and go back; False when it has ended. PermissionError for another user's."""
    pid = journal.runner()
    if pid is None:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if journal.runner() != pid:  # looked at again with the handle open: the signal can meet no other process
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def command(folder: Path) -> list[str]:
    """The runner's command line. -P: no folder named `console` where the operator stands is taken for this package."""
    return [sys.executable, "-P", "-m", "console", "_run", str(folder)]


def scope() -> list[str]:
    """What puts a process where the end of a login does not reach it, to be written before its command; [] = nothing.

    Root's go to the system's manager. A user's manager ends with his last login unless he lingers, so without that its
    scope would be a worse place than the session.
    """
    if not SYSTEMD.is_dir() or shutil.which("systemd-run") is None:
        return []
    words = ["systemd-run", "--scope", "--collect", "--quiet"]
    if os.geteuid() == 0:
        return [*words, "--"]
    return [*words, "--user", "--"] if (LINGER / user_name(os.geteuid())).exists() else []


def _launch(journal: Journal) -> None:
    """Start the runner and wait for its first line; Refused when it ends before it."""
    why = ""
    for prefix in dict.fromkeys((tuple(scope()), ())):  # where systemd-run fails (no bus, no right): without it
        try:
            process = _process(journal, [*prefix, *command(journal.folder)])
        except OSError as error:
            why = f"{error.strerror} ({error.filename})"
            continue
        threading.Thread(target=process.wait, name=f"reap {journal.id}", daemon=True).start()
        if _began(journal, process):
            return
        why = next(iter(journal.log.read_text("utf-8", "replace").strip().splitlines()[-1:]), "it said nothing")
    outcome = Outcome("refused", f"the runner did not start: {why}; nothing was done (see {journal.log})")
    journal.end(Ended(outcome, time.time()))
    raise Refused(outcome.text)


def _process(journal: Journal, words: list[str]) -> subprocess.Popen[bytes]:
    with _private_log(journal.log) as log:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment()
        )


def _began(journal: Journal, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_WITHIN
    while time.monotonic() < until:
        over = process.poll() is not None
        if journal.lines():
            return True
        if over:
            return False
        time.sleep(POLL / 5)
    process.kill()
    process.wait()
    # One that came just then was killed at work: its journal says so, and no second one may follow it there.
    return bool(journal.lines())


def _private_log(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab")
