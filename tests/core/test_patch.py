"""Patches: what one tree becomes by the difference to another is that other, through JSON too."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.patch import SAME, difference, patched

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=4)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abc~<>+0"), inner, max_size=4),
    max_leaves=25,
)


def alike(one: Any, other: Any) -> bool:
    """Equal in value and type; NaN is NaN."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return type(one) is type(other) and repr(one) == repr(other)


def through_json(patch: Any) -> Any:
    """As a reader has it."""
    return msgspec.json.decode(msgspec.json.encode(patch))


@given(TREES, TREES)
def test_a_patch_makes_the_new_tree_of_the_old_one(old: Any, new: Any) -> None:
    patch = difference(old, new)
    made = old if patch is SAME else patched(old, through_json(patch))
    assert alike(made, new)


@given(TREES)
def test_equal_trees_have_no_patch(tree: Any) -> None:
    again = patched(None, through_json([None])) if tree is None else msgspec.to_builtins(tree)
    patch = difference(tree, again)
    assert patch is SAME or alike(patched(tree, through_json(patch)), tree)


def test_what_changed_inside_is_all_that_a_patch_holds() -> None:
    assert difference({"a": 1, "b": {"c": 2.0, "d": [1, 2]}}, {"a": 1, "b": {"c": 2.5, "d": [1, 3]}}) == {
        "b": {"c": 2.5, "d": {"1": 3}}
    }
    assert difference({"a": 1, "b": 2}, {"a": None}) == {"a": [None], "b": []}
    assert difference({}, {"a": {"b": 1}}) == {"a": [{"b": 1}]}


def test_a_list_of_last_samples_that_moved_is_one_new_sample() -> None:
    assert difference([1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 9.0]) == {"<": 1, "+": [9.0]}
    assert difference([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 9.0]) == {"+": [9.0]}
    assert difference([7, 7, 7, 7], [7, 7, 7, 7]) is SAME


def test_numbers_that_json_cannot_hold_come_back() -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert repr(patched(1.0, through_json(difference(1.0, value)))) == repr(value)
    assert difference(math.nan, math.nan) is SAME
    assert difference(0.0, -0.0) == -0.0
    assert repr(difference(1, 1.0)) == "1.0"
    assert difference(1, True) is True


@pytest.mark.parametrize(
    ("old", "patch"),
    [
        (1, {"a": 1}),
        ([1], {"4": 1}),
        ([1], {"<": 2}),
        ([1], {">": -1}),
        ([1], {"a": 1}),
        ([1], {"<": "x"}),
        ({"a": 1}, []),
        ({"a": 1}, [1, 2]),
        ({"a": 1}, {"~": 4}),
        ({"a": 1}, {"~": "x"}),
    ],
)
def test_a_patch_that_does_not_fit_says_so(old: Any, patch: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        patched(old, patch)
