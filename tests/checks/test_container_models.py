"""E10: the model repository, as the container's user sees it."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.container_models import repository_readable
from console.core.facts import FileFact
from tests.checks.container_told import NOTHING, PID, container, finding
from tests.checks.told import DENIED

ROOT = "/data/models"
ROOTLESS = {"@podman.ping": {"rootless": True}}


def _path(kind: Any = "dir", mode: int = 0o755, uid: int = 0, gid: int = 0, **more: Any) -> FileFact:
    return FileFact(kind, mode=mode, uid=uid, gid=gid, **more)


def repository(**others: FileFact | None) -> dict[str, Any]:
    """One model; `others` by the last parts of their path, __ for /."""
    files: dict[str, Any] = {
        ROOT: _path(),
        f"{ROOT}/ranking": _path(),
        f"{ROOT}/ranking/config.pbtxt": _path("file", 0o644),
        f"{ROOT}/ranking/1": _path(),
        f"{ROOT}/ranking/1/model.plan": _path("file", 0o644),
    }
    return files | {f"{ROOT}/{name.replace('__', '/').replace('_dot_', '.')}": fact for name, fact in others.items()}


def process(uid: int, *groups: int, caps: str = "0", mapped: str = "0 0 4294967295") -> dict[str, str]:
    """What /proc tells of the container's first process."""
    rows = (f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}", f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}")
    status = "\n".join((*rows, f"Groups:\t{' '.join(map(str, groups))}", f"CapEff:\t{caps}"))
    return {f"/proc/{PID}/status": status, f"/proc/{PID}/uid_map": f"         {mapped}\n"}


CLOSED = _path("file", 0o600)


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({**repository(), **process(0, caps="800405fb")}, "ok", "5 paths readable, mounted read-only"),
        ({**repository(), **process(1000)}, "ok", "5 paths readable"),
        (
            {**repository(ranking__1__model_dot_plan=CLOSED), **process(1000)},
            "fail",
            "/data/models/ranking/1/model.plan (0600 0:0) is closed to uid 1000",
        ),
        ({**repository(ranking__1__model_dot_plan=CLOSED), **process(0, caps="800405fb")}, "ok", "5 paths"),
        ({**repository(ranking=_path(mode=0o700)), **process(1000)}, "fail", "/data/models/ranking (0700 0:0)"),
        ({**repository(ranking=_path(mode=0o750, gid=50)), **process(1000, 50)}, "ok", "5 paths"),
        ({**repository(ranking=_path(mode=0o750, gid=50)), **process(1000, 51)}, "fail", "ranking (0750 0:50)"),
        ({**repository(ranking=_path(mode=0o500, uid=1000)), **process(1000)}, "ok", "5 paths"),
        ({**repository(ranking=_path(mode=0o077, uid=1000)), **process(1000)}, "fail", "ranking (0077 1000:0)"),
        # rootless root: modes do not count for files of the users that its namespace knows
        (
            {**repository(ranking=_path(mode=0o700, uid=1001)), **process(1001, caps="7f", mapped="0 1001 1")},
            "ok",
            "5 paths",
        ),
        (
            {**repository(ranking=_path(mode=0o700, uid=0)), **process(1001, caps="7f", mapped="0 1001 1")},
            "fail",
            "closed to uid 1001",
        ),
        # loose and hidden files are nobody's models
        ({**repository(README=CLOSED, _dot_git=_path(mode=0o700)), **process(1000)}, "ok", "5 paths"),
        (
            {**repository(ranking__1=_path("file")), **process(1000)},
            "warn",
            "/data/models/ranking has no version folder",
        ),
        (
            {**repository(), f"{ROOT}/ranking/1": None, f"{ROOT}/ranking/1/model.plan": None, **process(0)},
            "warn",
            "no version",
        ),
        ({**process(0), ROOT: None}, "fail", "/data/models is not there"),
        ({**process(0), ROOT: DENIED}, "unknown", "permission denied"),
        (
            {**repository(ranking=_path(names=None, why="permission denied")), **process(1000)},
            "unknown",
            "permission denied",
        ),
        (
            {
                **repository(ranking=_path(names=None, why="permission denied")),
                f"{ROOT}/recall": _path(),
                f"{ROOT}/recall/1": _path(mode=0o700),
                **process(1000),
            },
            "fail",
            "/data/models/recall/1 (0700 0:0)",
        ),
    ],
)
def test_rights(files: Any, sign: str, text: str) -> None:
    found = finding(repository_readable, files=files)
    assert found.sign == sign
    assert text in found.text


