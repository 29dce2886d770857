"""The metrics page: recorded pages, and prometheus_client as the oracle of the tokenizer."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from console.clients import triton_metrics
from console.clients.triton_metrics import (
    MAX_BUCKETS,
    MAX_CUSTOM_FAMILIES,
    MAX_CUSTOM_HISTOGRAMS,
    MAX_CUSTOM_SAMPLES,
    ModelLines,
    Page,
    PageReader,
    parse_line,
    parse_page,
)
from console.core.histograms import Buckets
from console.core.model import ModelKey, SourceError

DATA = Path(__file__).parents[1] / "data" / "triton"
PAGES = sorted(path.name for path in DATA.glob("metrics_*.txt"))

Samples = list[tuple[str, tuple[tuple[str, str], ...], float]]


def page(name: str) -> str:
    return (DATA / name).read_text()


def ours(text: str) -> Samples:
    return sorted((s.series.name, tuple(sorted(s.series.labels)), s.value) for s in parse_page(text))


def oracle(text: str) -> Samples:
    # It renames counters to end in _total; the names are not its opinion that is asked here.
    families = text_string_to_metric_families(re.sub(r"(?m)^(# TYPE \S+) counter$", r"\1 gauge", text))
    return sorted((s.name, tuple(sorted(s.labels.items())), float(s.value)) for f in families for s in f.samples)


def same(a: Samples, b: Samples) -> bool:
    return repr(a) == repr(b)


def models(read: Page) -> dict[str, ModelLines]:
    return {lines.key.name: lines for lines in read.models}


@pytest.mark.parametrize("name", PAGES)
def test_recorded_pages_as_prometheus_client_reads_them(name: str) -> None:
    assert same(ours(page(name)), oracle(page(name)))


@pytest.mark.parametrize("name", PAGES)
def test_the_reader_agrees_with_the_plain_parser_on_every_scrape(name: str) -> None:
    reader, text = PageReader(), page(name)
    wanted = {
        (s.series.name, dict(s.series.labels)["model"], dict(s.series.labels)["version"]): s.value
        for s in parse_page(text)
        if s.series.name in ("nv_inference_request_success", "nv_inference_pending_request_count")
    }
    lines = text.split("\n")
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        read = reader.read("\n".join(lines).encode())
        for m in read.models:
            name_, version = m.key.name, m.key.version
            assert m.success == wanted.get(("nv_inference_request_success", name_, version))
            assert m.pending == wanted.get(("nv_inference_pending_request_count", name_, version))


def test_a_page_after_traffic() -> None:
    read = PageReader().read(page("metrics_after_traffic.txt").encode())
    by_name = models(read)
    assert by_name["slow"].success == 13
    assert [m.key for m in read.models] == sorted(m.key for m in read.models)
    assert {reason for reason, _, _ in by_name["slow"].failures} == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}
    assert read.gauges["nv_pinned_memory_pool_total_bytes"] == 268435456
    assert "nv_inference_pending_request_count" in read.families
    assert "nv_inference_request_summary_us" not in read.families
    (custom,) = [family for family in read.custom if family.name == "my_requests_total"]
    assert custom.kind == "counter"
    (sample,) = custom.samples
    assert sample.text == r'model="cm",path="a\"b\\c\nd",version="1"'
    assert (sample.value, sample.model) == (0, ModelKey("cm", "1"))
    assert dict(sample.labels)["path"] == 'a"b\\c\nd'


def test_a_queue_that_builds() -> None:
    read = PageReader().read(page("metrics_queue_building.txt").encode())
    assert max(m.pending or 0 for m in read.models) > 0


def test_summaries_leave_the_nan_of_idle_models_out() -> None:
    idle = PageReader().read(page("metrics_summary_nan.txt").encode())
    assert "nv_inference_request_summary_us" in idle.families
    assert models(idle)["rank"].quantiles == []
    busy = models(PageReader().read(page("metrics_summary.txt").encode()))["rank"]
    assert [q for q, _ in busy.quantiles] == [0.5, 0.9, 0.95, 0.99, 0.999]
    assert all(us > 0 for _, us in busy.quantiles)


def test_two_versions_and_then_one() -> None:
    reader = PageReader()
    both = reader.read(page("metrics_version_swap_both.txt").encode())
    assert {m.key.version for m in both.models if m.success is not None} == {"1", "2"}
    done = reader.read(page("metrics_version_swap_done.txt").encode())
    zombies = [m for m in done.models if m.success is None]
    assert {m.key.version for m in done.models if m.success is not None} == {"2"}
    assert all(m.failures for m in zombies)


def test_series_that_differ_in_the_card_only_are_added() -> None:
    text = "\n".join(
        [
            "# TYPE nv_inference_request_success counter",
            'nv_inference_request_success{gpu_uuid="GPU-1",model="m",version="1"} 3',
            'nv_inference_request_success{gpu_uuid="GPU-2",model="m",version="1"} 4',
            'nv_inference_pending_request_count{gpu_uuid="GPU-1",model="m",version="1"} 1',
            'nv_inference_pending_request_count{gpu_uuid="GPU-2",model="m",version="1"} 2',
            'nv_model_load_duration_secs{model="m",version="1"} 1.5',
            'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5',
            'nv_inference_request_success{model="m",namespace="/repo",version="1"} 9',
        ]
    )
    read = PageReader().read(text.encode())
    plain, spaced = read.models
    assert (plain.success, plain.pending, plain.load_seconds) == (7, 3, 1.5)
    assert spaced.key == ModelKey("m", "1", "/repo")
    assert "nv_gpu" in read.families


def test_families_without_samples_are_known() -> None:
    read = PageReader().read(
        b"# HELP nv_inference_pending_request_count x\n# TYPE nv_inference_pending_request_count gauge\n"
    )
    assert read.models == ()
    assert read.families == {"nv_inference_pending_request_count"}


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>no</html>", b"up 1\nnode_load1 0.5\n", b"\xff\xfe\x00"])
def test_what_is_no_page_of_triton(body: bytes) -> None:
    with pytest.raises(SourceError, match="not Triton's metrics page") as caught:
        PageReader().read(body)
    assert caught.value.kind == "protocol"


def test_custom_families_of_language_models() -> None:
    text = "\n".join(
        [
            "# TYPE nv_inference_request_success counter",
            "# TYPE vllm:time_to_first_token_seconds histogram",
            'vllm:time_to_first_token_seconds_bucket{model="l",version="1",le="0.1"} 2',
            'vllm:time_to_first_token_seconds_bucket{model="l",version="1",le="+Inf"} 5',
            'vllm:time_to_first_token_seconds_count{model="l",version="1"} 5',
            'vllm:time_to_first_token_seconds_sum{model="l",version="1"} 1.98e-05',
            "# TYPE nv_trt_llm_kv_cache_block_metrics gauge",
            'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="t",version="1"} 7',
            "lonely_sum 4",
            "lonely_sum 4",
        ]
    )
    reader = PageReader()
    for _ in range(2):
        read = reader.read(text.encode())
        custom = {family.name: family for family in read.custom}
    tokens = custom["vllm:time_to_first_token_seconds"]
    assert tokens.kind == "histogram"
    assert [(one.text.split()[0], one.value) for one in tokens.samples] == [("_count", 5.0), ("_sum", 1.98e-05)]
    model = ModelKey("l", "1")
    assert read.histograms == (Buckets("vllm:time_to_first_token_seconds", model, "", ((0.1, 2.0), (math.inf, 5.0))),)
    assert custom["nv_trt_llm_kv_cache_block_metrics"].samples[0].value == 7
    assert (custom["lonely_sum"].kind, custom["lonely_sum"].samples[0].model) == ("untyped", None)
    gone = reader.read(b"# TYPE nv_inference_request_success counter\n")
    assert (gone.custom, gone.histograms) == ((), ())


def test_buckets_of_triton_s_own_histogram() -> None:
    name = triton_metrics.HISTOGRAM
    lines = [
        f'{name}_bucket{{model="m",version="1",tag="a",le="+Inf"}} 3',
        f'{name}_bucket{{model="m",version="1",tag="a",le="100"}} 1',
        f'{name}_bucket{{model="m",version="1",tag="b",le="100"}} 9',
        f'{name}_bucket{{model="m",version="1",le="x"}} 9',
        f'{name}_bucket{{model="m",version="1",le="Nan"}} 9',
        f'{name}_bucket{{model="m",version="1"}} 9',
        f'{name}_count{{model="m",version="1"}} 3',
    ]
    reader = PageReader()
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        read = reader.read("\n".join(lines).encode())
        key = ModelKey("m", "1")
        assert sorted(read.histograms, key=lambda one: one.labels) == [
            Buckets(name, key, "tag=a", ((100.0, 1.0), (math.inf, 3.0))),
            Buckets(name, key, "tag=b", ((100.0, 9.0),)),
        ]
        assert name in read.families
    (other,) = reader.read(f'{name}_bucket{{model="m",version="1",tag="a",le="100"}} 2'.encode()).histograms
    assert other.cumulative == ((100.0, 2.0),)


def test_custom_histograms_are_bounded() -> None:
    lines = ["# TYPE nv_x gauge", "# TYPE h histogram"]
    lines += [f'h_bucket{{n="{n}",le="{le}"}} 1' for n in range(400) for le in (1, 2)]
    lines += [f'h_bucket{{n="0",le="{le}"}} 1' for le in range(3, 500)]
    read = PageReader().read("\n".join(lines).encode())
    assert len(read.histograms) == MAX_CUSTOM_HISTOGRAMS
    assert max(len(one.cumulative) for one in read.histograms) == MAX_BUCKETS
    assert read.histograms[0].model is None


def test_custom_families_are_bounded() -> None:
    lines = ["# TYPE nv_inference_request_success counter"]
    lines += [f'a_metric{{n="{n}"}} {n}' for n in range(500)] + [f"metric_{n} {n}" for n in range(500)]
    read = PageReader().read("\n".join(lines).encode())
    assert len(read.custom) == MAX_CUSTOM_FAMILIES
    assert len(read.custom[0].samples) == MAX_CUSTOM_SAMPLES


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_metrics, "MAX_REMEMBERED", 50)
    reader = PageReader()
    for n in range(100):
        series = f'nv_inference_request_success{{model="m{n}",version="1"}} 1\nx{{n="{n}"}} 1'
        read = reader.read(series.encode())
        assert [m.key.name for m in read.models] == [f"m{n}"]
    assert len(reader._slots) <= 60


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1.0),
        ("a{} 1", 1.0),
        ("a{} +Inf", math.inf),
        ('a{b="c",} 2', 2.0),
        ('a { b = "c" , d="e" } 2', 2.0),
        ('a{b="c"}\t3', 3.0),
        ("  a   4  ", 4.0),
        ("a 5\r", 5.0),
        ("a 6 1700000000000", 6.0),
        ('a{b="} 1"} 7 12', 7.0),
    ],
)
def test_lines_that_are_samples(line: str, value: float) -> None:
    sample = parse_line(line)
    assert sample is not None
    assert sample.value == value
    text = f"# TYPE nv_cpu_utilization gauge\nnv_cpu_utilization{line.strip()[1:]}"
    reader = PageReader()
    assert [reader.read(text.encode()).gauges["nv_cpu_utilization"] for _ in range(2)] == [value, value]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#",
        "# TYPE a",
        "a",
        "a b",
        "a{",
        'a{b="c} 1',
        'a{b="c"',
        "a{b=c} 1",
        "a 1 2 3",
        "a 1 b",
        "1a 2",
        'a{b="c" d="e"} 1',
        "a1",
    ],
)
def test_lines_that_are_none(line: str) -> None:
    assert parse_line(line) is None
    body = f"# TYPE nv_cpu_utilization gauge\nnv_cpu_utilization{line[1:]}" if line.startswith("a") else line
    read = PageReader().read(("# TYPE nv_x gauge\n" + body).encode())
    assert read.gauges == {}


def test_a_value_that_turns_into_nonsense_is_passed_over() -> None:
    reader = PageReader()
    good = 'nv_inference_request_success{model="m",version="1"} 5'
    assert reader.read(f"# TYPE nv_x gauge\n{good}".encode()).models[0].success == 5
    assert reader.read(f"# TYPE nv_x gauge\n{good}x".encode()).models == ()


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True).filter(lambda name: name[:2] != "__")
"""Names with two underscores are reserved; the oracle refuses them."""
label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.floats(allow_nan=False) | st.integers(-(10**15), 10**15).map(float) | st.just(math.nan)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@st.composite
def pages(draw: st.DrawFn) -> str:
    """Pages as an exporter writes them, with and without types, blanks and timestamps."""
    lines: list[str] = []
    chosen: list[str] = draw(st.lists(names, unique=True, max_size=4))
    for name in chosen:
        if draw(st.booleans()):
            lines.append(f"# HELP {name} words \\n more")
            lines.append(f"# TYPE {name} gauge")
        label_sets: list[dict[str, str]] = draw(
            st.lists(st.dictionaries(label_names, label_values, max_size=3), max_size=3)
        )
        for labels in label_sets:
            spelled = ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items())
            number = draw(values)
            braces = draw(st.booleans())
            shown = "Nan" if math.isnan(number) else "+Inf" if number == math.inf else repr(number)
            stamp = draw(st.sampled_from(["", "", " 1700000000000"]))
            lines.append(f"{name}{{{spelled}}} {shown}{stamp}" if labels or braces else f"{name} {shown}{stamp}")
    return "\n".join(lines) + "\n"


@given(pages())
@settings(max_examples=300, deadline=None)
def test_any_page_as_prometheus_client_reads_it(text: str) -> None:
    assert same(ours(text), oracle(text))


@given(st.text(max_size=60) | st.text('a{}=",\\ 1.#\n', max_size=40))
@settings(max_examples=400, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    reader = PageReader()
    body = b"# TYPE nv_x gauge\n" + text.encode("utf-8", "surrogatepass")
    first = reader.read(body)
    second = reader.read(body)
    assert [m.key for m in first.models] == [m.key for m in second.models]
    assert repr(first.custom) == repr(second.custom)
    assert repr(first.histograms) == repr(second.histograms)
