"""Facts by hand that hold only what a check needs: a check that reads anything else is at fault, and the test fails.

What a need names and the test does not tell is absent (files), not installed (programs) or not asked (answers).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from msgspec import structs

from console.checks.check import Answer, Check
from console.checks.run import judged
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.core.finding import Finding
from tests.checks.told import ABSENT, told

Judge = Callable[[Facts], Answer]
_NAME = re.compile(r"\{(\w+)\}")


def finding(
    judge: Judge,
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    spaces: Mapping[str, SpaceFact] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
) -> Finding:
    """What a check says of these facts, as a row of the checklist."""
    return row(check_of(judge), told(files, commands, answers, spaces, variables))


def check_of(judge: Judge) -> Check:
    """The check that a function is."""
    found: Check = judge.__check__  # type: ignore[attr-defined]
    return found


def row(one: Check, facts: Facts) -> Finding:
    """What a check says of those of these facts that it needs, as a row of the checklist."""
    found = judged(one, only(one.needs, facts))
    assert "fault of its own" not in found.text, found.text
    assert len(found.title) <= 46
    assert found.fix is None or found.fix.commands or not found.fix.action, "an action wants a line to type as well"
    return found


def only(needs: tuple[str, ...], facts: Facts) -> Facts:
    """These facts, less what is not needed."""
    files: dict[str, FileFact] = {}
    commands: dict[str, CommandFact] = {}
    answers: dict[str, AnswerFact] = {}
    spaces: dict[str, SpaceFact] = {}
    for need in filled(needs, facts.variables):
        kind, _, rest = need.partition(" ")
        if kind == "$":
            commands[rest] = facts.commands.get(rest, CommandFact(why=f"{rest.split()[0]} is not installed"))
        elif kind == "space":
            spaces[rest] = facts.spaces.get(rest, SpaceFact(why="not asked"))
        elif need.startswith("@"):
            answers[need] = facts.answers.get(need, AnswerFact(why="not asked"))
        elif kind == "find":
            folder, name = rest.split(" ")
            files |= _below(folder, name, facts)
        else:
            files |= _files(rest if kind == "stat" else need, facts)
    return structs.replace(facts, files=files, commands=commands, answers=answers, spaces=spaces)


def filled(needs: tuple[str, ...], variables: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Needs with the values of their variables; none of those whose variable has no value."""
    return [one for need in needs for one in _filled(need, variables)]


def _filled(need: str, variables: Mapping[str, tuple[str, ...]]) -> list[str]:
    names = sorted(name for name in set(_NAME.findall(need)) if name.islower())
    values = product(*(variables.get(name, ()) for name in names))
    return [_NAME.sub(lambda m, v=v: dict(zip(names, v, strict=True)).get(m[1], m[0]), need) for v in values]  # type: ignore[misc]


def _files(pattern: str, facts: Facts) -> dict[str, FileFact]:
    if not re.search(r"[*?\[]", pattern):
        return {pattern: facts.files.get(pattern, ABSENT)}
    parts = pattern.split("/")
    found = {}
    for path, fact in facts.files.items():
        steps = path.split("/")
        if len(steps) <= len(parts) and all(map(fnmatchcase, steps, parts[: len(steps)])):
            found[path] = fact
    return found


def _below(folder: str, name: str, facts: Facts) -> dict[str, FileFact]:
    found = {path: fact for path, fact in facts.files.items() if path.startswith(f"{folder}/")}
    found = {path: fact for path, fact in found.items() if fnmatchcase(path.rsplit("/", 1)[-1], name)}
    return found | ({folder: facts.files[folder]} if folder in facts.files else {})
