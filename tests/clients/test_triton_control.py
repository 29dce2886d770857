"""Loading and unloading over HTTP; the gRPC route is tested against the real server (test_triton_control_lab.py)."""

from __future__ import annotations

import json
import threading

import pytest

from console.clients.triton import TritonAddress
from console.clients.triton_control import (
    ControlRefused,
    Route,
    TritonControl,
    _is_channel,
    _metadata,
    find_route,
    infer,
    served_config,
    statistics,
)
from console.core.model import SourceError
from tests.clients.scripted import Reply, Request, answer, scripted


def control(port: int) -> TritonControl:
    return TritonControl(TritonAddress(http_port=port), Route("HTTP", "asked for"))


def test_a_load_with_and_without_a_configuration() -> None:
    with scripted(lambda _: answer()) as server:
        client = control(server.port)
        assert client.load("m", None, 2.0) >= 0
        client.load("[m]", '{"name": "m"}', 2.0)
    plain, whole = server.requests
    assert (plain.path, json.loads(plain.body)) == ("/v2/repository/models/m/load", {"parameters": {}})
    assert whole.path == "/v2/repository/models/[m]/load"
    assert json.loads(whole.body) == {"parameters": {"config": '{"name": "m"}'}}
    assert plain.connection != whole.connection


def test_an_unload() -> None:
    with scripted(lambda _: answer()) as server:
        control(server.port).unload("m", dependents=True)
    (sent,) = server.requests
    assert (sent.path, json.loads(sent.body)) == (
        "/v2/repository/models/m/unload",
        {"parameters": {"unload_dependents": True}},
    )


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "load failed for model 'm': x", "protocol"),
        (503, "explicit model load / unload is not allowed if polling is enabled", "unavailable"),
        (403, "This API is restricted, expecting header 'admin'", "permission"),
    ],
)
def test_a_no_is_in_tritons_words(status: int, words: str, kind: str) -> None:
    with scripted(lambda _: answer({"error": words}, status)) as server:
        for call in (lambda: control(server.port).load("m", None, 2.0), lambda: control(server.port).unload("m")):
            with pytest.raises(ControlRefused) as error:
                call()
            assert (error.value.message, error.value.kind) == (words, kind)
            assert ("admin" in error.value.hint) == (kind == "permission")


def test_a_wait_may_end_before_the_load_does() -> None:
    go_on = threading.Event()

    def respond(_: Request) -> Reply:
        go_on.wait(5)
        return answer()

    with scripted(respond) as server:
        call = control(server.port).begin_load("m", None, 10.0)
        assert not call.wait(0.05)
        with pytest.raises(SourceError, match="may go on loading") as error:
            call.result()
        assert error.value.kind == "timeout"
        go_on.set()
        assert call.wait(5)
        assert call.result() > 0.04


def test_no_answer_is_no_refusal() -> None:
    with scripted(lambda _: None) as server, pytest.raises(SourceError) as error:
        control(server.port).load("m", None, 1.0)
    assert not isinstance(error.value, ControlRefused)
    assert error.value.kind == "unavailable"
    with pytest.raises(SourceError, match="is no UTF-8"):
        control(1).begin_load("\udce9", None, 1.0)
    with pytest.raises(SourceError, match="is no UTF-8"):
        control(1).unload("\udce9")


def test_why_not_by_grpc() -> None:
    with scripted(lambda _: answer([{"name": "m"}])) as server:
        address = TritonAddress(http_port=server.port, grpc_port=None)
        assert find_route(address) == Route("HTTP", "its gRPC port is off or not published")
        assert find_route(address, "HTTP") == Route("HTTP", "asked for")
        route = find_route(TritonAddress(http_port=server.port, grpc_port=1))
        assert (route.name, "gRPC on port 1 does not answer" in route.why) == ("HTTP", True)


def test_reads_go_on_connections_of_their_own() -> None:
    def respond(request: Request) -> Reply:
        return answer({"model_stats": [{"name": "m", "version": "1"}], "outputs": []})

    with scripted(respond) as server:
        address = TritonAddress(http_port=server.port)
        assert "model_stats" in served_config(address, "m", "1")
        assert statistics(address, "m")[0].version == "1"
        assert infer(address, "m", "2", b"x", {"A": "b"}).status == 200
    assert [request.connection for request in server.requests] == [1, 2, 3]
    assert server.requests[2].path == "/v2/models/m/versions/2/infer"


def test_headers_under_both_names() -> None:
    assert _metadata({"Admin-Key": "x"}) == (("admin-key", "x"), ("triton-grpc-protocol-admin-key", "x"))


@pytest.mark.parametrize("words", ["failed to connect to all addresses", "Socket closed", "Stream removed (x)"])
def test_a_lost_connection_is_no_refusal(words: str) -> None:
    assert _is_channel(words)
    assert not _is_channel("explicit model load / unload is not allowed if polling is enabled")
