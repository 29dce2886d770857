"""Why a load failed, from the container's log: the API hides it where the model could not even be polled.

`failed to load 'm', failed to poll from model repository` is all that the load's answer says of a config.pbtxt that
cannot be parsed; the cause stands in the log only, and so does that of an ensemble that the server dropped silently
(domain facts 1.3, 1.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from console.clients.podman_stream import recent_log
from console.core.podman_frames import RawLine
from console.core.text import one_line
from console.core.triton_log import LineReader

MAX_LINES = 6
WIDTH = 300
EARLY = 1.5
"""Seconds before the call from which lines count: Podman 4.x stamps whole seconds."""
_CAUSE = re.compile(
    r"Poll failed|[Ff]ailed to (?:load|poll)|allows maximum batch size|must be|is not healthy"
    r"|Error|error:|No module named|out of memory"
)
_SIGNAL = re.compile(r"Signal \(\d+\) received")
_PARSING = re.compile(r"\[libprotobuf ERROR [^\]]*\] ?(.*)")
_LEVELS = frozenset({"E", "F", "W"})


def load_cause(url: str, container: str, model: str, since: float) -> tuple[str, ...]:
    """The log's lines since `since` (Unix seconds) that tell why a load of `model` failed, oldest first, at most
    MAX_LINES. SourceError when Podman does not give the log."""
    return causes(recent_log(url, container, None, int(since - EARLY)), model, since)


def causes(raw: Iterable[RawLine], model: str, since: float) -> tuple[str, ...]:
    """The same from raw lines. Lines that name another model are left out."""
    reader = LineReader()
    found: list[str] = []
    nameless: list[str] = []
    for line in (line for one in raw for line in reader.read(one)):
        if line.wall is not None and line.wall < since - EARLY:
            continue
        parsing = _PARSING.search(line.text)
        if parsing is not None:
            # It names no model: it is of the one that the next line names.
            nameless.append(one_line(parsing[1], WIDTH))
        elif _SIGNAL.match(line.text) or (line.level in _LEVELS and _CAUSE.search(line.text)):
            if _is_of(line.text, model):
                found += [*nameless, one_line(line.text, WIDTH)]
            nameless.clear()
    return tuple(dict.fromkeys(found))[-MAX_LINES:]


_NAMED = re.compile(r"(?:load|directory|model) (?:model )?'([^']+)'")


def _is_of(text: str, model: str) -> bool:
    named = _NAMED.findall(text)
    return not named or model in named or any(model in other for other in named)
