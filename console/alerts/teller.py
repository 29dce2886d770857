"""Which alerts are told beyond the screen (bell, desktop, hook): each once, not while silent, none again and again."""

from __future__ import annotations

from collections.abc import Iterable

from console.alerts.engine import Alert, Changed, Key

AGAIN_S = 600.0
"""A cause that was told is told anew only so long after: one that comes and goes rings twice in that time, not more."""


class Teller:
    """Compares what stands with what was told."""

    def __init__(self) -> None:
        self._told: dict[Key, Alert] = {}
        self._told_at: dict[Key, float] = {}

    def news(self, active: Iterable[Alert], mono: float, *, silent: bool) -> Changed:
        """What is to be told now. What began while it was silent is told when the silence is over, if it still
        stands; an end is told of what was told only."""
        stands = {one.key: one for one in active}
        if silent:
            return Changed()
        ended = tuple(one for key, one in self._told.items() if key not in stands)
        for one in ended:
            del self._told[one.key]
        self._told_at = {key: at for key, at in self._told_at.items() if mono - at < AGAIN_S or key in self._told}
        began = tuple(one for key, one in stands.items() if key not in self._told and key not in self._told_at)
        for one in began:
            self._told[one.key], self._told_at[one.key] = one, mono
        return Changed(began, ended)
