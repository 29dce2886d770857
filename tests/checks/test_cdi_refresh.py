"""B12, B13: the refresh service, and the order of spec and container at boot."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import cdi_refresh as checks
from console.core.facts import AnswerFact, CommandFact
from console.core.finding import Finding
from tests.checks import cdi_told as box
from tests.checks.cdi_told import NO_GPU, ON, ROOT, STATIC, UNITS, USER, VOLATILE, files, ping, spec
from tests.checks.needed import Judge, finding

SERVICE, PATH = "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"
MANAGED = {**ROOT, "unit": ("triton.service",)}


def version(text: str) -> dict[str, Any]:
    return {"nvidia-ctk --version": f"NVIDIA Container Toolkit CLI version {text}\n"}


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    units: Any = None,
    *,
    ctk: str = "1.18.2",
    rootless: bool = False,
    variables: dict[str, tuple[str, ...]] | None = None,
) -> Finding:
    answers = {"@podman.ping": ping(rootless=rootless), "@units": {**UNITS, **(units or {})}}
    told = {box.REFRESH: box.REFRESH_TEXT, **(changes or {})}
    return finding(judge, files(told), version(ctk), answers, None, variables or MANAGED)


def service(**more: str) -> dict[str, Any]:
    return {SERVICE: {**UNITS[SERVICE], **more}}


@pytest.mark.parametrize(
    ("units", "sign", "text"),
    [
        ({}, "ok", "inactive, success; its path unit watches"),
        (service(ActiveState="active", SubState="exited"), "ok", "active, success"),
        (service(ActiveState="failed", Result="exit-code", ExecMainStatus="1"), "fail", "failed: exit-code, exit 1"),
        (service(ActiveState="activating", Result="exit-code", ExecMainStatus="1"), "fail", "failed: exit-code"),
        (service(LoadState="bad-setting"), "fail", "systemd refuses it: oneshot with Restart="),
        (service(LoadState="not-found"), "warn", "systemd has not read it"),
        (service(LoadState="masked"), "note", "masked"),
        (service(Result="exec-condition"), "warn", "no nvidia module for this kernel"),
        ({PATH: {"LoadState": "loaded", "ActiveState": "inactive"}}, "warn", f"{PATH} is inactive"),
        ({PATH: {"LoadState": "not-found", "ActiveState": ""}}, "warn", f"{PATH} is not there"),
        ({SERVICE: {"error": "no bus"}}, "unknown", "no bus"),
        ({SERVICE: 5}, "unknown", "was not asked"),
    ],
)
def test_refresh(units: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.refresh, units=units)
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize(
    ("ctk", "sign", "text"),
    [
        ("1.17.8", "none", "toolkit 1.17.8 has no nvidia-cdi-refresh (1.18 has)"),
        ("1.18.2", "note", "toolkit 1.18.2, but its nvidia-cdi-refresh is not here"),
        ("what", "none", "of unknown version"),
    ],
)
def test_without_the_service(ctk: str, sign: str, text: str) -> None:
    found = look(checks.refresh, {box.REFRESH: None}, ctk=ctk)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_where_it_does_not_apply() -> None:
    assert look(checks.refresh, variables=NO_GPU).sign == "none"
    assert look(checks.outlives_boot, variables=NO_GPU).sign == "none"
    assert look(checks.outlives_boot, {STATIC: None}).sign == "none"
    commands = {"nvidia-ctk --version": CommandFact(why="not installed")}
    assert finding(checks.refresh, files(), commands, {}, None, ROOT).sign == "none"
    told = files({box.REFRESH: box.REFRESH_TEXT})
    found = finding(checks.refresh, told, None, {"@units": AnswerFact(why="no systemd")}, None, ROOT)
    assert (found.sign, found.text) == ("unknown", "no systemd")


def test_the_fixes_of_the_service() -> None:
    fix = look(checks.refresh, units=service(ActiveState="failed", Result="exit-code")).fix
    assert fix is not None
    assert (fix.kind, fix.commands[0]) == ("B", f"sudo systemctl restart {SERVICE}")
    assert fix.deeds[0].path == VOLATILE
    fix = look(checks.refresh, units=service(LoadState="bad-setting")).fix
    assert fix is not None
    assert (fix.kind, fix.deeds[0].text) == ("P", "[Service]\nRestart=no\n")
    env = {"/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH={STATIC}\n"}
    fix = look(checks.refresh, env, service(ActiveState="failed", Result="exit-code")).fix
    assert fix is not None
    assert fix.deeds[0].path == STATIC


# ----------------------------------------------------------------------------------------------------------------- B13

MEMORY = {STATIC: None, VOLATILE: spec()}
OFF = service(UnitFileState="disabled")
LATE = {box.REFRESH: box.REFRESH_TEXT.replace("[Service]", "After=basic.target multi-user.target\n[Service]")}
NO_ORDER = {"triton.service": {"LoadState": "loaded", "After": "network-online.target"}}


@pytest.mark.parametrize(
    ("changes", "units", "variables", "sign", "text"),
    [
        (MEMORY, {}, MANAGED, "ok", "triton.service starts after nvidia-cdi-refresh"),
        (MEMORY, {}, ROOT, "ok", "no unit starts the container"),
        (MEMORY, OFF, MANAGED, "fail", "/var/run/cdi/nvidia.yaml is gone after a boot: nvidia-cdi-refresh is off"),
        ({}, OFF, MANAGED, "ok", "/etc/cdi/nvidia.yaml outlives a boot; nvidia-cdi-refresh is off"),
        ({**MEMORY, box.REFRESH: None}, {}, MANAGED, "warn", "gone after a boot unless something else writes it"),
        ({box.REFRESH: None}, {}, MANAGED, "ok", "outlives a boot; no nvidia-cdi-refresh here"),
        (MEMORY, NO_ORDER, MANAGED, "warn", "triton.service has no After=nvidia-cdi-refresh.service"),
        ({}, NO_ORDER, MANAGED, "warn", "triton.service has no After=nvidia-cdi-refresh.service"),
        ({**MEMORY, **LATE}, {}, MANAGED, "warn", "can wait for each other"),
        ({**MEMORY, **LATE}, NO_ORDER, MANAGED, "warn", "comes after multi-user.target, triton.service does not wait"),
        (MEMORY, {"triton.service": {"LoadState": "loaded"}}, MANAGED, "unknown", "the order of triton.service"),
        (MEMORY, {"triton.service": None}, MANAGED, "unknown", "systemd was not asked about triton.service"),
    ],
)
def test_boot(changes: dict[str, Any], units: dict[str, Any], variables: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.outlives_boot, changes, units, variables=variables)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_users_unit_cannot_wait() -> None:
    found = look(checks.outlives_boot, MEMORY, rootless=True, variables={**USER, "unit": ("triton.service",)})
    assert (found.sign, "a user's unit" in found.text) == ("note", True)


def test_the_drop_in() -> None:
    fix = look(checks.outlives_boot, MEMORY, NO_ORDER).fix
    assert fix is not None
    assert fix.kind == "P"
    assert (fix.deeds[0].path, fix.deeds[0].text) == (
        "/etc/systemd/system/triton.service.d/10-nvidia-cdi.conf",
        "[Unit]\nWants=nvidia-cdi-refresh.service\nAfter=nvidia-cdi-refresh.service nvidia-persistenced.service\n",
    )
    odd = "a b;.service"
    units = {odd: {"After": ""}}
    found = look(checks.outlives_boot, MEMORY, units, variables={**ROOT, "unit": (odd,)})
    assert (found.sign, found.fix) == ("warn", None)
    fix = look(checks.outlives_boot, MEMORY, OFF).fix
    assert fix is not None
    assert fix.deeds[0].argv == ("systemctl", "enable", "--now", SERVICE, PATH)
    assert ON["Result"] == "success"
