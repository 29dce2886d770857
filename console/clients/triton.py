"""Triton over HTTP: one connection per source, every call with a deadline, every error a SourceError.

`http.client` and not httpx or tritonclient: for a poll of three models it costs 0.09 ms of CPU against 0.32 (httpx),
for 1 000 models 0.15 against 1.05 and 1.25 (tritonclient), and its socket can be held to a true deadline, headers and
a dripping body included (measured on this product's own answers).

A model load over HTTP holds one of Triton's workers, and kept connections are pinned to workers (domain facts 1.5). So
a call on a kept connection that gets no answer within `Limits.kept` seconds is made once more on a fresh one.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import IO, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from console.core.model import ErrorKind, Failure, SourceError
from console.core.text import decode, one_line

MAX_BODY: Final = 64 * 1024 * 1024
CHUNK: Final = 256 * 1024


class TritonAddress(Struct, frozen=True):
    """Where one Triton answers. A port of None means: switched off or not published."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001
    metrics_port: int | None = 8002
    https: bool = False
    ca_file: str = ""
    insecure: bool = False
    """Accept any certificate."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request (restricted APIs, proxies). Values are secrets."""
    keep: bool = True
    """False while the server drains: it waits for its clients' connections to close before it ends, up to its exit
    time-out of 30 s (seen: 31 s with one idle kept connection, 2 s without), so none is kept then."""
    no_metrics: Failure | None = None
    """Why there is no metrics port, where that is known."""

    @property
    def where(self) -> str:
        """`host:port` of the HTTP endpoint."""
        return f"{self._host}:{self.http_port}"

    @property
    def url(self) -> str:
        """Of the HTTP endpoint."""
        return f"{'https' if self.https else 'http'}://{self.where}"

    @property
    def metrics_url(self) -> str | None:
        """Of the metrics page; None when there is none."""
        return None if self.metrics_port is None else f"http://{self._host}:{self.metrics_port}/metrics"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


class Limits(Struct, frozen=True):
    """Seconds that a call may take."""

    connect: float = 1.0
    read: float = 2.0
    """From the request to the first byte of its answer on a fresh connection, and again from there to its end."""
    kept: float = 0.5
    """To the first byte of the answer on a kept connection. Short, since what the old copy of a model counted between
    the last poll and the end of its reload is lost, and a poll that stands behind that load widens this gap."""
    body: int = MAX_BODY
    """Bytes of an answer."""


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    mono: float
    """When the answer began."""
    seconds: float
    """From the request (its last try) to the end of the answer."""
    headers: Mapping[str, str]
    """Names in lower case."""


