"""What is taken from statistics and configuration, and what is said to be missing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.core.model import BatchStat, EnsembleStep, InstanceGroup, ModelConfig, ModelStats, QueuePolicy, TensorSpec
from console.planning.observed import observe, scheduling, together
from console.planning.service import Seen

CONFIG = ModelConfig(
    "rank", "1", backend="python", max_batch_size=8, dynamic_batching=True, delay_us=500, preferred=(8,),
    instance_groups=(InstanceGroup("KIND_GPU", 2, (0,)),), queue=QueuePolicy(16, 200),
)  # fmt: skip


def stats(requests: int, **changes: Any) -> ModelStats:
    """Of so many requests: a third of the runs alone, else in pairs."""
    runs = requests * 3 // 5
    made = ModelStats(
        "rank", "1", inference_count=requests, execution_count=runs, success_count=requests,
        success_ns=requests * 8_000_000, queue_count=requests, queue_ns=requests * 2_000_000,
        input_count=requests, infer_count=requests, infer_ns=requests * 6_000_000, output_count=requests,
        batches=(BatchStat(1, runs // 3, 0, runs // 3 * 5_000_000, 0),
                 BatchStat(2, 2 * runs // 3, 0, 2 * runs // 3 * 6_000_000, 0)),
    )  # fmt: skip
    return replace(made, **changes)


def test_a_window_of_statistics() -> None:
    found = observe(stats(1000), stats(4000), CONFIG, 30.0, [100] * 30)
    assert found.rate == pytest.approx(100)
    assert found.requests == 3000
    assert [(one.size, one.runs, one.ms, one.instances) for one in found.service] == [(1, 600, 5, 2), (2, 1200, 6, 2)]
    assert found.wait_ms == pytest.approx(2)
    assert found.busy == pytest.approx((600 * 5 + 1200 * 6) / 30_000 / 2)
    assert found.dispersion == 0
    assert found.missing == ()


def test_one_look_gives_service_times_and_no_rate() -> None:
    found = observe(None, stats(3000), CONFIG)
    assert found.rate is None
    assert found.seconds is None
    assert found.busy is None
    assert len(found.service) == 2
    assert any("one look" in text for text in found.missing)


def test_counters_that_began_anew_give_no_rate() -> None:
    found = observe(stats(4000), stats(300), CONFIG, 30.0)
    assert found.rate is None
    assert found.requests == 300
    assert any("loaded anew" in text for text in found.missing)


def test_bursts_are_told_from_counts_and_only_from_enough() -> None:
    assert observe(stats(1000), stats(4000), CONFIG, 30.0, [0, 200] * 15).dispersion == pytest.approx(103, abs=1)
    few = observe(stats(1000), stats(4000), CONFIG, 30.0, [0, 200])
    assert few.dispersion is None
    assert any("Poisson" in text for text in few.missing)


def test_the_preferred_size_that_the_server_adds_is_none() -> None:
    assert scheduling(CONFIG).preferred_batch_sizes == ()
    assert scheduling(replace(CONFIG, preferred=(4, 8))).preferred_batch_sizes == (4, 8)
    assert scheduling(CONFIG).max_queue_size == 16
    assert scheduling(CONFIG).queue_timeout_us == 200
    assert scheduling(CONFIG).instances == 2


def test_requests_of_several_items() -> None:
    found = observe(stats(0), stats(3000, inference_count=12_000), CONFIG, 30.0)
    assert found.items == pytest.approx(4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": (EnsembleStep("a", "1"),)}, "ensemble"),
        ({"backend": "vllm"}, "batches by itself"),
        ({"sequence_batching": True}, "sequences"),
        ({"decoupled": True}, "decoupled"),
    ],
)
def test_models_for_which_the_batcher_says_nothing(change: dict[str, Any], words: str) -> None:
    assert words in observe(stats(0), stats(3000), replace(CONFIG, **change), 30.0).unfit


def test_what_the_model_leaves_out_is_said() -> None:
    config = replace(CONFIG, priority_levels=2, rate_limited=True)
    found = observe(stats(0), stats(3000, fail_count=100, cache_hit_count=5), config, 30.0)
    assert [text.split()[0] for text in found.caveats] == ["priorities", "the", "answers", "more"]


def test_service_times_of_several_looks() -> None:
    now = observe(stats(1000), stats(4000), CONFIG, 30.0)
    before = replace(now, service=(Seen(1, 50, 9.0, 2), Seen(4, 7, 7.5, 2), Seen(1, 800, 4.0, 1)), rate=None)
    both = together(now, before)
    assert [(one.instances, one.size, one.runs) for one in both.service] == [(1, 1, 800), (2, 1, 600), (2, 2, 1200),
                                                                              (2, 4, 7)]  # fmt: skip
    assert both.rate == now.rate


def test_inputs_of_no_fixed_shape() -> None:
    fixed = replace(CONFIG, inputs=(TensorSpec("A", "FP32", (4,)),))
    assert not observe(stats(0), stats(3000), fixed, 30.0).variable
    loose = replace(CONFIG, inputs=(TensorSpec("A", "FP32", (4,)), TensorSpec("B", "BYTES", (-1,))))
    assert observe(stats(0), stats(3000), loose, 30.0).variable


def test_nothing_ran() -> None:
    found = observe(stats(1000), stats(1000), CONFIG, 30.0)
    assert found.service == ()
    assert found.rate == 0
    assert any("nothing ran" in text for text in found.missing)
