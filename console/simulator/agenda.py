"""What is to happen at which simulated time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Agenda:
    """Calls in the order of their times; those of one time in the order in which they were written down."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def next_ns(self) -> int | None:
        """The time of the next call; None when there is none."""
        return self._calls[0][0] if self._calls else None

    def at(self, at_ns: int, call: Callable[[], None]) -> None:
        """Write a call down; a time that is past means now."""
        heapq.heappush(self._calls, (max(at_ns, self.now_ns), next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Write a call down for so long after now."""
        self.at(self.now_ns + round(seconds * 1e9), call)

    def go_on(self, to_ns: int) -> None:
        """Make the calls up to this time, those that they write down included."""
        while self._calls and self._calls[0][0] <= to_ns:
            at_ns, _, call = heapq.heappop(self._calls)
            self.now_ns = at_ns
            call()
        self.now_ns = max(self.now_ns, to_ns)
