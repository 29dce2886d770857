"""Swaps on a real server: a good one under traffic, and every way in which a version can be bad."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from console.actions.golden import Keep
from console.actions.model_look import look
from console.actions.models import Load, Reload, Unload
from console.actions.pin import Pin
from console.actions.swap import Swap
from tests.actions.model_boxes import Live, own_box
from tests.actions.runs import do
from tests.actions.traffic import traffic
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config, write

pytestmark = pytest.mark.lab

PIN = "version_policy { specific { versions: [ 1 ] } }"
MOODS = {2: "", 3: "wrong", 4: "dies", 5: "fails", 6: "slow", 7: "late", 8: "long_load"}
ENSEMBLE = """
name: "ens" platform: "ensemble" max_batch_size: 8
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "m" model_version: -1
  input_map { key: "FEATURES" value: "FEATURES" } output_map { key: "SCORE" value: "SCORE" }
} ] }
"""
SHELL = ("--entrypoint", json.dumps(["sh", "-c", '"$@"; exit $?', "sh"]))
"""A server that is not process 1 of its container: only such a one can be ended by a signal from inside."""


def config(name: str, moods: Mapping[int, str], more: str = "") -> str:
    """The config.pbtxt of a rogue with these moods by version."""
    entries = [f'{{ key: "mood.v{version}" value {{ string_value: "{mood}" }} }}' for version, mood in moods.items()]
    return sleeper_config(name, more=f"{more}\nparameters [ {', '.join(entries)} ]")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    root = tmp_path_factory.mktemp("swap") / "repository"
    write(
        "m",
        config("m", {version: mood for version, mood in MOODS.items() if mood}, PIN),
        (1, *MOODS),
        program="rogue.py",
        root=root,
    )
    write("h", sleeper_config("h", more=PIN), (1, 2), program="rogue.py", root=root)
    (root / "h" / "2" / "model.py").rename(root / "h" / "2" / "weights.bin")
    write("ens", ENSEMBLE, (1,), root=root)
    with own_triton(root, wait=False) as made:
        made.wait_ready({("m", "1"), ("h", "1"), ("ens", "1")})
        yield made


def test_a_swap_under_traffic_and_its_undo(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    box = own_box(own, tmp_path, watch=1.0)
    assert do(Keep(), box, "m", {}, Live()).word == "done"
    with traffic(own.port, "m") as seen:
        up = do(Swap(), box, "m", {"version": "2"}, Live())
        assert up.word == "done", up
        assert up.undo is not None
        down = do(Swap(), box, "m", up.undo.values, Live())
        assert down.word == "done", down
    assert seen.failed == []
    assert seen.versions == {"1", "2"}
    assert up.figures["added_s"] < up.figures["total_s"]
    assert own.ready() == {("m", "1"), ("h", "1"), ("ens", "1")}


@pytest.mark.parametrize(
    ("version", "values", "said"),
    [
        (3, {}, "m 3 answers wrong: SCORE: value 0 is 1, kept 0"),
        (4, {}, "Stub process 'm_0_0' is not healthy"),
        (5, {}, "m 5 fails to load: Internal: RuntimeError: no such file: weights.bin"),
        (6, {}, "m 6 does worse: mean"),
        (7, {"probe": "off"}, "requests failed"),
    ],
)
def test_a_bad_version(
    lab: Lab, own: OwnTriton, tmp_path: Path, version: int, values: dict[str, str], said: str
) -> None:
    box = own_box(own, tmp_path, watch=1.5)
    do(Keep(), box, "m", {}, Live())
    with traffic(own.port, "m", clients=6):
        found = do(Swap(), box, "m", {"version": str(version), **values}, Live())
    assert found.word == "undone", (found.text, found.lines, found.figures)
    assert said in found.text
    assert own.ready() == {("m", "1"), ("h", "1"), ("ens", "1")}


def test_a_load_that_outlives_the_wait_is_dropped_when_it_ends(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    found = do(Swap(), own_box(own, tmp_path, load_timeout=1.0), "m", {"version": "8"}, Live())
    assert (found.word, found.text) == ("failed", "m 8 has not ended loading within 1 s: 1 serves on")
    own.wait_ready({("m", "1")})
    assert ("m", "1") in own.ready()


def test_loading_for_ever(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    found = do(Swap(), own_box(own, tmp_path, load_timeout=1.0), "h", {"version": "2"}, Live())
    assert found.word == "failed"
    assert "only a restart ends it for sure" in found.still_going
    assert ("h", "1") in own.ready()


def test_reload_unload_and_load(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    box = own_box(own, tmp_path)
    with traffic(own.port, "m") as seen:
        assert do(Reload(), box, "m", {"way": "anew"}, Live()).word == "done"
    assert seen.failed == []
    gone = do(Unload(), box, "m", {}, Live())
    told = "404 Request for unknown model: 'm' has no available versions"
    assert gone.lines == ("ens 1 went down with it", f"clients get from now on: {told}")
    assert do(Load(), box, "m", {}, Live()).text == "m 1 is READY"
    assert ("ens", "1") in own.ready()


def test_a_warm_up_stays_live(lab: Lab, own: OwnTriton, tmp_path: Path) -> None:
    """The last of this server: with a warm-up, a version whose process dies may take the server down."""
    box = own_box(own, tmp_path)
    do(Keep(), box, "m", {}, Live())
    assert do(Swap(), box, "m", {"version": "2", "warmup": "true"}, Live()).word == "done"
    served = look(box, "m", traffic=False)
    assert served.config is not None
    assert served.config.warmup_samples == 1
    assert any(line.startswith("model_warmup") for line in served.live_only)
    plan = Swap().plan(box, "m", {"version": "1"})
    assert any("its warm-up runs 1 within the load" in check.text for check in plan.checks)


@pytest.mark.parametrize("mood", ["crash", "crash_load"])
def test_a_crash_and_the_way_out(lab: Lab, tmp_path: Path, mood: str) -> None:
    root = tmp_path / "repository"
    write("m", config("m", {2: mood}), (1,), program="rogue.py", root=root)
    with own_triton(root, wait=False, more=SHELL) as own:
        own.wait_ready({("m", "1")})
        write("m", config("m", {2: mood}), (2,), program="rogue.py", root=root)
        box = own_box(own, tmp_path / "state")
        plan = Swap().plan(box, "m", {"version": "2"})
        assert "if 2 crashes the server: a restart loads 2 again from disk (policy latest 1)" in plan.effects
        if mood == "crash":
            found = do(Swap(), box, "m", {"version": "2", "recover": "true"}, Live())
            assert found.text.endswith("m 1 serves again, pinned in config.pbtxt")
        else:
            found = do(Swap(), box, "m", {"version": "2"}, Live())
            assert found.lines[-1].endswith("gpuconsole do model.pin m version=1")
            pinned = do(Pin(), box, "m", {"version": "1"}, Live())
            assert (pinned.word, pinned.text) == ("done", "m 1 serves, pinned in config.pbtxt")
        assert found.word == "failed"
        assert "the server went down" in found.text
        assert own.ready() == {("m", "1")}
