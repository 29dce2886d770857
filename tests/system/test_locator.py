"""Where Triton is looked for while its container is stopped, gone, or made anew."""

from __future__ import annotations

from typing import Any

from console.compose import DEFAULT_PORTS, Kept, Locator
from console.config import Settings
from console.core.model import ContainerState, PodmanState, PortMapping


class _Source:
    name = "container"
    interval = 1.0

    def open(self) -> None:
        pass

    def read(self) -> Any:
        return None

    def close(self) -> None:
        pass


def state(port: int | None, word: str = "running") -> PodmanState:
    ports = () if port is None else (PortMapping(8000, "tcp", "127.0.0.1", port),)
    return PodmanState("s", "rootful", container=ContainerState("i", "triton", word, "name", ports=ports))


def test_a_container_that_is_gone_is_not_looked_for_on_another_servers_port() -> None:
    container = Kept(_Source())
    container.tried.set()
    locator = Locator(Settings(), container)
    assert locator.address().http_port == DEFAULT_PORTS[0]
    for told, expected in (
        (state(18000), 18000),
        (state(None, "exited"), 18000),
        (PodmanState("s", "rootful"), 18000),
        (None, 18000),
        (state(19000), 19000),
        (state(19000, "exited"), 19000),
    ):
        container.value = told
        assert locator.address().http_port == expected
