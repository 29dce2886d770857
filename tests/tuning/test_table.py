"""Which trial is the best, and how a person reads them."""

from __future__ import annotations

from msgspec.structs import replace

from console.tuning.table import Trial, best, lines

START = Trial("delay 2000", {"delay_us": "2000"}, None, 400.0, 20.0, 40.0, 4.0, 4000, what="start")
FAST = Trial("delay 0", {"delay_us": "0"}, 520.0, 500.0, 15.0, 45.0, 3.0, 5000)
EQUAL = Trial("delay 100", {"delay_us": "100"}, 515.0, 495.0, 12.0, 30.0, 3.0, 4950)
LEFT = Trial("4 inst", {"instances": "4"}, 900.0, left_out="not tried: needs 6.0 GiB more, free 2.0 GiB")


def test_the_best_by_each_objective() -> None:
    trials = [START, FAST, EQUAL, LEFT]
    assert best(trials, "throughput") is EQUAL, "of equal throughput the faster one"
    assert best(trials, "p99") is EQUAL
    assert best([START, replace(FAST, rate=600.0), EQUAL], "throughput") == replace(FAST, rate=600.0)
    assert best([LEFT], "throughput") is None


def test_a_goal_leaves_out_what_breaks_it() -> None:
    assert best([START, FAST], "throughput", 41.0) is START
    assert best([START, FAST], "throughput", 10.0) is None
    assert best([replace(FAST, p99_ms=None)], "throughput", 50.0) is None


def test_figures_of_a_trial_that_does_not_count_are_shown_and_not_chosen() -> None:
    ended = replace(FAST, left_out="requests failed", failed=3)
    assert best([START, ended], "throughput") is START
    told = "\n".join(lines([START, ended, LEFT], START, "throughput"))
    assert "* delay 2000 (start)" in told
    assert "520 req/s" in told
    assert "3  requests failed" in told
    assert "not tried: needs 6.0 GiB more" in told
