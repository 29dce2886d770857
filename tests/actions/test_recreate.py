"""Recreate, back and create on a real container: what is carried over, the way back, a kill in each phase."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from console.actions.box import Box
from console.actions.recreate import Back, Create, Recreate
from console.clients.files import private_folder
from console.core.plan import JournalLine, Refused, WrongInput
from tests.actions.fake_run import Died, FakeRun
from tests.actions.own_box import containers, done, left_as_told, own_box
from tests.lab import paths, podman
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

pytestmark = pytest.mark.lab

MODEL = ("rank", sleeper_config("rank"), (1,))
SECRET = "hunter2hunter2"


@pytest.fixture
def own(lab: Lab, tmp_path: Path) -> Iterator[OwnTriton]:
    more: tuple[str, ...] = (
        "--env",
        f"API_TOKEN={SECRET}",
        "--env",
        "PLAIN=1",
        "--label",
        "team=ads",
        "--ulimit",
        "core=0",
    )
    more += ("--volume", f"{tmp_path}:/scratch:z", "--health-cmd", "true", "--health-interval", "1h")
    more += ("--security-opt", "label=disable", "--security-opt", "no-new-privileges", "--restart", "on-failure:3")
    more += ("--cpuset-cpus", "0", "--hostname", "inference", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=2048")
    with own_triton(tmp_path / "models", [MODEL], more=more) as found:
        yield found


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(own, private_folder(tmp_path / "state")) as found:
        yield found


@pytest.fixture
def plain(lab: Lab, tmp_path: Path) -> Iterator[OwnTriton]:
    with own_triton(tmp_path / "models", [MODEL]) as found:
        yield found


@pytest.fixture
def plain_box(plain: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(plain, private_folder(tmp_path / "state")) as found:
        yield found


def inspect(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(podman.run("inspect", name).stdout)[0]
    return found


def lasting(name: str) -> dict[str, Any]:
    """An inspect answer less what is another container's by nature."""
    told = inspect(name)
    config, host = told["Config"], told["HostConfig"]
    for key in ("CreateCommand", "Annotations"):
        config.pop(key)
    host["LogConfig"].pop("Path")
    host["Binds"] = sorted(sorted(one.replace(":", ",").split(",")) for one in host["Binds"])
    host["SecurityOpt"] = sorted(host["SecurityOpt"])
    own = [line for line in config["Env"] if not line.startswith("HOSTNAME=")]
    config["Env"], config["Hostname"] = sorted(own), config["Hostname"].replace(told["Id"][:12], "ID")
    mounts = sorted((one["Destination"], one["Source"], one["RW"]) for one in told["Mounts"])
    networks = sorted(told["NetworkSettings"]["Networks"])
    return {"config": config, "host": host, "mounts": mounts, "image": told["Image"], "networks": networks}


def test_all_that_matters_is_carried_over(own: OwnTriton, box: Box) -> None:
    before = lasting(own.name)
    plan, outcome = done(Recreate(), box, "")
    assert outcome.word == "done", outcome
    assert plan.difference == ("  nothing changes: it is made anew as it is",)
    assert lasting(own.name) == before
    made = inspect(own.name)["Config"]["CreateCommand"]
    assert made[made.index("--device") + 1] == paths.CDI_DEVICE
    assert "label=disable" in made
    assert f"{own.repository.parent}:/scratch:z" in made
    assert containers(own) == {own.name: "running", f"{own.name}-old-1": "exited"}
    assert own.ready() == {("rank", "1")}
    assert left_as_told(Recreate(), box, plan, outcome)
    assert SECRET not in repr((plan, outcome))
    assert outcome.undo is not None
    again, back = done(Back(), box, outcome.undo.target, values=outcome.undo.values)
    assert back.word == "done", back
    assert again.confirm == own.name
    assert own.ready() == {("rank", "1")}
    assert containers(own) == {own.name: "running", f"{own.name}-old-2": "exited"}, "the present one is kept instead"
    assert lasting(own.name) == before


def test_it_can_be_made_anew_twice(plain: OwnTriton, plain_box: Box) -> None:
    """What was made through the API holds the command that says it: nothing is lost the second time either."""
    before = lasting(plain.name)
    for _ in range(2):
        assert done(Recreate(), plain_box, "")[1].word == "done"
    assert lasting(plain.name) == before
    assert sorted(containers(plain)) == [plain.name, f"{plain.name}-old-1", f"{plain.name}-old-2"]


