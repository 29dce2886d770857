"""What threads tell the app. They only ever `post_message`; the UI thread alone touches widgets and the Store."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from textual.message import Message

from console.core.model import Asked, LogLine, Reading

MAX_WAITING = 5000
"""Log lines and events that may wait for the UI thread; beyond this the oldest are dropped and counted."""
MAX_LOG_LINES = 10_000
TOO_FAST = "log lines and events that came too fast"
"""What is counted in `Gaps.dropped` of those."""


class ReadingArrived(Message, bubble=False):
    """A source was read. A newer Reading of the same part replaces one that still waits."""

    def __init__(self, reading: Reading[Any]) -> None:
        super().__init__()
        self.reading = reading

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ReadingArrived) and message.reading.part == self.reading.part


class ItemsWaiting(Message, bubble=False):
    """The Inbox holds log lines or events."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ItemsWaiting)


class AskEnded(Message, bubble=False):
    """A model was asked once."""

    def __init__(self, answer: Asked) -> None:
        super().__init__()
        self.answer = answer


class Inbox:
    """A bounded queue between the streams' threads and the UI thread."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._items: deque[Any] = deque()
        self._limit = limit
        self._lock = threading.Lock()
        self.dropped = 0
        """Items thrown away because the UI thread did not keep up."""

    def put(self, item: Any) -> bool:
        """Add one; True when the Inbox was empty, so that its owner must be told."""
        with self._lock:
            first = not self._items
            if len(self._items) >= self._limit:
                self._items.popleft()
                self.dropped += 1
            self._items.append(item)
            return first

    def take(self) -> list[Any]:
        """All items so far, oldest first."""
        with self._lock:
            items = list(self._items)
            self._items.clear()
        return items


class LogBuffer:
    """The newest lines of the container's log. `count` tells followers how many ever came."""

    def __init__(self, limit: int = MAX_LOG_LINES) -> None:
        self.lines: deque[LogLine] = deque(maxlen=limit)
        self.count = 0

    def add(self, line: LogLine) -> None:
        """Append one; the oldest goes when the buffer is full."""
        self.lines.append(line)
        self.count += 1
