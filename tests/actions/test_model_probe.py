"""The form of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from console.actions.model_probe import Probe, other_form
from console.clients.triton import TritonAddress
from console.core.golden import GoldenOutput, kept_output

OLD = (kept_output("y", "FP32", (1, 2), (0.5, 1.0)),)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD, ""),
        ((kept_output("y", "FP32", (1, 2), (7.0, 8.0)),), ""),
        ((*OLD, kept_output("z", "FP32", (1,), (7.0,))), ""),
        ((), "output y is missing"),
        ((kept_output("y", "FP32", (1, 3), (7.0, 8.0, 9.0)),), "y is FP32 [1, 3], the old version's FP32 [1, 2]"),
        ((kept_output("y", "FP16", (1, 2), (7.0, 8.0)),), "y is FP16 [1, 2], the old version's FP32 [1, 2]"),
        ((kept_output("y", "FP32", (1, 2), (7.0, math.nan)),), "y holds what is not a number"),
    ],
)
def test_other_form(new: Sequence[GoldenOutput], said: str) -> None:
    assert other_form(OLD, new) == said


def test_where_the_old_one_gave_no_numbers_either() -> None:
    odd = (kept_output("y", "FP32", (1,), (math.inf,)),)
    assert other_form(odd, odd) == ""


def test_off_and_a_server_that_is_not_there() -> None:
    probe = Probe(TritonAddress(http_port=1), "m", "off", None)
    assert (probe.prepare(1), probe.ask(2), probe.asked) == ("", "", 0)
    blind = Probe(TritonAddress(http_port=1), "m", "form", None)
    assert blind.prepare(1) == ""
    assert (blind.kind, blind.ask(2)) == ("off", "")
    assert "refuses the connection" in blind.why_off
