"""The box in simulated time: the same seed gives the same events, and each scene holds what its verdict wants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from console.planning.batcher import NS_PER_SECOND, Completion, Outcome
from console.simulator.box import SWING_PERIOD_S, Box
from console.simulator.card import MAX_SM_MHZ, RESERVED_MIB, TOTAL_MIB
from console.simulator.process import STEPPED_START_NS
from console.simulator.scenes import SCENES, Model, many_models
from tests.simulator.conftest import MakeBox

START = STEPPED_START_NS


def counters(box: Box) -> dict[str, Any]:
    return {name: model.statistics.to_triton() for name, model in box.models.items()}


def go(box: Box, seconds: float) -> None:
    box.advance(box.now_ns + round(seconds * NS_PER_SECOND))


@dataclass
class Interval:
    """The letters of screens.md section 3, of one model over an interval."""

    rate: float
    batch: float
    queue: float
    compute: float
    request: float
    busy: float


def measure(box: Box, name: str, seconds: float = 30) -> Interval:
    model = box.models[name]
    assert isinstance(model.spec, Model)
    stats = model.statistics

    def now() -> tuple[int, ...]:
        compute = stats.input_ns + stats.infer_ns + stats.output_ns
        return (
            stats.success_count, stats.execution_count, stats.inference_count,
            stats.queue_ns, compute, stats.success_ns, stats.busy_ns,
        )  # fmt: skip

    before = now()
    go(box, seconds)
    served, runs, items, queue, compute, request, busy = (b - a for a, b in zip(before, now(), strict=True))
    return Interval(
        rate=served / seconds,
        batch=items / runs,
        queue=queue / served / 1e6,
        compute=compute / served / 1e6,
        request=request / served / 1e6,
        busy=busy / (seconds * 1e9 * model.spec.scheduling.instances),
    )


def test_a_seed_fixes_the_events_however_often_the_box_is_read(make_box: MakeBox) -> None:
    once, often, other = make_box(), make_box(), make_box(seed=2)
    go(once, 20)
    for step in range(1, 998):
        often.advance(START + 20 * NS_PER_SECOND * step // 997)
    go(other, 20)
    assert counters(often) == counters(once)
    assert often.nvml_document() == once.nvml_document()
    assert often.log == once.log
    assert counters(other) != counters(once)


def test_the_past_is_there_at_the_start(make_box: MakeBox) -> None:
    box = make_box()
    assert START - box.first.started_ns == (24 * 60 + 36) * NS_PER_SECOND
    assert [event.action for event in box.events] == ["create", "init", "start"]
    assert all(line.at_ns < START for line in box.log)
    assert any("successfully loaded 'ranking'" in line.text for line in box.log)
    ranking = box.models["ranking"].statistics
    assert ranking.success_count == pytest.approx(1650 * 24.6 * 60, rel=0.1)
    assert 0 <= START - ranking.last_inference_ns < NS_PER_SECOND


def test_time_never_goes_back(make_box: MakeBox) -> None:
    box = make_box()
    go(box, 2)
    before = counters(box)
    box.advance(START)
    assert box.now_ns == START + 2 * NS_PER_SECOND
    assert counters(box) == before


def test_a_sleep_is_a_gap_in_traffic_not_a_burst(make_box: MakeBox) -> None:
    box = make_box()
    go(box, 1.5)
    served = box.models["ranking"].statistics.success_count
    box.sleep_until(box.now_ns + 3600 * NS_PER_SECOND)
    assert box.models["ranking"].statistics.success_count - served < 50
    assert measure(box, "ranking", 5).rate == pytest.approx(1650, rel=0.1)


@pytest.mark.parametrize("part", range(3))
def test_healthy_leaves_notes_only(make_box: MakeBox, part: int) -> None:
    """V31 or V23 at most, over the whole swing of the traffic."""
    box = make_box()
    go(box, part * SWING_PERIOD_S / 3)
    ranking = measure(box, "ranking")
    assert ranking.rate == pytest.approx(1650, rel=0.06)
    assert ranking.compute >= 0.75 * ranking.request
    assert ranking.queue < 0.25 * ranking.request
    assert ranking.busy < 0.85
    assert box.server is not None
    assert box.server.ready
    assert box.card.reasons == 0
    assert box.card.used_mib / TOTAL_MIB < 0.5
    for name in ("recall", "rerank"):
        other = measure(box, name, 10)
        assert other.compute >= 0.75 * other.request
        assert other.busy < 0.5


@pytest.mark.parametrize("part", range(4))
def test_queue_bound_waits_for_an_instance(make_box: MakeBox, part: int) -> None:
    """V22, and not V17, over the whole swing."""
    box = make_box("queue-bound")
    go(box, part * SWING_PERIOD_S / 4)
    ranking = measure(box, "ranking")
    assert ranking.busy >= 0.95
    assert ranking.queue >= 0.8 * ranking.compute
    assert ranking.batch < 0.9 * 4


@pytest.mark.parametrize("part", range(3))
def test_delay_too_long_waits_for_nothing(make_box: MakeBox, part: int) -> None:
    """V20: the wait is what the delay alone makes, RD < 1."""
    box = make_box("delay-too-long")
    go(box, part * SWING_PERIOD_S / 3)
    ranking = measure(box, "ranking")
    delay = 5.0
    rd = ranking.rate * delay / 1000
    alone = delay * (1 + rd / 2) / (1 + rd)
    assert rd < 0.8
    assert 0.75 * alone <= ranking.queue <= 1.1 * delay
    assert ranking.busy < 0.7


def test_delay_too_long_has_a_new_version_on_disk(make_box: MakeBox) -> None:
    """V30b, half a minute after the start."""
    box = make_box("delay-too-long")
    assert box.repository is not None
    folder = box.repository.root / "ranking"
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "config.pbtxt"]
    go(box, 31)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3", "config.pbtxt"]


def test_throttled_is_slow_for_heat(make_box: MakeBox) -> None:
    """V06: heat counter, clock, utilisation; and runs take longer for it."""
    box, cool = make_box("throttled"), make_box()
    before = box.card.heat_ns
    slow, normal = measure(box, "recall"), measure(cool, "recall")
    assert (box.card.heat_ns - before) / (30 * NS_PER_SECOND) >= 0.5
    assert box.card.sm_mhz < 0.8 * MAX_SM_MHZ
    assert box.card.reasons & 0x20
    assert box.card.util >= 30
    assert box.card.temperature > 85
    assert slow.compute / normal.compute == pytest.approx(MAX_SM_MHZ / 1110, rel=0.05)


def test_vram_full_leaves_no_room(make_box: MakeBox) -> None:
    """V10: used at least 92 %, counted without what the driver holds back."""
    card = make_box("vram-full").card
    assert card.used_mib >= 0.92 * TOTAL_MIB
    assert card.used_mib + RESERVED_MIB < TOTAL_MIB


def test_load_failed_serves_the_others(make_box: MakeBox) -> None:
    """V04."""
    box = make_box("load-failed")
    assert box.server is not None
    assert not box.server.ready
    assert "expecting library version 10.5.0.18 got 8.5.3.1" in box.server.models.reasons["rerank"][3]
    assert any("failed to load 'rerank' version 3" in line.text for line in box.log)
    go(box, 5)
    assert "rerank" not in box.models
    assert measure(box, "ranking", 5).rate == pytest.approx(1650, rel=0.1)


def test_triton_down_was_tried_again_and_again(make_box: MakeBox) -> None:
    """V01: exit 126 and the last line that says why."""
    box = make_box("triton-down")
    died = [event for event in box.events if event.action == "died"]
    assert [event.exit_code for event in died] == [126] * 5
    assert box.log[-1].text.endswith("Permission denied")
    go(box, 5)
    assert box.card.process_mib == 0
    assert box.card.util < 5


def test_an_ensemble_counts_once_what_its_steps_count_each(make_box: MakeBox) -> None:
    box = make_box()
    before = counters(box)
    go(box, 10)
    after = counters(box)

    def grown(name: str, part: str, what: str) -> int:
        change: int = after[name]["inference_stats"][part][what] - before[name]["inference_stats"][part][what]
        return change

    served = grown("reco", "success", "count")
    assert served == pytest.approx(1800, rel=0.1)
    assert grown("recall", "success", "count") == pytest.approx(served, abs=5)
    mean = grown("reco", "success", "ns") / served / 1e6
    assert 3.5 < mean < 6
    assert grown("reco", "queue", "ns") / served < 10_000


def test_a_request_from_outside_is_queued_run_and_counted(make_box: MakeBox) -> None:
    box = make_box()
    go(box, 1)
    ends: list[Completion] = []
    box.infer(box.models["ranking"], 4, ends.append)
    box.infer(box.models["reco"], 1, ends.append)
    go(box, 1)
    assert [end.outcome for end in ends] == [Outcome.SUCCESS, Outcome.SUCCESS]
    assert all(end.finish_ns > end.arrival_ns for end in ends)


def test_the_log_goes_on(make_box: MakeBox) -> None:
    box = make_box("delay-too-long")
    lines = len(box.log)
    go(box, 600)
    assert len(box.log) > lines
    stamps = [line.at_ns for line in box.log[lines:]]
    assert stamps == sorted(stamps)


def test_many_models_move_in_part() -> None:
    scene = replace(SCENES["healthy"], models=many_models(200), ensembles=())
    box = Box(scene, seed=1, start_ns=START)
    before = {name: model.revision for name, model in box.models.items()}
    go(box, 3)
    changed = [name for name, model in box.models.items() if model.revision != before[name]]
    assert len(changed) == 10
