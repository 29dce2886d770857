"""The terminal: what it can show, that it is still there, and that odd bytes from it do no harm.

`prepare()` must run before textual is imported anywhere (it reads its environment at import).
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.tui.signs import Charset

if TYPE_CHECKING:
    from textual.driver import Driver

_ENVIRONMENT = {
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
}


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what textual reads when it is imported: no animations. What the operator set stays.

    Frames are not slowed down: all that changes in a second changes in one tick, so fewer frames save nothing and each
    would delay the first paint and every key by up to a frame (measured: 66 ms at 15 a second).
    """
    for name, value in _ENVIRONMENT.items():
        environ.setdefault(name, value)


def capable(environ: Mapping[str, str] = os.environ) -> str | None:
    """Why the full-screen console cannot run here, as one plain sentence; None when it can."""
    if not (sys.stdin is not None and sys.stdin.isatty()):
        return "standard input is not a terminal"
    if not (sys.stderr is not None and sys.stderr.isatty()):
        return "standard error is not a terminal (the console draws there)"
    if environ.get("TERM", "") in ("", "dumb"):
        return "TERM is dumb, so this terminal cannot be drawn on"
    return None


def as_started() -> Mapping[str, str]:
    """The environment that this process was started with. In the C locale Python sets LC_CTYPE=C.UTF-8 by itself
    (PEP 538), so `os.environ` no longer tells what the operator has. Without /proc that value is dropped."""
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        plain = os.environ.get("LANG", "") in ("", "C", "POSIX")
        coerced = plain and os.environ.get("LC_CTYPE") == "C.UTF-8"
        return {name: value for name, value in os.environ.items() if not (coerced and name == "LC_CTYPE")}
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", "replace").split("\0"))
    return {name: value for name, _, value in pairs if name}


def speaks_utf8(environ: Mapping[str, str]) -> bool:
    """What the locale says, not Python's own encoding (which is UTF-8 always): LC_ALL, then LC_CTYPE, then LANG."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = environ.get(name, "")
        if value:
            return "utf8" in value.casefold().replace("-", "")
    return False


class WidthProbe:
    """How wide `●` is in this terminal: written, asked for by the cursor's position (CSI 6n), wiped out again.

    Asked at once, read later: the answer comes while textual is being imported, so it costs no time at the start.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._in = self._out = -1
        self._before: list[Any] | None = None
        try:
            self._in, self._out = sys.__stdin__.fileno(), sys.__stderr__.fileno()  # type: ignore[union-attr]
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in, termios.TCSANOW)
            os.write(self._out, "\r●\x1b[6n".encode())
        except (AttributeError, ValueError, OSError, termios.error):
            self._before = None

    def cells(self) -> int | None:
        """1 or 2; None when the terminal does not answer in time or there is none. Call once."""
        if self._before is None:
            return None
        try:
            left = self._began + PROBE_TIMEOUT - time.monotonic()
            answer = _read_until(self._in, _POSITION, max(0.01, left))
            os.write(self._out, b"\r\x1b[K")
        except OSError:
            return None
        finally:
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)
        return int(answer.group(2)) - 1 if answer else None


def charset(environ: Mapping[str, str], *, ascii_wanted: bool) -> Charset:
    """Which characters the environment allows; whether ambiguous ones are narrow only the terminal can tell."""
    if ascii_wanted or not speaks_utf8(environ):
        return Charset.ASCII
    return Charset.CONSOLE if environ.get("TERM", "") == "linux" else Charset.UNICODE


_POSITION = re.compile(rb"\x1b\[(\d+);(\d+)R")
PROBE_TIMEOUT = 0.2


def _read_until(fd: int, pattern: re.Pattern[bytes], timeout: float) -> re.Match[bytes] | None:
    seen = b""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        chunk = os.read(fd, 64)
        if not chunk:
            break
        seen += chunk
        if match := pattern.search(seen):
            return match
    return None


def is_lost() -> bool:
    """True when the terminal is gone. With SIGHUP ignored nobody tells us, and Textual would spin at a full core."""
    try:
        fd = sys.__stdin__.fileno()  # type: ignore[union-attr]
        if not os.isatty(fd):
            return True
        os.tcgetpgrp(fd)
    except OSError as error:
        # ENOTTY: it is there, but no controlling terminal, as under `su -c` and setsid
        return error.errno != errno.ENOTTY
    except (AttributeError, ValueError):
        return True
    return False


_CLEAN = "\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
"""Mouse, paste and focus reports off, wrapping on, keyboard protocol and alternate screen left, cursor shown."""


class Guard:
    """Knows how the terminal was before, so that it is left clean on every way out."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        self._ending = False
        try:
            self._before = termios.tcgetattr(sys.__stdin__.fileno())  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError, termios.error):
            return

    def restore(self, *, leave_screen: bool = False) -> None:
        """Set the line's modes as they were; with `leave_screen` also undo all that a full-screen program sets."""
        try:
            if leave_screen:
                os.write(sys.__stderr__.fileno(), _CLEAN.encode())  # type: ignore[union-attr]
            if self._before is not None:
                termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, self._before)  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError, termios.error):
            return

    def end_within(self, seconds: float, code: int) -> None:
        """End the process after `seconds` even where a thread or the interpreter's own exit hangs. Once."""
        if self._ending:
            return
        self._ending = True

        def end() -> None:
            time.sleep(seconds)
            self.restore(leave_screen=True)
            os._exit(code)

        threading.Thread(target=end, name="end", daemon=True).start()


def let_go() -> None:
    """Send further output to nowhere: Python's own last flush to a lost terminal would spoil the exit code."""
    null = os.open(os.devnull, os.O_WRONLY)
    for handle in (1, 2):
        os.dup2(null, handle)


_X10_REPORT = re.compile(rb"\x1b\[M...", re.DOTALL)
_X10_PART = re.compile(rb"\x1b(\[(M.{0,2})?)?\Z", re.DOTALL)


class InputDecoder:
    """Bytes from the terminal -> text, in place of the strict UTF-8 decoder of Textual 8.2.8.

    A legacy X10 mouse report (`ESC [ M` and three raw bytes, as tmux sends after a re-attach) is not UTF-8 and kills
    Textual with UnicodeDecodeError; decoded loosely its bytes would be taken for keys. It is taken out instead.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = b""

    def decode(self, data: bytes, final: bool = False) -> str:
        """The text in `data`; the start of a mouse report waits for its rest."""
        if not data:
            time.sleep(0.05)
        data = _X10_REPORT.sub(b"", self._kept + data)
        self._kept = b""
        part = _X10_PART.search(data)
        if part is not None and len(part.group()) > 3 and not final:
            data, self._kept = data[: part.start()], part.group()
        return self._decoder.decode(data, final)


def harden_input() -> None:
    """Make Textual's input thread use InputDecoder (it looks the decoder up by this name when it starts)."""
    from textual.drivers import linux_driver

    vars(linux_driver)["getincrementaldecoder"] = lambda name: InputDecoder


def toggle_mouse(driver: Driver | None) -> bool:
    """Turn mouse reports on or off; True when they are on now. Off, the terminal itself selects text."""
    from textual.drivers.linux_driver import LinuxDriver

    if not isinstance(driver, LinuxDriver):
        return False
    if driver._mouse:
        driver._disable_mouse_support()
        driver._mouse = False
        return False
    driver._mouse = True
    driver._enable_mouse_support()
    return True
