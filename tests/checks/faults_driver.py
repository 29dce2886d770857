"""Faults of kernel and driver."""

from __future__ import annotations

import re

from msgspec.structs import replace

from console.core.facts import CommandFact
from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.tree import Tree

EL8, EL9, ROOTLESS, ROCKY, DEBIAN, UBUNTU = (
    "el8_rootful",
    "el9_quadlet",
    "el8_rootless",
    "rocky88",
    "debian12",
    "ubuntu2204",
)


@fault("A03", EL8, EL9, also=("A04",), takes="driver container unit server")
def nouveau_owns_the_gpu(box: Tree) -> None:
    effects.unload(box)
    box.put("/proc/modules", "nouveau 2326528 1 - Live 0x0000000000000000\n" + box.text("/proc/modules"))
    box.put("/sys/module/nouveau/refcnt", "1\n")
    box.link(f"{effects.gpu(box)}/driver", "../../../../bus/pci/drivers/nouveau")
    box.put("/sys/bus/pci/drivers/nouveau/bind", "")
    box.edit("/proc/cmdline", " rd.driver.blacklist=nouveau modprobe.blacklist=nouveau", "")
    box.edit("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n", "")
    bdf = effects.bdf(box)
    effects.kernel(box, f"nouveau {bdf}: NVIDIA TU104 (164000a1)", f"NVRM: GPU {bdf} is already bound to nouveau.")


@fault("A04", EL8, also=("A03",))
def nouveau_not_blacklisted(box: Tree) -> None:
    box.edit("/proc/cmdline", " rd.driver.blacklist=nouveau modprobe.blacklist=nouveau", "")
    box.edit("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n", "")


@fault("A05", EL8, ROOTLESS, ROCKY, takes="driver container unit server")
def modules_not_loaded(box: Tree) -> None:
    effects.unload(box)


@fault("A05", DEBIAN, ROCKY, EL8, takes="driver container unit server")
def uvm_not_loaded(box: Tree) -> None:
    lines = [one for one in box.text("/proc/modules").splitlines() if not one.startswith("nvidia_uvm")]
    box.put("/proc/modules", "\n".join(lines).replace("nvidia_modeset,nvidia_uvm", "nvidia_modeset") + "\n")
    box.edit("/proc/devices", "236 nvidia-uvm\n", "")
    box.remove("/sys/module/nvidia_uvm")
    effects.no_nodes(box, "nvidia-uvm", "nvidia-uvm-tools")
    box.change("@kernel.log", lambda log: log.update(lines=[one for one in log["lines"] if "uvm" not in one["text"]]))
    effects.no_node_to_inject(box, "/dev/nvidia-uvm")


@fault("A06", EL9, UBUNTU, takes="driver", needs="driver")
def libraries_newer_than_the_module(box: Tree) -> None:
    new = {"560.35.03": "560.35.05", "535.183.06": "535.216.01"}[effects.driver(box)]
    effects.upgrade(box, new, loaded=False, respec=True)
    effects.no_nvml(box, 18, "Driver/library version mismatch")
    old = effects.driver(box)
    effects.kernel(
        box,
        f"NVRM: API mismatch: the client has the version {new}, but",
        f"NVRM: this kernel module has the version {old}.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
    )


@fault("A07", UBUNTU, takes="driver container unit server")
def no_module_for_the_running_kernel(box: Tree) -> None:
    new = "5.15.0-127-generic"
    old = effects.release(box)
    _boot(box, old, new)
    effects.no_modinfo(box)
    effects.unload(box)


@fault("A09", EL8, EL9, ROCKY, DEBIAN, also=("A07",), takes="driver container unit server")
def dkms_did_not_build_for_the_running_kernel(box: Tree) -> None:
    old = effects.release(box)
    new = old.replace("-553.16.1", "-553.22.1").replace("-427.42.1", "-427.44.1").replace("-477.27.1", "-477.36.1")
    new = new.replace("6.1.0-28", "6.1.0-29")
    _boot(box, old, new)
    effects.no_modinfo(box)
    effects.unload(box)


def _boot(box: Tree, old: str, new: str) -> None:
    """A newer kernel runs, with its headers and without the module."""
    for path in ("/proc/sys/kernel/osrelease", "/proc/version", "/proc/cmdline"):
        box.edit(path, old, new)
    _install(box, old, new)