class _TimedReader(io.RawIOBase):
    """Bytes of a socket until a moment, not each within a while: a peer that drips cannot hold the thread."""

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock = sock
        self._connection = connection
        self._raw = sock.makefile("rb", 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(self._connection.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Peer:
    """What HTTPResponse wants of a socket."""

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._reader = _TimedReader(sock, connection)

    def makefile(self, _mode: str) -> IO[bytes]:
        return io.BufferedReader(self._reader)


class _Connection(http.client.HTTPConnection):
    """One connection with a deadline for all that it does."""

    def __init__(self, host: str, port: int, limits: Limits, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._limits = limits
        self._tls = tls
        self.deadline = 0.0
        self.used = False
        """True after the first answer."""

    def left(self) -> float:
        """Seconds to the deadline; TimeoutError when it has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def connect(self) -> None:
        sock = socket.create_connection((self.host, self.port), timeout=min(self._limits.connect, self.left()))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock = sock

    def send(self, data: Any) -> None:
        if self.sock is not None:
            self.sock.settimeout(self.left())
        super().send(data)

    def _encode_request(self, request: str) -> bytes:
        """The request line in UTF-8, as names of models are; http.client itself would refuse what is not ASCII."""
        return request.encode()

    def response_class(self, sock: socket.socket, method: str) -> http.client.HTTPResponse:  # type: ignore[override]
        return http.client.HTTPResponse(_Peer(sock, self), method=method)  # type: ignore[arg-type]


class Http:
    """A client for one host and port, to be used by one thread only."""

    def __init__(
        self,
        host: str,
        port: int,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        *,
        keep: bool = True,
    ) -> None:
        """Without `keep` each request has a connection of its own."""
        self.host, self.port = host, port
        self._keep = keep
        self._headers = dict(headers or {})
        self._tls = tls
        self._limits = limits or Limits()
        self._kept: _Connection | None = None

    @property
    def where(self) -> str:
        """`host:port` as a person writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def get(self, path: str) -> Answer:
        """GET; SourceError when no answer came (any status is an answer)."""
        return self.request("GET", path)

    def post(self, path: str, body: bytes = b"") -> Answer:
        """POST something that may safely be sent twice; SourceError when no answer came."""
        return self.request("POST", path, body)

    def request(self, method: str, path: str, body: bytes = b"") -> Answer:
        """On the kept connection, and once more on a fresh one when that is stale or silent."""
        kept, self._kept = self._kept, None
        if kept is not None:
            try:
                return self._exchange(kept, method, path, body, {}, self._limits.kept)
            except (OSError, http.client.HTTPException):
                kept.close()
            except (SourceError, ValueError):
                kept.close()
                raise
        return self.once(method, path, body)

    def once(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """On a fresh connection, exactly one try."""
        try:
            fresh = _Connection(self.host, self.port, self._limits, self._tls)
        except http.client.HTTPException as error:
            raise SourceError(
                "unavailable", f"the name of {self.where} cannot be one", "see triton.host in the settings"
            ) from error
        try:
            return self._exchange(fresh, method, path, body, headers or {}, self._limits.read)
        except (OSError, http.client.HTTPException, ValueError) as error:
            fresh.close()
            raise explain(error, self.where, self._limits.read) from error
        except SourceError:
            fresh.close()
            raise

    def close(self) -> None:
        """Close the kept connection, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _exchange(
        self, connection: _Connection, method: str, path: str, body: bytes, headers: Mapping[str, str], patience: float
    ) -> Answer:
        began = time.monotonic()
        connection.deadline = began + patience
        connection.request(method, path, body or None, {**self._headers, **headers})
        response = connection.getresponse()
        mono = time.monotonic()
        connection.deadline = mono + self._limits.read
        content = self._body(response)
        names = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, content, mono, time.monotonic() - began, names)
        if connection.sock is not None and self._keep:
            self._kept = connection
        else:
            connection.close()
        return answer

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        if (response.length or 0) > self._limits.body:
            raise too_large(self.where, self._limits.body)
        while chunk := response.read1(CHUNK):
            size += len(chunk)
            if size > self._limits.body:
                raise too_large(self.where, self._limits.body)
            parts.append(chunk)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()
        return parts[0] if len(parts) == 1 else b"".join(parts)


def server_http(address: TritonAddress, limits: Limits | None = None) -> Http:
    """A client for the HTTP endpoint; SourceError when the certificate authority's file cannot be used."""
    return Http(address.host, address.http_port, address.headers, _tls(address), limits, keep=address.keep)


def metrics_http(address: TritonAddress, limits: Limits | None = None) -> Http:
    """A client for the metrics page (plain HTTP always); SourceError when there is none.

    Headers are secrets, so those meant for HTTPS are not sent to it in the open.
    """
    if address.metrics_port is None:
        if address.no_metrics is not None:
            raise SourceError(address.no_metrics.kind, address.no_metrics.message, address.no_metrics.hint)
        raise SourceError(
            "unavailable", "the metrics port is not known or not published", "see triton.metrics_port in the settings"
        )
    headers = {} if address.https else address.headers
    return Http(address.host, address.metrics_port, headers, None, limits, keep=address.keep)


def _tls(address: TritonAddress) -> ssl.SSLContext | None:
    if not address.https:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except (OSError, ValueError) as error:
        raise SourceError(
            "protocol",
            f"cannot use the certificate authority's file {address.ca_file}: {one_line(str(error), 200)}",
            "see triton.ca_file in the settings",
        ) from error
    if address.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def too_large(where: str, limit: int) -> SourceError:
    """An answer above the limit: some other program's, or a fault."""
    return SourceError("protocol", f"the answer of {where} is larger than {limit // (1024 * 1024)} MiB")


def explain(error: Exception, where: str, patience: float) -> SourceError:
    """What a failed call means, in one sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceError(
            "protocol",
            f"the certificate of {where} is not trusted: {one_line(error.verify_message or str(error), 200)}",
            "set triton.ca_file, or triton.insecure to accept it",
        )
    if isinstance(error, ssl.SSLError):
        return SourceError(
            "protocol", f"no TLS with {where}: {one_line(str(error), 200)}", "see triton.https in the settings"
        )
    if isinstance(error, TimeoutError):
        return SourceError("timeout", f"{where} did not answer within {patience:g} s")
    if isinstance(error, ConnectionRefusedError):
        return SourceError(
            "unavailable", f"{where} refuses the connection", "nothing listens there: is Triton up, is the port right?"
        )
    if isinstance(error, socket.gaierror | UnicodeError):
        return SourceError("unavailable", f"the name of {where} cannot be resolved", "see triton.host in the settings")
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return SourceError("unavailable", f"{where} closed the connection without an answer")
    if isinstance(error, http.client.HTTPException):
        return SourceError("protocol", f"{where} does not answer in HTTP: {_named(error)}")
    if isinstance(error, OSError):
        return SourceError("unavailable", f"{where} cannot be reached: {one_line(error.strerror or str(error), 200)}")
    return SourceError(
        "protocol", f"the request to {where} cannot be sent: {_named(error)}", "see triton.headers in the settings"
    )


def _named(error: Exception) -> str:
    text = f"{type(error).__name__} {error}".encode("ascii", "replace").decode()
    return one_line(text, 120).strip()


class _ErrorBody(Struct):
    error: str


def error_text(answer: Answer, limit: int = 600) -> str:
    """Triton's own words, `{"error": "..."}`, else the beginning of what came."""
    try:
        text = msgspec.json.decode(answer.body, type=_ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = decode(answer.body[:limit])
    return one_line(text, limit)


def expect_ok(answer: Answer, what: str) -> bytes:
    """The body of a 200; else a SourceError that names what was asked and what Triton said."""
    if answer.status == 200:
        return answer.body
    text = error_text(answer)
    if answer.status in (401, 403):
        raise SourceError("permission", f"{what}: {answer.status}: {text}", restricted_hint(text))
    kind: ErrorKind = "unavailable" if answer.status == 503 else "protocol"
    raise SourceError(kind, f"{what}: {answer.status}: {text}" if text else f"{what}: {answer.status}")


def restricted_hint(text: str) -> str:
    """For `This API is restricted, expecting header 'key'`."""
    _, found, rest = text.partition("expecting header '")
    name = rest.partition("'")[0] if found else ""
    return f"give the header {name} under [triton.headers] in the settings" if name else "see triton.headers"


def model_path(name: str, version: str | None = None) -> str:
    """`/v2/models/X[/versions/V]`.

    Triton takes the path as it comes and decodes no %-escape (seen on 2.51.0: `[x]`, `p%41` and a Chinese name answer
    200 as they are and 404 when escaped). So only what cannot stand in a request line is escaped; a model named with
    that cannot be asked for over HTTP at all.
    """
    path = f"/v2/models/{_in_path(name)}"
    return path if version is None else f"{path}/versions/{_in_path(version)}"


def _in_path(name: str) -> str:
    return "".join(quote(char, safe="") if char <= " " or char in "\x7f?#/" else char for char in name)
