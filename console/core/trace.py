"""What Triton's trace files tell about single requests: where each one's time went (pure).

A file is a JSON list of fragments that belong together by `id` (triton.md 1.2): one names the model, the others hold
time stamps of the host's monotonic clock in ns, each seen at one point of the request's way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

import msgspec
from msgspec import Struct

_EARLY = frozenset({"GRPC_WAITREAD_START"})
"""Seen before there is a request: gRPC waits for one."""
_NS_PER_MS = 1e6


class _Stamp(Struct, frozen=True):
    name: str = ""
    ns: int = 0


class _Fragment(Struct, frozen=True):
    id: int
    model_name: str | None = None
    model_version: int | None = None
    parent_id: int | None = None
    timestamps: tuple[_Stamp, ...] = ()


class Breakdown(Struct, frozen=True):
    """One request, in milliseconds. `rest` is what is none of the four: receiving, decoding, sending, hand-overs."""

    model: str
    version: str
    begun_ns: int
    queue: float
    input: float
    compute: float
    output: float
    rest: float

    @property
    def total(self) -> float:
        """From the first stamp to the last."""
        return self.queue + self.input + self.compute + self.output + self.rest


_decoder = msgspec.json.Decoder(list[_Fragment])


def breakdowns(files: Iterable[bytes], model: str, since_ns: int) -> list[Breakdown]:
    """The whole requests of a model that began at `since_ns` or later, in the order of their beginning.

    A file that is torn, or no trace, adds nothing; nor does a request that lacks a stamp (failed, cached, cancelled).
    """
    found: dict[int, Breakdown] = {}
    for data in files:
        for fragments in _requests(data).values():
            one = _breakdown(fragments)
            if one is not None and one.model == model and one.begun_ns >= since_ns:
                found[one.begun_ns] = one
    return [found[begun] for begun in sorted(found)]


def _requests(data: bytes) -> dict[int, list[_Fragment]]:
    try:
        fragments = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    grouped: dict[int, list[_Fragment]] = {}
    for fragment in fragments:
        grouped.setdefault(fragment.id, []).append(fragment)
    return grouped


def _breakdown(fragments: Sequence[_Fragment]) -> Breakdown | None:
    named = next((one for one in fragments if one.model_name is not None), None)
    stamps = {stamp.name: stamp.ns for one in fragments for stamp in one.timestamps if stamp.name not in _EARLY}
    points = [
        stamps.get(name)
        for name in ("QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
    ]
    known = [point for point in points if point is not None]
    if named is None or len(known) != len(points):
        return None
    queue, taken, compute, output = ((after - before) / _NS_PER_MS for before, after in pairwise(known))
    total = (max(stamps.values()) - min(stamps.values())) / _NS_PER_MS
    version = "" if named.model_version is None else str(named.model_version)
    rest = total - queue - taken - compute - output
    return Breakdown(named.model_name or "", version, min(stamps.values()), queue, taken, compute, output, rest)


def lines(found: Sequence[Breakdown], most: int = 20) -> tuple[str, ...]:
    """A table: the mean, the worst (longest in all), then the first `most` requests."""
    if not found:
        return ()
    mean = Breakdown("", "", 0, *(fmean(getattr(one, part) for one in found) for part in PARTS))
    rows = [("mean", mean), ("worst", max(found, key=lambda one: one.total))]
    rows += [(str(place), one) for place, one in enumerate(found[:most], 1)]
    head = f"{'ms':>6}" + "".join(f"{part:>10}" for part in (*PARTS, "total"))
    left_out = len(found) - most
    return (head, *(_row(name, one) for name, one in rows), *((f"and {left_out} more",) if left_out > 0 else ()))


PARTS = ("queue", "input", "compute", "output", "rest")


def _row(name: str, one: Breakdown) -> str:
    return f"{name:>6}" + "".join(f"{getattr(one, part):>10.3f}" for part in (*PARTS, "total"))
