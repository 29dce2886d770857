"""Triton's log lines: prefix, level, file, time and what they tell of models (pure).

Formats: `I0704 13:39:57.501000 1 server.cc:674] text` (default; 24.07 and later put the text in quotes with escapes),
`2024-07-04T13:39:57Z I 1 server.cc:674] text` (--log-format=ISO8601), and vLLM's
`INFO 07-04 13:39:57 engine.py:161] text`.
Samples: cases/triton/server_log_sample.txt of server 2.51.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from console.core.model import Event, LogLine
from console.core.podman_frames import RawLine
from console.core.text import MAX_LINE, literal, one_line

ORIGIN = "(server log)"
ASKED_TO_STOP = ("1", "2", "15")
"""SIGHUP, SIGINT, SIGTERM: Triton logs them in the words of a crash, but somebody asked for its end."""

_GLOG = re.compile(
    r"(?P<level>[IWEFV])(?P<month>\d\d)(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,9})?) +\d+ "
    r"(?P<file>[^\s:\]]{1,80}):(?P<line>\d+)\] ?"
)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,9})?)Z? (?P<level>[IWEFV]) \d+ "
    r"(?P<file>[^\s:\]]{1,80}):(?P<line>\d+)\] ?"
)
_VLLM = re.compile(
    r"(?P<level>INFO|WARNING|ERROR|CRITICAL|DEBUG) \d\d-\d\d (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,9})?) "
    r"(?:\[?(?P<file>[^\s:\]]{1,80}):(?P<line>\d+)\]) ?"
)
_GLUED = re.compile(r'(?<=")(?=[IWEFV]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [^\s:\]]{1,80}:\d+\] ?")')
"""Seen at the start of 2.51.0: its HTTP and gRPC threads write their lines into one, and the newlines come after."""
_WORD_LEVELS = {"INFO": "I", "WARNING": "W", "ERROR": "E", "CRITICAL": "F", "DEBUG": "V"}
_CONTINUES = re.compile(r"\s|\+[-+]*\+?$|\||At:$|$")
_TRACE_END = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b")
_TRACE = "Traceback (most recent call last):"
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\x08", "f": "\x0c"}


class Prefix(Struct, frozen=True):
    """What a line's prefix says; `clock` is seconds since midnight in the server's own time zone."""

    level: str
    file: str
    clock: float
    message: str
    """The rest of the line, unquoted and with its escapes resolved; may hold newlines."""


def parse(text: str) -> Prefix | None:
    """The prefix of a line and its message; None for a line that has none."""
    match = _GLOG.match(text) or _ISO.match(text) or _VLLM.match(text)
    if match is None:
        return None
    clock = int(match["h"]) * 3600 + int(match["m"]) * 60 + float(match["s"])
    level = _WORD_LEVELS.get(match["level"], match["level"])
    return Prefix(level, match["file"], clock, unquote(text[match.end() :]))


def unquote(message: str) -> str:
    """A message as newer servers write it (`"failed to load 'x': \\n..."`) without quotes and escapes."""
    if len(message) < 2 or message[0] != '"' or message[-1] != '"':
        return message
    return _ESCAPE.sub(_unescape, message[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def exact_wall(wall: float | None, clock: float) -> float | None:
    """Podman's time (whole seconds on 4.x) made exact by the server's own clock, whatever time zone that is in.

    Time zones differ by quarters of an hour. Where the two differ by more than 2 s beside that, Podman's time stands.
    """
    if wall is None:
        return None
    off = (clock - wall + 450) % 900 - 450
    return wall + off if abs(off) <= 2 else wall


class LineReader:
    """Raw lines -> LogLines. Lines that carry on a table or a traceback inherit the level and origin of its head."""

    def __init__(self) -> None:
        self._head: dict[str, LogLine] = {}
        self._trace: dict[str, bool] = {}

    def read(self, raw: RawLine) -> list[LogLine]:
        """One line, or the two that two threads of the server wrote into one; never raises, whatever the bytes."""
        *whole, last = _GLUED.split(raw.data.decode("utf-8", "replace"))
        return [*(self._line(raw, text, 0) for text in whole), self._line(raw, last, raw.cut)]

    def _line(self, raw: RawLine, text: str, cut_before: int) -> LogLine:
        prefix = parse(text)
        if prefix is not None:
            shown, cut = clip(prefix.message)
            wall = exact_wall(raw.wall, prefix.clock)
            line = LogLine(wall, raw.stream, shown, prefix.level, literal(prefix.file), cut + cut_before)
            self._head[raw.stream] = line
            self._trace[raw.stream] = False
            return line
        shown, cut = clip(text)
        wall = self._not_before_head(raw)
        level, origin = self._inherited(raw.stream, text)
        return LogLine(wall, raw.stream, shown, level, origin, cut + cut_before)

    def _not_before_head(self, raw: RawLine) -> float | None:
        """Podman's whole second, made no earlier than the exact time of the line before it."""
        head = self._head.get(raw.stream)
        if raw.wall is None or head is None or head.wall is None or head.wall - raw.wall >= 1:
            return raw.wall
        return max(raw.wall, head.wall)

    def _inherited(self, stream: str, text: str) -> tuple[str | None, str | None]:
        head = self._head.get(stream)
        in_trace = self._trace.get(stream, False)
        if text.startswith(_TRACE):
            self._trace[stream] = True
            return "E", head.origin if head else None
        if in_trace:
            self._trace[stream] = text[:1].isspace() or not text
            ends = bool(_TRACE_END.match(text))
            return ("E", head.origin if head else None) if self._trace[stream] or ends else (None, None)
        if head is not None and _CONTINUES.match(text):
            return head.level, head.origin
        self._head.pop(stream, None)
        return None, None


