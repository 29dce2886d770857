"""`gpuconsole record`: the recorder without a screen, and the systemd unit that keeps it running."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from console.actions import audit
from console.alerts.watch import Watch
from console.clients.recorder import Recorder
from console.config import Alerts
from console.core import units
from console.core.act_events import event_from_audit
from console.core.ending import Ended, told_to_end
from console.core.following import Following, Judge
from console.core.model import LogLine, Snapshot
from console.core.plan import Refused, WrongInput
from console.core.session import Session
from console.core.text import one_line

STOPPED = 1
"""Exit code where recording ended by itself."""
SECOND = 1.0
TELL_EVERY = 60.0
START_WITHIN = 10.0
AUDIT_EVERY = 10.0
EVENTS_FROM_AUDIT = 50
"""Changes before the start that become events."""


def run(
    session: Session,
    judge: Judge,
    recorder: Recorder,
    state: Path,
    seconds: float | None,
    say: Callable[[str], None],
    alerts: Alerts | None = None,
) -> int:
    """Record until told to end (SIGTERM, SIGINT), for `seconds` where given; the exit code. Refused where somebody else
    records into that folder, WrongInput where it cannot be written to."""
    with told_to_end() as ended:
        recorder.switch(True)
        began = time.monotonic()
        while not (recorder.state.on or recorder.state.why_off):
            if ended.told or time.monotonic() - began > START_WITHIN:
                break
            time.sleep(0.02)
        if recorder.state.why_off:
            why = recorder.state.why_off
            recorder.close()
            raise Refused(why) if "already" in why else WrongInput(why)
        say(f"recording into {recorder.folder}, at most {units.size(recorder.limit)}; ctrl+c ends it")
        box = _Box(session, judge, state, alerts)
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


def _record(box: _Box, recorder: Recorder, ended: Ended, until: float | None, say: Callable[[str], None]) -> None:
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
    """A session as the recorder follows it: with the changes that the audit tells, and with alerts."""

    def __init__(self, session: Session, judge: Judge, state: Path, alerts: Alerts | None) -> None:
        self._state = state
        self._audit_read = float("-inf")
        self._told: set[str] = set()
        self._due = time.monotonic()
        self._following = Following(session, judge, keeps_lines=True)
        self._watch: Watch | None = None
        if alerts is not None:
            self._watch = Watch(
                alerts,
                state,
                socket.gethostname(),
                failed=lambda event: self._following.add_events((event,)),
                hooks=session.simulated is None,
            )

    @property
    def snapshot(self) -> Snapshot:
        """What is known now."""
        return self._following.snapshot

    def second(self, ended: Ended) -> tuple[Snapshot, list[LogLine]]:
        """Wait for the end of a second; what is known then, and the log lines of that second."""
        self._due = max(self._due + SECOND, time.monotonic())
        self._read_audit()
        snapshot = self._following.until(self._due, ended)
        if self._watch is not None and snapshot.seq and self._watch.is_due(snapshot.mono):
            seen = self._watch.look(snapshot, self._following.store.history)
            self._following.add_events(seen.events)
        return snapshot, self._following.take_lines()

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
                self._following.add_events((event,))


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
