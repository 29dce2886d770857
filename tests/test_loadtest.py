"""`gpuconsole loadtest` as a user meets it, on the simulated box: exit codes, sentences, what is kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from console import cli
from console.clients.host import process, user_name
from console.loadgen.announce import going_on
from console.loadgen.record import load_all
from console.simulator import launch

Run = Callable[..., int]


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, ...]]:
    """The flags that lead to a simulated Triton."""
    with launch.start("healthy", 0) as box:
        told = box.addresses
        yield ("--host", "127.0.0.1", "--http-port", told.http.rpartition(":")[2], "--metrics-port",
               told.metrics.rpartition(":")[2])  # fmt: skip


@pytest.fixture
def run(at: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in this process; it returns its exit code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return lambda *words: cli.run(["loadtest", *at, *words])


def test_a_run_is_told_kept_listed_and_compared(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ranking", "--rate", "60", "--poisson", "--duration", "1.5s", "--warmup", "200ms", "--slo-p99-ms")
    assert run(*words, "5000") == 0
    told = capsys.readouterr().out
    assert "open loop, Poisson, 60/s, for 1.5 s after 0.2 s of warm-up" in told
    assert "run 1: ranking any version" in told
    assert "from intended sending time" in told
    assert "others asked it too" in told
    assert "goal         ● p99" in told
    assert run(*words, "0.001") == 1
    assert "goal         ✗ p99" in capsys.readouterr().out
    assert run("--list") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert run("--compare", "1", "last") == 0
    assert "distribution, share of the latencies" in capsys.readouterr().out
    assert run("--compare", "1", "9") == 64
    assert "there is no run '9'; there are runs 1 to 2" in capsys.readouterr().err


def test_one_object(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ranking", "--concurrency", "2", "--count", "20", "--warmup", "0", "--batch", "4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["batch"], found["client"]["done"], found["client"]["errors"]) == (1, 4, 20, {})
    assert found["server"]["requests"] >= 20
    assert found["config"]["batching"] == "dynamic"
    assert run("--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [found]


def test_steps_and_cards_are_told_kept_and_compared(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ranking", "--rate", "40,80", "--duration", "2s", "--warmup", "0", "--look-before", "0")
    assert run(*words) == 0
    told = capsys.readouterr().out
    assert "asked/s    SENT/s    DONE/s" in told
    assert "  40      40.0" in told
    assert "GPU          ? " in told  # the simulated server's card is not of this machine
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [stage["sent"] for stage in found["client"]["stages"]] == [40, 80]
    assert found["cards"] == []
    assert found["cards_unknown"]
    assert run("--compare", "1", "2") == 0
    assert "at 80 p99 ms" in capsys.readouterr().out


def test_the_simulated_boxs_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ("ranking", "--rate", "20", "--duration", "2s", "--warmup", "0", "--look-before", "0", "--json")
    assert cli.run(["loadtest", "--demo", *words]) == 0
    (card,) = json.loads(capsys.readouterr().out)["cards"]
    assert card["index"] == 0
    assert 10 < card["util_pct"] <= card["util_max_pct"] <= 100
    assert card["sm_mhz"] > 1000


def test_two_models_in_one_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ranking", "--mix", "recall=0.25", "--rate", "80", "--duration", "1.5s", "--warmup", "200ms")
    assert run(*words, "--slo-p99-ms", "5000") == 0
    told = capsys.readouterr().out
    assert "load on ranking (any version) + recall (any version)" in told
    assert "recall: 25 % of the requests, done 2" in told
    assert "p99 <= 5000 ms for each model" in told
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["share"]) for one in found["models"]] == [("ranking", 0.75), ("recall", 0.25)]
    assert [one["sent"] for one in found["client"]["shares"]] == [90, 30]
    assert all(one["server"]["requests"] >= 30 for one in found["models"])
    assert found["server"] is None
    assert {one["model"]: one["ours"] for one in found["live"]} | {"ranking": True, "recall": True} == {
        one["model"]: one["model"] in ("ranking", "recall") for one in found["live"]
    }
    assert run("--list") == 0
    assert "ranking + recall" in capsys.readouterr().out
    assert run("--compare", "1", "2") == 0
    assert "recall p99 ms" in capsys.readouterr().out


PERF_ANALYZER = """#!/bin/sh
test "$1" = --version && { echo "Perf Analyzer Version 2.51.0 (commit unknown)"; exit 0; }
echo "$@" > "$HERE/words"
case "$MOOD" in
  hangs) echo $$ > "$HERE/pid"; exec sleep 600 ;;
  unstable) echo "Failed to obtain stable measurement."; exit 2 ;;
