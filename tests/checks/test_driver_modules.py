"""A05, A06, A08, A18, A19: the loaded driver."""

from __future__ import annotations

import pytest

from console.core.facts import AnswerFact, CommandFact, Facts
from tests.checks.driver_told import (
    CLOSED,
    DEBIAN,
    DRIVER,
    GPU,
    MISMATCH,
    MODULES,
    NO_MODULE,
    NVML_DOWN,
    PCI,
    RELEASE,
    ROCKY,
    THERE,
    UBUNTU,
    UNLOADED,
    asked,
    box,
    cards,
    driven,
    link,
    log,
    mended,
)
from tests.checks.told import ABSENT, DENIED

NO_GPU = box(variables={"gpu": ()})
NO_UVM = {"/proc/modules": "\n".join(line for line in MODULES.splitlines() if "nvidia_uvm" not in line)}
NO_FILE = {f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz": ABSENT}
NO_DRIVER = {**NO_FILE, "/var/lib/dkms": ABSENT}
NO_MODINFO = {f"modinfo -F {f} {n}": NO_MODULE for f in ("version", "license") for n in ("nvidia", "nvidia-current")}
NO_MODINFO |= {f"modinfo -F {f} nvidia-current-open": NO_MODULE for f in ("version", "license")}


@pytest.mark.parametrize(
    ("facts", "sign", "said", "command"),
    [
        (box(), "ok", f"nvidia {DRIVER} and nvidia_uvm", ""),
        (NO_GPU, "none", "no NVIDIA device", ""),
        (box({f"{PCI}/{GPU}/driver": driven("vfio-pci")}), "none", "virtual machines", ""),
        (box(NO_UVM), "fail", "nvidia_uvm is not loaded", "sudo modprobe nvidia-uvm"),
        (box(UNLOADED), "fail", "nvidia is not loaded", "sudo modprobe nvidia"),
        (box({**UNLOADED, **NO_DRIVER}), "fail", f"kernel {RELEASE} has no such module", "nvidia-driver:open-dkms"),
        (box({**UNLOADED, **NO_FILE}), "fail", f"kernel {RELEASE} has no such module", "sudo dkms autoinstall -k"),
        (box({**UNLOADED, "/proc/modules": "nouveau 1 0 - Live 0x0\n"}), "fail", "nouveau is", "sudo dracut --force"),
        (box({**UNLOADED, "/etc/os-release": ABSENT}), "fail", "nvidia is not loaded", ""),
        (box({"/proc/modules": ABSENT}), "unknown", "there is no /proc/modules", ""),
        (box({f"{PCI}/{GPU}/driver": DENIED}), "unknown", "permission denied", ""),
        (box({"/proc/modules": "\x00\xff\n" * 50}), "unknown", "lists no modules", ""),
    ],
)
def test_a05(facts: Facts, sign: str, said: str, command: str) -> None:
    found = asked("A05", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if command:
        assert any(command in line for line in mended(found).commands)


def test_a05_loads_what_is_missing_and_unloads_it_again() -> None:
    fix = mended(asked("A05", box(NO_UVM)))
    assert fix.kind == "B"
    assert fix.commands == ("sudo modprobe nvidia-uvm", "sudo nvidia-modprobe -c0 -u")
    assert [deed.argv for deed in fix.deeds] == [("modprobe", "nvidia-uvm"), ("nvidia-modprobe", "-c0", "-u")]
    assert [deed.argv for deed in fix.back] == [("modprobe", "-r", "nvidia_uvm")]
    assert "B10" in fix.again
    both = mended(asked("A05", box(UNLOADED)))
    assert both.commands[-2:] == ("sudo nvidia-modprobe -c255 -c0", "sudo nvidia-modprobe -c0 -u")
    bare = mended(asked("A05", box({**NO_UVM, "/usr/bin/nvidia-modprobe": ABSENT})))
    assert bare.commands == ("sudo modprobe nvidia-uvm",)


@pytest.mark.parametrize(
    ("os", "wanted", "never"),
    [
        (ROCKY, ("sudo dnf -y install epel-release", f"kernel-devel-{RELEASE} gcc gcc-c++ make dkms"), "cuda-drivers"),
        ('ID="rhel"\nVERSION_ID="8.10"\n', ("epel-release-latest-8.noarch.rpm", "nvidia-driver:open-dkms"), "remove"),
        ('ID="rhel"\nVERSION_ID="10.1"\n', ("epel-release-latest-10", "sudo dnf -y install nvidia-open"), "module"),
        (DEBIAN, (f"linux-headers-{RELEASE} nvidia-driver",), "dnf"),
        (UBUNTU, ("sudo ubuntu-drivers install --gpgpu",), "dnf"),
    ],
)
def test_a05_installs_a_driver_the_way_of_the_distribution(os: str, wanted: tuple[str, ...], never: str) -> None:
    fix = mended(asked("A05", box({**UNLOADED, **NO_DRIVER, "/etc/os-release": os})))
    text = "\n".join(fix.commands)
    assert all(one in text for one in wanted), text
    assert never not in text
    assert (fix.kind, fix.reboot, fix.deeds) == ("S", True, ())


OLD = {"/sys/module/nvidia/version": "570.86.15\n"}
NO_LIBRARY = {"/usr/lib64/libnvidia-ml.so.1": ABSENT, f"/usr/lib64/libnvidia-ml.so.{DRIVER}": ABSENT}
DEBIAN_LIBRARY = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so"


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", f"both {DRIVER}"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(UNLOADED), "none", "no nvidia driver is loaded"),
        (box(OLD), "fail", f"kernel 570.86.15, libraries {DRIVER}"),
        (box(OLD, answers=MISMATCH), "fail", f"kernel 570.86.15, libraries {DRIVER}"),
        (box({**OLD, **NO_LIBRARY}, answers=MISMATCH), "fail", "NVML refuses kernel 570.86.15"),
        (box(NO_LIBRARY, answers=NVML_DOWN), "unknown", "was not found"),
        (box(NO_LIBRARY), "ok", "NVML works with it"),
        (
            box(
                {
                    **NO_LIBRARY,
                    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": link("/etc/alternatives/glx--libnvidia-ml.so.1"),
                    f"{DEBIAN_LIBRARY}.1": link(f"libnvidia-ml.so.{DRIVER}"),
                    f"{DEBIAN_LIBRARY}.{DRIVER}": THERE,
                }
            ),
            "ok",
            f"both {DRIVER}",
        ),
        (box({"/usr/lib64/libnvidia-ml.so.570.86.15": THERE}), "ok", f"both {DRIVER}"),
        (
            box(
                {"/usr/lib64/libnvidia-ml.so.570.86.15": THERE, "/usr/lib64/libnvidia-ml.so.1": ABSENT},
                answers=NVML_DOWN,
            ),
            "unknown",
            "several libnvidia-ml are on disk: 570.86.15, 580.95.05",
        ),
        (box({"/sys/module/nvidia/version": "\x00garbage"}), "fail", "libraries"),
        (box(answers={"@nvml": AnswerFact(why="no library of NVML")}), "ok", "both"),
    ],
)
def test_a06(facts: Facts, sign: str, said: str) -> None:
    found = asked("A06", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a06_shows_both_lines_and_tells_what_verdicts_link_by() -> None:
    found = asked("A06", box(OLD))
    assert [(one.where, one.text) for one in found.evidence] == [
        ("/sys/module/nvidia/version", "570.86.15"),
        ("/usr/lib64/libnvidia-ml.so.1", f"-> libnvidia-ml.so.{DRIVER}"),
    ]
    assert found.data == {"driver": "570.86.15", "library": DRIVER}


def test_a06_reboots_a_busy_box_and_reloads_on_an_idle_one() -> None:
    busy = mended(asked("A06", box(OLD)))
    assert (busy.kind, busy.reboot, busy.commands) == ("R", True, ("sudo systemctl reboot",))
    quiet = {"/proc/modules": MODULES.replace("6602752 4 -", "6602752 0 -")}
    idle = mended(asked("A06", box({**OLD, **quiet})))
    assert (idle.kind, idle.reboot, idle.deeds) == ("S", False, ())
    assert idle.commands[1:4] == (
        "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia",
        "sudo modprobe nvidia",
        "sudo modprobe nvidia-uvm",
    )
    assert "B07" in idle.again


def test_a06_builds_a_module_that_was_not_built() -> None:
    """The packages are new, DKMS failed: a reload would bring the old module back."""
    facts = box(OLD, {"modinfo -F version nvidia": "570.86.15\n"})
    fix = mended(asked("A06", facts))
    assert fix.commands == (f"sudo dkms autoinstall -k {RELEASE}",)
    assert fix.kind == "B"
    assert "A reboot must follow" in fix.effect
    by_hand = mended(
        asked("A06", box({**OLD, "/var/lib/dkms": ABSENT}, {"modinfo -F version nvidia": CommandFact(why="too slow")}))
    )
    assert by_hand.kind == "R"


PASCAL = cards(("Tesla P40", "Pascal"))
BLACKWELL = cards(("NVIDIA B200", "Blackwell"))
PROPRIETARY = {"/proc/driver/nvidia/version": CLOSED}
NO_GSP = log(
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1b38)",
    "NVRM: installed in this system is not supported by open",
    "NVRM: nvidia.ko because it does not include the required GPU",
)
WANTS_OPEN = log("NVRM: installed in this system requires use of the NVIDIA open kernel modules.")
NO_CARDS = cards()


