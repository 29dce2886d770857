"""config.pbtxt parsed, and compared with what Triton 2.51.0 serves for it (recorded pairs)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients import pbtxt
from console.clients.pbtxt import PbtxtError, differences, flat, parse, served
from console.core.model import ConfigDifference, SourceError
from console.core.text import one_line

DATA = Path(__file__).parents[1] / "data" / "triton"

RANK = """
name: "rank"
backend: "python"
max_batch_size: 16
input [ { name: "input", dims: [256], data_type: TYPE_FP32 } ]
output [ { name: "output", dims: [1], data_type: TYPE_FP32 } ]
dynamic_batching { max_queue_delay_microseconds: 1000 }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def on_disk(name: str) -> Any:
    path = DATA / "models" / name / "config.pbtxt"
    return parse(path.read_text() if path.exists() else "").message


def live(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((DATA / f"config_{name}.json").read_text())
    return config


def compare(text: str, config: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = differences(parse(text).message, served(json.dumps(config)))
    return {d.path: (d.live, d.disk) for d in found}


@pytest.mark.parametrize("name", ["rank", "cached", "dec", "ens", "nocfg"])
def test_what_was_served_unchanged_differs_in_nothing(name: str) -> None:
    assert differences(on_disk(name), served(json.dumps(live(name)))) == ()


def test_a_live_delay_is_one_difference() -> None:
    config = live("rank")
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 2000
    assert compare(RANK, config) == {"dynamic_batching.max_queue_delay_microseconds": ("2000", "1000")}


def test_fields_on_one_side_only() -> None:
    config = live("rank")
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    config["response_cache"] = {"enable": True}
    assert compare(RANK, config) == {
        "dynamic_batching.max_queue_delay_microseconds": ("–", "1000"),
        "response_cache.enable": ("true", "–"),
    }


def test_batching_switched_off_or_on() -> None:
    config = live("rank")
    del config["dynamic_batching"]
    assert compare(RANK.replace("max_queue_delay_microseconds: 1000", ""), config) == {"dynamic_batching": ("–", "on")}
    bare = "\n".join(line for line in RANK.splitlines() if "dynamic" not in line)
    config = live("rank")
    assert compare(bare, config)["dynamic_batching"] == ("on", "–")


def test_preferred_sizes_that_are_not_the_servers_own_count() -> None:
    config = live("rank")
    config["dynamic_batching"]["preferred_batch_size"] = [4]
    assert compare(RANK, config) == {"dynamic_batching.preferred_batch_size": ("[4]", "–")}


def test_a_preferred_size_written_down_is_compared() -> None:
    text = RANK.replace("dynamic_batching {", "dynamic_batching { preferred_batch_size: [16]")
    assert compare(text, live("rank")) == {}
    assert compare(text.replace("[16]", "[8]"), live("rank")) == {
        "dynamic_batching.preferred_batch_size": ("[16]", "[8]")
    }


@pytest.mark.parametrize(
    ("group", "now", "found"),
    [
        ("", {"count": 1, "kind": "KIND_GPU", "gpus": [0], "name": "rank"}, {}),
        ("", {"count": 3, "kind": "KIND_GPU", "gpus": [0], "name": "rank"}, {"instance_group[0].count": ("3", "–")}),
        ("instance_group { }", {"count": 1, "kind": "KIND_GPU", "gpus": [0, 1], "name": "rank_0"}, {}),
        ("instance_group { count: 2 }", {"count": 2, "kind": "KIND_CPU", "name": "rank_0"}, {}),
        (
            "instance_group { count: 2 }",
            {"count": 1, "kind": "KIND_CPU", "name": "rank_0"},
            {"instance_group[0].count": ("1", "2")},
        ),
        (
            "instance_group { count: 1 kind: KIND_GPU gpus: [0] }",
            {"count": 1, "kind": "KIND_GPU", "gpus": [1], "name": "rank_0"},
            {"instance_group[0].gpus": ("[1]", "[0]")},
        ),
        (
            "instance_group { count: 1 kind: KIND_GPU }",
            {"count": 1, "kind": "KIND_CPU", "name": "rank_0"},
            {"instance_group[0].kind": ("KIND_CPU", "KIND_GPU")},
        ),
    ],
)
def test_instance_groups(group: str, now: dict[str, Any], found: dict[str, tuple[str, str]]) -> None:
    text = RANK.replace("instance_group [ { count: 1 kind: KIND_CPU } ]", group)
    config = live("rank") | {"instance_group": [now]}
    got = compare(text, config)
    if found and "instance_group[0].count" in found and not group:
        assert got["instance_group[0].count"] == found["instance_group[0].count"]
    else:
        assert got == found


def test_onnx_makes_two_instances_on_the_cpu_by_itself() -> None:
    text = RANK.replace("instance_group [ { count: 1 kind: KIND_CPU } ]", "").replace("python", "onnxruntime")
    config = live("rank") | {"backend": "onnxruntime", "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    assert compare(text, config) == {}


def test_a_second_group_counts() -> None:
    config = live("rank")
    config["instance_group"].append({"count": 1, "kind": "KIND_CPU", "name": "more"})
    assert "instance_group[1].count" in compare(RANK, config)


def test_version_policies() -> None:
    config = live("rank") | {"version_policy": {"specific": {"versions": [1, 2]}}}
    assert compare(RANK, config) == {"version_policy.specific.versions": ("[1, 2]", "–")}
    assert compare(RANK + "version_policy { latest { num_versions: 2 } }", live("rank")) == {
        "version_policy.latest.num_versions": ("1", "2")
    }


def test_sequence_defaults_are_the_servers_own() -> None:
    text = 'name: "s" max_batch_size: 4 input { name: "a" } sequence_batching { oldest { } }'
    config = {
        "name": "s",
        "max_batch_size": 4,
        "input": [{"name": "a"}],
        "sequence_batching": {"max_sequence_idle_microseconds": 1000000, "oldest": {"preferred_batch_size": [4]}},
    }
    assert compare(text, config) == {}
    config["sequence_batching"] = {"max_sequence_idle_microseconds": 5000000, "oldest": {}}
    assert list(compare(text, config)) == ["sequence_batching.max_sequence_idle_microseconds"]


def test_what_the_server_completes_is_no_difference_but_a_stated_field_is() -> None:
    config = live("nocfg")
    assert compare("", config) == {}
    assert compare("max_batch_size: 2", config)["max_batch_size"] == (str(config["max_batch_size"]), "2")


def test_secrets_are_neither_shown_nor_compared() -> None:
    text = RANK + 'parameters { key: "hf_token" value { string_value: "abc" } }'
    config = live("rank") | {"parameters": {"hf_token": {"string_value": "***"}}}
    assert compare(text, config) == {}
    assert "abc" not in str(flat(parse(text).message))
    config["parameters"]["size"] = {"string_value": "9"}
    assert compare(text, config) == {"parameters[size].string_value": ("9", "–")}


def test_maps_with_numbers_and_inputs_by_name() -> None:
    values = flat(on_disk("prio"))
    assert values["dynamic_batching.priority_queue_policy[1].timeout_action"] == "DELAY"
    assert values["input[input].dims"] == "[4]"
    assert values["dynamic_batching.default_queue_policy.allow_timeout_override"] == "true"


def test_a_field_newer_than_the_server_schema_is_left_out_of_the_served_one() -> None:
    assert compare(RANK, live("rank") | {"brand_new": {"a": 1}}) == {}


@pytest.mark.parametrize("raw", ["1", "nonsense", '{"max_batch_size":"x"}', '{"input":3}', '{"name":"\\ud800"}'])
def test_served_configurations_that_are_none(raw: str) -> None:
    with pytest.raises(SourceError, match="served configuration"):
        served(raw)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "broken"\nmax_batch_size: ', "2:17: '': Couldn't parse integer"),
        ("max_batch_size: 1 max_batch_size: 2", '1:35: .*multiple "max_batch_size"'),
        ("dynamic_batching {} sequence_batching {}", "1:21: .*oneof"),
        ('name: "x', "1:7: "),
        ("\x00", "1:1: "),
        ("input {", "1:"),
        ('foo: 3\nmax_batch_size: "x"', "1:1: .*foo"),
    ],
)
def test_errors_name_line_and_column(text: str, message: str) -> None:
    with pytest.raises(PbtxtError, match=f"^{message}"):
        parse(text)


def test_an_unknown_field_is_named_and_the_rest_is_read() -> None:
    parsed = parse('name: "x"\nmax_batchsize: 3\nbackend: "python"')
    assert parsed.unknown is not None
    assert parsed.unknown.startswith("2:1: ")
    assert "max_batchsize" in parsed.unknown
    assert parsed.message.backend == "python"


def test_comments_and_separators_of_the_text_format() -> None:
    message = parse('# c\nname: "a" "b";\ninput <name: \'i\', dims: [1, -1]> # end').message
    assert flat(message) == {"name": "ab", "input[i].name": "i", "input[i].dims": "[1, -1]"}


def test_a_schema_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for found in (None, SimpleNamespace(submodule_search_locations=[str(tmp_path)])):
        pbtxt._schema.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", lambda _, found=found: found)
            with pytest.raises(SourceError, match="not installed"):
                parse("")
    (tmp_path / "grpc").mkdir()
    (tmp_path / "grpc" / "model_config_pb2.py").write_text("raise TypeError('Descriptors cannot be created')")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: found)
        with pytest.raises(SourceError, match="cannot be loaded"):
            parse("")
    pbtxt._schema.cache_clear()


