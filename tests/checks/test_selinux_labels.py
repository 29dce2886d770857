"""C05 and C06: the nodes' labels, and how Triton is confined."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.selinux_labels import confined, device_labels
from console.core.facts import FileFact
from tests.checks.needed import finding
from tests.checks.selinux_told import ATTR, DEBIAN, ENFORCE, NO_PODMAN, PROCESS, ROOTFUL, box, container, labelled
from tests.checks.told import DENIED, folder

NODE = labelled("xserver_misc_device_t", "char")
PLAIN = labelled("device_t", "char")
DEV = {"/dev": folder("nvidia0", "nvidiactl", "nvidia-uvm")}


@pytest.mark.parametrize(
    ("nodes", "sign", "text"),
    [
        ({"/dev/nvidia0": NODE, "/dev/nvidiactl": NODE}, "ok", "xserver_misc_device_t on 2 nodes"),
        ({"/dev/nvidia0": NODE, "/dev/nvidia-uvm": PLAIN}, "warn", "/dev/nvidia-uvm is device_t"),
        ({"/dev/nvidia0": PLAIN, "/dev/nvidia-uvm": PLAIN}, "warn", "2 of 2 nodes"),
        ({"/dev/nvidia0": PLAIN, "/dev/nvidia-uvm": labelled("", "char")}, "warn", "/dev/nvidia0 is device_t"),
        ({"/dev/nvidia0": NODE, "/dev/nvidia-uvm": labelled("", "char")}, "unknown", "the labels of 1 nodes"),
        ({"/dev/nvidia0": labelled("nvidia_device_t", "char")}, "note", "nvidia_device_t: not what the policy gives"),
        ({"/dev/nvidia0": FileFact("char", label="\x00\xff")}, "unknown", "not told"),
        ({"/dev/nvidia-caps": folder("nvidia-cap1")}, "none", "no /dev/nvidia* nodes"),
        ({}, "none", "no /dev/nvidia* nodes"),
        ({"/dev": DENIED}, "unknown", "permission denied"),
    ],
)
def test_nodes(nodes: Any, sign: str, text: str) -> None:
    found = finding(device_labels, **box(files={**DEV, **nodes}))
    assert found.sign == sign
    assert text in found.text


def test_nodes_are_relabelled_and_back() -> None:
    fix = finding(device_labels, **box(files={"/dev/nvidia0": NODE, "/dev/nvidia-uvm": PLAIN})).fix
    assert fix is not None
    assert (fix.kind, fix.commands) == ("B", ("sudo restorecon -v /dev/nvidia-uvm",))
    assert [deed.argv for deed in fix.back] == [("chcon", "-t", "device_t", "/dev/nvidia-uvm")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"files": {ENFORCE: None}}, "SELinux is off"),
        ({"files": {ENFORCE: None, "/etc/os-release": DEBIAN}}, "AppArmor"),
        ({"variables": {"gpu": ()}}, "no NVIDIA device"),
    ],
)
def test_nodes_do_not_matter(changes: Any, text: str) -> None:
    found = finding(device_labels, **box(**changes))
    assert (found.sign, text in found.text) == ("none", True)


@pytest.mark.parametrize(
    ("inspect", "attr", "sign", "text"),
    [
        (container(), None, "ok", "container_t"),
        (container(), PROCESS + "\n", "ok", "container_t"),
        (container(ProcessLabel=""), None, "warn", "label separation is off (label=disable)"),
        (
            container(ProcessLabel="", HostConfig={"Privileged": True}),
            None,
            "warn",
            "label separation is off (it is privileged)",
        ),
        (container(), "system_u:system_r:spc_t:s0", "warn", "label separation is off"),
        (container(), "system_u:system_r:container_runtime_t:s0", "warn", "container_runtime_t: it works"),
        (container(), "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", "warn", "unconfined_t"),
        (container(ProcessLabel=""), PROCESS, "ok", "container_t"),
        (container(), "unconfined\n", "ok", "container_t"),
        (container(), DENIED, "ok", "container_t"),
        (container(ProcessLabel="\x00garbage"), None, "unknown", "is not told"),
        (container(ProcessLabel=7), None, "unknown", "is not told"),
        (None, None, "none", "no Triton container"),
        (NO_PODMAN, None, "unknown", "no socket"),
    ],
)
def test_confined(inspect: Any, attr: Any, sign: str, text: str) -> None:
    told = box(files={ATTR: attr})
    told["answers"]["@podman.inspect"] = inspect
    found = finding(confined, **told)
    assert found.sign == sign
    assert text in found.text


def test_nothing_is_said_of_the_security_option() -> None:
    """It is empty for containers that were made through the API."""
    inspect = container(HostConfig={"SecurityOpt": ["label=disable"]})
    assert finding(confined, **box(answers={"@podman.inspect": inspect})).sign == "ok"


@pytest.mark.parametrize(("ping", "start"), [(ROOTFUL, "sudo podman "), ({"rootless": True}, "podman ")])
def test_the_way_back_is_shown_only(ping: Any, start: str) -> None:
    answers = {"@podman.inspect": container(ProcessLabel=""), "@podman.ping": ping}
    fix = finding(confined, **box(answers=answers)).fix
    assert fix is not None
    assert (fix.kind, fix.deeds, fix.action) == ("S", (), "")
    assert fix.commands[0].startswith(start)
