"""A swap with 1 instance of each version meanwhile: its fit, its steps, and the way back from each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import model_load, model_look, model_watch, swap_instances, swap_run, swap_ways
from console.actions.box import Box
from console.actions.golden import Keep
from console.actions.swap import Swap
from console.actions.swap_run import Swapper
from console.actions.swap_spec import Spec
from console.core.model import ModelRow, Snapshot
from console.core.plan import Check, Outcome, Plan, Way
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do, killed
from tests.fakes.model_server import ModelServer, model_server

GIB = 1 << 30
PINNED = "version_policy { specific { versions: [ 1 ] } }"
BUSY = "1 instance would be busy {} with the requests now"
UNKNOWN = "whether 1 instance is enough for the requests is not known"
GPU = [{"kind": "KIND_GPU", "count": 2, "gpus": [0]}]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits for what this server does at once."""
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    monkeypatch.setattr(model_load, "SETTLE", 0.2)
    monkeypatch.setattr(model_load, "PODMAN_LAG", 0.1)
    monkeypatch.setattr(swap_run, "HUNG_GRACE", 0.2)
    monkeypatch.setattr(model_watch, "SILENCE", 0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2), PINNED, count=3)
        made.add("n", (1,))
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def swap(box: Box, version: int = 2, run: Live | None = None, **values: str) -> Outcome:
    return do(Swap(), box, "m", {"version": str(version), "way": "instances", **values}, run or Live())


def way(plan: Plan, name: str = "instances") -> Way:
    return next(one for one in plan.ways if one.id == name)


def count(server: ModelServer, name: str = "m") -> int:
    """Instances that the server has of it now."""
    return int(server.configs[name]["instance_group"][0]["count"])


# ---------------------------------------------------------------------------------------------------------------- good


def test_up_and_down(server: ModelServer, box: Box) -> None:
    server.loads.clear()
    run = Live()
    up = swap(box, run=run)
    assert (up.word, up.text) == ("done", "m 2 serves, asked 2 times, answers in the old form")
    assert "3 instances again" in up.lines
    assert [one for one in run.phases if not one.endswith("done")] == [
        *("note", "lower", "memory", "load", "probe", "watch", "unload", "raise", "check")
    ]
    assert server.loads == [((1,), 1), ((1, 2), 1), ((2,), 1), ((2,), 3)]
    assert "POST /v2/repository/models/m/unload" not in server.calls
    assert "gap_s" not in up.figures
    server.loads.clear()
    run = Live()
    assert swap(box, 1, run).word == "done"
    assert [one for one in run.phases if not one.endswith("done")] == [
        *("note", "lower", "memory", "load", "probe", "unload", "watch", "raise", "check")
    ]
    assert server.loads == [((2,), 1), ((1, 2), 1), ((1,), 1), ((1,), 3)]


def test_the_plan_names_each_step_and_its_way_back(server: ModelServer, box: Box) -> None:
    plan = Swap().plan(box, "m", {"version": "2", "way": "instances"})
    assert (plan.danger, plan.note, plan.gap_s) == ("caution", "slower meanwhile", 0.0)
    assert [step.phase for step in plan.steps] == [
        *("note", "lower", "memory", "load", "probe", "watch", "unload", "raise", "check")
    ]
    named = {step.phase: step for step in plan.steps}
    assert named["lower"].text == "1 instance of 1 in place (policy specific 1)"
    assert named["lower"].if_it_fails == "3 instances again, in place"
    assert named["raise"].text == "3 instances of 2 in place"
    assert all(step.if_it_fails for step in plan.steps)
    assert any("1 instance of each version serves, not 3 instances" in line for line in plan.effects)
    assert any("its __pycache__ is newer by then" in check.text for check in plan.checks)
    assert len(plan.by_hand) == 4


# ----------------------------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize("mood", ["wrong", "dead", "fails", "drops", "starves"])
@pytest.mark.parametrize("version", [2, 1])
def test_a_bad_version_is_taken_back_with_all_instances(server: ModelServer, box: Box, mood: str, version: int) -> None:
    old = 3 - version
    if version == 1:
        assert swap(box, 2).word == "done"
    do(Keep(), box, "m", {}, Live())
    server.ensembles["ens"] = "m"
    server.ready["ens"] = (1,)
    server.moods["m", version] = mood
    found = swap(box, version)
    assert found.word == "undone", found
    assert f"m {old} serves" in found.text
    assert (server.ready["m"], count(server)) == ((old,), 3)
    if mood == "starves":
        assert "is at READY state: Internal: out of memory" in found.text


