"""Links findings to root causes: one verdict on top, what follows from it folded below."""

from __future__ import annotations

from collections.abc import Sequence

from console.core.facts import Facts
from console.core.finding import Cause, Finding


def causes(facts: Facts, findings: Sequence[Finding]) -> tuple[Cause, ...]:
    """The causes, weightiest first."""
    return ()
