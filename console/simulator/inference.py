"""The body of `/infer`, both ways: JSON, and the binary-data extension of the KServe protocol.

The simulated models compute nothing: an answer is made from the model's name and the item's bytes, so the same
question is always answered the same, whatever is asked beside it; a version's shift moves all its figures. Requests are
checked as Triton checks them, with its texts (recorded in cases/triton/errors.json).
"""

from __future__ import annotations

import math
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from console.simulator.scenes import Tensor

HEADER_LENGTH = "inference-header-content-length"
_NO_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class BadRequestError(Exception):
    """The request is not one that the model takes; the text is Triton's, without the request id in front."""


class _GivenInput(Struct):
    name: str
    datatype: str
    shape: list[int]
    data: Any = None
    parameters: dict[str, Any] = {}


class _AskedOutput(Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Body(Struct):
    inputs: list[_GivenInput]
    id: str = ""
    outputs: list[_AskedOutput] = []
    parameters: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Inference:
    """A checked request: its batch size, and which outputs are wanted in which form."""

    request_id: str
    batch_size: int
    outputs: tuple[tuple[Tensor, bool], ...]
    """(output, whether as binary data)."""
    items: tuple[bytes, ...] = ()
    """What was asked, by item of the batch."""
    batched: bool = True
    """False for a model without a batch dimension."""


def wire_type(tensor: Tensor) -> str:
    """The protocol's name of a tensor's type: `FP32` for the config's `TYPE_FP32`."""
    return tensor.data_type.removeprefix("TYPE_")


def parse(
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    max_batch: int,
    body: bytes,
    header_length: int | None,
) -> Inference:
    """Read and check a request body.

    Raises:
        BadRequestError: with the sentence that Triton would answer with.
    """
    head = body if header_length is None else body[:header_length]
    try:
        document = msgspec.json.decode(head, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"failed to parse the request JSON buffer: {error}") from error
    given = {entry.name: entry for entry in document.inputs}
    if len(given) != len(inputs):
        raise BadRequestError(f"expected {len(inputs)} inputs but got {len(given)} inputs for model '{name}'")
    batch_sizes = {_check_input(name, tensor, given.get(tensor.name), max_batch) for tensor in inputs}
    if len(batch_sizes) != 1:
        raise BadRequestError(f"input batch sizes do not match for model '{name}'")
    size = batch_sizes.pop()
    items = _items(document.inputs, b"" if header_length is None else body[header_length:], size)
    return Inference(document.id, size, tuple(_wanted_outputs(name, outputs, document)), items, bool(max_batch))


def _items(inputs: list[_GivenInput], binary: bytes, size: int) -> tuple[bytes, ...]:
    """The bytes of each item of the batch, all inputs together, the same whichever way they were sent."""
    items = [b""] * size
    for entry in inputs:
        length = entry.parameters.get("binary_data_size")
        if isinstance(length, int) and length >= 0:
            data, binary = binary[:length], binary[length:]
        else:
            data = b"".join(_packed(entry.datatype, value) for value in _flat(entry.data))
        step = len(data) // size
        items = [item + data[at * step : (at + 1) * step] for at, item in enumerate(items)]
    return tuple(items)


def _flat(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for one in data:
            yield from _flat(one)
    elif data is not None:
        yield data


_FORMATS = {"FP32": "<f", "INT32": "<i", "INT64": "<q"}


def _packed(datatype: str, value: Any) -> bytes:
    try:
        return struct.pack(_FORMATS[datatype], value)
    except (struct.error, OverflowError) as error:
        raise BadRequestError(f"unable to parse 'data': {error}") from error


def _check_input(name: str, tensor: Tensor, entry: _GivenInput | None, max_batch: int) -> int:
    if entry is None:
        raise BadRequestError(f"unexpected inference input for model '{name}', expected '{tensor.name}'")
    if entry.datatype != wire_type(tensor):
        raise BadRequestError(
            f"inference input '{tensor.name}' data-type is '{entry.datatype}', "
            f"but model '{name}' expects '{wire_type(tensor)}'"
        )
    if not max_batch:
        if tuple(entry.shape) != tensor.dims:
            expected = ",".join(map(str, tensor.dims))
            raise BadRequestError(
                f"unexpected shape for input '{tensor.name}' for model '{name}'. "
                f"Expected [{expected}], got [{','.join(map(str, entry.shape))}]. {_NO_BATCH_NOTE}"
            )
        return 1
    if len(entry.shape) != 1 + len(tensor.dims) or tuple(entry.shape[1:]) != tensor.dims:
        expected = ",".join(map(str, (-1, *tensor.dims)))
        raise BadRequestError(
            f"unexpected shape for input '{tensor.name}' for model '{name}'. "
            f"Expected [{expected}], got [{','.join(map(str, entry.shape))}]. {_NO_BATCH_NOTE}"
        )
    if not 1 <= entry.shape[0] <= max_batch:
        raise BadRequestError(f"inference request batch-size must be <= {max_batch} for '{name}'")
    return entry.shape[0]


def _wanted_outputs(name: str, outputs: tuple[Tensor, ...], document: _Body) -> Iterator[tuple[Tensor, bool]]:
    by_default = bool(document.parameters.get("binary_data_output", False))
    known = {tensor.name: tensor for tensor in outputs}
    for asked in document.outputs or [_AskedOutput(tensor.name) for tensor in outputs]:
        if asked.name not in known:
            raise BadRequestError(f"unexpected inference output '{asked.name}' for model '{name}'")
        yield known[asked.name], bool(asked.parameters.get("binary_data", by_default))


def render(name: str, version: int, inference: Inference, shift: float = 0.0) -> tuple[bytes, int | None]:
    """The answer's body, and the length of its JSON part where binary data follows it."""
    outputs: list[dict[str, Any]] = []
    binary = bytearray()
    for tensor, as_binary in inference.outputs:
        shape = [inference.batch_size, *tensor.dims] if inference.batched else list(tensor.dims)
        values = [value for item in inference.items for value in _answer(name, tensor, item, shift)]
        entry: dict[str, Any] = {"name": tensor.name, "datatype": wire_type(tensor), "shape": shape}
        if as_binary:
            data = b"".join(_packed(wire_type(tensor), value) for value in values)
            entry["parameters"] = {"binary_data_size": len(data)}
            binary += data
        else:
            entry["data"] = values
        outputs.append(entry)
    document: dict[str, Any] = {"model_name": name, "model_version": str(version), "outputs": outputs}
    if inference.request_id:
        document = {"id": inference.request_id} | document
    head = msgspec.json.encode(document)
    return head + bytes(binary), len(head) if binary else None


def _answer(name: str, tensor: Tensor, item: bytes, shift: float) -> Iterator[float | int]:
    rng = random.Random(zlib.crc32(item, zlib.crc32(f"{name}:{tensor.name}".encode())))
    for _ in range(math.prod(tensor.dims)):
        value = rng.random() * (1 + shift)
        yield round(value, 6) if tensor.data_type == "TYPE_FP32" else int(value * 1000)
