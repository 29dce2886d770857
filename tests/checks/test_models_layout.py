"""L01 L02."""

from __future__ import annotations

import pytest

from console.checks import models_layout
from console.core.facts import AnswerFact, Facts, FileFact
from tests.checks.cards import refused, says
from tests.checks.repo import ENGINE, GOOD, RANKING, ROOT, box, inspected, ready, without
from tests.checks.told import DENIED

NEWER = {**GOOD, "ranking/4/model.plan": ENGINE}
PINNED = {**NEWER, "ranking/config.pbtxt": RANKING + "version_policy { specific { versions: [ 3 ] } }\n"}
NO_PODMAN = AnswerFact(why="no socket")


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "2 models serve their newest version"),
        (box(NEWER), "warn", "ranking: 4 lies on disk, 3 serves"),
        (box({**NEWER, "prep/2/model.py": ENGINE}), "warn", "prep: 2 lies on disk, 1 serves; 1 more models so"),
        (box({**GOOD, "ranking/10/": ""}), "ok", "2 models"),  # an empty folder is no version yet
        (box(PINNED), "note", "held back on purpose: ranking 3 by specific 3"),
        (box(NEWER, answers={"@triton.index": ready("ranking/4", "ranking/3")}), "ok", "1 models"),
        (box({**NEWER, "ranking/config.pbtxt": "max_batch_size: {"}), "warn", "4 lies on disk"),
        (box({**NEWER, "ranking/config.pbtxt": DENIED}), "unknown", "permission denied"),
        (box(answers={"@triton.index": refused("connection refused")}), "unknown", "connection refused"),
        (box(answers={"@triton.index": ["garbage", 3, {}]}), "none", "no model of this folder serves"),
        (box(answers={"@triton.index": "garbage"}), "none", "no model of this folder serves"),
        (without(), "none", "/models is not on this host's disk"),
        (without(podman_inspect=None), "none", "no Triton container"),
        (without(podman_inspect=NO_PODMAN), "unknown", "no socket"),
    ],
)
def test_newer(facts: Facts, sign: str, text: str) -> None:
    found = says(models_layout, "L01", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_waiting_version_is_swapped_in() -> None:
    found = says(models_layout, "L01", box(NEWER))
    assert found.fix is not None
    assert found.fix.commands == ("gpuconsole do model.swap ranking version=4",)
    assert found.evidence[0].where == f"{ROOT}/ranking/4"


NONE = {"@triton.index": refused("connection refused")}
EXPLICIT = {**NONE, "@podman.inspect": inspected("--model-control-mode=explicit")}
NO_VERSION = {**GOOD, "emptyver/config.pbtxt": 'backend: "python"\n'}
ENSEMBLE = {**GOOD, "pipe/config.pbtxt": 'platform: "ensemble"\n', "pipe/1/": ""}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "2 models, 2 version folders"),
        (box(answers=NONE), "ok", "2 models"),
        (box(ENSEMBLE), "ok", "3 models"),
        (box(NO_VERSION, answers=NONE), "fail", "emptyver: no version folder"),
        (box(NO_VERSION, answers=EXPLICIT), "warn", "emptyver: no version folder"),
        (box({**GOOD, "flat/model.onnx": ENGINE}, answers=NONE), "fail", "its files lie beside, not in, 1/"),
        (box({**GOOD, "hollow/config.pbtxt": "", "hollow/1/": ""}), "fail", "hollow: its version folder 1 is empty"),
        (box({**GOOD, "odd/1/weights.bin": ENGINE}), "fail", "no config.pbtxt, and no file that tells what it is"),
        (box({**GOOD, "auto/1/model.onnx": ENGINE}), "ok", "3 models"),
        (box({**GOOD, "ranking/v4/model.plan": ENGINE}), "warn", "ranking: v4/ is no version"),
        (box({**GOOD, "ranking/004/model.plan": ENGINE}), "warn", "004/ is no version"),
        (box({**GOOD, "ranking/3_old/model.plan": ENGINE}), "warn", "3_old/ is no version"),
        (box({**GOOD, "ranking/3rdparty/x": ENGINE, "ranking/assets/y": ENGINE}), "ok", "2 models"),
        (box({**GOOD, "ranking/1.txt": ENGINE}), "ok", "2 models"),
        (box({**GOOD, "model.onnx": ENGINE, ".git/x": ENGINE, "README.md": ENGINE}), "note", "model.onnx is no model"),
        (box({"notes.txt": ENGINE}), "warn", "holds no model folder"),
        (box(files={f"{ROOT}/ranking": FileFact("dir", mode=0o700, why="permission denied")}), "unknown", "denied"),
        (box(files={ROOT: DENIED}), "unknown", "permission denied"),
        (without(), "none", "not on this host's disk"),
        (without(podman_inspect=NO_PODMAN), "unknown", "no socket"),
    ],
)
def test_layout(facts: Facts, sign: str, text: str) -> None:
    found = says(models_layout, "L02", facts)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_one_folder_that_cannot_be_read_hides_no_broken_one() -> None:
    closed = FileFact("dir", mode=0o700, names=None, why="permission denied")
    tree = {**GOOD, "odd/1/weights.bin": ENGINE}
    found = says(models_layout, "L02", box(tree, files={f"{ROOT}/prep/1": closed}, answers=NONE))
    assert found.sign == "fail"


def test_more_than_was_looked_at_is_unknown() -> None:
    facts = box()
    facts.files.pop(f"{ROOT}/ranking/3")  # type: ignore[attr-defined]
    assert says(models_layout, "L02", facts).sign == "unknown"
