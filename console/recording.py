"""`gpuconsole record`: the recorder without a screen, and the systemd unit that keeps it running."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from console.actions import audit
from console.clients.recorder import Recorder
from console.core import units
from console.core.act_events import event_from_audit
from console.core.history import History
from console.core.model import Asked, Event, LogLine, Reading, Snapshot, SourceError, Verdict
from console.core.plan import Refused
from console.core.session import Session
from console.core.store import Store
from console.core.text import one_line

STOPPED = 1
"""Exit code where recording ended by itself."""
SECOND = 1.0
JUDGE_EVERY = 5.0
TELL_EVERY = 60.0
START_WITHIN = 10.0
AUDIT_EVERY = 10.0
EVENTS_FROM_AUDIT = 50
"""Changes before the start that become events."""


class Judge(Protocol):
    """Who says why (advisors.why.Why)."""

    def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
        """All verdicts for this moment."""


def run(
    session: Session, judge: Judge, recorder: Recorder, state: Path, seconds: float | None, say: Callable[[str], None]
) -> int:
    """Record until told to end (SIGTERM, SIGINT), for `seconds` where given; the exit code. Refused where somebody else
    records into that folder, SourceError where it cannot be written to."""
    with _told_to_end() as ended:
        recorder.switch(True)
        began = time.monotonic()
        while not (recorder.state.on or recorder.state.why_off):
            if ended.told or time.monotonic() - began > START_WITHIN:
                break
            time.sleep(0.02)
        if recorder.state.why_off:
            why = recorder.state.why_off
            recorder.close()
            raise Refused(why) if "already" in why else SourceError("unavailable", why)
        say(f"recording into {recorder.folder}, at most {units.size(recorder.limit)}; ctrl+c ends it")
        box = _Box(session, judge, state)
        try:
            _record(box, recorder, ended, None if seconds is None else began + seconds, say)
        finally:
            session.stop(0.2)
            recorder.close()
    end = recorder.state
    if end.why_off:
        sys.stderr.write(f"gpuconsole: {one_line(end.why_off, 400)}\n")
        return STOPPED
    say(f"{units.size(end.written)} written to {recorder.folder}")
    return 0


def _record(
    box: _Box, recorder: Recorder, ended: _Ended, until: float | None, say: Callable[[str], None]
) -> None:
    tell_at = time.monotonic() + TELL_EVERY
    while not ended.told and not recorder.state.why_off:
        now = time.monotonic()
        if until is not None and now >= until:
            return
        recorder.put(*box.second(ended))
        if now >= tell_at:
            tell_at = now + TELL_EVERY
            say(_line(recorder, box))


def _line(recorder: Recorder, box: _Box) -> str:
    state, word = recorder.state, box.snapshot.serving
    count = f" {word.ready} of {word.of}" if word.of else ""
    more = f", {state.left_out} moments left out: the disk is too slow" if state.left_out else ""
    gone = f", {state.removed} old files removed by the limit" if state.removed else ""
    clock = units.moment(box.snapshot.wall)
    return (
        f"{clock}  {word.word}{count}  {units.size(state.written)} written, {units.size(state.size)} in all{gone}{more}"
    )


class _Box:
    """A session folded into a Store, as the console's screen does it."""

    def __init__(self, session: Session, judge: Judge, state: Path) -> None:
        self._session = session
        self._judge = judge
        self._state = state
        self._store = Store()
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._judged = 0.0
        self._audit_read = float("-inf")
        self._told: set[str] = set()
        self.snapshot = Snapshot()
        self._due = time.monotonic()
        session.start(self._arrivals.put, self._arrivals.put)

    def second(self, ended: _Ended) -> tuple[Snapshot, list[LogLine]]:
        """Wait for the end of a second; what is known then, and the log lines of that second."""
        self._due = max(self._due + SECOND, time.monotonic())
        lines: list[LogLine] = []
        while (left := self._due - time.monotonic()) > 0 and not ended.told:
            try:
                item = self._arrivals.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            if isinstance(item, Reading):
                self._store.apply(item)
            elif isinstance(item, Event):
                self._store.add_event(item)
            elif isinstance(item, LogLine):
                lines.append(item)
        self._read_audit()
        self._store.set_gaps(self._session.gaps())
        wall, mono = time.time(), time.monotonic()
        self.snapshot = self._store.snapshot(wall, mono)
        if self.snapshot.seq and mono - self._judged >= JUDGE_EVERY:
            self._judged = mono
            verdicts = self._judge.evaluate(self.snapshot, self._store.history, {})
            if verdicts != self.snapshot.verdicts:
                self._store.set_verdicts(verdicts)
                self.snapshot = self._store.snapshot(wall, mono)
        return self.snapshot, lines

    def _read_audit(self) -> None:
        """Changes made meanwhile by a console or `gpuconsole do` of the same user."""
        if time.monotonic() - self._audit_read < AUDIT_EVERY:
            return
        self._audit_read = time.monotonic()
        try:
            changes = audit.changes(self._state)[-EVENTS_FROM_AUDIT:]
        except OSError:
            return  # another user's: what it changed shows as it is read
        for change in changes:
            event = None if change.intent is None else event_from_audit(change.intent, change.outcome)
            if event is not None and change.id not in self._told:
                self._told.add(change.id)
                self._store.add_event(event)


