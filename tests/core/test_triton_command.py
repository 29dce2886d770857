"""What tritonserver's command line tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core import triton_command as tc
from console.core.model import ContainerState, Mount, PortMapping

PLAIN = ("/opt/nvidia/nvidia_entrypoint.sh", "tritonserver", "--model-repository=/models", "--http-port", "9000")
BOX = ContainerState(id="1" * 64, name="triton", state="running", found_by="name", command=PLAIN)


def test_flags_in_both_spellings_and_the_last_one_wins() -> None:
    argv = [*PLAIN, "--model-repository=/more", "--http-port=9100", "--allow-http"]
    assert tc.flag_values(argv, "model-repository") == ("/models", "/more")
    assert tc.flag_value(argv, "http-port") == "9100"
    assert tc.flag_value(argv, "allow-http") is None
    assert tc.flag_value(argv, "grpc-port") is None
    assert tc.flag_value(["--http-port", "--x"], "http-port") is None


def test_flags_behind_a_shell() -> None:
    argv = ["sh", "-c", "exec /opt/tritonserver/bin/tritonserver --model-repository=/m --model-control-mode=EXPLICIT"]
    assert tc.is_tritonserver(argv)
    assert tc.control_mode(argv) == "explicit"
    assert tc.repository_paths(argv) == ("/m",)


@pytest.mark.parametrize(
    ("argv", "mode", "timeout", "strict"),
    [
        (["tritonserver"], "none", 30, True),
        (["tritonserver", "--exit-timeout-secs=5", "--strict-readiness=false"], "none", 5, False),
        (["tritonserver", "--strict-readiness", "1", "--exit-timeout-secs=x"], "none", 30, True),
        (["/entrypoint.sh"], None, None, True),
        (["tritonserverish"], None, None, True),
    ],
)
def test_modes(argv: list[str], mode: str | None, timeout: int | None, strict: bool) -> None:
    assert (tc.control_mode(argv), tc.exit_timeout(argv), tc.strict_readiness(argv)) == (mode, timeout, strict)


def test_model_repository_through_the_longest_mount() -> None:
    mounts = (
        Mount("/data", "/", False),
        Mount("/data/models", "/models", True),
        Mount("", "/models/rank", True, "tmpfs"),
    )
    box = replace(BOX, mounts=mounts)
    assert tc.model_repositories(box.command, box.mounts) == (("/models", "/data/models"),)
    assert tc.mount_of("/models-old", mounts) == mounts[0]
    assert tc.host_path("/models/rank/1", mounts) == "/data/models/rank/1"
    assert tc.host_path("/elsewhere", mounts) == "/data/elsewhere"
    assert tc.host_path("s3://bucket/models", mounts) is None
    assert tc.host_path("/models", ()) is None
    assert tc.model_repositories(("tritonserver",), mounts) == ()


def test_ports_published() -> None:
    ports = (
        PortMapping(9000, "tcp", "192.0.2.1", 18000),
        PortMapping(8002, "tcp", "", 18002),
        PortMapping(8001, "udp", "", 1),
    )
    assert tc.http_ports(replace(BOX, ports=ports)) == tc.ServerPorts("192.0.2.1", 18000, None, 18002)


def test_ports_in_the_hosts_network() -> None:
    box = replace(BOX, network="host", command=(*PLAIN, "--allow-metrics=false", "--http-address=0.0.0.0"))
    assert tc.http_ports(box) == tc.ServerPorts("127.0.0.1", 9000, 8001, None, metrics_allowed=False)


def test_no_port_published() -> None:
    assert tc.http_ports(BOX) == tc.ServerPorts("127.0.0.1", None, None, None)


@given(st.lists(st.text(max_size=40), max_size=10))
def test_any_command_line_is_survived(argv: list[str]) -> None:
    box = replace(BOX, command=tuple(argv))
    tc.http_ports(box)
    tc.model_repositories(argv, ())
    tc.control_mode(argv)
    tc.exit_timeout(argv)
