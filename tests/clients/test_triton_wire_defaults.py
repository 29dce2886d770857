"""What Triton leaves out of an answer is its default, and each figure goes where it belongs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.clients.triton_wire import StatsDecoder, decode_config, decode_index, masked, ready_versions
from console.core.model import (
    BatchStat,
    EnsembleStep,
    IndexEntry,
    InstanceGroup,
    ModelConfig,
    ModelStats,
    QueuePolicy,
    SourceError,
    TensorSpec,
)


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def config(**fields: Any) -> ModelConfig:
    return decode_config(body({"name": "m", **fields}), "m", "1")


def test_an_empty_configuration() -> None:
    assert decode_config(b"{}", "asked", "3") == ModelConfig("asked", "3", raw="{}")


def test_every_setting() -> None:
    found = config(
        backend="python",
        platform="p",
        max_batch_size=8,
        version_policy={"specific": {"versions": [1, 3]}},
        dynamic_batching={
            "preferred_batch_size": [4, 8],
            "max_queue_delay_microseconds": 500,
            "preserve_ordering": True,
            "priority_levels": 2,
            "default_queue_policy": {
                "timeout_action": "DELAY",
                "default_timeout_microseconds": 900,
                "max_queue_size": 64,
            },
        },
        sequence_batching={},
        model_transaction_policy={"decoupled": True},
        response_cache={"enable": True},
        model_warmup=[{}, {}],
        instance_group=[{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1], "rate_limiter": {"resources": []}}],
        input=[{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4], "optional": True}],
        output=[{"name": "y", "data_type": "TYPE_STRING", "dims": [1]}],
    )
    assert (found.backend, found.platform, found.max_batch_size, found.version_policy) == (
        "python", "p", 8, "specific 1 3",
    )  # fmt: skip
    assert (found.dynamic_batching, found.delay_us, found.preferred) == (True, 500, (4, 8))
    assert found.queue == QueuePolicy(64, 900, "DELAY")
    assert (found.priority_levels, found.preserve_ordering, found.sequence_batching) == (2, True, True)
    assert (found.decoupled, found.response_cache, found.warmup_samples, found.rate_limited) == (True, True, 2, True)
    assert found.instance_groups == (InstanceGroup("KIND_GPU", 2, (0, 1)),)
    assert found.inputs == (TensorSpec("x", "FP32", (-1, 4), True),)
    assert found.outputs == (TensorSpec("y", "BYTES", (1,), False),)


def test_each_default_within_a_block() -> None:
    found = config(
        dynamic_batching={"default_queue_policy": {}},
        instance_group=[{}],
        ensemble_scheduling={"step": [{}, {"model_name": "a", "model_version": 2}]},
        input=[{}],
        response_cache={},
        model_transaction_policy={},
    )
    assert found.dynamic_batching
    assert (found.delay_us, found.preferred, found.queue) == (0, (), QueuePolicy(0, 0, "REJECT"))
    assert (found.priority_levels, found.preserve_ordering) == (0, False)
    assert found.instance_groups == (InstanceGroup("KIND_AUTO", 1, ()),)
    assert found.steps == (EnsembleStep("", "-1"), EnsembleStep("a", "2"))
    assert found.inputs == (TensorSpec("", "", (), False),)
    assert (found.response_cache, found.decoupled, found.rate_limited, found.sequence_batching) == (False,) * 4


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (None, ""),
        ({}, ""),
        ({"latest": {}}, "latest 1"),
        ({"latest": {"num_versions": 0}}, "latest 1"),
        ({"latest": {"num_versions": 3}}, "latest 3"),
        ({"all": {}}, "all"),
        ({"specific": {}}, "specific"),
    ],
)
def test_version_policies(policy: Any, words: str) -> None:
    assert config(version_policy=policy).version_policy == words


def test_index_lines() -> None:
    lines = body(
        [
            {"name": "a", "version": "1", "state": "READY", "reason": " x "},
            {"name": "b", "state": "READY"},
            {"name": "c", "version": "2", "state": "NEW_STATE"},
            {"name": "d", "version": "3", "state": "LOADING"},
        ]
    )
    assert decode_index(lines) == [
        IndexEntry("a", "1", "READY", "x"),
        IndexEntry("b", None, "READY"),
        IndexEntry("c", "2", "UNKNOWN"),
        IndexEntry("d", "3", "LOADING"),
    ]
    assert ready_versions(lines) == [("a", "1")]


def duration(number: int) -> dict[str, int]:
    return {"count": number, "ns": number * 10}


FULL = {
    "name": "m",
    "version": "2",
    "last_inference": 5,
    "inference_count": 6,
    "execution_count": 7,
    "inference_stats": {
        "success": duration(1), "fail": duration(2), "queue": duration(3), "compute_input": duration(4),
        "compute_infer": duration(5), "compute_output": duration(6), "cache_hit": duration(7),
        "cache_miss": duration(8),
    },
    "batch_stats": [
        {
            "batch_size": 4, "compute_input": duration(1), "compute_infer": duration(2), "compute_output": duration(3),
        },
        {"batch_size": 1},
    ],
    "memory_usage": [
        {"type": "GPU", "byte_size": 5}, {"type": "gpu_pinned", "byte_size": 7}, {"type": "CPU", "byte_size": 9},
        {"type": "GPU"},
    ],
}  # fmt: skip


def decode(*models: Any) -> list[ModelStats]:
    return StatsDecoder().decode(body({"model_stats": list(models)}))


def test_every_counter_goes_where_it_belongs() -> None:
    assert decode(FULL) == [
        ModelStats(
            "m", "2", last_inference_ms=5, inference_count=6, execution_count=7,
            success_count=1, success_ns=10, fail_count=2, fail_ns=20, queue_count=3, queue_ns=30,
            input_count=4, input_ns=40, infer_count=5, infer_ns=50, output_count=6, output_ns=60,
            cache_hit_count=7, cache_hit_ns=70, cache_miss_count=8, cache_miss_ns=80,
            batches=(BatchStat(4, 2, 10, 20, 30), BatchStat(1, 0, 0, 0, 0)), memory_bytes=12,
        )
    ]  # fmt: skip


def test_a_model_without_figures_has_zeros_and_unknown_memory() -> None:
    assert decode({"name": "m"}) == [ModelStats("m", "")]
    assert decode({"name": "m", "memory_usage": [{"byte_size": 5}]})[0].memory_bytes is None
    assert decode({"name": "m", "memory_usage": [{"type": "GPU"}]})[0].memory_bytes == 0


def test_models_that_cannot_be_are_counted_and_left_out() -> None:
    decoder = StatsDecoder()
    assert decoder.refused == 0
    bad = {"name": "b", "inference_count": -1}
    assert [model.name for model in decoder.decode(body({"model_stats": [FULL, bad]}))] == ["m"]
    assert decoder.refused == 1
    decoder.decode(body({"model_stats": [FULL]}))
    assert decoder.refused == 0
    with pytest.raises(SourceError) as caught:
        decoder.decode(body({"model_stats": [bad]}))
    assert caught.value.kind == "protocol"
    assert decoder.decode(body({"model_stats": []})) == []


def test_unchanged_models_keep_their_object_by_their_place() -> None:
    decoder = StatsDecoder()
    other = {**FULL, "version": "3"}
    first = decoder.decode(body({"model_stats": [FULL, other]}))
    again = decoder.decode(body({"model_stats": [FULL, {**other, "inference_count": 9}]}))
    assert again[0] is first[0]
    assert again[1] is not first[1]
    assert again[1].inference_count == 9
    moved = decoder.decode(body({"model_stats": [other]}))
    assert (len(moved), moved[0].version) == (1, "3")


def test_parameters_are_masked_wherever_they_hold_a_secret() -> None:
    assert masked({"parameters": {"key": {"string_value": "x"}, "plain": {"string_value": "y"}, "secret": 5}}) == {
        "parameters": {"key": {"string_value": "***"}, "plain": {"string_value": "y"}, "secret": "***"}
    }
    assert masked({"parameters": {"max_tokens": {"string_value": "123456789"}}})["parameters"] == {
        "max_tokens": {"string_value": "123456789"}
    }
    assert masked({"parameters": {"max_tokens": {"string_value": "1234567890"}}})["parameters"] == {
        "max_tokens": {"string_value": "***"}
    }
    assert masked({"parameters": [1]}) == {"parameters": [1]}
    assert masked({"parameters": {"plain": {"string_value": 5}}}) == {"parameters": {"plain": {"string_value": 5}}}
