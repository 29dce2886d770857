"""Inputs for a model, made from its own description: zeros, random values, or those of a data file.

Each request is made once and sent many times; several different ones go round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

from msgspec import Struct

from console.clients.triton_body import CannotEncodeError, Encoded, Tensor, encode, numpy_type, zeros
from console.core.model import ModelConfig, TensorSpec
from console.core.plan import WrongInput
from console.core.text import one_line
from console.loadgen import data_file

MOST_BYTES = 64 * 1024 * 1024
"""Of all requests of a run together, and of a data file."""
MOST_BATCH = 65_536
RANDOM_REQUESTS = 32
"""Different requests of random values, where their size allows."""
WHOLE = 10
"""Random whole numbers are below this: a feature or a user of that number is likely to exist."""


class Wanted(Struct, frozen=True):
    """What the inputs are to be."""

    shapes: Mapping[str, tuple[int, ...]] = {}
    """Sizes of variable inputs, without the batch dimension."""
    batch: int = 1
    content: Literal["zeros", "random"] = "zeros"
    seed: int = 0
    data: bytes | None = None
    data_name: str = ""
    priority: int = 0
    timeout_us: int = 0


class Inputs(Struct, frozen=True):
    """Requests to be sent, one after another and again."""

    requests: tuple[Encoded, ...]
    text: str
    """Such as `made: FEATURES FP32 [1, 4] zeros`."""


def parse_shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`NAME:8` or `NAME:8,128` (`8x128` too), once per input. WrongInput."""
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, colon, sizes = word.rpartition(":")
        parts = sizes.replace("x", ",").split(",")
        if not colon or not name or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise WrongInput(f"--shape must be NAME:8 or NAME:8,128, not {one_line(word, 80)!r}")
        if name in found:
            raise WrongInput(f"--shape is given twice for {one_line(name, 80)}; give it once")
        found[name] = tuple(int(part) for part in parts)
    return found


def make(config: ModelConfig, wanted: Wanted) -> Inputs:
    """All requests of a run. WrongInput says in one sentence what cannot be."""
    _fits(config, wanted)
    tensors = [spec for spec in config.inputs if not spec.optional] or list(config.inputs[:1])
    if not tensors:
        raise WrongInput(f"{config.name} names no inputs, so no request can be made for it")
    sets = _told(config, tensors, wanted) if wanted.data is not None else _made(config, tensors, wanted)
    try:
        requests = tuple(encode(one, priority=wanted.priority, timeout_us=wanted.timeout_us) for one in sets)
    except CannotEncodeError as error:
        raise WrongInput(f"a request for {config.name} cannot be made: {error}") from error
    how = f"from {one_line(wanted.data_name, 80)}" if wanted.data is not None else wanted.content
    sizes = ", ".join(f"{one_line(t.name, 80)} {t.datatype} {t.shape}" for t in sets[0])
    more = f", {len(requests)} different" if len(requests) > 1 else ""
    return Inputs(requests, one_line(f"{sizes} {how}{more}", 400))


def _fits(config: ModelConfig, wanted: Wanted) -> None:
    """WrongInput for a model or a batch that no request of this kind can be made for."""
    name = config.name
    if config.decoupled:
        raise WrongInput(f"{name} answers in a stream (decoupled); a load of single requests would not measure it")
    if config.sequence_batching:
        raise WrongInput(f"{name} keeps sequences; a load of single requests would be refused by it")
    if not 1 <= wanted.batch <= MOST_BATCH:
        raise WrongInput(f"--batch must be from 1 to {MOST_BATCH}, not {wanted.batch}")
    if config.max_batch_size == 0 and wanted.batch > 1:
        raise WrongInput(f"{name} takes no batches (max_batch_size 0); leave --batch out")
    if 0 < config.max_batch_size < wanted.batch:
        raise WrongInput(f"{name} takes at most {config.max_batch_size} a request, so --batch {wanted.batch} cannot be")
    known = {spec.name for spec in config.inputs}
    for given in wanted.shapes:
        if given not in known:
            raise WrongInput(f"{name} has no input {one_line(given, 80)}; it has {', '.join(sorted(known)) or 'none'}")


