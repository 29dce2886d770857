"""Requests from a model's description: shapes, types, strings, batches, data files, and what cannot be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from console.clients.triton_body import Encoded
from console.core.model import ModelConfig, TensorSpec
from console.core.plan import WrongInput
from console.loadgen.inputs import Wanted, make, parse_shapes
from tests.loadgen.models import FEATURES, IDS, NAMES, config


def taken_apart(request: Encoded) -> dict[str, tuple[list[int], bytes]]:
    """Name -> shape and bytes, as a server reads them."""
    size = int(request.headers["Inference-Header-Content-Length"])
    head, rest = json.loads(request.body[:size]), request.body[size:]
    found = {}
    for tensor in head["inputs"]:
        length = tensor["parameters"]["binary_data_size"]
        found[tensor["name"]] = (tensor["shape"], rest[:length])
        rest = rest[length:]
    assert rest == b""
    return found


def one(model: ModelConfig, **wanted: Any) -> dict[str, tuple[list[int], bytes]]:
    made = make(model, Wanted(**wanted))
    assert len(made.requests) == 1
    return taken_apart(made.requests[0])


def test_zeros_of_a_fixed_shape_with_its_batch() -> None:
    shape, data = one(config(FEATURES), batch=3)["FEATURES"]
    assert shape == [3, 4]
    assert data == bytes(3 * 4 * 4)
    assert make(config(FEATURES), Wanted()).text == "FEATURES FP32 [1, 4] zeros"


def test_a_model_that_takes_no_batches_has_no_batch_dimension() -> None:
    assert one(config(FEATURES, batch=0))["FEATURES"][0] == [4]


def test_a_variable_shape_is_told() -> None:
    assert one(config(IDS), shapes={"IDS": (8,)})["IDS"] == ([1, 8], bytes(64))


def test_strings_parse_as_numbers() -> None:
    assert one(config(NAMES))["NAMES"] == ([1, 2], b"\x01\0\0\x000\x01\0\0\x000")


@pytest.mark.parametrize("kind", ["FP16", "FP32", "FP64", "BF16", "INT8", "UINT64", "BOOL", "BYTES"])
def test_random_ones_differ_and_are_the_same_for_a_seed(kind: str) -> None:
    model = config(TensorSpec("X", kind, (64,)))
    first, again, other = (make(model, Wanted(content="random", seed=seed)) for seed in (1, 1, 2))
    assert len(first.requests) == 32
    assert first == again
    assert first != other
    assert first.requests[0] != first.requests[1]
    assert first.text.endswith("random, 32 different")


def test_optional_inputs_are_left_out() -> None:
    assert list(one(config(FEATURES, TensorSpec("MORE", "FP32", (9,), True)))) == ["FEATURES"]


def test_priority_and_time_out_go_along() -> None:
    request = make(config(FEATURES), Wanted(priority=2, timeout_us=5000)).requests[0]
    size = int(request.headers["Inference-Header-Content-Length"])
    told = json.loads(request.body[:size])["parameters"]
    assert (told["priority"], told["timeout"]) == (2, 5000)


def data(rows: Any) -> bytes:
    return json.dumps({"data": rows}).encode()


def test_rows_of_a_file_make_batches_that_go_round() -> None:
    rows = [{"FEATURES": [at] * 4} for at in range(3)]
    made = make(config(FEATURES), Wanted(data=data(rows), data_name="d.json", batch=2))
    firsts = [np.frombuffer(taken_apart(r)["FEATURES"][1], np.float32)[[0, 4]].tolist() for r in made.requests]
    assert firsts == [[0.0, 1.0], [2.0, 0.0], [1.0, 2.0]]
    assert made.text == "FEATURES FP32 [2, 4] from d.json, 3 different"
    even = make(config(FEATURES), Wanted(data=data(rows[:2]), data_name="d.json", batch=2))
    assert len(even.requests) == 1


@pytest.mark.parametrize(
    ("value", "shape", "values"),
    [
        ([1, 2, 3], [1, 3], [1, 2, 3]),
        ({"content": [1, 2], "shape": [2]}, [1, 2], [1, 2]),
    ],
)
def test_a_file_may_tell_the_shape(value: Any, shape: list[int], values: list[int]) -> None:
    told, found = one(config(IDS), data=data([{"IDS": value}]))["IDS"]
    assert told == shape
    assert np.frombuffer(found, np.int64).tolist() == values


def test_texts_and_base64_of_a_file() -> None:
    _, found = one(config(NAMES), data=data([{"NAMES": ["ö", {"b64": "AAE="}]}]))["NAMES"]
    assert found == b"\x02\0\0\0\xc3\xb6\x02\0\0\0\x00\x01"


@pytest.mark.parametrize(
    ("model", "wanted", "words"),
    [
        (config(IDS), {}, r"IDS of m has the variable shape \[-1\]; say which with --shape IDS:8"),
        (config(FEATURES), {"shapes": {"FEATURES": (5,)}}, r"--shape FEATURES:5 does not fit FEATURES \[4\]"),
        (config(FEATURES), {"shapes": {"FEATURES": (1, 4)}}, "the batch is not part of it"),
        (config(FEATURES), {"shapes": {"FETURES": (4,)}}, "m has no input FETURES; it has FEATURES"),
        (config(FEATURES), {"batch": 9}, "m takes at most 8 a request, so --batch 9 cannot be"),
        (config(FEATURES, batch=0), {"batch": 2}, r"takes no batches \(max_batch_size 0\)"),
        (config(FEATURES), {"batch": 0}, "--batch must be from 1"),
        (config(FEATURES, decoupled=True), {}, "decoupled"),
        (config(FEATURES, sequence=True), {}, "keeps sequences"),
        (config(), {}, "names no inputs"),
        (config(TensorSpec("X", "FP9", (1,))), {}, "unknown type FP9"),
        (config(TensorSpec("X", "FP32", (1 << 30,))), {}, "one request for m would be 4096 MiB"),
        (config(FEATURES), {"data": b"PK\x03\x04"}, "is no data file"),
        (config(FEATURES), {"data": b"[" * 100_000}, "is no data file"),
        (config(FEATURES), {"data": b'{"data": []}'}, "holds no data"),
        (config(FEATURES), {"data": data([{"F": [1]}])}, "row 0 of .* has no FEATURES"),
        (config(FEATURES), {"data": data([{"FEATURES": [1, 2]}])}, r"2 values; \[4\] wants 4"),
        (config(IDS), {"data": data([{"IDS": [[1], [2]]}])}, r"has the shape \[2, 1\]"),
        (config(FEATURES), {"data": data([{"FEATURES": [1, 2, 3, "4"]}])}, "values must be numbers, not '4'"),
        (config(FEATURES), {"data": data([{"FEATURES": [1, 2, 3, None]}])}, "values must be numbers, not None"),
        (config(FEATURES), {"data": data([{"FEATURES": [1, 2, 3, True]}])}, "values must be numbers, not True"),
        (config(IDS), {"data": data([{"IDS": [1.5]}])}, "values must be whole numbers, not 1.5"),
        (config(IDS), {"data": data([{"IDS": [2**70]}])}, "does not fit into INT64"),
        (config(IDS), {"data": data([{"IDS": [[1], 2]}])}, "nested in one place"),
        (config(IDS), {"data": data([{"IDS": [[1], [2, 3]]}])}, "not of one length"),
        (config(IDS), {"data": data([{"IDS": 5}])}, "must be a list of values, not 5"),
        (config(IDS), {"data": data([{"IDS": {"content": [1], "shape": "x"}}])}, "shape of IDS must be a list"),
        (config(NAMES), {"data": data([{"NAMES": ["a", {"b64": "%"}]}])}, "must be a text or"),
        (config(NAMES), {"data": data([{"NAMES": ["a", 5]}])}, "values must be texts, not 5"),
        (config(FEATURES), {"data": data([{"FEATURES": [1] * 4}, {"X": [1]}])}, "row 1 of .* has other inputs"),
        (config(FEATURES), {"data": data([{"FEATURES": [1] * 4, "X": [1]}])}, "m has no input X; it has FEATURES"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(model: ModelConfig, wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongInput, match=words):
        make(model, Wanted(**wanted))


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_of_different_lengths_cannot_share_a_batch(batch: int) -> None:
    rows = data([{"IDS": [1]}, {"IDS": [1, 2]}, {"IDS": [1]}])
    if batch == 1:
        assert len(make(config(IDS), Wanted(data=rows)).requests) == 3
        return
    with pytest.raises(WrongInput, match="rows of IDS have different shapes"):
        make(config(IDS), Wanted(data=rows, batch=batch))


def test_shapes_of_the_command_line() -> None:
    assert parse_shapes(["in:8", "a:b:2,3", "x:4x5"]) == {"in": (8,), "a:b": (2, 3), "x": (4, 5)}


@pytest.mark.parametrize("word", ["in", "in:", ":8", "in:a", "in:-1", "in:8,", "in:٣", "in:99999999999"])
def test_shapes_that_are_none(word: str) -> None:
    with pytest.raises(WrongInput, match="--shape must be NAME:8"):
        parse_shapes([word])


def test_a_shape_is_given_once() -> None:
    with pytest.raises(WrongInput, match="twice for in"):
        parse_shapes(["in:8", "in:9"])
