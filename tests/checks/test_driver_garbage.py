"""Whatever one fact holds, no driver check falls over, and none of them turns a missing fact into a verdict of "ok"."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from console.checks.run import judged, named
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact
from tests.checks.driver_told import GPU, PCI, UNLOADED, box, driven
from tests.checks.needed import only
from tests.checks.told import ABSENT, DENIED

TEXTS = ("", "\x00\xff\x1b[31m" * 200, "=" * 100_000, "a: b, c/d\n" * 2000, "\n\n\n", "99999999999999999999\n")
FILES = (ABSENT, DENIED, FileFact("dir", why="permission denied"), FileFact("link", target="/x"), FileFact("char"))
VALUES: tuple[Any, ...] = (None, 7, [], {}, "text", {"box": 1, "lines": [1, {}], "host": [], "error": {"code": "x"}})
COMMANDS = (*(CommandFact(0, text) for text in TEXTS), CommandFact(1, "", "x"), CommandFact(why="too slow"))
BOXES = {
    "healthy": box(),
    "nothing loaded": box(UNLOADED),
    "nouveau": box({**UNLOADED, "/proc/modules": "nouveau 1 0 - Live 0x0\n", f"{PCI}/{GPU}/driver": driven("nouveau")}),
}


def spoiled(facts: Facts) -> Iterator[Facts]:
    """The facts with one of them spoiled, in each way."""
    for path, fact in product(facts.files, (*(FileFact("file", text, mode=0o644) for text in TEXTS), *FILES)):
        yield _with(facts, files={**facts.files, path: fact})
    for words, command in product(facts.commands, COMMANDS):
        yield _with(facts, commands={**facts.commands, words: command})
    for name, answer in product(facts.answers, (*map(AnswerFact, VALUES), AnswerFact(why="not asked"))):
        yield _with(facts, answers={**facts.answers, name: answer})


def _with(facts: Facts, **changed: Any) -> Facts:
    return Facts(
        files=changed.get("files", facts.files),
        commands=changed.get("commands", facts.commands),
        answers=changed.get("answers", facts.answers),
        variables=facts.variables,
    )


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("id_", [f"A{number:02}" for number in range(1, 23)])
def test_no_check_falls_over(id_: str, name: str) -> None:
    one = named(id_)
    for facts in spoiled(only(one.needs, BOXES[name])):
        found = judged(one, facts)
        assert "a fault of its own" not in found.text, found.text
        assert found.sign != "unknown" or found.text


@pytest.mark.parametrize("id_", [f"A{number:02}" for number in range(1, 23)])
def test_nothing_is_ok_where_nothing_could_be_read(id_: str) -> None:
    one = named(id_)
    seen = only(one.needs, box())
    blind = Facts(
        files=dict.fromkeys(seen.files, DENIED),
        commands=dict.fromkeys(seen.commands, CommandFact(why="not installed")),
        answers=dict.fromkeys(seen.answers, AnswerFact(why="not asked")),
        variables=seen.variables,
    )
    assert judged(one, blind).sign in ("unknown", "none")
