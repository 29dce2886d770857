"""A07, A09, A10: the module on disk and what builds it."""

from __future__ import annotations

import pytest

from console.core.facts import CommandFact, Facts, FileFact
from tests.checks.driver_told import (
    CLOSED,
    DEB,
    DEBIAN,
    DRIVER,
    NEXT,
    RELEASE,
    RPM,
    THERE,
    UBUNTU,
    UNLOADED,
    asked,
    box,
    dead,
    link,
    mended,
)
from tests.checks.told import ABSENT, DENIED, folder

NO_GPU = box(variables={"gpu": ()})
TWO = {"next_release": (NEXT,)}
FILE = f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz"
NO_DKMS = {"/var/lib/dkms": ABSENT}
NO_MODINFO = {
    f"modinfo -F version {name}": CommandFact(1) for name in ("nvidia", "nvidia-current", "nvidia-current-open")
}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", f"there for {RELEASE}"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box({f"/lib/modules/{NEXT}/weak-updates/nvidia.ko": link(FILE)}, variables=TWO), "ok", "both kernels"),
        (box(variables=TWO), "warn", f"none for {NEXT}: a reboot now would lose the GPU"),
        (box({f"/lib/modules/{NEXT}/weak-updates/nvidia.ko": dead(FILE)}, variables=TWO), "warn", f"none for {NEXT}"),
        (
            box({f"/lib/modules/{NEXT}/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko": THERE}, variables=TWO),
            "warn",
            f"none for {NEXT}",
        ),
        (box({**UNLOADED, FILE: ABSENT}), "fail", f"none for the running kernel {RELEASE}"),
        (box({FILE: ABSENT}), "warn", "is loaded, and gone from disk"),
        (box(commands={"modinfo -F version nvidia": "590.44.01\n"}), "warn", "580.95.05 is loaded, 590.44.01 on disk"),
        (box(commands={"modinfo -F version nvidia": CommandFact(why="not installed")}), "ok", RELEASE),
        (
            box(
                {FILE: ABSENT, f"/lib/modules/{RELEASE}/updates/dkms/nvidia-current.ko.xz": THERE},
                {**NO_MODINFO, "modinfo -F version nvidia-current": f"{DRIVER}\n"},
            ),
            "ok",
            RELEASE,
        ),
        (box({FILE: ABSENT, f"/lib/modules/{RELEASE}/kernel/nvidia-580-open/nvidia.ko": THERE}), "ok", RELEASE),
        (box({FILE: ABSENT, f"/lib/modules/{RELEASE}": DENIED}), "unknown", "permission denied"),
        (box(variables={"release": ()}), "unknown", "kernel release that runs"),
    ],
)
def test_a07(facts: Facts, sign: str, said: str) -> None:
    found = asked("A07", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a07_builds_or_says_where_to_look() -> None:
    built = mended(asked("A07", box({f"/lib/modules/{NEXT}/build": THERE}, variables=TWO)))
    assert (built.kind, built.commands) == ("B", (f"sudo dkms autoinstall -k {NEXT}",))
    assert built.deeds[0].argv == ("dkms", "autoinstall", "-k", NEXT)
    assert built.deeds[0].seconds >= 600
    headless = mended(asked("A07", box(variables=TWO)))
    assert headless.kind == "S"
    assert headless.commands == (f"sudo dnf -y install kernel-devel-{NEXT}", f"sudo dkms autoinstall -k {NEXT}")
    debian = mended(asked("A07", box({"/etc/os-release": DEBIAN}, variables=TWO)))
    assert debian.commands[0] == f"sudo apt-get install -y linux-headers-{NEXT}"
    precompiled = mended(asked("A07", box(NO_DKMS, variables=TWO)))
    assert precompiled.commands[1] == f"sudo grubby --set-default=/boot/vmlinuz-{RELEASE}"
    ubuntu = mended(asked("A07", box({**NO_DKMS, "/etc/os-release": UBUNTU}, variables=TWO)))
    assert ubuntu.commands == (f"apt-cache search linux-modules-nvidia- | grep {NEXT}",)


def test_a07_names_the_precompiled_module_of_the_next_kernel() -> None:
    el = box(NO_DKMS, {RPM: f"kmod-nvidia-{DRIVER}-4.18.0-553\t{DRIVER}\n"}, variables=TWO)
    assert mended(asked("A07", el)).commands == (f"sudo dnf -y install kmod-nvidia-{DRIVER}-4.18.0-553.16.1",)
    kernels = {"release": ("5.15.0-126-generic",), "next_release": ("5.15.0-130-generic",)}
    there: dict[str, str | FileFact] = {
        "/lib/modules/5.15.0-126-generic/kernel/nvidia-535srv/nvidia.ko": THERE,
        "/etc/os-release": UBUNTU,
    }
    deb = {DEB: "linux-modules-nvidia-535-server-5.15.0-126-generic\t5.15.0-126.136\tinstall ok installed\n"}
    ubuntu = asked("A07", box({**NO_DKMS, **there}, deb, variables=kernels))
    assert mended(ubuntu).commands == ("sudo apt-get install -y linux-modules-nvidia-535-server-5.15.0-130-generic",)


def status(*lines: str) -> dict[str, str]:
    return {"dkms status": "".join(f"{line}\n" for line in lines)}


INSTALLED = f"nvidia-open/{DRIVER}, {RELEASE}, x86_64: installed"


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", f"{DRIVER} is installed for {RELEASE}"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(NO_DKMS), "none", "not built by DKMS"),
        (box({"/var/lib/dkms": folder("zfs")}), "none", "not built by DKMS"),
        (box(commands=status(INSTALLED, INSTALLED.replace(RELEASE, NEXT)), variables=TWO), "ok", "both kernels"),
        (box(commands=status(INSTALLED), variables=TWO), "warn", f"{DRIVER} is not built for {NEXT}, the next one"),
        (box(commands=status(f"nvidia-open/{DRIVER}: added")), "fail", "not built for the running kernel"),
        (box(commands=status(INSTALLED.replace("installed", "built"))), "fail", "only built, not installed,"),
        (
            box(commands=status(f"nvidia, 525.147.05, {RELEASE}, x86_64: installed")),
            "ok",
            "525.147.05 is installed",
        ),
        (
            box(commands=status(f"nvidia-current/525.147.05, {RELEASE}, x86_64: installed (original_module exists)")),
            "ok",
            "525.147.05",
        ),
        (
            box(commands=status(f"nvidia/570.86.15, {RELEASE}, x86_64: installed", f"nvidia/{DRIVER}: added")),
            "fail",
            f"{DRIVER} is not built",
        ),
        (box(commands={"dkms status": CommandFact(why="not installed")}), "unknown", "not installed"),
        (
            box(commands={"dkms status": CommandFact(1, "", "Error! Could not locate dkms.conf")}),
            "unknown",
            "cannot be",
        ),
        (box(commands=status("\x00nvidia\x00" * 500)), "unknown", "cannot be read"),
        (box(commands=status("zfs/2.1.5, 5.15: installed")), "none", "DKMS knows no nvidia module"),
        (box({"/var/lib/dkms": DENIED}), "unknown", "permission denied"),
    ],
)
def test_a09(facts: Facts, sign: str, said: str) -> None:
    found = asked("A09", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    if sign in ("warn", "fail"):
        assert "dkms autoinstall -k" in mended(found).commands[-1]


BUILD = f"/lib/modules/{RELEASE}/build"


@pytest.mark.parametrize(
    ("facts", "sign", "said", "commands"),
    [
        (box(), "ok", "headers, compiler and dkms", ()),
        (NO_GPU, "none", "no NVIDIA device", ()),
        (box(NO_DKMS), "none", "not built by DKMS", ()),
        (
            box({BUILD: dead("/usr/src/kernels/gone")}),
            "warn",
            f"missing: the headers of {RELEASE}",
            (f"sudo dnf -y install kernel-devel-{RELEASE}",),
        ),
        (
            box({BUILD: ABSENT, FILE: ABSENT, "/etc/os-release": UBUNTU}),
            "fail",
            "missing: the headers of",
            (f"sudo apt-get install -y linux-headers-{RELEASE}",),
        ),
        (box({"/usr/bin/g++": ABSENT}), "warn", "missing: g++", ("sudo dnf -y install gcc-c++",)),
        (box({"/usr/bin/g++": ABSENT, "/proc/driver/nvidia/version": CLOSED}), "ok", "headers", ()),
        (
            box({"/usr/sbin/dkms": ABSENT, "/usr/bin/gcc": ABSENT}),
            "warn",
            "missing: gcc, dkms",
            ("sudo dnf -y install epel-release", "sudo dnf -y install gcc dkms"),
        ),
        (box(variables=TWO), "warn", f"missing: the headers of {NEXT}", (f"sudo dnf -y install kernel-devel-{NEXT}",)),
        (box({BUILD: DENIED}), "unknown", "permission denied", ()),
    ],
)
def test_a10(facts: Facts, sign: str, said: str, commands: tuple[str, ...]) -> None:
    found = asked("A10", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    assert (found.fix.commands if found.fix else ()) == commands


def test_a10_shows_where_the_link_leads() -> None:
    found = asked("A10", box({BUILD: dead("/usr/src/kernels/gone")}))
    assert found.evidence[0].text == "-> /usr/src/kernels/gone, which is absent"
