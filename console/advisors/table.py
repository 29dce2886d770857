"""The verdict table as data: reads verdicts.toml and makes Verdicts from its sentences."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from console.core.model import Sign

SIGN_ORDER: Mapping[str, int] = {"fail": 0, "warn": 1, "note": 2, "ok": 3, "unknown": 4, "none": 5}
"""Problems first, then notes; what cannot be told stands last."""


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the table."""

    sign: Sign
    trust: str
    subject: str
    rule: str
    means: str
    does_not: str
    says: Mapping[str, str]
    next: str = ""
    short: str = ""
    """What a flow rule looks for, in two or three words; "" for those that exclude nothing."""
    figures: tuple[str, ...] = ()
    waits: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)

    def limit(self, name: str) -> float:
        """A threshold that is a number; KeyError for a name that is none."""
        return float(self.limits[name])

    def say(self, sentence: str, **words: object) -> str:
        """A sentence with its words put in. The words are outside text and never read as a template."""
        return self.says[sentence].format(**words)


class Fold(Struct, frozen=True, forbid_unknown_fields=True):
    """Which verdicts are consequences of which."""

    causes: tuple[str, ...]
    of: tuple[str, ...]
    same: Literal["model", "box", "step"]


class LoadReason(Struct, frozen=True, forbid_unknown_fields=True):
    """Words in Triton's reason for a failed load -> what they mean."""

    has: tuple[str, ...]
    says: str


class Evaluation(Struct, frozen=True, forbid_unknown_fields=True):
    """When verdicts are judged, appear and go."""

    appear_after: int
    go_after: int
    at_once: tuple[str, ...]
    flow_order: tuple[str, ...]
    min_requests: int
    min_executions: int
    changed_rate: float
    changed_time: float
    changed_busy: float
    chance: float
    listed: int


class Table(Struct, frozen=True):
    """All of verdicts.toml."""

    evaluation: Evaluation
    entries: Mapping[str, Entry]
    folds: tuple[Fold, ...]
    reasons: tuple[LoadReason, ...]


def parse(text: str) -> Table:
    """The table from TOML text; msgspec.ValidationError or tomllib.TOMLDecodeError where it is not one."""
    data = tomllib.loads(text)
    evaluation = msgspec.convert(data.pop("evaluation"), Evaluation)
    folds = msgspec.convert(data.pop("fold", []), tuple[Fold, ...])
    reasons = msgspec.convert(data.pop("reason", []), tuple[LoadReason, ...])
    return Table(evaluation, msgspec.convert(data, dict[str, Entry]), folds, reasons)


@cache
def table() -> Table:
    """The table that the product carries, read once."""
    return parse(files("console.advisors").joinpath("verdicts.toml").read_text("utf-8"))
