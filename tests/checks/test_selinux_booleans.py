"""C03 and C04: rootful or rootless, the domain, and the booleans (host.md C03, C04)."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.selinux_booleans import device_access, narrow_boolean
from tests.checks.needed import finding
from tests.checks.selinux_told import (
    ATTR,
    DEBIAN,
    DEVICES,
    ENFORCE,
    NO_PODMAN,
    PROCESS,
    ROOTFUL,
    ROOTLESS,
    XSERVER,
    box,
    container,
)
from tests.checks.told import DENIED

SPC = "system_u:system_r:spc_t:s0"
INIT = "system_u:system_r:container_init_t:s0:c1,c2"
OWN = "system_u:system_r:my_triton.process:s0:c1,c2"


@pytest.mark.parametrize("booleans", [{DEVICES: "0 0"}, {DEVICES: "1 1"}, {DEVICES: None}])
@pytest.mark.parametrize("label", [PROCESS, "", SPC])
def test_rootful_needs_none(booleans: Any, label: str) -> None:
    answers = {"@podman.ping": ROOTFUL, "@podman.inspect": container(ProcessLabel=label)}
    found = finding(device_access, **box(files=booleans, answers=answers))
    assert (found.sign, found.data["mode"]) == ("note", "rootful")
    assert "in general not needed" in found.text
    assert found.fix is None


@pytest.mark.parametrize(
    ("label", "booleans", "sign", "text"),
    [
        (PROCESS, {DEVICES: "0 0"}, "fail", "off: rootless container_t may not open /dev/nvidia*"),
        (PROCESS, {DEVICES: "1 1"}, "ok", "container_use_devices is on"),
        (PROCESS, {DEVICES: "0 0", XSERVER: "1 1"}, "ok", "container_use_xserver_devices is on"),
        (PROCESS, {DEVICES: "0 0", XSERVER: "0 0"}, "fail", "off"),
        (PROCESS, {DEVICES: None}, "fail", "this policy has no such boolean"),
        (PROCESS, {DEVICES: "1 0"}, "warn", "container_use_devices is on, but off is pending"),
        (PROCESS, {DEVICES: "0 1"}, "fail", "off"),
        (INIT, {DEVICES: "0 0", XSERVER: "1 1"}, "fail", "rootless container_init_t"),
        (INIT, {DEVICES: "1 1"}, "ok", "container_use_devices is on"),
        ("", {DEVICES: "0 0"}, "ok", "not needed: label separation off"),
        (SPC, {DEVICES: "0 0"}, "ok", "not needed: spc_t"),
        (SPC, {DEVICES: None}, "ok", "not needed: spc_t"),
        (OWN, {DEVICES: "0 0"}, "note", "it runs as my_triton.process"),
        (None, {DEVICES: "0 0"}, "unknown", "the label that the container runs with is not told"),
        (PROCESS, {DEVICES: "garbage"}, "unknown", "does not hold two numbers"),
        (PROCESS, {DEVICES: DENIED}, "unknown", "permission denied"),
    ],
)
def test_rootless(label: str | None, booleans: Any, sign: str, text: str) -> None:
    found = finding(device_access, **box(files=booleans, answers={"@podman.inspect": container(ProcessLabel=label)}))
    assert found.sign == sign
    assert text in found.text


def test_the_process_outranks_the_inspect_answer() -> None:
    """SecurityOpt is never asked: containers made through the API say nothing there."""
    inspect = container(ProcessLabel="", HostConfig={"SecurityOpt": ["label=disable"]})
    found = finding(device_access, **box(files={ATTR: PROCESS + "\x00"}, answers={"@podman.inspect": inspect}))
    assert found.sign == "fail"
    assert found.evidence[0].where == ATTR


def test_permissive_only_logs() -> None:
    found = finding(device_access, **box(files={ENFORCE: "0"}))
    assert found.sign == "note"


@pytest.mark.parametrize("inspect", [None, "text", []])
def test_before_there_is_a_container(inspect: Any) -> None:
    """None of it fails yet: it is a step of bringing the box up."""
    told = box()
    told["answers"]["@podman.inspect"] = inspect
    told["variables"].pop("container_pid")
    found = finding(device_access, **told)
    assert found.sign == "warn"
    assert "a rootless container will not open the GPU" in found.text


@pytest.mark.parametrize(
    ("files", "name"),
    [({}, "container_use_devices"), ({XSERVER: "0 0"}, "container_use_xserver_devices")],
)
def test_the_narrowest_boolean_is_switched_on(files: Any, name: str) -> None:
    fix = finding(device_access, **box(files=files)).fix
    assert fix is not None
    assert fix.kind == "P"
    assert fix.commands == (f"sudo setsebool -P {name} on",)
    assert [deed.argv for deed in fix.deeds] == [("setsebool", "-P", name, "on")]
    assert [deed.argv for deed in fix.back] == [("setsebool", "-P", name, "off")]
    assert fix.deeds[0].seconds >= 60


def test_a_policy_without_booleans_is_updated_by_hand() -> None:
    fix = finding(device_access, **box(files={DEVICES: None})).fix
    assert fix is not None
    assert (fix.kind, fix.deeds) == ("S", ())


SKIPS = [
    ({"files": {ENFORCE: None}}, "SELinux is off"),
    ({"files": {ENFORCE: None, "/etc/os-release": DEBIAN}}, "AppArmor"),
    ({"variables": {"gpu": ()}}, "no NVIDIA device"),
    ({"files": {"/usr/bin/podman": None}, "answers": {"@podman.inspect": NO_PODMAN}}, "Podman is not installed"),
]


@pytest.mark.parametrize(("changes", "text"), SKIPS)
def test_skips(changes: Any, text: str) -> None:
    for judge in (device_access, narrow_boolean):
        found = finding(judge, **box(**changes))
        assert found.sign == "none"
        assert text in found.text


def test_podman_that_does_not_answer_is_unknown() -> None:
    answers = {"@podman.inspect": NO_PODMAN, "@podman.ping": NO_PODMAN}
    assert finding(device_access, **box(answers=answers)).sign == "unknown"


@pytest.mark.parametrize(
    ("booleans", "ping", "sign", "commands"),
    [
        ({DEVICES: "0 0"}, ROOTLESS, "ok", ()),
        ({DEVICES: "0 0", XSERVER: "1 1"}, ROOTLESS, "ok", ()),
        ({DEVICES: "1 1"}, ROOTLESS, "note", ()),
        (
            {DEVICES: "1 1", XSERVER: "0 0"},
            ROOTLESS,
            "warn",
            ("sudo setsebool -P container_use_xserver_devices on", "sudo setsebool -P container_use_devices off"),
        ),
        ({DEVICES: "1 1", XSERVER: "1 1"}, ROOTLESS, "warn", ("sudo setsebool -P container_use_devices off",)),
        (
            {DEVICES: "1 1", XSERVER: "0 0"},
            ROOTFUL,
            "warn",
            ("sudo setsebool -P container_use_xserver_devices on", "sudo setsebool -P container_use_devices off"),
        ),
        ({DEVICES: None}, ROOTLESS, "none", ()),
        ({DEVICES: DENIED}, ROOTLESS, "unknown", ()),
        ({DEVICES: "x y"}, ROOTLESS, "unknown", ()),
    ],
)
def test_narrow(booleans: Any, ping: Any, sign: str, commands: tuple[str, ...]) -> None:
    found = finding(narrow_boolean, **box(files=booleans, answers={"@podman.ping": ping}))
    assert (found.sign, found.fix.commands if found.fix else ()) == (sign, commands)
