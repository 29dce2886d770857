"""The first bytes of a TensorRT engine file: which TensorRT wrote it (pure).

As NVIDIA's own `trtexec --getPlanVersionOnly` reads them (NVIDIA/TensorRT, samples/common/sampleEngines.cpp): a tag,
the number of the serialisation format, and from byte 24 on the version, a byte each. Engines of before 8.6 have another
tag and tell no version.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

NEEDED = 28
"""Bytes that tell all of this."""
_TAG = b"ftrt"
_OLD_TAG = b"ptrt"
_POINTER = b"version https://git-lfs"

Kind = Literal["plan", "old plan", "pointer", "other", "empty"]


class PlanHead(Struct, frozen=True):
    """What a file begins like. pointer: Git LFS's, the file itself was not fetched. other: no engine file."""

    kind: Kind
    version: tuple[int, int, int, int] | None = None
    """Of the TensorRT that wrote it; None where the file does not tell."""

    @property
    def text(self) -> str:
        """`10.5.0.18`; "" where it does not tell."""
        return ".".join(str(part) for part in self.version or ())


def head(data: bytes) -> PlanHead:
    """Of a file's first bytes."""
    if not data:
        return PlanHead("empty")
    if data.startswith(_POINTER):
        return PlanHead("pointer")
    if data.startswith(_OLD_TAG):
        return PlanHead("old plan")
    if not data.startswith(_TAG):
        return PlanHead("other")
    if len(data) < NEEDED or data[4:8] != b"\0\0\0\0":
        return PlanHead("plan")  # a format that is newer than this: where the version stands is not known
    major, minor, patch, build = data[24:28]
    return PlanHead("plan", (major, minor, patch, build))
