"""D01, D02, D11: Podman's service, the right store, and the start after a boot."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import podman_service as checks
from console.core.facts import AnswerFact
from console.core.finding import Deed, Finding
from tests.checks.cdi_told import NO_BUS, NO_GPU, NOT_ASKED, ROOT, USER, files, inspect, ping
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT

GONE = {"/usr/bin/podman": ABSENT}


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    variables: dict[str, tuple[str, ...]] | None = None,
    **answers: Any,
) -> Finding:
    told = {"@podman.ping": ping(), "@podman.inspect": inspect(), "@me": {"uid": 0}, "@processes": [], "@units": {}}
    told |= {f"@{name.replace('_', '.')}": value for name, value in answers.items()}
    return finding(judge, files(changes), None, told, None, variables or ROOT)


def socket(state: str, *, user: bool = False) -> dict[str, Any]:
    return {f"{'user:' if user else ''}podman.socket": {"LoadState": "loaded", "ActiveState": state}}


# ----------------------------------------------------------------------------------------------------------------- D01


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ping(), "4.9.4, rootful, at /run/podman/podman.sock"),
        (ping(rootless=True), "4.9.4, rootless, at /run/user/1000/podman/podman.sock"),
        (ping(rootless=None), "4.9.4, at "),
        (5, "Podman, at its socket"),
    ],
)
def test_it_answers(answer: Any, text: str) -> None:
    found = look(checks.service_answers, podman_ping=answer)
    assert (found.sign, text in found.text) == ("ok", True), found.text


@pytest.mark.parametrize(
    ("units", "me", "why", "text", "command"),
    [
        (socket("inactive"), 0, "no such file", "podman.socket is inactive",
         "sudo systemctl enable --now podman.socket"),
        (socket("inactive", user=True), 1000, "no such file", "podman.socket is inactive",
         "systemctl --user enable --now podman.socket"),
        (socket("active"), 0, "/run/podman/podman.sock refused; other", "podman.socket is active, but /run/podman",
         "sudo systemctl restart podman.socket"),
        ({}, 1000, "/run/podman/podman.sock permission denied", "permission denied: /run/podman", "sudo gpuconsole"),
        (AnswerFact(why="no systemd"), 0, "/run/podman/podman.sock no such file", "podman.sock no such file",
         "sudo systemctl enable --now podman.socket"),
    ],
)  # fmt: skip
def test_it_does_not_answer(units: Any, me: int, why: str, text: str, command: str) -> None:
    found = look(checks.service_answers, podman_ping=AnswerFact(why=why), units=units, me={"uid": me})
    assert (found.sign, text in found.text) == ("fail", True), found.text
    assert found.fix is not None
    assert found.fix.commands[0] == command
    assert found.evidence[0].text == why


def test_the_users_socket_is_enabled_without_root() -> None:
    found = look(checks.service_answers, podman_ping=NOT_ASKED, units=socket("inactive", user=True), me={"uid": 1000})
    assert found.fix is not None
    assert found.fix.deeds == (
        Deed("run", argv=("systemctl", "--user", "enable", "--now", "podman.socket"), root=False),
    )
    assert found.fix.back[0].argv == ("systemctl", "--user", "disable", "--now", "podman.socket")


def test_the_service_of_whoever_holds_triton_is_meant() -> None:
    found = look(checks.service_answers, podman_ping=NOT_ASKED, processes=running(1000, "ana"))
    assert found.fix is not None
    own = "runuser -u ana -- env XDG_RUNTIME_DIR=/run/user/1000 systemctl --user"
    assert found.fix.commands == (f"sudo {own} enable --now podman.socket",)
    assert (found.fix.deeds[0].root, found.fix.undo) == (True, f"sudo {own} disable --now podman.socket")
    found = look(
        checks.service_answers,
        podman_ping=NOT_ASKED,
        processes=running(0, "root"),
        units=socket("inactive") | socket("active", user=True),
        me={"uid": 1000},
    )
    assert found.fix is not None
    assert found.fix.commands == ("sudo systemctl enable --now podman.socket",)
    refused = AnswerFact(why="/run/podman/podman.sock permission denied")
    found = look(checks.service_answers, podman_ping=refused, units=socket("active", user=True), me={"uid": 1000})
    assert (found.fix and found.fix.kind) == "S"


@pytest.mark.parametrize(
    ("changes", "variables", "sign", "text"),
    [
        (GONE, NO_GPU, "none", "Podman is not installed"),
        (GONE, ROOT, "none", "Podman is not installed (B01)"),
        ({}, NO_GPU, "warn", "podman.socket is inactive"),
        ({}, NO_BUS, "fail", "podman.socket is inactive"),
    ],
)
def test_boxes_without_podman_or_card(changes: Any, variables: Any, sign: str, text: str) -> None:
    found = look(checks.service_answers, changes, variables=variables, podman_ping=NOT_ASKED, units=socket("inactive"))
    assert (found.sign, found.text) == (sign, text)


# ----------------------------------------------------------------------------------------------------------------- D02


def running(uid: int, user: str, name: str = "triton") -> list[dict[str, Any]]:
    argv = ["/usr/bin/conmon", "-c", "a" * 64, "-n", name, "--exit-dir", "/run"]
    return [
        {"pid": 100, "parent": 1, "uid": uid, "user": user, "name": "conmon", "argv": argv},
        {"pid": 101, "parent": 100, "uid": 1000, "user": user, "name": "tritonserver", "argv": ["tritonserver"]},
    ]


@pytest.mark.parametrize(
    ("rootless", "processes", "sign", "text", "command"),
    [
        (False, running(1000, "ana"), "warn", "none in this rootful store: a Triton runs in ana's (pid 100)",
         "sudo -iu ana env XDG_RUNTIME_DIR=/run/user/1000 gpuconsole"),
        (True, running(0, "root"), "warn", "none in this rootless store: a Triton runs in root's", "sudo gpuconsole"),
        (True, running(1001, "ben", "x"), "warn", "runs in ben's",
         "sudo -iu ben env XDG_RUNTIME_DIR=/run/user/1001 gpuconsole"),
        (True, running(1000, "ana"), "none", "no Triton container", ""),
        (False, running(0, "root"), "none", "no Triton container", ""),
        (False, [], "none", "no Triton container", ""),
        (False, [5, {}, {"name": "conmon"}, {"name": "tritonserver", "parent": 3}], "none", "no Triton", ""),
        (False, "x", "none", "no Triton container", ""),
        (False, AnswerFact(why="hidden"), "unknown", "hidden", ""),
    ],
)  # fmt: skip
def test_the_other_store(rootless: bool, processes: Any, sign: str, text: str, command: str) -> None:
    found = look(
        checks.right_store,
        variables=USER if rootless else ROOT,
        podman_ping=ping(rootless=rootless),
        podman_inspect=None,
        processes=processes,
    )
    assert (found.sign, text in found.text) == (sign, True), found.text
    assert (found.fix.commands[0] if found.fix else "") == command


def test_the_store_of_the_container() -> None:
    told = {"store": {"graphRoot": "/var/lib/containers/storage"}}
    assert look(checks.right_store, podman_info=told).text == "found in the rootful store, /var/lib/containers/storage"
    assert look(checks.right_store).text == "found in the rootful store"
    silent: dict[str, Any] = {"podman_inspect": NOT_ASKED, "podman_ping": NOT_ASKED}
    assert look(checks.right_store, **silent).sign == "unknown"
    assert look(checks.right_store, GONE, **silent).sign == "none"


# ----------------------------------------------------------------------------------------------------------------- D11

RESTART = "podman-restart.service"


@pytest.mark.parametrize(
    ("policy", "state", "unit", "sign", "text"),
    [
        ("always", "enabled", "", "ok", "policy always, podman-restart.service is enabled"),
        ("always", "disabled", "", "warn", "podman-restart.service is disabled: no start at boot"),
        ("unless-stopped", "disabled", "", "warn", "policy unless-stopped"),
        ("always", "disabled", "triton.service", "none", "triton.service starts it"),
        ("no", "disabled", "", "none", "restart policy no"),
        ("on-failure", "disabled", "", "none", "restart policy on-failure"),
        ("", "disabled", "", "none", "restart policy no"),
    ],
)
def test_start_at_boot(policy: str, state: str, unit: str, sign: str, text: str) -> None:
    variables = {**ROOT, **({"unit": (unit,)} if unit else {})}
    units = {RESTART: {"LoadState": "loaded", "UnitFileState": state}}
    answer = inspect(host={"RestartPolicy": {"Name": policy}})
    found = look(checks.comes_back, variables=variables, podman_inspect=answer, units=units)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_start_at_boot_of_a_users_container() -> None:
    answer = inspect(host={"RestartPolicy": {"Name": "always"}})
    units = {f"user:{RESTART}": {"LoadState": "loaded", "UnitFileState": "disabled"}}
    user: dict[str, Any] = {"podman_ping": ping(rootless=True), "podman_inspect": answer, "variables": USER}
    found = look(checks.comes_back, units=units, **user)
    assert found.fix is not None
    assert found.fix.commands == (f"systemctl --user enable {RESTART}",)
    assert not found.fix.deeds[0].root
    assert look(checks.comes_back, units={f"user:{RESTART}": {"error": "no bus"}}, **user).text.endswith("no bus")
    absent = {f"user:{RESTART}": {"LoadState": "not-found"}}
    assert look(checks.comes_back, units=absent, **user).fix is None
    assert look(checks.comes_back, podman_inspect=None).text == "no Triton container"