def clip(text: str) -> tuple[str, int]:
    """Text on one line, literal, at most MAX_LINE characters; and how many characters were cut."""
    kept = text[:MAX_LINE].rstrip("\n").replace("\r\n", "\n").replace("\n", " ⏎ ")
    return literal(kept)[: 2 * MAX_LINE], max(0, len(text) - MAX_LINE)


# ------------------------------------------------------------------------------------------------------------- events

_LOADING = re.compile(r"loading: (?P<model>.+):(?P<version>\d+)$")
_LOADED = re.compile(r"successfully loaded '(?P<model>[^']+)'(?: version (?P<version>\d+))?")
_UNLOADED = re.compile(r"successfully unloaded '(?P<model>[^']+)' version (?P<version>\d+)")
_FAILED = re.compile(r"failed to load '(?P<model>[^']+)' version (?P<version>\d+): ?(?P<reason>.*)", re.DOTALL)
_FAILED_WHOLE = re.compile(r"failed to load (?:model )?'(?P<model>[^']+)'(?:: (?P<reason>.*))?$", re.DOTALL)
_NOT_FOUND = re.compile(r"failed to poll model '(?P<model>[^']+)': (?P<reason>.*)", re.DOTALL)
_POLL = re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<reason>.*)", re.DOTALL)
_DROPPED = re.compile(
    r"(?:Invalid argument: )?(?P<reason>ensemble (?P<model>\S+) allows maximum batch size .*)", re.DOTALL
)
_STUB = re.compile(r"[Ss]tub process '(?P<instance>[^']+)' is (?:not healthy|unhealthy)")
_STARTED = re.compile(r"Started HTTPService at (?P<where>\S+)")
_DRAINING = re.compile(r"Waiting for in-flight requests to complete")
_SIGNAL = re.compile(r"Signal \((?P<number>\d+)\) received")
_INSTANCE = re.compile(r"_\d+_\d+$|_\d+$")

OLD_COPY = 10.0
"""Seconds after "successfully loaded" in which "successfully unloaded" of the same version means the copy before it."""
SAME_FAILURE = 5.0
"""Seconds: a failed load is told twice, by version with its reason and then for the model as a whole."""


