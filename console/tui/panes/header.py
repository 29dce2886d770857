"""The header line (screens.md 1.1, 1.2, 1.4), the tab line and the footer line, as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from console.core import units
from console.core.model import Failure, Serving, Sign, Snapshot
from console.tui.panes.base import View
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, Segment, between, cut_line, line_width

WORD_SIGNS: dict[str, Sign] = {
    "SERVING": "ok",
    "DOWN": "fail",
    "NOT ANSWERING": "fail",
    "STARTING": "warn",
    "NOTHING LOADED": "warn",
    "NOTHING SERVES YET": "unknown",
    "UNKNOWN": "unknown",
}


@dataclass(frozen=True, slots=True)
class Status:
    """What the header says beside the Snapshot."""

    host: str
    cpu_pct: float | None = None
    """CPU of this process, percent of one core, mean of some seconds."""
    memory: int | None = None
    """Resident bytes of this process."""
    paused_wall: float | None = None
    """When the screen was held; None while it is live."""
    read_only: bool = False
    wall: float | None = None
    """Now, when the panes are held at an earlier moment; None = the View's clock."""
    details: bool = False
    """True on every screen but the Overview: there is no room for the system's name."""
    load: tuple[str, str] = ("", "")
    """Whose load runs and how far it is, and its short form: `LOAD 13 ranking 0:42 of 2:00 ctrl+x`; "" = none runs."""
    alerts: tuple[str, str] = ("", "")
    """How many alerts stand, and its short form: `ALERT 2 silent`, `A2s`; "" = none does."""
    recording: str = ""
    """`REC 1h04 38 MiB`; "" while nothing is written to files."""
    records: bool = False
    """Whether this session can be recorded."""
    replay: str = ""
    """`REPLAY ▸ 10x`, with the gap that the position is in; "" in a console over a box."""
    replay_short: str = ""
    acting: str = ""
    """What is being changed, how far it is and by whom: `SWAP lm 4/6, 0:29, by ops`; "" while nothing is."""


def header_line(view: View, status: Status, width: int) -> Line:
    """The header in `width` cells: the state at the left, problem counts and own cost at the right."""
    if width < 100:
        return _coloured(view, _compact(view, status, width))
    for start in _starts(view, status):
        for end in _ends(view, status):
            if line_width(start) + line_width(end) < width:
                return _coloured(view, between(start, end, width))
    return _coloured(view, between(start, end, width))


def _coloured(view: View, line: Line) -> Line:
    return tuple((text, "simulated") for text, _ in line) if view.simulated else line


def _starts(view: View, status: Status) -> Iterator[Line]:
    """The left part, from the widest form to the narrowest."""
    wall = view.wall
    clock = f"{view.clock(wall)} {units.zone(wall, utc=view.utc)}"
    system = view.snapshot.host.value.os_name if view.snapshot.host.value else ""
    serving = view.snapshot.serving
    gap = "  " if status.details or serving.word == "DOWN" else "   "
    rest = _paused(view, status) or _state(view, status)
    short = _paused(view, status) or (*(_acting(status) or _word(view, serving)), *_load(status, 1))
    recorded: Line = ((status.recording, "paused"), ("   ", "")) if status.recording else ()
    if recorded and status.paused_wall is None:
        rest, short = (*rest, ("   ", ""), *recorded[:1]), (*recorded, *short)
    if status.replay:
        yield from _replayed(view, status, rest, short)
        return
    if view.simulated is not None:
        long, brief = (
            f"gpuconsole  SIMULATED BOX{more}   scene {view.simulated}   {clock}"
            for more in (", nothing here is real", "")
        )
        yield ((long, ""), (gap, ""), *rest)
        yield ((long, ""), (gap, ""), *short)
        yield ((brief, ""), (gap, ""), *short)
        if status.paused_wall is not None:
            yield ((brief, ""), (gap, ""), *short[:1])
        yield ((long, ""),)
        yield ((brief, ""),)
        return
    host = f"gpuconsole  {status.host}  "
    if system and not status.details and status.paused_wall is None:
        yield ((f"{host}{system}  {clock}{gap}", "header"), *rest)
    yield ((f"{host}{clock}{gap}", "header"), *rest)
    yield ((f"{host}{clock}{gap}", "header"), *short)


def _replayed(view: View, status: Status, rest: Line, short: Line) -> Iterator[Line]:
    """Of a replay: the recorded time with its date, and how it goes."""
    when = f"{units.moment(view.wall, utc=view.utc)} {units.zone(view.wall, utc=view.utc)}"
    host = status.host if view.simulated is None else f"SIMULATED {view.simulated}"
    head: Line = ((f"gpuconsole  {host}  {when}  ", "header"),)
    clock: Line = ((f"{host}  {view.clock(view.wall)}  ", "header"),)
    long, brief = ((status.replay, "paused"), ("   ", "")), ((status.replay_short, "paused"), ("   ", ""))
    yield (*head, *long, *rest)
    yield (*head, *long, *short)
    yield (*head, *brief, *short)
    yield (*clock, *brief, *short)


