"""L10 L11 L12."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import models_limits
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import GIB, bare, card, nvml, refused, says, second
from tests.checks.repo import ENGINE, GOOD, PYTHON, RANKING, SCRIPT, Tree, box, inspected, ready, without

NO_PODMAN = AnswerFact(why="no socket")
ONLY_PLAN: Tree = {"ranking/config.pbtxt": RANKING, "ranking/3/model.plan": ENGINE}


def env(*lines: str, tree: Any = GOOD) -> Facts:
    return box(tree, answers={"@podman.inspect": inspected(env=list(lines))})


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (env("CUDA_CACHE_MAXSIZE=2147483648"), "ok", "2.0 GiB"),
        (env("CUDA_CACHE_MAXSIZE=***"), "ok", "set"),
        (env(), "note", "not set, the driver's default holds; prep may compile kernels"),
        (env(tree=ONLY_PLAN), "ok", "no back end here compiles kernels"),
        (env("CUDA_CACHE_MAXSIZE=0"), "warn", "too small"),
        (env("CUDA_CACHE_MAXSIZE=4g"), "warn", "'4g' is no number of bytes"),
        (env("CUDA_CACHE_DISABLE=1", "CUDA_CACHE_MAXSIZE=2147483648"), "note", "off (CUDA_CACHE_DISABLE=1); prep may"),
        (env("CUDA_CACHE_DISABLE=1", tree=ONLY_PLAN), "ok", "off, and no back end here compiles kernels"),
        (box(answers={"@podman.inspect": {**inspected(), "Config": "garbage"}}), "note", "not set"),
        (box(answers={"@podman.inspect": None}), "none", "no Triton container"),
        (box(answers={"@podman.inspect": NO_PODMAN}), "unknown", "no socket"),
        (without(), "ok", "not set"),
    ],
)
def test_cuda_cache(facts: Facts, sign: str, text: str) -> None:
    found = says(models_limits, "L10", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_cache_is_set_by_a_new_container() -> None:
    found = says(models_limits, "L10", env("CUDA_CACHE_MAXSIZE=0"))
    assert found.fix is not None
    assert (found.fix.action, dict(found.fix.values)) == (
        "container.recreate",
        {"env": "CUDA_CACHE_MAXSIZE=2147483648"},
    )


def shm(size: object, document: Any = None, **host: Any) -> Facts:
    served = {"prep": {"1": document}} if document is not None else {}
    answers = {"@podman.inspect": inspected(shm=size, host=host), "@triton.configs": served}
    return box(answers=answers)


MIB = 1024**2
LARGE = {
    "backend": "python",
    "max_batch_size": 32,
    "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [3, 1024, 1024]}],
    "output": [{"name": "box", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
    "instance_group": [{"count": 2, "kind": "KIND_GPU", "gpus": [0]}],
}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (shm(GIB), "ok", "1.0 GiB for 2 MiB of tensors"),
        (shm(64 * MIB, LARGE), "warn", "64 MiB for at least 770 MiB of tensors at the largest batches"),
        (shm(GIB, LARGE), "note", "less than twice that"),
        (shm(2 * GIB, LARGE), "ok", "2.0 GiB for at least 770 MiB"),
        (shm(64 * MIB, {"backend": "onnxruntime"}), "ok", "no Python model passes tensors through it"),
        (shm(64 * MIB, {"backend": "python", "input": "garbage", "output": [7, {"dims": ["x"]}]}), "ok", "64 MiB"),
        (shm(64 * MIB, IpcMode="host"), "none", "shares the host's IPC"),
        (shm("garbage"), "unknown", "size of /dev/shm is not told"),
        (box(answers={"@podman.inspect": None}), "none", "no Triton container"),
        (box(answers={"@podman.inspect": NO_PODMAN}), "unknown", "no socket"),
    ],
)
def test_shm(facts: Facts, sign: str, text: str) -> None:
    found = says(models_limits, "L11", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_twice_the_need_is_proposed() -> None:
    found = says(models_limits, "L11", shm(64 * MIB, LARGE))
    assert found.fix is not None
    assert dict(found.fix.values) == {"shm_size": "2g"}


def engine(size: int) -> FileFact:
    return FileFact("file", mode=0o644, uid=0, gid=0, size=size)


def sized(size: int, config: str = RANKING) -> dict[str, str | FileFact]:
    return {**GOOD, "ranking/config.pbtxt": config, "ranking/3/model.plan": engine(size)}


ONNX = RANKING.replace('platform: "tensorrt_plan"', 'backend: "onnxruntime"')
ONNX_TREE: Tree = {"ranking/config.pbtxt": ONNX, "ranking/3/model.onnx": engine(9 * GIB)}
DOWN = {"@triton.index": refused("connection refused")}
EXPLICIT = {**DOWN, "@podman.inspect": inspected("--model-control-mode=explicit")}
ON_ONE = ONNX.replace("kind: KIND_GPU", "kind: KIND_GPU gpus: [ 1 ]")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "400 MiB of model files for 15.0 GiB"),
        (box(sized(9 * GIB), answers=DOWN), "ok", "9.0 GiB of model files"),  # TensorRT's instances share the weights
        (box(ONNX_TREE, answers=DOWN), "warn", "18.0 GiB of model files for 15.0 GiB"),
        (box(ONNX_TREE), "note", "and yet all of them serve"),
        (box({**ONNX_TREE, "ranking/2/model.onnx": engine(9 * GIB)}, answers=DOWN), "warn", "18.0 GiB"),
        (box(ONNX_TREE, answers=EXPLICIT), "unknown", "which models the server loads"),
        (box(ONNX_TREE, answers={**EXPLICIT, "@triton.index": ready("prep/1")}), "none", "no model whose files"),
        (
            box(
                {**ONNX_TREE, "ranking/config.pbtxt": ON_ONE},
                answers={**DOWN, "@nvml": nvml(card(), second(memory_total=80 * GIB))},
            ),
            "ok",
            "GPU 1: 18.0 GiB of model files for 80.0 GiB",
        ),
        (box({"prep/config.pbtxt": PYTHON, "prep/1/model.py": SCRIPT}), "none", "no model whose files"),
        (box(answers={"@nvml": nvml(card(memory_total=None))}), "unknown", "memory is not told"),
        (box(answers={"@nvml": refused("no driver")}), "unknown", "no driver"),
        (without(), "none", "not on this host's disk"),
    ],
)
def test_fit(facts: Facts, sign: str, text: str) -> None:
    found = says(models_limits, "L12", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_no_card_no_question() -> None:
    none = {"@nvml": bare().answers["@nvml"]}
    facts = box(answers=none, variables={"gpu": ()})
    facts.variables["gpu"] = ()  # type: ignore[index]
    assert says(models_limits, "L12", facts).sign == "none"
