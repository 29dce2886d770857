"""Carries out what a fix says that it does: programs without a shell, files written, moved and given a mode.

As root it is done as it is. Anybody else's goes through `sudo -n`; where sudo wants a password the error says so, and
none is ever taken. Before a file is touched, what it holds is kept (`Kept`), so that it can be put back.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from console.clients import unit_files
from console.clients.commands import run
from console.clients.files import private_folder, write_private
from console.core.finding import Deed
from console.core.model import SourceError
from console.core.text import decode, one_line

_LIMIT = 20.0


class KeptFile(Struct, frozen=True):
    """A file before a fix touched it; `content` None = there was none."""

    path: str
    content: bytes | None
    mode: int = 0o644


class Kept(Struct, frozen=True):
    """What a fix may have changed, as it was."""

    check: str
    files: tuple[KeptFile, ...] = ()
    back: tuple[Deed, ...] = ()
    """What undoes the programs that were run."""


def shown(deed: Deed) -> str:
    """What a person would type."""
    prefix = "sudo " if deed.root else ""
    if deed.kind == "run":
        return prefix + shlex.join(deed.argv)
    if deed.kind == "mode":
        return f"{prefix}chmod {deed.mode:04o} {shlex.quote(deed.path)}"
    if deed.kind == "move":
        return f"{prefix}mv {shlex.quote(deed.path)} {shlex.quote(deed.text)}"
    return f"{prefix}$EDITOR {shlex.quote(deed.path)}"


def touched(deeds: Iterable[Deed]) -> tuple[str, ...]:
    """Files that these deeds write, move or whose mode they change, each once."""
    found: list[str] = []
    for deed in deeds:
        found += [path for path in (deed.path, deed.text if deed.kind == "move" else "") if path]
    return tuple(dict.fromkeys(found))


def rights(deeds: Iterable[Deed]) -> str:
    """Why they cannot be done by this user; "" = nothing speaks against it."""
    if os.geteuid() == 0 or not any(deed.root for deed in deeds):
        return ""
    try:
        answer = run(["sudo", "-n", "true"], _LIMIT)
    except SourceError as error:
        return f"it needs root, and {error.message}: copy the commands, or start gpuconsole as root"
    if answer.code == 0:
        return ""
    return "it needs root, and sudo -n is refused here: copy the commands (y), or start gpuconsole as root"


def digest(paths: Iterable[str]) -> str:
    """Of what these files hold and their modes; one that cannot be read counts as its mode alone."""
    total = hashlib.sha256()
    for path in paths:
        try:
            data = _content(Path(path))
        except SourceError:
            data = None
        total.update(f"{path}:{_mode(Path(path)):o}:{-1 if data is None else len(data)}:".encode() + (data or b""))
    return total.hexdigest()[:16]


def keep(folder: Path, name: str, check: str, deeds: Sequence[Deed], back: Sequence[Deed]) -> None:
    """Write what the touched files hold to a private file; SourceError or OSError where that fails."""
    files = tuple(KeptFile(path, _content(Path(path)), _mode(Path(path))) for path in touched((*deeds, *back)))
    private_folder(folder)
    write_private(folder / f"{name}.json", msgspec.json.encode(Kept(check, files, tuple(back))).decode())


def kept(folder: Path, name: str) -> Kept | None:
    """What was kept under a name; None where there is none."""
    if not name or "/" in name or name.startswith("."):
        return None
    try:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def put_back(was: Kept) -> None:
    """Every file as it was, then what undoes the programs; SourceError where one could not be."""
    for file in was.files:
        path = Path(file.path)
        if _content(path) != file.content or (file.content is not None and _mode(path) != file.mode):
            _install(file.path, file.content, file.mode)
    for deed in was.back:
        do(deed)


def do(deed: Deed) -> str:
    """Carry out one; what the program printed last, in one line. SourceError where it failed."""
    if deed.kind == "write":
        _install(deed.path, deed.text.encode("utf-8", "surrogateescape"), deed.mode)
        return ""
    if deed.kind == "mode":
        return _run(["chmod", f"{deed.mode:04o}", deed.path], deed.root, _LIMIT)
    if deed.kind == "move":
        return _run(["mv", "-T", "--", deed.path, deed.text], deed.root, _LIMIT)
    return _run(deed.argv, deed.root, deed.seconds)


def _run(argv: Sequence[str], as_root: bool, seconds: float) -> str:
    words = list(argv) if os.geteuid() == 0 or not as_root else ["sudo", "-n", *argv]
    answer = run(words, seconds)
    said = [line for line in (decode(answer.err) or answer.text).splitlines() if line.strip()]
    last = one_line(said[-1], 300) if said else ""
    if answer.code != 0:
        raise SourceError("protocol", f"{shlex.join(argv)} ended with {answer.code}{f': {last}' if last else ''}")
    return last


def _content(path: Path) -> bytes | None:
    """None where there is none; SourceError where it cannot be read or is no plain file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return unit_files.content(path) if path.is_symlink() else None
    try:
        return unit_files.content(path)
    except SourceError:
        if os.geteuid() == 0:
            raise
        answer = run(["sudo", "-n", "cat", "--", str(path)], _LIMIT)
        if answer.code != 0:
            raise
        return answer.out


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o7777
    except OSError:
        return 0o644


def _install(path: str, data: bytes | None, mode: int) -> None:
    """Whole or not at all. OSErrors are told as SourceError."""
    target = Path(path)
    try:
        if os.geteuid() == 0 or unit_files.writable(target):
            unit_files.install(target, data, mode)
            return
    except OSError as error:
        raise SourceError("permission", f"{path}: {error.strerror}") from error
    if data is None:
        _run(["rm", "-f", "--", path], True, _LIMIT)
        return
    with tempfile.NamedTemporaryFile(prefix="gpuconsole-") as file:
        file.write(data)
        file.flush()
        beside = f"{path}.gpuconsole-new"
        _run(["install", "-D", "-m", f"{mode:04o}", "-T", file.name, beside], True, _LIMIT)
        _run(["mv", "-T", "--", beside, path], True, _LIMIT)