@given(st.text(max_size=60) | st.text('name:{}[]"\\<>#, 123\n', max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    refused = None
    try:
        flat(parse(text).message)
    except PbtxtError as error:
        refused = str(error)
    assert refused is None or refused == one_line(refused)


sizes = st.integers(0, 2**31 - 1)


@given(sizes, st.lists(sizes, max_size=3), st.integers(0, 2**63 - 1), st.booleans(), st.text(max_size=8))
@settings(max_examples=60, deadline=None)
def test_text_and_json_of_one_configuration_agree(
    batch: int, preferred: list[int], delay: int, ordered: bool, parameter: str
) -> None:
    config = {
        "name": "x",
        "backend": "python",
        "max_batch_size": batch,
        "input": [{"name": "a", "data_type": "TYPE_FP32", "dims": [1]}],
        "dynamic_batching": {
            "preferred_batch_size": preferred,
            "max_queue_delay_microseconds": delay,
            "preserve_ordering": ordered,
        },
        "parameters": {"p": {"string_value": parameter}},
    }
    message = served(json.dumps(config))
    text = text_format.MessageToString(message)
    assert differences(parse(text).message, message) == ()
    config["max_batch_size"] = batch ^ 1
    found = differences(parse(text).message, served(json.dumps(config)))
    assert (
        ConfigDifference("max_batch_size", str(batch ^ 1) if batch ^ 1 else "–", str(batch) if batch else "–") in found
    )
