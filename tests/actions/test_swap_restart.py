"""A swap by a restart of the container, on the simulated box: where it is offered, each step, and the way back."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console import compose
from console.actions import gap, model_look, swap_run
from console.actions.box import Box, BoxSpec
from console.actions.golden import Keep
from console.actions.model_load import LoadEnd
from console.actions.model_look import look
from console.actions.pin import Pin
from console.actions.swap import Swap
from console.actions.swap_restart import RestartSwapper
from console.actions.swap_ways import back_too, moved_by_start
from console.config import Actions, Settings
from console.core.gap import gaps
from console.core.plan import JournalLine, Outcome, Plan, Way
from console.simulator import launch
from tests.actions.model_boxes import Live
from tests.actions.runs import do, killed

M = "model_0000"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.02)
    monkeypatch.setattr(gap, "COUNTED", 0.05)
    monkeypatch.setattr(swap_run, "BASELINE", 0.05)


class Impatient(Live):
    """Cancelled as the container starts."""

    def _tell(self, word: str) -> None:
        super()._tell(word)
        if word == "start":
            self.cancelled.set()


def spec_of(running: launch.RunningBox, scene: str = "healthy") -> BoxSpec:
    settings = replace(Settings(), actions=Actions(watch=0.1, start_timeout=30.0, load_timeout=20.0))
    told = running.addresses
    simulated = compose.simulated_settings(settings, told)
    return compose.box_spec(simulated, nvml=told.nvml, root=Path(told.root), simulated=scene)


@pytest.fixture(scope="module")
def running() -> Iterator[launch.RunningBox]:
    """Two small models; the first has a version 2 on disk, which the policy on disk would serve."""
    with launch.start("healthy", seed=1, models=2) as made:
        folder = Path(made.addresses.repository) / M
        shutil.copytree(folder / "1", folder / "2")
        yield made


@pytest.fixture
def repository(running: launch.RunningBox) -> Iterator[Path]:
    """Its files, put back afterwards."""
    path = Path(running.addresses.repository)
    kept = {file: file.read_text() for file in path.glob("*/config.pbtxt")}
    yield path
    for file, text in kept.items():
        file.write_text(text)


@pytest.fixture
def box(running: launch.RunningBox, repository: Path, tmp_path: Path) -> Iterator[Box]:
    """Version 1 serves, by an override."""
    with contextlib.closing(Box(spec_of(running), tmp_path / "state")) as made:
        if look(made, M, traffic=False).ready != (1,):
            assert do(Swap(), made, M, {"version": "1", "way": "beside", "watch": "0"}, Live()).word == "done"
        assert set(made.ready()) == {(M, "1"), ("model_0001", "1")}
        yield made


def restart(box: Box, run: Live | None = None, **values: str) -> Outcome:
    return do(Swap(), box, M, {"version": "2", "way": "restart", **values}, run or Live())


def way(plan: Plan) -> Way:
    return next(one for one in plan.ways if one.id == "restart")


def test_the_plan_and_the_restart(box: Box) -> None:
    plan = Swap().plan(box, M, {"version": "2", "way": "restart"})
    assert (plan.danger, plan.confirm, plan.note) == ("danger", M, "a gap")
    assert [step.phase for step in plan.steps] == ["note", "stop", "start", "ready", "probe", "watch", "check"]
    assert all(step.if_it_fails for step in plan.steps)
    assert (way(plan).clients_see, way(plan).impossible) == ("connection refused, of all models", "")
    assert "2 models stop serving" in " ".join(plan.effects)
    assert "live-only setting" not in " ".join(plan.effects), "that 1 is pinned live is what is swapped"
    assert "a restart serves 2 too (policy on disk: latest 1)" in plan.effects
    assert plan.gap_s is not None
    assert way(plan).gap.startswith(("≈ ", "up to "))
    assert plan.by_hand == ("podman restart --time 60 triton",)
    run = Live()
    done = Swap().run(box, plan, run)
    assert (done.word, done.text) == ("done", f"{M} 2 serves, asked 2 times, answers in the old form")
    assert [one for one in run.phases if not one.endswith("done")] == [step.phase for step in plan.steps]
    assert done.figures["gap_s"] > 0
    assert run.kept()["gap_drains"] == "yes"
    assert set(box.ready()) == {(M, "2"), ("model_0001", "1")}
    assert done.undo is not None
    assert do(Swap(), box, M, done.undo.values, Live()).word == "done"


@pytest.mark.parametrize(
    ("policy", "version", "why"),
    [
        (
            "version_policy { specific { versions: [ 1 ] } }",
            "2",
            "a start serves 1 (policy on disk specific 1); model.pin version=2 changes that",
        ),
        ("version_policy { all { } }", "2", "a start serves 1 too (policy on disk all)"),
    ],
)
def test_where_a_start_would_serve_something_else(
    box: Box, repository: Path, policy: str, version: str, why: str
) -> None:
    file = repository / M / "config.pbtxt"
    file.write_text(f"{file.read_text()}\n{policy}\n")
    plan = Swap().plan(box, M, {"version": version})
    assert (way(plan).impossible, way(plan).gap) == (why, "–")
    assert Swap().plan(box, M, {"version": version, "way": "restart"}).refused == f"way=restart cannot be gone: {why}"


def test_a_gap_names_the_restart_where_memory_does_not_come_back(box: Box) -> None:
    named = {step.phase: step for step in Swap().plan(box, M, {"version": "2", "way": "gap"}).steps}
    assert named["memory"].if_it_fails == "load 1; then a restart may help (way=restart)"


def test_where_a_start_would_change_another_model(box: Box, repository: Path) -> None:
    folder = repository / "model_0001"
    shutil.copytree(folder / "1", folder / "5")
    try:
        assert moved_by_start(box, look(box, M)) == ("model_0001 1 → 5",)
        why = "a start changes other models as well: model_0001 1 → 5"
        assert way(Swap().plan(box, M, {"version": "2"})).impossible == why
    finally:
        shutil.rmtree(folder / "5")


def test_what_comes_back_with_it(box: Box) -> None:
    control = box.triton_control("HTTP")
    control.unload("model_0001")
    try:
        assert back_too(box, look(box, M, traffic=False)) == ("model_0001",)
        effects = Swap().plan(box, M, {"version": "2", "way": "restart"}).effects
        assert "come back too, as --load-model names them: model_0001" in effects
    finally:
        control.load("model_0001", None, 20.0)


def test_a_cancel_before_anything_is_stopped(box: Box) -> None:
    run = Live()
    run.while_waiting = run.cancelled.set
    found = restart(box, run)
    assert (found.word, found.lines) == ("undone", ())
    assert "stop" not in run.phases
    assert (M, "1") in box.ready()


def test_a_cancel_while_it_starts_brings_the_old_one_back(box: Box) -> None:
    found = restart(box, Impatient())
    assert found.word == "undone", found
    assert (M, "1") in box.ready()
    assert found.lines[-1].endswith(f"to keep it out: gpuconsole do model.pin {M} version=1")


# --------------------------------------------------------------------------------------------------------------- kills

MOMENTS = (
    *("note", "note done", "stop", "stop done", "start", "start done", "ready", "ready done", "probe", "watch"),
    *("watch done", "check"),
)


def cut(box: Box, moment: str) -> tuple[Plan, Live]:
    plan = Swap().plan(box, M, {"version": "2", "way": "restart"})
    run = killed(Swap(), box, plan, moment)
    return plan, Live(kept=dict(run.kept()))


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_finished(box: Box, moment: str) -> None:
    plan, run = cut(box, moment)
    now, finish, undo = Swap().interrupted(box, plan, run.journal())
    assert finish
    if moment in ("stop done", "start"):
        assert now.startswith("Triton does not answer")
        assert finish == "start container triton, wait for 2, ask and watch it"
        assert undo == "start container triton, then load 1 again"
    found = Swap().finish(box, plan, run)
    assert found.word == "done", found
    assert "asked" in found.text
    assert set(box.ready()) == {(M, "2"), ("model_0001", "1")}
    if moment in ("stop done", "start"):
        (gap_of_both,) = gaps([JournalLine(0.0, "kept", data=dict(run.kept()))])
        assert gap_of_both.ended is not None


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_undone(box: Box, moment: str) -> None:
    plan, run = cut(box, moment)
    found = Swap().undo(box, plan, run)
    assert found.word == "undone", found
    assert set(box.ready()) == {(M, "1"), ("model_0001", "1")}


# --------------------------------------------------------------------------------------------------- bad versions


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Box]:
    """rerank 4 answers otherwise, recall 8 does not load."""
    with launch.start("healthy", seed=1) as running, contextlib.closing(Box(spec_of(running), tmp_path)) as made:
        yield made


def pinned(box: Box, name: str, version: str) -> None:
    assert do(Pin(), box, name, {"version": version}, Live()).word == "done"


@pytest.mark.parametrize("moment", ["back", "back done"])
def test_one_that_answers_otherwise_is_taken_back(healthy: Box, moment: str) -> None:
    do(Keep(), healthy, "rerank", {}, Live())
    pinned(healthy, "rerank", "4")
    plan = Swap().plan(healthy, "rerank", {"version": "4", "way": "restart"})
    run = killed(Swap(), healthy, plan, moment)
    found = Swap().undo(healthy, plan, Live(kept=dict(run.kept())))
    assert found.word == "undone"
    assert ("rerank", "3") in healthy.ready()
    found = do(Swap(), healthy, "rerank", {"version": "4", "way": "restart"}, Live())
    assert found.word == "undone", found
    assert "answers wrong" in found.text
    assert found.figures["gap_s"] > 0
    assert ("rerank", "3") in healthy.ready()
    assert found.lines[-1].startswith("a restart loads 4 again from disk (policy specific 4); to keep it out: ")


def test_one_that_does_not_load_is_taken_back_and_kept_out(healthy: Box) -> None:
    before = set(healthy.ready())
    pinned(healthy, "recall", "8")
    values = {"version": "8", "way": "restart", "recover": "true"}
    healthy.settings = replace(healthy.settings, actions=replace(healthy.settings.actions, start_timeout=8.0))
    found = do(Swap(), healthy, "recall", values, Live(limit=120.0))
    assert found.word == "undone", found
    assert "after the restart none is READY, not 8" in found.text
    assert set(healthy.ready()) == before
    assert found.lines[-1].startswith("config.pbtxt of recall now says specific 7; as it was: ")
    assert look(healthy, "recall", traffic=False).from_disk == (7,)


def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process holds the memory that the old version wants."""
    refused = LoadEnd("refused", 0.1, "fails to load: Internal: out of memory")
    monkeypatch.setattr(RestartSwapper, "_load_old", lambda _: refused)