def _ends(view: View, status: Status) -> Iterator[Line]:
    """The right part, from the widest form to the narrowest."""
    told = (*_alerts(status, 0), *counts_line(view.snapshot))
    cost = "self" if status.cpu_pct is None else f"self {status.cpu_pct:.1f} %"
    memory = "" if status.memory is None else f" {status.memory / units.MIB:.0f} MiB"
    if status.records and not status.recording and not status.details:
        yield (*told, (" list", "dim"), ("    REC –", "dim"), (f"    {cost}{memory}", "dim"))
    yield (*told, (" list", "dim"), (f"   {cost}{memory}", "dim"))
    yield (*told, (f"   {cost}", "dim"))
    yield told


def _alerts(status: Status, form: int) -> Line:
    text = status.alerts[form]
    return ((text, "fail" if text.startswith("A") else "dim"), ("  " if form == 0 else " ", "")) if text else ()


def counts_line(snapshot: Snapshot) -> Line:
    """`✗1 ▲3 ?1 e`: causes, not symptoms."""
    parts: list[Segment] = []
    for sign, count in counts(snapshot).items():
        parts += [(f"{SIGNS[sign]}{count}", SIGN_STYLES[sign] if count else "dim"), (" ", "")]
    return (*parts, ("e", "key"))


def counts(snapshot: Snapshot) -> dict[Sign, int]:
    """Problems by sign: what the header counts and `e` lists."""
    found: dict[Sign, int] = {"fail": 0, "warn": 0, "unknown": 0}
    for verdict in snapshot.verdicts:
        if verdict.sign in found:
            found[verdict.sign] += 1
    return found


def _paused(view: View, status: Status) -> Line:
    if status.paused_wall is None:
        return ()
    return ((f"PAUSED at {view.clock(status.paused_wall)}", "paused"), (", still measuring   p goes on", "header"))


def _state(view: View, status: Status) -> Line:
    read_only: Line = (("   ", ""), ("READ-ONLY", "paused")) if status.read_only else ()
    if status.acting:
        server = view.snapshot.server
        unready = server.error is None and server.value is not None and server.value.ready is False
        return (
            *_acting(status),
            (f"   ready {SIGNS['warn']} 400 while it runs" if unready else "", "label"),
            *_load(status, 0),
            *read_only,
        )
    if status.load[0]:
        return (*_word(view, view.snapshot.serving), *_load(status, 0), *read_only)
    return (*_word(view, view.snapshot.serving), *read_only, *_lamps(view))


def _load(status: Status, form: int) -> Line:
    return (("  ", ""), (status.load[form], "warn")) if status.load[form] else ()


def _acting(status: Status) -> Line:
    return ((f"{SIGNS['warn']} {status.acting}", "warn"),) if status.acting else ()


def _word(view: View, serving: Serving) -> Line:
    sign = WORD_SIGNS[serving.word]
    return ((f"{SIGNS[sign]} {_said(view, serving)}", SIGN_STYLES[sign]),)


def _said(view: View, serving: Serving) -> str:
    if serving.word == "SERVING":
        return f"SERVING {serving.ready} of {serving.of}"
    if serving.word == "STARTING":
        told = f"STARTING {serving.ready} of {serving.of}" if serving.of else "STARTING"
        return f"{told}, {serving.detail}" if serving.detail else told
    if serving.word == "NOT ANSWERING" and serving.since_mono is not None:
        return f"NOT ANSWERING {units.age(view.mono - serving.since_mono)}"
    return "looking" if serving.word == "UNKNOWN" else serving.word


def _lamps(view: View) -> Line:
    """live and ready are two lamps: one failed model makes ready 400 while the rest serves."""
    snapshot = view.snapshot
    word = snapshot.serving.word
    if word in ("NOTHING SERVES YET", "UNKNOWN"):
        return ()
    if word == "NOT ANSWERING":
        return ((f"   {snapshot.serving.detail}", "header"),) if snapshot.serving.detail else ()
    server = snapshot.server
    if server.error is not None or server.value is None:
        why = "" if word == "STARTING" else f" {short_failure(server.error)}"
        return (("   live ", "label"), (f"{SIGNS['fail']}{why}".rstrip(), "fail"))
    live, ready = server.value.live, server.value.ready
    return (("   live ", "label"), lamp(live, "✗"), ("  ready ", "label"), lamp(ready, "▲ 400"))


def lamp(value: bool | None, when_off: str) -> Segment:
    """● when true, `when_off` when false, ? when it was not told."""
    if value is None:
        return ("?", "unknown")
    if value:
        return ("●", "ok")
    return (when_off, "fail" if when_off.startswith("✗") else "warn")


