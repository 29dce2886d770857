"""How a command without a screen is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def told_to_end() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set; the handlers of before are put back. Main thread only."""
    ended = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number, was in before.items():
        if was is not signal.SIG_IGN or number == signal.SIGTERM:  # nohup: a lost terminal is no end
            signal.signal(number, lambda *_: ended.set())
    try:
        yield ended
    finally:
        for number, was in before.items():
            signal.signal(number, was)