class ServerEvents:
    """LogLines -> Events. Stateful: one "successfully loaded" stands for all versions that "loading" named."""

    def __init__(self) -> None:
        self._loading_now: dict[str, list[str]] = {}
        self._ready: dict[tuple[str, str | None], float] = {}
        self._copies: dict[tuple[str, str | None], int] = {}
        """Copies in the server: 2 while the old one of a reload is still there; guessed before its start was seen."""
        self._saw_start = False
        self._failed: dict[str, float] = {}
        self._rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], float], list[Event]]], ...] = (
            (_LOADING, self._loading),
            (_LOADED, self._loaded),
            (_UNLOADED, self._unloaded),
            (_FAILED, self._version_failed),
            (_NOT_FOUND, self._model_failed),
            (_FAILED_WHOLE, self._model_failed),
            (_POLL, _poll_failed),
            (_DROPPED, _dropped),
            (_STUB, _stub_died),
            (_STARTED, self._started),
            (_DRAINING, _draining),
            (_SIGNAL, _crashed),
        )

    def feed(self, line: LogLine) -> list[Event]:
        """The events that a line tells, most often none; lines without a time tell none."""
        if line.wall is None:
            return []
        for pattern, make in self._rules:
            match = pattern.match(line.text)
            if match is not None:
                return make(match, line.wall)
        return []

    def _loading(self, match: re.Match[str], wall: float) -> list[Event]:
        model, version = match["model"], match["version"]
        named = self._loading_now.setdefault(model, [])
        if version not in named:
            named.append(version)
        return [Event(wall, "note", f"{model} {version} is loading", ORIGIN, "model.loading", model, marks_chart=False)]

    def _loaded(self, match: re.Match[str], wall: float) -> list[Event]:
        model = match["model"]
        named = self._loading_now.pop(model, [])
        versions: list[str | None] = [match["version"]] if match["version"] else [*named] or [None]
        for version in versions:
            self._ready[model, version] = wall
            before = self._copies.get((model, version), 0 if self._saw_start else 1)
            self._copies[model, version] = min(2, before + 1)
        return [Event(wall, "ok", f"{_label(model, v)} is READY", ORIGIN, "model.ready", model) for v in versions]

    def _unloaded(self, match: re.Match[str], wall: float) -> list[Event]:
        model, label, key = match["model"], _label(match["model"], match["version"]), (match["model"], match["version"])
        copies = self._copies.get(key, 1)
        just_loaded = copies > 1 and wall - self._ready.get(key, float("-inf")) < OLD_COPY
        self._copies[key] = int(just_loaded)
        # Two threads write these lines: the end of the old copy may stand before the "successfully loaded" of the new.
        if just_loaded or match["version"] in self._loading_now.get(model, []):
            text = f"{label}: its old copy was unloaded"
            return [Event(wall, "note", text, ORIGIN, "model.old_copy", model, marks_chart=False)]
        return [Event(wall, "note", f"{label} was unloaded", ORIGIN, "model.unloaded", model)]

    def _version_failed(self, match: re.Match[str], wall: float) -> list[Event]:
        self._failed[match["model"]] = wall
        named = self._loading_now.get(match["model"], [])
        if match["version"] in named:
            named.remove(match["version"])
        return _failed(match["model"], match["version"], match["reason"], wall)

    def _model_failed(self, match: re.Match[str], wall: float) -> list[Event]:
        model = match["model"]
        self._loading_now.pop(model, None)
        if wall - self._failed.get(model, -SAME_FAILURE) < SAME_FAILURE:
            return []
        self._failed[model] = wall
        return _failed(model, None, match["reason"] or "", wall)

    def _started(self, match: re.Match[str], wall: float) -> list[Event]:
        """A server that has just begun holds one copy of whatever it loaded."""
        self._saw_start = True
        self._copies = dict.fromkeys(self._copies, 1)
        return [Event(wall, "ok", f"server answers on {match['where']}", ORIGIN, "server.start")]


def _label(model: str, version: str | None) -> str:
    return f"{model} {version}" if version else model


def _failed(model: str, version: str | None, reason: str, wall: float) -> list[Event]:
    detail = (one_line(reason, 500),) if reason.strip() else ()
    return [Event(wall, "fail", f"{_label(model, version)} failed to load", ORIGIN, "model.failed", model, detail)]


def _poll_failed(match: re.Match[str], wall: float) -> list[Event]:
    text = f"{match['model']}: its configuration cannot be used"
    return [Event(wall, "fail", text, ORIGIN, "config.broken", match["model"], (one_line(match["reason"], 500),))]


def _dropped(match: re.Match[str], wall: float) -> list[Event]:
    text = f"{match['model']} was dropped by the server"
    return [Event(wall, "fail", text, ORIGIN, "model.dropped", match["model"], (one_line(match["reason"], 500),))]


def _stub_died(match: re.Match[str], wall: float) -> list[Event]:
    model = _INSTANCE.sub("", match["instance"])
    return [Event(wall, "fail", f"{model}: its Python process is dead", ORIGIN, "model.stub", model)]


def _draining(match: re.Match[str], wall: float) -> list[Event]:
    return [Event(wall, "note", "server was told to stop and drains", ORIGIN, "server.stop", marks_chart=False)]


def _crashed(match: re.Match[str], wall: float) -> list[Event]:
    if match["number"] in ASKED_TO_STOP:
        return [Event(wall, "note", f"server was told to stop (signal {match['number']})", ORIGIN, "server.stop")]
    return [Event(wall, "fail", f"server crashed by signal {match['number']}", ORIGIN, "server.crash")]
