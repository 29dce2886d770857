"""The console in a real pseudo-terminal: odd bytes, odd sizes, lost lines, suspension, every way out."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui import terminal
from console.tui.signs import Charset
from tests.tui.terminal_emulator import LEFT, console

READY = b"SERVING 3 of 4"


def test_quits_by_key_and_leaves_the_terminal_clean(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        one.send(b"q")
        assert one.end() == 0
        assert one.left_clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_clean(number: signal.Signals, tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        os.kill(one.process.pid, number)
        assert one.end() == 128 + number
        assert one.left_clean()


@pytest.mark.parametrize("ignore_hangup", [False, True])
def test_a_lost_terminal_ends_it(ignore_hangup: bool, tmp_path: Path) -> None:
    with console(tmp_path, ignore_hangup=ignore_hangup) as one:
        one.until(READY)
        one.hang_up()
        assert one.end() == 129


def test_a_terminal_that_controls_nothing_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """`su -c` and setsid give the program a session of its own: the terminal is there, but not a controlling one."""
    master, slave = os.openpty()
    with os.fdopen(slave) as standard_input:
        monkeypatch.setattr(sys, "__stdin__", standard_input)
        assert not terminal.is_lost()
        os.close(master)
        assert terminal.is_lost()


def test_a_source_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with console(tmp_path, env={"CHILD_TROUBLE": "hang"}) as one:
        one.until(READY)
        one.send(b"q")
        assert one.end() == 0
        assert one.left_clean()


def test_a_fault_of_its_own_is_one_line_and_a_private_log(tmp_path: Path) -> None:
    with console(tmp_path, env={"CHILD_TROUBLE": "crash"}) as one:
        assert one.end() == 70
        assert one.left_clean()
        told = one.written.split(LEFT)[-1]
    assert b"gpuconsole failed (ValueError)" in told
    assert b"Traceback" not in told
    logs = list((tmp_path / "gpuconsole").glob("crash-*.log"))
    assert len(logs) == 1
    assert logs[0].stat().st_mode & 0o777 == 0o600
    text = logs[0].read_text()
    assert "Traceback" in text
    assert "token-in-a-local-variable" not in text.replace('secret = "token-in-a-local-variable"', "")


def test_mouse_reports_of_old_terminals_are_no_keys(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        for report in (b"\x1b[M \xff\xf1", b"\x1b[M qq", b"\x1b[M#\x80q", b"\x1b[M"):
            one.send(report)
        one.send(b"qq\xc3")
        at = len(one.written)
        one.send(b"?")
        one.until(b"Keys", after=at)
        one.send(b"qq")
        assert one.end() == 0


def test_odd_sizes(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        for size in ((20, 5), (0, 0), (1, 1), (60, 15), (300, 90)):
            one.resize(*size)
            one.read(0.3)
            assert one.process.poll() is None, size
        at = len(one.written)
        one.resize(100, 30)
        one.until(READY, after=at)
        one.send(b"q")
        assert one.end() == 0


def test_starts_in_a_tiny_terminal(tmp_path: Path) -> None:
    with console(tmp_path, (20, 5)) as one:
        one.until(b"too small")
        one.send(b"q")
        assert one.end() == 0


def test_suspends_and_comes_back(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        one.send(b"\x1a")
        one.until(LEFT)
        one.until_state("T")
        at = len(one.written)
        os.kill(one.process.pid, signal.SIGCONT)
        one.until(READY, after=at)
        one.send(b"q")
        assert one.end() == 0
        assert one.left_clean()


def test_ctrl_c_does_not_quit(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.until(READY)
        one.send(b"\x03")
        one.until(b"q quits")
        assert one.process.poll() is None
        one.send(b"q")
        assert one.end() == 0


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"LANG": "", "LC_CTYPE": "POSIX"}], ids=str)
def test_ascii_without_a_utf8_locale(env: dict[str, str], tmp_path: Path) -> None:
    with console(tmp_path, (160, 45), env) as one:
        one.until(READY)
        one.read(0.2)
        one.send(b"q")
        assert one.end() == 0
        assert one.written.isascii()


def test_ascii_where_ambiguous_signs_take_two_cells(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.answer_position = b"\x1b[1;3R"
        one.until(READY)
        one.send(b"q")
        assert one.end() == 0
        assert "●" not in one.written.split(b"\x1b[?1049h")[-1].decode(errors="replace")


def test_signs_where_they_take_one_cell(tmp_path: Path) -> None:
    with console(tmp_path) as one:
        one.answer_position = b"\x1b[1;2R"
        one.until("● SERVING".encode())
        one.send(b"q")
        assert one.end() == 0


def test_linux_console_has_frames_but_no_signs(tmp_path: Path) -> None:
    with console(tmp_path, env={"TERM": "linux", "COLORTERM": ""}) as one:
        one.until(b"o SERVING")
        one.send(b"q")
        assert one.end() == 0
        shown = one.written.decode(errors="replace")
        assert "┌" in shown
        assert "●" not in shown


# ------------------------------------------------------------------------------------------------------------ no pty


@pytest.mark.parametrize(
    ("env", "utf8"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_CTYPE": "C"}, False),
        ({"LANG": "C", "LC_ALL": "zh_CN.utf8"}, True),
        ({"LC_ALL": "C", "LC_CTYPE": "en_US.UTF-8", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "zh_CN.GB18030"}, False),
    ],
)
def test_locale_decides(env: dict[str, str], utf8: bool) -> None:
    assert terminal.speaks_utf8(env) is utf8


def test_charset_by_environment() -> None:
    utf8 = {"LANG": "C.UTF-8"}
    assert terminal.charset(utf8, ascii_wanted=True) is Charset.ASCII
    assert terminal.charset({"LANG": "C"}, ascii_wanted=False) is Charset.ASCII
    assert terminal.charset({**utf8, "TERM": "linux"}, ascii_wanted=False) is Charset.CONSOLE
    assert terminal.charset(utf8, ascii_wanted=False) is Charset.UNICODE
    assert terminal.WidthProbe().cells() is None


def test_capable_says_why_not() -> None:
    assert "not a terminal" in (terminal.capable({"TERM": "xterm"}) or "")


def test_prepare_keeps_what_the_operator_set() -> None:
    environ = {"TEXTUAL_FPS": "30"}
    terminal.prepare(environ)
    assert environ["TEXTUAL_FPS"] == "30"
    assert environ["TEXTUAL_ANIMATIONS"] == "none"


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_any_bytes_decode_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    decoder = terminal.InputDecoder()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    text = "".join(decoder.decode(data[a:b]) for a, b in pairwise(places) if a < b)
    text += decoder.decode(b" ", final=True)
    assert "\x1b[M" not in text or b"\x1b[M" in data


@given(st.binary(min_size=3, max_size=3), st.text(max_size=10).filter(lambda text: "\x1b" not in text))
def test_a_mouse_report_vanishes_and_nothing_else(report: bytes, typed: str) -> None:
    decoder = terminal.InputDecoder()
    data = typed.encode(errors="surrogatepass").decode(errors="replace").encode()
    assert decoder.decode(data + b"\x1b[M" + report) + decoder.decode(data) == 2 * data.decode()
