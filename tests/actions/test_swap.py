"""Swapping versions, against a server in this process that loads and unloads as Triton was seen to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.actions import model_load, model_look, model_watch, swap_run
from console.actions import swap as swap_action
from console.actions.box import Box
from console.actions.golden import Keep
from console.actions.swap import Swap
from console.actions.swap_spec import Spec, spec_of
from console.core.model import SourceError
from console.core.plan import Outcome, Plan, Refused, WrongInput
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do, killed
from tests.fakes.model_server import ModelServer, model_server

PINNED = "version_policy { specific { versions: [ 1 ] } }"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits for what this server does at once."""
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    monkeypatch.setattr(model_load, "SETTLE", 0.2)
    monkeypatch.setattr(model_load, "PODMAN_LAG", 0.1)
    monkeypatch.setattr(swap_run, "HUNG_GRACE", 0.2)
    monkeypatch.setattr(swap_run, "BASELINE", 0.05)
    monkeypatch.setattr(model_watch, "SILENCE", 0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2), PINNED)
        made.add("n", (1,))
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def swap(box: Box, version: int = 2, run: Live | None = None, **values: str) -> Outcome:
    return do(Swap(), box, "m", {"version": str(version), **values}, run or Live())


def keep(box: Box) -> None:
    assert do(Keep(), box, "m", {}, Live()).word == "done"


# ---------------------------------------------------------------------------------------------------------------- good


def test_up_and_back_down(server: ModelServer, box: Box) -> None:
    run = Live()
    up = swap(box, run=run)
    assert (up.word, up.text) == ("done", "m 2 serves, asked 2 times, answers in the old form")
    assert server.ready["m"] == (2,)
    begun = [phase for phase in run.phases if not phase.endswith("done")]
    assert begun == ["note", "load", "probe", "watch", "unload", "check"]
    assert {"load_s", "watch_s", "exposure_s", "total_s", "added_s"} <= up.figures.keys()
    assert up.undo is not None
    run = Live()
    down = do(Swap(), box, up.undo.target, up.undo.values, run)
    assert down.word == "done"
    begun = [phase for phase in run.phases if not phase.endswith("done")]
    assert begun == ["note", "load", "probe", "unload", "watch", "check"]
    assert server.ready["m"] == (1,)


def test_the_newest_on_disk_where_no_version_is_given(server: ModelServer, box: Box) -> None:
    server.add("m", (3,), PINNED, load=False)
    assert Swap().plan(box, "m", {}).values["version"] == "3"


def test_other_versions_that_serve_are_left_alone(server: ModelServer, box: Box) -> None:
    server.add("m", (3,), "version_policy { specific { versions: [ 1, 2 ] } }")
    assert server.ready["m"] == (1, 2)
    assert swap(box, 3).word == "done"
    assert server.ready["m"] == (1, 3)


def test_the_policy_on_disk_is_kept_where_it_serves_the_same(server: ModelServer, box: Box) -> None:
    assert swap(box).word == "done"
    assert server.configs["m"]["version_policy"] == {"specific": {"versions": [2]}}
    down = swap(box, 1)
    assert server.configs["m"]["version_policy"] == {"specific": {"versions": [1]}}
    assert "a restart serves 1 too (policy on disk: specific 1)" in down.lines


def test_what_the_server_added_is_not_pinned(server: ModelServer, box: Box) -> None:
    server.configs["m"]["dynamic_batching"] = {"preferred_batch_size": [8], "max_queue_delay_microseconds": 50}
    swap(box)
    assert server.configs["m"]["dynamic_batching"] == {"max_queue_delay_microseconds": 50}
    assert "name" not in server.configs["m"]["instance_group"][0]


def test_a_warm_up_in_the_kept_shapes(server: ModelServer, box: Box) -> None:
    keep(box)
    done = swap(box, warmup="true")
    (sample,) = server.configs["m"]["model_warmup"]
    assert sample["inputs"] == {"FEATURES": {"data_type": "TYPE_FP32", "dims": [4], "zero_data": True}}
    assert sample["batch_size"] == 1
    assert done.text.endswith("answers as kept")


def test_no_warm_up_of_a_python_model_by_itself(server: ModelServer, box: Box) -> None:
    keep(box)
    swap(box)
    assert "model_warmup" not in server.configs["m"]


