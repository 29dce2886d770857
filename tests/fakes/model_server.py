"""A Triton that loads and unloads as the real one was seen to (domain facts 1.3, 1.4), over HTTP, in this process.

Its models are sleepers without weights: FEATURES [4] -> SCORE [1]. What goes wrong with a version is told by `moods`.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.clients import triton_config
from tests.clients.scripted import Reply, Request, answer, scripted

GOOD_MS = 2.0


@dataclass
class Counts:
    """Statistics of one version since its load."""

    done: int = 0
    failed: int = 0
    ms: float = 0.0


@dataclass
class ModelServer:
    """The server's state."""

    root: Path
    port: int = 0
    ready: dict[str, tuple[int, ...]] = field(default_factory=dict)
    loading: dict[str, int] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    moods: dict[tuple[str, int], str] = field(default_factory=dict)
    """(model, version) -> wrong, form, dead, fails, hangs, drops, crash, crash_load, starves (no instance is added)."""
    means: dict[int, float] = field(default_factory=dict)
    """Version -> milliseconds of its requests."""
    traffic: dict[str, float] = field(default_factory=dict)
    """Model -> requests that each look at its statistics finds done by its largest version."""
    ensembles: dict[str, str] = field(default_factory=dict)
    """Ensemble -> the model that it is made of; it is dropped when that has the mood `drops`."""
    counts: dict[tuple[str, int], Counts] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    loads: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    """Of each load that went well: versions that it serves, and instances of each."""
    down: bool = False
    mode_refused: bool = False
    go_on: threading.Event = field(default_factory=threading.Event)
    """Ends loads that hang."""
    locks: dict[str, threading.Lock] = field(default_factory=dict)

    def folders(self, name: str) -> list[int]:
        """Version folders on disk."""
        return sorted(int(path.name) for path in (self.root / name).iterdir() if path.name.isdecimal())

    def add(
        self,
        name: str,
        versions: tuple[int, ...],
        policy: str = "",
        *,
        load: bool = True,
        more: str = "",
        count: int = 1,
    ) -> None:
        """A model on disk, and READY by its policy."""
        folder = self.root / name
        for version in versions:
            (folder / str(version)).mkdir(parents=True, exist_ok=True)
            (folder / str(version) / "model.py").write_text("x")
        (folder / "config.pbtxt").write_text(
            f'name: "{name}"\nbackend: "python"\nmax_batch_size: 8\n'
            'input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
            'output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
            f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n{policy}\n{more}\n"
        )
        if load:
            self.load(name, None)

    # ------------------------------------------------------------------------------------------------------- loading

    def load(self, name: str, override: str | None) -> tuple[int, str]:
        """Status and Triton's words. Two loads of one model go one after the other."""
        with self.locks.setdefault(name, threading.Lock()):
            return self._load(name, override)

    def _load(self, name: str, override: str | None) -> tuple[int, str]:
        if self.mode_refused:
            return 503, "explicit model load / unload is not allowed if polling is enabled"
        if not (self.root / name).is_dir():
            return 500, f"failed to load '{name}', failed to poll from model repository"
        config = json.loads(override) if override else triton_config.on_disk(str(self.root / name)) or {}
        if self.ready.get(name):
            self._count(name, max(self.ready[name]))
        wanted = triton_config.policy_of(config).serves(self.folders(name))
        if not wanted:
            return 400, f"at least one version must be available under the version policy of model '{name}'"
        for version in wanted:
            refused = self._bring(name, version) or self._starved(name, version, config)
            if refused:
                return 400, refused
        self.ready[name] = wanted
        self.loads.append((wanted, _count(config)))
        self.configs[name] = {
            "name": name,
            "instance_group": [{"name": f"{name}_0", "kind": "KIND_CPU", "count": 1}],
            "version_policy": {"latest": {"num_versions": 1}},
            **config,
        }
        for ensemble, part in self.ensembles.items():
            if part == name:
                drops = any(self.moods.get((name, version)) == "drops" for version in wanted)
                self.ready[ensemble] = () if drops else (1,)
        return 200, ""

    def _bring(self, name: str, version: int) -> str:
        if version in self.ready.get(name, ()):
            return ""
        mood = self.moods.get((name, version), "")
        if mood == "fails":
            return (
                f"load failed for model '{name}': version {version} is at UNAVAILABLE state: Internal: "
                "RuntimeError: no such file: weights.bin"
            )
        if mood == "crash_load":
            self.down = True
        if mood == "hangs":
            self.loading[name] = version
            self.go_on.wait(20)
            self.loading.pop(name, None)
        self.counts[name, version] = Counts()
        return ""

    def _starved(self, name: str, version: int, config: dict[str, Any]) -> str:
        more = version in self.ready.get(name, ()) and _count(config) > _count(self.configs[name])
        if more and self.moods.get((name, version)) == "starves":
            return f"load failed for model '{name}': version {version} is at READY state: Internal: out of memory"
        return ""

    def unload(self, name: str) -> None:
        """At once, with the ensembles that it is part of."""
        self.ready.pop(name, None)
        for ensemble, part in self.ensembles.items():
            if part == name:
                self.ready.pop(ensemble, None)

    # ------------------------------------------------------------------------------------------------------- answers

    def reply(self, request: Request) -> Reply:
        """One request."""
        if self.down:
            return None
        self.calls.append(f"{request.method} {request.path}")
        parts = request.path.strip("/").split("/")
        if request.path == "/v2/repository/index":
            return answer(self._index())
        if parts[:3] == ["v2", "repository", "models"]:
            return self._control(parts[3], parts[4], request.body)
        if parts[:2] == ["v2", "models"]:
            return self._model(parts[2], parts[3:], request)
        return answer({"error": "no such path"}, 404)

    def _index(self) -> list[dict[str, str]]:
        lines: list[dict[str, str]] = []
        names = {path.name for path in self.root.iterdir()} | set(self.ensembles)
        for name in sorted(names):
            versions = self.ready.get(name, ())
            lines += [{"name": name, "version": str(version), "state": "READY"} for version in versions]
            if name in self.loading:
                lines.append({"name": name, "version": str(self.loading[name]), "state": "LOADING"})
            elif not versions:
                lines.append({"name": name})
        return lines

    def _control(self, name: str, verb: str, body: bytes) -> Reply:
        if verb == "unload":
            if self.mode_refused:
                return answer({"error": "not allowed"}, 503)
            self.unload(name)
            return answer()
        status, words = self.load(name, json.loads(body or b"{}").get("parameters", {}).get("config"))
        if self.down:
            return None
        return answer({"error": words}, status) if words else answer()

    def _model(self, name: str, rest: list[str], request: Request) -> Reply:
        versions = self.ready.get(name, ())
        version = int(rest[1]) if rest[0] == "versions" else max(versions, default=0)
        what = rest[-1]
        if version not in versions:
            return answer({"error": f"Request for unknown model: '{name}' has no available versions"}, 404)
        if what == "config":
            return answer(self._config(name))
        if what == "stats":
            return answer({"model_stats": [self._stats(name, one) for one in versions]})
        return self._infer(name, version)

    def _config(self, name: str) -> dict[str, Any]:
        if name in self.ensembles:
            step = {"model_name": self.ensembles[name], "model_version": -1}
            return {"name": name, "platform": "ensemble", "ensemble_scheduling": {"step": [step]}}
        return self.configs[name]

    def _stats(self, name: str, version: int) -> dict[str, Any]:
        if version == max(self.ready[name]):
            self._count(name, version)
        counts = self.counts.setdefault((name, version), Counts())
        stats = {
            "success": {"count": counts.done, "ns": int(counts.ms * 1e6)},
            "fail": {"count": counts.failed, "ns": 0},
        }
        return {"name": name, "version": str(version), "inference_stats": stats}

    def _count(self, name: str, version: int) -> None:
        """A portion of the traffic."""
        counts = self.counts.setdefault((name, version), Counts())
        many, mood = int(self.traffic.get(name, 0)), self.moods.get((name, version))
        counts.failed += many if mood == "raises" else 0
        counts.done += 0 if mood in ("raises", "stuck") else many
        counts.ms += 0 if mood in ("raises", "stuck") else many * self.means.get(version, GOOD_MS)

    def _infer(self, name: str, version: int) -> Reply:
        mood = self.moods.get((name, version), "")
        if mood == "crash":
            self.down = True
            return None
        if mood == "dead":
            return answer({"error": f"Stub process '{name}_0_0' is not healthy."}, 500)
        value = 1.5 if mood == "wrong" else 0.5
        shape = [1, 2] if mood == "form" else [1, 1]
        size = 4 * shape[1]
        out = {"name": "SCORE", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}
        head = json.dumps({"outputs": [out]}).encode()
        chunk = struct.pack(f"<{shape[1]}f", *([value] * shape[1]))
        return answer(head + chunk, Inference_Header_Content_Length=str(len(head)))


def _count(config: dict[str, Any]) -> int:
    groups = config.get("instance_group") or [{}]
    return int(groups[0].get("count", 1))


@contextlib.contextmanager
def model_server(root: Path) -> Iterator[ModelServer]:
    """One that runs during the block, with its repository in `root`."""
    root.mkdir(parents=True, exist_ok=True)
    made = ModelServer(root)
    with scripted(made.reply) as server:
        made.port = server.port
        try:
            yield made
        finally:
            made.go_on.set()
