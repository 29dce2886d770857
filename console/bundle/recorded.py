"""The recording of a stretch of time as one file of the bundle, less secrets: `gpuconsole replay` opens it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from console.bundle.parts import MIB, RECORDING_LIMIT, Parts
from console.clients.recording import SUFFIX, Frame, FrameMaker, Segment, fixed_frame, minute_mark
from console.core.encode import to_json
from console.core.model import Snapshot
from console.core.recorded import Writer

FOLDER = "recording"
NAME = f"{FOLDER}/bundle{SUFFIX}"


def add(parts: Parts, frames: Sequence[tuple[Segment, Frame]], snapshot: Snapshot, scene: str = "") -> None:
    """Put the frames among the parts, the newest where they are too many; the snapshot alone where there are none."""
    kept = _newest(frames)
    note = (
        f"the last {len(kept)} of {len(frames)} minutes, {RECORDING_LIMIT // MIB} MiB"
        if len(kept) < len(frames)
        else ""
    )
    pieces: list[bytes] = []
    told: set[str] = set()
    for segment, frame in kept:
        pieces += _minute(parts, segment, frame, told)
    if not pieces:
        pieces, note = _alone(parts, snapshot, scene), "one moment: when the bundle was made"
    parts.raw(NAME, b"".join(pieces), note)


def _newest(frames: Sequence[tuple[Segment, Frame]]) -> list[tuple[Segment, Frame]]:
    kept: list[tuple[Segment, Frame]] = []
    size = 0
    for pair in reversed(frames):
        frame = pair[1]
        size += (frame.blocks[-1] if frame.blocks else frame.begin) - frame.begin
        if size > RECORDING_LIMIT:
            break
        kept.append(pair)
    return kept[::-1]


def _minute(parts: Parts, segment: Segment, frame: Frame, told: set[str]) -> list[bytes]:
    """The frame anew, with the fixed lines before it that it names; group by group, as far as it is whole."""
    pieces: list[bytes] = []
    maker = FrameMaker(frame.mark)
    written = False
    for group in segment.groups(frame):
        lines = [msgspec.json.decode(line) for line in group]
        for line in lines:
            for id_, *_ in (line.get("f") or {}).values():
                if id_ not in told:
                    told.add(id_)
                    fixed = segment.fixed(id_)
                    if fixed is not None:
                        pieces.append(fixed_frame(id_, _clean(parts, msgspec.json.decode(fixed))))
            maker.add(_clean(parts, line))
        written = written or bool(lines)
        pieces.append(maker.cut())
    if not written:
        return []
    pieces.append(maker.cut(end=True))
    return pieces


def _alone(parts: Parts, snapshot: Snapshot, scene: str) -> list[bytes]:
    made = Writer().write(snapshot, key=True)
    maker = FrameMaker(minute_mark(snapshot.wall, snapshot.mono, "bundle", 0, scene))
    maker.add(_clean(parts, msgspec.json.decode(made.line)))
    fixed = [fixed_frame(one.id, _clean(parts, msgspec.json.decode(one.line))) for one in made.fixed]
    return [*fixed, maker.cut(end=True)]


def _clean(parts: Parts, line: object) -> bytes:
    text = to_json(parts.redactor.strings(NAME, line)).decode("utf-8", "replace")
    return parts.redactor.again(NAME, text).encode("utf-8", "replace")
