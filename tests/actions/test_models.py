"""Loading, unloading and reloading, against a server in this process that answers as Triton was seen to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.actions import gap as gap_module
from console.actions import model_load, model_look
from console.actions.base import Action
from console.actions.box import Box
from console.actions.load_all import LoadAll
from console.actions.model_look import MARK, ModelLook, last_load, mode_refusal
from console.actions.models import Load, Reload, Unload
from console.clients.triton_control import Route
from console.core.gap import gaps
from console.core.model import ContainerState
from console.core.plan import JournalLine, Outcome, Refused, WrongInput
from console.core.podman_frames import RawLine
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do, killed
from tests.fakes.model_server import ModelServer, model_server


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits for what this server does at once."""
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    monkeypatch.setattr(gap_module, "COUNTED", 0.05)
    monkeypatch.setattr(model_load, "SETTLE", 0.2)
    monkeypatch.setattr(model_load, "PODMAN_LAG", 0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1,))
        made.add("n", (1,), load=False)
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state", load_timeout=1.0)


def act(action: type[Action], box: Box, target: str, values: Mapping[str, str] | None = None) -> Outcome:
    return do(action(), box, target, values or {}, Live())


def test_load_and_its_undo(server: ModelServer, box: Box) -> None:
    done = act(Load, box, "n")
    assert (done.word, done.text) == ("done", "n 1 is READY")
    assert done.left["ready"] == "1"
    assert done.undo is not None
    gone = act(Unload, box, done.undo.target, done.undo.values)
    assert (gone.word, server.ready.get("n")) == ("done", None)
    assert gone.undo is not None
    assert act(Load, box, gone.undo.target, gone.undo.values).word == "done"


def test_one_version_alone(server: ModelServer, box: Box) -> None:
    server.add("n", (2,), load=False)
    done = act(Load, box, "n", {"version": "1"})
    assert server.ready["n"] == (1,)
    assert done.undo is not None
    assert any("only until a restart" in line for line in Load().plan(_unloaded(box), "n", {"version": "1"}).effects)


def _unloaded(box: Box) -> Box:
    act(Unload, box, "n")
    return box


def test_undoing_an_unload_brings_the_same_version(server: ModelServer, box: Box) -> None:
    server.add("m", (2,), load=False)
    gone = act(Unload, box, "m")
    assert gone.undo is not None
    assert gone.undo.values == {"version": "1"}
    act(Load, box, "m", gone.undo.values)
    assert server.ready["m"] == (1,)


def test_an_unload_names_the_ensembles_that_go_too(server: ModelServer, box: Box) -> None:
    server.ensembles["ens"] = "m"
    server.ready["ens"] = (1,)
    plan = Unload().plan(box, "m", {})
    assert plan.confirm == "m"
    assert any(
        line.endswith("get 404 no available versions, and those of ens (ensemble) the same") for line in plan.effects
    )
    assert "ens (ensemble) comes back by itself with the next load of m" in plan.effects
    gone = act(Unload, box, "m")
    assert gone.lines[0] == "ens 1 went down with it"


def test_an_unload_is_a_gap_without_an_end(server: ModelServer, box: Box) -> None:
    plan = Unload().plan(box, "m", {})
    assert plan.gap_s is None
    assert "a gap until it is loaded again: how long is up to whoever loads it" in plan.effects
    run = Live()
    gone = do(Unload(), box, "m", {}, run)
    told = "404 Request for unknown model: 'm' has no available versions"
    assert gone.lines == (f"clients get from now on: {told}",)
    assert "gap_s" not in gone.figures, "when it serves again nobody here will see"
    (gap,) = gaps([JournalLine(0.0, "kept", "unload", data=dict(run.kept()))])
    assert (gap.ended, gap.rate, gap.seen) == (None, 0.0, told)


def test_an_unload_under_traffic_wants_the_name(server: ModelServer, box: Box) -> None:
    assert Unload().plan(box, "m", {}).confirm == ""
    server.traffic["m"] = 3
    plan = Unload().plan(box, "m", {})
    assert (plan.confirm, plan.note) == ("m", "under traffic")


