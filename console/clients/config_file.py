"""A model's configuration file on this host's disk: read, kept aside, and replaced in one step.

The new text is written beside the model's folder, never in it, since Triton takes every new file there for a change of
the model (domain facts 1.4), and then renamed over the old one: at any moment the file is the old or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

from msgspec import Struct

from console.clients.files import private_folder, sync_folder
from console.core.text import literal

MAX_SIZE = 4 * 1024 * 1024
NEW_MODE = 0o644
"""Of a file where there was none."""


class FileRefused(Exception):  # noqa: N818 (a refusal is an answer, not a fault)
    """Why the file is not read or written: a sentence; nothing was changed."""


class ConfigFile(Struct, frozen=True):
    """The file as it was read."""

    path: Path
    """Links followed: what is replaced."""
    folder: Path
    """The model's."""
    root: Path
    """The repository's."""
    data: bytes | None
    """None where there is no file: then Triton completes the configuration by itself."""

    @property
    def text(self) -> str:
        """What is no UTF-8 (it can only stand in comments) comes back as it was when it is encoded again."""
        return "" if self.data is None else decode(self.data)

    @property
    def digest(self) -> str:
        """Of its bytes; "" where there is none."""
        return digest(self.data)


def digest(data: bytes | None) -> str:
    """A name for file contents; "" for no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()[:16]


def decode(data: bytes) -> str:
    """The text of such bytes."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text that `ConfigFile.text` gave."""
    return text.encode("utf-8", "surrogateescape")


def read(root: str, model: str, config_name: str = "") -> ConfigFile:
    """The file that Triton uses: `configs/NAME.pbtxt` under `--model-config-name` where it exists, else config.pbtxt.

    FileRefused where the folder is not there, the file cannot be read, or a link leaves the repository.
    """
    folder = Path(root) / model
    if not folder.is_dir():
        raise FileRefused(f"{literal(str(folder))} is no folder of this host")
    path = folder / "config.pbtxt"
    if config_name and (chosen := folder / "configs" / f"{config_name}.pbtxt").exists():
        path = chosen
    try:
        real, top = path.resolve(), Path(root).resolve(strict=True)
        if not real.is_relative_to(top):
            raise FileRefused(f"{literal(str(path))} is {literal(str(real))}, which a link puts outside the repository")
        if not real.exists():
            return ConfigFile(real, folder.resolve(), top, None)
        status = real.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused(f"{literal(str(path))} is not a regular file")
        if status.st_size > MAX_SIZE:
            raise FileRefused(f"{literal(str(path))} is larger than {MAX_SIZE // 1024 // 1024} MiB")
        return ConfigFile(real, folder.resolve(), top, real.read_bytes())
    except (OSError, RuntimeError) as error:
        raise FileRefused(f"{literal(str(path))} cannot be read: {_words(error)}") from error


def obstacle(file: ConfigFile) -> str:
    """Why the file cannot be replaced, as far as can be seen without trying; "" = it can."""
    shown = literal(str(file.path))
    target = file.path.parent
    try:
        for place in (target, file.root):
            if os.statvfs(place).f_flag & os.ST_RDONLY:
                return f"{literal(str(place))} is on a read-only mount"
            if not os.access(place, os.W_OK | os.X_OK):
                return f"{literal(str(place))} may not be written by this user"
        if target.stat().st_dev != file.root.stat().st_dev:
            return f"{literal(str(target))} is a filesystem of its own: a new {shown} cannot be prepared outside it"
        if file.data is not None and os.geteuid() not in (0, file.path.stat().st_uid):
            return f"{shown} belongs to another user: its owner could not be kept"
    except OSError as error:
        return f"{shown} cannot be looked at: {_words(error)}"
    return ""


def replace(file: ConfigFile, data: bytes) -> None:
    """Put `data` in its place, with its mode, owner and extended attributes (SELinux label, ACL).

    FileRefused when it is no longer what was read, or the system says no; then the old file is still there.
    """
    _must_be_as_read(file)
    scratch = _scratch(file)
    try:
        scratch.unlink(missing_ok=True)
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            _like(file, out.fileno())
            os.fsync(out.fileno())
        scratch.replace(file.path)
        sync_folder(file.path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise FileRefused(f"{literal(str(file.path))} cannot be written: {_words(error)}") from error


def remove(file: ConfigFile) -> None:
    """Take away a file that was not there before. FileRefused as in `replace`."""
    _must_be_as_read(file)
    try:
        file.path.unlink()
        sync_folder(file.path.parent)
    except OSError as error:
        raise FileRefused(f"{literal(str(file.path))} cannot be removed: {_words(error)}") from error


def touch(file: ConfigFile) -> None:
    """Make it newer than any override, so that the next load takes it (domain facts 1.4). FileRefused."""
    try:
        os.utime(file.path)
    except OSError as error:
        raise FileRefused(f"the time of {literal(str(file.path))} cannot be set: {_words(error)}") from error


def back_up(file: ConfigFile, folder: Path, name: str) -> Path:
    """Keep its bytes in a private folder of the console's; synced. FileRefused when that fails."""
    path = folder / name
    try:
        private_folder(folder)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(file.data or b"")
            out.flush()
            os.fsync(out.fileno())
        sync_folder(folder)
    except OSError as error:
        raise FileRefused(f"no backup can be written to {literal(str(path))}: {_words(error)}") from error
    return path


def clear(file: ConfigFile) -> None:
    """Take away what a killed writer may have left beside the model's folder."""
    with contextlib.suppress(OSError):
        _scratch(file).unlink(missing_ok=True)


def _scratch(file: ConfigFile) -> Path:
    # One name per model: two writers are kept apart by the box's lock, and what a killed one left is overwritten.
    return file.root / f".{file.folder.name}.gpuconsole-new"


def _must_be_as_read(file: ConfigFile) -> None:
    try:
        now = file.path.read_bytes() if file.path.exists() else None
    except OSError as error:
        raise FileRefused(f"{literal(str(file.path))} cannot be read: {_words(error)}") from error
    if now != file.data:
        raise FileRefused(f"{literal(str(file.path))} has changed meanwhile: nothing was written")


def _like(file: ConfigFile, handle: int) -> None:
    if file.data is None:
        status = file.folder.stat()
        mode = NEW_MODE
    else:
        status = file.path.stat()
        mode = stat.S_IMODE(status.st_mode)
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(handle, status.st_uid, status.st_gid)
    if file.data is not None:
        _copy_attributes(file.path, handle)
    os.fchmod(handle, mode)


def _copy_attributes(path: Path, handle: int) -> None:
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return
        raise
    for name in names:
        value = os.getxattr(path, name)
        if _attribute(handle, name) != value:
            os.setxattr(handle, name, value)


def _attribute(handle: int, name: str) -> bytes | None:
    try:
        return os.getxattr(handle, name)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return None
        raise


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
