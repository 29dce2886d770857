"""Small programs run for what they print: no shell, a time limit, a size limit."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from msgspec import Struct

from console.core.model import SourceError

TIME_LIMIT = 2.0
SIZE_LIMIT = 8 * 1024 * 1024


class Output(Struct, frozen=True):
    """What a program printed (at most SIZE_LIMIT bytes) and how it ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output; U+FFFD for what is no UTF-8."""
        return self.out.decode("utf-8", "replace")


def run(argv: Sequence[str], limit_s: float = TIME_LIMIT) -> Output:
    """Run a program to its end. SourceError: unavailable (not installed), permission, timeout (it was killed).

    Output goes to a file first, so that a program that prints without end cannot fill memory within its time.
    """
    env = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "PAGER": "cat"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )
        except FileNotFoundError as error:
            raise SourceError("unavailable", f"{argv[0]} is not installed") from error
        except OSError as error:
            raise SourceError("permission", f"{argv[0]} cannot be run: {error.strerror}") from error
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise SourceError("timeout", f"{argv[0]} did not end within {limit_s:g} s") from error
        out.seek(0)
        err.seek(0)
        return Output(code, out.read(SIZE_LIMIT), err.read(64 * 1024))
