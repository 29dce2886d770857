"""Triton's JSON answers, recorded from 2.51.0, and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients.triton_wire import (
    StatsDecoder,
    decode_config,
    decode_index,
    decode_metadata,
    masked,
    ready_versions,
    shown_parameter,
)
from console.core.model import BatchStat, InstanceGroup, ModelStats, QueuePolicy, SourceError
from console.core.secrets import MASK

DATA = Path(__file__).parents[1] / "data" / "triton"


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_metadata() -> None:
    metadata = decode_metadata(b'{"name":"triton","version":"2.51.0","extensions":["statistics"],"new":1}')
    assert (metadata.version, metadata.extensions) == ("2.51.0", ["statistics"])


def test_an_index_in_the_midst_of_a_swap() -> None:
    entries = decode_index(recorded("index_version_swap_loading.json"))
    by_key = {(e.name, e.version): e.state for e in entries}
    assert by_key["slow", "1"] == "READY"
    assert by_key["slow", "2"] == "LOADING"
    assert by_key["prio", None] is None
    assert [e.name for e in entries][:3] == ["cached", "cm", "dec"]


def test_an_index_with_a_reason_of_many_lines() -> None:
    (entry,) = decode_index(recorded("index_failed_load_reason.json"))
    assert entry.state == "UNAVAILABLE"
    assert entry.reason is not None
    assert entry.reason.startswith("Internal: RuntimeError: boom on purpose")
    assert "\n" in entry.reason


def test_ready_versions_are_spelled_as_the_server_does() -> None:
    body = json.dumps([{"name": "a\x1b", "version": "1", "state": "READY"}, {"name": "b"}]).encode()
    assert ready_versions(body) == [("a\x1b", "1")]
    assert decode_index(body)[0].name == r"a\x1b"


def test_a_state_of_a_newer_server_is_unknown() -> None:
    assert decode_index(b'[{"name":"x","version":"1","state":"PAUSED"}]')[0].state == "UNKNOWN"


def test_recorded_statistics() -> None:
    models = {m.name: m for m in StatsDecoder().decode(recorded("stats_all.json"))}
    cached = models["cached"]
    assert (cached.inference_count, cached.execution_count, cached.success_count) == (2, 1, 5)
    assert (cached.queue_count, cached.queue_ns) == (5, 211125)
    assert (cached.infer_count, cached.infer_ns) == (1, 363362473)
    assert (cached.cache_hit_count, cached.cache_miss_ns) == (4, 122429)
    assert cached.batches == (BatchStat(2, 1, 57708, 363362473, 491251),)
    assert cached.last_inference_ms == 1796029737002
    assert cached.memory_bytes is None
    assert models["cm"].batches == ()


def test_gpu_memory_is_added_up() -> None:
    usage = [
        {"type": "GPU", "id": 0, "byte_size": 100},
        {"type": "GPU", "id": 1, "byte_size": "11"},
        {"type": "CPU", "id": 0, "byte_size": 7},
    ]
    body = json.dumps({"model_stats": [{"name": "x", "version": "1", "memory_usage": usage}]}).encode()
    assert StatsDecoder().decode(body)[0].memory_bytes == 111


def test_models_that_did_not_change_keep_their_object() -> None:
    decoder = StatsDecoder()
    answer = json.loads(recorded("stats_all.json"))
    first = decoder.decode(json.dumps(answer).encode())
    answer["model_stats"][0]["inference_count"] += 1
    second = decoder.decode(json.dumps(answer).encode())
    assert second[0].inference_count == first[0].inference_count + 1
    assert all(a is b for a, b in zip(first[1:], second[1:], strict=True))


def test_one_impossible_figure_hides_one_model_only() -> None:
    answer = json.loads(recorded("stats_all.json"))
    answer["model_stats"][0]["inference_stats"]["queue"]["ns"] = 2**64 - 5
    decoder = StatsDecoder()
    models = decoder.decode(json.dumps(answer).encode())
    assert len(models) == len(answer["model_stats"]) - 1
    assert decoder.refused == 1
    assert decoder.decode(json.dumps(answer).encode()) == models
    only = {"model_stats": answer["model_stats"][:1]}
    with pytest.raises(SourceError, match="statistics"):
        StatsDecoder().decode(json.dumps(only).encode())


def test_a_server_without_models() -> None:
    assert StatsDecoder().decode(b'{"model_stats":[]}') == []


def test_a_recorded_configuration() -> None:
    config = decode_config(recorded("config_cached.json"), "cached", "1")
    assert (config.name, config.version, config.backend) == ("cached", "1", "python")
    assert config.max_batch_size == 4
    assert config.dynamic_batching
    assert config.preferred == (4,)
    assert config.response_cache
    assert config.version_policy == "latest 1"
    assert config.instance_groups == (InstanceGroup("KIND_CPU", 1, ()),)
    assert config.instances == 1
    assert [(t.name, t.datatype, t.shape) for t in config.inputs] == [("input", "FP32", (4,))]
    assert not config.decoupled
    assert config.queue == QueuePolicy()
    assert json.loads(config.raw) == json.loads(recorded("config_cached.json"))


def test_an_ensemble_has_steps_and_no_instances() -> None:
    config = decode_config(recorded("config_ens.json"), "ens", "1")
    assert [(s.model, s.version) for s in config.steps] == [("slow", "-1")]
    assert config.instances is None
    assert not config.dynamic_batching


def test_a_decoupled_model() -> None:
    assert decode_config(recorded("config_dec.json"), "dec", "1").decoupled


def test_a_configuration_with_all_that_is_read() -> None:
    config = decode_config(
        json.dumps(
            {
                "name": "x",
                "backend": "onnxruntime",
                "max_batch_size": 8,
                "version_policy": {"specific": {"versions": [3, "1"]}},
                "input": [
                    {"name": "a", "data_type": "TYPE_STRING", "dims": ["-1", 2]},
                    {"name": "b", "data_type": "TYPE_INT64", "dims": [1], "optional": True},
                ],
                "dynamic_batching": {
                    "preferred_batch_size": [2, 4],
                    "max_queue_delay_microseconds": "500",
                    "preserve_ordering": True,
                    "priority_levels": 2,
                    "default_queue_policy": {
                        "timeout_action": "DELAY",
                        "default_timeout_microseconds": 1000,
                        "max_queue_size": 64,
                    },
                },
                "instance_group": [
                    {"kind": "KIND_GPU", "count": 2, "gpus": [0, 1], "rate_limiter": {"priority": 1}},
                    {"kind": "KIND_CPU", "count": 1},
                ],
                "model_warmup": [{"name": "w"}],
                "parameters": {
                    "hf_token": {"string_value": "s3cret"},
                    "tokenizer_dir": {"string_value": "/models/x"},
                },
            }
        ).encode(),
        "x",
        "3",
    )
    assert config.version_policy == "specific 3 1"
    assert config.inputs[0].datatype == "BYTES"
    assert config.inputs[0].shape == (-1, 2)
    assert config.inputs[1].optional
    assert config.delay_us == 500
    assert config.preferred == (2, 4)
    assert config.preserve_ordering
    assert config.priority_levels == 2
    assert config.queue == QueuePolicy(64, 1000, "DELAY")
    assert config.instances == 5
    assert config.rate_limited
    assert config.warmup_samples == 1
    assert "s3cret" not in config.raw
    assert json.loads(config.raw)["parameters"]["hf_token"] == {"string_value": MASK}
    assert json.loads(config.raw)["parameters"]["tokenizer_dir"] == {"string_value": "/models/x"}


@pytest.mark.parametrize(
    ("policy", "text"),
    [({"all": {}}, "all"), ({"latest": {}}, "latest 1"), ({"latest": {"num_versions": 2}}, "latest 2"), ({}, "")],
)
def test_version_policies(policy: dict[str, Any], text: str) -> None:
    assert decode_config(json.dumps({"version_policy": policy}).encode(), "x", "1").version_policy == text


def test_sequence_batching() -> None:
    config = decode_config(b'{"sequence_batching":{"direct":{}}}', "x", "1")
    assert config.sequence_batching
    assert config.version_policy == ""


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "s3cret", MASK),
        ("dbPassword", "1", MASK),
        ("tokenizer_dir", "/models/x", "/models/x"),
        ("max_tokens_in_paged_kv_cache", "4096", "4096"),
        ("tokens", "hf_abcdef", MASK),
        ("endpoint", "http://me:pw@host/x", f"http://me:{MASK}@host/x"),
        ("gpu_mib", "1460", "1460"),
    ],
)
def test_parameters_as_they_may_be_shown(name: str, value: str, shown: str) -> None:
    assert shown_parameter(name, value) == shown
    assert masked({"parameters": {name: {"string_value": value}}}) == {"parameters": {name: {"string_value": shown}}}


def test_masking_parameters_of_odd_shapes() -> None:
    assert masked({"parameters": None}) == {"parameters": None}
    odd = {"parameters": {"token": ["s3cret"], "size": 3}}
    assert masked(odd) == {"parameters": {"token": MASK, "size": 3}}


decoders = st.sampled_from(
    [
        decode_metadata,
        decode_index,
        ready_versions,
        lambda body: StatsDecoder().decode(body),
        lambda body: decode_config(body, "x", "1"),
    ]
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["name", "version", "state", "model_stats", "batch_stats", "input", "parameters", "dims", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(decoders, st.binary(max_size=80) | jsons.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=400, deadline=None)
def test_anything_is_an_answer_or_a_source_error(decoder: Any, body: bytes) -> None:
    kind = "protocol"
    try:
        decoder(body)
    except SourceError as error:
        kind = error.kind
    assert kind == "protocol"


def test_invalid_utf8_and_deep_nesting() -> None:
    for body in (b'[{"name":"\xff\xfe"}]', b"[" * 100_000, b""):
        with pytest.raises(SourceError):
            decode_index(body)
        with pytest.raises(SourceError):
            decode_config(body, "x", "1")


counts = st.integers(0, 2**50)


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(counts, min_size=21, max_size=21)), max_size=4))
@settings(max_examples=60, deadline=None)
def test_statistics_come_through_unchanged(models: list[tuple[str, list[int]]]) -> None:
    names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
    answer = {
        "model_stats": [
            {
                "name": name,
                "version": "1",
                "last_inference": n[0],
                "inference_count": n[1],
                "execution_count": n[2],
                "inference_stats": {key: {"count": n[3 + 2 * at], "ns": n[4 + 2 * at]} for at, key in enumerate(names)},
                "batch_stats": [{"batch_size": n[19], "compute_infer": {"count": n[20], "ns": n[3]}}],
            }
            for name, n in models
        ]
    }
    decoded = StatsDecoder().decode(json.dumps(answer).encode())
    assert len(decoded) == len(models)
    for model, (_, n) in zip(decoded, models, strict=True):
        plain = list(msgspec.structs.astuple(model))[2:21]
        assert plain == n[:19]
        assert model.batches == (BatchStat(n[19], n[20], 0, n[3], 0),)
        assert isinstance(model, ModelStats)


def test_a_configuration_is_the_same_in_whatever_order_its_maps_come() -> None:
    """Seen on 2.51.0: after a restart the parameters stand in another order."""
    one = b'{"name":"a","parameters":{"x":{"string_value":"1"},"y":{"string_value":"2"}}}'
    other = b'{"parameters":{"y":{"string_value":"2"},"x":{"string_value":"1"}},"name":"a"}'
    assert decode_config(one, "a", "1") == decode_config(other, "a", "1")