def test_changes(own: OwnTriton, box: Box) -> None:
    values = {
        "shm_size": "256m",
        "ulimits": "core=0:0,stack=1048576",
        "cpus": "0-1",
        "numa": "0",
        "env": "NEW_TOKEN=letmein12345,CAPS=compute,utility",
        "unset": "PLAIN",
        "mode": "poll",
        "flags": "--log-verbose=1",
        "ports": f"127.0.0.1:{own.port}:8000,127.0.0.1:{own.port + 2}:8002",
        "stop_timeout": "45",
    }
    plan, outcome = done(Recreate(), box, "", values=values)
    assert outcome.word == "done", outcome
    made = inspect(own.name)
    host, config = made["HostConfig"], made["Config"]
    assert (host["ShmSize"], host["CpusetCpus"], host["CpusetMems"]) == (256 << 20, "0-1", "0")
    assert {one["Name"] for one in host["Ulimits"]} >= {"RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_NOFILE"}
    assert {"NEW_TOKEN=letmein12345", "CAPS=compute,utility", f"API_TOKEN={SECRET}"} <= set(config["Env"])
    assert "PLAIN=1" not in config["Env"]
    assert "--model-control-mode=poll" in config["Cmd"]
    assert "--load-model=*" not in config["Cmd"], "the server refuses it outside explicit mode"
    assert "--log-verbose=1" in config["Cmd"]
    assert sorted(host["PortBindings"]) == ["8000/tcp", "8002/tcp"]
    assert config["StopTimeout"] == 45
    shown = repr((plan.difference, plan.by_hand, plan.effects, outcome))
    assert "letmein12345" not in shown
    assert "+ --env NEW_TOKEN=***" in plan.difference
    assert "- --model-control-mode=explicit" in plan.difference


def test_preflight_refuses_before_anything_is_touched(own: OwnTriton, box: Box) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        wrong = {
            "image": ({"image": "localhost/none:1"}, "pull it first"),
            "port": ({"ports": f"127.0.0.1:{taken}:8000"}, f"taken: 127.0.0.1:{taken}:8000 by"),
            "cdi": ({"devices": "nvidia.com/gpu=all"}, "no CDI spec file defines it"),
            "device": ({"devices": "/dev/nonesuch"}, "is not there"),
        }
        for values, words in wrong.values():
            plan = Recreate().plan(box, "", values)
            assert words in plan.refused
            with pytest.raises(Refused, match="nothing was touched"):
                Recreate().run(box, plan, FakeRun())
    assert containers(own) == {own.name: "running"}


def test_a_limit_that_podman_may_not_set_is_refused_first(own: OwnTriton, box: Box) -> None:
    plan = Recreate().plan(box, "", {"ulimits": "memlock=-1"})
    may = "ulimits permitted" in repr(plan.checks)
    assert may or "memlock to unlimited" in plan.refused


WRONG: tuple[Mapping[str, str], ...] = (
    {"image": "a b"},
    {"ports": "99999:8000"},
    {"ports": "x"},
    {"shm_size": "1.5g"},
    {"ulimits": "memlokc=1"},
    {"ulimits": "nofile=5:1"},
    {"ulimits": "nofile=x"},
    {"cpus": "all"},
    {"numa": "-1"},
    {"env": "=x"},
    {"unset": "NONESUCH"},
    {"flags": "log-verbose=1"},
    {"drop_flags": "x"},
)


def test_wrong_values_are_one_sentence(own: OwnTriton, box: Box) -> None:
    for values in WRONG:
        with pytest.raises(WrongInput) as caught:
            Recreate().plan(box, "", values)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"{next(iter(values))}:")


def test_a_new_one_that_does_not_start_gives_way_to_the_old(plain: OwnTriton, plain_box: Box) -> None:
    run = FakeRun()
    plan, outcome = done(Recreate(), plain_box, "", run, {"flags": "--no-such-flag"})
    assert outcome.word == "undone", outcome
    assert outcome.figures["gap_s"] > 0
    assert "refuses" in run.facts["gap_seen"]
    assert any("no-such-flag" in line for line in outcome.lines), "the cause is in the new one's log"
    assert containers(plain) == {plain.name: "running"}
    assert plain.ready() == {("rank", "1")}
    assert left_as_told(Recreate(), plain_box, plan, outcome)


