"""A stand-in for Triton's HTTP and metrics ports, answering as Triton 2.51.0 was seen to (domain/triton.md 1.2, 1.3).

It is started as `--model-control-mode=none`, so models cannot be loaded or unloaded through it, and says so as Triton
does. Trace and logging settings can be read, not changed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from console.planning.batcher import Completion, Outcome
from console.simulator import inference
from console.simulator.box import Box, ServedModel
from console.simulator.card import MIB
from console.simulator.configs import max_batch_size, tensors
from console.simulator.http_server import HttpServer, Request, Response
from console.simulator.metrics_page import MetricsPage
from console.simulator.scenes import Model
from console.simulator.server_log import EXTENSIONS, VERSION

JSON = {"Content-Type": "application/json"}
NOT_ALLOWED = "explicit model load / unload is not allowed if polling is enabled"
TRACE_SETTING = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
LOGGING = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}

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
    """Both ports. `http_port` and `metrics_port` are known after `start`."""

    def __init__(self, box: Box, advance: Advance) -> None:
        self._box = box
        self._advance = advance
        self._http = HttpServer(self._handle)
        self._metrics = HttpServer(self._handle_metrics)
        self._page = MetricsPage(box)
        self._stats: dict[str, tuple[tuple[int, int, int, int], bytes]] = {}
        model = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
        self._routes: list[tuple[str, re.Pattern[str], _Handler]] = [
            (method, re.compile(pattern + r"/?"), handler)
            for method, pattern, handler in (
                ("GET", r"/v2", self._server_metadata),
                ("GET", r"/v2/health/live", self._live),
                ("GET", r"/v2/health/ready", self._server_ready),
                ("POST", r"/v2/repository/index", self._index),
                ("POST", r"/v2/repository/models/(?P<model>[^/]+)/(?:load|unload)", self._control),
                ("GET", r"/v2/models/stats", self._all_statistics),
                ("GET", r"/v2/logging", self._logging),
                ("GET", r"(?:/v2|/v2/models/(?P<model>[^/]+))/trace/setting", self._trace_setting),
                ("GET", model, self._model_metadata),
                ("GET", model + "/config", self._config),
                ("GET", model + "/ready", self._model_ready),
                ("GET", model + "/stats", self._model_statistics),
                ("POST", model + "/infer", self._infer),
            )
        ]
        self.http_port = 0
        self.metrics_port = 0

    async def start(self) -> None:
        """Listen on two free loopback ports."""
        self.http_port = await self._http.listen_tcp()
        self.metrics_port = await self._metrics.listen_tcp()

    async def close(self) -> None:
        """Close both ports and what is connected to them."""
        await self._http.close()
        await self._metrics.close()

    async def _handle(self, request: Request) -> Response:
        self._advance()
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
        return Response(200 if self._box.ready else 400)

    async def _index(self, request: Request, _match: re.Match[str]) -> Response:
        only_ready = False
        if request.body:
            try:
                only_ready = bool(msgspec.json.decode(request.body, type=dict[str, Any]).get("ready", False))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise _RefusedError(500, f"failed to parse the request JSON buffer: {error}") from error
        models = sorted(self._box.models.values(), key=lambda model: model.spec.name)
        return json_response([_index_entry(model) for model in models if not (only_ready and model.failed)])

    async def _control(self, _request: Request, _match: re.Match[str]) -> Response:
        raise _RefusedError(503, NOT_ALLOWED)

    async def _logging(self, _request: Request, _match: re.Match[str]) -> Response:
        return json_response(LOGGING)

    async def _trace_setting(self, _request: Request, match: re.Match[str]) -> Response:
        if match["model"] is not None:
            self._available(match["model"], None)
        return json_response(TRACE_SETTING)

    async def _model_metadata(self, _request: Request, match: re.Match[str]) -> Response:
        model = self._available(match["model"], match["version"])
        inputs, outputs = tensors(model.spec, self._box.specs)
        described = [
            [{"name": t.name, "datatype": inference.wire_type(t), "shape": [-1, *t.dims]} for t in group]
            for group in (inputs, outputs)
        ]
        return json_response(
            {
                "name": model.spec.name,
                "versions": [str(model.spec.version)],
                "platform": "tensorrt_plan" if isinstance(model.spec, Model) else "ensemble",
                "inputs": described[0],
                "outputs": described[1],
            }
        )

    async def _config(self, _request: Request, match: re.Match[str]) -> Response:
        model = self._available(match["model"], match["version"])
        return json_response(self._box.config(model.spec.name))

    async def _model_ready(self, _request: Request, match: re.Match[str]) -> Response:
        model = self._box.models.get(match["model"])
        version = match["version"]
        ready = model is not None and model.failed is None and version in (None, str(model.spec.version))
        return Response(200 if ready else 400)

    async def _all_statistics(self, _request: Request, _match: re.Match[str]) -> Response:
        models = sorted(self._box.models.values(), key=lambda model: model.spec.name)
        entries = [self._statistics(model) for model in models if model.failed is None]
        return Response(200, b'{"model_stats":[' + b",".join(entries) + b"]}", JSON)

    async def _model_statistics(self, _request: Request, match: re.Match[str]) -> Response:
        name, version = match["model"], match["version"]
        model = self._box.models.get(name)
        if model is None or model.failed is not None:
            raise _RefusedError(400, f"requested model '{name}' is not available")
        if version not in (None, str(model.spec.version)):
            raise _RefusedError(400, f"requested model version is not available for model '{name}'")
        return Response(200, b'{"model_stats":[' + self._statistics(model) + b"]}", JSON)

    def _statistics(self, model: ServedModel) -> bytes:
        name, revision = model.spec.name, model.revision
        kept = self._stats.get(name)
        if kept is not None and kept[0] == revision:
            return kept[1]
        memory = (
            [{"type": "GPU", "id": 0, "byte_size": model.spec.vram_mib * MIB}] if isinstance(model.spec, Model) else []
        )
        entry = {
            "name": name,
            "version": str(model.spec.version),
            **model.statistics.to_triton(),
            "memory_usage": memory,
        }
        encoded = msgspec.json.encode(entry)
        self._stats[name] = (revision, encoded)
        return encoded

    async def _infer(self, request: Request, match: re.Match[str]) -> Response:
        model = self._available(match["model"], match["version"])
        spec = model.spec
        inputs, outputs = tensors(spec, self._box.specs)
        length = request.headers.get(inference.HEADER_LENGTH)
        header_length = int(length) if length is not None and length.isdecimal() else None
        try:
            asked = inference.parse(spec.name, inputs, outputs, max_batch_size(spec), request.body, header_length)
        except inference.BadRequestError as error:
            raise _RefusedError(400, f"[request id: <id_unknown>] {error}") from error
        done = await self._run(spec.name, asked.batch_size)
        if done.outcome is not Outcome.SUCCESS:
            raise _RefusedError(503, f"[request id: <id_unknown>] {done.outcome.value}")
        body, head_length = inference.render(spec.name, spec.version, asked)
        if head_length is None:
            return Response(200, body, JSON)
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(head_length)}
        return Response(200, body, headers)

    async def _run(self, name: str, batch_size: int) -> Completion:
        """Put a request into the simulated queue and wait until simulated time has passed its end."""
        ended: list[Completion] = []
        self._box.infer(name, batch_size, ended.append)
        while not ended:
            await asyncio.sleep(0.002)
            self._advance()
        return ended[0]

    def _available(self, name: str, version: str | None) -> ServedModel:
        model = self._box.models.get(name)
        if model is None:
            raise _RefusedError(404, f"Request for unknown model: '{name}' is not found")
        if version is not None and not version.isdecimal():
            raise _RefusedError(400, f"failed to get model version from specified version string '{version}'")
        if model.failed is not None:
            if version == str(model.spec.version):
                raise _RefusedError(503, f"Request for unknown model: '{name}' version {version} is not at ready state")
            raise _RefusedError(404, f"Request for unknown model: '{name}' has no available versions")
        if version not in (None, str(model.spec.version)):
            raise _RefusedError(404, f"Request for unknown model: '{name}' version {version} is not found")
        return model


def _index_entry(model: ServedModel) -> dict[str, str]:
    entry = {"name": model.spec.name, "version": str(model.spec.version)}
    if model.failed is not None:
        return entry | {"state": "UNAVAILABLE", "reason": model.failed}
    return entry | {"state": "READY"}
