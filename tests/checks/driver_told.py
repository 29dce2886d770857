"""A healthy RHEL 8.10 box as the driver checks see it, and a way to change it and to ask one check.

Each check is given what its needs name and nothing else: what is not there is absent, a program that is not recorded
is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.checks.box import DEB_ALL, RPM_ALL
from console.checks.run import named
from console.core.facts import CommandFact, Facts, FileFact
from console.core.finding import Finding, Fix
from tests.checks import needed
from tests.checks.told import ABSENT, folder, told

GPU = "0000:3b:00.0"
PCI = "/sys/bus/pci/devices"
RELEASE = "4.18.0-553.el8_10.x86_64"
NEXT = "4.18.0-553.16.1.el8_10.x86_64"
DRIVER = "580.95.05"
RPM, DEB = RPM_ALL[2:], DEB_ALL[2:]

OPEN = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (dvs-builder@U22)\n"
CLOSED = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Fri May 31 09:35:42 UTC 2024\n"
ROCKY = (
    'NAME="Rocky Linux"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 8.10"\n'
)
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'
MODULES = """\
nvidia_drm 94208 0 - Live 0x0000000000000000 (OE)
nvidia_modeset 1507328 1 nvidia_drm, Live 0x0000000000000000 (OE)
nvidia_uvm 6602752 4 - Live 0x0000000000000000 (OE)
nvidia 11554816 44 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)
xfs 1556480 2 - Live 0x0000000000000000
"""
STREAM = "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n"
CMDLINE = (
    "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-4.18.0-553.el8_10.x86_64 root=/dev/mapper/rl-root ro rd.driver.blacklist=nouveau\n"
)


def driven(name: str) -> FileFact:
    """The `driver` link of a PCI device."""
    return FileFact("dir", target=f"../../../../bus/pci/drivers/{name}")


def node(major: int, minor: int, mode: int = 0o666, gid: int = 0) -> FileFact:
    """A character device."""
    return FileFact("char", mode=mode, uid=0, gid=gid, device=(major, minor))


def link(target: str) -> FileFact:
    """A link to a file that is there."""
    return FileFact("file", target=target)


def dead(target: str) -> FileFact:
    """A link that leads nowhere."""
    return FileFact("link", target=target)


THERE = FileFact("file", mode=0o755, uid=0, gid=0, size=1)
FOLDER = FileFact("dir")

FILES: Mapping[str, str | FileFact] = {
    "/etc/os-release": ROCKY,
    f"{PCI}/{GPU}/vendor": "0x10de\n",
    f"{PCI}/{GPU}/class": "0x030200\n",
    f"{PCI}/{GPU}/driver": driven("nvidia"),
    "/proc/modules": MODULES,
    "/proc/cmdline": CMDLINE,
    "/usr/lib/modprobe.d/nvidia.conf": "# the driver's package\nblacklist nouveau\nsoftdep nvidia post: nvidia-uvm\n",
    "/sys/module/nvidia/version": f"{DRIVER}\n",
    "/proc/driver/nvidia/version": OPEN,
    "/usr/lib64/libnvidia-ml.so.1": link(f"libnvidia-ml.so.{DRIVER}"),
    f"/usr/lib64/libnvidia-ml.so.{DRIVER}": THERE,
    f"/lib/modules/{RELEASE}": FOLDER,
    f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz": THERE,
    f"/lib/modules/{RELEASE}/extra/nvidia-uvm.ko.xz": THERE,
    f"/lib/modules/{RELEASE}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz": THERE,
    f"/lib/modules/{RELEASE}/build": FileFact("dir", target=f"/usr/src/kernels/{RELEASE}"),
    "/var/lib/dkms": folder("nvidia-open", "dkms_dbversion"),
    "/usr/bin/gcc": THERE,
    "/usr/bin/g++": THERE,
    "/usr/bin/make": THERE,
    "/usr/sbin/dkms": THERE,
    "/usr/bin/nvidia-modprobe": THERE,
    "/sys/firmware/efi": FOLDER,
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\x00\x00\x00\x00",
    "/sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    "/proc/sys/kernel/tainted": "12288\n",
    "/dev/nvidia0": node(195, 0),
    "/dev/nvidiactl": node(195, 255),
    "/dev/nvidia-modeset": node(195, 254),
    "/dev/nvidia-uvm": node(511, 0),
    "/dev/nvidia-uvm-tools": node(511, 1),
    "/dev/char/195:0": link("../nvidia0"),
    "/dev/char/195:255": link("../nvidiactl"),
    "/dev/char/195:254": link("../nvidia-modeset"),
    "/dev/char/511:0": link("../nvidia-uvm"),
    "/dev/char/511:1": link("../nvidia-uvm-tools"),
    "/proc/devices": "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n259 blkext\n",
    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
    f"/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin": THERE,
    "/etc/dnf/modules.d/nvidia-driver.module": STREAM,
}
COMMANDS: Mapping[str, str | CommandFact] = {
    "modinfo -F version nvidia": f"{DRIVER}\n",
    "modinfo -F license nvidia": "Dual MIT/GPL\n",
    "modinfo -F signer nvidia": "DKMS module signing key\n",
    "modinfo -F sig_id nvidia": "PKCS#7\n",
    "dkms status": f"nvidia-open/{DRIVER}, {RELEASE}, x86_64: installed\n",
    RPM: (
        f"nvidia-driver-cuda\t{DRIVER}\nlibnvidia-ml\t{DRIVER}\nnvidia-kmod-common\t{DRIVER}\n"
        f"kmod-nvidia-open-dkms\t{DRIVER}\nlibnvidia-container1\t1.17.8\nnvidia-container-toolkit\t1.17.8\nbash\t4.4.20\n"
    ),
}
ANSWERS: Mapping[str, Any] = {
    "@nvml": {
        "error": None,
        "box": {"driver": DRIVER, "gpus": [{"index": 0, "name": "NVIDIA A10", "architecture": "Ampere"}]},
    },
    "@kernel.log": {
        "source": "journal",
        "lines": [{"wall": 1782439201.0, "text": f"NVRM: loading NVIDIA UNIX {DRIVER}"}],
    },
    "@podman.ping": {"version": "4.9.4", "socket": "/run/podman/podman.sock", "rootless": False},
    "@podman.info": {"host": {"ociRuntime": {"name": "runc"}, "cgroupManager": "systemd"}},
    "@units": {},
}
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "gpu": (GPU,),
    "release": (RELEASE,),
    "next_release": (RELEASE,),
    "user": ("root",),
}

NO_MODULE = CommandFact(1, "", "modinfo: ERROR: Module nvidia not found.\n")
UNLOADED: Mapping[str, FileFact | str] = {
    "/sys/module/nvidia/version": ABSENT,
    "/proc/driver/nvidia/version": ABSENT,
    "/proc/modules": "xfs 1556480 2 - Live 0x0000000000000000\n",
    f"{PCI}/{GPU}/driver": ABSENT,
}
"""The box where nothing drives the card."""
NVML_DOWN: Mapping[str, Any] = {
    "@nvml": {"error": {"code": 9, "text": "NVML error 9: the NVIDIA driver is not loaded"}, "box": None}
}
MISMATCH: Mapping[str, Any] = {
    "@nvml": {"error": {"code": 18, "text": "NVML error 18: libraries 580.95.05, kernel 570.86.15"}, "box": None}
}


def log(*texts: str) -> dict[str, Any]:
    """The kernel log with these lines."""
    lines = [{"wall": 1782439200.0 + index, "text": text} for index, text in enumerate(texts)]
    return {"@kernel.log": {"source": "journal", "lines": lines}}


def cards(*named: tuple[str, str | None]) -> dict[str, Any]:
    """NVML with these cards: name and architecture."""
    gpus = [{"index": index, "name": name, "architecture": kind} for index, (name, kind) in enumerate(named)]
    return {"@nvml": {"error": None, "box": {"driver": DRIVER, "gpus": gpus}}}


def box(
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
) -> Facts:
    """The healthy box with changes."""
    return told(
        {**FILES, **(files or {})},
        {**COMMANDS, **(commands or {})},
        {**ANSWERS, **(answers or {})},
        variables={**VARIABLES, **(variables or {})},
    )


def asked(id_: str, facts: Facts) -> Finding:
    """What one check says, given what it needs."""
    found = needed.row(named(id_), facts)
    assert len(found.text) <= 130, found.text
    return found


def mended(found: Finding) -> Fix:
    """The fix of a finding that has one."""
    assert found.fix is not None, f"{found.id} has no fix: {found.text}"
    return found.fix
