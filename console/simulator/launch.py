"""Start the simulated box in a process of its own, and end it: what `--demo` and tests use."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from console.simulator.scenes import SCENES

READY_FILE = "box.json"
SOCKET_FILE = "podman.sock"
LONGEST_SOCKET_PATH = 100
"""A Unix socket's path may have 103 bytes on macOS, 107 on Linux."""
END_WITHIN_S = 3.0


class SimulatorError(Exception):
    """The simulated box could not be started; the text is one sentence for the user."""


class Addresses(msgspec.Struct, frozen=True):
    """Where the box answers, as its process wrote it to box.json."""

    scene: str
    seed: int
    pid: int
    start_ns: int
    http: str
    """`127.0.0.1:PORT` of Triton's HTTP port."""
    metrics: str
    podman: str
    """`unix:///…` of Podman's socket."""
    nvml: str
    """Path of the state file for `console.simulator.nvml.SimulatedNvml`."""
    repository: str
    root: str
    """A folder that stands for `/`: what the clients take as their root, so that no fact of the real machine shows."""


@dataclass(slots=True)
class RunningBox:
    """A simulated box that runs until `close` (or the end of a `with`)."""

    addresses: Addresses
    _folder: Path
    _process: subprocess.Popen[bytes]

    def step(self, seconds: float) -> int:
        """Let simulated time pass in a box started with `stepped`; returns its time (epoch ns)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"step {seconds!r}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process and remove its files. May be called twice."""
        _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(
    scene: str = "healthy", seed: int = 0, *, models: int = 0, stepped: bool = False, timeout_s: float = 15.0
) -> RunningBox:
    """Start a box and wait until it answers.

    Raises:
        SimulatorError: no such scene, or the process ended or was not ready within `timeout_s`.
    """
    if scene not in SCENES:
        raise SimulatorError(f"there is no scene {scene!r}: choose one of {', '.join(SCENES)}")
    folder = _make_folder()
    command = [sys.executable, "-m", "console.simulator", "--scene", scene, "--seed", str(seed), "--dir", str(folder)]
    command += ["--models", str(models)] if models else []
    command += ["--stepped"] if stepped else []
    # without a name, so that nothing is left of it when this process is killed
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if stepped else subprocess.DEVNULL,
            stderr=log,
            # keys like ctrl+c and ctrl+z are meant for the console alone
            start_new_session=True,
        )
        try:
            addresses = _wait_ready(process, folder, log, timeout_s)
        except BaseException:
            _end(process)
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return RunningBox(addresses, folder, process)


def _make_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gpuconsole-demo-"))
    if len(str(folder / SOCKET_FILE).encode()) > LONGEST_SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="gpuconsole-demo-", dir="/tmp"))
    return folder


def _wait_ready(process: subprocess.Popen[bytes], folder: Path, log: IO[bytes], timeout_s: float) -> Addresses:
    ready = folder / READY_FILE
    deadline = time.monotonic() + timeout_s
    while not ready.exists():
        if process.poll() is not None:
            log.seek(0)
            last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            raise SimulatorError(f"the simulated box ended at once: {last[0] if last else 'it said nothing'}")
        if time.monotonic() > deadline:
            raise SimulatorError(f"the simulated box was not ready within {timeout_s:.0f} s")
        time.sleep(0.02)
    return msgspec.json.decode(ready.read_bytes(), type=Addresses)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process ends when its stdin does; signals are for one that hangs."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    for force in (process.terminate, process.kill):
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            force()
    process.wait()
