"""Metric families that are not Triton's own: tokens, requests and KV cache of LLM back ends, and models' own.

Triton's times end when a streaming model has taken its request (domain facts 5): for those models these are the
figures that count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from console.core import units
from console.core.model import CustomFamily, CustomSample, Histogram, ModelKey, ModelRow, TritonMetrics
from console.core.text import one_line
from console.tui.panes.percentiles import figure, listed
from console.tui.panes.wording import LABEL, labelled
from console.tui.widgets.cells import cut, left, right, width
from console.tui.widgets.lines import Row

MOST = 24
"""Rows of families that have no words of their own here."""
VALUE, RATE = 10, 10
OWN = ("model", "version", "namespace")
TOKENS = (("vllm:prompt_tokens_total", "prompt"), ("vllm:generation_tokens_total", "generated"))
VLLM_REQUESTS = (("vllm:num_requests_running", "running"), ("vllm:num_requests_waiting", "waiting"))
VLLM_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
TRT_REQUESTS = "nv_trt_llm_request_metrics"
TRT_CACHE = "nv_trt_llm_kv_cache_block_metrics"
TIMES = {
    "vllm:time_to_first_token_seconds": "first token, s",
    "vllm:time_per_output_token_seconds": "a token, s",
    "vllm:e2e_request_latency_seconds": "request, s",
    "vllm:request_prompt_tokens": "prompt tokens",
    "vllm:request_generation_tokens": "tokens made",
}
"""Histograms with words of their own; the unit is in them."""


class One(NamedTuple):
    """One series with the family it is of."""

    family: CustomFamily
    sample: CustomSample


def custom(row: ModelRow, metrics: TritonMetrics | None, cells: int) -> list[Row]:
    """All rows; none where the page has no such family of this model, or of none."""
    if metrics is None:
        return []
    own = [one for one in _series(metrics) if _is_of(one.sample.model, row)]
    histograms = [one for one in metrics.histograms if _is_of(one.model, row)]
    made, told = _llm(own)
    made += [line for one in histograms for line in _histogram(one, cells)]
    nobody_s = [one for one in _series(metrics) if one.sample.model is None]
    rest = [one for one in own if id(one.sample) not in told]
    made += _plain("CUSTOM", rest, cells)
    made += _plain("NO MODEL", nobody_s, cells)
    unnamed = [one for one in metrics.histograms if one.model is None]
    return [*made, *(line for one in unnamed for line in _histogram(one, cells))]


def _series(metrics: TritonMetrics) -> Iterator[One]:
    """Series but those of histograms, which are told by their buckets."""
    for family in metrics.custom:
        if family.kind != "histogram":
            yield from (One(family, sample) for sample in family.samples)


def _is_of(key: ModelKey | None, row: ModelRow) -> bool:
    return key is not None and key.name == row.name and key.version in ("", row.version or "")


# --------------------------------------------------------------------------------------------------- LLM back ends


def _llm(own: Sequence[One]) -> tuple[list[Row], set[int]]:
    """Rows in words, and which samples they tell."""
    told: set[int] = set()

    def value(family: str, label: str = "") -> CustomSample | None:
        for one in own:
            kinds = {value for name, value in one.sample.labels if name not in OWN}
            if one.family.name == family and (not label or label in kinds):
                told.add(id(one.sample))
                return one.sample
        return None

    rows = (("TOKENS", _tokens(value)), ("REQUESTS", _requests(value)), ("KV CACHE", _cache(value)))
    return [labelled(label, ("   ".join(words), "")) for label, words in rows if words], told


Value = Callable[..., CustomSample | None]


def _tokens(value: Value) -> list[str]:
    words = []
    for family, name in TOKENS:
        sample = value(family)
        if sample is not None:
            words.append(f"{name} {units.rate(sample.rate10)}/s ({figure(sample.value)} in all)")
    return words


def _requests(value: Value) -> list[str]:
    words = []
    active, most = value(TRT_REQUESTS, "active"), value(TRT_REQUESTS, "max")
    if active is not None:
        words.append(f"active {figure(active.value)}" + (f" of {figure(most.value)}" if most is not None else ""))
    for name in ("waiting", "scheduled", "context"):
        sample = value(TRT_REQUESTS, name)
        words += [f"{name} {figure(sample.value)}"] if sample is not None else []
    for family, name in VLLM_REQUESTS:
        sample = value(family)
        words += [f"{name} {figure(sample.value)}"] if sample is not None else []
    return words


def _cache(value: Value) -> list[str]:
    used, most = value(TRT_CACHE, "used"), value(TRT_CACHE, "max")
    fraction, tokens = value(TRT_CACHE, "fraction"), value(TRT_CACHE, "tokens_per")
    value(TRT_CACHE, "free")
    words = []
    if used is not None:
        of = f" of {figure(most.value)}" if most is not None else ""
        words.append(f"{figure(used.value)}{of} blocks used")
    share = fraction or next((one for one in map(value, VLLM_CACHE) if one is not None), None)
    words += [f"{100 * share.value:.0f} % full"] if share is not None else []
    return [*words, f"{figure(tokens.value)} tokens a block"] if tokens is not None else words


# ------------------------------------------------------------------------------------------- histograms, all others


def _histogram(one: Histogram, cells: int) -> list[Row]:
    """Its name, then its percentiles: interpolated from the buckets' differences, each with its bucket's bound."""
    name = TIMES.get(one.family, "") or one_line(one.family, 120)
    labels = f" {one_line(one.labels, 80)}" if one.labels else ""
    count = f"{figure(one.total)} in {units.age(one.span)}" if one.total else "none yet" if not one.span else "–"
    head = cut(f"{name}{labels}", max(10, cells - LABEL - width(count) - 14))
    made = [labelled("HISTOGRAM", (head, ""), (f"   {count}", "dim"))]
    line = ""
    for word in listed(one):
        if line and len(line) + 3 + len(word) > cells - LABEL - 2:
            made.append(labelled("", (f"  {line}", "value")))
            line = ""
        line += ("   " if line else "") + word
    return [*made, labelled("", (f"  {line}", "value"))] if line else made


def _plain(label: str, series: Sequence[One], cells: int) -> list[Row]:
    made = []
    for number, one in enumerate(series[:MOST]):
        sample = one.sample
        others = ",".join(f"{name}={value}" for name, value in sample.labels if name not in OWN)
        text = one_line(one.family.name + (f"{{{others}}}" if others else ""), 300)
        rate = f"{units.rate(sample.rate10)}/s" if sample.rate10 is not None else ""
        room = max(10, cells - LABEL - VALUE - RATE)
        made.append(
            labelled(
                label if not number else "",
                (left(cut(text, room - 1), room), ""),
                (right(figure(sample.value), VALUE), "value"),
                (right(rate, RATE), "dim"),
            )
        )
    if len(series) > MOST:
        made.append(labelled("", (f"… {len(series) - MOST} more", "dim")))
    return made
