"""Cgroup trees of other shapes: controllers apart, hybrid, nested; files that are cut short or hold anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import cgroup
from console.clients.cgroup import Cgroup, CgroupSample
from console.core.model import SourceError
from tests.clients.test_cgroup import ID, put, v1, v2

BASE = "sys/fs/cgroup"


def test_v1_controllers_that_are_linked_by_their_single_names(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{
            "proc/5/cgroup": "3:cpu,cpuacct:/libpod-a\n2:name=systemd:/libpod-a\n",
            f"{BASE}/cpu/libpod-a/cpu.stat": "nr_periods 3\nnr_throttled 1\n",
            f"{BASE}/cpuacct/libpod-a/cpuacct.usage": "1500000000\n",
            f"{BASE}/cpu,cpuacct/libpod-a/cpuacct.usage": "9\n",
        },
    )
    group = cgroup.container_cgroup(5, tmp_path)
    assert set(group.folders) == {"cpu", "cpuacct"}
    assert group.sample() == CgroupSample(cpu_seconds=1.5, periods=3, throttled=1)


def test_the_hybrid_tree_counts_by_v1(tmp_path: Path) -> None:
    root = v1(tmp_path)
    put(root, **{f"{BASE}/unified/libpod_parent/cpu.stat": "usage_usec 1\n"})
    put(root, **{"proc/42/cgroup": (root / "proc/42/cgroup").read_text() + "0::/libpod_parent\n"})
    assert "" not in cgroup.container_cgroup(42, root).folders


def test_a_unified_path_without_accounting_is_no_cgroup(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/5/cgroup": "0::/libpod-a\n", f"{BASE}/libpod-a/cgroup.procs": "5\n"})
    with pytest.raises(SourceError, match="cgroup of process 5 could not be read"):
        cgroup.container_cgroup(5, tmp_path)
    put(tmp_path, **{f"{BASE}/libpod-a/cpu.stat": "usage_usec 5000000\n"})
    assert cgroup.container_cgroup(5, tmp_path).sample() == CgroupSample(cpu_seconds=5.0)


@pytest.mark.parametrize("path", ["/", "/user.slice/user-1000.slice/session-3.scope", "/x/libpod-conmon-a"])
def test_a_cgroup_of_others_too_is_not_the_containers(tmp_path: Path, path: str) -> None:
    """Rootless Podman on cgroup v1 makes none: the figures of its user's, or of the whole machine, are not its own."""
    root = v1(tmp_path, path)
    with pytest.raises(SourceError, match="not its container's own"):
        cgroup.container_cgroup(42, root)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (f"/machine.slice/libpod-{ID}.scope/container", f"machine.slice/libpod-{ID}.scope"),
        (f"/libpod_parent/libpod-{ID}", f"libpod_parent/libpod-{ID}"),
        ("/x/libpod-conmon-1/libpod-payload-1/y", "x/libpod-conmon-1/libpod-payload-1"),
        ("/system.slice/a.service", "system.slice/a.service"),
        ("/", ""),
    ],
)
def test_the_containers_part_of_a_path(path: str, part: str) -> None:
    assert cgroup._container_part(path) == part


def test_memory_is_never_below_zero_nor_made_up(tmp_path: Path) -> None:
    root = v2(tmp_path)
    scope = f"{BASE}/machine.slice/libpod-{ID}.scope"
    put(root, **{f"{scope}/memory.current": "100\n", f"{scope}/memory.max": "4096\n"})
    sample = cgroup.container_cgroup(42, root).sample()
    assert (sample.memory, sample.memory_limit) == (0, 4096)
    put(root, **{f"{scope}/memory.stat": "anon 5\n"})
    assert cgroup.container_cgroup(42, root).sample().memory == 100
    put(root, **{f"{scope}/memory.current": "x\n"})
    assert cgroup.container_cgroup(42, root).sample().memory is None


def test_memory_without_the_files_of_v1(tmp_path: Path) -> None:
    at = f"{BASE}/memory/libpod_parent/libpod-{ID}"
    root = v1(tmp_path)
    put(root, **{f"{at}/memory.usage_in_bytes": "100\n", f"{at}/memory.limit_in_bytes": f"{2**60}\n"})
    sample = cgroup.container_cgroup(42, root).sample()
    assert (sample.memory, sample.memory_limit) == (0, None)
    put(root, **{f"{at}/memory.stat": "inactive_file 5\n", f"{at}/memory.limit_in_bytes": f"{2**60 - 1}\n"})
    sample = cgroup.container_cgroup(42, root).sample()
    assert (sample.memory, sample.memory_limit) == (100, 2**60 - 1)


def test_processes_of_the_unified_tree_first(tmp_path: Path) -> None:
    put(tmp_path, **{"a/cgroup.procs": "1\n2\n", "a/b/cgroup.procs": "3\n", "c/cgroup.procs": "9\n", "a/x/y": "7\n"})
    group = Cgroup({"cpu": tmp_path / "c", "": tmp_path / "a"})
    assert sorted(group.processes()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/init.scope/x.service\n", None),
        ("0::/a.service/b.service/x\n", "b.service"),
        ("1:cpu:/\n0::/a.service\n", "a.service"),
        ("0::/a.services\n", None),
        ("0::/user@5.service\n", None),
    ],
)
def test_other_units(tmp_path: Path, text: str, unit: str | None) -> None:
    put(tmp_path, **{"proc/7/cgroup": text})
    assert cgroup.owning_unit(7, tmp_path) == unit


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.integers(0, 2**64), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_pairs_there_and_back(tmp_path: Path, pairs: dict[str, int]) -> None:
    (tmp_path / "stat").write_text("".join(f"{name} {value}\n" for name, value in pairs.items()) + "a b\nc\n1 2 3\n")
    assert cgroup._pairs(tmp_path / "stat") == pairs


@given(st.binary(max_size=120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_survived(tmp_path: Path, data: bytes) -> None:
    names = ("cpu.stat", "memory.current", "memory.stat", "memory.max", "pids.current", "memory.events")
    for name in names:
        (tmp_path / name).write_bytes(data)
    sample = Cgroup({"": tmp_path}).sample()
    assert all(value is None or value >= 0 for value in (sample.cpu_seconds, sample.memory, sample.pids))
    folder = tmp_path / "proc/5"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_bytes(data.replace(b"..", b""))
    cgroup.owning_unit(5, tmp_path)
    cgroup.container_of(5, tmp_path)
