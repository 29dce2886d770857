"""F06, F07, F12."""

from __future__ import annotations

import pytest

from console.checks import tuning_numa
from console.checks.tuning_fixes import SYSCTL
from console.core.facts import FileFact
from tests.checks.host_told import GARBAGE, NO_GPU, ONE_GPU, facts_for, said, units
from tests.checks.told import DENIED

NODES = "/sys/devices/system/node/online"
PCI = "/sys/bus/pci/devices/0000:3b:00.0"
TWO: dict[str, str | FileFact] = {
    NODES: "0-1\n",
    "/sys/devices/system/node/node0/cpulist": "0-15,32-47\n",
    "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       98566144 kB\nNode 0 MemFree: 5 kB\n",
    "/sys/devices/system/node/node1/cpulist": "16-31,48-63\n",
    "/sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       98566144 kB\n",
}


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({}, "none", "this kernel knows no NUMA nodes"),
        ({NODES: "0\n"}, "ok", "one node"),
        (
            TWO | {f"{PCI}/numa_node": "1\n"},
            "note",
            "2 nodes; 0: 32 CPUs, 94 GiB, 1: 32 CPUs, 94 GiB, GPU 3b:00.0 on node 1",
        ),
        (
            TWO | {f"{PCI}/numa_node": "-1\n"},
            "note",
            "2 nodes; 0: 32 CPUs, 94 GiB, 1: 32 CPUs, 94 GiB, GPU 3b:00.0 on no node told",
        ),
        (
            {NODES: "0-1\n", f"{PCI}/numa_node": DENIED},
            "note",
            "2 nodes; 0: no CPUs, 1: no CPUs, the GPU's node is not told",
        ),
        ({NODES: DENIED}, "unknown", f"{NODES}: permission denied"),
        ({NODES: "none"}, "unknown", "a list of processors or nodes is not as the kernel writes it"),
    ],
)
def test_f06(files: dict[str, str | FileFact], sign: str, text: str) -> None:
    finding = said(tuning_numa.numa_nodes, facts_for(tuning_numa.numa_nodes, files, variables=ONE_GPU))
    assert (finding.sign, finding.text) == (sign, text)


@pytest.mark.parametrize(
    ("value", "nodes", "sign", "text"),
    [
        (None, "0-1\n", "none", "this kernel does not balance NUMA memory"),
        ("0\n", "0-1\n", "ok", "off"),
        ("1\n", "0\n", "ok", "1, and one node: there is nothing to move"),
        ("1\n", None, "ok", "1, and one node: there is nothing to move"),
        ("1\n", "0-1\n", "warn", "1 on 2 nodes"),
        ("1\n", DENIED, "unknown", f"{NODES}: permission denied"),
        ("on\n", "0-1\n", "unknown", "/proc/sys/kernel/numa_balancing is no number"),
        (DENIED, "0-1\n", "unknown", "/proc/sys/kernel/numa_balancing: permission denied"),
    ],
)
def test_f07(value: str | FileFact | None, nodes: str | FileFact | None, sign: str, text: str) -> None:
    files = {path: one for path, one in ((tuning_numa.BALANCING, value), (NODES, nodes)) if one is not None}
    finding = said(tuning_numa.balancing, facts_for(tuning_numa.balancing, files, variables=ONE_GPU))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert (finding.fix.deeds[0].path, finding.fix.deeds[0].text) == (SYSCTL, "kernel.numa_balancing = 0\n")
        assert finding.fix.back[0].argv == ("sysctl", "-w", "kernel.numa_balancing=1")


def test_f07_on_a_box_without_a_gpu() -> None:
    files: dict[str, str | FileFact] = {tuning_numa.BALANCING: "1\n", NODES: "0-1\n"}
    assert said(tuning_numa.balancing, facts_for(tuning_numa.balancing, files, variables=NO_GPU)).sign == "note"


