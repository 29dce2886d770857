"""D04 to D06, D12: subordinate ids, lingering, groups of the device nodes, Python."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import podman_user as checks
from console.core.facts import AnswerFact, FileFact
from console.core.finding import Finding
from tests.checks import cdi_told as box
from tests.checks.cdi_told import NO_GPU, NOT_ASKED, ROOT, USER, files, inspect, ping
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT

LINGER = "/var/lib/systemd/linger/ana"
SESSION = FileFact("dir", mode=0o700, uid=1000, gid=1000)
GOOD: dict[str, Any] = {
    "/etc/subuid": "ana:100000:65536\n",
    "/etc/subgid": "ana:100000:65536\n",
    LINGER: "",
    "/run/user/1000": SESSION,
    "/etc/group": "root:x:0:\nvideo:x:44:ben\n",
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n",
}
INFO = {"store": {"runRoot": "/run/user/1000/containers"}, "host": {"ociRuntime": {"name": "crun"}}}


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    variables: dict[str, tuple[str, ...]] | None = None,
    **answers: Any,
) -> Finding:
    told: dict[str, Any] = {"@podman.ping": ping(rootless=True), "@podman.inspect": inspect(), "@podman.info": INFO}
    told |= {"@me": {"uid": 1000, "groups": ["ana"]}}
    told |= {f"@{name.replace('_', '.')}": value for name, value in answers.items()}
    return finding(judge, files({**GOOD, **(changes or {})}), None, told, None, variables or USER)


@pytest.mark.parametrize("judge", [checks.subordinate_ids, checks.lingers, checks.device_groups])
def test_where_it_does_not_apply(judge: Judge) -> None:
    assert look(judge).sign == "ok"
    assert look(judge, podman_ping=ping(), variables=ROOT).text == "rootful Podman"
    silent: dict[str, Any] = {"podman_ping": NOT_ASKED, "podman_inspect": NOT_ASKED}
    assert look(judge, {"/usr/bin/podman": ABSENT}, **silent).sign == "none"
    unknown = {name: value for name, value in USER.items() if name != "uid"}
    found = look(judge, variables=unknown, **silent)
    assert (found.sign, found.text) == ("unknown", NOT_ASKED.why)


# ----------------------------------------------------------------------------------------------------------------- D04


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({}, "ok", "ana: 65536 ids"),
        ({"/etc/subuid": "1000:100000:65536\n"}, "ok", "65536"),
        ({"/etc/subuid": "ana:100000:30000\nana:200000:40000\n"}, "ok", "65536"),
        ({"/etc/subuid": ABSENT}, "fail", "/etc/subuid has no range for ana"),
        ({"/etc/subgid": "ben:100000:65536\n"}, "fail", "/etc/subgid has no range for ana"),
        ({"/etc/subuid": "ana:100000:1000\n"}, "warn", "/etc/subuid gives ana 1000 ids, 65536 are wanted"),
        ({"/etc/subuid": "\x00\xffana:x:y\nana:1:2:3\nana:-5:70000\nana:" + "9" * 5000 + ":1"}, "fail", "no range"),
        ({"/etc/subuid": FileFact("file", why="permission denied")}, "unknown", "permission denied"),
        ({"/etc/nsswitch.conf": "subid: files sss\n", "/etc/subuid": ""}, "unknown", "directory service"),
        ({"/etc/nsswitch.conf": "subid: files\n"}, "ok", "65536"),
    ],
)
def test_subordinate_ids(changes: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.subordinate_ids, changes)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_range_that_is_free() -> None:
    changes = {"/etc/subuid": "ben:100000:65536\n", "/etc/subgid": "ben:100000:65536\nana:165536:65536\n"}
    fix = look(checks.subordinate_ids, changes).fix
    assert fix is not None
    assert fix.kind == "P"
    assert fix.commands[0] == "sudo usermod --add-subuids 231072-296607 ana"
    assert [deed.argv[0] for deed in fix.deeds] == ["usermod", "podman"]
    assert (fix.deeds[0].path, fix.deeds[1].root) == ("/etc/subuid", False)
    assert fix.undo == "sudo usermod --del-subuids 231072-296607 ana"
    fix = look(checks.subordinate_ids, changes, me={"uid": 0}).fix
    assert (fix and fix.deeds) == ()
    few = dict.fromkeys(("/etc/subuid", "/etc/subgid"), "ana:100000:1000\n")
    fix = look(checks.subordinate_ids, few).fix  # a container may run, and `system migrate` stops it
    assert (fix and fix.deeds) == ()


# ----------------------------------------------------------------------------------------------------------------- D05


@pytest.mark.parametrize(
    ("changes", "answers", "sign", "text"),
    [
        ({}, {}, "ok", "ana lingers"),
        ({LINGER: ABSENT}, {}, "fail", "ana does not linger: Triton ends at logout"),
        ({LINGER: ABSENT}, {"podman_inspect": None}, "none", "no Triton container"),
        ({"/run/user/1000": ABSENT}, {}, "fail", "/run/user/1000 is not there"),
        ({"/run/user/1000": FileFact("dir", uid=0)}, {}, "fail", "/run/user/1000 is of user 0"),
        ({}, {"podman_info": {"store": {"runRoot": "/tmp/podman-run-1000"}}}, "warn", "state is in /tmp/podman-run"),
        ({}, {"podman_info": AnswerFact(why="timed out")}, "unknown", "timed out"),
        ({LINGER: ABSENT}, {"podman_info": AnswerFact(why="timed out")}, "fail", "does not linger"),
        ({LINGER: FileFact("unknown", why="permission denied")}, {}, "unknown", "permission denied"),
    ],
)
def test_lingers(changes: dict[str, Any], answers: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.lingers, changes, **answers)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_linger_is_enabled_and_disabled_again() -> None:
    fix = look(checks.lingers, {LINGER: ABSENT}).fix
    assert fix is not None
    assert (fix.kind, fix.deeds[0].argv, fix.back[0].argv) == (
        "B",
        ("loginctl", "enable-linger", "ana"),
        ("loginctl", "disable-linger", "ana"),
    )


# ----------------------------------------------------------------------------------------------------------------- D06

SHUT: dict[str, Any] = {"/dev/nvidia0": FileFact("char", mode=0o660, uid=0, gid=44)}
KEEPS = inspect(config={"Annotations": {"run.oci.keep_original_groups": "1"}})


@pytest.mark.parametrize(
    ("changes", "answers", "sign", "text"),
    [
        ({}, {}, "ok", "the nodes are for everybody"),
        (SHUT, {}, "fail", "ana is not in video, /dev/nvidia0 is 0660 0:44"),
        (SHUT, {"me": {"uid": 1000, "groups": ["ana", "video"]}}, "warn", "does not keep video"),
        (SHUT, {"me": {"uid": 1000, "groups": ["ana", "44"]}}, "warn", "does not keep video"),
        (SHUT, {"me": {"uid": 1000, "groups": ["video"]}, "podman_inspect": KEEPS}, "ok", "the container keeps it"),
        (SHUT, {"me": {"uid": 1000, "groups": ["video"]}, "podman_inspect": None}, "ok", "ana is in video"),
        (SHUT, {"me": {"uid": 0, "groups": []}}, "fail", "ana is not in video"),
        ({**SHUT, "/etc/group": "video:x:44:ben,ana\n"}, {"me": {"uid": 0}}, "warn", "does not keep video"),
        ({**SHUT, "/etc/passwd": "ana:x:1000:44::/h:/b\n"}, {"me": {"uid": 0}}, "warn", "does not keep video"),
        ({**SHUT, "/etc/group": "\x00\xff::", "/etc/passwd": ":::"}, {"me": {"uid": 0}}, "fail", "ana is not in 44"),
        ({**SHUT, "/etc/group": FileFact("file", why="denied")}, {"me": {"uid": 0}}, "unknown", "denied"),
        ({"/dev/nvidia0": FileFact("char", mode=0o600, uid=0, gid=0)}, {}, "fail", "only its owner may"),
        (dict.fromkeys(("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")), {}, "none", "no device nodes"),
    ],
)
def test_device_groups(changes: dict[str, Any], answers: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.device_groups, changes, **answers)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_device_groups_without_a_card() -> None:
    assert look(checks.device_groups, SHUT, variables={**NO_GPU, "uid": ("1000",)}).text == "no NVIDIA device"
    fix = look(checks.device_groups, SHUT).fix
    assert (fix and (fix.kind, fix.commands)) == ("S", ("sudo usermod -aG video ana",))


# ----------------------------------------------------------------------------------------------------------------- D12


@pytest.mark.parametrize(
    ("changes", "me", "text"),
    [
        ({}, {"python": "3.12.4"}, "gpuconsole runs with Python 3.12.4"),
        ({"/usr/bin/python3.11": box.PROGRAM, "/usr/bin/python3.6": box.PROGRAM}, {}, "/usr/bin/python3.11 is here"),
        ({"/usr/bin/python3.6": box.PROGRAM, "/usr/bin/python3.x": box.PROGRAM}, AnswerFact(why="x"), "no Python 3.11"),
        ({}, {}, "no Python 3.11 in /usr/bin"),
    ],
)
def test_python(changes: dict[str, Any], me: Any, text: str) -> None:
    found = look(checks.python, changes, me=me)
    assert (found.sign, text in found.text) == ("note", True), found.text
