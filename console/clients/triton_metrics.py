"""Triton's metrics page -> what the console needs of it.

A tokenizer of its own, since prometheus_client's parser takes 150 to 250 ms for the page of 1 000 models (16 000 lines)
and this must happen every second. Series come in random order but are spelled the same from scrape to scrape, so what
stands before the value is parsed once and then looked up. prometheus_client is the oracle of the property tests.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Iterator, Mapping
from enum import IntEnum
from math import isfinite
from operator import attrgetter
from typing import Final

from msgspec import Struct

from console.core.histograms import Buckets
from console.core.model import CustomFamily, CustomSample, ModelKey, SourceError
from console.core.text import decode, literal, one_line

MAX_CUSTOM_FAMILIES: Final = 64
MAX_CUSTOM_SAMPLES: Final = 64
MAX_CUSTOM_HISTOGRAMS: Final = 256
"""Series, each with all of its buckets."""
MAX_BUCKETS: Final = 200
MAX_REMEMBERED: Final = 400_000
"""Spellings kept; labels that change with each request must not fill the memory."""

GPU: Final = "nv_gpu"
"""Stands in `Page.families` for all of DCGM's."""
PENDING: Final = "nv_inference_pending_request_count"
SUMMARY: Final = "nv_inference_request_summary_us"
HISTOGRAM: Final = "nv_inference_first_response_histogram_ms"

_BLANK = r"[ \t]*"
_LABEL = re.compile(
    rf'{_BLANK}([a-zA-Z_][a-zA-Z0-9_]*){_BLANK}={_BLANK}"((?:[^"\\]|\\.)*)"{_BLANK}(,|(?=\}}))', re.DOTALL
)
_NAME = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*){_BLANK}")
_TYPE = re.compile(r"#[ \t]+TYPE[ \t]+(\S+)[ \t]+(\S+)[ \t]*$")
_ESCAPE = re.compile(r'\\([\\n"])')


class Series(Struct, frozen=True):
    """Name and labels of one sample. `text` is the label part as it was spelled, without braces."""

    name: str
    labels: tuple[tuple[str, str], ...]
    text: str


class Sample(Struct, frozen=True):
    """One line of a page."""

    series: Series
    value: float


def parse_line(line: str) -> Sample | None:
    """A sample line of the text format (a timestamp is passed over); None for comments, blanks and what is neither."""
    line = line.strip(" \t\r")
    name = _NAME.match(line)
    if name is None:
        return None
    at = name.end()
    labels: list[tuple[str, str]] = []
    text = ""
    if line[at : at + 1] == "{":
        begin = at = at + 1
        while (label := _LABEL.match(line, at)) is not None:
            labels.append((label.group(1), _ESCAPE.sub(_unescape, label.group(2))))
            at = label.end()
        end = line.find("}", at)
        if end < 0 or line[at:end].strip(" \t"):
            return None
        text = line[begin:end].strip(" \t")
        at = end + 1
    elif at == name.end(1):
        return None
    words = line[at:].split()
    if not 1 <= len(words) <= 2:
        return None
    try:
        value = float(words[0])
        if len(words) == 2:
            float(words[1])
    except ValueError:
        return None
    return Sample(Series(name.group(1), tuple(labels), text), value)


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match.group(1) == "n" else match.group(1)


def parse_page(text: str) -> Iterator[Sample]:
    """All samples of a page, for any exporter. Slow and plain; `PageReader` is the one for polling."""
    for line in text.split("\n"):
        sample = parse_line(line)
        if sample is not None:
            yield sample


class ModelLines:
    """What one page says about one model version. Filled anew at each page."""

    __slots__ = ("failures", "key", "load_seconds", "page", "pending", "quantiles", "success")

    def __init__(self, key: ModelKey) -> None:
        self.key = key
        self.page = 0
        self.clear(0)

    def clear(self, page: int) -> None:
        """Forget the page before."""
        self.page = page
        self.pending: float | None = None
        self.success: float | None = None
        self.load_seconds: float | None = None
        self.failures: list[tuple[str, str, float]] = []
        """Reason, the series' spelling, total."""
        self.quantiles: list[tuple[float, float]] = []
        """Percentile of the request summary, microseconds; the NaN of an idle model left out."""


class Page(Struct, frozen=True):
    """One metrics page."""

    models: tuple[ModelLines, ...]
    """By key; good until the next page is read."""
    gauges: Mapping[str, float]
    """Triton's series without a model: pinned pool, CPU."""
    families: frozenset[str]
    """Names of Triton's families that the page declares (samples or not), and GPU, PENDING, SUMMARY, HISTOGRAM where
    it has samples of them."""
    custom: tuple[CustomFamily, ...]
    histograms: tuple[Buckets, ...]
    """Triton's own (family HISTOGRAM) and custom ones."""


