"""The recorder's minutes of the last days, read at the start and now and then: for Timeline and Why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.core.minutes import FIGURES, HEAT_LEAST, Minute, hours, same_hours
from console.tui.acting import FromThread

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

AGAIN = 120.0
"""Seconds."""
ALWAYS_ON = Path("/var/lib/gpuconsole/recordings")
"""Where the unit that `gpuconsole record --unit` prints for the whole system records to."""


class Days:
    """Owned by the app."""

    def __init__(self, app: ConsoleApp, folders: Callable[[], Sequence[Path]] | None) -> None:
        self.app = app
        self._folders = folders
        """None = nothing is read; () = not known yet."""
        self.minutes: Sequence[Minute] = ()
        """Of the seven days before now, oldest first; the same object until they were read anew."""
        self._due = 0.0
        self._reading = False

    def look(self, wall: float) -> None:
        """Called each second: reads in a thread what is there, when that is due."""
        if self._folders is None or self._reading or time.monotonic() < self._due:
            return
        folders = self._folders()
        if not folders:
            return
        self._reading = True
        threading.Thread(target=self._read, args=(tuple(folders), wall), name="days", daemon=True).start()

    def _read(self, folders: Sequence[Path], wall: float) -> None:
        from console.clients import minute_files

        minutes = minute_files.read(folders, wall)
        alike = same_hours(hours(minutes, FIGURES[0], utc=self.app.utc), HEAT_LEAST)
        self.app.post_message(FromThread(lambda: self._take(minutes, alike)))

    def _take(self, minutes: list[Minute], alike: tuple[int, ...]) -> None:
        self._reading, self._due = False, time.monotonic() + AGAIN
        if len(minutes) != len(self.minutes) or minutes[-1:] != list(self.minutes[-1:]):
            self.minutes = minutes
            self.app.store.history.heat_hours = alike
