"""A simulated box to change in a test: its traffic is told by its scene, and its runner is the real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from console.actions.box import BoxSpec
from console.compose import simulated_settings
from console.config import Actions, Settings
from console.simulator import launch


@contextlib.contextmanager
def simulated(scene: str = "healthy", *, watch: float = 0.6, read_only: bool = False) -> Iterator[BoxSpec]:
    """The spec of a box that lives as long as the `with`."""
    with launch.start(scene, 0) as box:
        told = box.addresses
        settings = simulated_settings(Settings(), told)
        settings = replace(
            settings,
            actions=Actions(watch=watch, load_timeout=30.0),
            safety=replace(settings.safety, read_only=read_only),
        )
        yield BoxSpec(settings, scene, str(Path(told.root)), told.nvml)
