"""Which host is looked at: live, recorded, simulated; a broken recording is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.config import Settings
from console.core.facts import AnswerFact, CommandFact, SpaceFact
from console.core.plan import WrongInput
from console.sources import facts_host
from console.sources.facts_host import Host, Recording, of_box, recorded
from tests.clients.test_tree import put


def box(root: Path, **told: Any) -> Host:
    """A recording with this box.json."""
    put(root, ".gpuconsole/box.json", json.dumps(told))
    return recorded(str(root), Settings())


def test_a_recording_answers_for_all(tmp_path: Path) -> None:
    host = box(
        tmp_path,
        wall=1000.0,
        host="gpu01",
        commands={"dkms status": {"code": 0, "out": "installed\n"}},
        answers={"@nvml": {"value": {"box": None}}, "@units": {"why": "no systemd", "settle": "x"}},
        spaces={"/": {"free": 1, "total": 2}, "/data": {"free": 3, "total": 4, "fs": "xfs"}},
    )
    assert (host.kind, host.name, host.wall) == ("recorded", "gpu01", 1000.0)
    assert host.run("dkms status", 1.0) == CommandFact(0, "installed\n")
    assert host.run("uname -a", 1.0) == CommandFact(why="not recorded")
    assert host.answer("@nvml") == AnswerFact({"box": None})
    assert host.answer("@units") == AnswerFact(why="no systemd", settle="x")
    assert host.answer("@podman.ping") == AnswerFact(why="not recorded")
    assert host.answer("@processes") == AnswerFact(why="not recorded")
    assert host.answer("@settings") is None, "the console's own"
    assert host.space("/data/models") == SpaceFact(free=3, total=4, fs="xfs")
    assert host.space("/database") == SpaceFact(free=1, total=2)


def test_a_copy_without_a_recording(tmp_path: Path) -> None:
    put(tmp_path, "/proc/sys/kernel/hostname", "gpu02\n")
    put(tmp_path, "/etc/x").chmod(0o600)
    host = recorded(str(tmp_path), Settings())
    assert host.name == "gpu02"
    assert host.run("uname", 1.0).why == "not recorded"
    assert host.space("/").why == "not recorded"
    assert host.tree.look("/etc/x").mode == 0o600, "the copy's own attributes"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no recording"),
        ("{", "is no recording"),
        ("[]", "is no recording"),
        ('{"files": {"/x": {"mode": "0644"}}}', "is no recording"),
        ('{"files": {"/x": {"colour": 1}}}', "is no recording"),
        ('{"commands": {"x": 1}}', "is no recording"),
        ('{"file": {}}', "is no recording"),
        ("\xff", "is no recording"),
        ("[" * 100_000, "is no recording"),
    ],
)
def test_a_broken_recording_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    put(tmp_path, ".gpuconsole/box.json", text.encode("latin-1"))
    with pytest.raises(WrongInput, match=words):
        recorded(str(tmp_path), Settings())


def test_no_folder_and_no_hosts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongInput, match="there is no folder"):
        recorded(str(tmp_path / "none"), Settings())
    with pytest.raises(WrongInput, match="neither"):
        recorded(str(tmp_path), Settings())
    (tmp_path / ".gpuconsole/box.json").mkdir(parents=True)
    with pytest.raises(WrongInput, match="no plain file"):
        recorded(str(tmp_path), Settings())
    monkeypatch.setattr(facts_host, "MAX_BOX", 10)
    with pytest.raises(WrongInput, match="larger than"):
        facts_host.bounded(put(tmp_path, "large", "x" * 20))


def test_a_simulated_box_asks_its_stand_ins_and_nothing_of_this_machine(tmp_path: Path) -> None:
    put(tmp_path, ".gpuconsole/box.json", '{"answers": {"@podman.ping": {"value": 1}, "@units": {"value": {}}}}')
    host = of_box(Settings(), str(tmp_path), simulated=True)
    assert host.kind == "simulated"
    assert [host.answer(name) for name in ("@podman.ping", "@triton.index", "@nvml", "@ports")] == [None] * 4
    assert host.answer("@units") == AnswerFact({})
    assert host.answer("@samples") == AnswerFact(why="not recorded")
    assert host.run("uname", 1.0).why == "not recorded"
    assert host.space("/").why == "not recorded"


def test_this_machine(tmp_path: Path) -> None:
    host = of_box(Settings())
    assert host.is_live
    assert host.answer("@podman.ping") is None
    assert host.name
    assert host.space("/").total
    assert of_box(Settings(), str(put(tmp_path, "etc/x").parents[1])).kind == "recorded"
    assert Host("live", Settings(), recording=Recording(wall=5.0)).wall == 5.0


def program(folder: Path, name: str, text: str) -> None:
    """A program of its own on the PATH."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo out; echo err >&2; exit 3", CommandFact(3, "out\n", "err\n")),
        ("/bin/sleep 30", CommandFact(why="dkms did not end within 0.5 s")),
        ("printf '\\377\\000x'", CommandFact(0, "\ufffd\x00x")),
        ("exec /usr/bin/yes", None),
        ("kill -9 $$", CommandFact(-9)),
    ],
)
def test_programs_of_all_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: CommandFact | None
) -> None:
    program(tmp_path / "bin", "dkms", text)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = of_box(Settings()).run("dkms status", 0.5)
    if expected is None:
        assert found.why.startswith(("dkms printed more than", "dkms did not end within"))
    else:
        assert found == expected


def test_programs_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = of_box(Settings())
    program(tmp_path, "dkms", "echo here")
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", ":."):
        monkeypatch.setenv("PATH", path)
        assert host.run("dkms status", 1.0) == CommandFact(why="dkms is not installed"), path
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "dkms").write_bytes(b"\x7fELFnonsense")
    assert host.run("dkms status", 1.0).why.startswith("dkms cannot be run")
    assert host.run("dkms 'unfinished", 1.0).why.startswith("it is no command")
    assert host.run("/nonexistent/x", 1.0).why == "/nonexistent/x is not installed"
    program(tmp_path, "long", "exec /usr/bin/head -c 1000000 /dev/zero")
    assert len(host.run("long", 2.0).out) == facts_host.MAX_OUTPUT
