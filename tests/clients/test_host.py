"""The machine's files read one by one: figures, limits of what is a line, and any bytes at all."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import host
from tests.clients.test_cgroup import put


def test_processor_times(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/stat": "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 5 5\n"})
    times = host.cpu_times(tmp_path)
    assert times == host.CpuTimes(busy=7600321, idle=4000, iowait=50000, steal=80000000)
    assert times.total == 87654321
    put(tmp_path, **{"proc/stat": "cpu 1 2 3 4 5 6 7 8\n"})
    assert host.cpu_times(tmp_path).total == 36
    for text in ("cpu 1 2 3 4 5 6 7\n", "cpu0 1 2 3 4 5 6 7 8 9\n", "\n"):
        put(tmp_path, **{"proc/stat": text})
        with pytest.raises(ValueError, match="all processors"):
            host.cpu_times(tmp_path)


@pytest.mark.parametrize(("text", "count"), [("0\n", 1), ("0-63\n", 64), ("0-3,6\n", 5), ("0,2,4-5\n", 4)])
def test_processors(tmp_path: Path, text: str, count: int) -> None:
    put(tmp_path, **{"sys/devices/system/cpu/online": text})
    assert host.cpu_count(tmp_path) == count


def test_only_the_beginning_of_a_kernel_file_is_read(tmp_path: Path) -> None:
    put(tmp_path, long="x" * 5000, bad="é")
    assert host.head(tmp_path / "long") == "x" * 4096
    assert host.head(tmp_path / "bad", 1) == "\ufffd"


def test_load_and_memory(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{
            "proc/loadavg": "0.25 3 4 1/2 3\n",
            "proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 5 kB\nSwapTotal: 9 kB\nSwapFree: 2 kB\nX: y\nZ:\n",
        },
    )
    assert host.load1(tmp_path) == 0.25
    assert host.memory(tmp_path) == host.Memory(total=8192, available=5120, swap_used=7168)
    put(tmp_path, **{"proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 5 kB\n"})
    with pytest.raises(ValueError, match="SwapTotal"):
        host.memory(tmp_path)


def test_pressure(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/pressure/io": "some avg10=1.25 avg60=2 avg300=3 total=4\nfull avg10=9 avg60=0\n"})
    assert host.pressure("io", tmp_path) == 1.25
    with pytest.raises(OSError, match="cpu"):
        host.pressure("cpu", tmp_path)


DISKS = """   8       0 sda 1 2 3 4 5 6 7 8
   8       1 sda1 1 2 3 4 5 6 7 8
   8      16 sdb 1 2 0 4 5 6 7 8
   8      32 sdc 1 2 3 4 5 6 0 8
   8      48 sdd 1 2 0 4 5 6 0 8
   8      64 sde 1 2 3 4 5 6
 259       0 nvme0n1 1 2 3 4 5 6 7
 253       0 dm-0 1 2 3 4 5 6 7 8
   9       0 md0 1 2 3 4 5 6 7 8
"""


def test_disks(tmp_path: Path) -> None:
    names = ("sda", "sdb", "sdc", "sdd", "sde", "nvme0n1", "dm-0", "md0")
    put(tmp_path, **{"proc/diskstats": DISKS, **{f"sys/block/{name}/size": "1" for name in names}})
    assert host.disk_bytes(tmp_path) == {
        "sda": (3 * 512, 7 * 512),
        "sdb": (0, 7 * 512),
        "sdc": (3 * 512, 0),
        "nvme0n1": (3 * 512, 7 * 512),
    }


NETS = """Inter-|   Receive                  |  Transmit
 face |bytes    packets
  eth0: 10 1 0 0 0 0 0 0 20 1
  eth1: 10 1 0 0 0 0 0 0 0
  eth2: 0 1 0 0 0 0 0 0 20
  eth3: 0 1 0 0 0 0 0 0 0
  eth4: 10 1 0 0 0 0 0 0
    lo: 10 1 0 0 0 0 0 0 20
