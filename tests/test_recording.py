"""`gpuconsole record`: the session's readings end up in the file, signals end it, and what it cannot do is said."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from console import recording
from console.clients.recorder import Recorder
from console.clients.recording import segments
from console.config import Alerts
from console.core.model import Event, LogLine, Snapshot
from console.core.plan import Refused, WrongInput
from console.core.recorded import Moment, Reader
from tests.fakes.boxes import drawn_box
from tests.fakes.session import FakeSession, LiveSession

TIMES = 20
FEEDER = """
import sys, time
from pathlib import Path
from console.clients.recorder import Recorder
from tests.fakes.past import seconds
recorder = Recorder(Path(sys.argv[1]))
recorder.switch(True)
for snapshot, lines in seconds(100_000):
    recorder.put(snapshot, lines)
    while not recorder._queue.empty():
        time.sleep(0.001)
    print(snapshot.mono, flush=True)
    time.sleep(0.004)
"""


class Quiet:
    """A judge who says nothing."""

    def evaluate(self, snapshot: Any, history: Any, asked: Any) -> tuple[()]:
        return ()


def moments(folder: Path) -> list[Moment]:
    """All that is recorded there."""
    found: list[Moment] = []
    for segment in segments(folder)[0]:
        reader = Reader(segment.fixed)
        found += [reader.read(line) for minute in segment.minutes for line in segment.lines(minute)]
    return found


def test_alerts_are_recorded_and_the_hook_is_called(tmp_path: Path) -> None:
    box = drawn_box()
    got = tmp_path / "got"
    code = "import sys,pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    alerts = Alerts(temperature_c="60", not_ready="off", hook_command=[sys.executable, "-c", code, str(got)])

    def now(second: float) -> Snapshot:
        return replace(box.snapshot, gpu=replace(box.snapshot.gpu, mono=time.monotonic()))

    session = LiveSession(now)
    recording.run(session, Quiet(), Recorder(tmp_path / "r"), tmp_path, 5.5, lambda text: None, alerts)
    told = [event.text for event in moments(tmp_path / "r")[-1].snapshot.events]
    assert told.count("alert: GPU 0 is at 60 °C or more") == 1
    (alert,) = json.loads(got.read_text())["alerts"]
    assert (alert["rule"], alert["subject"], alert["value"], alert["state"]) == ("temperature_c", "GPU 0", 66, "began")


def test_what_the_session_reads_is_recorded(tmp_path: Path) -> None:
    box = drawn_box()
    items = (Event(1.0, "note", "hello", "(test)"), LogLine(1.0, "stderr", "a line"))
    said: list[str] = []
    session = LiveSession(lambda second: box.snapshot, items=items)
    code = recording.run(session, Quiet(), Recorder(tmp_path / "r"), tmp_path, 3.5, said.append)
    assert code == 0
    assert session.stopped
    found = moments(tmp_path / "r")
    assert len(found) >= 2
    assert found[-1].snapshot.gpu.value == box.snapshot.gpu.value
    assert "hello" in [event.text for event in found[-1].snapshot.events]
    assert [line.text for moment in found for line in moment.lines] == ["a line"]
    assert said[0].startswith(f"recording into {tmp_path / 'r'}, at most 300 MiB")
    assert "written to" in said[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_and_the_file_is_whole(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    threading.Timer(1.3, lambda: os.kill(os.getpid(), number)).start()
    session = FakeSession(drawn_box().snapshot)
    assert recording.run(session, Quiet(), Recorder(tmp_path), tmp_path, 60.0, lambda text: None) == 0
    assert signal.getsignal(number) is before
    (segment,) = segments(tmp_path)[0]
    assert segment.faults == {}


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    other = Recorder(tmp_path)
    other.switch(True)
    while not other.state.on:
        time.sleep(0.01)
    session = FakeSession(drawn_box().snapshot)
    with pytest.raises(Refused, match="records into"):
        recording.run(session, Quiet(), Recorder(tmp_path), tmp_path, 5.0, lambda text: None)
    assert not session.started
    other.close()


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WrongInput, match="cannot be written to"):
        recording.run(FakeSession(), Quiet(), Recorder(tmp_path / "file"), tmp_path, 5.0, lambda text: None)


def test_a_recording_that_ends_by_itself_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("console.clients.recorder.FLOOR", 1 << 60)
    session = FakeSession(drawn_box().snapshot)
    assert recording.run(session, Quiet(), Recorder(tmp_path), tmp_path, 30.0, lambda text: None) == 1
    assert "MiB left" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_in_mid_write_each_file_opens_and_five_seconds_are_lost_at_most(tmp_path: Path) -> None:
    rng = random.Random(time.time_ns())
    for number in range(TIMES):
        folder = tmp_path / str(number)
        process = subprocess.Popen(
            [sys.executable, "-c", FEEDER, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert process.stdout is not None
        told = 0.0
        for _ in range(rng.randint(3, 150)):
            told = float(process.stdout.readline())
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        rest = process.stdout.read().splitlines()
        process.wait()
        told = float(rest[-1]) if rest and rest[-1] else told
        found = moments(folder)
        assert told - found[-1].snapshot.mono <= 5.0, number
        assert [one.snapshot.seq for one in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("uid", [0, 1000])
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    text = recording.unit(("--limit", "200MiB"))
    assert "@" not in text.replace("%", "")
    assert text.count("--limit 200MiB") == 1
    assert ("--user" in text) == (uid != 0)
    path = tmp_path / "gpuconsole-record.service"
    path.write_text(text)
    try:
        told = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no systemd-analyze here")
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
