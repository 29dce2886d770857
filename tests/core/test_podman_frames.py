"""Podman's log stream: recorded answers of 4.3.1, and that no cutting of the bytes changes what comes out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console.core.podman_frames import KEEP_BYTES, FrameDecoder, LineJoiner, Piece, RawLine, Resume, split_time

DATA = Path(__file__).parents[1] / "data" / "podman"


def lines(*chunks: bytes, timestamps: bool = True) -> list[RawLine]:
    decoder, joiner = FrameDecoder(), LineJoiner(timestamps)
    pieces = [piece for chunk in chunks for piece in decoder.feed(chunk)]
    return [line for piece in pieces if (line := joiner.feed(piece))] + joiner.flush()


def frame(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def test_a_long_line_is_joined_and_counted() -> None:
    found = lines((DATA / "logs_long_line.bin").read_bytes())
    assert [len(line.data) for line in found] == [6, KEEP_BYTES, 10, 17]
    assert found[0].data == b"before"
    assert found[1].data == b"x" * KEEP_BYTES
    assert found[1].cut == 20003 - KEEP_BYTES
    assert found[2].data == b"bad \xff\xfe utf"
    assert found[3].data == b"no newline at end"
    assert {line.stream for line in found} == {"stdout"}
    assert all(line.wall is not None for line in found)


def test_a_terminal_has_frames_and_carriage_returns() -> None:
    assert [line.data for line in lines((DATA / "logs_tty.bin").read_bytes())] == [b"one", b"two", b"three"]


def test_raw_text_without_frames() -> None:
    found = lines(b"2026-11-30T10:48:39Z hello\r\nwor", b"ld\n", timestamps=True)
    assert [(line.wall is not None, line.data) for line in found] == [(True, b"hello"), (False, b"world")]


def test_raw_text_without_end_is_given_on() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"x" * (KEEP_BYTES + 1)) == [Piece("stdout", b"x" * (KEEP_BYTES + 1), False)]


def test_streams_are_joined_apart() -> None:
    found = lines(frame(1, b"a"), frame(2, b"b\n"), frame(1, b"c\n"), timestamps=False)
    assert [(line.stream, line.data) for line in found] == [("stderr", b"b"), ("stdout", b"ac")]


def test_an_absurd_length_is_no_frame() -> None:
    assert lines(bytes([1, 0, 0, 0, 255, 255, 255, 255]) + b"x\n", timestamps=False)


def test_times() -> None:
    assert split_time(b"2026-11-30T10:48:39Z x") == (1796035719.0, b"x")
    assert split_time(b"2026-11-30T18:48:39.250000000+08:00 x") == (1796035719.25, b"x")
    assert split_time(b"2026-13-30T10:48:39Z x") == (None, b"2026-13-30T10:48:39Z x")
    assert split_time(b"no time here at all, none") == (None, b"no time here at all, none")


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20), st.data())
def test_cutting_the_stream_anywhere_changes_nothing(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(frame(stream, payload) for stream, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert lines(*pieces, timestamps=False) == lines(whole, timestamps=False)


@given(st.lists(st.binary(max_size=80), max_size=10))
def test_any_bytes_are_survived(chunks: list[bytes]) -> None:
    for line in lines(*chunks):
        assert len(line.data) <= KEEP_BYTES


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_after_a_break_nothing_doubles_and_nothing_is_lost(steps: list[int], first: int, second: int) -> None:
    """Whole-second times, many lines per second, two breaks; the server gives everything since a second early."""
    wall = 1000.0
    log = []
    for number, step in enumerate(steps):
        wall += step // 3
        log.append(RawLine(wall, "stdout", str(number).encode()))
    resume = Resume()
    seen: list[RawLine] = []
    for end in (min(first, len(log)), max(min(first, len(log)), min(second, len(log))), len(log)):
        since = resume.since()
        served = [line for line in log[:end] if since is None or (line.wall or 0) >= since]
        seen += [line for line in served if resume.is_new(line)]
    assert seen == log


def test_lines_without_time_are_new_only_when_not_catching_up() -> None:
    resume = Resume()
    assert resume.is_new(RawLine(None, "stdout", b"x"))
    assert resume.is_new(RawLine(5.0, "stdout", b"x"))
    assert resume.since() == 4
    assert not resume.is_new(RawLine(None, "stdout", b"x"))
