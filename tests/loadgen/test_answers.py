"""Answers taken apart from any pieces, and looked at for content."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.loadgen.answers import Checker, Head, NotHttpError, parse_head
from console.loadgen.connection import BrokenError, Connection
from console.loadgen.errors import WRONG
from tests.loadgen.server import body

GOOD, SIZE = body()


def raw(content: bytes, size: int | None) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(content)}"]
    lines += [] if size is None else [f"Inference-Header-Content-Length: {size}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300_000), st.lists(st.integers(1, 200_000), max_size=6))
def test_an_answer_is_put_together_from_any_pieces(content: bytes, cuts: list[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = Connection("127.0.0.1", listening.getsockname()[1])
        peer, _ = listening.accept()
        with peer:
            one.connecting = False
            one.begin(b"GET", 1, 2)
            whole, found = raw(content, None), None
            peer.settimeout(5)
            at = 0
            for end in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
                left = whole[at:end]
                at = end
                while left:
                    sent = peer.send(left[:100_000])
                    left = left[sent:]
                    for _ in range(20):
                        if found is None:
                            found = one.readable()
            for _ in range(10_000):
                found = found or one.readable()
            one.close()
    assert found is not None
    assert found == (Head(200, len(content), None, False), content)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_said_and_no_more(head: bytes) -> None:
    try:
        parse_head(head)
    except NotHttpError:
        return


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b"HTTP/1.1 200 OK\r\nContent-Length: x",
     b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked"],
)  # fmt: skip
def test_heads_that_are_none(head: bytes) -> None:
    with pytest.raises(NotHttpError):
        parse_head(head)


def test_an_answer_to_nothing_and_too_much_of_one_break_a_connection() -> None:
    for content in (raw(GOOD, SIZE) + b"more", b"HTTP/1.1 200 OK"):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            one = Connection("127.0.0.1", listening.getsockname()[1])
            peer, _ = listening.accept()
            with peer:
                one.connecting = False
                if content.endswith(b"more"):
                    one.begin(b"GET", 1, 2)
                peer.sendall(content)
                with pytest.raises(BrokenError, match=r"more came|answer to nothing"):
                    _whole(one)
                one.close()


def _whole(one: Connection) -> None:
    while one.readable() is None:
        pass


@pytest.mark.parametrize(
    ("content", "size", "text"),
    [
        (GOOD, SIZE, None),
        (GOOD[:-1], SIZE, "output SCORE has 3 of 4 bytes"),
        (*body(empty=True), "output SCORE has 0 of 4 bytes"),
        (*body(name="X"), "output SCORE is missing"),
        (b'{"outputs":[]}', None, "output SCORE is missing"),
        (b'{"outputs":[{"name":"SCORE","datatype":"FP64","shape":[1],"data":[1]}]}', None, "is FP64, not FP32"),
        (b'{"outputs":[{"name":"SCORE","datatype":"FP32","shape":[2],"data":[1]}]}', None, "has 1 of 2 values"),
        (b'{"outputs":[{"name":"SCORE","datatype":"FP32","shape":[1],"data":[1]}]}', None, None),
        (b"", None, "an answer that is none"),
        (b"\xff\xfe", None, "an answer that is none"),
    ],
)
def test_content(content: bytes, size: int | None, text: str | None) -> None:
    checker = Checker([("SCORE", "FP32")], None)
    head = Head(200, len(content), size, False)
    for _ in range(2):  # the second time by what it remembers
        found: Any = checker.problem(head, content)
        if text is None:
            assert found is None
        else:
            assert found[0] == WRONG
            assert text in found[1]


def test_a_known_form_with_less_data_is_found_too() -> None:
    checker = Checker([("SCORE", "FP32")], None)
    assert checker.problem(Head(200, len(GOOD), SIZE, False), GOOD) is None
    assert checker.problem(Head(200, len(GOOD) - 2, SIZE, False), GOOD[:-2]) == (WRONG, "output SCORE has 2 of 4 bytes")
