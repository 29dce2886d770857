"""A16, A17: device nodes and the links to them."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.facts import AnswerFact, Facts
from tests.checks.driver_told import GPU, PCI, THERE, UBUNTU, UNLOADED, asked, box, driven, mended, node
from tests.checks.told import ABSENT, DENIED

NO_GPU = box(variables={"gpu": ()})
SECOND = "0000:af:00.0"
PAIR = {"gpu": (GPU, SECOND)}
ROOTLESS: dict[str, Any] = {"@podman.ping": {"version": "4.9.4", "rootless": True}}
CLOSED = {f"/dev/nvidia{name}": node(195, number, 0o660, 39) for name, number in (("0", 0), ("ctl", 255))}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "4 nodes, open to all"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(UNLOADED), "none", "no nvidia driver is loaded"),
        (box({f"{PCI}/{GPU}/driver": driven("vfio-pci")}), "none", "nvidia drives no card"),
        (box({"/dev/nvidia-uvm": ABSENT, "/dev/nvidia-uvm-tools": ABSENT}), "fail", "missing: /dev/nvidia-uvm, /dev"),
        (box({"/dev/nvidia0": ABSENT}), "fail", "missing: /dev/nvidia0"),
        (box({f"{PCI}/{SECOND}/driver": driven("nvidia")}, variables=PAIR), "fail", "missing: /dev/nvidia1"),
        (box({f"{PCI}/{SECOND}/driver": driven("vfio-pci")}, variables=PAIR), "ok", "4 nodes"),
        (box({"/dev/nvidia-uvm-tools": ABSENT}), "warn", "/dev/nvidia-uvm-tools is missing"),
        (box({"/dev/nvidia0": THERE}), "fail", "/dev/nvidia0 is a file, not a device"),
        (box({"/dev/nvidia-uvm": node(238, 0)}), "fail", "/dev/nvidia-uvm has major 238, the driver's is 511"),
        (box({"/proc/devices": ABSENT}), "ok", "4 nodes"),
        (box({"/proc/devices": "\x00\xff\n" * 100}), "ok", "4 nodes"),
        (box(CLOSED, answers=ROOTLESS), "warn", "/dev/nvidia0 is 0660, group 39: rootless containers need that group"),
        (box(CLOSED), "note", "enough for rootful Podman"),
        (box(CLOSED, answers={"@podman.ping": AnswerFact(why="no socket")}), "warn", "not enough for rootless"),
        (box({"/sys/module/nvidia/version": DENIED}), "unknown", "permission denied"),
        (box({f"{PCI}/{GPU}/driver": DENIED}), "unknown", "permission denied"),
    ],
)
def test_a16(facts: Facts, sign: str, said: str) -> None:
    found = asked("A16", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    assert (found.fix is None) == (sign not in ("warn", "fail"))


def test_a16_makes_the_nodes() -> None:
    gone = {"/dev/nvidia-uvm": ABSENT, f"{PCI}/{SECOND}/driver": driven("nvidia")}
    fix = mended(asked("A16", box(gone, variables=PAIR)))
    assert fix.kind == "B"
    assert fix.commands == ("sudo nvidia-modprobe -c255 -c0 -c1", "sudo nvidia-modprobe -c0 -u")
    assert [f"sudo {' '.join(deed.argv)}" for deed in fix.deeds] == list(fix.commands)
    bare: dict[str, Any] = {"/dev/nvidia-uvm": ABSENT, "/usr/bin/nvidia-modprobe": ABSENT, "/etc/os-release": UBUNTU}
    by_hand = mended(asked("A16", box(bare)))
    assert (by_hand.kind, by_hand.commands[0]) == ("S", "sudo apt-get install -y nvidia-modprobe")


def test_a16_shows_who_closed_the_nodes() -> None:
    found = asked("A16", box(CLOSED, answers=ROOTLESS, variables={"user": ("triton",)}))
    assert found.evidence[0].text == "char 195:0 0660 0:39"
    assert found.evidence[-1].text == "DeviceFileMode: 438"
    assert mended(found).commands[0] == "sudo usermod -aG $(stat -c %G /dev/nvidia0) triton"


LINKLESS = {f"/dev/char/{numbers}": ABSENT for numbers in ("195:0", "195:255", "195:254", "511:0", "511:1")}


def podman(runtime: str, manager: str) -> dict[str, Any]:
    return {"@podman.info": {"host": {"ociRuntime": {"name": runtime}, "cgroupManager": manager}}}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "all 5"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(UNLOADED), "none", "no nvidia driver is loaded"),
        (box(LINKLESS), "warn", "5 of 5 missing: a daemon-reload may cut off the GPU"),
        (box({"/dev/char/511:1": ABSENT}), "warn", "1 of 5 missing"),
        (box(LINKLESS, answers=podman("crun", "systemd")), "ok", "not needed with crun and systemd"),
        (box(LINKLESS, answers=podman("runc", "cgroupfs")), "ok", "not needed with runc and cgroupfs"),
        (box(LINKLESS, answers={"@podman.info": AnswerFact(why="no socket")}), "unknown", "no socket"),
        (box(LINKLESS, answers={"@podman.info": ["garbage"]}), "unknown", "are not told"),
        (
            box({f"/dev/nvidia{name}": ABSENT for name in ("0", "ctl", "-modeset", "-uvm", "-uvm-tools")}),
            "none",
            "no device nodes",
        ),
    ],
)
def test_a17(facts: Facts, sign: str, said: str) -> None:
    found = asked("A17", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a17_makes_the_links_and_takes_them_back() -> None:
    fix = mended(asked("A17", box(LINKLESS)))
    assert (fix.kind, fix.commands) == ("B", ("sudo nvidia-ctk system create-dev-char-symlinks --create-all",))
    assert fix.back[0].argv[0] == "find"
    assert "udev" in fix.effect