def _install(box: Tree, old: str, new: str) -> None:
    """A newer kernel is on disk, with its headers and without the module."""
    for path in box.under(f"/usr/lib/modules/{old}"):
        if "nouveau" in path or path.endswith("modules.dep"):
            box.files[path.replace(old, new)] = box.files[path]
    build = box.files[f"/usr/lib/modules/{old}/build"].target or ""
    box.link(f"/usr/lib/modules/{new}/build", build.replace(old, new))
    box.put(f"{build.replace(old, new)}/Makefile", None, size=68214)


@fault("A07", EL8, EL9, also=("A09",))
def next_kernel_has_no_module(box: Tree) -> None:
    old = effects.release(box)
    _install(box, old, old.replace("-553.16.1", "-553.22.1").replace("-427.42.1", "-427.44.1"))


@fault("A08", EL9, takes="driver container unit server")
def open_module_on_a_card_without_gsp(box: Tree) -> None:
    card = effects.gpu(box)
    bdf = effects.bdf(box)
    box.put(f"{card}/device", "0x1db4\n")
    box.put(f"{card}/subsystem_device", "0x1214\n")
    box.remove(f"/proc/driver/nvidia/gpus/{bdf}")
    effects.no_nodes(box, "nvidia0")
    effects.kernel(
        box,
        f"NVRM: The NVIDIA GPU {bdf} (PCI ID: 10de:1db4)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        "NVRM: System Processor (GSP).",
        "NVRM: None of the NVIDIA devices were initialized.",
    )
    box.remove(f"{card}/driver")
    effects.no_nvml(box, 9, "Driver Not Loaded")
    effects.down(
        box, 'setting up CDI devices: failed to stat CDI host device "/dev/nvidia0": no such file or directory'
    )


@fault("A10", EL8, ROCKY)
def kernel_headers_missing(box: Tree) -> None:
    box.remove(f"/usr/src/kernels/{effects.release(box)}")
    effects.drop_packages(box, r"kernel-devel\t")


@fault("A11", EL8)
def driver_packages_of_two_versions(box: Tree) -> None:
    words = effects.packages(box)
    out = box.commands[words].out
    mixed = re.sub(r"(?m)^(nvidia-(?:driver-libs|driver-NVML|kmod-common)\t)550\.90\.07$", r"\g<1>550.54.15", out)
    box.run(words, mixed)


@fault("A11", EL8, ROCKY)
def runfile_over_packages(box: Tree) -> None:
    box.put("/usr/bin/nvidia-uninstall", None, mode=0o755, size=2_100_000)
    box.put("/usr/bin/nvidia-installer", None, mode=0o755, size=2_100_000)
    box.put(
        "/var/log/nvidia-installer.log", f"nvidia-installer log file '/var/log/nvidia-installer.log'\n-> {box.wall}\n"
    )


@fault("A12", EL8)
def stream_latest(box: Tree) -> None:
    box.edit("/etc/dnf/modules.d/nvidia-driver.module", "stream=550-dkms", "stream=latest-dkms")


@fault("A13", EL8)
def kernel_packages_filtered(box: Tree) -> None:
    _precompiled(box)
    box.edit(
        "/var/log/dnf.log",
        "INFO Dependencies resolved.",
        "INFO NOTE: Skipping kernel installation since no kernel module package kmod-nvidia-550.90.07 could be found\n"
        "2026-11-17T06:12:09+0000 WARNING some kernel packages have been filtered due to missing precompiled modules\n"
        "2026-11-17T06:12:09+0000 INFO Dependencies resolved.",
    )


def _precompiled(box: Tree) -> None:
    """NVIDIA's precompiled modules in place of DKMS."""
    effects.drop_packages(box, r"(?:kmod-nvidia-latest-dkms|dkms|gcc-c\+\+)\t")
    words = effects.packages(box)
    box.run(words, box.commands[words].out + "kmod-nvidia-550.90.07-4.18.0-553.16.1\t550.90.07\n")
    box.edit("/etc/dnf/modules.d/nvidia-driver.module", "stream=550-dkms", "stream=550")
    for path in ("/var/lib/dkms", "/usr/sbin/dkms", "/usr/lib/modules/4.18.0-553.5.1.el8_10.x86_64"):
        box.remove(path)
    box.commands["dkms status"] = CommandFact(why="dkms is not installed")
    extra = f"/usr/lib/modules/{effects.release(box)}/extra"
    for path in box.under(extra):
        box.files[path.replace("/extra/", "/extra/drivers/video/nvidia/")] = box.files.pop(path)
    for one in [one for one in box.commands if one.startswith("modinfo")]:
        fact = box.commands[one]
        box.commands[one] = replace(fact, out=fact.out.replace("/extra/", "/extra/drivers/video/nvidia/"))


