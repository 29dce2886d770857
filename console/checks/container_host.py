"""The container on this host: CPUs near the card, and memory that does not run out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from console.checks.box import (
    BUS,
    KERNEL_LOG,
    NO_DEVICE,
    at,
    flag,
    gpus,
    inspect,
    kernel_lines,
    no_container,
    surely_there,
)
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, is_rootless, name_of, number, podman, recreate, seen
from console.checks.machine import members
from console.core import kernel_faults
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line
from console.core.units import size

ONLINE = "/sys/devices/system/node/online"
NODE = "/sys/bus/pci/devices/{gpu}/numa_node"
NEAR = "/sys/bus/pci/devices/{gpu}/local_cpulist"
STATUS = "/proc/{container_pid}/status"
CGROUP_V2 = "/sys/fs/cgroup/cgroup.controllers"
EVENTS = (
    "/sys/fs/cgroup/machine.slice/libpod-{container_id}.scope/memory.events",
    "/sys/fs/cgroup/machine.slice/libpod-{container_id}.scope/container/memory.events",
    "/sys/fs/cgroup/system.slice/{unit}/libpod-payload-{container_id}/memory.events",
    "/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{container_id}.scope/memory.events",
    "/sys/fs/cgroup/memory/machine.slice/libpod-{container_id}.scope/memory.oom_control",
)
"""Where Podman puts a container, by cgroup version, manager and owner."""
_SERVER = re.compile(r"triton")
DAY = 86400.0


def cpu_set(text: str) -> frozenset[int] | None:
    """The numbers of `0-7,16`; None for what is no such list."""
    try:
        return frozenset(members(text))
    except Unknowable:
        return None


# ---------------------------------------------------------------------------------------------------------------- NUMA


@check(
    "E14",
    "it runs on CPUs near the card",
    group="container",
    slug="numa-binding",
    needs=(*NEEDS, BUS, NODE, NEAR, ONLINE, STATUS, CGROUP_V2),
    why="On a host with several sockets each copy to a card of the other one crosses the link between them. Latency "
    "then depends on which CPU a thread happens to run on.",
    source="seed A 5.2, 6.5; triton docs, --host-policy",
)
def numa_binding(facts: Facts) -> Answer:
    """CPUs that its first process may use, against those of the card's memory node."""
    if why := no_container(facts):
        return skip(why)
    cards = gpus(facts)
    if not cards:
        return skip(NO_DEVICE)
    online = cpu_set(facts.maybe(ONLINE) or "0")
    if online is not None and len(online) < 2:
        return skip("this host has one memory node")
    nodes = {card: number((facts.maybe(NODE.replace("{gpu}", card)) or "-1").strip()) for card in cards}
    known = {card: node for card, node in nodes.items() if node is not None}
    if not known:
        return skip("the firmware does not tell which node the card is on")
    found = inspect(facts)
    evidence = tuple(Evidence(NODE.replace("{gpu}", card), str(node)) for card, node in known.items())
    if len(set(known.values())) > 1:
        return note(f"its cards are on several nodes ({', '.join(map(str, sorted(set(known.values()))))})", evidence)
    node = next(iter(known.values()))
    near_path = NEAR.replace("{gpu}", next(iter(known)))
    text = facts.text(near_path).strip()
    near = cpu_set(text)
    if near is None:
        raise Unknowable(f"{near_path} is no list of CPUs", f"cat {near_path}")
    evidence += (Evidence(near_path, text),)
    if policy := flag(found, "host-policy"):
        return note(f"Triton binds by --host-policy={one_line(policy, 60)}", evidence)
    allowed, where = _allowed(facts, found)
    fix = _bind(facts, text, str(node))
    data = {"node": str(node), "near": text}
    if allowed is None:
        return warn(f"not bound: the card is on node {node} (CPUs {text})", (*evidence, *where), fix, **data)
    if allowed <= near:
        return ok(f"on CPUs of node {node}", (*evidence, *where), **data)
    if not allowed & near:
        return warn(f"bound to CPUs that are far from the card (node {node})", (*evidence, *where), fix, **data)
    return warn(f"its CPUs go beyond node {node} of the card (CPUs {text})", (*evidence, *where), fix, **data)


