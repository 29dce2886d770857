"""Answers of the simulated models: the same question has the same answer, whichever way it is asked."""

from __future__ import annotations

import json
import struct

from console.simulator import inference
from console.simulator.scenes import RANKING, RERANK


def ask(values: list[float], *, shift: float = 0.0, binary: bool = False, batch: int = 1) -> list[float]:
    entry = {"name": "features", "datatype": "FP32", "shape": [batch, 64]}
    data = struct.pack(f"<{len(values)}f", *values)
    told = {"parameters": {"binary_data_size": len(data)}} if binary else {"data": values}
    head = json.dumps({"inputs": [{**entry, **told}]}).encode()
    body, length = (head + data, len(head)) if binary else (head, None)
    asked = inference.parse("ranking", RANKING.inputs, RANKING.outputs, 16, body, length)
    answer, _ = inference.render("ranking", 2, asked, shift)
    found: list[float] = json.loads(answer)["outputs"][0]["data"]
    return found


def test_a_question_has_one_answer() -> None:
    one, other = [0.25] * 64, [0.5] * 64
    assert ask(one) == ask(one) == ask(one, binary=True) != ask(other)
    assert ask(one + other, batch=2) == ask(one) + ask(other)


def test_a_shifted_version_answers_otherwise() -> None:
    (plain,), (shifted,) = ask([0.25] * 64), ask([0.25] * 64, shift=0.2)
    assert abs(shifted / plain - 1.2) < 1e-4


def test_a_model_without_a_batch_dimension() -> None:
    body = json.dumps({"inputs": [{"name": "tokens", "datatype": "INT32", "shape": [128], "data": [1] * 128}]}).encode()
    asked = inference.parse("rerank", RERANK.inputs, RERANK.outputs, 0, body, None)
    answer, _ = inference.render("rerank", 3, asked)
    assert json.loads(answer)["outputs"][0]["shape"] == [1]