def irqs(*counts: int) -> str:
    heads = "".join(f"       CPU{at}" for at in range(len(counts)))
    numbers = "".join(f" {count:10d}" for count in counts)
    other = "  16:          5          5  IR-IO-APIC  ehci"
    return f"           {heads}\n{other}\n 142: {numbers}  IR-PCI-MSI 30932992-edge      nvidia\n"


LOCAL: dict[str, str | FileFact] = {NODES: "0-1\n", f"{PCI}/local_cpulist": "2-3\n"}


@pytest.mark.parametrize(
    ("files", "irqbalance", "sign", "text"),
    [
        ({NODES: "0\n"}, "active", "ok", "irqbalance runs"),
        ({NODES: "0\n"}, "inactive", "note", "irqbalance does not run"),
        ({NODES: "0\n"}, None, "unknown", "systemd was not asked about irqbalance.service"),
        (
            LOCAL | {"/proc/interrupts": irqs(0, 1000, 0, 99000)},
            "active",
            "ok",
            "irqbalance runs; 99 % of the card's are handled on its node",
        ),
        (
            LOCAL | {"/proc/interrupts": irqs(90000, 0, 10000, 0)},
            "active",
            "warn",
            "90 % of the card's interrupts go to CPUs of another node",
        ),
        (
            LOCAL | {"/proc/interrupts": irqs(90000, 0, 10000, 0)},
            None,
            "warn",
            "90 % of the card's interrupts go to CPUs of another node",
        ),
        (LOCAL | {"/proc/interrupts": irqs(90, 0, 10, 0)}, "active", "ok", "irqbalance runs"),
        (LOCAL | {"/proc/interrupts": DENIED}, "active", "unknown", "/proc/interrupts: permission denied"),
        (
            {NODES: "0-1\n", f"{PCI}/local_cpulist": DENIED},
            "active",
            "unknown",
            f"{PCI}/local_cpulist: permission denied",
        ),
    ],
)
def test_f12(files: dict[str, str | FileFact], irqbalance: str | None, sign: str, text: str) -> None:
    answers = {"@units": units(irqbalance=irqbalance) if irqbalance else {}}
    finding = said(tuning_numa.interrupts, facts_for(tuning_numa.interrupts, files, answers=answers, variables=ONE_GPU))
    assert (finding.sign, finding.text) == (sign, text)


@pytest.mark.parametrize(
    ("irqbalance", "kind", "command"),
    [
        ("inactive", "B", "sudo systemctl enable --now irqbalance"),
        ("active", "S", "echo 2-3 | sudo tee /proc/irq/142/smp_affinity_list"),
    ],
)
def test_f12_fix(irqbalance: str, kind: str, command: str) -> None:
    files = LOCAL | {"/proc/interrupts": irqs(90000, 0, 10000, 0)}
    answers = {"@units": units(irqbalance=irqbalance)}
    fix = said(tuning_numa.interrupts, facts_for(tuning_numa.interrupts, files, answers=answers, variables=ONE_GPU)).fix
    assert fix is not None
    assert (fix.kind, fix.commands) == (kind, (command,))


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_never_ok(text: str) -> None:
    for judge, files in (
        (tuning_numa.numa_nodes, {NODES: text}),
        (tuning_numa.balancing, {tuning_numa.BALANCING: text, NODES: text}),
        (tuning_numa.balancing, {tuning_numa.BALANCING: "1", NODES: text}),
        (tuning_numa.interrupts, {NODES: "0-1", f"{PCI}/local_cpulist": text, "/proc/interrupts": text}),
    ):
        answers = {"@units": units(irqbalance="active")} if judge is tuning_numa.interrupts else {}
        assert said(judge, facts_for(judge, dict(files), answers=answers, variables=ONE_GPU)).sign == "unknown"
    facts = facts_for(
        tuning_numa.interrupts,
        LOCAL | {"/proc/interrupts": text},
        answers={"@units": units(irqbalance="active")},
        variables=ONE_GPU,
    )
    assert said(tuning_numa.interrupts, facts).text == "irqbalance runs"