def _shape(config: ModelConfig, spec: TensorSpec, wanted: Wanted) -> tuple[int, ...]:
    """With the batch dimension, where there is one."""
    given = wanted.shapes.get(spec.name)
    dims = spec.shape
    if given is not None:
        if not data_file.fits(given, dims):
            sizes = ",".join(map(str, given))
            raise WrongInput(
                f"--shape {spec.name}:{sizes} does not fit {spec.name} {list(dims)} of {config.name}"
                + (" (the batch is not part of it)" if config.max_batch_size > 0 else "")
            )
        dims = given
    elif any(dim < 0 for dim in dims):
        sizes = ",".join("8" if dim < 0 else str(dim) for dim in dims)
        raise WrongInput(
            f"{spec.name} of {config.name} has the variable shape {list(dims)}; say which with --shape "
            f"{spec.name}:{sizes}"
        )
    return (wanted.batch, *dims) if config.max_batch_size > 0 else tuple(dims)


def _type(config: ModelConfig, spec: TensorSpec) -> Any:
    import numpy as np

    found = numpy_type(spec.datatype)
    if found is None:
        raise WrongInput(f"{spec.name} of {config.name} has the unknown type {spec.datatype}")
    return np.dtype(found)


def _made(config: ModelConfig, specs: Sequence[TensorSpec], wanted: Wanted) -> list[list[Tensor]]:
    import numpy as np

    shaped = [(spec, _shape(config, spec, wanted), _type(config, spec)) for spec in specs]
    size = sum(prod(shape) * max(dtype.itemsize, 1) for _, shape, dtype in shaped)
    if size > MOST_BYTES:
        raise WrongInput(
            f"one request for {config.name} would be {size / 2**20:.0f} MiB; at most {MOST_BYTES // 2**20} are possible"
        )
    number = min(RANDOM_REQUESTS, max(1, MOST_BYTES // max(size, 1))) if wanted.content == "random" else 1
    chance = np.random.default_rng(wanted.seed)
    return [
        [Tensor(spec.name, spec.datatype, _values(shape, dtype, wanted, chance)) for spec, shape, dtype in shaped]
        for _ in range(number)
    ]


def _values(shape: tuple[int, ...], dtype: Any, wanted: Wanted, chance: Any) -> Any:
    import numpy as np

    if wanted.content == "zeros":
        return zeros(shape, dtype)
    if dtype.kind == "f":
        return chance.random(shape, np.float32).astype(dtype)
    whole = chance.integers(0, 2 if dtype.kind == "b" else WHOLE, shape)
    if dtype.kind != "O":
        return whole.astype(dtype)
    texts = np.empty(whole.size, object)
    texts[:] = [str(value).encode() for value in whole.flat]
    return texts.reshape(shape)


def _told(config: ModelConfig, specs: Sequence[TensorSpec], wanted: Wanted) -> list[list[Tensor]]:
    """Requests of the file's rows: `batch` rows make one request, going round; no row is left out."""
    import numpy as np

    name = one_line(wanted.data_name, 80)
    rows = data_file.rows(wanted.data or b"", name)
    columns: list[list[Any]] = []
    for spec in specs:
        shape, dtype = _row_shape(spec, rows[0], wanted), _type(config, spec)
        columns.append([data_file.array(row, at, spec, shape, dtype, name) for at, row in enumerate(rows)])
    known = {spec.name for spec in config.inputs}
    for key in rows[0]:
        if key not in known:
            raise WrongInput(
                f"{name}: {config.name} has no input {one_line(key, 80)}; it has {', '.join(sorted(known))}"
            )
    batched = config.max_batch_size > 0
    if wanted.batch > 1:
        for spec, column in zip(specs, columns, strict=True):
            if len({array.shape for array in column}) > 1:
                raise WrongInput(f"{name}: the rows of {spec.name} have different shapes, so --batch must be 1")
    number = len(rows) if len(rows) % wanted.batch else len(rows) // wanted.batch
    size = sum(array.nbytes for column in columns for array in column) // len(rows) * wanted.batch * number
    if size > MOST_BYTES:
        raise WrongInput(f"{name} makes {size / 2**20:.0f} MiB of requests; at most {MOST_BYTES // 2**20} are possible")
    sets = []
    for first in range(0, number * wanted.batch, wanted.batch):
        taken = [(first + at) % len(rows) for at in range(wanted.batch)]
        arrays = [np.stack([column[at] for at in taken]) if batched else column[taken[0]] for column in columns]
        pairs = zip(specs, arrays, strict=True)
        sets.append([Tensor(spec.name, spec.datatype, array) for spec, array in pairs])
    return sets


def _row_shape(spec: TensorSpec, row: Mapping[str, Any], wanted: Wanted) -> tuple[int, ...] | None:
    """Of one row, without the batch; None where the file's own nesting tells it."""
    given = wanted.shapes.get(spec.name)
    if given is not None:
        return given
    return None if any(dim < 0 for dim in spec.shape) else spec.shape
