"""One fresh look at a model for a plan: what is served, what lies on disk, who uses it, how a load would go."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from console.actions.box import Box
from console.clients import triton_config
from console.clients.podman_stream import recent_log
from console.clients.triton import Limits, expect_ok, model_path
from console.clients.triton_config import Policy
from console.clients.triton_control import Route, statistics
from console.clients.triton_wire import decode_config
from console.core.model import (
    ContainerState,
    DiskModel,
    DiskVersion,
    IndexEntry,
    ModelConfig,
    ModelStats,
    Repository,
    SourceError,
    TritonConfigs,
)
from console.core.plan import Check, Refused, Target, WrongInput
from console.core.podman_frames import RawLine
from console.core.text import one_line, whole_number
from console.core.triton_command import flag_value
from console.core.triton_log import LineReader
from console.sources.repository import RepositorySource

RATE_SPAN = 0.4
"""Seconds between the two looks at the statistics that tell whether a model has traffic."""
MOST_MODELS = 300
"""READY models whose configurations are asked for to find the ensembles among them."""
MARK = "gpuconsole_reload"
"""The parameter whose change makes Triton load a model anew whose files did not change (domain facts 1.4)."""
GPU_KINDS = ("KIND_GPU", "KIND_AUTO")


class ModelLook(Struct, frozen=True):
    """What was found. `None` or "" is unknown or none; the reason stands beside it."""

    name: str
    entries: tuple[IndexEntry, ...]
    """Lines of the index for this model."""
    all_ready: frozenset[tuple[str, str]]
    """(model, version) of all that is READY."""
    container: ContainerState | None
    route: Route
    live: str = ""
    """Configuration as served, JSON with its secrets; "" when nothing of it is ready."""
    config: ModelConfig | None = None
    disk: DiskModel | None = None
    disk_unknown: str = ""
    """Why the repository cannot be seen."""
    disk_config: Mapping[str, Any] | None = None
    disk_config_error: str = ""
    users: tuple[str, ...] = ()
    """READY ensembles that it is a step of."""
    rate: float | None = None
    """Requests a second just now, by its statistics."""
    stats: tuple[ModelStats, ...] = ()

    @property
    def ready(self) -> tuple[int, ...]:
        """Its READY versions, ascending."""
        return tuple(sorted(int(v) for n, v in self.all_ready if n == self.name and v.isdecimal()))

    @property
    def served(self) -> int | None:
        """The version that unversioned requests go to: the largest READY one."""
        return max(self.ready, default=None)

    @property
    def loading(self) -> tuple[str, ...]:
        """Versions that are LOADING now: any other load or unload of the model waits for them."""
        return tuple(f"{e.version} LOADING" for e in self.entries if e.state == "LOADING")

    @property
    def unloading(self) -> tuple[str, ...]:
        """Versions that still answer their last requests and hold their memory."""
        return tuple(e.version or "" for e in self.entries if e.state == "UNLOADING")

    @property
    def reason(self) -> str:
        """Why its last load failed, by the index."""
        reasons = [e.reason for e in self.entries if e.state == "UNAVAILABLE" and e.reason and e.reason != "unloaded"]
        return one_line(reasons[-1], 300) if reasons else ""

    @property
    def folders(self) -> tuple[int, ...] | None:
        """Usable version folders on disk, ascending; None when the disk cannot be seen."""
        return None if self.disk is None else tuple(v.version for v in self.disk.versions if v.usable)

    @property
    def disk_policy(self) -> Policy | None:
        """The version policy that the file says (its default where it says none); None when it cannot be seen."""
        if self.disk is None or self.disk_config_error:
            return None
        return triton_config.policy_of(self.disk_config or {})

    @property
    def from_disk(self) -> tuple[int, ...] | None:
        """Versions that a plain load or a restart serves; None when that cannot be told."""
        folders, policy = self.folders, self.disk_policy
        return None if folders is None or policy is None else policy.serves(folders)

    @property
    def live_only(self) -> tuple[str, ...]:
        """Settings that the server has and config.pbtxt has not: an unload or a restart drops them."""
        found = self.disk.differences if self.disk is not None else ()
        return tuple(
            one_line(f"{one.path} {one.live} (disk says {one.disk})", 160)
            for one in found
            if not one.path.startswith(("version_policy", f"parameters[{MARK}]"))
        )

    @property
    def on_cpu(self) -> bool:
        """True when all its instances are on the CPU, or it has none (an ensemble)."""
        config = self.config
        if config is None:
            return False
        return bool(config.steps) or (
            bool(config.instance_groups) and not any(g.kind in GPU_KINDS for g in config.instance_groups)
        )

    def disk_version(self, version: int) -> DiskVersion | None:
        """A version folder; None where there is none to see."""
        return next((v for v in (self.disk.versions if self.disk else ()) if v.version == version), None)

    def target(self) -> Target:
        """What is changed, with what must still hold."""
        return Target("model", self.name, identity(self.name, self.all_ready, self.container))


def identity(name: str, ready: frozenset[tuple[str, str]], container: ContainerState | None) -> Mapping[str, str]:
    """The state of a model that its actions change, and the server that it is in."""
    versions = sorted((int(v) for n, v in ready if n == name and v.isdecimal()))
    found = {"ready": ",".join(str(v) for v in versions)}
    if container is not None:
        found["container"] = f"{container.id[:12]} since {container.started_wall or 0:.0f}"
    return found


def largest_ready(told: Mapping[str, str]) -> int | None:
    """Of an `identity`: the version that unversioned requests went to; None where none was READY."""
    versions = [whole_number(version) for version in told.get("ready", "").split(",")]
    return max((version for version in versions if version is not None), default=None)


def model_state(box: Box, name: str) -> Mapping[str, str]:
    """`identity` from a fresh look. SourceError when Triton does not answer."""
    return identity(name, frozenset(box.ready()), container_of(box))


def container_of(box: Box) -> ContainerState | None:
    """The Triton container; None where Podman does not answer or has none (Triton may run without it)."""
    try:
        return box.podman_state().container
    except SourceError:
        return None


def look(box: Box, name: str, *, route: str = "", traffic: bool = True) -> ModelLook:
    """Look at one model; with `traffic` this takes RATE_SPAN at least. WrongInput for one that the server does not
    know; SourceError when it does not answer."""
    container = container_of(box)
    entries = box.index().entries
    found = tuple(e for e in entries if e.name == name)
    repository, unknown, disk = _disk(box, name)
    if not found and disk is None:
        raise WrongInput(_unknown_model(name, sorted({e.name for e in entries})))
    ready = frozenset((e.name, e.version or "") for e in entries if e.state == "READY")
    mine = [version for model, version in ready if model == name]
    before = _statistics(box, name) if mine and traffic else ()
    began = time.monotonic()
    live = _served(box, name, max(mine, key=_number)) if mine else ""
    config = decode_config(live.encode(), name, max(mine, key=_number)) if live else None
    if config is not None and repository is not None:
        disk = _compared(box, name, config) or disk
    on_disk, disk_error = _disk_config(disk, container)
    users = _users(box, name, ready) if mine else ()
    sent = box.route(route)
    rate, stats = _rate(box, name, before, began) if before else (None, _statistics(box, name) if mine else ())
    return ModelLook(
        name=name,
        entries=found,
        all_ready=ready,
        container=container,
        route=sent,
        live=live,
        config=config,
        disk=disk,
        disk_unknown=unknown,
        disk_config=on_disk,
        disk_config_error=disk_error,
        users=users,
        rate=rate,
        stats=stats,
    )


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else -1


def _unknown_model(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else ("it has " + ", ".join(known[:8]) if known else "it has none")
    return f"the server knows no model {one_line(name, 80)!r}; {one_line(hint, 300)}"


def _disk(box: Box, name: str) -> tuple[Repository | None, str, DiskModel | None]:
    try:
        repository = box.repository()
    except (SourceError, Refused) as error:
        return None, one_line(str(error), 200), None
    found = [model for model in repository.models if model.name == name]
    if len(found) > 1:
        return repository, "two repositories hold it", None
    return repository, "" if found else "no folder of that name is in the repository", found[0] if found else None


def _compared(box: Box, name: str, config: ModelConfig) -> DiskModel | None:
    """The folder with the fields in which the served configuration differs from its file."""
    source = RepositorySource(box.locator.places, lambda: TritonConfigs((config,)))
    source.open()
    try:
        found = [model for model in source.read().models if model.name == name]
    except SourceError:
        return None
    finally:
        source.close()
    return found[0] if len(found) == 1 else None


def _disk_config(disk: DiskModel | None, container: ContainerState | None) -> tuple[Mapping[str, Any] | None, str]:
    if disk is None:
        return None, ""
    chosen = flag_value(container.command, "model-config-name") if container is not None else None
    try:
        return triton_config.on_disk(disk.path, chosen or ""), ""
    except SourceError as error:
        return None, error.message


def _served(box: Box, name: str, version: str) -> str:
    try:
        return box.served_config(name, version)
    except SourceError:
        return ""  # it has just become not ready


def _statistics(box: Box, name: str) -> tuple[ModelStats, ...]:
    try:
        return tuple(statistics(box.address(), name))
    except SourceError:
        return ()


def _rate(
    box: Box, name: str, before: tuple[ModelStats, ...], began: float
) -> tuple[float | None, tuple[ModelStats, ...]]:
    time.sleep(max(0.0, RATE_SPAN - (time.monotonic() - began)))
    span = time.monotonic() - began
    after = _statistics(box, name)
    if not before or not after:
        return None, after
    return max(0, _requests(after) - _requests(before)) / span, after


def _requests(stats: tuple[ModelStats, ...]) -> int:
    return sum(one.success_count + one.fail_count for one in stats)


def _users(box: Box, name: str, ready: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    others = sorted(one for one in ready if one[0] != name)[:MOST_MODELS]
    http = box.http(Limits(read=5.0))
    found = []
    try:
        for other, version in others:
            try:
                body = expect_ok(http.get(f"{model_path(other, version)}/config"), f"configuration of {other}")
                config = decode_config(body, other, version)
            except SourceError:
                continue
            if any(step.model == name for step in config.steps):
                found.append(other)
    finally:
        http.close()
    return tuple(dict.fromkeys(found))


# ------------------------------------------------------------------------------------------------------ what plans say


def mode_refusal(look: ModelLook) -> str:
    """Why a model cannot be loaded or unloaded here, and what can be done instead; "" where it can."""
    mode = look.container.control_mode if look.container is not None else None
    if mode == "none":
        return (
            "the server runs in control mode none: it neither loads nor unloads while it runs. Recreate the container "
            "with --model-control-mode=explicit (container.recreate), or restart it to serve what is on disk"
        )
    if mode == "poll":
        return (
            "the server runs in control mode poll: it refuses load and unload and follows the files by itself. Change "
            "the folder on disk and wait for its next poll, or recreate the container with explicit "
            "(container.recreate)"
        )
    return ""


def route_check(look: ModelLook) -> Check:
    """How the load goes, and what stalls."""
    if look.route.name == "gRPC":
        return Check("ok", "gRPC answers: a load by it holds up nobody")
    return Check(
        "warn",
        f"by HTTP ({look.route.why}): kept connections of clients, of other models too, stall for the whole load "
        "(measured: all of 32); fresh connections do not",
    )


def gpu_free(box: Box, look: ModelLook) -> tuple[int | None, str]:
    """Bytes free on the fullest card that the model uses, and "" or why that is not known."""
    try:
        cards = box.gpus().gpus
    except (SourceError, Refused) as error:
        return None, one_line(str(error), 160)
    wanted = {gpu for group in (look.config.instance_groups if look.config else ()) for gpu in group.gpus}
    used = [card for card in cards if not wanted or card.index in wanted]
    free = [card.memory_free for card in used]
    known = [value for value in free if value is not None]
    return (min(known), "") if known and len(known) == len(free) else (None, "the card does not tell its memory")


def taken(box: Box, look: ModelLook, version: int) -> tuple[int | None, str]:
    """Bytes of card memory that a running version took, and how that is known."""
    told = next((s.memory_bytes for s in look.stats if s.version == str(version) and s.memory_bytes), None)
    if told is not None:
        return told, "told by its back end"
    for row in box.snapshot.models if box.snapshot is not None else ():
        if (row.name, row.version) == (look.name, str(version)) and row.memory is not None:
            return row.memory, row.memory_origin or "seen at load"
    return None, ""


_LOG_LINES = 4000


def load_seconds(box: Box, name: str) -> float | None:
    """How long its last load took, by the container's log; None where that does not tell."""
    try:
        raw = recent_log(box.podman_url, box.container().id, _LOG_LINES, limit_s=2.0)
    except (SourceError, Refused):
        return None
    return last_load(raw, name)


def last_load(raw: Iterable[RawLine], name: str) -> float | None:
    """From `loading: X:1` to `successfully loaded 'X'`, of the last load that ended well and did something."""
    reader = LineReader()
    began: float | None = None
    took: float | None = None
    for line in (line for one in raw for line in reader.read(one)):
        if line.wall is None:
            continue
        if line.text.startswith(f"loading: {name}:"):
            began = line.wall
        elif line.text.startswith(f"successfully loaded '{name}'") and began is not None:
            took = line.wall - began if line.wall - began > _NOTHING_LOADED else took
            began = None
        elif line.text.startswith(f"failed to load '{name}'"):
            began = None
    return took


_NOTHING_LOADED = 0.05
"""Seconds below which a load did not bring anything into memory: an update in place, or a version dropped."""
