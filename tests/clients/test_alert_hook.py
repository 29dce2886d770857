"""The hook: a program or an address, bounded in time, and no secret in what is told of it."""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.clients import silence
from console.clients.alert_hook import MOST_WAITING, Caller, Hook, call

PAYLOAD = b'{"alerts": []}\n'
SECRET = "hunter2"


def _python(code: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *words)


def test_a_program_gets_the_alerts_on_standard_input(tmp_path: Path) -> None:
    code = "import sys,pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    assert call(Hook(_python(code, str(tmp_path / "got"))), PAYLOAD) == ""
    assert (tmp_path / "got").read_bytes() == PAYLOAD


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (_python("import sys; print(sys.argv); sys.exit(3)", SECRET), "the hook's program exited with 3"),
        (("/no/such/program", SECRET), "the hook's program cannot be run: No such file or directory"),
        (("a\0b", SECRET), "the hook's program cannot be run: its words hold a zero byte"),
    ],
)
def test_what_fails_is_one_sentence_without_the_words(
    command: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(Hook(command), PAYLOAD) == sentence
    assert capfd.readouterr() == ("", "")


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess,sys,time; p=subprocess.Popen(['sleep','60']); "
        "open(sys.argv[1],'w').write(str(p.pid)); time.sleep(60)"
    )
    told = call(Hook(_python(code, str(tmp_path / "pid")), timeout=2.0), PAYLOAD)
    assert told == "the hook's program did not end within 2 s and was ended"
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not _lives(child):
            break
        time.sleep(0.02)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class _Answer(http.server.BaseHTTPRequestHandler):
    code = 200
    got: list[bytes] = []  # noqa: RUF012 (one list for the one test server)

    def do_POST(self) -> None:
        self.got.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.code)
        self.send_header("location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    _Answer.got.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_port}/hook?token={SECRET}"
        one.shutdown()


def test_an_address_gets_them_by_post(server: str) -> None:
    assert call(Hook(url=server), PAYLOAD) == ""
    assert _Answer.got == [PAYLOAD]


@pytest.mark.parametrize("code", [302, 404, 500])
def test_an_address_that_refuses(server: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Answer, "code", code)
    assert call(Hook(url=server), PAYLOAD) == f"the hook's address answered with {code}"


def test_an_address_that_is_not_there_or_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        told = call(Hook(url=f"http://127.0.0.1:{port}/{SECRET}", timeout=1.0), PAYLOAD)
        assert told == "the hook's address did not answer within 1 s"
    told = call(Hook(url=f"http://127.0.0.1:{port}/{SECRET}", timeout=1.0), PAYLOAD)
    assert told == "the hook's address cannot be reached (ConnectError)"
    assert SECRET not in call(Hook(url=f"http://[{SECRET}"), PAYLOAD)


def _told(told: list[str], count: int) -> list[str]:
    for _ in range(500):
        if len(told) >= count:
            break
        time.sleep(0.01)
    return told


def test_failures_in_a_row_are_told_once(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    caller = Caller(Hook(url=server), told.append)
    for code in (500, 500, 200, 500):
        monkeypatch.setattr(_Answer, "code", code)
        caller.tell(PAYLOAD)
        _told([str(one) for one in _Answer.got], 1)
        while caller._waiting.qsize() or len(_Answer.got) == 0:
            time.sleep(0.01)
        time.sleep(0.05)
        _Answer.got.clear()
    assert _told(told, 2) == ["the hook's address answered with 500"] * 2


def test_a_hook_that_hangs_does_not_pile_calls_up() -> None:
    told: list[str] = []
    caller = Caller(Hook(_python("import time; time.sleep(30)"), timeout=2.0), told.append)
    for _ in range(MOST_WAITING + 5):
        caller.tell(PAYLOAD)
    assert told == [f"{MOST_WAITING} calls of the alert hook wait already: alerts are not handed on"]
    assert caller._waiting.qsize() <= MOST_WAITING


def test_without_a_hook_nothing_runs() -> None:
    caller = Caller(Hook(), lambda problem: None)
    caller.tell(PAYLOAD)
    assert caller._thread is None


def test_the_silence_is_kept_and_read(tmp_path: Path) -> None:
    assert silence.until(tmp_path) == 0
    silence.keep(tmp_path, 1234567890.0)
    assert silence.until(tmp_path) == 1234567890
    assert os.stat(tmp_path / silence.FILE).st_mode & 0o777 == 0o600
    for junk in ("", "soon", "nan", "inf", "é"):
        (tmp_path / silence.FILE).write_text(junk, encoding="utf-8")
        assert silence.until(tmp_path) == 0
