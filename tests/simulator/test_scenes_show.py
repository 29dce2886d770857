"""Every scene, read by the whole product in real time, shows the verdict that it is made for."""

from __future__ import annotations

import contextlib
import queue
import time
from typing import Any

import pytest

from console import compose
from console.advisors.why import Why
from console.config import Settings
from console.core.model import Event, Reading
from console.core.session import Session
from console.core.store import Store
from console.simulator.scenes import SCENES

LOOK_EVERY_S = 5.0
GIVE_UP_S = 75.0
PROBLEMS = ("fail", "warn")


class Watch:
    """One scene as the product sees it: everything ever said about it."""

    def __init__(self, session: Session) -> None:
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._store = Store()
        self._why = Why()
        self.shown: set[str] = set()
        self.problems: set[str] = set()
        session.start(self._arrivals.put, self._arrivals.put)

    def look(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._arrivals.get_nowait()
                if isinstance(item, Reading):
                    self._store.apply(item)
                elif isinstance(item, Event):
                    self._store.add_event(item)
        verdicts = self._why.evaluate(self._store.snapshot(time.time(), time.monotonic()), self._store.history)
        self._store.set_verdicts(verdicts)
        self.shown |= {one.id for one in verdicts}
        self.problems |= {f"{one.id} {one.title}" for one in verdicts if one.sign in PROBLEMS}


@pytest.mark.slow
def test_each_scene_shows_its_verdict() -> None:
    with contextlib.ExitStack() as stack:
        watches: dict[str, Watch] = {}
        for name in SCENES:
            session = stack.enter_context(compose.session(Settings(), demo=name, seed=1))
            stack.callback(session.stop)
            watches[name] = Watch(session)
        deadline = time.monotonic() + GIVE_UP_S
        missing = dict.fromkeys(SCENES, "")
        while missing and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            for watch in watches.values():
                watch.look()
            missing = {
                name: f"wants {SCENES[name].verdict}, shows {sorted(watch.shown)}"
                for name, watch in watches.items()
                if SCENES[name].verdict not in watch.shown
            }
        assert missing == {}
        assert watches["healthy"].problems == set()
