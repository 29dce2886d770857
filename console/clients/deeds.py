"""Carries out what a fix says that it does: programs without a shell, files written, moved and given a mode.

As root it is done as it is. Anybody else's goes through `sudo -n`; where sudo wants a password the error says so, and
none is ever taken. Before anything is touched, what is there is kept (`Kept`), so that it can be put back. A file that
is written anew keeps its mode and its owner.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from console.clients import host_files
from console.clients.commands import found
from console.clients.files import private_folder, write_private
from console.clients.host_files import LIMIT, Seen
from console.clients.tree import MAX_TEXT
from console.core.finding import Deed, Fix
from console.core.model import SourceError
from console.core.secrets import MASK

_NOT_STARTED = ("unavailable", "permission")
"""Kinds of SourceError of a program that was not even started."""


class KeptFile(Struct, frozen=True):
    """A path before a fix touched it."""

    path: str
    kind: Literal["none", "file", "mode"] = "none"
    """none: there was nothing. mode: only its mode is to be put back (also of folders and devices)."""
    content: bytes = b""
    mode: int = 0o644
    uid: int = -1
    gid: int = -1
    root: bool = True
    """False: it is the user's own, and sudo has no part in it."""


class Kept(Struct, frozen=True):
    """What a fix may have changed, as it was."""

    check: str
    fix: Fix
    files: tuple[KeptFile, ...] = ()


class _Touch(Struct):
    """What deeds do to one path."""

    root: bool
    whole: bool = False
    """More than its mode."""
    text: str | None = None
    """That is written there."""


# --------------------------------------------------------------------------------------------------------------- before


def shown(deed: Deed) -> str:
    """What a person would type; of a file that is written, that."""
    prefix = "sudo " if deed.root else ""
    if deed.kind == "run":
        return prefix + shlex.join(deed.argv)
    if deed.kind == "mode":
        return f"{prefix}chmod {deed.mode:04o} {shlex.quote(deed.path)}"
    if deed.kind == "move":
        return f"{prefix}mv {shlex.quote(deed.path)} {shlex.quote(deed.text)}"
    return f"write {deed.path}"


def touched(deeds: Iterable[Deed]) -> tuple[str, ...]:
    """Paths that these deeds write, move or whose mode they change, each once."""
    return tuple(_touches(deeds))


def trouble(fix: Fix) -> str:
    """Why it cannot be carried out here by this user, or could not be taken back; "" = nothing speaks against it.

    Looks only; as a plain user it asks `sudo -n` for leave, and reads with it what it may not read itself.
    """
    every = (*fix.deeds, *fix.back)
    why = next((why for deed in every if (why := _malformed(deed))), "")
    why = why or rights(deed.root for deed in every)
    why = why or next((why for deed in fix.deeds if (why := _missing(deed))), "")
    if not why and any(MASK in word for deed in every for word in deed.argv):
        why = "it would be given a secret, which is masked here: do it by hand"
    return why or next((why for path, touch in _touches(every).items() if (why := _untouchable(path, touch))), "")


def rights(as_root: Iterable[bool]) -> str:
    """Why what needs root cannot be done by this user; "" = nothing speaks against it."""
    if os.geteuid() == 0 or not any(as_root):
        return ""
    try:
        answer = host_files.sudo(["true"], LIMIT)
    except SourceError as error:
        return f"it needs root, and {error.message}: copy the commands, or start gpuconsole as root"
    if answer.code == 0:
        return ""
    return "it needs root, and sudo -n is refused here: copy the commands, or start gpuconsole as root"


