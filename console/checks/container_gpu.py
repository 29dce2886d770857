"""Is the GPU really inside the container, has it room there, and who else uses it?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from console.checks.box import BUS, NO_DEVICE, NVML, at, gpus, inspect, no_container, nvml, runs
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, name_of, podman, recreate, seen, strings
from console.checks.container_log import LOG, evidence_of, found_rule, log_says
from console.checks.errors import Diagnosis
from console.clients.libpod import cdi_names
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.model import GpuBox, GpuProcess
from console.core.text import one_line
from console.core.units import size

NODES = "/dev/nvidia*"
INSIDE = "stat /proc/{container_pid}/root/dev/nvidia*"
CONFIGS = "@triton.configs"
_USED = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)$")
"""What CUDA opens."""
FULL = 0.9
"""Share of the card's memory above which a reload has no room."""
_NODE = re.compile(r"/dev/nvidia\d+$")
_BY_DESIGN = frozenset({"vllm", "tensorrtllm"})
"""Back ends that take nearly all of the card's memory when they start, for their cache."""
_NVML_RULES = (
    *("nvml-permission", "nvml-unknown", "version-mismatch", "driver-not-detected", "nvml-lost", "nvml-no-devices"),
    *("cuda-803", "cuda-802", "cuda-999", "cuda-100", "no-driver-talk", "nvml-library", "nvml-failed"),
)


def _processes(cards: GpuBox) -> tuple[GpuProcess, ...] | None:
    """Of all cards and their MIG devices; None where NVML lists them of none."""
    listed = [card.processes for card in cards.gpus if card.processes is not None]
    parts = [part.processes for card in cards.gpus for part in card.mig]
    if not listed and not any(parts):
        return None
    return tuple({one.pid: one for group in (*listed, *parts) for one in group}.values())


