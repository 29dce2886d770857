"""The Triton sources on the lab's real server; figures against plain arithmetic on the raw answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from console.clients.triton import Answer, Http, TritonAddress
from console.clients.triton_ask import ask
from console.core.model import ModelFlow, ModelStats, SourceError, TritonStats, Window
from console.sources.repository import Place, RepositorySource
from console.sources.triton import ConfigSource, IndexSource, MetricsSource, ServerSource, StatsSource
from tests.lab import repository
from tests.lab.fixtures import Lab

pytestmark = pytest.mark.lab


def where(lab: Lab) -> Callable[[], TritonAddress]:
    address = TritonAddress(http_port=lab.port, grpc_port=lab.port + 1, metrics_port=lab.port + 2)
    return lambda: address


class Recorded(StatsSource):
    """Keeps each raw answer with its time."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(where(lab))
        self.raw: list[tuple[float, list[dict[str, Any]]]] = []

    def _connect(self, address: TritonAddress) -> Http:
        http = super()._connect(address)
        get = http.get

        def kept(path: str) -> Answer:
            answer = get(path)
            if answer.status == 200:
                self.raw.append((answer.mono, json.loads(answer.body)["model_stats"]))
            return answer

        http.get = kept  # type: ignore[method-assign]
        return http


def poll(source: StatsSource, seconds: float, every: float = 1.0) -> list[tuple[float, TritonStats]]:
    """Read as the poller does, for so long; failed reads leave a gap."""
    found: list[tuple[float, TritonStats]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found.append((time.monotonic(), source.read()))
        except SourceError:
            source.close()
        time.sleep(every)
    return found


def flow_of(stats: TritonStats, name: str, version: str) -> ModelFlow:
    (flow,) = [f for f in stats.flows if (f.key.name, f.key.version) == (name, version)]
    return flow


def plain(raw: list[tuple[float, list[dict[str, Any]]]], name: str, version: str, span: float) -> dict[str, Any]:
    """Figures from two raw answers, by the formulas of the domain facts (2.3), sharing nothing with the product."""
    end, last = raw[-1]
    _, first = min(raw[:-1], key=lambda item: abs(end - item[0] - span))

    def pick(models: list[dict[str, Any]]) -> dict[str, Any]:
        return next(m for m in models if (m["name"], m["version"]) == (name, version))

    a, b = pick(first), pick(last)
    ia, ib = a["inference_stats"], b["inference_stats"]

    def mean(what: str) -> float | None:
        n = ib[what]["count"] - ia[what]["count"]
        return (ib[what]["ns"] - ia[what]["ns"]) / n / 1e6 if n else None

    parts = ("compute_input", "compute_infer", "compute_output")
    before = {s["batch_size"]: s for s in a["batch_stats"]}
    none = {part: {"count": 0, "ns": 0} for part in parts}
    runs, busy = {}, 0
    for s in b["batch_stats"]:
        old = before.get(s["batch_size"], none)
        busy += sum(s[part]["ns"] - old[part]["ns"] for part in parts)
        n = s["compute_infer"]["count"] - old["compute_infer"]["count"]
        if n:
            runs[s["batch_size"]] = n
    executions = b["execution_count"] - a["execution_count"]
    return {
        "success": ib["success"]["count"] - ia["success"]["count"],
        "request_ms": mean("success"),
        "queue_ms": mean("queue"),
        "compute_ms": sum(mean(part) or 0.0 for part in parts),
        "mean_batch": (b["inference_count"] - a["inference_count"]) / executions if executions else None,
        "busy_seconds": busy / 1e9,
        "runs": runs,
    }


def assert_sane(found: list[tuple[float, TritonStats]]) -> None:
    for _, stats in found:
        for flow in stats.flows:
            for w in (flow.w1, flow.w10, flow.w30, flow.w120, flow.w300):
                if w is not None:
                    assert 0 <= w.rate < 5000
                    assert min(w.success, w.failed, w.executions, w.inferences, w.busy_seconds) >= 0
                    assert all(b.runs > 0 and b.ms_per_run > 0 for b in w.batches)


def window(value: Window | None) -> Window:
    assert value is not None
    return value


def test_what_the_sources_say_of_the_lab(lab: Lab) -> None:
    server = ServerSource(where(lab)).read()
    assert (server.live, server.ready, server.version, server.note) == (True, False, "2.51.0", None)
    index = {(e.name, e.version): e for e in IndexSource(where(lab)).read().entries}
    assert index["rank", "2"].state == "READY"
    assert index["rerank", "3"].state == "UNAVAILABLE"
    assert "Serialized Engine Version: 213" in str(index["rerank", "3"].reason)
    metrics = MetricsSource(where(lab)).read()
    assert metrics.has_pending
    assert not metrics.has_summaries
    keys = {(m.key.name, m.key.version) for m in metrics.models}
    assert {("rank", "1"), ("rank", "2"), ("recall", "1"), ("reco", "1")} <= keys
    configs = {(c.name, c.version): c for c in ConfigSource(where(lab)).read().configs}
    assert set(configs) == {("rank", "1"), ("rank", "2"), ("recall", "1"), ("reco", "1")}
    assert configs["rank", "2"].delay_us == 500
    assert [step.model for step in configs["reco", "1"].steps] == ["recall", "rank"]


def test_the_repository_agrees_with_what_is_served(lab: Lab) -> None:
    configs = ConfigSource(where(lab)).read()
    found = RepositorySource(lambda: [Place(str(lab.repository))], lambda: configs).read()
    by_name = {m.name: m for m in found.models}
    assert {name: m.differences for name, m in by_name.items() if m.differences} == {}
    assert {m.config_error for m in by_name.values()} == {None}
    assert [v.version for v in by_name["rank"].versions] == [1, 2]
    assert by_name["reco"].versions[0].usable


def test_asking_the_lab(lab: Lab) -> None:
    asked = ask(where(lab)(), "reco")
    assert asked.ok
    assert asked.text == "SCORE FP32 [1, 1] 0.375"
    refused = ask(where(lab)(), "rerank")
    assert refused.ok is None
    assert "404" in refused.text


def test_windows_equal_plain_arithmetic_and_the_load_tool(lab_alone: Lab) -> None:
    source = Recorded(lab_alone)
    flows = ("rank=120", "rank:1=40..90", "recall=60", "reco=20")
    with lab_alone.load(*flows, "--poisson", "--for", "16") as load:
        time.sleep(1.5)
        found = poll(source, 14)
        time.sleep(1.5)
    assert_sane(found)
    compared = 0
    for name, version in (("rank", "2"), ("rank", "1"), ("recall", "1"), ("reco", "1")):
        flow = flow_of(found[-1][1], name, version)
        w = window(flow.w10)
        assert w.span == pytest.approx(10, abs=0.6)
        wanted = plain(source.raw, name, version, 10.0)
        assert w.success == wanted["success"] > 100
        for figure in ("request_ms", "queue_ms", "compute_ms", "mean_batch", "busy_seconds"):
            assert getattr(w, figure) == pytest.approx(wanted[figure], rel=1e-9), figure
        assert {b.size: b.runs for b in w.batches} == wanted["runs"]
        compared += 1
    assert compared == 4
    assert_counts(load.record, found, "reco", "reco", "1")
    assert_counts(load.record, found, "rank:1", "rank", "1")


def assert_counts(
    record: dict[str, Any], found: list[tuple[float, TritonStats]], label: str, *key: str, slack_s: float = 1.2
) -> None:
    """The last ten seconds as the load tool counted them; its seconds and ours do not begin together, so ± 1 s."""
    w = window(flow_of(found[-1][1], *key).w10)
    offset = time.time() - time.monotonic()
    end = found[-1][0] + offset
    inside = [b["ok"] for b in record["models"][label]["buckets"] if end - w.span <= b["t"] + 0.5 <= end]
    a_second = max(b["ok"] for b in record["models"][label]["buckets"])
    assert sum(inside) == pytest.approx(w.success, abs=slack_s * a_second)


def test_a_reload_under_traffic(lab_alone: Lab) -> None:
    metrics = MetricsSource(where(lab_alone))
    configs = ConfigSource(where(lab_alone))
    before = configs.read()
    config = lab_alone.triton("GET", "/v2/models/recall/config")[1]
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 7000
    body = {"parameters": {"config": json.dumps(config)}}
    source = StatsSource(where(lab_alone))
    failed: list[int] = []

    def reload() -> None:
        time.sleep(4.5)
        failed.append(lab_alone.triton("POST", "/v2/repository/models/recall/load", body)[0])

    with lab_alone.load("recall=100", "--for", "14") as load:
        time.sleep(1.5)
        metrics.read()
        thread = threading.Thread(target=reload)
        thread.start()
        found = poll(source, 11)
        thread.join()
    assert failed == [200]
    assert_sane(found)
    flow = flow_of(found[-1][1], "recall", "1")
    assert flow.resets == 1
    assert flow.epoch_mono is not None
    assert window(flow.w10).crosses_reset
    # What the old copy counted after the last poll before the swap is in no answer: a poll's interval and its stall.
    assert_counts(load.record, found, "recall", "recall", "1", slack_s=2.7)
    seconds = [window(flow_of(stats, "recall", "1").w1) for _, stats in found[1:]]
    assert all(w.rate < 200 for w in seconds)
    counted = sum(w.success for w in seconds)
    assert counted >= load.record["models"]["recall"]["ok"] - 5 * 100
    after = ConfigSource(where(lab_alone), lambda: found[-1][1])
    after._held = configs._held
    delays = [next(c.delay_us for c in got.configs if c.name == "recall") for got in (before, after.read())]
    assert delays[0] != delays[1] == 7000
    disk = RepositorySource(lambda: [Place(str(lab_alone.repository))], after.read).read()
    (difference,) = [d for m in disk.models for d in m.differences]
    assert difference.path == "dynamic_batching.max_queue_delay_microseconds"
    assert difference.live == "7000"
    (lines,) = [m for m in metrics.read().models if m.key.name == "recall"]
    assert lines.success_total is not None
    assert lines.success_total >= counted, "the page's counters go on where statistics begin anew"


def test_polls_see_through_a_load_over_http(lab_alone: Lab) -> None:
    """Connections that are kept stand behind the load; the second try must not (domain facts 1.5)."""
    config = repository.sleeper_config("sluggish", load_ms=6000)
    repository.write("sluggish", config, root=lab_alone.repository)
    sources: list[Any] = [s(where(lab_alone)) for s in (ServerSource, IndexSource, StatsSource, ConfigSource)]
    for source in sources:
        source.read()
    load = threading.Thread(target=lab_alone.triton, args=("POST", "/v2/repository/models/sluggish/load", {}))
    load.start()
    time.sleep(0.5)
    reads, errors, states = 0, [], set()
    while load.is_alive():
        for source in sources:
            try:
                value = source.read()
                reads += 1
            except SourceError as error:
                errors.append(error.message)
                source.close()
                continue
            if isinstance(source, IndexSource):
                states |= {e.state for e in value.entries if e.name == "sluggish"}
        time.sleep(0.2)
    load.join()
    assert reads >= 8
    assert len(errors) <= 1, errors
    assert "LOADING" in states


def test_a_restart_of_the_server_under_traffic(lab_alone: Lab) -> None:
    source = StatsSource(where(lab_alone))
    metrics = MetricsSource(where(lab_alone))

    def restart() -> None:
        time.sleep(4)
        lab_alone.podman("kill", lab_alone.container)
        lab_alone.podman("start", lab_alone.container)

    thread = threading.Thread(target=restart)
    with lab_alone.load("rank=60", "--for", "20"):
        thread.start()
        time.sleep(1)
        found: list[tuple[float, TritonStats]] = []
        for _ in range(15):
            found += poll(source, 0.1)
            try:
                for model in metrics.read().models:
                    assert all(f.rate10 is None or f.rate10 >= 0 for f in model.failures)
            except SourceError:
                metrics.close()
    thread.join()
    assert_sane(found)
    flow = flow_of(found[-1][1], "rank", "2")
    assert flow.resets >= 1
    assert isinstance(flow.stats, ModelStats)
    assert 0 < window(flow.w1).rate < 200
