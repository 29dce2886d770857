"""Where Triton answers and where its models lie: what the operator said, else what the container tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from console.clients.triton import TritonAddress
from console.config import Settings
from console.core.model import ContainerState, Failure, SourceError
from console.core.triton_command import (
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    DEFAULT_METRICS_PORT,
    ServerPorts,
    http_ports,
)
from console.sources.repository import Place, places

DEFAULT_PORTS = (DEFAULT_HTTP_PORT, DEFAULT_GRPC_PORT, DEFAULT_METRICS_PORT)
DRAINS_AT_MOST = 60.0
"""Seconds after which a server that was told to stop is thought to have ended, though nothing tells so."""
OFF_IN_SETTINGS = Failure(
    "unavailable", "the metrics page is not read: the settings say so", "see triton.metrics in the settings"
)
OFF_IN_SERVER = Failure(
    "unavailable",
    "the server runs with --allow-metrics=false, so it has no metrics page",
    "start it without that flag",
)


class Locator:
    """Where Triton answers and where its models lie: what the operator said, else what the container tells."""

    def __init__(self, settings: Settings, state: Callable[[], ContainerState | None]) -> None:
        """`state` gives the container as known now."""
        self._triton = settings.triton
        self._repository = settings.repository.path
        self._state = state
        self._last: ServerPorts | None = None
        self._drains_until = 0.0

    def server_told(self, kind: str) -> None:
        """What the server's log says of it, by the event's kind: no connection is kept while it drains."""
        if kind == "server.stop":
            self._drains_until = time.monotonic() + DRAINS_AT_MOST
        elif kind == "server.start":
            self._drains_until = 0.0

    def _ports(self) -> ServerPorts | None:
        """Those of the container; of a stopped one too, and of one that is gone its last ones: what answers on the
        usual ports meanwhile is some other server."""
        state = self._state()
        told = http_ports(state) if state is not None else None
        if told is not None and told.http is not None:
            self._last = told
        return self._last

    def address(self) -> TritonAddress:
        """For one connection; asked again at each (re)connection, since a container made anew may have other ports."""
        told = self._triton
        found = None
        if not (told.host and told.http_port and told.metrics_port):
            found = self._ports()
        elsewhere = bool(told.host) and found is not None and told.host not in (found.host, "localhost")
        if elsewhere:
            found = None
        http, grpc, metrics = DEFAULT_PORTS
        return TritonAddress(
            host=told.host or (found.host if found else "127.0.0.1"),
            http_port=told.http_port or (found.http if found and found.http else http),
            grpc_port=told.grpc_port or (found.grpc if found else grpc),
            metrics_port=(told.metrics_port or (found.metrics if found else metrics)) if told.metrics else None,
            https=told.https,
            ca_file=told.ca_file,
            insecure=told.insecure,
            headers=told.headers,
            keep=time.monotonic() >= self._drains_until,
            no_metrics=self._no_metrics(found),
        )

    def _no_metrics(self, found: ServerPorts | None) -> Failure | None:
        if not self._triton.metrics:
            return OFF_IN_SETTINGS
        return OFF_IN_SERVER if found is not None and not found.metrics_allowed else None

    def places(self) -> Sequence[Place]:
        """The model repositories on this host; SourceError with the reason when there is none to see."""
        if self._repository:
            return (Place(self._repository),)
        state = self._state()
        if state is None:
            hint = "name the folder: --repository DIR, or [repository] path in the settings"
            raise SourceError("unavailable", "no Triton container tells where the models lie", hint)
        return places(state.command, state.mounts)
