"""The Triton sources against a scripted server, and against the lab's real one (test_triton_lab.py)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.clients.triton import Limits, TritonAddress
from console.core.model import ModelFlow, ModelKey, ModelStats, SourceError, TritonMetrics, TritonStats
from console.core.rates import Rates
from console.sources import triton
from console.sources.triton import ConfigSource, IndexSource, MetricsSource, ServerSource, StatsSource
from tests.clients.scripted import Reply, Request, answer, free_port, scripted

DATA = Path(__file__).parents[1] / "data" / "triton"
RESTRICTED = answer({"error": "This API is restricted, expecting header 'my-key'"}, 403)


@dataclass
class Server:
    """A Triton of answers by path; what is not there is 404."""

    answers: dict[str, Reply] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.answers.get(request.path, answer({"error": "not found"}, 404))

    def where(self) -> TritonAddress:
        return TritonAddress(http_port=self.port, metrics_port=self.port)


@pytest.fixture
def server() -> Iterator[Server]:
    box = Server()
    with scripted(box.reply) as running:
        box.port = running.port
        yield box


@dataclass
class Clock:
    """Stands for time.monotonic where a test must pass 30 s."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1e9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(triton, "time", fake)
    return fake


# ------------------------------------------------------------------------------------------------------------- server


def healthy(server: Server) -> None:
    server.answers |= {
        "/v2/health/live": answer(),
        "/v2/health/ready": answer(),
        "/v2": answer({"name": "triton", "version": "2.51.0", "extensions": ["statistics"]}),
    }


def test_two_lamps_and_metadata(server: Server) -> None:
    healthy(server)
    source = ServerSource(server.where)
    source.open()
    got = source.read()
    assert (got.live, got.ready, got.version, got.note) == (True, True, "2.51.0", None)
    assert got.extensions == ("statistics",)
    assert got.latency_ms is not None
    assert got.url == f"http://127.0.0.1:{server.port}"
    source.close()


def test_ready_400_is_not_down(server: Server) -> None:
    healthy(server)
    server.answers["/v2/health/ready"] = answer(b"", 400)
    got = ServerSource(server.where).read()
    assert (got.live, got.ready) == (True, False)


def test_metadata_is_asked_for_rarely(server: Server, clock: Clock) -> None:
    healthy(server)
    source = ServerSource(server.where)
    for _ in range(3):
        source.read()
    assert [r.path for r in server.requests].count("/v2") == 1
    clock.now += 31
    source.read()
    assert [r.path for r in server.requests].count("/v2") == 2


def test_lamps_that_may_not_be_read(server: Server) -> None:
    server.answers |= {"/v2/health/live": RESTRICTED, "/v2/health/ready": RESTRICTED, "/v2": RESTRICTED}
    got = ServerSource(server.where).read()
    assert (got.live, got.ready, got.version) == (None, None, None)
    assert got.note is not None
    assert "403: This API is restricted, expecting header 'my-key'" in got.note


def test_one_part_failing_does_not_hide_the_others(server: Server) -> None:
    healthy(server)
    server.answers["/v2/health/ready"] = None
    got = ServerSource(server.where).read()
    assert (got.live, got.ready) == (True, None)
    assert "without an answer" in str(got.note)
    server.answers["/v2/health/ready"] = answer()
    server.answers["/v2"] = answer(b"", 500)
    got = ServerSource(server.where).read()
    assert (got.live, got.ready, got.version) == (True, True, None)
    assert "metadata" in str(got.note)


@pytest.mark.parametrize("metadata", [b"<html>", b"{}", b'{"name":"triton\xff"}', b'{"status":"ok"}'])
def test_another_program_that_says_200_to_any_path_has_no_lamps(server: Server, metadata: bytes) -> None:
    healthy(server)
    server.answers["/v2"] = answer(metadata)
    with pytest.raises(SourceError, match="is not Triton") as caught:
        ServerSource(server.where).read()
    assert caught.value.kind == "protocol"


