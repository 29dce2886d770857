"""The host source on hand-made trees: rates, reasons, stubs, zombies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import host
from console.core.model import HostState
from console.sources import host as host_source
from console.sources.host import HostSource
from tests.clients.test_cgroup import put, v1

STUB = "/opt/tritonserver/backends/python/triton_python_backend_stub\0/models/{}/model.py\0triton_python_backend_shm\0"


def stat_line(pid: int, name: str, state: str = "S", parent: int = 1, ticks: int = 0, pages: int = 10) -> str:
    return f"{pid} ({name}) {state} {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 500 1000000 {pages} 0 0 0\n"


def machine(root: Path, busy: int = 100, idle: int = 900) -> Path:
    put(
        root,
        **{
            "proc/stat": f"cpu  {busy} 0 0 {idle} 40 0 0 10 5 0\ncpu0 1 1\nbtime 1796034685\nprocesses 1\n",
            "proc/loadavg": "1.50 0.5 0.1 1/100 1\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 20 kB\nSwapFree: 5 kB\nOdd\n",
            "proc/pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=5\n",
            "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00\n",
            "proc/pressure/io": "some avg10=2.50 avg60=0.00 avg300=0.00 total=5\n",
            "proc/diskstats": "8 0 sda 1 0 10 0 1 0 20 0 0 0 0\n8 1 sda1 1 0 10 0 1 0 20 0 0 0 0\n"
            "7 0 loop0 1 0 9 0 1 0 9 0 0\n8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\nbroken\n",
            "sys/block/sda/size": "1\n",
            "sys/block/sdb/size": "1\n",
            "proc/net/dev": "Inter-|\n face |\n    lo: 5 0 0 0 0 0 0 0 5 0 0\n  eth0: 1000 1 0 0 0 0 0 0 2000 1 0\n"
            " vethab: 9 0 0 0 0 0 0 0 9 0 0\n  eth1: 0 0 0 0 0 0 0 0 0 0 0\nbroken\n",
            "proc/sys/kernel/hostname": "infer-01\n",
            "proc/sys/kernel/osrelease": "4.18.0-553.el8\n",
            "sys/devices/system/cpu/online": "0-3,6\n",
            "etc/os-release": 'NAME="Rocky Linux"\nVERSION_ID="8.10"\n',
            "dev/shm/.keep": "",
        },
    )
    return root


def clock(*times: float) -> Callable[[], float]:
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def two_readings(root: Path, change: Callable[[], object], **more: object) -> tuple[HostState, HostState]:
    now = [10.0]
    source = HostSource(root=root, clock=lambda: now[0], **more)  # type: ignore[arg-type]
    source.open()
    first = source.read()
    change()
    now[0] = 12.0
    return first, source.read()


def test_a_machine(tmp_path: Path) -> None:
    def change() -> None:
        machine(tmp_path, 160, 930)
        put(
            tmp_path,
            **{
                "proc/diskstats": "8 0 sda 1 0 14 0 1 0 20 0 0 0 0\n8 16 sdb 1 0 9 0 1 0 9 0 0 0 0\n",
                "proc/net/dev": "a\nb\n  eth0: 3000 1 0 0 0 0 0 0 2500 1 0\n",
            },
        )

    first, second = two_readings(machine(tmp_path), change)
    assert (first.hostname, first.os_name, first.kernel, first.cpus) == ("infer-01", "Rocky 8.10", "4.18.0-553.el8", 5)
    assert first.boot_wall == 1796034685.0
    assert (first.cpu_pct, first.disks, first.nets) == (None, (), ())
    assert first.missing["cpu_pct"] == "needs two readings"
    assert first.missing["triton_cores"] == "no running container is known"
    assert second.cpu_pct == pytest.approx(66.667, abs=0.01)
    assert (second.iowait_pct, second.steal_pct) == (0.0, 0.0)
    assert (second.memory_total, second.memory_used, second.memory_available, second.swap_used) == (
        1024000, 409600, 614400, 15360,
    )  # fmt: skip
    assert (second.load1, second.pressure.cpu, second.pressure.memory, second.pressure.io) == (1.5, 1.5, 0.0, 2.5)
    assert [(one.name, one.read_bps, one.write_bps) for one in second.disks] == [("sda", 1024.0, 0.0)]
    assert [(one.name, one.rx_bps, one.tx_bps) for one in second.nets] == [("eth0", 1000.0, 250.0)]
    assert second.shm_total
    assert set(second.missing) == {"triton_cores"}


def test_what_is_not_there_is_a_reason(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/stat": "nonsense\n", "proc/meminfo": "MemTotal: 5 kB\n", "proc/loadavg": ""})
    state = HostSource(root=tmp_path).read()
    assert (state.cpu_pct, state.memory_used, state.load1, state.boot_wall, state.cpus) == (None,) * 5
    assert "psi=1" in state.missing["pressure"]
    assert "MemAvailable" in state.missing["memory_used"]
    assert {"cpu_pct", "memory_used", "load1", "boot_wall", "cpus", "disks", "nets", "shm_used", "pressure"} <= set(
        state.missing
    )
    assert state.hostname
    assert state.os_name
    put(tmp_path, **{f"proc/pressure/{what}": "full avg60=1\n" for what in ("cpu", "memory", "io")})
    assert "avg10" in HostSource(root=tmp_path).read().missing["pressure"]


def test_after_a_gap_rates_begin_anew(tmp_path: Path) -> None:
    source = HostSource(root=machine(tmp_path), clock=clock(1.0, 2.0))
    source.read()
    source.close()
    assert source.read().cpu_pct is None


def test_a_system_without_proc(tmp_path: Path) -> None:
    state = HostSource(root=tmp_path).read()
    assert state.memory_total
    assert state.cpus
    assert state.boot_wall
    assert state.cpu_pct is not None
    assert state.missing["disks"] == "read on Linux only"
    assert state.disks == ()


def container(root: Path, **processes: str) -> Path:
    """A container with tritonserver (42), and stubs 43 and 44 of rank/2 and 45 of lm/1."""
    v1(machine(root))
    group = root / f"sys/fs/cgroup/cpu,cpuacct/libpod_parent/libpod-{'ab' * 32}"
    (group / "cgroup.procs").write_text("42\n43\n44\n45\n46\n")
    put(
        root,
        **{
            "proc/42/stat": stat_line(42, "tritonserver"),
            "proc/42/cmdline": "tritonserver\0--model-repository=/models\0",
            "proc/43/stat": stat_line(43, "triton (python)", parent=42, ticks=100),
            "proc/43/cmdline": STUB.format("rank/2"),
            "proc/44/stat": stat_line(44, "stub", parent=42, ticks=100),
            "proc/44/cmdline": STUB.format("rank/2"),
            "proc/45/stat": stat_line(45, "stub", parent=42),
            "proc/45/cmdline": STUB.format("lm/1"),
            **processes,
        },
    )
    return root


def test_the_containers_processes(tmp_path: Path) -> None:
    root = container(tmp_path)

    def change() -> None:
        put(root, **{"proc/43/stat": stat_line(43, "triton (python)", parent=42, ticks=250)})
        folder = root / f"sys/fs/cgroup/cpu,cpuacct/libpod_parent/libpod-{'ab' * 32}"
        (folder / "cpuacct.usage").write_text("8500000000\n")

    first, second = two_readings(root, change, pid=lambda: 42)
    assert first.triton_cores is None
    assert first.stub_cores == {}
    assert second.triton_cores == 3.0
    assert second.triton_rss == 4 * 10 * host._PAGE
    assert second.stub_pids == {"rank/2": (43, 44), "lm/1": (45,)}
    assert second.stub_cores == {"rank/2": pytest.approx(1.5 * 50 / host._TICKS), "lm/1": 0.0}
    assert second.zombies == ()
    assert "triton_cores" not in second.missing


def test_a_container_without_a_cgroup_of_its_own(tmp_path: Path) -> None:
    """Rootless Podman on cgroup v1: what its first process started counts, not all that shares the user's cgroup."""
    root = container(tmp_path, **{"proc/46/stat": stat_line(46, "sshd", parent=1)})
    for pid in (42, 43, 44, 45, 46):
        put(root, **{f"proc/{pid}/cgroup": "4:cpu,cpuacct:/\n3:memory:/user.slice\n0::/\n"})

    def change() -> None:
        put(root, **{"proc/43/stat": stat_line(43, "triton (python)", parent=42, ticks=250)})
        put(root, **{"proc/46/stat": stat_line(46, "sshd", parent=1, ticks=900)})

    _, second = two_readings(root, change, pid=lambda: 42)
    assert second.triton_cores == pytest.approx(150 / host._TICKS / 2.0)
    assert second.triton_rss == 4 * 10 * host._PAGE
    assert second.stub_pids == {"rank/2": (43, 44), "lm/1": (45,)}


