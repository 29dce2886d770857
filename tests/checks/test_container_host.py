"""E14 and E15: CPUs near the card, memory."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.container_host import container_memory, cpu_set, numa_binding
from console.core.facts import AnswerFact
from tests.checks.container_told import ID, NOTHING, PID, WALL, container, finding
from tests.checks.told import DENIED

CARD = "/sys/bus/pci/devices/0000:3b:00.0"
TWO_NODES = {
    "/sys/devices/system/node/online": "0-1\n",
    f"{CARD}/numa_node": "1\n",
    f"{CARD}/local_cpulist": "16-31,48-63\n",
}
STATUS = f"/proc/{PID}/status"
V2 = {"/sys/fs/cgroup/cgroup.controllers": "cpu memory"}


def _cpus(text: str) -> dict[str, str]:
    return {STATUS: f"Name:\ttriton\nCpus_allowed:\tff\nCpus_allowed_list:\t{text}\nMems_allowed_list:\t0-1\n"}


@pytest.mark.parametrize(
    ("files", "inspect", "sign", "text"),
    [
        ({**TWO_NODES, **_cpus("16-31")}, container(), "ok", "on CPUs of node 1"),
        (
            {**TWO_NODES, **_cpus("0-63")},
            container(),
            "warn",
            "its CPUs go beyond node 1 of the card (CPUs 16-31,48-63)",
        ),
        ({**TWO_NODES, **_cpus("0-15")}, container(), "warn", "far from the card (node 1)"),
        (TWO_NODES, container(), "warn", "not bound: the card is on node 1"),
        (TWO_NODES, container(HostConfig={"CpusetCpus": "16-20"}), "ok", "on CPUs of node 1"),
        (TWO_NODES, container(Args=["tritonserver", "--host-policy=gpu_0,numa-node=1"]), "note", "--host-policy=gpu_0"),
        ({**TWO_NODES, f"{CARD}/numa_node": "-1\n"}, container(), "none", "firmware does not tell"),
        ({**TWO_NODES, f"{CARD}/numa_node": None}, container(), "none", "firmware does not tell"),
        ({**TWO_NODES, "/sys/devices/system/node/online": "0\n"}, container(), "none", "one memory node"),
        ({}, container(), "none", "one memory node"),
        ({**TWO_NODES, f"{CARD}/local_cpulist": "\x00"}, container(), "unknown", "is no list of CPUs"),
        ({**TWO_NODES, f"{CARD}/local_cpulist": DENIED}, container(), "unknown", "permission denied"),
        ({**TWO_NODES, STATUS: DENIED}, container(), "unknown", "permission denied"),
        ({**TWO_NODES, STATUS: "garbage"}, container(), "warn", "not bound"),
    ],
)
def test_numa(files: Any, inspect: Any, sign: str, text: str) -> None:
    found = finding(numa_binding, inspect=inspect, files=files)
    assert found.sign == sign
    assert text in found.text


def test_cards_on_two_nodes() -> None:
    second = {"/sys/bus/pci/devices/0000:af:00.0/numa_node": "0"}
    variables = {"gpu": ("0000:3b:00.0", "0000:af:00.0")}
    found = finding(numa_binding, files={**TWO_NODES, **second}, variables=variables)
    assert (found.sign, found.text) == ("note", "its cards are on several nodes (0, 1)")


@pytest.mark.parametrize(
    ("rootless", "files", "values"),
    [
        (False, {}, {"cpus": "16-31,48-63", "numa": "1"}),
        (True, V2, {"cpus": "16-31,48-63", "numa": "1"}),
        (True, {}, {"flags": "--host-policy=gpu_0,numa-node=1"}),
    ],
)
def test_rootless_on_cgroup_v1_has_no_cpu_sets(rootless: bool, files: Any, values: dict[str, str]) -> None:
    found = finding(numa_binding, files={**TWO_NODES, **files}, answers={"@podman.ping": {"rootless": rootless}})
    assert found.fix is not None
    assert found.fix.values == values


def test_a_quadlet_gives_the_server_its_flags_by_exec() -> None:
    units = {"triton.service": {"SourcePath": "/etc/containers/systemd/triton.container"}}
    answers = {"@podman.ping": {"rootless": True}, "@units": units}
    found = finding(numa_binding, files=TWO_NODES, answers=answers, variables={"unit": ("triton.service",)})
    assert found.fix is not None
    assert "add --host-policy=gpu_0,numa-node=1 to Exec=" in found.fix.effect


@pytest.mark.parametrize(("changes", "sign", "text"), [*NOTHING, ({"variables": {"gpu": ()}}, "none", "no NVIDIA")])
def test_numa_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(numa_binding, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0-2,7", {0, 1, 2, 7}), ("5", {5}), ("", None), ("a-b", None), ("0-99999999", None), ("9999", None)],
)
def test_cpu_set(text: str, wanted: set[int] | None) -> None:
    assert cpu_set(text) == (None if wanted is None else frozenset(wanted))


# -------------------------------------------------------------------------------------------------------------- memory

EVENTS = f"/sys/fs/cgroup/machine.slice/libpod-{ID}.scope/memory.events"
V1 = f"/sys/fs/cgroup/memory/machine.slice/libpod-{ID}.scope/memory.oom_control"
SPLIT = f"/sys/fs/cgroup/system.slice/triton.service/libpod-payload-{ID}/memory.events"


def _log(text: str, ago: float = 60) -> dict[str, Any]:
    return {"@kernel.log": {"source": "journal", "lines": [{"wall": WALL - ago, "text": text}]}}


STUB = "Memory cgroup out of memory: Killed process 4800 (triton_python_b) total-vm:1kB"
OTHER = "Out of memory: Killed process 99 (java) total-vm:1kB"
OWN = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/machine.slice/libpod-{ID}.scope,task=python3,pid=4800"


@pytest.mark.parametrize(
    ("inspect", "files", "answers", "sign", "text"),
    [
        (container(), {}, {}, "ok", "no limit, no kills"),
        (container(HostConfig={"Memory": 8 << 30}), {}, {}, "note", "limit 8.0 GiB, no kills"),
        (container(State={"OOMKilled": True}), {}, {}, "fail", "killed: out of memory"),
        (container(State={"OOMKilled": True}, HostConfig={"Memory": 8 << 30}), {}, {}, "fail", "(limit 8.0 GiB)"),
        (container(), {EVENTS: "low 0\noom 2\noom_kill 2\n"}, {}, "warn", "2 processes of it killed for memory"),
        (container(), {EVENTS: "low 0\noom 0\noom_kill 0\n"}, {}, "ok", "no kills"),
        (container(), {V1: "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}, {}, "warn", "a process of it killed"),
        (container(), {EVENTS: "\x00garbage"}, {}, "ok", "no kills"),
        (container(), {EVENTS: DENIED}, {}, "ok", "no kills"),
        (container(), {}, _log(STUB), "warn", "a process of it killed for memory"),
        (container(), {}, _log(OWN), "warn", "a process of it killed for memory"),
        (container(), {}, _log(OTHER), "ok", "no kills"),
        (container(), {}, _log(STUB, ago=3 * 86400), "ok", "no kills"),
        (container(), {}, {"@kernel.log": AnswerFact(why="needs root")}, "ok", "no kills"),
        (container(HostConfig={"Memory": None}), {}, {}, "unknown", "limit is not told"),
    ],
)
def test_memory(inspect: Any, files: Any, answers: Any, sign: str, text: str) -> None:
    found = finding(container_memory, inspect=inspect, files=files, answers=answers)
    assert found.sign == sign
    assert text in found.text


def test_a_quadlet_keeps_it_in_its_own_cgroup() -> None:
    found = finding(container_memory, files={SPLIT: "oom_kill 1\n"}, variables={"unit": ("triton.service",)})
    assert found.sign == "warn"


@pytest.mark.parametrize(("changes", "sign", "text"), NOTHING)
def test_memory_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(container_memory, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)
