"""Ask one version of a model, pinned, and hold its answer against the kept one, or against the old version's form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from console.clients.golden_store import ask_question, question
from console.clients.triton import TritonAddress
from console.clients.triton_ask import NotAskedError, Question, make_question
from console.core.golden import Golden, GoldenOutput, differs
from console.core.model import SourceError
from console.core.text import one_line

Kind = Literal["answer", "form", "off"]
"""answer: the kept answer, within its tolerance. form: an answer with data, in the old version's types and shapes."""
PATIENCE = 5.0
"""Seconds for an answer: a first request may be cold; each second of it is a second of exposure."""


class Probe:
    """One question for one model. The first `ask` of the old version sets the form that the new one must have."""

    def __init__(self, address: TritonAddress, name: str, kind: Kind, golden: Golden | None) -> None:
        self._address = address
        self._name = name
        self._golden = golden if kind == "answer" else None
        self._question: Question | None = question(golden) if golden is not None else None
        self._form: tuple[GoldenOutput, ...] = ()
        self.kind: Kind = kind
        self.why_off = "" if kind != "off" else "it was switched off"
        self.asked = 0

    def prepare(self, version: int | None) -> str:
        """Make the question, and take the old version's answer as the form; what is wrong with that answer, or ""."""
        if self.kind == "off":
            return ""
        if self._question is None:
            try:
                self._question = make_question(self._address, self._name, None if version is None else str(version))
            except (NotAskedError, SourceError) as error:
                self.kind, self.why_off = "off", one_line(str(error), 200)
                return ""
        if version is None:
            return ""
        told, outputs = ask_question(self._address, self._name, str(version), self._question, PATIENCE)
        if told.ok:
            self._form = outputs
        return self._judged(told.ok, told.text, outputs)

    def ask(self, version: int) -> str:
        """Ask this version once; what is wrong with its answer, or ""."""
        if self._question is None:
            self.prepare(None)
        if self.kind == "off" or self._question is None:
            return ""
        self.asked += 1
        told, outputs = ask_question(self._address, self._name, str(version), self._question, PATIENCE)
        return self._judged(told.ok, told.text, outputs)

    def _judged(self, ok: bool | None, text: str, outputs: Sequence[GoldenOutput]) -> str:
        if not ok:
            return one_line(text, 300)
        if self._golden is not None:
            return differs(self._golden, outputs)
        return other_form(self._form, outputs)


def other_form(old: Sequence[GoldenOutput], new: Sequence[GoldenOutput]) -> str:
    """Where an answer has other outputs, types or shapes than the old version's, or is not a number where that was."""
    given = {output.name: output for output in new}
    for expected in old:
        found = given.get(expected.name)
        if found is None:
            return f"output {expected.name} is missing"
        if (found.datatype, found.shape) != (expected.datatype, expected.shape):
            return (
                f"{expected.name} is {found.datatype} {list(found.shape)}, the old version's "
                f"{expected.datatype} {list(expected.shape)}"
            )
        if _not_numbers(found) and not _not_numbers(expected):
            return f"{expected.name} holds what is not a number"
    return ""


def _not_numbers(output: GoldenOutput) -> bool:
    kept = output.values or ()
    return any(value in ("nan", "inf", "-inf") or (isinstance(value, float) and math.isnan(value)) for value in kept)
