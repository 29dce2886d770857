"""`gpuconsole predict` and `plan` as a user meets them, on the simulated box: words, exit codes, sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from console import cli
from console.simulator import launch

Run = Callable[..., int]
WINDOW = ("--window", "4s")


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, ...]]:
    """The flags that lead to a simulated Triton, whose models have traffic of their own."""
    with launch.start("healthy", 0) as box:
        told = box.addresses
        yield (
            *("--host", "127.0.0.1", "--http-port", told.http.rpartition(":")[2], "--metrics-port"),
            *(told.metrics.rpartition(":")[2], "--socket", told.podman),
        )


@pytest.fixture
def run(at: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in this process; it returns its exit code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return lambda command, *words: cli.run([command, *at, *words])


def test_a_prediction_stands_beside_what_is_seen(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predict", "ranking", "delay_us=4000", "max_batch_size=16", *WINDOW) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "looking at ranking 2 under its own traffic for 4 s"
    assert "requests/s over 4 s" in lines[1]
    assert "ms by batch   1: " in lines[2]
    assert lines[3] == "  ? bursts: Poisson arrivals are assumed"  # four counts tell nothing
    assert "told with delay_us=4000 max_batch_size=16" in lines[4]
    names = [line.split("  ")[1] for line in lines[5:14]]
    assert names[:3] == ["mean ms", "p50 ms", "p99 ms"]
    assert "?" in lines[7].split()  # nobody measured a p99
    assert " ± " in lines[7]
    assert any(line.startswith("  told now: trust ") for line in lines)
    assert "refused/s" not in "".join(lines)


def test_as_json_and_without_a_change(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predict", "ranking", "--json", *WINDOW) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["now"] == told["wanted"]
    assert told["observed"]["rate"] > 100
    assert told["now"]["mean_ms"]["value"] > 0
    assert told["now"]["trust"] in ("good", "fair", "poor")


def test_another_rate_by_what_was_seen_since_the_load_needs_no_look(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", "ranking", "2", "instances=1", "--since-load", "--rate", "50", "--window", "1h") == 0
    told = capsys.readouterr().out
    assert "looking at" not in told
    assert "rate not known since the load" in told
    assert "no wait was observed" in told


def test_what_the_model_leaves_out_is_said(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predict", "ranking", "preserve_ordering=on", "--since-load", "--rate", "50") == 0
    assert "not modelled, so it changes nothing here: preserve_ordering" in capsys.readouterr().out


def test_a_plan_and_the_rule_of_thumb(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "ranking", "--rate", "800", "--slo-p99-ms", "60", "--instance-gib", "1.5", *WINDOW)
    assert run(*words) == 0
    told = capsys.readouterr().out
    assert "for 800/s with p99 within 60 ms and 50% to spare" in told
    assert "  needs" in told
    assert "  rule of thumb" in told
    assert run(*words, "--json") == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["best"]["capacity"] >= 1600
    assert plan["best"]["p99_ms"]["value"] <= 60
    assert plan["thumb"]["instances"] >= 1


def test_a_goal_that_cannot_be_held_ends_with_1(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "ranking", "--rate", "800", "--slo-p99-ms", "0.01", "--since-load") == 1
    assert "only a faster model helps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("predict",), "predict wants a MODEL"),
        (("plan",), "plan wants a MODEL"),
        (("predict", "nosuch"), "nosuch is not served here"),
        (("predict", "ranking", "delay=5"), "`delay` is no batching field"),
        (("predict", "ranking", "delay_us=-5"), "delay_us"),
        (("predict", "ranking", "delay_us=1", "delay_us=2"), "given twice"),
        (("predict", "ranking", "2", "oops"), "is no key=value"),
        (("predict", "ranking", "preferred=64"), "above max_batch_size"),
        (("predict", "ranking", "--rate", "0"), "--rate must be more than 0"),
        (("predict", "ranking", "--rate", "nan"), "--rate must be more than 0"),
        (("predict", "ranking", "--rate", "x"), "invalid float value"),
        (("predict", "ranking", "--window", "soon"), "--window must be a time"),
        (("predict", "ranking", "--window", "0.1s"), "--window must be from 2 to 3600 s"),
        (("plan", "ranking", "--slo-p99-ms", "5"), "plan wants --rate"),
        (("plan", "ranking", "--rate", "5"), "plan wants --slo-p99-ms"),
        (("plan", "ranking", "--rate", "5", "--slo-p99-ms", "0"), "--slo-p99-ms must be more than 0"),
        (("plan", "ranking", "--rate", "-1", "--slo-p99-ms", "5"), "--rate must be more than 0"),
        (("plan", "ranking", "--rate", "5", "--slo-p99-ms", "5", "--headroom", "1"), "--headroom is a share"),
        (("plan", "ranking", "--rate", "5", "--slo-p99-ms", "5", "--instance-gib", "0"), "--instance-gib"),
    ],
)
def test_wrong_input_is_one_sentence(
    run: Run, capsys: pytest.CaptureFixture[str], words: Sequence[str], sentence: str
) -> None:
    assert run(*words) == 64
    told = capsys.readouterr()
    assert sentence in told.err
    assert len(told.err.splitlines()) == 1
    assert told.out == ""
