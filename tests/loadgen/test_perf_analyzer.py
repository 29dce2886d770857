"""perf_analyzer's reports: what they tell is read by column, what they do not tell stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.plan import WrongInput
from console.loadgen.perf_analyzer import read_csv
from console.loadgen.record import Foreign

DATA = Path(__file__).parents[1] / "data" / "perf_analyzer"
BLANK = Foreign("perf_analyzer", 0, 1.0, "box", "ana", "rank", "", 0, 0.0, batch=2)


def test_the_plain_form() -> None:
    one, two = read_csv((DATA / "plain.csv").read_bytes(), "plain.csv", BLANK)
    assert (one.callers, one.items, one.throughput) == (1, 207.532, 103.766)
    assert (one.p50_ms, one.p90_ms, one.p95_ms, one.p99_ms, one.mean_ms) == (4.408, 6.002, 7.29, 9.463, None)
    assert (one.queue_ms, one.input_ms, one.infer_ms, one.output_ms) == (0.689, 0.013, 3.626, 0.072)
    assert (two.callers, two.requests) == (2, None)
    assert "errors" in two.unknown


def test_the_verbose_form() -> None:
    one, _ = read_csv((DATA / "verbose.csv").read_bytes(), "v", BLANK)
    assert (one.mean_ms, one.p99_ms) == (4.827, 10.39)


def test_a_percentile_of_its_own_is_passed_over() -> None:
    (one,) = read_csv((DATA / "percentile.csv").read_bytes(), "p", BLANK)
    assert one.p50_ms is not None
    assert one.mean_ms is None


def test_levels_are_sorted_and_the_servers_parts_may_be_missing() -> None:
    body = b"Concurrency,Inferences/Second,Client Send,p50 latency\n4,10,1,2000\n2,9,1,1000\n"
    found = read_csv(body, "x", BLANK)
    assert [(one.callers, one.p50_ms) for one in found] == [(2, 1.0), (4, 2.0)]
    assert all(one.queue_ms is one.p99_ms is None for one in found)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is no report of perf_analyzer"),
        (b"\x89PNG\0", "is no report of perf_analyzer"),
        (b"Concurrency,Inferences/Second,p50 latency\n", "holds no level"),
        (b"Concurrency,Inferences/Second,p50 latency\n1,x,3\n", "Inferences/Second is 'x', which is no figure"),
        (b"Concurrency,Inferences/Second,p50 latency\n1,nan,3\n", "which is no figure"),
        (b"Concurrency,Inferences/Second,p50 latency\n1,5,-3\n", "p50 latency is '-3'"),
        (b"Concurrency,Inferences/Second,p50 latency\n0,5,3\n", "a level without its concurrency"),
        (b"Concurrency,Inferences/Second,p50 latency\n1\n", "a level without its concurrency or its throughput"),
        ((DATA / "rate.csv").read_bytes(), "rate mode, which hides stalls"),
    ],
)
def test_what_is_no_report_is_one_sentence(body: bytes, said: str) -> None:
    with pytest.raises(WrongInput, match=r"^--import: the file") as raised:
        read_csv(body, "the file", BLANK)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    for body in (tail, b"Concurrency,Inferences/Second,p50 latency\n" + tail):
        try:
            found = read_csv(body, "x", BLANK)
        except WrongInput:
            continue
        assert found
