"""The exporter's socket: bounded in connections and time, `/metrics` alone, loopback unless more is meant."""

from __future__ import annotations

import io
import ipaddress
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.exposition import make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from console.core.plan import WrongInput
from console.core.text import one_line

log = logging.getLogger(__name__)
CLIENT_S = 5.0
"""Seconds in which a client must send the next bytes of its request, or take those of the answer."""
MOST_CLIENTS = 8
"""At once; more are turned away."""
PATH = "/metrics"
Start = Callable[..., Any]


def address(text: str, *, open_to_others: bool) -> tuple[str, int]:
    """`127.0.0.1:9835`, `[::1]:9835`, `localhost:9835`. WrongInput, also for what other hosts reach where that was not
    said to be meant."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise WrongInput(f"--listen must be an address and a port such as 127.0.0.1:9835, not {one_line(text, 60)!r}")
    if not open_to_others and not _is_loopback(host):
        raise WrongInput(
            f"--listen {one_line(text, 60)} would let other hosts read this box; add --open-to-others if that is meant"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Log(io.TextIOBase):
    """Where the library writes the trace of a fault of ours."""

    def write(self, text: str) -> int:
        if text.strip():
            log.error("exporter: %s", text.rstrip())
        return len(text)


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_S

    def get_stderr(self) -> Any:
        """The private log, never the terminal."""
        return _Log()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the library's own name)
        """Nothing: who scrapes is not ours to keep."""


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answers scrapes in threads of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, where: tuple[str, int], app: Any) -> None:
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """As the library's, but without asking the name service for this host's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for it, or the door where too many are in."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or was too slow; what else went wrong shows in its scrape."""

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}{PATH}"


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


def serve(where: tuple[str, int], collect: Callable[[], Iterator[Metric]]) -> Server:
    """A server that is bound and answers in a thread; `shutdown` and `server_close` end it. WrongInput where the
    address cannot be had."""
    registry = CollectorRegistry()
    registry.register(_Collected(collect))
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Start) -> Any:
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD"), ("Content-Type", "text/plain")])
            return [b"only GET\n"]
        if environ.get("PATH_INFO") != PATH:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [f"see {PATH}\n".encode()]
        return metrics(environ, start)

    try:
        server = Server(where, app)
    except (OSError, UnicodeError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no such address"
        raise WrongInput(f"--listen {where[0]}:{where[1]} cannot be had ({why}); choose another port") from None
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="exporter", daemon=True).start()
    return server
