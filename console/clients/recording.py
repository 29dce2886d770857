"""Recordings on disk: frames of zstd that hold lines of JSON (core/recorded.py), one file after another.

A file is a row of frames. Before each stands a mark: a skippable frame of zstd, so that `zstd -dc FILE` gives the lines
alone. The mark is one JSON object, {"gpuconsole": version, "schema": 1, "kind": ...}, with its CRC-32 as eight digits
behind it, and says what the frame after it holds:

    minute  the lines of about a minute; "t" and "m" are its beginning (wall, monotonic microseconds), "run" names the
            recorder that wrote it and "n" counts its minutes; "scene" that of a simulated box
    fixed   one line that minutes of this file name by its "id"; it stands before the first of them

Within a frame each group of lines (five seconds) ends with {"crc": "…"}, CRC-32 of the group, and is flushed to the
disk: a power cut costs what came since, and a damaged file is read up to the damage and from the next mark on.
No frame needs another one but the fixed lines, and those are in the same file.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import zstandard

from console import __version__
from console.core.recorded import SCHEMA

SUFFIX = ".jsonl.zst"
LEVEL = 15
"""Of 1 to 22: 10 % smaller than 3 for half a millisecond a second."""
FRAME_BYTES = 256 * 1024
"""About what a minute has before compression: zstd takes no more memory than that needs."""
_MARK = b"\x5b\x2a\x4d\x18"
_FRAME = b"\x28\xb5\x2f\xfd"
_MARK_BEGINS = b'{"gpuconsole":'
_MAX_MARK = 4096
_SUM = b'{"crc":"'
_RLE, _RESERVED = 1, 3
"""Kinds of a block."""
LARGEST = 1 << 30
"""Bytes of a file that is still looked at."""


class UnreadableError(Exception):
    """A file that is no recording, or one that this gpuconsole cannot read: one sentence."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a frame holds."""

    gpuconsole: str
    schema: int
    kind: str
    t: int = 0
    m: int = 0
    run: str = ""
    n: int = 0
    id: str = ""
    scene: str = ""
    """Of a simulated box; "" for a real one."""

    @property
    def wall(self) -> float:
        """When its first line was taken, Unix seconds."""
        return self.t / 1e6

    @property
    def mono(self) -> float:
        """The same on the monotonic clock of that boot."""
        return self.m / 1e6


class FrameMaker:
    """Makes one frame, piece by piece; each piece can be read when the ones before it can."""

    def __init__(self, mark: Mark) -> None:
        said = msgspec.json.encode(mark)
        said += b"%08x" % zlib.crc32(said)
        self._head = _MARK + len(said).to_bytes(4, "little") + said
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL, source_size=FRAME_BYTES, write_content_size=False, write_checksum=False
        )
        self._zstd = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        self._crc = 0
        self._waiting: list[bytes] = []

    def add(self, line: bytes) -> None:
        """One line, without its end."""
        data = line + b"\n"
        self._crc = zlib.crc32(data, self._crc)
        self._waiting.append(self._zstd.compress(data))

    def cut(self, *, end: bool = False) -> bytes:
        """The bytes since the last call, its lines whole; `end`: no more comes."""
        head, self._head = self._head, b""
        self._waiting.append(self._zstd.compress(b'{"crc":"%08x"}\n' % self._crc))
        self._crc = 0
        rest = self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH if end else zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        pieces, self._waiting = self._waiting, []
        return b"".join((head, *pieces, rest))


def fixed_frame(id_: str, line: bytes) -> bytes:
    """A whole frame for a line that others name."""
    maker = FrameMaker(Mark(__version__, SCHEMA, "fixed", id=id_))
    maker.add(line)
    return maker.cut(end=True)


def minute_mark(wall: float, mono: float, run: str, number: int, scene: str = "") -> Mark:
    """For the frame of a minute that begins now."""
    return Mark(__version__, SCHEMA, "minute", round(wall * 1e6), round(mono * 1e6), run, number, scene=scene)


class Frame(msgspec.Struct, frozen=True):
    """Where a frame lies in its file."""

    mark: Mark
    begin: int
    """Of the zstd frame."""
    blocks: tuple[int, ...]
    """Where each of its blocks ends; the first piece is the frame's head with its first block."""


