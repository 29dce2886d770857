"""Who changed what, when and with what result: JSON lines in a private file, each on disk before it is acted upon.

Two lines for each change, `intent` before anything is sent and `outcome` after; secrets are masked in both. An intent
without an outcome is a change that was killed or still runs. Where the file cannot be written the change is refused,
unless the operator ticked `unaudited`: then both lines go to syslog.
"""

from __future__ import annotations

import contextlib
import os
import socket
import syslog
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from console.clients.files import append_synced, private_folder
from console.core.encode import to_json
from console.core.plan import AuditRecord, Outcome

NAME = "audit.jsonl"
LONGEST = 32 * 1024 * 1024
"""Bytes read from the end of the file."""
LEAST_FREE = 64 * 1024
"""Bytes that must be free before a change is offered at all."""
SYSLOG = Path("/dev/log")
_SYSLOG_LINE = 1024
"""Bytes that every syslog daemon takes in one line (RFC 3164)."""


class Change(Struct, frozen=True):
    """One change as the audit tells it."""

    id: str
    intent: AuditRecord | None = None
    outcome: AuditRecord | None = None
    undone_by: str = ""
    """The id of the change that took it back."""
    resolved_by: str = ""
    """The id of the change that finished or undid it, or took note of it, after it was interrupted."""

    @property
    def result(self) -> Outcome | None:
        """What came of it; None while it runs and after it was killed."""
        return self.outcome.outcome if self.outcome else None

    @property
    def undo_off(self) -> str:
        """Why it cannot be taken back; "" = it can, as far as the audit tells."""
        if self.undone_by:
            return f"it was undone already, by {self.undone_by}"
        if self.result is None:
            return f"it was dealt with by {self.resolved_by}" if self.resolved_by else "it has no outcome yet"
        return "" if self.result.undo is not None else "it left nothing that could be undone"

    @property
    def record(self) -> AuditRecord:
        """Either line: they share who, what and when."""
        found = self.intent or self.outcome
        assert found is not None
        return found


def trouble(state: Path) -> str:
    """Why no record could be written now, as half a sentence; "" = it could, as far as can be seen."""
    path = state / NAME
    try:
        private_folder(state)
        free = os.statvfs(state)
        blocks = free.f_bavail if os.geteuid() else free.f_bfree  # some are kept for root
        if blocks * free.f_frsize < LEAST_FREE:
            return f"the disk of {state} is full"
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(handle)
    except OSError as error:
        return f"{path} cannot be written ({error.strerror})"
    return ""


def write(state: Path, record: AuditRecord) -> None:
    """Append one record; it is on disk when this returns. OSError when it is not."""
    append_synced(state / NAME, to_json(record))


def to_syslog(record: AuditRecord) -> bool:
    """Send a record to syslog, in pieces that every daemon takes; False where none listens."""
    if not _listens(SYSLOG):
        return False
    syslog.openlog("gpuconsole", syslog.LOG_PID, syslog.LOG_AUTH)
    text = to_json(record).decode()
    for start in range(0, len(text), _SYSLOG_LINE):
        more = f" +{start}" if start else ""
        syslog.syslog(syslog.LOG_NOTICE, f"audit {record.id} {record.kind}{more}: {text[start : start + _SYSLOG_LINE]}")
    return True


def changes(state: Path) -> tuple[Change, ...]:
    """All changes that the file tells of, oldest first; what is no record is left out. OSError when it is there and
    cannot be read."""
    found: dict[str, Change] = {}
    for record in _records(state / NAME):
        change = found.get(record.id, Change(record.id))
        found[record.id] = (
            msgspec.structs.replace(change, intent=record)
            if record.kind == "intent"
            else msgspec.structs.replace(change, outcome=record)
        )
    for change in list(found.values()):
        if change.result is None or change.result.word not in ("done", "undone"):
            continue
        if change.record.undoes in found and change.result.word == "done":
            taken = found[change.record.undoes]
            found[taken.id] = msgspec.structs.replace(taken, undone_by=change.id)
        if change.record.resolves in found:
            left = found[change.record.resolves]
            found[left.id] = msgspec.structs.replace(left, resolved_by=change.id)
    return tuple(sorted(found.values(), key=lambda change: change.id))


def _records(path: Path) -> Iterator[AuditRecord]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LONGEST))
            data = file.read(LONGEST)
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=AuditRecord)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
