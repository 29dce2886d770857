"""A stand-in for Triton's HTTP and metrics ports, answering as Triton 2.51.0 was seen to (domain/triton.md 1.2, 1.3).

Its control mode is that of the container's command: explicit unless somebody recreated it otherwise. Its ports are open
while the server in the box serves. There is no gRPC, and a load by HTTP holds up nobody here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from console.planning.batcher import Completion, Outcome
from console.simulator import inference
from console.simulator.box import Box
from console.simulator.card import MIB
from console.simulator.configs import tensors
from console.simulator.http_server import HttpServer, Request, Response
from console.simulator.metrics_page import MetricsPage
from console.simulator.server import Server
from console.simulator.server_log import EXTENSIONS, VERSION
from console.simulator.serving import Version
from console.simulator.settings import SettingError

JSON = {"Content-Type": "application/json"}
NOT_ALLOWED = "explicit model load / unload is not allowed if polling is enabled"
_Handler = Callable[[Request, re.Match[str]], Awaitable[Response]]
Advance = Callable[[], None]
"""Brings the box up to the present, so that an answer is as of now."""


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def json_response(document: Any, status: int = 200) -> Response:
    """Compact JSON, as Triton prints it."""
    return Response(status, msgspec.json.encode(document), JSON)


class TritonServer:
    """Both ports."""

    def __init__(self, box: Box, advance: Advance) -> None:
        self._box = box
        self._advance = advance
        self._http = HttpServer(self._handle)
        self._metrics = HttpServer(self._handle_metrics)
        self._page = MetricsPage(box)
        self._stats: dict[tuple[str, int], tuple[Version, tuple[int, int, int, int], bytes]] = {}
        model = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
        self._routes: list[tuple[str, re.Pattern[str], _Handler]] = [
            (method, re.compile(pattern + r"/?"), handler)
            for method, pattern, handler in (
                ("GET", r"/v2", self._server_metadata),
                ("GET", r"/v2/health/live", self._live),
                ("GET", r"/v2/health/ready", self._server_ready),
                ("POST", r"/v2/repository/index", self._index),
                ("POST", r"/v2/repository/models/(?P<model>[^/]+)/load", self._load),
                ("POST", r"/v2/repository/models/(?P<model>[^/]+)/unload", self._unload),
                ("GET", r"/v2/models/stats", self._all_statistics),
                ("GET", r"/v2/logging", self._logging),
                ("POST", r"/v2/logging", self._logging),
                ("GET", r"(?:/v2|/v2/models/(?P<model>[^/]+))/trace/setting", self._trace_setting),
                ("POST", r"(?:/v2|/v2/models/(?P<model>[^/]+))/trace/setting", self._trace_setting),
                ("GET", model, self._model_metadata),
                ("GET", model + "/config", self._config),
                ("GET", model + "/ready", self._model_ready),
                ("GET", model + "/stats", self._model_statistics),
                ("POST", model + "/infer", self._infer),
            )
        ]
        self._open: tuple[int | None, int | None] = (None, None)
        self._has_connections = False

    async def follow(self) -> None:
        """Have open the ports that the box's server has open now."""
        container = self._box.containers.running
        server = container.server if container is not None else None
        wanted: tuple[int | None, int | None] = (None, None)
        if container is not None and server is not None and server.serving:
            wanted = (container.host_port("http"), container.host_port("metrics"))
        if server is None and self._has_connections:
            await self.close()
            self._has_connections = False
        for http, port, was in zip((self._http, self._metrics), wanted, self._open, strict=True):
            if port == was:
                continue
            http.refuse()
            if port is not None:
                await http.listen_tcp(port=port)
                self._has_connections = True
        self._open = wanted

    async def close(self) -> None:
        """Close both ports and what is connected to them."""
        await self._http.close()
        await self._metrics.close()

    async def _handle(self, request: Request) -> Response:
        self._advance()
        if self._box.server is None:
            raise ConnectionResetError  # the process has ended while this connection was open
        wrong_method = False
        for method, pattern, handler in self._routes:
            if (match := pattern.fullmatch(request.path)) is None:
                continue
            if method != request.method:
                wrong_method = True
                continue
            try:
                return await handler(request, match)
            except _RefusedError as refused:
                return json_response({"error": str(refused)}, refused.status)
        return Response(405 if wrong_method else 404)

    async def _handle_metrics(self, request: Request) -> Response:
        self._advance()
        if self._box.server is None:
            raise ConnectionResetError
        if request.method != "GET":
            return Response(405)
        if request.path != "/metrics":
            return Response(200)  # seen: any other path is 200 with nothing in it
        return Response(200, self._page.render(), {"Content-Type": "text/plain; charset=utf-8"})

    async def _server_metadata(self, _request: Request, _match: re.Match[str]) -> Response:
        return json_response({"name": "triton", "version": VERSION, "extensions": EXTENSIONS})

    async def _live(self, _request: Request, _match: re.Match[str]) -> Response:
        return Response(200)

    async def _server_ready(self, _request: Request, _match: re.Match[str]) -> Response:
        return Response(200 if self._server.ready else 400)

    @property
    def _server(self) -> Server:
        server = self._box.server
        if server is None:
            raise ConnectionResetError
        return server

    async def _index(self, request: Request, _match: re.Match[str]) -> Response:
        only_ready = bool(_document(request).get("ready", False))
        entries = self._server.models.index()
        return json_response([entry for entry in entries if not only_ready or entry.get("state") == "READY"])

    async def _load(self, request: Request, match: re.Match[str]) -> Response:
        self._allowed()
        parameters = _document(request).get("parameters") or {}
        if unknown := set(parameters) - {"config"}:
            raise _RefusedError(400, f"unexpected error on creating Triton parameter: {min(unknown)}")
        override = parameters.get("config")
        if override is not None and not isinstance(override, str):
            raise _RefusedError(400, "attempt to access JSON non-string as string")
        ended: list[tuple[int, str]] = []
        self._server.models.load(match["model"], override, lambda status, words: ended.append((status, words)))
        await self._until(lambda: bool(ended))
        status, words = ended[0]
        if status != 200:
            raise _RefusedError(status, words)
        return Response(200)

    async def _unload(self, request: Request, match: re.Match[str]) -> Response:
        self._allowed()
        parameters = _document(request).get("parameters") or {}
        self._server.models.unload(match["model"], dependents=bool(parameters.get("unload_dependents")))
        return Response(200)

    def _allowed(self) -> None:
        if self._server.mode != "explicit":
            raise _RefusedError(503, NOT_ALLOWED)

    async def _until(self, over: Callable[[], bool]) -> None:
        """Wait until simulated time has brought it; the connection ends with the server's process."""
        while not over():
            await asyncio.sleep(0.002)
            self._advance()
            if not over():
                _ = self._server

    async def _logging(self, request: Request, _match: re.Match[str]) -> Response:
        settings = self._box.settings
        return json_response(self._set(lambda: settings.log(_document(request))))

    async def _trace_setting(self, request: Request, match: re.Match[str]) -> Response:
        settings, model = self._box.settings, match["model"]
        if model is not None:
            self._available(model, None)
        return json_response(
            self._set(lambda: settings.set_trace(model, _document(request)))
            if request.method == "POST"
            else settings.trace(model)
        )

    def _set(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return call()
        except SettingError as error:
            raise _RefusedError(400, str(error)) from error

    async def _model_metadata(self, _request: Request, match: re.Match[str]) -> Response:
        version = self._available(match["model"], match["version"])
        inputs, outputs = tensors(version.spec, self._box.specs)
        batch = [-1] if version.max_batch_size else []
        described = [
            [{"name": t.name, "datatype": inference.wire_type(t), "shape": [*batch, *t.dims]} for t in group]
            for group in (inputs, outputs)
        ]
        return json_response(
            {
                "name": version.name,
                "versions": [str(number) for number in sorted(self._server.models.current[version.name])],
                "platform": version.config.platform,
                "inputs": described[0],
                "outputs": described[1],
            }
        )

    async def _config(self, _request: Request, match: re.Match[str]) -> Response:
        return json_response(self._available(match["model"], match["version"]).told())

    async def _model_ready(self, _request: Request, match: re.Match[str]) -> Response:
        versions = self._server.models.current.get(match["model"], {})
        asked = match["version"]
        is_ready = bool(versions) if asked is None else asked in map(str, versions)
        return Response(200 if is_ready else 400)

    async def _all_statistics(self, _request: Request, _match: re.Match[str]) -> Response:
        ready = sorted(self._server.models.ready(), key=lambda version: version.name)
        return Response(200, b'{"model_stats":[' + b",".join(map(self._statistics, ready)) + b"]}", JSON)

    async def _model_statistics(self, _request: Request, match: re.Match[str]) -> Response:
        name, asked = match["model"], match["version"]
        versions = self._server.models.current.get(name, {})
        if not versions:
            raise _RefusedError(400, f"requested model '{name}' is not available")
        if asked is not None and asked not in map(str, versions):
            raise _RefusedError(400, f"requested model version is not available for model '{name}'")
        found = [versions[number] for number in sorted(versions) if asked in (None, str(number))]
        return Response(200, b'{"model_stats":[' + b",".join(map(self._statistics, found)) + b"]}", JSON)

    def _statistics(self, version: Version) -> bytes:
        key, revision = (version.name, version.version), version.revision
        kept = self._stats.get(key)
        if kept is not None and kept[0] is version and kept[1] == revision:
            return kept[2]
        memory = [{"type": "GPU", "id": 0, "byte_size": version.vram_mib * MIB}] if version.batcher else []
        entry = {
            "name": version.name,
            "version": str(version.version),
            **version.statistics.to_triton(),
            "memory_usage": memory,
        }
        encoded = msgspec.json.encode(entry)
        self._stats[key] = (version, revision, encoded)
        return encoded

    async def _infer(self, request: Request, match: re.Match[str]) -> Response:
        version = self._available(match["model"], match["version"])
        inputs, outputs = tensors(version.spec, self._box.specs)
        length = request.headers.get(inference.HEADER_LENGTH)
        header_length = int(length) if length is not None and length.isdecimal() else None
        try:
            asked = inference.parse(version.name, inputs, outputs, version.max_batch_size, request.body, header_length)
        except inference.BadRequestError as error:
            raise _RefusedError(400, f"[request id: <id_unknown>] {error}") from error
        ended: list[Completion] = []
        self._box.infer(version, asked.batch_size, ended.append)
        await self._until(lambda: bool(ended))
        if ended[0].outcome is not Outcome.SUCCESS:
            raise _RefusedError(503, f"[request id: <id_unknown>] {ended[0].outcome.value}")
        body, head_length = inference.render(version.name, version.version, asked, version.shift)
        if head_length is None:
            return Response(200, body, JSON)
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(head_length)}
        return Response(200, body, headers)

    def _available(self, name: str, asked: str | None) -> Version:
        models = self._server.models
        if asked is not None and not asked.isdecimal():
            raise _RefusedError(400, f"failed to get model version from specified version string '{asked}'")
        versions = models.current.get(name, {})
        if asked is not None and int(asked) in versions:
            return versions[int(asked)]
        if asked is None and versions:
            return versions[max(versions)]
        known = {int(entry["version"]) for entry in models.index() if entry["name"] == name and "version" in entry}
        if asked is not None and int(asked) in known:
            raise _RefusedError(503, f"Request for unknown model: '{name}' version {asked} is not at ready state")
        if asked is not None and versions:
            raise _RefusedError(404, f"Request for unknown model: '{name}' version {asked} is not found")
        if known:
            raise _RefusedError(404, f"Request for unknown model: '{name}' has no available versions")
        raise _RefusedError(404, f"Request for unknown model: '{name}' is not found")


def _document(request: Request) -> dict[str, Any]:
    """The JSON object of a body; none is an empty one."""
    if not request.body:
        return {}
    try:
        return msgspec.json.decode(request.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _RefusedError(500, f"failed to parse the request JSON buffer: {error}") from error