def test_a_model_that_is_not_ready_again_gives_way_to_the_old(plain: OwnTriton, tmp_path: Path) -> None:
    with own_box(plain, tmp_path / "state", start_timeout=6.0) as box:
        plan = Recreate().plan(box, "", {})
        config = plain.repository / "rank/config.pbtxt"
        good = config.read_text()
        config.write_text("no such field: 1")
        run = FakeRun()
        run.hooks["back"] = lambda: config.write_text(good)
        outcome = Recreate().run(box, plan, run)
    assert outcome.word == "undone", outcome
    assert "not READY after 6 s: rank 1" in outcome.text
    assert any("0 of 1 READY, server's ready flag" in note for note in run.notes), run.notes
    assert plain.ready() == {("rank", "1")}


def test_the_operator_can_stop_it(plain: OwnTriton, plain_box: Box) -> None:
    run = FakeRun()
    run.cancel_in = "create"
    plan = Recreate().plan(plain_box, "", {})
    outcome = Recreate().run(plain_box, plan, run)
    assert outcome.word == "undone"
    assert "stopped by the operator" in outcome.text
    assert containers(plain) == {plain.name: "running"}
    assert plain.ready() == {("rank", "1")}


def killed(box: Box, phase: str) -> tuple[Any, FakeRun, tuple[JournalLine, ...]]:
    plan = Recreate().plan(box, "", {"shm_size": "96m"})
    run = FakeRun((phase, "end"))
    with pytest.raises(Died):
        Recreate().run(box, plan, run)
    journal = tuple(JournalLine(0.0, "kept", data={name: value}) for name, value in run.facts.items())
    return plan, run, journal


ONWARDS = ("note", "stop", "aside", "create", "start", "ready")
"""Each phase but the way back; what the end of one leaves is what the next begins with."""


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_killed_one_is_undone_from_each_phase(plain: OwnTriton, plain_box: Box) -> None:
    before = inspect(plain.name)["Id"]
    for phase in ONWARDS:
        plan, run, journal = killed(plain_box, phase)
        found, finish, _ = Recreate().interrupted(plain_box, plan, journal)
        assert found, phase
        assert finish, phase
        outcome = Recreate().undo(plain_box, plan, FakeRun(kept=run.facts))
        assert outcome.word == "undone", (phase, outcome)
        assert ("gap_s" in outcome.figures) == (phase != "note"), phase
        assert inspect(plain.name)["Id"] == before, phase
        assert plain.ready() == {("rank", "1")}, phase
        assert containers(plain) == {plain.name: "running"}, phase


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_killed_one_is_finished_from_each_phase(plain: OwnTriton, plain_box: Box) -> None:
    for number, phase in enumerate(ONWARDS, 1):
        plan, run, _ = killed(plain_box, phase)
        outcome = Recreate().finish(plain_box, plan, FakeRun(kept=run.facts))
        assert outcome.word == "done", (phase, outcome)
        assert ("gap_s" in outcome.figures) == (phase not in ("start", "ready")), f"{phase}: the new one runs already"
        assert inspect(plain.name)["HostConfig"]["ShmSize"] == 96 << 20, phase
        assert plain.ready() == {("rank", "1")}, phase
        old = {f"{plain.name}-old-{one}": "exited" for one in range(1, number + 1)}
        assert containers(plain) == {plain.name: "running", **old}, phase


def test_a_kill_on_the_way_back(plain: OwnTriton, plain_box: Box) -> None:
    before = inspect(plain.name)["Id"]
    plan = Recreate().plan(plain_box, "", {"flags": "--no-such-flag"})
    run = FakeRun(("back", "begin"))
    with pytest.raises(Died):
        Recreate().run(plain_box, plan, run)
    assert Recreate().undo(plain_box, plan, FakeRun(kept=run.facts)).word == "undone"
    assert inspect(plain.name)["Id"] == before
    assert plain.ready() == {("rank", "1")}


