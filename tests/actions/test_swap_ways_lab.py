"""The ways for where both versions do not fit, on a real server: with 1 instance of each, and by a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.actions.golden import Keep
from console.actions.model_look import look
from console.actions.swap import Swap
from tests.actions.model_boxes import Live, own_box
from tests.actions.runs import do, killed
from tests.actions.stand_in import MORE, UNIT, unit_with_rm
from tests.actions.traffic import traffic
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config, write

pytestmark = pytest.mark.lab

PIN = "version_policy { specific { versions: [ 1 ] } }"
BEFORE = {("m", "1"), ("n", "1")}


def config(moods: str = "", *, policy: str = "", instances: int = 3) -> str:
    """Of a rogue: `2 wrong, 3 fails` are its moods by version."""
    entries = [
        f'{{ key: "mood.v{version}" value {{ string_value: "{mood}" }} }}'
        for version, mood in re.findall(r"(\d+) (\w+)", moods)
    ]
    more = f"{policy}\nparameters [ {', '.join(entries)} ]" if entries else policy
    return sleeper_config("m", instances=instances, more=more)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    """Three instances, pinned to version 1; a second model that must not notice."""
    root = tmp_path_factory.mktemp("ways") / "repository"
    write("m", config("3 wrong, 4 fails, 5 dies", policy=PIN), (1, 2, 3, 4, 5), program="rogue.py", root=root)
    write("n", sleeper_config("n"), (1,), root=root)
    with own_triton(root, wait=False) as made:
        made.wait_ready(BEFORE)
        yield made


def counts(own: OwnTriton) -> list[int]:
    """Instances of `m` as the server has them."""
    _, found = own.triton("GET", "/v2/models/m/config")
    return [group["count"] for group in found["instance_group"]]


def begun(own: OwnTriton, since: int) -> list[str]:
    """Instances that began since a length of the log."""
    return re.findall(r"ModelInstanceInitialize: (\w+)", own.log()[since:])


# ------------------------------------------------------------------------------------------------- 1 instance of each


def test_one_instance_of_each_under_traffic_and_its_undo(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    box = own_box(own, tmp_path, watch=0.6)
    with traffic(own.port, "m") as seen:
        log = len(own.log())
        up = do(Swap(), box, "m", {"version": "2", "way": "instances"}, Live())
        assert up.word == "done", up
        # nothing of the old version was loaded anew: one instance of the new one, and then two more
        assert begun(own, log)[0] == "m_0_0"
        assert sorted(begun(own, log)[1:]) == ["m_0_1", "m_0_2"]
        assert counts(own) == [3]
        down = do(Swap(), box, "m", {"version": "1", "way": "instances"}, Live())
        assert down.word == "done", down
    assert seen.failed == []
    assert seen.versions == {"1", "2"}
    assert (own.ready(), counts(own)) == (BEFORE, [3])


@pytest.mark.parametrize(("version", "said"), [(3, "answers wrong"), (4, "fails to load"), (5, "is not healthy")])
def test_a_bad_version_costs_no_instance(lab: Lab, own: OwnTriton, tmp_path: Path, version: int, said: str) -> None:
    box = own_box(own, tmp_path, watch=0.6)
    do(Keep(), box, "m", {}, Live())
    found = do(Swap(), box, "m", {"version": str(version), "way": "instances"}, Live())
    assert found.word == "undone", found
    assert said in found.text
    assert (own.ready(), counts(own)) == (BEFORE, [3])


@pytest.mark.parametrize("moment", ["lower done", "unload done", "raise done"])
def test_killed_with_fewer_instances_and_undone(lab: Lab, own: OwnTriton, tmp_path: Path, moment: str) -> None:
    box = own_box(own, tmp_path, watch=0.2)
    plan = Swap().plan(box, "m", {"version": "2", "way": "instances"})
    run = killed(Swap(), box, plan, moment)
    kept = dict(run.kept())
    now, _, _ = Swap().interrupted(box, plan, run.journal())
    assert ("with 1 instance" in now) == (moment != "raise done"), now
    assert Swap().undo(box, plan, Live(kept=kept)).word == "undone"
    assert (own.ready(), counts(own)) == (BEFORE, [3])


# ----------------------------------------------------------------------------------------------------------- a restart


@pytest.fixture
def latest(tmp_path: Path) -> Iterator[OwnTriton]:
    """Policy `latest 1`, with version 1 READY and 2 new on disk."""
    root = tmp_path / "repository"
    write("m", config("3 wrong, 4 fails", instances=1), (1,), program="rogue.py", root=root)
    write("n", sleeper_config("n"), (1,), root=root)
    with own_triton(root, wait=False) as made:
        made.wait_ready(BEFORE)
        write("m", config("3 wrong, 4 fails", instances=1), (2,), program="rogue.py", root=root)
        yield made


def test_a_restart_serves_the_new_version(lab: Lab, latest: OwnTriton, tmp_path: Path) -> None:
    box = own_box(latest, tmp_path / "state", watch=0.6)
    assert do(Keep(), box, "m", {}, Live()).word == "done"
    plan = Swap().plan(box, "m", {"version": "2", "way": "restart"})
    assert plan.gap_s is not None
    done = do(Swap(), box, "m", {"version": "2", "way": "restart"}, Live())
    assert (done.word, "answers as kept" in done.text) == ("done", True), done
    assert done.figures["gap_s"] > 0
    assert latest.ready() == {("m", "2"), ("n", "1")}
    assert done.undo is not None
    assert do(Swap(), box, "m", done.undo.values, Live()).word == "done"
    assert latest.ready() == BEFORE


@pytest.mark.parametrize(("version", "said"), [(3, "answers wrong"), (4, "after the restart none is READY, not 4")])
def test_what_a_restart_brought_in_is_taken_back(
    lab: Lab, latest: OwnTriton, tmp_path: Path, version: int, said: str
) -> None:
    write("m", config("3 wrong, 4 fails", instances=1), (version,), program="rogue.py", root=latest.repository)
    box = own_box(latest, tmp_path / "state", watch=0.6)
    # what does not load is waited for as long as a start may take
    box.settings = replace(box.settings, actions=replace(box.settings.actions, start_timeout=8.0))
    do(Keep(), box, "m", {}, Live())
    values = {"version": str(version), "way": "restart", "recover": "true"}
    found = do(Swap(), box, "m", values, Live(limit=200.0))
    assert found.word == "undone", found
    assert said in found.text
    assert latest.ready() == BEFORE
    assert look(box, "m", traffic=False).from_disk == (1,), "with consent it is pinned, so that no start loads it again"


@pytest.mark.parametrize("moment", ["stop done", "ready done"])
@pytest.mark.parametrize("deed", ["finish", "undo"])
def test_killed_in_the_middle_of_a_restart(lab: Lab, latest: OwnTriton, tmp_path: Path, moment: str, deed: str) -> None:
    box = own_box(latest, tmp_path / "state", watch=0.2)
    plan = Swap().plan(box, "m", {"version": "2", "way": "restart"})
    run = killed(Swap(), box, plan, moment)
    again = Live(kept=dict(run.kept()))
    assert Swap().interrupted(box, plan, run.journal())[1]
    found = Swap().finish(box, plan, again) if deed == "finish" else Swap().undo(box, plan, again)
    assert found.word == ("done" if deed == "finish" else "undone"), found
    assert latest.ready() == ({("m", "2"), ("n", "1")} if deed == "finish" else BEFORE)


def test_a_restart_through_the_unit(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container is another one afterwards: the unit makes it anew with --rm."""
    root = tmp_path / "repository"
    write("m", config(instances=1), (1,), program="rogue.py", root=root)
    write("n", sleeper_config("n"), (1,), root=root)
    with own_triton(root, wait=False, more=MORE) as own:
        own.wait_ready(BEFORE)
        write("m", config(instances=1), (2,), program="rogue.py", root=root)
        record = unit_with_rm(own, tmp_path, monkeypatch)
        box = own_box(own, tmp_path / "state", watch=0.3)
        plan = Swap().plan(box, "m", {"version": "2", "way": "restart"})
        assert plan.by_hand == (f"sudo systemctl restart {UNIT}",)
        found = do(Swap(), box, "m", {"version": "2", "way": "restart"}, Live())
        assert found.word == "done", found
        assert own.ready() == {("m", "2"), ("n", "1")}
        assert f"--no-ask-password restart {UNIT}" in record.read_text()
