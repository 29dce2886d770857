"""`snapshot --json` on the lab: whole, with Triton stopped, with Podman stopped, as another user, by odd addresses."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.sources.container import ContainerSettings, ContainerSource
from tests.lab import box, podman, processes
from tests.lab.fixtures import Lab
from tests.system.headless import snapshot

pytestmark = pytest.mark.lab


@pytest.fixture
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Words that run a command as a user without rights, and a home of its own."""
    home = Path("/tmp") / f"gpuconsole-stranger-{os.getpid()}"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    try:
        yield ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), home
    finally:
        for path in sorted(home.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        home.rmdir()


def test_with_traffic(lab: Lab, tmp_path: Path) -> None:
    with lab.load("--poisson", "--for", "8", "rank=60", "reco=20"):
        time.sleep(3)
        taken = snapshot("--socket", lab.podman_url, home=tmp_path, environ=_card(lab))
    data = taken.data
    assert data["serving"]["word"] == "SERVING"
    assert (data["serving"]["ready"], data["serving"]["of"]) == (3, 4)
    assert data["traffic"]["rate"] > 30, "others may send requests to this lab too"
    rows = {(row["name"], row["version"]): row for row in data["models"]}
    assert "Serialized Engine Version: 213" in rows["rerank", "3"]["reason"]
    assert taken.value("gpu")["gpus"][0]["name"] == "Tesla T4"
    assert [part for part in data["parts"] if taken.error(part)] in ([], ["kernel_log"])


def test_with_triton_stopped(lab_alone: Lab, tmp_path: Path) -> None:
    lab_alone.podman("stop", lab_alone.container)
    try:
        taken = snapshot("--socket", lab_alone.podman_url, home=tmp_path, environ=_card(lab_alone))
    finally:
        lab_alone.podman("start", lab_alone.container)
    container = taken.value("container")["container"]
    assert container["state"] == "exited"
    assert container["exit_code"] in (0, 1), "1 where requests of others held it up until its exit time-out"
    assert taken.value("container")["last_log"]
    assert taken.data["serving"]["word"] == "DOWN"
    for part in ("triton.server", "triton.index", "triton.stats", "triton.metrics", "triton.config"):
        assert "refuses the connection" in (taken.error(part) or ""), part
    assert taken.value("repository")["models"], "the disk tells what could be served"
    _until_whole(lab_alone)


def test_with_podman_stopped(lab_alone: Lab, tmp_path: Path) -> None:
    processes.stop("podman-service")
    try:
        ports = ("--http-port", str(lab_alone.port), "--metrics-port", str(lab_alone.port + 2))
        found = snapshot("--socket", lab_alone.podman_url, *ports, home=tmp_path, environ=_card(lab_alone))
        lost = snapshot("--socket", lab_alone.podman_url, home=tmp_path, environ=_card(lab_alone))
    finally:
        podman.start_service()
    assert found.data["serving"]["word"] == "SERVING"
    for taken in (found, lost):
        (tried,) = taken.value("container")["tried"]
        assert tried["error"].startswith(("refused, nobody serves it", "is not there"))
        assert "no Triton container tells" in (taken.error("repository") or "")
    assert "127.0.0.1:8000 refuses" in (lost.error("triton.server") or "")


def test_socket_forms(lab: Lab, tmp_path: Path) -> None:
    path = lab.podman_url.removeprefix("unix://")
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("no socket")
    folder.mkdir()
    deaf = tmp_path / "deaf.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(deaf))
        words = {
            f"unix://{path}": None,
            path: None,
            f"http+unix://{path}": None,
            "/nonexistent/podman.sock": "is not there",
            str(file): "",
            str(folder): "",
            str(deaf): "refused, nobody serves it",
            "ssh://root@127.0.0.1/run/podman/podman.sock": "ssh is not supported",
            "tcp://192.0.2.7:8080": "loopback only",
            "tcp://127.0.0.1:99999": "",
            "tcp://[::1": "",
            "unix://": "names no path",
            "podman.sock": "is no Unix socket",
            "unix:///" + "a" * 200: "too long",
            "unix:///tmp/%00x": "is no path",
        }
        for told, why in words.items():
            source = ContainerSource(ContainerSettings(socket=told))
            source.open()
            state = source.read()
            source.close()
            if why is None:
                assert state.container is not None, told
                assert state.container.name == lab.container
            else:
                assert why in str(state.tried[0].error), told


def test_container_host_and_broken_containers_conf(lab: Lab, tmp_path: Path) -> None:
    conf = tmp_path / ".config/containers"
    conf.mkdir(parents=True)
    for broken in (b"[engine\nservice_destinations = 3", b"\xff\xfe\0", b'[engine]\nservice_destinations = "x"'):
        (conf / "containers.conf").write_bytes(broken)
        taken = snapshot(
            "--http-port",
            str(lab.port),
            home=tmp_path,
            environ={"CONTAINER_HOST": "ssh://ops@192.0.2.7:22/run/podman/podman.sock"},
        )
        tried = {one["path"]: one for one in taken.value("container")["tried"]}
        assert "ssh is not supported" in tried["ssh://ops@192.0.2.7:22/run/podman/podman.sock"]["error"]
        if b"engine]" not in broken:
            assert "is broken" in tried[str(conf / "containers.conf")]["error"]


def test_without_rights(lab: Lab, stranger: tuple[tuple[str, ...], Path]) -> None:
    before, home = stranger
    ports = ("--http-port", str(lab.port), "--metrics-port", str(lab.port + 2))
    taken = snapshot("--socket", lab.podman_url, *ports, home=home, before=before, environ=_card(lab))
    assert taken.data["serving"]["word"] == "SERVING"
    (tried,) = taken.value("container")["tried"]
    assert "permission denied" in tried["error"]
    assert "sudo" in tried["error"]
    assert taken.value("host")["cpus"]
    kernel = taken.error("kernel_log")
    assert kernel is None or "ermission" in kernel or "not readable" in kernel, kernel


def _card(lab: Lab) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(lab.nvml_directory), "GPUCONSOLE_NVML_FILE": str(lab.nvml_values)}


def _until_whole(lab: Lab) -> None:
    end = time.monotonic() + 40
    while not box.whole(lab.port):
        assert time.monotonic() < end
        time.sleep(0.2)
