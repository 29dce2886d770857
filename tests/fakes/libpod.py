"""A Unix-socket HTTP server that gives recorded libpod answers: what Podman sent once, byte for byte."""

from __future__ import annotations

import contextlib
import socket as socketlib
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

DATA = Path(__file__).parents[1] / "data" / "podman"


class Request(BaseHTTPRequestHandler):
    """One request; `query` holds its parameters, `send_chunk` writes a piece of an endless answer."""

    protocol_version = "HTTP/1.1"
    server: _Server
    query: dict[str, str]

    def setup(self) -> None:
        """Remember the connection, so that the service can hang up."""
        super().setup()
        self.server.owner.connections.append(self.connection)

    def do_GET(self) -> None:
        """Answer by the route of the path, whatever the API version in it."""
        parts = urlsplit(self.path)
        path = "/" + unquote(parts.path).split("/libpod/", 1)[-1]
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.owner.calls.append((path, self.query))
        route = self.server.owner.routes.get(path, (404, b'{"message":"no such thing"}'))
        if callable(route):
            route(self)
            return
        status, body = route
        self.send_response(status)
        for name, value in self.server.owner.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def start_stream(self) -> None:
        """Begin an endless answer."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes) -> None:
        """One piece; empty data ends the answer."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Say nothing."""

    def address_string(self) -> str:
        """A Unix peer has no address."""
        return "unix"


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    owner: FakeLibpod

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closes its stream is no error here."""


Route = tuple[int, bytes] | Callable[[Request], object]


class FakeLibpod:
    """Serves `routes` (path after /libpod -> answer) on `socket` while used as a context."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.headers = {"Libpod-Api-Version": "4.3.1"}
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.stop = threading.Event()
        """For routes that stream: they end when it is set."""
        self.connections: list[socketlib.socket] = []
        self.routes: dict[str, Route] = {
            "/_ping": (200, b"OK"),
            "/containers/json": recorded("containers.json"),
            "/images/json": recorded("images.json"),
            "/containers/stats": recorded("stats.json"),
        }
        for file, names in (("inspect_running.json", RUNNING), ("inspect_exited.json", EXITED)):
            self.routes |= {f"/containers/{name}/json": recorded(file) for name in names}
        self.routes[f"/images/{IMAGE_ID}/json"] = recorded("image.json")
        self.routes[f"/containers/{RUNNING[0]}/logs"] = recorded("logs_server.bin")
        self.routes[f"/containers/{EXITED[0]}/logs"] = recorded("logs_exited.bin")
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """As CONTAINER_HOST names it."""
        return f"unix://{self.socket}"

    def __enter__(self) -> FakeLibpod:
        self.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.end()

    def start(self) -> None:
        """Listen."""
        self.stop.clear()
        self._server = _Server(str(self.socket), Request)
        self._server.owner = self
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def end(self) -> None:
        """Stop listening and remove the socket, as a stopped service does. New calls fail, open ones are ended."""
        self.stop.set()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socketlib.SHUT_RDWR)
        self.connections.clear()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.socket.unlink(missing_ok=True)


def recorded(name: str) -> tuple[int, bytes]:
    """A recorded answer."""
    return 200, (DATA / name).read_bytes()


def _identities() -> tuple[dict[str, str], str]:
    import msgspec

    listed = msgspec.json.decode((DATA / "containers.json").read_bytes())
    images = msgspec.json.decode((DATA / "images.json").read_bytes())
    return {one["Names"][0]: one["Id"] for one in listed}, images[0]["Id"]


_BY_NAME, IMAGE_ID = _identities()
RUNNING = (_BY_NAME["triton"], "triton")
"""Identity and name of the recorded running container."""
EXITED = (_BY_NAME["exited"], "exited")
"""Those of the recorded one that ended with 126 and has the label of triton.service."""
