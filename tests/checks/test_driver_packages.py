"""A11, A12, A13: where the driver came from."""

from __future__ import annotations

import pytest

from console.core.facts import CommandFact, Facts, FileFact
from tests.checks.driver_told import CLOSED, DEB, DEBIAN, DRIVER, RPM, THERE, UBUNTU, UNLOADED, asked, box, mended
from tests.checks.told import ABSENT, DENIED

NO_GPU = box(variables={"gpu": ()})
RUNFILE = {"/usr/bin/nvidia-uninstall": THERE, "/var/log/nvidia-installer.log": THERE}
MIXED = {RPM: "nvidia-driver\t575.64.03\nlibnvidia-ml\t575.64.03\nkmod-nvidia-open-dkms\t575.64\n"}
ON_UBUNTU = {"/etc/os-release": UBUNTU}


def debs(*rows: tuple[str, str]) -> dict[str, str]:
    return {DEB: "".join(f"{name}\t{version}\tinstall ok installed\n" for name, version in rows)}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", f"4 packages of {DRIVER}"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(commands=MIXED), "fail", "575.64 and 575.64.03 are mixed"),
        (box(commands={RPM: "libnvidia-ml\t580.95.05\nlibnvidia-ml\t570.86.15\n"}), "fail", "570.86.15 and 580.95.05"),
        (box(RUNFILE), "fail", "both packages and a runfile"),
        (box(RUNFILE, {RPM: "bash\t4.4\n"}), "note", "installed by a runfile"),
        (box(commands={RPM: "bash\t4.4\n"}), "note", "belongs to no package"),
        (box(UNLOADED, {RPM: "bash\t4.4\n"}), "none", "no driver is installed"),
        (
            box(commands={RPM: f"nvidia-driver\t{DRIVER}\nxorg-x11-drv-nvidia\t{DRIVER}\n"}),
            "warn",
            "two repositories: nvidia-driver and xorg-x11-drv-nvidia",
        ),
        (
            box(commands={RPM: f"nvidia-driver\t{DRIVER}\nkmod-nvidia-570.86.15-4.18.0-513.5.1\t570.86.15\n"}),
            "ok",
            "1 package of",
        ),
        (
            box(
                ON_UBUNTU,
                debs(
                    ("libnvidia-compute-550", "550.90.07-0ubuntu0.22.04.1"),
                    ("nvidia-dkms-550", "550.90.07-0ubuntu0.22.04.1"),
                    ("nvidia-settings", "510.47.03-0ubuntu1"),
                    ("linux-modules-nvidia-550-5.15.0-112-generic", "5.15.0-112.122"),
                ),
            ),
            "ok",
            "2 packages of 550.90.07",
        ),
        (
            box(ON_UBUNTU, debs(("libnvidia-compute-550", "550.120-0ubuntu1"), ("nvidia-dkms-550", "550.90.07-1"))),
            "fail",
            "550.90.07 and 550.120 are mixed",
        ),
        (
            box(
                {"/etc/os-release": DEBIAN},
                debs(
                    ("nvidia-driver", "525.147.05-4~deb12u1"),
                    ("nvidia-kernel-dkms", "525.147.05-4~deb12u1"),
                    ("nvidia-persistenced", "525.85.05-1"),
                    ("libnvidia-ml1", "525.147.05-4~deb12u1"),
                ),
            ),
            "ok",
            "3 packages of 525.147.05",
        ),
        (box(commands={RPM: CommandFact(why="too slow")}), "unknown", "too slow"),
        (box(commands={RPM: "\x00\xff\x00" * 100}), "unknown", "listed no packages"),
        (box({"/etc/os-release": "ID=arch\n"}, {RPM: CommandFact(why="not installed")}), "unknown", "not installed"),
    ],
)
def test_a11(facts: Facts, sign: str, said: str) -> None:
    found = asked("A11", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a11_never_touches_the_container_toolkit() -> None:
    mixed = mended(asked("A11", box(commands=MIXED)))
    assert mixed.commands == (
        "sudo dnf -y distro-sync kmod-nvidia-open-dkms libnvidia-ml nvidia-driver",
        "sudo systemctl reboot",
    )
    both = mended(asked("A11", box(RUNFILE)))
    assert both.commands[0] == "sudo /usr/bin/nvidia-uninstall"
    assert both.commands[1].startswith("sudo dnf -y reinstall kmod-nvidia-open-dkms")
    for fix in (mixed, both):
        assert (fix.kind, fix.deeds) == ("S", ())
        assert not any("container" in line or "*" in line or "remove" in line for line in fix.commands)


def stream(name: str, state: str = "enabled") -> dict[str, str | FileFact]:
    return {"/etc/dnf/modules.d/nvidia-driver.module": f"[nvidia-driver]\nstream={name}\nprofiles=\nstate={state}\n"}


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "note", "580-open"),
        (NO_GPU, "none", "no NVIDIA device"),
        (box(stream("open-dkms")), "note", "open-dkms: it goes on to each new branch"),
        (box(stream("latest-dkms")), "warn", "latest-dkms jumps to each new branch"),
        (box(stream("latest")), "warn", "latest jumps"),
        (box(stream("580-open", "disabled")), "note", "580-open is disabled"),
        (box(stream("", "unknown")), "none", "no nvidia-driver module stream"),
        (box(stream("\x00;rm", "enabled")), "unknown", "names no stream"),
        (box({"/etc/dnf/modules.d/nvidia-driver.module": ABSENT}), "none", "no nvidia-driver module stream"),
        (box({"/etc/dnf/modules.d/nvidia-driver.module": DENIED}), "unknown", "permission denied"),
        (box({"/etc/dnf/modules.d/nvidia-driver.module": "\xff" * 5000}), "none", "no nvidia-driver module stream"),
    ],
)
def test_a12(facts: Facts, sign: str, said: str) -> None:
    found = asked("A12", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a12_holds_to_the_branch_and_kind_that_run() -> None:
    opened = mended(asked("A12", box(stream("latest-dkms"))))
    assert opened.commands == (
        "sudo dnf -y module reset nvidia-driver",
        "sudo dnf -y module enable nvidia-driver:580-open",
    )
    closed = mended(asked("A12", box({**stream("latest-dkms"), "/proc/driver/nvidia/version": CLOSED})))
    assert closed.commands[1] == "sudo dnf -y module enable nvidia-driver:580-dkms"
    ready = mended(asked("A12", box({**stream("latest"), "/proc/driver/nvidia/version": CLOSED})))
    assert ready.commands[1] == "sudo dnf -y module enable nvidia-driver:580"
    assert asked("A12", box({**stream("latest"), **UNLOADED})).fix is None


PRECOMPILED = {RPM: f"dnf-plugin-nvidia\t2.2\nkmod-nvidia-{DRIVER}-4.18.0-553.5.1\t{DRIVER}\n"}
NOW = 1723200000.0  # 2024-08-09 10:40 UTC
HELD = (
    "2024-08-09T08:10:11+0200 WARNING NVIDIA driver: some kernel packages have been filtered due to missing "
    "precompiled modules.\n"
)
SKIPPED = (
    "2024-08-08T08:10:11+0000 ERROR  - package kernel-core-4.18.0-553.16.1.el8_10.x86_64 is filtered out by exclude "
    "filtering\n"
)


def dnf_log(text: str | FileFact, commands: dict[str, str] = PRECOMPILED, wall: float = NOW) -> Facts:
    facts = box({"/var/log/dnf.log": text}, commands)
    return Facts(
        wall=wall, files=facts.files, commands=facts.commands, answers=facts.answers, variables=facts.variables
    )


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (dnf_log(HELD), "warn", "dnf leaves out kernels"),
        (
            dnf_log("NOTE: Skipping kernel installation since no kernel module package kmod-nvidia-515"),
            "warn",
            "leaves",
        ),
        (dnf_log(SKIPPED), "warn", "dnf leaves out kernels"),
        (dnf_log(HELD, wall=NOW + 90 * 86400), "note", "dnf nvidia-plugin"),
        (dnf_log("2024-99-99T08:10:11Z WARNING NVIDIA driver: filtering kernel 4.18.0\n"), "warn", "leaves out"),
        (dnf_log("nothing of note\n"), "note", "dnf nvidia-plugin"),
        (dnf_log(HELD, {RPM: f"kmod-nvidia-open-dkms\t{DRIVER}\ndnf-plugin-nvidia\t2.2\n"}), "none", "no precompiled"),
        (dnf_log(DENIED), "unknown", "permission denied"),
        (dnf_log("\x00\xff" * 9000), "note", "precompiled"),
        (box({"/etc/os-release": DEBIAN}), "none", "no dnf"),
        (NO_GPU, "none", "no NVIDIA device"),
    ],
)
def test_a13(facts: Facts, sign: str, said: str) -> None:
    found = asked("A13", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a13_names_the_command_that_settles_it() -> None:
    assert asked("A13", dnf_log(DENIED)).settle == "dnf nvidia-plugin"
    assert mended(asked("A13", dnf_log(HELD))).commands[0] == "dnf nvidia-plugin"
