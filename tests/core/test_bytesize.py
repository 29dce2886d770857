"""Sizes as people type them."""

from __future__ import annotations

import pytest

from console.core.bytesize import size
from console.core.plan import WrongInput


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("200MiB", 200 << 20),
        ("200M", 200 << 20),
        ("200 mb", 200 << 20),
        ("1.5GiB", 3 << 29),
        ("7", 7),
        ("8k", 8192),
        ("2TB", 2 << 40),
    ],
)
def test_sizes(text: str, wanted: int) -> None:
    assert size(text, "--limit") == wanted


@pytest.mark.parametrize("text", ["", "x", "-1M", "1.M", "1e9", "5Q", "1 2M", "MiB", "9" * 20, "1M\n2", "\x1b[31m"])
def test_what_is_no_size_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(WrongInput, match=r"--limit must be a size such as 200MiB") as told:
        size(text, "--limit")
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)
