"""What the operator set to be told of alerts: a program or an address. Bounded in time, and nothing of it ever printed.

A program's words and an address may hold a token, so what went wrong is told without them, and without the program's
own output.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

from msgspec import Struct

MOST_WAITING = 20
"""Calls that may wait; more are dropped and that is told: a hook that hangs must not pile them up."""


class Hook(Struct, frozen=True):
    """Where to; both may be set."""

    command: tuple[str, ...] = ()
    url: str = ""
    timeout: float = 10.0

    @property
    def is_set(self) -> bool:
        """False where nobody is to be told."""
        return bool(self.command or self.url)


def call(hook: Hook, payload: bytes) -> str:
    """Tell the program and the address; "" when all went well, else one sentence without any secret."""
    problems = []
    if hook.command:
        problems.append(_run(hook.command, payload, hook.timeout))
    if hook.url:
        problems.append(_post(hook.url, payload, hook.timeout))
    return "; ".join(one for one in problems if one)


def _run(command: Sequence[str], payload: bytes, timeout: float) -> str:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"the hook's program cannot be run: {error.strerror}"
    except ValueError:
        return "the hook's program cannot be run: its words hold a zero byte"
    try:
        process.communicate(payload, timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"the hook's program did not end within {timeout:g} s and was ended"
    return f"the hook's program exited with {process.returncode}" if process.returncode else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """The program and what it started, which has its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.wait()


def _post(url: str, payload: bytes, timeout: float) -> str:
    import httpx

    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=False) as client,
            client.stream("POST", url, content=payload, headers={"content-type": "application/json"}) as answer,
        ):
            code = answer.status_code
    except httpx.TimeoutException:
        return f"the hook's address did not answer within {timeout:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return f"the hook's address cannot be reached ({type(error).__name__})"
    return "" if code < 300 else f"the hook's address answered with {code}"


class Caller:
    """Calls the hook in a thread of its own, one call after the other; `failed` gets a sentence, in that thread, once
    for a row of failures."""

    def __init__(self, hook: Hook, failed: Callable[[str], None]) -> None:
        self._hook = hook
        self._failed = failed
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._broken = False

    def tell(self, payload: bytes) -> None:
        """Hand a call over; returns at once."""
        if not self._hook.is_set:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="alert-hook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(payload)
        except queue.Full:
            self._say(f"{MOST_WAITING} calls of the alert hook wait already: alerts are not handed on")

    def _work(self) -> None:
        while True:
            problem = call(self._hook, self._waiting.get())
            if problem:
                self._say(problem)
            else:
                self._broken = False

    def _say(self, problem: str) -> None:
        if not self._broken:
            self._broken = True
            self._failed(problem)
