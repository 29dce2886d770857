"""Pinning a version on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions.box import Box
from console.actions.pin import Pin, Unpin, pin_file, recover
from console.core.model import ContainerState
from console.core.plan import Refused, WrongInput
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do, killed
from tests.fakes.model_server import ModelServer, model_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2), "# which one\nversion_policy { latest { num_versions: 1 } }  # the newest")
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def config(server: ModelServer) -> str:
    return (server.root / "m" / "config.pbtxt").read_text()


def test_pinned_with_a_backup_and_the_comments(server: ModelServer, box: Box, tmp_path: Path) -> None:
    before = config(server)
    plan = Pin().plan(box, "m", {"version": "1"})
    assert any(line.startswith("+ ") and "specific" in line for line in plan.difference)
    done = do(Pin(), box, "m", {"version": "1"}, Live())
    assert done.word == "done"
    assert "specific" in config(server)
    assert "latest" not in config(server)
    assert "# which one" in config(server)
    (backup,) = (tmp_path / "state" / "backups").iterdir()
    assert backup.read_text() == before
    assert done.lines == (f"as it was: {backup}",)
    again = do(Pin(), box, "m", {"version": "1"}, Live())
    assert (again.lines, again.undo) == (("it said so already",), None)


def test_a_pin_is_taken_back_and_that_too(server: ModelServer, box: Box) -> None:
    before = config(server)
    done = do(Pin(), box, "m", {"version": "1"}, Live())
    pinned = config(server)
    assert done.undo is not None
    assert (done.undo.action, done.undo.text) == ("model.unpin", "config.pbtxt of m as it was")
    assert dict(done.left) == dict(Pin().state(box, Pin().plan(box, "m", {"version": "1"}).target))
    plan = Unpin().plan(box, "m", done.undo.values)
    assert any(line.startswith("- ") and "specific" in line for line in plan.difference)
    back = do(Unpin(), box, "m", done.undo.values, Live())
    assert (back.word, config(server)) == ("done", before)
    assert do(Unpin(), box, "m", done.undo.values, Live()).text.endswith("said so already")
    assert back.undo is not None
    assert do(Unpin(), box, "m", back.undo.values, Live()).word == "done"
    assert config(server) == pinned


def test_what_was_changed_by_hand_since_is_not_overwritten(server: ModelServer, box: Box) -> None:
    done = do(Pin(), box, "m", {"version": "1"}, Live())
    assert done.undo is not None
    plan = Unpin().plan(box, "m", done.undo.values)
    (server.root / "m" / "config.pbtxt").write_text(config(server) + "# by hand\n")
    with pytest.raises(Refused, match="m has changed since the plan was made"):
        Unpin().recheck(box, plan)
    assert Pin().state(box, plan.target)["file"] != done.left["file"], "so an undo is refused too"


@pytest.mark.parametrize(
    ("backup", "said"),
    [
        ("", "which kept text? give backup=NAME"),
        ("../../etc/m.config.pbtxt", "is no kept text of m"),
        ("n.20261130-200000-000000000.config.pbtxt", "is no kept text of m"),
        ("m.20261130", "is no kept text of m"),
    ],
)
def test_a_kept_text_that_is_none(box: Box, backup: str, said: str) -> None:
    with pytest.raises(WrongInput) as error:
        Unpin().plan(box, "m", {"backup": backup})
    assert said in str(error.value)


def test_a_kept_text_that_is_gone(box: Box) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        Unpin().plan(box, "m", {"backup": "m.20261130-200000-000000000.config.pbtxt"})


@pytest.mark.parametrize(
    ("target", "values", "said"),
    [
        ("m", {}, "which version? on disk: 1, 2; give version=N"),
        ("m", {"version": "3"}, "m has no version 3 on disk; it has 1, 2"),
        ("x", {"version": "1"}, "x cannot be pinned on disk: no folder of that name"),
    ],
)
def test_what_cannot_be(box: Box, target: str, values: dict[str, str], said: str) -> None:
    with pytest.raises(WrongInput) as error:
        Pin().plan(box, target, values)
    assert said in str(error.value)


def test_a_file_that_cannot_be_edited(server: ModelServer, box: Box) -> None:
    (server.root / "m" / "config.pbtxt").write_text("max_batch_size:")
    with pytest.raises(Refused, match=r"config.pbtxt of m cannot be edited: 1:16"):
        Pin().plan(box, "m", {"version": "1"})


def test_read_only_and_a_changed_file(server: ModelServer, box: Box, tmp_path: Path) -> None:
    plan = Pin().plan(box, "m", {"version": "1"})
    with pytest.raises(Refused, match="read-only"):
        Pin().run(fake_box(server, tmp_path / "state", read_only=True), plan, Live())
    (server.root / "m" / "config.pbtxt").write_text(config(server) + "\n# more\n")
    with pytest.raises(Refused, match="has changed since"):
        Pin().recheck(box, plan)


@pytest.mark.parametrize("moment", ["pin", "pin done"])
def test_killed_and_finished(server: ModelServer, box: Box, moment: str) -> None:
    plan = Pin().plan(box, "m", {"version": "1"})
    run = killed(Pin(), box, plan, moment)
    now, finish, undo = Pin().interrupted(box, plan, run.journal())
    assert now == ("config.pbtxt is pinned" if moment == "pin done" else "config.pbtxt is as it was")
    assert finish
    assert undo == ("put the file back as it was" if moment == "pin done" else "")
    assert Pin().finish(box, plan, Live()).word == "done"
    pinned = pin_file(box, "m", (1,))
    assert pinned.text == pinned.file.text


def test_killed_and_undone(server: ModelServer, box: Box) -> None:
    before = config(server)
    plan = Pin().plan(box, "m", {"version": "1"})
    run = killed(Pin(), box, plan, "pin done")
    assert Pin().undo(box, plan, Live(kept=dict(run.kept()))).word == "undone"
    assert config(server) == before


@pytest.mark.parametrize("moment", ["write", "write done"])
def test_an_unpin_killed_and_finished(server: ModelServer, box: Box, moment: str) -> None:
    before = config(server)
    done = do(Pin(), box, "m", {"version": "1"}, Live())
    assert done.undo is not None
    plan = Unpin().plan(box, "m", done.undo.values)
    run = killed(Unpin(), box, plan, moment)
    now, finish, _ = Unpin().interrupted(box, plan, run.journal())
    assert finish
    assert ("still pinned" in now) == (moment == "write")
    assert Unpin().finish(box, plan, Live()).word == "done"
    assert config(server) == before


def test_a_recovery_that_fails_says_how_it_is(server: ModelServer, box: Box) -> None:
    found = recover(box, Live(), "triton", "m", (1,), (), "it crashed", [], {"load_s": 1.0})
    assert found.word == "failed"
    assert found.text.startswith("it crashed; recovery failed: ")
    assert "config.pbtxt of m now says specific 1" in found.lines[0]
    assert found.figures == {"load_s": 1.0}


def test_what_a_start_would_start_is_part_of_what_must_hold(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Pin().plan(box, "m", {"version": "1"})
    assert plan.target.identity["container"] == "none"
    other = ContainerState("f" * 64, "other", "exited", "image")
    monkeypatch.setattr("console.actions.pin.container_of", lambda _: other)
    with pytest.raises(Refused, match="container: none then, ffffffffffff, exited now"):
        Pin().recheck(box, plan)
