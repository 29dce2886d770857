"""Where exactly a text is cut, and which characters are named how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.text import MAX_LINE, decode, literal, one_line, whole_number


@pytest.mark.parametrize(
    ("char", "shown"),
    [
        ("\x00", "\\0"),
        ("\x07", "\\a"),
        ("\x08", "\\b"),
        ("\r", "\\r"),
        ("\x1b", "\\x1b"),
        ("\x01", "\\x01"),
        ("\x7f", "\\x7f"),
        ("\x9f", "\\x9f"),
        ("\u2028", "\\u2028"),
        ("\u202a", "\\u202a"),
        ("\u2069", "\\u2069"),
        ("\ufeff", "\\ufeff"),
        ("\n", "\n"),
        ("\t", "    "),
        ("\xa0", "\xa0"),
    ],
)
def test_how_each_control_character_is_shown(char: str, shown: str) -> None:
    assert literal(f"a{char}b") == f"a{shown}b"


def test_a_line_of_the_limit_stays_whole() -> None:
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("x" * 11, 10) == "x" * 10 + "… +1"
    assert one_line("x" * 40, 10) == "x" * 10 + "… +30"
    assert one_line("x" * 100, 10) == "x" * 10 + "… +90"


def test_what_grew_by_escapes_is_cut_by_what_is_shown() -> None:
    assert one_line("\x1b" * 5, 10) == "\\x1b\\x1b\\x… +10"


def test_blanks_that_fold_do_not_count_as_cut() -> None:
    assert one_line("ab" + "\n" * 38, 10) == "ab"
    assert one_line("ab" + "\n" * 39, 10) == "ab… +31"


def test_the_usual_limit() -> None:
    assert MAX_LINE == 4000
    assert one_line("x" * 4000) == "x" * 4000
    assert one_line("x" * 4001).endswith("… +1")


@given(st.binary(max_size=60))
def test_any_bytes_decode(data: bytes) -> None:
    text = decode(data)
    assert "\ufffd" in text or text.encode() == data


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("-5", -5), ("9" * 20, int("9" * 20)), ("9" * 21, None), ("9" * 5000, None)]
    + [(text, None) for text in ("", "-", "--5", "+5", "5.0", " 5", "5\n", "¹", "٥", "0x5")],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@given(st.text(max_size=12) | st.integers().map(str))
def test_any_text_is_a_number_or_none(text: str) -> None:
    number = whole_number(text)
    assert number is None or -(10**20) < number < 10**20
