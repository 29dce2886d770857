"""E07, E20, E21: health, versions, batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.checks.container_serving import batching, server_health, version_policy
from console.core.facts import AnswerFact
from tests.checks.container_told import NOTHING, bindings, container, finding, when

CASES = Path(__file__).parent.parent / "data/triton"
GOOD = {"name": "triton", "version": "2.46.0", "live": True, "ready": True}
NOT_READY = {**GOOD, "ready": False}
READY = {"name": "ranking", "version": "1", "state": "READY"}
FAILED = {"name": "rerank", "version": "3", "state": "UNAVAILABLE", "reason": "Invalid argument: engine"}
UNLOADED = {"name": "old", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
LOADING = {"name": "recall", "version": "2", "state": "LOADING"}
REFUSED = AnswerFact(why="connection refused")
STOPPED = {"inspect": container(State={"Status": "exited"})}


@pytest.mark.parametrize(
    ("metadata", "index", "sign", "text"),
    [
        (GOOD, [READY, UNLOADED], "ok", "live and ready, 1 of 1 model versions READY"),
        (GOOD, {"entries": [READY]}, "ok", "1 of 1"),
        (GOOD, None, "ok", "live and ready"),
        (GOOD, [{"name": "never"}], "ok", "live and ready"),
        (NOT_READY, [READY, FAILED], "warn", "ready is 400: rerank failed to load; 1 of 2 model versions READY"),
        (NOT_READY, [FAILED], "fail", "ready is 400: rerank failed to load; 0 of 1"),
        (NOT_READY, [READY, LOADING], "note", "while 1 versions change"),
        (NOT_READY, [READY], "warn", "live, not ready; 1 of 1"),
        (NOT_READY, None, "warn", "live, not ready"),
        (GOOD, [READY, FAILED], "warn", "ready, though rerank failed to load"),
        ({**GOOD, "live": False}, [READY], "fail", "not live"),
        ({"live": None}, [READY], "unknown", "whether it is live is not told"),
        (["garbage"], "garbage", "unknown", "whether it is live"),
    ],
)
def test_health(metadata: Any, index: Any, sign: str, text: str) -> None:
    found = finding(server_health, answers={"@triton.metadata": metadata, "@triton.index": index})
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (container(), "fail", "no answer: connection refused"),
        (container(State={"StartedAt": when(20)}), "warn", "no answer yet, it started 20 s ago"),
        (container(State={"StartedAt": None}), "unknown", "connection refused"),
        (container(HostConfig={"PortBindings": bindings("127.0.0.1:8001")}), "unknown", "HTTP port is not published"),
        (container(Args=["tritonserver", "--allow-http=false"]), "unknown", "HTTP port is not published"),
        (container(HostConfig={"NetworkMode": "host", "PortBindings": None}), "fail", "no answer"),
    ],
)
def test_no_answer(inspect: Any, sign: str, text: str) -> None:
    found = finding(server_health, inspect=inspect, answers={"@triton.metadata": REFUSED})
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(("changes", "sign", "text"), [*NOTHING, (STOPPED, "none", "the container does not run")])
def test_skips(changes: Any, sign: str, text: str) -> None:
    for judge in (server_health, version_policy, batching):
        found = finding(judge, **dict(changes))
        assert (found.sign, text in found.text) == (sign, True), judge


def test_a_server_outside_podman_is_judged_too() -> None:
    assert finding(server_health, inspect=None, answers={"@triton.metadata": GOOD}).sign == "ok"


def test_recorded_index() -> None:
    """Recorded from 2.51.0: an index with a failed load."""
    index = json.loads((CASES / "index_failed_load_reason.json").read_text())
    found = finding(server_health, answers={"@triton.metadata": NOT_READY, "@triton.index": index})
    assert found.sign in ("warn", "fail")
    assert "failed to load" in found.text


# ------------------------------------------------------------------------------------------------------------ versions


def _configs(**policies: Any) -> dict[str, Any]:
    return {name: {"1": {"name": name, **({"version_policy": one} if one else {})}} for name, one in policies.items()}


TWO = [{"name": "ranking", "version": str(number), "state": "READY"} for number in (1, 2)]
ALL: dict[str, Any] = {"all": {}}


@pytest.mark.parametrize(
    ("configs", "index", "sign", "text"),
    [
        (
            _configs(ranking={"latest": {"num_versions": 1}}, recall=None),
            [READY],
            "ok",
            "the newest version of 2 models",
        ),
        (_configs(ranking=ALL), TWO, "warn", "ranking holds all 2 of its versions at once"),
        (_configs(ranking=ALL), [READY], "note", "ranking all; the others the newest"),
        (_configs(ranking=ALL), None, "note", "ranking all"),
        (_configs(ranking={"latest": {"num_versions": 2}}), TWO, "note", "ranking latest 2"),
        (_configs(ranking={"specific": {"versions": [1, 2]}}), TWO, "note", "ranking specific 1 2"),
        (_configs(ranking={"latest": {"num_versions": "9" * 5000}}), [READY], "ok", "the newest"),
        (_configs(ranking={"specific": {"versions": ["x", None, "2"]}}), [READY], "note", "ranking specific 2"),
        ({}, [], "none", "no model is loaded"),
        ({"ranking": "garbage", "x": {"1": 7}}, [], "none", "no model is loaded"),
        (["garbage"], [], "none", "no model is loaded"),
        (REFUSED, [], "unknown", "connection refused"),
    ],
)
def test_versions(configs: Any, index: Any, sign: str, text: str) -> None:
    found = finding(version_policy, answers={"@triton.configs": configs, "@triton.index": index})
    assert found.sign == sign
    assert text in found.text


# ------------------------------------------------------------------------------------------------------------ batching


def _served(delay: int = 0, most: int = 16, batches: bool = True) -> dict[str, Any]:
    config: dict[str, Any] = {"max_batch_size": most}
    if batches:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": delay}
    return {"ranking": {"1": config}}


def _stats(inferences: Any, executions: Any) -> dict[str, Any]:
    row = {"name": "ranking", "version": "1", "inference_count": inferences, "execution_count": executions}
    return {"model_stats": [row]}


@pytest.mark.parametrize(
    ("configs", "stats", "sign", "text"),
    [
        (_served(2000), _stats(10000, 10000), "warn", "ranking 1 waits 2000 µs for batches of 1.00 (of 16)"),
        (_served(0), _stats(10000, 10000), "ok", "1 models batch"),
        (_served(2000), _stats(40000, 10000), "ok", "1 models batch"),
        (_served(2000), _stats(158000, 10000), "note", "ranking 1: batches of 15.8, 16 at most"),
        (_served(2000), _stats(500, 500), "none", "run often enough"),
        (_served(2000, batches=False), _stats(10000, 10000), "none", "run often enough"),
        (_served(2000, most=1), _stats(10000, 10000), "none", "run often enough"),
        (_served(2000), _stats("garbage", 0), "none", "run often enough"),
        (_served(2000), {"model_stats": "garbage"}, "none", "run often enough"),
        (REFUSED, _stats(10000, 10000), "unknown", "connection refused"),
        (_served(2000), REFUSED, "unknown", "connection refused"),
    ],
)
def test_batches(configs: Any, stats: Any, sign: str, text: str) -> None:
    found = finding(batching, answers={"@triton.configs": configs, "@triton.stats": stats})
    assert found.sign == sign
    assert text in found.text


def test_recorded_statistics() -> None:
    stats = json.loads((CASES / "stats_all.json").read_text())
    assert finding(batching, answers={"@triton.configs": {}, "@triton.stats": stats}).sign == "none"
