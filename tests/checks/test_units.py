"""K01 K02 K05."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from console.checks import units
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import refused, says
from tests.checks.told import folder, told

GOOD = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "UnitFileState": "enabled",
    "NRestarts": "0",
    "NeedDaemonReload": "no",
    "FragmentPath": "/etc/systemd/system/triton.service",
}
QUADLET = """[Container]
Image=nvcr.io/nvidia/tritonserver:24.05-py3
ContainerName=triton
[Install]
WantedBy=multi-user.target
"""


def inspected(policy: str = "no", label: str = "") -> dict[str, Any]:
    labels = {"PODMAN_SYSTEMD_UNIT": label} if label else {}
    return {"Name": "triton", "Config": {"Labels": labels}, "HostConfig": {"RestartPolicy": {"Name": policy}}}


def box(
    unit: str = "triton.service",
    shown: Mapping[str, str] | None = GOOD,
    quadlet: str = "",
    user: str = "root",
    answers: Mapping[str, Any] | None = None,
    podman: bool = True,
) -> Facts:
    """A box whose container is managed by a unit ("" = none) that systemd shows so."""
    key = f"user:{unit}" if user != "root" else unit
    home = "/root" if user == "root" else f"/home/{user}"
    files: dict[str, str | FileFact] = {
        "/usr/bin/podman": FileFact("file" if podman else "absent"),
        "/usr/local/bin/podman": FileFact("absent"),
        "/etc/containers/systemd": folder(*(["triton.container"] if quadlet else [])),
        "/usr/share/containers/systemd": FileFact("absent"),
        f"{home}/.config/containers/systemd": FileFact("absent"),
    }
    if quadlet:
        files["/etc/containers/systemd/triton.container"] = quadlet
    names = {"user": (user,), "home": (home,), "container": ("triton",)}
    given = {"@units": {key: shown} if shown is not None else {}, "@podman.inspect": inspected(), **(answers or {})}
    return told(files, {}, given, variables={**names, **({"unit": (unit,)} if unit else {})})


def shown(**changes: str) -> dict[str, str]:
    return {**GOOD, **changes}


NO_PODMAN = AnswerFact(why="Podman's socket is not there", settle="podman info")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(answers={"@podman.inspect": inspected(label="triton.service")}), "ok", "triton.service (a service)"),
        (box(), "note", "leaves no label on the container"),
        (box(quadlet=QUADLET, shown=shown(UnitFileState="generated")), "ok", "triton.service (Quadlet)"),
        (box(shown=shown(SourcePath="/etc/containers/systemd/triton.container")), "ok", "Quadlet"),
        (box(answers={"@units": refused(), "@podman.inspect": NO_PODMAN}), "note", "triton.service (a service)"),
        (box(user="ana"), "note", "a user's service"),
        (box(unit=""), "warn", "nothing starts it after a crash or a reboot"),
        (
            box(unit="", answers={"@podman.inspect": inspected("always")}),
            "note",
            "Podman itself restarts it (policy always)",
        ),
        (box(unit="", answers={"@podman.inspect": None}), "none", "no Triton container"),
        (box(unit="", answers={"@podman.inspect": NO_PODMAN}), "unknown", "socket is not there"),
        (box(unit="", answers={"@podman.inspect": NO_PODMAN}, podman=False), "none", "Podman is not installed"),
    ],
)
def test_who_manages(facts: Facts, sign: str, text: str) -> None:
    found = says(units, "K01", facts)
    assert found.sign == sign
    assert text in found.text


def test_a_unit_is_written_where_there_is_none() -> None:
    found = says(units, "K01", box(unit=""))
    assert found.fix is not None
    assert found.fix.action == "unit.write"
    assert found.fix.commands == ("sudo gpuconsole do unit.write triton", "sudo systemctl enable triton.service")


NO_INSTALL = QUADLET.partition("[Install]")[0]


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "triton.service is active, enabled"),
        (box(shown=shown(NRestarts="4")), "note", "enabled, 4 restarts"),
        (box(shown=shown(UnitFileState="disabled")), "warn", "is disabled: it does not start after a reboot"),
        (box(shown=shown(UnitFileState="generated"), quadlet=QUADLET), "ok", "generated"),
        (box(shown=shown(UnitFileState="generated"), quadlet=NO_INSTALL), "warn", "triton.container has no [Install]"),
        (box(shown=shown(ActiveState="failed", Result="start-limit-hit")), "fail", "has failed: start-limit-hit"),
        (
            box(shown=shown(ActiveState="activating", SubState="auto-restart", Result="exit-code", NRestarts="118")),
            "fail",
            "waits for its next try (118 so far): exit-code",
        ),
        (box(shown=shown(ActiveState="inactive", SubState="dead")), "warn", "is not running"),
        (box(shown=shown(LoadState="bad-setting")), "fail", "does not load triton.service: bad-setting"),
        (box(shown={"LoadState": "loaded"}), "unknown", "did not tell the state"),
        (box(shown=None), "unknown", "not asked about triton.service"),
        (box(answers={"@units": refused()}), "unknown", "timed out"),
        (box(answers={"@units": ["garbage"]}), "unknown", "not asked"),
        (box(user="ana", answers={"@units": {"user:triton.service": {"error": "no bus"}}}), "unknown", "no bus"),
        (box(user="ana"), "ok", "is active"),
        (box(unit=""), "none", "no unit"),
    ],
)
def test_unit_state(facts: Facts, sign: str, text: str) -> None:
    found = says(units, "K02", facts)
    assert found.sign == sign
    assert text in found.text


def test_the_fixes_of_a_unit_are_of_its_manager() -> None:
    limit = says(units, "K02", box(shown=shown(ActiveState="failed", Result="start-limit-hit")))
    assert limit.fix is not None
    assert [one.argv for one in limit.fix.deeds] == [
        ("systemctl", "reset-failed", "triton.service"),
        ("systemctl", "start", "triton.service"),
    ]
    own = says(units, "K02", box(user="ana", shown=shown(UnitFileState="disabled")))
    assert own.fix is not None
    assert own.fix.commands == ("systemctl --user enable triton.service",)
    assert not own.fix.deeds[0].root


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none of 1 changed"),
        (box(shown=shown(NeedDaemonReload="yes")), "warn", "triton.service changed on disk"),
        (box(user="ana", shown=shown(NeedDaemonReload="yes")), "warn", "triton.service changed on disk"),
        (box(shown={}), "none", "told of no unit"),
        (
            box(answers={"@units": {"x.service": {"LoadState": "not-found", "NeedDaemonReload": "no"}}}),
            "none",
            "no unit",
        ),
        (box(answers={"@units": refused()}), "unknown", "timed out"),
        (box(answers={"@units": 7}), "unknown", "not asked"),
    ],
)
def test_daemon_reload(facts: Facts, sign: str, text: str) -> None:
    found = says(units, "K05", facts)
    assert found.sign == sign
    assert text in found.text


def test_each_manager_reads_its_own_units() -> None:
    system = says(units, "K05", box(shown=shown(NeedDaemonReload="yes")))
    assert system.fix is not None
    assert system.fix.commands == ("sudo systemctl daemon-reload",)
    own = says(units, "K05", box(user="ana", shown=shown(NeedDaemonReload="yes")))
    assert own.fix is not None
    assert own.fix.commands == ("systemctl --user daemon-reload",)
