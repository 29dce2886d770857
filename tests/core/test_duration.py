"""A length of time as people type it."""

from __future__ import annotations

import pytest

from console.core.duration import seconds
from console.core.plan import WrongInput


@pytest.mark.parametrize(
    ("text", "found"), [("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1.5", 1.5), ("1h", 3600.0)]
)
def test_times(text: str, found: float) -> None:
    assert seconds(text, "--x") == found


@pytest.mark.parametrize("text", ["", "s", "5sm", "5x", "inf", "nan", "1e999s", "ms5"])
def test_no_times(text: str) -> None:
    with pytest.raises(WrongInput, match="--x must be a time"):
        seconds(text, "--x")
