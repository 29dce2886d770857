"""Podman's container events in the Timeline's words, and folding of what repeats (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from console.core.model import Event, Sign
from console.core.text import one_line, whole_number

ORIGIN = "(podman)"
FOLD_WITHIN = 3600.0

EXIT_CODES: Mapping[int, str] = {
    125: "Podman could not create the container",
    126: "the command could not be run (often: a mount or a device that is not there)",
    127: "the command was not found in the image",
    134: "it aborted itself (SIGABRT)",
    137: "it was killed (SIGKILL): its stop time ran out, or memory did",
    139: "it crashed (SIGSEGV)",
    143: "it ended by SIGTERM",
}
"""Exit codes that Podman and the shell's convention (128 + signal) give a meaning."""

_PLAIN: Mapping[str, tuple[str, Sign, str, bool]] = {
    "start": ("started", "ok", "container.start", True),
    "create": ("was created", "note", "container.create", False),
    "stop": ("was told to stop", "note", "container.stop", False),
    "kill": ("was sent a signal", "note", "container.kill", False),
    "restart": ("restarted", "note", "container.restart", True),
    "remove": ("was removed", "note", "container.remove", True),
    "pause": ("was paused", "warn", "container.pause", True),
    "unpause": ("goes on", "ok", "container.unpause", True),
    "oom": ("ran out of memory", "fail", "container.oom", True),
}
"""Action -> words, sign, kind, marks_chart."""


def event(wall: float, action: str, attributes: Mapping[str, str], health: str = "") -> Event | None:
    """One Podman event about a container; None for those that tell an operator nothing (init, cleanup, exec, sync)."""
    name = one_line(attributes.get("name", ""), 100) or "?"
    if action == "died":
        return _died(wall, name, attributes.get("containerExitCode", ""))
    if action == "health_status":
        return _health(wall, name, health or attributes.get("health_status", ""))
    known = _PLAIN.get(action)
    if known is None:
        return None
    words, sign, kind, marks = known
    return Event(wall, sign, f"container {name} {words}", ORIGIN, kind, marks_chart=marks)


def _died(wall: float, name: str, code: str) -> Event:
    number = whole_number(code)
    meaning = EXIT_CODES.get(number) if number is not None else None
    sign: Sign = "note" if number in (0, 143) else "fail"
    text = f"container {name} ended, exit {code or 'code unknown'}"
    return Event(wall, sign, text, ORIGIN, "container.died", detail=(meaning,) if meaning else ())


def _health(wall: float, name: str, status: str) -> Event | None:
    signs: Mapping[str, Sign] = {"healthy": "ok", "unhealthy": "fail"}
    if status not in signs:
        return None
    return Event(wall, signs[status], f"container {name} is {status} (its health check)", ORIGIN, f"health.{status}")


def changes_of_health(events: Iterable[Event]) -> list[Event]:
    """Events without the health checks that found what the one before found: Podman tells every run of the check."""
    kept: list[Event] = []
    last = ""
    for one in events:
        if one.kind.startswith("health."):
            if one.kind == last:
                continue
            last = one.kind
        kept.append(one)
    return kept


def fold(events: Iterable[Event], limit: int) -> list[Event]:
    """Oldest first; the same failure or warning within an hour of its last time is counted, not repeated; at most the
    newest `limit`.
    """
    kept: list[Event] = []
    newest: dict[tuple[str, str], tuple[int, float]] = {}
    for one in sorted(events, key=lambda event: event.wall):
        key = (one.kind, one.text)
        known = newest.get(key)
        if one.sign in ("fail", "warn") and known is not None and one.wall - known[1] <= FOLD_WITHIN:
            position = known[0]
            kept[position] = msgspec.structs.replace(kept[position], repeats=kept[position].repeats + one.repeats)
            newest[key] = (position, one.wall)
            continue
        newest[key] = (len(kept), one.wall)
        kept.append(one)
    return kept[-limit:] if limit else []
