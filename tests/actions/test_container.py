"""Start, stop, restart, remove and their undo on a real container; each phase of theirs that a kill can hit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions.box import Box
from console.actions.container import Restart, Start, Stop
from console.actions.container_reload import Reload
from console.actions.container_remove import Remove
from console.actions.image_pull import Pull
from console.actions.recreate import Create
from console.clients import units
from console.clients.files import private_folder
from console.core.plan import Refused, WrongInput
from tests.actions.fake_run import Died, FakeRun
from tests.actions.own_box import containers, done, left_as_told, own_box
from tests.actions.stand_in import MORE, UNIT, unit_with_rm
from tests.fakes.registry import Registry
from tests.lab import paths, podman
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

pytestmark = pytest.mark.lab

MODEL = ("rank", sleeper_config("rank"), (1,))


@pytest.fixture
def own(lab: Lab, tmp_path: Path) -> Iterator[OwnTriton]:
    with own_triton(tmp_path / "models", [MODEL]) as found:
        yield found


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(own, private_folder(tmp_path / "state")) as found:
        yield found


def answering(own: OwnTriton) -> None:
    """Wait until the HTTP port answers: it has no model to be READY."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            own.triton("GET", "/v2/health/live")
            return
        time.sleep(0.05)
    raise AssertionError(own.log())


def test_stop_and_its_undo(own: OwnTriton, box: Box) -> None:
    run = FakeRun()
    plan, outcome = done(Stop(), box, "", run)
    assert run.facts["gap_ended"] == "", "nobody knows when it will serve again"
    assert "refuses" in run.facts["gap_seen"]
    assert float(run.facts["gap_rate"]) >= 0
    assert plan.danger == "danger"
    assert plan.confirm == own.name
    assert "1 model stops serving: rank" in plan.effects[0]
    assert plan.ticks == (), "its own 60 s are longer than the drain"
    assert outcome.word == "done"
    assert "stopped after" in outcome.text
    assert containers(own) == {own.name: "exited"}
    assert left_as_told(Stop(), box, plan, outcome)
    assert outcome.undo is not None
    assert (outcome.undo.action, outcome.undo.target) == ("container.start", own.name)
    assert Stop().plan(box, own.name, {}).refused
    back, started = done(Start(), box, outcome.undo.target)
    assert back.danger == "safe"
    assert "until ready last time" in back.effects[0]
    assert started.word == "done", started
    assert own.ready() == {("rank", "1")}
    assert Start().plan(box, own.name, {}).refused == "it runs already"


def test_a_short_stop_time_is_offered_to_be_longer(lab: Lab, tmp_path: Path) -> None:
    with (
        own_triton(tmp_path / "models", more=("--stop-timeout", "5"), wait=False) as own,
        own_box(own, tmp_path / "state") as box,
    ):
        plan = Stop().plan(box, own.name, {})
        assert [(tick.name, tick.on) for tick in plan.ticks] == [("longer", True)]
        assert "drains up to 30" in plan.ticks[0].text
        assert plan.values["timeout"] == "40"
        assert Stop().plan(box, own.name, {"longer": "false"}).values["timeout"] == "5"
        assert any("may be cut" in line for line in Stop().plan(box, own.name, {"longer": "false"}).effects)
        assert Stop().plan(box, own.name, {"timeout": "7"}).by_hand == (f"podman stop --time 7 {own.name}",)


def test_restart_brings_models_back_that_nobody_else_loads(own: OwnTriton, box: Box, tmp_path: Path) -> None:
    with own_triton(tmp_path / "more", [MODEL], flags=("--model-control-mode=explicit",), wait=False) as bare:
        answering(bare)
        assert bare.load("rank")[0] == 200
        with own_box(bare, tmp_path / "state2") as its:
            _, outcome = done(Restart(), its, bare.name)
            assert outcome.word == "done", outcome
            assert bare.ready() == {("rank", "1")}
            assert outcome.figures["gap_s"] > 0
            assert "gap_rate" in outcome.figures


def test_what_is_live_only_is_told_as_lost(own: OwnTriton, box: Box) -> None:
    status, _ = own.load("rank", config=_override(own))
    assert status == 200
    effects = Restart().plan(box, "", {}).effects
    assert any("1 live-only setting is lost: rank max_batch_size 4 (disk says 8)" in line for line in effects), effects


