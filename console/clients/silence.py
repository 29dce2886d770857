"""Until when alerts ring and call nobody: a file in the state folder, so that every gpuconsole of the user knows it."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from console.clients.files import write_private

FILE = "alerts-silent-until"


def until(folder: Path) -> float:
    """Unix seconds; 0 where nothing is kept or it cannot be read: then alerts are told."""
    try:
        found = float((folder / FILE).read_text(encoding="ascii")[:40])
    except (OSError, ValueError):
        return 0.0
    return found if isfinite(found) else 0.0


def keep(folder: Path, wall: float) -> None:
    """Be silent until then; 0 ends a silence. OSError when that fails."""
    write_private(folder / FILE, f"{wall:.0f}\n")
