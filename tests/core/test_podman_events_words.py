"""Every event of Podman's in the Timeline's words, whole; where folding begins and ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.model import Event
from console.core.podman_events import EXIT_CODES, FOLD_WITHIN, changes_of_health, event, fold

PODMAN = "(podman)"


def container(action: str, **attributes: str) -> Event | None:
    return event(5.0, action, {"name": "t", **attributes})


@pytest.mark.parametrize(
    ("action", "sign", "words", "kind", "marks"),
    [
        ("start", "ok", "started", "container.start", True),
        ("create", "note", "was created", "container.create", False),
        ("stop", "note", "was told to stop", "container.stop", False),
        ("kill", "note", "was sent a signal", "container.kill", False),
        ("restart", "note", "restarted", "container.restart", True),
        ("remove", "note", "was removed", "container.remove", True),
        ("pause", "warn", "was paused", "container.pause", True),
        ("unpause", "ok", "goes on", "container.unpause", True),
        ("oom", "fail", "ran out of memory", "container.oom", True),
    ],
)
def test_each_action(action: str, sign: str, words: str, kind: str, marks: bool) -> None:
    found = container(action)
    assert found is not None
    assert (found.wall, found.sign, found.text) == (5.0, sign, f"container t {words}")
    assert (found.origin, found.kind, found.marks_chart, found.detail) == (PODMAN, kind, marks, ())


@pytest.mark.parametrize("action", ["init", "cleanup", "exec", "sync", "attach", ""])
def test_what_tells_an_operator_nothing(action: str) -> None:
    assert container(action) is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (125, "could not create"),
        (126, "could not be run"),
        (127, "not found in the image"),
        (134, "SIGABRT"),
        (137, "SIGKILL"),
        (139, "SIGSEGV"),
        (143, "SIGTERM"),
    ],
)
def test_exit_codes_that_mean_something(code: int, said: str) -> None:
    assert said in EXIT_CODES[code]
    found = container("died", containerExitCode=str(code))
    assert found is not None
    assert found == Event(
        5.0,
        "note" if code == 143 else "fail",
        f"container t ended, exit {code}",
        PODMAN,
        "container.died",
        detail=(EXIT_CODES[code],),
    )


def test_exit_codes_that_mean_nothing() -> None:
    assert set(EXIT_CODES) == {125, 126, 127, 134, 137, 139, 143}
    for code in ("0", "1", "--1", "¹"):
        found = container("died", containerExitCode=code)
        assert found is not None
        assert (found.detail, found.sign) == ((), "note" if code == "0" else "fail")


def test_names_are_one_short_line() -> None:
    found = container("start", name="a\nb" + "x" * 200)
    assert found is not None
    assert found.text.startswith("container a ⏎ bxx")
    assert found.text.endswith("x… +105 started")
    assert event(5.0, "start", {}) == Event(5.0, "ok", "container ? started", PODMAN, "container.start")


def test_health() -> None:
    good = container("health_status", health_status="healthy")
    assert good == Event(5.0, "ok", "container t is healthy (its health check)", PODMAN, "health.healthy")
    bad = event(5.0, "health_status", {"name": "t", "health_status": "healthy"}, "unhealthy")
    assert bad == Event(5.0, "fail", "container t is unhealthy (its health check)", PODMAN, "health.unhealthy")
    other = Event(5.0, "ok", "x", PODMAN, "container.start")
    assert good is not None
    assert changes_of_health([good, other, good, bad, bad, good]) == [good, other, bad, good]
    assert changes_of_health([]) == []


def fail(wall: float, text: str = "a", kind: str = "k", repeats: int = 1) -> Event:
    return Event(wall, "fail", text, "o", kind, repeats=repeats)


def test_folding_is_within_an_hour_of_the_last_time() -> None:
    hour = FOLD_WITHIN
    assert hour == 3600.0
    assert [one.repeats for one in fold([fail(0.0), fail(hour), fail(2 * hour)], 9)] == [3]
    assert [one.repeats for one in fold([fail(0.0), fail(hour + 1)], 9)] == [1, 1]
    again = fold([fail(0.0), fail(hour + 1), fail(hour + 2)], 9)
    assert [(one.wall, one.repeats) for one in again] == [(0.0, 1), (hour + 1, 2)]


def test_only_the_same_trouble_is_folded() -> None:
    assert len(fold([fail(0.0), fail(1.0, kind="other")], 9)) == 2
    assert len(fold([fail(0.0), fail(1.0, text="b")], 9)) == 2
    warn = Event(0.0, "warn", "a", "o", "k")
    assert [one.repeats for one in fold([warn, warn], 9)] == [2]
    note = Event(0.0, "note", "a", "o", "k")
    assert len(fold([note, note], 9)) == 2
    assert [one.repeats for one in fold([fail(0.0, repeats=2), fail(1.0, repeats=3)], 9)] == [5]


def test_the_newest_are_kept() -> None:
    events = [fail(float(n), text=str(n)) for n in range(5)]
    assert [one.wall for one in fold(events, 2)] == [3.0, 4.0]
    assert fold(events, 5) == events


@given(st.lists(st.tuples(st.floats(0, 1e5), st.sampled_from("ab")), max_size=20), st.integers(0, 5))
def test_never_more_than_asked_for(told: list[tuple[float, str]], limit: int) -> None:
    assert len(fold([fail(wall, text) for wall, text in told], limit)) <= limit
