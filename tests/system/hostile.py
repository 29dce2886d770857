"""Servers that stand where Triton should and do anything but serve: each way of answering wrongly, by name."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

Talk = Callable[[socket.socket, threading.Event], None]


def _send(peer: socket.socket, stop: threading.Event, data: bytes, pause: float = 0.0, times: int = 1) -> None:
    for _ in range(times):
        if stop.is_set():
            return
        peer.sendall(data)
        if pause:
            stop.wait(pause)


def garbage(peer: socket.socket, stop: threading.Event) -> None:
    """No HTTP at all."""
    _send(peer, stop, bytes(range(256)) * 8)


def endless_header(peer: socket.socket, stop: threading.Event) -> None:
    """A header that never ends."""
    _send(peer, stop, b"HTTP/1.1 200 OK\r\n")
    _send(peer, stop, b"X-A: " + b"a" * 4000 + b"\r\n", times=10_000)


def endless_body(peer: socket.socket, stop: threading.Event) -> None:
    """A body without a length that never ends."""
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    _send(peer, stop, b'{"name":"a"},' * 5000, times=100_000)


def drip(peer: socket.socket, stop: threading.Event) -> None:
    """A byte every tenth of a second: each read is quick, the whole never ends."""
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    _send(peer, stop, b" ", pause=0.1, times=600)


def dripped_header(peer: socket.socket, stop: threading.Event) -> None:
    """The same with the headers."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + b"A" * 1000:
        _send(peer, stop, bytes([byte]), pause=0.1)


def gigabyte(peer: socket.socket, stop: threading.Event) -> None:
    """A length that no answer of Triton has."""
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
    _send(peer, stop, b"x" * 65536, times=100)
    stop.wait(5)


def short_body(peer: socket.socket, stop: threading.Event) -> None:
    """Less than was promised, then the end."""
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}")


def bad_utf8(peer: socket.socket, stop: threading.Event) -> None:
    """JSON with bytes that are no UTF-8."""
    body = b'{"name":"triton\xff\xfe","version":"2.\xc3\x28"}'
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def bad_utf8_error(peer: socket.socket, stop: threading.Event) -> None:
    """An error whose words are no UTF-8, hold escape codes and markup."""
    body = b'{"error":"[/x] \xff \x1b[31m\x1b]0;title\x07 \xe2\x80\xae"}'
    _send(peer, stop, b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def deep_json(peer: socket.socket, stop: threading.Event) -> None:
    """JSON nested deeper than any decoder goes."""
    body = b'{"model_stats":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def other_json(peer: socket.socket, stop: threading.Event) -> None:
    """JSON of some other program."""
    body = b'{"status":"ok","items":[1,2,3]}'
    _send(peer, stop, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def restricted(peer: socket.socket, stop: threading.Event) -> None:
    """A Triton whose APIs want a header."""
    body = b'{"error":"This API is restricted, expecting header \'lab-key\'"}'
    _send(peer, stop, b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def silent(peer: socket.socket, stop: threading.Event) -> None:
    """Accepts and says nothing."""
    stop.wait(20)


def closes(peer: socket.socket, stop: threading.Event) -> None:
    """Accepts and closes."""


def redirect(peer: socket.socket, stop: threading.Event) -> None:
    """Sends the caller elsewhere."""
    _send(peer, stop, b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n")


KINDS: dict[str, Talk] = {
    one.__name__: one
    for one in (
        garbage,
        endless_header,
        endless_body,
        drip,
        dripped_header,
        gigabyte,
        short_body,
        bad_utf8,
        bad_utf8_error,
        deep_json,
        other_json,
        restricted,
        silent,
        closes,
        redirect,
    )
}


@contextlib.contextmanager
def server(talk: Talk) -> Iterator[int]:
    """A port on loopback where each connection, once it has asked something, gets `talk`."""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.settimeout(0.1)

    def answer(peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(5)
            peer.recv(65536)
            talk(peer, stop)
            peer.shutdown(socket.SHUT_WR)
            end = time.monotonic() + 1
            while time.monotonic() < end and peer.recv(65536):
                pass

    def accept() -> None:
        while not stop.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                continue
            threading.Thread(target=answer, args=(peer,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        stop.set()
        thread.join(2)
        listener.close()
