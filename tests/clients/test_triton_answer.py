"""Inference answers taken apart."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients.triton import Answer
from console.clients.triton_answer import NoAnswerError, Output, outputs, texts, values


def came(body: bytes, head: int | str | None = None) -> Answer:
    return Answer(200, body, 0.0, 0.0, {} if head is None else {"inference-header-content-length": str(head)})


@pytest.mark.parametrize(
    ("datatype", "chunk", "expected"),
    [
        ("FP32", struct.pack("<2f", 0.5, 2), (0.5, 2.0)),
        ("INT64", struct.pack("<2q", -1, 2**60), (-1, 2**60)),
        ("BOOL", b"\x00\x01", (False, True)),
        ("BF16", struct.pack("<f", 1.5)[2:] + struct.pack("<f", -2)[2:], (1.5, -2.0)),
        ("FP16", struct.pack("<e", 0.25), (0.25,)),
        ("BYTES", b"\x02\x00\x00\x00hi\x01\x00\x00\x00\xff", ("hi", "base64:/w==")),
        ("NEW", b"abc", None),
        ("FP32", b"abc", None),
    ],
)
def test_binary_values(datatype: str, chunk: bytes, expected: tuple[Any, ...] | None) -> None:
    assert values(Output("y", datatype, (), (), chunk)) == expected


def test_json_values_are_flat() -> None:
    body = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 1], "data": [[1.5], [2]]}]})
    (output,) = outputs(came(body.encode()))
    assert values(output) == (1.5, 2)
    assert not output.empty


def test_not_a_number_is_kept() -> None:
    found = values(Output("y", "FP32", (1,), (), struct.pack("<f", math.nan)))
    assert found is not None
    assert math.isnan(found[0])


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 300), st.text(max_size=5)))
def test_any_bytes_are_an_answer_or_none(body: bytes, head: int | str | None) -> None:
    try:
        found = outputs(came(body, head))
    except NoAnswerError:
        return
    assert all(isinstance(output, Output) for output in found)


@given(st.lists(st.binary(max_size=30)))
def test_strings_go_and_come(words: list[bytes]) -> None:
    chunk = b"".join(len(word).to_bytes(4, "little") + word for word in words)
    assert texts(chunk) == tuple(words)


@given(st.binary(max_size=60))
def test_any_chunk_has_strings(chunk: bytes) -> None:
    assert len(texts(chunk, 3)) <= 3
