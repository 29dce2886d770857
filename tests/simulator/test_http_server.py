"""The small HTTP server: methods, bodies, broken clients, streams that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
import pytest

from console.simulator.http_server import HttpServer, Request, Response, Stream


class Echo:
    """Answers with what it was asked, or with a stream; remembers whether the stream was ended."""

    def __init__(self) -> None:
        self.stream_ended = asyncio.Event()

    async def __call__(self, request: Request) -> Response | Stream:
        if request.path == "/stream":
            return Stream(self._count(int(request.first("n", "1000000"))))
        body = f"{request.method} {request.path} {request.query} {len(request.body)}".encode()
        return Response(200, body, {"X-Flag": str(request.flag("yes"))})

    async def _count(self, end: int) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(end):
                yield f"{number}\n".encode()
                await asyncio.sleep(0)
        finally:
            self.stream_ended.set()


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Echo]]:
    echo = Echo()
    http = HttpServer(echo)
    port = await http.listen_tcp()
    yield f"http://127.0.0.1:{port}", echo
    await http.close()


async def test_requests_on_one_connection(server: tuple[str, Echo]) -> None:
    base, _ = server
    async with httpx.AsyncClient() as http:
        answer = await http.get(base + "/a%2Fb?x=1&x=2&yes=true")
        assert answer.text == "GET /a/b {'x': ['1', '2'], 'yes': ['true']} 0"
        assert answer.headers["X-Flag"] == "True"
        assert (await http.post(base + "/", content=b"x" * 3_000_000)).text == "POST / {} 3000000"
        head = await http.head(base + "/")
        assert head.content == b""
        assert int(head.headers["content-length"]) > 0


async def test_a_body_announced_with_expect_continue(server: tuple[str, Echo]) -> None:
    base, _ = server
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 100")
    writer.write(b"hi")
    assert await reader.readuntil(b"POST / {} 2")
    writer.close()


async def test_a_client_that_speaks_no_http_is_left(server: tuple[str, Echo]) -> None:
    base, _ = server
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(b"\x16\x03\x01 this is TLS\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    async with httpx.AsyncClient() as http:
        assert (await http.get(base + "/")).status_code == 200


async def test_a_stream_to_its_end(server: tuple[str, Echo]) -> None:
    base, echo = server
    async with httpx.AsyncClient() as http:
        assert (await http.get(base + "/stream?n=3")).text == "0\n1\n2\n"
    assert echo.stream_ended.is_set()


async def test_a_stream_ends_when_the_client_leaves(server: tuple[str, Echo]) -> None:
    base, echo = server
    async with httpx.AsyncClient() as http, http.stream("GET", base + "/stream") as answer:
        assert await anext(answer.aiter_lines()) == "0"
    await asyncio.wait_for(echo.stream_ended.wait(), 10)


async def test_closing_ends_open_streams() -> None:
    echo = Echo()
    http_server = HttpServer(echo)
    port = await http_server.listen_tcp()
    async with httpx.AsyncClient() as http, http.stream("GET", f"http://127.0.0.1:{port}/stream") as answer:
        await anext(answer.aiter_lines())
        await http_server.close()
        assert echo.stream_ended.is_set()
