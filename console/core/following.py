"""A session folded into a Store in one thread: what a command without a screen follows a box with."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from console.core.ending import Ended
from console.core.history import History
from console.core.model import Asked, Event, LogLine, Reading, Snapshot, Verdict
from console.core.session import Session
from console.core.store import Store

JUDGE_EVERY = 5.0
FIRST_WITHIN = 3.0
"""Seconds in which each part is tried and rates exist, or what is there is taken."""
MOST_LINES = 10_000
TWICE = 2
"""Reads of statistics after which there are rates."""


class Judge(Protocol):
    """Who says why (advisors.why.Why)."""

    def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
        """All verdicts for this moment."""


class Following:
    """Starts the session; `until` waits and folds what comes meanwhile. The caller stops the session."""

    def __init__(self, session: Session, judge: Judge | None = None, *, keeps_lines: bool = False) -> None:
        """`keeps_lines` for a caller of `take_lines`."""
        self._keeps_lines = keeps_lines
        self._session = session
        self._judge = judge
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._judged = float("-inf")
        self._tried: dict[str, Reading[Any]] = {}
        self._lines: list[LogLine] = []
        self.store = Store()
        self.snapshot = Snapshot()
        session.start(self._arrivals.put, self._arrivals.put)

    def begin(self, ended: Ended) -> Snapshot:
        """Wait for the first moment of which rates are known."""
        last = time.monotonic() + FIRST_WITHIN
        wanted = {source.name for source in self._session.sources if source.name != "checks"}
        while time.monotonic() < last and not ended.told and not self._is_whole(wanted):
            self._take(min(last, time.monotonic() + 0.05), ended)
        return self._moment()

    def until(self, mono: float, ended: Ended) -> Snapshot:
        """Fold until that monotonic time or until `ended`; what is known then."""
        self._take(mono, ended)
        return self._moment()

    def add_events(self, events: Iterable[Event]) -> None:
        """Events of the caller's own; any thread. They show in the next moment."""
        for event in events:
            self._arrivals.put(event)

    def take_lines(self) -> list[LogLine]:
        """The newest log lines that came since the last call."""
        lines, self._lines = self._lines[-MOST_LINES:], []
        return lines

    def _is_whole(self, wanted: set[str]) -> bool:
        stats = self._tried.get("triton.stats")
        return wanted <= self._tried.keys() and (stats is None or stats.error is not None or stats.reads >= TWICE)

    def _take(self, mono: float, ended: Ended) -> None:
        while (left := mono - time.monotonic()) > 0 and not ended.told:
            try:
                item = self._arrivals.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            if isinstance(item, Reading):
                self._tried[item.part] = item
                self.store.apply(item)
            elif isinstance(item, Event):
                self.store.add_event(item)
            elif isinstance(item, LogLine) and self._keeps_lines:
                self._lines.append(item)

    def _moment(self) -> Snapshot:
        self.store.set_gaps(self._session.gaps())
        wall, mono = time.time(), time.monotonic()
        self.snapshot = self.store.snapshot(wall, mono)
        if self._judge is not None and self.snapshot.seq and mono - self._judged >= JUDGE_EVERY:
            self._judged = mono
            verdicts = self._judge.evaluate(self.snapshot, self.store.history, {})
            if verdicts != self.snapshot.verdicts:
                self.store.set_verdicts(verdicts)
                self.snapshot = self.store.snapshot(wall, mono)
        return self.snapshot
