"""Podman's events and the unit's journal in words; folding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core import podman_events, unit_log
from console.core.model import Event

DATA = Path(__file__).parents[1] / "data" / "podman"


def test_recorded_events() -> None:
    found = []
    for line in (DATA / "events.jsonl").read_text().splitlines():
        told = json.loads(line)
        if told["Type"] == "container":
            found.append(podman_events.event(told["timeNano"] / 1e9, told["Action"], told["Actor"]["Attributes"]))
    events = [event for event in found if event is not None]
    assert "container triton started" in [event.text for event in events]
    died = next(event for event in events if event.text == "container exited ended, exit 126")
    assert (died.sign, died.kind) == ("fail", "container.died")
    assert "could not be run" in died.detail[0]


@pytest.mark.parametrize(
    ("code", "sign", "text"),
    [
        ("0", "note", "exit 0"),
        ("143", "note", "exit 143"),
        ("137", "fail", "exit 137"),
        ("-1", "fail", "exit -1"),
        ("", "fail", "exit code unknown"),
        ("x", "fail", "exit x"),
    ],
)
def test_ends(code: str, sign: str, text: str) -> None:
    event = podman_events.event(1.0, "died", {"name": "t", "containerExitCode": code})
    assert event is not None
    assert (event.sign, event.text) == (sign, f"container t ended, {text}")


def test_health_is_told_when_it_changes() -> None:
    def health(status: str) -> Event | None:
        return podman_events.event(1.0, "health_status", {"name": "t"}, status)

    assert health("starting") is None
    events = [event for status in ("healthy", "healthy", "unhealthy", "healthy") if (event := health(status))]
    other = Event(1.0, "ok", "x", "y", "z")
    assert [event.sign for event in podman_events.changes_of_health([*events, other])] == ["ok", "fail", "ok", "ok"]
    old = podman_events.event(1.0, "health_status", {"health_status": "unhealthy"})
    assert old is not None
    assert old.text == "container ? is unhealthy (its health check)"


def test_what_tells_nothing() -> None:
    assert podman_events.event(1.0, "init", {"name": "t"}) is None


def test_fold() -> None:
    def fail(wall: float, text: str = "a") -> Event:
        return Event(wall, "fail", text, "o", "k")

    good = [Event(3.0, "ok", "fine", "o", "g"), Event(4.0, "ok", "fine", "o", "g")]
    folded = podman_events.fold([fail(2.0), fail(1.0), fail(3000.0), *good, fail(9000.0), fail(5.0, "b")], 10)
    assert [(event.wall, event.text, event.repeats) for event in folded] == [
        (1.0, "a", 3), (3.0, "fine", 1), (4.0, "fine", 1), (5.0, "b", 1), (9000.0, "a", 1),
    ]  # fmt: skip
    assert [event.wall for event in podman_events.fold([fail(1.0), fail(2.0, "b"), fail(3.0, "c")], 2)] == [2.0, 3.0]
    assert podman_events.fold([fail(1.0)], 0) == []


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from("ab"), st.sampled_from(["fail", "ok"])), max_size=30))
def test_folding_keeps_the_count(told: list[tuple[float, str, str]]) -> None:
    events = [Event(wall, "fail" if sign == "fail" else "ok", text, "o", sign) for wall, text, sign in told]
    folded = podman_events.fold(events, 1000)
    assert sum(event.repeats for event in folded) == len(events)
    assert [event.wall for event in folded] == sorted(event.wall for event in folded)


def test_unit_log() -> None:
    entries = [
        (1.0, "Started Triton."),
        (2.0, "triton.service: Main process exited, code=exited, status=126/n/a"),
        (3.0, "triton.service: Scheduled restart job, restart counter is at 118."),
        (4.0, "triton.service: Main process exited, code=exited, status=126/n/a"),
        (5.0, "triton.service: Main process exited, code=killed, status=9/KILL"),
        (6.0, "triton.service: Start request repeated too quickly."),
        (7.0, "triton.service: State 'stop-sigterm' timed out. Killing."),
        (7.5, "triton.service: start operation timed out. Terminating."),
        (8.0, "Stopped Triton."),
        (9.0, "any line of the container"),
        (10.0, "triton.service: Main process exited, code=exited, status=0/SUCCESS"),
    ]
    found = unit_log.events("triton.service", entries)
    assert [(event.wall, event.sign) for event in found] == [
        (1.0, "note"),
        (2.0, "fail"),
        (4.0, "fail"),
        (5.0, "fail"),
        (6.0, "fail"),
        (7.0, "fail"),
        (7.5, "fail"),
        (8.0, "note"),
        (10.0, "note"),
    ]
    assert found[1].text == "triton.service ended, exit 126"
    assert found[2].detail[-1] == "restart 118 by systemd"
    assert found[3].text == "triton.service ended, killed by signal 9"
    assert "killed (SIGKILL)" in found[3].detail[0]


@given(st.text(max_size=200))
def test_any_message_is_survived(message: str) -> None:
    unit_log.events("u", [(1.0, message)])
    podman_events.event(1.0, message, {"name": message, "containerExitCode": message}, message)
