"""A change on disk: what was asked, each step before it is done, and what came of it.

One private folder for each change: `request.json` (what it takes to do it, secrets included), `journal.jsonl` (a line
is synced before what it tells of is done), `outcome.json` (whole or not there), `runner.log`. Who reads it knows what a
killed runner left. On a disk that is full or fails while a change is under way, lines go on in a spare folder in
memory: a step that was begun must be known, and lost at a reboot is better than not written at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from console.actions.box import BoxSpec
from console.clients import host
from console.clients.files import append_synced, private_folder, sync_folder, write_private
from console.core.encode import to_json
from console.core.plan import JournalLine, Operator, Outcome, Plan, Refused, WrongInput
from console.core.text import one_line

FOLDER = "actions"
KEPT = 200
"""Ended changes whose journals stay."""
SPARE = Path("/dev/shm")
"""Where the spare folder is: memory, so never full of logs."""
LONGEST_FILE = 16 * 1024 * 1024
"""Bytes read of a journal."""
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]{6}")
_PID, _START, _BOOT = "pid", "start", "boot"


class Request(Struct, frozen=True):
    """All that the runner gets."""

    id: str
    wall: float
    spec: BoxSpec
    plan: Plan
    operator: Operator
    state: str
    """The console's state folder."""
    unaudited: bool = False
    """Go on without an audit record on disk."""
    wait: float = 0.0
    """Seconds to wait for the box's lock."""


class Ended(Struct, frozen=True):
    """How it ended."""

    outcome: Outcome
    wall: float
    open: bool = False
    """It ended half way, by an error, and can be finished or undone like a killed one."""
    resolved_by: str = ""
    """The id of the change that finished, undid or took note of it."""


class Journal:
    """One change's folder. Any process of the same user may read it; its runner alone writes lines."""

    def __init__(self, state: Path, id: str) -> None:  # noqa: A002 (the word of the audit)
        self.state = state
        self.id = id
        self._home = state / FOLDER / id
        self._spare = spare_folder() / id

    @property
    def folder(self) -> Path:
        """Where its request is."""
        return self._home if (self._home / "request.json").exists() else self._spare

    @property
    def log(self) -> Path:
        """What its runner printed: traces of faults."""
        return self.folder / "runner.log"

    def request(self) -> Request:
        """What was asked; OSError or ValueError when it cannot be read."""
        return msgspec.json.decode((self.folder / "request.json").read_bytes(), type=Request)

    def lines(self) -> tuple[JournalLine, ...]:
        """All whole lines; a torn one is left out."""
        return tuple(line for folder in self._folders() for line in _read(folder / "journal.jsonl"))

    def append(self, line: JournalLine) -> None:
        """Write one line; it is on disk (or, when that fails, in the spare folder) when this returns. OSError when
        neither can be written."""
        data = to_json(line)
        if any((self._spare / name).exists() for name in ("request.json", "journal.jsonl")):
            # once there, always there, so that lines keep their order
            append_synced(self._spare / "journal.jsonl", data)
            return
        try:
            append_synced(self._home / "journal.jsonl", data)
        except OSError:
            trusted_spare()
            append_synced(self._spare / "journal.jsonl", data)

    def begun_by_this_process(self) -> None:
        """The runner's first line: who to look for when nothing more is written."""
        me = host.process(os.getpid())
        facts = {_PID: str(os.getpid()), _START: str(me.start_ticks if me else 0), _BOOT: boot_id()}
        self.append(JournalLine(time.time(), "note", data=facts))

    def runner(self) -> int | None:
        """The pid of its runner while that lives; None = it has ended or never began."""
        facts = next((line.data for line in self.lines() if _PID in line.data), {})
        if not facts or facts.get(_BOOT) != boot_id() or not facts[_PID].isdecimal():
            return None
        found = host.process(int(facts[_PID]))
        lives = found is not None and found.state not in "ZX" and str(found.start_ticks) == facts.get(_START)
        return int(facts[_PID]) if lives else None

    def ended(self) -> Ended | None:
        """How it ended; None while it runs, or when its runner was killed."""
        for folder in self._folders():
            with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                return msgspec.json.decode((folder / "outcome.json").read_bytes(), type=Ended)
        return None

    def end(self, ended: Ended) -> None:
        """Write how it ended, whole or not at all. OSError when it cannot be written anywhere."""
        text = to_json(ended).decode()
        try:
            write_private(self._home / "outcome.json", text)
        except OSError:
            trusted_spare()
            write_private(self._spare / "outcome.json", text)

    def remove(self) -> None:
        """Forget it."""
        for folder in (self._home, self._spare):
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> Iterator[Path]:
        yield self._home
        if is_private(self._spare.parent):
            yield self._spare


