"""What a form screen asks of `console.actions`: a form as it is opened, and what the values typed into it mean.

Done in a helper process (clients/aside.py), so that the console does not keep what it takes to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from console.clients.aside import Aside
from console.core.session import Session
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.core.form import About, Judged, Look
    from console.core.model import Snapshot


FORMS = "console.actions.forms"


class Opened(Protocol):
    """A form that is open; what else it holds is nobody's but the forms' own."""

    @property
    def look(self) -> Look:
        """As it was opened."""


class Forms(Protocol):
    """Where forms are opened and judged. Both may take a second and are called in a thread; Refused, WrongInput,
    SourceError and OSError carry one plain sentence."""

    def open(self, about: About, target: str, snapshot: Snapshot) -> Opened:
        """A form from a fresh look at the box."""

    def judge(self, form: Any, values: Mapping[str, str], snapshot: Snapshot) -> Judged:
        """What these values (the changed ones, as typed) mean in a form that `open` gave."""


@dataclass(frozen=True)
class LateOpened:
    """See Opened."""

    look: Look
    kept: bytes
    """What `console.actions.forms` made of it; holds secrets."""


class LateForms:
    """Forms over the box that a session reads; `folder` is the console's state folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._aside = Aside()

    def open(self, about: About, target: str, snapshot: Snapshot) -> LateOpened:
        """See Forms."""
        return LateOpened(
            *self._aside.call(FORMS, "opened", *place_of(self._session, self._folder), snapshot, about, target)
        )

    def judge(self, form: LateOpened, values: Mapping[str, str], snapshot: Snapshot) -> Judged:
        """See Forms."""
        judged: Judged = self._aside.call(
            FORMS, "judged", *place_of(self._session, self._folder), snapshot, form.kept, dict(values)
        )
        return judged