def _override(own: OwnTriton) -> str:
    import json

    _, config = own.triton("GET", "/v2/models/rank/config")
    return json.dumps({**config, "max_batch_size": 4, "dynamic_batching": {}})


def test_one_made_with_rm_is_kept_and_made_again(lab: Lab, tmp_path: Path) -> None:
    more = ("--rm", "--env", "API_TOKEN=hunter2hunter2", "--env", "PLAIN=1")
    with own_triton(tmp_path / "models", [MODEL], more=more) as own, own_box(own, tmp_path / "state") as box:
        run = FakeRun()
        plan, outcome = done(Stop(), box, "", run)
        assert any("vanishes" in line for line in plan.effects)
        assert containers(own) == {}
        assert left_as_told(Stop(), box, plan, outcome)
        kept = tmp_path / "state/specs" / run.facts["saved"]
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700
        assert "hunter2" not in repr((plan, outcome))
        assert outcome.undo is not None
        assert outcome.undo.action == "container.create"
        create = Create()
        again = create.plan(box, outcome.undo.target, outcome.undo.values)
        assert "hunter2" not in repr(again)
        assert create.run(box, again, FakeRun()).word == "done"
        assert own.ready() == {("rank", "1")}
        assert "hunter2hunter2" in podman.run("inspect", own.name).stdout
        assert "true" in podman.run("inspect", "--format", "{{.HostConfig.AutoRemove}}", own.name).stdout


def test_remove_only_when_stopped_and_undo(own: OwnTriton, box: Box) -> None:
    assert "stop it first" in Remove().plan(box, "", {}).refused
    podman.run("stop", own.name)
    plan, outcome = done(Remove(), box, own.name)
    assert plan.confirm == own.name
    assert containers(own) == {}
    assert outcome.undo is not None
    _, made = done(Create(), box, outcome.undo.target, values=outcome.undo.values)
    assert made.word == "done", made
    assert containers(own) == {own.name: "created"}


