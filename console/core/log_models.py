"""Whose error a line of Triton's log is, and which lines tell the same trouble (pure).

Back ends write the cause without the model's name (`logging.cc: Serialization assertion ... failed`); the server's own
line with the name comes after it (`failed to load 'rerank' version 3: ...`). So the lines are read together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from console.core.model import LogLine

TOGETHER = 2.0
"""Seconds between an error and the line that names its model."""
MOST_BEFORE = 8
"""Error lines that are read together with one."""
MOST_LOOKED = 200
"""Lines before an error that are looked at for loads that had not ended."""
LONGEST_LOAD = 600.0
"""Seconds."""

_TROUBLE = frozenset({"W", "E", "F"})
_NAMED = re.compile(
    r"(?:failed to (?:load|unload|poll)|(?:un)?loaded|model) '(?P<quoted>[^']{1,200})'"
    r"|loading: (?P<loading>.{1,200}):\d+$"
    r"|unable to create stream for (?P<ensemble>[^\s:]{1,200}):"
    r"|[Ss]tub process '(?P<stub>[^']{1,200}?)(?:_\d+){1,2}'"
    r"|Poll failed for model directory '(?P<polled>[^']{1,200})'"
)
_LOADING = re.compile(r"loading: (?P<model>.{1,200}):\d+$")
_ENDED = re.compile(r"(?:successfully loaded|failed to load(?: model)?) '(?P<model>[^']{1,200})'")


class Owner(Struct, frozen=True):
    """The model of a line."""

    model: str
    trust: Literal["sure", "likely"]
    how: str
    """Why it is taken for its model: half a sentence."""


def owner(lines: Sequence[LogLine], at: int, served: Collection[str] = ()) -> Owner | None:
    """The model that `lines[at]` is about; None where nothing tells. `served` are the names that the server knows."""
    line = lines[at]
    named = named_in(line.text, served)
    if named is not None:
        return Owner(named, "sure", "the line names it")
    if line.wall is None or line.level not in _TROUBLE:
        return None
    for other in lines[at + 1 : at + 1 + MOST_LOOKED]:
        if other.wall is None or other.wall - line.wall > TOGETHER:
            break
        failed = _ENDED.match(other.text)
        if failed is not None:
            if other.text.startswith("failed"):
                return Owner(failed["model"], "likely", "its load failed right after this line")
            break
    loading = _loading(lines, at, line.wall)
    if len(loading) == 1:
        return Owner(loading[0], "likely", "it alone was loading then")
    return None


def named_in(text: str, served: Collection[str] = ()) -> str | None:
    """The model that a line names by itself; of `served` names those that stand in quotes."""
    match = _NAMED.search(text)
    if match is not None:
        return match[match.lastgroup] if match.lastgroup else None
    return next((name for name in served if f"'{name}'" in text or f'"{name}"' in text), None)


def _loading(lines: Sequence[LogLine], at: int, wall: float) -> list[str]:
    """Models whose load had begun and not ended when line `at` was written."""
    ended: set[str] = set()
    found: list[str] = []
    for line in reversed(lines[max(0, at - MOST_LOOKED) : at]):
        if line.wall is None or wall - line.wall > LONGEST_LOAD:
            continue
        if (match := _ENDED.match(line.text)) is not None:
            ended.add(match["model"])
        elif (match := _LOADING.match(line.text)) is not None:
            model = match["model"]
            if model not in ended and model not in found:
                found.append(model)
    return found


def together(lines: Sequence[LogLine], at: int) -> tuple[LogLine, ...]:
    """The line and the errors shortly before it, oldest first, without those of another model: they tell the same
    trouble, and the first of them why."""
    line = lines[at]
    mine = named_in(line.text)
    found = [line]
    for other in reversed(lines[max(0, at - MOST_LOOKED) : at]):
        if len(found) > MOST_BEFORE or line.wall is None or other.wall is None or line.wall - other.wall > TOGETHER:
            break
        if other.level in _TROUBLE and (named := named_in(other.text)) in (None, mine or named):
            found.append(other)
    return tuple(reversed(found))