def short_failure(failure: Failure | None) -> str:
    """One or two words for why something does not answer."""
    if failure is None:
        return ""
    if "refused" in failure.message.casefold():
        return "refused"
    words = {"timeout": "silent", "permission": "not allowed", "unavailable": "no answer", "protocol": "odd answer"}
    return words.get(failure.kind, failure.kind)


def _compact(view: View, status: Status, width: int) -> Line:
    """The form under 100 columns."""
    host = f"SIMULATED {view.simulated}" if view.simulated is not None else status.host
    zone = units.zone(view.wall, utc=view.utc).removeprefix("UTC")
    offset = f"{zone[0]}{zone[1:].split(':')[0]:0>2}" if zone else "Z"
    cost: Line = ((f"  {status.cpu_pct:.1f} %", "dim"),) if status.cpu_pct is not None else ()
    beside: Line = ((f"{status.replay_short} ", "paused"),) if status.replay else ()
    if status.recording:
        beside = (("REC ", "paused"),)
    state = _compact_state(view, status)[: 1 if status.replay else None]
    start: Line = ((f"{host} {view.clock(view.wall)}{offset} ", "header"), *beside, *state)
    counted = (*_alerts(status, 1), *counts_line(view.snapshot))
    for end in ((*counted, *cost), counted):
        if line_width(start) + 1 + line_width(end) <= width:
            return between(start, end, width)
    return between(cut_line(start, width), counted, width)


def _compact_state(view: View, status: Status) -> Line:
    if status.paused_wall is not None:
        return ((f"PAUSED {view.clock(status.paused_wall)} p goes on", "paused"),)
    if status.acting:
        return _acting(status)
    serving = view.snapshot.serving
    sign = WORD_SIGNS[serving.word]
    told = f"SERVING {serving.ready}/{serving.of}" if serving.word == "SERVING" else _said(view, serving)
    word: Line = ((f"{SIGNS[sign]} {told}", SIGN_STYLES[sign]),)
    if status.load[1]:
        return (*word, (" ", ""), (status.load[1], "warn"))
    server = view.snapshot.server.value
    if serving.word != "SERVING" or server is None:
        return word
    ready = lamp(server.ready, "▲400")
    read_only: Line = ((" RO", "paused"),) if status.read_only else ()
    return (*word, *read_only, (" live ", "label"), lamp(server.live, "✗"), (" ready ", "label"), ready)


def check_counts(snapshot: Snapshot, compact: bool) -> str:
    """` ✗2 ▲2`: what the checklist found, beside its tab; "" where nothing is wrong or nothing was looked at."""
    report = snapshot.checks.value
    found = [one.sign for one in report.findings] if report is not None else []
    counted = [(sign, found.count(sign)) for sign in ("fail", "warn") if sign in found]
    return "".join(f" {SIGNS[sign]}{count}" for sign, count in (counted[:1] if compact else counted))


def tab_line(tabs: Sequence[tuple[str, str, str]], here: str, compact: bool) -> Line:
    """` 1 Overview   [2 Models]   5 Container`; `tabs` holds (name, digit, title). In the compact form one blank stands
    between two: all screens, and with them the present one, fit into 80 cells."""
    line: list[Segment] = []
    after = " "
    for name, digit, title in tabs:
        text, is_here = f"{digit} {title}", name == here
        if compact:
            line.append(("[" if is_here else after, "tab-here" if is_here or after == "]" else ""))
            line.append((text, "tab-here" if is_here else "tab"))
            after = "]" if is_here else " "
        else:
            line.append((f"[{text}]" if is_here else f" {text} ", "tab-here" if is_here else "tab"))
            line.append(("  ", ""))
    if compact and after == "]":
        line.append((after, "tab-here"))
    return tuple(line)


def footer_line(parts: Sequence[tuple[str, str, int]], width: int, grey: Collection[str] = (), start: str = "") -> Line:
    """Keys and their words; `parts` holds (keys, word, rank). The highest ranks are left out until the rest fits; keys
    in `grey` do not work now; `start` stands before all."""
    kept = list(parts)
    while len(kept) > 1 and line_width(_joined(kept, grey, start)) > width:
        kept.remove(max(kept, key=lambda part: part[2]))
    return cut_line(_joined(kept, grey, start), width)


def _joined(parts: Sequence[tuple[str, str, int]], grey: Collection[str], start: str) -> Line:
    line: list[Segment] = [(f"{start}  ", "label")] if start else []
    for keys, word, _ in parts:
        off = keys in grey
        line += [(keys, "dim" if off else "key"), (f" {word}  ", "dim" if off else "footer")]
    if line:
        line[-1] = (line[-1][0].rstrip(), line[-1][1])
    return tuple(line)
