"""External text is literal, one line and bounded."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from console.core.text import decode, literal, one_line


def test_escape_codes_are_shown_not_obeyed() -> None:
    assert literal("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m"
    assert literal("a\rb\x07\x00\x9b") == "a\\rb\\a\\0\\x9b"
    assert literal("a\tb") == "a    b"


def test_direction_overrides_are_shown() -> None:
    assert literal("abc\u202edef") == "abc\\u202edef"


def test_markup_stays_as_it_came() -> None:
    assert literal("[/x] 模型 ranking 已加载") == "[/x] 模型 ranking 已加载"


def test_a_long_line_is_cut_and_says_by_how_much() -> None:
    text = one_line("x" * 100_000, 100)
    assert text.startswith("x" * 100 + "… +")
    assert len(text) < 120


def test_newlines_become_visible() -> None:
    assert one_line("Traceback:\n  File 'x'\n\nValueError") == "Traceback: ⏎ File 'x' ⏎ ValueError"


def test_invalid_utf8_and_lone_surrogates_are_replaced() -> None:
    assert decode(b"ok \xff\xfe") == "ok \ufffd\ufffd"
    assert literal("a\udc80b") == "a?b"


@given(st.text(max_size=300))
def test_nothing_shown_can_drive_a_terminal(text: str) -> None:
    shown = one_line(text, 200)
    assert not any(unicodedata.category(char) == "Cc" for char in shown)
    assert len(shown) <= 220
    shown.encode("utf-8")
