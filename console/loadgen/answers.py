"""Answers taken apart and checked for content, not only for their status.

Triton counts as success what is none for a client: an output that is missing or empty is 200 (domain facts, top). Most
answers of one run are alike in their head and their form, so both are looked at once and then known by their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from console.clients.triton import Answer, error_text
from console.clients.triton_answer import NoAnswerError, Output, outputs, values
from console.core.golden import Golden, differs, kept_output
from console.loadgen import errors

MOST_HEAD = 64 * 1024
MOST_BODY = 64 * 1024 * 1024
_KNOWN = 256
_SIZES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "FP16": 2, "BF16": 2, "INT16": 2, "UINT16": 2, "FP32": 4, "INT32": 4,
          "UINT32": 4, "FP64": 8, "INT64": 8, "UINT64": 8}  # fmt: skip


class NotHttpError(Exception):
    """Why what came is no HTTP answer that can be read."""


class Head(Struct, frozen=True):
    """What a head says."""

    status: int
    length: int
    """Of the body."""
    json_size: int | None
    """Of the JSON at its beginning, where outputs follow in binary."""
    close: bool
    """The server will close the connection."""


def parse_head(raw: bytes) -> Head:
    """Of an answer, up to and without its empty line. NotHttpError."""
    lines = raw.split(b"\r\n")
    words = lines[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise NotHttpError("its first line is not HTTP/1.1")
    fields: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
        raise NotHttpError("its body comes in chunks, which Triton's own answers never do: a proxy?")
    length = _number(fields.get(b"content-length", b"0"))
    if length is None or length > MOST_BODY:
        raise NotHttpError("its length is no number, or above 64 MiB")
    close = fields.get(b"connection", b"").lower() == b"close" or words[0] == b"HTTP/1.0"
    return Head(int(words[1]), length, _number(fields.get(b"inference-header-content-length", b"-")), close)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 12 else None


class Checker:
    """Says what is wrong with an answer; remembers forms and whole answers that were right."""

    def __init__(self, expected: Sequence[tuple[str, str]], golden: Golden | None) -> None:
        self._expected = tuple(expected)
        self._golden = golden
        self._right: dict[bytes, int] = {}
        """Forms with the length of their answers, and whole answers with their own."""
        if golden is not None:
            values(Output("", "FP32", (1,), chunk=bytes(4)))  # loads what comparing wants before the first request

    def problem(self, head: Head, body: bytes) -> tuple[str, str] | None:
        """(kind, text) of what is wrong; None where nothing is."""
        if head.status != 200:
            return errors.of_status(head.status), error_text(Answer(head.status, body, 0.0, 0.0, {}), errors.SAMPLE)
        known = body[: head.json_size] if self._golden is None else body  # without its values, or with them
        if self._right.get(known) == len(body):
            return None
        text = self._looked_at(head, body)
        if text:
            return errors.WRONG, text
        if len(known) < MOST_HEAD:
            if len(self._right) >= _KNOWN:
                self._right.clear()
            self._right[known] = len(body)
        return None

    def _looked_at(self, head: Head, body: bytes) -> str:
        names = {} if head.json_size is None else {"inference-header-content-length": str(head.json_size)}
        try:
            found = outputs(Answer(200, body, 0.0, 0.0, names))
        except NoAnswerError as reason:
            return str(reason)
        given = {output.name: output for output in found}
        for name, datatype in self._expected:
            if name not in given:
                return f"output {name} is missing"
            if given[name].datatype != datatype:
                return f"output {name} is {given[name].datatype}, not {datatype}"
        if not found:
            return "no output at all"
        text = next((text for output in found if (text := _short(output))), "")
        if text or self._golden is None:
            return text
        return differs(self._golden, [kept_output(o.name, o.datatype, o.shape, values(o)) for o in found])


def _short(output: Output) -> str:
    """Where an output has less data than its shape says."""
    wanted = prod(output.shape)
    if output.chunk is None:
        return "" if len(output.data) == wanted else f"output {output.name} has {len(output.data)} of {wanted} values"
    size = _SIZES.get(output.datatype)
    if size is not None and len(output.chunk) != size * wanted:
        return f"output {output.name} has {len(output.chunk)} of {size * wanted} bytes"
    return f"output {output.name} has no data" if wanted and not output.chunk else ""
