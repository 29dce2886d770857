"""Batching settings in config.pbtxt: read beside what is served, written back, shown as lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from console.clients import pbtxt, pbtxt_batching, pbtxt_edit
from console.planning import batching_change as change
from console.planning.batching_change import Batching, Group

DATA = Path(__file__).parents[1] / "data" / "triton"
STYLES = sorted((Path(__file__).parents[1] / "data" / "pbtxt").glob("*.pbtxt"))


def live(**batcher: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "config_rank.json").read_text())
    found["dynamic_batching"] |= batcher
    return found


def text() -> str:
    return (DATA / "models" / "rank" / "config.pbtxt").read_text()


def look(document: dict[str, Any]) -> pbtxt_batching.OnDisk:
    now = change.read(change.plain(document, pbtxt_batching.paths(text())).document)
    return pbtxt_batching.on_disk(text(), document, now)


def test_an_unchanged_file_differs_in_no_field() -> None:
    found = look(live())
    assert (found.fields, found.others) == ((), ())


def test_fields_that_differ_show_the_files_own_values() -> None:
    document = live(max_queue_delay_microseconds=77, default_queue_policy={"max_queue_size": 9})
    document["instance_group"][0]["count"] = 4
    document["parameters"] = {"a": {"string_value": "b"}}
    document["version_policy"] = {"specific": {"versions": [1]}}
    found = look(document)
    assert found.fields == ("delay_us", "instances", "max_queue_size")
    disk = pbtxt.parse(text()).message
    assert found.batching.delay_us == disk.dynamic_batching.max_queue_delay_microseconds
    assert found.batching.instances == (Group("KIND_CPU", 1),)
    assert [one.path for one in found.others] == ["parameters[a].string_value"]


def test_batching_that_is_off_live_shows_all_of_the_file() -> None:
    document = live()
    del document["dynamic_batching"]
    found = look(document)
    assert "dynamic_batching" in found.fields
    assert found.batching.dynamic_batching
    assert found.batching.delay_us > 0


NEW = Batching(
    dynamic_batching=True,
    delay_us=111,
    preferred=(2, 4),
    max_batch_size=8,
    instances=(Group("KIND_CPU", 3),),
    max_queue_size=5,
    timeout_us=6,
    timeout_action="DELAY",
    allow_timeout_override=True,
    priority_levels=2,
    default_priority=1,
    preserve_ordering=False,
    response_cache=True,
)


@pytest.mark.parametrize("path", STYLES, ids=lambda p: p.stem)
def test_every_field_can_be_written_into_every_style(path: Path) -> None:
    old = path.read_bytes().decode()
    message = pbtxt.parse(old.removeprefix(pbtxt_edit.BOM)).message
    if message.WhichOneof("scheduling_choice") not in (None, "dynamic_batching"):
        return
    wanted = pbtxt_batching.with_settings(message, NEW, change.NAMES)
    done = pbtxt.parse(pbtxt_edit.edit(old, wanted).removeprefix(pbtxt_edit.BOM)).message
    assert done == wanted
    batcher, policy = done.dynamic_batching, done.dynamic_batching.default_queue_policy
    assert (batcher.max_queue_delay_microseconds, list(batcher.preferred_batch_size)) == (111, [2, 4])
    assert (policy.max_queue_size, policy.default_timeout_microseconds, policy.timeout_action) == (5, 6, 1)
    assert (batcher.priority_levels, batcher.default_priority_level, policy.allow_timeout_override) == (2, 1, True)
    assert ([group.count for group in done.instance_group], done.response_cache.enable) == ([3], True)
    off = pbtxt_batching.with_settings(done, replace(Batching(), instances=NEW.instances), change.NAMES)
    assert not off.HasField("dynamic_batching")


def test_switching_on_brings_its_settings_and_groups_keep_what_the_server_fills_in() -> None:
    message = pbtxt.parse("instance_group { kind: KIND_AUTO } instance_group { count: 2 kind: KIND_CPU }").message
    wanted = pbtxt_batching.with_settings(
        message, replace(NEW, instances=(Group("KIND_GPU", 1, (0,)), Group("KIND_GPU", 2, (1,)))), change.NAMES
    )
    assert wanted.dynamic_batching.default_queue_policy.max_queue_size == 5
    first, second = wanted.instance_group
    assert (first.kind, list(first.gpus), first.count) == (message.instance_group[0].kind, [], 0)
    assert (list(second.gpus), second.count) == ([1], 2)


def test_the_difference_shows_lines_and_no_parameters() -> None:
    old = live() | {"parameters": {"api_key": {"string_value": "planted-secret"}}}
    new = old | {"max_batch_size": 4, "response_cache": {"enable": True}, "version_policy": {"all": {}}}
    lines = pbtxt_batching.difference(old, new)
    assert "- max_batch_size: 16" in lines
    assert "+ max_batch_size: 4" in lines
    assert all(line[:2] in ("  ", "- ", "+ ") for line in lines)
    assert not any("version_policy" in line for line in lines)
    one_line = 'max_batch_size: %d parameters { key: "k" value { string_value: "planted-\\"secret" \'more\' } }'
    shown = pbtxt_batching.lines(one_line % 4, one_line % 8)
    assert len(shown) == 2
    assert not any("planted" in line or "more" in line for line in (*lines, *shown))
