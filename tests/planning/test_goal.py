"""When a goal counts as broken: long enough, by more than one stall, and never by what was not seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from console.planning.goal import Goal, GoalWatch, Seen


def broken(goal: Goal, looks: Sequence[Seen], usual: float = 0.0) -> tuple[int, str]:
    """After how many looks it is broken, and why; (0, "") = never."""
    watch = GoalWatch(goal, usual)
    for number, one in enumerate(looks, start=1):
        watch.add(one)
        if why := watch.broken():
            return number, why
    return 0, ""


def looks(*means: float | None, requests: int = 10) -> list[Seen]:
    """A second each."""
    return [Seen(1.0, 0 if mean is None else requests, 0, mean) for mean in means]


MEAN = Goal(mean_ms=5.0, broken_for=3.0)


@pytest.mark.parametrize(
    ("goal", "seen", "number", "words"),
    [
        (MEAN, looks(6, 6, 6, 6), 3, "the mean was 6.00 ms over 3 s, above 5 ms"),
        (MEAN, looks(4, 4, 6, 6, 6), 4, "above 5 ms"),
        (MEAN, looks(4, 4, 4, 40, 4, 4, 4), 0, ""),
        (MEAN, looks(4, 5, 5, 4), 0, ""),
        (MEAN, looks(None, None, None, None), 0, ""),
        (MEAN, looks(6, None, None, 6), 3, "above 5 ms"),
        (Goal(), looks(900, 900, 900, 900), 0, ""),
        (Goal(), [Seen(1.0, 10, 1, 2.0)], 1, "a request failed"),
        (Goal(max_errors=3), [Seen(1.0, 10, 2, 2.0)] * 3, 2, "4 requests failed"),
        (Goal(broken_for=3.0), [Seen(1.0, answered=False)] * 4, 3, "statistics did not answer for 3 s"),
        (Goal(broken_for=3.0), [*[Seen(1.0, answered=False)] * 2, *looks(1, 1, 1)], 0, ""),
        (Goal(p99_ms=9, broken_for=3.0), [Seen(1.0, 10, 0, 2.0, 12.0)] * 4, 3, "p99 was above 9 ms for 3 s"),
        (Goal(p99_ms=9, broken_for=3.0), [Seen(1.0, 10, 0, 2.0, p99) for p99 in (12, 12, 8, 12, 12)], 0, ""),
        (Goal(p99_ms=9, broken_for=3.0), looks(20, 20, 20, 20), 0, ""),
    ],
)
def test_broken(goal: Goal, seen: Sequence[Seen], number: int, words: str) -> None:
    found = broken(goal, seen)
    assert found[0] == number
    assert words in found[1]


def test_silence_counts_only_where_requests_usually_come() -> None:
    assert broken(MEAN, looks(None, None, None), usual=100.0) == (3, "none of about 300 requests was answered")
    assert broken(MEAN, looks(None, None, None), usual=1.0) == (0, "")


def test_it_is_told_in_words() -> None:
    assert MEAN.text == "mean ≤ 5 ms, no errors"
    assert Goal(p99_ms=7.5, max_errors=2).text == "p99 ≤ 7.5 ms, errors ≤ 2"
    watch = GoalWatch(MEAN)
    assert watch.trouble() == ""
    watch.add(looks(6)[0])
    assert watch.trouble() == "mean above the goal"
