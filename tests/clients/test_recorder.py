"""The recorder: what is in memory goes to the file, limits hold, and what fails is said."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from console.clients import recorder
from console.clients.recorder import Folder, Recorder, RecordingStoppedError
from console.clients.recording import Segment, files, segments
from console.core.model import Snapshot
from console.core.recorded import Reader, rounded
from tests.fakes.past import SECRET, seconds


def until(true: Callable[[], bool]) -> None:
    """Wait for the recorder's thread."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "the recorder did not get there"
        time.sleep(0.01)


def read(folder: Path) -> list[Snapshot]:
    """All snapshots of a folder."""
    found: list[Snapshot] = []
    for segment in segments(folder)[0]:
        reader = Reader(segment.fixed)
        found += [reader.read(line).snapshot for minute in segment.minutes for line in segment.lines(minute)]
    return found


def test_switched_on_it_writes_the_past_that_it_has_and_what_follows(tmp_path: Path) -> None:
    recording = Recorder(tmp_path / "r")
    kept = list(seconds(200))
    for snapshot, lines in kept[:130]:
        recording.put(snapshot, lines)
    assert not (tmp_path / "r").exists()
    recording.switch(True)
    until(lambda: recording.state.on)
    for snapshot, lines in kept[130:]:
        recording.put(snapshot, lines)
    recording.close()
    assert [one.seq for one in read(tmp_path / "r")] == [one.seq for one, _ in kept]
    assert read(tmp_path / "r")[-1].gpu == rounded(kept[-1][0].gpu)
    (path,) = files(tmp_path / "r")
    assert Segment(path).faults == {}
    assert SECRET.encode() not in path.read_bytes()


def _answered(one: Recorder) -> bool:
    return one.state.on or bool(one.state.why_off)


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    recording = Recorder(tmp_path / "state" / "recordings")
    recording.put(next(seconds(1))[0])
    recording.switch(True)
    recording.close()
    (path,) = files(tmp_path / "state" / "recordings")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path.parent / recorder.LOCK).stat().st_mode) == 0o600


def test_off_and_on_again_makes_another_file(tmp_path: Path) -> None:
    recording = Recorder(tmp_path)
    kept = [snapshot for snapshot, _ in seconds(30)]
    for number, snapshot in enumerate(kept):
        if number in (5, 25):
            recording.switch(True)
        if number == 15:
            recording.switch(False)
        recording.put(snapshot)
    recording.close()
    assert recording.state.on is False
    assert recording.state.why_off == ""
    first, second = segments(tmp_path)[0]
    assert first.faults == second.faults == {}
    assert [one.seq for one in read(tmp_path)] == [one.seq for one in kept], "nothing is written twice"


def test_a_second_recorder_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path), Recorder(tmp_path)
    snapshot = next(seconds(1))[0]
    for one in (first, second):
        one.put(snapshot)
        one.switch(True)
        until(partial(_answered, one))
    assert first.state.on
    assert not second.state.on
    assert f"process {os.getpid()} records into {tmp_path} already" in second.state.why_off
    first.close()
    second.switch(True)
    until(lambda: second.state.on)
    second.close()


def test_the_oldest_files_go_and_the_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SEGMENT", 30_000)
    recording = Recorder(tmp_path, limit=150_000)
    recording.switch(True)
    kept = list(seconds(900))
    for number, (snapshot, lines) in enumerate(kept):
        recording.put(snapshot, lines)
        if number % 100 == 0:
            until(lambda: recording._queue.empty())
    recording.close()
    sizes = [path.stat().st_size for path in files(tmp_path)]
    assert recording.state.removed > 0
    assert len(sizes) > 1
    assert sum(sizes) <= 150_000 + 30_000
    found = read(tmp_path)
    assert [one.seq for one in found] == [one.seq for one, _ in kept[-len(found) :]]


def test_a_disk_that_fills_ends_the_recording_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recorder(tmp_path)
    recording.switch(True)
    kept = [snapshot for snapshot, _ in seconds(40)]
    for snapshot in kept[:20]:
        recording.put(snapshot)
    until(lambda: recording.state.on and recording._queue.empty())

    def full(handle: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for snapshot in kept[20:]:
        recording.put(snapshot)
    until(lambda: bool(recording.state.why_off))
    assert not recording.state.on
    assert f"{tmp_path} cannot be written to (No space left on device): nothing is recorded" in recording.state.why_off
    monkeypatch.undo()
    recording.switch(True)
    until(lambda: recording.state.on)
    recording.close()
    assert {one.seq for one in read(tmp_path)} == {one.seq for one in kept}, "memory went on meanwhile"


def test_a_disk_that_is_nearly_full_is_left_its_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FLOOR", 1 << 60)
    recording = Recorder(tmp_path)
    recording.put(next(seconds(1))[0])
    recording.switch(True)
    until(lambda: bool(recording.state.why_off))
    assert "MiB left" in recording.state.why_off
    recording.close()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    recording = Recorder(tmp_path / "file" / "recordings")
    recording.put(next(seconds(1))[0])
    recording.switch(True)
    until(lambda: bool(recording.state.why_off))
    assert "Not a directory" in recording.state.why_off
    recording.close()


def test_snapshots_of_key_presses_are_passed_over_and_their_log_lines_kept(tmp_path: Path) -> None:
    recording = Recorder(tmp_path)
    recording.switch(True)
    kept = [(snapshot, lines) for snapshot, lines in seconds(20)]
    (snapshot, _), (_, lines) = kept[0], next(one for one in kept if one[1])
    recording.put(snapshot)
    recording.put(snapshot, lines)
    recording.put(kept[1][0])
    recording.close()
    segment = segments(tmp_path)[0][0]
    reader = Reader(segment.fixed)
    moments = [reader.read(line) for minute in segment.minutes for line in segment.lines(minute)]
    assert [one.snapshot.seq for one in moments] == [snapshot.seq, kept[1][0].seq]
    assert len(moments[1].lines) == len(lines)


def test_two_files_of_one_second_have_two_names(tmp_path: Path) -> None:
    folder = Folder(tmp_path, recorder.LIMIT)
    folder.begin(1000.0)
    folder.begin(1000.0)
    folder.close()
    assert [path.name for path in files(tmp_path)] == ["19700101T001640Z-1.jsonl.zst", "19700101T001640Z.jsonl.zst"]
    with pytest.raises(RecordingStoppedError):
        _ = (Folder(tmp_path, recorder.LIMIT), Folder(tmp_path, recorder.LIMIT))


def test_no_more_than_an_hour_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorder, "MINUTE", 3.0)
    recording = Recorder(tmp_path)
    for number, (snapshot, _) in enumerate(seconds(4 * recorder.KEPT)):
        recording.put(snapshot)
        if number % 100 == 0:
            until(lambda: recording._queue.empty())
    until(lambda: recording._queue.empty())
    assert len(recording._kept) == recorder.KEPT
    assert len(recording._fixed) < 200
    recording.close()
