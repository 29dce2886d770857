"""A Triton container of a test's own on the lab's Podman: its own name, repository and ports.

A test that stops, recreates, swaps or breaks a server uses this and not the lab's one container, so that such tests run
side by side. It takes about two seconds to start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.lab import box, lock, paths, podman, repository, triton

FIRST_PORT, LAST_PORT = 18300, 18990


@dataclasses.dataclass(frozen=True)
class OwnTriton:
    """Where it is."""

    name: str
    port: int
    """HTTP; gRPC is the next, metrics the one after that."""
    repository: Path
    socket: str = f"unix://{paths.SOCKET}"

    def triton(self, method: str, path: str, body: object = None, timeout: float = 60.0) -> tuple[int, Any]:
        """Status and decoded body of one HTTP request."""
        return triton.call(self.port, method, path, body, timeout=timeout)

    def load(self, model: str, **parameters: object) -> tuple[int, Any]:
        """Load a model over HTTP."""
        return self.triton("POST", f"/v2/repository/models/{model}/load", {"parameters": parameters})

    def ready(self) -> set[tuple[str, str]]:
        """(model, version) of all that is READY; empty while nobody answers."""
        try:
            return triton.ready_versions(self.port)
        except OSError:
            return set()

    def log(self) -> str:
        """The container's log."""
        done = podman.run("logs", self.name, check=False)
        return done.stdout + done.stderr

    def wait_ready(self, wanted: set[tuple[str, str]], seconds: float = 60.0) -> None:
        """Wait until all of `wanted` is READY; AssertionError with the log's end when it is not."""
        deadline = time.monotonic() + seconds
        while not wanted <= self.ready():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} has {self.ready()}, not {wanted}: {self.log()[-1500:]}")
            time.sleep(0.05)


def run_words(name: str, port: int, folder: Path, more: Sequence[str] = (), flags: Sequence[str] = ()) -> list[str]:
    """The words of the `podman run` that makes such a container; `more` are Podman's, `flags` Triton's."""
    published = [f"127.0.0.1:{port + offset}:{8000 + offset}" for offset in range(3)]
    return [
        *("run", "--detach", "--name", name, "--pull", "never", "--device", paths.CDI_DEVICE),
        *(word for ports in published for word in ("--publish", ports)),
        *("--cgroup-parent", podman.CGROUP_PARENT, "--volume", f"{folder}:/models:ro", "--shm-size", "128m"),
        *("--stop-timeout", "60", "--label", "io.gpuconsole.lab=1", *more, paths.IMAGE),
        *("tritonserver", "--model-repository=/models", "--exit-on-error=false", "--exit-timeout-secs=30"),
        *("--allow-gpu-metrics=false", "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends"),
        "--cache-directory=/opt/tritonserver/pytriton/tritonserver/caches",
        *(flags or ("--model-control-mode=explicit", "--load-model=*")),
    ]


def free_ports() -> int:
    """The first of three free ports; the next seven are free to who has them."""
    bases = _bases()
    for base in secrets.SystemRandom().sample(bases, len(bases)):
        with contextlib.suppress(paths.LabError):
            box.require_ports(base)
            return base
    return _system_port()


def _bases() -> range:
    """Every worker of a parallel run has some of its own: two that look at the same time find the same ones free."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return range(FIRST_PORT + 10 * int(worker.removeprefix("gw")), LAST_PORT, 10 * int(workers))


def _system_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def own_triton(
    folder: Path,
    models: Sequence[tuple[str, str, tuple[int, ...]]] = (),
    *,
    more: Sequence[str] = (),
    flags: Sequence[str] = (),
    wait: bool = True,
) -> Iterator[OwnTriton]:
    """Start one with `models` = (name, config.pbtxt, versions) written to `folder`; it is removed afterwards.

    With `wait` it is given when every version that the default policy serves (the highest) is READY.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, config, versions in models:
        repository.write(name, config, versions, root=folder)
    with lock.shared():
        yield from _started(OwnTriton(f"own-{secrets.token_hex(4)}", free_ports(), folder), models, more, flags, wait)


def _started(
    own: OwnTriton,
    models: Sequence[tuple[str, str, tuple[int, ...]]],
    more: Sequence[str],
    flags: Sequence[str],
    wait: bool,
) -> Iterator[OwnTriton]:
    try:
        podman.run(*run_words(own.name, own.port, own.repository, more, flags))
        if wait:
            own.wait_ready({(name, str(max(versions))) for name, _, versions in models})
        yield own
    finally:
        listed = podman.run("ps", "--all", "--format", "{{.Names}}", check=False).stdout.split()
        for one in listed:
            if one == own.name or one.startswith(f"{own.name}-"):
                podman.run("rm", "--force", "--time", "0", one, check=False)
