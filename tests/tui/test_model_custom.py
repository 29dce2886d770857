"""What models tell beside Triton's own counters: percentiles with their source, the cache, tokens, families."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.core.histograms import Estimate
from console.core.model import (
    CustomFamily,
    CustomSample,
    Histogram,
    ModelKey,
    ModelMetrics,
    ModelRow,
    Quantile,
    TritonMetrics,
)
from console.tui.panes import model_work
from console.tui.panes.model_custom import MOST, custom
from console.tui.panes.percentiles import figure, listed, tail, worded
from console.tui.widgets.cells import line_width, plain
from console.tui.widgets.lines import Row
from tests.fakes.boxes import drawn_box

KEY = ModelKey("ranking", "2")
RANKING = next(row for row in drawn_box().snapshot.models if row.key == KEY)
LLM = "vllm:generation_tokens_total"


def text(rows: list[Row]) -> list[str]:
    return [plain(row.line() if callable(row.line) else row.line).rstrip() for row in rows]


def sample(value: float, model: ModelKey | None = KEY, rate: float | None = None, **labels: str) -> CustomSample:
    named = {"model": model.name, "version": model.version} if model else {}
    return CustomSample("", value, model, (*named.items(), *labels.items()), rate)


def family(name: str, *samples: CustomSample, kind: str = "gauge") -> CustomFamily:
    return CustomFamily(name, kind, samples)


def told(*counts: float, name: str = "f_ms", span: float = 60.0, model: ModelKey | None = KEY) -> Histogram:
    return Histogram(name, model, "", span, (10.0, 50.0), counts)


def rows_of(*families: CustomFamily, histograms: tuple[Histogram, ...] = (), cells: int = 72) -> list[str]:
    page = TritonMetrics("x", custom=families, histograms=histograms)
    return text(custom(RANKING, page, cells))


def with_metrics(**settings: Any) -> ModelRow:
    return replace(RANKING, metrics=ModelMetrics(KEY, **settings))


# --------------------------------------------------------------------------------------------------------- percentiles


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (None, "–"),
        (Estimate(87.26, 100.0, 50.0), "≈ 87.3 (≤ 100)"),
        (Estimate(None, 100.0, None), "≤ 100"),
        (Estimate(None, None, 5000.0), "> 5 000"),
    ],
)
def test_a_percentile_says_how_it_is_known(estimate: Estimate | None, words: str) -> None:
    assert worded(estimate) == words


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.04213, "0.0421"), (87.26, "87.3"), (12345.6, "12 346"), (3.0, "3"), (float("nan"), "nan"), (0.0, "0")],
)
def test_figures(value: float, shown: str) -> None:
    assert figure(value) == shown


@given(st.floats())
def test_any_value_has_a_short_figure(value: float) -> None:
    assert figure(value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "–"),
        ({"request_summary": (Quantile(0.5, 1.0),)}, "–"),
        ({"request_summary": (Quantile(0.99, 10.84),), "first_response": told(0, 200, 0)}, "10.8 ms (summary)"),
        ({"first_response": told(0, 200, 0)}, "≈ 49.6 ms (histogram, ≤ 50)"),
        ({"first_response": told(200, 0, 0)}, "≤ 10 ms (histogram)"),
        ({"first_response": told(0, 100, 9)}, "> 50 ms (histogram)"),
        ({"first_response": told(0, 20, 0)}, "–"),
    ],
)
def test_the_tail_names_its_source(settings: dict[str, Any], words: str) -> None:
    assert tail(with_metrics(**settings)) == words
    assert tail(replace(RANKING, metrics=None)) == "–"


def test_listed_percentiles() -> None:
    assert listed(told(0, 30, 0)) == ("p50 ≈ 30 (≤ 50)", "p95 ≈ 48 (≤ 50)", "p99 –")
    assert listed(told(0, 0, 0)) == ()


def test_details_tell_both_sources() -> None:
    row = with_metrics(request_summary=(Quantile(0.5, 1.02), Quantile(0.99, 2.6)), first_response=told(0, 300, 0))
    assert text(model_work.tail(row, 72)) == [
        "TAIL  60 s p50 1.02   p99 2.60",
        "           ms, from the server's summary of requests",
        "           p50 ≈ 30 (≤ 50)   p95 ≈ 48 (≤ 50)   p99 ≈ 49.6 (≤ 50)",
        "           ms, from histogram, ≤ bucket: 300 first responses in 60 s",
    ]


def test_a_histogram_that_is_too_coarse_says_what_would_help() -> None:
    lines = text(model_work.tail(with_metrics(first_response=told(200, 0, 0)), 72))
    assert lines[0] == "TAIL  60 s p50 ≤ 10   p95 ≤ 10   p99 ≤ 10"
    assert "model_metrics in config.pbtxt" in lines[2]


def test_a_histogram_without_a_response_claims_nothing() -> None:
    (line,) = text(model_work.tail(with_metrics(first_response=told(0, 0, 0, span=0.0)), 72))
    assert line == "TAIL       – no response in the histogram's window yet"
    assert model_work.tail(with_metrics(), 72) == []
    assert model_work.tail(replace(RANKING, metrics=None), 72) == []


# --------------------------------------------------------------------------------------------------------------- cache


def cached(hits: int, misses: int, all_hits: int = 0, all_misses: int = 0, on: bool = True) -> list[str]:
    flow, config = RANKING.flow, RANKING.config
    assert flow is not None
    assert flow.w10 is not None
    assert config is not None
    stats = replace(flow.stats, cache_hit_count=all_hits, cache_hit_ns=all_hits * 20_000, cache_miss_count=all_misses)
    window = replace(flow.w10, cache_hits=hits, cache_misses=misses)
    flow = replace(flow, stats=stats, w10=window)
    return text(model_work.cache(replace(RANKING, flow=flow, config=replace(config, response_cache=on)), 112))


def test_the_cache() -> None:
    assert cached(12, 28, 40, 60) == [
        "CACHE      12 hits of 40 looked up in 10 s, 30 %   40 of 100 since its load   a hit takes 0.02 ms"
    ]
    assert cached(0, 0) == ["CACHE      on, nothing looked up in 10 s   0 of 0 since its load"]
    assert cached(0, 0, on=False) == []


def test_when_all_came_from_the_cache_no_step_is_blamed() -> None:
    assert RANKING.flow is not None
    assert RANKING.flow.w10 is not None
    window = replace(RANKING.flow.w10, queue_ms=None, infer_ms=None)
    row = replace(RANKING, flow=replace(RANKING.flow, w10=window))
    assert text(model_work.time_split(row, 72))[0].endswith("all from the response cache, none was run")


# ------------------------------------------------------------------------------------------------------------- families


def test_nothing_is_shown_without_such_families() -> None:
    assert rows_of() == []
    assert custom(RANKING, None, 72) == []
    assert rows_of(family("x", sample(1, ModelKey("recall", "7")))) == []
    assert rows_of(family("x", sample(1, ModelKey("ranking", "1")))) == []


def test_tokens_of_vllm() -> None:
    lines = rows_of(
        family("vllm:prompt_tokens_total", sample(12000, rate=1240.0), kind="counter"),
        family(LLM, sample(800, rate=39.6), kind="counter"),
        family("vllm:num_requests_running", sample(4)),
        family("vllm:num_requests_waiting", sample(2)),
        family("vllm:gpu_cache_usage_perc", sample(0.914)),
        family("vllm:time_to_first_token_seconds", sample(3), kind="histogram"),
        histograms=(told(0, 300, 0, name="vllm:time_to_first_token_seconds"),),
    )
    assert lines == [
        "TOKENS     prompt 1240/s (12 000 in all)   generated 39.6/s (800 in all)",
        "REQUESTS   running 4   waiting 2",
        "KV CACHE   91 % full",
        "HISTOGRAM  first token, s   300 in 60 s",
        "             p50 ≈ 30 (≤ 50)   p95 ≈ 48 (≤ 50)   p99 ≈ 49.6 (≤ 50)",
    ]


def test_gauges_of_tensorrt_llm() -> None:
    kinds = {"active": 12, "max": 64, "waiting": 3, "scheduled": 9, "context": 1}
    blocks = {"used": 120, "max": 400, "free": 280, "fraction": 0.3, "tokens_per": 64}
    lines = rows_of(
        family("nv_trt_llm_request_metrics", *(sample(n, request_type=kind) for kind, n in kinds.items())),
        family("nv_trt_llm_kv_cache_block_metrics", *(sample(n, kv_cache_block_type=k) for k, n in blocks.items())),
        family("nv_trt_llm_general_metrics", sample(77, general_type="iteration_counter")),
    )
    assert lines[:2] == [
        "REQUESTS   active 12 of 64   waiting 3   scheduled 9   context 1",
        "KV CACHE   120 of 400 blocks used   30 % full   64 tokens a block",
    ]
    assert lines[2].startswith("CUSTOM     nv_trt_llm_general_metrics{general_type")
    assert lines[2].endswith(" 77")


def test_a_server_without_some_fields_shows_the_others() -> None:
    fields = family("nv_trt_llm_kv_cache_block_metrics", sample(120, kv_cache_block_type="used"))
    assert rows_of(fields) == ["KV CACHE   120 blocks used"]


def test_a_model_s_own_families_and_those_of_no_model() -> None:
    lines = rows_of(
        family("shop_total", sample(12, rate=0.4, path="[/x]\x1b[31m"), kind="counter"),
        family("depth", sample(7, None, where="here")),
        histograms=(told(0, 0, 0, name="mine", span=0.0, model=None),),
        cells=60,
    )
    assert lines[0].startswith("CUSTOM     shop_total{path=[/x]")
    assert lines[0].endswith("12     0.4/s")
    assert "\x1b" not in lines[0]
    assert lines[1].startswith("NO MODEL   depth{where=here}")
    assert lines[2] == "HISTOGRAM  mine   none yet"


def test_many_families_are_counted_not_listed() -> None:
    lines = rows_of(*(family(f"m{number}", sample(number)) for number in range(MOST + 5)))
    assert len(lines) == MOST + 1
    assert lines[-1].endswith("… 5 more")


@pytest.mark.parametrize("cells", [48, 54, 72, 112])
def test_rows_of_families_fit(cells: int) -> None:
    page = TritonMetrics(
        "x",
        custom=(family("long_" * 30, sample(1e12, rate=1e6, label="y" * 200), kind="counter"),),
        histograms=(told(0, 300, 0, name="z" * 200),),
    )
    rows = custom(RANKING, page, cells)
    assert max(line_width(row.line() if callable(row.line) else row.line) for row in rows) <= cells
