"""The signs of the product and their ASCII forms, cell for cell, so that a drawing keeps its columns in every form.

Panes write the Unicode signs; the one place that makes strips (widgets/lines.py) maps them. A terminal in a Chinese
locale may draw the East-Asian ambiguous ones (most of these) in two cells: then, too, the ASCII forms are used.
"""

from __future__ import annotations

import unicodedata
from enum import Enum

from rich.cells import cell_len

from console.core.sign import SIGNS as SIGNS
from console.core.sign import Sign

SIGN_STYLES: dict[Sign, str] = {
    "fail": "fail",
    "warn": "warn",
    "unknown": "unknown",
    "ok": "ok",
    "note": "note",
    "none": "dim",
}

_FRAMES = dict.fromkeys("┌┐└┘├┤┬┴┼", "+") | {"─": "-", "│": "|"}
_BARS = {"█": "#", "▓": "=", "▒": "%", "░": "."}
_LEVELS = dict(zip("▁▂▃▄▅▆▇", "_.,-=+*", strict=True))
_EIGHTHS = dict(zip("▏▎▍▌▋▊▉", "..:::##", strict=True))
_OTHERS = {
    "●": "o",
    "○": "o",
    "▲": "!",
    "✗": "x",
    "▸": ">",
    "▾": "v",
    "–": "-",
    "—": "-",
    "−": "-",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "°": " ",
    "µ": "u",
    "≈": "~",
    "≠": "#",
    "≤": "<",
    "≥": ">",
    "±": "~",
    "×": "x",
    "·": ".",
    "•": "*",
    "…": ".",
    "⏎": "/",
    "’": "'",
    "“": '"',
    "”": '"',
}


class Charset(Enum):
    """What the terminal can show."""

    UNICODE = "unicode"
    NARROW = "narrow"
    """UTF-8, but ambiguous characters take two cells: those have their ASCII forms, CJK text stays."""
    CONSOLE = "console"
    """The Linux console's font: frames and shaded blocks exist, signs and eighth blocks do not."""
    ASCII = "ascii"


_TABLES = {
    Charset.NARROW: _FRAMES | _BARS | _LEVELS | _EIGHTHS | _OTHERS,
    Charset.ASCII: _FRAMES | _BARS | _LEVELS | _EIGHTHS | _OTHERS,
    Charset.CONSOLE: _LEVELS | _EIGHTHS | _OTHERS,
}
_KEPT_BY_CONSOLE = frozenset(_FRAMES) | frozenset(_BARS)


def encode(text: str, charset: Charset) -> str:
    """`text` in the characters that the terminal can show, in as many cells as before."""
    if charset is Charset.UNICODE or text.isascii():
        return text
    table = _TABLES[charset]
    return "".join(char if char.isascii() else table.get(char) or _other(char, charset) for char in text)


def _other(char: str, charset: Charset) -> str:
    """External text: kept where it can be shown, else one `?` for each cell."""
    if charset is Charset.NARROW and unicodedata.east_asian_width(char) != "A":
        return char
    if charset is Charset.CONSOLE and char in _KEPT_BY_CONSOLE:
        return char
    return "?" * cell_len(char)
