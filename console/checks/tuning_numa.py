"""NUMA: what the nodes are, whether pages wander between them, and where the card's interrupts land (F06, F07, F12)."""

from __future__ import annotations

from console.checks import box
from console.checks.box import BUS
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.machine import NODES, active, counted, members, nodes, seen, texts, weighed
from console.checks.tuning_fixes import SYSCTL_NEEDS, service_fix, sysctl_fix
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import whole_number
from console.core.units import GIB

_NODE = "/sys/devices/system/node/node*"
_NODE_NEEDS = (NODES, f"{_NODE}/cpulist", f"{_NODE}/meminfo")
_GPU_NODE = "/sys/bus/pci/devices/{gpu}/numa_node"


@check(
    "F06",
    "NUMA nodes are known",
    group="tuning",
    slug="numa-nodes",
    needs=(*_NODE_NEEDS, _GPU_NODE, BUS),
    why=(
        "On a box with several nodes each card hangs on one of them, and memory of another node is slower to reach. "
        "The server should run on the CPUs of its card's node (E14)."
    ),
    source="Linux admin-guide/mm/numaperf",
)
def numa_nodes(facts: Facts) -> Answer:
    text = facts.maybe(NODES)
    if text is None:
        return skip("this kernel knows no NUMA nodes")
    which = members(text)
    if len(which) == 1:
        return ok("one node", seen(NODES, text))
    said = [f"{number}: {_node(facts, number)}" for number in which[:4]]
    said += [f"{len(which) - 4} more"] if len(which) > 4 else []
    evidence = list(seen(NODES, text))
    try:
        for address in box.gpus(facts):
            path = _GPU_NODE.replace("{gpu}", address)
            told = (facts.maybe(path) or "").strip()
            evidence += seen(path, told)
            on = "no node told" if whole_number(told) in (None, -1) else f"node {told}"
            said.append(f"GPU {address.removeprefix('0000:')} on {on}")
    except Unknowable:
        said.append("the GPU's node is not told")
    return note(f"{len(which)} nodes; {', '.join(said)}", evidence)


def _node(facts: Facts, number: int) -> str:
    """`32 CPUs, 94 GiB`, as far as it is told."""
    folder = _NODE.replace("*", str(number))
    found, _ = texts(facts, [path for path in facts.glob(f"{_NODE}/*") if path.startswith(f"{folder}/")])
    listed = found.get(f"{folder}/cpulist")
    parts = [f"{len(members(listed))} CPUs" if listed else "no CPUs"]
    for line in found.get(f"{folder}/meminfo", "").splitlines():
        name, _, rest = line.partition(":")
        value = whole_number((rest.split() or [""])[0])
        if name.endswith("MemTotal") and value is not None:
            parts.append(f"{value * 1024 / GIB:.0f} GiB")
    return ", ".join(parts)


BALANCING = "/proc/sys/kernel/numa_balancing"


@check(
    "F07",
    "memory pages do not wander",
    group="tuning",
    slug="numa-balancing",
    needs=(BALANCING, NODES, BUS, *SYSCTL_NEEDS),
    why=(
        "Automatic balancing unmaps pages to see who uses them and moves them between nodes; each such page fault "
        "interrupts a request. A server that is bound to its card's node gains nothing from it."
    ),
    source="Linux admin-guide/sysctl/kernel (numa_balancing); redhat-performance/tuned network-latency",
)
def balancing(facts: Facts) -> Answer:
    text = facts.maybe(BALANCING)
    if text is None:
        return skip("this kernel does not balance NUMA memory")
    value = counted(text)
    if value is None:
        return unknown(f"{BALANCING} is no number", f"cat {BALANCING}")
    evidence = seen(BALANCING, text)
    if value == 0:
        return ok("off", evidence)
    count = nodes(facts)
    if count == 1:
        return ok(f"{value}, and one node: there is nothing to move", evidence)
    fix = sysctl_fix(facts, "kernel.numa_balancing", 0, str(value))
    return weighed(facts, warn(f"{value} on {count} nodes", (*evidence, *seen(NODES, facts.text(NODES))), fix))


INTERRUPTS = "/proc/interrupts"
_LOCAL = "/sys/bus/pci/devices/{gpu}/local_cpulist"
_ENOUGH = 10_000
"""Interrupts since boot below which their spread says nothing."""


@check(
    "F12",
    "interrupts are spread",
    group="tuning",
    slug="interrupts",
    needs=(INTERRUPTS, NODES, _LOCAL, BUS, box.UNITS),
    why=(
        "The card tells by interrupts that work is done. Handled on another node, or all on one busy CPU, each of them "
        "comes late; irqbalance places them by node."
    ),
    source="irqbalance(1), Linux core-api/irq/irq-affinity",
)
def interrupts(facts: Facts) -> Answer:
    blind: Unknowable | None = None
    away: float | None = None
    try:
        if box.gpus(facts) and nodes(facts) > 1:
            away = _away(facts)
    except Unknowable as why:
        blind = why
    try:
        balanced = active(facts, "irqbalance")
    except Unknowable as why:
        balanced, blind = True, why
    evidence = tuple(Evidence(line.where, " ".join(line.text.split())) for line in _lines(facts) if away is not None)
    if away is not None and away > 0.5:
        text = f"{100 * away:.0f} % of the card's interrupts go to CPUs of another node"
        fix = _place(facts) if balanced else service_fix("irqbalance", "within ten seconds")
        return warn(text, evidence, fix)
    if blind is not None:
        raise blind
    said = "" if away is None else f"; {100 * (1 - away):.0f} % of the card's are handled on its node"
    if balanced:
        return ok(f"irqbalance runs{said}", evidence)
    return note(f"irqbalance does not run{said}", evidence)


def _lines(facts: Facts) -> tuple[Evidence, ...]:
    try:
        return facts.lines(INTERRUPTS, r"\bnvidia\S*\s*$")
    except Unknowable:
        return ()


def _away(facts: Facts) -> float | None:
    """Share of the cards' interrupts that CPUs of other nodes handle; None where there are too few to tell."""
    local: set[int] = set()
    for address in box.gpus(facts):
        local |= set(members(facts.text(_LOCAL.replace("{gpu}", address))))
    text = facts.text(INTERRUPTS)
    heads = [whole_number(word.removeprefix("CPU")) for word in text.partition("\n")[0].split()]
    here = there = 0
    for line in _lines(facts):
        for cpu, word in zip(heads, line.text.split()[1:], strict=False):
            count = counted(word)
            if cpu is None or count is None:
                break
            here, there = (here + count, there) if cpu in local else (here, there + count)
    return there / (here + there) if here + there >= _ENOUGH else None


def _place(facts: Facts) -> Fix:
    """irqbalance runs and does not do it: by hand, until the next boot."""
    cpulist = facts.text(_LOCAL.replace("{gpu}", box.gpus(facts)[0])).strip()
    numbers = [line.text.partition(":")[0].strip() for line in _lines(facts)]
    lines = tuple(
        f"echo {cpulist} | sudo tee /proc/irq/{number}/smp_affinity_list" for number in numbers if whole_number(number)
    )
    return Fix("S", lines, "takes effect at once, until the next boot or until irqbalance moves them again")
