"""Problems names where each verdict comes from in the verdict's own words."""

from __future__ import annotations

import pytest

from console.core.model import Verdict
from console.tui.panes.problems import _origin


@pytest.mark.parametrize(
    ("source", "subject", "told"),
    [
        ("index, health", "model", "index, health"),
        ("/v2/models/stats 14:04:01 and 14:04:31, batch_stats of ranking 2", "model", "statistics"),
        ("", "gpu", "NVML"),
        ("", "", "why"),
        ("a\x1b[31m\nb", "model", "a\\x1b[31m ⏎ b"),
    ],
)
def test_where_a_problem_comes_from(source: str, subject: str, told: str) -> None:
    assert _origin(Verdict("V04", "fail", "x", source=source, subject=subject)) == told
