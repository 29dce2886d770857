"""A gap as the journal and the outcome tell it."""

from __future__ import annotations

import pytest

from console.core.gap import Gap, clock_words, figure_words, gaps, refused_words
from console.core.plan import JournalLine

AT = 1_783_144_832.0
"""06:00:32 UTC."""
SEEN = "404 Request for unknown model: 'lm' has no available versions"


def kept(phase: str = "gap", **data: str) -> JournalLine:
    return JournalLine(AT, "kept", phase, data=data)


BEGIN = kept(gap_began=str(AT), gap_ended="", gap_drains="no")
RATE = kept(gap_rate="41", gap_rate_unknown="")


def test_a_gap_that_begins_and_ends() -> None:
    lines = (RATE, kept(spec="x"), BEGIN, kept(gap_seen=SEEN, gap_seen_wall=str(AT + 2)))
    assert gaps(lines) == (Gap("gap", AT, None, 41.0, "", False, SEEN, AT + 2),)
    (over,) = gaps((*lines, kept("load", gap_ended=str(AT + 39))))
    assert (over.ended, over.seconds(AT + 500)) == (AT + 39, 39.0)


def test_a_second_one_where_the_change_goes_back() -> None:
    again = kept("back", gap_began=str(AT + 50), gap_ended="")
    first, second = gaps((RATE, BEGIN, kept(gap_ended=str(AT + 39)), again))
    assert (first.ended, second.phase, second.ended, second.rate) == (AT + 39, "back", None, 41.0)
    assert second.seconds(AT + 53) == 3.0


def test_other_lines_tell_of_none() -> None:
    assert gaps((RATE, JournalLine(AT, "note", data={"gap_began": str(AT)}), kept(gap_ended="5"))) == ()


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e999", "2026-07-04"])
def test_what_is_no_time_tells_of_none(text: str) -> None:
    assert gaps((kept(gap_began=text),)) == ()


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    assert Gap("gap", AT).seconds(AT - 100) == 0.0


def test_since_when() -> None:
    gap = Gap("gap", AT)
    assert clock_words(gap, 38.0, AT + 29.4, utc=True) == "GAP since 06:00:32, 0:29 of ≈ 0:38"
    assert clock_words(gap, None, AT + 61, utc=True) == "GAP since 06:00:32, 1:01"
    over = Gap("gap", AT, AT + 39)
    assert clock_words(over, 38.0, AT + 500, utc=True) == "gap 06:00:32 to 06:01:11, 0:39 of ≈ 0:38"


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (Gap("gap", AT, rate=41.0), "refused so far: ≈ 1 190 requests, reckoned from 41/s before"),
        (
            Gap("gap", AT, rate=41.0, seen=SEEN, seen_wall=AT + 2),
            f"refused so far: ≈ 1 190 requests, reckoned from 41/s before; our own, 06:00:34: {SEEN}",
        ),
        (
            Gap("stop", AT, rate=41.0, drains=True),
            "refused so far: at most ≈ 1 190 requests, reckoned from 41/s before; "
            "kept connections are answered until they close",
        ),
        (Gap("gap", AT, rate=0.0), "refused so far: no requests, reckoned from 0/s before"),
        (Gap("gap", AT, rate=1 / 29), "refused so far: ≈ 1 request, reckoned from 0.0/s before"),
        (
            Gap("gap", AT, rate_unknown="statistics: 400: off"),
            "refused so far: not known, as the requests before it were not counted (statistics: 400: off)",
        ),
    ],
)
def test_what_was_refused_is_reckoned_and_says_from_what(gap: Gap, said: str) -> None:
    assert refused_words(gap, AT + 29, utc=True) == said


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, ""),
        ({"load_s": 3.0, "gap_plan_s": 38.0}, ""),
        ({"gap_s": 39.2}, "gap 39 s"),
        (
            {"gap_s": 39.0, "gap_plan_s": 38.0, "gap_rate": 41.0},
            "gap 39 s (plan 38), ≈ 1 600 requests fell into it (41/s before)",
        ),
        (
            {"gap_s": 2.31, "gap_plan_s": 2.0, "gap_rate": 0.0},
            "gap 2.3 s (plan 2.0), no requests fell into it (0/s before)",
        ),
    ],
)
def test_of_an_outcome(figures: dict[str, float], said: str) -> None:
    assert figure_words(figures) == said