def test_a_stub_that_dies_is_seen_as_zombie(tmp_path: Path) -> None:
    root = container(tmp_path)

    def change() -> None:
        folder = root / f"sys/fs/cgroup/cpu,cpuacct/libpod_parent/libpod-{'ab' * 32}"
        (folder / "cgroup.procs").write_text("42\n44\n45\n")
        put(root, **{"proc/43/stat": stat_line(43, "stub", "Z", 42), "proc/43/cmdline": ""})

    first, second = two_readings(root, change, pid=lambda: 42)
    assert first.zombies == ()
    assert second.zombies == (43,)
    assert second.stub_pids == {"rank/2": (44,), "lm/1": (45,)}


def test_zombies_from_before_the_start_are_found_and_others_left_alone(tmp_path: Path) -> None:
    root = container(
        tmp_path,
        **{
            "proc/50/stat": stat_line(50, "stub", "Z", 42),
            "proc/51/stat": stat_line(51, "other", "Z", 7),
            "proc/52/stat": "broken",
        },
    )
    now = [10.0]
    source = HostSource(lambda: 42, root, lambda: now[0])
    assert source.read().zombies == (50,)
    now[0] = 11.0
    assert source.read().zombies == (50,), "it stays until it is reaped"
    (root / "proc/50/stat").unlink()
    assert source.read().zombies == ()