def _allowed(facts: Facts, found: Mapping[str, Any]) -> tuple[frozenset[int] | None, tuple[Evidence, ...]]:
    """CPUs of the running process, else those that it was made with; None = all."""
    for pid in facts.every("container_pid"):
        lines = facts.lines(STATUS.replace("{container_pid}", pid), r"^Cpus_allowed_list:")
        if lines:
            return cpu_set(lines[0].text.partition(":")[2]), lines
    text = str(at(found, "HostConfig", "CpusetCpus") or "")
    return (cpu_set(text) if text else None), seen(found, "HostConfig.CpusetCpus")


def _bind(facts: Facts, cpus: str, node: str) -> Fix:
    if is_rootless(facts) and not surely_there(facts, CGROUP_V2):  # rootless Podman ignores CPU sets on v1
        policy = f"--host-policy=gpu_0,numa-node={node}"
        return recreate(facts, {"flags": policy}, policy)
    return recreate(facts, {"cpus": cpus, "numa": node}, f"--cpuset-cpus={cpus} --cpuset-mems={node}")


# -------------------------------------------------------------------------------------------------------------- memory


@check(
    "E15",
    "it was not killed for memory",
    group="container",
    slug="container-memory",
    needs=(*NEEDS, *EVENTS, KERNEL_LOG),
    why="When memory runs out the kernel kills the server, or one Python model of it, without a word in Triton's log. "
    "The model then answers nothing until it is loaded anew.",
    source="host.md E15",
)
def container_memory(facts: Facts) -> Answer:
    """Kills by its own limit, by its cgroup's count and in the kernel's log."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    limit = number(at(found, "HostConfig", "Memory"))
    evidence = seen(found, "HostConfig.Memory", "State.OOMKilled")
    data = {"limit": "" if limit is None else str(limit)}
    if at(found, "State", "OOMKilled") is True:
        text = f"killed: out of memory (limit {size(limit)})" if limit else "killed: out of memory"
        return fail(text, evidence, _more(facts, found), **data)
    events = tuple(_kills(facts))
    count = max((kills for kills, _ in events), default=0)
    lines = _in_kernel_log(facts, found)
    if count or lines:
        shown = (*evidence, *(line for _, line in events), *lines[-4:])
        what = f"{count} processes" if count > 1 else "a process"
        return warn(
            f"{what} of it killed for memory", shown, _more(facts, found), kills=str(count or len(lines)), **data
        )
    if limit is None:
        return unknown("its memory limit is not told", evidence=evidence)
    if limit:
        return note(f"limit {size(limit)}, no kills", (*evidence, *(line for _, line in events)), **data)
    return ok("no limit, no kills", evidence, **data)


def _kills(facts: Facts) -> Iterator[tuple[int, Evidence]]:
    """Kills that the kernel counted in the container's cgroup."""
    for pattern in EVENTS:
        path = pattern
        for name in ("container_id", "unit", "uid"):
            path = path.replace(f"{{{name}}}", next(iter(facts.every(name)), f"{{{name}}}"))
        if "{" in path:
            continue
        try:
            lines = facts.lines(path, r"^oom_kill \d{1,18}$")
        except Unknowable:
            continue
        for line in lines:
            yield int(line.text.split()[1]), line


def _in_kernel_log(facts: Facts, found: Mapping[str, Any]) -> tuple[Evidence, ...]:
    id_ = str(found.get("Id") or "-")
    try:
        lines = kernel_lines(facts, r"ut of memory|oom-kill|oom_memcg", facts.wall - DAY)
    except Unknowable:
        return ()
    return tuple(line for line in lines if id_ in line.text or _is_servers(line.text))


def _is_servers(text: str) -> bool:
    fault = kernel_faults.parse(0.0, text)
    return fault is not None and fault.kind == "oom" and bool(_SERVER.search(fault.process or ""))


def _more(facts: Facts, found: Mapping[str, Any]) -> Fix:
    commands = (podman(facts, f"stats --no-stream {name_of(found)}"), "free -h")
    return Fix("S", commands, effect="fewer instances of Python models, or a larger --memory", again=("E01",))
