"""Cgroup files, v1 as on RHEL 8 and v2, from hand-made trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.clients import cgroup
from console.core.model import SourceError

ID = "ab" * 32


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def tree(root: Path, files: dict[str, str]) -> Path:
    put(root, **files)
    return root


def v2(root: Path) -> Path:
    scope = f"sys/fs/cgroup/machine.slice/libpod-{ID}.scope"
    return tree(
        root,
        {
            "proc/42/cgroup": f"0::/machine.slice/libpod-{ID}.scope/container\n",
            f"{scope}/cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1\n",
            f"{scope}/memory.current": "1000\n",
            f"{scope}/memory.stat": "anon 1\ninactive_file 300\n",
            f"{scope}/memory.max": "max\n",
            f"{scope}/memory.events": "oom 1\noom_kill 2\n",
            f"{scope}/pids.current": "7\n",
            f"{scope}/cgroup.procs": "",
            f"{scope}/container/cpu.stat": "usage_usec 1\n",
            f"{scope}/container/cgroup.procs": "42\n43\n",
        },
    )


def v1(root: Path, path: str = f"/libpod_parent/libpod-{ID}", limit: str = "9223372036854771712") -> Path:
    at = path.lstrip("/")
    return tree(
        root,
        {
            "proc/42/cgroup": f"5:name=systemd:{path}\n4:cpu,cpuacct:{path}\n3:memory:{path}\n2:pids:{path}\n0::/\n",
            f"sys/fs/cgroup/cpu,cpuacct/{at}/cpuacct.usage": "2500000000\n",
            f"sys/fs/cgroup/cpu,cpuacct/{at}/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n",
            f"sys/fs/cgroup/cpu,cpuacct/{at}/cgroup.procs": "42\n43\n",
            f"sys/fs/cgroup/memory/{at}/memory.usage_in_bytes": "1000\n",
            f"sys/fs/cgroup/memory/{at}/memory.stat": "total_inactive_file 300\n",
            f"sys/fs/cgroup/memory/{at}/memory.limit_in_bytes": f"{limit}\n",
            f"sys/fs/cgroup/memory/{at}/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
            f"sys/fs/cgroup/pids/{at}/pids.current": "7\n",
        },
    )


EXPECTED = cgroup.CgroupSample(2.5, 700, None, 7, 2, 10, 4)


def test_v2(tmp_path: Path) -> None:
    group = cgroup.container_cgroup(42, v2(tmp_path))
    assert group.sample() == EXPECTED
    assert group.processes() == (42, 43)


def test_v1(tmp_path: Path) -> None:
    group = cgroup.container_cgroup(42, v1(tmp_path))
    assert group.sample() == EXPECTED
    assert group.processes() == (42, 43)


def test_v1_limit(tmp_path: Path) -> None:
    assert cgroup.container_cgroup(42, v1(tmp_path, limit="4096")).sample().memory_limit == 4096


def test_a_cgroup_that_went_away_is_unknown_not_zero(tmp_path: Path) -> None:
    group = cgroup.Cgroup({"": tmp_path / "gone"})
    assert group.sample() == cgroup.CgroupSample()
    assert group.processes() == ()
    assert cgroup.Cgroup({}).processes() == ()
    assert cgroup.Cgroup({"pids": tmp_path}).sample() == cgroup.CgroupSample()


def test_no_process(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="gone"):
        cgroup.container_cgroup(1, tmp_path)
    put(tmp_path, **{"proc/1/cgroup": "0::/../outside\nbroken\n"})
    with pytest.raises(SourceError, match="could not be read"):
        cgroup.container_cgroup(1, tmp_path)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/triton.service/libpod-payload-1\n", "triton.service"),
        ("9:name=systemd:/system.slice/triton.service\n0::/\n", "triton.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/triton.service\n", "triton.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-1.scope\n", None),
        ("0::/system.slice/podman.service\n", None),
        ("0::/machine.slice/libpod-conmon-1.scope\n", None),
    ],
)
def test_owning_unit(tmp_path: Path, text: str, unit: str | None) -> None:
    put(tmp_path, **{"proc/7/cgroup": text})
    assert cgroup.owning_unit(7, tmp_path) == unit
    assert cgroup.owning_unit(8, tmp_path) is None


def test_container_of(tmp_path: Path) -> None:
    assert cgroup.container_of(42, v2(tmp_path)) == ID
    assert cgroup.container_of(1, tmp_path) is None
