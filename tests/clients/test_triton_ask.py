"""Asking a model once: what is sent, and what an answer is worth."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients.triton import Answer, TritonAddress
from console.clients.triton_ask import MAX_INPUT, ask, summarise
from console.core.model import Asked
from tests.clients.scripted import Reply, Request, Scripted, answer, free_port, scripted

FLOATS: dict[str, Any] = {"name": "x", "data_type": "TYPE_FP32", "dims": [4]}


def output(name: str = "y", datatype: str = "FP32", shape: tuple[int, ...] = (1, 2), size: int | None = 8) -> Any:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def binary(chunk: bytes, *outputs: Any) -> bytes:
    head = json.dumps({"outputs": outputs}).encode()
    return answer(head + chunk, Inference_Header_Content_Length=str(len(head)))


GOOD = binary(struct.pack("<2f", 0.5, 2), output())


def run(config: dict[str, Any], reply: Reply = GOOD, version: str | None = None) -> tuple[Asked, Scripted]:
    def respond(request: Request) -> Reply:
        return answer(config) if request.path.endswith("/config") else reply

    with scripted(respond) as server:
        return ask(TritonAddress(http_port=server.port), "m", version, 2.0), server


def inferred(server: Scripted) -> tuple[Request, dict[str, Any], bytes]:
    (request,) = [r for r in server.requests if r.path.endswith("/infer")]
    size = int(request.headers["inference-header-content-length"])
    head: dict[str, Any] = json.loads(request.body[:size])
    return request, head, request.body[size:]


def test_a_batched_model_gets_a_batch_of_one() -> None:
    asked, server = run({"max_batch_size": 8, "input": [FLOATS]}, version="2")
    request, head, rest = inferred(server)
    assert request.path == "/v2/models/m/versions/2/infer"
    (sent,) = head["inputs"]
    assert (sent["name"], sent["datatype"], sent["shape"]) == ("x", "FP32", [1, 4])
    assert rest == bytes(16)
    assert asked.ok
    assert asked.status == 200
    assert asked.millis is not None
    assert asked.text == "y FP32 [1, 2] 0.5, 2"
    assert asked.sent == "x FP32 [1, 4] zeros"
    assert (asked.model, asked.version) == ("m", "2")


def test_a_model_without_batching_gets_its_plain_shape_and_one_for_what_varies() -> None:
    config = {"max_batch_size": 0, "input": [FLOATS | {"dims": [-1, 3]}, FLOATS | {"name": "o", "optional": True}]}
    asked, server = run(config)
    request, head, _ = inferred(server)
    assert request.path == "/v2/models/m/infer"
    assert [i["shape"] for i in head["inputs"]] == [[1, 3]]
    assert asked.ok


def test_strings_and_integers() -> None:
    config = {
        "max_batch_size": 1,
        "input": [
            {"name": "s", "data_type": "TYPE_STRING", "dims": [2]},
            {"name": "b", "data_type": "TYPE_BOOL", "dims": [1]},
            {"name": "h", "data_type": "TYPE_FP16", "dims": [1]},
            {"name": "n", "data_type": "TYPE_BF16", "dims": [1]},
        ],
    }
    asked, server = run(config)
    _, _, rest = inferred(server)
    assert rest == struct.pack("<I", 1) + b"0" + struct.pack("<I", 1) + b"0" + bytes(1) + bytes(2) + bytes(2)
    assert 's BYTES [1, 2] "0"' in asked.sent


def test_a_model_whose_inputs_are_all_optional_gets_the_first() -> None:
    _, server = run({"input": [FLOATS | {"optional": True}, FLOATS | {"optional": True, "name": "z"}]})
    assert [i["name"] for i in inferred(server)[1]["inputs"]] == ["x"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"input": [FLOATS], "model_transaction_policy": {"decoupled": True}}, "stream"),
        ({"input": [FLOATS], "sequence_batching": {}}, "sequences"),
        ({"input": []}, "no inputs"),
        ({"input": [FLOATS | {"data_type": "TYPE_NEW"}]}, "unknown type NEW"),
        ({"input": [FLOATS | {"dims": [MAX_INPUT]}]}, "too large"),
        ({"input": 3}, "not what Triton answers"),
    ],
)
def test_why_nothing_is_sent(config: dict[str, Any], why: str) -> None:
    asked, server = run(config)
    assert asked.ok is None
    assert asked.millis is None
    assert why in asked.text
    assert not [r for r in server.requests if r.path.endswith("/infer")]


def test_errors_are_in_tritons_words() -> None:
    asked, _ = run({"input": [FLOATS]}, answer({"error": "bad [/x]"}, 500))
    assert (asked.ok, asked.status, asked.text) == (False, 500, "500: bad [/x]")


def test_no_answer_and_no_server() -> None:
    asked, server = run({"input": [FLOATS]}, None)
    assert asked.ok is False
    assert asked.status is None
    assert "without an answer" in asked.text
    assert len([r for r in server.requests if r.path.endswith("/infer")]) == 1
    asked = ask(TritonAddress(http_port=free_port()), "m")
    assert asked.ok is None
    assert "refuses" in asked.text


def test_a_model_that_is_not_loaded() -> None:
    with scripted(lambda _: answer({"error": "Request for unknown model"}, 404)) as server:
        asked = ask(TritonAddress(http_port=server.port), "m")
    assert asked.ok is None
    assert "404: Request for unknown model" in asked.text


def parsed(raw: bytes, **headers: str) -> tuple[bool, str]:
    return summarise(Answer(200, raw, 0.0, 0.0, headers))


def outputs(chunk: bytes, *items: Any) -> tuple[bool, str]:
    head = json.dumps({"outputs": items}).encode()
    return parsed(head + chunk, **{"inference-header-content-length": str(len(head))})


def test_outputs_without_data_are_no_good_answer() -> None:
    assert outputs(b"", output(size=0)) == (False, "y FP32 [1, 2] no data")
    assert outputs(b"", output(size=8)) == (False, "y FP32 [1, 2] no data")
    assert outputs(b"", output(shape=(0,), size=0))[0]
    assert parsed(b'{"outputs":[]}') == (False, "200 without any output")
    assert not parsed(b"hello")[0]


def test_outputs_of_other_kinds() -> None:
    many = struct.pack("<6f", *range(6))
    assert outputs(many, output(shape=(6,), size=24))[1] == "y FP32 [6] 0, 1, 2, 3, …"
    text = struct.pack("<I", 3) + b"a\x1bb" + struct.pack("<I", 90) + b"cut"
    assert outputs(text, output(datatype="BYTES", size=len(text)))[1] == r'y BYTES [1, 2] "a\x1bb", "cut"'
    assert outputs(b"abc", output(size=3))[1] == "y FP32 [1, 2] 3 bytes"
    assert outputs(b"abc", output(datatype="NEW", size=3))[1] == "y NEW [1, 2] 3 bytes"
    json_data = {"name": "y", "datatype": "INT64", "shape": [1, 5], "data": [[1, 2], [3, 4, [5]]]}
    assert parsed(json.dumps({"outputs": [json_data]}).encode()) == (True, "y INT64 [1, 5] 1, 2, 3, 4, …")


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda d, s, n: json.dumps({"outputs": [output(datatype=d, shape=tuple(s), size=n)]}).encode() + b"abcdefgh",
        st.sampled_from(["FP32", "BYTES", "BF16", "BOOL", "FP64", "X"]),
        st.lists(st.integers(-3, 3), max_size=3),
        st.integers(-5, 30) | st.none(),
    ),
    st.sampled_from(["", "-1", "9999", "x", "80"]) | st.integers(0, 130).map(str),
)
@settings(max_examples=300, deadline=None)
def test_any_answer_is_summarised(body: bytes, size: str) -> None:
    ok, text = parsed(body, **{"inference-header-content-length": size})
    assert isinstance(ok, bool)
    assert text
