"""The load generator on a real Triton: counts, stalls, content, bounds, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console import cli
from console.clients import golden_store
from console.clients.golden_store import ask_question, golden_of
from console.clients.triton import TritonAddress
from console.clients.triton_ask import make_question
from console.loadgen.announce import going_on
from tests.lab import podman
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config, write

pytestmark = pytest.mark.lab

WRONG = 'version_policy { all { } } parameters [ { key: "mood.v3" value { string_value: "wrong" } } ]'
ENSEMBLE = """
name: "ens" platform: "ensemble" max_batch_size: 8
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "rank" model_version: -1
  input_map { key: "FEATURES" value: "FEATURES" } output_map { key: "SCORE" value: "SCORE" }
} ] }
"""
VARIABLE = """
name: "wide" backend: "python" max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters [ { key: "base_us" value { string_value: "2000" } } ]
"""
LIMITED = "dynamic_batching { default_queue_policy { max_queue_size: 2 } }"
MODELS = {("rank", "1"), ("plain", "1"), ("moods", "3"), ("errs", "1"), ("wide", "1"), ("ens", "1"), ("full", "1")}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    root = tmp_path_factory.mktemp("load") / "repository"
    write("rank", sleeper_config("rank", base_us=4000, item_us=500), root=root)
    write("plain", sleeper_config("plain", max_batch=0, batching=None, base_us=2000), root=root)
    write("moods", sleeper_config("moods", more=WRONG), (1, 3), program="rogue.py", root=root)
    write("errs", sleeper_config("errs", error_every=10), root=root)
    write("full", sleeper_config("full", max_batch=1, batching=LIMITED, base_us=20000), root=root)
    write("wide", VARIABLE, program="moody.py", root=root)
    write("ens", ENSEMBLE, root=root)
    with own_triton(root, wait=False) as made:
        made.wait_ready(MODELS)
        yield made


def words(own: OwnTriton) -> list[str]:
    ports = ("--http-port", str(own.port), "--grpc-port", str(own.port + 1), "--metrics-port", str(own.port + 2))
    return ["loadtest", "--host", "127.0.0.1", *ports, "--look-before", "0"]


Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(own: OwnTriton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`gpuconsole loadtest ... --json` in this process: exit code and record."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def called(*more: str) -> tuple[int, dict[str, Any]]:
        code = cli.run([*words(own), *more, "--json"])
        told = capsys.readouterr()
        assert told.err == ""
        return code, json.loads(told.out)

    return called


@contextlib.contextmanager
def typed(own: OwnTriton, state: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own."""
    environ = {**os.environ, "XDG_STATE_HOME": str(state), "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "console", *words(own), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as process:
        yield process
        process.kill()


def success(own: OwnTriton, model: str) -> int:
    _, told = own.triton("GET", f"/v2/models/{model}/stats")
    return sum(one["inference_stats"]["success"]["count"] for one in told["model_stats"])


@pytest.mark.parametrize(
    "more",
    [
        ("rank", "--concurrency", "1"),
        ("rank", "--concurrency", "16"),
        ("rank", "--concurrency", "64"),
        ("rank", "--rate", "150", "--poisson"),
        ("rank", "--rate", "20..200", "--random"),
        ("rank", "1", "--concurrency", "2", "--batch", "4"),
        ("plain", "--concurrency", "2"),
        ("wide", "--rate", "50", "--shape", "IN:8"),
        ("ens", "--concurrency", "4"),
    ],
)
def test_every_request_is_counted_by_the_server_and_the_means_agree(run: Run, more: tuple[str, ...]) -> None:
    code, found = run(*more, "--duration", "2s", "--warmup", "300ms")
    client, server = found["client"], found["server"]
    assert code == 0
    assert client["errors"] == {}
    assert client["sent"] == client["done"] == client["latency"]["count"] == server["requests"] > 50
    rest = client["latency"]["mean"] - server["total_ms"]
    assert 0 < rest < max(3.0, 0.5 * server["total_ms"])
    assert found["not_valid"] == ""


def test_an_open_loop_sends_the_rate_whatever_the_answers(run: Run) -> None:
    _, found = run("rank", "--rate", "100", "--duration", "3s")
    assert found["client"]["sent"] == 300
    assert found["client"]["late_mean_ms"] < 5


def test_failures_that_the_servers_counters_miss_are_counted(run: Run) -> None:
    code, found = run("errs", "--count", "100", "--concurrency", "2", "--max-errors", "100", "--warmup", "0")
    assert code == 0
    assert found["client"]["errors"]["http 500"]["count"] == 10
    assert found["client"]["errors"]["http 500"]["text"] == "feature store has no such user"
    assert found["server"]["requests"] == 100
    code, found = run("full", "--rate", "200", "--duration", "2s", "--max-errors", "100", "--warmup", "0")
    assert "http 503" in found["client"]["errors"]
    assert found["server"]["requests"] == found["client"]["done"]
    assert found["server"]["failures"] == 0


def test_too_many_errors_end_it(run: Run) -> None:
    code, found = run("errs", "--concurrency", "4", "--duration", "60s", "--warmup", "0")
    assert code == 1
    assert found["ended"].startswith("errors: ")
    assert found["client"]["seconds"] < 10


def test_a_wrong_answer_is_found_though_the_server_calls_it_success(own: OwnTriton, run: Run, tmp_path: Path) -> None:
    address = TritonAddress(http_port=own.port)
    question = make_question(address, "moods", "1")
    _, outputs = ask_question(address, "moods", "1", question)
    golden_store.save(tmp_path / "gpuconsole", golden_of("moods", "1", question, outputs, 1e-3, 1.0, "test"))
    code, found = run("moods", "1", "--golden", "--count", "50", "--warmup", "0")
    assert (code, found["client"]["errors"]) == (0, {})
    code, found = run("moods", "3", "--golden", "--count", "50", "--warmup", "0", "--max-errors", "100")
    assert found["client"]["errors"]["wrong content"] == {"count": 50, "text": "SCORE: value 0 is 1, kept 0"}
    assert found["server"]["requests"] == 50
    assert found["server"]["failures"] == 0


def tritonserver(own: OwnTriton) -> int:
    """The process of this test's own server."""
    pid = int(podman.run("inspect", "--format", "{{.State.Pid}}", own.name).stdout)
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "tritonserver"
    return pid


def test_a_server_frozen_for_a_second_shows_in_the_open_loop_and_hides_in_the_closed_one(
    own: OwnTriton, tmp_path: Path
) -> None:
    pid = tritonserver(own)
    common = ("--duration", "10s", "--warmup", "500ms", "--json")
    with (
        typed(own, tmp_path, "rank", "--rate", "100", *common) as opened,
        typed(own, tmp_path, "rank", "--concurrency", "1", *common) as closed,
    ):
        running = {opened.pid, closed.pid}
        while not running <= {one.pid for one in going_on()}:
            time.sleep(0.05)
        time.sleep(4)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(1)
        finally:
            os.kill(pid, signal.SIGCONT)
        records = [json.loads(one.communicate(timeout=60)[0]) for one in (opened, closed)]
    seen, hidden = (one["client"]["latency"] for one in records)
    assert records[0]["steady"].startswith("a stall before second")
    assert seen["p99"] > 700
    assert seen["max"] > 950
    assert hidden["max"] > 900
    assert hidden["p99"] < 200


def test_a_reload_under_way_makes_the_run_not_valid_and_ends_it(own: OwnTriton, tmp_path: Path) -> None:
    with typed(own, tmp_path, "plain", "--rate", "50", "--duration", "60s", "--warmup", "0", "--json") as process:
        time.sleep(3)
        changed = sleeper_config("plain", max_batch=0, batching=None, base_us=3000)
        (own.repository / "plain" / "config.pbtxt").write_text(changed)
        assert own.load("plain")[0] == 200
        found = json.loads(process.communicate(timeout=30)[0])
    assert process.returncode == 1
    assert found["not_valid"].startswith("plain was loaded anew at")
    assert found["client"]["errors"] == {}
    assert found["client"]["seconds"] < 30


def test_ctrl_c_stops_it_at_once(own: OwnTriton, tmp_path: Path) -> None:
    with typed(own, tmp_path, "rank", "--concurrency", "8", "--duration", "10m", "--warmup", "0") as process:
        assert process.stdout is not None
        while "of 600 s" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        pressed = time.monotonic()
        time.sleep(0.3)
        asked = success(own, "rank")
        time.sleep(0.5)
        assert success(own, "rank") == asked
        rest, _ = process.communicate(timeout=10)
    assert time.monotonic() - pressed < 5
    assert process.returncode == 130
    assert "ended        ▲ stopped" in rest


def test_killing_the_console_ends_the_load(own: OwnTriton, tmp_path: Path) -> None:
    with typed(own, tmp_path, "rank", "--concurrency", "8", "--duration", "10m", "--warmup", "0") as process:
        assert process.stdout is not None
        while "of 600 s" not in process.stdout.readline():
            pass
        process.kill()
        time.sleep(0.5)
        asked = success(own, "rank")
        time.sleep(0.5)
        assert success(own, "rank") == asked


@contextlib.contextmanager
def others(own: OwnTriton, state: Path, *more: str) -> Iterator[None]:
    """A load that another console sends, all the while."""
    with typed(own, state / "other", *more, "--duration", "5m", "--warmup", "0") as process:
        assert process.stdout is not None
        while "of 300 s" not in process.stdout.readline():
            pass
        yield


def test_two_loads_side_by_side_know_of_each_other(run: Run, own: OwnTriton, tmp_path: Path) -> None:
    with others(own, tmp_path, "rank", "--rate", "100"):
        words = ("rank", "--rate", "50", "--warmup", "0", "--look-before", "2s")
        code, found = run(*words, "--duration", "3s", "--max-live-ms", "5000")
        limited = [run(*words, "--duration", "60s", "--max-live-ms", "rank=0.1", "--look-before", "0")]
    assert code == 0
    assert found["server"]["requests"] > found["client"]["done"] + 100
    (live,) = found["live"]
    assert (live["model"], live["ours"]) == ("rank", True)
    for part in ("before", "during"):
        assert 60 < live[part]["rate"] < 140
        assert 4 < live[part]["mean_ms"] < 100
    ((code, stopped),) = limited
    assert code == 1
    assert stopped["ended"].startswith("live users: mean of rank ")
    assert stopped["client"]["seconds"] < 30


def test_a_model_that_only_others_ask_is_watched_too(run: Run, own: OwnTriton, tmp_path: Path) -> None:
    with others(own, tmp_path, "plain", "--rate", "50"):
        code, found = run("rank", "--rate", "50", "--duration", "60s", "--warmup", "0", "--max-live-ms", "plain=1")
    assert code == 1
    assert found["ended"].startswith("live users: mean of plain ")
    (live,) = found["live"]
    assert (live["model"], live["ours"], live["before"]) == ("plain", False, None)
    assert 2 < live["during"]["mean_ms"] < 100


def test_two_models_in_one_run_are_counted_apart(run: Run) -> None:
    words = ("rank", "--mix", "plain=0.25", "--concurrency", "8", "--count", "800", "--warmup", "200ms")
    code, found = run(*words, "--duration", "60s")
    assert code == 0
    assert [share["sent"] for share in found["client"]["shares"]] == [600, 200]
    for model, share in zip(found["models"], found["client"]["shares"], strict=True):
        assert model["server"]["requests"] == share["done"] == share["latency"]["count"]
        assert 0 < share["latency"]["mean"] - model["server"]["total_ms"] < 20
    assert found["live"] == []