def test_a_redirect_is_not_triton(server: Server) -> None:
    server.answers["/v2/health/live"] = answer(b"", 302)
    with pytest.raises(SourceError, match="is not Triton: it answers 302"):
        ServerSource(server.where).read()


def test_a_server_that_is_not_there() -> None:
    source = ServerSource(lambda: TritonAddress(http_port=free_port()))
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.kind == "unavailable"
    source.close()


def test_an_address_that_changes_is_followed(server: Server) -> None:
    healthy(server)
    ports = [free_port()]
    source = ServerSource(lambda: TritonAddress(http_port=ports[0]))
    with pytest.raises(SourceError):
        source.read()
    ports[0] = server.port
    assert source.read().live


def test_headers_are_sent(server: Server) -> None:
    healthy(server)
    ServerSource(lambda: TritonAddress(http_port=server.port, headers={"my-key": "v"})).read()
    assert all(r.headers["my-key"] == "v" for r in server.requests)


# -------------------------------------------------------------------------------------------------------------- index


def test_states_have_a_beginning_only_when_it_was_seen(server: Server, clock: Clock) -> None:
    index = "/v2/repository/index"
    source = IndexSource(server.where)
    server.answers[index] = answer((DATA / "index_version_swap_loading.json").read_bytes())
    first = source.read()
    assert all(entry.since_wall is None for entry in first.entries)
    clock.now += 1
    assert source.read() is first
    server.answers[index] = answer((DATA / "index_version_swap_unloading.json").read_bytes())
    clock.now += 1
    found = {(e.name, e.version): e for e in source.read().entries}
    assert found["slow", "1"].state == "UNLOADING"
    assert found["slow", "1"].since_mono == 1002.0
    assert found["slow", "2"].since_wall == 1002.0 + 1e9
    assert found["rank", "2"].since_mono is None
    clock.now += 5
    server.answers[index] = answer((DATA / "index_version_swap_done.json").read_bytes())
    found = {(e.name, e.version): e for e in source.read().entries}
    assert found["slow", "2"].since_mono == 1002.0
    assert (found["slow", "1"].state, found["slow", "1"].reason) == ("UNAVAILABLE", "unloaded")
    assert found["slow", "1"].since_mono == 1007.0


def test_two_lines_of_one_name_under_namespacing(server: Server) -> None:
    line = {"name": "slow", "version": "1", "state": "READY"}
    server.answers["/v2/repository/index"] = answer([line, line])
    assert len(IndexSource(server.where).read().entries) == 2


def test_an_index_that_is_restricted(server: Server) -> None:
    server.answers["/v2/repository/index"] = RESTRICTED
    with pytest.raises(SourceError) as caught:
        IndexSource(server.where).read()
    assert caught.value.kind == "permission"
    assert "my-key" in caught.value.hint


# --------------------------------------------------------------------------------------------------------- statistics


def stats_answer(success: int) -> Reply:
    model = {
        "name": "rank",
        "version": "1",
        "inference_stats": {"success": {"count": success, "ns": success * 1_000_000}},
    }
    return answer({"model_stats": [model]})


def test_statistics_become_flows(server: Server) -> None:
    source = StatsSource(server.where)
    server.answers["/v2/models/stats"] = stats_answer(100)
    (flow,) = source.read().flows
    assert (flow.key, flow.stats.success_count, flow.w1) == (ModelKey("rank", "1"), 100, None)
    time.sleep(0.15)
    server.answers["/v2/models/stats"] = stats_answer(130)
    (flow,) = source.read().flows
    assert flow.w1 is not None
    assert flow.w1.success == 30
    assert flow.w1.request_ms == pytest.approx(1.0)