def test_a_refused_load_leaves_no_warm_up_behind(server: ModelServer, box: Box) -> None:
    keep(box)
    server.moods["m", 2] = "fails"
    found = swap(box, warmup="true")
    assert found.word == "undone"
    assert "model_warmup" not in server.configs["m"]
    assert not any("warm-up" in line for line in found.lines)
    server.moods["m", 2] = "wrong"
    found = swap(box, warmup="true")
    assert "model_warmup" in server.configs["m"]
    assert "the warm-up stays in the live configuration until a restart or an unload" in found.lines


def test_a_gap(server: ModelServer, box: Box) -> None:
    plan = Swap().plan(box, "m", {"version": "2", "way": "gap"})
    assert (plan.danger, plan.confirm) == ("danger", "m")
    assert any("404" in effect for effect in plan.effects)
    done = swap(box, way="gap")
    assert done.word == "done"
    assert done.figures["gap_s"] >= done.figures["load_s"]
    assert server.ready["m"] == (2,)
    assert "POST /v2/repository/models/m/unload" in server.calls


# ----------------------------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize(
    ("mood", "values", "said"),
    [
        ("wrong", {}, "m 2 answers wrong: SCORE: value 0 is 1.5, kept 0.5"),
        ("form", {"probe": "form"}, "the old version's FP32 [1, 1]"),
        ("dead", {}, "is not healthy"),
        ("fails", {}, "m 2 fails to load: Internal: RuntimeError: no such file: weights.bin"),
        ("raises", {"probe": "off"}, "requests failed"),
        ("stuck", {"probe": "off", "watch": "0.4"}, "was answered"),
        ("drops", {}, "ens 1 dropped out with it"),
    ],
)
@pytest.mark.parametrize("way", ["beside", "gap"])
def test_a_bad_version_is_taken_back(
    server: ModelServer, box: Box, mood: str, values: dict[str, str], said: str, way: str
) -> None:
    keep(box)
    server.ensembles["ens"] = "m"
    server.ready["ens"] = (1,)
    server.moods["m", 2] = mood
    server.traffic["m"] = 40
    found = do(Swap(), box, "m", {"version": "2", "way": way, **values}, Live())
    assert found.word == "undone", found
    assert said in found.text or any(said in line for line in found.lines)
    assert server.ready == {"m": (1,), "n": (1,), "ens": (1,)}
    if mood not in ("fails",):
        assert found.figures["exposure_s"] > 0
    if way == "gap":
        assert found.figures["gap_s"] > 0


def test_slow(server: ModelServer, box: Box) -> None:
    server.traffic["m"] = 40
    server.means[2] = 9.0
    found = swap(box)
    assert found.word == "undone"
    assert "mean 2.00 → 9.00 ms" in found.text
    assert (found.figures["mean_before_ms"], found.figures["mean_after_ms"]) == (2.0, 9.0)


def test_a_bit_slower_is_no_reason(server: ModelServer, box: Box) -> None:
    server.traffic["m"] = 40
    server.means[2] = 3.5
    assert swap(box).word == "done"


def test_downwards_a_wrong_version_never_gets_traffic(server: ModelServer, box: Box) -> None:
    swap(box)
    server.moods["m", 1] = "dead"
    found = swap(box, 1)
    assert found.word == "undone"
    assert "exposure_s" not in found.figures
    assert server.ready["m"] == (2,)


def test_downwards_what_traffic_shows_is_taken_back_by_a_load(server: ModelServer, box: Box) -> None:
    swap(box)
    server.traffic["m"] = 40
    server.moods["m", 1] = "raises"
    found = swap(box, 1, probe="off")
    assert found.word == "undone"
    assert server.ready["m"] == (2,)
    assert found.figures["exposure_s"] > 0


def test_an_old_version_without_the_kept_answer_is_no_measure(server: ModelServer, box: Box) -> None:
    keep(box)
    server.moods["m", 1] = "wrong"
    plan = Swap().plan(box, "m", {"version": "2"})
    assert any("does not give the kept answer" in check.text for check in plan.checks)
    assert swap(box).word == "done"


