"""Text measured in terminal cells: cut, padded, aligned. East-Asian wide characters take two cells, ambiguous ones one
(where the terminal draws them in two, the ASCII forms are used instead: see signs.py)."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

Segment = tuple[str, str]
"""Literal text and the name of its style (see theme.py)."""
Line = tuple[Segment, ...]
"""One line of a pane, from left to right."""

CUT = "…"


def width(text: str) -> int:
    """Cells that `text` takes."""
    return cell_len(text)


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells` cells; what is cut off shows as `…`."""
    if cells <= 0:
        return ""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + CUT if cells > 1 else CUT


def left(text: str, cells: int) -> str:
    """Exactly `cells` cells, text at the left."""
    text = cut(text, cells)
    return text + " " * (cells - cell_len(text))


def right(text: str, cells: int) -> str:
    """Exactly `cells` cells, text at the right."""
    text = cut(text, cells)
    return " " * (cells - cell_len(text)) + text


def line_width(line: Line) -> int:
    """Cells that a line takes."""
    return sum(cell_len(text) for text, _ in line)


def plain(line: Line) -> str:
    """The text of a line without its styles."""
    return "".join(text for text, _ in line)


def cut_line(line: Line, cells: int) -> Line:
    """The line in at most `cells` cells, its styles kept; what is cut off shows as `…`."""
    if line_width(line) <= cells:
        return line
    kept: list[Segment] = []
    room = cells
    for text, style in line:
        needed = cell_len(text)
        if needed < room:
            kept.append((text, style))
            room -= needed
            continue
        kept.append((cut(text + " ", room) if needed == room else cut(text, room), style))
        break
    return tuple(kept)


def between(start: Line, end: Line, cells: int) -> Line:
    """`start` at the left and `end` at the right of `cells` cells; `start` gives way where both do not fit."""
    room = max(0, cells - line_width(end))
    start = cut_line(start, room)
    return (*start, (" " * (room - line_width(start)), ""), *end)
