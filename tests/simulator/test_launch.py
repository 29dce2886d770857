"""The simulated box as a process: it starts, steps, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from console.simulator import launch
from console.simulator.scenes import SCENES


def statistics(box: launch.RunningBox) -> Any:
    return httpx.get(f"http://{box.addresses.http}/v2/models/stats").json()


def gone(pid: int, within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_two_stepped_boxes_with_one_seed_are_the_same() -> None:
    with launch.start("delay-too-long", 5, stepped=True) as one, launch.start("delay-too-long", 5, stepped=True) as two:
        assert one.step(31) == one.addresses.start_ns + 31 * 10**9
        for _ in range(31):
            two.step(1)
        assert statistics(one) == statistics(two)
        assert Path(one.addresses.nvml).read_bytes() == Path(two.addresses.nvml).read_bytes()
        assert (Path(one.addresses.repository) / "ranking" / "3" / "model.plan").exists()
        before = statistics(one)
        assert statistics(one) == before


def test_files_on_disk_match_what_is_served() -> None:
    with launch.start("healthy", stepped=True) as running:
        root = Path(running.addresses.repository)
        assert sorted(path.name for path in root.iterdir()) == ["ranking", "recall", "reco", "rerank"]
        plan = root / "recall" / "7" / "model.plan"
        assert plan.stat().st_size == 1638 * 1024**2
        assert plan.stat().st_blocks * 512 < 1024**2
        assert "ensemble_scheduling" in (root / "reco" / "config.pbtxt").read_text()


@pytest.mark.parametrize("scene", list(SCENES))
def test_closing_leaves_nothing_behind(scene: str) -> None:
    running = launch.start(scene)
    folder = Path(running.addresses.nvml).parent
    assert running.addresses.scene == scene
    running.close()
    running.close()
    assert not psutil.pid_exists(running.addresses.pid)
    assert not folder.exists()


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """A console that is killed runs no clean-up; the box sees the end of the pipe and removes its files."""
    code = (
        "import time; from console.simulator import launch; b = launch.start('healthy');"
        "print(b.addresses.pid, b.addresses.nvml, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, state = parent.stdout.readline().split()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(int(pid))
    assert not Path(state).parent.exists()


def test_it_ends_by_signal_and_removes_what_it_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "console.simulator", "--dir", str(tmp_path), "--scene", "healthy"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 15
    while not (tmp_path / "box.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (tmp_path / "box.json").exists()
    process.terminate()
    assert process.wait(10) == 0
    assert not tmp_path.exists()


def test_a_thousand_models_are_served() -> None:
    with launch.start(models=1000, stepped=True) as running:
        before = {entry["name"]: entry for entry in statistics(running)["model_stats"]}
        running.step(2)
        after = {entry["name"]: entry for entry in statistics(running)["model_stats"]}
        assert len(before) == 1000
        assert sum(before[name] != after[name] for name in before) == 50
        index = httpx.post(f"http://{running.addresses.http}/v2/repository/index").json()
        assert len(index) == 1000
        page = httpx.get(f"http://{running.addresses.metrics}/metrics").text
        assert page.count("nv_inference_exec_count{") == 1000


def test_an_unknown_scene_is_one_sentence() -> None:
    with pytest.raises(launch.SimulatorError, match="choose one of healthy, queue-bound"):
        launch.start("sunny")


def test_a_box_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(launch.SimulatorError, match="ended at once"):
        launch.start()


@pytest.mark.parametrize("arguments", [["--scene", "sunny", "--dir", "."], ["--dir", "/nowhere"], []])
def test_wrong_usage_is_one_sentence_and_64(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "console.simulator", *arguments], capture_output=True, text=True)
    assert done.returncode == os.EX_USAGE
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_long_temporary_folder_is_avoided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Unix socket's path may not be longer than about 100 bytes."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with launch.start("healthy", stepped=True) as running:
        assert running.addresses.podman.startswith("unix:///tmp/")
    assert list(deep.iterdir()) == []
