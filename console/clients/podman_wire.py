"""A network backend for httpcore whose reads can be ended by a stop event (see podman_stream).

Apart from podman_stream so that httpcore (60 ms, 12 MiB) is imported in the thread that needs it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore

from console.clients.podman import CONNECT_TIMEOUT

TURN = 0.4
"""Seconds that one network read waits before it looks at the stop event."""


class StoppedError(Exception):
    """The stop event was set, or the deadline passed, while a read waited."""


class _Stream(httpcore.NetworkStream):
    """A network stream whose reads wait in turns of TURN seconds."""

    def __init__(self, inner: httpcore.NetworkStream, stop: threading.Event, deadline: float | None) -> None:
        self._inner = inner
        self._stop = stop
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while not self._stop.is_set() and (self._deadline is None or time.monotonic() < self._deadline):
            try:
                return self._inner.read(max_bytes, TURN)
            except httpcore.ReadTimeout:
                continue
        raise StoppedError

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, CONNECT_TIMEOUT)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend(httpcore.SyncBackend):
    """Connects as usual and wraps what comes of it."""

    def __init__(self, stop: threading.Event, deadline: float | None) -> None:
        self._stop = stop
        self._deadline = deadline

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return self._wrapped(super().connect_unix_socket(path, CONNECT_TIMEOUT, socket_options))

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return self._wrapped(super().connect_tcp(host, port, CONNECT_TIMEOUT, local_address, socket_options))

    def _wrapped(self, stream: httpcore.NetworkStream) -> httpcore.NetworkStream:
        return _Stream(stream, self._stop, self._deadline)