def test_reload_brings_in_what_is_newer_on_disk(server: ModelServer, box: Box) -> None:
    server.add("m", (2,), load=False)
    plan = Reload().plan(box, "m", {})
    assert plan.way == "disk"
    assert any("2 is newer than what serves" in check.text for check in plan.checks)
    done = act(Reload, box, "m")
    assert done.text == "m 2 serves (before: 1)"
    assert done.undo is not None
    assert (done.undo.action, done.undo.values) == ("model.swap", {"version": "1"})


def test_a_reload_that_has_nothing_to_do_says_so(server: ModelServer, box: Box) -> None:
    done = act(Reload, box, "m", {"way": "disk"})
    assert "nothing on disk was newer" in done.text


def test_reload_anew_marks_a_parameter_and_keeps_the_rest(server: ModelServer, box: Box) -> None:
    server.configs["m"]["parameters"] = {"x": {"string_value": "y"}}
    assert Reload().plan(box, "m", {}).way == "anew"
    act(Reload, box, "m")
    parameters = server.configs["m"]["parameters"]
    assert parameters.keys() == {"x", MARK}
    assert server.ready["m"] == (1,)


def test_reload_with_a_gap(server: ModelServer, box: Box) -> None:
    plan = Reload().plan(box, "m", {"way": "gap"})
    assert plan.confirm == "m"
    done = act(Reload, box, "m", {"way": "gap"})
    assert done.figures["gap_s"] > 0
    assert server.ready["m"] == (1,)


def test_a_refused_reload_leaves_the_old_one(server: ModelServer, box: Box) -> None:
    server.add("m", (2,), load=False)
    server.moods["m", 2] = "fails"
    found = act(Reload, box, "m")
    assert found.word == "undone"
    assert found.text.startswith("m fails to load: Internal: RuntimeError: no such file: weights.bin")
    assert found.text.endswith("m 1 serves on as before")


def test_an_ensemble_that_drops_out_is_a_failure(server: ModelServer, box: Box) -> None:
    server.ensembles["ens"] = "m"
    server.ready["ens"] = (1,)
    server.add("m", (2,), load=False)
    server.moods["m", 2] = "drops"
    found = act(Reload, box, "m")
    assert (found.word, found.text) == ("failed", "m was loaded, but ens 1 dropped out")


def test_the_time_limit_ends_the_wait_alone(server: ModelServer, box: Box) -> None:
    server.moods["n", 1] = "hangs"
    found = act(Load, box, "n")
    assert (found.word, found.text) == ("failed", "n has not ended loading within 1 s")
    assert "the server still loads n" in found.still_going
    server.go_on.set()


def test_a_cancel_ends_the_wait_and_says_what_goes_on(server: ModelServer, box: Box) -> None:
    server.moods["n", 1] = "hangs"
    run = Live()
    threading.Timer(0.2, run.cancelled.set).start()
    found = do(Load(), box, "n", {}, run)
    assert found.text == "n: stopped by the operator"
    assert found.still_going
    server.go_on.set()


def test_a_crash_while_loading(server: ModelServer, box: Box) -> None:
    server.moods["n", 1] = "crash_load"
    found = act(Load, box, "n")
    assert found.word == "failed"
    assert "does not answer any more" in found.text
    assert "model.pin" in found.lines[-1]


def test_load_all(server: ModelServer, box: Box) -> None:
    server.add("k", (1,), load=False)
    server.add("z", (1,), load=False)
    server.moods["k", 1] = "fails"
    plan = LoadAll().plan(box, "", {})
    assert plan.steps[0].text == "load, one after the other: k, n, z"
    found = act(LoadAll, box, "")
    assert (found.word, found.text) == ("failed", "loaded n, z")
    assert found.lines[0].startswith("k fails to load")
    server.moods.clear()
    assert act(LoadAll, box, "").text == "loaded k"
    assert LoadAll().plan(box, "", {}).refused


