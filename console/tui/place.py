"""Where changes of the box that a session reads are made: its spec, and its folder for journals and audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.core.session import Session

if TYPE_CHECKING:
    from console.actions.box import BoxSpec


def place_of(session: Session, folder: Path) -> tuple[BoxSpec, Path]:
    """`folder` is the console's state folder. Refused while the session is still being made."""
    from console.core.plan import Refused

    spec: BoxSpec | None = session.spec
    if spec is None:
        raise Refused("nothing is read yet: try again in a second")
    return spec, spec.state_in(folder)
