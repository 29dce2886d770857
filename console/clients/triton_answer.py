"""The answer to an inference request taken apart: each output with all its values, JSON or binary."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import Struct

from console.clients.triton import Answer
from console.core.text import decode, one_line


class _Parameters(Struct, frozen=True):
    binary_data_size: int | None = None


class _Output(Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    parameters: _Parameters = _Parameters()
    data: list[Any] | None = None


class _Result(Struct, frozen=True):
    outputs: tuple[_Output, ...] = ()


_result = msgspec.json.Decoder(_Result)


class NoAnswerError(Exception):
    """Why the body of a 200 is no inference answer."""


class Output(Struct, frozen=True):
    """One output as it came: `chunk` where it was binary, else `data`, flat."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: tuple[Any, ...] = ()
    chunk: bytes | None = None

    @property
    def empty(self) -> bool:
        """No data came, whatever the shape says."""
        return not self.data if self.chunk is None else not self.chunk


def outputs(answer: Answer) -> tuple[Output, ...]:
    """All outputs of a 200; NoAnswerError when it is something else."""
    header = answer.headers.get("inference-header-content-length")
    size = int(header) if header is not None and header.isascii() and header.isdigit() else len(answer.body)
    try:
        result = _result.decode(answer.body[:size])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswerError(f"an answer that is none: {one_line(decode(answer.body[:200]), 120)}") from error
    rest = memoryview(answer.body)[size:]
    found: list[Output] = []
    for output in result.outputs:
        length = output.parameters.binary_data_size
        chunk = None if length is None else bytes(rest[: max(0, length)])
        rest = rest[max(0, length or 0) :]
        found.append(Output(output.name, output.datatype, output.shape, tuple(_flat(output.data or [])), chunk))
    return tuple(found)


def _flat(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    rest = values[::-1]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value[::-1]
        else:
            found.append(value)
    return found


def texts(chunk: bytes, most: int | None = None) -> tuple[bytes, ...]:
    """The strings of a BYTES output in binary form (length, then that many bytes), at most `most` of them."""
    found: list[bytes] = []
    at = 0
    while at + 4 <= len(chunk) and (most is None or len(found) < most):
        length = int.from_bytes(chunk[at : at + 4], "little")
        found.append(chunk[at + 4 : at + 4 + length])
        at += 4 + length
    return tuple(found)


def values(output: Output) -> tuple[Any, ...] | None:
    """All values: numbers, truths, or texts (base64 of what is no UTF-8); None for a type that is not known."""
    import numpy as np
    from tritonclient.utils import triton_to_np_dtype

    if output.chunk is None:
        return output.data
    if output.datatype == "BYTES":
        return tuple(_text(one) for one in texts(output.chunk))
    if output.datatype == "BF16":
        # NumPy has no such type: its two bytes are the upper half of a float's.
        halves = np.frombuffer(output.chunk[: len(output.chunk) // 2 * 2], np.uint16)
        return tuple((halves.astype(np.uint32) << 16).view(np.float32).tolist())
    dtype = triton_to_np_dtype(output.datatype)
    if dtype is None or len(output.chunk) % np.dtype(dtype).itemsize:
        return None
    return tuple(np.frombuffer(output.chunk, dtype).tolist())


def _text(one: bytes) -> str:
    try:
        return one.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(one).decode()
