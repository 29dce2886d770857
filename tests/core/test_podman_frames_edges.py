"""Frames, lines and breaks at their edges."""

from __future__ import annotations

import pytest

from console.core.podman_frames import (
    KEEP_BYTES,
    MAX_FRAME,
    FrameDecoder,
    LineJoiner,
    Piece,
    RawLine,
    Resume,
    split_time,
)
from tests.core.test_podman_frames import frame


def test_each_stream_has_its_name() -> None:
    names = [FrameDecoder().feed(frame(number, b"x"))[0].stream for number in range(4)]
    assert names == ["stdin", "stdout", "stderr", "system"]


@pytest.mark.parametrize(
    "data",
    [b"\x04\0\0\0\0\0\0\1x\n", b"\x01\0\0\1\0\0\0\1x\n", b"\x01\1\0\0\0\0\0\1x\n", b"\x01\0\1\0\0\0\0\1x\n"],
)
def test_what_is_no_frame_is_text(data: bytes) -> None:
    assert [piece.stream for piece in FrameDecoder().feed(data)] == ["stdout"]


def test_the_longest_frame() -> None:
    assert MAX_FRAME == 16 * 1024 * 1024
    assert FrameDecoder().feed(b"\x01\0\0\0" + MAX_FRAME.to_bytes(4, "big") + b"x\n") == [], "it waits for the rest"
    assert FrameDecoder().feed(b"\x01\0\0\0" + (MAX_FRAME + 1).to_bytes(4, "big") + b"x\n") != []


def test_frames_that_come_in_parts() -> None:
    decoder = FrameDecoder()
    whole = frame(1, b"a\n") + frame(2, b"b") + frame(1, b"")
    found = [piece for byte in whole for piece in decoder.feed(bytes([byte]))]
    assert found == [Piece("stdout", b"a\n", True), Piece("stderr", b"b", False), Piece("stdout", b"", False)]


def test_text_after_frames_is_text_for_good() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frame(1, b"a\n") + b"no frame\nrest") == [
        Piece("stdout", b"a\n", True), Piece("stdout", b"no frame\n", True),
    ]  # fmt: skip
    assert decoder.feed(frame(1, b"b\n"))[0].data.startswith(b"rest")


def test_raw_text_waits_for_its_end_as_long_as_it_is_kept() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"x" * KEEP_BYTES) == []
    assert decoder.feed(b"y") == [Piece("stdout", b"x" * KEEP_BYTES + b"y", False)]
    assert KEEP_BYTES == 16_000


def joined(*pieces: Piece, timestamps: bool = False) -> list[RawLine]:
    joiner = LineJoiner(timestamps)
    return [line for piece in pieces if (line := joiner.feed(piece)) is not None] + joiner.flush()


def test_only_the_end_of_a_line_loses_its_newline() -> None:
    pieces = [Piece("stdout", b"a\r\n", True), Piece("stdout", b"b\r", False), Piece("stdout", b"c\n", True)]
    assert [line.data for line in joined(*pieces)] == [b"a", b"b\rc"]


def test_the_time_of_a_line_is_that_of_its_first_piece() -> None:
    first, second = b"2026-11-30T10:48:39Z a", b"2026-11-30T10:48:41Z b\n"
    found = joined(Piece("stdout", first, False), Piece("stdout", second, True), timestamps=True)
    assert found == [RawLine(1796035719.0, "stdout", b"ab", 0)]


def test_what_is_cut_is_counted_in_characters_over_all_pieces() -> None:
    pieces = [
        Piece("stdout", b"x" * (KEEP_BYTES - 1), False),
        Piece("stdout", b"yz\xff", False),
        Piece("stdout", "éé\n".encode(), True),
    ]
    [line] = joined(*pieces)
    assert line.data == b"x" * (KEEP_BYTES - 1) + b"y"
    assert line.cut == 2 + 2
    [line] = joined(Piece("stdout", b"x" * KEEP_BYTES, False))
    assert line.cut == 0


def test_flush_empties() -> None:
    joiner = LineJoiner(False)
    joiner.feed(Piece("stderr", b"a", False))
    assert joiner.flush() == [RawLine(None, "stderr", b"a", 0)]
    assert joiner.flush() == []


@pytest.mark.parametrize(
    ("data", "rest"),
    [
        (b"2026-11-30T10:48:39Z ", b""),
        (b"2026-11-30T10:48:39Z", None),
        (b"2026-11-30 10:48:39Z x", None),
        (b"2026/11-30T10:48:39Z x", None),
        (b"2026-11-30T10:48:3\xff x", None),
        (b"2026-11-30T10:48:39.123456789+08:00 x", b"x"),
        (b"2026-11-30T10:48:39+00 x", b"x"),
        (b"0001-01-01T00:00:00Z x", b"x"),
    ],
)
def test_times_before_lines(data: bytes, rest: bytes | None) -> None:
    wall, left = split_time(data)
    assert left == (data if rest is None else rest)
    assert (wall is None) == (rest is None)


def test_a_short_time_is_no_time() -> None:
    assert split_time(b"2026-11-30T10:48 x") == (None, b"2026-11-30T10:48 x")


def at(wall: float | None) -> RawLine:
    return RawLine(wall, "stdout", b"x")


def test_a_log_that_is_taken_up_again() -> None:
    resume = Resume()
    assert resume.since() is None
    assert [resume.is_new(at(wall)) for wall in (5.5, 7.0, 7.0)] == [True] * 3
    assert resume.since() == 6
    assert [resume.is_new(at(wall)) for wall in (6.5, 7.0, 7.0, 7.0, 7.0)] == [False, False, False, True, True]
    assert resume.since() == 6
    assert [resume.is_new(at(wall)) for wall in (7.0,) * 4] == [False] * 4
    assert [resume.is_new(at(None)), resume.is_new(at(8.0)), resume.is_new(at(None))] == [False, True, True]


def test_caught_up_lines_out_of_order_are_new() -> None:
    resume = Resume()
    resume.is_new(at(7.0))
    resume.since()
    assert resume.is_new(at(9.0))
    assert resume.is_new(at(6.0)), "only while it catches up an older line was told before"
