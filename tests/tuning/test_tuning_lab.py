"""A timed trial and a sweep on a real Triton, with independent callers that count what fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import batching_trial, model_look
from console.actions.batching_look import look
from console.actions.batching_trial import BatchingTrial
from console.actions.box import Box
from console.tuning import sweep
from console.tuning.sweep import Sweep
from tests.actions.callers import Seen, calling
from tests.actions.model_boxes import Live, own_box
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

pytestmark = [pytest.mark.lab, pytest.mark.slow]
CONFIG = sleeper_config(
    "rank", batching="dynamic_batching { max_queue_delay_microseconds: 15000 }", base_us=4000, item_us=200
)


@pytest.fixture
def own(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTriton]:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.5)
    monkeypatch.setattr(batching_trial, "MOST_BEFORE", 1.0)
    monkeypatch.setattr(sweep, "MOST_S", 2.0)
    monkeypatch.setattr(sweep, "SETTLE_S", 0.3)
    with own_triton(tmp_path / "models", [("rank", CONFIG, (1,))]) as found:
        yield found


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    found = own_box(own, tmp_path / "state", load_timeout=60.0)
    yield found
    found.close()


def nothing_failed(seen: Seen) -> None:
    assert seen.good > 50
    assert (seen.failed, seen.refused, seen.words) == (0, 0, set())


def test_a_setting_that_breaks_its_goal_is_taken_back_and_no_request_fails(own: OwnTriton, box: Box) -> None:
    values = {"delay_us": "120000", "for": "60s", "slo_mean_ms": "60", "broken_for": "2s"}
    plan = BatchingTrial().plan(box, "rank", BatchingTrial.checked(values))
    assert not plan.refused, plan.refused
    with calling(own.port, "rank", 4, pause=0.01) as seen:
        outcome = BatchingTrial().run(box, plan, Live())
    nothing_failed(seen)
    assert outcome.word == "undone", outcome
    assert "above 60 ms: back to what ran before" in outcome.text
    assert outcome.figures["mean_after_ms"] > 60 > outcome.figures["mean_before_ms"]
    found = look(box, "rank")
    assert (found.live.delay_us, found.is_as_on_disk) == (15000, True)


def test_a_sweep_finds_better_restores_and_no_request_fails(own: OwnTriton, box: Box) -> None:
    plan = Sweep().plan(box, "rank", Sweep.checked({"objective": "throughput", "budget": "30s"}))
    assert "nobody asks rank now" in plan.refused
    with calling(own.port, "rank", 6) as seen:
        while seen.good < 50:
            time.sleep(0.05)
        plan = Sweep().plan(box, "rank", Sweep.checked({"objective": "throughput", "budget": "30s"}))
        assert not plan.refused, plan.refused
        outcome = Sweep().run(box, plan, Live())
    nothing_failed(seen)
    assert outcome.word == "done", outcome
    assert "best of" in outcome.text, "six callers wait 15 ms for ten more that never come"
    assert "what ran before is loaded again" in outcome.text
    found = look(box, "rank")
    assert (found.live.delay_us, found.live.total_instances, found.is_as_on_disk) == (15000, 1, True)
