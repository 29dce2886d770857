"""The unit of a real container: planned, written below a root folder of the test's own, put back. systemctl is a
stand-in that records its arguments."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import unit
from console.actions.box import Box, BoxSpec
from console.config import Podman, Safety, Settings
from console.core.plan import Plan, Refused, WrongInput
from tests.actions.runs import Recorded, do, killed
from tests.clients.test_systemd import recording
from tests.clients.test_unit_text import as_systemd, keys
from tests.clients.test_units import bin_folder, tool
from tests.lab import podman
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton

__all__ = ["bin_folder"]

pytestmark = pytest.mark.lab
PLANTED = ("hunter2", "s3cret")
SECRETS = ("--env", "HF_TOKEN=hunter2", "--env", "TZ=UTC")
FLAGS = ("--model-control-mode=explicit", "--http-restricted-api=shared-memory:admin=s3cret")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    if Lab.found() is None:
        pytest.skip("the lab is not up")
    with own_triton(tmp_path_factory.mktemp("models"), more=SECRETS, flags=FLAGS) as started:
        yield started


@pytest.fixture
def box(lab: Lab, own: OwnTriton, tmp_path: Path, bin_folder: Path) -> Box:
    return a_box(own, tmp_path)


def a_box(own: OwnTriton, folder: Path, read_only: bool = False) -> Box:
    root = folder / "root"
    for path in ("etc/systemd/system", "sys/fs/cgroup"):
        (root / path).mkdir(parents=True, exist_ok=True)
    told = Settings(podman=Podman(socket=own.socket, container=own.name), safety=Safety(read_only=read_only))
    return Box(BoxSpec(told, root=str(root)), folder / "state")


def file_of(box: Box, own: OwnTriton) -> Path:
    return box.root / f"etc/systemd/system/{own.name}.service"


def everything(plan: Plan) -> str:
    return repr(plan)


def test_planned_written_and_put_back(box: Box, own: OwnTriton, bin_folder: Path) -> None:
    record = recording(bin_folder)
    plan = unit.Write().plan(box, own.name, {})
    assert not plan.refused
    assert not any(secret in everything(plan) for secret in PLANTED)
    assert f"+  --device={'gpuconsole.test/gpu=all'} \\" in plan.difference
    assert not file_of(box, own).exists()
    if shutil.which("systemd-analyze"):
        assert any(check.text == "systemd-analyze verify: nothing wrong" for check in plan.checks)
    started = box.container().started_wall

    run = Recorded()
    unit.Write().recheck(box, plan)
    outcome = unit.Write().run(box, plan, run)
    assert outcome.word == "done", outcome.text
    assert record.read_text().splitlines() == ["systemctl --no-ask-password daemon-reload"]
    assert run.phases == ["keep", "keep done", "write", "write done", "reload", "reload done"]
    private = box.root / f"etc/gpuconsole/units/{own.name}.env"
    assert private.read_text() == "HF_TOKEN=hunter2\n"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(box, own).stat().st_mode) == 0o644
    assert not any(secret in file_of(box, own).read_text() for secret in PLANTED)
    assert not any(secret in repr(outcome) for secret in PLANTED)
    assert box.container().started_wall == started
    assert "already what would be written" in unit.Write().plan(box, own.name, {}).refused

    assert outcome.undo is not None
    restore = unit.Restore()
    back = restore.plan(box, outcome.undo.target, outcome.undo.values)
    now = restore.state(box, back.target)
    assert outcome.left == {name: now[name] for name in outcome.left}
    assert restore.run(box, back, Recorded()).word == "done"
    assert not file_of(box, own).exists()
    assert not private.exists()


def test_the_difference_to_what_is_installed_hides_its_secrets(box: Box, own: OwnTriton) -> None:
    file_of(box, own).write_text("[Service]\nExecStart=/usr/bin/podman run -e HF_TOKEN=hunter2 --name x img\n")
    plan = unit.Write().plan(box, "", {})
    assert "-ExecStart=/usr/bin/podman run -e HF_TOKEN=*** --name x img" in plan.difference
    shown = do(unit.Show(), box, own.name, {})
    assert "ExecStart=" in "\n".join(shown.lines)
    assert not any(secret in repr(shown) + everything(plan) for secret in PLANTED)


def test_a_failed_daemon_reload_puts_all_back(box: Box, own: OwnTriton, bin_folder: Path) -> None:
    file_of(box, own).write_text("old")
    tool(bin_folder, "systemctl", 'echo "System has not been booted with systemd" >&2; exit 1')
    outcome = do(unit.Write(), box, own.name, {})
    assert outcome.word == "undone"
    assert "not been booted" in outcome.text
    assert file_of(box, own).read_text() == "old"


@pytest.mark.parametrize("moment", ["keep", "keep done", "write", "write done", "reload", "reload done"])
def test_a_killed_run_is_finished_or_undone(moment: str, box: Box, own: OwnTriton, bin_folder: Path) -> None:
    recording(bin_folder)
    file_of(box, own).write_text("old")
    plan = unit.Write().plan(box, own.name, {})
    run = killed(unit.Write(), box, plan, moment)
    found, finish, undo = unit.Write().interrupted(box, plan, run.journal())
    assert found
    if moment.startswith("keep"):
        assert not undo
    else:
        assert finish
    if finish:
        assert unit.Write().finish(box, plan, Recorded(kept=run.kept())).word == "done"
        assert unit.Write().undo(box, plan, Recorded(kept=run.kept())).word == "undone"
    assert file_of(box, own).read_text() == "old"


def test_refusals(box: Box, own: OwnTriton, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cgroup v1"):
        unit.Write().plan(box, own.name, {"kind": "quadlet"})
    with pytest.raises(WrongInput, match="cannot be a unit's name"):
        unit.Write().plan(box, own.name, {"name": "../x"})
    with pytest.raises(WrongInput, match="there is no container"):
        unit.Write().plan(box, "nosuch", {})
    with pytest.raises(WrongInput, match="there is no kept state"):
        unit.Restore().plan(box, "", {"backup": "../../etc/passwd"})
    rival = box.root / f"etc/containers/systemd/{own.name}.container"
    rival.parent.mkdir(parents=True)
    rival.write_text("[Container]\n")
    assert "makes the same unit" in unit.Write().plan(box, own.name, {}).refused
    rival.unlink()
    read_only = a_box(own, tmp_path, read_only=True)
    plan = unit.Write().plan(read_only, own.name, {})
    with pytest.raises(Refused, match="read-only"):
        unit.Write().run(read_only, plan, Recorded())
    assert not (tmp_path / "state").exists()


def test_an_installed_link_is_left_alone(box: Box, own: OwnTriton) -> None:
    file_of(box, own).symlink_to(os.devnull)
    with pytest.raises(Exception, match="is a link"):
        unit.Write().plan(box, own.name, {})


@pytest.mark.parametrize("active", ["active", "inactive"])
def test_a_unit_is_found_by_the_name_in_its_file(active: str, box: Box, own: OwnTriton, bin_folder: Path) -> None:
    tool(bin_folder, "systemctl", f"echo LoadState=loaded; echo ActiveState={active}")
    (box.root / "etc/systemd/system/by-hand.service").write_text(f"ExecStart=podman run -d --name {own.name} img\n")
    found = box.container()
    assert (found.unit, found.unit_origin) == (
        ("by-hand.service", "its unit's file") if active == "active" else (None, None)
    )


@pytest.mark.slow
def test_its_commands_run_as_systemd_would_run_them(lab: Lab, tmp_path: Path, bin_folder: Path) -> None:
    """The start takes the place of the container that runs and tells systemd by its socket; the stop is graceful."""
    recording(bin_folder)
    with own_triton(tmp_path / "models", more=SECRETS, flags=FLAGS) as own:
        box = a_box(own, tmp_path)
        before = box.container().id
        assert do(unit.Write(), box, own.name, {}).word == "done"
        made = keys(file_of(box, own).read_text())
        address = tmp_path / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(address))
            notify.settimeout(30)
            started = systemd_runs(made["ExecStart"][0], box, own, NOTIFY_SOCKET=str(address))
            assert started.returncode == 0, started.stderr
            told = notify.recv(4096).decode()
            while "READY=1" not in told:
                told += notify.recv(4096).decode()
        assert "MAINPID=" in told
        container = box.container()
        assert container.id != before
        assert (container.stop_timeout, container.auto_remove) == (60, True)
        environment = podman.run("exec", own.name, "env").stdout
        assert "HF_TOKEN=hunter2\n" in environment
        assert any("admin=s3cret" in word for word in podman.run("top", own.name, "args").stdout.split())
        assert systemd_runs(made["ExecStop"][0], box, own).returncode == 0
        assert systemd_runs(made["ExecStopPost"][0], box, own).returncode == 0
        assert box.podman_state().container is None


def systemd_runs(line: str, box: Box, own: OwnTriton, **more: str) -> subprocess.CompletedProcess[str]:
    """One command line of the unit, its variables from EnvironmentFile=."""
    arguments = (box.root / f"etc/gpuconsole/units/{own.name}.args").read_text()
    for name, value in (entry.split("=", 1) for entry in arguments.splitlines()):
        line = line.replace(f"${{{name}}}", value.strip('"'))
    environment = podman.environment() | {"PODMAN_SYSTEMD_UNIT": f"{own.name}.service", **more}
    return subprocess.run(as_systemd(line), env=environment, capture_output=True, text=True, timeout=90, check=False)
