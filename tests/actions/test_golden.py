"""Keeping a question and its answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import model_look
from console.actions.box import Box
from console.actions.golden import MAX_FILE, Keep
from console.actions.swap_spec import warmup_of
from console.core.plan import Refused, WrongInput
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do, killed
from tests.fakes.model_server import ModelServer, model_server

REQUEST = {"inputs": [{"name": "FEATURES", "datatype": "FP32", "shape": [2, 4], "data": [1] * 8}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1,))
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def test_kept_and_forgotten(box: Box) -> None:
    plan = Keep().plan(box, "m", {})
    assert plan.danger == "safe"
    assert any("twice the same" in check.text for check in plan.checks)
    done = do(Keep(), box, "m", {}, Live())
    golden = box.golden("m")
    assert golden is not None
    assert golden.outputs[0].values == (0.5,)
    assert golden.version == "1"
    assert done.undo is not None
    assert Keep().state(box, plan.target)["kept"] == done.left["kept"]
    assert do(Keep(), box, "m", done.undo.values, Live()).word == "done"
    assert box.golden("m") is None
    assert "nothing to forget" in Keep().plan(box, "m", {"forget": "true"}).refused


def test_another_one_replaces_it_and_cannot_be_undone(server: ModelServer, box: Box) -> None:
    do(Keep(), box, "m", {}, Live())
    server.moods["m", 1] = "wrong"
    done = do(Keep(), box, "m", {"tolerance": "0.01"}, Live())
    golden = box.golden("m")
    assert done.undo is None
    assert golden is not None
    assert (golden.outputs[0].values, golden.relative) == ((1.5,), 0.01)


def test_a_request_of_a_file(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST))
    do(Keep(), box, "m", {"file": str(file)}, Live())
    golden = box.golden("m")
    assert golden is not None
    assert golden.body == file.read_bytes()
    assert golden.sent == "FEATURES FP32 [2, 4] from request.json"
    sample = warmup_of(model_look.look(box, "m", traffic=False), golden)
    assert sample is not None
    assert (sample[0]["batch_size"], sample[0]["inputs"]["FEATURES"]["dims"]) == (2, [4])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tolerance": "x"}, "`tolerance` must be a number"),
        ({"tolerance": "nan"}, "`tolerance` must be from 0 to 1"),
        ({"tolerance": "-1"}, "`tolerance` must be from 0 to 1"),
        ({"file": "/no/such.json"}, "cannot be read: No such file"),
        ({"file": "/etc/hostname"}, "is no inference request"),
    ],
)
def test_values_that_cannot_be(box: Box, values: dict[str, str], said: str) -> None:
    with pytest.raises(WrongInput) as error:
        Keep().plan(box, "m", values)
    assert said in str(error.value)


def test_what_is_no_answer_is_not_kept(server: ModelServer, box: Box) -> None:
    server.moods["m", 1] = "dead"
    assert "gives no answer that can be kept: 500" in Keep().plan(box, "m", {}).refused
    server.unload("m")
    assert "no version of m is READY" in Keep().plan(box, "m", {}).refused


def test_an_answer_that_went_bad_meanwhile(server: ModelServer, box: Box) -> None:
    plan = Keep().plan(box, "m", {})
    server.moods["m", 1] = "dead"
    assert Keep().run(box, plan, Live()).word == "undone"
    server.unload("m")
    assert Keep().run(box, plan, Live()).word == "undone"
    assert box.golden("m") is None


def test_read_only(server: ModelServer, tmp_path: Path) -> None:
    box = fake_box(server, tmp_path / "state", read_only=True)
    server.calls.clear()
    with pytest.raises(Refused):
        Keep().plan(box, "m", {})
    assert server.calls == []


def test_a_folder_that_cannot_be_written(box: Box, tmp_path: Path) -> None:
    plan = Keep().plan(box, "m", {})
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "golden").write_text("a file")
    found = Keep().run(box, plan, Live())
    assert (found.word, found.text.startswith("nothing is kept")) == ("undone", True)


@pytest.mark.parametrize("moment", ["ask", "keep", "keep done"])
def test_killed_and_finished(box: Box, moment: str) -> None:
    plan = Keep().plan(box, "m", {})
    run = killed(Keep(), box, plan, moment)
    now, finish, undo = Keep().interrupted(box, plan, run.journal())
    assert now.startswith("kept: " if moment == "keep done" else "nothing is kept")
    assert (finish, undo) == ("do it again", "")
    assert Keep().finish(box, plan, Live()).word == "done"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/dev/zero", "is no plain file"),
        ("pipe", "is no plain file"),
        ("~nosuchuser/x", "cannot be read"),
        ("circle", "cannot be read"),
        ("large", "is larger than"),
    ],
)
def test_files_without_an_end_or_without_a_place(box: Box, tmp_path: Path, file: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(MAX_FILE + 1)
    path = file if file[0] in "/~" else str(tmp_path / file)
    with pytest.raises(WrongInput, match=said):
        Keep().plan(box, "m", {"file": path})