def test_statistics_that_namespacing_takes_away(server: Server) -> None:
    server.answers["/v2/models/stats"] = answer({"error": "Request for unknown model: '/repo::rank' is not found"}, 400)
    with pytest.raises(SourceError, match="unknown model") as caught:
        StatsSource(server.where).read()
    assert "namespacing" in caught.value.hint
    server.answers["/v2/models/stats"] = answer({"error": "other"}, 400)
    with pytest.raises(SourceError, match="statistics: 400: other"):
        StatsSource(server.where).read()


# ------------------------------------------------------------------------------------------------------------ metrics


def page(success: int, pending: float, rejected: int, more: str = "") -> Reply:
    labels = 'model="rank",version="1"'
    lines = [
        "# TYPE nv_inference_pending_request_count gauge",
        f"nv_inference_request_success{{{labels}}} {success}",
        f"nv_inference_pending_request_count{{{labels}}} {pending}",
        f'nv_inference_request_failure{{model="rank",reason="REJECTED",version="1"}} {rejected}',
        "nv_pinned_memory_pool_total_bytes 1000",
        "nv_cpu_utilization Nan",
        more,
    ]
    return answer("\n".join(lines).encode())


def read_at(source: MetricsSource, server: Server, reply: Reply) -> TritonMetrics:
    server.answers["/metrics"] = reply
    return source.read()


def test_the_metrics_page(server: Server) -> None:
    source = MetricsSource(server.where, interval=0.02)
    got = read_at(source, server, page(5, 0, 2, "vllm:x 3"))
    assert got.url == f"http://127.0.0.1:{server.port}/metrics"
    assert (got.pinned_total, got.pinned_used, got.cpu_utilization) == (1000.0, None, None)
    assert (got.has_pending, got.has_summaries, got.has_histograms, got.gpu_families) == (True, False, False, False)
    assert [family.name for family in got.custom] == ["vllm:x"]
    (model,) = got.models
    assert (model.key, model.success_total, model.pending, model.pending_samples) == (ModelKey("rank", "1"), 5, 0, (0,))
    (rejected,) = model.failures
    assert (rejected.reason, rejected.total, rejected.rate10) == ("REJECTED", 2, None)
    time.sleep(0.15)
    (model,) = read_at(source, server, page(5, 7, 12)).models
    assert model.pending_samples == (0, 7)
    (rejected,) = model.failures
    assert rejected.total == 12
    assert rejected.rate10 is not None
    assert rejected.rate10 > 0


def test_an_idle_model_keeps_its_object_and_samples_are_bounded(server: Server) -> None:
    source = MetricsSource(server.where, interval=0.0)
    for _ in range(40):
        got = read_at(source, server, page(5, 0, 0))
    before = got.models[0]
    assert len(before.pending_samples) == 30
    source._tracker.update = lambda mono, values: dict.fromkeys(values, Rates(0.0, 0.0))  # type: ignore[method-assign]
    first = read_at(source, server, page(5, 0, 0)).models[0]
    assert read_at(source, server, page(5, 0, 0)).models[0] is first


def test_a_read_on_demand_replaces_the_last_sample(server: Server) -> None:
    source = MetricsSource(server.where)
    read_at(source, server, page(5, 1, 0))
    assert read_at(source, server, page(5, 2, 0)).models[0].pending_samples == (2,)


def test_samples_before_a_gap_say_nothing_about_now(server: Server) -> None:
    source = MetricsSource(server.where)
    read_at(source, server, page(5, 1, 0))
    source._sampled -= 60
    assert read_at(source, server, page(5, 2, 0)).models[0].pending_samples == (2,)


def test_summaries_histograms_and_cards(server: Server) -> None:
    more = "\n".join(
        [
            'nv_inference_request_summary_us{model="rank",version="1",quantile="0.99"} 2500',
            'nv_inference_request_summary_us{model="rank",version="1",quantile="0.5"} 1000',
            'nv_inference_request_summary_us{model="rank",version="1",quantile="0.9"} Nan',
            'nv_inference_first_response_histogram_ms_bucket{model="rank",version="1",le="100"} 2',
            'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5',
            'nv_model_load_duration_secs{model="rank",version="1"} 1.5',
        ]
    )
    got = read_at(MetricsSource(server.where), server, page(5, 0, 0, more))
    assert (got.has_summaries, got.has_histograms, got.gpu_families) == (True, True, True)
    (model,) = got.models
    assert [(q.q, q.ms) for q in model.request_summary] == [(0.5, 1.0), (0.99, 2.5)]
    assert model.load_seconds == 1.5


