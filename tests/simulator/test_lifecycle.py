"""Loads, swaps, updates in place and unloads of the simulated Triton, in simulated time (domain facts 1.3 to 1.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.planning.batcher import NS_PER_SECOND
from console.simulator.box import Box
from console.simulator.lifecycle import Models
from tests.simulator.conftest import MakeBox


def go(box: Box, seconds: float) -> None:
    box.advance(box.now_ns + round(seconds * NS_PER_SECOND))


def models(box: Box) -> Models:
    assert box.server is not None
    return box.server.models


def begin(box: Box, name: str, **changes: Any) -> list[tuple[int, str]]:
    """Begin a load: with the served configuration and these fields changed, or a plain one where there are none."""
    ended: list[tuple[int, str]] = []
    override = json.dumps({**box.models[name].told(), **changes}) if changes else None
    models(box).load(name, override, lambda status, words: ended.append((status, words)))
    return ended


def load(box: Box, name: str, **changes: Any) -> tuple[int, str]:
    """Load and wait."""
    ended = begin(box, name, **changes)
    go(box, 3)
    return ended[0]


def specific(*versions: int) -> dict[str, Any]:
    return {"specific": {"versions": list(versions)}}


def states(box: Box, name: str) -> dict[str, str]:
    entries = models(box).index()
    return {entry["version"]: entry["state"] for entry in entries if entry["name"] == name and "version" in entry}


def delay(box: Box, name: str) -> int:
    found: int = box.models[name].told()["dynamic_batching"]["max_queue_delay_microseconds"]
    return found


def config_file(box: Box, name: str) -> Path:
    assert box.repository is not None
    return box.repository.root / name / "config.pbtxt"


def batching(us: int) -> dict[str, Any]:
    return {"max_queue_delay_microseconds": us}


def test_a_swap_loads_beside_then_drops_the_old(make_box: MakeBox) -> None:
    box = make_box()
    before = box.card.used_mib
    ended = begin(box, "ranking", version_policy=specific(2, 3))
    go(box, 0.4)
    assert states(box, "ranking") == {"2": "READY", "3": "LOADING"}
    assert before < box.card.used_mib < before + 3174
    assert not models(box).all_good
    assert ended == []
    go(box, 1)
    assert ended == [(200, "")]
    assert states(box, "ranking") == {"2": "READY", "3": "READY"}
    assert box.card.used_mib == before + 3174
    assert box.models["ranking"].version == 3
    served = models(box).current["ranking"][2].statistics.success_count
    go(box, 1)
    assert models(box).current["ranking"][2].statistics.success_count == served
    assert box.models["ranking"].statistics.success_count > 1000
    dropped = begin(box, "ranking", version_policy=specific(3))
    assert dropped == [(200, "")]
    assert states(box, "ranking") == {"2": "UNLOADING", "3": "READY"}
    go(box, 1)
    assert states(box, "ranking") == {"2": "UNAVAILABLE", "3": "READY"}
    assert models(box).all_good
    assert box.card.used_mib == before
    assert any("successfully unloaded 'ranking' version 2" in line.text for line in box.log)


def test_an_override_stays_until_the_file_is_newer(make_box: MakeBox) -> None:
    box = make_box()
    assert load(box, "ranking", dynamic_batching=batching(3000)) == (200, "")
    assert delay(box, "ranking") == 3000
    served = box.models["ranking"]
    assert load(box, "ranking") == (200, "")
    assert (box.models["ranking"], delay(box, "ranking")) == (served, 3000)
    file = config_file(box, "ranking")
    file.write_text(file.read_text() + "# touched\n")
    assert load(box, "ranking") == (200, "")
    assert delay(box, "ranking") == 0


def test_a_file_that_says_what_is_live_ends_the_override_without_a_reload(make_box: MakeBox) -> None:
    """The commit protocol of domain facts 1.4."""
    box = make_box()
    load(box, "ranking", dynamic_batching=batching(3000))
    served, file = box.models["ranking"], config_file(box, "ranking")
    file.write_text(file.read_text().replace("{ }", "{ max_queue_delay_microseconds: 3000 }"))
    assert begin(box, "ranking") == [(200, "")]
    assert box.models["ranking"] is served
    models(box).unload("ranking")
    go(box, 1)
    ended: list[int] = []
    models(box).load("ranking", None, lambda status, words: ended.append(status))
    go(box, 2)
    assert ended == [200]
    assert delay(box, "ranking") == 3000


def test_a_delay_makes_requests_wait_and_batches_grow(make_box: MakeBox) -> None:
    box = make_box()
    load(box, "ranking", dynamic_batching=batching(4000))
    stats = box.models["ranking"].statistics
    go(box, 3)
    assert stats.inference_count / stats.execution_count > 4
    assert stats.queue_ns / stats.success_count > 1.5e6


def test_instances_change_in_place(make_box: MakeBox) -> None:
    box = make_box()
    served, held = box.models["ranking"], box.card.used_mib
    group = {**served.told()["instance_group"][0], "count": 3}
    ended = begin(box, "ranking", instance_group=[group], version_policy=specific(2))
    go(box, 0.1)
    assert ended == []
    assert states(box, "ranking") == {"2": "READY"}
    go(box, 0.2)
    assert ended == [(200, "")]
    assert box.models["ranking"] is served
    assert served.batcher is not None
    assert served.batcher.scheduling.instances == 3
    assert box.card.used_mib == held + round(3174 * 0.12)
    assert served.told()["instance_group"][0]["count"] == 3


def test_a_reload_shows_nothing_in_the_index_and_begins_its_counters_anew(make_box: MakeBox) -> None:
    box = make_box()
    old = box.models["rerank"]
    ended = begin(box, "rerank", max_batch_size=4, dynamic_batching={})
    go(box, 0.3)
    assert states(box, "rerank") == {"3": "READY"}
    assert models(box).all_good
    go(box, 1)
    assert ended == [(200, "")]
    new = box.models["rerank"]
    assert new is not old
    assert new.statistics.success_count < 100 < old.statistics.success_count


def test_what_cannot_be_read_is_refused_and_the_log_says_why(make_box: MakeBox) -> None:
    box = make_box()
    file = config_file(box, "rerank")
    file.write_text("max_batch_size: oops\n")
    refused = (500, "failed to load 'rerank', failed to poll from model repository")
    assert load(box, "rerank") == refused
    assert load(box, "rerank", nonsense=1) == refused
    assert load(box, "rerank", version_policy=3) == refused
    assert load(box, "rerank", dynamic_batching={"preferred_batch_size": [99]}) == refused
    log = "\n".join(line.text for line in box.log)
    assert "[libprotobuf ERROR" in log
    assert "Poll failed for model directory 'rerank': Invalid config override" in log
    assert states(box, "rerank") == {"3": "READY"}


def test_a_load_that_fails_leaves_the_old_version(make_box: MakeBox) -> None:
    box = make_box()
    status, words = load(box, "recall", version_policy=specific(7, 8))
    assert status == 400
    assert words.startswith("load failed for model 'recall': version 8 is at UNAVAILABLE state: Internal: unable to")
    assert states(box, "recall") == {"7": "READY", "8": "UNAVAILABLE"}
    status, words = load(box, "recall", max_batch_size=128)
    assert "TensorRT engine only supports max-batch 64" in words
    assert load(box, "recall", version_policy=specific(5))[0] == 400
    assert load(box, "nosuch")[0] == 500


def test_what_does_not_fit_is_out_of_memory(make_box: MakeBox) -> None:
    box = make_box("vram-full")
    held = box.card.used_mib
    status, words = load(box, "ranking", max_batch_size=8, dynamic_batching={})
    assert status == 400
    assert "out of memory" in words
    assert box.card.used_mib == held
    assert load(box, "rerank", max_batch_size=4, dynamic_batching={})[0] == 200


def test_an_ensemble_drops_out_silently_and_comes_back(make_box: MakeBox) -> None:
    box = make_box()
    assert load(box, "ranking", max_batch_size=4, dynamic_batching={}) == (200, "")
    assert states(box, "reco") == {"1": "UNAVAILABLE"}
    assert any("allows maximum batch size 8, but it contains model ranking" in line.text for line in box.log)
    assert load(box, "ranking", max_batch_size=8, dynamic_batching={}) == (200, "")
    assert states(box, "reco") == {"1": "READY"}
    go(box, 2)
    assert box.models["reco"].statistics.success_count > 100


def test_an_unload_takes_the_ensemble_along(make_box: MakeBox) -> None:
    box = make_box()
    held = box.card.used_mib
    models(box).unload("recall")
    assert states(box, "recall") == {"7": "UNLOADING"}
    go(box, 1)
    assert states(box, "recall") == {"7": "UNAVAILABLE"}
    assert states(box, "reco") == {"1": "UNAVAILABLE"}
    assert box.card.used_mib == held - 1741
    ended: list[int] = []
    models(box).load("reco", None, lambda status, words: ended.append(status))
    go(box, 3)
    assert ended == [200]
    assert states(box, "recall") == {"7": "READY"}


def test_two_loads_of_one_model_go_one_after_the_other(make_box: MakeBox) -> None:
    box = make_box()
    first = begin(box, "rerank", dynamic_batching=batching(100))
    second = begin(box, "rerank", dynamic_batching=batching(200))
    other = begin(box, "ranking", dynamic_batching=batching(300))
    go(box, 0.8)
    assert (len(first), len(second), len(other)) == (1, 0, 1)
    go(box, 1)
    assert second == [(200, "")]
    assert delay(box, "rerank") == 200


def test_a_warm_up_counts(make_box: MakeBox) -> None:
    box = make_box()
    sample = {
        "name": "w",
        "batch_size": 4,
        "inputs": {"tokens": {"data_type": "TYPE_INT32", "dims": [128], "zero_data": True}},
    }
    load(box, "rerank", model_warmup=[sample])
    assert 4 in box.models["rerank"].statistics.batches


def test_a_stop_drains_and_a_start_loads_one_after_the_other(make_box: MakeBox) -> None:
    box = make_box()
    one = box.first
    box.containers.stop(one)
    assert box.server is not None
    assert not box.server.serving
    go(box, 2)
    assert (one.state, one.exit_code, box.running, box.card.used_mib) == ("exited", 0, False, 0)
    assert [event.action for event in box.events][-3:] == ["stop", "died", "cleanup"]
    rng = box.rng("check").random()
    box.containers.start(one)
    go(box, 1.2)
    assert states(box, "ranking") == {"2": "LOADING"}
    assert states(box, "recall") == {}
    assert box.models == {}
    go(box, 4)
    assert box.server.serving
    assert sorted(box.models) == ["ranking", "recall", "reco", "rerank"]
    assert box.models["ranking"].statistics.success_count < 5000
    assert box.rng("check").random() == rng


@pytest.mark.parametrize(
    ("command", "code", "last"),
    [
        (["tritonserver", "--model-repository=/models", "--nonsense"], 1, "unrecognized option '--nonsense'"),
        (["tritonserver", "--model-repository=/models"], 1, "failed to load all models"),
    ],
)
def test_a_server_that_cannot_start_ends(make_box: MakeBox, command: list[str], code: int, last: str) -> None:
    box = make_box("load-failed")
    box.containers.stop(box.first)
    go(box, 2)
    box.first.body["command"] = command
    box.containers.start(box.first)
    go(box, 6)
    assert (box.first.state, box.first.exit_code) == ("exited", code)
    assert last in box.first.log[-1].text


def test_only_what_is_named_is_loaded_and_poll_follows_the_files(make_box: MakeBox) -> None:
    box = make_box()
    for mode, names in (
        ("explicit --load-model=rerank", ["rerank"]),
        ("poll", ["ranking", "recall", "reco", "rerank"]),
    ):
        box.containers.stop(box.first)
        go(box, 2)
        box.first.body["command"] = f"tritonserver --model-repository=/models --model-control-mode={mode}".split()
        box.containers.start(box.first)
        go(box, 6)
        assert sorted(box.models) == names
    file = config_file(box, "rerank")
    file.write_text(file.read_text().replace("max_batch_size: 8", "max_batch_size: 2"))
    go(box, 20)
    assert box.models["rerank"].max_batch_size == 2


def test_the_same_changes_give_the_same_events_however_often_the_box_is_read(make_box: MakeBox) -> None:
    boxes = [make_box(seed=5), make_box(seed=5)]
    for box, steps in zip(boxes, (1, 331), strict=True):
        for changes in ({"max_batch_size": 8, "dynamic_batching": {}}, {"version_policy": specific(1, 3)}):
            begin(box, "ranking", **changes)
            start_ns = box.now_ns
            for step in range(1, steps + 1):
                box.advance(start_ns + 5 * NS_PER_SECOND * step // steps)
    told = [{(v.name, v.version): v.statistics.to_triton() for v in models(box).ready()} for box in boxes]
    assert told[0] == told[1]
    assert boxes[0].log == boxes[1].log
    assert boxes[0].nvml_document() == boxes[1].nvml_document()