podman0: 10 1 0 0 0 0 0 0 20
br-1a: 10 1 0 0 0 0 0 0 20
"""


def test_networks(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/net/dev": NETS})
    assert host.net_bytes(tmp_path) == {"eth0": (10, 20), "eth1": (10, 0), "eth2": (0, 20)}


def test_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = os.statvfs(tmp_path)
    fields = list(told)
    fields[1], fields[2], fields[3], fields[4] = 4096, 1000, 300, 250
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    assert host.filesystem(tmp_path) == (1000 * 4096, 700 * 4096)


def test_boot(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/stat": "cpu 1\nbtime 1700000000\nprocesses 5\n"})
    assert host.boot_time(tmp_path) == 1700000000.0
    put(tmp_path, **{"proc/stat": "cpu 1\nbtimes 5\n"})
    with pytest.raises(ValueError, match="btime"):
        host.boot_time(tmp_path)


def test_names_from_the_system_where_the_files_are_missing(tmp_path: Path) -> None:
    assert host.os_name(tmp_path) == f"{platform.system()} {platform.release()}"
    assert host.kernel_release(tmp_path) == platform.release()
    assert host.hostname(tmp_path) == platform.node()
    put(tmp_path, **{"proc/sys/kernel/osrelease": "5.14\n", "proc/sys/kernel/hostname": "box\n"})
    assert (host.kernel_release(tmp_path), host.hostname(tmp_path)) == ("5.14", "box")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('NAME="AlmaLinux"\nVERSION_ID="9.4"\n', "Alma 9.4"),
        ('NAME="Oracle Linux Server"\nVERSION_ID="8.10"\n', "Oracle 8.10"),
        ('NAME="Red Hat Enterprise Linux"\n', "RHEL"),
        ('VERSION_ID="1"\n', "Linux 1"),
    ],
)
def test_short_names(tmp_path: Path, text: str, name: str) -> None:
    put(tmp_path, **{"etc/os-release": text})
    assert host.os_name(tmp_path) == name


def test_portable() -> None:
    told = host.portable()
    assert told.memory.total > told.memory.available > 0
    assert told.cpus
    assert told.boot_wall > 0
    assert told.load1 >= 0


STAT = b"7 (a (b) c) S 3 1 1 0 -1 0 0 0 0 0 11 22 0 0 20 0 1 0 500 1000000 44 0 0 0\n"


def test_one_process(tmp_path: Path) -> None:
    found = host.parse_process(7, STAT)
    assert found == host.Process(7, 3, "a (b) c", "S", 33 / host._TICKS, 44 * host._PAGE, 500)
    with pytest.raises(ValueError, match="stat line"):
        host.parse_process(7, STAT.rpartition(b" 44")[0])
    assert host.parse_process(7, STAT.rpartition(b" 0 0 0")[0]).rss == 44 * host._PAGE
    put(tmp_path, **{"proc/7/stat": STAT.decode(), "proc/7/cmdline": "x\0y\0", "proc/8/stat": "z", "proc/self/x": ""})
    assert host.process(7, tmp_path) == found
    assert host.process(8, tmp_path) is None
    assert host.process(9, tmp_path) is None
    assert host.arguments(7, tmp_path) == ("x", "y")
    assert host.arguments(9, tmp_path) == ()
    assert list(host.all_processes(tmp_path)) == [found]


SOCKETS = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F40 0:0000 0A 0:0 0:0 0 0 0 77 1
   1: 00000000000000000000000000000000:1F41 0:0000 01 0:0 0:0 0 0 0 78 1
   2: 00000000000000000000000000000000:1F42 0:0000 0A 0:0 0:0 0 0 0
"""