esac
for word; do report=$word; test "$last" = -f && break; last=$word; done
sed -n 1,2p "$CSV" > "$report"
echo "    Request count: 748"
"""
REPORTS = Path(__file__).parent / "data" / "perf_analyzer"


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for perf_analyzer: it tells what the real one told (tests/data)."""
    made = tmp_path / "pa"
    made.write_text(PERF_ANALYZER)
    made.chmod(0o755)
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("CSV", str(REPORTS / "verbose.csv"))
    return made


def test_perf_analyzer_as_the_engine(
    run: Run, binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("ranking", "--engine", "perf_analyzer", "--perf-analyzer", str(binary), "--duration", "6s")
    assert run(*words, "--dry-run") == 0
    assert "--concurrency-range 1 -b 1 -p 2000" in capsys.readouterr().out
    assert run(*words, "--random", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert (found["engine"], found["requests"], found["model"]) == ("perf_analyzer 2.51.0", 748, "ranking")
    assert (found["items"], found["p99_ms"], found["mean_ms"]) == (206.841, 10.39, 4.827)
    told = (tmp_path / "words").read_text()
    assert "--input-data random" in told
    assert "-m ranking" in told
    assert run(*words, "--read-only") == 77
    capsys.readouterr()
    assert run("ranking", "--count", "5", "--warmup", "0", "--look-before", "0") == 0
    assert run("--compare", "1", "2") == 0
    told = capsys.readouterr().out
    assert "engine: perf_analyzer 2.51.0 | gpuconsole" in told
    assert "no distribution: one of them is another program's" in told
    assert run("--list") == 0
    assert "perf_analyzer 2.51.0" in capsys.readouterr().out
    assert [one.id for one in load_all(tmp_path / "gpuconsole")] == [2]


def test_perf_analyzer_that_tells_nothing(
    run: Run, binary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOOD", "unstable")
    assert run("ranking", "--engine", "perf_analyzer", "--perf-analyzer", str(binary)) == 1
    assert capsys.readouterr().err == (
        "gpuconsole: perf_analyzer told no figures: Failed to obtain stable measurement.\n"
    )


def test_perf_analyzer_ends_when_it_is_stopped_and_with_us(at: Sequence[str], binary: Path, tmp_path: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        environ = {**os.environ, "MOOD": "hangs", "XDG_STATE_HOME": str(tmp_path)}
        words = ["ranking", "--engine", "perf_analyzer", "--perf-analyzer", str(binary)]
        with subprocess.Popen([sys.executable, "-m", "console", "loadtest", *at, *words], env=environ) as process:
            while not (tmp_path / "pid").exists():
                assert process.poll() is None
                time.sleep(0.02)
            pid = int((tmp_path / "pid").read_text())
            process.send_signal(number)
            assert process.wait(10) == code
        deadline = time.monotonic() + 5
        while _lives(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _lives(pid)
        (tmp_path / "pid").unlink()


def _lives(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.state != "Z"


def test_a_recorded_rate_is_replayed(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rates.csv").write_text("seconds,rate\n0,20\n0.5,60\n1,0\n")
    words = ("ranking", "--rate-file", str(tmp_path / "rates.csv"), "--warmup", "0", "--look-before", "0")
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["client"]["sent"] == 40
    assert [stage["sent"] for stage in found["client"]["stages"]] == [10, 30, 0]
    assert run(*words, "--rate", "5") == 64
    assert "--rate-file tells the rate itself" in capsys.readouterr().err
    assert run(*words[:2], "/nonexistent") == 64
    assert "--rate-file: /nonexistent cannot be read" in capsys.readouterr().err


def test_a_report_of_perf_analyzer_is_kept(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rank", "--import", str(REPORTS / "plain.csv")) == 0
    told = capsys.readouterr().out
    assert "run 1: rank any version, closed loop, 1 at once, by perf_analyzer (plain.csv)" in told
    assert "run 2: rank any version, closed loop, 2 at once" in told
    assert "it does not tell: errors, p99.9 and max" in told
    assert run("--import", str(REPORTS / "verbose.csv"), "--json") == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["id"], one["model"], one["mean_ms"], one["requests"]) for one in found] == [
        (3, "", 4.827, None),
        (4, "", 6.428, None),
    ]
    assert run("--compare", "1", "3") == 0
    assert ["p99", "ms", "9.46", "10.4", "+9.8", "%"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_dry_run_sends_and_keeps_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ranking", "--dry-run", "--read-only") == 0
    assert "dry run: nothing was sent" in capsys.readouterr().out
    assert run("--list") == 0
    assert "no run is kept yet" in capsys.readouterr().out


def test_read_only_sends_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ranking", "--read-only") == 77
    assert capsys.readouterr().err == (
        "gpuconsole: read-only: no load is sent; start gpuconsole without --read-only (settings: [safety])\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "loadtest wants a MODEL"),
        (["nosuch"], "nosuch is not served here; served are "),
        (["ranking", "77"], "ranking version 77 is not served here"),
        (["ranking", "--shape", "features:5"], "--shape features:5 does not fit features [64] of ranking"),
        (["ranking", "--shape", "feat:64"], "ranking has no input feat"),
        (["ranking", "--shape", "features"], "--shape must be NAME:8"),
        (["ranking", "--slo-p99-ms", "0"], "--slo-p99-ms must be more than 0, not 0"),
        (["ranking", "--slo-p99-ms", "nan"], "--slo-p99-ms must be more than 0"),
        (["ranking", "--slo-p99-ms", "x"], "invalid float value"),
        (["ranking", "--data", "/nonexistent.json"], "/nonexistent.json cannot be read: No such file"),
        (["ranking", "--data", "/dev/zero"], "/dev/zero is no plain file"),
        (["ranking", "--data", "~nobody-here/x"], "cannot be read"),
        (["ranking", "--data", "x", "--random"], "--data and --random exclude each other"),
        (["ranking", "--rate", "0"], "--rate must be a number from 0.1 to 50000"),
        (["ranking", "--rate", "5", "--concurrency", "5"], "give one of them"),
        (["ranking", "--concurrency", "0"], "--concurrency must be a whole number"),
        (["ranking", "--poisson"], "--poisson goes with --rate"),
        (["ranking", "--duration", "0"], "--duration must be more than 0"),
        (["ranking", "--duration", "5 parsecs"], "--duration must be a time such as 30s"),
        (["ranking", "--duration", "2h"], "--duration must be more than 0 and at most 3600 s"),
        (["ranking", "--warmup=-1s"], "--warmup must be from 0"),
        (["ranking", "--timeout", "0"], "--timeout must be from 0.01"),
        (["ranking", "--max-errors", "101"], "--max-errors must be from 0 to 100"),
        (["ranking", "--max-live-ms", "0"], "--max-live-ms must be M or MODEL=M, milliseconds above 0"),
        (["ranking", "--look-before", "1h"], "--look-before must be from 0 to 600 s"),
        (["ranking", "--mix", "recall"], "--mix must be MODEL=SHARE, a share above 0 and below 1"),
        (["ranking", "--mix", "recall=1"], "--mix must be MODEL=SHARE"),
        (["ranking", "--mix", "=0.5"], "--mix must be MODEL=SHARE"),
        (["ranking", "--mix", "ranking=0.5"], "--mix names ranking twice"),
        (["ranking", "--mix", "recall=0.5", "--mix", "reco=0.5"], "--mix: the shares leave nothing for ranking"),
        (["ranking", "--mix", "nosuch=0.5"], "nosuch is not served here"),
        (["ranking", "--mix", "recall/77=0.5"], "recall version 77 is not served here"),
        (["ranking", "--mix", "recall=0.5", "--shape", "recall/nosuch:8"], "recall has no input nosuch"),
        (["--import", "/nonexistent"], "--import: /nonexistent cannot be read: No such file"),
        (["--import", "/dev/zero"], "--import: /dev/zero is no plain file"),
        (["--import", __file__], "is no report of perf_analyzer"),
        (["--import", str(Path(__file__).parent / "data/perf_analyzer/rate.csv")], "rate mode, which hides stalls"),
        (["ranking", "--engine", "wrk"], "invalid choice"),
        (["ranking", "--perf-analyzer", "/bin/true"], "--perf-analyzer goes with --engine"),
        (["ranking", "--engine", "perf_analyzer", "--perf-analyzer", "/none"], "/none is no program that can be run"),
        (["ranking", "--engine", "perf_analyzer", "--rate", "5"], "--rate is not for perf_analyzer: its rate mode"),
        (["ranking", "--engine", "perf_analyzer", "--concurrency", "1,2"], "--concurrency must be one number"),
        (["ranking", "--engine", "perf_analyzer", "--slo-p99-ms", "5"], "--slo-p99-ms is not for perf_analyzer"),
        (["ranking", "--priority=-1"], "--priority must be from 0"),
        (["ranking", "--chance=-1", "--random"], "--chance must be from 0"),
        (["ranking", "--batch", "0"], "--batch must be from 1"),
        (["ranking", "--batch", "5000"], "ranking takes at most 16 a request"),
        (["ranking", "--golden"], "no question is kept for ranking"),
        (["ranking", "--golden", "--batch", "2"], "--golden sends the kept question as it is"),
        (["ranking", "--host", "192.0.2.7"], "192.0.2.7 is another host (192.0.2.7), which would get closed loop"),
        (["--compare", "1", "2"], "no run is kept yet"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(*words) == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n", "is no data file"),
        (b'{"data": [{"features": ["a"]}]}', "row 0 of d: features has 1 values; [64] wants 64"),
        (json.dumps({"data": [{"features": ["a"] * 64}]}).encode(), "values must be numbers, not 'a'"),
    ],
)
def test_a_data_file_of_the_wrong_type(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "d").write_bytes(content)
    assert run("ranking", "--data", str(tmp_path / "d")) == 64
    assert said in capsys.readouterr().err


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        assert cli.run(["loadtest", "m", "--host", "127.0.0.1", "--http-port", port, "--metrics-port", "1"]) == 64
    assert capsys.readouterr().err.startswith(
        f"gpuconsole: no load can be sent: 127.0.0.1:{port} refuses the connection"
    )


def started(at: Sequence[str], state: Path, *more: str) -> subprocess.Popen[str]:
    """A run of ten minutes as a process of its own."""
    words = [sys.executable, "-m", "console", "loadtest", *at, "ranking", "--duration", "10m", *more]
    environ = {**os.environ, "XDG_STATE_HOME": str(state), "LANG": "C.UTF-8"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, env=environ, text=True)


def test_others_are_told_of_and_a_limit_on_what_they_feel_ends_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ranking", "--rate", "20", "--duration", "1.5s", "--warmup", "0", "--json")
    assert run(*words, "--max-live-ms", "1e6") == 0
    found = json.loads(capsys.readouterr().out)
    live = {one["model"]: one for one in found["live"]}
    assert live["ranking"]["ours"]
    assert not live["recall"]["ours"]
    for part in ("before", "during"):
        assert live["ranking"][part]["rate"] > 1000
        assert 0.5 < live["ranking"][part]["mean_ms"] < 5
    assert found["live_limits"] == {"": 1e6}
    assert run(*words, "--max-live-ms", "0.1") == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpuconsole: --max-live-ms 0.1: ranking takes ")
    assert run(*words, "--max-live-ms", "nosuch=5") == 64
    assert "nosuch is not served here" in capsys.readouterr().err
    limited = ("ranking", "--rate", "20", "--duration", "60s", "--warmup", "30s", "--look-before", "0")
    assert run(*limited, "--max-live-ms", "0.1") == 1
    told = capsys.readouterr().out
    assert "stops itself above a mean of 0.1 ms of any model that others ask" in told
    assert "ended        ▲ live users: mean of " in told


def test_all_consoles_of_the_machine_know_of_it_while_it_runs(at: Sequence[str], tmp_path: Path) -> None:
    with started(at, tmp_path, "--warmup", "1s", "--rate", "5") as process:
        assert process.stdout is not None
        while "of 600 s" not in process.stdout.readline():
            pass
        (found,) = [one for one in going_on() if one.pid == process.pid]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert (found.by, found.model, found.target) == (user_name(os.getuid()), "ranking", f"127.0.0.1:{at[3]}")
    assert (found.words, found.seconds) == ("open loop, constant, 5/s", 601.0)
    assert process.pid not in [one.pid for one in going_on()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_stops_at_once_and_tells_what_was(at: Sequence[str], tmp_path: Path, number: int) -> None:
    with started(at, tmp_path, "--warmup", "0") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "of 600 s" in line:
                break
        process.send_signal(number)
        rest, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "ended        ▲ stopped" in rest
    assert "run 1: ranking" in rest


def test_it_stops_when_nobody_reads_it_any_more_and_keeps_what_was(at: Sequence[str], tmp_path: Path) -> None:
    with started(at, tmp_path, "--warmup", "0") as process:
        assert process.stdout is not None
        while "of 600 s" not in process.stdout.readline():
            pass
        process.stdout.close()
        process.wait(15)
    assert [run.ended for run in load_all(tmp_path / "gpuconsole")] == ["stopped"]


def test_stopped_within_the_warm_up_keeps_nothing(at: Sequence[str], tmp_path: Path) -> None:
    with started(at, tmp_path, "--warmup", "10m") as process:
        assert process.stdout is not None
        while "s left" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 130
    assert load_all(tmp_path / "gpuconsole") == []


def test_without_podman_the_settings_tell_where(
    at: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.run(["loadtest", *at[2:4], "--socket", str(tmp_path / "none"), "ranking", "--dry-run"]) == 0
    assert f"at 127.0.0.1:{at[3]}" in capsys.readouterr().out
