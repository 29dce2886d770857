"""Small pieces that several panes word in the same way: a label with its text, wrapped text, readings that failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len, set_cell_size

from console.core import units
from console.core.model import Asked, Failure, Reading, Sign
from console.core.text import one_line
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Segment, left
from console.tui.widgets.lines import Row

LABEL = 11
"""Cells of the label column of details."""


def sign(value: Sign) -> Segment:
    """The sign in its style."""
    return SIGNS[value], SIGN_STYLES[value]


def asked(answer: Asked) -> tuple[Sign, str]:
    """What came of a question, and how it stands to the kept answer."""
    if answer.ok is None:
        return "unknown", "not asked"
    if not answer.ok:
        return "fail", "no good answer"
    if answer.compared:
        return "fail", "differs"
    return "ok", "answered" if answer.compared is None else "as kept"


def labelled(label: str, *segments: Segment, cells: int = LABEL) -> Row:
    """A line of details: the label, then what it is about."""
    return Row(((left(label, cells), "label"), *segments))


def wrapped(text: str, cells: int, *, most: int = 40) -> list[str]:
    """`text` in lines of at most `cells` terminal cells, broken at blanks where there are any; at most `most` lines."""
    cells = max(1, cells)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph
        while cell_len(rest) > cells and len(lines) < most:
            piece = _head(rest, cells)
            lines.append(piece.rstrip())
            rest = rest[len(piece) :].lstrip(" ")
        lines.append(rest)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], "…"]


def _head(text: str, cells: int) -> str:
    """The longest start of `text` that fits; ends at a blank where the last fourth of the room has one."""
    end = len(set_cell_size(text[:cells], cells).rstrip()) or 1
    piece = text[:end]
    while cell_len(piece) > cells and len(piece) > 1:
        piece = piece[:-1]
    if len(piece) < len(text) and text[len(piece)] != " ":
        blank = piece.rfind(" ")
        if blank >= len(piece) * 3 // 4:
            piece = piece[: blank + 1]
    return piece


def paragraph(label: str, text: str, width: int, style: str = "", *, most: int = 40, cells: int = LABEL) -> list[Row]:
    """A label with text over as many lines as it takes."""
    lines = wrapped(text, width - cells, most=most)
    return [labelled(label if not number else "", (line, style), cells=cells) for number, line in enumerate(lines)]


def long_age(seconds: float) -> str:
    """`5 weeks`, `2 days`, `40 m`: for what is looked at once in a while."""
    days = seconds / 86400
    if days >= 14:
        return f"{days / 7:.0f} weeks"
    return f"{days:.0f} days" if days >= 2 else units.age(seconds)


def failed(failure: Failure, width: int, value: Sign = "unknown") -> list[Row]:
    """Why something could not be read, and what to do about it."""
    made = []
    for number, line in enumerate(wrapped(one_line(failure.message), width - 2, most=4)):
        made.append(Row((sign(value) if not number else (" ", ""), (f" {line}", ""))))
    if failure.hint:
        made += [Row(((f"  {line}", "dim"),)) for line in wrapped(one_line(failure.hint), width - 2, most=2)]
    return made


def not_read(name: str, readings: Iterable[Reading[Any]], width: int) -> list[Row]:
    """Lines for a pane whose source gave nothing: its error, or that it was not read yet."""
    for reading in readings:
        if reading.error is not None:
            return failed(reading.error, width)
    return [Row(((f"… {name}: not read yet", "dim"),))]
