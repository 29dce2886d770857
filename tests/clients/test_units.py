"""The owning unit: found by cgroup, by the `podman run` that made the container, by its file; as systemctl tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from console.clients import commands, units
from console.core.model import SourceError

SHOW = """LoadState=loaded
ActiveState=activating
SubState=auto-restart
NRestarts=118
ExecMainStatus=126
ExecMainExitTimestamp=Sat 2024-07-06 03:12:40 CST
StateChangeTimestamp=
"""


def tool(folder: Path, name: str, script: str) -> None:
    """A program of this name, first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_by_cgroup_and_by_command(tmp_path: Path) -> None:
    for pid, group, comm, line in (
        (10, "0::/machine.slice/libpod-conmon-1.scope", "conmon", "conmon"),
        (11, "0::/system.slice/triton.service", "podman", "podman\0run\0--name\0triton\0"),
        (12, "0::/system.slice/podman.service", "podman", "podman\0system\0service\0"),
    ):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(group + "\n")
        (folder / "comm").write_text(comm + "\n")
        (folder / "cmdline").write_text(line)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/99").mkdir()
    assert units.unit_of_processes((10,), ["podman", "run", "--name", "triton"], tmp_path) == "triton.service"
    assert units.unit_of_processes((11,), [], tmp_path) == "triton.service"
    assert units.unit_of_processes((10,), ["podman", "run", "other"], tmp_path) is None
    assert units.unit_of_processes((10,), [], tmp_path) is None
    assert units.unit_of_processes((), ["x"], tmp_path / "nowhere") is None


def test_by_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    (folder / "a.service").write_text("ExecStart=/usr/bin/podman run nginx")
    (folder / "b.service").mkdir()
    assert units.triton_unit(tmp_path) is None
    (folder / "lm.service").write_text("ExecStart=/usr/bin/podman run nvcr.io/nvidia/tritonserver:24.05-py3")
    assert units.triton_unit(tmp_path) == "lm.service"


def test_show() -> None:
    state = units.parse_unit("triton.service", SHOW)
    assert state is not None
    assert (state.active, state.sub, state.restarts, state.exit_status) == ("activating", "auto-restart", 118, 126)
    assert state.exit_wall is not None
    assert state.since_wall is None
    assert units.parse_unit("x", "LoadState=not-found\n") is None
    assert units.parse_unit("x", "") is None
    never = units.parse_unit("x", "LoadState=loaded\nExecMainStatus=0\nNRestarts=\nExecMainExitTimestamp=n/a b c\n")
    assert never is not None
    assert (never.exit_status, never.restarts) == (None, None)


def test_asking_systemctl(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "show").write_text(SHOW)
    tool(bin_folder, "systemctl", f'echo "$1" > {tmp_path}/first; cat {tmp_path}/show')
    assert units.unit_state("triton.service", user=True) is not None
    assert (tmp_path / "first").read_text() == "--user\n"
    state = units.unit_state("triton.service")
    assert state is not None
    assert state.restarts == 118
    tool(bin_folder, "systemctl", "echo 'System has not been booted with systemd' >&2; exit 1")
    assert units.unit_state("triton.service") is None


def test_last_lines(bin_folder: Path) -> None:
    tool(bin_folder, "journalctl", "printf 'one\\n\\ntwo token=hush \\033[31m\\n'")
    assert units.last_lines("triton.service", 5) == ("one", "two token=*** \\x1b[31m")
    tool(bin_folder, "journalctl", "sleep 30")
    assert units.last_lines("triton.service", 5) == ()


def test_without_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert units.unit_state("triton.service") is None
    assert units.last_lines("triton.service", 5) == ()


def test_commands(bin_folder: Path) -> None:
    tool(bin_folder, "talker", "echo out; echo err >&2; exit 3")
    answer = commands.run(["talker"])
    assert (answer.code, answer.text, answer.err) == (3, "out\n", b"err\n")
    with pytest.raises(SourceError) as caught:
        commands.run(["no-such-program-here"])
    assert caught.value.kind == "unavailable"
    (bin_folder / "plain").write_text("x")
    with pytest.raises(SourceError) as caught:
        commands.run([str(bin_folder / "plain")])
    assert caught.value.kind == "permission"
    tool(bin_folder, "sleeper", "sleep 30 & wait")
    with pytest.raises(SourceError) as caught:
        commands.run(["sleeper"], 0.2)
    assert caught.value.kind == "timeout"


def test_output_is_bounded(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SIZE_LIMIT", 1000)
    tool(bin_folder, "talker", "head -c 5000 /dev/zero")
    assert len(commands.run(["talker"]).out) == 1000


def test_by_the_name_in_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    (folder / "a.service").write_text("ExecStart=/usr/bin/podman run -d --name triton-old img\n")
    (folder / "b.service").write_text("ExecStart=/usr/bin/docker run --name triton img\n")
    (folder / "c.service").write_bytes(b"\xffExecStart=/usr/bin/podman run --name=triton img\n")
    (folder / "d.service").mkdir()
    assert units.unit_naming("triton", tmp_path) == "c.service"
    assert units.unit_naming("triton-old", tmp_path) == "a.service"
    assert units.unit_naming("trit.n", tmp_path) is None
    assert units.unit_naming("triton", tmp_path, user=True) is None


def test_in_whose_manager(tmp_path: Path) -> None:
    groups = {
        1: "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/triton.service/x\n2:cpu:/\n",
        2: "0::/system.slice/triton.service\n",
        3: "0::/machine.slice/libpod-1.scope\n",
        4: "nonsense\n",
    }
    for pid, text in groups.items():
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(text)
    found = {pid: units.in_user_manager((pid,), tmp_path) for pid in groups}
    assert found == {1: True, 2: False, 3: None, 4: None}
    assert units.in_user_manager((4, 9, 2), tmp_path) is False
