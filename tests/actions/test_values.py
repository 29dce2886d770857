"""What a person types for an action: one form each, or one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.actions.values import LONGEST, checked
from console.core.plan import Field, WrongInput

FIELDS = (
    Field("delay", "how long", kind="int", low=0, high=100, unit="µs"),
    Field("least", "any from here", kind="int", low=3),
    Field("on", "or off", kind="bool"),
    Field("mode", "which", kind="choice", choices=("none", "poll")),
    Field("sizes", "several", kind="list"),
    Field("env", "variables", kind="map", secret=True),
    Field("text", "anything"),
)


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("delay", " 007 ", "7"),
        ("on", "Yes", "true"),
        ("on", "0", "false"),
        ("mode", "poll", "poll"),
        ("sizes", "1, 2,,3", "1,2,3"),
        ("env", "A=1,B=x=y", "A=1,B=x=y"),
        ("text", "[/x] {}\ttab", "[/x] {}\ttab"),
        ("text", "", ""),
    ],
)
def test_good_values_come_in_one_form(name: str, value: str, good: str) -> None:
    assert checked(FIELDS, {name: value}) == {name: good}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("delya", "1", "`delya` is no value of this action; did you mean `delay`?"),
        ("delay", "", "must be a whole number of µs, not ''"),
        ("delay", "²", "whole number"),
        ("delay", "1e3", "whole number"),
        ("delay", "101", "from 0 to 100 µs, not '101'"),
        ("delay", "-1", "from 0 to 100 µs"),
        ("least", "2", "must be 3 at least, not '2'"),
        ("on", "maybe", "true or false"),
        ("mode", "Poll", "one of none, poll, not 'Poll'"),
        ("env", "A=1,hunter2", "name=value pairs with commas between, not its value"),
        ("env", "=1", "name=value pairs"),
        ("text", "a\x1b[31m", "control characters"),
        ("text", "\ud800", "no valid text"),
        ("text", "x" * (LONGEST + 1), "longer than 100000"),
        ("[/x]\n" * 99, "1", "is no value of this action"),
    ],
)
def test_bad_values_are_one_sentence(name: str, value: str, words: str) -> None:
    with pytest.raises(WrongInput) as raised:
        checked(FIELDS, {name: value})
    told = str(raised.value)
    assert words in told
    assert "\n" not in told
    assert len(told) < 400


def test_an_action_without_values_says_so() -> None:
    with pytest.raises(WrongInput, match="`x` is no value of this action; it takes none"):
        checked((), {"x": "1"})


@given(st.sampled_from([field.name for field in FIELDS]), st.text())
def test_whatever_is_typed_is_taken_or_told(name: str, value: str) -> None:
    try:
        good = checked(FIELDS, {name: value})
    except WrongInput as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert checked(FIELDS, good) == good
