"""Faults of the host: tuning, disks, network, time."""

from __future__ import annotations

from msgspec.structs import replace

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS, UBUNTU
from tests.checks.tree import Tree

GIB = 1 << 30
CPU = "/sys/devices/system/cpu"


def _all(box: Tree, name: str, text: str) -> None:
    """The same text in each CPU's file of that name; KeyError where there is none."""
    found = box.under(CPU, rf"/cpu\d+/(?:cpufreq|power)/{name}$")
    if not found:
        raise KeyError(f"{box.name}: there is no {name}")
    for path in found:
        box.put(path, text + "\n")


@fault("F01", DEBIAN, UBUNTU)
def governor_powersave(box: Tree) -> None:
    _all(box, "scaling_governor", "powersave")
    _all(box, "scaling_driver", "intel_cpufreq")
    box.put(f"{CPU}/intel_pstate/status", "passive\n")
    for path in box.under(CPU, "/energy_performance_preference$"):
        box.remove(path)
    box.edit("/proc/cmdline", " ro", " ro intel_pstate=passive")
    box.remove("/etc/default/cpufrequtils")


@fault("F02", DEBIAN, UBUNTU, EL8)
def energy_before_performance(box: Tree) -> None:
    _all(box, "energy_performance_preference", "power")
    _all(box, "energy_perf_bias", "15")


@fault("F03", EL8, DEBIAN)
def turbo_off(box: Tree) -> None:
    box.put(f"{CPU}/intel_pstate/no_turbo", "1\n")


@fault("F05", EL8, EL9, ROCKY, ROOTLESS, also=("F01",))
def tuned_for_balance(box: Tree) -> None:
    box.put("/etc/tuned/active_profile", "balanced\n")
    effects.swap_line(box, "tuned-adm active", "accelerator-performance", "balanced")
    _all(box, "scaling_governor", "powersave")
    _all(box, "energy_performance_preference", "balance_performance")
    _all(box, "energy_perf_bias", "6")


@fault("F07", EL9)
def numa_balancing_on(box: Tree) -> None:
    box.put("/proc/sys/kernel/numa_balancing", "1\n")
    box.remove("/etc/sysctl.d/90-triton.conf")


@fault("F08", DEBIAN, EL9)
def huge_pages_stall(box: Tree) -> None:
    box.put("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never\n")


@fault("F09", EL8, DEBIAN)
def overcommit_never(box: Tree) -> None:
    box.put("/proc/sys/vm/overcommit_memory", "2\n")
    box.put("/etc/sysctl.d/99-hardening.conf", "vm.overcommit_memory = 2\n")


@fault("F10", EL8, DEBIAN)
def huge_pages_reserved_for_nobody(box: Tree) -> None:
    box.edit("/proc/meminfo", "HugePages_Total:       0", "HugePages_Total:   20480")
    box.edit("/proc/meminfo", "HugePages_Free:        0", "HugePages_Free:    20480")
    box.put("/proc/sys/vm/nr_hugepages", "20480\n")


@fault("F13", DEBIAN, EL8)
def few_open_files(box: Tree) -> None:
    box.put("/proc/sys/fs/file-max", "8192\n")
    box.put("/proc/sys/fs/file-nr", "8001\t0\t8192\n")


@fault("F14", ROOTLESS, also=("E09",), takes="container unit server")
def user_may_not_lock_memory(box: Tree) -> None:
    box.remove("/etc/security/limits.d/90-triton.conf")
    box.remove("/etc/systemd/system/user@.service.d/limits.conf")
    said = "runc: runc create failed: unable to start container process: error setting rlimit type 8: operation not "
    effects.down(box, f"{said}permitted: OCI permission denied", kept=True)


@fault("F20", EL8, EL9)
def memory_module_with_errors(box: Tree) -> None:
    box.put("/sys/devices/system/edac/mc/mc0/ue_count", "3\n")
    box.put("/sys/devices/system/edac/mc/mc0/ce_count", "4112\n")


@fault("H01", EL8, DEBIAN)
def repository_full(box: Tree) -> None:
    box.room("/data/models", free=200 << 20)


@fault("H02", DEBIAN, EL9, needs="container")
def models_on_nfs(box: Tree) -> None:
    box.room("/data/models", fs="nfs4", device="nas01:/export/models")
    lines = box.text("/proc/self/mounts").splitlines()
    nfs = "nas01:/export/models /data nfs4 rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp 0 0"
    box.put("/proc/self/mounts", "\n".join(nfs if " /data " in one else one for one in lines) + "\n")
    for path in ["/data/models", *box.under("/data/models")]:
        if box.files[path].label:
            box.stat(path, label="system_u:object_r:nfs_t:s0")
    if "/sys/fs/selinux/booleans/virt_use_nfs" in box.files:
        box.put("/sys/fs/selinux/booleans/virt_use_nfs", "1 1")


@fault("H03", EL8, DEBIAN)
def models_on_a_turning_disk(box: Tree) -> None:
    box.edit("/proc/self/mounts", "/dev/nvme0n1p1 /data", "/dev/sda3 /data")
    box.room("/data/models", device="/dev/sda3")
    box.put("/sys/block/sda/queue/rotational", "1\n")


@fault("H06", EL8, DEBIAN)
def disk_is_failing(box: Tree) -> None:
    effects.swap_line(
        box,
        "nvme smart-log /dev/nvme0",
        "critical_warning                        : 0",
        "critical_warning                        : 0x4",
    )
    effects.swap_line(
        box,
        "nvme smart-log /dev/nvme0",
        "media_errors                            : 0",
        "media_errors                            : 912",
    )


@fault("H08", EL8)
def raid_lost_a_disk(box: Tree) -> None:
    box.put(
        "/proc/mdstat",
        "Personalities : [raid1] \nmd127 : active raid1 sdb1[1] sdc1[0](F)\n"
        "      937426944 blocks super 1.2 [2/1] [_U]\n      \nunused devices: <none>\n",
    )


@fault("I03", EL8, EL9, DEBIAN)
def network_of_1g(box: Tree) -> None:
    box.put("/sys/class/net/ens1f0/speed", "1000\n")


@fault("J01", EL8, DEBIAN, EL9, ROOTLESS)
def clock_not_synchronised(box: Tree) -> None:
    for words in [one for one in box.commands if one.startswith("timedatectl")]:
        fact = box.commands[words]
        box.commands[words] = replace(
            fact,
            out=fact.out.replace("Synchronized=yes", "Synchronized=no").replace("yes\n", "no\n")
            if "--value" in words
            else fact.out.replace("NTPSynchronized=yes", "NTPSynchronized=no").replace("NTP=yes", "NTP=no"),
        )
    off = {"ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled", "MainPID": "0"}
    for name in ("chronyd.service", "systemd-timesyncd.service"):
        if box.value("@units")[name]["LoadState"] == "loaded":
            effects.set_unit(box, name, **off)
    if box.commands["chronyc -n tracking"].code == 0:
        box.run("chronyc -n tracking", "506 Cannot talk to daemon\n", 1)


@fault("F16", DEBIAN)
def too_little_memory(box: Tree) -> None:
    old = next(one for one in box.text("/proc/meminfo").splitlines() if one.startswith("MemTotal"))
    box.edit("/proc/meminfo", old, "MemTotal:       16290112 kB")
    box.change("@podman.info", lambda info: info["host"].update(memTotal=16290112 * 1024))