def _own(found: Mapping[str, Any], processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
    id_ = str(found.get("Id") or "")
    return tuple(one for one in processes if id_ and one.container_id == id_)


def _shown(one: GpuProcess) -> str:
    who = f", {one_line(one.user, 30)}" if one.user else ""
    command = one_line((one.command or "?").split(" ")[0].rpartition("/")[2], 40)
    return f"{command} ({one.pid}{who}) {size(one.memory)}"


# -------------------------------------------------------------------------------------------------------------- inside


@check(
    "E03",
    "the GPU is inside the container",
    group="container",
    slug="gpu-inside",
    needs=(*NEEDS, NVML, LOG, INSIDE, BUS),
    why="A container starts and answers without a GPU too: models fail to load, or run slowly on the CPU. What NVML "
    "lists of the container's processes is the proof.",
    source="docs-ctk troubleshooting; ctk#210, #580, #1227; podman#22645, #28436",
)
def gpu_inside(facts: Facts) -> Answer:
    """Processes of the container on the card, else its device nodes and what its log says."""
    if why := no_container(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    found = inspect(facts)
    if not runs(found):
        return skip("the container does not run")
    processes, blind = None, ""
    try:
        processes = _processes(nvml(facts))
    except Unknowable as missing:
        blind = missing.why
    own = _own(found, processes or ())
    said = _log(facts)
    trouble = found_rule(said, *_NVML_RULES)
    if trouble is not None and (not own or trouble.rule == "nvml-unknown"):
        return _in_trouble(facts, found, trouble)
    if own:
        total = (
            size(sum(one.memory or 0 for one in own))
            if all(one.memory is not None for one in own)
            else "memory not told"
        )
        evidence = tuple(Evidence("NVML", _shown(one)) for one in own[:4])
        return ok(f"{len(own)} of its processes use the card ({total})", evidence)
    given = _given(facts, found)
    evidence = (*seen(found, "HostConfig.Devices"), *(Evidence("in the container", one) for one in given[:4]))
    if not given:
        return _not_given(facts, found, evidence)
    if processes is None:
        why = blind or "NVML lists no processes"
        return note(f"its nodes are inside; who uses the card is not told ({one_line(why, 80)})", evidence)
    if any(one.in_container is None for one in processes):
        return note("its nodes are inside; whose processes use the card is not told", evidence)
    return warn("its nodes are inside, and none of its processes uses the card", evidence, _look(facts, found))


def _log(facts: Facts) -> tuple[Diagnosis, ...]:
    try:
        return log_says(facts)
    except Unknowable:
        return ()


def _in_trouble(facts: Facts, found: Mapping[str, Any], trouble: Diagnosis) -> Answer:
    data = {"cause": trouble.rule, "checks": " ".join(trouble.checks)}
    if trouble.rule == "driver-not-detected" and not _given(facts, found):
        return _not_given(facts, found, evidence_of(trouble))
    return fail(trouble.title, evidence_of(trouble), _look(facts, found, trouble.checks), **data)


def _given(facts: Facts, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Device nodes that it has, else the CDI names that it was made with."""
    devices = at(found, "HostConfig", "Devices")
    paths = {str(at(one, "PathInContainer") or at(one, "PathOnHost")) for one in devices or ()}
    with suppress(Unknowable):
        paths |= {path[path.index("/dev/") :] for path in facts.glob(_inside(facts))}
    if nodes := tuple(sorted(path for path in paths if _NODE.search(path))):
        return nodes
    if at(found, "HostConfig", "Privileged") is True:
        return ("all of the host's nodes: it is privileged",)
    return cdi_names(strings(at(found, "Config", "CreateCommand")))


def _inside(facts: Facts) -> str:
    return INSIDE.removeprefix("stat ").replace("{container_pid}", next(iter(facts.every("container_pid")), "-"))


def _not_given(facts: Facts, found: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Answer:
    if "cpu-only" in str(found.get("ImageName") or ""):
        return note("it has none, and its image is for the CPU only", (*evidence, *seen(found, "ImageName")))
    fix = recreate(facts, {"devices": "nvidia.com/gpu=all"}, "--device=nvidia.com/gpu=all", ("E05", "B03"))
    return fail("it was made without a GPU", evidence, fix, cause="not-requested")


def _look(facts: Facts, found: Mapping[str, Any], again: tuple[str, ...] = ("B07", "C03", "A17")) -> Fix:
    name = shlex.quote(name_of(found))
    commands = (podman(facts, f"exec {name} nvidia-smi -L"), podman(facts, f"logs --tail 100 {name}"))
    return Fix("S", commands, effect=f"reads only; {', '.join(again)} tell the cause", again=again)


# ------------------------------------------------------------------------------------------------------------- room


@check(
    "E16",
    "the card's memory has room",
    group="container",
    slug="gpu-memory",
    needs=(*NEEDS, NVML, CONFIGS, BUS),
    why="A reload or a new version holds both copies for a while. On a full card the new one fails to load, or a large "
    "batch fails in the middle of the day.",
    source="seed A 6.4; triton.md 1.4",
)
def gpu_memory(facts: Facts) -> Answer:
    """Used of total, card by card."""
    if why := no_container(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    cards = nvml(facts).gpus
    shares = {
        card.index: card.memory_used / card.memory_total
        for card in cards
        if card.memory_total and card.memory_used is not None
    }
    if not shares:
        raise Unknowable("NVML does not tell the memory of any card", "nvidia-smi -q -d MEMORY")
    worst = max(cards, key=lambda card: shares.get(card.index, -1.0))
    share = shares[worst.index]
    used = f"{size(worst.memory_used)} of {size(worst.memory_total)} in use"
    evidence: tuple[Evidence, ...] = (Evidence("NVML", f"GPU {worst.index}: {used}"),)
    data = {"used_pct": f"{share:.0%}".rstrip("%"), "gpu": str(worst.index)}
    if share <= FULL:
        return ok(f"{used} ({share:.0%})", evidence, **data)
    models = _instances(facts)
    evidence += tuple(Evidence("@triton.configs", line) for line in models[:6])
    if any(backend in line for line in models for backend in _BY_DESIGN):
        return note(f"{used} ({share:.0%}): a language model's back end takes it on purpose", evidence, **data)
    fix = Fix(
        "S",
        ("gpuconsole explain E20",),
        effect="fewer instances (instance_group count), one version at a time (E20), or a model less "
        "(gpuconsole do model.unload with its name)",
        again=("E18", "E20"),
    )
    return warn(f"GPU {worst.index}: {used} ({share:.0%})", evidence, fix, **data)


def _instances(facts: Facts) -> tuple[str, ...]:
    """A line for each served model: instances and versions."""
    models = {} if facts.why_not(CONFIGS) else facts.answer(CONFIGS)
    lines: list[str] = []
    for name, versions in sorted(models.items()) if isinstance(models, dict) else ():
        configs = [one for one in versions.values() if isinstance(one, dict)] if isinstance(versions, dict) else []
        groups = [group for one in configs[:1] for group in one.get("instance_group") or () if isinstance(group, dict)]
        count = sum(group["count"] for group in groups if isinstance(group.get("count"), int))
        backend = str(configs[0].get("backend") or configs[0].get("platform") or "?") if configs else "?"
        lines.append(f"{one_line(str(name), 60)}: {backend}, {count} instances in {len(configs)} versions")
    return tuple(lines)


@check(
    "E18",
    "nobody else uses the card",
    group="container",
    slug="other-gpu-users",
    needs=(*NEEDS, NVML, BUS),
    why="Another process takes turns with Triton on the card and holds part of its memory. Latency then depends on "
    "what somebody else runs.",
    source="seed A 6.5",
)
def other_users(facts: Facts) -> Answer:
    """Compute processes that are not of the Triton container."""
    if why := no_container(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    found = inspect(facts)
    processes = _processes(nvml(facts))
    if processes is None:
        raise Unknowable("NVML lists no processes", "nvidia-smi")
    own = {one.pid for one in _own(found, processes)}
    others = [one for one in processes if one.pid not in own and "C" in one.kind and not _is_helper(one)]
    strangers = [one for one in others if one.in_container is not None]
    evidence = tuple(Evidence("NVML", _shown(one)) for one in (strangers or others)[:6])
    if strangers:
        first = _shown(strangers[0])
        text = first if len(strangers) == 1 else f"{len(strangers)} others: {first}, …"
        pids = ",".join(str(one.pid) for one in strangers)
        effect = "whose they are is for a person to judge: nothing is ended here"
        fix = Fix("S", (f"ps -o pid,user,lstart,args -p {pids}",), effect=effect, again=("E16",))
        return warn(text, evidence, fix, pids=pids)
    if others:
        return unknown(f"whose {len(others)} processes are is not told", "sudo nvidia-smi", evidence)
    drawing = [one for one in processes if one.pid not in own and one.kind == "G"]
    if drawing:
        shown = tuple(Evidence("NVML", _shown(one)) for one in drawing[:4])
        return note(f"none computes; {_shown(drawing[0])} draws", shown)
    return ok("only Triton" if own else "nobody", tuple(Evidence("NVML", _shown(one)) for one in processes[:4]))


def _is_helper(one: GpuProcess) -> bool:
    """NVIDIA's own services are no users of the card."""
    return any(word in (one.command or "") for word in ("nvidia-cuda-mps", "nv-hostengine", "nvidia-persistenced"))


# ----------------------------------------------------------------------------------------------------------- the user


@check(
    "E17",
    "the container's user may open the GPU's nodes",
    group="container",
    slug="container-user",
    needs=(*NEEDS, f"stat {NODES}", "/proc/{container_pid}/status", BUS),
    why="Nodes of mode 0660 are for root and one group. A container that runs as another user, or rootless, gets "
    "Insufficient Permissions though nvidia-smi works on the host.",
    source="podman#23016, ctk#580; podman troubleshooting 20",
)
def container_user(facts: Facts) -> Answer:
    """User and groups of the container's first process against the nodes' owner and mode."""
    if why := no_container(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    nodes = {
        path: one for path in facts.glob(NODES) if _USED.search(path) and (one := facts.file(path)).mode is not None
    }
    if not nodes:
        return skip("no /dev/nvidia* nodes")
    closed = {path: one for path, one in nodes.items() if (one.mode or 0) & 0o006 != 0o006}
    evidence = tuple(
        Evidence(path, f"{one.mode or 0:04o} {one.uid}:{one.gid}") for path, one in (closed or nodes).items()
    )
    if not closed:
        return ok(f"{len(nodes)} nodes are open to all", evidence[:3])
    ids = _ids(facts)
    if ids is None:
        skipped = "it does not run" if not runs(inspect(facts)) else "its user is not told"
        return unknown(f"{next(iter(closed))} is closed to others; {skipped}", "ls -l /dev/nvidia*", evidence)
    uid, groups, told = ids
    shut = [path for path, one in closed.items() if not _may(one.mode or 0, one.uid, one.gid, uid, groups)]
    if not shut:
        return ok(f"uid {uid} may open them", (*evidence[:3], *told))
    found = inspect(facts)
    text = f"uid {uid} of the host, as which it runs, may not open {shut[0]}"
    fix = Fix(
        "S",
        (f"ls -l {shut[0]}", f"sudo usermod -aG $(stat -c %G {shut[0]}) $(id -un {uid})"),
        effect="then make it anew with --group-add keep-groups (crun only), or let the driver make the nodes 0666 "
        "(NVreg_DeviceFileMode=0666)",
        again=("A16", "D06", "E03"),
    )
    return fail(text, (*evidence, *told, *seen(found, "Config.User")), fix, uid=str(uid), node=shut[0])


def _ids(facts: Facts) -> tuple[int, frozenset[int], tuple[Evidence, ...]] | None:
    """(uid, all groups, where they were read) of the first process, as the host counts them."""
    for pid in facts.every("container_pid"):
        path = f"/proc/{pid}/status"
        uids, gids, groups = (facts.lines(path, rf"^{key}:") for key in ("Uid", "Gid", "Groups"))
        if uids and gids:
            numbers = [[int(one) for one in line.text.split()[1:] if one.isdigit()] for line in (uids[0], gids[0])]
            others = [int(one) for line in groups for one in line.text.split()[1:] if one.isdigit()]
            if all(len(row) >= 2 for row in numbers):
                return numbers[0][1], frozenset({numbers[1][1], *others}), (uids[0], *groups[:1])
    return None


def _may(mode: int, owner: int | None, group: int | None, uid: int, groups: frozenset[int]) -> bool:
    if uid == 0 or mode & 0o006 == 0o006:
        return True
    if uid == owner:
        return mode & 0o600 == 0o600
    return group in groups and mode & 0o060 == 0o060