class _Kind(IntEnum):
    IGNORE = 0
    SUCCESS = 1
    FAILURE = 2
    PENDING = 3
    QUANTILE = 4
    LOAD = 5
    GAUGE = 6
    CUSTOM = 7
    TYPE = 8
    SEEN = 9
    BUCKET = 10


class _Custom:
    __slots__ = ("kind", "known", "name", "page", "values")

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.page = 0
        self.known: dict[str, Series] = {}
        self.values: dict[str, float] = {}


class _Buckets:
    """One histogram series while its page is read."""

    __slots__ = ("bounds", "family", "labels", "model", "page", "values")

    def __init__(self, family: str, model: ModelKey | None, labels: str) -> None:
        self.family, self.model, self.labels = family, model, labels
        self.page = 0
        self.bounds: set[float] = set()
        self.values: dict[float, float] = {}

    def told(self) -> Buckets:
        """As plain data."""
        return Buckets(self.family, self.model, self.labels, tuple(sorted(self.values.items())))


class _Slot(Struct, frozen=True):
    """What to do with the value behind one spelling."""

    kind: _Kind
    model: ModelLines | None = None
    text: str = ""
    number: float = 0.0
    custom: _Custom | None = None
    buckets: _Buckets | None = None


_IGNORE = _Slot(_Kind.IGNORE)
_MODEL_KINDS = {
    "nv_inference_request_success": _Kind.SUCCESS,
    "nv_inference_request_failure": _Kind.FAILURE,
    PENDING: _Kind.PENDING,
    SUMMARY: _Kind.QUANTILE,
    "nv_model_load_duration_secs": _Kind.LOAD,
}
_OWN = ("model", "version", "namespace")
"""Labels that say which model a series is about."""
_GAUGES = frozenset({"nv_pinned_memory_pool_total_bytes", "nv_pinned_memory_pool_used_bytes", "nv_cpu_utilization"})


