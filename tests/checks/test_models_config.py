"""L03 L04 L09."""

from __future__ import annotations

import pytest

from console.checks import models_config
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import refused, says
from tests.checks.repo import ENGINE, GOOD, PYTHON, RANKING, ROOT, SCRIPT, box, ready, without
from tests.checks.told import DENIED

NO_PODMAN = AnswerFact(why="no socket")


def ranking(text: str) -> dict[str, str | FileFact]:
    return {**GOOD, "ranking/config.pbtxt": text}


NEW_FIELD = RANKING + "from_the_future { x: 1 }\n"
ASLEEP = {"@triton.index": refused("refused")}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "2 files parse"),
        (box(ranking('name: "broken" backend: "python" max_batch_size: ')), "fail", "ranking: 1:"),
        (box({**ranking("max_batch_size: x"), "prep/config.pbtxt": "{"}), "fail", "1 more so"),
        (box(ranking(NEW_FIELD), answers=ASLEEP), "warn", "a slip, or newer than this console"),
        (box(ranking(NEW_FIELD)), "note", "ranking serves with a field"),
        (box(ranking("\x00\x01\x02 binary")), "fail", "ranking: "),
        (box(ranking("a {" * 5000)), "fail", "ranking: "),
        (box({**GOOD, "ranking/config.pbtxt": DENIED}), "unknown", "permission denied"),
        (box({**GOOD, "ranking/config.pbtxt": FileFact("file", "max", cut=True)}), "unknown", "only its first part"),
        (box({"auto/1/model.onnx": ENGINE}), "none", "no model has a config.pbtxt"),
        (without(), "none", "not on this host's disk"),
        (without(podman_inspect=NO_PODMAN), "unknown", "no socket"),
    ],
)
def test_parses(facts: Facts, sign: str, text: str) -> None:
    found = says(models_config, "L03", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_broken_file_is_named_with_its_line() -> None:
    found = says(models_config, "L03", box(ranking('name: "r"\nmax_batch_size: many\n')))
    assert found.evidence[0].where == f"{ROOT}/ranking/config.pbtxt"
    assert found.evidence[0].text.startswith("2:")
    assert found.data["model"] == "ranking"


BATCHER = 'backend: "python" max_batch_size: {} dynamic_batching {{ {} }}'


def python(text: str) -> dict[str, str | FileFact]:
    return {"prep/config.pbtxt": text, "prep/1/model.py": SCRIPT}


STEP = 'platform: "ensemble" ensemble_scheduling {{ step [ {{ model_name: "{}" model_version: -1 }} ] }}'


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "2 configurations fit their folders"),
        (box(python('name: "other" backend: "python"')), "fail", "prep: it says name 'other'"),
        (box(python('backend: "onnxruntime"')), "fail", "onnxruntime wants model.onnx in 1/, it holds model.py"),
        (
            box({"prep/config.pbtxt": PYTHON, "prep/1/weights.pt": ENGINE}),
            "fail",
            "wants model.py in 1/, it is not there",
        ),
        (box(python('backend: "python" default_model_filename: "serve.py"')), "fail", "wants serve.py in 1/"),
        (box(python('backend: "python" default_model_filename: "model.py"')), "ok", "1 configurations"),
        (box(python('backend: "my_own"')), "ok", "1 configurations"),
        (box(python('platform: "tensorrt_plan" cc_model_filenames { key: "7.5" value: "t4.plan" }')), "ok", "1 conf"),
        (box({**python('backend: "python"'), "prep/2/": ""}), "ok", "1 configurations"),
        (box({**python('backend: "python"'), "prep/2/x": ENGINE}), "fail", "wants model.py in 2/"),
        (
            box({**python('backend: "python" version_policy { specific { versions: [ 1 ] } }'), "prep/2/x": ENGINE}),
            "ok",
            "1 configurations",
        ),
        (box(python(BATCHER.format(4, "preferred_batch_size: [ 4, 8 ]"))), "fail", "8 is above max_batch_size 4"),
        (box(python(BATCHER.format(4, "priority_levels: 2"))), "fail", "default_priority_level 0 is not 1 to 2"),
        (box(python(BATCHER.format(4, "priority_levels: 2 default_priority_level: 2"))), "ok", "1 configurations"),
        (box(python(BATCHER.format(0, ""))), "warn", "dynamic_batching with max_batch_size 0 makes no batches"),
        (
            box(
                python(
                    BATCHER.format(
                        4,
                        "max_queue_delay_microseconds: 5000 default_queue_policy { default_timeout_microseconds: 900 }",
                    )
                )
            ),
            "warn",
            "requests time out after 900 µs, before a batch waits its 5000 µs",
        ),
        (box({**GOOD, "pipe/config.pbtxt": STEP.format("prep"), "pipe/1/": ""}), "ok", "3 configurations"),
        (
            box({**GOOD, "pipe/config.pbtxt": STEP.format("prepp"), "pipe/1/": ""}),
            "fail",
            "names 'prepp', which is no model",
        ),
        (box(python("{{{")), "none", "see L03"),
        (box({"auto/1/model.onnx": ENGINE}), "ok", "1 configurations"),
        (box(files={f"{ROOT}/prep/1": FileFact("dir", why="permission denied")}), "unknown", "permission denied"),
        (without(), "none", "not on this host's disk"),
    ],
)
def test_agrees(facts: Facts, sign: str, text: str) -> None:
    found = says(models_config, "L04", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


LIMITED = {"max_queue_size": 64, "default_timeout_microseconds": 100000, "timeout_action": "REJECT"}


def served(policy: object) -> dict[str, object]:
    document = {"name": "ranking", "max_batch_size": 16, "dynamic_batching": {"default_queue_policy": policy}}
    return {"@triton.configs": {"ranking": {"2": {}, "3": document}}}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "1 models have one"),  # by config.pbtxt
        (box(answers=served(LIMITED)), "ok", "1 models have one"),
        (box(answers=served({})), "note", "no queue limit, no time-out: ranking"),
        (box(answers=served({"default_timeout_microseconds": 5000})), "note", "no queue limit: ranking"),
        (box(answers=served({**LIMITED, "timeout_action": "DELAY"})), "note", "put behind, not refused: ranking"),
        (box(answers=served("garbage")), "unknown", "not understood"),
        (box(ranking(RANKING.partition("dynamic_batching")[0])), "none", "no model has a dynamic batcher"),
        (box(answers={"@triton.configs": refused()}), "ok", "1 models have one"),
        (without(), "none", "not on this host's disk"),
        (without(podman_inspect=NO_PODMAN), "unknown", "no socket"),
    ],
)
def test_limits(facts: Facts, sign: str, text: str) -> None:
    found = says(models_config, "L09", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_limit_is_proposed_with_figures() -> None:
    found = says(models_config, "L09", box(answers=served({})))
    assert found.fix is not None
    assert found.fix.commands == (
        "gpuconsole do batching.set ranking max_queue_size=128 timeout_us=1000000 timeout_action=REJECT",
    )
    assert says(models_config, "L09", box(answers={"@triton.index": ready()})).sign == "ok"
