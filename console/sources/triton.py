"""The parts triton.server, triton.index, triton.stats, triton.metrics and triton.config.

Each source has a client, and so a connection, of its own: a slow answer to one does not hold up another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from operator import itemgetter

import msgspec

from console.clients.triton import (
    Answer,
    Http,
    Limits,
    TritonAddress,
    error_text,
    expect_ok,
    metrics_http,
    model_path,
    server_http,
)
from console.clients.triton_metrics import GPU, HISTOGRAM, PENDING, SUMMARY, ModelLines, PageReader
from console.clients.triton_wire import (
    StatsDecoder,
    decode_config,
    decode_index,
    decode_metadata,
    ready_versions,
)
from console.core.histograms import HistogramTracker, together
from console.core.model import (
    CustomFamily,
    FailureCount,
    Histogram,
    IndexEntry,
    ModelConfig,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelState,
    ModelStats,
    Quantile,
    SourceError,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    TritonStats,
)
from console.core.rates import STILL, MetricsTracker, Rates, StatsTracker

Where = Callable[[], TritonAddress]
"""Where Triton answers now: a container that was made anew may have other ports."""

PENDING_SAMPLES = 30
SAMPLE_GAP = 5.0
"""Seconds without a page after which older samples of the pending count say nothing about now."""
METADATA_EVERY = 30.0
"""Seconds."""


class _HttpSource:
    """Opens a client for the present address, and another one when the address has changed."""

    name = ""

    def __init__(self, where: Where, interval: float = 1.0) -> None:
        self.interval = interval
        self._where = where
        self._address: TritonAddress | None = None
        self._http: Http | None = None

    def open(self) -> None:
        """Make the client; SourceError when the address or its certificate file cannot be used."""
        address = self._where()
        self._http = self._connect(address)
        self._address = address

    def close(self) -> None:
        """Let go of the connection."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _connect(self, address: TritonAddress) -> Http:
        return server_http(address)

    def _client(self) -> tuple[Http, TritonAddress]:
        address = self._where()
        if self._http is None or address != self._address:
            self.close()
            self._http, self._address = self._connect(address), address
        return self._http, address


class ServerSource(_HttpSource):
    """live, ready and metadata; says what it can when some of them fail."""

    name = "triton.server"

    def __init__(self, where: Where, interval: float = 1.0) -> None:
        super().__init__(where, interval)
        self._version: str | None = None
        self._extensions: tuple[str, ...] = ()
        self._metadata_due = 0.0

    def read(self) -> TritonServer:
        """SourceError when the server does not answer at all."""
        http, address = self._client()
        try:
            live = http.get("/v2/health/live")
        except SourceError:
            self._metadata_due = 0.0
            raise
        if 300 <= live.status < 400:
            raise _not_triton(http, f"it answers {live.status}")
        notes: list[str] = []
        lamp_live = _lamp(live, notes)
        lamp_ready: bool | None = None
        try:
            lamp_ready = _lamp(http.get("/v2/health/ready"), notes)
            self._metadata(http)
        except _NotTritonError as error:
            raise _not_triton(http, str(error)) from error
        except SourceError as error:
            notes.append(error.message)
        return TritonServer(
            url=address.url,
            live=lamp_live,
            ready=lamp_ready,
            version=self._version,
            extensions=self._extensions,
            latency_ms=live.seconds * 1e3,
            note="; ".join(dict.fromkeys(notes)) or None,
        )

    def _metadata(self, http: Http) -> None:
        now = time.monotonic()
        if now < self._metadata_due:
            return
        body = expect_ok(http.get("/v2"), "metadata")
        try:
            metadata = decode_metadata(body)
        except SourceError as error:
            raise _NotTritonError(error.message) from error
        if not metadata.version:
            raise _NotTritonError("its /v2 names no version")
        self._version, self._extensions = metadata.version, tuple(metadata.extensions)
        self._metadata_due = now + METADATA_EVERY

    def close(self) -> None:
        """Let go of the connection; what answers next time may be another server."""
        super().close()
        self._metadata_due = 0.0