class PageReader:
    """Reads successive pages of one server. One thread."""

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._models: dict[ModelKey, ModelLines] = {}
        self._ordered: list[ModelLines] = []
        self._types: dict[str, str] = {}
        self._custom: dict[str, _Custom] = {}
        self._buckets: dict[tuple[str, ModelKey | None, str], _Buckets] = {}
        self._custom_histograms = 0
        self._page = 0

    def read(self, body: bytes) -> Page:
        """Take one page; SourceError when it is not a page of Triton's."""
        self._page += 1
        page = self._page
        if len(self._slots) > MAX_REMEMBERED:
            self._forget()
        slots = self._slots
        gauges: dict[str, float] = {}
        families: set[str] = set()
        for line in decode(body).split("\n"):
            spelling, _, word = line.rpartition(" ")
            slot = slots.get(spelling)
            if slot is None:
                slot, word = self._learn(line, spelling, word)
            kind = slot.kind
            if kind == 0:
                continue
            if kind == 8:
                families.add(slot.text)
                continue
            try:
                value = float(word)
            except ValueError:
                continue
            model = slot.model
            if model is None:
                self._box_line(slot, value, gauges, families)
                continue
            if model.page != page:
                model.clear(page)
            if kind == 1:
                model.success = value if model.success is None else model.success + value
            elif kind == 2:
                model.failures.append((slot.text, spelling, value))
            elif kind == 3:
                model.pending = value if model.pending is None else model.pending + value
            elif kind == 5:
                model.load_seconds = value
            else:
                families.add(SUMMARY)
                if isfinite(value):
                    model.quantiles.append((slot.number, value))
        models = tuple(model for model in self._ordered if model.page == page)
        if any(model.pending is not None for model in models):
            families.add(PENDING)
        if not families and not gauges and not models:
            raise SourceError(
                "protocol",
                "this is not Triton's metrics page: " + (one_line(decode(body[:200]), 80) or "it is empty"),
                "the metrics port answers any path with an empty page; see triton.metrics_port in the settings",
            )
        return Page(
            models,
            gauges,
            frozenset(families),
            tuple(self._custom_families()),
            tuple(buckets.told() for buckets in self._buckets.values() if buckets.page == page),
        )

    def _box_line(self, slot: _Slot, value: float, gauges: dict[str, float], families: set[str]) -> None:
        if slot.kind is _Kind.GAUGE:
            gauges[slot.text] = value
        elif slot.kind is _Kind.SEEN:
            families.add(slot.text)
        elif slot.buckets is not None:
            buckets = slot.buckets
            if buckets.page != self._page:
                buckets.page = self._page
                buckets.values.clear()
            buckets.values[slot.number] = value
            if buckets.family == HISTOGRAM:
                families.add(HISTOGRAM)
        elif slot.custom is not None:
            custom = slot.custom
            if custom.page != self._page:
                custom.page = self._page
                custom.values.clear()
            custom.values[slot.text] = value

    def _custom_families(self) -> Iterator[CustomFamily]:
        for custom in self._custom.values():
            if custom.page == self._page:
                found = tuple(
                    CustomSample(text, custom.values[text], _model_of(series), series.labels)
                    for text, series in custom.known.items()
                    if text in custom.values
                )
                yield CustomFamily(custom.name, custom.kind, found)

    def _learn(self, line: str, spelling: str, word: str) -> tuple[_Slot, str]:
        """The slot of a spelling not met before, and the word that holds the value."""
        if line.startswith("#"):
            slot, word = self._comment(line), ""
            self._slots[spelling] = slot
            return slot, word
        sample = parse_line(line)
        if sample is None:
            return _IGNORE, ""
        slot = self._slot(sample.series)
        plain = parse_line(f"{spelling} 0 0")
        if plain is not None and plain.series == sample.series:
            self._slots[spelling] = slot
        return slot, repr(sample.value)

    def _comment(self, line: str) -> _Slot:
        match = _TYPE.match(line)
        if match is None:
            return _IGNORE
        name, kind = match.groups()
        self._types[name] = kind
        return _Slot(_Kind.TYPE, text=name) if name.startswith("nv_") else _IGNORE

    def _slot(self, series: Series) -> _Slot:
        name = series.name
        if name in _GAUGES:
            return _Slot(_Kind.GAUGE, text=name)
        if name.startswith("nv_gpu_"):
            return _Slot(_Kind.SEEN, text=GPU)
        if name == HISTOGRAM + "_bucket":
            return self._bucket_slot(series, HISTOGRAM)
        if name.startswith(HISTOGRAM):
            return _Slot(_Kind.SEEN, text=HISTOGRAM)
        if not name.startswith("nv_") or name.startswith("nv_trt_llm_"):
            return self._custom_slot(series)
        kind = _MODEL_KINDS.get(name)
        labels = dict(series.labels)
        if kind is None or "model" not in labels:
            return _IGNORE
        number = 0.0
        if kind is _Kind.QUANTILE:
            try:
                number = float(labels["quantile"])
            except (KeyError, ValueError):
                return _IGNORE
        return _Slot(kind, self._model(labels), literal(labels.get("reason", "")), number)

    def _model(self, labels: Mapping[str, str]) -> ModelLines:
        key = _key(labels)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = ModelLines(key)
            insort(self._ordered, model, key=attrgetter("key"))
        return model

    def _custom_slot(self, series: Series) -> _Slot:
        name, suffix = series.name, ""
        for ending in ("_bucket", "_sum", "_count"):
            base = name.removesuffix(ending)
            if base != name and self._types.get(base) in ("histogram", "summary"):
                name, suffix = base, ending
        if suffix == "_bucket" and self._types[name] == "histogram":
            return self._bucket_slot(series, name)
        custom = self._custom.get(name)
        if custom is None:
            if len(self._custom) >= MAX_CUSTOM_FAMILIES:
                return _IGNORE
            custom = self._custom[name] = _Custom(name, self._types.get(name, "untyped"))
        if len(custom.known) >= MAX_CUSTOM_SAMPLES:
            return _IGNORE
        text = one_line(f"{suffix} {series.text}" if suffix else series.text, 300)
        custom.known.setdefault(text, series)
        return _Slot(_Kind.CUSTOM, text=text, custom=custom)

    def _bucket_slot(self, series: Series, family: str) -> _Slot:
        labels = dict(series.labels)
        try:
            bound = float(labels.pop("le"))
        except (KeyError, ValueError):
            return _IGNORE
        model = _model_of(series)
        others = ",".join(f"{name}={value}" for name, value in labels.items() if name not in _OWN or model is None)
        key = (family, model, one_line(others, 300))
        buckets = self._buckets.get(key)
        if buckets is None:
            if family != HISTOGRAM:
                if self._custom_histograms >= MAX_CUSTOM_HISTOGRAMS:
                    return _IGNORE
                self._custom_histograms += 1
            buckets = self._buckets[key] = _Buckets(*key)
        if bound != bound or (bound not in buckets.bounds and len(buckets.bounds) >= MAX_BUCKETS):
            return _IGNORE
        buckets.bounds.add(bound)
        return _Slot(_Kind.BUCKET, number=bound, buckets=buckets)

    def _forget(self) -> None:
        self._slots, self._models, self._ordered = {}, {}, []
        self._types, self._custom = {}, {}
        self._buckets, self._custom_histograms = {}, 0


def _key(labels: Mapping[str, str]) -> ModelKey:
    return ModelKey(literal(labels["model"]), literal(labels.get("version", "")), literal(labels.get("namespace", "")))


def _model_of(series: Series) -> ModelKey | None:
    labels = dict(series.labels)
    return _key(labels) if "model" in labels else None
