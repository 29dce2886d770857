"""What a proposer is: a small pure function from a verdict to what may help against it, registered for its ids.

A file in this folder adds proposers by decorating functions with `proposes`; why.py finds the files by themselves. What
a proposal of batching would come to is another question, and a dear one: planning/effect.py asks the batcher model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType

from msgspec import Struct

from console.advisors.figures import Figures
from console.advisors.rule import Look
from console.core.model import Proposal, Verdict

Proposer = Callable[[Look, Verdict, Figures | None], Iterator[Proposal]]
"""The figures are the model's, for verdicts about one."""
_MARK = "__why_proposals__"


class _For(Struct, frozen=True):
    verdicts: tuple[str, ...]
    proposer: Proposer


def proposes(*verdicts: str) -> Callable[[Proposer], Proposer]:
    """Register what may help against these verdicts."""

    def mark(function: Proposer) -> Proposer:
        setattr(function, _MARK, _For(verdicts, function))
        return function

    return mark


def proposers_of(modules: Sequence[ModuleType]) -> Mapping[str, tuple[Proposer, ...]]:
    """Verdict -> its proposers, in the order of files and of functions in them."""
    found: dict[str, list[Proposer]] = {}
    for module in modules:
        for value in vars(module).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, _For) and getattr(value, "__module__", None) == module.__name__:
                for verdict in one.verdicts:
                    found.setdefault(verdict, []).append(one.proposer)
    return {verdict: tuple(proposers) for verdict, proposers in found.items()}