def test_histograms_and_custom_counters_over_two_pages(server: Server) -> None:
    def more(slow: int, fast: int, tokens: int) -> str:
        series = (
            'nv_inference_first_response_histogram_ms_bucket{{model="rank",version="1",gpu_uuid="{0}",le="{1}"}} {2}'
        )
        ttft = 'vllm:ttft_seconds_bucket{{model="rank",version="1",le="{0}"}} {1}'
        return "\n".join(
            [
                *(series.format(card, "100", fast) for card in "ab"),
                *(series.format(card, "+Inf", fast + slow) for card in "ab"),
                "# TYPE vllm:ttft_seconds histogram",
                ttft.format("0.5", fast),
                ttft.format("+Inf", fast + slow),
                "# TYPE vllm:tokens_total counter",
                f'vllm:tokens_total{{model="rank",version="1"}} {tokens}',
                "# TYPE vllm:running gauge",
                f'vllm:running{{model="rank",version="1"}} {tokens}',
            ]
        )

    source = MetricsSource(server.where, interval=0.02)
    first = read_at(source, server, page(5, 0, 0, more(5, 5, 100)))
    assert first.models[0].first_response is not None
    assert first.models[0].first_response.span == 0.0
    time.sleep(0.15)
    got = read_at(source, server, page(5, 0, 0, more(6, 8, 160)))
    response = got.models[0].first_response
    assert response is not None
    assert (response.bounds, response.counts) == ((100.0,), (6, 2))
    (ttft,) = got.histograms
    assert (ttft.family, ttft.model, ttft.counts) == ("vllm:ttft_seconds", ModelKey("rank", "1"), (3, 1))
    families = {family.name: family for family in got.custom}
    (tokens,) = families["vllm:tokens_total"].samples
    assert tokens.rate10 is not None
    assert tokens.rate10 * ttft.span == pytest.approx(60)
    assert families["vllm:running"].samples[0].rate10 is None


def test_failures_of_several_cards_are_added_after_their_rates(server: Server) -> None:
    def reply(one: int, two: int) -> Reply:
        series = 'nv_inference_request_failure{{model="rank",reason="OTHER",version="1",gpu_uuid="{0}"}} {1}'
        return answer("\n".join([series.format("a", one), series.format("b", two)]).encode())

    source = MetricsSource(server.where)
    read_at(source, server, reply(1000, 5))
    time.sleep(0.15)
    (failures,) = read_at(source, server, reply(1, 8)).models[0].failures
    assert failures.total == 9
    assert failures.rate10 is not None
    assert failures.rate10 * 0.15 <= 4


