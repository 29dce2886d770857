"""Facts made by hand, for the tests of single checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.core.facts import AnswerFact, CommandFact, Facts, FileFact, SpaceFact

ABSENT = FileFact("absent")
DENIED = FileFact("unknown", why="permission denied")


def folder(*names: str) -> FileFact:
    """A folder with these names."""
    return FileFact("dir", mode=0o755, uid=0, gid=0, names=names)


def told(
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    spaces: Mapping[str, SpaceFact] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
) -> Facts:
    """Texts stand for plain files and programs that ended well; an answer may be an AnswerFact with its reason."""
    return Facts(
        files={
            path: FileFact("file", one, mode=0o644, uid=0, gid=0, size=len(one)) if isinstance(one, str) else one
            for path, one in (files or {}).items()
        },
        commands={
            words: CommandFact(0, one) if isinstance(one, str) else one for words, one in (commands or {}).items()
        },
        answers={
            name: one if isinstance(one, AnswerFact) else AnswerFact(one) for name, one in (answers or {}).items()
        },
        spaces=spaces or {},
        variables=variables or {},
    )
