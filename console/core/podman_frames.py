"""Podman's log stream taken apart: frames -> pieces -> lines (pure, incremental).

A frame is 1 byte stream, 3 bytes padding, 4 bytes big-endian length, then the payload. Seen on 4.3.1: every payload
begins with its own time where `timestamps=true`; only the last piece of a line ends with a newline, as conmon cuts
lines at 8 KiB; a container with a terminal has frames too, with `\\r\\n`; with `tail=` Podman itself glues a line of
several pieces to the line before it. A stream that does not begin with a frame is taken as raw text (the compatible API
gives that for terminals).
"""

from __future__ import annotations

import struct
from datetime import datetime

from msgspec import Struct

_HEADER = struct.Struct(">BxxxI")
_STREAMS = {0: "stdin", 1: "stdout", 2: "stderr", 3: "system"}
MAX_FRAME = 16 * 1024 * 1024
KEEP_BYTES = 16_000
"""Bytes kept of one line while its pieces are joined: enough for 4 000 characters of four bytes."""


class Piece(Struct, frozen=True):
    """A line or a part of one."""

    stream: str
    data: bytes
    ends: bool
    """True when it ends its line."""


class RawLine(Struct, frozen=True):
    """One whole line, undecoded; `cut` counts the characters that were not kept."""

    wall: float | None
    stream: str
    data: bytes
    cut: int = 0


class FrameDecoder:
    """Bytes as they come from the socket -> pieces. Never raises; what is no frame any more is given as raw text."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._raw = False

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that are complete now; the rest waits for more bytes."""
        self._buffer += data
        pieces: list[Piece] = []
        while not self._raw and len(self._buffer) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._buffer)
            if stream not in _STREAMS or any(self._buffer[1:4]) or length > MAX_FRAME:
                self._raw = True
                break
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            pieces.append(Piece(_STREAMS[stream], payload, payload.endswith(b"\n")))
        return pieces + self._raw_lines() if self._raw else pieces

    def _raw_lines(self) -> list[Piece]:
        end = self._buffer.rfind(b"\n") + 1
        if not end and len(self._buffer) > KEEP_BYTES:
            end = len(self._buffer)
        whole, self._buffer = bytes(self._buffer[:end]), self._buffer[end:]
        return [Piece("stdout", line, line.endswith(b"\n")) for line in whole.splitlines(keepends=True)]


class LineJoiner:
    """Pieces -> lines, per stream. Keeps KEEP_BYTES of a line and counts the rest, so memory stays bounded."""

    def __init__(self, timestamps: bool = True) -> None:
        self._timestamps = timestamps
        self._open: dict[str, tuple[float | None, bytearray, int]] = {}

    def feed(self, piece: Piece) -> RawLine | None:
        """The line that this piece ends, if it does."""
        wall, text = split_time(piece.data) if self._timestamps else (None, piece.data)
        text = text.removesuffix(b"\n").removesuffix(b"\r") if piece.ends else text
        first, kept, cut = self._open.pop(piece.stream, (wall, bytearray(), 0))
        room = max(0, KEEP_BYTES - len(kept))
        kept += text[:room]
        if len(text) > room:
            cut += len(text[room:].decode("utf-8", "replace"))
        if not piece.ends:
            self._open[piece.stream] = (first, kept, cut)
            return None
        return RawLine(first, piece.stream, bytes(kept), cut)

    def flush(self) -> list[RawLine]:
        """Lines that never ended (the container wrote no newline before it went)."""
        left, self._open = self._open, {}
        return [RawLine(wall, stream, bytes(kept), cut) for stream, (wall, kept, cut) in left.items()]


def split_time(data: bytes) -> tuple[float | None, bytes]:
    """(Unix seconds, rest) of `2026-11-30T10:48:39Z text`; (None, data) where there is no time."""
    word, blank, _ = data[:40].partition(b" ")
    if not blank or len(word) < 20 or word[4:5] != b"-" or word[10:11] != b"T":
        return None, data
    try:
        wall = datetime.fromisoformat(word.decode("ascii")).timestamp()
    except (ValueError, OverflowError, UnicodeDecodeError):
        return None, data
    return wall, data[len(word) + 1 :]


class Resume:
    """Where a followed log was left, so that after a break nothing doubles and nothing is lost.

    Podman tells times by the second (4.3.1) or finer; lines of one time come in a fixed order. So the time of the last
    line and how many lines had that time are enough to find the place again.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._count = 0
        self._to_skip = 0
        self._catching_up = False

    def since(self) -> int | None:
        """Unix seconds to ask from, a second early on purpose; None = nothing was seen yet. Begins the catching up."""
        self._catching_up = self._last is not None
        self._to_skip = self._count
        return None if self._last is None else int(self._last) - 1

    def is_new(self, line: RawLine) -> bool:
        """False for a line that was told before."""
        if line.wall is None:
            return not self._catching_up
        if self._catching_up and self._last is not None:
            if line.wall < self._last:
                return False
            if line.wall == self._last and self._to_skip:
                self._to_skip -= 1
                return False
            self._catching_up = False
        self._note(line.wall)
        return True

    def _note(self, wall: float) -> None:
        if wall == self._last:
            self._count += 1
        else:
            self._last, self._count = wall, 1
