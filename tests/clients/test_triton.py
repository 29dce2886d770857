"""The HTTP client: deadlines, the second try, and one sentence for each way of failing."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients.triton import (
    Answer,
    Http,
    Limits,
    TritonAddress,
    error_text,
    expect_ok,
    explain,
    metrics_http,
    model_path,
    restricted_hint,
    server_http,
)
from console.core.model import SourceError
from tests.clients.scripted import Reply, Request, answer, free_port, scripted

QUICK = Limits(connect=1.0, read=0.4, kept=0.2, body=100_000)


def client(port: int, **headers: str) -> Http:
    return Http("127.0.0.1", port, headers, limits=QUICK)


def test_a_kept_connection_is_used_again() -> None:
    with scripted(lambda r: answer(r.path.encode())) as server:
        http = client(server.port, X_Key="v")
        assert [http.get(path).body for path in ("/a", "/b")] == [b"/a", b"/b"]
        assert http.post("/c", b"body").status == 200
        assert server.connections == 1
        assert server.requests[2].body == b"body"
        assert {r.headers["x_key"] for r in server.requests} == {"v"}
        http.close()
        http.close()
        http.get("/d")
        assert server.connections == 2


def test_an_answer_tells_status_headers_and_time() -> None:
    with scripted(lambda _: answer(b"no", 400, Inference_Header_Content_Length="7")) as server:
        before = time.monotonic()
        got = client(server.port).get("/x")
    assert (got.status, got.body) == (400, b"no")
    assert got.headers["inference-header-content-length"] == "7"
    assert before <= got.mono <= time.monotonic()
    assert got.seconds > 0


def test_a_silent_kept_connection_is_left_for_a_fresh_one() -> None:
    def reply(request: Request) -> Reply:
        if request.connection == 1 and request.path != "/first":
            return lambda _: time.sleep(1)
        return answer(request.path.encode())

    with scripted(reply) as server:
        http = client(server.port)
        http.get("/first")
        assert http.get("/second").body == b"/second"
        assert http.get("/third").body == b"/third"
        assert server.connections == 2


def test_a_kept_connection_that_the_server_closed_is_made_anew() -> None:
    def reply(request: Request) -> Reply:
        return None if request.path == "/x" and request.connection == 1 else answer(b"ok")

    with scripted(reply) as server:
        http = client(server.port)
        http.get("/first")
        assert http.get("/x").body == b"ok"
        assert server.connections == 2


def test_two_tries_at_most() -> None:
    with scripted(lambda r: answer(b"ok") if r.path == "/first" else (lambda _: time.sleep(1))) as server:
        http = client(server.port)
        http.get("/first")
        with pytest.raises(SourceError) as caught:
            http.get("/silent")
        assert caught.value.kind == "timeout"
        assert len(server.requests) == 3


def test_once_is_one_try() -> None:
    with scripted(lambda _: None) as server:
        with pytest.raises(SourceError) as caught:
            client(server.port).once("POST", "/infer", b"x", {"A": "b"})
        assert caught.value.kind == "unavailable"
        assert len(server.requests) == 1


def drip(head: bytes, byte: bytes) -> Reply:
    def play(peer: socket.socket) -> None:
        peer.sendall(head)
        for _ in range(100):
            peer.sendall(byte)
            time.sleep(0.05)

    return play


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"])
def test_a_peer_that_drips_does_not_hold_the_thread(head: bytes) -> None:
    with scripted(lambda _: drip(head, b"x")) as server, pytest.raises(SourceError) as caught:
        client(server.port).get("/x")
    assert caught.value.kind == "timeout"
    assert "0.4 s" in caught.value.message


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol"),
        (b"\x00\xff\x00\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000, "protocol"),
        (b"", "unavailable"),
    ],
)
def test_what_is_no_answer(raw: bytes, kind: str) -> None:
    def reply(_: Request) -> Reply:
        return lambda peer: peer.sendall(raw)

    with scripted(reply) as server, pytest.raises(SourceError) as caught:
        client(server.port).get("/x")
    assert caught.value.kind == kind
    assert f"127.0.0.1:{server.port}" in caught.value.message


def test_an_answer_too_large_on_a_kept_connection_is_not_asked_for_twice() -> None:
    with scripted(lambda r: answer(b"x" * (200_000 if r.path == "/big" else 1))) as server:
        http = client(server.port)
        http.get("/first")
        with pytest.raises(SourceError, match="larger than"):
            http.get("/big")
        assert len(server.requests) == 2
        assert http.get("/first").status == 200


def test_chunked_answers_are_read() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with scripted(lambda _: raw) as server:
        assert client(server.port).get("/x").body == b"abcde"


@given(st.binary(max_size=300))
@settings(max_examples=40, deadline=None)
def test_any_bytes_are_an_answer_or_a_source_error(raw: bytes) -> None:
    with scripted(lambda _: lambda peer: peer.sendall(raw)) as server:
        failure: SourceError | None = None
        try:
            client(server.port).get("/x")
        except SourceError as error:
            failure = error
        assert failure is None or (failure.message and failure.message.isprintable())


def test_refused() -> None:
    with pytest.raises(SourceError) as caught:
        client(free_port()).get("/x")
    assert caught.value.kind == "unavailable"
    assert "refuses the connection" in caught.value.message


def test_a_header_that_cannot_be_sent() -> None:
    with scripted(lambda _: answer()) as server, pytest.raises(SourceError) as caught:
        Http("127.0.0.1", server.port, {"key": "a\nb"}, limits=QUICK).get("/x")
    assert caught.value.kind == "protocol"
    assert "triton.headers" in caught.value.hint


def test_a_name_that_cannot_be_resolved() -> None:
    with pytest.raises(SourceError, match="cannot be one"):
        Http("no such host", 1, limits=QUICK).get("/x")
    with pytest.raises(SourceError) as caught:
        Http("nosuchhost.invalid", 1, limits=QUICK).get("/x")
    assert caught.value.kind == "unavailable"
    assert "resolved" in caught.value.message
    with pytest.raises(SourceError, match="resolved"):
        Http("a" * 70 + ".example", 1, limits=QUICK).get("/x")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ssl.SSLError(1, "wrong version number"), "protocol"),
        (BrokenPipeError(), "unavailable"),
        (OSError(113, "No route to host"), "unavailable"),
        (OSError("odd"), "unavailable"),
        (http.client.BadStatusLine("x"), "protocol"),
    ],
)
def test_each_failure_has_a_sentence(error: Exception, kind: str) -> None:
    explained = explain(error, "h:1", 2.0)
    assert explained.kind == kind
    assert "h:1" in explained.message


# ------------------------------------------------------------------------------------------------------ TLS, address


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_https(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with scripted(lambda _: answer(b"ok"), tls) as server:

        def address(ca_file: str = "", insecure: bool = False) -> TritonAddress:
            return TritonAddress(http_port=server.port, https=True, ca_file=ca_file, insecure=insecure)

        known = server_http(address(ca_file=str(certificate / "cert.pem")))
        assert known.get("/x").body == b"ok"
        assert known.get("/x").body == b"ok"
        assert server_http(address(insecure=True)).get("/x").body == b"ok"
        with pytest.raises(SourceError) as caught:
            server_http(address()).get("/x")
        assert caught.value.kind == "protocol"
        assert "not trusted" in caught.value.message
        assert "triton.ca_file" in caught.value.hint


def test_tls_with_a_server_that_has_none() -> None:
    with scripted(lambda _: answer()) as server:
        http = server_http(TritonAddress(http_port=server.port, https=True, insecure=True), QUICK)
        with pytest.raises(SourceError) as caught:
            http.get("/x")
    assert caught.value.kind in ("protocol", "timeout", "unavailable")


def test_a_certificate_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.pem"):
        server_http(TritonAddress(https=True, ca_file=str(tmp_path / "none.pem")))
    (tmp_path / "odd.pem").write_text("odd")
    with pytest.raises(SourceError, match=r"odd\.pem"):
        server_http(TritonAddress(https=True, ca_file=str(tmp_path / "odd.pem")))


def test_addresses() -> None:
    assert TritonAddress().url == "http://127.0.0.1:8000"
    assert TritonAddress(host="::1", https=True, http_port=9).url == "https://[::1]:9"
    assert TritonAddress().metrics_url == "http://127.0.0.1:8002/metrics"
    assert TritonAddress(metrics_port=None).metrics_url is None
    assert Http("::1", 9).where == "[::1]:9"
    with pytest.raises(SourceError, match="metrics port"):
        metrics_http(TritonAddress(metrics_port=None))
    assert metrics_http(TritonAddress(metrics_port=7)).port == 7


@pytest.mark.parametrize("https", [False, True])
def test_headers_meant_for_https_are_not_sent_in_the_open(https: bool) -> None:
    with scripted(lambda _: answer()) as server:
        metrics_http(TritonAddress(metrics_port=server.port, https=https, headers={"my-key": "v"})).get("/metrics")
        assert [request.headers.get("my-key") for request in server.requests] == [None if https else "v"]


def test_paths_of_models_with_odd_names() -> None:
    assert model_path("rank") == "/v2/models/rank"
    assert model_path("a/b ü?", "2") == "/v2/models/a%2Fb%20ü%3F/versions/2"
    for name in ("[x]", "p%41", "模型", "pl+us", "am&p", "a'b"):
        assert model_path(name) == f"/v2/models/{name}", "Triton decodes no escapes"


# ------------------------------------------------------------------------------------------------------------ statuses


def got(status: int, body: bytes) -> Answer:
    return Answer(status, body, 0.0, 0.0, {})


def test_what_statuses_mean() -> None:
    assert expect_ok(got(200, b"x"), "index") == b"x"
    restricted = got(403, b'{"error":"This API is restricted, expecting header \'my-key\'"}')
    with pytest.raises(SourceError) as caught:
        expect_ok(restricted, "statistics")
    assert caught.value.kind == "permission"
    assert caught.value.message == "statistics: 403: This API is restricted, expecting header 'my-key'"
    assert "header my-key" in caught.value.hint
    for status, kind in ((503, "unavailable"), (404, "protocol"), (400, "protocol"), (500, "protocol")):
        with pytest.raises(SourceError) as caught:
            expect_ok(got(status, b'{"error":"why [/x]"}'), "index")
        assert caught.value.kind == kind
        assert caught.value.message == f"index: {status}: why [/x]"
    with pytest.raises(SourceError, match=r"^index: 404$"):
        expect_ok(got(404, b""), "index")


def test_error_texts() -> None:
    assert error_text(got(400, b'{"error":"a\\nb\\u001b[31m"}')) == r"a ⏎ b\x1b[31m"
    assert error_text(got(502, b"<html>\xff</html>")) == "<html>�</html>"
    assert restricted_hint("no") == "see triton.headers"
