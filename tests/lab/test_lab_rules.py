"""What the lab's tools do without a lab: refusals, wrong usage, their small parsers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab import __main__ as command
from tests.lab import box, card, fixtures, paths, processes, repository, traffic, triton
from tests.lab.nvml import layout, values


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("GPUCONSOLE_LAB", raising=False)


@pytest.mark.usefixtures("as_root")
def test_it_refuses_where_an_nvidia_driver_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()
    modules = tmp_path / "proc/modules"
    modules.write_text("nvidia_like 1 0 - Live 0x0\n")
    box.require_lab_machine(tmp_path)
    modules.write_text("ext4 1 0 - Live 0x0\nnvidia 56717312 2 nvidia_uvm, Live 0x0000000000000000 (POE)\n")
    with pytest.raises(paths.LabError, match="NVIDIA driver is loaded"):
        box.require_lab_machine(tmp_path)
    monkeypatch.setenv("GPUCONSOLE_LAB", "1")
    box.require_lab_machine(tmp_path)


@pytest.mark.usefixtures("as_root")
def test_the_drivers_own_folder_tells_too(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    with pytest.raises(paths.LabError, match="NVIDIA driver is loaded"):
        box.require_lab_machine(tmp_path)


def test_it_refuses_anyone_but_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(paths.LabError, match="needs root"):
        box.require_root()


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(paths.LabError, match=f"Port {port} on 127.0.0.1 is taken"):
            box.require_ports(port)


@pytest.mark.parametrize("text", ["", "http", "80", "70000", "-1", "18000.5"])
def test_a_wrong_port_base_is_wrong_usage(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_LAB_PORT_BASE", text)
    with pytest.raises(paths.UsageError, match="18000"):
        paths.port_base()


@pytest.mark.parametrize(
    "words",
    [[], ["bogus"], ["up", "--fast"], ["traffic"], ["traffic", "rank=1", "--for", "soon"]],
)
def test_wrong_usage_is_one_sentence_and_64(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(words)
    assert stopped.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rank", "--url", "127.0.0.1:1"], "no flow"),
        (["rank=0", "--url", "127.0.0.1:1"], "no flow"),
        (["rank=1..x", "--url", "127.0.0.1:1"], "no flow"),
        (["rank=1", "--url", "http://192.0.2.7:8000"], "goes to this machine only"),
        (["rank=1", "--url", "127.0.0.1:1", "--for", "90000"], "seconds"),
        (["rank=1", "--url", "127.0.0.1:1", "--for", "nan"], "seconds"),
    ],
)
def test_traffic_refuses_what_it_must_not_send(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["traffic", *words]) == 64
    assert says in capsys.readouterr().err


def test_traffic_without_a_server_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert command.main(["traffic", "rank=1", "--url", f"127.0.0.1:{port}"]) == 1
    assert "No Triton answers" in capsys.readouterr().err


@given(st.text(max_size=40))
def test_any_flow_is_read_or_refused(text: str) -> None:
    try:
        flow = traffic.Flow.parse(text)
    except paths.UsageError:
        return
    assert flow.model
    assert flow.first > 0
    assert flow.last > 0


def test_flows_are_read() -> None:
    assert traffic.Flow.parse("rank=150") == traffic.Flow("rank", "rank", None, 150, 150)
    assert traffic.Flow.parse("rank:2=1..20") == traffic.Flow("rank:2", "rank", "2", 1, 20)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 40))
def test_answers_are_read_however_they_are_cut(sizes: list[int], piece: int) -> None:
    bodies = [b"x" * size for size in sizes]
    stream = b"".join(
        b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n\r\n%s" % (200 + i, len(body), body) for i, body in enumerate(bodies)
    )
    connection = traffic.Connection()
    connection.connection_made(_Silent())
    got: list[tuple[int, bytes]] = []

    def ask(status: int | None = None, body: bytes = b"") -> None:
        if status is not None:
            got.append((status, body))
        connection.ask(b"", ask, lambda kind: None)

    ask()
    for at in range(0, len(stream), piece):
        connection.data_received(stream[at : at + piece])
    assert got[:1] == [(200, bodies[0])]


class _Silent(__import__("asyncio").Transport):  # type: ignore[misc]
    def write(self, data: bytes) -> None: ...


def test_a_recorded_pid_that_is_another_process_now_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "PIDS", tmp_path / "pids")
    monkeypatch.setattr(paths, "LOGS", tmp_path / "logs")
    pid = processes.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    assert processes.running("sleeper") == pid
    record = tmp_path / "pids/sleeper.json"
    other = record.read_text().replace('"started": ', '"started": 1')
    kept = record.read_text()
    record.write_text(other)
    processes.stop("sleeper")
    assert processes.start_time(pid) is not None, "it was not the one recorded"
    record.write_text(kept)
    processes.stop("sleeper")
    assert processes.start_time(pid) is None
    assert not record.exists()


def test_busy_time_is_a_share_and_survives_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [_stats(5_000_000_000), _stats(5_500_000_000), _stats(200_000_000), OSError(), _stats(1)]

    def call(*_: object, **__: object) -> tuple[int, Any]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return 200, answer

    monkeypatch.setattr(triton, "call", call)
    busy = card.BusyTime()
    shares = [round(busy.share(18000, 1.0), 3) for _ in range(5)]
    assert shares == [0.0, 0.5, 0.2, 0.0, 0.0]


@pytest.mark.parametrize("profile", ["a100-mig", "bare"])
def test_the_follower_gives_no_figure_that_the_card_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    server = (1, ["tritonserver"])
    monkeypatch.setattr(processes, "holding_card", lambda: iter([server]))
    values.create(tmp_path / "values", profile)
    device = values.open_values(tmp_path / "values").devices[0]
    card.show_processes(device, 0.5)
    card.show_load(device, 0.5, 60, 1.0)
    assert device.util_gpu == layout.ABSENT32
    assert device.memory_used == (207 + 38) * values.MIB
    if profile == "bare":
        assert {device.power, device.temperature, device.clocks[0], device.process_count} == {layout.ABSENT32}


def _stats(nanoseconds: int) -> dict[str, Any]:
    batch = {"batch_size": 1, "compute_infer": {"count": 1, "ns": nanoseconds}}
    return {"model_stats": [{"name": "rank", "version": "2", "batch_stats": [batch]}]}


def test_a_models_card_memory_comes_from_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    repository.write("big", repository.sleeper_config("big", gpu_mib=1234))
    assert repository.gpu_mib("big") == 1234
    assert repository.gpu_mib("nosuch") == 250


def test_a_child_that_ends_by_itself_is_no_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    started = time.monotonic()
    processes.end(child.pid)
    assert time.monotonic() >= started


def test_without_the_lab_a_test_is_skipped_or_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "addresses", lambda: None)
    monkeypatch.delenv("GPUCONSOLE_LAB_REQUIRED", raising=False)
    with pytest.raises(pytest.skip.Exception, match="scripts/lab up"):
        fixtures._lab_or_skip()
    monkeypatch.setenv("GPUCONSOLE_LAB_REQUIRED", "1")
    with pytest.raises(pytest.fail.Exception, match="scripts/lab up"):
        fixtures._lab_or_skip()
