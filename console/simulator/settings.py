"""Trace and log settings of the running server, and the trace files that it writes inside its container.

All trace values are strings, as Triton wants them; null makes a model follow the server's setting again. A traced
request is one of the traffic: its fragments carry the scheduler's own times (triton.md 1.2).
"""

from __future__ import annotations

from typing import Any

import msgspec

from console.planning.batcher import Completion, Outcome, Request
from console.simulator.serving import Version

TRACE = {
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
_RECEIVE_NS = 25_000
"""From the first byte of a request to its place in the queue, and from the last run to the last byte of its answer."""


class SettingError(Exception):
    """Triton's words for a setting that it does not take."""


class ServerSettings:
    """Those of the server that runs; a start begins anew. `clock_ns` is what turns the box's times into those of the
    host's monotonic clock, which traces carry."""

    def __init__(self, clock_ns: int = 0) -> None:
        self._clock_ns = clock_ns
        self.begin("", {})

    def begin(self, trace_file: str, files: dict[str, bytes]) -> None:
        """A server starts; `files` are those inside its container."""
        self._files = files
        self._server: dict[str, Any] = {**TRACE, "trace_file": trace_file}
        self._models: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, int] = {}
        self._done: dict[str, list[dict[str, Any]]] = {}
        self._traced = 0
        self._written = 0
        self.logging: dict[str, Any] = dict(LOGGING)

    @property
    def verbose(self) -> bool:
        """More is logged than usual."""
        return int(self.logging["log_verbose_level"]) > 0

    # ------------------------------------------------------------------------------------------------------- settings

    def log(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Set what is known of it; what is not is ignored without a word. SettingError for the file."""
        if "log_file" in wanted:
            raise SettingError("log file location can not be updated through network protocol")
        self.logging |= {name: value for name, value in wanted.items() if type(value) is type(LOGGING.get(name))}
        return self.logging

    def trace(self, model: str | None) -> dict[str, Any]:
        """Of a model, or the server's own."""
        return self._server if model is None else self._server | self._models.get(model, {})

    def set_trace(self, model: str | None, wanted: dict[str, Any]) -> dict[str, Any]:
        """Set it and tell what is set now. SettingError with Triton's words."""
        for name, value in wanted.items():
            self._check(name, value)
        own = self._server if model is None else self._models.setdefault(model, {})
        for name, value in wanted.items():
            if value is None:
                own[name] = TRACE[name] if model is None else None
            else:
                own[name] = value
        if model is not None:
            self._models[model] = {name: value for name, value in own.items() if value is not None}
            self._write(model)
        return self.trace(model)

    def _check(self, name: str, value: object) -> None:
        if name == "trace_file":
            raise SettingError("trace file location can not be updated through network protocol")
        if value is None or name not in TRACE:
            return
        if name == "trace_level":
            if not isinstance(value, list):
                raise SettingError("attempt to access JSON non-array as array")
            if value != ["OFF"] and not self._server["trace_file"]:
                raise SettingError("trace file name is not given")
        elif not isinstance(value, str):
            raise SettingError("attempt to access JSON non-string as string")

    # --------------------------------------------------------------------------------------------------------- traces

    def traced(self, target: Version, request: Request) -> Request:
        """The request as it goes on: with somebody who writes down how it went, where it is traced."""
        if not self._models and self._server["trace_level"] == ["OFF"]:
            return request
        name, now = target.name, self.trace(target.name)
        if now["trace_level"] == ["OFF"] or now["trace_count"] == "0":
            return request
        self._asked[name] = self._asked.get(name, 0) + 1
        if self._asked[name] % max(1, int(now["trace_rate"])):
            return request
        if int(now["trace_count"]) > 0:
            self._models.setdefault(name, {})["trace_count"] = str(int(now["trace_count"]) - 1)
        self._traced += 1
        number, then = self._traced, request[2]

        def ended(done: Completion) -> None:
            self._note(number, target, done)
            if then is not None:
                then(done)

        return request[0], request[1], ended

    def _note(self, number: int, target: Version, done: Completion) -> None:
        if done.outcome is not Outcome.SUCCESS:
            return
        head = {"id": number, "model_name": target.name, "model_version": target.version}
        records = self._done.setdefault(target.name, [])
        records.append({**head, "timestamps": self._stamps(target, done)})
        every = int(self.trace(target.name)["log_frequency"])
        if every and len(records) >= every:
            self._write(target.name)

    def _stamps(self, target: Version, done: Completion) -> list[dict[str, Any]]:
        started = done.arrival_ns + done.queue_ns
        points = {"HTTP_RECV_START": done.arrival_ns - _RECEIVE_NS, "REQUEST_START": done.arrival_ns}
        if target.batcher is not None:
            points |= {
                "QUEUE_START": done.arrival_ns,
                "COMPUTE_START": started,
                "COMPUTE_INPUT_END": started + done.input_ns,
                "COMPUTE_OUTPUT_START": started + done.input_ns + done.infer_ns,
                "COMPUTE_END": done.finish_ns,
            }
        points |= {"REQUEST_END": done.finish_ns, "HTTP_SEND_END": done.finish_ns + _RECEIVE_NS}
        return [{"name": name, "ns": at_ns + self._clock_ns} for name, at_ns in points.items()]

    def _write(self, model: str) -> None:
        records = self._done.pop(model, [])
        if records:
            self._files[f"{self._server['trace_file']}.{self._written}"] = msgspec.json.encode(records)
            self._written += 1
