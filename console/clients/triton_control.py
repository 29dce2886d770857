"""Triton's model control: load and unload by gRPC where its port answers, else by HTTP on a connection of their own.

A load by HTTP holds one of Triton's workers, and with it the kept connections of other models' clients, for its whole
length; the same load by gRPC holds up none of 32 (domain facts 1.5, measured). So gRPC is first choice, and `Route.why`
says why HTTP was taken. A time-out here ends the waiting only: the server goes on loading (1.4), and its index and log
tell how that ends. gRPC itself is imported at the first need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec
from msgspec import Struct

from console.clients.triton import (
    Answer,
    Limits,
    TritonAddress,
    error_text,
    expect_ok,
    model_path,
    restricted_hint,
    server_http,
)
from console.clients.triton_wire import StatsDecoder, decode_index, decoded
from console.core.model import ErrorKind, IndexEntry, ModelStats, SourceError
from console.core.text import one_line

CONNECT: Final = 1.0
"""Seconds in which the gRPC port must answer."""
CALL: Final = 10.0
"""Seconds for calls that Triton answers at once. An unload does too, but waits for a load of that model (measured)."""
REFUSED_WORDS: Final = 2000
"""Characters of Triton's own words that are kept: a failed load carries a traceback."""
HEADER_PREFIX: Final = "triton-grpc-protocol-"
"""Of the headers that Triton's `--grpc-restricted-protocol` expects."""

RouteName = Literal["gRPC", "HTTP"]


class Route(Struct, frozen=True):
    """How load and unload are sent."""

    name: RouteName
    why: str = ""
    """Why not by gRPC; "" for gRPC."""


class ControlRefused(SourceError):  # noqa: N818 (Triton's answer is no, not a fault of the way to it)
    """Triton answered, and its answer is no; `message` are its own words."""


class LoadCall:
    """A load that was sent. It runs in a thread of its own, so waiting for it can end before it does."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.began = time.monotonic()
        self.wall = time.time()
        self.seconds: float | None = None
        """From sending to the answer; None while there is none."""
        self.error: SourceError | None = None
        self._over = threading.Event()

    @property
    def over(self) -> bool:
        """True when the answer is there, good or bad."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer; False when there is none yet."""
        return self._over.wait(max(0.0, seconds))

    def result(self) -> float:
        """Seconds that the load took. ControlRefused with Triton's words, SourceError (timeout) while it goes on."""
        if not self.over:
            took = time.monotonic() - self.began
            raise SourceError("timeout", f"no answer to the load within {took:.0f} s; the server may go on loading")
        if self.error is not None:
            raise self.error
        return self.seconds or 0.0

    def _end(self, error: SourceError | None) -> None:
        self.error = error
        self.seconds = time.monotonic() - self.began
        self._over.set()


def find_route(address: TritonAddress, wanted: str = "") -> Route:
    """gRPC where its port answers for the same server as HTTP, else HTTP and why. `wanted`: `gRPC` or `HTTP` alone.

    The gRPC port may be a guess (8001), and then another server's: both indexes must name the same models.
    """
    if wanted.upper() == "HTTP":
        return Route("HTTP", "asked for")
    if address.grpc_port is None:
        return Route("HTTP", "its gRPC port is off or not published")
    try:
        with _Grpc(address) as grpc:
            names = grpc.index_names()
        same = names == _index_names(address)
    except SourceError as error:
        return Route("HTTP", f"gRPC on port {address.grpc_port} does not answer: {error.message}")
    return Route("gRPC") if same else Route("HTTP", f"gRPC on port {address.grpc_port} is another server's")


def served_config(address: TritonAddress, name: str, version: str | None = None) -> str:
    """The configuration as served: JSON text with nothing masked, so it may hold secrets (an override needs them)."""
    body = expect_ok(_once(address, "GET", f"{model_path(name, version)}/config"), f"configuration of {name}")
    return body.decode("utf-8", "replace")


