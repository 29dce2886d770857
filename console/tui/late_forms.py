"""What a form screen asks of `console.actions`: a form as it is opened, and what the values typed into it mean.

Imported when it is needed and in the thread that needs it: the first paint does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from console.core.session import Session

if TYPE_CHECKING:
    from console.actions.box import Box
    from console.core.form import About, Judged, Look
    from console.core.model import Snapshot


class Opened(Protocol):
    """A form that is open; what else it holds is nobody's but its own."""

    @property
    def look(self) -> Look:
        """As it was opened."""

    def judge(self, box: Any, values: Mapping[str, str]) -> Judged:
        """Asked for by way of Forms alone, which knows the box."""


class Forms(Protocol):
    """Where forms are opened and judged. Both may take a second and are called in a thread; Refused, WrongInput,
    SourceError and OSError carry one plain sentence."""

    def open(self, about: About, target: str, snapshot: Snapshot) -> Opened:
        """A form from a fresh look at the box."""

    def judge(self, form: Opened, values: Mapping[str, str], snapshot: Snapshot) -> Judged:
        """What these values (the changed ones, as typed) mean."""


class LateForms:
    """Forms over the box that a session reads; `state` is the console's folder."""

    def __init__(self, session: Session, state: Path) -> None:
        self._session = session
        self._state = state

    def open(self, about: About, target: str, snapshot: Snapshot) -> Opened:
        """See Forms."""
        from console.actions import forms

        with self._box(snapshot) as box:
            return forms.open_form(box, about, target)

    def judge(self, form: Opened, values: Mapping[str, str], snapshot: Snapshot) -> Judged:
        """See Forms."""
        with self._box(snapshot) as box:
            return form.judge(box, values)

    @contextmanager
    def _box(self, snapshot: Snapshot) -> Iterator[Box]:
        from console.actions.box import Box
        from console.core.plan import Refused

        if self._session.spec is None:
            raise Refused("nothing is read yet: try again in a second")
        box = Box(self._session.spec, self._state, snapshot=snapshot)
        try:
            yield box
        finally:
            box.close()
