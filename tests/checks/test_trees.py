"""Healthy boxes: nothing fails, what is warned of is true, and little is unknown to root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from console.checks import run
from console.config import Settings
from console.core.facts import CommandFact
from console.core.finding import Report
from console.sources.facts import collect
from console.sources.facts_host import recorded
from tests.checks import fault_effects as effects
from tests.checks import tree as trees
from tests.checks.tree import Tree, judge, look, names, tree, untold

MOST_WARNINGS = 5
MOST_UNKNOWN = 10

TRUE: Mapping[str, Mapping[str, str]] = {
    "el8_rootful": {
        "D09": "RHEL 8 keeps logs in k8s-file, and nobody set log_size_max",
        "E06": "the unit of host.md 5.4 publishes gRPC and metrics on all addresses, and Triton asks for no login",
    },
    "el8_rootless": {
        "D03": "RHEL 8 boots cgroup v1: a rootless container has no figures and its limits are left out",
        "D09": "RHEL 8 keeps logs in k8s-file, and nobody set log_size_max",
    },
    "rocky88": {
        "B01": "Podman 4.4.1 reads CDI up to 0.5.0 only",
        "D09": "el8 keeps logs in k8s-file, and nobody set log_size_max",
    },
    "el9_quadlet": {},
    "debian12": {"B01": "Podman 4.3.1 reads CDI up to 0.5.0 only"},
    "ubuntu2204": {"B01": "Podman 4.6.2 reads CDI up to 0.5.0 only"},
    "laptop": {},
}
"""Box -> check -> why its warning is true."""


@cache
def report(name: str) -> Report:
    return judge(tree(name))


def test_the_boxes_that_must_be_there() -> None:
    assert set(names()) == set(TRUE)


@pytest.mark.parametrize("name", names())
class TestHealthy:
    def test_nothing_fails(self, name: str) -> None:
        assert not [f"{one.id}: {one.text}" for one in report(name).findings if one.sign == "fail"]

    def test_each_warning_is_true(self, name: str) -> None:
        told = {one.id: one.text for one in report(name).findings if one.sign == "warn"}
        assert told.keys() == TRUE[name].keys(), told
        assert len(told) <= MOST_WARNINGS

    def test_little_is_unknown(self, name: str) -> None:
        blind = [f"{one.id}: {one.text}" for one in report(name).findings if one.sign == "unknown"]
        assert len(blind) <= MOST_UNKNOWN, "\n".join(blind)

    def test_no_check_is_at_fault(self, name: str) -> None:
        assert not [one.id for one in report(name).findings if "fault of its own" in one.text]

    def test_causes_are_no_more_than_the_warnings(self, name: str) -> None:
        assert {one.id for one in report(name).causes} <= TRUE[name].keys()

    def test_all_that_is_asked_for_is_told(self, name: str) -> None:
        assert untold(tree(name)) == []

    def test_every_part_names_what_it_is_shaped_on(self, name: str) -> None:
        assert all(len(source) > 20 for source in tree(name).sources.values())
        assert len(tree(name).sources) > 100


@pytest.mark.parametrize("name", ["debian12", "el8_rootless", "laptop"])
def test_a_written_folder_says_the_same(name: str, tmp_path: Path) -> None:
    """`--root FOLDER` reads what the other tests hand over without a folder."""
    box = tree(name)
    box.save(tmp_path)
    found = collect(trees.checks_needs(), recorded(str(tmp_path), Settings()), deadline=60.0)
    wanted = look(box)
    assert {path: fact for path, fact in found.files.items() if wanted.files[path] != fact} == {}
    assert found.commands == wanted.commands
    assert found.answers == wanted.answers
    assert found.spaces == wanted.spaces
    assert found.variables == wanted.variables


# ------------------------------------------------------------------------------------------- as healthy, and otherwise


def idle_card(box: Tree) -> None:
    """Nobody asks: the card sleeps in P8 with its link slowed down."""
    box.put(f"{effects.gpu(box)}/current_link_speed", "2.5 GT/s PCIe\n")
    effects.set_card(
        box, util_pct=0.0, mem_ctrl_pct=0.0, pstate=8, sm_mhz=300, memory_mhz=405, power_w=11.2, pcie_gen=1
    )


def virtual_machine(box: Tree) -> None:
    """The card is passed through: no frequencies, no idle states, no NUMA node, no memory controller."""
    for path in box.under("/sys/devices/system/cpu", "/(?:cpufreq|cpuidle|intel_pstate)/"):
        box.remove(path)
    for path in box.under("/sys/devices/system/cpu", "/energy_perf_bias$"):
        box.remove(path)
    box.remove("/sys/devices/system/edac")
    box.put(f"{effects.gpu(box)}/numa_node", "-1\n")
    box.run("systemd-detect-virt", "kvm\n")
    box.put("/sys/class/dmi/id/sys_vendor", "QEMU\n")
    box.put("/sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)\n")
    box.edit("/proc/cpuinfo", "avx512f", "avx512f hypervisor")
    for nic in ("ens1f0", "ens1f1"):
        box.put(f"/sys/class/net/{nic}/speed", None, why="Invalid argument")


def ordinary_user(box: Tree) -> None:
    """Whoever looks is not root."""
    box.tell("@me", {"uid": 1000, "user": "ops", "groups": ["ops", "wheel"], "sudo": False})
    denied = CommandFact(1, "", "Error opening config file (Permission denied)\n")
    for words in ("ausearch -m avc,user_avc -ts recent", "iptables-save -t nat", "nft list table inet netavark"):
        box.commands[words] = denied
    for path in ("/var/log/audit/audit.log", "/var/log/dnf.log"):
        if path in box.files:
            box.put(path, None, mode=0o600, why="permission denied")
    if not box.value("@podman.ping")["rootless"]:
        box.put("/run/podman", kind="unknown", why="permission denied")
    pid = effects.inspect(box)["State"]["Pid"]
    box.remove(f"/proc/{pid}/root")
    box.put(f"/proc/{pid}/root", kind="unknown", why="permission denied")
    box.put(f"/proc/{pid}/limits", None, why="permission denied")


def made_by_this_console(box: Tree) -> None:
    """Through Podman's API, without `--rm`, with the label that says so."""
    effects.without_rm(box)
    box.change("@podman.inspect", lambda found: found["Config"]["Labels"].update({"io.gpuconsole.managed": "1"}))