def test_who_listens_on_ipv6(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/net/tcp6": SOCKETS, "proc/5/fd/.keep": "", "proc/6/fd/.keep": "", "proc/7/stat": ""})
    for pid, inode in ((5, 78), (6, 77)):
        (tmp_path / f"proc/{pid}/fd/.keep").unlink()
        (tmp_path / f"proc/{pid}/fd/3").symlink_to(f"socket:[{inode}]")
    assert host.listener(8000, tmp_path) == 6
    assert host.listener(8001, tmp_path) is None, "connected, not listening"
    assert host.listener(8002, tmp_path) is None, "a line cut short"
    assert host._listening(8000, tmp_path) == {"socket:[77]"}


@pytest.mark.parametrize("name", ["loop0", "ram0", "zram0", "sr0", "fd0", "dm-0", "md0"])
def test_what_is_no_disk(tmp_path: Path, name: str) -> None:
    put(tmp_path, **{"proc/diskstats": f"1 0 {name} 1 2 3 4 5 6 7 8\n", f"sys/block/{name}/size": "1"})
    assert host.disk_bytes(tmp_path) == {}


@pytest.mark.parametrize("name", ["lo", "veth1", "cni0", "podman1", "docker0", "virbr0", "br-1", "ifb0", "dummy0"])
def test_what_is_no_network(tmp_path: Path, name: str) -> None:
    put(
        tmp_path,
        **{"proc/net/dev": f"a\nb\n{name}: 10 1 0 0 0 0 0 0 20 1\nsit0: 1 1 0 0 0 0 0 0 2\ntunl0: 1 1 0 0 0 0 0 0 2\n"},
    )
    assert host.net_bytes(tmp_path) == {}


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads this machine's /proc")
def test_this_machine_is_read_by_default() -> None:
    here = Path("/")
    assert host.memory().total == host.memory(here).total > 0
    assert host.cpu_count() == host.cpu_count(here) > 0
    assert 0 < host.cpu_times().total <= host.cpu_times(here).total
    assert host.boot_time() == host.boot_time(here)
    assert (host.os_name(), host.kernel_release(), host.hostname()) == (
        host.os_name(here), host.kernel_release(here), host.hostname(here),
    )  # fmt: skip
    assert host.load1() >= 0
    assert host.disk_bytes().keys() == host.disk_bytes(here).keys()
    assert host.net_bytes().keys() == host.net_bytes(here).keys()
    own = host.process(os.getpid())
    assert own is not None
    assert own.pid in {found.pid for found in host.all_processes()}
    assert host.arguments(os.getpid()) == host.arguments(os.getpid(), here) != ()


def test_who_listens_on_this_machine() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert host.listener(server.getsockname()[1]) == os.getpid()


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "cpu_times": ("proc/stat", host.cpu_times),
    "cpu_count": ("sys/devices/system/cpu/online", host.cpu_count),
    "load1": ("proc/loadavg", host.load1),
    "memory": ("proc/meminfo", host.memory),
    "pressure": ("proc/pressure/cpu", lambda root: host.pressure("cpu", root)),
    "disk_bytes": ("proc/diskstats", host.disk_bytes),
    "net_bytes": ("proc/net/dev", host.net_bytes),
    "boot_time": ("proc/stat", host.boot_time),
    "os_name": ("etc/os-release", host.os_name),
    "listening": ("proc/net/tcp", lambda root: host._listening(8000, root)),
}


def test_users(tmp_path: Path) -> None:
    put(tmp_path, **{"proc/9/status": "Name:\tx\nUid:\t1000\t0\t0\t0\n"})
    assert host.real_uid(9, tmp_path) == 1000
    assert host.real_uid(10, tmp_path) is None
    assert host.real_uid(os.getpid()) == os.getuid()
    assert host.user_name(0) == "root"
    assert host.user_name(4_000_000_000) == "4000000000"


@pytest.mark.parametrize("name", READERS)
@given(data=st.binary(max_size=120))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_read_or_refused_by_value(name: str, data: bytes, tmp_path: Path) -> None:
    """What the caller turns into a reason is OSError, ValueError or (an empty line of figures) IndexError."""
    file, read = READERS[name]
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with contextlib.suppress(OSError, ValueError, IndexError):
        read(tmp_path)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{3}[0-9]", fullmatch=True).filter(lambda name: not name.startswith(host._NOT_NETS)),
        st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)),
        max_size=5,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_networks_round_trip(tmp_path: Path, nets: dict[str, tuple[int, int]]) -> None:
    lines = [f"{name}: {received} 1 0 0 0 0 0 0 {sent} 1\n" for name, (received, sent) in nets.items()]
    put(tmp_path, **{"proc/net/dev": "a\nb\n" + "".join(lines)})
    assert host.net_bytes(tmp_path) == {name: pair for name, pair in nets.items() if any(pair)}
