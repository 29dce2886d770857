"""What systemd's own journal entries tell of a unit: starts, ends, restarts (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from console.core.model import Event
from console.core.podman_events import EXIT_CODES

ORIGIN = "(journal)"

_ENDED = re.compile(
    r"[Mm]ain process exited, code=(?P<how>exited|killed|dumped), status=(?P<code>\d+)(?:/(?P<name>\S+))?"
)
_COUNTER = re.compile(r"restart counter is at (?P<count>\d+)")
_STARTED = re.compile(r"^Started ")
_STOPPED = re.compile(r"^Stopped ")
_LIMIT = re.compile(r"[Ss]tart request repeated too quickly")
_TIMEOUT = re.compile(r"(?:[Ss]tart|[Ss]top)[a-z'-]* (?:operation )?timed out")


def events(unit: str, entries: Iterable[tuple[float, str]]) -> list[Event]:
    """Events of (wall, message) entries, oldest first; the restart counter goes into the detail of the next failure."""
    found: list[Event] = []
    count: str | None = None
    for wall, message in entries:
        told = _COUNTER.search(message)
        if told is not None:
            count = told["count"]
            continue
        event = _event(unit, wall, message, count)
        if event is not None:
            found.append(event)
    return found


def _event(unit: str, wall: float, message: str, count: str | None) -> Event | None:
    ended = _ENDED.search(message)
    if ended is not None:
        return _failed(unit, wall, ended, count)
    if _LIMIT.search(message):
        text = f"{unit} failed too often: systemd starts it no more"
        return Event(wall, "fail", text, ORIGIN, "unit.limit", detail=("systemctl reset-failed and start begin anew",))
    if _TIMEOUT.search(message):
        return Event(wall, "fail", f"{unit} timed out", ORIGIN, "unit.timeout", detail=(message[:300],))
    if _STARTED.search(message):
        return Event(wall, "note", f"{unit} started", ORIGIN, "unit.start", marks_chart=False)
    if _STOPPED.search(message):
        return Event(wall, "note", f"{unit} stopped", ORIGIN, "unit.stop", marks_chart=False)
    return None


def _failed(unit: str, wall: float, ended: re.Match[str], count: str | None) -> Event:
    code = int(ended["code"])
    meaning = EXIT_CODES.get(code if ended["how"] == "exited" else 128 + code)
    detail = [meaning] if meaning else []
    if count is not None:
        detail.append(f"restart {count} by systemd")
    how = f"exit {code}" if ended["how"] == "exited" else f"killed by signal {code}"
    return Event(
        wall, "note" if code == 0 else "fail", f"{unit} ended, {how}", ORIGIN, "unit.ended", detail=tuple(detail)
    )
