"""The runner's side of a run, as a test sees it: what the action told, and a moment at which it is killed or
cancelled."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

from console.actions.base import Action
from console.actions.box import Box
from console.core.plan import JournalLine, Outcome, Plan


class Killed(BaseException):
    """kill -9, as far as a test in one process can have it: nothing of the action runs any more."""


class Recorded:
    """A Run that keeps all it is told. `kill_in` ends it at a phase's beginning or end (`set`, `set done`)."""

    def __init__(self, kill_in: str = "", kept: Mapping[str, str] | None = None, limit: float = 30.0) -> None:
        self.cancelled = threading.Event()
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.waited = 0.0
        self.while_waiting: Callable[[], None] | None = None
        self._kill_in = kill_in
        self._kept = dict(kept or {})
        self._limit = limit

    @contextlib.contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        self._tell(name)
        yield
        self._tell(f"{name} done")

    def _tell(self, word: str) -> None:
        self.phases.append(word)
        if word == self._kill_in:
            raise Killed(word)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def keep(self, **facts: str) -> None:
        self._kept |= facts

    def kept(self) -> Mapping[str, str]:
        return self._kept

    def journal(self) -> tuple[JournalLine, ...]:
        """What a journal would hold of it: the kept facts, if any."""
        return (JournalLine(0.0, "kept", data=dict(self._kept)),) if self._kept else ()

    def left(self) -> float:
        return max(0.0, self._limit - self.waited)

    def wait(self, seconds: float) -> bool:
        """Takes no time, but counts it."""
        self.waited += seconds
        if self.while_waiting is not None:
            self.while_waiting()
        return self.cancelled.is_set()


def do(action: Action, box: Box, target: str, values: Mapping[str, str], run: Recorded | None = None) -> Outcome:
    """Plan, check again and run, as the runner does."""
    plan = action.plan(box, target, values)
    assert not plan.refused, plan.refused
    action.recheck(box, plan)
    return action.run(box, plan, run or Recorded())


def undone(action: Action, box: Box, outcome: Outcome) -> Outcome:
    """Take back what was done, by the same path."""
    assert outcome.undo is not None
    assert outcome.undo.action == action.NAME
    return do(action, box, outcome.undo.target, outcome.undo.values)


def killed(action: Action, box: Box, plan: Plan, moment: str) -> Recorded:
    """Run until a moment of `Recorded.kill_in`, and no further."""
    run = Recorded(kill_in=moment)
    try:
        action.run(box, plan, run)
    except Killed:
        return run
    raise AssertionError(f"never came to {moment}: {run.phases}")
