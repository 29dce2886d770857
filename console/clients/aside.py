"""Work done aside, in a process of its own, so that what it loads never stays in the console's memory.

Planning a change loads gRPC and what comes with it: 30 MiB that the console would keep for as long as it is open. The
helper lives on for some seconds, since whoever plans once plans again, and ends by itself.

Requests and answers are pickles on a pipe between this program and itself; nobody else can write there.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import console
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line

log = logging.getLogger(__name__)
IDLE_S = 20.0
"""Seconds after the last request at which the helper ends."""
ANSWER_WITHIN_S = 120.0
_LENGTH = struct.Struct(">Q")
_SENTENCES = (Refused, WrongInput, SourceError, OSError)
"""What a function may raise; anything else is a fault of ours."""


def environment() -> dict[str, str]:
    """For a process of ours that is started with -P; run from a checkout, it must find the same one."""
    home = str(Path(console.__file__).resolve().parents[1])
    if "site-packages" in home or "dist-packages" in home:
        return dict(os.environ)
    paths = [home, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def started(module: str) -> subprocess.Popen[bytes]:
    """A process of ours that is talked with by pipes. Ctrl+C and a lost terminal reach it through us alone."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )


class Aside:
    """A helper process that calls functions of this program, one after another; any thread may ask."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def call(self, module: str, function: str, *args: Any) -> Any:
        """The result of `module.function(*args)`, or what it raised. SourceError when the helper does not answer."""
        question = pickle.dumps((module, function, args))
        with self._lock:
            try:
                good, result = self._asked(question, fresh=self._start())
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self._end()
                raise SourceError(
                    "bug", f"the helper that looks at the box ended ({one_line(str(error), 200)}): try again"
                ) from error
        if good:
            return result
        raise _rebuilt(result)

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._end()

    def _start(self) -> bool:
        if self._process is not None and self._process.poll() is None:
            return False
        self._end()
        self._process = started(__name__)
        return True

    def _asked(self, question: bytes, *, fresh: bool) -> tuple[bool, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, question)
            return _answer(process.stdout)
        except (BrokenPipeError, EOFError):
            if fresh:
                raise
            self._end()  # it was idle for too long just now
            return self._asked(question, fresh=self._start())

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.kill()
        process.wait()


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _answer(pipe: IO[bytes]) -> tuple[bool, Any]:
    deadline = time.monotonic() + ANSWER_WITHIN_S
    ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
    if not ready:
        raise OSError(f"no answer within {ANSWER_WITHIN_S:g} s")
    good, result = pickle.loads(_read(pipe))
    return good, result


def _read(pipe: IO[bytes]) -> bytes:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("it ended without an answer")
    length = _LENGTH.unpack(head)[0]
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("it ended in the middle of an answer")
    return data


Told = tuple[str, tuple[Any, ...]]
"""An exception as plain data: its kind and what it is made from."""


def _told(error: BaseException) -> Told:
    if isinstance(error, SourceError):
        return "SourceError", (error.kind, error.message, error.hint)
    if isinstance(error, OSError):
        return "OSError", (error.errno, error.strerror or str(error))
    return type(error).__name__, (str(error),)


def _rebuilt(told: Told) -> Exception:
    name, args = told
    kinds: dict[str, Callable[..., Exception]] = {
        "Refused": Refused,
        "WrongInput": WrongInput,
        "SourceError": SourceError,
        "OSError": OSError,
    }
    return kinds[name](*args)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """The helper's side: until the pipe ends or nothing is asked for IDLE_S seconds."""
    while True:
        ready, _, _ = select.select([requests], [], [], IDLE_S)
        if not ready:
            return
        try:
            module, function, args = pickle.loads(_read(requests))
        except EOFError:
            return
        try:
            answer = (True, getattr(importlib.import_module(module), function)(*args))
        except _SENTENCES as error:
            answer = (False, _told(error))
        _write(answers, pickle.dumps(answer))


def main() -> None:
    """Entry point of the helper."""
    from console import faultlog
    from console.config import state_dir

    faultlog.set_up(state_dir())
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints is no answer
    try:
        serve(requests, answers)
    except BrokenPipeError:
        return
    except Exception:
        # the crash hook of this process: the console says that it ended, and the trace is in the log
        log.exception("a helper of gpuconsole")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
