"""The part repository: model folders on this host's disk, and where the served configuration differs from them."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from console.clients import pbtxt
from console.core.model import (
    ConfigDifference,
    DiskModel,
    DiskVersion,
    ModelConfig,
    Mount,
    Repository,
    SourceError,
    TritonConfigs,
)
from console.core.text import literal, one_line
from console.core.triton_command import flag_value, model_repositories

MAX_CONFIG = 4 * 1024 * 1024
MAX_FILES = 20_000
"""Files of one version folder that are added up; a folder with more has no size."""
SIZE_EVERY = 60.0
"""Seconds after which a version folder is added up again though its own time did not change."""
_VERSION = re.compile(r"[1-9][0-9]{0,18}")


class Place(Struct, frozen=True):
    """One model repository: its folder on the host, and its path in the container where that is another."""

    path: str
    in_container: str | None = None
    config_name: str = ""
    """`--model-config-name`: then `configs/NAME.pbtxt` comes before config.pbtxt."""


def places(command: Sequence[str], mounts: Sequence[Mount]) -> tuple[Place, ...]:
    """Host folders of the repositories that a tritonserver command line names.

    SourceError (unavailable) with the reason when there is none: no flag, an object store, not in a mount.
    """
    named = model_repositories(command, mounts)
    if not named:
        raise SourceError("unavailable", "the container's command names no --model-repository")
    config_name = flag_value(command, "model-config-name") or ""
    found: list[Place] = []
    reasons: list[str] = []
    for path, host in named:
        if host is not None:
            found.append(Place(host, path, config_name))
        elif "://" in path:
            reasons.append(f"{one_line(path, 200)} is an object store, not a folder of this host")
        else:
            reasons.append(f"{one_line(path, 200)} is inside the container, in no mount")
    if not found:
        raise SourceError(
            "unavailable", "; ".join(reasons), "set repository.path in the settings if it is on this host"
        )
    return tuple(found)


class _Size(Struct):
    mtime_ns: int
    at: float
    version: DiskVersion


class _File(Struct):
    """A configuration file as last read."""

    stamp: tuple[int, int, int] | None
    """Modification time (ns), change time (ns), size; None when it could not be looked at."""
    message: object | None
    error: str | None

    @property
    def mtime_wall(self) -> float | None:
        return None if self.stamp is None else self.stamp[0] / 1e9


class _Compared(Struct):
    stamp: tuple[int, int, int] | None
    raw: str
    differences: tuple[ConfigDifference, ...]


class RepositorySource:
    """Scans the repositories; what did not change on disk is not read again."""

    name = "repository"

    def __init__(
        self,
        where: Callable[[], Sequence[Place]],
        configs: Callable[[], TritonConfigs | None] = lambda: None,
        interval: float = 5.0,
    ) -> None:
        """`where` gives the folders now (it may raise SourceError); `configs` the newest served configurations."""
        self.interval = interval
        self._where = where
        self._configs = configs
        self._sizes: dict[str, _Size] = {}
        self._files: dict[str, _File] = {}
        self._compared: dict[str, _Compared] = {}

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def read(self) -> Repository:
        """SourceError when no folder is known or the first one cannot be listed."""
        found = self._where()
        if not found:
            raise SourceError("unavailable", "the model repository's folder on this host is not known")
        configs = self._configs()
        live = {config.name: config for config in configs.configs} if configs is not None else {}
        models: list[DiskModel] = []
        for at, place in enumerate(found):
            try:
                models += self._scan(place, live)
            except SourceError:
                if at == 0:
                    raise
        self._forget({model.path for model in models})
        first = found[0]
        total, free = _disk(first.path)
        return Repository(
            first.path, first.in_container, tuple(sorted(models, key=lambda m: (m.name, m.path))), total, free
        )

    def _scan(self, place: Place, live: Mapping[str, ModelConfig]) -> list[DiskModel]:
        try:
            with os.scandir(place.path) as entries:
                folders = sorted(e.name for e in entries if not e.name.startswith(".") and _is_dir(e))
        except OSError as error:
            raise _unreadable(place.path, error) from error
        return [self._model(place, name, live) for name in folders]

    def _model(self, place: Place, name: str, live: Mapping[str, ModelConfig]) -> DiskModel:
        path = os.path.join(place.path, name)
        shown = literal(name)
        try:
            with os.scandir(path) as entries:
                numbers = [int(e.name) for e in entries if _VERSION.fullmatch(e.name) and _is_dir(e)]
        except OSError as error:
            return DiskModel(shown, literal(path), config_error=_unreadable(path, error).message)
        file = self._config(_config_path(path, place.config_name))
        needs_files = file is None or getattr(file.message, "platform", "") != "ensemble"
        versions = tuple(
            self._version(os.path.join(path, str(number)), number, needs_files) for number in sorted(numbers)
        )
        return DiskModel(
            name=shown,
            path=literal(path),
            versions=versions,
            config_mtime_wall=None if file is None else file.mtime_wall,
            config_error=None if file is None else file.error,
            differences=self._differences(path, file, live.get(shown)),
        )

    def _version(self, path: str, number: int, needs_files: bool) -> DiskVersion:
        """`needs_files` is False for an ensemble: its version folders are empty by nature."""
        try:
            mtime_ns = os.stat(path).st_mtime_ns
        except OSError:
            return DiskVersion(number, None, None)
        now = time.monotonic()
        held = self._sizes.get(path)
        if held is None or held.mtime_ns != mtime_ns or now - held.at > SIZE_EVERY:
            size, newest, count = _contents(path)
            version = DiskVersion(number, size, (newest or mtime_ns) / 1e9, count > 0 or not needs_files)
            held = self._sizes[path] = _Size(mtime_ns, now, version)
        return held.version

    def _config(self, path: str) -> _File | None:
        """None when there is no such file: then Triton completes the configuration by itself."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            self._files.pop(path, None)
            return None
        except OSError as error:
            return _File(None, None, _unreadable(path, error).message)
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        held = self._files.get(path)
        if held is None or held.stamp != stamp:
            held = self._files[path] = _read_config(path, stamp, status.st_mode)
        return held

    def _differences(self, path: str, file: _File | None, live: ModelConfig | None) -> tuple[ConfigDifference, ...]:
        if file is None or file.message is None or live is None:
            return ()
        held = self._compared.get(path)
        if held is None or held.stamp != file.stamp or held.raw != live.raw:
            try:
                found = pbtxt.differences(file.message, pbtxt.served(live.raw))
            except SourceError:
                found = ()
            held = self._compared[path] = _Compared(file.stamp, live.raw, found)
        return held.differences

    def _forget(self, paths: set[str]) -> None:
        """Models that are gone must not stay in memory for ever."""
        if len(self._compared) > len(paths):
            self._compared = {path: held for path, held in self._compared.items() if path in paths}
        if len(self._files) > 2 * len(paths) + 100:
            self._files = {path: held for path, held in self._files.items() if os.path.exists(path)}
        if len(self._sizes) > 1000:
            self._sizes = {path: held for path, held in self._sizes.items() if os.path.exists(path)}


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _config_path(folder: str, config_name: str) -> str:
    if config_name:
        chosen = os.path.join(folder, "configs", f"{config_name}.pbtxt")
        if os.path.exists(chosen):
            return chosen
    return os.path.join(folder, "config.pbtxt")