@fault("A14", EL9, takes="driver container unit server")
def secure_boot_rejects_the_module(box: Tree) -> None:
    effects.unload(box)
    effects.kernel(box, "Loading of module with unavailable key is rejected")


@fault("A16", ROCKY, EL8, DEBIAN, takes="container unit server", needs="driver", also=("B09",))
def uvm_node_missing(box: Tree) -> None:
    effects.no_nodes(box, "nvidia-uvm", "nvidia-uvm-tools")
    effects.no_node_to_inject(box, "/dev/nvidia-uvm")


@fault("A17", EL8, ROCKY, needs="driver")
def dev_char_links_missing(box: Tree) -> None:
    for path in box.under("/dev/char"):
        box.remove(path)


@fault("A18", EL9, takes="driver container unit server")
def gsp_firmware_missing(box: Tree) -> None:
    bdf = effects.bdf(box)
    for path in box.under("/usr/lib/firmware/nvidia"):
        box.remove(path)
    effects.kernel(
        box,
        f"NVRM: GPU {bdf}: RmInitAdapter: Cannot initialize GSP firmware RM",
        f"NVRM: GPU {bdf}: RmInitAdapter failed! (0x62:0x40:2345)",
        f"NVRM: GPU {bdf}: rm_init_adapter failed, device minor number 0",
    )
    _no_devices(box)


@fault("A19", EL8, DEBIAN, ROCKY, takes="driver container unit server")
def adapter_does_not_start(box: Tree) -> None:
    bdf = effects.bdf(box)
    effects.kernel(
        box,
        f"NVRM: GPU {bdf}: RmInitAdapter failed! (0x24:0x65:1423)",
        f"NVRM: GPU {bdf}: rm_init_adapter failed, device minor number 0",
    )
    _no_devices(box)


def _no_devices(box: Tree) -> None:
    """NVML starts and lists no card."""
    effects.no_nvml(box, 6, "Not Found")
    box.run("nvidia-smi -q", "No devices were found\n", 6)
    effects.down(box, "container exited before it was ready: No devices were found", 1)


@fault("A21", EL8, EL9, also=("A02",), takes="driver container unit server")
def card_bound_to_vfio(box: Tree) -> None:
    effects.unload(box)
    box.link(f"{effects.gpu(box)}/driver", "../../../../bus/pci/drivers/vfio-pci")
    box.put("/sys/bus/pci/drivers/vfio-pci/bind", "")
    box.put("/proc/modules", "vfio_pci 16384 0 - Live 0x0000000000000000\n" + box.text("/proc/modules"))
    box.edit("/proc/cmdline", " ro ", " ro intel_iommu=on vfio-pci.ids=10de:1eb8,10de:27b8 ")
    bdf = effects.bdf(box)
    effects.kernel(box, f"vfio-pci {bdf}: enabling device (0000 -> 0002)")


@fault("A02", EL8, DEBIAN, takes="driver container unit server")
def card_not_on_the_bus(box: Tree) -> None:
    card, bdf = effects.gpu(box), effects.bdf(box)
    effects.unload(box)
    box.remove(card)
    box.remove(f"/sys/bus/pci/devices/{bdf}")
    box.remove(f"/sys/bus/pci/drivers/nvidia/{bdf}")


@fault("A22", EL9, takes="server", needs="container")
def fabric_manager_missing(box: Tree) -> None:
    path = "/sys/devices/pci0000:80/0000:80:01.0"
    for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000"), ("numa_node", "1")):
        box.put(f"{path}/{name}", text + "\n")
    box.link("/sys/bus/pci/devices/0000:80:01.0", "../../../devices/pci0000:80/0000:80:01.0")
    box.put("/proc/driver/nvidia-nvswitch/devices/0000:80:01.0", "")
    effects.say(
        box, "ERROR: The NVIDIA Driver is present, but CUDA failed to initialize.  GPU functionality will not be"
    )
    effects.say(box, "   available.", "   [[ System not yet initialized (error 802) ]]")