def test_loading_for_ever(server: ModelServer, box: Box, tmp_path: Path) -> None:
    server.moods["m", 2] = "hangs"
    found = swap(fake_box(server, tmp_path / "state", load_timeout=1.0))
    assert found.word == "failed"
    assert found.text == "m 2 has not ended loading within 1 s: 1 serves on"
    assert "cannot be cancelled" in found.still_going
    assert server.ready["m"] == (1,)
    server.go_on.set()


def test_a_cancel_while_it_loads_goes_back(server: ModelServer, box: Box) -> None:
    server.moods["m", 2] = "hangs"
    run = Live()
    threading.Timer(0.3, run.cancelled.set).start()
    threading.Timer(0.6, server.go_on.set).start()
    found = swap(box, run=run)
    assert (found.word, server.ready["m"]) == ("undone", (1,))
    assert found.text.startswith("stopped by the operator")


def test_a_cancel_while_it_is_watched_goes_back(server: ModelServer, box: Box) -> None:
    run = Live()
    run.while_waiting = run.cancelled.set
    found = swap(box, run=run)
    assert (found.word, server.ready["m"]) == ("undone", (1,))


@pytest.mark.parametrize("mood", ["crash", "crash_load"])
def test_a_crash_says_what_a_restart_does(server: ModelServer, box: Box, mood: str) -> None:
    server.add("m", (), "version_policy { latest { num_versions: 1 } }", load=False)
    server.moods["m", 2] = mood
    found = swap(box)
    assert found.word == "failed"
    assert "does not answer any more" in found.text
    assert "a restart loads 2 again from disk (policy latest 1)" in found.lines
    assert found.lines[-1].endswith("gpuconsole do model.pin m version=1")


# --------------------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"version": "1"}, "serves version 1 already"),
        ({"version": "7"}, "no usable version 7 on disk; it has 1, 2"),
        ({"version": "2", "watch": "x"}, "`watch` must be a number of seconds"),
        ({"version": "2", "watch": "-1"}, "`watch` must be from 0 to 3600 s"),
        ({"version": "2", "watch": "nan"}, "`watch` must be from 0 to 3600 s"),
        ({"version": "2", "probe": "answer"}, "no question is kept for m"),
    ],
)
def test_values_that_cannot_be(box: Box, values: dict[str, str], said: str) -> None:
    with pytest.raises(WrongInput, match=r"^[^\n]*$") as error:
        Swap().plan(box, "m", values)
    assert said in str(error.value)


def test_a_model_that_nobody_knows(box: Box) -> None:
    with pytest.raises(WrongInput, match="no model 'mm'"):
        Swap().plan(box, "mm", {"version": "2"})


def test_what_cannot_be_swapped_now(server: ModelServer, box: Box) -> None:
    server.unload("n")
    assert "nothing to swap" in Swap().plan(box, "n", {"version": "1"}).refused
    server.loading["m"] = 2
    assert "m is busy (2 LOADING)" in Swap().plan(box, "m", {"version": "2"}).refused


def test_a_plan_sends_nothing_that_changes(server: ModelServer, box: Box) -> None:
    keep(box)
    server.calls.clear()
    plan = Swap().plan(box, "m", {"version": "2"})
    assert not [call for call in server.calls if call.endswith(("/load", "/unload"))]
    assert plan.danger == "caution"
    assert [step.phase for step in plan.steps] == ["note", "load", "probe", "watch", "unload", "check"]
    assert any("by HTTP" in check.text and "stall" in check.text for check in plan.checks)
    assert {tick.name for tick in plan.ticks} == {"warmup", "recover"}


def test_read_only_is_refused_at_the_door(server: ModelServer, tmp_path: Path) -> None:
    box = fake_box(server, tmp_path / "state", read_only=True)
    server.calls.clear()
    plan = Swap().plan(box, "m", {"version": "2"})
    assert not [call for call in server.calls if call.endswith("/infer")]
    with pytest.raises(Refused, match="read-only"):
        Swap().run(box, plan, Live())
    assert server.ready["m"] == (1,)


def test_a_target_that_changed_is_refused(server: ModelServer, box: Box) -> None:
    plan = Swap().plan(box, "m", {"version": "2"})
    server.ready["m"] = (2,)
    with pytest.raises(Refused, match="has changed since the plan was made"):
        Swap().recheck(box, plan)