def test_names_and_read_only(own: OwnTriton, box: Box, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no container nonesuch"):
        Stop().plan(box, "nonesuch", {})
    with pytest.raises(WrongInput, match="is no name of an image"):
        Pull().plan(box, " ", {})
    plan = Stop().plan(box, "", {})
    podman.run("restart", own.name)
    with pytest.raises(Refused, match="has changed since the plan"):
        Stop().recheck(box, plan)
    with own_box(own, tmp_path / "state", read_only=True) as closed:
        for action in (Stop(), Restart()):
            with pytest.raises(Refused, match="read-only"):
                action.run(closed, action.plan(closed, "", {}), FakeRun())
    assert containers(own) == {own.name: "running"}


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_a_killed_stop_is_finished_or_undone(own: OwnTriton, box: Box, edge: str) -> None:
    plan = Stop().plan(box, "", {})
    run = FakeRun(("stop", edge))
    with pytest.raises(Died):
        Stop().run(box, plan, run)
    state, finish, undo = Stop().interrupted(box, plan, ())
    assert state
    if finish:
        assert Stop().finish(box, plan, FakeRun(kept=run.facts)).word == "done"
        assert containers(own) == {own.name: "exited"}
    else:
        assert undo
        assert Stop().undo(box, plan, FakeRun(kept=run.facts)).word == "undone"
        assert own.ready() == {("rank", "1")}


@pytest.mark.parametrize("phase", Restart.PHASES)
def test_a_killed_restart_is_finished(own: OwnTriton, box: Box, phase: str) -> None:
    plan = Restart().plan(box, "", {})
    run = FakeRun((phase, "end"))
    with pytest.raises(Died):
        Restart().run(box, plan, run)
    assert Restart().interrupted(box, plan, ())[1]
    outcome = Restart().finish(box, plan, FakeRun(kept=run.facts))
    assert outcome.word == "done"
    assert ("gap_s" in outcome.figures) == (phase == "stop"), "when one that runs came to serve again is not known"
    assert own.ready() == {("rank", "1")}


@pytest.mark.parametrize("phase", Remove.PHASES)
def test_a_killed_remove_is_finished_and_undone(own: OwnTriton, box: Box, phase: str) -> None:
    podman.run("stop", own.name)
    plan = Remove().plan(box, own.name, {})
    run = FakeRun((phase, "end"))
    with pytest.raises(Died):
        Remove().run(box, plan, run)
    _, finish, undo = Remove().interrupted(box, plan, ())
    if finish:
        assert Remove().finish(box, plan, FakeRun(kept=run.facts)).word == "done"
    if undo:
        assert Remove().undo(box, plan, FakeRun(kept=run.facts)).word == "undone"
    assert containers(own) == ({} if finish else {own.name: "created"})


def test_a_killed_start_is_finished_or_undone(own: OwnTriton, box: Box) -> None:
    podman.run("stop", own.name)
    plan = Start().plan(box, own.name, {})
    with pytest.raises(Died):
        Start().run(box, plan, FakeRun(("start", "begin")))
    assert Start().interrupted(box, plan, ())[1] == "start it"
    assert Start().finish(box, plan, FakeRun()).word == "done"
    assert Start().interrupted(box, plan, ())[2] == "stop it again"
    assert Start().undo(box, plan, FakeRun()).word == "undone"
    assert containers(own) == {own.name: "exited"}


def test_a_start_that_fails_says_why(lab: Lab, tmp_path: Path) -> None:
    with (
        own_triton(tmp_path / "models", flags=("--no-such-flag",), wait=False) as own,
        own_box(own, tmp_path / "state") as box,
    ):
        podman.run("wait", own.name)
        _, outcome = done(Start(), box, own.name)
        assert outcome.word == "failed"
        assert any("no-such-flag" in line for line in outcome.lines), outcome


def test_pull(own: OwnTriton, box: Box) -> None:
    with Registry() as registry:
        try:
            run = FakeRun()
            plan, outcome = done(Pull(), box, registry.reference, run, {"tls_verify": "false"})
            assert plan.danger == "safe"
            assert outcome.word == "done"
            assert outcome.left["image"] != "not here"
            stopped = FakeRun()
            stopped.cancelled.set()
            assert Pull().run(box, plan, stopped).word == "undone"
        finally:
            podman.run("rmi", "--force", registry.reference, check=False)


def test_reload_in_place_takes_what_is_newer_on_disk(own: OwnTriton, box: Box) -> None:
    assert own.load("rank", config=_override(own))[0] == 200
    plan, outcome = done(Reload(), box, "")
    assert (plan.way, plan.danger) == ("load", "caution")
    assert any("1 live-only setting is kept: rank max_batch_size 4" in line for line in plan.effects)
    assert outcome.word == "done", outcome
    config = own.repository / "rank/config.pbtxt"
    assert own.triton("GET", "/v2/models/rank/config")[1]["max_batch_size"] == 4, "an override is sticky"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 6"))
    assert done(Reload(), box, "")[1].word == "done"
    assert own.triton("GET", "/v2/models/rank/config")[1]["max_batch_size"] == 6
    config.write_text("nonsense: 1")
    _, failed = done(Reload(), box, "")
    assert failed.word == "failed"
    assert own.ready() == {("rank", "1")}, "the old copy serves on"
    assert Reload().plan(box, "", {"way": "restart"}).danger == "danger"


def test_reload_without_explicit_mode_is_a_restart(lab: Lab, tmp_path: Path) -> None:
    flags = ("--model-control-mode=none",)
    with own_triton(tmp_path / "models", [MODEL], flags=flags) as own, own_box(own, tmp_path / "state") as box:
        plan, outcome = done(Reload(), box, "")
        assert plan.way == "restart"
        assert "control mode is none" in plan.ways[0].impossible
        assert outcome.word == "done", outcome
        assert Reload().plan(box, "", {"way": "load"}).refused


def test_a_server_that_is_starting_takes_the_second_signal(own: OwnTriton, box: Box) -> None:
    """As process 1 it loses a SIGTERM that comes before its handler is set; it was seen to serve on for 60 s."""
    podman.run("stop", own.name)
    control = box.podman()
    control.start(own.name)
    control.close()
    plan = Stop().plan(box, "", {})
    outcome = Stop().run(box, plan, FakeRun())
    assert outcome.word == "done"
    assert outcome.figures["stop_s"] < 40
    assert "killed" not in outcome.text


def test_a_unit_is_acted_on_through_systemctl(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for systemctl records its arguments, and acts on the container as the unit would."""
    record = tmp_path / "record"
    stand_in = tmp_path / "bin/systemctl"
    stand_in.parent.mkdir()
    more = ("--label", "PODMAN_SYSTEMD_UNIT=triton.service")
    with own_triton(tmp_path / "models", [MODEL], more=more) as own, own_box(own, tmp_path / "state") as box:
        words = " ".join(podman.command())
        env = " ".join(
            f"{name}={value}" for name, value in podman.environment().items() if name.startswith("CONTAINERS")
        )
        stand_in.write_text(
            f"""#!/bin/sh
echo "$@" >> {record}
for word; do case "$word" in start|stop|restart) exec env {env} {words} "$word" {own.name} ;; esac; done
"""
        )
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
        for action, verb in ((Restart(), "restart"), (Stop(), "stop"), (Start(), "start")):
            plan, outcome = done(action, box, own.name)
            assert outcome.word == "done", outcome
            assert f"systemctl {verb} triton.service" in plan.by_hand[0]
            assert any(line.endswith(f"{verb} triton.service") for line in record.read_text().splitlines())
        assert own.ready() == {("rank", "1")}


def test_a_unit_makes_the_container_that_went_with_its_stop(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand-written unit with --rm, as on RHEL 8: stopped through it the container is gone; `u` starts the unit."""
    with own_triton(tmp_path / "models", [MODEL], more=MORE) as own, own_box(own, tmp_path / "state") as box:
        unit_with_rm(own, tmp_path, monkeypatch)
        monkeypatch.setattr(units, "unit_naming", lambda name, root, user: UNIT if name == own.name else None)
        _, stopped = done(Stop(), box, own.name)
        assert stopped.word == "done"
        assert own.name not in containers(own)
        assert stopped.undo is not None
        plan, outcome = done(Start(), box, stopped.undo.target)
        assert f"which makes container {own.name}" in plan.title
        assert outcome.word == "done", outcome
        assert own.ready() == {("rank", "1")}
        with pytest.raises(WrongInput, match="there is no container nobody"):
            Start().plan(box, "nobody", {})


def test_a_container_that_is_gone_comes_through_its_unit_by_the_unit_s_name(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is known of the container of a Quadlet unit that is stopped; `o` on Container."""
    with own_triton(tmp_path / "models", [MODEL], more=MORE) as own, own_box(own, tmp_path / "state") as box:
        record = unit_with_rm(own, tmp_path, monkeypatch, late=True)
        assert done(Stop(), box, own.name)[1].word == "done"
        assert containers(own) == {}
        plan = Start().plan(box, UNIT, {})
        assert f"Start {UNIT}, which makes its container" in plan.title
        assert plan.by_hand == (f"sudo systemctl start {UNIT}",)
        with pytest.raises(Died):
            Start().run(box, plan, FakeRun(("start", "begin")))
        assert Start().interrupted(box, plan, ()) == ("it does not run", "start it", "")
        _, outcome = done(Start(), box, UNIT)
        assert outcome.word == "done", outcome
        assert own.ready() == {("rank", "1")}
        assert left_as_told(Start(), box, plan, outcome)
        assert outcome.undo is not None
        assert (outcome.undo.action, outcome.undo.target) == ("container.stop", own.name)
        assert Start().interrupted(box, plan, ()) == ("it runs", "", "stop it again")
        assert f"--no-ask-password start {UNIT}" in record.read_text()
        assert Start().plan(box, own.name, {}).refused == "it runs already"


def test_what_was_interrupted_is_not_done_to_another_container_of_the_name(own: OwnTriton, box: Box) -> None:
    """Somebody removed it and made a new one since."""
    actions = (Start(), Stop(), Restart(), Reload(), Remove())
    plans = [one.plan(box, "", {}) for one in actions]
    podman.run("rename", own.name, f"{own.name}-away")
    podman.run("create", "--pull", "never", "--name", own.name, paths.IMAGE, "sleep", "600")
    for plan, one in zip(plans, actions, strict=True):
        found, finish, undo = one.interrupted(box, plan, ())
        assert f"another container is called {own.name} now" in found, one.NAME
        assert (finish, undo) == ("", ""), one.NAME


def test_a_part_of_its_id_means_the_container_by_its_own_name(own: OwnTriton, box: Box) -> None:
    identity = podman.run("inspect", "--format", "{{.Id}}", own.name).stdout.strip()
    assert Stop().plan(box, identity[:10], {}).confirm == own.name
