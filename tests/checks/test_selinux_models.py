"""C07: labels of the model repository."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.selinux_models import RULES, model_labels
from console.core.facts import FileFact, SpaceFact
from tests.checks.needed import finding
from tests.checks.selinux_told import ATTR, DEBIAN, ENFORCE, NO_PODMAN, box, container, labelled
from tests.checks.told import DENIED

NFS, SAMBA = (f"/sys/fs/selinux/booleans/virt_use_{name}" for name in ("nfs", "samba"))
GOOD, HOME, PLAIN = "container_file_t", "user_home_t", "default_t"
SEMANAGE = {"/usr/sbin/semanage": FileFact("file")}


def repository(root: str = "/data/models", type_: str = GOOD, **others: FileFact) -> dict[str, FileFact]:
    """Two models of one version each; `others` by the last parts of their path, __ for /."""
    paths = {"": "dir", "/ranking": "dir", "/ranking/config.pbtxt": "file", "/ranking/1": "dir"}
    paths |= {"/ranking/1/model.plan": "file", "/recall": "dir", "/recall/2": "dir", "/recall/2/model.onnx": "file"}
    found = {root + path: labelled(type_, kind) for path, kind in paths.items()}
    return found | {f"{root}/{name.replace('__', '/')}": fact for name, fact in others.items()}


def _box(files: Any, inspect: Any = None, fs: str = "xfs", **changes: Any) -> dict[str, Any]:
    told = box(files={**SEMANAGE, **files}, **changes)
    told["spaces"] = {path: SpaceFact(fs=fs) for path in told["variables"].get("models", ())}
    if inspect is not None:
        told["answers"]["@podman.inspect"] = inspect
    return told


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        (repository(), "ok", "container_file_t on 8 paths"),
        (repository(type_="container_ro_file_t"), "ok", "container_ro_file_t"),
        (repository(type_="container_share_t"), "ok", "container_share_t"),
        (repository(type_=PLAIN), "fail", "/data/models is default_t (8 of 8 paths)"),
        (repository(type_="unlabeled_t"), "fail", "unlabeled_t"),
        (repository(type_="var_t"), "fail", "var_t"),
        (repository(recall__2=labelled(HOME, "dir")), "fail", "/data/models/recall/2 is user_home_t"),
        (
            repository(ranking__3=labelled(HOME, "dir"), ranking__3__model_plan=labelled(HOME)),
            "fail",
            "/data/models/ranking/3 is user_home_t (2 of 10 paths)",
        ),
        (repository(type_="mnt_t"), "warn", "mnt_t: whether a container may read it is not known"),
        (repository(ranking__1=labelled(GOOD, "dir", "s0:c1,c2")), "ok", "container_file_t"),
        (repository(ranking__1=labelled(GOOD, "dir", "s0:c3,c4")), "fail", "labelled for another container (:Z)"),
        (repository(notes_txt=labelled(HOME)), "ok", "8 paths"),
        (repository(_git=labelled(GOOD, "dir")), "ok", "9 paths"),
        ({"/data/models/.git": labelled(HOME, "dir"), **repository()}, "ok", "8 paths"),
        (repository(type_=""), "unknown", "the labels of the models are not told"),
        ({}, "unknown", "there is no such folder"),
        ({"/data/models": DENIED}, "unknown", "permission denied"),
        (
            repository(recall=FileFact("dir", label="x:y:container_file_t:s0", names=None, why="permission denied")),
            "unknown",
            "permission denied",
        ),
        ({**repository(type_=PLAIN), "/data/models/secret": DENIED}, "fail", "default_t"),
        (repository(ranking=FileFact("dir", label="\x00\xffgarbage")), "ok", "7 paths"),
    ],
)
def test_labels(files: Any, sign: str, text: str) -> None:
    found = finding(model_labels, **_box(files))
    assert found.sign == sign
    assert text in found.text


def test_figures_for_the_verdict() -> None:
    found = finding(model_labels, **_box(repository(recall__2=labelled(HOME, "dir"))))
    assert (found.data["type"], found.data["path"]) == (HOME, "/data/models/recall/2")
    assert found.evidence[0].text == "system_u:object_r:user_home_t:s0"


@pytest.mark.parametrize(
    ("booleans", "sign", "text", "kind"),
    [
        ({NFS: "1 1"}, "ok", "nfs_t", ""),
        ({NFS: "0 0"}, "fail", "nfs_t, and virt_use_nfs is off", "P"),
        ({}, "fail", "virt_use_nfs is off", ""),
        ({NFS: DENIED}, "unknown", "permission denied", ""),
    ],
)
def test_network_file_systems_have_a_boolean(booleans: Any, sign: str, text: str, kind: str) -> None:
    found = finding(model_labels, **_box({**repository(type_="nfs_t"), **booleans}, fs="nfs4"))
    assert (found.sign, found.fix.kind if found.fix else "") == (sign, kind)
    assert text in found.text
    if found.fix:
        assert found.fix.commands == ("sudo setsebool -P virt_use_nfs on",)


def test_samba() -> None:
    assert finding(model_labels, **_box({**repository(type_="cifs_t"), SAMBA: "1 1"})).sign == "ok"


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({"files": {ENFORCE: "0", **repository(type_=PLAIN)}}, "warn", "default_t"),
        ({"files": {ENFORCE: None}}, "none", "SELinux is off"),
        ({"files": {ENFORCE: None, "/etc/os-release": DEBIAN}}, "none", "AppArmor"),
        ({"files": {}, "variables": {"models": ()}}, "none", "no model repository on this host"),
        ({"files": {}, "variables": {"models": ("s3://bucket/models",)}}, "none", "no model repository"),
        ({"files": repository(type_=PLAIN), "inspect": container(ProcessLabel="")}, "ok", "label separation is off"),
        ({"files": {ATTR: "u:r:spc_t:s0", **repository(type_=PLAIN)}}, "ok", "labels do not count: spc_t"),
        ({"files": {}, "inspect": NO_PODMAN}, "unknown", "no socket"),
        ({"files": {}, "answers": {"@podman.inspect": None}}, "unknown", "not asked"),
    ],
)
def test_where_labels_do_not_count(changes: Any, sign: str, text: str) -> None:
    found = finding(model_labels, **_box(**changes))
    assert found.sign == sign
    assert text in found.text


def test_no_container() -> None:
    told = _box(repository(type_=PLAIN))
    told["answers"]["@podman.inspect"] = None
    assert finding(model_labels, **told).sign == "none"


# ----------------------------------------------------------------------------------------------------------------- fix


def test_the_repository_is_labelled_for_good() -> None:
    fix = finding(model_labels, **_box(repository(type_=PLAIN))).fix
    assert fix is not None
    assert fix.kind == "P"
    assert fix.commands == (
        "sudo semanage fcontext -a -t container_file_t '/data/models(/.*)?'",
        "sudo restorecon -RF /data/models",
    )
    assert [deed.argv for deed in fix.deeds] == [
        ("semanage", "fcontext", "-a", "-t", "container_file_t", "/data/models(/.*)?"),
        ("restorecon", "-RF", "/data/models"),
    ]
    assert [deed.argv[:3] for deed in fix.back] == [
        ("semanage", "fcontext", "-d"),
        ("restorecon", "-RF", "/data/models"),
    ]
    assert "8 of 8 paths" in fix.effect


def test_a_rule_that_is_there_is_not_added_again() -> None:
    rules = {RULES: "# own\n/data/models(/.*)?    system_u:object_r:container_file_t:s0\n"}
    fix = finding(model_labels, **_box({**repository(type_=PLAIN), **rules})).fix
    assert fix is not None
    assert fix.commands == ("sudo restorecon -RF /data/models",)
    assert (len(fix.deeds), fix.undo) == (1, "")


def test_what_may_be_another_service_s_is_only_shown() -> None:
    fix = finding(model_labels, **_box(repository(type_="httpd_sys_content_t"))).fix
    assert fix is not None
    assert (fix.kind, fix.deeds) == ("S", ())
    assert fix.effect.startswith("httpd_sys_content_t may be what another service needs")


def test_without_semanage_it_is_installed_by_hand() -> None:
    fix = finding(model_labels, **_box({**repository(type_=PLAIN), "/usr/sbin/semanage": None})).fix
    assert fix is not None
    assert fix.commands[0] == "sudo dnf -y install policycoreutils-python-utils"
    assert fix.deeds == ()


def test_names_are_quoted_and_taken_literally() -> None:
    root = "/data/my models+v1.0"
    fix = finding(model_labels, **_box(repository(root, PLAIN), variables={"models": (root,)})).fix
    assert fix is not None
    assert fix.deeds[0].argv[-1] == r"/data/my models\+v1\.0(/.*)?"
    assert "'/data/my models+v1.0'" in fix.commands[1]


@pytest.mark.parametrize(
    ("root", "fs"),
    [
        *(
            (root, "xfs")
            for root in ("/", "/home", "/usr", "/etc", "/var", "/home/ana", "/usr/share/models", "/var/lib")
        ),
        *((root, "xfs") for root in ("/opt", "/srv", "/mnt", "/tmp", "/root", "/boot/x")),
        *(("/data/models", fs) for fs in ("nfs", "nfs4")),
    ],
)
def test_what_holds_more_than_models_is_never_labelled(root: str, fs: str) -> None:
    found = finding(model_labels, **_box({root: labelled(PLAIN, "dir")}, fs=fs, variables={"models": (root,)}))
    assert found.sign == "fail"
    assert found.fix is not None
    assert (found.fix.kind, found.fix.deeds) == ("S", ())
    assert not any("restorecon" in command or "semanage" in command for command in found.fix.commands)
    assert root in found.fix.effect


@pytest.mark.parametrize(
    "root", ["/data", "/data/models", "/home/ana/models", "/srv/triton", "/opt/models", "/var/lib/models"]
)
def test_a_folder_of_its_own_is(root: str) -> None:
    fix = finding(model_labels, **_box({root: labelled(PLAIN, "dir")}, variables={"models": (root,)})).fix
    assert fix is not None
    assert fix.kind == "P"


def _large(words: list[str]) -> Any:
    files = repository() | {f"/data/models/ranking/1/part{number}": labelled(GOOD) for number in range(5000)}
    return finding(model_labels, **_box(files, inspect=container(Config={"CreateCommand": words})))


def test_relabelling_a_large_tree_at_each_start() -> None:
    found = _large(["podman", "run", "-v", "/data/models:/models:ro,Z", "image"])
    assert found.sign == "warn"
    assert "made with :Z, so each start labels all of 5008 paths" in found.text
    assert _large(["podman", "run", "-v", "/data/models:/models:ro,z", "image"]).sign == "ok"
    assert _large([]).sign == "ok"