@pytest.mark.parametrize("phase", ["aside", "create", "start"])
def test_a_killed_way_to_a_kept_one(plain: OwnTriton, plain_box: Box, phase: str) -> None:
    done(Recreate(), plain_box, "")
    new, old = inspect(plain.name)["Id"], inspect(f"{plain.name}-old-1")["Id"]
    plan = Back().plan(plain_box, "", {})
    run = FakeRun((phase, "end"))
    with pytest.raises(Died):
        Back().run(plain_box, plan, run)
    undo = phase != "aside"
    way = FakeRun(kept=run.facts)
    outcome = (Back().undo if undo else Back().finish)(plain_box, plan, way)
    assert outcome.word == ("undone" if undo else "done"), (outcome, way.notes)
    assert inspect(plain.name)["Id"] == (new if undo else old)
    assert plain.ready() == {("rank", "1")}


def test_one_made_with_rm(lab: Lab, tmp_path: Path) -> None:
    with own_triton(tmp_path / "models", [MODEL], more=("--rm",)) as own, own_box(own, tmp_path / "state") as box:
        before = lasting(own.name)
        plan, outcome = done(Recreate(), box, "", values={"flags": "--no-such-flag"})
        assert any("vanishes" in line for line in plan.effects)
        assert outcome.word == "undone", outcome
        assert lasting(own.name) == before
        assert own.ready() == {("rank", "1")}


def test_no_old_one_to_go_back_to(plain: OwnTriton, plain_box: Box) -> None:
    with pytest.raises(WrongInput, match="no old container"):
        Back().plan(plain_box, "", {})
    with pytest.raises(WrongInput, match="no kept container nonesuch"):
        Back().plan(plain_box, "", {"kept": "nonesuch"})