def test_instances_that_do_not_come_back_are_said(server: ModelServer, box: Box) -> None:
    server.moods["m", 2] = "dead"
    server.moods["m", 1] = "starves"
    found = swap(box)
    assert found.word == "failed"
    assert "going back failed" in found.text
    assert found.lines[-1] == "READY now: 1; 1 with 1 instance"
    assert server.ready["m"] == (1,)


def test_a_cancel_goes_back(server: ModelServer, box: Box) -> None:
    run = Live()
    run.while_waiting = run.cancelled.set
    found = swap(box, run=run)
    assert (found.word, server.ready["m"], count(server)) == ("undone", (1,), 3)


# ----------------------------------------------------------------------------------------------------------------- fit


def memory(monkeypatch: pytest.MonkeyPatch, free: int | None, took: int | None) -> None:
    monkeypatch.setattr(swap_ways, "gpu_free", lambda *_: (free, "" if free is not None else "no card answers"))
    monkeypatch.setattr(swap_ways, "taken", lambda *_: (took, "seen at load" if took else ""))


@pytest.mark.parametrize(
    ("free", "took", "best", "sees"),
    [
        (2 * GIB, 6 * GIB, "instances", "nothing: ≈ 3.0 GiB + 3.0 GiB fit, slower"),
        (9 * GIB, 6 * GIB, "beside", "nothing: ≈ 3.0 GiB + 3.0 GiB fit, slower"),
        (2 * GIB, None, "beside", "nothing: what an instance takes is not known, slower"),
        (None, 6 * GIB, "beside", "nothing: free memory is not known (no card answers), slower"),
    ],
)
def test_the_fit(
    server: ModelServer,
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    free: int | None,
    took: int | None,
    best: str,
    sees: str,
) -> None:
    server.configs["m"]["instance_group"] = GPU
    memory(monkeypatch, free, took)
    plan = Swap().plan(box, "m", {"version": "2"})
    assert plan.way == best
    assert [one.id for one in plan.ways] == ["beside", "instances", "gap", "restart"]
    assert (way(plan).impossible, way(plan).clients_see) == ("", sees)


@pytest.mark.parametrize(
    ("busy", "best", "sees", "check"),
    [
        (0.2, "instances", "nothing: ≈ 3.0 GiB + 3.0 GiB fit, slower", Check("ok", BUSY.format("40%"))),
        (0.8, "gap", "a queue that grows: 1 instance would be busy 160%", Check("warn", BUSY.format("160%"))),
        (None, "instances", "nothing: ≈ 3.0 GiB + 3.0 GiB fit, slower", Check("unknown", UNKNOWN)),
    ],
)
def test_whether_one_instance_is_enough(
    server: ModelServer,
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    busy: float | None,
    best: str,
    sees: str,
    check: Check,
) -> None:
    server.configs["m"]["instance_group"] = GPU
    server.traffic["m"] = 40
    memory(monkeypatch, 2 * GIB, 6 * GIB)
    box.snapshot = Snapshot(models=(ModelRow("m", "1", "READY", instances=2, busy=busy),))
    plan = Swap().plan(box, "m", {"version": "2"})
    assert (plan.way, way(plan).clients_see, way(plan).impossible) == (best, sees, "")
    assert check in Swap().plan(box, "m", {"version": "2", "way": "instances"}).checks


def test_a_version_that_is_too_large(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    server.configs["m"]["instance_group"] = GPU
    memory(monkeypatch, GIB // 2, 6 * GIB)
    (server.root / "m" / "2" / "weights.bin").write_bytes(b"xx")
    plan = Swap().plan(box, "m", {"version": "2"})
    assert plan.way == "gap"
    assert way(plan).impossible == "≈ 3.0 GiB + 9.0 GiB with 1 instance each, free then ≈ 3.5 GiB for the second"
    # it is reckoned, so who knows better may try: what came back is measured, and the load tells
    assert not Swap().plan(box, "m", {"version": "2", "way": "instances"}).refused


@pytest.mark.parametrize("change", [{"backend": "tensorrt"}, {"parameters": {"ENABLE_WEIGHT_SHARING": {}}}])
def test_instances_that_may_share_weights(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    """Then nobody knows what one gives back: a person may choose the way, the console does not by itself."""
    server.configs["m"] |= {"instance_group": GPU, **change}
    memory(monkeypatch, 2 * GIB, 6 * GIB)
    plan = Swap().plan(box, "m", {"version": "2"})
    assert (plan.way, way(plan).impossible) == ("gap", "")
    assert way(plan).clients_see == "nothing: ≈ 3.0 GiB + 3.0 GiB at best: instances may share weights, slower"


def test_the_share_of_a_card(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 instances on each of 2 cards took 12 GiB: 3 of each are 1 instance's."""
    server.configs["m"]["instance_group"] = [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}]
    memory(monkeypatch, GIB, 12 * GIB)
    plan = Swap().plan(box, "m", {"version": "2"})
    assert way(plan).clients_see == "nothing: ≈ 3.0 GiB + 3.0 GiB fit, slower"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"instance_group": [{"kind": "KIND_CPU", "count": 1}]}, "has 1 instance"),
        (
            {"instance_group": [{"kind": "KIND_GPU", "count": 1, "gpus": [0, 1]}]},
            "has 1 instance of each group on each card",
        ),
        ({"instance_group": []}, "how many instances it has is not known"),
        ({"sequence_batching": {}}, "its sequences are bound to its instances"),
    ],
)
def test_why_it_cannot_be(server: ModelServer, box: Box, change: dict[str, object], why: str) -> None:
    server.configs["m"] |= change
    plan = Swap().plan(box, "m", {"version": "2"})
    assert (way(plan).impossible, way(plan).gap) == (why, "0 s")
    refused = Swap().plan(box, "m", {"version": "2", "way": "instances"}).refused
    assert refused == f"way=instances cannot be gone: {why}"


