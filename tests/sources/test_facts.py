"""The collection: needs, variables, time limits, bad boxes; what cannot be had says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.clients.tree import Tree
from console.config import Podman, Settings, Triton
from console.core.encode import to_json
from console.core.facts import ANSWERS, CommandFact, Facts, FileFact, Unknowable
from console.sources import facts_system, facts_variables
from console.sources.facts import collect
from console.sources.facts_host import Host
from tests.clients.test_tree import as_nobody, for_everybody, put
from tests.sources.test_facts_host import box, program

NOWHERE = Settings(podman=Podman(socket="/nonexistent/podman.sock"), triton=Triton(host="127.0.0.1", http_port=1))


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    """A host with one NVIDIA card, another one's card, and a bridge of NVIDIA's."""
    for address, vendor, kind in (
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:00:02.0", "0x8086", "0x030000"),
        ("0000:86:00.0", "0x10de", "0x068000"),
    ):
        put(tmp_path, f"/sys/bus/pci/devices/{address}/vendor", vendor + "\n")
        put(tmp_path, f"/sys/bus/pci/devices/{address}/class", kind + "\n")
    put(tmp_path, "/proc/sys/kernel/osrelease", "4.18.0-553.el8_10.x86_64\n")
    for release in ("4.18.0-553.el8_10.x86_64", "4.18.0-553.16.1.el8_10.x86_64", "4.18.0-80.el8.x86_64"):
        put(tmp_path, f"/lib/modules/{release}/extra/nvidia.ko.xz")
    return tmp_path


def looked(root: Path, *needs: str, slow: bool = False, deadline: float = 3.0) -> Facts:
    """A collection over a folder, with nothing of this machine."""
    return collect(needs, Host("live", NOWHERE, str(root)), slow, deadline)


def test_needs_of_all_kinds(bus: Path) -> None:
    put(bus, "/etc/os-release", 'ID="rocky"\n')
    put(bus, "/dev/nvidia0", "text of a device")
    found = looked(
        bus,
        "/etc/os-release",
        "/etc/none",
        "stat /dev/nvidia*",
        "find /lib/modules/{release} nvidia*.ko*",
        "find /lib/modules/{next_release} nvidia*.ko*",
        "/sys/bus/pci/devices/*/vendor",
        "/sys/bus/pci/devices/{gpu}/class",
        "space /",
        "$ echo {release}",
        "@settings",
    )
    running, newest = "4.18.0-553.el8_10.x86_64", "4.18.0-553.16.1.el8_10.x86_64"
    assert found.text("/etc/os-release") == 'ID="rocky"\n'
    assert not found.exists("/etc/none")
    assert found.file("/dev/nvidia0").text is None
    assert found.under(f"/lib/modules/{running}", "nvidia.ko*") == (f"/lib/modules/{running}/extra/nvidia.ko.xz",)
    assert found.under(f"/lib/modules/{newest}", "nvidia.ko*") == (f"/lib/modules/{newest}/extra/nvidia.ko.xz",)
    assert len(found.glob("/sys/bus/pci/devices/*/vendor")) == 3
    assert found.every("gpu") == ("0000:3b:00.0",)
    assert found.text("/sys/bus/pci/devices/0000:3b:00.0/class") == "0x030200\n"
    assert "/sys/bus/pci/devices/0000:00:02.0/class" not in found.files
    assert found.space("/").total
    assert found.command(f"echo {running}").out == running + "\n"
    assert found.answer("@settings")["http_port"] == 1
    assert (found.one("release"), found.one("next_release")) == (running, newest)
    assert found.root == str(bus)
    assert found.seconds > 0


def test_they_can_be_written_and_read_back(bus: Path) -> None:
    put(bus, "/etc/odd-\udcff", b"\xff\x00\x01")
    found = looked(bus, "/etc/*", "/sys/bus/pci/devices/*/vendor", "$ printf '\\377'", *ANSWERS)
    assert msgspec.json.decode(to_json(found), type=Facts) == found
    assert set(found.answers) == set(ANSWERS)
    assert all(one.value is not None or one.why for one in found.answers.values())


def test_a_variable_without_a_value_drops_the_need(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    found = looked(tmp_path, "/sys/bus/pci/devices/{gpu}/class", "$ modinfo -k {release} nvidia", "space {graph_root}")
    assert (found.files, found.commands, found.spaces) == ({}, {}, {})
    assert found.variables["gpu"] == ()
    (tmp_path / "sys/bus/pci/devices").rmdir()
    assert "gpu" not in looked(tmp_path, "/etc/x").variables, "the bus was not seen"


@pytest.mark.parametrize("need", ["etc/os-release", "@nonsense", "$ ", "find /lib", "show /etc", "stat etc", ""])
def test_a_need_that_is_none(tmp_path: Path, need: str) -> None:
    with pytest.raises(ValueError, match="is no need"):
        looked(tmp_path, need)


def test_kernels_in_the_order_of_rpm() -> None:
    releases = ["4.18.0-80.el8", "4.18.0-553.el8_10", "4.18.0-553.16.1.el8_10", "5.14.0-1.el9", "5.14.0-1.el9+rt"]
    assert sorted(releases, key=facts_variables.version_key) == releases


def test_what_a_pattern_could_not_see_is_not_absent() -> None:
    with for_everybody() as root:
        put(root, "/run/closed/a.sock").parent.chmod(0o700)
        put(root, "/deep/a/x").parent.chmod(0o700)
        told = as_nobody(lambda: answers_about_closed(root))
    assert told["glob"] == "/run/closed: permission denied"
    assert told["deep"] == "/deep/a/x: permission denied"
    assert told["under"] == "/run/closed: permission denied"
    assert told["run"] == "('/run/closed',)", "it is there"


def answers_about_closed(root: Path) -> dict[str, str]:
    """What the test above is told."""
    found = looked(root, "/run/closed/*", "/deep/*/x", "find /run/closed *", "/run/*")
    told: dict[str, str] = {}
    asked: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("glob", lambda: found.glob("/run/closed/*")),
        ("deep", lambda: found.glob("/deep/*/x")),
        ("under", lambda: found.under("/run/closed", "*.sock")),
        ("run", lambda: found.glob("/run/*")),
    )
    for name, ask in asked:
        try:
            told[name] = str(ask())
        except Unknowable as missing:
            told[name] = missing.why
    return told


# ----------------------------------------------------------------------------------------------------------------- time


def test_all_runs_at_once_and_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        program(tmp_path / "bin", f"slow{number}", "/bin/sleep 0.4; echo done")
    program(tmp_path / "bin", "hangs", "/bin/sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    # one after the other they would take 4.8 s
    found = looked(tmp_path, *(f"$ slow{number}" for number in range(12)), "$ hangs", deadline=2.5)
    assert [found.command(f"slow{number}").out for number in range(12)] == ["done\n"] * 12
    assert found.commands["hangs"] == CommandFact(why="hangs did not end within 1.5 s")


def test_a_file_that_hangs_does_not_hold_up_the_others(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        put(bus, f"/etc/f{number:02}")
        put(bus, f"/nfs/f{number:02}")
    real, release = Tree.look, threading.Event()

    def look(self: Tree, path: str, **options: Any) -> FileFact:
        if path.startswith("/nfs/"):
            release.wait(20)
        return real(self, path, **options)

    monkeypatch.setattr(Tree, "look", look)
    needs = [f"/{folder}/f{number:02}" for folder in ("nfs", "etc") for number in range(15)]
    found = looked(bus, *needs, "/nfs/f2*", "find /nfs f*", "stat /nfs", "space /nfs", deadline=4.0)
    release.set()
    assert [found.text(f"/etc/f{number:02}") for number in range(15)] == ["x\n"] * 15
    assert found.files["/nfs/f00"] == FileFact("unknown", why="timed out")
    with pytest.raises(Unknowable, match="timed out"):
        found.glob("/nfs/f2*")
    with pytest.raises(Unknowable, match="timed out"):
        found.under("/nfs", "f*")


def test_an_answer_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(facts_system, "nvml", lambda host: release.wait(20))
    found = looked(tmp_path, "@nvml", "@me", "/etc/x", deadline=0.5)
    release.set()
    assert found.why_not("@nvml") == "nvml: timed out"
    assert found.answers["@nvml"].settle == "nvidia-smi"
    assert found.answer("@me")["uid"] >= 0
    assert not found.exists("/etc/x")


def test_a_fault_of_its_own_is_one_unknown_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(host: Host) -> None:
        raise KeyError("x")

    monkeypatch.setattr(facts_system, "nvml", broken)
    found = looked(tmp_path, "@nvml", "/etc/x")
    assert found.why_not("@nvml") == "nvml: a fault of gpuconsole (KeyError)"
    assert not found.exists("/etc/x")


def test_slow_samples_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_system, "SAMPLED", 0.1)
    cpu = "/sys/devices/system/cpu"
    for number in range(2):
        put(tmp_path, f"{cpu}/cpu{number}/cpuidle/state1/name", "C1\n")
        put(tmp_path, f"{cpu}/cpu{number}/cpuidle/state1/time", "1000\n")
    put(tmp_path, "/proc/vmstat", "pswpin 5\npswpout 7\nother\n")
    put(tmp_path, "/proc/interrupts", "     CPU0  CPU1\n 50:  10  20  PCI-MSI nvidia\n 51: 1 1 eth0\nNMI: 1\n")
    assert "--slow" in looked(tmp_path, "@samples").why_not("@samples")

    def later() -> None:
        time.sleep(0.05)
        put(tmp_path, f"{cpu}/cpu0/cpuidle/state1/time", "51000\n")
        put(tmp_path, "/proc/vmstat", "pswpin 6\npswpout 7\n")
        put(tmp_path, "/proc/interrupts", "     CPU0  CPU1\n 50:  20  20  PCI-MSI nvidia\n")

    threading.Thread(target=later).start()
    found = looked(tmp_path, "@samples", slow=True).answer("@samples")
    assert 0 < found["cpuidle"]["C1"] <= 0.25 / found["seconds"] / 2
    assert found["swap_in"] > 0
    assert found["swap_out"] == 0
    assert list(found["irqs"]) == ["0"]


# ------------------------------------------------------------------------------------------------------------ bad boxes


def test_a_box_of_garbage(tmp_path: Path) -> None:
    for path in (
        "/etc/cdi/nvidia.yaml",
        "/etc/passwd",
        "/proc/net/tcp",
        "/proc/7/stat",
        "/proc/interrupts",
        "/dev/kmsg",
    ):
        put(tmp_path, path, bytes(range(256)) * 100)
    put(tmp_path, "/proc/8/stat", "8 (podman) S 1 2 3\n")
    put(tmp_path, "/sys/bus/pci/devices/x/vendor", b"\xff")
    put(tmp_path, "/lib/modules/9\n9/x")
    put(tmp_path, "/proc/sys/kernel/osrelease", "../../etc\n")
    found = looked(tmp_path, *ANSWERS, "/etc/cdi/*", "stat {cdi_paths}", "find /lib/modules/{release} *", "{home}/.x")
    assert all(one.value is not None or one.why for one in found.answers.values())
    assert found.every("cdi_paths") == ()


def test_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = looked(tmp_path, *ANSWERS, "$ dkms status", "/etc/os-release", "/proc/*/comm", "@units")
    assert found.commands["dkms status"].why == "dkms is not installed"
    assert found.why_not("@units") == "systemctl is not installed"
    assert found.why_not("@podman.inspect").startswith("/nonexistent/podman.sock is not there")
    assert found.answers["@podman.inspect"].settle
    assert found.why_not("@triton.index") == "127.0.0.1:1 refuses the connection"
    assert not found.exists("/etc/os-release")


def test_as_nobody_this_machine_is_looked_at_without_a_fault() -> None:
    def work() -> Any:
        needs = ("/proc/1/environ", "/etc/shadow", "/root/*", "/proc/*/status", *ANSWERS)
        found = collect(needs, Host("live", NOWHERE), deadline=5.0)
        return {
            "environ": found.files["/proc/1/environ"].why,
            "shadow": found.files["/etc/shadow"].text,
            "answers": [name for name, one in found.answers.items() if one.value is None and not one.why],
            "me": found.answer("@me"),
            "faults": [name for name, one in found.answers.items() if "fault" in one.why],
        }

    told = as_nobody(work)
    assert told["environ"] == "permission denied"
    assert told["shadow"] is None
    assert told["answers"] == told["faults"] == []
    assert (told["me"]["uid"], told["me"]["sudo"]) == (65534, None)


def test_secrets_of_all_places_stay_out(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hush-4711-hush"
    put(
        bus,
        "/etc/systemd/system/triton.service",
        f"ExecStart=x\nEnvironment=A={secret}\n# Authorization: Basic {secret}\n",
    )
    put(bus, "/etc/containers/auth.json", f'{{"auths": {{"nvcr.io": {{"auth": "{secret}"}}}}}}')
    put(bus, "/proc/7/environ", f"X={secret}\0")
    put(bus, "/var/log/x.log", f"the header was {secret}\n")
    put(bus, "/etc/yum.conf", f"proxy=http://u:{secret}@proxy:3128\n")
    program(
        bus / "bin",
        "tells",
        f"echo \"token = '{secret}' https://{secret}@host/ --api-key {secret}\"; echo {secret} >&2",
    )
    monkeypatch.setenv("PATH", str(bus / "bin"))
    settings = Settings(podman=NOWHERE.podman, triton=Triton(host="127.0.0.1", http_port=1, headers={"key": secret}))
    needs = ("/etc/*", "/etc/systemd/system/*", "/etc/containers/*", "/proc/7/environ", "/var/log/*", "$ tells")
    found = collect(needs, Host("live", settings, str(bus)), deadline=3.0)
    assert found.command("tells").code == 0
    assert found.text("/etc/systemd/system/triton.service").startswith("ExecStart=x")
    assert secret not in to_json(found).decode()


# ----------------------------------------------------------------------------------------------------------- recordings


def test_a_recorded_box(tmp_path: Path) -> None:
    put(tmp_path, "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\ntriton:x:1000:1000::/home/triton:/bin/sh\n")
    put(tmp_path, "/home/triton/.config/containers/containers.conf", "[engine]\n")
    put(tmp_path, "/proc/7/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/triton.service\n")
    inspect = {
        "Id": "c" * 64,
        "Name": "triton",
        "Path": "tritonserver",
        "Args": ["--model-repository=/models"],
        "State": {"Status": "running", "Pid": 9, "ConmonPid": 7},
        "Mounts": [{"Source": "/data/models", "Destination": "/models", "RW": False}],
        "Config": {"Labels": {}, "Env": ["MY_TOKEN=hush-hush"]},
    }
    host = box(
        tmp_path,
        answers={
            "@podman.ping": {"value": {"version": "4.9.4", "socket": "/run/user/1000/podman/podman.sock"}},
            "@podman.inspect": {"value": inspect},
            "@podman.info": {"value": {"store": {"graphRoot": "/home/triton/.local/share/containers/storage"}}},
            "@processes": {"value": []},
        },
        commands={"systemctl --user is-active triton.service": {"code": 0, "out": "active\n"}},
        files={"/data/models/rank/1/model.plan": {"kind": "file", "size": 5}},
        spaces={"/home": {"free": 1, "total": 2}},
        wall=77.0,
        host="infer-01",
    )
    needs = ("{home}/.config/containers/*.conf", "space {graph_root}", "$ systemctl --user is-active {unit}")
    found = collect(
        (*needs, "stat {models}/*/*/*", "@podman.inspect", "@podman.ping", "/proc/{container_pid}/limits"), host
    )
    assert (found.wall, found.host) == (77.0, "infer-01")
    assert found.every("uid") == ("1000",)
    assert found.every("user") == ("triton",)
    assert found.every("container") == ("triton",)
    assert found.every("container_id") == ("c" * 64,)
    assert found.every("models") == ("/data/models",)
    assert found.every("unit") == ("triton.service",)
    assert found.every("socket") == ("/run/user/1000/podman/podman.sock",)
    assert found.text("/home/triton/.config/containers/containers.conf") == "[engine]\n"
    assert found.space("/home/triton/.local/share/containers/storage").free == 1
    assert found.command("systemctl --user is-active triton.service").out == "active\n"
    assert found.glob("/data/models/*/*/*") == ("/data/models/rank/1/model.plan",)
    assert found.answer("@podman.inspect")["Config"]["Env"] == ["MY_TOKEN=***"]
    assert not found.exists("/proc/9/limits")


@pytest.mark.parametrize(
    ("files", "processes", "container", "expected"),
    [
        ({"/etc/systemd/system/a.service": "ExecStart=podman run --name triton x"}, [], True, ("a.service",)),
        ({"/etc/systemd/system/a.service": "ExecStart=podman run --name triton2 x"}, [], True, ()),
        ({"/run/systemd/generator/t.service": "podman tritonserver"}, [], False, ("t.service",)),
        (
            {},
            [{"name": "podman", "argv": ["podman", "run", "x"], "cgroup": "0::/system.slice/hand.service\n"}],
            True,
            ("hand.service",),
        ),
        ({}, [{"name": "podman", "argv": ["podman", "ps"], "cgroup": "0::/system.slice/hand.service\n"}], True, ()),
    ],
)
def test_the_unit_of_a_container(
    tmp_path: Path, files: dict[str, str], processes: list[Any], container: bool, expected: tuple[str, ...]
) -> None:
    for path, text in files.items():
        put(tmp_path, path, text)
    inspect = {"Name": "triton", "State": {"Status": "running"}, "Config": {"CreateCommand": ["podman", "run", "x"]}}
    host = box(
        tmp_path,
        answers={
            "@podman.ping": {"value": {"socket": "/run/podman/podman.sock", "rootless": False}},
            "@podman.inspect": {"value": inspect if container else None},
            "@processes": {"value": processes},
        },
    )
    assert collect(("/etc/x",), host).every("unit") == expected


def test_paths_of_cdi_specs(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/etc/cdi/nvidia.yaml",
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n"
        "    - path: /dev/nvidia0\n    - path: /dev/x\n      hostPath: /dev/nvidia1\ncontainerEdits:\n  mounts:\n"
        "  - hostPath: /usr/lib64/libcuda.so.550.90.07\n    containerPath: /x\n  hooks:\n"
        "  - path: /usr/bin/nvidia-cdi-hook\n"
        "  - 7\n",
    )
    put(
        tmp_path,
        "/etc/cdi/other.yaml",
        "kind: vendor.com/x\ndevices: [{name: a}]\ncontainerEdits: {hooks: [{path: /a}]}",
    )
    put(tmp_path, "/usr/bin/nvidia-cdi-hook")
    found = looked(tmp_path, "stat {cdi_paths}")
    assert set(found.every("cdi_paths")) == {
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/usr/lib64/libcuda.so.550.90.07",
        "/usr/bin/nvidia-cdi-hook",
    }
    assert not found.exists("/dev/nvidia0")
    assert found.exists("/usr/bin/nvidia-cdi-hook")


@pytest.fixture
def threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert threading.active_count() <= before


def test_no_thread_is_left(bus: Path, threads: None) -> None:
    looked(bus, "/etc/*", "@me", "@podman.ping", "$ true", "find /lib/modules *")
