"""L05 L06, and the first bytes of engine files."""

from __future__ import annotations

import pytest

from console.checks import models_engine
from console.clients import trt_plan
from console.core.facts import AnswerFact, CommandFact, Facts
from tests.checks.cards import bare, card, nvml, refused, says
from tests.checks.repo import ENGINE, GOOD, PYTHON, SCRIPT, Tree, box, hexed, inspected, plan_head, ready, without

DOWN = {"@triton.index": refused("connection refused")}
PATH = "ranking/3/model.plan"
ONLY_PYTHON: Tree = {"prep/config.pbtxt": PYTHON, "prep/1/model.py": SCRIPT}


def log(*lines: str) -> dict[str, object]:
    return {**DOWN, "@podman.log": list(lines)}


OLD = (
    "E0101 1 logging.cc:43] The engine plan file is not compatible with this version of TensorRT, expecting library "
    "version 10.0.1 got 8.6.1, please rebuild."
)
OTHER_CARD = (
    "[TRT] 6: The engine plan file is generated on an incompatible device, expecting compute 7.5 got compute 8.6, p"
)


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "1 engines serve"),
        (box(answers=DOWN, heads={PATH: plan_head("10.0.1.6")}), "ok", "1 engines of TensorRT 10.0.1.6"),
        (box(answers=DOWN, heads={PATH: plan_head("10.0.1.2")}), "ok", "1 engines of TensorRT"),
        (
            box(answers=DOWN, heads={PATH: plan_head("8.6.1.6")}),
            "warn",
            "engine of TensorRT 8.6.1.6, the server has 10.0.1.6",
        ),
        (
            box(answers=DOWN, heads={PATH: plan_head("10.5.0.18")}),
            "fail",
            "engine of TensorRT 10.5.0.18, the server has",
        ),
        (box(answers=DOWN, heads={PATH: hexed(b"version https://git-lfs.github.com/spec")}), "fail", "Git LFS pointer"),
        (box(answers=DOWN, heads={PATH: ""}), "fail", "the engine file is empty"),
        (
            box(answers=DOWN, heads={PATH: hexed(b"\x08\x07onnx model, renamed to a plan")}),
            "fail",
            "does not begin like an",
        ),
        (box(answers=DOWN, heads={PATH: hexed(b"ptrt" + bytes(24))}), "unknown", "was not read"),
        (box(answers=DOWN), "unknown", "was not read"),
        (box(answers=log(OLD)), "fail", "TensorRT 10.0.1 wanted, the engine is of 8.6.1"),
        (
            box(answers=log("Serialization assertion stdVersionRead == x failed. Version tag does not match.")),
            "fail",
            "the log",
        ),
        (box(answers={"@podman.log": [OLD]}), "ok", "1 engines serve"),
        (box(answers={**DOWN, "@podman.log": refused()}, heads={PATH: plan_head("10.0.1.6")}), "ok", "10.0.1.6"),
        (box(ONLY_PYTHON), "none", "no TensorRT engine"),
        (without(), "none", "not on this host's disk"),
        (without(podman_inspect=AnswerFact(why="no socket")), "unknown", "no socket"),
    ],
)
def test_engine_version(facts: Facts, sign: str, text: str) -> None:
    found = says(models_engine, "L05", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_newer_version_that_waits_is_looked_at_while_the_old_one_serves() -> None:
    tree = {**GOOD, "ranking/4/model.plan": ENGINE}
    found = says(models_engine, "L05", box(tree, heads={"ranking/4/model.plan": plan_head("8.6.1.6")}))
    assert found.sign == "warn"
    assert found.data == {"engine": "8.6.1.6", "tensorrt": "10.0.1.6", "model": "ranking"}


def test_the_images_tensorrt_is_told_by_label_or_variable() -> None:
    heads = {PATH: plan_head("8.6.1.6")}
    by_env = {**DOWN, "@podman.inspect": inspected(labels={}, env=["TRT_VERSION=8.6.1.6+cuda12.0"])}
    assert says(models_engine, "L05", box(answers=by_env, heads=heads)).sign == "ok"
    by_image = {
        **DOWN,
        "@podman.inspect": inspected(labels={}),
        "@podman.image": {"Labels": {"com.nvidia.tensorrt.version": "8.6.1.6"}},
    }
    assert says(models_engine, "L05", box(answers=by_image, heads=heads)).sign == "ok"
    nowhere = {**DOWN, "@podman.inspect": inspected(labels={}, env=["TRT_VERSION=***"]), "@podman.image": refused()}
    found = says(models_engine, "L05", box(answers=nowhere, heads=heads))
    assert (found.sign, found.text) == ("unknown", "which TensorRT the image has is not told")


@pytest.mark.parametrize(
    "out", ["", "garbage\n 66 zz\n", f"{'x' * 9000}\n", "/data/models/ranking/3/model.plan\n 66 7"]
)
def test_garbage_of_the_search_is_no_engine(out: str) -> None:
    facts = box(answers=DOWN)
    for words in facts.commands:
        facts.commands[words] = CommandFact(0, out)  # type: ignore[index]
    assert says(models_engine, "L05", facts).sign in ("unknown", "fail")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "1 engines serve"),
        (box(answers=DOWN), "none", "do not tell for which card"),
        (box(answers=log(OTHER_CARD)), "fail", "an engine is for compute 8.6, this card is 7.5"),
        (
            box(answers=log("The engine plan file is generated on an incompatible device")),
            "fail",
            "incompatible device",
        ),
        (
            box(
                answers={
                    "@podman.log": ["Using an engine plan file across different models of devices is not recommended"]
                }
            ),
            "note",
            "built on another model of card",
        ),
        (box(ONLY_PYTHON), "none", "no TensorRT engine"),
        (without(), "none", "not on this host's disk"),
    ],
)
def test_engine_card(facts: Facts, sign: str, text: str) -> None:
    found = says(models_engine, "L06", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize(
    ("name", "architecture", "sign"),
    [
        ("rank_sm86", "Turing", "warn"),
        ("rank_sm75", "Turing", "ok"),
        ("rank_sm_90", "Hopper", "ok"),
        ("rank_sm90", "Rubin", "none"),
        ("smart80", "Turing", "none"),
    ],
)
def test_a_name_can_tell_the_card(name: str, architecture: str, sign: str) -> None:
    tree: Tree = {f"{name}/config.pbtxt": 'platform: "tensorrt_plan"', f"{name}/1/model.plan": ENGINE}
    answers = {**DOWN, "@nvml": nvml(card(architecture=architecture))}
    assert says(models_engine, "L06", box(tree, answers=answers)).sign == sign
    unseen = {**DOWN, "@nvml": refused()}
    assert says(models_engine, "L06", box(tree, answers=unseen)).sign == "none"


@pytest.mark.parametrize(
    ("data", "kind", "version"),
    [
        (b"ftrt" + bytes(20) + bytes((8, 6, 1, 6)), "plan", "8.6.1.6"),
        (b"ftrt\x01\0\0\0" + bytes(20), "plan", ""),
        (b"ftrt" + bytes(10), "plan", ""),
        (b"ptrt" + bytes(30), "old plan", ""),
        (b"", "empty", ""),
        (b"version https://git-lfs.github.com", "pointer", ""),
        (b"\xff" * 28, "other", ""),
    ],
)
def test_first_bytes(data: bytes, kind: str, version: str) -> None:
    found = trt_plan.head(data)
    assert (found.kind, found.text) == (kind, version)


def test_no_card_is_asked_for_where_no_engine_lies() -> None:
    assert bare().variables["gpu"] == ()
    assert says(models_engine, "L06", box(ONLY_PYTHON, answers={"@triton.index": ready()})).sign == "none"
