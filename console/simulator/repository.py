"""The model repository on disk: what the container's /models is mounted from."""

from __future__ import annotations

import os
from pathlib import Path

from console.simulator.configs import Served, config_pbtxt
from console.simulator.scenes import Ensemble, Model

MIB = 1024 * 1024
DAY_S = 86_400


class Repository:
    """Writes the model folders. Model files are sparse: they have their size, and take no room."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, served: tuple[Served, ...], written_s: float) -> None:
        """All models' folders; the served versions' files are two days older than `written_s` (epoch seconds)."""
        models = {model.name: model for model in served if isinstance(model, Model)}
        for model in served:
            folder = self.root / model.name
            folder.mkdir(parents=True, exist_ok=True)
            config = folder / "config.pbtxt"
            config.write_text(config_pbtxt(model, models), encoding="utf-8")
            if isinstance(model, Ensemble):
                (folder / str(model.version)).mkdir()
            else:
                for age, version in enumerate((model.version, *model.older_versions), start=1):
                    self.add_version(model, version, written_s - 2 * age * DAY_S)
            _set_time(config, written_s - 2 * DAY_S)

    def add_version(self, model: Model, version: int, written_s: float) -> None:
        """Copy in one version folder, as somebody who deploys it would."""
        folder = self.root / model.name / str(version)
        folder.mkdir(parents=True)
        plan = folder / "model.plan"
        with plan.open("wb") as file:
            file.truncate(model.plan_mib * MIB)
        _set_time(plan, written_s)
        _set_time(folder, written_s)


def _set_time(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))
