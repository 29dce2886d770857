"""The ways to swap a version: whether each can be gone and why not, what clients see, how long the gap is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec import Struct

from console.actions.box import Box
from console.actions.model_look import ModelLook, gpu_free, taken
from console.actions.outage import QUIET_STOP, Outage, stop_and_start
from console.actions.swap_spec import WHOLE_CARD, WayName, listed
from console.actions.target import ContainerView
from console.clients import triton_config
from console.core import units
from console.core.model import DiskModel, InstanceGroup, SourceError
from console.core.plan import Refused, Way
from console.core.text import one_line
from console.core.triton_command import flag_value, flag_values

NAMES: tuple[WayName, ...] = get_args(WayName)
MOST_NAMED = 3
BUSY_ENOUGH = 0.9
"""Share of one instance's time above which a queue grows."""


OWN_WEIGHTS = frozenset({"python", "onnxruntime", "pytorch"})
"""Back ends of which each instance has weights of its own: a process, or a session, or a copy unless SHARES is set (its
README). TensorRT's instances on one card share their engine."""
SHARES = "ENABLE_WEIGHT_SHARING"


class Fit(Struct, frozen=True):
    """Whether two versions fit in the card's memory at once."""

    fits: bool | None
    """None = cannot be told."""
    text: str
    needs: int | None = None
    """Bytes that the new version takes, as far as known."""
    spare: bool | None = None
    """Whether a second copy of the old version fits beside both (a warm-up needs it)."""


class Memory(Struct, frozen=True):
    """What is known of the card's memory for a swap; each in bytes, None = not known."""

    took: int | None
    """What the running version took on all its cards."""
    origin: str
    """How that is known."""
    scale: float
    """How much larger the new version's files are; 1.0 where that is not known."""
    free: int | None
    """Free on the fullest card that the model uses."""
    why: str
    """Why `free` is not known."""
    cards: int = 1
    """Cards that the model is on."""

    @property
    def each(self) -> int | None:
        """What the running version took on each card."""
        return None if self.took is None else self.took // self.cards


def memory(box: Box, seen: ModelLook, new: int) -> Memory:
    """A fresh look at it."""
    old_disk, new_disk = seen.disk_version(seen.served or 0), seen.disk_version(new)
    size = new_disk.size if new_disk is not None else None
    free, why = gpu_free(box, seen)
    took, origin = taken(box, seen, seen.served or 0)
    known = size and old_disk is not None and old_disk.size
    scale = size / old_disk.size if known and size and old_disk is not None and old_disk.size else 1.0
    cards = {gpu for group in _groups(seen) for gpu in group.gpus}
    return Memory(took, origin, scale, free, why, max(1, len(cards)))


def fit(seen: ModelLook, new: int, found: Memory) -> Fit:
    """Both with all their instances: free memory against what the running version took, scaled by the files' size."""
    if seen.on_cpu:
        return Fit(True, "both at once: no card memory, its instances are on the CPU", spare=True)
    backend = seen.config.backend if seen.config is not None else ""
    new_disk = seen.disk_version(new)
    size = new_disk.size if new_disk is not None else None
    free, took = found.free, found.took
    needs = None if took is None else int(took * found.scale)
    if backend in WHOLE_CARD:
        return Fit(False, f"both at once: {backend} takes its share of the whole card when it starts", needs)
    if free is None:
        return Fit(None, f"both at once: free memory is not known ({found.why})", needs)
    if needs is not None and took is not None:
        words = f"both at once: needs {units.size(needs)} more ({found.origin}, by file size), free {units.size(free)}"
        return Fit(free >= needs, words, needs, free >= needs + took)
    if size is not None and free < size:
        return Fit(False, f"both at once: its files alone are {units.size(size)}, free {units.size(free)}", size)
    return Fit(
        None, f"both at once: files {units.size(size)}, free {units.size(free)}; what it takes there is not known", None
    )


def _groups(seen: ModelLook) -> tuple[InstanceGroup, ...]:
    return seen.config.instance_groups if seen.config is not None else ()


# -------------------------------------------------------------------------------------------------- 1 instance of each


def alone_off(seen: ModelLook) -> str:
    """Why the running version cannot do with fewer instances meanwhile; "" where it can."""
    config = seen.config
    if config is None:
        return "how many instances it has is not known"
    if config.steps:
        return "an ensemble has no instances"
    if config.sequence_batching:
        return "its sequences are bound to its instances"
    if not config.instance_groups:
        return "how many instances it has is not known"
    if all(group.count <= 1 for group in config.instance_groups):
        total = config.instances or 1
        return "has 1 instance" if total == 1 else "has 1 instance of each group on each card"
    return ""


