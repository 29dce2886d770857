"""Panes without a screen: what their pure functions say about a box."""

from __future__ import annotations

from console.tui.panes.base import Pane, View
from console.tui.widgets.cells import Line, cut_line, line_width, plain
from tests.fakes.boxes import Box
from tests.fakes.drawn import MONO, NOW


def view_of(box: Box, width: int = 116, height: int = 40) -> View:
    """The box at its moment, in UTC so that tests know no time zone."""
    return View(box.snapshot, box.history, NOW, MONO, width, height, utc=True)


def made(line: Line) -> str:
    """A line's text."""
    return plain(line)


def lines_of(pane: Pane, view: View) -> list[str]:
    """All rows of a pane as text, cut to its width as the frame does."""
    return [
        plain(cut_line(row.line() if callable(row.line) else row.line, view.width)).rstrip() for row in pane.lines(view)
    ]


def text_of(pane: Pane, view: View) -> str:
    """The same as one text."""
    return "\n".join(lines_of(pane, view))


def overfull(pane: Pane, view: View) -> list[str]:
    """Rows that do not fit and are cut by the frame."""
    found = []
    for row in pane.lines(view):
        line = row.line() if callable(row.line) else row.line
        if line_width(line) > view.width:
            found.append(plain(line))
    return found