class _NotTritonError(Exception):
    """What answers there is some other program: many say 200 to any path, also to Triton's health."""


def _not_triton(http: Http, why: str) -> SourceError:
    message = f"what answers at {http.where} is not Triton: {why}"
    return SourceError("protocol", message, "is the port right? see triton.http_port in the settings")


def _lamp(answer: Answer, notes: list[str]) -> bool | None:
    """True for 200, False for 400 (and 5xx); None with a note where the lamp itself may not be read."""
    if answer.status in (401, 403, 404, 405):
        notes.append(f"{answer.status}: {error_text(answer, 160)}")
        return None
    return answer.status == 200


class IndexSource(_HttpSource):
    """The repository index, with the time at which each entry came into its state."""

    name = "triton.index"

    def __init__(self, where: Where, interval: float = 1.0) -> None:
        super().__init__(where, interval)
        self._since: dict[tuple[str, str | None], tuple[ModelState | None, float | None, float | None]] | None = None
        self._body = b""
        self._result: TritonIndex | None = None

    def read(self) -> TritonIndex:
        """SourceError when the index cannot be had."""
        http, _ = self._client()
        body = expect_ok(http.post("/v2/repository/index"), "repository index")
        if self._result is None or body != self._body:
            self._result = TritonIndex(tuple(self._dated(decode_index(body))))
            self._body = body
        return self._result

    def _dated(self, entries: list[IndexEntry]) -> list[IndexEntry]:
        """A state seen at the first read has no beginning; with namespacing two lines may have one name and version."""
        wall, mono = time.time(), time.monotonic()
        known, first = self._since or {}, self._since is None
        since: dict[tuple[str, str | None], tuple[ModelState | None, float | None, float | None]] = {}
        dated: list[IndexEntry] = []
        for entry in entries:
            key = (entry.name, entry.version)
            before = known.get(key)
            if first:
                since[key] = (entry.state, None, None)
            elif before is not None and before[0] == entry.state:
                since[key] = before
            else:
                since[key] = (entry.state, wall, mono)
            _, since_wall, since_mono = since[key]
            dated.append(msgspec.structs.replace(entry, since_wall=since_wall, since_mono=since_mono))
        self._since = since
        return dated


class StatsSource(_HttpSource):
    """Statistics of all models in one call, as flows."""

    name = "triton.stats"

    def __init__(self, where: Where, interval: float = 1.0) -> None:
        super().__init__(where, interval)
        self._decoder = StatsDecoder()
        self._tracker = StatsTracker()

    @property
    def refused(self) -> int:
        """Models of the last answer that were left out because a figure in them cannot be one; any thread."""
        return self._decoder.refused

    def read(self) -> TritonStats:
        """SourceError when there are none; a failed read is a longer interval at the next good one."""
        http, _ = self._client()
        answer = http.get("/v2/models/stats")
        if answer.status == 400 and "unknown model" in (text := error_text(answer)):
            raise SourceError(
                "protocol",
                f"statistics: 400: {text}",
                "with --model-namespacing Triton gives no statistics; the metrics page is used where it can be",
            )
        return self._tracker.update(answer.mono, self._decoder.decode(expect_ok(answer, "statistics")))


class _Model:
    """What the console remembers of one model's metrics."""

    __slots__ = ("failures", "metrics", "pending", "still", "totals")

    def __init__(self) -> None:
        self.pending: deque[float] = deque(maxlen=PENDING_SAMPLES)
        self.metrics: ModelMetrics | None = None
        self.failures: tuple[FailureCount, ...] = ()
        self.totals: dict[str, float] = {}
        """Failure series as last read."""
        self.still = False
        """True when `failures` was made while none of them moved."""


