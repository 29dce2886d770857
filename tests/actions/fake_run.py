"""The runner's side of an action, in the test's own process: it remembers what it was told, and can die in a phase."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping


class Died(BaseException):
    """What a kill of the runner looks like to the action; no `except Exception` takes it."""


class FakeRun:
    """`die_in` = (phase, "begin" or "end"): raise Died there."""

    def __init__(self, die_in: tuple[str, str] | None = None, kept: Mapping[str, str] | None = None) -> None:
        self.cancelled = threading.Event()
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.facts: dict[str, str] = dict(kept or {})
        self.cancel_in = ""
        self.hooks: dict[str, Callable[[], object]] = {}
        """Phase -> what happens on the box as it begins."""
        self._die_in = die_in

    @contextlib.contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        self.phases.append(name)
        if self.cancel_in == name:
            self.cancelled.set()
        self.hooks.get(name, lambda: None)()
        if self._die_in == (name, "begin"):
            raise Died(name)
        yield
        if self._die_in == (name, "end"):
            raise Died(name)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def keep(self, **facts: str) -> None:
        self.facts.update(facts)

    def kept(self) -> Mapping[str, str]:
        return self.facts

    def left(self) -> float:
        return 60.0

    def wait(self, seconds: float) -> bool:
        return self.cancelled.wait(seconds)
