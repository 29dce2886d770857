"""A golden request: a question to a model and the answer that it must give, within a tolerance (pure)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

MAX_VALUES = 4096
"""Values of one output that are kept; of a larger one its digest, which tells only same or other."""
MAX_TEXT = 64 * 1024
"""Characters of all texts of one output that are kept."""
RELATIVE = 1e-3
"""Default tolerance: what another kernel, another batch size or TF32 may change in a sum of floats."""
SMALL = 1e-6
"""Absolute difference that never counts."""
_SHOWN = 40


class GoldenInput(Struct, frozen=True):
    """One input as its warm-up needs it; `shape` with the batch dimension where there is one."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class GoldenOutput(Struct, frozen=True):
    """One expected output: all its values, or the digest of many."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...] | None = None
    digest: str = ""


class Golden(Struct, frozen=True):
    """What is kept for a model."""

    model: str
    version: str
    """That gave the answer."""
    wall: float
    body: bytes
    headers: Mapping[str, str]
    sent: str
    """Such as `FEATURES FP32 [1, 4] zeros`."""
    outputs: tuple[GoldenOutput, ...]
    inputs: tuple[GoldenInput, ...] = ()
    """Empty where the request is a file's."""
    batched: bool = False
    relative: float = RELATIVE
    """Tolerance of floats: |answer - expected| <= relative * |expected|, or below 1e-6."""
    by: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)


def kept_output(name: str, datatype: str, shape: tuple[int, ...], values: Sequence[Any] | None) -> GoldenOutput:
    """An output as it is kept. `values` None: a type that is not known; then only its shape is compared."""
    if values is None:
        return GoldenOutput(name, datatype, shape)
    large = len(values) > MAX_VALUES or sum(len(v) for v in values if isinstance(v, str)) > MAX_TEXT
    if large:
        return GoldenOutput(name, datatype, shape, None, digest(values))
    return GoldenOutput(name, datatype, shape, tuple(_plain(value) for value in values))


def digest(values: Sequence[Any]) -> str:
    """Of all values, floats exactly."""
    return hashlib.sha256(json.dumps(list(values), ensure_ascii=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def differs(golden: Golden, outputs: Sequence[GoldenOutput]) -> str:
    """Where an answer is not the kept one, in one sentence; "" where it is, within the tolerance."""
    given = {output.name: output for output in outputs}
    for expected in golden.outputs:
        found = given.get(expected.name)
        if found is None:
            return f"output {expected.name} is missing"
        text = _other(expected, found, golden.relative)
        if text:
            return f"{expected.name}: {text}"
    return ""


def _other(expected: GoldenOutput, found: GoldenOutput, relative: float) -> str:
    if (expected.datatype, expected.shape) != (found.datatype, found.shape):
        return f"{found.datatype} {list(found.shape)} where {expected.datatype} {list(expected.shape)} was kept"
    if expected.digest or found.digest:
        return "" if expected.digest == found.digest else "its values are not those kept (compared as a whole)"
    if expected.values is None or found.values is None:
        return ""
    if len(expected.values) != len(found.values):
        return f"{len(found.values)} values where {len(expected.values)} were kept"
    wrong = [
        at for at, pair in enumerate(zip(found.values, expected.values, strict=True)) if not _near(*pair, relative)
    ]
    if not wrong:
        return ""
    at = wrong[0]
    more = f" ({len(wrong)} of {len(expected.values)} values differ)" if len(expected.values) > 1 else ""
    return f"value {at} is {_shown(found.values[at])}, kept {_shown(expected.values[at])}{more}"


def _near(found: Any, expected: Any, relative: float) -> bool:
    if isinstance(found, bool) or isinstance(expected, bool) or not _floats(found, expected):
        return bool(found == expected)
    return bool(abs(found - expected) <= max(SMALL, relative * abs(expected)))


def _floats(found: Any, expected: Any) -> bool:
    numbers = isinstance(found, int | float) and isinstance(expected, int | float)
    return numbers and (isinstance(found, float) or isinstance(expected, float))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:_SHOWN]
