"""A data file: JSON with one row per item, `{"data": [{"FEATURES": [1, 2, 3, 4]}, ...]}`, as perf_analyzer reads it.

A value is flat or nested; `{"content": [...], "shape": [...]}` tells a shape of its own. Strings of BYTES are texts, or
`{"b64": "..."}`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec
from msgspec import Struct

from console.core.model import TensorSpec
from console.core.plan import WrongInput
from console.core.text import one_line

MOST_ROWS = 100_000
_FORM = 'it must be JSON such as {"data": [{"NAME": [1, 2, 3]}]}'


class _File(Struct):
    data: list[dict[str, Any]]


def rows(body: bytes, name: str) -> list[dict[str, Any]]:
    """All rows, each with the same inputs. WrongInput for what is no data file."""
    try:
        found = msgspec.json.decode(body, type=_File).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(f"{name} is no data file: {one_line(str(error), 120)}; {_FORM}") from error
    if not found or not found[0]:
        raise WrongInput(f"{name} holds no data; {_FORM}")
    if len(found) > MOST_ROWS:
        raise WrongInput(f"{name} holds {len(found)} rows; at most {MOST_ROWS} are possible")
    for at, row in enumerate(found):
        if row.keys() != found[0].keys():
            raise WrongInput(f"row {at} of {name} has other inputs than row 0; each row needs the same ones")
    return found


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a shape is one that a model wants; its -1 take any size."""
    return len(shape) == len(wanted) and all(w in (-1, size) for size, w in zip(shape, wanted, strict=True))


def array(
    row: Mapping[str, Any], at: int, spec: TensorSpec, shape: tuple[int, ...] | None, dtype: Any, name: str
) -> Any:
    """The NumPy array of one input of row `at`; of `shape`, or of the file's own where that is None. WrongInput."""
    where = f"row {at} of {name}"
    if spec.name not in row:
        raise WrongInput(f"{where} has no {spec.name}, which the model wants")
    given, told = _content(row[spec.name], where, spec.name)
    values, own = _flat(given, where, spec.name)
    shape = shape or told or own
    if not fits(shape, spec.shape):
        raise WrongInput(f"{where}: {spec.name} has the shape {list(shape)}; the model wants {list(spec.shape)}")
    if prod(shape) != len(values):
        raise WrongInput(f"{where}: {spec.name} has {len(values)} values; {list(shape)} wants {prod(shape)}")
    return _typed(values, spec, dtype, where).reshape(shape)


def _content(value: Any, where: str, name: str) -> tuple[list[Any], tuple[int, ...] | None]:
    if isinstance(value, dict) and "content" in value:
        shape = value.get("shape")
        if shape is not None and not (
            isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
        ):
            raise WrongInput(f"{where}: the shape of {name} must be a list of whole numbers")
        value, told = value["content"], None if shape is None else tuple(shape)
    else:
        told = None
    if not isinstance(value, list):
        raise WrongInput(f"{where}: {name} must be a list of values, not {one_line(repr(value), 60)}")
    return value, told


def _flat(value: list[Any], where: str, name: str) -> tuple[list[Any], tuple[int, ...]]:
    """The values in order, and the nesting's shape."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and all(isinstance(one, list) for one in level):
        sizes = {len(one) for one in level}
        if len(sizes) > 1:
            raise WrongInput(f"{where}: the lists of {name} are not of one length")
        shape.append(sizes.pop())
        level = [item for one in level for item in one]
    if any(isinstance(one, list) for one in level):
        raise WrongInput(f"{where}: {name} is nested in one place and flat in another")
    return level, tuple(shape)


def _typed(values: Sequence[Any], spec: TensorSpec, dtype: Any, where: str) -> Any:
    import numpy as np

    kinds: dict[str, tuple[tuple[type, ...], str]] = {
        "f": ((int, float), "numbers"),
        "i": ((int,), "whole numbers"),
        "u": ((int,), "whole numbers"),
        "b": ((bool,), "true or false"),
        "O": ((str, dict), "texts"),
    }
    types, words = kinds[dtype.kind]
    wrong = next((v for v in values if not isinstance(v, types) or (isinstance(v, bool) and dtype.kind != "b")), None)
    if wrong is not None or None in values:
        raise WrongInput(
            f"{where}: {spec.name} is {spec.datatype}, so its values must be {words}, not {one_line(repr(wrong), 60)}"
        )
    if dtype.kind == "O":
        made = np.empty(len(values), object)
        made[:] = [_bytes(value, where, spec.name) for value in values]
        return made
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        raise WrongInput(f"{where}: a value of {spec.name} does not fit into {spec.datatype}") from error


def _bytes(value: Any, where: str, name: str) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise WrongInput(f'{where}: a value of {name} must be a text or {{"b64": "..."}}') from error
