"""A small HTTP/1.1 server on asyncio and h11: enough for the stand-ins, over TCP or a Unix socket.

Bodies and answers are held whole, except a `Stream`, whose pieces are sent as they come and which is ended when the
client goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

import h11

MAX_BODY = 64 * 1024 * 1024
READ_SIZE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A request read whole. `path` is decoded and without the query; header names are lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def first(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        """Whether a query parameter says yes, in the ways that Podman's clients write it."""
        return self.first(name).lower() in ("true", "1")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer sent with its length."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer sent in chunks until the generator ends or the client leaves; then the generator is closed."""

    chunks: AsyncGenerator[bytes, None]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Holder:
    """A free port, bound and not listened on: a connection is refused, and nobody else gets the port meanwhile."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            self._socket.setsockopt(socket.SOL_SOCKET, option, 1)
        self._socket.bind((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give it back."""
        self._socket.close()


Handler = Callable[[Request], Awaitable[Response | Stream]]


class HttpServer:
    """Serves one handler on the listening sockets given to `listen_*`; `close` also ends open connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen_tcp(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen on a port, 0 = a free one; returns it. A port that is only held (`Holder`) can be listened on."""
        self._server = await asyncio.start_server(self._accept, host, port, reuse_address=True, reuse_port=True)
        port = self._server.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    async def listen_unix(self, path: str) -> None:
        """Listen on a Unix socket at `path`."""
        self._server = await asyncio.start_unix_server(self._accept, path)

    def refuse(self) -> None:
        """Stop listening; open connections get their answers."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Stop listening and drop all connections."""
        self.refuse()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await _Connection(reader, writer, self._handler).serve()
        except (ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # the client left, spoke no HTTP, or the server closes: nobody is there to be told
        finally:
            self._connections.discard(task)
            writer.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while (request := await self._read_request()) is not None:
            answer = await self._handler(request)
            if isinstance(answer, Stream):
                await self._send_stream(answer)
            else:
                await self._send(request, answer)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _read_request(self) -> Request | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(READ_SIZE))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY:
                    return None
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None

    async def _write(self, event: h11.Event) -> None:
        if (data := self._http.send(event)) is not None:
            self._writer.write(data)
            await self._writer.drain()

    async def _send(self, request: Request, answer: Response) -> None:
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        await self._write(h11.Response(status_code=answer.status, headers=headers))
        if request.method != "HEAD":
            await self._write(h11.Data(data=answer.body))
        await self._write(h11.EndOfMessage())

    async def _send_stream(self, answer: Stream) -> None:
        headers = [*answer.headers.items(), ("Transfer-Encoding", "chunked")]
        await self._write(h11.Response(status_code=answer.status, headers=headers))
        sending = asyncio.create_task(self._send_chunks(answer.chunks))
        leaving = asyncio.create_task(self._reader.read(1))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task
        if self._http.our_state is h11.SEND_BODY:
            self._http.send_failed()

    async def _send_chunks(self, chunks: AsyncGenerator[bytes, None]) -> None:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                await self._write(h11.Data(data=chunk))
        await self._write(h11.EndOfMessage())


def _request(head: h11.Request, body: bytes) -> Request:
    parts = urlsplit(head.target.decode("latin-1"))
    return Request(
        method=head.method.decode("ascii"),
        path=unquote(parts.path),
        query=parse_qs(parts.query, keep_blank_values=True),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )
