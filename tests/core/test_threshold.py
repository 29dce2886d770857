"""Limits as they stand in the settings."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.plan import WrongInput
from console.core.threshold import Threshold, threshold


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("off", None),
        (" off ", None),
        ("1", Threshold(1)),
        ("85 for 1m clear 80", Threshold(85, 60, 80)),
        ("0.2 clear 0.05", Threshold(0.2, 0, 0.05)),
        ("1 for 500ms", Threshold(1, 0.5)),
    ],
)
def test_what_it_says(text: str, wanted: Threshold | None) -> None:
    assert threshold(text, "x") == wanted
    if wanted is not None:
        assert threshold(wanted.text, "x") == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "temperature_c must be `off` or such as `85 for 1m clear 80`, not ''"),
        ("85 until 9", "must be `off` or such as"),
        ("hot", "temperature_c wants a number where it says 'hot'"),
        ("nan", "wants a number"),
        ("85 for ever", "the time of temperature_c must be a time such as"),
        ("85 for 25h", "must be from 0s to 24h, not 25h"),
        ("85 for -5", "must be from 0s to 24h"),
        ("0", "must be more than 0, not 0; `off` switches it off"),
        ("85 clear 85", "temperature_c must clear below its limit: 85 is not below 85"),
        ("85 clear cool", "wants a number where it says 'cool'"),
    ],
)
def test_what_cannot_be(text: str, sentence: str) -> None:
    with pytest.raises(WrongInput) as caught:
        threshold(text, "temperature_c")
    assert sentence in str(caught.value)


def test_between_both_limits_nothing_turns() -> None:
    one = Threshold(85, 0, 80)
    assert [(one.reached(value), one.over(value)) for value in (80, 80.1, 84.9, 85)] == [
        (False, True),
        (False, False),
        (False, False),
        (True, False),
    ]
    assert Threshold(1).over(0.5)
    assert not Threshold(1).over(1)


@given(st.text(max_size=60))
def test_any_text_is_a_limit_or_wrong_input(text: str) -> None:
    with contextlib.suppress(WrongInput):
        found = threshold(text, "x")
        assert found is None or found.limit > 0
