"""Fixtures that give any test the lab, or the stand-in NVML alone. tests/conftest.py makes them known."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.lab import box, lock, paths, podman, processes, triton
from tests.lab.nvml import build, layout, values


@dataclasses.dataclass(frozen=True)
class Lab:
    """Where the lab's parts are."""

    podman_url: str  # unix:///run/...
    http_url: str  # http://127.0.0.1:18000
    grpc_address: str  # 127.0.0.1:18001
    metrics_url: str  # http://127.0.0.1:18002/metrics
    port: int
    container: str
    repository: Path
    nvml_directory: Path
    nvml_values: Path

    @classmethod
    def found(cls) -> Lab | None:
        """Return the lab that is up, None where there is none."""
        at = box.addresses()
        if at is None:
            return None
        return cls(
            podman_url=at["podman"],
            http_url=at["http"],
            grpc_address=at["grpc"],
            metrics_url=at["metrics"],
            port=at["http_port"],
            container=at["container"],
            repository=Path(at["repository"]),
            nvml_directory=Path(at["nvml_directory"]),
            nvml_values=Path(at["nvml_values"]),
        )

    @property
    def environment(self) -> dict[str, str]:
        """An environment in which an NVML program sees the lab's card."""
        return _nvml_environment(self.nvml_directory, self.nvml_values)

    @property
    def card(self) -> layout.Device:
        """The card's figures, live. Hold what you set: `card.held |= layout.HOLD_POWER`."""
        device: layout.Device = values.open_values(self.nvml_values).devices[0]
        return device

    def podman(self, *words: str) -> str:
        """Run a podman command on the lab's Podman and return its output; LabError where it fails."""
        return podman.run(*words).stdout

    def triton(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and decoded body of one HTTP request to Triton."""
        return triton.call(self.port, method, path, body, timeout=60.0)

    @contextlib.contextmanager
    def load(self, *words: str) -> Iterator[Load]:
        """Run `scripts/lab traffic WORDS` during the block; its record is there after the block."""
        command = [sys.executable, "-m", "tests.lab", "traffic", "--quiet", *words]
        root = paths.SOURCES.parents[1]
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
            load = Load(process)
            try:
                yield load
            finally:
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=60)
        load.record = json.loads(output) if process.returncode == 0 else {}


class Load:
    """The record of a traffic run; empty until the run is over."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.record: dict[str, Any] = {}

    def ends_by_itself(self) -> None:
        """Wait until a run with `--for` is over: one that is interrupted at its very end leaves no record."""
        self._process.wait(60)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Give the lab to a test that changes nothing in it; such tests may run side by side."""
    # Taken even where the lab seems down: another run may just be raising it afresh.
    with lock.shared():
        yield _lab_or_skip()


@pytest.fixture
def lab_alone() -> Iterator[Lab]:
    """Give the lab to one test alone, which may break it; afterwards it is as before, or raised afresh."""
    with lock.alone():
        found = _lab_or_skip()
        before = _state(found)
        figures = found.nvml_values.read_bytes()
        try:
            yield found
        finally:
            _restore(found, before, figures)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a stand-in built for this test run; without gcc such tests are skipped."""
    if shutil.which("gcc") is None:
        _absent("gcc is not installed (scripts/lab install): the stand-in NVML cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    build.build(folder, folder / "no-such-file")
    return folder


@pytest.fixture
def nvml_standin(nvml_library: Path, tmp_path: Path) -> Standin:
    """Give one test a stand-in NVML with one idle T4; it needs no lab."""
    file = tmp_path / "nvml.values"
    values.create(file)
    return Standin(nvml_library, file)


@dataclasses.dataclass(frozen=True)
class Standin:
    """A stand-in NVML. NVML is loaded once per process: use it in a child with `environment`."""

    directory: Path
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which NVML is this stand-in."""
        return _nvml_environment(self.directory, self.file)

    @property
    def box(self) -> layout.Values:
        """All figures, live."""
        return values.open_values(self.file)

    @property
    def card(self) -> layout.Device:
        """The first card's figures, live."""
        device: layout.Device = self.box.devices[0]
        return device

    def create(self, profile: str, count: int = 1) -> None:
        """Make it another box, see values.PROFILES."""
        values.create(self.file, profile, count)

    def python(self, program: str, timeout: float = 30.0) -> Any:
        """Run a Python program that sees this NVML and prints one JSON value; return that."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"the child failed: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def _nvml_environment(directory: Path, file: Path) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(directory), "GPUCONSOLE_NVML_FILE": str(file)}


def _lab_or_skip() -> Lab:
    found = Lab.found()
    if found is None:
        _absent("the lab is not up: run scripts/lab up")
    if not box.serving(found.port):
        _absent("the lab is up but does not serve its models: run scripts/lab up to repair it")
    return found


def _absent(reason: str) -> NoReturn:
    if os.environ.get("GPUCONSOLE_LAB_REQUIRED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _state(found: Lab) -> dict[str, object]:
    """What a test must leave as it was: files, what is served and how, and the processes."""
    ready = sorted(triton.ready_versions(found.port))
    return {
        "files": {
            str(path.relative_to(found.repository)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(found.repository.rglob("*"))
            if path.is_file()
        },
        "configs": {f"{name} {v}": found.triton("GET", f"/v2/models/{name}/versions/{v}/config") for name, v in ready},
        "holders": sorted((pid, processes.start_time(pid)) for pid, _ in processes.holding_card()),
        "service": box.podman_answers() and processes.running("podman-service"),
        "follower": processes.running("card"),
    }


def _restore(found: Lab, before: dict[str, object], figures: bytes) -> None:
    try:
        same = _state(found) == before
    except OSError:
        same = False
    if not same:
        box.up(afresh=True)
        return
    with found.nvml_values.open("r+b") as file:
        file.write(figures)
