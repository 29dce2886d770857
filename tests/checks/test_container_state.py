"""E01, E02, E12, E13: state, restarts, health check, who starts it again."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.container_state import (
    container_running,
    exit_words,
    healthcheck,
    one_manager,
    restart_loop,
)
from tests.checks.container_told import IMAGE, NO_PODMAN, NOTHING, SERVICE, container, finding, when

ROOTLESS = {"@podman.ping": {"rootless": True}}


def _exited(code: int, **state: Any) -> dict[str, Any]:
    return container(State={"Status": "exited", "ExitCode": code, "FinishedAt": when(60), **state})


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (container(), "ok", "it runs for 1d00h"),
        (container(State={"StartedAt": "garbage"}), "ok", "it runs"),
        (container(State={"Status": "paused"}), "warn", "paused"),
        (_exited(0), "warn", "stopped (0)"),
        (_exited(143), "warn", "stopped (143: asked to end (SIGTERM))"),
        (_exited(1), "fail", "exited, 1: the server gave up"),
        (_exited(125), "fail", "125: Podman itself failed"),
        (_exited(126), "fail", "126: the runtime could not run it"),
        (_exited(127), "fail", "127: the image has no such command"),
        (_exited(137), "fail", "137: killed (SIGKILL)"),
        (_exited(137, OOMKilled=True), "fail", "out of memory, the kernel killed it"),
        (_exited(139), "fail", "139: it crashed (SIGSEGV)"),
        (_exited(134), "fail", "134: ended by SIGABRT"),
        (_exited(77), "fail", "exited, 77"),
        (
            _exited(0, Error="setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"),
            "fail",
            "unresolvable",
        ),
        (container(State={"Status": "created"}), "warn", "created, never started"),
        (container(State={"Status": "created", "Error": "statfs /data/models: no such file"}), "fail", "statfs"),
        (container(State={"Status": "stopping"}), "warn", "it is stopping"),
        (container(State={"Status": "exited", "ExitCode": None}), "unknown", "exit code is not told"),
        (container(State={"Status": "exited", "ExitCode": "\x00"}), "unknown", "exit code is not told"),
        (container(State="garbage"), "unknown", "does not tell its state"),
    ],
)
def test_state(inspect: Any, sign: str, text: str) -> None:
    found = finding(container_running, inspect=inspect)
    assert found.sign == sign
    assert text in found.text


def test_an_error_says_what_to_do_and_hides_secrets() -> None:
    error = "creating token=hunter2: listen tcp4 :8000: bind: address already in use"
    found = finding(container_running, inspect=_exited(125, Error=error))
    assert "hunter2" not in found.text
    assert "another program has the port" in found.text
    assert found.data["exit"] == "125"


@pytest.mark.parametrize(
    ("inspect", "answers", "command"),
    [
        (_exited(0), {}, "sudo podman start triton"),
        (_exited(137), ROOTLESS, "podman start triton"),
        (_exited(1), {}, "sudo podman logs --tail 100 triton"),
        (
            container(
                State={"Status": "exited", "ExitCode": 0}, Config={"Labels": {"PODMAN_SYSTEMD_UNIT": "t.service"}}
            ),
            {},
            "sudo systemctl start t.service",
        ),
        (
            container(
                State={"Status": "exited", "ExitCode": 0}, Config={"Labels": {"PODMAN_SYSTEMD_UNIT": "t.service"}}
            ),
            {"@units": {"user:t.service": SERVICE}},
            "systemctl --user start t.service",
        ),
    ],
)
def test_who_starts_it(inspect: Any, answers: Any, command: str) -> None:
    fix = finding(container_running, inspect=inspect, answers=answers).fix
    assert fix is not None
    assert fix.commands == (command,)
    assert (fix.action == "container.start") == ("start" in command)


@pytest.mark.parametrize(
    ("answers", "variables", "sign", "text"),
    [
        ({}, {}, "none", "no Triton container"),
        ({"@podman.images": [{"RepoTags": ["docker.io/library/redis:7"]}]}, {}, "none", "no Triton container"),
        ({"@podman.images": [{"RepoTags": [IMAGE]}]}, {}, "warn", "none, though the image is here"),
        ({"@podman.images": [{"RepoTags": None, "Names": [IMAGE]}, None]}, {}, "warn", "image is here"),
        (
            {"@units": {"triton.service": {**SERVICE, "ActiveState": "failed", "Result": "exit-code"}}},
            {"unit": ("triton.service",)},
            "warn",
            "none, though triton.service makes one: failed (exit-code)",
        ),
        (
            {"@units": {"triton.service": {**SERVICE, "ActiveState": "inactive", "UnitFileState": "enabled"}}},
            {},
            "warn",
            "triton.service makes one: inactive",
        ),
        ({"@units": {"triton.service": {**SERVICE, "ActiveState": "inactive"}}}, {}, "none", "no Triton container"),
        ({"@units": {"triton-exporter.service": {"ActiveState": "failed"}}}, {}, "none", "no Triton container"),
        ({"@units": ["garbage"], "@podman.images": {"a": 1}}, {}, "none", "no Triton container"),
    ],
)
def test_none(answers: Any, variables: Any, sign: str, text: str) -> None:
    found = finding(container_running, inspect=None, answers=answers, variables=variables)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(("changes", "sign", "text"), NOTHING)
def test_nothing_to_look_at(changes: Any, sign: str, text: str) -> None:
    for judge in (container_running, restart_loop, healthcheck, one_manager):
        found = finding(judge, **dict(changes))
        assert (found.sign, text in found.text) == (sign, True), judge


def test_exit_words() -> None:
    assert exit_words(255) == "255"
    assert exit_words(130) == "130: ended by SIGINT"


# ------------------------------------------------------------------------------------------------------------ restarts

UNIT = {"unit": ("triton.service",)}


def _unit(**properties: str) -> dict[str, Any]:
    return {"@units": {"triton.service": {**SERVICE, **properties}}}


@pytest.mark.parametrize(
    ("inspect", "answers", "sign", "text"),
    [
        (container(), {}, "ok", "no restarts"),
        (container(RestartCount=2), {}, "note", "2 restarts; it runs for 1d00h"),
        (container(RestartCount=40), {}, "note", "40 restarts; it runs for 1d00h"),
        (
            container(RestartCount=4, State={"StartedAt": when(30)}),
            {},
            "fail",
            "4 restarts by Podman, the last 30 s ago",
        ),
        (container(RestartCount=3, State={"StartedAt": when(30)}), {}, "note", "3 restarts"),
        (container(), _unit(), "ok", "no restarts"),
        (
            container(State={"StartedAt": when(8)}),
            _unit(NRestarts="118"),
            "fail",
            "118 restarts by the unit, the last 8 s",
        ),
        (container(), _unit(NRestarts="118"), "note", "118 restarts; it runs for 1d00h"),
        (
            None,
            _unit(NRestarts="118", SubState="auto-restart"),
            "fail",
            "118 restarts by the unit, and it does not run",
        ),
        (None, _unit(NRestarts="0"), "ok", "no restarts"),
        (NO_PODMAN, _unit(NRestarts="9"), "fail", "9 restarts by the unit"),
        (container(), _unit(Result="start-limit-hit"), "fail", "systemd starts it no more"),
        (None, _unit(Result="start-limit-hit"), "fail", "systemd starts it no more"),
        (container(RestartCount="garbage"), _unit(NRestarts="\x00"), "ok", "no restarts"),
    ],
)
def test_restarts(inspect: Any, answers: Any, sign: str, text: str) -> None:
    found = finding(restart_loop, inspect=inspect, answers=answers, variables=UNIT if answers else {})
    assert found.sign == sign
    assert text in found.text


def test_a_unit_of_which_nothing_is_told() -> None:
    found = finding(restart_loop, inspect=None, answers={"@units": None}, variables=UNIT)
    assert found.sign == "unknown"
    assert found.settle == "systemctl show triton.service -p NRestarts"


def test_start_limit() -> None:
    fix = finding(restart_loop, answers=_unit(Result="start-limit-hit"), variables=UNIT).fix
    assert fix is not None
    assert fix.commands == ("sudo systemctl reset-failed triton.service", "sudo systemctl start triton.service")


# --------------------------------------------------------------------------------------------------- health, who starts

LIVE = ["CMD-SHELL", "curl -fsS localhost:8000/v2/health/live"]
READY = ["CMD-SHELL", "curl -fsS localhost:8000/v2/health/ready"]


def _checked(
    words: list[str], timeout: Any = 5_000_000_000, status: str = "healthy", action: str = "none"
) -> dict[str, Any]:
    config = {"Healthcheck": {"Test": words, "Timeout": timeout}, "HealthcheckOnFailureAction": action}
    return container(Config=config, State={"Health": {"Status": status}})


@pytest.mark.parametrize(
    ("inspect", "sign", "text"),
    [
        (container(), "note", "it has none"),
        (_checked(["NONE"]), "note", "it has none"),
        (_checked(LIVE), "ok", "healthy"),
        (_checked(READY), "ok", "healthy"),
        (_checked(LIVE, timeout=0), "warn", "its time limit is 0"),
        (_checked(READY, action="kill"), "warn", "asks for ready and does kill"),
        (_checked(LIVE, action="kill"), "ok", "healthy"),
        (_checked(LIVE, status="unhealthy"), "warn", "unhealthy"),
        (container(Config={"Healthcheck": "garbage"}), "note", "it has none"),
    ],
)
def test_healthcheck(inspect: Any, sign: str, text: str) -> None:
    found = finding(healthcheck, inspect=inspect)
    assert found.sign == sign
    assert text in found.text


def _policy(name: str) -> dict[str, Any]:
    return container(HostConfig={"RestartPolicy": {"Name": name}})


@pytest.mark.parametrize(
    ("inspect", "answers", "sign", "text"),
    [
        (_policy(""), {}, "note", "nothing starts it after a crash"),
        (_policy("always"), {}, "ok", "Podman (always)"),
        (_policy("no"), _unit(), "ok", "triton.service"),
        (_policy("always"), _unit(), "warn", "triton.service and Podman's restart policy always"),
        (_policy("always"), _unit(Restart="no"), "ok", "triton.service starts nothing again"),
        (container(HostConfig={"RestartPolicy": None}), {}, "note", "nothing starts it"),
    ],
)
def test_managers(inspect: Any, answers: Any, sign: str, text: str) -> None:
    found = finding(one_manager, inspect=inspect, answers=answers, variables=UNIT if answers else {})
    assert found.sign == sign
    assert text in found.text
