"""Ask a model once: a request made from its configuration, sent on a connection of its own, exactly once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec
from msgspec import Struct

from console.clients.triton import Answer, Http, Limits, TritonAddress, error_text, expect_ok, model_path, server_http
from console.clients.triton_wire import decode_config
from console.core.model import Asked, ModelConfig, SourceError, TensorSpec
from console.core.text import decode, one_line

PATIENCE = 10.0
"""Seconds: the first request after a load may be slow, an operator does not wait longer."""
MAX_INPUT = 16 * 1024 * 1024
"""Bytes of one made-up input."""
SHOWN_VALUES = 4
TEXT = b"0"
"""Stands in each string element: parses as a number where the model wants one."""


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


class _NotAskedError(Exception):
    """Why no request can be made."""


def ask(address: TritonAddress, name: str, version: str | None = None, patience: float = PATIENCE) -> Asked:
    """Make one request and wait at most `patience` seconds for its answer. Never raises: what went wrong is the
    summary. `version` None lets the server choose."""
    wall = time.time()
    try:
        http = server_http(address, Limits(read=patience))
        config = decode_config(expect_ok(http.get(f"{model_path(name, version)}/config"), "configuration"), name, "")
        body, headers, sent = _request(config)
    except SourceError as error:
        return Asked(name, version, None, wall, None, error.message)
    except _NotAskedError as reason:
        return Asked(name, version, None, wall, None, str(reason))
    return _send(http, name, version, wall, body, headers, sent)


def _send(
    http: Http, name: str, version: str | None, wall: float, body: bytes, headers: Mapping[str, str], sent: str
) -> Asked:
    http.close()
    try:
        answer = http.once("POST", f"{model_path(name, version)}/infer", body, headers)
    except SourceError as error:
        return Asked(name, version, False, wall, None, error.message, sent)
    finally:
        http.close()
    ms = answer.seconds * 1e3
    if answer.status != 200:
        return Asked(name, version, False, wall, ms, f"{answer.status}: {error_text(answer)}", sent, answer.status)
    ok, summary = summarise(answer)
    return Asked(name, version, ok, wall, ms, summary, sent, answer.status)


def _request(config: ModelConfig) -> tuple[bytes, Mapping[str, str], str]:
    if config.decoupled:
        raise _NotAskedError("it answers in a stream (decoupled), which takes another kind of request")
    if config.sequence_batching:
        raise _NotAskedError("it keeps sequences, and a made-up request would be part of one")
    tensors = [tensor for tensor in config.inputs if not tensor.optional] or list(config.inputs[:1])
    if not tensors:
        raise _NotAskedError("its configuration names no inputs")
    body, size = _encoded([(tensor, _shape(tensor, config.max_batch_size)) for tensor in tensors])
    sent = ", ".join(
        f"{tensor.name} {tensor.datatype} {_shape(tensor, config.max_batch_size)} {_content(tensor)}"
        for tensor in tensors
    )
    headers = {"Content-Type": "application/octet-stream"}
    if size is not None:
        headers["Inference-Header-Content-Length"] = str(size)
    return body, headers, one_line(sent, 400)


def _content(tensor: TensorSpec) -> str:
    return f'"{TEXT.decode()}"' if tensor.datatype == "BYTES" else "zeros"


def _shape(tensor: TensorSpec, max_batch_size: int) -> list[int]:
    dims = [1 if dim < 0 else dim for dim in tensor.shape]
    return [1, *dims] if max_batch_size > 0 else dims


def _encoded(tensors: Sequence[tuple[TensorSpec, list[int]]]) -> tuple[bytes, int | None]:
    """tritonclient's encoding; it is imported here because it brings gevent and numpy along."""
    import numpy as np
    from tritonclient.http import InferenceServerClient, InferInput
    from tritonclient.utils import InferenceServerException, triton_to_np_dtype

    inputs = []
    try:
        for tensor, shape in tensors:
            dtype = triton_to_np_dtype(tensor.datatype)
            if dtype is None:
                raise _NotAskedError(f"its input {one_line(tensor.name, 80)} has the unknown type {tensor.datatype}")
            if prod(shape) * np.dtype(dtype).itemsize > MAX_INPUT:
                raise _NotAskedError(f"its input {one_line(tensor.name, 80)} of {shape} is too large to make up")
            values = np.full(shape, TEXT, dtype) if tensor.datatype == "BYTES" else np.zeros(shape, dtype)
            item = InferInput(tensor.name, shape, tensor.datatype)
            item.set_data_from_numpy(values)
            inputs.append(item)
        body, size = InferenceServerClient.generate_request_body(inputs)
    except InferenceServerException as error:
        raise _NotAskedError(f"a request for it cannot be made: {one_line(str(error), 200)}") from error
    return bytes(body), size


def summarise(answer: Answer) -> tuple[bool, str]:
    """Whether each output has its data, and the first values of each.

    A 200 is not enough: a Python back end with the wrong NumPy answers 200 with empty outputs (domain facts, top).
    """
    header = answer.headers.get("inference-header-content-length")
    size = int(header) if header is not None and header.isascii() and header.isdigit() else len(answer.body)
    try:
        result = _result.decode(answer.body[:size])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False, f"200 with an answer that is none: {one_line(decode(answer.body[:200]), 120)}"
    if not result.outputs:
        return False, "200 without any output"
    rest = memoryview(answer.body)[size:]
    parts: list[str] = []
    ok = True
    for output in result.outputs:
        length = output.parameters.binary_data_size
        if length is None:
            values = _flat(output.data or [])
            text = _shown(values, len(values))
            empty = not values
        else:
            chunk = bytes(rest[: max(0, length)])
            rest = rest[max(0, length) :]
            text, empty = _binary(chunk, output.datatype), not chunk
        if empty and prod(output.shape) > 0:
            ok, text = False, "no data"
        parts.append(f"{one_line(output.name, 80)} {output.datatype} {list(output.shape)} {text}")
    return ok, one_line("; ".join(parts), 600)


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


def _binary(chunk: bytes, datatype: str) -> str:
    import numpy as np
    from tritonclient.utils import triton_to_np_dtype

    if datatype == "BYTES":
        texts: list[str] = []
        at = 0
        while at + 4 <= len(chunk) and len(texts) <= SHOWN_VALUES:
            length = int.from_bytes(chunk[at : at + 4], "little")
            texts.append('"' + one_line(decode(chunk[at + 4 : at + 4 + length]), 60) + '"')
            at += 4 + length
        return _shown(texts, len(texts))
    dtype = triton_to_np_dtype(datatype)
    if dtype is None or len(chunk) % np.dtype(dtype).itemsize:
        return f"{len(chunk)} bytes"
    values = np.frombuffer(chunk, dtype)
    return _shown([f"{float(value):.6g}" for value in values[:SHOWN_VALUES]], len(values))


def _shown(values: Sequence[Any], total: int) -> str:
    text = ", ".join(one_line(str(value), 60) for value in values[:SHOWN_VALUES])
    return f"{text}, …" if total > SHOWN_VALUES else text