def alone_fit(seen: ModelLook, found: Memory) -> Fit:
    """Both with 1 instance of each group: reckoned as if every instance took the same share of what all took, which is
    so where each has its own weights, and at best so elsewhere. What the instances give back is measured before the new
    version is loaded."""
    if seen.on_cpu:
        return Fit(True, "no card memory, its instances are on the CPU")
    groups = _groups(seen)
    each, free = found.each, found.free
    many = sum(group.count * max(1, len(group.gpus)) for group in groups)
    if each is None or not many:
        return Fit(None, "what an instance takes is not known")
    one = each * sum(max(1, len(group.gpus)) for group in groups) // many
    needs = int(one * found.scale)
    if free is None:
        return Fit(None, f"free memory is not known ({found.why})", needs)
    then = free + each - one
    both = f"≈ {units.size(one)} + {units.size(needs)}"
    if then < needs:
        return Fit(False, f"{both} with 1 instance each, free then ≈ {units.size(then)} for the second", needs)
    backend = seen.config.backend if seen.config is not None else ""
    if backend not in OWN_WEIGHTS or SHARES in seen.live:
        return Fit(None, f"{both} at best: instances may share weights", needs)
    return Fit(True, f"{both} fit", needs)


def busy_alone(box: Box, seen: ModelLook) -> float | None:
    """Share of the time that 1 instance of each group would execute for the requests that come now, by what the screen
    measured; above 1 its queue grows. None = not known."""
    if seen.rate == 0:
        return 0.0
    groups = _groups(seen)
    rows = box.snapshot.models if box.snapshot is not None else ()
    row = next((one for one in rows if (one.name, one.version) == (seen.name, str(seen.served))), None)
    if row is None or row.busy is None or not row.instances or not groups:
        return None
    return row.busy * row.instances / sum(max(1, len(group.gpus)) for group in groups)


# --------------------------------------------------------------------------------------------------------- the restart


def restart_off(box: Box, seen: ModelLook, new: int) -> str:
    """Why a restart of the container would not serve the new version instead of the old one; "" where it would.

    An override ends with the server, so what a start serves is what the policy on disk says (domain facts 1.4, 10), of
    this model and of all others: no other may change by it.
    """
    container = seen.container
    if container is None:
        return "no container is seen that could be restarted"
    if container.control_mode != "explicit":
        return "its command does not tell the control mode, so what a start loads is not known"
    if seen.from_disk is None or seen.disk_policy is None:
        why = seen.disk_config_error or seen.disk_unknown or "its folder cannot be seen"
        return f"what a start serves is not known: {why}"
    policy = f"policy on disk {seen.disk_policy.text}"
    if max(seen.from_disk, default=None) != new:
        return f"a start serves {listed(seen.from_disk)} ({policy}); model.pin version={new} changes that"
    if seen.served in seen.from_disk:
        return f"a start serves {seen.served} too ({policy})"
    moved = moved_by_start(box, seen)
    if moved:
        more = f" and {len(moved) - MOST_NAMED} more" if len(moved) > MOST_NAMED else ""
        return f"a start changes other models as well: {', '.join(moved[:MOST_NAMED])}{more}"
    return ""


def moved_by_start(box: Box, seen: ModelLook) -> tuple[str, ...]:
    """Other READY models that a start would serve in other versions than now, as `rank 1 → 2`."""
    folders = _on_disk(box)
    chosen = flag_value(seen.container.command, "model-config-name") if seen.container is not None else None
    now: dict[str, list[int]] = {}
    for name, version in seen.all_ready:
        if name != seen.name and version.isdecimal():
            now.setdefault(name, []).append(int(version))
    moved = []
    for name, versions in sorted(now.items()):
        then = _serves(folders.get(name, ()), chosen or "")
        if then != tuple(sorted(versions)):
            shown = "not known" if then is None else listed(then)
            moved.append(f"{one_line(name, 60)} {listed(tuple(sorted(versions)))} → {shown}")
    return tuple(moved)


def back_too(box: Box, seen: ModelLook) -> tuple[str, ...]:
    """Models that do not serve now and come with a start, since `--load-model` names them."""
    wanted = flag_values(seen.container.command, "load-model") if seen.container is not None else ()
    ready = {name for name, _ in seen.all_ready}
    known = _on_disk(box)
    named = known if "*" in wanted else [name for name in wanted if name in known]
    return tuple(sorted(one_line(name, 60) for name in set(named) - ready - {seen.name}))


def loaded_by_start(seen: ModelLook) -> bool:
    """Whether `--load-model` brings it in; else the console loads it once the server answers."""
    wanted = flag_values(seen.container.command, "load-model") if seen.container is not None else ()
    return "*" in wanted or seen.name in wanted


def _on_disk(box: Box) -> dict[str, list[DiskModel]]:
    try:
        models: Iterable[DiskModel] = box.repository().models
    except (SourceError, Refused):
        models = ()
    found: dict[str, list[DiskModel]] = {}
    for model in models:
        found.setdefault(model.name, []).append(model)
    return found


