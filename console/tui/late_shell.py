"""What `!` asks of `console.actions`: writing down that somebody enters the container, and that he has left it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from console.core.session import Session
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.actions.box import Box
    from console.core.plan import Outcome, Plan


class Entered(Protocol):
    """A shell that has been written down and may begin."""

    @property
    def argv(self) -> Sequence[str]:
        """What to run, with the terminal as it is."""


class LateShell:
    """Shells in the container that a session reads; `folder` is the console's state folder. Both methods block,
    and raise Refused, SourceError and OSError with one plain sentence."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def enter(self, plan: Plan) -> Entered:
        """Look again and write it down."""
        from console.actions import shell

        with self._box() as box:
            return shell.enter(box, plan)

    def left(self, entered: Any, code: int) -> Outcome:
        """Write down that it ended."""
        from console.actions import shell

        with self._box() as box:
            return shell.left(box, entered, code)

    @contextmanager
    def _box(self) -> Iterator[Box]:
        from console.actions.box import Box

        box = Box(*place_of(self._session, self._folder))
        try:
            yield box
        finally:
            box.close()
