"""A bare Textual application: the reference for first paint and for the framework's own cost."""

from __future__ import annotations

import os

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

from textual.app import App, ComposeResult
from textual.widgets import Static


class Bare(App[None]):
    """One line of text."""

    def compose(self) -> ComposeResult:
        yield Static("BARE APP READY")


if __name__ == "__main__":
    Bare().run()
