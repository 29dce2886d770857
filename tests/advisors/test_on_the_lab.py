"""Why on a real Triton under healthy traffic: the one failed model is named, and nothing else is wrong.

The situations of the table are driven by hand: scripts/verdicts.
"""

from __future__ import annotations

import queue
import time
from typing import Any

import pytest

from console import compose
from console.advisors.why import Why
from console.config import Podman, Settings, Triton
from console.core.model import Event, Reading, Verdict
from console.core.store import Store
from tests.lab.fixtures import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def watch(lab: Lab, seconds: float) -> tuple[Verdict, ...]:
    """Run the product's sources, store and Why for some seconds, a look every five."""
    settings = Settings(
        triton=Triton(host="127.0.0.1", http_port=lab.port, grpc_port=lab.port + 1, metrics_port=lab.port + 2),
        podman=Podman(socket=lab.podman_url, container=lab.container),
    )
    session, store, why = compose.build(settings), Store(), Why()
    arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
    session.start(arrivals.put, arrivals.put)
    verdicts: tuple[Verdict, ...] = ()
    began = time.monotonic()
    due = began + 3
    try:
        while (now := time.monotonic()) < began + seconds:
            try:
                item = arrivals.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(item, Reading):
                store.apply(item)
            elif isinstance(item, Event):
                store.add_event(item)
            snapshot = store.snapshot(time.time(), time.monotonic())
            if now >= due:
                due += 5
                verdicts = why.evaluate(snapshot, store.history)
    finally:
        session.stop(1.0)
    return verdicts


def test_healthy_traffic_shows_the_failed_model_and_nothing_else(lab: Lab) -> None:
    with lab.load("--poisson", "--for", "30", "reco=10", "recall=25"):
        found = watch(lab, 19)
    problems = [(one.id, one.model) for one in found if one.sign in ("fail", "warn")]
    assert problems == [("V04", "rerank")]
    cause = found[0]
    assert cause.title == "rerank 3 cannot load: its engine was made by another TensorRT"
    assert cause.consequences
    assert cause.consequences[0].startswith("ready is 400 for that reason")
    assert "V35" in [one.id for one in found]
