"""C01, C02, C09, C10: mode, configuration, policy package, the label of podman."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.selinux_state import container_policy, podman_label, selinux_config, selinux_mode
from console.core.facts import CommandFact, FileFact
from tests.checks.needed import finding
from tests.checks.selinux_told import DEBIAN, DEVICES, ENFORCE, box, labelled
from tests.checks.told import DENIED

RPM = r"rpm -qa --qf '%{NAME}\t%{VERSION}\n'"
PODMAN = "/usr/bin/podman"


@pytest.mark.parametrize(
    ("files", "sign", "text", "kind"),
    [
        ({ENFORCE: "1"}, "ok", "enforcing", ""),
        ({ENFORCE: "0\n"}, "warn", "permissive", "S"),
        ({ENFORCE: None}, "warn", "nothing on this box is confined", "R"),
        ({ENFORCE: None, "/etc/os-release": DEBIAN}, "none", "AppArmor", ""),
        ({ENFORCE: "1", "/etc/os-release": DEBIAN}, "ok", "enforcing", ""),
        ({ENFORCE: "\x00\xff"}, "unknown", "neither 0 nor 1", ""),
        ({ENFORCE: ""}, "unknown", "neither 0 nor 1", ""),
        ({ENFORCE: DENIED}, "unknown", "permission denied", ""),
    ],
)
def test_mode(files: Any, sign: str, text: str, kind: str) -> None:
    found = finding(selinux_mode, **box(files=files))
    assert (found.sign, found.fix.kind if found.fix else "") == (sign, kind)
    assert text in found.text


def test_to_disable_is_never_offered() -> None:
    for files in ({ENFORCE: "0"}, {ENFORCE: None}):
        fix = finding(selinux_mode, **box(files=files)).fix
        assert fix is not None
        assert not fix.deeds
        assert "disabled" not in " ".join(fix.commands)


def test_the_way_to_enforcing_is_told() -> None:
    off = finding(selinux_mode, **box(files={ENFORCE: None})).fix
    assert off is not None
    assert "sudo fixfiles -F onboot" in off.commands
    assert "SELINUX=permissive" in off.commands[0]
    logged = finding(selinux_mode, **box(files={ENFORCE: "0"})).fix
    assert logged is not None
    assert "sudo setenforce 1" in logged.commands
    assert "C02" in logged.effect


@pytest.mark.parametrize(
    ("now", "config", "sign", "text", "command"),
    [
        ("1", "# c\nSELINUX=enforcing\nSELINUXTYPE=targeted\n", "ok", "enforcing now and after a reboot", ""),
        ("1", "SELINUX=permissive\n", "warn", "enforcing now, permissive after a reboot", "SELINUX=enforcing"),
        ("1", "SELINUX=disabled\n", "warn", "enforcing now, disabled after a reboot", "SELINUX=enforcing"),
        ("0", "SELINUX=enforcing\n", "warn", "permissive now, enforcing after a reboot", "setenforce 1"),
        ("0", "SELINUX=disabled\n", "warn", "permissive now, disabled", "SELINUX=permissive"),
        (None, "SELINUX=enforcing\n", "warn", "disabled now, enforcing after a reboot", "/proc/cmdline"),
        (None, "SELINUX=disabled\n", "ok", "disabled now", ""),
        ("1", "SELINUX=enforcin\n", "warn", "no mode that there is: enforcin", "SELINUX=enforcing"),
        ("1", "nothing\n", "warn", "none", "SELINUX=enforcing"),
        ("1", None, "unknown", "there is no /etc/selinux/config", ""),
        (None, None, "none", "SELinux is off", ""),
    ],
)
def test_config(now: str | None, config: str | None, sign: str, text: str, command: str) -> None:
    found = finding(selinux_config, **box(files={ENFORCE: now, "/etc/selinux/config": config}))
    assert found.sign == sign
    assert text in found.text
    assert command in (" ".join(found.fix.commands) if found.fix else "")


def test_the_file_of_debian_says_nothing() -> None:
    """Debian ships one that says permissive beside AppArmor."""
    files = {ENFORCE: None, "/etc/os-release": DEBIAN, "/etc/selinux/config": "SELINUX=permissive\n"}
    assert finding(selinux_config, **box(files=files)).sign == "none"


@pytest.mark.parametrize(
    ("files", "commands", "sign", "text"),
    [
        ({}, {RPM: "bash\t4.4.20\ncontainer-selinux\t2.229.0\n"}, "ok", "container-selinux 2.229.0"),
        ({}, {RPM: "bash\t4.4.20\n"}, "fail", "is not installed"),
        ({ENFORCE: "0"}, {RPM: "bash\t4.4.20\n"}, "warn", "is not installed"),
        ({}, {}, "ok", "its version is not told"),
        ({DEVICES: None}, {}, "unknown", "rpm is not installed"),
        ({DEVICES: None}, {RPM: CommandFact(1, "\x00garbage")}, "unknown", "listed no packages"),
        ({PODMAN: None}, {}, "none", "Podman is not installed"),
        ({ENFORCE: None}, {}, "none", "SELinux is off"),
    ],
)
def test_policy_package(files: Any, commands: Any, sign: str, text: str) -> None:
    found = finding(container_policy, **box(files=files, commands=commands))
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("podman", "sign", "text"),
    [
        (labelled("container_runtime_exec_t"), "ok", "container_runtime_exec_t"),
        (labelled("bin_t"), "warn", "bin_t where container_runtime_exec_t belongs"),
        (labelled("unlabeled_t"), "warn", "unlabeled_t"),
        (labelled("own_runtime_t"), "note", "own_runtime_t"),
        (labelled(""), "unknown", "is not told"),
        (FileFact("file", label="garbage"), "unknown", "is not told"),
        (DENIED, "unknown", "permission denied"),
        (None, "none", "Podman is not installed"),
    ],
)
def test_podman_label(podman: FileFact | None, sign: str, text: str) -> None:
    found = finding(podman_label, **box(files={PODMAN: podman}))
    assert found.sign == sign
    assert text in found.text


def test_podman_is_relabelled_and_back() -> None:
    fix = finding(podman_label, **box(files={PODMAN: labelled("bin_t")})).fix
    assert fix is not None
    assert fix.kind == "B"
    assert fix.deeds[0].argv == ("restorecon", "-v", PODMAN)
    assert fix.back[0].argv == ("chcon", "-t", "bin_t", PODMAN)
