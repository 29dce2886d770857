"""What Tune asks of `console.actions` about one model: how it batches, and what the server's rules say to a form.

Both are imported when they are needed: the first paint does not wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from console.clients.aside import Aside
from console.core.session import Session
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.actions.batching_look import Current, Validated
    from console.core.model import Snapshot


class LateTuner:
    """Looks at the box that a session reads; `folder` is the console's state folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._aside = Aside()

    def current(self, model: str, snapshot: Snapshot) -> Current:
        """Live and disk values of every field, from a fresh look of about half a second. Raises Refused, WrongInput,
        SourceError, OSError."""
        where = place_of(self._session, self._folder)
        now: Current = self._aside.call("console.actions.looks", "batching", *where, snapshot, model)
        return now

    def validate(self, now: Current, values: Mapping[str, str]) -> Validated:
        """What the server's rules say to these values; looks at nothing, so the UI thread may ask."""
        from console.actions import batching_look

        return batching_look.validate(now, values)
