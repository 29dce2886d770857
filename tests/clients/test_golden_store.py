"""Golden requests on disk, and asking them."""

from __future__ import annotations

import json
import stat
import struct
from pathlib import Path

import pytest

from console.clients import golden_store
from console.clients.golden_store import (
    ask_golden,
    ask_once,
    ask_question,
    golden_of,
    load,
    path,
    question,
    remove,
    save,
)
from console.clients.triton import TritonAddress
from console.clients.triton_ask import Question, Sized
from console.core.golden import Golden, GoldenOutput
from console.core.model import Asked, SourceError
from tests.clients.scripted import Reply, Request, answer, scripted

QUESTION = Question(
    b"abc", {"Inference-Header-Content-Length": "1"}, "x FP32 [1, 4] zeros", (Sized("x", "FP32", (1, 4)),)
)
KEPT = golden_of("m", "1", QUESTION, (GoldenOutput("y", "FP32", (1, 2), (0.5, 2.0)),), 1e-3, 7.0, "ana")


def binary(*values: float) -> bytes:
    out = {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 4 * len(values)}}
    head = json.dumps({"outputs": [out]}).encode()
    return answer(head + struct.pack(f"<{len(values)}f", *values), Inference_Header_Content_Length=str(len(head)))


def test_kept_and_had_again_by_its_owner_alone(tmp_path: Path) -> None:
    assert load(tmp_path, "m") is None
    file = save(tmp_path, KEPT)
    assert load(tmp_path, "m") == KEPT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert question(KEPT) == QUESTION
    remove(tmp_path, "m")
    remove(tmp_path, "m")
    assert load(tmp_path, "m") is None


@pytest.mark.parametrize("name", ["..", "a b", "模型", "[x]", "x" * 250, "\udce9", "../../etc/passwd"])
def test_any_name_is_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    assert path(tmp_path, name).resolve().parent == tmp_path / "golden"
    assert len(path(tmp_path, name).name) < 255


def test_two_long_names_do_not_share_a_file(tmp_path: Path) -> None:
    assert path(tmp_path, "x" * 230 + "a") != path(tmp_path, "x" * 230 + "b")


@pytest.mark.parametrize("content", [b"", b"{", b'{"model": 3}', b"\xff", b"[" * 10_000])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = save(tmp_path, KEPT)
    file.write_bytes(content)
    with pytest.raises(SourceError, match="no golden request"):
        load(tmp_path, "m")


def test_asking(tmp_path: Path) -> None:
    def respond(request: Request) -> Reply:
        assert request.body == b"abc"
        return replies.pop(0)

    replies = [binary(0.5, 2.0), binary(0.5, 2.5), binary(), answer({"error": "no"}, 500), answer({"outputs": 1})]
    with scripted(respond) as server:
        address = TritonAddress(http_port=server.port)
        asked, wrong = ask_golden(address, KEPT, "2")
        assert (asked.ok, asked.version, wrong) == (True, "2", "")
        assert server.requests[0].path == "/v2/models/m/versions/2/infer"
        assert ask_golden(address, KEPT)[1] == "y: value 1 is 2.5, kept 2 (1 of 2 values differ)"
        assert "no data" in ask_golden(address, KEPT)[1]
        assert ask_golden(address, KEPT)[1] == "500: no"
        told, outputs = ask_question(address, "m", None, QUESTION)
        assert not told.ok
        assert outputs == ()


def test_asked_once_with_the_kept_question_or_a_made_up_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is compared; where none is kept the question is made up; a bad file is no question at all."""
    replies = [binary(0.5, 2.0), binary(0.5, 2.5), answer({"error": "no"}, 500)]
    made_up = Asked("m", "1", True, 7.0, 1.0, "made up")
    monkeypatch.setattr(golden_store, "ask", lambda address, model, version: made_up)
    with scripted(lambda request: replies.pop(0)) as server:
        address = TritonAddress(http_port=server.port)
        assert ask_once(tmp_path, address, "m", "1") is made_up
        save(tmp_path, KEPT)
        found = [ask_once(tmp_path, address, "m", "1") for _ in range(3)]
        assert [(one.ok, one.compared, one.good) for one in found] == [
            (True, "", True),
            (True, "y: value 1 is 2.5, kept 2 (1 of 2 values differ)", False),
            (False, None, False),
        ]
        path(tmp_path, "m").write_bytes(b"{")
        bad = ask_once(tmp_path, address, "m", "1")
        assert (bad.ok, bad.compared) == (None, None)
        assert "kept question cannot be used" in bad.text
        assert len(server.requests) == 3


def test_no_server(tmp_path: Path) -> None:
    asked, wrong = ask_golden(TritonAddress(http_port=1), KEPT)
    assert asked.ok is False
    assert wrong == asked.text
    assert isinstance(KEPT, Golden)
