"""`gpuconsole facts`: which box, in which form, and what is wrong about it in one sentence."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console import checking, cli
from console.actions.box import BoxSpec
from console.checks.check import Check, ok
from console.config import Podman, Settings, Triton
from console.core.encode import to_json
from console.core.facts import CommandFact, Facts, FileFact
from console.core.plan import WrongInput
from console.sources import facts as collector
from tests.clients.test_tree import put
from tests.sources.test_facts_host import program

SPEC = BoxSpec(Settings(podman=Podman(socket="/nonexistent/podman.sock"), triton=Triton(host="127.0.0.1", http_port=1)))


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(collector, "DEADLINE", 10.0)  # a busy machine is no reason for other facts


def asking(*needs: str) -> Check:
    return Check("A01", "t", "driver", "s", needs, "w", "s", lambda facts: ok("x"))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recorded box."""
    root = tmp_path / "box"
    put(root, "/etc/os-release", 'ID="rocky"\nVERSION_ID="8.10"\n')
    told = {"host": "gpu01", "wall": 1000.0, "files": {"/run/podman": {"kind": "unknown", "why": "permission denied"}}}
    put(root, ".gpuconsole/box.json", json.dumps(told))
    return root


def run(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[int, str, str]:
    code = cli.run(words)
    out, err = capfdbinary.readouterr()
    return code, out.decode(), err.decode()


def test_json_of_a_recorded_box_reads_back(
    recorded: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = run(capfdbinary, "facts", "--json", "--root", str(recorded))
    assert (code, err) == (0, "")
    facts = msgspec.json.decode(out, type=Facts)
    assert (facts.host, facts.wall) == ("gpu01", 1000.0)
    assert facts.text("/etc/os-release").startswith("ID=")
    file = put(tmp_path, "facts.json", out)
    code, again, _ = run(capfdbinary, "facts", "--json", "--facts", str(file))
    assert (code, again) == (0, out)


def test_a_summary_names_what_could_not_be_had(recorded: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, _ = run(capfdbinary, "facts", "--utc", "--root", str(recorded))
    assert code == 0
    assert out.startswith("facts of gpu01  1970-01-01 00:16:40 UTC  read in ")
    assert "recorded in" in out
    assert "could not be had:\n" in out
    assert "not recorded" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--root", "/nonexistent"], "there is no folder /nonexistent"),
        (["--facts", "/nonexistent"], "there is no file /nonexistent"),
        (["--facts", "/etc/passwd"], "holds no facts"),
        (["--facts", "/etc"], "is no plain file"),
        (["--root", "/tmp", "--facts", "/etc/passwd"], "give one of them"),
        (["--group", "nonsense"], "there is no group 'nonsense'; there are driver, cdi"),
        (["--demo", "--root", "/tmp"], "--demo is a box of its own"),
        (["--within", "soon"], "--within must be a time such as 30s"),
        (["--within", "0"], "--within must be from 100ms to 5m"),
    ],
)
def test_wrong_usage_is_one_sentence_and_64(
    words: list[str], sentence: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = run(capfdbinary, "facts", *words)
    assert (code, out) == (64, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["{}", "[]", '{"files": 1}', '{"schema": 1, "parts": {}}', "\xff", "[" * 100_000, ""])
def test_a_file_without_facts(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongInput, match="holds no facts"):
        checking.read_facts(put(tmp_path, "x.json", text.encode("latin-1")))


def test_needs_of_one_group_alone() -> None:
    time_checks = checking.checks_of_group("time")
    assert all(one.group == "time" for one in time_checks)
    assert len(checking.checks_of_group(None)) >= len(time_checks)


def test_facts_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "dkms", "echo 'nvidia/550, 4.18: installed'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    facts = checking.facts_for(SPEC, [asking("/proc/sys/kernel/osrelease", "$ dkms status", "@podman.inspect")])
    assert facts.text("/proc/sys/kernel/osrelease").strip() == os.uname().release
    assert facts.command("dkms status").out == "nvidia/550, 4.18: installed\n"
    assert "is not there" in facts.why_not("@podman.inspect")
    assert facts.root == "/"


def test_a_simulated_box_is_told_by_its_folder_and_its_stand_ins(tmp_path: Path) -> None:
    from console.simulator import launch

    with launch.start("healthy", 1) as box:
        from console.compose import box_spec, simulated_settings

        told = box.addresses
        spec = box_spec(simulated_settings(Settings(), told), nvml=told.nvml, root=Path(told.root), simulated="healthy")
        put(Path(told.root), ".gpuconsole/box.json", '{"commands": {"dkms status": {"code": 0, "out": "recorded"}}}')
        needs = ("/etc/os-release", "$ dkms status", "$ uname", "@podman.inspect", "@nvml", "@triton.index", "@units")
        facts = checking.facts_for(spec, [asking(*needs)])
    assert "Rocky" in facts.text("/etc/os-release")
    assert facts.command("dkms status").out == "recorded"
    assert facts.commands["uname"] == CommandFact(why="not recorded")
    assert facts.answer("@podman.inspect")["Name"]
    assert facts.answer("@nvml")["box"]["gpus"]
    assert facts.answer("@triton.index")
    assert facts.why_not("@units") == "not recorded"
    assert facts.every("gpu") == ("0000:3b:00.0",)


def test_the_summary_is_bounded_and_literal() -> None:
    files = {f"/x{number:03}\x1b[31m": FileFact("unknown", why="permission denied") for number in range(200)}
    text = checking.show_facts(Facts(host="é", files=files), as_json=False, ascii_only=True).decode("ascii")
    assert "and 140 more" in text
    assert "\x1b" not in text
    assert text.count("\n") < 80


def test_a_dump_of_this_machine_holds_no_planted_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    secret = "hush-0815-hush"
    for name in ("dkms", "rpm", "modinfo", "nvidia-smi", "podman", "systemctl", "journalctl"):
        program(tmp_path / "bin", name, f'echo "token={secret} https://u:{secret}@h/ {secret}"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("GPUCONSOLE_TRITON_HEADERS", f"x-key={secret}")
    code, out, _ = run(
        capfdbinary, "facts", "--json", "--socket", "/nonexistent", "--host", "127.0.0.1", "--http-port", "1"
    )
    assert code == 0
    assert secret not in out


@pytest.mark.slow
def test_all_checks_facts_of_this_machine_come_in_time() -> None:
    began = time.monotonic()
    facts = checking.facts_for(SPEC, checking.checks_of_group(None))
    assert facts.seconds <= time.monotonic() - began
    restored: Any = msgspec.json.decode(to_json(facts), type=Facts)
    assert restored == facts
