"""The body of `/infer`, both ways: JSON, and the binary-data extension of the KServe protocol.

The simulated models compute nothing: outputs are zeros of the right shape. Requests are checked as Triton checks them,
with its texts (recorded in cases/triton/errors.json).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from console.simulator.scenes import Tensor

HEADER_LENGTH = "inference-header-content-length"
_BYTES_PER_ITEM = {"FP32": 4, "INT32": 4, "INT64": 8}
_NO_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class BadRequestError(Exception):
    """The request is not one that the model takes; the text is Triton's, without the request id in front."""


@dataclass(frozen=True, slots=True)
class Inference:
    """A checked request: its batch size, and which outputs are wanted in which form."""

    request_id: str
    batch_size: int
    outputs: tuple[tuple[Tensor, bool], ...]
    """(output, whether as binary data)."""


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
        document = msgspec.json.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise BadRequestError("Unable to find JSON member 'inputs'")
    given = {entry.get("name"): entry for entry in document["inputs"] if isinstance(entry, dict)}
    if len(given) != len(inputs):
        raise BadRequestError(f"expected {len(inputs)} inputs but got {len(given)} inputs for model '{name}'")
    batch_sizes = {_check_input(name, tensor, given.get(tensor.name), max_batch) for tensor in inputs}
    if len(batch_sizes) != 1:
        raise BadRequestError(f"input batch sizes do not match for model '{name}'")
    wanted = tuple(_wanted_outputs(name, outputs, document))
    return Inference(str(document.get("id", "")), batch_sizes.pop(), wanted)


def _check_input(name: str, tensor: Tensor, entry: Any, max_batch: int) -> int:
    if entry is None:
        raise BadRequestError(f"unexpected inference input for model '{name}', expected '{tensor.name}'")
    if entry.get("datatype") != wire_type(tensor):
        raise BadRequestError(
            f"inference input '{tensor.name}' data-type is '{entry.get('datatype')}', "
            f"but model '{name}' expects '{wire_type(tensor)}'"
        )
    shape = entry.get("shape")
    if not isinstance(shape, list) or list(shape[1:]) != list(tensor.dims):
        expected = ",".join(map(str, (-1, *tensor.dims)))
        got = ",".join(map(str, shape)) if isinstance(shape, list) else ""
        raise BadRequestError(
            f"unexpected shape for input '{tensor.name}' for model '{name}'. "
            f"Expected [{expected}], got [{got}]. {_NO_BATCH_NOTE}"
        )
    if not isinstance(shape[0], int) or not 1 <= shape[0] <= max_batch:
        raise BadRequestError(f"inference request batch-size must be <= {max_batch} for '{name}'")
    return shape[0]


def _wanted_outputs(name: str, outputs: tuple[Tensor, ...], document: dict[str, Any]) -> list[tuple[Tensor, bool]]:
    binary_by_default = bool(document.get("parameters", {}).get("binary_data_output", False))
    asked = document.get("outputs")
    if not asked:
        return [(tensor, binary_by_default) for tensor in outputs]
    known = {tensor.name: tensor for tensor in outputs}
    wanted = []
    for entry in asked:
        tensor = known.get(entry.get("name"))
        if tensor is None:
            raise BadRequestError(f"unexpected inference output '{entry.get('name')}' for model '{name}'")
        wanted.append((tensor, bool(entry.get("parameters", {}).get("binary_data", binary_by_default))))
    return wanted


def render(name: str, version: int, inference: Inference) -> tuple[bytes, int | None]:
    """The answer's body, and the length of its JSON part where binary data follows it."""
    outputs: list[dict[str, Any]] = []
    binary = bytearray()
    for tensor, as_binary in inference.outputs:
        shape = [inference.batch_size, *tensor.dims]
        items = math.prod(shape)
        entry: dict[str, Any] = {"name": tensor.name, "datatype": wire_type(tensor), "shape": shape}
        if as_binary:
            size = items * _BYTES_PER_ITEM[wire_type(tensor)]
            entry["parameters"] = {"binary_data_size": size}
            binary += bytes(size)
        else:
            entry["data"] = [0.0 if tensor.data_type == "TYPE_FP32" else 0] * items
        outputs.append(entry)
    document: dict[str, Any] = {"model_name": name, "model_version": str(version), "outputs": outputs}
    if inference.request_id:
        document = {"id": inference.request_id} | document
    head = msgspec.json.encode(document)
    return head + bytes(binary), len(head) if binary else None
