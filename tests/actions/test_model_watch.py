"""When a new version is worse than the old one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.actions.model_watch import ENOUGH, Flow, flow_between, since_load, told, worse
from console.core.model import ModelStats

USUAL = Flow(100, 0, 5.0, 2.0)
COUNTS = st.integers(0, 2**40)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (USUAL, Flow(100, 0, 5.0, 2.0), ""),
        (USUAL, Flow(100, 0, 9.9, 2.0), ""),
        (USUAL, Flow(100, 0, 10.1, 2.0), "mean 5.00 → 10.10 ms over 100 requests"),
        (USUAL, Flow(ENOUGH - 1, 0, 50.0, 2.0), ""),
        (Flow(100, 0, 0.1, 2.0), Flow(100, 0, 0.4, 2.0), ""),
        (USUAL, Flow(97, 3, 5.0, 2.0), ""),
        (USUAL, Flow(90, 10, 5.0, 2.0), "10 of 100 requests failed (0% before)"),
        (Flow(90, 10, 5.0, 2.0), Flow(90, 10, 5.0, 2.0), ""),
        (None, Flow(0, 3, None, 1.0), "3 of 3 requests failed (0% before)"),
        (None, Flow(0, 2, None, 1.0), ""),
        (None, Flow(100, 0, 50.0, 1.0), ""),
        (USUAL, Flow(0, 0, None, 1.0), "none of about 50 requests was answered in 1.0 s"),
        (USUAL, Flow(0, 0, None, 0.1), ""),
        (Flow(1000, 0, 5.0, 1.0), Flow(0, 0, None, 0.9), ""),
        (Flow(100, 0, 5.0, 0.0), Flow(0, 0, None, 1.0), ""),
        (Flow(3, 0, 5.0, 1.0), Flow(100, 0, 50.0, 1.0), ""),
    ],
)
def test_worse(before: Flow | None, now: Flow, text: str) -> None:
    assert worse(before, now) == text


def test_the_first_moments_are_not_judged_by_latency() -> None:
    assert worse(USUAL, Flow(100, 0, 50.0, 2.0), latency=False) == ""
    assert worse(USUAL, Flow(90, 10, 5.0, 2.0), latency=False) != ""


def test_told() -> None:
    assert told(USUAL, Flow(100, 2, 6.0, 2.0)) == "102 requests in 2.0 s, 2 failed, mean 6.00 ms (before 5.00 ms)"
    assert told(None, Flow(0, 0, None, 2.0)) == "0 requests in 2.0 s, too few to judge latency"


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.floats(0, 100))
def test_never_negative(done: int, failed: int, ns: int, other: int, seconds: float) -> None:
    first = ModelStats("m", "1", success_count=other, fail_count=done, success_ns=failed)
    now = ModelStats("m", "1", success_count=done, fail_count=failed, success_ns=ns)
    flow = flow_between(first, now, seconds)
    assert flow.done >= 0
    assert flow.failed >= 0
    assert flow.mean_ms is None or flow.mean_ms >= 0
    assert 0 <= flow.share <= 1
    worse(flow, since_load(now))
