"""H01, H02, H05, H07."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import storage
from console.core.facts import FileFact, SpaceFact
from tests.checks.host_told import GIB, NO_PODMAN, PODMAN, container, facts_for, said
from tests.checks.told import DENIED

MODELS = {"models": ("/data/models",)}
TWO = {"models": ("/data/models", "/srv/more")}


def space(free: int, total: int, fs: str = "xfs", inodes: tuple[int, int] | None = None) -> SpaceFact:
    left, all_ = inodes or (900, 1000)
    return SpaceFact(free, total, left, all_, fs, "/dev/nvme0n1p1", "/data")


@pytest.mark.parametrize(
    ("spaces", "variables", "sign", "text"),
    [
        ({"/data/models": space(400 * GIB, 900 * GIB)}, MODELS, "ok", "400 GiB of 900 GiB (44 %) free"),
        ({"/data/models": space(30 * GIB, 900 * GIB)}, MODELS, "ok", "30.0 GiB of 900 GiB (3 %) free"),
        ({"/data/models": space(4 * GIB, 900 * GIB)}, MODELS, "warn", "4.0 GiB of 900 GiB are free at /data/models"),
        (
            {"/data/models": space(400 * GIB, 900 * GIB, inodes=(1, 1000))},
            MODELS,
            "warn",
            "0 % of the inodes are free at /data/models",
        ),
        ({"/data/models": space(400 * GIB, 900 * GIB, "nfs4", (0, 0))}, MODELS, "ok", None),
        ({}, MODELS, "unknown", "/data/models: not asked"),
        ({"/srv/more": space(4 * GIB, 900 * GIB)}, TWO, "warn", "4.0 GiB of 900 GiB are free at /srv/more"),
        ({"/srv/more": space(400 * GIB, 900 * GIB)}, TWO, "unknown", "/data/models: not asked"),
        ({"/data/models": SpaceFact(fs="xfs")}, MODELS, "unknown", "/data/models: its size is not told"),
        ({}, {}, "none", "no model repository on this host is known"),
    ],
)
def test_h01(spaces: dict[str, SpaceFact], variables: dict[str, tuple[str, ...]], sign: str, text: str | None) -> None:
    finding = said(storage.room, facts_for(storage.room, spaces=spaces, variables=variables))
    assert finding.sign == sign
    assert text is None or finding.text == text


@pytest.mark.parametrize(
    ("fs", "sign", "text"),
    [
        ("xfs", "ok", "xfs"),
        ("ext4", "ok", "ext4"),
        ("nfs4", "warn", "/data/models is nfs4: goes over the network, no SELinux labels"),
        ("vfat", "warn", "/data/models is vfat: keeps no owners and labels"),
        ("fuse.s3fs", "warn", "/data/models is fuse.s3fs: goes through a user's program"),
        ("tmpfs", "note", "tmpfs: the models are gone after a reboot"),
        ("lustre", "note", "lustre: neither a usual local one nor a known slow one"),
        ("", "unknown", "/data/models: the kind of its file system is not told"),
        (None, "unknown", "/data/models: not asked"),
    ],
)
def test_h02(fs: str | None, sign: str, text: str) -> None:
    spaces = {"/data/models": space(1, 2, fs)} if fs is not None else {}
    finding = said(storage.filesystem, facts_for(storage.filesystem, spaces=spaces, variables=MODELS))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.data == {"fs": fs}


def test_h02_without_models() -> None:
    assert said(storage.filesystem, facts_for(storage.filesystem)).sign == "none"


def test_h02_one_unknown_folder_does_not_hide_another_one() -> None:
    facts = facts_for(storage.filesystem, spaces={"/srv/more": space(1, 2, "cifs")}, variables=TWO)
    assert said(storage.filesystem, facts).sign == "warn"


@pytest.mark.parametrize(
    ("free", "files", "inspect", "sign", "text"),
    [
        (40 * GIB, PODMAN, NO_PODMAN, "ok", "40.0 GiB are free"),
        (4 * GIB, PODMAN, None, "warn", "4.0 GiB are free; the pull of a Triton image takes 10.0 GiB"),
        (4 * GIB, PODMAN, container(), "note", "4.0 GiB are free; the pull of a Triton image takes 10.0 GiB"),
        (4 * GIB, PODMAN, NO_PODMAN, "unknown", "/run/podman/podman.sock: no such file"),
        (None, PODMAN, None, "unknown", "/var/tmp: not asked"),
        (4 * GIB, {}, NO_PODMAN, "none", "Podman is not installed"),
    ],
)
def test_h05(free: int | None, files: dict[str, FileFact], inspect: Any, sign: str, text: str) -> None:
    spaces = {"/var/tmp": space(free, 50 * GIB)} if free is not None else {}
    facts = facts_for(storage.pull_room, dict(files), answers={"@podman.inspect": inspect}, spaces=spaces)
    finding = said(storage.pull_room, facts)
    assert (finding.sign, finding.text) == (sign, text)


def made(mode: int, uid: int = 0) -> FileFact:
    return FileFact("dir", mode=mode, uid=uid, gid=0)


OPEN: dict[str, str | FileFact] = {"/data/models": made(0o755), "/data/models/rank": made(0o755)}
ROOTFUL = {"@podman.ping": {"rootless": False}}
ROOTLESS = {"@podman.ping": {"rootless": True}}
USER = MODELS | {"uid": ("1000",), "user": ("ops",)}


def as_user(user: str, status: str = "exited") -> dict[str, Any]:
    return container(status) | {"Config": {"User": user}}


@pytest.mark.parametrize(
    ("files", "answers", "sign", "text"),
    [
        (OPEN, {}, "ok", "0755 of user 0, 1 folder below"),
        (
            {"/data/models": made(0o750)},
            ROOTFUL | {"@podman.inspect": as_user("")},
            "ok",
            "0750 of user 0, 0 folders below",
        ),
        (
            {"/data/models": made(0o750)},
            ROOTFUL | {"@podman.inspect": as_user("1000")},
            "fail",
            "/data/models: 0750 of user 0, the server's user may not enter",
        ),
        ({"/data/models": made(0o700, 1000)}, ROOTFUL | {"@podman.inspect": as_user("1000:1000")}, "ok", None),
        ({"/data/models": made(0o700, 1000)}, ROOTLESS | {"@podman.inspect": as_user("root")}, "ok", None),
        (
            OPEN | {"/data/models/rank": made(0o700), "/data/models/lm": made(0o700)},
            ROOTLESS | {"@podman.inspect": as_user("")},
            "fail",
            "/data/models/lm and 1 more: 0700 of user 0, the server's user may not enter",
        ),
        ({"/data/models": made(0o700)}, ROOTLESS | {"@podman.inspect": as_user("", "running")}, "warn", None),
        ({"/data/models": made(0o750)}, {}, "unknown", "not asked"),
        (
            OPEN | {"/data/models": made(0o777)},
            {},
            "warn",
            "/data/models is 0777 of user 0: every user may lay down a model",
        ),
        (OPEN | {"/data/models": made(0o1777)}, {}, "ok", None),
        ({"/data/models": DENIED}, {}, "unknown", "/data/models: permission denied"),
        ({"/data/models": "a file"}, {}, "unknown", "/data/models is no folder whose rights are told"),
        ({}, {}, "unknown", "/data/models is no folder whose rights are told"),
    ],
)
def test_h07(files: dict[str, str | FileFact], answers: dict[str, Any], sign: str, text: str | None) -> None:
    finding = said(storage.rights, facts_for(storage.rights, files, answers=answers, variables=USER))
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_h07_without_models() -> None:
    assert said(storage.rights, facts_for(storage.rights)).sign == "none"


def test_names_of_folders_are_quoted() -> None:
    facts = facts_for(storage.rights, {"/a b": made(0o777)}, variables={"models": ("/a b",)})
    fix = said(storage.rights, facts).fix
    assert fix is not None
    assert fix.commands == ("sudo chmod o-w '/a b'",)
