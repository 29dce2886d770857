"""D03, D07 to D10: cgroup version, room, storage driver, log driver, network backend."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import podman_storage as checks
from console.core.facts import AnswerFact, FileFact, SpaceFact
from console.core.finding import Finding
from tests.checks.cdi_told import DEBIAN, NO_GPU, NOT_ASKED, ROOT, USER, files, inspect, ping
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT, folder

GRAPH = "/var/lib/containers/storage"
STORED = {**ROOT, "graph_root": (GRAPH,)}
CGROUP = "/sys/fs/cgroup/cgroup.controllers"
GB = 10**9


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    rootless: bool = False,
    variables: dict[str, tuple[str, ...]] | None = None,
    space: SpaceFact | None = None,
    **answers: Any,
) -> Finding:
    told: dict[str, Any] = {"@podman.ping": ping(rootless=rootless), "@podman.inspect": inspect()}
    told |= {f"@{name.replace('_', '.')}": value for name, value in answers.items()}
    spaces = {GRAPH: space or SpaceFact(free=200 * GB, total=400 * GB, fs="xfs", device="/dev/sda1", mount="/")}
    values = variables or ({**USER, "graph_root": (GRAPH,)} if rootless else STORED)
    return finding(judge, files({"/sys/fs/cgroup": folder(), **(changes or {})}), None, told, spaces, values)


@pytest.mark.parametrize(
    "judge",
    [
        checks.cgroup_version,
        checks.storage_room,
        checks.storage_driver,
        checks.log_driver,
        checks.network_backend,
    ],
)
def test_without_podman(judge: Judge) -> None:
    silent: dict[str, Any] = {"podman_ping": NOT_ASKED, "podman_inspect": NOT_ASKED, "podman_info": NOT_ASKED}
    no_one = {"gpu": ROOT["gpu"]}
    assert look(judge, {"/usr/bin/podman": ABSENT}, variables=no_one, **silent).text == "Podman is not installed"
    assert look(judge, variables=no_one, **silent).sign == "unknown"


# ----------------------------------------------------------------------------------------------------------------- D03


@pytest.mark.parametrize(
    ("changes", "rootless", "sign", "text"),
    [
        ({CGROUP: "cpuset cpu io memory\n"}, True, "ok", "cgroup v2"),
        ({}, False, "note", "cgroup v1, rootful: no Quadlet units"),
        ({}, True, "warn", "cgroup v1 and rootless: no figures, limits are left out"),
        ({"/sys/fs/cgroup": ABSENT}, True, "unknown", "no cgroup file system"),
        ({CGROUP: FileFact("unknown", why="permission denied")}, True, "unknown", "permission denied"),
    ],
)
def test_cgroup_version(changes: dict[str, Any], rootless: bool, sign: str, text: str) -> None:
    found = look(checks.cgroup_version, changes, rootless=rootless)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_unified_hierarchy_wants_a_boot() -> None:
    fix = look(checks.cgroup_version, rootless=True).fix
    assert fix is not None
    assert (fix.kind, fix.reboot, fix.deeds) == ("R", True, ())
    assert fix.commands == ('sudo grubby --update-kernel=ALL --args="systemd.unified_cgroup_hierarchy=1"',)
    fix = look(checks.cgroup_version, {"/etc/os-release": DEBIAN}, rootless=True).fix
    assert (fix and fix.commands[-1]) == "sudo update-grub"


# ----------------------------------------------------------------------------------------------------------------- D07


@pytest.mark.parametrize(
    ("free", "total", "container", "variables", "sign", "text"),
    [
        (200, 400, True, STORED, "ok", "186 GiB of 373 GiB free in /var/lib/containers/storage"),
        (150, 2000, True, STORED, "ok", "free in"),
        (60, 500, True, STORED, "warn", "55.9 GiB of 466 GiB"),
        (25, 100, True, STORED, "warn", "23.3 GiB"),
        (10, 100, True, STORED, "warn", "9.3 GiB"),
        (10, 100, False, STORED, "fail", "a Triton image takes 20 GB"),
        (10, 100, False, {**NO_GPU, "graph_root": (GRAPH,)}, "warn", "9.3 GiB"),
        (0.5, 100, True, STORED, "fail", "full"),
    ],
)
def test_room(free: float, total: float, container: bool, variables: Any, sign: str, text: str) -> None:
    space = SpaceFact(free=int(free * GB), total=int(total * GB))
    found = look(checks.storage_room, space=space, variables=variables, podman_inspect=inspect() if container else None)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_room_by_inodes_and_room_that_is_not_told() -> None:
    space = SpaceFact(free=200 * GB, total=400 * GB, inodes=1000, inodes_free=5)
    assert look(checks.storage_room, space=space).text == f"5 of 1000 inodes free in {GRAPH}"
    assert look(checks.storage_room, space=SpaceFact(why="timed out")).sign == "unknown"
    assert look(checks.storage_room, space=SpaceFact()).sign == "unknown"
    fix = look(checks.storage_room, rootless=True, space=SpaceFact(free=1, total=2)).fix
    assert (fix and fix.commands) == ("podman system df", "podman image prune")


# ----------------------------------------------------------------------------------------------------------------- D08


@pytest.mark.parametrize(
    ("store", "sign", "text"),
    [
        ({"graphDriverName": "overlay"}, "ok", "overlay"),
        ({"graphDriverName": "vfs"}, "warn", "vfs copies whole layers"),
        (
            {
                "graphDriverName": "overlay",
                "graphOptions": {"overlay.mount_program": {"Executable": "/usr/bin/fuse-overlayfs"}},
            },
            "note",
            "overlay by /usr/bin/fuse-overlayfs",
        ),
        ({"graphDriverName": "overlay", "graphOptions": {"overlay.mount_program": "x"}}, "ok", "overlay"),
        ({}, "unknown", "does not tell its driver"),
        (7, "unknown", "does not tell its driver"),
    ],
)
def test_storage_driver(store: Any, sign: str, text: str) -> None:
    found = look(checks.storage_driver, podman_info={"store": store})
    assert (found.sign, text in found.text) == (sign, True), found.text
    if sign == "warn":
        assert found.fix is not None
        reset = next(at for at, line in enumerate(found.fix.commands) if "system reset" in line)
        assert "storage.conf" in found.fix.commands[reset + 1]  # never changed before the reset


# ----------------------------------------------------------------------------------------------------------------- D09


@pytest.mark.parametrize(
    ("config", "sign", "text"),
    [
        ({"Type": "journald", "Size": "0B"}, "ok", "journald"),
        ({"Type": "k8s-file", "Size": "50MB"}, "ok", "k8s-file, up to 50MB"),
        ({"Type": "k8s-file", "Size": "0B"}, "warn", "k8s-file without a limit of size"),
        ({"Type": "json-file", "Size": ""}, "warn", "json-file without a limit"),
        ({"Type": "none"}, "fail", "none: nothing of what the server says is kept"),
        ({"Type": "passthrough"}, "note", "in the journal of its unit"),
        ({}, "unknown", "the log driver is not told"),
        (5, "unknown", "the log driver is not told"),
    ],
)
def test_log_driver(config: Any, sign: str, text: str) -> None:
    found = look(checks.log_driver, podman_inspect=inspect(host={"LogConfig": config}))
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize(
    ("rootless", "path"),
    [
        (False, "/etc/containers/containers.conf.d/50-log-size.conf"),
        (True, "/home/ana/.config/containers/containers.conf.d/50-log-size.conf"),
    ],
)
def test_a_limit_for_whose_container_it_is(rootless: bool, path: str) -> None:
    answer = inspect(host={"LogConfig": {"Type": "k8s-file"}})
    fix = look(checks.log_driver, rootless=rootless, podman_inspect=answer).fix
    assert fix is not None
    assert (fix.kind, fix.deeds[0].path, fix.deeds[0].root) == ("P", path, not rootless)
    assert fix.commands[1].startswith("printf '[containers]\\nlog_size_max = 52428800\\n' | ")
    assert look(checks.log_driver, podman_inspect=None).text == "no Triton container"


# ----------------------------------------------------------------------------------------------------------------- D10


@pytest.mark.parametrize(
    ("info", "sign", "text"),
    [
        ({"host": {"networkBackend": "netavark"}}, "note", "netavark"),
        ({"host": {"networkBackend": "cni"}}, "note", "cni"),
        ({"host": {}}, "unknown", "does not tell its backend"),
        ("x", "unknown", "does not tell its backend"),
        (AnswerFact(why="timed out"), "unknown", "timed out"),
    ],
)
def test_network_backend(info: Any, sign: str, text: str) -> None:
    found = look(checks.network_backend, podman_info=info)
    assert (found.sign, text in found.text) == (sign, True), found.text