class MetricsSource(_HttpSource):
    """The metrics page: what statistics do not have."""

    name = "triton.metrics"

    def __init__(self, where: Where, interval: float = 1.0) -> None:
        super().__init__(where, interval)
        self._reader = PageReader()
        self._tracker: MetricsTracker[str] = MetricsTracker()
        self._histograms = HistogramTracker()
        self._models: dict[ModelKey, _Model] = {}
        self._sampled = 0.0

    def _connect(self, address: TritonAddress) -> Http:
        return metrics_http(address)

    def read(self) -> TritonMetrics:
        """SourceError when there is no page, or it is not Triton's."""
        http, address = self._client()
        answer = http.get("/metrics")
        page = self._reader.read(expect_ok(answer, "metrics page"))
        totals = {spelling: total for lines in page.models for _, spelling, total in lines.failures}
        totals.update(_custom_totals(page.custom))
        rates = self._tracker.update(answer.mono, totals)
        histograms = self._histograms.update(answer.mono, page.histograms)
        responses = _first_responses(histograms)
        fresh = self._begin_samples(answer.mono)
        models = tuple(self._model(lines, rates, fresh, responses.get(lines.key)) for lines in page.models)
        if len(self._models) > 2 * len(models) + 1000:
            self._models = {m.key: self._models[m.key] for m in models}
        return TritonMetrics(
            url=address.metrics_url or "",
            models=models,
            pinned_total=_finite(page.gauges.get("nv_pinned_memory_pool_total_bytes")),
            pinned_used=_finite(page.gauges.get("nv_pinned_memory_pool_used_bytes")),
            cpu_utilization=_finite(page.gauges.get("nv_cpu_utilization")),
            gpu_families=GPU in page.families,
            has_pending=PENDING in page.families,
            has_summaries=SUMMARY in page.families,
            has_histograms=HISTOGRAM in page.families,
            custom=tuple(_with_rates(family, rates) for family in page.custom),
            histograms=tuple(one for one in histograms if one.family != HISTOGRAM),
        )

    def _begin_samples(self, mono: float) -> bool:
        """True when this page is a new one-second sample, False when it replaces the last one (a read on demand)."""
        pause = mono - self._sampled
        if pause > SAMPLE_GAP:
            for model in self._models.values():
                model.pending.clear()
        fresh = pause >= min(0.5, self.interval / 2)
        if fresh:
            self._sampled = mono
        return fresh

    def _model(
        self, lines: ModelLines, rates: Mapping[str, Rates], fresh: bool, first_response: Histogram | None
    ) -> ModelMetrics:
        model = self._models.get(lines.key)
        if model is None:
            model = self._models[lines.key] = _Model()
        pending = _finite(lines.pending)
        if pending is not None:
            if not fresh and model.pending:
                model.pending.pop()
            model.pending.append(pending)
        samples = tuple(model.pending)
        old = model.metrics
        failures = self._failures(model, lines, rates)
        if (
            old is not None
            and old.success_total == lines.success
            and old.pending == pending
            and old.failures is failures
            and old.load_seconds == lines.load_seconds
            and len(old.request_summary) == len(lines.quantiles) == 0
            and old.pending_samples == samples
            and old.first_response is first_response
        ):
            return old
        model.metrics = ModelMetrics(
            key=lines.key,
            pending=pending,
            pending_samples=samples,
            success_total=_finite(lines.success),
            failures=failures,
            request_summary=tuple(Quantile(q, us / 1e3) for q, us in sorted(lines.quantiles)),
            load_seconds=_finite(lines.load_seconds),
            first_response=first_response,
        )
        return model.metrics

    def _failures(self, model: _Model, lines: ModelLines, rates: Mapping[str, Rates]) -> tuple[FailureCount, ...]:
        """By reason; series of one reason that differ in other labels (GPU, tags) are added after their rates."""
        totals = {spelling: total for _, spelling, total in lines.failures}
        still = all(rates.get(spelling) is STILL for spelling in totals)
        if still and model.still and totals == model.totals:
            return model.failures
        model.totals, model.still = totals, still
        by_reason: dict[str, FailureCount] = {}
        for reason, spelling, total in lines.failures:
            rate = rates.get(spelling)
            if rate is None:
                continue
            one = FailureCount(reason, total, rate.rate10, rate.rate30)
            other = by_reason.get(reason)
            by_reason[reason] = one if other is None else _together(one, other)
        failures = tuple(by_reason[reason] for reason in sorted(by_reason))
        if failures != model.failures:
            model.failures = failures
        return model.failures


