"""A lane does one job at a time, drops all but the newest that waits, and tells failures in one sentence."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console.core.model import Snapshot, SourceError
from console.core.plan import Refused, WrongInput
from console.tui.lane import FAULT, Lane
from console.tui.tuner import LateTuner
from tests.fakes.session import FakeSession

Told = list[tuple[object, str]]


class Desk:
    """Stands in for the UI thread: calls come by a queue."""

    def __init__(self) -> None:
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.lane = Lane(self.calls.put)
        self.told: Told = []

    def ask(self, job: Callable[[], object]) -> None:
        self.lane.ask(job, lambda result, error: self.told.append((result, error)))

    def step(self) -> None:
        """Make the next call, when it comes."""
        self.calls.get(timeout=10)()


def test_of_what_waits_only_the_newest_is_done() -> None:
    desk, go = Desk(), threading.Event()
    desk.ask(lambda: (go.wait(10), "first")[1])
    for name in ("second", "third"):
        desk.ask(lambda name=name: name)  # type: ignore[misc]
    assert desk.lane.busy
    go.set()
    desk.step()
    assert desk.told == [("first", "")]
    assert desk.lane.busy
    desk.step()
    assert desk.told[1:] == [("third", "")]
    assert not desk.lane.busy
    desk.ask(lambda: "fourth")
    desk.step()
    assert desk.told[-1] == ("fourth", "")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused("not now\x1b"), "not now\\x1b"),
        (WrongInput("no such value"), "no such value"),
        (SourceError("timeout", "no answer"), "no answer"),
        (PermissionError(13, "Permission denied"), "[Errno 13] Permission denied"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_a_job_raises_is_one_sentence(error: Exception, told: str) -> None:
    desk = Desk()

    def job() -> object:
        raise error

    desk.ask(job)
    desk.step()
    assert desk.told == [(None, told)]


def test_a_fault_of_ours_is_told_as_one_and_frees_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda told: None)  # the app logs it there
    desk = Desk()

    def job() -> object:
        raise ZeroDivisionError

    desk.ask(job)
    desk.step()
    assert desk.told == [(None, FAULT)]
    assert not desk.lane.busy


def test_before_anything_is_read_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing is read yet"):
        LateTuner(FakeSession(), tmp_path).current("rank", Snapshot())
