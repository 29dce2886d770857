"""Where Triton is looked for while its container is stopped, gone, or made anew."""

from __future__ import annotations

from console.config import Settings
from console.core.model import ContainerState, PortMapping
from console.sources.locator import DEFAULT_PORTS, Locator


def state(port: int | None, word: str = "running") -> ContainerState:
    ports = () if port is None else (PortMapping(8000, "tcp", "127.0.0.1", port),)
    return ContainerState("i", "triton", word, "name", ports=ports)


def test_a_container_that_is_gone_is_not_looked_for_on_another_servers_port() -> None:
    now: list[ContainerState | None] = [None]
    locator = Locator(Settings(), lambda: now[0])
    assert locator.address().http_port == DEFAULT_PORTS[0]
    for told, expected in (
        (state(18000), 18000),
        (state(None, "exited"), 18000),
        (None, 18000),
        (state(19000), 19000),
        (state(19000, "exited"), 19000),
    ):
        now[0] = told
        assert locator.address().http_port == expected
