"""External text made safe to show: literal, one line, bounded. It is never markup."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
MAX_LINE = 4000
"""Characters kept of one line; what is cut is said. A 100 000-character line must not stall a frame."""

_WHOLE = re.compile(r"-?[0-9]{1,20}")

_NAMED = {"\r": "\\r", "\x07": "\\a", "\x08": "\\b", "\x00": "\\0"}


def _visible(match: re.Match[str]) -> str:
    char = match.group()
    return _NAMED.get(char) or f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def literal(text: str) -> str:
    """Control characters and direction overrides shown as escapes, so that a terminal cannot be driven by a log line.

    Tab becomes four blanks; newline stays (see `one_line`). Lone surrogates (from undecodable bytes) become U+FFFD.
    """
    safe = _CONTROL.sub(_visible, text).replace("\t", "    ")
    return safe.encode("utf-8", "replace").decode("utf-8") if not safe.isascii() else safe


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """`literal` on one line (newlines become ` ⏎ `), cut to `limit` characters with the number cut named."""
    flat = " ⏎ ".join(part.strip() for part in text[: 4 * limit].splitlines() if part.strip())
    flat = literal(flat)
    if len(text) > 4 * limit or len(flat) > limit:
        cut = max(len(text), len(flat)) - limit
        return f"{flat[:limit]}… +{cut}"
    return flat


def decode(data: bytes) -> str:
    """UTF-8 with U+FFFD for what is not."""
    return data.decode("utf-8", "replace")


def whole_number(text: str) -> int | None:
    """The number written in a text of ASCII digits, a minus before them allowed; None for anything else.

    `int` after `isdigit` is not enough: "¹" is a digit, and more than 4300 of them are refused.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


_ASCII: dict[int, str] = str.maketrans(
    {"–": "-", "—": "-", "≠": "#", "°": " ", "µ": "u", "…": "~", "→": ">", "▲": "!", "●": "*", "✗": "x", "⏎": "/",
     "▸": ">", "≈": "~", "•": "x", "≤": "<", "≥": ">", "×": "x", "·": "-", "±": "~"}
)  # fmt: skip


def ascii_text(text: str) -> str:
    """For terminals and files without Unicode: a sign of ours in one ASCII character, so that columns stay; others'
    letters become `?`."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
