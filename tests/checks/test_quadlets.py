"""K04."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from console.checks import quadlets
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import says
from tests.checks.told import DENIED, folder, told

PATH = "/etc/containers/systemd/triton.container"
PLAIN = """[Unit]
After=network-online.target
[Container]
Image=nvcr.io/nvidia/tritonserver:24.05-py3
ContainerName=triton
AddDevice=nvidia.com/gpu=all
PodmanArgs=--stop-timeout=60
Volume=/data/models:/models:ro,z
Exec=tritonserver --model-repository=/models
[Install]
WantedBy=multi-user.target
"""


def box(
    text: str | FileFact | None = PLAIN,
    podman: str = "4.9.4",
    v2: bool = True,
    answers: Mapping[str, Any] | None = None,
    user: str = "root",
) -> Facts:
    """A box with this Quadlet file; None = none."""
    home = "/root" if user == "root" else f"/home/{user}"
    here = PATH if user == "root" else f"{home}/.config/containers/systemd/triton.container"
    files: dict[str, str | FileFact] = {
        "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n" if v2 else FileFact("absent"),
        "/etc/containers/systemd": folder("triton.container") if text is not None else FileFact("absent"),
        f"{home}/.config/containers/systemd": folder("triton.container"),
        "/usr/share/containers/systemd": folder(),
    }
    if text is not None:
        files[here] = text
    given = {"@podman.ping": {"version": podman, "rootless": user != "root"}, **(answers or {})}
    names = {"user": (user,), "home": (home,), "container": ("triton",)}
    return told(files, {}, given, variables=names)


def more(*lines: str) -> str:
    return PLAIN.replace("ContainerName=triton\n", "ContainerName=triton\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "triton.container: Podman 4.9.4 knows every key"),
        (box(more("ShmSize=1g", "Ulimit=memlock=-1")), "ok", "knows every key"),
        (box(more("StopTimeout=60")), "fail", "StopTimeout= needs Podman 5.0, this is 4.9.4: no unit is made"),
        (box(more("StopTimeout=60"), "5.4.0"), "ok", "knows every key"),
        (box(more("StopTimeout=60", "GroupAdd=keep-groups")), "fail", "StopTimeout= and 1 more need Podman 5.1"),
        (box(more("ShmSize=1g"), "4.6.1"), "fail", "ShmSize= needs Podman 4.7"),
        (box(v2=False), "fail", "this host has cgroup v1"),
        (box(podman="4.3.1"), "fail", "Podman 4.3.1 knows no Quadlet"),
        (box(podman=""), "unknown", "version is not told"),
        (box(answers={"@podman.ping": AnswerFact(why="no socket")}), "unknown", "no socket"),
        (box(None), "none", "no Quadlet file"),
        (box("[Container]\nImage=docker.io/library/nginx\n"), "none", "no Quadlet file"),
        (box("\x00\xff===[[["), "none", "no Quadlet file"),
        (box(DENIED), "unknown", "permission denied"),
        (box(FileFact("file", why="permission denied")), "unknown", "permission denied"),
    ],
)
def test_quadlet(facts: Facts, sign: str, text: str) -> None:
    found = says(quadlets, "K04", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_key_that_is_too_new_is_said_in_the_old_way() -> None:
    found = says(quadlets, "K04", box(more("StopTimeout=60")))
    assert found.evidence[0].where == f"{PATH}:6"
    assert found.fix is not None
    assert found.fix.kind == "P"
    assert found.fix.commands[0] == f"sudo sed -i 's|^StopTimeout=|PodmanArgs=--stop-timeout=|' {PATH}"
    assert found.fix.deeds[0].argv == ("sed", "-i", "s|^StopTimeout=|PodmanArgs=--stop-timeout=|", PATH)
    assert found.fix.deeds[-1].argv == ("systemctl", "daemon-reload")
    assert found.fix.deeds[0].path == PATH, "kept, and put back as it was"
    assert [one.argv for one in found.fix.back] == [("systemctl", "daemon-reload")]
    unsayable = says(quadlets, "K04", box(more("Pod=serving.pod")))
    assert unsayable.fix is not None
    assert (unsayable.fix.kind, unsayable.fix.deeds) == ("S", ())


def test_a_users_file_is_mended_without_root() -> None:
    found = says(quadlets, "K04", box(more("StopTimeout=60"), user="ana"))
    assert found.fix is not None
    assert found.fix.commands[-1] == "systemctl --user daemon-reload"
    assert not any(one.root for one in found.fix.deeds)


def test_on_cgroup_v1_a_service_takes_its_place() -> None:
    found = says(quadlets, "K04", box(v2=False))
    assert found.fix is not None
    assert (found.fix.action, dict(found.fix.values)) == ("unit.write", {"kind": "service"})
