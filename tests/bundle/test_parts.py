"""Parts are bounded and say so; the archive is whole, private and opens by plain means."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from console.bundle import archive, recorded
from console.bundle.parts import Parts
from console.bundle.past import close, minutes, place_of, read
from console.bundle.redaction import Redactor
from console.clients.recorder import Recorder
from console.clients.recording import UnreadableError, segments
from console.core.model import Snapshot, SourceError
from console.core.recorded import Moment, Reader
from tests.bundle.stand import opened
from tests.fakes.boxes import drawn_box
from tests.fakes.past import SECRET, seconds

HIDDEN = SECRET.rpartition("=")[2].encode()


def parts() -> Parts:
    return Parts(Redactor())


def test_a_long_text_keeps_its_end_or_its_beginning_in_whole_lines() -> None:
    made = parts()
    text = "\n".join(f"line {n:03d}" for n in range(100))
    made.text("end", text, limit=25, tail=True)
    made.text("begin", text, limit=25)
    end, begin = made.done()[1], made.done()[0]
    assert end.data == b"line 098\nline 099"
    assert begin.data == b"line 000\nline 001"
    assert "KiB of" in end.note


def test_lines_keep_the_newest_and_json_that_is_too_large_is_missing() -> None:
    made = parts()
    made.lines("lines", [{"n": n} for n in range(100)], limit=20)
    made.json("big", ["x" * 100], limit=50)
    (only,) = made.done()
    assert only.data == b'{"n":98}\n{"n":99}\n'
    assert only.note == "the last 2 of 100"
    assert [one.what for one in made.missing] == ["big"]


def test_what_cannot_be_read_is_missing_with_its_reason_less_secrets() -> None:
    made = parts()
    with made.reading("a"):
        raise SourceError("permission", "refused: token=hunter22", "ask root")
    with made.reading("b"):
        raise FileNotFoundError(2, "No such file or directory")
    told = [(one.what, one.why) for one in made.missing]
    assert told == [("a", "refused: token=***; ask root"), ("b", "No such file or directory")]


def test_the_archive(tmp_path: Path) -> None:
    made = parts()
    made.text("a/b.txt", "hello")
    done = made.done()
    manifest = archive.manifest(done, made.missing, (), 1.0, 2.0)
    path = tmp_path / "x.tar.zst"
    archive.write(path, archive.packed("folder", [*done, manifest], 1e9))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = opened(path)
    assert found.folder == "folder"
    assert found.parts["a/b.txt"] == b"hello"
    (told,) = found.manifest["parts"]
    assert (told["name"], told["bytes"], told["sha256"]) == ("a/b.txt", 5, hashlib.sha256(b"hello").hexdigest())
    assert [one.name for one in tmp_path.iterdir()] == ["x.tar.zst"], "nothing is left beside it"
    with pytest.raises(UnreadableError, match="holds no recording"):
        archive.recording_of(path, tmp_path)


@pytest.mark.parametrize("content", [b"", b"x" * 1000, b"\x28\xb5\x2f\xfd broken"])
def test_what_is_no_bundle(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="bundle"):
        archive.recording_of(path, tmp_path)


def recorded_seconds(folder: Path, count: int) -> tuple[float, float]:
    """Record so many made seconds; their first and last moment."""
    recorder = Recorder(folder)
    recorder.switch(True)
    walls = []
    for snapshot, lines in seconds(count):
        recorder.put(snapshot, lines)
        walls.append(snapshot.wall)
        while recorder._queue.qsize() > 100:
            pass
    recorder.close(60.0)
    return walls[0], walls[-1]


def moments(path: Path) -> list[Moment]:
    found: list[Moment] = []
    for segment in segments(path)[0]:
        reader = Reader(segment.fixed)
        for minute in segment.minutes:
            found += [reader.read(line) for line in segment.lines(minute)]
        assert segment.faults == {}
    return found


def _counted(snapshot: Snapshot) -> list[object]:
    return [flow.stats for flow in snapshot.stats.value.flows] if snapshot.stats.value is not None else []


def test_a_recording_is_taken_in_part_and_reads_the_same_less_secrets(tmp_path: Path) -> None:
    begin, end = recorded_seconds(tmp_path / "r", 400)
    frames, unread = minutes(tmp_path / "r", begin + 200, end)
    assert unread == ()
    assert 3 <= len(frames) <= 5
    made = Parts(Redactor([HIDDEN.decode()]))
    box = drawn_box()
    told = read(frames, begin + 200, end, box.snapshot)
    recorded.add(made, frames, box.snapshot)
    close(frames)
    (part,) = made.done()
    path = tmp_path / "bundle.jsonl.zst"
    path.write_bytes(part.data)
    copied, whole = moments(path), moments(tmp_path / "r")
    by_wall = {one.snapshot.wall: one.snapshot for one in whole}
    assert len(copied) > 190
    for one in copied:
        was = by_wall[one.snapshot.wall]
        assert one.snapshot.gpu == was.gpu
        assert _counted(one.snapshot) == _counted(was), "windows longer than what was copied are not there"
        assert [row.key for row in one.snapshot.models] == [row.key for row in was.models]
    assert told.recorded is not None
    assert told.recorded[0] >= begin + 200
    assert told.every == "second"
    assert len(told.figures) >= 3
    assert {event.text for event in told.events} <= {event.text for event in whole[-1].snapshot.events} | {
        event.text for event in box.snapshot.events
    }


def test_without_frames_the_snapshot_alone_opens(tmp_path: Path) -> None:
    made = parts()
    box = drawn_box()
    recorded.add(made, (), box.snapshot)
    (part,) = made.done()
    (tmp_path / "bundle.jsonl.zst").write_bytes(part.data)
    (only,) = moments(tmp_path)
    assert only.snapshot.container == box.snapshot.container
    assert only.snapshot.verdicts == box.snapshot.verdicts
    assert part.note == "one moment: when the bundle was made"


def test_a_long_time_is_read_by_the_minute(tmp_path: Path) -> None:
    begin, end = recorded_seconds(tmp_path, 130)
    frames, _ = minutes(tmp_path, begin, end)
    told = read(frames, end - 7200, end, drawn_box().snapshot)
    close(frames)
    assert told.every == "minute"


def test_where_nothing_was_recorded(tmp_path: Path) -> None:
    assert place_of(tmp_path / "none") is None
    assert place_of(tmp_path) is None
    (tmp_path / "x").write_text("")
    assert place_of(tmp_path) == tmp_path
