"""Boxes for tests of model actions: in front of the server in this process, and of a container of the test's own."""

from __future__ import annotations

import time
from pathlib import Path

from console.actions.box import Box, BoxSpec
from console.config import Actions, Podman, Repository, Safety, Settings, Triton
from tests.actions.runs import Recorded
from tests.fakes.model_server import ModelServer
from tests.lab.own import OwnTriton


def fake_box(
    server: ModelServer, state: Path, *, read_only: bool = False, watch: float = 0.06, load_timeout: float = 5.0
) -> Box:
    """No Podman, no card; the repository is a folder of this host."""
    settings = Settings(
        triton=Triton(host="127.0.0.1", http_port=server.port, grpc_port=1, metrics_port=1),
        podman=Podman(socket=f"unix://{state}/none.sock"),
        repository=Repository(path=str(server.root)),
        actions=Actions(watch=watch, load_timeout=load_timeout),
        safety=Safety(read_only=read_only),
    )
    return Box(BoxSpec(settings), state)


def own_box(own: OwnTriton, state: Path, *, watch: float = 0.5, load_timeout: float = 15.0) -> Box:
    """In front of a real container."""
    settings = Settings(
        triton=Triton(host="127.0.0.1", http_port=own.port, grpc_port=own.port + 1, metrics_port=own.port + 2),
        podman=Podman(socket=own.socket, container=own.name),
        actions=Actions(watch=watch, load_timeout=load_timeout),
    )
    return Box(BoxSpec(settings), state)


class Live(Recorded):
    """A Run whose waiting takes its time."""

    def wait(self, seconds: float) -> bool:
        if self.while_waiting is not None:
            self.while_waiting()
        self.waited += seconds
        return self.cancelled.wait(seconds)

    def left(self) -> float:
        return max(0.0, self._limit - (time.monotonic() - self.made))

    def __init__(self, kill_in: str = "", limit: float = 60.0, kept: dict[str, str] | None = None) -> None:
        super().__init__(kill_in, kept, limit)
        self.made = time.monotonic()
