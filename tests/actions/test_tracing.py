"""Tracing and log verbosity on a real Triton: set, waited for, set back; cancelled; killed; without a trace file."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from console.actions import tracing
from console.actions.box import Box, BoxSpec
from console.actions.server_log import Verbose
from console.actions.tracing import Trace
from console.clients import podman_archive
from console.config import Podman, Safety, Settings, Triton
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from tests.actions.runs import Recorded, do, killed
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton

pytestmark = pytest.mark.lab

CONFIG = """name: "quick" backend: "python" max_batch_size: 4
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
parameters [ { key: "answer" value { string_value: "score" } }, { key: "base_us" value { string_value: "2000" } } ]
"""
FLAGS = ("--model-control-mode=explicit", "--load-model=*")
WITH_FILE = (*FLAGS, "--trace-config=triton,file=/tmp/trace.json", "--trace-config=level=OFF")
UNSET: Mapping[str, Any] = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0"}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    if Lab.found() is None:
        pytest.skip("the lab is not up")
    with own_triton(tmp_path_factory.mktemp("models"), [("quick", CONFIG, (1,))], flags=WITH_FILE) as started:
        yield started


@pytest.fixture
def box(lab: Lab, own: OwnTriton, tmp_path: Path) -> Box:
    return a_box(own, tmp_path)


def a_box(own: OwnTriton, state: Path, read_only: bool = False) -> Box:
    told = Settings(
        podman=Podman(socket=own.socket, container=own.name),
        triton=Triton(http_port=own.port),
        safety=Safety(read_only=read_only),
    )
    return Box(BoxSpec(told), state)


def ask(own: OwnTriton) -> None:
    tensor = {"name": "FEATURES", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}
    assert own.triton("POST", "/v2/models/quick/infer", {"inputs": [tensor]})[0] == 200


def setting(own: OwnTriton) -> dict[str, Any]:
    status, told = own.triton("GET", "/v2/models/quick/trace/setting")
    assert status == 200
    return {name: told[name] for name in UNSET}


def verbosity(own: OwnTriton) -> int:
    return int(own.triton("GET", "/v2/logging")[1]["log_verbose_level"])


class Asking(Recorded):
    """A run in whose waits one request is made."""

    def __init__(self, own: OwnTriton, times: int = 1000) -> None:
        super().__init__()
        self._own, self._times = own, times
        self.while_waiting = self._one

    def _one(self) -> None:
        if self._times:
            self._times -= 1
            ask(self._own)


def test_the_next_requests_are_traced_and_all_is_set_back(box: Box, own: OwnTriton) -> None:
    run = Asking(own)
    outcome = do(Trace(), box, "quick", {"count": "3", "seconds": "30"}, run)
    assert outcome.word == "done", outcome.text
    assert outcome.figures["traced"] == 3
    assert outcome.figures["compute_ms"] > 1.5
    assert outcome.figures["mean_ms"] <= outcome.figures["worst_ms"]
    assert [line.split()[0] for line in outcome.lines[:6]] == ["ms", "mean", "worst", "1", "2", "3"]
    assert setting(own) == UNSET
    again = do(Trace(), box, "quick", {"count": "2"}, Asking(own))
    assert again.figures["traced"] == 2


def test_fewer_requests_than_asked_for(box: Box, own: OwnTriton) -> None:
    outcome = do(Trace(), box, "quick", {"count": "9", "seconds": "2"}, Asking(own, 2))
    assert outcome.word == "done"
    assert "2 requests of quick traced (9 were asked for)" in outcome.text
    none = do(Trace(), box, "quick", {"seconds": "1"})
    assert none.word == "undone"
    assert "no request" in none.text
    assert setting(own) == UNSET


def test_a_setting_of_the_models_own_comes_back(box: Box, own: OwnTriton) -> None:
    theirs = {"trace_rate": "7"}
    own.triton("POST", "/v2/models/quick/trace/setting", theirs)
    try:
        do(Trace(), box, "quick", {"count": "1"}, Asking(own))
        assert setting(own) == {**UNSET, **theirs}
    finally:
        own.triton("POST", "/v2/models/quick/trace/setting", {"trace_rate": None})


def test_cancelled_sets_back_at_once(box: Box, own: OwnTriton) -> None:
    run = Recorded()
    run.cancelled.set()
    outcome = do(Trace(), box, "quick", {}, run)
    assert outcome.word == "undone"
    assert "it was stopped" in outcome.text
    assert setting(own) == UNSET


@pytest.mark.parametrize("moment", [f"{phase}{end}" for phase in Trace.PHASES for end in ("", " done")])
def test_a_killed_trace_is_set_back(moment: str, box: Box, own: OwnTriton) -> None:
    plan = Trace().plan(box, "quick", {"count": "1", "seconds": "1"})
    run = killed(Trace(), box, plan, moment)
    found, finish, undo = Trace().interrupted(box, plan, run.journal())
    assert found
    assert not finish
    if setting(own) == UNSET:
        assert not undo
    else:
        assert "set back" in undo
        assert Trace().undo(box, plan, Recorded(kept=run.kept())).word == "undone"
    assert setting(own) == UNSET


def test_a_file_out_of_the_container(box: Box, own: OwnTriton) -> None:
    assert podman_archive.read_file(own.socket, own.name, "/nosuch") is None
    assert b"root" in (podman_archive.read_file(own.socket, own.name, "/etc/passwd") or b"")
    with pytest.raises(SourceError):
        podman_archive.read_file("unix:///nosuch", own.name, "/x")


def test_refusals(box: Box, own: OwnTriton, lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no READY model"):
        Trace().plan(box, "nosuch", {})
    read_only = a_box(own, tmp_path, read_only=True)
    for action, target in ((Trace(), "quick"), (Verbose(), "")):
        plan = action.plan(read_only, target, {})
        with pytest.raises(Refused, match="read-only"):
            action.run(read_only, plan, Recorded())
    assert (setting(own), verbosity(own)) == (UNSET, 0)
    told = Settings(podman=Podman(socket=lab.podman_url, container=lab.container), triton=Triton(http_port=lab.port))
    without = Trace().plan(Box(BoxSpec(told), tmp_path), "rank", {})
    assert without.refused.startswith("this server was started without a trace file")


def test_a_trace_file_on_a_mount(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"t.json.{number}").write_bytes(b"%d" % number)
    assert list(tracing._mounted(tmp_path / "t.json")) == [b"0", b"1"]


# ------------------------------------------------------------------------------------------------------------ verbosity


def test_verbose_for_a_time_and_back(box: Box, own: OwnTriton) -> None:
    seen: list[int] = []
    run = Recorded()
    run.while_waiting = lambda: seen.append(verbosity(own)) if not seen else None
    outcome = do(Verbose(), box, "", {"level": "2", "minutes": "1"}, run)
    assert outcome.word == "done"
    assert (seen, run.waited, verbosity(own)) == ([2], 60.0, 0)
    assert run.notes[0] == "1:00 left"


def test_stopping_verbosity_sets_it_back_at_once(box: Box, own: OwnTriton) -> None:
    run = Recorded()
    run.cancelled.set()
    assert do(Verbose(), box, "", {}, run).word == "undone"
    assert (run.waited, verbosity(own)) == (1.0, 0)


@pytest.mark.parametrize("moment", [f"{phase}{end}" for phase in Verbose.PHASES for end in ("", " done")])
def test_a_killed_wait_is_set_back(moment: str, box: Box, own: OwnTriton) -> None:
    plan = Verbose().plan(box, "", {})
    run = killed(Verbose(), box, plan, moment)
    found, _, undo = Verbose().interrupted(box, plan, run.journal())
    assert found
    assert bool(undo) == (verbosity(own) != 0)
    if undo:
        assert Verbose().undo(box, plan, Recorded(kept=run.kept())).word == "undone"
    assert verbosity(own) == 0


def test_what_somebody_else_set_meanwhile_is_left(box: Box, own: OwnTriton) -> None:
    run = Recorded()
    changed = threading.Event()

    def other() -> None:
        if not changed.is_set():
            own.triton("POST", "/v2/logging", {"log_verbose_level": 3})
            changed.set()

    run.while_waiting = other
    try:
        outcome = do(Verbose(), box, "", {"minutes": "1"}, run)
        assert "somebody has set verbosity 3" in outcome.text
        assert "already" in Verbose().plan(box, "", {}).refused
    finally:
        with contextlib.suppress(OSError):
            own.triton("POST", "/v2/logging", {"log_verbose_level": 0})


def test_a_folder_that_the_container_writes_to_is_read_with_care(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_archive, "MAX_FILE", 10)
    file = tmp_path / "trace[1].json"
    (tmp_path / "trace[1].json.0").write_text("good")
    (tmp_path / "trace[1].json.1").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "trace[1].json.2")
    (tmp_path / "trace1.json.0").write_text("another")
    assert list(tracing._mounted(file)) == [b"good"]
    (tmp_path / "trace[1].json.3").write_text("x" * 11)
    with pytest.raises(SourceError, match="is larger than"):
        list(tracing._mounted(file))