# --------------------------------------------------------------------------------------------------------------- kills

UP = ("note", "note done", "load", "load done", "probe", "watch", "watch done", "unload", "unload done", "check")
GAP = ("note done", "gap", "gap done", "memory", "memory done", "load", "load done", "probe", "watch", "check")


def cut(server: ModelServer, box: Box, moment: str, way: str) -> tuple[Plan, Live]:
    plan = Swap().plan(box, "m", {"version": "2", "way": way})
    run = killed(Swap(), box, plan, moment)
    return plan, Live(kept=dict(run.kept()))


@pytest.mark.parametrize(("way", "moment"), [*(("beside", one) for one in UP), *(("gap", one) for one in GAP)])
def test_killed_and_finished(server: ModelServer, box: Box, way: str, moment: str) -> None:
    plan, run = cut(server, box, moment, way)
    now, finish, _ = Swap().interrupted(box, plan, run.journal())
    assert now.startswith("READY: ")
    if moment == "note":
        assert (finish, server.ready["m"]) == ("swap to 2 from the beginning", (1,))
    assert Swap().finish(box, plan, run).word == "done"
    assert server.ready == {"m": (2,), "n": (1,)}


@pytest.mark.parametrize(("way", "moment"), [*(("beside", one) for one in UP), *(("gap", one) for one in GAP)])
def test_killed_and_undone(server: ModelServer, box: Box, way: str, moment: str) -> None:
    plan, run = cut(server, box, moment, way)
    assert Swap().undo(box, plan, run).word == "undone"
    assert server.ready == {"m": (1,), "n": (1,)}


@pytest.mark.parametrize("moment", ["back", "back done"])
@pytest.mark.parametrize("way", ["beside", "gap"])
def test_killed_on_the_way_back(server: ModelServer, box: Box, moment: str, way: str) -> None:
    server.moods["m", 2] = "dead"
    plan, run = cut(server, box, moment, way)
    assert Swap().undo(box, plan, run).word == "undone"
    assert server.ready["m"] == (1,)


@pytest.mark.parametrize("moment", ["recover", "recover done"])
def test_killed_while_it_recovers(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(
        swap_action, "spec_of", lambda *told, **more: replace(spec_of(*told, **more), container="triton")
    )
    server.moods["m", 2] = "crash"
    plan = Swap().plan(box, "m", {"version": "2", "recover": "true"})
    run = killed(Swap(), box, plan, moment)
    now, finish, undo = Swap().interrupted(box, plan, run.journal())
    assert now.startswith("Triton does not answer")
    assert (finish, undo) == ("pin 1 in config.pbtxt of m and start container triton", "")
    found = Swap().finish(box, plan, Live(kept=dict(run.kept())))
    assert found.text.startswith("it was interrupted; recovery failed")  # there is no Podman here
    assert "specific" in (server.root / "m" / "config.pbtxt").read_text()


def test_a_server_that_is_gone_before_anything_was_kept(server: ModelServer, box: Box) -> None:
    plan, run = cut(server, box, "note", "beside")
    server.down = True
    assert Swap().interrupted(box, plan, run.journal())[1:] == ("", "")
    with pytest.raises(SourceError):
        Swap().finish(box, plan, run)


def test_an_unjudged_version_is_named(server: ModelServer, box: Box) -> None:
    plan, run = cut(server, box, "load done", "beside")
    now, finish, undo = Swap().interrupted(box, plan, run.journal())
    assert now == "READY: 1, 2; 2 takes the traffic and nobody has judged it"
    assert finish == "ask and watch 2, then go on to its end"
    assert undo == "back to 1"


def test_a_bad_version_is_found_when_finishing(server: ModelServer, box: Box) -> None:
    plan, run = cut(server, box, "load done", "beside")
    server.moods["m", 2] = "dead"
    assert Swap().finish(box, plan, run).word == "undone"
    assert server.ready["m"] == (1,)


def test_a_spec_survives_the_journal(server: ModelServer, box: Box) -> None:
    _, run = cut(server, box, "load", "beside")
    spec = Spec.loaded(run.kept()["spec"])
    assert Spec.loaded(spec.dumped()) == spec
    assert (spec.before, spec.beside, spec.after, spec.going) == ((1,), (1, 2), (2,), (1,))
