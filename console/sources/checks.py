"""The checklist as a source: a look at the whole box every few minutes, and at once after something changed.

The look itself (`ask`) is made in a process of its own: it reads some hundred files and loads what parses them, and
none of that is to stay in the console's memory or to hold up its threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from console.core.finding import Report

INTERVAL = 300.0
"""Seconds: about two seconds of one processor each, which is less than one percent."""
SETTLE = 3.0
"""Seconds between a change and the look: a container that starts changes many times in a row. Also the time that the
console's first screens have to themselves."""


class ChecksSource:
    """Reports of the checklist."""

    name = "checks"
    interval = INTERVAL

    def __init__(self, ask: Callable[[], Report]) -> None:
        self._ask = ask

    def open(self) -> None:
        """Nothing to open: the helper process starts with the first question."""

    def read(self) -> Report:
        """One look. SourceError where the helper ends or is silent."""
        time.sleep(SETTLE)
        return self._ask()

    def close(self) -> None:
        """Nothing to let go."""
