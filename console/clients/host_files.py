"""Files of this host read, put in place and taken away: by this user where he may, else by root through `sudo -n`.

No password is ever taken. A file is put in place whole or not at all, in folders that everybody may enter.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from console.clients.commands import Output, run
from console.clients.files import write_whole
from console.core.model import SourceError
from console.core.text import decode, one_line

LARGEST = 1024 * 1024
"""Bytes of a file that is read or put in place."""
UMASK = 0o022
"""Of programs and folders: the runner's own lets nobody else read what they make, as Podman's users must."""
LIMIT = 20.0
"""Seconds that a small program of the system may take."""


class Seen(Struct, frozen=True):
    """What a path leads to."""

    kind: Literal["none", "file", "link", "other"]
    mode: int = 0o644
    uid: int = -1
    gid: int = -1
    size: int = 0


# ------------------------------------------------------------------------------------------------------------- programs


def run_as(argv: Sequence[str], as_root: bool, seconds: float) -> str:
    """Run a program to its end; what it printed last, in one line. SourceError where it failed."""
    by_sudo = as_root and os.geteuid() != 0
    answer = sudo(argv, seconds) if by_sudo else run(argv, seconds, umask=UMASK)
    said = [line for line in (decode(answer.err) or answer.text).splitlines() if line.strip()]
    last = one_line(said[-1], 300) if said else ""
    words = one_line(shlex.join(argv), 300)
    if by_sudo and answer.code in (124, 137):
        raise SourceError("timeout", f"{words} did not end within {seconds:g} s")
    if answer.code != 0:
        raise SourceError("protocol", f"{words} ended with {answer.code}{f': {last}' if last else ''}")
    return last


def sudo(argv: Sequence[str], seconds: float) -> Output:
    """Run a program as root. Root's processes cannot be killed by this user: `timeout`, as root too, does it."""
    guarded = ["sudo", "-n", "--", "timeout", "--kill-after=5", f"{seconds:g}", *argv]
    return run(guarded, seconds + 10.0, umask=UMASK)


def _to_look(argv: Sequence[str], why: str) -> Output:
    """As root, at what this user may not; SourceError with `why` where sudo cannot help."""
    if os.geteuid() == 0:
        raise SourceError("permission", why)
    try:
        return sudo(argv, LIMIT)
    except SourceError as error:
        raise SourceError("permission", why) from error


# ----------------------------------------------------------------------------------------------------------------- read


def look(path: str) -> Seen:
    """What is there, no link followed at its end; SourceError where it cannot be looked at."""
    try:
        told = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Seen("none")
    except PermissionError as error:
        return _looked_by_root(path, f"{path} cannot be looked at: {error.strerror}")
    except OSError as error:
        raise SourceError("protocol", f"{path} cannot be looked at: {error.strerror}") from error
    return _as_seen(told.st_mode, told.st_uid, told.st_gid, told.st_size)


def _looked_by_root(path: str, why: str) -> Seen:
    answer = _to_look(["stat", "-c", "%f %u %g %s", "--", path], why)
    if answer.code != 0:
        if b"No such file" in answer.err or b"Not a directory" in answer.err:
            return Seen("none")
        raise SourceError("permission", why)
    try:
        mode, uid, gid, size = answer.text.split()
        return _as_seen(int(mode, 16), int(uid), int(gid), int(size))
    except ValueError as error:
        raise SourceError("protocol", f"{path}: stat told {one_line(answer.text, 80)!r}") from error


def _as_seen(mode: int, uid: int, gid: int, size: int) -> Seen:
    kind: Literal["file", "link", "other"] = "other"
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISLNK(mode):
        kind = "link"
    return Seen(kind, stat.S_IMODE(mode), uid, gid, size)


