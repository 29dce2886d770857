"""A real Prometheus scrapes the exporter, every query of the dashboard answers, promtool finds nothing to say.

Debian's package `prometheus` has both programs; where they are not on PATH this is not tested.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.exporter.run import DASHBOARD, SCRAPE, file
from tests.lab.fixtures import Lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("promtool") is None or shutil.which("prometheus") is None,
        reason="prometheus and promtool are not on PATH (apt-get install prometheus)",
    ),
]
WITHIN = 100.0
MAY_BE_EMPTY = ("model_live_only", "model_newer_on_disk", "reading_failed", "gpuconsole_alert{")
"""Queries about troubles that the box need not have."""


@contextmanager
def exporter(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """`host:port` of an exporter that has read its box."""
    command = (sys.executable, "-m", "console", "exporter", "--listen", "127.0.0.1:0", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().removeprefix("http://").split("/")[0]
        finally:
            running.terminate()


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[str]:
    """Address of a Prometheus that scrapes it each second, by the configuration that we print."""
    text = file(SCRAPE).replace("127.0.0.1:9835", target).replace("scrape_interval: 10s", "scrape_interval: 1s")
    (folder / "prometheus.yml").write_text(text.replace("scrape_timeout: 5s", "scrape_timeout: 1s"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = (
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def _api(address: str, path: str, **words: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=10) as answer:
        told = json.load(answer)
    assert told["status"] == "success"
    return told["data"]


def queries() -> Sequence[str]:
    """All of the dashboard, with its variables filled in as Grafana does for All."""
    board = json.loads(file(DASHBOARD))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [one.replace("$instance", ".*").replace("$model", ".*").replace("$__rate_interval", "20s") for one in found]


def _all_answer(address: str, may_be_empty: Sequence[str]) -> None:
    """Each query is understood, and has data at some time unless it is one of those."""
    _wait_for(address)
    wanted = [one for one in queries() if not any(name in one for name in may_be_empty)]
    assert len(wanted) > 15
    deadline = time.monotonic() + WITHIN
    while wanted and time.monotonic() < deadline:
        wanted = [one for one in wanted if not _api(address, "query", query=one)["result"]]
        time.sleep(1.0)
    assert wanted == []
    for one in queries():
        _api(address, "query", query=one)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if any(one["health"] == "up" for one in _api(address, "targets", state="active")["activeTargets"]):
                return
        time.sleep(0.2)


def _checked(target: str) -> None:
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        page = answer.read()
    done = subprocess.run(("promtool", "check", "metrics"), input=page, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_on_the_simulated_box(tmp_path: Path) -> None:
    with exporter("--demo", "--scene", "throttled") as target, prometheus(target, tmp_path) as address:
        _all_answer(address, MAY_BE_EMPTY)
        _checked(target)
        (found,) = _api(address, "targets", state="active")["activeTargets"]
        assert (found["health"], found["lastError"]) == ("up", "")
        assert _api(address, "label/model/values") == ["ranking", "recall", "reco", "rerank"]


NO_TRAFFIC = ("request_seconds", "time_seconds", "batch_size", "gpuconsole_verdict{", "gpuconsole_check{")
"""What a lab without load has no figures for."""


@pytest.mark.lab
def test_on_a_real_server(lab: Lab, tmp_path: Path) -> None:
    words = (
        *("--socket", lab.podman_url, "--container", lab.container),
        *("--http-port", str(lab.port), "--grpc-port", str(lab.port + 1), "--metrics-port", str(lab.port + 2)),
    )
    with exporter(*words, environment=lab.environment) as target, prometheus(target, tmp_path) as address:
        _all_answer(address, (*MAY_BE_EMPTY, *NO_TRAFFIC, "slowed_seconds", "model_gpu_memory"))
        _checked(target)
        assert _api(address, "query", query="gpuconsole_serving == 1")["result"]


def test_the_scrape_configuration_is_valid(tmp_path: Path) -> None:
    (tmp_path / "scrape.yml").write_text(file(SCRAPE))
    done = subprocess.run(
        ("promtool", "check", "config", str(tmp_path / "scrape.yml")), capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
