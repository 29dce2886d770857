"""One change at a time on a box, whoever makes it: a record lock that the kernel takes away when its holder dies.

The file is in memory, may be written by everybody, and holds nothing that is believed: who has the lock is the kernel's
word (F_GETLK gives the pid, /proc its user), the text only adds what is being done, since when and from where.

A record lock belongs to the process and goes when it closes any descriptor of the file: the holding process must not
call `holder`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import struct
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from console.actions.box import BoxSpec
from console.actions.who import login_uid
from console.clients.files import FOR_EVERYBODY, is_for_everybody
from console.clients.host import real_uid, user_name
from console.core import units
from console.core.encode import to_json
from console.core.plan import Operator, Refused
from console.core.text import one_line

FOLDERS = FOR_EVERYBODY
_LONGEST = 4096
_FLOCK = "hhqqi0q"
"""struct flock of Linux on 64 bits: type, whence, start, length, pid."""
_PAUSE = 0.1
_TRIES = 20


class Told(Struct, frozen=True):
    """What a holder writes into the file: its own word, shown as literal text and never decided upon."""

    pid: int
    what: str
    since: float
    ssh: str | None = None
    id: str = ""


class Holder(Struct, frozen=True):
    """Who has the lock."""

    pid: int
    """0 = a process in another PID namespace (a container)."""
    user: str
    """By the kernel; "somebody" where it does not tell."""
    login: str | None = None
    """As whom its session was opened, where that is another user."""
    what: str = ""
    since: float | None = None
    ssh: str | None = None
    id: str = ""
    """Of the change, by its own word: where the journal lies in one's own state folder it can be followed."""

    @property
    def who(self) -> str:
        """`root (pid 123) from 192.0.2.7`."""
        login = f"{self.login}, " if self.login else ""
        return f"{self.user} ({login}pid {self.pid or '?'})" + (f" from {self.ssh}" if self.ssh else "")

    def sentence(self, *, utc: bool = False) -> str:
        """`root (pid 123) from 192.0.2.7 is changing rank since 14:02`."""
        since = "" if self.since is None else f" since {units.clock(self.since, utc=utc)}"
        return f"{self.who} is changing {self.what or 'this box'}{since}"


class Lock:
    """Held from `take` to `release` or the end of the process."""

    def __init__(self, spec: BoxSpec) -> None:
        self._spec = spec
        self._handle: int | None = None

    def take(self, what: str, operator: Operator, id: str = "") -> bool:  # noqa: A002 (the word of the audit)
        """Take it if it is free; False when somebody has it. Refused when the file is no good."""
        for _ in range(_TRIES):
            path = path_of(self._spec)
            handle = _open(path)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX leaves it open which of the two it is
                os.close(handle)
                return False
            except OSError as error:
                os.close(handle)
                raise Refused(f"{path} cannot be locked ({error.strerror}): nothing was done") from None
            if _is_at(path, handle):
                self._handle = handle
                self._tell(Told(os.getpid(), one_line(what, 200), time.time(), operator.ssh, id))
                return True
            os.close(handle)  # its owner removed it meanwhile: a lock on a file without a name keeps nobody out
        raise Refused(f"the lock file {path_of(self._spec)} is made anew again and again: see who does that")

    def _tell(self, told: Told) -> None:
        assert self._handle is not None
        with contextlib.suppress(OSError):  # on a full disk: the lock holds without a text
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, to_json(told), 0)

    def release(self) -> None:
        """Let it go; may be called twice."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def holder(spec: BoxSpec) -> Holder | None:
    """Who changes this box now; None = nobody. Refused when the lock file is no good."""
    path = path_of(spec)
    try:
        handle = _open_there(path)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return None
        return _describe(max(pid, 0), _told(os.pread(handle, _LONGEST, 0)))
    finally:
        os.close(handle)


def path_of(spec: BoxSpec) -> Path:
    """The lock file of a box: one for this machine, one for each simulated box."""
    name = "gpuconsole.lock"
    if spec.simulated is not None:
        name = f"gpuconsole-{hashlib.sha256(spec.root.encode('utf-8', 'replace')).hexdigest()[:12]}.lock"
    for folder in FOLDERS:
        if is_for_everybody(folder):
            return folder / name
    raise Refused(f"there is nowhere to put the box's lock: none of {', '.join(map(str, FOLDERS))} is for everybody")


def _open(path: Path) -> int:
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            return _open_there(path)
        with contextlib.suppress(FileExistsError):
            return _make(path)
    raise Refused(f"the lock file {path} comes and goes: see who does that")


def _make(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise Refused(f"the lock file {path} cannot be made ({error.strerror}): nothing was done") from None
    os.fchmod(handle, 0o666)  # the umask would keep other users from writing, and so from locking
    return handle


def _open_there(path: Path) -> int:
    """Without O_CREAT: with it the kernel refuses another user's file in a folder for everybody (even to root)."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    for _ in range(_TRIES):
        try:
            handle = os.open(path, flags)
            break
        except FileNotFoundError:
            raise
        except PermissionError:
            time.sleep(_PAUSE / 10)  # its maker is about to open it for all
        except OSError as error:
            raise Refused(f"the lock file {path} is no plain file ({error.strerror}): remove it") from None
    else:
        raise Refused(f"the lock file {path} is closed to {user_name(os.geteuid())}: its owner must remove it")
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise Refused(f"the lock file {path} is no plain file of its own: remove it")
    return handle


def _is_at(path: Path, handle: int) -> bool:
    try:
        there, mine = os.lstat(path), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _told(data: bytes) -> Told | None:
    try:
        return msgspec.json.decode(data, type=Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _describe(pid: int, told: Told | None) -> Holder:
    uid, login = (real_uid(pid), login_uid(pid)) if pid else (None, None)
    user = "somebody" if uid is None else user_name(uid)
    if told is None or told.pid != pid:
        told = Told(pid, "", 0.0)
    ours = 0 < told.since <= time.time()
    return Holder(
        pid,
        user,
        login=user_name(login) if login is not None and login != uid else None,
        what=one_line(told.what, 200),
        since=told.since if ours else None,
        ssh=one_line(told.ssh, 64) if told.ssh else None,
        id=one_line(told.id, 64),
    )
