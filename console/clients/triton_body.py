"""An inference request encoded once, by tritonclient, to be sent any number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.core.text import one_line

TEXT = b"0"
"""A made-up string: it parses as a number where the model wants one."""


class CannotEncodeError(Exception):
    """Why tritonclient takes the values for no request."""


class Tensor(Struct, frozen=True):
    """One input: `values` is a NumPy array of the datatype's own type (BYTES: objects; BF16: float32)."""

    name: str
    datatype: str
    values: Any

    @property
    def shape(self) -> list[int]:
        """Of its values."""
        return list(self.values.shape)


class Encoded(Struct, frozen=True):
    """A request's body with its headers."""

    body: bytes
    headers: Mapping[str, str]


def numpy_type(datatype: str) -> Any:
    """NumPy's type for a datatype of Triton; None for an unknown one."""
    from tritonclient.utils import triton_to_np_dtype

    return triton_to_np_dtype(datatype)


def zeros(shape: Sequence[int], dtype: Any) -> Any:
    """An array of zeros of one of NumPy's types; of TEXT where that is objects (BYTES)."""
    import numpy as np

    return np.full(shape, TEXT, dtype) if np.dtype(dtype).kind == "O" else np.zeros(shape, dtype)


def encode(tensors: Sequence[Tensor], *, priority: int = 0, timeout_us: int = 0) -> Encoded:
    """The binary form, outputs asked for in binary too; without priority and time-out where they are 0.
    CannotEncodeError."""
    from tritonclient.http import InferenceServerClient, InferInput
    from tritonclient.utils import InferenceServerException

    inputs = []
    try:
        for tensor in tensors:
            item = InferInput(tensor.name, tensor.shape, tensor.datatype)
            item.set_data_from_numpy(tensor.values)
            inputs.append(item)
        body, size = InferenceServerClient.generate_request_body(inputs, priority=priority, timeout=timeout_us or None)
    except InferenceServerException as error:
        raise CannotEncodeError(one_line(str(error), 200)) from error
    headers = {"Content-Type": "application/octet-stream"}
    if size is not None:
        headers["Inference-Header-Content-Length"] = str(size)
    return Encoded(bytes(body), headers)
