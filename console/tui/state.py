"""What the console remembers between sessions: the chosen theme. One small private file in the state directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_config_path

from console.clients.files import write_private

FILE = "tui.json"


def themes_dir() -> Path:
    """Where the operator's own themes are: `~/.config/gpuconsole/themes`."""
    return user_config_path("gpuconsole", appauthor=False) / "themes"


class State:
    """Choices, read once and written whole. A directory that cannot be written to is no error: nothing is kept then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._values = self._read()

    def get(self, name: str) -> str | None:
        """A kept choice."""
        return self._values.get(name)

    def keep(self, name: str, value: str) -> None:
        """Remember a choice for the next session."""
        self._values[name] = value
        try:
            write_private(self.folder / FILE, json.dumps(self._values, indent=1))
        except OSError:
            return

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {str(k): v for k, v in found.items() if isinstance(v, str)} if isinstance(found, Mapping) else {}