def _serves(folders: Iterable[DiskModel], config_name: str) -> tuple[int, ...] | None:
    """Versions that a start serves of a model; None where that cannot be told. A version of an ensemble may be an empty
    folder."""
    found = list(folders)
    if len(found) != 1:
        return None
    try:
        config = triton_config.on_disk(found[0].path, config_name) or {}
    except SourceError:
        return None
    is_ensemble = bool(config.get("ensemble_scheduling"))
    usable = [one.version for one in found[0].versions if one.usable or is_ensemble]
    return triton_config.policy_of(config).serves(usable)


# ------------------------------------------------------------------------------------------------------------ all ways


class Ways(Struct, frozen=True):
    """All of them for one swap, with what they rest on."""

    fit: Fit
    alone: Fit
    off: dict[str, str]
    """Way -> why it cannot be gone whatever memory there is."""
    outage: Outage | None
    """How long a restart takes; None where it cannot be."""
    load_s: float | None
    """Seconds that the last load took."""
    busy: float | None = None
    """See busy_alone."""

    @property
    def crowded(self) -> bool:
        """1 instance is known not to be enough for the requests."""
        return self.busy is not None and self.busy > BUSY_ENOUGH

    @property
    def best(self) -> WayName:
        """Without a gap where that is known to be possible, or not known to be impossible; not where a queue is known
        to grow meanwhile: a short gap may be better then, and that is for a person to say."""
        if self.fit.fits is not False:
            return "beside"
        good = not self.off["instances"] and self.alone.fits and not self.crowded
        return "instances" if good else "gap"

    def gap_s(self, way: str, loads: bool) -> float | None:
        """Seconds without service by the plan; None = not known. `loads`: the model is loaded after the start."""
        if way == "gap":
            return self.load_s
        if way != "restart":
            return 0.0
        told = self.outage.gap_s if self.outage is not None else None
        if told is None or loads:
            return told
        return None if self.load_s is None else told + self.load_s


NONE = Ways(Fit(None, ""), Fit(None, ""), {}, None, None)
"""Where there is nothing to swap."""


def find(box: Box, seen: ModelLook, new: int, load_s: float | None) -> Ways:
    """Look at what each way rests on."""
    found = memory(box, seen, new)
    off = {"instances": alone_off(seen), "restart": restart_off(box, seen, new)}
    outage = None if off["restart"] else _outage(box, seen)  # it reads the log since the last start
    return Ways(fit(seen, new, found), alone_fit(seen, found), off, outage, load_s, busy_alone(box, seen))


def _outage(box: Box, seen: ModelLook) -> Outage | None:
    if seen.container is None:
        return None
    with ContainerView(box, seen.container.name) as view:
        return stop_and_start(view, seen.container)


def told(seen: ModelLook, new: int, ways: Ways) -> tuple[Way, ...]:
    """As the plan lists them."""
    old, both = seen.served, "both in memory meanwhile" if ways.fit.fits is not False else "both do not fit at once"
    anew = f"≈ {ways.load_s:.1f} s (the last load took that)" if ways.load_s is not None else "not known"
    no_room = ways.fit.text.removeprefix("both at once: ")
    return (
        Way(
            "beside",
            f"load {new} beside {old}, then drop {old}",
            f"nothing: {both}",
            "0 s",
            "" if ways.fit.fits is not False else no_room,
        ),
        Way(
            "instances",
            "1 instance first, then swap beside",
            _seen_alone(ways),
            "0 s",
            ways.off["instances"] or (ways.alone.text if ways.alone.fits is False else ""),
        ),
        Way("gap", f"unload {old}, wait for memory, load {new}", "404 no available versions", anew),
        Way(
            "restart",
            f"restart the container with {new} only",
            "connection refused, of all models",
            _restart_gap(ways, loaded_by_start(seen)),
            ways.off["restart"],
        ),
    )


def _seen_alone(ways: Ways) -> str:
    if ways.off["instances"]:
        return "nothing, slower"
    if ways.crowded:
        return f"a queue that grows: 1 instance would be busy {ways.busy:.0%}"
    return f"nothing: {ways.alone.text}, slower"


def _restart_gap(ways: Ways, loads: bool) -> str:
    if ways.off["restart"]:
        return units.NONE
    seconds = ways.gap_s("restart", loads)
    if seconds is None or ways.outage is None or ways.outage.serving_after is None:
        return "not known"
    load = "" if loads or ways.load_s is None else f", {ways.load_s:.0f} to load it"
    about = "≈" if ways.outage.stop_s <= QUIET_STOP else "up to"
    return f"{about} {seconds:.0f} s (last start {ways.outage.serving_after:.0f}{load})"


def impossible(ways: Ways, way: str) -> str:
    """Why a way that was asked for is refused: what memory there is does not refuse one, it is only reckoned."""
    return ways.off.get(way, "")


def chosen(ways: Ways, told_way: str) -> WayName:
    """The way that is asked for, else the best one."""
    return next((name for name in NAMES if name == told_way), ways.best)
