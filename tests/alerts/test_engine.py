"""One alert per cause and change: hold time, hysteresis, what is not known, what is gone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from console.alerts.engine import KIND, LISTED, OVER, Alert, Changed, Engine, events_of
from console.alerts.measure import UNKNOWN, Moment, Sample, Samples
from console.alerts.rules import Rule
from console.core.history import History
from console.core.model import Snapshot
from console.core.threshold import Threshold, threshold

STEP = 5.0
"""Seconds between two looks."""
Values = Mapping[str, float | None] | None


class Box:
    """A rule whose figures the test sets."""

    def __init__(self, limit: str = "85 for 10s clear 80") -> None:
        self.now: Values = None
        self.mono = 0.0
        found = threshold(limit, "heat")
        assert found is not None
        self.engine = Engine({"heat": found}, (Rule("heat", "{subject} is at {limit:g}", "warn", self._measure),))

    def _measure(self, moment: Moment) -> Samples | None:
        if self.now is None:
            return None
        return {name: UNKNOWN if value is None else Sample(value, f"{value:g}") for name, value in self.now.items()}

    def look(self, now: Values) -> Changed:
        """One look, 5 s after the one before."""
        self.now = now
        self.mono += STEP
        return self.engine.look(Snapshot(1, 1000 + self.mono, self.mono), History())

    def run(self, values: Iterable[float | None]) -> str:
        """`b` and `e` where an alert about GPU 0 began and ended, `.` else."""
        told = ""
        for value in values:
            changed = self.look({"GPU 0": value})
            told += "b" if changed.began else "e" if changed.ended else "."
        return told


@pytest.mark.parametrize(
    ("limit", "values", "wanted"),
    [
        ("85", [84, 85, 86, 84, 85], ".b.eb"),
        ("85 for 10s", [85, 85, 85, 85], "..b."),
        ("85 for 10s", [85, 85, 84, 85, 85, 85], ".....b"),
        ("85 clear 80", [85, 84, 86, 81, 85, 80, 84], "b....e."),
        ("85 for 10s clear 80", [90, 90, 90, 70, 70, 90, 70, 70, 70], "..b.....e"),
        ("85 for 10s clear 80", [90, None, 90, 90, 90], "....b"),
        ("85 clear 80", [90, None, None, 79], "b..e"),
        ("85 for 10s clear 80", [90, 90, 90, 79, None, 79, 79, 79], "..b....e"),
    ],
)
def test_begins_and_ends(limit: str, values: Sequence[float | None], wanted: str) -> None:
    assert Box(limit).run(values) == wanted


def test_a_figure_that_swings_around_its_limit_is_one_alert() -> None:
    chance = random.Random(3)
    values = [85 + chance.uniform(-4.9, 5) for _ in range(500)]
    told = Box("85 clear 80").run(values)
    assert (told.count("b"), told.count("e")) == (1, 0)
    across = [90.0 if step % 2 else 70.0 for step in range(500)]
    assert Box("85 for 10s clear 80").run(across) == "." * 500
    standing = Box("85 for 10s clear 80")
    assert standing.run([90, 90, 90, *across]) == "..b" + "." * 500


def test_what_is_not_known_at_all_leaves_it_standing() -> None:
    box = Box("85")
    assert box.look({"GPU 0": 90}).began
    assert box.look(None) == Changed()
    assert [one.subject for one in box.engine.active] == ["GPU 0"]
    assert [one.subject for one in box.look({"GPU 0": 20}).ended] == ["GPU 0"]


def test_each_cause_by_itself_and_what_is_gone_is_over() -> None:
    box = Box("85")
    assert [one.subject for one in box.look({"GPU 0": 90, "GPU 1": 20}).began] == ["GPU 0"]
    assert [one.subject for one in box.look({"GPU 0": 90, "GPU 1": 90}).began] == ["GPU 1"]
    assert [one.subject for one in box.look({"GPU 1": 90}).ended] == ["GPU 0"]
    assert [one.subject for one in box.engine.active] == ["GPU 1"]


def test_tells_since_when_and_the_newest_figure() -> None:
    box = Box("85 for 10s")
    box.run([86, 87, 88, 91])
    (alert,) = box.engine.active
    assert (alert.text, alert.told, alert.value, alert.since_wall) == ("GPU 0 is at 85", "91", 91, 1005)


def test_a_rule_that_is_off_is_not_asked() -> None:
    def never(moment: Moment) -> Samples:
        raise AssertionError("asked")

    engine = Engine({}, (Rule("heat", "", "warn", never),))
    assert engine.look(Snapshot(1, 1, 1), History()) == Changed()


def test_the_worst_rule_stands_first() -> None:
    def always(moment: Moment) -> Samples:
        return {"x": Sample(1.0)}

    rules = (Rule("bad", "bad", "fail", always), Rule("odd", "odd", "warn", always))
    engine = Engine({"odd": Threshold(1), "bad": Threshold(1)}, rules)
    engine.look(Snapshot(1, 1, 1), History())
    assert [one.rule for one in engine.active] == ["bad", "odd"]


def _alert(subject: str) -> Alert:
    return Alert("queue_ms", subject, "warn", f"requests of {subject} wait", "waits 120 ms", 120, 100, 1000)


def test_events_for_timeline() -> None:
    one = _alert("ranking 2")
    (began,) = events_of(Changed((one,)), 1010)
    assert (began.wall, began.sign, began.text) == (1010, "warn", "alert: requests of ranking 2 wait")
    assert (began.kind, began.origin, began.detail) == (KIND + "queue_ms", "(alert)", ("waits 120 ms",))
    (ended,) = events_of(Changed((), (one,)), 1020)
    assert (ended.sign, ended.text, ended.kind, ended.marks_chart) == (
        "ok",
        "over: requests of ranking 2 wait",
        OVER,
        False,
    )


def test_a_storm_is_one_event() -> None:
    many = tuple(_alert(f"model_{number:03d}") for number in range(300))
    (began,) = events_of(Changed(many), 1010)
    assert began.text == "alert: requests of model_000 wait, and 299 more"
    assert began.detail[0].startswith("model_000, model_001, ")
    assert began.detail[0].endswith("model_299")
    assert len(events_of(Changed(many[:LISTED]), 1010)) == LISTED
    assert len(events_of(Changed((), many), 1010)) == 1
    other = replace(many[0], rule="p99_ms")
    assert len(events_of(Changed((*many, other)), 1010)) == 2
