"""The product's own way from the box to the snapshots, in this process, with every snapshot held to what must be so."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from console import compose
from console.advisors.why import Why
from console.config import Podman, Settings, Triton
from console.core.model import Event, LogLine, ModelFlow, Reading, Snapshot, Window
from console.core.session import Session
from console.core.store import Store
from tests.lab.fixtures import Lab

MOST = 20_000.0
"""Requests a second that no server here can answer."""


class Watched:
    """A session with its store; a thread folds what arrives and takes four snapshots a second."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.store = Store()
        self.snapshot = Snapshot()
        self.faults: list[str] = []
        """What was wrong in a snapshot."""
        self.lines: list[LogLine] = []
        self.taken = 0
        self._why = Why()
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self.session.start(self._arrivals.put, self._arrivals.put)
        self._thread.start()

    def stop(self) -> None:
        """End, within a second."""
        self._stop.set()
        self.session.stop(1.0)
        self._thread.join(3)

    def _run(self) -> None:
        due = judged = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                self._take(self._arrivals.get(timeout=0.05))
            now = time.monotonic()
            if now < due:
                continue
            due = now + 0.25
            self.snapshot = self.store.snapshot(time.time(), time.monotonic())
            self.taken += 1
            self.faults += wrong(self.snapshot)
            if now >= judged:
                judged = now + 5
                self.store.set_verdicts(self._why.evaluate(self.snapshot, self.store.history))

    def _take(self, item: Any) -> None:
        if isinstance(item, Reading):
            if item.error is not None and item.error.kind == "bug":
                self.faults.append(f"{item.part}: {item.error.message}")
            self.store.apply(item)
        elif isinstance(item, Event):
            self.store.add_event(item)
        elif isinstance(item, LogLine):
            self.lines.append(item)

    def until(self, holds: Callable[[Snapshot], Any], patience: float, what: str = "") -> float:
        """Wait until a snapshot is so; the seconds it took. AssertionError after `patience` seconds."""
        began = time.monotonic()
        while not holds(self.snapshot):
            if time.monotonic() > began + patience:
                told = [f"{e.wall % 1000:.1f} {e.text} {e.origin}" for e in self.snapshot.events[-12:]]
                raise AssertionError(f"never so: {what}; {self.snapshot.serving}; {told}")
            time.sleep(0.05)
        return time.monotonic() - began

    def events(self, since: float = 0.0, kind: str = "") -> list[Event]:
        """Events from `since` (Unix s) on, oldest first."""
        return [e for e in self.snapshot.events if e.wall >= since and e.kind.startswith(kind)]


def wrong(snapshot: Snapshot) -> list[str]:
    """What no snapshot may ever hold: negative or absurd rates, shares above one, more ready than there are."""
    found: list[str] = []
    for row in snapshot.models:
        label = f"{row.name} {row.version}"
        if row.busy is not None and not 0 <= row.busy <= 1:
            found.append(f"{label}: busy {row.busy}")
        if row.flow is not None:
            found += [f"{label}: {text}" for text in _wrong_flow(row.flow)]
        pending = row.metrics.pending if row.metrics else None
        if pending is not None and not 0 <= pending < 1e6:
            found.append(f"{label}: pending {pending}")
        for failure in row.metrics.failures if row.metrics else ():
            rates = [rate for rate in (failure.rate10, failure.rate30) if rate is not None]
            if any(not 0 <= rate < MOST for rate in rates):
                found.append(f"{label}: failures {failure}")
    traffic = snapshot.traffic
    for value in (traffic.rate, traffic.waiting, traffic.fail_rate):
        if value is not None and not 0 <= value < MOST:
            found.append(f"traffic {traffic}")
    if snapshot.serving.ready > snapshot.serving.of:
        found.append(f"{snapshot.serving}")
    return found


def _wrong_flow(flow: ModelFlow) -> Iterator[str]:
    for window in (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300):
        if window is not None:
            yield from _wrong_window(window)


def _wrong_window(window: Window) -> Iterator[str]:
    for name in ("rate", "success", "failed", "executions", "inferences", "busy_seconds"):
        value = getattr(window, name)
        if not 0 <= value < MOST * max(1.0, window.span):
            yield f"{name} {value} in {window.span:.1f} s"
    for name in ("request_ms", "queue_ms", "compute_ms", "mean_batch"):
        value = getattr(window, name)
        if value is not None and not 0 <= value < 120_000:
            yield f"{name} {value}"


def settings_of(lab: Lab) -> Settings:
    """What an operator gives for the lab: the socket alone; ports and folders come from the container."""
    return Settings(triton=Triton(), podman=Podman(socket=lab.podman_url, container=lab.container))


@contextlib.contextmanager
def watch(settings: Settings) -> Iterator[Watched]:
    """Watch a box during the block; afterwards no snapshot may have been wrong."""
    watched = Watched(compose.build(settings))
    watched.start()
    try:
        yield watched
    finally:
        watched.stop()
    assert watched.faults == []
    assert watched.taken > 0