class _Ended:
    """Whether a signal told us to end. A plain flag: a handler may interrupt whoever holds the lock of an Event."""

    told = False

    def tell(self, number: int, frame: object) -> None:
        """The handler."""
        self.told = True


@contextmanager
def _told_to_end() -> Iterator[_Ended]:
    """Set by SIGTERM, SIGINT and SIGHUP; the handlers of before are put back."""
    ended = _Ended()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number, was in before.items():
        if was is not signal.SIG_IGN or number == signal.SIGTERM:  # nohup: a lost terminal is no end
            signal.signal(number, ended.tell)
    try:
        yield ended
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def unit(arguments: Sequence[str] = ()) -> str:
    """A systemd unit that records always: for the whole system where root asks, else for this user's own systemd."""
    root = os.geteuid() == 0
    program = shutil.which("gpuconsole")
    command = [program] if program else [sys.executable, "-m", "console"]
    command += ["record", *(("--to", "%S/gpuconsole/recordings") if root else ()), *arguments]
    text = _UNIT.replace("@COMMAND@", " ".join(_word(word) for word in command))
    for name, for_root, for_user in _DIFFERS:
        text = text.replace(f"@{name}@", for_root if root else for_user)
    return text


def _word(word: str) -> str:
    """As systemd reads a command line; %S is ours."""
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'


_UNIT = """\
# gpuconsole's black box: records this box always. Put it in place by
#   gpuconsole record --unit > @PLACE@/gpuconsole-record.service
#   systemctl@USER@ daemon-reload && systemctl@USER@ enable --now gpuconsole-record.service@LINGER@
[Unit]
Description=gpuconsole recorder: GPU, Triton and its container, second by second
After=network.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=@COMMAND@
Restart=on-failure
RestartSec=30
Nice=10
UMask=0077
MemoryMax=512M
@MORE@
[Install]
WantedBy=@TARGET@
"""
_DIFFERS = (
    ("PLACE", "/etc/systemd/system", "~/.config/systemd/user"),
    ("USER", "", " --user"),
    ("LINGER", "", "\n# and `loginctl enable-linger`, so that it runs while you are not logged in"),
    ("TARGET", "multi-user.target", "default.target"),
    (
        "MORE",
        "StateDirectory=gpuconsole\nStateDirectoryMode=0700\nNoNewPrivileges=yes\nProtectSystem=full\n"
        "ProtectHome=read-only\nPrivateTmp=yes\nLockPersonality=yes\n",
        "NoNewPrivileges=yes\n",
    ),
)
"""What a unit of the system and one of a user's own systemd do not share. The latter has no %S that all versions of
systemd agree on, so it writes to the state folder that the console uses too."""