def restarted_by_hand(box: Tree) -> None:
    """Last ended by a stop: 143 of SIGTERM, and an Xid 45 of that moment."""
    effects.set_container(
        box, "State", FinishedAt="2026-11-30T07:59:58.104411290Z", StartedAt="2026-11-30T08:00:10.204411290Z"
    )
    bdf = effects.bdf(box).removesuffix(".0")
    effects.kernel(box, f"NVRM: Xid (PCI:{bdf}): 43, pid=4812, name=tritonserver, Ch 00000008", ago=3602.0)


@pytest.mark.parametrize("change", [idle_card, virtual_machine, ordinary_user, made_by_this_console, restarted_by_hand])
@pytest.mark.parametrize("name", [one for one in names() if one != "laptop"])
def test_another_healthy_box_fails_nothing(name: str, change: Callable[[Tree], None]) -> None:
    box = tree(name)
    change(box)
    found = judge(box).findings
    assert not [f"{one.id}: {one.text}" for one in found if one.sign == "fail"]
    warned = {one.id: one.text for one in found if one.sign == "warn" and one.id not in TRUE[name]}
    assert not warned
    assert not [one.id for one in found if "fault of its own" in one.text]


def test_a_laptop_is_left_alone() -> None:
    """Nothing of NVIDIA, Podman or Triton is judged where there is none of them."""
    kept = {one.group for one in report("laptop").findings if one.sign in ("ok", "warn", "fail")}
    assert not kept & {"cdi", "selinux", "podman", "container", "gpu", "models"}


def test_every_check_of_a_group_is_asked() -> None:
    assert {one.id for one in report("el8_rootful").findings} == {one.id for one in run.all_checks()[0]}
