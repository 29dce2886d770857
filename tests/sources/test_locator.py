"""Where Triton is looked for while its container is stopped, gone, or made anew."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from console.clients.triton import metrics_http
from console.config import Settings, Triton
from console.core.model import ContainerState, PortMapping, SourceError
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


def test_metrics_that_are_switched_off_are_said_to_be() -> None:
    on = ContainerState("i", "triton", "running", "name", network="host", command=("tritonserver",))
    off = replace(on, command=("tritonserver", "--allow-metrics=0"))
    ignored = Settings(triton=Triton(metrics=False))
    told = []
    for locator in (Locator(Settings(), lambda: off), Locator(ignored, lambda: on)):
        with pytest.raises(SourceError) as caught:
            metrics_http(locator.address())
        told.append((caught.value.message, caught.value.hint))
    assert told == [
        ("the server runs with --allow-metrics=false, so it has no metrics page", "start it without that flag"),
        ("the metrics page is not read: the settings say so", "see triton.metrics in the settings"),
    ]
    address = Locator(Settings(), lambda: on).address()
    assert (address.metrics_port, address.no_metrics) == (DEFAULT_PORTS[2], None)