def test_an_old_version_that_does_not_load_beside_what_is_held(healthy: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    do(Keep(), healthy, "rerank", {}, Live())
    pinned(healthy, "rerank", "4")
    stuck(monkeypatch)
    found = do(Swap(), healthy, "rerank", {"version": "4", "way": "restart"}, Live())
    assert found.word == "failed"
    assert "going back failed: fails to load: Internal: out of memory" in found.text
    way_out = "gpuconsole do model.pin rerank version=3, then container.restart triton"
    assert found.lines[-1] == f"what surely brings 3 back: {way_out}"


@pytest.mark.parametrize("moment", ["", "recover"])
def test_with_consent_it_is_pinned_and_the_container_started_once_more(
    healthy: Box, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before = set(healthy.ready())
    do(Keep(), healthy, "rerank", {}, Live())
    pinned(healthy, "rerank", "4")
    plan = Swap().plan(healthy, "rerank", {"version": "4", "way": "restart", "recover": "true"})
    with monkeypatch.context() as patch:
        stuck(patch)
        if not moment:
            found = Swap().run(healthy, plan, Live(limit=200.0))
            assert found.word == "failed", "the swap did"
            assert found.text.endswith("rerank 3 serves again, pinned in config.pbtxt")
            assert found.figures["gap_s"] > found.figures["start_s"]
        else:
            run = killed(Swap(), healthy, plan, moment)
    if moment:
        assert Swap().undo(healthy, plan, Live(kept=dict(run.kept()))).word == "undone"
    assert set(healthy.ready()) == before
