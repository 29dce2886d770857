"""The simulated Triton's models: loaded, updated in place, reloaded, swapped and unloaded as triton.md 1.3 to 1.6 says.

A load is answered when it has ended; loads and unloads of one model go one after the other, different models' go side
by side. While a version is loaded the old one serves, and both are in the card's memory until the old one has answered
its last request. What the log says of it is what a person finds there after the fact.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from console.planning.batcher import Batcher, Statistics
from console.simulator import configs
from console.simulator.agenda import Agenda
from console.simulator.configs import Config, ConfigError, Served
from console.simulator.repository import Repository
from console.simulator.scenes import Ensemble, Model
from console.simulator.server_log import failed_line
from console.simulator.serving import Version, memory_of

IN_PLACE_S = 0.2
"""Seconds in which an added instance starts (seen: 0.2)."""
FINALIZE_S = 0.3
"""Seconds from a version's last answer until its memory is back."""
LOOK_S = 0.01
NOT_POLLED = "failed to load '{name}', failed to poll from model repository"
UNLOADED = "unloaded"

Done = Callable[[int, str], None]
"""Told the HTTP status and Triton's words ("" with 200)."""


class Host(Protocol):
    """What a server runs on."""

    served: tuple[Served, ...]
    specs: dict[str, Model]
    repository: Repository | None
    agenda: Agenda

    def rng(self, purpose: str) -> random.Random:
        """A generator of its own for each purpose."""
        ...

    def free_mib(self) -> int:
        """Card memory that is free (MiB) when all loads that go on have ended; below 0 they do not fit."""
        ...


class Site(Host, Protocol):
    """What models live in: a server on its host."""

    def note(self, level: str, where: str, text: str) -> None:
        """Write a line into the server's log."""
        ...


@dataclass(slots=True)
class _Known:
    """What a model was loaded from. An override is newer than any file of then, so it stays (triton.md 1.4)."""

    config_ns: int
    folders: dict[int, int]


@dataclass(slots=True)
class _Polled:
    config: Config
    config_ns: int
    folders: dict[int, int]


@dataclass(slots=True)
class _Change:
    """One load: what it brings, and what came of it."""

    name: str
    polled: _Polled
    done: Done
    release: Callable[[], None]
    kept: dict[int, Version] = field(default_factory=dict)
    new: dict[int, Version] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    going_on: int = 0


