"""Load a model and wait: for the answer, for a cancel, for the time limit, or for the server's end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from console.actions.base import Run
from console.actions.box import Box
from console.actions.model_look import container_of
from console.clients.triton_control import ControlRefused, LoadCall, TritonControl
from console.core.model import SourceError
from console.core.text import one_line

TURN = 0.05
"""Seconds between two looks at the answer, the cancel and the limit."""
NOTE_EVERY = 5.0
SETTLE = 5.0
"""Seconds in which an ensemble must be READY again after a step of it was reloaded."""
UNLOAD_WAIT = 60.0
"""Seconds for the end of an unload: requests in flight are answered first, then the back end lets go."""
PODMAN_LAG = 2.0
"""Seconds until Podman knows that a container has ended whose port refuses already."""
UNSEEN = "failed to poll from model repository"

Word = Literal["ok", "refused", "gone", "limit", "cancelled"]


class LoadEnd(Struct, frozen=True):
    """How the wait for a load ended."""

    word: Word
    """refused: Triton said no. gone: no answer will come, the server went away. limit, cancelled: it goes on there."""
    seconds: float
    text: str = ""
    cause: tuple[str, ...] = ()
    """Of a refusal: Triton's words, or what its log says where they hide it."""
    ended: float = 0.0
    """time.monotonic() of the answer."""


def load(
    box: Box, control: TritonControl, name: str, config: str | None, run: Run, limit: float, *, cancels: bool = True
) -> LoadEnd:
    """Send a load and wait at most `limit` seconds. Without `cancels` a cancel does not end the wait (a roll-back)."""
    call = control.begin_load(name, config, max(limit, 1.0) + 3600)
    return wait_for(box, call, name, run, limit, cancels=cancels)


def wait_for(box: Box, call: LoadCall, name: str, run: Run, limit: float, *, cancels: bool = True) -> LoadEnd:
    """Wait for a load that was sent."""
    told = time.monotonic()
    while not call.wait(TURN):
        now = time.monotonic()
        if cancels and run.cancelled.is_set():
            return LoadEnd("cancelled", now - call.began, "stopped by the operator")
        if now - call.began > limit:
            return LoadEnd("limit", now - call.began, f"has not ended loading within {limit:.0f} s")
        if now - told > NOTE_EVERY:
            told = now
            run.note(f"loading for {now - call.began:.0f} s")
    return _ended(box, call, name)


def _ended(box: Box, call: LoadCall, name: str) -> LoadEnd:
    took = call.seconds or 0.0
    ended = call.began + took
    try:
        call.result()
    except ControlRefused as error:
        cause = _cause(box, name, error.message, call.wall)
        return LoadEnd("refused", took, f"fails to load: {_short(error.message)}", cause, ended)
    except SourceError as error:
        word: Word = "gone" if error.kind == "unavailable" else "limit"
        return LoadEnd(word, took, error.message, (), ended)
    return LoadEnd("ok", took, "", (), ended)


def _short(words: str) -> str:
    """Triton's words less what only repeats which model it is."""
    _, found, rest = words.partition("is at UNAVAILABLE state: ")
    return one_line((rest if found else words).replace(" ⏎ ", "\n").split("\n", 1)[0].rstrip(" ;"), 200)


def _cause(box: Box, name: str, words: str, since: float) -> tuple[str, ...]:
    if UNSEEN not in words:
        return (one_line(words, 1000),)
    return box.load_cause(name, since)


def crashed(box: Box, since: float) -> str:
    """That the server went away since a moment, and how, in one sentence; "" where it still answers."""
    try:
        box.index()
    except SourceError as error:
        until = time.monotonic() + PODMAN_LAG
        while True:
            told = _down(box, since)
            if told or time.monotonic() > until:
                return told or f"the server does not answer any more: {error.message}"
            time.sleep(TURN)
    return _down(box, since)


def _down(box: Box, since: float) -> str:
    container = container_of(box)
    if container is None:
        return ""
    if container.state != "running":
        code = "" if container.exit_code is None else f" with exit code {container.exit_code}"
        return f"the server went down{code} (container {container.name} is {container.state})"
    if (container.started_wall or 0) > since:
        return f"the server went down, and container {container.name} was started again"
    return ""


def wait_gone(control: TritonControl, name: str, versions: Iterable[int], run: Run, limit: float) -> bool:
    """Wait until none of the versions is READY or UNLOADING; False when that takes longer. SourceError."""
    wanted = {str(version) for version in versions}
    until = time.monotonic() + limit
    while True:
        left = [e for e in control.index() if e.name == name and e.version in wanted]
        if not any(e.state in ("READY", "UNLOADING", "LOADING") for e in left):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(TURN)


def lost(
    control: TritonControl, before: frozenset[tuple[str, str]], name: str, settle: float | None = None
) -> list[str]:
    """Other models that were READY before and are no more, after a while for ensembles to come back. An ensemble drops
    out silently (domain facts 1.6). SourceError."""
    until = time.monotonic() + (SETTLE if settle is None else settle)
    while True:
        now = {(e.name, e.version or "") for e in control.index() if e.state == "READY"}
        gone = sorted(f"{model} {version}" for model, version in before - now if model != name)
        if not gone or time.monotonic() > until:
            return gone
        time.sleep(TURN)


def ready_versions(control: TritonControl, name: str) -> tuple[int, ...]:
    """READY versions of a model now, ascending. SourceError."""
    found = (e.version for e in control.index() if e.name == name and e.state == "READY")
    return tuple(sorted(int(v) for v in found if v and v.isdecimal()))
