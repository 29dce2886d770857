"""A change of batching: its values, the server's rules, in place or reload, and the override."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.planning import batching_change as change
from console.planning.batching_change import Batching, Group, Served

DATA = Path(__file__).parents[1] / "data" / "triton"
ON = Batching(dynamic_batching=True, delay_us=1000, max_batch_size=16, instances=(Group("KIND_CPU", 1),))
RANK = Served("rank", "python", server=(2, 51), has_cache=False)


def live(name: str = "rank") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"config_{name}.json").read_text())
    return found


def test_a_served_configuration_is_read() -> None:
    assert change.read(change.plain(live(), None).document) == ON
    assert change.read(live("ens")).dynamic_batching is False
    assert change.read(live("cached")).response_cache is True
    assert change.read({}) == Batching()


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"delay_us": " 500 "}, replace(ON, delay_us=500)),
        ({"dynamic_batching": "off"}, Batching(max_batch_size=16, instances=ON.instances)),
        ({"preferred": "[8, 4,4]"}, replace(ON, preferred=(4, 8))),
        ({"preferred": ""}, ON),
        ({"timeout_action": "delay"}, replace(ON, timeout_action="DELAY")),
        ({"response_cache": "yes"}, replace(ON, response_cache=True)),
        ({"instances": "3"}, replace(ON, instances=(Group("KIND_CPU", 3),))),
        (
            {"instances": "cpu=2, gpu0+1=1"},
            replace(ON, instances=(Group("KIND_CPU", 2), Group("KIND_GPU", 1, (0, 1)))),
        ),
        ({"instances": "cpu=0,gpu=1"}, replace(ON, instances=(Group("KIND_GPU", 1),))),
    ],
)
def test_values_are_read(values: dict[str, str], wanted: Batching) -> None:
    assert change.wanted(ON, values) == wanted


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"delay_us": "-1"}, "whole number from 0"),
        ({"delay_us": "1e3"}, "whole number"),
        ({"delay_us": "99999999999999"}, "whole number from 0 to 3600000000 µs"),
        ({"max_batch_size": ""}, "whole number"),
        ({"preferred": "4,x"}, "sizes above 0"),
        ({"preferred": "0"}, "sizes above 0"),
        ({"dynamic_batching": "maybe"}, "on or off"),
        ({"timeout_action": "WAIT"}, "one of REJECT, DELAY"),
        ({"instances": "cpu=x"}, "group=number"),
        ({"instances": "tpu=2"}, "group=number"),
        ({"instances": "2000"}, "up to 1000"),
        ({"instances": "cpu=0"}, "must leave one"),
        ({"dynamic_batching": "off", "delay_us": "5"}, "means nothing with dynamic_batching=off"),
        ({"nosuch": "1"}, "no batching field"),
    ],
)
def test_wrong_values_are_one_sentence(values: dict[str, str], words: str) -> None:
    with pytest.raises(WrongInput, match=words.replace("(", r"\(")) as error:
        change.wanted(ON, values)
    assert "\n" not in str(error.value)


def test_a_field_of_the_batcher_needs_the_batcher() -> None:
    off = Batching(max_batch_size=8)
    with pytest.raises(WrongInput, match="give dynamic_batching=on"):
        change.wanted(off, {"delay_us": "100"})
    assert change.wanted(off, {"delay_us": "100", "dynamic_batching": "on"}).delay_us == 100
    assert change.wanted(off, {"delay_us": "0"}) == off


def test_two_groups_want_their_names() -> None:
    two = replace(ON, instances=(Group("KIND_CPU", 1), Group("KIND_CPU", 2), Group("KIND_GPU", 1, (0,))))
    assert change.shown("instances", two) == "cpu=1,cpu#2=2,gpu0=1"
    with pytest.raises(WrongInput, match="cpu#2"):
        change.wanted(two, {"instances": "2"})
    assert [g.count for g in change.wanted(two, {"instances": "cpu#2=5"}).instances] == [1, 5, 1]
    assert two.total_instances == 4
    assert Group("KIND_GPU", 2, (0, 1)).total == 4


@pytest.mark.parametrize("name", change.PRESETS)
def test_presets_are_good_values(name: str) -> None:
    change.wanted(ON, change.PRESETS[name])
    change.wanted(Batching(max_batch_size=8), change.PRESETS[name])


@given(st.dictionaries(st.sampled_from(change.NAMES), st.text(max_size=12), max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_value_or_one_sentence(values: dict[str, str]) -> None:
    try:
        found = change.wanted(ON, values)
    except WrongInput as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    assert found.instances


@given(st.sampled_from(change.NAMES), st.integers(0, 64), st.booleans())
def test_what_is_shown_can_be_typed(name: str, number: int, flag: bool) -> None:
    told = replace(ON, delay_us=number, preserve_ordering=flag, max_queue_size=number + 1, preferred=(number + 1,))
    text = change.shown(name, told)
    if text != "–":
        assert getattr(change.wanted(ON, {name: text}), name) == getattr(told, name)


# --------------------------------------------------------------------------------------------------------------- rules


def test_only_instances_are_in_place_and_on_old_servers_nothing_is() -> None:
    assert [name for name in change.NAMES if change.how(name, RANK) == "in place"] == ["instances"]
    assert change.how("instances", replace(RANK, server=(2, 33))) == "reload"
    assert change.is_in_place(["instances"], RANK, policy_changes=True)
    assert not change.is_in_place(["instances"], replace(RANK, server=(2, 48)), policy_changes=True)
    assert change.is_in_place(["instances"], replace(RANK, server=(2, 48)), policy_changes=False)
    assert not change.is_in_place(["instances", "delay_us"], RANK, policy_changes=False)
    assert not change.is_in_place([], RANK, policy_changes=False)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (replace(ON, preferred=(4, 32)), "32 is above max_batch_size 16"),
        (replace(ON, preferred=(1,), max_batch_size=0), "above max_batch_size 0"),
        (replace(ON, priority_levels=3), "must be 1 to 3"),
        (replace(ON, priority_levels=3, default_priority=4), "must be 1 to 3"),
        (replace(ON, default_priority=1), "needs priority_levels"),
        (replace(ON, priority_levels=2, default_priority=1, preserve_ordering=True), "one priority only"),
        (replace(ON, preserve_ordering=True, timeout_us=5, timeout_action="DELAY"), "does not go with"),
    ],
)
def test_the_servers_own_rules(new: Batching, words: str) -> None:
    assert words in " ".join(one.text for one in change.problems(RANK, new))


def test_what_the_rules_allow() -> None:
    assert change.problems(RANK, replace(ON, priority_levels=2, default_priority=2, preferred=(16,))) == ()
    assert change.problems(RANK, Batching()) == ()
    with_level = replace(RANK, priority_keys=(3,))
    assert "level 3" in change.problems(with_level, replace(ON, priority_levels=2, default_priority=1))[0].text
    delaying = replace(RANK, delaying_levels=True)
    assert change.problems(delaying, replace(ON, preserve_ordering=True))


@pytest.mark.parametrize(
    ("facts", "new", "words"),
    [
        (replace(RANK, is_ensemble=True), replace(ON, delay_us=1), "tune its steps"),
        (replace(RANK, backend="vllm"), replace(ON, delay_us=1), "batches by itself"),
        (replace(RANK, backend="tensorrtllm"), replace(ON, max_batch_size=1), "two copies do not fit"),
        (replace(RANK, is_sequence=True), replace(ON, delay_us=1), "exclude each other"),
        (replace(RANK, ensembles=(("reco", 16),)), replace(ON, max_batch_size=8), "ensemble reco needs 16"),
        (replace(RANK, is_decoupled=True), replace(ON, response_cache=True), "decoupled"),
    ],
)
def test_models_that_cannot_be_changed_so(facts: Served, new: Batching, words: str) -> None:
    assert words in change.obstacles(facts, ON, new)[0].text


def test_models_that_can() -> None:
    assert change.obstacles(RANK, ON, replace(ON, delay_us=1)) == ()
    assert change.obstacles(replace(RANK, ensembles=(("reco", 16),)), ON, replace(ON, max_batch_size=32)) == ()
    more = replace(ON, instances=(Group("KIND_CPU", 2),))
    assert change.obstacles(replace(RANK, is_sequence=True), ON, more) == ()


def test_warnings_stand_beside_their_fields() -> None:
    new = replace(
        ON,
        max_queue_size=8,
        timeout_us=200,
        max_batch_size=8,
        response_cache=True,
        priority_levels=2,
        default_priority=1,
    )
    found = {one.field: one.text for one in change.warnings(RANK, ON, new)}
    assert "half idle" in found["max_queue_size"]
    assert "each priority" in found["max_queue_size"]
    assert "0.5 s" in found["timeout_us"]
    assert "above 8 get 400" in found["max_batch_size"]
    assert "has no cache" in found["response_cache"]
    assert "any batch" in change.warnings(RANK, ON, replace(ON, max_batch_size=0))[0].text
    assert "TensorRT" in change.warnings(RANK, ON, replace(ON, max_batch_size=64))[0].text
    assert "nothing is batched" in change.warnings(RANK, ON, replace(ON, max_batch_size=1, delay_us=9))[1].text
    more = replace(ON, instances=(Group("KIND_CPU", 9),))
    assert "rate limiter" in change.warnings(replace(RANK, rate_limited=True), ON, more)[0].text
    assert change.warnings(RANK, ON, ON) == ()


def test_facts_are_taken_from_configurations() -> None:
    ens = live("ens")
    names = {step["model_name"] for step in ens["ensemble_scheduling"]["step"]}
    config = {"name": sorted(names)[0], "backend": "python", "instance_group": [{"rate_limiter": {"priority": 1}}]}
    found = change.served(config, {"ens": ens, "rank": live()}, server=(2, 51))
    assert found.ensembles == (("ens", ens["max_batch_size"]),)
    assert found.rate_limited
    assert change.served(ens, {}).is_ensemble
    levels = {"priority_queue_policy": {"2": {"timeout_action": "DELAY", "default_timeout_microseconds": 5}}}
    told = change.served({"name": "x", "dynamic_batching": levels, "sequence_batching": {}}, {})
    assert (told.priority_keys, told.delaying_levels, told.is_sequence) == ((2,), True, True)


# ------------------------------------------------------------------------------------------------------------ override


def test_what_the_server_added_is_left_out_unless_the_file_says_it() -> None:
    found = change.plain(live(), set())
    assert found.left_out == ("preferred_batch_size [16]",)
    assert "preferred_batch_size" not in found.document["dynamic_batching"]
    assert "version_policy" not in found.document
    assert "optimization" not in found.document
    assert "name" not in found.document["instance_group"][0]
    said = {
        "dynamic_batching.preferred_batch_size",
        "optimization.input_pinned_memory.enable",
        "instance_group[0].name",
    }
    kept = change.plain(live(), said).document
    assert kept["dynamic_batching"]["preferred_batch_size"] == [16]
    assert kept["optimization"]["input_pinned_memory"] == {"enable": True}
    assert kept["instance_group"][0]["name"] == "rank_0"


def test_the_override_is_the_whole_configuration_pinned() -> None:
    document = live() | {"field_of_tomorrow": {"a": 1}}
    plain = change.plain(document, None).document
    new = change.wanted(
        change.read(plain), {"delay_us": "500", "max_queue_size": "7", "instances": "2", "response_cache": "on"}
    )
    made = change.override(plain, new, [2, 1])
    assert made["version_policy"] == {"specific": {"versions": [1, 2]}}
    assert made["field_of_tomorrow"] == {"a": 1}
    assert made["dynamic_batching"]["max_queue_delay_microseconds"] == 500
    assert made["dynamic_batching"]["default_queue_policy"] == {"max_queue_size": 7}
    assert made["instance_group"] == [plain["instance_group"][0] | {"count": 2}]
    assert made["input"] == document["input"]
    assert change.came_out(made, new, change.NAMES) == ()
    assert plain["instance_group"][0]["count"] == 1, "the given one is left alone"


def test_groups_keep_what_else_they_say() -> None:
    document = {
        "max_batch_size": 4,
        "instance_group": [{"kind": "KIND_CPU", "count": 1, "rate_limiter": {"priority": 2}}, {"kind": "KIND_CPU"}],
    }
    new = change.wanted(change.read(document), {"instances": "cpu=3,cpu#2=0,gpu1=2"})
    assert change.override(document, new, [1])["instance_group"] == [
        {"kind": "KIND_CPU", "count": 3, "rate_limiter": {"priority": 2}},
        {"kind": "KIND_GPU", "gpus": [1], "count": 2},
    ]


def test_batching_switched_off_and_on() -> None:
    plain = change.plain(live(), None).document
    off = change.override(plain, change.wanted(ON, {"dynamic_batching": "off"}), [1])
    assert "dynamic_batching" not in off
    back = change.override(off, change.wanted(change.read(off), {"dynamic_batching": "on", "delay_us": "5"}), [1])
    assert back["dynamic_batching"] == {"max_queue_delay_microseconds": 5}
    assert change.changed(ON, change.read(off)) == ("dynamic_batching",)


def test_what_did_not_come_out_is_named() -> None:
    assert change.came_out(live(), replace(ON, delay_us=7, preferred=(16,)), change.NAMES) == ("delay_us",)
    assert change.came_out(live(), replace(ON, preferred=(8,)), change.NAMES) == ("preferred",)
    assert change.came_out(live(), replace(ON, instances=(Group("KIND_AUTO", 1),)), ["instances"]) == ()


def test_paths_of_a_configuration_are_fields() -> None:
    paths = ["instance_group[0].count", "dynamic_batching.max_queue_delay_microseconds", "parameters[x].string_value"]
    assert change.fields_of(paths) == ("delay_us", "instances")
    assert [change.is_field(path) for path in paths] == [True, True, False]
