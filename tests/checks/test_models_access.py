"""L07 L08."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from console.checks import models_access
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import refused, says
from tests.checks.repo import ALL_READY, ENGINE, GOOD, PYTHON, ROOT, SCRIPT, Tree, box, inspected, ready, without
from tests.checks.told import DENIED

NO_PODMAN = AnswerFact(why="no socket")
DOWN = {"@triton.index": refused("connection refused")}


def owned(mode: int, uid: int = 0, gid: int = 0) -> FileFact:
    return FileFact("file", mode=mode, uid=uid, gid=gid, size=5)


def with_plan(fact: FileFact) -> dict[str, str | FileFact]:
    return {**GOOD, "ranking/3/model.plan": fact}


def as_user(user: str, **host: Any) -> dict[str, Any]:
    return {**DOWN, "@podman.inspect": inspected(user=user, host=host)}


def rootless(user: str = "", **host: Any) -> dict[str, Any]:
    return {**as_user(user, **host), "@podman.ping": {"version": "4.9.4", "rootless": True}}


ANA: Mapping[str, tuple[str, ...]] = {"user": ("ana",), "uid": ("1001",)}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(answers=DOWN), "ok", "are open to root of the container"),
        (box(with_plan(owned(0o600, 1001, 1001)), answers=DOWN), "ok", "open to root"),  # root reads all
        (box(with_plan(owned(0o600)), answers=as_user("1000")), "fail", "model.plan is 0600 of 0:0: shut to user 1000"),
        (box(with_plan(owned(0o600)), answers=as_user("triton-server")), "fail", "shut to user 1000 of the container"),
        (box(with_plan(owned(0o600, 1000)), answers=as_user("1000:1000")), "ok", "open to user 1000"),
        (box(with_plan(owned(0o640, 0, 2000)), answers=as_user("1000:2000")), "ok", "open to user 1000"),
        (box(with_plan(owned(0o640, 0, 2000)), answers=as_user("1000")), "unknown", "whether a group lets user 1000"),
        (box(with_plan(owned(0o644)), answers=as_user("somebody")), "unknown", "which number user 'somebody'"),
        (box(with_plan(owned(0o644)), answers=as_user("", UsernsMode="auto")), "unknown", "user namespace auto"),
        (
            box(with_plan(owned(0o600)), answers={**as_user("1000"), "@triton.index": ALL_READY}),
            "ok",
            "open to user 1000",
        ),
        (box(answers=rootless(), variables=ANA), "ok", "open to root of ana's container"),
        (box(with_plan(owned(0o600, 1001, 1001)), answers=rootless(), variables=ANA), "ok", "root of ana's container"),
        (box(with_plan(owned(0o600)), answers=rootless(), variables=ANA), "fail", "0600 of 0:0: shut to root of ana's"),
        (box(with_plan(owned(0o600, 100004, 100004)), answers=rootless(), variables=ANA), "ok", "root of ana's"),
        (
            box(with_plan(owned(0o600, 1001, 1001)), answers=rootless("1000"), variables=ANA),
            "fail",
            "shut to user 1000 of ana's",
        ),
        (
            box(with_plan(owned(0o600, 100999, 100999)), answers=rootless("1000"), variables=ANA),
            "ok",
            "user 1000 of ana's",
        ),
        (
            box(with_plan(owned(0o600, 1001, 1001)), answers=rootless("1000", UsernsMode="keep-id"), variables=ANA),
            "ok",
            "open to user ana",
        ),
        (box(answers=rootless(UsernsMode="nomap"), variables=ANA), "unknown", "user namespace nomap"),
        (box(answers=rootless(), variables=ANA, files={"/etc/subuid": DENIED}), "unknown", "permission denied"),
        (
            box(answers=rootless(), variables=ANA, files={"/etc/passwd": DENIED, "/etc/subgid": "\x00garbage:::"}),
            "ok",
            "ana",
        ),
        (box(files={f"{ROOT}/ranking/3/model.plan": DENIED}, answers=DOWN), "unknown", "permission denied"),
        (box(files={ROOT: DENIED}), "unknown", "permission denied"),
        (without(), "none", "not on this host's disk"),
        (without(podman_inspect=NO_PODMAN), "unknown", "no socket"),
    ],
)
def test_readable(facts: Facts, sign: str, text: str) -> None:
    found = says(models_access, "L07", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_only_the_shut_files_are_opened_and_get_their_modes_back() -> None:
    closed = FileFact("dir", mode=0o700, uid=0, gid=0, names=("model.plan",))
    facts = box(with_plan(owned(0o600)), files={f"{ROOT}/ranking/3": closed}, answers=as_user("1000"))
    found = says(models_access, "L07", facts)
    assert found.text.endswith("; 1 more so")
    assert found.fix is not None
    assert found.fix.commands == (
        f"sudo chmod 0755 {ROOT}/ranking/3",
        f"sudo chmod 0644 {ROOT}/ranking/3/model.plan",
    )
    assert [(one.kind, one.mode) for one in found.fix.deeds] == [("mode", 0o755), ("mode", 0o644)]
    assert [one.mode for one in found.fix.back] == [0o700, 0o600]


def test_many_shut_files_are_only_shown_how() -> None:
    tree: Tree = {"m/config.pbtxt": PYTHON, **{f"m/1/f{n}": owned(0o600) for n in range(30)}, "m/1/model.py": SCRIPT}
    found = says(models_access, "L07", box(tree, answers=as_user("1000")))
    assert found.fix is not None
    assert (found.fix.commands, found.fix.deeds) == ((f"sudo chmod -R a+rX {ROOT}",), ())


def test_a_file_copied_in_later_is_looked_at_while_the_others_serve() -> None:
    tree = {**GOOD, "ranking/4/model.plan": owned(0o600)}
    answers = {**as_user("1000"), "@triton.index": ready("ranking/3", "prep/1")}
    assert says(models_access, "L07", box(tree, answers=answers)).sign == "fail"
    assert ENGINE.mode == 0o644


def ports(*addresses: str) -> dict[str, Any]:
    pairs = zip(("8000/tcp", "8001/tcp"), addresses, strict=False)
    return {"PortBindings": {port: [{"HostIp": one, "HostPort": port[:4]}] for port, one in pairs}}


def control(*flags: str, **host: Any) -> Facts:
    return box(answers={"@podman.inspect": inspected("--model-control-mode=explicit", *flags, host=host)})


KEYED = ("--http-restricted-api=statistics,model-repository:k=v", "--grpc-restricted-protocol=model-repository:k=v")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(answers={"@podman.inspect": inspected(host=ports("", ""))}), "ok", "mode none"),
        (box(answers={"@podman.inspect": inspected("--model-control-mode=poll", host=ports(""))}), "ok", "mode poll"),
        (control(**ports("127.0.0.1", "127.0.0.1")), "ok", "answers to this host alone"),
        (control(**ports("127.0.0.1", "")), "warn", "other hosts reach gRPC 8001"),
        (control(**ports("0.0.0.0", "::")), "warn", "other hosts reach HTTP 8000 and gRPC 8001: they may unload"),
        (control(*KEYED, **ports("", "")), "ok", "this host alone"),
        (control(KEYED[0], **ports("", "")), "warn", "reach gRPC 8001"),
        (control("--http-restricted-api=statistics:k=v", **ports("")), "warn", "reach HTTP 8000"),
        (control("--allow-grpc=false", **ports("127.0.0.1", "")), "ok", "this host alone"),
        (control("--http-port=9000", PortBindings={"9000/tcp": [{"HostIp": "", "HostPort": "80"}]}), "warn", "HTTP 80"),
        (control(NetworkMode="host"), "warn", "HTTP 8000 and gRPC 8001"),
        (control("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", NetworkMode="host"), "ok", "this host alone"),
        (control(PortBindings={"8000/tcp": None, "8001/tcp": [{"HostIp": 7}, "x"]}), "warn", "gRPC 8001"),
        (control(PortBindings="garbage"), "ok", "this host alone"),
        (box(answers={"@podman.inspect": {**inspected(), "Path": "serve.sh", "Args": []}}), "unknown", "control mode"),
        (box(answers={"@podman.inspect": None}), "none", "no Triton container"),
        (box(answers={"@podman.inspect": NO_PODMAN}), "unknown", "no socket"),
    ],
)
def test_exposed(facts: Facts, sign: str, text: str) -> None:
    found = says(models_access, "L08", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_no_secret_that_is_none_is_set_by_a_paste() -> None:
    found = says(models_access, "L08", control(**ports("", "")))
    assert found.fix is not None
    assert "SECRET" not in "".join(found.fix.commands)
    assert "SECRET" in found.fix.effect


def test_exposure_is_closed_by_hand() -> None:
    found = says(models_access, "L08", control(**ports("", "")))
    assert found.fix is not None
    assert (found.fix.kind, found.fix.deeds, found.fix.action) == ("S", (), "")
    assert (
        found.fix.commands[0]
        == "sudo gpuconsole do container.recreate triton ports=127.0.0.1:8000:8000,127.0.0.1:8001:8001"
    )
