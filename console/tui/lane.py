"""A lane of work beside the UI thread: one job at a time, and of those asked for meanwhile only the newest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from console.core.model import SourceError
from console.core.text import one_line

Result = TypeVar("Result")


FAULT = "a fault of gpuconsole; its trace is in gpuconsole.log in the state folder"


def attempt(job: Callable[[], Result], ended: Callable[[Result | None, str], None]) -> None:
    """Do `job` here and tell its result, or what prevents it as one sentence; a fault of ours is told and raised."""
    from console.core.plan import Refused, WrongInput

    result: Result | None = None
    error = FAULT
    try:
        result = job()
        error = ""
    except (Refused, WrongInput, SourceError, OSError) as failure:
        error = one_line(str(failure), 1000) or type(failure).__name__
    finally:
        ended(result, error)


class Lane:
    """Jobs that look at the box for one screen; `later` has a call made in the UI thread."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._later = later
        self._next: Callable[[], None] | None = None
        self.busy = False
        """True while a job runs or waits."""

    def ask(self, job: Callable[[], Result], then: Callable[[Result | None, str], None]) -> None:
        """`job` in a thread, as soon as the one before has ended; then `then` with its result or one sentence. A job
        that had not begun is dropped, and so is its `then`. Call it in the UI thread."""

        def begin() -> None:
            threading.Thread(target=lambda: self._run(job, then), name="lane", daemon=True).start()

        if self.busy:
            self._next = begin
        else:
            self.busy = True
            begin()

    def _run(self, job: Callable[[], Result], then: Callable[[Result | None, str], None]) -> None:
        attempt(job, lambda result, error: self._later(lambda: self._ended(result, error, then)))

    def _ended(self, result: Result | None, error: str, then: Callable[[Result | None, str], None]) -> None:
        waiting, self._next = self._next, None
        self.busy = waiting is not None
        if waiting is not None:
            waiting()
        then(result, error)
