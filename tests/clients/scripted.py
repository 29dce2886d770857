"""A server on loopback that answers byte for byte what a test tells it to."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Request:
    """What the server read."""

    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Reply = bytes | Callable[[socket.socket], None] | None
"""Bytes to send; a function that plays with the connection; None to close it without a word."""


def answer(body: bytes | object = b"", status: int = 200, **headers: str) -> bytes:
    """One whole HTTP answer; what is no bytes becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


@dataclass
class Scripted:
    """The server: `reply` is asked for each request."""

    reply: Callable[[Request], Reply]
    port: int = 0
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        while not self.stop.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(peer, self.connections, tls), daemon=True).start()

    def _talk(self, peer: socket.socket, number: int, tls: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(peer.close)
            if tls is not None:
                peer = tls.wrap_socket(peer, server_side=True)
                stack.callback(peer.close)
            stream = peer.makefile("rb")
            while (request := self._read(stream, number)) is not None:
                self.requests.append(request)
                reply = self.reply(request)
                if reply is None:
                    return
                if callable(reply):
                    reply(peer)
                    return
                peer.sendall(reply)

    @staticmethod
    def _read(stream: object, number: int) -> Request | None:
        read: Callable[[], bytes] = stream.readline  # type: ignore[attr-defined]
        first = read().split()
        if len(first) < 2:
            return None
        headers: dict[str, str] = {}
        while line := read().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))  # type: ignore[attr-defined]
        return Request(number, first[0].decode("latin-1"), first[1].decode("latin-1"), headers, body)


@contextlib.contextmanager
def scripted(reply: Callable[[Request], Reply], tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """Run the server during the block."""
    server = Scripted(reply)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        thread = threading.Thread(target=server.serve, args=(listener, tls), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
