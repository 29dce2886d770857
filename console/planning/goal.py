"""A goal that a person set for a model (an SLO), and when what is measured breaks it. Pure."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from console.core import units

ENOUGH = 20
"""Requests that should have come while none was answered: with fewer, silence says nothing."""


class Goal(Struct, frozen=True):
    """What must hold; None = not wanted."""

    mean_ms: float | None = None
    p99_ms: float | None = None
    broken_for: float = 10.0
    """Seconds."""
    max_errors: int = 0
    """Failed requests that are borne."""

    @property
    def text(self) -> str:
        """`mean ≤ 5 ms, no errors`."""
        told = [
            f"{word} ≤ {value:g} ms"
            for word, value in (("mean", self.mean_ms), ("p99", self.p99_ms))
            if value is not None
        ]
        return ", ".join([*told, f"errors ≤ {self.max_errors}" if self.max_errors else "no errors"])


class Seen(Struct, frozen=True):
    """One look, about a second."""

    span: float
    """Seconds since the look before."""
    requests: int = 0
    """Successes."""
    failed: int = 0
    mean_ms: float | None = None
    p99_ms: float | None = None
    """By the server's own figures of its last minute; of a bucket its lower bound."""
    answered: bool = True
    """False: the statistics did not answer."""


class GoalWatch:
    """Adds looks up; `broken` says when it is enough."""

    def __init__(self, goal: Goal, usual_rate: float = 0.0) -> None:
        """`usual_rate`: requests a second before, which tells silence from quiet."""
        self.goal = goal
        self._usual = usual_rate
        self._looks: deque[Seen] = deque()
        self._failed = 0
        self._tail_above = 0.0
        self._silent = 0.0

    def add(self, seen: Seen) -> None:
        """One look more."""
        goal = self.goal
        self._failed += seen.failed
        self._silent = 0.0 if seen.answered else self._silent + seen.span
        if seen.p99_ms is not None and goal.p99_ms is not None:
            self._tail_above = self._tail_above + seen.span if seen.p99_ms > goal.p99_ms else 0.0
        if not seen.answered:
            return
        self._looks.append(seen)
        while sum(one.span for one in self._looks) - self._looks[0].span >= goal.broken_for:
            self._looks.popleft()

    @property
    def mean_ms(self) -> float | None:
        """Over the last `broken_for` seconds."""
        count = sum(one.requests for one in self._looks)
        return sum(one.requests * (one.mean_ms or 0.0) for one in self._looks) / count if count else None

    def broken(self) -> str:
        """What breaks the goal, long enough, in half a sentence; "" = nothing."""
        goal, span = self.goal, sum(one.span for one in self._looks)
        if self._failed > goal.max_errors:
            return f"{self._failed} requests failed" if self._failed > 1 else "a request failed"
        if self._silent >= goal.broken_for:
            return f"the server's statistics did not answer for {units.age(self._silent)}"
        if goal.p99_ms is not None and self._tail_above >= goal.broken_for:
            return f"p99 was above {goal.p99_ms:g} ms for {units.age(self._tail_above)}"
        if span < goal.broken_for:
            return ""
        mean = self.mean_ms
        expected = self._usual * span
        if mean is None:
            return f"none of about {expected:.0f} requests was answered" if expected >= ENOUGH else ""
        if goal.mean_ms is None or mean <= goal.mean_ms:
            return ""
        busy = [one for one in self._looks if one.requests]
        above = sum(1 for one in busy if one.mean_ms is not None and one.mean_ms > goal.mean_ms)
        if 2 * above <= len(busy):
            return ""  # one stall, not a setting that is too slow
        return f"the mean was {mean:.2f} ms over {units.age(span)}, above {goal.mean_ms:g} ms"

    def trouble(self) -> str:
        """What breaks the goal now but not long enough yet; "" = nothing."""
        if self._silent:
            return "the statistics do not answer"
        if self._tail_above:
            return f"p99 above the goal for {units.age(self._tail_above)}"
        mean = self.mean_ms
        if self.goal.mean_ms is not None and mean is not None and mean > self.goal.mean_ms:
            return "mean above the goal"
        return ""
