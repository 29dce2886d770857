"""Simulated boxes for these tests: in this process with a clock of the test's, or as the real process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.simulator import launch
from console.simulator.box import Box
from console.simulator.process import STEPPED_START_NS
from console.simulator.scenes import SCENES

TESTS = Path(__file__).parent.parent

MakeBox = Callable[..., Box]


@pytest.fixture
def make_box(tmp_path: Path) -> MakeBox:
    """A box in this process; time passes only by its `advance`."""

    def make(scene: str = "healthy", seed: int = 1) -> Box:
        folder = tmp_path / f"models{len(list(tmp_path.iterdir()))}"
        return Box(SCENES[scene], seed=seed, start_ns=STEPPED_START_NS, repository=folder)

    return make


@pytest.fixture(scope="session")
def live() -> Iterator[launch.Addresses]:
    """A healthy box in a process of its own, on the real clock."""
    with launch.start("healthy", seed=1) as running:
        yield running.addresses


@pytest.fixture(scope="session")
def failed() -> Iterator[launch.Addresses]:
    """A box whose rerank did not load."""
    with launch.start("load-failed", seed=1) as running:
        yield running.addresses


@pytest.fixture(scope="session")
def down() -> Iterator[launch.Addresses]:
    """A box whose container could not start."""
    with launch.start("triton-down", seed=1) as running:
        yield running.addresses


def recorded(name: str) -> Any:
    """A JSON answer of a real server: of Triton from here, of Podman from tests/data."""
    here = Path(__file__).parent / "recorded" / name
    return json.loads((here if here.exists() else TESTS / "data" / "podman" / name).read_text())