@pytest.mark.parametrize(
    ("facts", "sign", "said", "command"),
    [
        (box(), "ok", "the open module on Ampere", ""),
        (NO_GPU, "none", "no NVIDIA device", ""),
        (box(answers=PASCAL), "fail", "the open module does not drive this GPU: Tesla P40 is Pascal", "580-dkms"),
        (box(answers={**NO_CARDS, **NO_GSP}), "fail", "the kernel log says so", "nvidia-driver:580-dkms"),
        (box(PROPRIETARY, answers=BLACKWELL), "fail", "NVIDIA B200 is Blackwell", "nvidia-driver:580-open"),
        (box(PROPRIETARY, answers={**NO_CARDS, **WANTS_OPEN}), "fail", "the kernel log says so", "580-open"),
        (box(PROPRIETARY, answers=cards(("NVIDIA GH200 480GB", "Hopper"))), "fail", "GH200", "580-open"),
        (box(answers=BLACKWELL), "ok", "the open module on Blackwell", ""),
        (box(PROPRIETARY), "warn", "proprietary module 580.95.05 on Ampere", "switch-to nvidia-driver:580-open"),
        (box({**PROPRIETARY, "/sys/module/nvidia/version": "550.90.07\n"}), "ok", "proprietary module on Ampere", ""),
        (box(PROPRIETARY, answers=PASCAL), "ok", "the proprietary module on Pascal", ""),
        (box(answers=cards(("odd", None))), "unknown", "architecture", ""),
        (box(UNLOADED, answers=NVML_DOWN), "unknown", "architecture is told by the driver only", ""),
        (box({**UNLOADED, **NO_FILE}, NO_MODINFO, NVML_DOWN), "none", "neither loaded nor on disk", ""),
        (box(UNLOADED, {"modinfo -F license nvidia": ""}, NVML_DOWN), "unknown", "licence", ""),
        (box(answers={"@nvml": "garbage"}), "unknown", "architecture", ""),
    ],
)
def test_a08(facts: Facts, sign: str, said: str, command: str) -> None:
    found = asked("A08", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if command:
        assert any(command in line for line in mended(found).commands), mended(found).commands


@pytest.mark.parametrize(
    ("os", "line"),
    [
        (ROCKY, "sudo dnf -y module switch-to nvidia-driver:580-open --allowerasing"),
        ('ID="rhel"\nVERSION_ID="10.1"\n', "sudo dnf -y install --allowerasing nvidia-open"),
        (DEBIAN, "sudo apt-get install -y --autoremove --purge nvidia-open"),
        (UBUNTU, "sudo apt-get install -y --autoremove --purge nvidia-open nvidia-driver-open"),
    ],
)
def test_a08_switches_by_the_distributions_way(os: str, line: str) -> None:
    fix = mended(asked("A08", box({**PROPRIETARY, "/etc/os-release": os}, answers=BLACKWELL)))
    assert fix.commands == (line, "sudo systemctl reboot")
    assert (fix.kind, fix.deeds) == ("S", ())


NO_FIRMWARE = {f"/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin": ABSENT}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", f"of {DRIVER}"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(UNLOADED), "none", "no nvidia driver is loaded"),
        (box(NO_FIRMWARE), "fail", f"none of {DRIVER}"),
        (
            box({**NO_FIRMWARE, "/lib/firmware/nvidia/570.86.15/gsp_tu10x.bin": THERE}),
            "fail",
            f"none of {DRIVER} (there is 570.86.15)",
        ),
        (box({**NO_FIRMWARE, **PROPRIETARY}), "note", "the proprietary module can do without"),
        (
            box(answers={**NVML_DOWN, **log("NVRM: GPU 0000:3b:00.0: Cannot initialize GSP firmware RM")}),
            "fail",
            "did not start",
        ),
        (box(answers=log("NVRM: Cannot initialize GSP firmware RM")), "ok", f"of {DRIVER}"),
        (box(answers={**NVML_DOWN, "@kernel.log": AnswerFact(why="needs root")}), "ok", f"of {DRIVER}"),
        (box({"/sys/module/nvidia/version": DENIED}), "unknown", "permission denied"),
    ],
)
def test_a18(facts: Facts, sign: str, said: str) -> None:
    found = asked("A18", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


@pytest.mark.parametrize(
    ("os", "line"),
    [
        (ROCKY, "sudo dnf -y reinstall nvidia-kmod-common"),
        (UBUNTU, f"sudo apt-get install -y --reinstall nvidia-firmware-580-{DRIVER}"),
        (DEBIAN, "sudo apt-get install -y --reinstall firmware-nvidia-gsp"),
    ],
)
def test_a18_reinstalls_the_package_that_holds_it(os: str, line: str) -> None:
    assert mended(asked("A18", box({**NO_FIRMWARE, "/etc/os-release": os}))).commands[0] == line


INIT = "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1417)"
CLASH = "NVRM: API mismatch: the client has the version 580.95.05, but"
LOADING = f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}"


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "no such line"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(UNLOADED), "none", "no nvidia driver is loaded"),
        (box(answers={**NVML_DOWN, **log(LOADING, INIT)}), "fail", "the driver could not start the card"),
        (box(answers={**MISMATCH, **log(LOADING, CLASH)}), "fail", "another version (A06, B07)"),
        (box(answers={**cards(), **log(INIT)}), "fail", "could not start the card"),
        (box(answers=log(LOADING, INIT)), "note", "1 line of earlier"),
        (box(answers={**NVML_DOWN, **log(INIT, LOADING)}), "ok", "no such line"),
        (box(answers=log(CLASH, CLASH)), "warn", "2 lines: a program's library"),
        (box(answers={**log(INIT), "@nvml": AnswerFact(why="no NVML here")}), "warn", "is not told"),
        (
            box(UNLOADED, answers={**NVML_DOWN, **log("NVRM: None of the NVIDIA devices were initialized.")}),
            "fail",
            "the driver started no card",
        ),
        (box(answers={"@kernel.log": AnswerFact(why="needs root", settle="sudo dmesg")}), "unknown", "needs root"),
        (box(answers={"@kernel.log": 7}), "unknown", "could not be read"),
        (box(answers=log("\x00\xff" * 4000)), "ok", "no such line"),
    ],
)
def test_a19(facts: Facts, sign: str, said: str) -> None:
    found = asked("A19", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if sign in ("warn", "fail"):
        assert "RmInit" in found.evidence[-1].text or "NVRM" in found.evidence[-1].text
        assert mended(found).kind == "S"
