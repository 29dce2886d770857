"""Trace files of Triton 2.51, in parts and whole."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.core import trace

# as written by Triton 2.51.0 for one request over HTTP
STAMPS = {
    "HTTP_RECV_START": 12906205318862,
    "HTTP_RECV_END": 12906205324871,
    "REQUEST_START": 12906205382917,
    "QUEUE_START": 12906205387404,
    "INFER_RESPONSE_COMPLETE": 12906210626069,
    "HTTP_SEND_START": 12906211207503,
    "HTTP_SEND_END": 12906211214453,
    "COMPUTE_START": 12906205995027,
    "COMPUTE_INPUT_END": 12906206023038,
    "COMPUTE_OUTPUT_START": 12906210596154,
    "COMPUTE_END": 12906211284097,
    "REQUEST_END": 12906211293260,
}


def fragments(stamps: dict[str, int] = STAMPS, number: int = 3, model: str = "rank") -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"id": number, "timestamps": [{"name": n, "ns": at}]} for n, at in stamps.items()]
    return [*parts[:2], {"id": number, "model_name": model, "model_version": 1}, *parts[2:]]


def data(*parts: list[dict[str, Any]]) -> bytes:
    return json.dumps([fragment for part in parts for fragment in part]).encode()


def test_where_the_time_of_a_request_went() -> None:
    (one,) = trace.breakdowns([data(fragments())], "rank", 0)
    assert (one.model, one.version) == ("rank", "1")
    shown = {part: round(getattr(one, part), 3) for part in (*trace.PARTS, "total")}
    assert shown == {
        "queue": 0.608,
        "input": 0.028,
        "compute": 4.573,
        "output": 0.688,
        "rest": 0.078,
        "total": 5.974,
    }


def test_only_this_models_new_whole_requests_in_order() -> None:
    early = {name: at - 10**9 for name, at in STAMPS.items()}
    waiting = {"GRPC_WAITREAD_START": 1, **STAMPS}
    torn = {name: at for name, at in STAMPS.items() if name != "COMPUTE_END"}
    late = {name: at + 10**9 for name, at in STAMPS.items()}
    files = [
        data(fragments(late, 9), fragments(waiting, 1), fragments(early, 2)),
        data(fragments(torn, 3), fragments(STAMPS, 4, "other")),
        b'[{"id":1',
        b"\xff",
        b"{}",
    ]
    found = trace.breakdowns(files, "rank", STAMPS["HTTP_RECV_START"])
    assert [one.begun_ns for one in found] == [STAMPS["HTTP_RECV_START"], late["HTTP_RECV_START"]]
    assert round(found[0].total, 3) == 5.974


def test_the_table() -> None:
    slow = {name: at + (10**7 if name in ("REQUEST_END", "HTTP_SEND_END") else 10**9) for name, at in STAMPS.items()}
    found = trace.breakdowns([data(fragments(), fragments(slow, 5))], "rank", 0)
    table = trace.lines(found, most=1)
    assert table[0].split() == ["ms", "queue", "input", "compute", "output", "rest", "total"]
    assert [line.split()[0] for line in table[1:4]] == ["mean", "worst", "1"]
    assert table[4] == "and 1 more"
    assert len({len(line) for line in table[:4]}) == 1
    assert trace.lines([]) == ()


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_any_file(file: bytes) -> None:
    assert trace.breakdowns([file], "rank", 0) == []


@given(st.dictionaries(st.sampled_from(sorted(STAMPS)), st.integers(0, 2**62)))
def test_any_stamps_add_up(stamps: dict[str, int]) -> None:
    for one in trace.breakdowns([data(fragments(stamps))], "rank", 0):
        assert abs(one.total - (max(stamps.values()) - min(stamps.values())) / 1e6) <= abs(one.total) * 1e-6 + 1