def _together(a: FailureCount, b: FailureCount) -> FailureCount:
    rate10 = None if a.rate10 is None or b.rate10 is None else a.rate10 + b.rate10
    rate30 = None if a.rate30 is None or b.rate30 is None else a.rate30 + b.rate30
    return FailureCount(a.reason, a.total + b.total, rate10, rate30)


def _custom_totals(families: Iterable[CustomFamily]) -> Iterator[tuple[str, float]]:
    for family in families:
        if family.kind == "counter":
            yield from ((f"{family.name}{{{sample.text}", sample.value) for sample in family.samples)


def _with_rates(family: CustomFamily, rates: Mapping[str, Rates]) -> CustomFamily:
    if family.kind != "counter":
        return family
    samples = []
    for sample in family.samples:
        rate = rates.get(f"{family.name}{{{sample.text}")
        samples.append(msgspec.structs.replace(sample, rate10=rate.rate10) if rate is not None else sample)
    return msgspec.structs.replace(family, samples=tuple(samples))


def _first_responses(histograms: Iterable[Histogram]) -> dict[ModelKey, Histogram | None]:
    """By model; series of one model that differ in other labels (card, tags) are added after their differences."""
    found: dict[ModelKey, list[Histogram]] = {}
    for one in histograms:
        if one.family == HISTOGRAM and one.model is not None:
            found.setdefault(one.model, []).append(one)
    return {key: together(members) for key, members in found.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


class _Held(msgspec.Struct):
    """What is known of one model version's configuration."""

    status: int
    body: bytes
    config: ModelConfig | None
    failure: str | None
    due: float
    """When it is to be fetched again."""
    stats: ModelStats | None
    """Its counters at the fetch: the same object while nothing was counted."""
    resets: int
    silences: int = 0
    """How often in a row it did not answer."""


class ConfigSource(_HttpSource):
    """Served configurations: at once for what appears or began anew; then the one that is due first comes first.

    A count of instances that is changed in place leaves no sign in index, statistics or metrics (domain facts 1.4), so
    configurations are read again and again: each every 3 s on a small box. On a large one those of models that work
    come more often than those of idle ones, and `MOST` bounds the cost. A model that does not answer is asked less and
    less often, and never before the others.
    """

    name = "triton.config"
    FEW = 20
    """Models of a small box."""
    SOON = 2.5
    """Seconds between two fetches: of any model on a small box; less than `interval`, so each read finds it due."""
    WORKING = 10.0
    """Seconds, of a model that counted something since the last fetch."""
    IDLE = 30.0
    """Seconds, of others."""
    MOST = 30
    """Fetched in one read; twice as many while some are not known yet. A box of 1 000 takes half a minute a turn."""
    PATIENCE = 2.0
    """Seconds that one read may spend on fetching."""
    LIMITS = Limits(read=1.5)
    SILENT = (10.0, 20.0, 40.0, 60.0)
    """Seconds to wait after the first, second, third and any later silence in a row of one model."""

    def __init__(
        self, where: Where, stats: Callable[[], TritonStats | None] = lambda: None, interval: float = 3.0
    ) -> None:
        """`stats` gives the newest flows: whose counters began anew may have a new configuration, and models that
        the index does not list (loaded from a request, folder deleted) are known from them."""
        super().__init__(where, interval)
        self._calm = interval
        self._stats = stats
        self._held: dict[tuple[str, str], _Held] = {}
        self._result: TritonConfigs | None = None

    def _connect(self, address: TritonAddress) -> Http:
        return server_http(address, self.LIMITS)

    def close(self) -> None:
        """Let go of the connection; what was silent may answer where the server is up again."""
        super().close()
        for held in self._held.values():
            held.due, held.silences = 0.0, 0

    def read(self) -> TritonConfigs:
        """SourceError when not even the index can be had, or configurations are restricted."""
        http, _ = self._client()
        index = expect_ok(http.post("/v2/repository/index", b'{"ready":true}'), "repository index")
        wanted: dict[tuple[str, str], ModelFlow | None] = dict.fromkeys(ready_versions(index))
        stats = self._stats()
        for flow in stats.flows if stats is not None else ():
            wanted[flow.key.name, flow.key.version] = flow
        if not self._held.keys() <= wanted.keys():
            self._held = {key: held for key, held in self._held.items() if key in wanted}
            self._result = None
        due = self._due(wanted)
        end = time.monotonic() + self.PATIENCE
        done = 0
        for key in due[: self.MOST if len(self._held) == len(wanted) else 2 * self.MOST]:
            done += 1
            if not self._fetch(http, key, wanted[key], len(wanted)) or time.monotonic() > end:
                break
        self.interval = self._calm if done == len(due) else min(1.0, self._calm)
        return self._collect()

    def _due(self, wanted: Mapping[tuple[str, str], ModelFlow | None]) -> list[tuple[str, str]]:
        """What is new or began anew, then by how long it has been due; those that were silent last."""
        now = time.monotonic()
        turns: list[tuple[bool, float, tuple[str, str]]] = []
        for key, flow in wanted.items():
            held = self._held.get(key)
            if held is None:
                turns.append((False, 0.0, key))
            elif held.silences:
                if held.due <= now:
                    turns.append((True, held.due, key))
            elif flow is not None and flow.resets != held.resets:
                turns.append((False, 0.0, key))
            else:
                worked = flow is not None and flow.stats is not held.stats
                due = held.due - (self.IDLE - self.WORKING if worked and len(wanted) > self.FEW else 0.0)
                if due <= now:
                    turns.append((False, due, key))
        return [key for _, _, key in sorted(turns, key=itemgetter(0, 1))]

    def _fetch(self, http: Http, key: tuple[str, str], flow: ModelFlow | None, models: int) -> bool:
        """False when the server does not answer at all, so that the others need not be asked now."""
        name, version = key
        resets = flow.resets if flow is not None else 0
        try:
            answer = http.get(model_path(name, version) + "/config")
        except SourceError as error:
            self._silent(key, resets, error)
            return error.kind == "timeout"
        now, pause = time.monotonic(), self.SOON if models <= self.FEW else self.IDLE
        counted = flow.stats if flow is not None else None
        old = self._held.get(key)
        if old is not None and old.body == answer.body and old.status == answer.status:
            old.due, old.stats, old.resets = now + pause, counted, resets
            return True
        config: ModelConfig | None = None
        failure: str | None = None
        try:
            config = decode_config(expect_ok(answer, "configuration"), name, version)
        except SourceError as error:
            if error.kind == "permission":
                raise
            failure = error.message
        self._held[key] = _Held(answer.status, answer.body, config, failure, now + pause, counted, resets)
        self._result = None
        return True

    def _silent(self, key: tuple[str, str], resets: int, error: SourceError) -> None:
        """What it had before stays, but for that of a model that was loaded anew since."""
        old = self._held.get(key)
        silences = old.silences + 1 if old is not None else 1
        due = time.monotonic() + self.SILENT[min(silences, len(self.SILENT)) - 1]
        known = old.config if old is not None and old.resets == resets else None
        failure = f"configuration: {error.message}"
        self._held[key] = _Held(0, b"", known, failure, due, None, resets, silences)
        self._result = None

    def _collect(self) -> TritonConfigs:
        if self._result is None:
            held = sorted(self._held.items(), key=itemgetter(0))
            self._result = TritonConfigs(
                tuple(h.config for _, h in held if h.config is not None),
                {name: h.failure for (name, _), h in held if h.failure is not None},
            )
        return self._result