class Segment:
    """One file, opened for reading. It may still grow: what is there when it is opened is what it has."""

    def __init__(self, path: Path) -> None:
        """OSError, or UnreadableError for what is no recording."""
        self.path = path
        # not to wait for whoever writes into a pipe
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
        found = os.fstat(self._file.fileno())
        self.size = found.st_size
        """Bytes."""
        self.minutes: list[Frame] = []
        self.faults: dict[int, str] = {}
        """Place in the file -> why what follows cannot be read, as far as that was seen."""
        self._fixed: dict[str, Frame] = {}
        try:
            if not stat.S_ISREG(found.st_mode):
                raise UnreadableError(f"{path} is no file: give a file or folder of `gpuconsole record`")
            if self.size > LARGEST:
                raise UnreadableError(f"{self.path} has more than {LARGEST >> 20} MiB: no recording of gpuconsole has")
            self._scan(self._file.read(self.size))
            if not self.minutes:
                self._say_why_not()
        except UnreadableError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _say_why_not(self) -> None:
        foreign = next((why for why in self.faults.values() if "schema" in why), "")
        if foreign:
            raise UnreadableError(f"{self.path} {foreign}")
        if not self.size:
            raise UnreadableError(f"{self.path} is empty: nothing was recorded yet")
        raise UnreadableError(f"{self.path} is no recording of gpuconsole, or nothing of it can be read")

    def _scan(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            try:
                mark, begin = _mark(data, at)
            except ValueError as error:
                self.faults[at] = str(error)
                at = _next_mark(data, at + 1)
                continue
            end = _next_mark(data, begin)
            blocks, whole = _blocks(data, begin, end)
            frame = Frame(mark, begin, blocks)
            if mark.kind == "minute":
                self.minutes.append(frame)
            elif mark.kind == "fixed":
                self._fixed[mark.id] = frame
            else:
                self.faults[at] = f"a frame of a kind that this gpuconsole does not know ({mark.kind[:20]})"
            if not whole:
                self.faults[blocks[-1] if blocks else begin] = "it breaks off here"
            at = end

    # ------------------------------------------------------------------------------------------------------- contents

    def fixed(self, id_: str) -> bytes | None:
        """The fixed line of this id; None where it is lost."""
        frame = self._fixed.get(id_)
        return None if frame is None else next(self.lines(frame), None)

    def lines(self, frame: Frame) -> Iterator[bytes]:
        """The lines of a frame up to the first fault in it, without the sums."""
        for group in self.groups(frame):
            yield from group

    def groups(self, frame: Frame) -> Iterator[list[bytes]]:
        """The same by groups, as they were flushed; a group that is not whole ends it."""
        zstd = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        begin, text = frame.begin, b""
        for end in frame.blocks:
            try:
                text += zstd.decompress(os.pread(self._file.fileno(), end - begin, begin))
            except zstandard.ZstdError as error:
                self.faults[begin] = f"a block cannot be decompressed: {error}"
                return
            begin = end
            while (found := _group(text)) is not None:
                group, text = found
                if group is None:
                    self.faults[begin] = "lines are damaged: their sum is another"
                    return
                yield group
        if text:
            self.faults[begin] = "lines have no sum: they are damaged or cut off"

    def first_line(self, frame: Frame) -> bytes | None:
        """The line that tells all; None where it cannot be read."""
        group = next(self.groups(frame), None)
        return group[0] if group else None


def _mark(data: bytes, at: int) -> tuple[Mark, int]:
    if data[at : at + 4] != _MARK:
        raise ValueError("a mark is missing")
    length = int.from_bytes(data[at + 4 : at + 8], "little")
    said = data[at + 8 : at + 8 + min(length, _MAX_MARK)]
    if length > _MAX_MARK or len(said) < length or not said.startswith(_MARK_BEGINS):
        raise ValueError("a mark is cut off or damaged")
    said, its_sum = said[:-8], said[-8:]
    if its_sum != b"%08x" % zlib.crc32(said):
        raise ValueError("a mark is damaged: its sum is another")
    mark = msgspec.json.decode(said, type=Mark)
    if mark.schema > SCHEMA:
        raise ValueError(
            f"was written by a newer gpuconsole ({mark.gpuconsole[:20]}, schema {mark.schema}; "
            f"this one knows {SCHEMA}): open it with that one"
        )
    if mark.schema < 1:
        raise ValueError(f"has a schema ({mark.schema}) that there never was")
    return mark, at + 8 + length


def _next_mark(data: bytes, at: int) -> int:
    """Where the next mark stands; the end of the data where there is none."""
    while (found := data.find(_MARK, at)) >= 0:
        if data.startswith(_MARK_BEGINS, found + 8):
            return found
        at = found + 1
    return len(data)


def _blocks(data: bytes, begin: int, end: int) -> tuple[tuple[int, ...], bool]:
    """(where the whole blocks of a zstd frame end, whether it is whole): RFC 8878, 3.1.1."""
    if not data.startswith(_FRAME, begin) or begin + 5 > end:
        return (), False
    flags = data[begin + 4]
    single = flags >> 5 & 1
    at = begin + 5 + (not single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
    ends: list[int] = []
    while at + 3 <= end:
        head = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _RLE else size)
        if kind == _RESERVED or at > end:
            break
        ends.append(at)
        if last:
            return tuple(ends), at == end
    return tuple(ends), False


def _group(text: bytes) -> tuple[list[bytes] | None, bytes] | None:
    """(the first group of lines, what follows it); None instead of the lines where their sum is another; None where no
    group is whole yet."""
    sum_at = 0 if text.startswith(_SUM) else text.find(b"\n" + _SUM) + 1
    stop = text.find(b"\n", sum_at)
    if stop < 0 or not text.startswith(_SUM, sum_at):
        return None
    lines, said = text[:sum_at], text[sum_at:stop]
    good = said == b'{"crc":"%08x"}' % zlib.crc32(lines)
    return lines.splitlines() if good else None, text[stop + 1 :]


def files(folder: Path) -> list[Path]:
    """The files of a folder of recordings, oldest first. OSError."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))


def segments(place: Path) -> tuple[list[Segment], Mapping[Path, str]]:
    """(readable files, oldest first; path -> why one cannot be read) of a file or a folder. OSError; UnreadableError
    where there is none at all."""
    if not place.is_dir():
        return [Segment(place)], {}
    found: list[Segment] = []
    bad: dict[Path, str] = {}
    for path in files(place):
        try:
            found.append(Segment(path))
        except (OSError, UnreadableError) as error:
            bad[path] = str(error)
    if not found:
        raise UnreadableError(next(iter(bad.values()), f"there is no recording in {place}"))
    return sorted(found, key=lambda one: one.minutes[0].mark.t), bad
