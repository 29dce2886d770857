"""Finding Podman's socket, and its calls against recorded answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.clients import podman
from console.clients.podman import Candidate, Podman, candidates, connect_error, service_destinations, triton_images
from console.core.model import SourceError
from tests.fakes.libpod import EXITED, IMAGE_ID, RUNNING, FakeLibpod

NO_HOME = {"HOME": "/nonexistent"}


@pytest.fixture
def libpod(tmp_path: Path) -> Iterator[FakeLibpod]:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        yield fake


def urls(told: str | None = None, uid: int = 1000, root: Path = Path("/"), **env: str) -> list[tuple[str, str]]:
    found, _ = candidates(told, {**NO_HOME, **env}, root, uid)
    return [(one.url, one.origin) for one in found]


def test_order_of_sockets(tmp_path: Path) -> None:
    etc = tmp_path / "etc/containers"
    etc.mkdir(parents=True)
    (etc / "containers.conf").write_text('[engine.service_destinations.a]\nuri = "unix:///conf.sock"\n')
    found = urls(root=tmp_path, CONTAINER_HOST="unix:///host.sock", XDG_RUNTIME_DIR="/xdg")
    assert found == [
        ("unix:///host.sock", "CONTAINER_HOST"),
        (f"unix://{tmp_path}/run/podman/podman.sock", "rootful"),
        ("unix:///xdg/podman/podman.sock", "rootless"),
        (f"unix://{tmp_path}/run/user/1000/podman/podman.sock", "rootless"),
        ("unix:///conf.sock", "containers.conf"),
    ]


def test_root_sees_the_sockets_of_all_users_and_none_twice(tmp_path: Path) -> None:
    for user in ("1000", "1001"):
        (tmp_path / f"run/user/{user}/podman").mkdir(parents=True)
        (tmp_path / f"run/user/{user}/podman/podman.sock").touch()
    found = urls(uid=0, root=tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "run/user/1000"))
    assert [origin for _, origin in found] == ["rootful", "rootless", "rootless"]


def test_a_told_socket_stands_alone() -> None:
    assert urls("/mine.sock", CONTAINER_HOST="unix:///x") == [("unix:///mine.sock", "settings")]
    assert urls("http+unix:///mine.sock") == [("unix:///mine.sock", "settings")]
    assert urls("tcp://127.0.0.1:8080") == [("tcp://127.0.0.1:8080", "settings")]


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("ssh://root@box/run/podman/podman.sock", "ssh is not supported"),
        ("tcp://192.0.2.1:8080", "loopback only"),
        ("gopher://x", "no Unix socket"),
        ("unix://", "no path"),
    ],
)
def test_what_cannot_be_used_is_said(uri: str, words: str) -> None:
    found, refused = candidates(None, {**NO_HOME, "CONTAINER_HOST": uri}, Path("/nonexistent"), 1000)
    assert all(one.origin != "CONTAINER_HOST" for one in found)
    assert [(one.origin, words in (one.error or "")) for one in refused] == [("CONTAINER_HOST", True)]


@pytest.mark.parametrize("uri", ["ssh://core:hunter2@box/podman.sock", "tcp://core:hunter2@127.0.0.1:8080"])
def test_a_password_in_an_address_is_not_shown(uri: str) -> None:
    found, refused = candidates(None, {**NO_HOME, "CONTAINER_HOST": uri}, Path("/nonexistent"), 1000)
    assert "core:***@" in (refused[0].path if refused else found[0].path)


def test_broken_files_are_listed(tmp_path: Path) -> None:
    home = tmp_path / ".config/containers"
    home.mkdir(parents=True)
    (home / "containers.conf").write_text("[engine\n")
    (home / "podman-connections.json").write_text('{"Connection":{"Connections":{"m":{"URI":"unix:///m.sock"}}}}')
    uris, broken = service_destinations({"HOME": str(tmp_path)}, tmp_path)
    assert uris == ["unix:///m.sock"]
    assert [(one.origin, "is broken" in (one.error or "")) for one in broken] == [("containers.conf", True)]
    (home / "containers.conf").write_bytes(b"\xff\xfe")
    assert service_destinations({"HOME": str(tmp_path)}, tmp_path)[1]
    (home / "containers.conf").unlink()
    (home / "containers.conf").mkdir()
    assert "could not be read" in (service_destinations({"HOME": str(tmp_path)}, tmp_path)[1][0].error or "")


def test_a_file_told_by_the_environment_replaces_the_others(tmp_path: Path) -> None:
    file = tmp_path / "c.conf"
    file.write_text('[engine]\nservice_destinations = {a = {uri = "ssh://x"}, b = 1}\n')
    assert service_destinations({"CONTAINERS_CONF": str(file), **NO_HOME}, tmp_path)[0] == ["ssh://x"]


def test_why_nobody_answers(tmp_path: Path, libpod: FakeLibpod) -> None:
    assert connect_error(Candidate(libpod.url, "rootful")) is None
    usual = f"unix://{tmp_path}/podman/podman.sock"
    assert connect_error(Candidate(usual, "rootless")) == "is not there: systemctl --user enable --now podman.socket"
    assert connect_error(Candidate(usual, "rootful")) == "is not there: systemctl enable --now podman.socket"
    named = connect_error(Candidate(f"unix://{tmp_path}/none.sock", "CONTAINER_HOST"))
    assert named == "is not there: is the address (CONTAINER_HOST) right, does its service run?"
    assert connect_error(Candidate(f"unix://{tmp_path}", "settings")) == "is no socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "stale.sock"))
    assert "refused" in (connect_error(Candidate(f"unix://{tmp_path}/stale.sock", "rootful")) or "")
    assert connect_error(Candidate("tcp://127.0.0.1:1", "settings"))
    assert connect_error(Candidate("tcp://[::1]:1", "settings"))
    assert connect_error(Candidate("unix://" + "x" * 200, "settings"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become nobody")
def test_permission_denied_has_a_hint(tmp_path: Path, libpod: FakeLibpod) -> None:
    os.chmod(libpod.socket, 0o600)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        error = connect_error(Candidate(libpod.url, "rootful")) or ""
        os._exit(0 if "permission denied" in error and "sudo" in error else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_calls(libpod: FakeLibpod) -> None:
    client = Podman(libpod.url)
    version, latency = client.ping()
    assert version == "4.3.1"
    assert latency > 0
    assert {one.name for one in client.containers()} >= {"triton", "exited"}
    inspected = client.inspect("triton")
    assert inspected is not None
    assert inspected.id == RUNNING[0]
    assert client.inspect("absent") is None
    assert triton_images(client.images()) == ("localhost/tritonserver:24.05-fake",)
    assert client.image_created(IMAGE_ID) is not None
    assert client.image_created("absent") is None
    going = b'{"message":"container 05 does not exist in database: no such container"}'
    libpod.routes[f"/containers/{RUNNING[0]}/json"] = (500, going)
    assert client.inspect(RUNNING[0]) is None
    sample = client.stats(EXITED[0])
    assert sample is not None
    assert sample.pids == 2
    client.close()


def test_odd_answers_are_named(libpod: FakeLibpod) -> None:
    client = Podman(libpod.url)
    libpod.routes["/containers/json"] = (200, b"<html>")
    with pytest.raises(SourceError, match="not understood") as caught:
        client.containers()
    assert caught.value.kind == "protocol"
    libpod.routes["/containers/json"] = (200, b'[{"Id": 5}]')
    with pytest.raises(SourceError, match="not understood"):
        client.containers()
    libpod.routes["/containers/json"] = (500, b'{"message":"disk is full"}')
    with pytest.raises(SourceError, match="500: disk is full"):
        client.containers()
    libpod.routes["/containers/json"] = (500, b"\xff")
    with pytest.raises(SourceError, match="500"):
        client.containers()
    libpod.routes["/containers/json"] = (200, b"null")
    assert client.containers() == []
    libpod.routes["/containers/stats"] = (409, b'{"message":"rootless cgroup v1"}')
    with pytest.raises(SourceError, match="409"):
        client.stats("x")


def test_another_api_is_not_podman(libpod: FakeLibpod) -> None:
    libpod.headers = {}
    with pytest.raises(SourceError, match="not Podman's API"):
        Podman(libpod.url).ping()


def test_a_service_that_is_gone(libpod: FakeLibpod, tmp_path: Path) -> None:
    client = Podman(libpod.url)
    client.ping()
    client.close()
    libpod.end()
    with pytest.raises(SourceError) as caught:
        client.ping()
    assert caught.value.kind == "unavailable"
    assert "is not there" in caught.value.message
    assert "does its service run" in caught.value.hint


def test_a_service_that_hangs(libpod: FakeLibpod) -> None:
    libpod.routes["/_ping"] = lambda request: libpod.stop.wait(5)
    with pytest.raises(SourceError) as caught:
        Podman(libpod.url, timeout=0.2).ping()
    assert caught.value.kind == "timeout"


def test_a_service_that_hangs_up(libpod: FakeLibpod) -> None:
    libpod.routes["/_ping"] = lambda request: request.connection.close()
    with pytest.raises(SourceError) as caught:
        Podman(libpod.url, timeout=1).ping()
    assert caught.value.kind in ("unavailable", "timeout")


def test_a_broken_configuration_does_not_blind_us(
    libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """podman-py's PodmanClient fails on it even with a base_url."""
    file = tmp_path / "broken.conf"
    file.write_text("[[[")
    monkeypatch.setenv("CONTAINERS_CONF", str(file))
    assert podman.Podman(libpod.url).ping()[0] == "4.3.1"
