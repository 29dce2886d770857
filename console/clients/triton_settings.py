"""Triton's trace and log settings over HTTP (triton.md 1.2), read and set.

Trace settings are strings both ways; null makes a model follow the server's setting again. Fields that Triton does not
know are ignored without a word, so what was set is held against the answer, which is what is set now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from console.clients.triton import TritonAddress, expect_ok, model_path, server_http
from console.core.model import SourceError
from console.core.text import one_line

T = TypeVar("T")
LOGGING = "/v2/logging"
TRACE = "/v2/trace/setting"
FIELDS = ("trace_level", "trace_rate", "trace_count", "log_frequency")
"""What can be set over the network."""


class TraceSetting(Struct, frozen=True):
    """One model's, or the server's."""

    trace_level: tuple[str, ...] = ("OFF",)
    trace_rate: str = ""
    trace_count: str = ""
    """Requests that are still to be traced; falls with each; "-1" = without end."""
    log_frequency: str = ""
    trace_file: str = ""
    """In the container; "" = none was given at the start."""
    trace_mode: str = ""
    """triton, or opentelemetry (which writes no file)."""

    @property
    def settable(self) -> dict[str, Any]:
        """As it is set."""
        return {name: getattr(self, name) for name in FIELDS}


class TritonSettingsView:
    """Reads them."""

    def __init__(self, address: TritonAddress) -> None:
        self._address = address

    def trace(self, model: str = "") -> TraceSetting:
        """Of a model, or the server's own. SourceError when Triton does not answer or tells none."""
        path = f"{model_path(model)}/trace/setting" if model else TRACE
        return self._decode(self._call("GET", path, None, "trace setting"), TraceSetting)

    def verbosity(self) -> int:
        """The server's log_verbose_level."""
        return self._decode(self._call("GET", LOGGING, None, "log settings"), _Logging).log_verbose_level

    def _call(self, method: str, path: str, document: Mapping[str, Any] | None, what: str) -> bytes:
        http = server_http(self._address)
        body = b"" if document is None else msgspec.json.encode(document)
        try:
            # Exactly once: a repeated trace setting would count anew.
            return expect_ok(http.once(method, path, body), what)
        finally:
            http.close()

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError("protocol", f"Triton's answer is not understood: {one_line(str(error), 200)}") from error


class _Logging(Struct, frozen=True):
    log_verbose_level: int = 0


class TritonSettings(TritonSettingsView):
    """Sets them. Opened through `Box.triton_settings` only."""

    def set_trace(self, model: str, wanted: Mapping[str, Any]) -> TraceSetting:
        """Set fields of a model (None = as the server's), return what is set now. SourceError with Triton's words."""
        body = self._call("POST", f"{model_path(model)}/trace/setting", wanted, "trace setting")
        return self._decode(body, TraceSetting)

    def set_verbosity(self, level: int) -> int:
        """Set log_verbose_level and return what is set now."""
        return self._decode(
            self._call("POST", LOGGING, {"log_verbose_level": level}, "log settings"), _Logging
        ).log_verbose_level