def _made(user: Any = "", args: tuple[str, ...] = ("--model-repository=/models",), **more: Any) -> dict[str, Any]:
    return container(Config={"User": user}, Args=["tritonserver", *args], **more)


@pytest.mark.parametrize(
    ("inspect", "answers", "variables", "sign", "text"),
    [
        (_made(), {}, {}, "ok", "5 paths"),
        (_made("triton-server"), {}, {}, "fail", "closed to uid 1000"),
        (_made("1000:1000"), {}, {}, "fail", "closed to uid 1000"),
        (_made("somebody"), {}, {}, "unknown", "which number the user somebody of the image has"),
        (_made(), ROOTLESS, {"uid": ("1001",)}, "fail", "closed to uid 1001"),
        (_made("1000"), ROOTLESS, {"uid": ("1001",)}, "unknown", "which user of the host it would be"),
    ],
)
def test_who_it_will_be(inspect: Any, answers: Any, variables: Any, sign: str, text: str) -> None:
    """It does not run: the user that it was made with decides."""
    files = repository(ranking__1__model_dot_plan=CLOSED)
    variables = {"container_pid": (), **variables}
    found = finding(repository_readable, inspect=inspect, files=files, answers=answers, variables=variables)
    assert found.sign == sign
    assert text in found.text


BIND = {"Type": "bind", "Source": ROOT, "Destination": "/model", "RW": True}


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (_made(args=()), "fail", "names no --model-repository"),
        (container(Path="/start.sh", Args=[]), "unknown", "does not tell where the models are"),
        (_made(args=("--model-repository=s3://bucket/models",)), "note", "remote: s3://bucket/models"),
        (_made(Mounts=[]), "note", "the models are in the image"),
        (_made(Mounts=[], State={"Status": "exited"}), "warn", "no mount holds /models, and it does not run"),
        (_made(Mounts=[BIND], State={"Status": "exited"}), "fail", "no mount holds /models; /data/models is at /model"),
        (_made(Mounts="garbage"), "note", "in the image"),
        (_made(args=("--model-repository=/m",), Mounts=[{**BIND, "Destination": "/m"}]), "note", "/m is writable"),
        (
            _made(args=("--model-repository=/m/x",), Mounts=[{**BIND, "Destination": "/m"}]),
            "unknown",
            "was not looked at",
        ),
    ],
)
def test_where_it_is(inspect: Any, sign: str, text: str) -> None:
    found = finding(repository_readable, inspect=inspect, files=repository())
    assert found.sign == sign
    assert text in found.text


def test_a_wrong_mount_is_met_by_the_flag() -> None:
    fix = finding(repository_readable, inspect=_made(Mounts=[BIND], State={"Status": "exited"}), files=repository()).fix
    assert fix is not None
    assert fix.values == {"flags": "--model-repository=/model"}


def test_rights_are_given_by_hand() -> None:
    found = finding(repository_readable, files={**repository(ranking__1__model_dot_plan=CLOSED), **process(1000)})
    assert found.fix is not None
    assert (found.fix.kind, found.fix.deeds, found.fix.commands) == ("S", (), ("sudo chmod -R a+rX /data/models",))
    assert found.data["cause"] == "mode"


@pytest.mark.parametrize("broken", ["\x00\xff", "Uid:\tx\ty\nGid:\t1", "Uid:"])
def test_a_status_that_is_none(broken: str) -> None:
    """Then the user that it was made with counts."""
    assert finding(repository_readable, files={**repository(), f"/proc/{PID}/status": broken}).sign == "ok"


@pytest.mark.parametrize(("changes", "sign", "text"), NOTHING)
def test_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(repository_readable, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)