def create(request: Request, *, spare: bool) -> Journal:
    """A new journal for the request (its `id` is made here). With `spare` it may be in memory where the disk is full.

    OSError when it cannot be written.
    """
    state = Path(request.state)
    prune(state)
    try:
        private_folder(state / FOLDER)
        return _create(request, state / FOLDER)
    except OSError:
        if not spare:
            raise
    return _create(request, trusted_spare())


def _create(request: Request, parent: Path) -> Journal:
    wall = request.wall
    while True:
        made = new_id(wall)
        try:
            (parent / made).mkdir(mode=0o700)
            break
        except FileExistsError:
            wall += 1e-6
    try:
        write_private(parent / made / "request.json", to_json(msgspec.structs.replace(request, id=made)).decode())
        sync_folder(parent)
    except OSError:
        shutil.rmtree(parent / made, ignore_errors=True)
        raise
    return Journal(Path(request.state), made)


def new_id(wall: float) -> str:
    """The time in UTC to the microsecond: sorts, can be typed, and no two changes of one user have the same."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y%m%d-%H%M%S-%f")


def find(state: Path, id: str) -> Journal:  # noqa: A002
    """The journal of this id; WrongInput where there is none."""
    if _ID.fullmatch(id):
        journal = Journal(state, id)
        if journal.folder.joinpath("request.json").exists():
            return journal
    raise WrongInput(f"there is no change {one_line(id, 80)!r}: `gpuconsole audit` lists them with their ids")


def request_of(journal: Journal) -> Request:
    """What was asked; Refused where the file is gone or damaged."""
    try:
        return journal.request()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise Refused(
            f"what change {journal.id} was asked to do cannot be read ({why}): nothing was done; look at its target"
        ) from error


def all_of(state: Path) -> tuple[Journal, ...]:
    """All journals that are kept, oldest first."""
    names: set[str] = set()
    for folder in (state / FOLDER, *([spare_folder()] if is_private(spare_folder()) else [])):
        with contextlib.suppress(OSError):
            names |= {entry.name for entry in folder.iterdir() if _ID.fullmatch(entry.name)}
    return tuple(Journal(state, name) for name in sorted(names))


def prune(state: Path) -> None:
    """Forget all but the last ended ones; what runs, was killed or can still be finished stays."""
    ended = [one for one in all_of(state) if (end := one.ended()) is not None and (not end.open or end.resolved_by)]
    for journal in ended[:-KEPT]:
        journal.remove()


def spare_folder() -> Path:
    """Of this user, in memory."""
    return SPARE / f"gpuconsole-{os.geteuid()}"


def trusted_spare() -> Path:
    """The spare folder, made if need be; OSError when somebody else made it (anybody can write in its parent)."""
    folder = spare_folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_private(folder):
        raise PermissionError(1, "not a private folder of this user", str(folder))
    return folder


def is_private(folder: Path) -> bool:
    """True for a folder of this user that nobody else may enter (a link is none)."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and found.st_mode & 0o170077 == 0o040000


def boot_id() -> str:
    """Of this run of the kernel: pids and start times mean nothing after the next boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _read(path: Path) -> Iterator[JournalLine]:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE)
    except OSError:
        return
    for line in data.split(b"\n"):
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=JournalLine)
