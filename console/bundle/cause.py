"""What most likely was the matter, from events, verdicts, checks and the server's log (pure).

Ranked: faults of the card or the kernel, then the end of the container or the server, then models that do not load,
then what Why and the checks say. Of the same kind the earliest comes first. What an operator asked for is no cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from console.bundle.past import Past, Seen
from console.checks.errors import Diagnosis, diagnose, rules
from console.core import units
from console.core.finding import Report
from console.core.log_models import owner, together
from console.core.model import Event, LogLine, Sign
from console.core.text import one_line

AROUND = 5.0
"""Seconds around an event in which lines of the log belong to it."""
NEAR = 30.0
"""Seconds around an end of the container in which signals and kills belong to it."""
ASKED = 2.0
"""Seconds after the end of a change up to which an end of the container is that change's doing."""
BEFORE = 900.0
"""Seconds before a cause in which changes are worth telling."""
RISE, LEAST_RISE = 0.15, 256 << 20
"""Share of the card and bytes from which on a rise of its memory is told."""

_KERNEL = frozenset({"xid", "oom", "container.oom"})
_ENDS = frozenset({"container.died", "server.crash"})
_MODELS = frozenset({"model.failed", "model.dropped", "model.stub", "config.broken"})


class Suspect(Struct, frozen=True):
    """One thing that may be the cause."""

    rank: int
    """Lower is weightier."""
    wall: float | None
    """When it was first seen; None = it is so now, since when is not known."""
    sign: Sign
    title: str
    trust: str
    """sure, likely."""
    evidence: tuple[str, ...] = ()


class Grounds(Struct, frozen=True):
    """What there is to judge by."""

    past: Past
    lines: tuple[LogLine, ...] = ()
    """Of the server's log, oldest first."""
    report: Report | None = None
    kernel_read: bool = False
    """Whether the kernel's log could be read: only then does its silence tell anything."""
    served: tuple[str, ...] = ()
    serving: str = ""
    """How nothing serves at the end (`DOWN: ... refuses the connection`); "" = something does, or it is not known."""
    changes: tuple[tuple[float, float, str], ...] = ()
    """What was changed through gpuconsole: from when to when, and its title."""
    utc: bool = False


def suspects(grounds: Grounds) -> tuple[Suspect, ...]:
    """Weightiest first; () where nothing is wrong as far as is known."""
    found = [_of_event(event, grounds) for event in grounds.past.events if event.sign in ("fail", "warn")]
    found += _of_verdicts(grounds) + _of_memory(grounds)
    checks = _of_report(grounds)
    if grounds.serving and not any(one is not None and one.sign == "fail" for one in found):
        found.append(Suspect(3, None, "fail", grounds.serving, "sure", ("nothing known of this time tells why",)))
    found += [one for one in checks if one.sign == "fail"] if any(found) else checks
    kept: dict[str, Suspect] = {}
    for one in sorted((one for one in found if one is not None), key=_order):
        kept.setdefault(one.title, one)
    return tuple(kept.values())


def _order(one: Suspect) -> tuple[int, bool, float]:
    return one.rank, one.wall is None, one.wall or 0.0


def _of_event(event: Event, grounds: Grounds) -> Suspect | None:
    if event.kind in _KERNEL:
        return Suspect(0, event.wall, event.sign, event.text, "sure", event.detail)
    if event.kind in _ENDS:
        return _of_end(event, grounds)
    if event.kind in _MODELS:
        return _of_model(event, grounds)
    if event.kind.startswith("act."):
        return Suspect(4, event.wall, event.sign, event.text, "sure", (f"changed by {event.origin}", *event.detail))
    if event.sign == "fail" and event.kind.startswith(("unit.", "health.")):
        return Suspect(3, event.wall, event.sign, event.text, "sure", event.detail)
    return None


def _of_end(event: Event, grounds: Grounds) -> Suspect | None:
    events = grounds.past.events
    asked = [title for begin, end, title in grounds.changes if begin <= event.wall <= end + ASKED]
    # another user's audit cannot be read: his changes are events alone, dated by their end
    asked += [
        one.text
        for one in events
        if one.kind.startswith(("act.container", "act.unit")) and -ASKED <= one.wall - event.wall <= NEAR
    ]
    if asked:
        return Suspect(6, event.wall, "note", f"{event.text}, as a change asked for", "likely", (asked[0],))
    evidence = [*event.detail]
    signals = [one for one in events if one.kind in ("container.kill", "container.stop", "server.stop")]
    near = [one for one in signals if -NEAR <= one.wall - event.wall <= 2.0]
    evidence += [f"{units.clock(one.wall, utc=grounds.utc)} {one.text} {one.origin}" for one in near[:3]]
    if near:
        evidence.append("no change of gpuconsole asked for it: somebody, or a program, did by other means")
    killed = [one for one in events if one.kind in _KERNEL and abs(one.wall - event.wall) <= NEAR]
    if killed:
        evidence.append(f"the kernel told of it: {killed[0].text}")
    elif "exit 137" in event.text:
        told = (
            "tells of no kill for memory" if grounds.kernel_read else "could not be read: a kill for memory is possible"
        )
        evidence.append(f"the kernel's log {told}")
    last = [line for line in grounds.lines if line.wall is not None and 0 <= event.wall - line.wall <= AROUND]
    for one in diagnose("\n".join(line.text for line in last if line.level in ("E", "F", None)))[:2]:
        evidence.append(f"the log before it: {one.title}")
    return Suspect(1, event.wall, event.sign, event.text, "sure", tuple(evidence))


