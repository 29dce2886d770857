"""Each flag by its name, each default, each way to reach a port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core import triton_command as tc
from console.core.model import ContainerState, Mount, PortMapping

HOST = ContainerState(id="1" * 64, name="t", state="running", found_by="name", network="host")


def ports(*argv: str) -> tc.ServerPorts:
    return tc.http_ports(replace(HOST, command=("tritonserver", *argv)))


def test_default_ports() -> None:
    assert ports() == tc.ServerPorts("127.0.0.1", 8000, 8001, 8002)


@pytest.mark.parametrize(("name", "place"), [("http", 0), ("grpc", 1), ("metrics", 2)])
def test_each_port_is_moved_and_turned_off_by_its_own_flags(name: str, place: int) -> None:
    def of(found: tc.ServerPorts) -> list[int | None]:
        return [found.http, found.grpc, found.metrics]

    moved: list[int | None] = [8000, 8001, 8002]
    moved[place] = 9
    assert of(ports(f"--{name}-port=9")) == moved
    moved[place] = None
    for word in ("false", "0", "off", "no"):
        assert of(ports(f"--allow-{name}={word}")) == moved
    moved[place] = 8000 + place
    for word in ("true", "1", "ON", "Yes"):
        assert of(ports(f"--allow-{name}={word}")) == moved
    assert of(ports(f"--{name}-port=x")) == moved


@pytest.mark.parametrize(
    ("address", "host"),
    [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("localhost", "127.0.0.1"), ("10.1.1.1",) * 2],
)
def test_addresses(address: str, host: str) -> None:
    assert ports(f"--http-address={address}").host == host
    published = replace(HOST, network="bridge", ports=(PortMapping(8000, "tcp", address, 18000),))
    assert tc.http_ports(published) == tc.ServerPorts(host, 18000, None, None)


@pytest.mark.parametrize("word", ["1", "true", "on", "yes", "TRUE"])
def test_strict(word: str) -> None:
    assert tc.strict_readiness([f"--strict-readiness={word}"])
    assert not tc.strict_readiness(["--strict-readiness=no"])


@pytest.mark.parametrize(("told", "seconds"), [("0", 0), ("-1", -1), ("--5", 30), ("¹", 30), ("", 30)])
def test_exit_timeouts(told: str, seconds: int) -> None:
    assert tc.exit_timeout(["tritonserver", f"--exit-timeout-secs={told}"]) == seconds


def test_arguments_with_blanks_are_split_only_in_a_line_that_runs_the_server() -> None:
    assert tc.flag_values(["--x=a b", "tritonserver --x=c --x d"], "x") == ("a b", "c", "d")
    assert tc.flag_values(["tritonserver", "--x", "a b"], "x") == ("a b",)
    assert tc.is_tritonserver(["/opt/bin/tritonserver"])
    assert not tc.is_tritonserver(["echo tritonserver-x"])


def test_a_repository_by_either_flag_and_the_last_word_alone() -> None:
    assert tc.repository_paths(["--model-store=/a", "--model-repository", "/b"]) == ("/a", "/b")
    assert tc.flag_values(["--model-store"], "model-store") == ()


def test_remote_repositories_are_on_no_host() -> None:
    mounts = (Mount("/data", "/", False),)
    for path in ("s3://b/m", "gs://b", "as://b"):
        assert tc.host_path(path, mounts) is None
    assert tc.host_path("/m", mounts) == "/data/m"


def test_the_longest_mount_wins_in_any_order() -> None:
    mounts = [Mount("/a", "/models", True), Mount("/b", "/models/x", True), Mount("/c", "/", True)]
    for order in (mounts, mounts[::-1]):
        assert tc.host_path("/models/x/1", order) == "/b/1"
        assert tc.host_path("/models/y", order) == "/a/y"
    twice = [Mount("/first", "/models", True), Mount("/second", "/models", True)]
    assert tc.host_path("/models", twice) == "/first"


def test_variables_that_are_shown() -> None:
    """A list of what NVIDIA's images say of themselves; none of it can hold a secret."""
    assert set(tc.ENV_VERSIONS) == {
        "CUDA_VERSION", "CUDA_DRIVER_VERSION", "CUDNN_VERSION", "NVIDIA_REQUIRE_CUDA", "NVIDIA_DISABLE_REQUIRE",
        "NVIDIA_TRITON_SERVER_VERSION", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "TRITON_SERVER_VERSION", "TRT_VERSION", "TENSORRT_VERSION", "PYTORCH_VERSION", "DCGM_VERSION",
    }  # fmt: skip


words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=10).filter(lambda word: word[0] != "-")


@given(words, st.text(alphabet="abc/:.0", min_size=1, max_size=12), st.booleans())
def test_a_flag_there_and_back(name: str, value: str, joined: bool) -> None:
    argv = ["tritonserver", *([f"--{name}={value}"] if joined else [f"--{name}", value])]
    assert tc.flag_value(argv, name) == value