def test_models_that_are_gone_are_forgotten(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    source = MetricsSource(server.where)
    names = "\n".join(f'nv_inference_request_success{{model="m{n}",version="1"}} 1' for n in range(1200))
    read_at(source, server, page(1, 0, 0, names))
    read_at(source, server, page(1, 0, 0))
    assert len(source._models) == 1


def test_a_metrics_port_that_is_off_or_another_programs(server: Server) -> None:
    with pytest.raises(SourceError, match="metrics port"):
        MetricsSource(lambda: TritonAddress(metrics_port=None)).open()
    with pytest.raises(SourceError, match="not Triton's metrics page"):
        read_at(MetricsSource(server.where), server, answer(b""))
    server.answers.clear()
    with pytest.raises(SourceError, match="metrics page: 404"):
        MetricsSource(server.where).read()


# ----------------------------------------------------------------------------------------------------- configurations


def models(server: Server, *ready: tuple[str, str]) -> None:
    lines = [{"name": name, "version": version, "state": "READY"} for name, version in ready]
    server.answers["/v2/repository/index"] = answer(lines)
    for name, version in ready:
        server.answers[f"/v2/models/{name}/versions/{version}/config"] = answer({"name": name, "max_batch_size": 4})


def fetched(server: Server) -> list[str]:
    paths = [r.path.split("/")[3] for r in server.requests if r.path.endswith("/config")]
    server.requests.clear()
    return paths


def flow(name: str, version: str = "1", resets: int = 0) -> ModelFlow:
    return ModelFlow(ModelKey(name, version), ModelStats(name, version), resets=resets)


def test_configurations_are_fetched_when_they_may_be_new(server: Server, clock: Clock) -> None:
    flows: list[TritonStats | None] = [None]
    source = ConfigSource(server.where, lambda: flows[0])
    models(server, ("a", "1"), ("b", "2"))
    got = source.read()
    assert [(c.name, c.version, c.max_batch_size) for c in got.configs] == [("a", "1", 4), ("b", "2", 4)]
    assert fetched(server) == ["a", "b"]
    assert source.read() is got
    assert fetched(server) == []
    flows[0] = TritonStats((flow("a", resets=1), flow("b", "2")))
    source.read()
    assert fetched(server) == ["a"]
    models(server, ("a", "1"), ("b", "2"), ("c", "1"))
    source.read()
    assert fetched(server) == ["c"]
    clock.now += source.interval
    server.answers["/v2/models/a/versions/1/config"] = answer({"name": "a", "max_batch_size": 8})
    assert source.read().configs[0].max_batch_size == 8
    assert sorted(fetched(server)) == ["a", "b", "c"]
    models(server, ("a", "1"))
    flows[0] = None
    assert [c.name for c in source.read().configs] == ["a"]


def test_models_that_only_statistics_know_are_fetched_too(server: Server) -> None:
    models(server, ("a", "1"))
    server.answers["/v2/models/ghost/versions/1/config"] = answer({"name": "ghost"})
    source = ConfigSource(server.where, lambda: TritonStats((flow("ghost"),)))
    assert [c.name for c in source.read().configs] == ["a", "ghost"]


def test_one_configuration_that_cannot_be_had(server: Server) -> None:
    models(server, ("a", "1"), ("b", "1"))
    server.answers["/v2/models/b/versions/1/config"] = answer({"error": "no available versions"}, 404)
    got = ConfigSource(server.where).read()
    assert [c.name for c in got.configs] == ["a"]
    assert got.failures == {"b": "configuration: 404: no available versions"}


def test_restricted_configurations(server: Server) -> None:
    models(server, ("a", "1"))
    server.answers["/v2/models/a/versions/1/config"] = RESTRICTED
    with pytest.raises(SourceError) as caught:
        ConfigSource(server.where).read()
    assert caught.value.kind == "permission"


def test_many_models_come_in_several_reads(server: Server) -> None:
    models(server, *((f"m{n:03}", "1") for n in range(100)))
    source = ConfigSource(server.where)
    assert len(source.read().configs) == 2 * source.MOST
    assert source.interval == 1.0
    assert len(source.read().configs) == 100
    assert source.interval == 3.0


def test_on_a_large_box_models_that_work_come_more_often_and_all_come(server: Server, clock: Clock) -> None:
    names = [f"m{n:02}" for n in range(50)]
    models(server, *((name, "1") for name in names))
    idle = {name: ModelStats(name, "1") for name in names}
    now = [idle]
    source = ConfigSource(
        server.where, lambda: TritonStats(tuple(ModelFlow(ModelKey(name, "1"), one) for name, one in now[0].items()))
    )
    source.read()
    fetched(server)
    clock.now += source.WORKING
    source.read()
    assert fetched(server) == [], "nobody works"
    now[0] = idle | {"m33": ModelStats("m33", "1", success_count=9)}
    source.read()
    assert fetched(server) == ["m33"]
    clock.now += source.IDLE
    now[0] = {name: ModelStats(name, "1", success_count=10) for name in names}
    asked: list[str] = []
    for _ in range(2):
        source.read()
        turn = fetched(server)
        assert len(turn) <= source.MOST
        asked += turn
    assert sorted(asked) == names, "each once, before any twice"
    assert source.interval == 3.0


def hangs(peer: socket.socket) -> None:
    peer.recv(1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConfigSource, "LIMITS", Limits(read=0.1, kept=0.1))


@pytest.mark.usefixtures("impatient")
def test_a_model_that_hangs_keeps_no_other_from_being_read(server: Server, clock: Clock) -> None:
    models(server, ("a", "1"), ("b", "1"), ("c", "1"))
    server.answers["/v2/models/a/versions/1/config"] = hangs
    source = ConfigSource(server.where)
    got = source.read()
    assert [config.name for config in got.configs] == ["b", "c"]
    assert list(got.failures) == ["a"]
    assert "did not answer within 0.1 s" in got.failures["a"]
    fetched(server)
    for pause in (10.0, 20.0, 40.0, 60.0, 60.0):
        clock.now += pause - 1
        source.read()
        assert fetched(server) == ["b", "c"], "not asked before its time"
        clock.now += 1.5
        source.read()
        assert set(fetched(server)) == {"a"}
    models(server, ("a", "1"), ("b", "1"), ("c", "1"))
    clock.now += 60
    got = source.read()
    assert ([config.name for config in got.configs], got.failures) == (["a", "b", "c"], {})


@pytest.mark.usefixtures("impatient")
def test_what_a_silent_model_had_stays_until_it_is_loaded_anew(server: Server, clock: Clock) -> None:
    models(server, ("a", "1"))
    resets = [0]
    source = ConfigSource(server.where, lambda: TritonStats((flow("a", resets=resets[0]),)))
    source.read()
    server.answers["/v2/models/a/versions/1/config"] = hangs
    clock.now += source.interval
    got = source.read()
    assert ([config.name for config in got.configs], list(got.failures)) == (["a"], ["a"])
    resets[0] = 1
    clock.now += 10
    got = source.read()
    assert (got.configs, list(got.failures)) == ((), ["a"])


def test_a_server_that_goes_meanwhile_is_not_asked_for_all_the_others(server: Server, clock: Clock) -> None:
    models(server, ("a", "1"), ("b", "1"), ("c", "1"))
    server.answers["/v2/models/a/versions/1/config"] = None
    source = ConfigSource(server.where)
    got = source.read()
    assert (got.configs, list(got.failures)) == ((), ["a"])
    assert source.interval == 1.0
    assert [config.name for config in source.read().configs] == ["b", "c"]
    models(server, ("a", "1"), ("b", "1"), ("c", "1"))
    source.close()
    assert source.read().failures == {}, "opened again, nobody is left waiting"


def test_a_slow_server_is_not_asked_for_all_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    models(server, *((f"m{n}", "1") for n in range(10)))
    monkeypatch.setattr(ConfigSource, "PATIENCE", -1.0)
    assert len(ConfigSource(server.where).read().configs) == 1


def test_configurations_without_an_index(server: Server) -> None:
    with pytest.raises(SourceError, match="repository index: 404"):
        ConfigSource(server.where).read()


# ------------------------------------------------------------------------------------------- a server that misbehaves


@pytest.mark.parametrize("source_type", [IndexSource, StatsSource, MetricsSource, ConfigSource])
@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 5000, b"null", b"{}", b'[{"name":1}]', json.dumps("x").encode()])
def test_nonsense_is_a_source_error(server: Server, source_type: Any, body: bytes) -> None:
    for path in ("/v2/repository/index", "/v2/models/stats", "/metrics"):
        server.answers[path] = answer(body)
    with pytest.raises(SourceError) as caught:
        source_type(server.where).read()
    assert caught.value.kind == "protocol"