@pytest.mark.parametrize(
    ("free", "word"),
    [
        ([2 * GIB, 2 * GIB, 4 * GIB, 6 * GIB], "done"),
        ([2 * GIB, 2 * GIB, 2 * GIB, 2 * GIB], "undone"),
    ],
)
def test_what_the_instances_give_back_is_measured(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch, free: list[int], word: str
) -> None:
    """All took 6 GiB: when 4 came back what is left takes 2, and as much is needed for the new one."""
    server.configs["m"]["instance_group"] = GPU
    memory(monkeypatch, 2 * GIB, 6 * GIB)
    monkeypatch.setattr(swap_instances, "SHARE_WAIT", 1.0)
    looks = iter(free)
    monkeypatch.setattr(Swapper, "_free", lambda _: next(looks, free[-1]))
    run = Live()
    found = do(Swap(), box, "m", {"version": "2"}, run)
    assert found.word == word, found
    assert count(server) == 2
    if word == "undone":
        assert "the memory did not come back: 2.0 GiB are free" in found.text
        assert "6.0 GiB are needed" in found.text
    else:
        assert run.kept()["gave_back"] == str(4 * GIB)


# --------------------------------------------------------------------------------------------------------------- kills

UP = (
    *("note", "note done", "lower", "lower done", "memory", "memory done", "load", "load done", "probe", "watch"),
    *("watch done", "unload", "unload done", "raise", "raise done", "check"),
)


def cut(server: ModelServer, box: Box, moment: str) -> tuple[Plan, Live]:
    plan = Swap().plan(box, "m", {"version": "2", "way": "instances"})
    run = killed(Swap(), box, plan, moment)
    return plan, Live(kept=dict(run.kept()))


@pytest.mark.parametrize("moment", UP)
def test_killed_and_finished(server: ModelServer, box: Box, moment: str) -> None:
    plan, run = cut(server, box, moment)
    now, finish, undo = Swap().interrupted(box, plan, run.journal())
    assert now.startswith("READY: ")
    assert finish
    if moment == "lower done":
        assert now == "READY: 1, 1 with 1 instance, as before"
        assert undo.endswith("with 3 instances")
    assert Swap().finish(box, plan, run).word == "done"
    assert (server.ready, count(server)) == ({"m": (2,), "n": (1,)}, 3)


@pytest.mark.parametrize("moment", UP)
def test_killed_and_undone(server: ModelServer, box: Box, moment: str) -> None:
    plan, run = cut(server, box, moment)
    server.loads.clear()
    assert Swap().undo(box, plan, run).word == "undone"
    assert (server.ready, count(server)) == ({"m": (1,), "n": (1,)}, 3)
    # never both with all their instances: they would not fit
    assert all(many == 1 for versions, many in server.loads if len(versions) > 1)


@pytest.mark.parametrize("moment", ["back", "back done"])
def test_killed_on_the_way_back(server: ModelServer, box: Box, moment: str) -> None:
    server.moods["m", 2] = "dead"
    plan, run = cut(server, box, moment)
    assert Swap().undo(box, plan, run).word == "undone"
    assert (server.ready["m"], count(server)) == ((1,), 3)


def test_the_memory_before_is_known_after_a_kill(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was free before the count went down is not what is free when the run goes on."""
    monkeypatch.setattr(Swapper, "_free", lambda _: 5 * GIB)
    plan, run = cut(server, box, "lower done")
    assert run.kept()["free_before"] == str(5 * GIB)
    monkeypatch.setattr(Swapper, "_free", lambda _: 7 * GIB)
    assert Swap().finish(box, plan, run).word == "done"
    assert run.kept()["free_before"] == str(5 * GIB)
    assert Spec.loaded(run.kept()["spec"]).counts == (3,)
