"""What clients feel while the console changes a model or its container: five of each, by the product's whole way.

`scripts/bench changes` does the same with 200, and prints the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.changes import BYSTANDER, MODEL, Change, Done, Measured, changes, felt_gap, measured, server

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]
TIMES = 5
LOAD = ("--kept", "9", "--every", "0.02")


def kind(name: str) -> Change:
    return next(one for one in changes(TIMES, TIMES, TIMES, TIMES) if one.kind == name)


def not_answered(found: Measured, *routes: str) -> dict[str, dict[str, float]]:
    """Route -> what came of requests that were not answered well."""
    bad = {
        route: {kind: n for kind, n in counts.items() if kind not in ("ok", "slowest_s", "stalled")}
        for route, counts in found.totals.items()
        if not routes or route.split(" ", 1)[1] in routes
    }
    return {route: counts for route, counts in bad.items() if counts}


@pytest.mark.usefixtures("lab", "own_lock")
@pytest.mark.parametrize("name", ["swap", "batching", "instances, in place"])
def test_no_request_fails_while_a_model_changes(tmp_path: Path, name: str) -> None:
    change = kind(name)
    with server(change, tmp_path) as own:
        found = measured(change, own, tmp_path, LOAD)
    assert [one.outcome.word for one in found.done] == ["done"] * TIMES
    routes = (MODEL, BYSTANDER) if name == "swap" else ()  # who names the version that leaves is told 503
    assert not_answered(found, *routes) == {}
    assert all(counts["ok"] > 20 for counts in found.totals.values())


@pytest.mark.usefixtures("lab", "own_lock")
def test_a_new_container_has_one_gap_that_was_planned_and_ends(tmp_path: Path) -> None:
    change = kind("recreate")
    with server(change, tmp_path) as own:
        found = measured(change, own, tmp_path, ("--kept", "3", "--every", "0.02"))
    assert [one.outcome.word for one in found.done] == ["done"] * TIMES
    assert all(one.planned_gap and felt_gap(one, found.told) > 0 for one in found.done)
    outside = [line for line in found.told if line["kind"] != "ok" and not any(_during(line, d) for d in found.done)]
    assert outside == []


def _during(line: dict[str, Any], done: Done) -> bool:
    return bool(done.began <= line["wall"] <= done.ended)
