"""What figures mean: the server's side, others' traffic, steady or why not, the goal."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.core.model import ModelStats
from console.loadgen import verdict
from console.loadgen.errors import Failed
from console.loadgen.histogram import Histogram, Latency
from console.loadgen.record import Client, Run, Server, Share, Slice, Stage
from console.loadgen.schedule import Load, make

CLOSED = make("closed", "4", 12.0)
OPEN = make("open", "100", 12.0)


def stats(version: str, count: int, fail_count: int = 0) -> ModelStats:
    return ModelStats(
        "m", version, success_count=count, success_ns=count * 3_000_000, queue_count=count, queue_ns=count * 1_000_000,
        infer_count=count, infer_ns=count * 2_000_000, inference_count=count, execution_count=count // 2,
        fail_count=fail_count,
    )  # fmt: skip


def client(rates: list[int], p50s: list[float], **more: Any) -> Client:
    slices = tuple(
        Slice(at + 1.0, rate, 0, p50, 2 * p50) for at, (rate, p50) in enumerate(zip(rates, p50s, strict=True))
    )
    histogram = Histogram()
    for _ in range(sum(rates)):
        histogram.record(2000)
    made = Client(
        float(len(rates)), sum(rates), sum(rates), sum(rates), histogram.latency(), histogram.encoded(),
        histogram.sum_us, slices=slices, wall_s=float(len(rates)),
    )  # fmt: skip
    return replace(made, **more)


def run(load: Load, one: Client, server: Server | None) -> Run:
    return Run(0, 1.0, "b", "a", "t", "m", "", load, 0.0, 1, "", "", one, server=server)


def test_the_servers_side_is_the_difference_over_all_versions() -> None:
    found = verdict.served([stats("1", 100), stats("2", 10)], [stats("1", 150), stats("2", 60, fail_count=3)])
    assert (found.requests, found.failures) == (100, 3)
    assert (found.total_ms, found.queue_ms, found.infer_ms) == (3.0, 1.0, 2.0)
    assert found.batch == 2.0
    assert found.input_ms is None


def test_a_version_that_came_under_way_counts_from_zero() -> None:
    assert verdict.served([stats("1", 100)], [stats("1", 100), stats("2", 10)]).requests == 10


@pytest.mark.parametrize("after", [[stats("1", 99)], [stats("2", 200)], []])
def test_counters_that_fell_or_went_are_a_reset(after: list[ModelStats]) -> None:
    with pytest.raises(verdict.ResetError):
        verdict.served([stats("1", 100)], after)


def test_a_steady_run() -> None:
    assert verdict.steady(CLOSED, client([100] * 12, [2.0] * 12), "duration") == ""
    assert verdict.steady(CLOSED, client([100] * 8 + [104] * 4, [2.0] * 12), "duration") == ""


@pytest.mark.parametrize(
    ("load", "one", "ended", "words"),
    [
        (CLOSED, client([100] * 5, [2.0] * 5), "duration", "not judged: 5 s are too short"),
        (CLOSED, client([100] * 12, [2.0] * 12), "stopped", "not judged: it was ended early"),
        (CLOSED, client([5] * 12, [2.0] * 12), "duration", "not judged: 20 answers"),
        (make("open", "1..9", 12.0), client([100] * 12, [2.0] * 12), "duration", "level changes by itself"),
        (
            CLOSED, client([100] * 8 + [120] * 4, [3.0] * 8 + [2.0] * 4), "duration",
            "answers a second went from 100 to 120: it still gets faster",
        ),
        (OPEN, client([100] * 12, [2.0] * 8 + [4.0] * 4), "duration", "p50 went from 2.00 to 4.00 ms"),
        (
            OPEN, client([100] * 12, [float(at + 1) for at in range(12)], in_time=800), "duration",
            "more was due (100/s) than was answered in time (66.7/s)",
        ),
        (
            CLOSED, client([100] * 8 + [50] * 4, [2.0] * 12, errors={"http 503": Failed(7)}), "duration",
            "the server turned 7 requests away",
        ),
        (CLOSED, client([100] * 8 + [50] * 4, [2.0] * 12, cpu_s=11.9), "duration", "the sender used 99 % of its core"),
    ],
)  # fmt: skip
def test_why_a_run_is_not_steady(load: Load, one: Client, ended: str, words: str) -> None:
    assert words in verdict.steady(load, one, ended)


@pytest.mark.parametrize(
    ("rates", "p50s", "words"),
    [
        (
            [100] * 5 + [40] + [100] * 6,
            [2.0] * 12,
            "a stall before second 6: 40.0 answers a second, p50 2.00 ms; else 100",
        ),
        ([100] * 12, [2.0] * 3 + [300.0] + [2.0] * 8, "a stall before second 4: 100 answers a second, p50 300 ms"),
    ],
)
def test_a_stall_is_no_steady_run(rates: list[int], p50s: list[float], words: str) -> None:
    assert verdict.steady(OPEN, client(rates, p50s), "duration").startswith(words)


@pytest.mark.parametrize(
    ("load", "stage", "words"),
    [
        (OPEN, Stage(100, 100, 0.0, 8.0, 800, 800, 0, Latency(800)), ""),
        (OPEN, Stage(100, 100, 0.0, 8.0, 800, 700, 0, Latency(800)), "more was due (100/s) than was answered"),
        (CLOSED, Stage(100, 100, 0.0, 8.0, 800, 700, 0, Latency(800)), ""),
        (OPEN, Stage(100, 200, 0.0, 8.0, 800, 800, 0, Latency(800)), "not judged: the level changes"),
        (OPEN, Stage(100, 100, 0.0, 4.0, 400, 400, 0, Latency(400)), "not judged: 4 s are too short"),
        (OPEN, Stage(100, 100, 5.0, 9.0, 900, 900, 0, Latency(900)), "a stall before second 11"),
    ],
)  # fmt: skip
def test_each_step_is_judged_by_its_own_seconds(load: Load, stage: Stage, words: str) -> None:
    one = client([100] * 10 + [30] + [100] * 4, [2.0] * 15)
    found = verdict.stage_steady(load, stage, one.slices)
    assert found.startswith(words) if words else found == ""


def test_late_sends_are_the_clients_own_limit_in_the_open_loop_alone() -> None:
    one = client([100] * 12, [2.0] * 12, late=60, late_max_ms=4.5)
    assert verdict.limit(OPEN, one) == "5.0 % left more than 1 ms late (at most 4.50 ms)"
    assert verdict.limit(CLOSED, one) == ""


def test_counts_and_the_difference_of_the_means() -> None:
    one = client([100] * 12, [2.0] * 12, cpu_s=0.12)
    alone = run(CLOSED, one, Server(1200, 0, 1.4))
    assert verdict.counts(alone) == "1200 counted by Triton, 1200 answered 200 here"
    assert verdict.gap(alone).startswith("mean 2.00 = server 1.40 + 0.60 outside its times")
    assert "0.10 of CPU a request" in verdict.gap(alone)
    shared = run(CLOSED, one, Server(3600, 0, 1.4))
    assert verdict.counts(shared) == "others asked it too: 200/s, so its means are not ours alone"
    assert verdict.gap(shared) == ""
    shed = run(CLOSED, replace(one, errors={"http 503": Failed(5)}), Server(1200, 2, 1.4))
    assert verdict.counts(shed).endswith("; 3 failures are in no counter of it")
    lost = run(CLOSED, replace(one, errors={"timeout": Failed(60)}), Server(1260, 0, 1.4))
    assert verdict.gap(lost) == ""
    assert verdict.counts(lost).endswith(": 60 of our failed requests are successes to it")
    assert verdict.counts(run(CLOSED, one, None)) == verdict.gap(run(CLOSED, one, None)) == ""


@pytest.mark.parametrize(
    ("failed", "goal", "answer"), [(0, 3.0, True), (0, 1.9, False), (50, 3.0, False), (5, 3.0, True), (0, None, None)]
)
def test_the_goal_counts_failed_requests_as_slower_than_all(
    failed: int, goal: float | None, answer: bool | None
) -> None:
    one = client([1000], [2.0], errors={"timeout": Failed(failed)} if failed else {})
    assert verdict.met(one, goal) is answer


def test_the_goal_is_for_each_of_several_models() -> None:
    one = client([1000], [2.0])
    slow = Histogram()
    for _ in range(10):
        slow.record(9000)
    fast = Share(1000, 1000, 1000, one.latency, one.histogram, one.sum_us)
    rare = Share(10, 10, 10, slow.latency(), slow.encoded(), slow.sum_us)
    assert verdict.met(replace(one, shares=(fast, fast)), 3.0) is True
    assert verdict.met(replace(one, shares=(fast, rare)), 3.0) is False
