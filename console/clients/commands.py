"""Small programs run for what they print: no shell, a time limit, a size limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from msgspec import Struct

from console.core.model import SourceError

TIME_LIMIT = 2.0
SIZE_LIMIT = 8 * 1024 * 1024
ENDLESS = 64 * 1024 * 1024
"""Bytes printed at which a program is killed: it would fill the disk within its time."""
_LOOK_EVERY = 0.05
"""Seconds between two looks at how much it has printed."""


_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Looked into as well: a plain user's PATH has them seldom, and many of their programs answer everybody."""


class Output(Struct, frozen=True):
    """What a program printed (at most SIZE_LIMIT bytes) and how it ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output; U+FFFD for what is no UTF-8."""
        return self.out.decode("utf-8", "replace")


def found(name: str) -> str | None:
    """Path of a program; None where there is none. A folder of PATH that depends on where one stands does not count:
    what lies there may be anybody's."""
    if "/" in name:
        return name if os.access(name, os.F_OK) else None
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(":") if os.path.isabs(folder)]
    return shutil.which(name, path=":".join([*folders, *_SYSTEM_FOLDERS])) if folders else None


def run(argv: Sequence[str], limit_s: float = TIME_LIMIT, umask: int = -1) -> Output:
    """Run a program to its end. SourceError: unavailable (not installed), permission, timeout and protocol (it was
    killed, since it took too long or printed without end). `umask` -1 = the caller's.

    Output goes to a file first, so that a program that prints without end cannot fill memory within its time.
    """
    program = found(argv[0])
    if program is None:
        raise SourceError("unavailable", f"{argv[0]} is not installed")
    env = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "PAGER": "cat"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(argv),
                executable=program,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                umask=umask,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError("permission", f"{argv[0]} cannot be run: {error.strerror}") from error
        end = time.monotonic() + limit_s
        while True:
            left = end - time.monotonic()
            try:
                code = child.wait(max(0.0, min(_LOOK_EVERY, left)))
                break
            except subprocess.TimeoutExpired as error:
                endless = max(os.fstat(file.fileno()).st_size for file in (out, err)) > ENDLESS
                if left > 0 and not endless:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    _kill(child, argv[0])
                child.wait()
                if endless:
                    said = f"{argv[0]} printed more than {ENDLESS // 1024 // 1024} MiB"
                    raise SourceError("protocol", said) from error
                raise SourceError("timeout", f"{argv[0]} did not end within {limit_s:g} s") from error
        out.seek(0)
        err.seek(0)
        return Output(code, out.read(SIZE_LIMIT), err.read(64 * 1024))


def _kill(child: subprocess.Popen[bytes], name: str) -> None:
    """With all that it has started; SourceError where it has become another user's, as a program of sudo does."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except PermissionError as error:
        raise SourceError("timeout", f"{name} did not end in time, and goes on: it may not be stopped") from error
