"""systemd's own lines about a unit, each as the whole event that it becomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.model import Event
from console.core.podman_events import EXIT_CODES
from console.core.unit_log import ORIGIN, events

U = "t.service"


def told(*messages: str) -> list[Event]:
    return events(U, [(float(n), message) for n, message in enumerate(messages)])


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ("Started Triton.", Event(0.0, "note", f"{U} started", ORIGIN, "unit.start", marks_chart=False)),
        ("Stopped Triton.", Event(0.0, "note", f"{U} stopped", ORIGIN, "unit.stop", marks_chart=False)),
        (
            "t.service: Start request repeated too quickly.",
            Event(
                0.0, "fail", f"{U} failed too often: systemd starts it no more", ORIGIN, "unit.limit",
                detail=("systemctl reset-failed and start begin anew",),
            ),
        ),
        (
            "State 'stop-sigterm' timed out. " + "x" * 400,
            Event(
                0.0, "fail", f"{U} timed out", ORIGIN, "unit.timeout",
                detail=("State 'stop-sigterm' timed out. " + "x" * 268,),
            ),
        ),
        (
            "Main process exited, code=exited, status=1/FAILURE",
            Event(0.0, "fail", f"{U} ended, exit 1", ORIGIN, "unit.ended"),
        ),
        (
            "main process exited, code=exited, status=0/SUCCESS",
            Event(0.0, "note", f"{U} ended, exit 0", ORIGIN, "unit.ended"),
        ),
        (
            "Main process exited, code=dumped, status=6/ABRT",
            Event(0.0, "fail", f"{U} ended, killed by signal 6", ORIGIN, "unit.ended", detail=(EXIT_CODES[134],)),
        ),
        (
            "Main process exited, code=killed, status=15/TERM",
            Event(0.0, "fail", f"{U} ended, killed by signal 15", ORIGIN, "unit.ended", detail=(EXIT_CODES[143],)),
        ),
    ],
)  # fmt: skip
def test_each_line(message: str, event: Event) -> None:
    assert told(message) == [event]


@pytest.mark.parametrize("message", ["", "It Started x", "Restarted", "timed out", "Stopping Triton..."])
def test_lines_that_tell_nothing(message: str) -> None:
    assert told(message) == []


def test_the_counter_goes_with_the_failures_after_it() -> None:
    ended = "Main process exited, code=exited, status=126/n/a"
    found = told(ended, "Scheduled restart job, restart counter is at 7.", ended, "restart counter is at 8", ended)
    assert [event.detail for event in found] == [
        (EXIT_CODES[126],),
        (EXIT_CODES[126], "restart 7 by systemd"),
        (EXIT_CODES[126], "restart 8 by systemd"),
    ]


@given(st.integers(0, 255), st.sampled_from(["exited", "killed", "dumped"]))
def test_any_code_is_told(code: int, how: str) -> None:
    [event] = told(f"Main process exited, code={how}, status={code}/X")
    assert str(code) in event.text
    assert event.kind == "unit.ended"
