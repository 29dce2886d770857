"""A session followed in one thread: what came is folded, judged, and told."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from console.core.ending import Ended, told_to_end
from console.core.following import Following
from console.core.model import Event, LogLine, Verdict
from tests.fakes.boxes import drawn_box
from tests.fakes.session import FakeSession


class Judge:
    """Says one thing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def evaluate(self, snapshot: Any, history: Any, asked: Any) -> tuple[Verdict, ...]:
        self.asked += 1
        return (Verdict("V31", "note", "nothing stands out"),)


def test_what_came_is_known_and_judged() -> None:
    judge = Judge()
    following = Following(FakeSession(drawn_box().snapshot), judge)
    snapshot = following.until(time.monotonic() + 0.05, Ended())
    assert snapshot.gpu.value == drawn_box().snapshot.gpu.value
    assert [one.id for one in snapshot.verdicts] == ["V31"]
    assert following.until(time.monotonic(), Ended()) is snapshot, "nothing came since"
    assert judge.asked == 1


def test_events_of_the_caller_show_in_the_next_moment() -> None:
    following = Following(FakeSession())
    following.add_events((Event(1.0, "note", "mine", "(test)"),))
    snapshot = following.until(time.monotonic() + 0.05, Ended())
    assert [event.text for event in snapshot.events] == ["mine"]


def test_log_lines_are_kept_for_whoever_takes_them() -> None:
    line = LogLine(1.0, "stderr", "a line")
    for keeps in (True, False):
        following = Following(FakeSession(items=[line]), keeps_lines=keeps)
        following.until(time.monotonic() + 0.05, Ended())
        assert following.take_lines() == ([line] if keeps else [])
        assert following.take_lines() == []


def test_a_signal_ends_the_wait_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with told_to_end() as ended:
        following = Following(FakeSession())
        assert not ended.told
        os.kill(os.getpid(), signal.SIGTERM)
        following.until(time.monotonic() + 60, ended)
        assert ended.told
    assert signal.getsignal(signal.SIGTERM) is before
