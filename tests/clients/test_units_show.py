"""`systemctl show` field by field, and any answer at all."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import units
from console.core.model import UnitState

SHOW = """LoadState=loaded
ActiveState=failed
SubState=dead
NRestarts=5
ExecMainStatus=126
ExecMainExitTimestamp=Sat 2024-07-06 03:12:40 CST
StateChangeTimestamp=Sat 2024-07-06 03:12:41 CST
Odd=a=b
"""


def stamp(second: int) -> float:
    return datetime(2024, 7, 6, 3, 12, second).timestamp()


def test_every_field() -> None:
    assert units.parse_unit("t.service", SHOW) == UnitState(
        name="t.service",
        active="failed",
        sub="dead",
        restarts=5,
        exit_status=126,
        exit_wall=stamp(40),
        since_wall=stamp(41),
    )


def test_what_is_not_told_is_unknown() -> None:
    assert units.parse_unit("t", "LoadState=loaded\n") == UnitState(
        name="t", active="", sub="", restarts=None, exit_status=None, exit_wall=None, since_wall=None
    )
    running = units.parse_unit("t", "LoadState=loaded\nExecMainStatus=0\nExecMainExitTimestamp=\n")
    assert running is not None
    assert running.exit_status is None, "0 stands there while it runs too"
    assert units.parse_unit("t", "LoadState=not-found\nActiveState=active\n") is None
    assert units.parse_unit("t", "ActiveState=active\n") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sat 2024-07-06 03:12:40 CST", stamp(40)),
        ("Sat 2024-07-06 03:12:40", stamp(40)),
        ("Sat 2024-07-06", None),
        ("n/a", None),
        ("a b c", None),
        ("", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert units._stamp(text) == seconds


@given(st.text(max_size=200))
def test_any_answer_is_survived(text: str) -> None:
    units.parse_unit("t", text)
    units.parse_unit("t", f"LoadState=loaded\nNRestarts={text}\nExecMainExitTimestamp={text}\n")


@given(st.integers(0, 10**6), st.integers(0, 255), st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)))
def test_there_and_back(restarts: int, status: int, moment: datetime) -> None:
    text = (
        f"LoadState=loaded\nNRestarts={restarts}\nExecMainStatus={status}\n"
        f"ExecMainExitTimestamp=Mon {moment:%Y-%m-%d %H:%M:%S} UTC\n"
    )
    told = units.parse_unit("t", text)
    assert told is not None
    assert (told.restarts, told.exit_status) == (restarts, status)
    assert told.exit_wall == moment.replace(microsecond=0).timestamp()