def _of_model(event: Event, grounds: Grounds) -> Suspect:
    reason = " ".join(event.detail)
    text = "\n".join([*(line.text for line in _lines_of(event, grounds)), reason])
    found = [one for one in diagnose(text) if not _is_general(one)]
    words = found[0].title if found else one_line(reason.partition(" ⏎ ")[0], 160)
    title = f"{event.text}: {words}" if words else event.text
    evidence = [f"the server's words: {one_line(reason, 300)}"] if reason else []
    said = found[0].evidence[0].text if found and found[0].evidence else ""
    if said and reason[:60] not in said and said not in reason:
        evidence.append(f"the log: {one_line(said, 300)}")
    if found:
        more = f" `gpuconsole explain {found[0].checks[0]}`" if found[0].checks else ""
        evidence.append(f"{found[0].why}{more}")
    return Suspect(2, event.wall, event.sign, title, "sure" if found or reason else "likely", tuple(evidence))


def _is_general(one: Diagnosis) -> bool:
    """True for what says no more than that it failed."""
    rule = rules().get(one.rule)
    return rule is not None and rule.generic


def _lines_of(event: Event, grounds: Grounds) -> Sequence[LogLine]:
    """Errors that belong to the event: its line, with those before it of the same trouble."""
    lines = grounds.lines
    for at, line in enumerate(lines):
        if line.wall is None or abs(line.wall - event.wall) > AROUND or line.level not in ("E", "F"):
            continue
        whose = owner(lines, at, grounds.served)
        if whose is not None and whose.model == event.model and whose.trust == "sure":
            return together(lines, at)
    return ()


def _of_verdicts(grounds: Grounds) -> list[Suspect]:
    made = []
    for one in grounds.past.seen:
        if one.verdict.sign not in ("fail", "warn") or _is_told(one, grounds.past.events):
            continue
        rank = 3 if one.verdict.sign == "fail" else 5
        until = "" if one.stands else f"until {units.clock(one.last, utc=grounds.utc)}"
        evidence = tuple(part for part in (*one.verdict.lines[:2], one.verdict.figures, until) if part)
        trust = one.verdict.trust if one.verdict.trust in ("sure", "likely") else "likely"
        made.append(Suspect(rank, one.first, one.verdict.sign, one.verdict.title, trust, evidence))
    return made


def _is_told(seen: Seen, events: Sequence[Event]) -> bool:
    """Whether an event tells the same of the same model: that a version does not load is one thing."""
    model = seen.verdict.model
    near = [event for event in events if abs(event.wall - seen.first) <= 2 * AROUND]
    if model is None and seen.verdict.subject in ("container", "server"):
        return any(event.kind in _ENDS for event in near)
    return model is not None and any(event.kind in _MODELS and event.model == model for event in near)


def _of_report(grounds: Grounds) -> list[Suspect]:
    report = grounds.report
    if report is None:
        return []
    return [
        Suspect(4 if one.sign == "fail" else 6, None, one.sign, one.title, one.trust, tuple(one.signs[:3]))
        for one in report.causes
        if one.sign in ("fail", "warn")
    ]


def _of_memory(grounds: Grounds) -> list[Suspect]:
    """A rise of the cards' memory over the time, up to its highest."""
    known = [one for one in grounds.past.figures if one.vram is not None]
    if len(known) < 3:
        return []
    top = max(known, key=lambda one: one.vram or 0)
    low = min((one for one in known if one.wall <= top.wall), key=lambda one: one.vram or 0)
    rise = (top.vram or 0) - (low.vram or 0)
    total = top.vram_total
    if rise < LEAST_RISE or total is None or rise < RISE * total:
        return []
    clock = units.clock
    title = (
        f"GPU memory rose from {units.size(low.vram)} at {clock(low.wall, utc=grounds.utc)} to {units.size(top.vram)} "
        f"at {clock(top.wall, utc=grounds.utc)}, of {units.size(total)}"
    )
    return [Suspect(5, low.wall, "warn", title, "sure")]


def changes_before(grounds: Grounds, wall: float) -> list[Event]:
    """What was changed shortly before a moment, by whom."""
    return [one for one in grounds.past.events if one.kind.startswith("act.") and 0 <= wall - one.wall <= BEFORE]