def test_load_all_stops_when_told(server: ModelServer, box: Box) -> None:
    run = Live()
    run.cancelled.set()
    found = do(LoadAll(), box, "", {}, run)
    assert found.text == "nothing was loaded; stopped by the operator"


@pytest.mark.parametrize(
    ("action", "target", "values", "said"),
    [
        (Load, "nn", {}, "no model 'nn'; did you mean n?"),
        (Load, "n", {"version": "9"}, "n has no usable version 9 on disk; it has 1"),
        (Unload, "x", {}, "no model 'x'"),
    ],
)
def test_targets_that_cannot_be(
    box: Box, action: type[Action], target: str, values: Mapping[str, str], said: str
) -> None:
    with pytest.raises(WrongInput) as error:
        action().plan(box, target, values)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("action", "target", "said"),
    [
        (Load, "m", "is loaded (1 READY)"),
        (Unload, "n", "is not loaded"),
        (Reload, "n", "is not loaded: load it"),
    ],
)
def test_what_cannot_be_done_now(box: Box, action: type[Action], target: str, said: str) -> None:
    assert said in action().plan(box, target, {}).refused


@pytest.mark.parametrize("action", [Load, Unload, Reload])
def test_a_model_that_loads_is_left_alone(server: ModelServer, box: Box, action: type[Action]) -> None:
    server.loading["m"] = 2
    assert "LOADING" in action().plan(box, "m", {}).refused or "is loaded" in action().plan(box, "m", {}).refused


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_a_control_mode_that_refuses_says_what_to_do(mode: str) -> None:
    container = ContainerState("id", "triton", "running", "name", control_mode=mode)
    look = ModelLook("m", (), frozenset(), container, Route("HTTP"))
    assert "container.recreate" in mode_refusal(look)
    assert mode_refusal(replace(look, container=replace(container, control_mode="explicit"))) == ""


def test_read_only(server: ModelServer, tmp_path: Path) -> None:
    box = fake_box(server, tmp_path / "state", read_only=True)
    for action, target in ((Load, "n"), (Unload, "m"), (Reload, "m"), (LoadAll, "")):
        plan = action().plan(box, target, {})
        with pytest.raises(Refused, match="read-only"):
            action().run(box, plan, Live())
    assert server.ready == {"m": (1,)}


@pytest.mark.parametrize(
    ("action", "target", "values", "moment"),
    [
        (Load, "n", {}, "load"),
        (Load, "n", {}, "check"),
        (Unload, "m", {}, "unload"),
        (Unload, "m", {}, "check"),
        (Reload, "m", {"way": "gap"}, "unload"),
        (Reload, "m", {"way": "gap"}, "unload done"),
        (Reload, "m", {"way": "anew"}, "load"),
        (Reload, "m", {"way": "anew"}, "check"),
        (LoadAll, "", {}, "load"),
        (LoadAll, "", {}, "check"),
    ],
)
def test_killed_and_finished(
    server: ModelServer, box: Box, action: type[Action], target: str, values: Mapping[str, str], moment: str
) -> None:
    plan = action().plan(box, target, values)
    run = killed(action(), box, plan, moment)
    now, _, _ = action().interrupted(box, plan, run.journal())
    assert now
    assert action().finish(box, plan, Live(kept=dict(run.kept()))).word == "done"
    if action is Reload:
        assert server.ready["m"] == (1,)


def log(*told: tuple[int, str]) -> list[RawLine]:
    """Lines of a server's log, with the second in which each was written."""
    return [
        RawLine(50400.0 + at, "stderr", f'I1130 14:00:0{at}.500000 1 model.cc:1] "{text}"'.encode())
        for at, text in told
    ]


def test_how_long_the_last_load_took() -> None:
    told = log(
        (1, "loading: m:1"),
        (3, "successfully loaded 'm'"),
        (4, "loading: m:1"),
        (4, "successfully loaded 'm'"),
        (5, "loading: x:1"),
    )
    assert last_load(told, "m") == pytest.approx(2.0)
    assert last_load(told, "x") is None
    assert last_load(log((1, "loading: m:1"), (2, "failed to load 'm' version 1: x")), "m") is None
