"""A shell inside a real container: written down before and after, refused where it must be, run by no runner."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.actions import audit, runner, shell
from console.actions.box import Box, BoxSpec
from console.clients.files import private_folder
from console.config import Podman, Safety, Settings
from console.core.plan import UNAUDITED, Plan, Refused
from tests.actions.fake_run import FakeRun
from tests.actions.own_box import own_box
from tests.lab import podman
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    if Lab.found() is None:
        pytest.skip("the lab is not up")
    with own_triton(tmp_path_factory.mktemp("models"), wait=False) as started:
        yield started


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(own, private_folder(tmp_path / "state")) as found:
        yield found


def planned(box: Box) -> Plan:
    plan = runner.prepare(box, "container.shell", "", {})
    assert not plan.refused, plan.refused
    return plan


def typed_into(argv: tuple[str, ...], keys: bytes) -> tuple[int, bytes]:
    """Run it on a terminal of its own, type these keys: exit code and what was shown."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(list(argv), stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
    os.close(inner)
    os.write(outer, keys)
    shown = b""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            shown += os.read(outer, 4096)
        except OSError:
            break
    os.close(outer)
    return process.wait(10), shown


def test_inside_and_out_again(own: OwnTriton, box: Box) -> None:
    plan = planned(box)
    assert plan.here
    assert plan.danger == "caution"
    assert plan.by_hand == (f"podman --url {own.socket} exec --interactive --tty {own.name} sh",)
    entered = shell.enter(box, plan)
    (before,) = audit.changes(box.state)
    assert before.intent is not None
    assert before.result is None
    assert before.intent.target.name == own.name
    code, shown = typed_into(entered.argv, b"echo in$((1+1))side; head -1 /proc/1/cmdline | tr '\\0' ' '; exit 3\r")
    assert b"in2side" in shown
    assert b"tritonserver" in shown
    assert code == 3
    outcome = shell.left(box, entered, code)
    assert outcome.word == "done"
    assert "left with exit 3" in outcome.text
    (after,) = audit.changes(box.state)
    assert after.result == outcome
    assert after.undo_off == "it left nothing that could be undone"
    assert after.intent is not None
    assert after.intent.id == entered.request.id


def test_what_podman_could_not_do_is_no_visit(box: Box) -> None:
    entered = shell.enter(box, planned(box))
    outcome = shell.left(box, entered, 125)
    assert (outcome.word, outcome.text) == ("failed", "Podman could not enter it (exit 125)")
    assert "signal 1" in shell.left(box, entered, -1).text


def test_another_container_than_planned_is_not_entered(box: Box) -> None:
    plan = planned(box)
    other = replace(plan, target=replace(plan.target, identity={**plan.target.identity, "id": "000000000000"}))
    with pytest.raises(Refused, match="has changed since the plan was made"):
        shell.enter(box, other)
    assert audit.changes(box.state) == ()


def test_a_stopped_one_cannot_be_entered(lab: Lab, tmp_path: Path) -> None:
    with own_triton(tmp_path / "models", wait=False) as own, own_box(own, private_folder(tmp_path / "state")) as box:
        podman.run("stop", "--time", "0", own.name)
        plan = runner.prepare(box, "container.shell", own.name, {})
        assert "a shell needs a running container" in plan.refused
        with pytest.raises(Refused, match="a running container"):
            shell.enter(box, plan)


def test_read_only_is_refused_twice(own: OwnTriton, box: Box, tmp_path: Path) -> None:
    plan = planned(box)
    with own_box(own, tmp_path / "other", read_only=True) as closed:
        with pytest.raises(Refused, match="read-only"):
            runner.prepare(closed, "container.shell", "", {})
        with pytest.raises(Refused, match="read-only"):
            shell.enter(closed, plan)
        assert audit.changes(closed.state) == ()


def test_a_simulated_box_has_nothing_to_enter(own: OwnTriton, tmp_path: Path) -> None:
    told = Settings(podman=Podman(own.socket, own.name), safety=Safety())
    box = Box(BoxSpec(told, simulated="healthy"), tmp_path)
    try:
        assert "simulated" in shell.Shell().plan(box, "", {}).refused
    finally:
        box.close()


def test_without_an_audit_record_nobody_enters(box: Box) -> None:
    plan = planned(box)
    (box.state / audit.NAME).unlink(missing_ok=True)
    (box.state / audit.NAME).mkdir()
    with pytest.raises(Refused, match="the audit record cannot be written"):
        shell.enter(box, plan)
    entered = shell.enter(box, replace(plan, values={**plan.values, UNAUDITED: "true"}))
    assert entered.argv[-3:-1] == ("/bin/sh", "-c")


def test_no_runner_holds_a_shell(box: Box) -> None:
    plan = planned(box)
    with pytest.raises(Refused, match="a shell needs a terminal of its own: press ! on Container, or type podman"):
        shell.Shell().run(box, plan, FakeRun())
