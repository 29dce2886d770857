"""Files of a recording open whatever happened to them, up to the fault and from the next mark on."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import zlib
from pathlib import Path

import msgspec
import pytest

from console.clients import recording
from console.clients.recording import FrameMaker, Mark, Segment, UnreadableError, fixed_frame, minute_mark, segments

LINES = 12
GROUP = 4


def line(minute: int, number: int) -> bytes:
    """A line that no other is equal to."""
    return b'{"t":[%d,%d],"x":"%s"}' % (
        minute,
        number,
        random.Random(minute * 100 + number).randbytes(30).hex().encode(),
    )


def frame(minute: int) -> bytes:
    """A minute of three groups."""
    maker = FrameMaker(minute_mark(1000.0 + 60 * minute, 5.0 + 60 * minute, "run", minute))
    data = b""
    for number in range(LINES):
        maker.add(line(minute, number))
        if number % GROUP == GROUP - 1:
            data += maker.cut(end=number == LINES - 1)
    return data


def written(path: Path, data: bytes) -> Segment:
    """The file of these bytes, opened."""
    path.write_bytes(data)
    return Segment(path)


def read(segment: Segment) -> list[bytes]:
    """All lines of all minutes that can be read."""
    return [one for minute in segment.minutes for one in segment.lines(minute)]


def every(minutes: int) -> list[bytes]:
    """What stands in so many whole minutes."""
    return [line(minute, number) for minute in range(minutes) for number in range(LINES)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    data = fixed_frame("abc", b'{"fixed":"abc","value":1}') + frame(0) + frame(1)
    segment = written(tmp_path / "a", data)
    assert read(segment) == every(2)
    assert segment.fixed("abc") == b'{"fixed":"abc","value":1}'
    assert segment.fixed("abd") is None
    assert [(one.mark.wall, one.mark.mono, one.mark.run, one.mark.n) for one in segment.minutes] == [
        (1000.0, 5.0, "run", 0),
        (1060.0, 65.0, "run", 1),
    ]
    assert segment.first_line(segment.minutes[1]) == line(1, 0)
    assert segment.faults == {}


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd program here")
def test_any_zstd_gives_the_lines(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(fixed_frame("abc", b'{"fixed":"abc","value":1}') + frame(0))
    told = subprocess.run(["zstd", "-dc", tmp_path / "a.zst"], capture_output=True, check=True, timeout=60).stdout
    assert all(isinstance(json.loads(one), dict) for one in told.splitlines())
    assert len(told.splitlines()) == 2 + LINES + LINES // GROUP


def test_cut_off_at_any_byte_of_its_end_a_file_opens_up_to_the_last_whole_group(tmp_path: Path) -> None:
    before, last = frame(0), frame(1)
    sizes = set()
    for cut in range(len(before), len(before) + len(last)):
        segment = written(tmp_path / "a", (before + last)[:cut])
        found = read(segment)
        assert found == every(2)[: len(found)]
        assert len(found) >= LINES
        assert (len(found) - LINES) % GROUP == 0
        assert cut == len(before) or segment.faults
        sizes.add(len(found) - LINES)
        segment.close()
    assert sizes == {0, GROUP, 2 * GROUP}


def test_what_is_flushed_can_be_read_before_the_minute_ends(tmp_path: Path) -> None:
    maker = FrameMaker(minute_mark(1.0, 1.0, "run", 0))
    maker.add(line(0, 0))
    data = maker.cut()
    assert read(written(tmp_path / "a", data)) == [line(0, 0)]
    maker.add(line(0, 1))
    assert read(written(tmp_path / "a", data + maker.cut())) == [line(0, 0), line(0, 1)]


def test_a_damaged_byte_costs_its_minute_at_most(tmp_path: Path) -> None:
    whole = [frame(minute) for minute in range(3)]
    begin = len(whole[0])
    for at in range(begin, begin + len(whole[1])):
        data = bytearray(b"".join(whole))
        data[at] ^= 0x55
        segment = written(tmp_path / "a", bytes(data))
        found = read(segment)
        assert found[:LINES] == every(1)
        assert found[-LINES:] == every(3)[-LINES:]
        middle = found[LINES:-LINES]
        assert middle == every(2)[LINES : LINES + len(middle)]
        assert len(middle) == LINES or segment.faults
        segment.close()


def test_junk_between_frames_is_passed_over(tmp_path: Path) -> None:
    segment = written(tmp_path / "a", frame(0) + b"\x00" * 99 + recording._MARK + b"junk" + frame(1))
    assert read(segment) == every(2)
    assert segment.faults


def test_a_line_may_hold_what_looks_like_a_sum(tmp_path: Path) -> None:
    maker = FrameMaker(minute_mark(1.0, 1.0, "run", 0))
    odd = b'{"t":[1,1],"x":[{"crc":"00000000"}]}'
    maker.add(odd)
    assert read(written(tmp_path / "a", maker.cut(end=True))) == [odd]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty: nothing was recorded yet"),
        (b"hello", "is no recording"),
        (b"\x28\xb5\x2f\xfd" * 40, "is no recording"),
        (fixed_frame("abc", b"{}"), "is no recording"),
    ],
)
def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UnreadableError, match=why):
        Segment(tmp_path / "a")


@pytest.mark.parametrize(
    ("schema", "why"), [(2, r"newer gpuconsole \(9\.9, schema 2; this one knows 1\)"), (0, "schema")]
)
def test_another_schema_is_said_to_be_one(tmp_path: Path, schema: int, why: str) -> None:
    maker = FrameMaker(Mark("9.9", schema, "minute", 1, 1, "run", 1))
    maker.add(b"{}")
    (tmp_path / "a").write_bytes(maker.cut(end=True))
    with pytest.raises(UnreadableError, match=why):
        Segment(tmp_path / "a")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableError, match="is no file"):
        Segment(tmp_path / "pipe")


def test_a_mark_that_says_more_than_this_version_knows_is_read(tmp_path: Path) -> None:
    said = msgspec.json.encode({"gpuconsole": "1.0", "schema": 1, "kind": "minute", "t": 1, "m": 1, "moon": [1]})
    said += b"%08x" % zlib.crc32(said)
    maker = FrameMaker(minute_mark(1.0, 1.0, "run", 0))
    maker.add(line(0, 0))
    data = maker.cut(end=True)
    length = int.from_bytes(data[4:8], "little")
    changed = data[:4] + len(said).to_bytes(4, "little") + said + data[8 + length :]
    assert read(written(tmp_path / "a", changed)) == [line(0, 0)]


def test_a_folder_opens_by_its_files_in_their_order(tmp_path: Path) -> None:
    (tmp_path / f"b{recording.SUFFIX}").write_bytes(frame(0))
    (tmp_path / f"a{recording.SUFFIX}").write_bytes(frame(1))
    (tmp_path / f"c{recording.SUFFIX}").write_bytes(b"junk")
    (tmp_path / "other").write_bytes(b"junk")
    found, bad = segments(tmp_path)
    assert [one.path.name[0] for one in found] == ["b", "a"]
    assert list(bad) == [tmp_path / f"c{recording.SUFFIX}"]


def test_a_folder_without_a_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="there is no recording in"):
        segments(tmp_path)
    (tmp_path / f"c{recording.SUFFIX}").write_bytes(b"junk")
    with pytest.raises(UnreadableError, match="is no recording"):
        segments(tmp_path)


def test_a_file_that_no_recording_can_be_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LARGEST", 100)
    (tmp_path / "a").write_bytes(frame(0))
    with pytest.raises(UnreadableError, match="more than"):
        Segment(tmp_path / "a")
