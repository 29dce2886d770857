"""Whole configurations for overrides, and version policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients.triton_config import (
    Policy,
    base,
    file_of,
    on_disk,
    override,
    parsed,
    policy_of,
    specific,
    warmup,
)
from console.core.model import SourceError


@pytest.mark.parametrize(
    ("policy", "text", "served"),
    [
        (Policy(), "latest 1", (3,)),
        (Policy("latest", 2), "latest 2", (2, 3)),
        (Policy("all"), "all", (1, 2, 3)),
        (specific((3, 1)), "specific 1 3", (1, 3)),
        (specific((9,)), "specific 9", ()),
    ],
)
def test_what_a_policy_serves(policy: Policy, text: str, served: tuple[int, ...]) -> None:
    assert (policy.text, policy.serves([3, 1, 2])) == (text, served)
    assert policy_of({"version_policy": policy.document}) == policy


@pytest.mark.parametrize(
    "odd", [None, 3, {}, {"latest": 3}, {"latest": {"num_versions": "2"}}, {"specific": {"versions": 3}}]
)
def test_odd_policies(odd: Any) -> None:
    assert policy_of({"version_policy": odd}).kind in ("latest", "specific")


def test_a_base_leaves_out_what_the_server_added() -> None:
    live = {
        "name": "m",
        "max_batch_size": 8,
        "version_policy": {"latest": {"num_versions": 1}},
        "dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 5},
        "instance_group": [{"name": "m_0", "count": 1}, {"name": "mine", "count": 1}],
        "parameters": {"token": {"string_value": "secret"}},
    }
    assert base(json.dumps(live)) == {
        "name": "m",
        "max_batch_size": 8,
        "dynamic_batching": {"max_queue_delay_microseconds": 5},
        "instance_group": [{"count": 1}, {"name": "mine", "count": 1}],
        "parameters": {"token": {"string_value": "secret"}},
    }


def test_preferred_sizes_of_ones_own_are_kept() -> None:
    live = {"max_batch_size": 8, "sequence_batching": {"oldest": {"preferred_batch_size": [4, 8]}}}
    assert base(json.dumps(live)) == live


def test_an_override_is_whole() -> None:
    text = override({"name": "m"}, specific((1, 2)), model_warmup=[])
    assert json.loads(text) == {"name": "m", "version_policy": {"specific": {"versions": [1, 2]}}, "model_warmup": []}


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 5000])
def test_what_is_no_configuration(text: str) -> None:
    with pytest.raises(SourceError):
        parsed(text, "m")


@given(st.dictionaries(st.sampled_from(["dynamic_batching", "instance_group", "max_batch_size", "x"]), st.integers()))
def test_odd_configurations_are_taken_as_they_are(config: dict[str, Any]) -> None:
    odd = {name: value for name, value in config.items() if name != "instance_group"}
    assert base(json.dumps(odd)) == odd


def test_the_file(tmp_path: Path) -> None:
    assert on_disk(str(tmp_path)) is None
    (tmp_path / "config.pbtxt").write_text('name: "m"\nversion_policy { all { } }')
    assert on_disk(str(tmp_path)) == {"name": "m", "version_policy": {"all": {}}}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "big.pbtxt").write_text("max_batch_size: 3")
    assert file_of(str(tmp_path), "big").name == "big.pbtxt"
    assert file_of(str(tmp_path), "small").name == "config.pbtxt"
    for broken in (b"max_batch_size:", b"\xff"):
        (tmp_path / "config.pbtxt").write_bytes(broken)
        with pytest.raises(SourceError):
            on_disk(str(tmp_path))


def test_a_warm_up() -> None:
    (sample,) = warmup([("a", "FP32", (4, 3)), ("s", "BYTES", (4, 1))], batched=True, name="w")
    assert sample["batch_size"] == 4
    assert sample["inputs"]["a"] == {"data_type": "TYPE_FP32", "dims": [3], "zero_data": True}
    assert sample["inputs"]["s"]["data_type"] == "TYPE_STRING"
    (plain,) = warmup([("a", "FP32", (3,))], batched=False, name="w")
    assert (plain["batch_size"], plain["inputs"]["a"]["dims"]) == (0, [3])
