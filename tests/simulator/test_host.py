"""The simulated machine, read by the product's own clients as they read a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.clients import cgroup, host, nvidia_host, proc
from console.core import packages
from console.planning.batcher import NS_PER_SECOND
from console.simulator.box import Box
from console.simulator.card import TRITON_PID
from console.simulator.containers import CONTAINER_ID
from console.simulator.host import HostFolder
from tests.simulator.conftest import MakeBox


def write(box: Box, root: Path, *, mismatch: bool = False) -> None:
    folder = HostFolder(root)
    running = box.containers.running
    folder.write(box.host.fixed_files(mismatch))
    folder.write({} if running is None else box.host.container_files(running))
    folder.write(box.host.moving_files(running, box.now_ns))


def test_the_machine_is_that_of_the_drawings(make_box: MakeBox, tmp_path: Path) -> None:
    box, root = make_box(), tmp_path / "root"
    write(box, root)
    assert host.os_name(root) == "Rocky 8.10"
    assert host.kernel_release(root).startswith("4.18.0")
    assert host.cpu_count(root) == 16
    memory = host.memory(root)
    assert memory.total == 126 * 1024**3
    assert memory.total - memory.available == 41 * 1024**3
    assert host.boot_time(root) == box.start_ns // NS_PER_SECOND - (3 * 3600 + 12 * 60 + 30)
    assert host.load1(root) > 1
    assert 0 <= host.pressure("io", root) < host.pressure("cpu", root) < 1
    assert nvidia_host.pci_devices(str(root)) == 1
    assert nvidia_host.kernel_version(str(root)) == nvidia_host.library_version(str(root)) == "550.90.07"


def test_rates_follow_the_traffic(make_box: MakeBox, tmp_path: Path) -> None:
    box, root = make_box(), tmp_path / "root"
    write(box, root)
    before = (host.cpu_times(root), host.net_bytes(root), host.disk_bytes(root))
    group = cgroup.container_cgroup(TRITON_PID, root)
    cpu_before = group.sample().cpu_seconds
    box.advance(box.now_ns + 10 * NS_PER_SECOND + NS_PER_SECOND // 3)
    write(box, root)
    cpu = host.cpu_times(root)
    share = (cpu.busy - before[0].busy) / (cpu.total - before[0].total)
    assert share == pytest.approx(0.23, abs=0.03)
    assert host.net_bytes(root)["eno1"][0] - before[1]["eno1"][0] == pytest.approx(10.3 * 612 * 1870, rel=0.1)
    assert host.disk_bytes(root)["nvme0n1"][1] > before[2]["nvme0n1"][1]
    cpu_after = group.sample().cpu_seconds
    assert cpu_before is not None
    assert cpu_after is not None
    assert (cpu_after - cpu_before) / 10.33 == pytest.approx(2.8, abs=0.3)


def test_the_container_is_found_from_its_process(make_box: MakeBox, tmp_path: Path) -> None:
    box, root = make_box(), tmp_path / "root"
    write(box, root)
    known = proc.ProcReader(str(root)).read(TRITON_PID)
    assert known.command == "tritonserver"
    assert known.container_id == CONTAINER_ID
    assert known.started_wall == pytest.approx(box.first.started_ns / NS_PER_SECOND, abs=1)
    assert cgroup.container_cgroup(TRITON_PID, root).processes() == (TRITON_PID,)
    sample = cgroup.container_cgroup(TRITON_PID, root).sample()
    assert sample.memory == 6550 * 1024**2
    assert sample.memory_limit is None
    process = host.process(TRITON_PID, root)
    assert process is not None
    assert process.rss == sample.memory


def test_a_container_that_is_down_has_no_process(make_box: MakeBox, tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(make_box("triton-down"), root)
    assert host.process(TRITON_PID, root) is None
    assert host.memory(root).available > 90 * 1024**3


def test_an_update_without_a_reboot_left_its_traces(make_box: MakeBox, tmp_path: Path) -> None:
    box, root = make_box("driver-mismatch"), tmp_path / "root"
    write(box, root, mismatch=True)
    assert nvidia_host.kernel_version(str(root)) == "550.90.07"
    assert nvidia_host.library_version(str(root)) == "570.86.15"
    changes = packages.from_dnf((root / "var/log/dnf.rpm.log").read_text().splitlines())
    assert (changes[0].name, changes[0].old, changes[0].new) == ("nvidia-driver", "550.90.07-1.el8", "570.86.15-1.el8")
    assert changes[0].wall == box.start_ns // NS_PER_SECOND - 12 * 60


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path)
    folder.write({"proc/stat": "1\n", "etc/os-release": "x\n"})
    (tmp_path / "etc/os-release").unlink()
    folder.write({"proc/stat": "2\n", "etc/os-release": "x\n"})
    assert (tmp_path / "proc/stat").read_text() == "2\n"
    assert not (tmp_path / "etc/os-release").exists()
    assert [path.name for path in (tmp_path / "proc").iterdir()] == ["stat"]
