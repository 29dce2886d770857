"""A02, A21, A22: devices on the PCI bus."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.facts import AnswerFact, Facts
from tests.checks.driver_told import (
    DRIVER,
    GPU,
    NVML_DOWN,
    PCI,
    RELEASE,
    RPM,
    UBUNTU,
    UNLOADED,
    asked,
    box,
    driven,
    log,
    mended,
)
from tests.checks.told import ABSENT, DENIED, folder

SECOND = "0000:af:00.0"
PAIR = {"gpu": (GPU, SECOND)}
NONE: dict[str, tuple[str, ...]] = {"gpu": ()}
NO_FILE = {f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz": ABSENT}
LOST = log("NVRM: GPU at PCI:0000:3b:00: GPU-1", "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")


def owned(name: str) -> dict[str, Any]:
    return {f"{PCI}/{GPU}/driver": driven(name) if name else ABSENT}


@pytest.mark.parametrize(
    ("facts", "sign", "said", "command"),
    [
        (box(), "ok", "1 device, driven by nvidia", ""),
        (box({f"{PCI}/{SECOND}/driver": driven("nvidia")}, variables=PAIR), "ok", "2 devices, driven by nvidia", ""),
        (box(owned("nouveau")), "fail", f"{GPU} is driven by nouveau", "dracut --force"),
        (box(owned("vfio-pci")), "fail", f"{GPU} is driven by vfio-pci", ""),
        (box(UNLOADED), "fail", f"{GPU} has no driver", "sudo modprobe nvidia"),
        (box({**UNLOADED, **NO_FILE}), "fail", "has no driver", "sudo dkms autoinstall -k"),
        (box({**UNLOADED, **NO_FILE, "/var/lib/dkms": ABSENT}), "fail", "has no driver", "nvidia-driver:open-dkms"),
        (
            box({f"{PCI}/{SECOND}/driver": driven("vfio-pci")}, variables=PAIR),
            "warn",
            f"{SECOND} is driven by vfio",
            "",
        ),
        (box({**owned("nouveau"), "/etc/os-release": ABSENT}), "fail", "driven by nouveau", ""),
        (box(variables=NONE), "fail", "though the driver is loaded", "lspci"),
        (box(UNLOADED, variables=NONE), "fail", "though its driver is installed", "lspci"),
        (box({**UNLOADED, **NO_FILE}, variables=NONE), "none", "no NVIDIA device", ""),
        (box({**UNLOADED, **NO_FILE}, answers=LOST, variables=NONE), "fail", "fallen off the bus", "dmesg"),
        (
            box({**UNLOADED, **NO_FILE}, answers={"@kernel.log": AnswerFact(why="needs root")}, variables=NONE),
            "none",
            "no NVIDIA device",
            "",
        ),
        (box({f"{PCI}/{GPU}/driver": DENIED}), "unknown", "permission denied", ""),
    ],
)
def test_a02(facts: Facts, sign: str, said: str, command: str) -> None:
    found = asked("A02", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if command:
        assert any(command in line for line in mended(found).commands)


def test_a02_tells_the_owner() -> None:
    found = asked("A02", box(owned("nouveau")))
    assert found.evidence[0].where == f"{PCI}/{GPU}/driver"
    assert found.evidence[0].text == "nouveau"
    assert found.data["owner"] == "nouveau"


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "none"),
        (box(variables=NONE), "none", "no NVIDIA device"),
        (box(owned("vfio-pci")), "fail", f"vfio-pci holds {GPU}"),
        (box({f"{PCI}/{SECOND}/driver": driven("vfio-pci")}, variables=PAIR), "warn", f"vfio-pci holds {SECOND}"),
        (box({f"{PCI}/{GPU}/driver": DENIED}), "unknown", "permission denied"),
    ],
)
def test_a21(facts: Facts, sign: str, said: str) -> None:
    found = asked("A21", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a21_gives_the_card_back_where_it_was_given_away() -> None:
    argument = mended(asked("A21", box({**owned("vfio-pci"), "/proc/cmdline": "ro vfio-pci.ids=10de:1eb8\n"})))
    assert argument.kind == "R"
    assert argument.commands[0] == "sudo grubby --update-kernel=ALL --remove-args=vfio-pci.ids=10de:1eb8"
    option = box({**owned("vfio-pci"), "/etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:1eb8\n"})
    by_hand = mended(asked("A21", option))
    assert by_hand.kind == "S"
    assert by_hand.commands[0] == f"echo {GPU} | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind"
    assert "/etc/modprobe.d/vfio.conf" in by_hand.effect


SWITCH = {"/proc/driver/nvidia-nvswitch/devices": folder("0000:c1:00.0", "0000:c2:00.0")}
CLASS = {f"{PCI}/0000:c1:00.0/vendor": "0x10de\n", f"{PCI}/0000:c1:00.0/class": "0x068000\n"}
BRIDGE = {f"{PCI}/0000:00:1f.0/vendor": "0x8086\n", f"{PCI}/0000:00:1f.0/class": "0x068000\n"}


def fabric(active: str, load: str = "loaded") -> dict[str, Any]:
    return {"@units": {"nvidia-fabricmanager.service": {"ActiveState": active, "LoadState": load}}}


def package(version: str) -> dict[str, str]:
    return {RPM: f"nvidia-fabric-manager\t{version}\n"}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "none", "no NVSwitch"),
        (box(variables=NONE), "none", "no NVIDIA device"),
        (box(BRIDGE), "none", "no NVSwitch"),
        (box(SWITCH, package(DRIVER), fabric("active")), "ok", f"2 NVSwitches, Fabric Manager {DRIVER} runs"),
        (box(CLASS, {RPM: ""}, fabric("active")), "ok", "Fabric Manager runs"),
        (box(SWITCH, package("570.86.15"), fabric("active")), "fail", f"Fabric Manager 570.86.15, driver {DRIVER}"),
        (box(SWITCH, package(DRIVER), fabric("failed")), "fail", "Fabric Manager is failed"),
        (box(SWITCH, answers=fabric("inactive", "not-found")), "fail", "Fabric Manager is inactive"),
        (box(SWITCH, answers=fabric("activating")), "note", "is starting"),
        (box({**SWITCH, **UNLOADED}, answers={**NVML_DOWN, **fabric("inactive")}), "none", "no nvidia driver"),
        (box(SWITCH), "unknown", "nvidia-fabricmanager"),
        (box(SWITCH, answers={"@units": AnswerFact(why="no systemd")}), "unknown", "no systemd"),
    ],
)
def test_a22(facts: Facts, sign: str, said: str) -> None:
    found = asked("A22", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if sign == "fail":
        assert mended(found).kind == "S"


def test_a22_installs_the_version_of_the_driver() -> None:
    absent = fabric("inactive", "not-found")
    assert mended(asked("A22", box(SWITCH, answers=absent))).commands == (
        f"sudo dnf -y install nvidia-fabric-manager-{DRIVER}",
        "sudo systemctl enable --now nvidia-fabricmanager.service",
    )
    ubuntu = asked("A22", box({**SWITCH, "/etc/os-release": UBUNTU}, answers=absent))
    assert mended(ubuntu).commands[0] == "sudo apt-get install -y nvidia-fabricmanager-580"