def test_a_port_that_podman_still_holds_is_waited_for(plain: OwnTriton, plain_box: Box) -> None:
    """host.md 3.6, played by a listener of our own that is called podman-service and goes after two seconds."""
    from console.actions import powering

    podman.run("stop", plain.name)
    run = FakeRun()
    control = plain_box.podman()
    with contextlib.closing(socket.socket()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", plain.port))
        held.listen()
        with pytest.raises(Exception, match="it is "):
            powering.start(control, plain.name, [plain.port], run)
        threading.Timer(1.0, held.close).start()
        powering.start(control, plain.name, [], run)
    assert any("trying again" in note for note in run.notes)
    control.close()


def test_create_from_nothing(lab: Lab, plain: OwnTriton, plain_box: Box) -> None:
    name = f"{plain.name}-made"
    base = plain.port + 3
    values = {
        "models": str(plain.repository),
        "image": paths.IMAGE,
        "devices": paths.CDI_DEVICE,
        "ports": f"127.0.0.1:{base}:8000,127.0.0.1:{base + 1}:8001,127.0.0.1:{base + 2}:8002",
        "env": f"API_TOKEN={SECRET}",
        "flags": "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends,--allow-gpu-metrics=false",
    }
    plan = Create().plan(plain_box, name, values)
    assert not plan.refused, plan.refused
    assert SECRET not in repr((plan.by_hand, plan.checks, plan.steps))
    assert plan.by_hand[0].startswith("podman run --detach --name")
    outcome = Create().run(plain_box, plan, FakeRun())
    assert outcome.word == "done", outcome
    assert OwnTriton(name, base, plain.repository).ready() == {("rank", "1")}
    assert "already" in Create().plan(plain_box, name, values).refused
    with pytest.raises(WrongInput, match=r"models: give"):
        Create().plan(plain_box, "x", {})
    assert "is not there" in Create().plan(plain_box, "x", {"models": "/nonexistent/m"}).refused


@pytest.mark.parametrize("phase", Create.PHASES)
def test_a_killed_create(lab: Lab, plain: OwnTriton, plain_box: Box, phase: str) -> None:
    name, base = f"{plain.name}-made", plain.port + 3
    flags = "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends,--allow-gpu-metrics=false"
    values = {"models": str(plain.repository), "ports": f"127.0.0.1:{base}:8000", "flags": flags, "image": paths.IMAGE}
    plan = Create().plan(plain_box, name, values)
    run = FakeRun((phase, "end"))
    with pytest.raises(Died):
        Create().run(plain_box, plan, run)
    journal = (JournalLine(0.0, "kept", data=run.facts),)
    _, finish, undo = Create().interrupted(plain_box, plan, journal)
    assert finish
    assert undo
    assert Create().finish(plain_box, plan, FakeRun(kept=run.facts)).word == "done"
    assert Create().undo(plain_box, plan, FakeRun(kept=run.facts)).word == "undone"
    assert name not in containers(plain)


def test_a_unit_is_never_gone_behind(plain: OwnTriton, plain_box: Box) -> None:
    more = ("--label", "PODMAN_SYSTEMD_UNIT=triton.service")
    with own_triton(plain.repository, more=more, wait=False) as own, own_box(own, plain_box.state) as box:
        assert "belongs to triton.service" in Recreate().plan(box, "", {}).refused


STRANGER = ("run", "--detach", "--pull", "never", "--cgroup-parent", podman.CGROUP_PARENT, "--name")


def stranger(name: str) -> str:
    """Somebody else's running container of this name; its id."""
    return podman.run(*STRANGER, name, paths.IMAGE, "sleep", "600").stdout.strip()


def test_a_container_of_somebody_else_is_never_taken_for_ones_own(plain: OwnTriton, plain_box: Box) -> None:
    """Another one under the name, made while the change lay interrupted: neither started, nor counted, nor removed."""
    plan, run, journal = killed(plain_box, "aside")
    other = stranger(plain.name)
    found, finish, undo = Recreate().interrupted(plain_box, plan, journal)
    assert (f"another container is called {plain.name} now" in found, finish) == (True, "")
    assert undo.startswith("once that name is free")
    with pytest.raises(Refused, match="left alone"):
        Recreate().finish(plain_box, plan, FakeRun(kept=run.facts))
    outcome = Recreate().undo(plain_box, plan, FakeRun(kept=run.facts))
    assert outcome.word == "failed"
    assert "left alone" in outcome.text
    assert inspect(plain.name)["Id"] == other
    assert inspect(plain.name)["State"]["Running"]
    podman.run("rm", "--force", "--time", "0", plain.name)
    assert Recreate().undo(plain_box, plan, FakeRun(kept=run.facts)).word == "undone"
    assert plain.ready() == {("rank", "1")}


def test_one_that_serves_is_no_kept_one(plain: OwnTriton, plain_box: Box) -> None:
    with pytest.raises(WrongInput, match="no kept container triton"):
        Back().plan(plain_box, "", {"kept": "triton"})
    stranger(f"{plain.name}-old-1")
    assert "a kept one is stopped" in Back().plan(plain_box, "", {}).refused


def test_nothing_is_removed_where_there_is_nothing_to_go_back_to(plain: OwnTriton, plain_box: Box) -> None:
    plan, run, _ = killed(plain_box, "ready")
    podman.run("rm", f"{plain.name}-old-1")
    for file in (plain_box.state / "specs").iterdir():
        file.unlink()
    outcome = Recreate().undo(plain_box, plan, FakeRun(kept=run.facts))
    assert outcome.word == "failed"
    assert "The old one is gone" in outcome.text
    assert plain.ready() == {("rank", "1")}, "the new one serves on"


def test_what_was_created_again_by_a_killed_way_back_stays(plain: OwnTriton, plain_box: Box) -> None:
    plan, run, _ = killed(plain_box, "create")
    podman.run("rm", f"{plain.name}-old-1")
    assert Recreate().undo(plain_box, plan, run).word == "undone"
    again = inspect(plain.name)["Id"]
    assert run.facts["again"] == again
    assert Recreate().undo(plain_box, plan, FakeRun(kept=run.facts)).word == "undone"
    assert inspect(plain.name)["Id"] == again


def test_what_somebody_else_made_is_not_removed_by_a_create(plain: OwnTriton, plain_box: Box) -> None:
    name = f"{plain.name}-new"
    plan = Create().plan(plain_box, name, {"models": str(plain.repository), "ports": "8000", "start": "false"})
    other = stranger(name)
    found, finish, undo = Create().interrupted(plain_box, plan, ())
    assert ("left alone" in found, finish, undo) == (True, "", "")
    for deed in (Create().run, Create().finish, Create().undo):
        with pytest.raises(Refused, match="left alone"):
            deed(plain_box, plan, FakeRun())
    assert inspect(name)["Id"] == other