def digest(paths: Iterable[str]) -> str:
    """Of what these paths hold, their modes and owners; one that cannot be read counts as that."""
    total = hashlib.sha256()
    for path in paths:
        data = b""
        try:
            seen = host_files.look(path)
            told = f"{seen.kind} {seen.mode:o} {seen.uid} {seen.gid} {seen.size}"
            data = host_files.content(path) if seen.kind == "file" else b""
        except SourceError as error:
            told = error.kind
        total.update(f"{path}\0{told}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return total.hexdigest()[:16]


def _touches(deeds: Iterable[Deed]) -> dict[str, _Touch]:
    found: dict[str, _Touch] = {}
    for deed in deeds:
        for path in (deed.path, deed.text if deed.kind == "move" else ""):
            if path:
                touch = found.setdefault(path, _Touch(deed.root))
                touch.whole |= deed.kind != "mode"
                touch.text = deed.text if deed.kind == "write" else touch.text
    return found


def _malformed(deed: Deed) -> str:
    """Why a deed is none that may be carried out: a check fills in what it reads on the box."""
    if deed.kind == "run" and not deed.argv:
        return "no program is named"
    for path in touched((deed,)):
        if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path or path == "/":
            return f"{path!r} is no plain absolute path"
    try:
        words = "".join((*deed.argv, deed.path, deed.text)).encode()
    except UnicodeEncodeError:
        return f"a word of it is no text: {shown(deed)!r}"
    return f"a word of it has a NUL in it: {shown(deed)!r}" if b"\0" in words else ""


def _missing(deed: Deed) -> str:
    return f"{deed.argv[0]} is not installed" if deed.kind == "run" and found(deed.argv[0]) is None else ""


def _untouchable(path: str, touch: _Touch) -> str:
    """Why a path is to be left alone."""
    if link := host_files.foreign_link(path):
        return f"{link} is a link of another user's: change {path} by hand"
    try:
        file = _kept_file(path, touch)
    except SourceError as error:
        return error.message
    if not touch.root and not host_files.is_ours(path, file.uid):
        return f"you may not write to {path}"
    if touch.text is None or file.kind == "none":
        return "" if MASK not in (touch.text or "") else _masked(path)
    if len(file.content) > MAX_TEXT:
        return f"{path} has more than {MAX_TEXT // 1024} KiB, and only its beginning is known: change it by hand"
    try:
        before = file.content.decode()
    except UnicodeDecodeError:
        return f"{path} is no UTF-8 text: change it by hand"
    return _masked(path) if touch.text.count(MASK) > before.count(MASK) else ""


def _masked(path: str) -> str:
    return f"{path} holds secrets, which are masked here: change it by hand"


# ----------------------------------------------------------------------------------------------------------------- keep


def keep(folder: Path, name: str, check: str, fix: Fix) -> None:
    """Write what the fix may change to a private file; SourceError or OSError where that fails."""
    files = tuple(_kept_file(path, touch) for path, touch in _touches((*fix.deeds, *fix.back)).items())
    private_folder(folder)
    write_private(folder / f"{name}.json", msgspec.json.encode(Kept(check, fix, files)).decode())


def kept(folder: Path, name: str) -> Kept | None:
    """What was kept under a name; None where there is none."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        return None
    try:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def _kept_file(path: str, touch: _Touch) -> KeptFile:
    seen = host_files.look(path)
    if seen.kind == "link":
        raise SourceError("protocol", f"{path} is a link: change by hand what it leads to")
    if seen.kind == "none":
        return KeptFile(path, root=touch.root)
    if not touch.whole:
        return KeptFile(path, "mode", b"", seen.mode, seen.uid, seen.gid, touch.root)
    if seen.kind != "file":
        raise SourceError("protocol", f"{path} is no plain file")
    return KeptFile(path, "file", host_files.content(path), seen.mode, seen.uid, seen.gid, touch.root)


# ------------------------------------------------------------------------------------------------------------------- do


def do(deed: Deed) -> str:
    """Carry out one; what the program printed last, in one line. SourceError where it failed."""
    if why := _malformed(deed):
        raise SourceError("protocol", why)
    if deed.kind == "run":
        return host_files.run_as(deed.argv, deed.root, deed.seconds)
    if deed.kind == "mode":
        host_files.give_mode(deed.path, deed.mode, deed.root)
        return ""
    if deed.kind == "move":
        if host_files.look(deed.path).kind == "none" and host_files.look(deed.text).kind != "none":
            return "it was moved already"
        return host_files.run_as(["mv", "-f", "-T", "--", deed.path, deed.text], deed.root, LIMIT)
    seen = host_files.look(deed.path)
    if seen.kind not in ("none", "file"):
        raise SourceError("protocol", f"{deed.path} is no plain file")
    like = seen if seen.kind == "file" else Seen("none", deed.mode)
    host_files.install(deed.path, deed.text.encode(), like, deed.root)
    return ""


def was_started(error: SourceError) -> bool:
    """Whether a program that failed so may have changed something."""
    return error.kind not in _NOT_STARTED


def put_back(was: Kept, programs: bool = True) -> tuple[str, ...]:
    """Every file as it was, then what undoes the programs; what could not be done, a sentence each. All is tried,
    whatever fails."""
    failed: list[str] = []
    for file in was.files:
        try:
            _restore(file)
        except SourceError as error:
            failed.append(error.message)
    for deed in was.fix.back if programs else ():
        try:
            do(deed)
        except SourceError as error:
            failed.append(error.message)
    return tuple(failed)


def _restore(file: KeptFile) -> None:
    now = host_files.look(file.path)
    if file.kind == "mode":
        if now.mode != file.mode:
            host_files.give_mode(file.path, file.mode, file.root)
        return
    if now.kind == "other":
        raise SourceError("protocol", f"{file.path} is no plain file any more")
    if file.kind == "none":
        if now.kind != "none":
            host_files.remove(file.path, file.root)
        return
    like = Seen("file", file.mode, file.uid, file.gid, len(file.content))
    if now != like or host_files.content(file.path) != file.content:
        host_files.install(file.path, file.content, like, file.root)
