"""The socket: loopback unless more is meant, bounded, `/metrics` alone; the command."""

from __future__ import annotations

import http.client
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from console import cli
from console.core.plan import WrongInput
from console.exporter import server as module
from console.exporter.server import MOST_CLIENTS, Server, address, serve


def _collect() -> Iterator[Metric]:
    yield GaugeMetricFamily("up", "told", value=1)


@pytest.fixture
def server() -> Iterator[Server]:
    one = serve(("127.0.0.1", 0), _collect)
    yield one
    one.shutdown()
    one.server_close()


def _ask(server: Server, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    client.request(method, path)
    answer = client.getresponse()
    return answer.status, answer.read()


def test_metrics_and_nothing_else(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = _ask(server)
    assert status == 200
    assert b"up 1.0" in text
    assert _ask(server, "/")[0] == 404
    assert _ask(server, "/metrics/../etc/passwd")[0] == 404
    assert _ask(server, method="POST")[0] == 405
    assert server.url == f"http://127.0.0.1:{server.server_port}/metrics"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["127.0.0.1:9835", "[::1]:9835", "localhost:0", "127.8.8.8:1"])
def test_loopback_needs_no_word(text: str) -> None:
    host, port = address(text, open_to_others=False)
    assert host.strip("[]") in text
    assert text.endswith(f":{port}")


@pytest.mark.parametrize("text", ["0.0.0.0:9835", "[::]:9835", "192.0.2.7:9835", "infer-01:9835"])
def test_others_must_be_meant(text: str) -> None:
    with pytest.raises(WrongInput, match="would let other hosts read this box; add --open-to-others"):
        address(text, open_to_others=False)
    assert address(text, open_to_others=True)[1] == 9835


@pytest.mark.parametrize("text", ["", "9835", ":9835", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(WrongInput, match="--listen must be an address and a port"):
        address(text, open_to_others=True)


def test_a_port_that_is_taken_is_one_sentence(server: Server) -> None:
    with pytest.raises(WrongInput, match=r"cannot be had \(Address already in use\); choose another port"):
        serve(("127.0.0.1", server.server_port), _collect)


def test_a_slow_client_is_let_go_and_many_are_turned_away(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 6.0)  # longer than a busy machine takes to come to the question
    slow = [socket.create_connection(("127.0.0.1", server.server_port), timeout=20) for _ in range(MOST_CLIENTS)]
    time.sleep(0.3)
    with pytest.raises((http.client.HTTPException, OSError)):
        _ask(server)
    assert [one.recv(100) for one in slow] == [b""] * MOST_CLIENTS, "each was let go by the time limit"
    for one in slow:
        one.close()
    time.sleep(0.3)
    assert _ask(server)[0] == 200


def test_a_fault_of_ours_goes_to_the_log_not_the_terminal(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[Metric]:
        raise RuntimeError("hunter2")
        yield

    one = serve(("127.0.0.1", 0), broken)
    try:
        with caplog.at_level(logging.ERROR):
            assert _ask(one)[0] == 500
    finally:
        one.shutdown()
        one.server_close()
    assert "RuntimeError" in caplog.text
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_told_to_end(sent: signal.Signals) -> None:
    words = (sys.executable, "-m", "console", "exporter", "--demo", "--listen", "127.0.0.1:0")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        url = running.stdout.readline().split(";")[0]
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        text = b""
        for _ in range(300):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            client.request("GET", "/metrics")
            text = client.getresponse().read()
            if b"gpuconsole_model_busy_ratio" in text:
                break
            time.sleep(0.1)
        assert b'gpuconsole_model_busy_ratio{model="ranking",version="2"}' in text
        running.send_signal(sent)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--listen", "0.0.0.0:9835"], "add --open-to-others if that is meant"),
        (["--listen", "here"], "--listen must be an address and a port"),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["exporter", *words]) == 64
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_files_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["exporter", "--dashboard"]) == 0
    assert '"uid": "gpuconsole"' in capsys.readouterr().out
    assert cli.run(["exporter", "--scrape-config"]) == 0
    assert "job_name: gpuconsole" in capsys.readouterr().out