def content(path: str) -> bytes:
    """Of a plain file; SourceError where it cannot be read whole."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            data = file.read(LARGEST + 1)
    except PermissionError as error:
        why = f"{path} cannot be read: {error.strerror}"
        answer = _to_look(["cat", "--", path], why)
        if answer.code != 0:
            raise SourceError("permission", why) from error
        data = answer.out
    except OSError as error:
        raise SourceError("permission", f"{path} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise SourceError("protocol", f"{path} is larger than {LARGEST // 1024} KiB: change it by hand")
    return data


def foreign_link(path: str) -> str:
    """A folder on the way that somebody else can bend to another place; "" = none."""
    for folder in Path(path).parents:
        with contextlib.suppress(OSError):
            found = os.lstat(folder)
            if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
                return str(folder)
    return ""


# ---------------------------------------------------------------------------------------------------------------- write


def is_ours(path: str, uid: int) -> bool:
    """Whether this user can put a file there himself, and it would still belong to `uid` (-1 = there is none yet)."""
    me = os.geteuid()
    return me == 0 or (uid in (-1, me) and writable(path))


def writable(path: str | Path) -> bool:
    """Whether this user may put a file there: into its folder, or the first above it that there is."""
    for folder in Path(path).parents:
        try:
            os.stat(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
        return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
    return False


def install(path: str, data: bytes, like: Seen, root: bool) -> None:
    """Put a file in place with the mode and owner of `like` (uid -1: root's, or where not `root` that of the user whose
    folder it is). SourceError where that fails."""
    try:
        if is_ours(path, like.uid):
            _write(Path(path), data, like, root)
            return
        if not root:
            raise SourceError("permission", f"you may not write to {path}")
        with tempfile.NamedTemporaryFile(prefix="gpuconsole-") as made:
            made.write(data)
            made.flush()
            _install_by_sudo(path, made.name, like)
    except OSError as error:
        raise SourceError("permission", f"{path} cannot be written: {error.strerror}") from error


def _write(path: Path, data: bytes, like: Seen, root: bool) -> None:
    owner = _make_folders(path.parent, root)
    if like.uid != -1:
        owner = like.uid, like.gid
    write_whole(path, data, like.mode, owner if os.geteuid() == 0 else None)


def _make_folders(folder: Path, root: bool) -> tuple[int, int]:
    """Make what is missing; whom new files there belong to: root, or the user whose place it is."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    owner = (0, 0) if root else (folder.stat().st_uid, folder.stat().st_gid)
    for one in reversed(missing):
        one.mkdir()
        one.chmod(0o777 & ~UMASK)
        if os.geteuid() == 0:
            os.chown(one, *owner)
    return owner


def _install_by_sudo(path: str, made: str, like: Seen) -> None:
    beside = f"{os.path.dirname(path)}/.{os.path.basename(path)}.gpuconsole"
    owner = [] if like.uid == -1 else ["-o", str(like.uid), "-g", str(like.gid)]
    run_as(["install", "-D", "-m", f"{like.mode:04o}", *owner, "-T", "--", made, beside], True, LIMIT)
    try:
        run_as(["mv", "-f", "-T", "--", beside, path], True, LIMIT)
    except SourceError:
        with contextlib.suppress(SourceError):
            run_as(["rm", "-f", "--", beside], True, LIMIT)
        raise


def give_mode(path: str, mode: int, root: bool) -> None:
    """Change the mode of what is there; SourceError where that fails, or it is a link by now."""
    is_link = SourceError("protocol", f"{path} is a link: change by hand what it leads to")
    if root and os.geteuid() != 0:
        if look(path).kind == "link":
            raise is_link
        run_as(["chmod", "--", f"{mode:04o}", path], True, LIMIT)
        return
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISLNK(os.fstat(handle).st_mode):
                raise is_link
            os.chmod(f"/proc/self/fd/{handle}", mode)
        finally:
            os.close(handle)
    except OSError as error:
        raise SourceError("permission", f"{path} cannot be given mode {mode:04o}: {error.strerror}") from error


def remove(path: str, root: bool) -> None:
    """Take a file away; SourceError where that fails."""
    try:
        if os.geteuid() == 0 or writable(path):
            os.unlink(path)
            return
    except OSError as error:
        raise SourceError("permission", f"{path} cannot be removed: {error.strerror}") from error
    if not root:
        raise SourceError("permission", f"you may not remove {path}")
    run_as(["rm", "-f", "--", path], True, LIMIT)
