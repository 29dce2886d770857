"""An inference request encoded once, by tritonclient, to be sent any number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.core.text import one_line


class CannotEncodeError(Exception):
    """Why tritonclient takes the values for no request."""


class Tensor(Struct, frozen=True):
    """One input: `values` is a NumPy array of `shape`, of the datatype's own type (BYTES: objects; BF16: float32)."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Any


class Encoded(Struct, frozen=True):
    """A request's body with its headers."""

    body: bytes
    headers: Mapping[str, str]


def numpy_type(datatype: str) -> Any:
    """NumPy's type for a datatype of Triton; None for an unknown one."""
    from tritonclient.utils import triton_to_np_dtype

    return triton_to_np_dtype(datatype)


def encode(tensors: Sequence[Tensor], parameters: Mapping[str, int | str] | None = None) -> Encoded:
    """The binary form, outputs asked for in binary too. `parameters`: priority and timeout (µs). CannotEncodeError."""
    from tritonclient.http import InferenceServerClient, InferInput
    from tritonclient.utils import InferenceServerException

    inputs = []
    try:
        for tensor in tensors:
            item = InferInput(tensor.name, list(tensor.shape), tensor.datatype)
            item.set_data_from_numpy(tensor.values)
            inputs.append(item)
        given = dict(parameters or {})
        body, size = InferenceServerClient.generate_request_body(
            inputs, priority=int(given.pop("priority", 0)), timeout=given.pop("timeout", None)
        )
    except InferenceServerException as error:
        raise CannotEncodeError(one_line(str(error), 200)) from error
    headers = {"Content-Type": "application/octet-stream"}
    if size is not None:
        headers["Inference-Header-Content-Length"] = str(size)
    return Encoded(bytes(body), headers)
