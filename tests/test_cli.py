"""The command line as a user meets it: in a process of its own, with its exit code and its one sentence."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from console import __version__, cli, compose
from console.clients.nvidia_host import pci_devices
from console.config import Podman, Settings, Triton
from console.core.model import Failure, Reading, Snapshot
from console.simulator import launch
from console.snapshot import PARTS, as_json, as_text
from tests.fakes import boxes

NOWHERE = ["--socket", "/nonexistent/podman.sock", "--host", "127.0.0.1", "--http-port", "1", "--metrics-port", "1"]


def run(*arguments: str, tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GPUCONSOLE_", "LC_", "CONTAINER_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "console", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**kept, **own, "LANG": "C.UTF-8", "TERM": "xterm-256color", **environ},
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nosuch"], "unrecognized arguments: --nosuch"),
        (["nosuch"], "invalid choice: 'nosuch'"),
        (["snapshot", "--http-port", "x"], "invalid int value: 'x'"),
        (["snapshot", "--http-port", "99999"], "from 0 to 65535"),
        (["--scene", "healthy"], "--scene goes with --demo"),
        (["--seed", "3"], "--seed goes with --demo"),
        (["--demo", "--scene", "sunny"], "invalid choice: 'sunny'"),
        (["--config", "/nonexistent.toml"], "does not exist"),
        (["tune"], "the following arguments are required: MODEL"),
        (["tune", "rank", "--objective", "fast"], "invalid choice: 'fast'"),
        (["tune", "rank", "--budget", "1s"], "`budget` must be from 15s to 60m, not 1s"),
        (["tune", "rank", "--demo"], "open `gpuconsole --demo` and press S on 3 Tune"),
    ],
)
def test_wrong_usage_is_one_sentence_and_64(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = run(*arguments, tmp_path=tmp_path)
    assert done.returncode == 64
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_simulated_box_that_does_not_start_is_one_sentence_and_70(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(scene: str, seed: int) -> None:
        raise launch.SimulatorError("it was not ready within 15 s")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(launch, "start", refuse)
    assert cli.run(["--demo", "snapshot"]) == 70
    assert capsys.readouterr().err == "gpuconsole: the simulated box cannot be started: it was not ready within 15 s\n"


def test_a_host_whose_name_cannot_be_one_has_no_server() -> None:
    triton, podman = Triton(host="a" * 70 + ".example"), Podman(socket="/nonexistent/podman.sock")
    settings = Settings(triton=triton, podman=podman)
    assert compose.nothing_here(settings) == (not pci_devices("/"))


def test_version_and_help(tmp_path: Path) -> None:
    assert run("--version", tmp_path=tmp_path).stdout.strip() == f"gpuconsole {__version__}"
    done = run("--help", tmp_path=tmp_path)
    assert done.returncode == 0
    for word in ("snapshot", "config", "--demo", "--read-only", "64"):
        assert word in done.stdout


def test_config_prints_origins_and_no_secret(tmp_path: Path) -> None:
    done = run("config", "--utc", tmp_path=tmp_path, GPUCONSOLE_TRITON_HEADERS="key=hunter2")
    assert done.returncode == 0
    assert "hunter2" not in done.stdout
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["ui.utc"].split()[1:] == ["true", "flag"]
    assert "GPUCONSOLE_TRITON_HEADERS" in lines["triton.headers"]
    assert run("config", "--example", tmp_path=tmp_path).stdout.startswith("# Settings of gpuconsole")


def test_nothing_at_all_is_a_snapshot_that_names_each_missing_part(tmp_path: Path) -> None:
    done = run(*NOWHERE, "snapshot", "--json", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["schema"] == 1
    assert said["parts"].keys() == set(PARTS)
    for part in ("triton.server", "triton.index", "triton.stats", "triton.metrics", "triton.config", "repository"):
        assert said["parts"][part]["value"] is None
        assert said["parts"][part]["error"]["message"], part
    assert said["parts"]["container"]["value"]["tried"][0]["error"]
    assert said["serving"]["word"] in ("NOTHING SERVES YET", "DOWN")


def test_a_locale_without_the_letters_of_a_name_is_no_fault(tmp_path: Path) -> None:
    """As ISO-8859-1 or GBK are, where standard output refuses what it cannot write."""
    where = ["--socket", "/nonexistent/排序.sock", *NOWHERE[2:]]
    done = run("snapshot", *where, tmp_path=tmp_path, LC_ALL="en_US.ISO-8859-1", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "/nonexistent/??.sock" in done.stdout


def test_without_a_terminal_the_console_is_one_snapshot(tmp_path: Path) -> None:
    done = run("--demo", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert "one snapshot of the simulated box" in first
    assert "SIMULATED BOX" in second
    assert "ranking" in done.stdout


def test_a_dumb_terminal_gets_one_line_and_a_snapshot(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "console", *NOWHERE],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "dumb", "LANG": "C.UTF-8", "XDG_STATE_HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    os.close(master)
    os.close(slave)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert "TERM is dumb" in lines[0]
    assert lines[1].startswith("gpuconsole ")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m console config | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_json_says_why_for_each_part_and_text_holds_no_control_characters() -> None:
    for make in (boxes.drawn_box, boxes.empty_box, boxes.hostile_box, boxes.nothing_serves_box):
        made = make()
        snapshot = made if isinstance(made, Snapshot) else made.snapshot
        said = json.loads(as_json(snapshot, None))
        for part, content in said["parts"].items():
            assert content["value"] is not None or content["error"]["message"], part
        for ascii_only in (False, True):
            text = as_text(snapshot, None, ascii_only=ascii_only)
            assert not any(ord(char) < 32 and char != "\n" for char in text)
            assert "Traceback" not in text
    assert as_text(snapshot, "healthy").startswith("SIMULATED BOX")


def test_a_part_that_was_never_tried_is_named() -> None:
    text = as_text(Snapshot(), None)
    for part in PARTS:
        assert part in text
    failed = msgspec.structs.replace(
        Snapshot(), gpu=Reading("gpu", 1.0, error=Failure("unavailable", "no card", "buy one"))
    )
    assert "no card; buy one" in as_text(failed, None)


def test_a_fault_of_ours_is_one_line_and_its_trace_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(cli, "state_dir", lambda: tmp_path)
    monkeypatch.setattr(cli, "_command", broken)
    assert cli.run(["config"]) == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(tmp_path / "gpuconsole.log") in said.err
    assert "ZeroDivisionError: a fault" in (tmp_path / "gpuconsole.log").read_text()
    assert (tmp_path / "gpuconsole.log").stat().st_mode & 0o077 == 0