def test_a_fork_that_has_not_yet_become_the_stub(tmp_path: Path) -> None:
    root = container(tmp_path, **{"proc/45/cmdline": "tritonserver\0"})
    first, second = two_readings(root, lambda: put(root, **{"proc/45/cmdline": STUB.format("lm/1")}), pid=lambda: 42)
    assert "lm/1" not in first.stub_pids
    assert second.stub_pids["lm/1"] == (45,)


def test_a_container_that_cannot_be_seen(tmp_path: Path) -> None:
    root = container(tmp_path)
    state = HostSource(lambda: 99, root).read()
    assert "process 99 is gone" in state.missing["triton_cores"]
    for pid in range(42, 46):
        (root / f"proc/{pid}/stat").unlink()
    state = HostSource(lambda: 42, root).read()
    assert "cannot be seen" in state.missing["triton_cores"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('NAME="Red Hat Enterprise Linux"\nVERSION_ID="9.4"\n', "RHEL 9.4"),
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\n', "Debian 12"),
        ("NAME=Ubuntu\nVERSION_ID='22.04'\n", "Ubuntu 22.04"),
        ("broken", "Linux"),
        ('NAME="Arch Linux"\n', "Arch"),
    ],
)
def test_names_of_systems(tmp_path: Path, text: str, name: str) -> None:
    put(tmp_path, **{"etc/os-release": text})
    assert host.os_name(tmp_path) == name


def test_listener(tmp_path: Path) -> None:
    row = "   0: 0100007F:1F40 00000000:0000 {} 0:0 0:0 0 0 0 {} 1\n"
    put(
        tmp_path,
        **{
            "proc/net/tcp": "head\n" + row.format("01", 5) + row.format("0A", 6) + "short\n",
            "proc/7/fd/x": "",
            "proc/8/stat": "",
        },
    )
    assert host.listener(8000, tmp_path) is None
    (tmp_path / "proc/7/fd/x").unlink()
    (tmp_path / "proc/7/fd/4").symlink_to("socket:[6]")
    assert host.listener(8000, tmp_path) == 7
    assert host.listener(8001, tmp_path) is None
    assert list(host.all_processes(tmp_path / "nowhere")) == []


def test_rates_leave_out_what_began_anew() -> None:
    rates = list(host_source._rates({"a": (10, 10), "b": (5, 5)}, {"a": (5, 20), "b": (7, 5), "c": (1, 1)}, 2.0))
    assert rates == [("b", 1.0, 0.0)]
    assert list(host_source._rates({"a": (1, 1)}, {"a": (2, 2)}, 0.0)) == []


@given(st.binary(max_size=200))
def test_any_bytes_of_a_process_are_survived(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        host.parse_process(1, data)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=15), st.integers(0, 2**40))
def test_a_process_of_any_name_is_read(name: str, ticks: int) -> None:
    found = host.parse_process(7, stat_line(7, name, "R", 3, ticks).encode())
    assert (found.name, found.state, found.parent) == (name, "R", 3)
    assert found.cpu_seconds == pytest.approx(ticks / host._TICKS)