def statistics(address: TritonAddress, name: str) -> Sequence[ModelStats]:
    """Of all ready versions of one model. SourceError where none is loaded."""
    body = expect_ok(_once(address, "GET", f"{model_path(name)}/stats"), f"statistics of {name}")
    return StatsDecoder().decode(body)


def all_statistics(address: TritonAddress) -> Sequence[ModelStats]:
    """Of all ready models. SourceError where Triton does not tell."""
    return StatsDecoder().decode(expect_ok(_once(address, "GET", "/v2/models/stats"), "statistics"))


def infer(
    address: TritonAddress,
    name: str,
    version: str | None,
    body: bytes,
    headers: Mapping[str, str],
    patience: float = CALL,
) -> Answer:
    """One inference request on a connection of its own, sent exactly once. Any status is an answer."""
    return _once(address, "POST", f"{model_path(name, version)}/infer", body, headers, patience)


class TritonControl:
    """Loads and unloads models of one server. To be used by one thread; each load waits in one of its own."""

    def __init__(self, address: TritonAddress, route: Route | None = None) -> None:
        self.address = address
        self._route = route

    @property
    def route(self) -> Route:
        """How it sends; found out at the first need."""
        if self._route is None:
            self._route = find_route(self.address)
        return self._route

    def begin_load(self, name: str, config: str | None, timeout: float) -> LoadCall:
        """Send a load and return at once. `config`: a whole configuration as JSON text (it replaces, and stays until
        the file is newer); None loads what is on disk. `timeout` (s) ends the call, not the server's work."""
        _sendable(name)
        call = LoadCall(self.route)
        worker = threading.Thread(target=self._load, args=(call, name, config, timeout), name="load", daemon=True)
        worker.start()
        return call

    def load(self, name: str, config: str | None, timeout: float) -> float:
        """Load and wait; seconds that it took. ControlRefused (Triton's words), SourceError (kind timeout: it may go
        on; unavailable: the server is gone)."""
        call = self.begin_load(name, config, timeout)
        call.wait(timeout + CONNECT)
        return call.result()

    def unload(self, name: str, dependents: bool = False, timeout: float = CALL) -> None:
        """Tell it to unload; the answer comes before it is gone, and also for unknown names. ControlRefused,
        SourceError."""
        _sendable(name)
        if self.route.name == "gRPC":
            with _Grpc(self.address) as grpc:
                grpc.unload(name, dependents, timeout)
            return
        document = {"parameters": {"unload_dependents": dependents}}
        self._post(_control_path(name, "unload"), document, timeout)

    def index(self) -> list[IndexEntry]:
        """The repository index, on a fresh connection: kept ones may stand behind a load."""
        return decode_index(expect_ok(_once(self.address, "POST", "/v2/repository/index"), "the repository index"))

    def _load(self, call: LoadCall, name: str, config: str | None, timeout: float) -> None:
        try:
            if call.route.name == "gRPC":
                with _Grpc(self.address) as grpc:
                    grpc.load(name, config, timeout)
            else:
                parameters = {} if config is None else {"config": config}
                self._post(_control_path(name, "load"), {"parameters": parameters}, timeout)
        except SourceError as error:
            call._end(error)
        else:
            call._end(None)

    def _post(self, path: str, document: object, timeout: float) -> None:
        answer = _once(self.address, "POST", path, msgspec.json.encode(document), {}, timeout)
        if answer.status != 200:
            text = error_text(answer, REFUSED_WORDS)
            raise _refusal(answer.status in (401, 403), answer.status == 503, text or f"status {answer.status}")