def _read_config(path: str, stamp: tuple[int, int, int], mode: int) -> _File:
    if not stat.S_ISREG(mode):
        return _File(stamp, None, "it is not a regular file")
    if stamp[2] > MAX_CONFIG:
        return _File(stamp, None, f"it is larger than {MAX_CONFIG // 1024 // 1024} MiB")
    try:
        parsed = pbtxt.parse(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        return _File(stamp, None, _unreadable(path, error).message)
    except UnicodeDecodeError as error:
        return _File(stamp, None, f"it is not UTF-8 at byte {error.start}")
    except pbtxt.PbtxtError as error:
        return _File(stamp, None, str(error))
    return _File(stamp, parsed.message, parsed.unknown)


def _contents(path: str) -> tuple[int | None, int | None, int]:
    """Bytes, newest modification time (ns) and number of the files below a folder; bytes None when unknown."""
    size: int | None = 0
    newest: int | None = None
    count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            count += 1
            if count > MAX_FILES:
                return None, newest, count
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                size = None
                continue
            newest = status.st_mtime_ns if newest is None else max(newest, status.st_mtime_ns)
            size = None if size is None else size + status.st_size
    return size, newest, count


def _disk(path: str) -> tuple[int | None, int | None]:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None, None
    return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def _unreadable(path: str, error: OSError) -> SourceError:
    shown = one_line(path, 300)
    if isinstance(error, PermissionError):
        return SourceError("permission", f"{shown} may not be read", "run gpuconsole as a user who may, or as root")
    if isinstance(error, FileNotFoundError):
        return SourceError("unavailable", f"there is no {shown} on this host")
    return SourceError("unavailable", f"{shown} cannot be read: {error.strerror or error}")
