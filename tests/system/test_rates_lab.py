"""The product's requests a second against what the traffic tool counted, through the whole way, in one process."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.lab.fixtures import Lab
from tests.system.watched import settings_of, watch

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def counted(buckets: list[dict[str, Any]], begin: float, end: float) -> float:
    """Right answers between two wall-clock times; a second that is cut gives its share."""
    return float(sum(b["ok"] * max(0.0, min(end, b["t"] + 1) - max(begin, b["t"])) for b in buckets))


@pytest.mark.parametrize(
    "flows",
    [("rank=120",), ("recall=80",), ("reco=40",), ("rank=60", "recall=40", "reco=20")],
    ids=["rank", "recall", "reco", "together"],
)
def test_requests_a_second_are_those_that_were_sent(flows: tuple[str, ...], lab_alone: Lab) -> None:
    with watch(settings_of(lab_alone)) as watched:
        watched.until(lambda s: s.stats.reads > 1 and s.configs.value is not None, 15, "statistics")
        with lab_alone.load("--for", "40", *flows) as load:
            time.sleep(14)
            snapshot = watched.snapshot
    assert snapshot.stats.value is not None
    assert snapshot.stats.wall is not None
    record = load.record["models"]
    outside = 0.0
    for flow in flows:
        name = flow.partition("=")[0]
        windows = [f.w10 for f in snapshot.stats.value.flows if f.key.name == name and f.w10 is not None]
        span = max(window.span for window in windows)
        times = (snapshot.stats.wall - span, snapshot.stats.wall)
        sent = counted(record[name]["buckets"], *times)
        outside += sent / span
        inner = counted(record["reco"]["buckets"], *times) if "reco" in record and name != "reco" else 0.0
        assert sum(window.rate for window in windows) == pytest.approx((sent + inner) / span, rel=0.02), name
    assert snapshot.traffic.rate == pytest.approx(outside, rel=0.02), "the Overview's figure counts reco once"
