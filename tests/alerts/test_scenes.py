"""Scenes of the simulator, read by the whole product, fire the default rules that are about them, and no other."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping
from typing import Any

import pytest

from console import compose
from console.alerts.engine import Engine
from console.alerts.rules import thresholds
from console.alerts.watch import EVERY
from console.config import Alerts, Settings
from console.core.model import Event, Reading
from console.core.session import Session
from console.core.store import Store

BY_SCENE: Mapping[str, frozenset[str]] = {
    "healthy": frozenset(),
    "throttled": frozenset({"throttle_pct", "temperature_c"}),
    "vram-full": frozenset({"vram_pct"}),
    "load-failed": frozenset({"not_ready"}),
    "triton-down": frozenset({"not_serving", "restarts"}),
}
LONGEST = 200.0
"""Seconds; the longest hold time is 60, and this machine may be busy."""


class _Watched:
    def __init__(self, session: Session) -> None:
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._store = Store()
        self._engine = Engine(thresholds(Alerts()))
        self.began: list[str] = []
        session.start(self._arrivals.put, self._arrivals.put)

    def look(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._arrivals.get_nowait()
                if isinstance(item, Reading):
                    self._store.apply(item)
                elif isinstance(item, Event):
                    self._store.add_event(item)
        snapshot = self._store.snapshot(time.time(), time.monotonic())
        self.began += [one.rule for one in self._engine.look(snapshot, self._store.history).began]


@pytest.mark.slow
def test_each_scene_fires_its_rules_once() -> None:
    with contextlib.ExitStack() as stack:
        watched: dict[str, _Watched] = {}
        for name in BY_SCENE:
            session = stack.enter_context(compose.session(Settings(), demo=name, seed=1))
            stack.callback(session.stop)
            watched[name] = _Watched(session)
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            time.sleep(EVERY)
            for one in watched.values():
                one.look()
            if all(BY_SCENE[name] <= set(one.began) for name, one in watched.items()):
                break
        assert {name: sorted(one.began) for name, one in watched.items()} == {
            name: sorted(keys) for name, keys in BY_SCENE.items()
        }
