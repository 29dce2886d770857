"""The model repository on disk: what the container's /models is mounted from."""

from __future__ import annotations

import os
from pathlib import Path

from console.simulator.configs import Served, config_pbtxt
from console.simulator.scenes import Ensemble, Model

MIB = 1024 * 1024
DAY_S = 86_400


class Repository:
    """Writes the model folders, and reads them as Triton does. Model files are sparse: they take no room."""

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
                for version in (model.version, *model.other_versions):
                    age = 1 if version > model.version else 2 if version == model.version else 4
                    self.add_version(model, version, written_s - age * DAY_S)
            _set_time(config, written_s - 2 * DAY_S)

    def add_version(self, model: Model, version: int, written_s: float) -> None:
        """Copy in one version folder, as somebody who deploys it would."""
        folder = self.root / model.name / str(version)
        folder.mkdir(parents=True)
        plan = folder / "model.plan"
        with plan.open("wb") as file:
            file.write(plan_head(model.release(version).tensorrt))
            file.truncate(model.plan_mib * MIB)
        _set_time(plan, written_s)
        _set_time(folder, written_s)

    def folders(self, name: str) -> dict[int, int]:
        """Version folders of a model that hold something, with when that was changed (ns)."""
        found: dict[int, int] = {}
        for folder in self._inside(name):
            if folder.name.isdecimal() and folder.is_dir():
                files = sorted(folder.iterdir())
                found[int(folder.name)] = max((path.stat().st_mtime_ns for path in files), default=0)
        return found

    def _inside(self, name: str) -> list[Path]:
        try:
            return list((self.root / name).iterdir())
        except OSError:
            return []

    def config(self, name: str) -> tuple[int, str]:
        """A model's file: when it was changed (ns) and its text. OSError, UnicodeDecodeError."""
        file = self.root / name / "config.pbtxt"
        return file.stat().st_mtime_ns, file.read_text(encoding="utf-8")


def plan_head(tensorrt: str) -> bytes:
    """How an engine file begins: a tag, and from byte 24 on the TensorRT that built it; before 8.6 the tag alone."""
    version = bytes(int(part) for part in tensorrt.split("."))
    return b"ptrt".ljust(28, b"\0") if version < b"\x08\x06" else b"ftrt".ljust(24, b"\0") + version


def _set_time(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))
