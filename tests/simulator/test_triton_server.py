"""The Triton stand-in, read with the real clients and held against answers recorded from Triton 2.51.0."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from console.simulator import inference
from console.simulator.launch import Addresses
from console.simulator.scenes import RANKING
from tests.simulator.conftest import TESTS, recorded


def get(addresses: Addresses, path: str) -> httpx.Response:
    return httpx.get(f"http://{addresses.http}{path}")


def keys(value: Any) -> Any:
    """The shape of a JSON value: keys in order, element of a list by its first."""
    if isinstance(value, dict):
        return {key: keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [keys(value[0])] if value and isinstance(value[0], dict) else []
    return type(value).__name__


def test_the_official_client_reads_everything(live: Addresses) -> None:
    with triton.InferenceServerClient(live.http) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("ranking")
        assert not client.is_model_ready("nosuch")
        assert client.get_server_metadata()["version"] == "2.51.0"
        names = [entry["name"] for entry in client.get_model_repository_index()]
        assert names == ["ranking", "recall", "reco", "rerank"]
        assert client.get_model_metadata("ranking")["inputs"][0]["shape"] == [-1, 64]
        assert client.get_model_config("ranking")["max_batch_size"] == 16
        assert client.get_inference_statistics("recall")["model_stats"][0]["version"] == "7"
        assert client.get_trace_settings()["trace_level"] == ["OFF"]
        assert client.get_log_settings()["log_verbose_level"] == 0


@pytest.mark.parametrize("binary", [True, False])
def test_the_official_client_infers(live: Addresses, binary: bool) -> None:
    with triton.InferenceServerClient(live.http) as client:
        tensor = triton.InferInput("features", [3, 64], "FP32")
        tensor.set_data_from_numpy(np.ones((3, 64), np.float32), binary_data=binary)
        wanted = [triton.InferRequestedOutput("score", binary_data=binary)]
        result = client.infer("ranking", [tensor], outputs=wanted, request_id="7")
        assert result.as_numpy("score").shape == (3, 1)
        assert result.get_response()["id"] == "7"
        assert client.infer("ranking", [tensor]).as_numpy("score").dtype == np.float32


def test_an_ensemble_infers(live: Addresses) -> None:
    with triton.InferenceServerClient(live.http) as client:
        tensor = triton.InferInput("user_id", [1, 1], "INT64")
        tensor.set_data_from_numpy(np.array([[41]], np.int64))
        assert client.infer("reco", [tensor]).as_numpy("score").shape == (1, 1)


def test_errors_are_worded_as_triton_words_them(live: Addresses) -> None:
    errors = recorded("triton_errors.json")
    with triton.InferenceServerClient(live.http) as client:
        tensor = triton.InferInput("features", [99, 64], "FP32")
        tensor.set_data_from_numpy(np.ones((99, 64), np.float32))
        with pytest.raises(InferenceServerException) as too_big:
            client.infer("ranking", [tensor])
        assert too_big.value.message() == json.loads(errors["infer_batch_too_big"][1])["error"].replace(
            "rank", "ranking"
        )
    body = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 5], "data": [0] * 5}]}
    answer = httpx.post(f"http://{live.http}/v2/models/ranking/infer", json=body)
    expected = json.loads(errors["infer_bad_shape"][1])["error"]
    expected = expected.replace("'input'", "'features'").replace("'rank'", "'ranking'").replace("256", "64")
    assert answer.status_code == errors["infer_bad_shape"][0]
    assert answer.json() == {"error": expected}
    wrong = get(live, "/v2/models/ranking/versions/9/config")
    assert wrong.status_code == errors["infer_bad_version"][0]
    assert wrong.json()["error"] == "Request for unknown model: 'ranking' version 9 is not found"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/models/stats", 405),
        ("GET", "/nothing", 404),
        ("GET", "/v2/models/nosuch", 404),
        ("GET", "/v2/models/nosuch/config", 404),
        ("GET", "/v2/models/nosuch/stats", 400),
        ("GET", "/v2/models/ranking/versions/9/stats", 400),
        ("GET", "/v2/models/nosuch/ready", 400),
        ("GET", "/v2/models/ranking/versions/two/config", 400),
        ("GET", "/v2/repository/models/ranking/load", 405),
        ("POST", "/v2/repository/models/nosuch/load", 500),
        ("POST", "/v2/repository/models/nosuch/unload", 200),
        ("POST", "/v2/repository/models/ranking/load", 200),
        ("GET", "/v2/health/live", 200),
        ("GET", "/v2/models/ranking/versions/2/ready", 200),
        ("GET", "/v2/models/ranking/trace/setting", 200),
    ],
)
def test_status_codes(live: Addresses, method: str, path: str, status: int) -> None:
    assert httpx.request(method, f"http://{live.http}{path}").status_code == status


def test_the_index_takes_a_body(live: Addresses, failed: Addresses) -> None:
    url = f"http://{failed.http}/v2/repository/index"
    assert [entry["name"] for entry in httpx.post(url, json={"ready": True}).json()] == ["ranking", "recall", "reco"]
    assert httpx.post(url, content=b"{").status_code == 500


def test_a_failed_model(failed: Addresses) -> None:
    entry = httpx.post(f"http://{failed.http}/v2/repository/index").json()[-1]
    assert list(entry) == list(recorded("triton_index_failed.json")[0])
    assert (entry["name"], entry["state"]) == ("rerank", "UNAVAILABLE")
    assert "expecting library version" in entry["reason"]
    assert get(failed, "/v2/health/live").status_code == 200
    assert get(failed, "/v2/health/ready").status_code == 400
    assert get(failed, "/v2/models/rerank/stats").status_code == 400
    assert get(failed, "/v2/models/rerank/config").json() == {
        "error": "Request for unknown model: 'rerank' has no available versions"
    }
    assert get(failed, "/v2/models/rerank/versions/3").status_code == 503
    statistics = get(failed, "/v2/models/stats").json()["model_stats"]
    assert [entry["name"] for entry in statistics] == ["ranking", "recall", "reco"]
    assert 'model="rerank"' not in httpx.get(f"http://{failed.metrics}/metrics").text


def test_statistics_have_the_recorded_shape(live: Addresses) -> None:
    real = recorded("triton_stats.json")["model_stats"][0]
    for entry in get(live, "/v2/models/stats").json()["model_stats"]:
        memory = entry.pop("memory_usage")
        assert keys(entry) == keys({key: value for key, value in real.items() if key != "memory_usage"})
        assert all(list(usage) == ["type", "id", "byte_size"] for usage in memory)


def test_configs_have_the_recorded_shape(live: Addresses) -> None:
    plain = get(live, "/v2/models/ranking/config").json()
    assert plain.pop("version_policy") == {"specific": {"versions": [2]}}
    real = recorded("triton_config.json")
    del real["version_policy"]
    assert keys(plain) == keys(real)
    ensemble = get(live, "/v2/models/reco/config").json()
    real = recorded("triton_config_ensemble.json")
    for step in (ensemble["ensemble_scheduling"]["step"][0], real["ensemble_scheduling"]["step"][0]):
        step["input_map"] = step["output_map"] = {}
    assert keys(ensemble) == keys(real)


def test_metrics_are_the_recorded_families_in_their_order(live: Addresses) -> None:
    page = httpx.get(f"http://{live.metrics}/metrics")
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    families = list(text_string_to_metric_families(page.text))
    real = (TESTS / "simulator" / "recorded" / "triton_metrics.txt").read_text()
    known = [
        family.name
        for family in text_string_to_metric_families(real)
        if "cache" not in family.name and not family.name.startswith("my")
    ]
    assert [family.name for family in families if not family.name.startswith(("nv_gpu", "nv_energy"))] == known
    heads = {line for line in real.splitlines() if line.startswith("#") and "cache" not in line}
    ours = {line for line in page.text.splitlines() if line.startswith("#")}
    assert {line for line in heads if " my" not in line} <= ours
    failures = next(family for family in families if family.name == "nv_inference_request_failure")
    assert {sample.labels["reason"] for sample in failures.samples} == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}


def test_metrics_port_answers_anything_but_only_to_get(live: Addresses) -> None:
    elsewhere = httpx.get(f"http://{live.metrics}/v2/health/ready")
    assert (elsewhere.status_code, elsewhere.content) == (200, b"")
    assert httpx.post(f"http://{live.metrics}/metrics").status_code == 405


def test_statistics_and_metrics_tell_the_same(live: Addresses) -> None:
    before = get(live, "/v2/models/ranking/stats").json()["model_stats"][0]["inference_stats"]["success"]["count"]
    page = httpx.get(f"http://{live.metrics}/metrics").text
    after = get(live, "/v2/models/ranking/stats").json()["model_stats"][0]["inference_stats"]["success"]["count"]
    line = next(x for x in page.splitlines() if x.startswith('nv_inference_request_success{model="ranking"'))
    assert before <= int(line.split()[-1]) <= after


def test_nobody_listens_where_triton_is_down(down: Addresses) -> None:
    for address in (down.http, down.metrics):
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{address}/")


ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["features", "score", "other"]) | st.none(),
        "datatype": st.sampled_from(["FP32", "INT8"]) | st.integers(),
        "shape": st.lists(st.integers(-2, 65), max_size=3) | st.just([2, 64]),
        "parameters": st.dictionaries(st.just("binary_data"), st.booleans() | st.none()) | st.lists(st.none()),
    },
)
BODIES = st.fixed_dictionaries(
    {"inputs": st.lists(ENTRIES, max_size=2) | st.none()},
    optional={
        "outputs": st.lists(ENTRIES, max_size=2),
        "id": st.text(max_size=3) | st.integers(),
        "parameters": ENTRIES,
    },
)


@given(st.binary(max_size=40) | BODIES.map(lambda body: json.dumps(body).encode()), st.none() | st.integers(0, 50))
def test_any_body_is_taken_or_refused_with_a_sentence(body: bytes, length: int | None) -> None:
    with contextlib.suppress(inference.BadRequestError):
        asked = inference.parse("ranking", RANKING.inputs, RANKING.outputs, 16, body, length)
        answer, _ = inference.render("ranking", 2, asked)
        assert answer.startswith((b'{"model_name":"ranking"', b'{"id":'))
