"""Ask a model once: a request made from its configuration, sent on a connection of its own, exactly once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from msgspec import Struct

from console.clients.triton import Answer, Limits, TritonAddress, error_text, expect_ok, model_path, server_http
from console.clients.triton_answer import NoAnswerError, outputs, texts
from console.clients.triton_body import TEXT, CannotEncodeError, Encoded, Tensor, encode, numpy_type, zeros
from console.clients.triton_wire import decode_config
from console.core.model import Asked, ModelConfig, SourceError, TensorSpec
from console.core.text import decode, one_line

PATIENCE = 10.0
"""Seconds: the first request after a load may be slow, an operator does not wait longer."""
MAX_INPUT = 16 * 1024 * 1024
"""Bytes of one made-up input."""
SHOWN_VALUES = 4


class NotAskedError(Exception):
    """Why no request can be made."""


class Sized(Struct, frozen=True):
    """One input of a question; `shape` with the batch dimension where the model has one."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Question(Struct, frozen=True):
    """One inference request, ready to be sent any number of times."""

    body: bytes
    headers: Mapping[str, str]
    sent: str
    """Such as `FEATURES FP32 [1, 4] zeros`."""
    inputs: tuple[Sized, ...] = ()
    batched: bool = False
    """True when the first dimension of each shape is the batch."""


def ask(address: TritonAddress, name: str, version: str | None = None, patience: float = PATIENCE) -> Asked:
    """Make one request and wait at most `patience` seconds for its answer. Never raises: what went wrong is the
    summary. `version` None lets the server choose."""
    wall = time.time()
    try:
        question = make_question(address, name, version, patience)
    except SourceError as error:
        return Asked(name, version, None, wall, None, error.message)
    except NotAskedError as reason:
        return Asked(name, version, None, wall, None, str(reason))
    return put(address, name, version, question, patience)[0]


def make_question(address: TritonAddress, name: str, version: str | None, patience: float = PATIENCE) -> Question:
    """A request of zeros made from the configuration. NotAskedError where none can be made; SourceError."""
    http = server_http(address, Limits(read=patience))
    try:
        config = decode_config(expect_ok(http.get(f"{model_path(name, version)}/config"), "configuration"), name, "")
    finally:
        http.close()
    return _request(config)


def put(
    address: TritonAddress, name: str, version: str | None, question: Question, patience: float = PATIENCE
) -> tuple[Asked, Answer | None]:
    """Send a question exactly once, on a connection of its own; never raises. The Answer is None where none came."""
    wall, sent = time.time(), question.sent
    try:
        http = server_http(address, Limits(read=patience))
        answer = http.once("POST", f"{model_path(name, version)}/infer", question.body, question.headers)
        http.close()
    except SourceError as error:
        return Asked(name, version, False, wall, None, error.message, sent), None
    ms = answer.seconds * 1e3
    if answer.status != 200:
        text = f"{answer.status}: {error_text(answer)}"
        return Asked(name, version, False, wall, ms, text, sent, answer.status), answer
    ok, summary = summarise(answer)
    return Asked(name, version, ok, wall, ms, summary, sent, answer.status), answer


def _request(config: ModelConfig) -> Question:
    if config.decoupled:
        raise NotAskedError("it answers in a stream (decoupled), which takes another kind of request")
    if config.sequence_batching:
        raise NotAskedError("it keeps sequences, and a made-up request would be part of one")
    tensors = [tensor for tensor in config.inputs if not tensor.optional] or list(config.inputs[:1])
    if not tensors:
        raise NotAskedError("its configuration names no inputs")
    shaped = [(tensor, _shape(tensor, config.max_batch_size)) for tensor in tensors]
    encoded = _encoded(shaped)
    sent = ", ".join(f"{tensor.name} {tensor.datatype} {shape} {_content(tensor)}" for tensor, shape in shaped)
    inputs = tuple(Sized(tensor.name, tensor.datatype, tuple(shape)) for tensor, shape in shaped)
    return Question(encoded.body, encoded.headers, one_line(sent, 400), inputs, config.max_batch_size > 0)


def _content(tensor: TensorSpec) -> str:
    return f'"{TEXT.decode()}"' if tensor.datatype == "BYTES" else "zeros"


def _shape(tensor: TensorSpec, max_batch_size: int) -> list[int]:
    dims = [1 if dim < 0 else dim for dim in tensor.shape]
    return [1, *dims] if max_batch_size > 0 else dims


def _encoded(tensors: Sequence[tuple[TensorSpec, list[int]]]) -> Encoded:
    """tritonclient's encoding; it and numpy are imported late because they bring much along."""
    import numpy as np

    made = []
    for tensor, shape in tensors:
        dtype = numpy_type(tensor.datatype)
        if dtype is None:
            raise NotAskedError(f"its input {one_line(tensor.name, 80)} has the unknown type {tensor.datatype}")
        if prod(shape) * np.dtype(dtype).itemsize > MAX_INPUT:
            raise NotAskedError(f"its input {one_line(tensor.name, 80)} of {shape} is too large to make up")
        made.append(Tensor(tensor.name, tensor.datatype, zeros(shape, dtype)))
    try:
        return encode(made)
    except CannotEncodeError as error:
        raise NotAskedError(f"a request for it cannot be made: {error}") from error


def summarise(answer: Answer) -> tuple[bool, str]:
    """Whether each output has its data, and the first values of each.

    A 200 is not enough: a Python back end with the wrong NumPy answers 200 with empty outputs (domain facts, top).
    """
    try:
        found = outputs(answer)
    except NoAnswerError as reason:
        return False, f"200 with {reason}"
    if not found:
        return False, "200 without any output"
    parts: list[str] = []
    ok = True
    for output in found:
        text = _shown(output.data, len(output.data)) if output.chunk is None else _binary(output.chunk, output.datatype)
        if output.empty and prod(output.shape) > 0:
            ok, text = False, "no data"
        parts.append(f"{one_line(output.name, 80)} {output.datatype} {list(output.shape)} {text}")
    return ok, one_line("; ".join(parts), 600)


def _binary(chunk: bytes, datatype: str) -> str:
    import numpy as np
    from tritonclient.utils import triton_to_np_dtype

    if datatype == "BYTES":
        words = ['"' + one_line(decode(one), 60) + '"' for one in texts(chunk, SHOWN_VALUES + 1)]
        return _shown(words, len(words))
    dtype = triton_to_np_dtype(datatype)
    if dtype is None or len(chunk) % np.dtype(dtype).itemsize:
        return f"{len(chunk)} bytes"
    values = np.frombuffer(chunk, dtype)
    return _shown([f"{float(value):.6g}" for value in values[:SHOWN_VALUES]], len(values))


def _shown(values: Sequence[Any], total: int) -> str:
    text = ", ".join(one_line(str(value), 60) for value in values[:SHOWN_VALUES])
    return f"{text}, …" if total > SHOWN_VALUES else text