class _PollError(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Models:
    """All models of one running server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._agenda = site.agenda
        self.specs = {spec.name: spec for spec in site.served}
        self.current: dict[str, dict[int, Version]] = {name: {} for name in self.specs}
        self.loading: dict[str, dict[int, Version]] = {name: {} for name in self.specs}
        self.leaving: list[Version] = []
        self.reasons: dict[str, dict[int, str]] = {name: {} for name in self.specs}
        """Why a version is UNAVAILABLE."""
        self.changes = 0
        """Goes up with the set of versions."""
        self._known: dict[str, _Known] = {}
        self._wanted: set[str] = set()
        self._jobs: dict[str, deque[Callable[[Callable[[], None]], None]]] = {}
        self._loads = 0

    # --------------------------------------------------------------------------------------------------------- looks

    def all(self) -> Iterator[Version]:
        """Every version that is in memory, also on its way in or out."""
        for name in self.specs:
            yield from self.current[name].values()
            yield from self.loading[name].values()
        yield from self.leaving

    def ready(self) -> list[Version]:
        """READY versions, models in their order, versions ascending."""
        return [versions[number] for versions in self.current.values() for number in sorted(versions)]

    def target(self, name: str) -> Version | None:
        """Where unversioned requests go: the largest READY version."""
        versions = self.current.get(name)
        return versions[max(versions)] if versions else None

    @property
    def all_good(self) -> bool:
        """Triton's strict ready flag: nothing LOADING, UNLOADING or failed (triton.md 1.9)."""
        states = (entry.get("state", "") for entry in self.index() if entry.get("reason") != UNLOADED)
        return all(state in ("READY", "") for state in states)

    def index(self) -> Iterator[dict[str, str]]:
        """The repository index: one entry for each version, or only the name of one that was never loaded."""
        for name in sorted(self.specs):
            states = {number: ("UNAVAILABLE", reason) for number, reason in self.reasons[name].items()}
            states |= {one.version: ("UNLOADING", "") for one in self.leaving if one.name == name}
            states |= dict.fromkeys(self.loading[name], ("LOADING", ""))
            states |= dict.fromkeys(self.current[name], ("READY", ""))
            if not states:
                yield {"name": name}
            for number, (state, reason) in sorted(states.items()):
                yield {"name": name, "version": str(number), "state": state} | ({"reason": reason} if reason else {})

    # --------------------------------------------------------------------------------------------------------- loads

    def load(self, name: str, override: str | None, done: Done) -> None:
        """Load a model from disk, or with the JSON text of a whole configuration."""
        self._wanted.add(name)
        spec = self.specs.get(name)
        missing = [step for step in spec.steps if self.target(step) is None] if isinstance(spec, Ensemble) else []
        if not missing:
            self._queue(name, lambda release: self._load(name, override, done, release))
            return

        def then(status: int, words: str) -> None:
            if status == 200:
                self.load(name, override, done)
            else:
                done(status, words)

        # the steps of an ensemble come with it
        self._queue(missing[0], lambda release: self._load(missing[0], None, then, release))

    def unload(self, name: str, *, dependents: bool = False) -> None:
        """Let a model go, and the ensembles that use it. `dependents`: also the steps of an ensemble that nobody
        loaded for themselves."""
        self._wanted.discard(name)
        self._queue(name, lambda release: self._unload(name, dependents, release))

    def load_past(self) -> None:
        """All models as of now, without the time that it takes: for a server that has long been running."""
        for name in (spec.name for spec in self._site.served):
            self._wanted.add(name)
            polled = self._poll(name, None)
            change = _Change(name, polled, lambda status, words: None, lambda: None)
            for number in configs.wanted_versions(polled.config, list(polled.folders)):
                made = self._make(name, number, polled)
                reason = self._refusal(made, fits=True)
                made.loads = (0, 0)
                if reason:
                    self.reasons[name][number] = reason
                else:
                    change.new[number] = made
            self.current[name] = change.new
            self._known[name] = _Known(polled.config_ns, polled.folders)
        self._steps()
        self.changes += 1

    def _queue(self, name: str, job: Callable[[Callable[[], None]], None]) -> None:
        jobs = self._jobs.setdefault(name, deque())
        jobs.append(job)
        if len(jobs) == 1:
            job(lambda: self._next(name))

    def _next(self, name: str) -> None:
        jobs = self._jobs[name]
        jobs.popleft()
        if jobs:
            jobs[0](lambda: self._next(name))

    def _load(self, name: str, override: str | None, done: Done, release: Callable[[], None]) -> None:
        try:
            polled = self._poll(name, override)
            wanted = configs.wanted_versions(polled.config, list(polled.folders))
            if not wanted:
                words = f"at least one version must be available under the version policy of model '{name}'"
                raise _PollError(400, words)
        except _PollError as error:
            done(error.status, str(error))
            release()
            return
        known = self._known.get(name)
        same = known is not None and (known.config_ns, known.folders) == (polled.config_ns, polled.folders)
        if override is None and same and self.current[name]:
            done(200, "")
            release()
            return
        change = _Change(name, polled, done, release)
        for number in wanted:
            self._bring(change, number)
        if not change.going_on:
            self._finish(change)

    def _poll(self, name: str, override: str | None) -> _Polled:
        """Look at the folder and the configuration, as Triton does before it decides anything."""
        spec = self.specs.get(name)
        if spec is None:
            raise _PollError(500, NOT_POLLED.format(name=name))
        repository = self._site.repository
        try:
            if repository is None:
                config_ns, text = 0, configs.config_pbtxt(spec, self._site.specs)
                folders = {spec.version: 0}
            else:
                config_ns, text = repository.config(name)
                folders = repository.folders(name)
            config = configs.from_text(text) if override is None else configs.from_override(override)
            problem = configs.problem(config, name)
            if problem:
                raise ConfigError(problem)
        except (ConfigError, OSError, UnicodeDecodeError) as error:
            if override is None and isinstance(error, ConfigError):
                text = f"Error parsing text-format inference.ModelConfig: {error}"
                self._site.note("", "", f"[libprotobuf ERROR /tmp/build/text_format.cc:337] {text}")
                error = ConfigError(f"failed to read text proto from /models/{name}/config.pbtxt")
            where = "model_repository_manager.cc:1460"
            self._site.note("E", where, f"Poll failed for model directory '{name}': {error}")
            raise _PollError(500, NOT_POLLED.format(name=name)) from error
        return _Polled(configs.completed(config, name), config_ns, folders)

    def _bring(self, change: _Change, number: int) -> None:
        """One version: left as it is, updated in place, or loaded beside the old one."""
        name, config = change.name, change.polled.config
        old = self.current[name].get(number)
        files = change.polled.folders[number]
        if old is not None and old.files == files and not configs.needs_reload(old.config, config):
            change.kept[number] = old
            if configs.instances(old.config) != configs.instances(config):
                self._later(change, IN_PLACE_S, lambda: old.set_instances(config))
            return
        made = self._make(name, number, change.polled)
        change.new[number] = made
        if number not in self.current[name]:
            self.reasons[name].pop(number, None)
        self.loading[name][number] = made
        self.changes += 1
        self._site.note("I", "model_lifecycle.cc:472", f"loading: {name}:{number}")
        refusal = self._refusal(made, fits=self._site.free_mib() >= 0)
        begun, ends = made.loads
        if refusal:  # of what does not fit, as much as there is room for; a bad file takes nothing
            made.vram_mib = max(0, made.vram_mib + self._site.free_mib()) if self._site.free_mib() < 0 else 0
        self._later(change, (ends - begun) / 1e9, lambda: self._loaded(change, number, refusal))

    def _later(self, change: _Change, seconds: float, call: Callable[[], None]) -> None:
        change.going_on += 1

        def then() -> None:
            call()
            change.going_on -= 1
            if not change.going_on:
                self._finish(change)

        self._agenda.after(seconds, then)

    def _loaded(self, change: _Change, number: int, refusal: str) -> None:
        if refusal:
            change.failed[number] = refusal
            self._site.note(*failed_line(change.name, number, refusal))
        else:
            self._site.note("I", "model_lifecycle.cc:839", f"successfully loaded '{change.name}'")

    def _make(self, name: str, number: int, polled: _Polled) -> Version:
        spec, site = self.specs[name], self._site
        config = type(polled.config)()
        config.CopyFrom(polled.config)
        self._loads += 1
        if isinstance(spec, Ensemble):
            made = Version(spec, number, config, None, Statistics(), polled.folders[number])
            seconds = 0.001
        else:
            release = spec.release(number)
            again = "" if self._loads <= len(self.specs) else f":{number}:{self._loads}"
            rng = site.rng(f"{name}:runs{again}")
            base_ms, per_item_ms = spec.service.base_ms * release.slower, spec.service.per_item_ms * release.slower
            service = replace(spec.service, base_ms=base_ms, per_item_ms=per_item_ms)
            batcher = Batcher(configs.scheduling(config), service, start_ns=self._agenda.now_ns, rng=rng)
            made = Version(spec, number, config, batcher, batcher.statistics, polled.folders[number])
            made.shift = release.shift
            seconds = spec.load_s
        made.vram_mib = memory_of(spec, config)
        now_ns = self._agenda.now_ns
        made.loads = (now_ns, now_ns + round(seconds * 1e9))
        return made

    def _refusal(self, made: Version, *, fits: bool) -> str:
        """Triton's reason why this version will not load; "" where it will."""
        spec = made.spec
        if isinstance(spec, Ensemble):
            return self._ensemble_refusal(spec, made.config)
        failed = spec.release(made.version).failed
        if failed:
            return failed
        if made.max_batch_size > spec.engine_batch:
            return (
                f"Internal: autofill failed for model '{made.name}': configuration specified max-batch "
                f"{made.max_batch_size} but TensorRT engine only supports max-batch {spec.engine_batch}"
            )
        if not fits:
            return (
                "Internal: unable to create TensorRT engine: [defaultAllocator.cpp::allocate::19] Error Code 1: Cuda "
                f"Runtime (out of memory): tried to allocate {made.vram_mib} MiB"
            )
        return ""

    def _ensemble_refusal(self, spec: Ensemble, config: Config) -> str:
        for step in spec.steps:
            target = self.target(step)
            if target is None:
                return f"Invalid argument: ensemble {spec.name} contains models that are not available: {step}"
            if target.max_batch_size < config.max_batch_size:
                return (
                    f"Invalid argument: ensemble {spec.name} allows maximum batch size {config.max_batch_size}, but it "
                    f"contains model {step} which only allows maximum batch size to be {target.max_batch_size}"
                )
        return ""

    def _finish(self, change: _Change) -> None:
        """All versions at once, or none."""
        name = change.name
        for number in change.new:
            self.loading[name].pop(number, None)
        self.changes += 1
        if change.failed:
            for number, made in change.new.items():
                self._leave(made)
                if number not in self.current[name]:
                    self.reasons[name][number] = change.failed.get(number, UNLOADED)
            self._site.note("I", "model_lifecycle.cc:777", f"failed to load '{name}'")
            told = "".join(
                f"version {number} is at UNAVAILABLE state: {why};\n" for number, why in change.failed.items()
            )
            change.done(400, f"load failed for model '{name}': {told}")
        else:
            self._take_over(change)
            change.done(200, "")
        change.release()

    def _take_over(self, change: _Change) -> None:
        name, old = change.name, self.current[change.name]
        for made in change.new.values():
            self._warm_up(made)
        self.current[name] = change.kept | change.new
        self._known[name] = _Known(change.polled.config_ns, change.polled.folders)
        for number in self.current[name]:
            self.reasons[name].pop(number, None)
        is_other = bool(change.new) or old.keys() != self.current[name].keys()
        for number, version in old.items():
            if self.current[name].get(number) is not version:
                self._leave(version)
        if is_other:
            self._steps()
            self._refresh_users(name)

    def _warm_up(self, made: Version) -> None:
        for sample in made.config.model_warmup:
            if made.batcher is not None:
                made.arrivals.offer((self._agenda.now_ns, max(1, sample.batch_size), None))

    def _steps(self) -> None:
        """New requests of ensembles go through what serves now."""
        for versions in self.current.values():
            for version in versions.values():
                if isinstance(version.spec, Ensemble):
                    steps = tuple(found for step in version.spec.steps if (found := self.target(step)) is not None)
                    version.steps = steps if len(steps) == len(version.spec.steps) else version.steps
                    version.shift = sum(one.shift for one in version.steps)

    def _refresh_users(self, name: str) -> None:
        """Ensembles follow their steps: loaded anew, or gone without a word to whoever loaded the step."""
        for spec in self.specs.values():
            if isinstance(spec, Ensemble) and name in spec.steps and spec.name in self._wanted:
                self._refresh(spec)

    def _refresh(self, spec: Ensemble) -> None:
        try:
            polled = self._poll(spec.name, None)
        except _PollError:
            return
        refusal = self._ensemble_refusal(spec, polled.config)
        number = max(configs.wanted_versions(polled.config, list(polled.folders)), default=spec.version)
        if refusal:
            self._site.note("E", "model_repository_manager.cc:623", refusal)
            self._drop(spec.name)
            return
        old = self.current[spec.name]
        self._site.note("I", "model_lifecycle.cc:472", f"loading: {spec.name}:{number}")
        made = self._make(spec.name, number, polled)
        self.current[spec.name] = {number: made}
        self.reasons[spec.name].pop(number, None)
        self._known[spec.name] = _Known(polled.config_ns, polled.folders)
        self._site.note("I", "model_lifecycle.cc:839", f"successfully loaded '{spec.name}'")
        for version in old.values():
            self._leave(version)
        self._steps()

    # ------------------------------------------------------------------------------------------------------- unloads

    def _unload(self, name: str, dependents: bool, release: Callable[[], None]) -> None:
        spec = self.specs.get(name)
        self._drop(name)
        for other in self.specs.values():
            if isinstance(other, Ensemble) and name in other.steps:
                self._drop(other.name)
        if dependents and isinstance(spec, Ensemble):
            for step in set(spec.steps) - self._wanted:
                self._drop(step)
        release()

    def _drop(self, name: str) -> None:
        """All READY versions of a model; the index tells of them for ever."""
        for number, version in self.current.get(name, {}).items():
            self.reasons[name][number] = UNLOADED
            self._leave(version)
        if name in self.current:
            self.current[name] = {}
            self.changes += 1

    def _leave(self, version: Version) -> None:
        """It answers what it has, then lets its memory go."""
        version.vram_mib = version.memory_mib(self._agenda.now_ns)
        version.loads = (0, 0)
        self.leaving.append(version)
        self.changes += 1
        self._drain(version)

    def _drain(self, version: Version) -> None:
        if version.is_idle:
            self._agenda.after(0.0 if isinstance(version.spec, Ensemble) else FINALIZE_S, lambda: self._gone(version))
        else:
            self._agenda.after(LOOK_S, lambda: self._drain(version))

    def _gone(self, version: Version) -> None:
        self.leaving.remove(version)
        self.changes += 1
        name, number = version.name, version.version
        if number not in self.current[name] and number not in self.loading[name]:
            self.reasons[name].setdefault(number, UNLOADED)
        self._site.note("I", "model_lifecycle.cc:624", f"successfully unloaded '{name}' version {number}")