def _sendable(name: str) -> None:
    """A folder whose name is no UTF-8 can be listed, but not named to Triton."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SourceError("protocol", f"the name {one_line(name, 80)} cannot be sent: it is no UTF-8") from error


def _control_path(name: str, verb: str) -> str:
    return f"/v2/repository{model_path(name).removeprefix('/v2')}/{verb}"


def _refusal(restricted: bool, unavailable: bool, text: str) -> ControlRefused:
    kind: ErrorKind = "permission" if restricted else "unavailable" if unavailable else "protocol"
    return ControlRefused(kind, text, restricted_hint(text) if restricted else "")


def _once(
    address: TritonAddress,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    patience: float = CALL,
) -> Answer:
    http = server_http(address, Limits(read=patience))
    try:
        return http.once(method, path, body, headers)
    finally:
        http.close()


def _index_names(address: TritonAddress) -> set[str]:
    body = expect_ok(_once(address, "POST", "/v2/repository/index", patience=2.0), "the repository index")
    return {line.name for line in decoded(_NAMES, body, "the repository index")}


class _Name(Struct, frozen=True):
    name: str


_NAMES = msgspec.json.Decoder(list[_Name])


class _Grpc:
    """One gRPC channel for one call or two."""

    def __init__(self, address: TritonAddress) -> None:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        self._grpc = grpc
        self._messages = service_pb2
        self._metadata = _metadata(address.headers)
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._where = f"{host}:{address.grpc_port}"
        self._channel = self._open(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> _Grpc:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def _open(self, address: TritonAddress) -> Any:
        # A channel of its own each time, and no proxy of the environment: this is one call to one known server.
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        if not address.https:
            return self._grpc.insecure_channel(self._where, options)
        try:
            roots = Path(address.ca_file).read_bytes() if address.ca_file else None
        except OSError as error:
            raise SourceError(
                "protocol", f"cannot read {address.ca_file}: {error.strerror}", "see triton.ca_file in the settings"
            ) from error
        return self._grpc.secure_channel(self._where, self._grpc.ssl_channel_credentials(roots), options)

    def index_names(self) -> set[str]:
        """Names of all models of the index."""
        answer = self._call(self._stub.RepositoryIndex, self._messages.RepositoryIndexRequest(), CONNECT)
        return {model.name for model in answer.models}

    def load(self, name: str, config: str | None, timeout: float) -> None:
        """Wait for the load's end."""
        request = self._messages.RepositoryModelLoadRequest(model_name=name)
        if config is not None:
            request.parameters["config"].string_param = config
        self._call(self._stub.RepositoryModelLoad, request, timeout)

    def unload(self, name: str, dependents: bool, timeout: float) -> None:
        """Tell it."""
        request = self._messages.RepositoryModelUnloadRequest(model_name=name)
        request.parameters["unload_dependents"].bool_param = dependents
        self._call(self._stub.RepositoryModelUnload, request, timeout)

    def _call(self, method: Any, request: Any, timeout: float) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except self._grpc.RpcError as error:
            self._explain(error, timeout)

    def _explain(self, error: Any, timeout: float) -> NoReturn:
        code, words = error.code(), one_line(str(error.details() or ""), REFUSED_WORDS)
        codes = self._grpc.StatusCode
        if code is codes.DEADLINE_EXCEEDED:
            raise SourceError("timeout", f"{self._where} did not answer within {timeout:g} s") from error
        if code in (codes.UNAUTHENTICATED, codes.PERMISSION_DENIED) or "expecting header '" in words:
            raise _refusal(True, False, words) from error
        # Triton's own no and a lost connection share the code UNAVAILABLE; the text tells them apart.
        if code is codes.CANCELLED or (code is codes.UNAVAILABLE and _is_channel(words)):
            raise SourceError("unavailable", f"{self._where}: {one_line(words, 300)}") from error
        raise _refusal(False, code is codes.UNAVAILABLE, words or code.name) from error


def _is_channel(words: str) -> bool:
    return any(
        part in words
        for part in ("failed to connect", "Socket closed", "Connection reset", "recvmsg", "handshake", "GOAWAY", "DNS")
    ) or words.startswith(("Stream removed", "Broken pipe", "FD Shutdown", "Endpoint closing", "Cancelling all"))


def _metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each header under its own name (proxies) and under the one that Triton's restricted protocols expect."""
    lower = [(name.lower(), value) for name, value in headers.items()]
    return tuple(lower) + tuple((HEADER_PREFIX + name, value) for name, value in lower)
