"""Golden requests: when an answer is the kept one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.golden import MAX_TEXT, MAX_VALUES, Golden, GoldenOutput, differs, kept_output

VALUES = st.lists(
    st.one_of(st.integers(-(2**53), 2**53), st.floats(), st.booleans(), st.text(max_size=20)), max_size=30
)


def golden(*outputs: GoldenOutput, relative: float = 1e-3) -> Golden:
    return Golden("m", "1", 0.0, b"", {}, "x", outputs, relative=relative)


def out(*values: Any, name: str = "y", datatype: str = "FP32") -> GoldenOutput:
    return kept_output(name, datatype, (len(values),), values)


@given(VALUES)
def test_an_answer_is_like_itself(values: list[Any]) -> None:
    assert differs(golden(out(*values)), [out(*values)]) == ""


@given(st.floats(-1e30, 1e30), st.floats(1e-6, 1e-1))
def test_floats_may_differ_by_the_tolerance(value: float, relative: float) -> None:
    kept = golden(out(value), relative=relative)
    assert differs(kept, [out(value * (1 + relative * 0.5))]) == ""
    far = value + max(abs(value) * relative, 1e-6) * 2.5
    assert differs(kept, [out(far)]).startswith("y: value 0 is")


@pytest.mark.parametrize(
    ("kept", "came", "text"),
    [
        (out(1, 2), out(1, 3), "y: value 1 is 3, kept 2 (1 of 2 values differ)"),
        (out(1.0), out(2.0), "y: value 0 is 2, kept 1"),
        (out("a"), out("b"), "y: value 0 is b, kept a"),
        (out(True), out(False), "y: value 0 is False, kept True"),
        (out(math.nan), out(1.0), "y: value 0 is 1, kept nan"),
        (out(1.0), out(1.0, 2.0), "y: FP32 [2] where FP32 [1] was kept"),
        (out(1.0), out(1.0, datatype="FP16"), "y: FP16 [1] where FP32 [1] was kept"),
        (out(1.0), out(1.0, name="z"), "output y is missing"),
        (kept_output("y", "FP32", (), (1,)), kept_output("y", "FP32", (), (1, 2)), "y: 2 values where 1 were kept"),
    ],
)
def test_what_is_said_of_another_answer(kept: GoldenOutput, came: GoldenOutput, text: str) -> None:
    assert differs(golden(kept), [came]) == text


def test_large_answers_are_kept_as_a_digest() -> None:
    many = out(*([0.5] * (MAX_VALUES + 1)))
    assert many.values is None
    assert differs(golden(many), [many]) == ""
    other = out(*([0.5] * MAX_VALUES), 0.6)
    assert differs(golden(many), [other]) == "y: its values are not those kept (compared as a whole)"
    assert kept_output("y", "BYTES", (1,), ("a" * (MAX_TEXT + 1),)).values is None


def test_of_an_unknown_type_only_the_shape_counts() -> None:
    kept = kept_output("y", "NEW", (1,), None)
    assert differs(golden(kept), [kept_output("y", "NEW", (1,), None)]) == ""
    assert differs(golden(kept), [kept_output("y", "NEW", (2,), None)]) != ""


def test_an_output_that_was_not_kept_does_not_matter() -> None:
    assert differs(golden(out(1)), [out(1), out(5, name="more")]) == ""
