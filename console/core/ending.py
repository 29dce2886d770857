"""How a command without a screen is told to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Ended:
    """Whether a signal told us to end. A plain flag: a handler may interrupt whoever holds the lock of an Event."""

    told = False

    def tell(self, number: int, frame: object) -> None:
        """The handler."""
        self.told = True


@contextmanager
def told_to_end() -> Iterator[Ended]:
    """Set by SIGTERM, SIGINT and SIGHUP; the handlers of before are put back. Main thread only."""
    ended = Ended()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number, was in before.items():
        if was is not signal.SIG_IGN or number == signal.SIGTERM:  # nohup: a lost terminal is no end
            signal.signal(number, ended.tell)
    try:
        yield ended
    finally:
        for number, was in before.items():
            signal.signal(number, was)
