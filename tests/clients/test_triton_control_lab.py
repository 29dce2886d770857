"""Loading and unloading a real server's models by gRPC and by HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.clients.triton import TritonAddress
from console.clients.triton_cause import load_cause
from console.clients.triton_control import ControlRefused, Route, TritonControl, find_route, served_config
from console.core.model import SourceError
from tests.lab.fixtures import Lab
from tests.lab.own import own_triton
from tests.lab.repository import sleeper_config, write

pytestmark = pytest.mark.lab
SAFE = "--grpc-restricted-protocol=model-repository:admin-key=s3"


def refused(control: TritonControl, model: str) -> str:
    """Triton's words for a load that it refuses."""
    with pytest.raises(ControlRefused) as error:
        control.load(model, None, 5.0)
    return error.value.message


def test_both_routes_say_the_same(lab: Lab, tmp_path: Path) -> None:
    models = [("m", sleeper_config("m", load_ms=600), (1,)), ("n", sleeper_config("n"), (1,))]
    with own_triton(tmp_path / "repository", models) as own:
        write("bad", "max_batch_size: x", root=own.repository)
        address = TritonAddress(http_port=own.port, grpc_port=own.port + 1)
        assert find_route(address) == Route("gRPC")
        other = TritonAddress(http_port=own.port, grpc_port=int(lab.grpc_address.rpartition(":")[2]))
        assert find_route(other).why.endswith("is another server's")
        for route in (Route("gRPC"), Route("HTTP")):
            control = TritonControl(address, route)
            since = time.time()
            words = refused(control, "bad")
            assert words == "failed to load 'bad', failed to poll from model repository"
            assert "Expected integer, got: x" in load_cause(own.socket, own.name, "bad", since)[0]
            assert "failed to load" in refused(control, "nosuch")
            assert control.load("n", None, 5.0) < 1.0  # nothing is newer: nothing is done
            control.unload("m")
            with pytest.raises(SourceError) as late:
                control.load("m", None, 0.3)
            assert late.value.kind == "timeout"
            assert ("m", "LOADING") in {(e.name, e.state) for e in control.index()}  # it goes on
            own.wait_ready({("m", "1")})
        assert '"name":"m"' in served_config(address, "m", "1")


def test_a_restricted_protocol_and_a_mode_that_refuses(lab: Lab, tmp_path: Path) -> None:
    models = [("n", sleeper_config("n"), (1,))]
    with own_triton(tmp_path / "repository", models, flags=(SAFE,)) as own:
        address = TritonAddress(http_port=own.port, grpc_port=own.port + 1)
        assert "expecting header" in find_route(address).why
        keyed = TritonAddress(http_port=own.port, grpc_port=own.port + 1, headers={"Admin-Key": "s3"})
        assert find_route(keyed) == Route("gRPC")
        for route in (Route("gRPC"), Route("HTTP")):
            words = refused(TritonControl(keyed, route), "n")
            assert words == "explicit model load / unload is not allowed if polling is enabled"
