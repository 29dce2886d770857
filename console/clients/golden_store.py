"""Golden requests on disk, a file a model in the console's state folder, and the way they are asked.

Inputs may be customers' data, so the folder is 0700 and its files 0600.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from console.clients.files import write_private
from console.clients.triton import TritonAddress
from console.clients.triton_answer import NoAnswerError, outputs, values
from console.clients.triton_ask import PATIENCE, Question, Sized, ask, put
from console.core.golden import Golden, GoldenInput, GoldenOutput, differs, kept_output
from console.core.model import Asked, SourceError
from console.core.text import one_line

FOLDER = "golden"
MAX_FILE = 32 * 1024 * 1024


def path(state: Path, model: str) -> Path:
    """Of a model's golden request; names too long for a file are told apart by their digest."""
    name = quote(model.encode("utf-8", "surrogateescape"), safe="")
    if len(name) > 200:
        name = name[:120] + "-" + hashlib.sha256(name.encode()).hexdigest()[:32]
    return state / FOLDER / f"{name}.json"


def load(state: Path, model: str) -> Golden | None:
    """The kept request; None where none is kept. SourceError where the file cannot be read or understood."""
    file = path(state, model)
    try:
        if file.stat().st_size > MAX_FILE:
            raise SourceError("protocol", f"{file} is larger than {MAX_FILE // 1024 // 1024} MiB")
        found = msgspec.json.decode(file.read_bytes(), type=Golden)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError("permission", f"{file} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(
            "protocol", f"{file} is no golden request: {one_line(str(error), 200)}", "keep the question anew"
        ) from error
    return found if found.model == model else None


def save(state: Path, golden: Golden) -> Path:
    """Write it, old or new and never half of it. OSError where that cannot be."""
    file = path(state, golden.model)
    write_private(file, msgspec.json.encode(golden).decode())
    return file


def remove(state: Path, model: str) -> None:
    """Forget it; nothing where there is none. OSError."""
    path(state, model).unlink(missing_ok=True)


def question(golden: Golden) -> Question:
    """As it is sent."""
    inputs = tuple(Sized(i.name, i.datatype, i.shape) for i in golden.inputs)
    return Question(golden.body, golden.headers, golden.sent, inputs, golden.batched)


def ask_question(
    address: TritonAddress, model: str, version: str | None, asked: Question, patience: float = PATIENCE
) -> tuple[Asked, tuple[GoldenOutput, ...]]:
    """Send a question and take its answer as it would be kept; no outputs where none came. Never raises."""
    told, answer = put(address, model, version, asked, patience)
    if answer is None or not told.ok:
        return told, ()
    try:
        found = outputs(answer)
    except NoAnswerError:
        return told, ()
    return told, tuple(kept_output(o.name, o.datatype, o.shape, values(o)) for o in found)


def ask_golden(
    address: TritonAddress, golden: Golden, version: str | None = None, patience: float = PATIENCE
) -> tuple[Asked, str]:
    """Ask the kept question. The text is "" where the answer is the kept one, else what is wrong with it."""
    told, found = ask_question(address, golden.model, version, question(golden), patience)
    if not told.ok:
        return told, told.text
    return told, differs(golden, found)


def ask_once(state: Path, address: TritonAddress, model: str, version: str | None = None) -> Asked:
    """Ask a model its kept question and compare the answer; a made-up one where none is kept. Never raises."""
    try:
        kept = load(state, model)
    except SourceError as error:
        text = f"its kept question cannot be used: {error.message}"
        return Asked(model, version, None, time.time(), None, text)
    if kept is None:
        return ask(address, model, version)
    told, other = ask_golden(address, kept, version)
    return replace(told, compared=other) if told.ok else told


def golden_of(
    model: str, version: str, asked: Question, found: tuple[GoldenOutput, ...], relative: float, wall: float, by: str
) -> Golden:
    """What is kept of a question and its answer."""
    inputs = tuple(GoldenInput(i.name, i.datatype, i.shape) for i in asked.inputs)
    return Golden(
        model, version, wall, asked.body, asked.headers, asked.sent, found, inputs, asked.batched, relative, by
    )
