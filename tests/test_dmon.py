"""`gpuconsole dmon`: lines and CSV of a box, the simulated box, ctrl+c, a closed pipe, wrong words."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys

import pytest
from msgspec.structs import replace

from console import cli
from console.core.model import Snapshot
from console.dmon import COLUMNS, block, interval_s, table
from tests.fakes.boxes import drawn_box, empty_box, lost_gpu_box, stale_box

PROGRAM = (sys.executable, "-m", "console", "dmon", "--demo")


def _rows(snapshot: Snapshot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(snapshot, 1, "", utc=True, head=True))))


def test_lines_of_the_drawn_box() -> None:
    lines = block(drawn_box().snapshot, 10, "", utc=True, head=True).splitlines()
    assert lines[0].split()[:4] == ["#", "GPU", "util%", "mem%"]
    assert "MODEL (10 s)" in lines[1]
    assert lines[2].split()[1:] == ["gpu", "0", "64", "31", "41", "44", "66", "1590", "5000", "none"]
    ranking = next(line for line in lines if " ranking 2 " in line)
    assert ranking.split()[3:] == ["1650", "2.94", "1.23", "1.71", "4.3", "31", "2", "0.0"]
    reco = next(line for line in lines if " reco 1 " in line)
    assert reco.split()[3:] == ["180", "5.61", "-", "-", "-", "-", "-", "0.0"]
    assert all(line.isascii() and len(line) <= 102 for line in lines)
    assert not any("rerank" in line for line in lines), "it does not serve"


def test_csv_has_the_same_exactly() -> None:
    rows = _rows(drawn_box().snapshot)
    assert list(rows[0]) == list(COLUMNS)
    gpu, ranking = rows[0], rows[1]
    assert (gpu["kind"], gpu["name"], gpu["util_pct"], gpu["slowed_by"], gpu["req_per_s"]) == (
        "gpu",
        "0",
        "64",
        "none",
        "",
    )
    assert (ranking["kind"], ranking["name"], ranking["version"], ranking["util_pct"]) == ("model", "ranking", "2", "")
    assert gpu["time"].endswith("+00:00")
    assert int(gpu["vram_total_bytes"]) > 10**10


def test_only_one_kind() -> None:
    snapshot = drawn_box().snapshot
    assert "ranking" not in block(snapshot, 1, "gpu", utc=True, head=True)
    assert "gpu" not in block(snapshot, 1, "model", utc=True, head=True).lower()
    assert {row.split(",")[1] for row in table(snapshot, 1, "model", utc=True, head=False).splitlines()} == {"model"}


def test_what_is_not_known_is_no_figure() -> None:
    assert _rows(stale_box().snapshot) == []
    assert _rows(empty_box().snapshot) == []
    text = block(empty_box().snapshot, 1, "", utc=True, head=False)
    assert "no NVIDIA device" in text
    assert "connection refused" in text
    assert not [row for row in _rows(lost_gpu_box().snapshot) if row["kind"] == "gpu"]


def test_a_hostile_name_stays_on_its_line() -> None:
    snapshot = drawn_box().snapshot
    odd = replace(snapshot, models=tuple(replace(row, name='a\n"b",\x1b[2J' + "c" * 300) for row in snapshot.models))
    assert len(_rows(odd)) == len(_rows(snapshot))
    assert "\x1b" not in block(odd, 1, "", utc=True, head=False)
    assert max(map(len, block(odd, 1, "", utc=True, head=False).splitlines())) <= 102


def test_the_simulated_box(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.run(["dmon", "--demo", "--csv", "--count", "2"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert len(rows) == 2 * 5
    assert {row["name"] for row in rows} == {"0", "ranking", "recall", "reco", "rerank"}
    assert all(float(row["req_per_s"]) > 0 for row in rows if row["name"] == "ranking")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ends_when_told(sent: signal.Signals) -> None:
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("#")
        running.send_signal(sent)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")


def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        os.close(running.stdout.fileno())
        running.stdout = None
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--interval", "0.5s"], "--interval must be from 1s to 1h, not 0.5s"),
        (["--interval", "soon"], "--interval must be a time such as"),
        (["--count", "-1"], "--count must be 1 or more, not -1"),
        (["--only", "cpu"], "invalid choice"),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["dmon", *words]) == 64
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_an_hour_is_the_longest() -> None:
    assert interval_s(3600) == 3600
