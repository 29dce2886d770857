"""Error texts and whole logs -> diagnoses: what a line means, which checks decide, what to do where none does.

The table is errors.toml (from host.md 6.2 and the public reports); Xids and kills by the kernel are read by
core/kernel_faults.py and weighed by core/xid_incidents.py. Bounded on any input: a line is looked at only where it
holds a word of the table, in a window, and so many times a table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct

from console.core import kernel_faults
from console.core.facts import Evidence
from console.core.finding import Finding
from console.core.model import KernelFault, Sign
from console.core.podman_errors import RLIMITS
from console.core.text import one_line
from console.core.xid_incidents import Incident, incidents

WINDOW = 2000
"""Characters looked at on each side of a found word: a line without an end must not stall."""
FIRST_LOOKS, LAST_LOOKS = 1500, 500
"""Lines looked at for each word of the table: so many from the start and from the end of a text."""
MOST_OF_ONE = 20
"""Diagnoses of one table (one for each model that fails)."""
WRAPPED = 20_000
"""Characters of a text that is looked at once more with its line ends taken out: pasted from a narrow terminal."""
XID_RULE, OOM_RULE = "xid", "kernel-oom"


class Diagnosis(Struct, frozen=True):
    """What an error text means."""

    rule: str
    """Its table in errors.toml, `xid` or `kernel-oom`."""
    sign: Sign
    title: str
    checks: tuple[str, ...]
    """Which decide what it is, likeliest first; with findings given, those that are not ok come first."""
    why: str
    do: str = ""
    """What to do where no check tells."""
    evidence: tuple[Evidence, ...] = ()
    """The first and the last line; `where` is `line 12`."""
    count: int = 1
    """Lines that say it."""
    decided: str = ""
    """The check that says so on this box: the first of `checks` that is not fit; "" = none, or no findings given."""
    said: str = ""
    """What that check says."""
    source: str = ""


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of errors.toml; the meaning of each key stands there."""

    has: tuple[str, ...]
    title: str
    checks: tuple[str, ...]
    why: str
    pattern: str = ""
    unless: str = ""
    otherwise: str = ""
    sign: Sign = "fail"
    do: str = ""
    follows: tuple[str, ...] = ()
    generic: bool = False
    source: str = ""


@cache
def rules() -> Mapping[str, Rule]:
    """The table, in the order in which it is tried."""
    data = tomllib.loads(files("console.checks").joinpath("errors.toml").read_text("utf-8"))
    return {name: msgspec.convert(table, Rule) for name, table in data.items()}


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def diagnose(text: str, findings: Sequence[Finding] = ()) -> tuple[Diagnosis, ...]:
    """What a message or a whole log says: causes before what follows from them, fails before warnings.

    Findings of the box decide which of several checks it is. () where nothing in the text is known.
    """
    text, low = _lowered(_plain(text))
    found = _of_table(text, low) + _of_xids(text, low) + _of_oom(text, low)
    if not found and len(text) <= WRAPPED:
        found = _of_table(*_lowered(" ".join(text.split())))
    present = {one.rule for one, _ in found}
    ranked = sorted(found, key=lambda pair: _rank(pair[0], pair[1], present))
    return tuple(decided(one, findings) for one, _ in ranked)


def decided(one: Diagnosis, findings: Sequence[Finding]) -> Diagnosis:
    """The same with its checks put in order by what they say on this box."""
    said = {finding.id: finding for finding in findings}
    order: dict[Sign, int] = {"fail": 0, "warn": 1, "unknown": 2, "note": 4, "ok": 4, "none": 5}

    def weight(check: str) -> int:
        return order[said[check].sign] if check in said else 3

    checks = tuple(sorted(one.checks, key=weight))  # stable: likeliest first among equals
    first = said.get(checks[0]) if checks else None
    if first is None or first.sign not in ("fail", "warn"):
        return msgspec.structs.replace(one, checks=checks)
    return msgspec.structs.replace(one, checks=checks, decided=first.id, said=first.text)


def _rank(one: Diagnosis, start: int, present: set[str]) -> tuple[int, bool, bool, int]:
    rule = rules().get(one.rule)
    follows = rule.follows if rule is not None else ()
    others = present - {one.rule}
    behind = any(name in others for name in follows) or (follows == ("*",) and bool(others))
    signs: dict[Sign, int] = {"fail": 0, "warn": 1}
    return signs.get(one.sign, 2), behind, rule is not None and rule.generic, start


_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_SPLIT = re.compile(r"(?<=or later, but)[ \t]{0,20}\n([ \t]{1,40})(version [\w.]{1,20}[^\n]{0,200})")


def _plain(text: str) -> str:
    """Without colours and the zeros of two-byte texts; what NVIDIA's images write on two lines is on the first."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return _SPLIT.sub(r" \2\n\1", text)


def _lowered(text: str) -> tuple[str, str]:
    """The text and the same in lower case, in which the places agree."""
    low = text.lower()
    return (text, low) if len(low) == len(text) else (low, low)  # a few letters grow when they are lowered


# ----------------------------------------------------------------------------------------------------------- the table


class _Line(Struct, frozen=True):
    start: int
    text: str


class _Found:
    """The lines of one diagnosis."""

    def __init__(self, rule: str, title: str, line: _Line) -> None:
        self.rule, self.title, self.first, self.last = rule, title, line, line
        self.starts = {line.start}

    def add(self, line: _Line) -> None:
        self.starts.add(line.start)
        self.first = min(self.first, line, key=lambda one: one.start)
        self.last = max(self.last, line, key=lambda one: one.start)


def _of_table(text: str, low: str) -> list[tuple[Diagnosis, int]]:
    taken: dict[int, list[tuple[int, int]]] = {}
    found: dict[tuple[str, str], _Found] = {}
    for generic in (False, True):
        for name, rule in rules().items():
            if rule.generic is generic:
                _search(name, rule, text, low, taken, found)
    made = []
    for one in found.values():
        rule = rules()[one.rule]
        lines = (one.first,) if one.first.start == one.last.start else (one.first, one.last)
        evidence = tuple(_evidence(text, line) for line in lines)
        diagnosis = Diagnosis(
            one.rule,
            rule.sign,
            one.title,
            rule.checks,
            rule.why,
            rule.do,
            evidence,
            len(one.starts),
            "",
            "",
            rule.source,
        )
        made.append((diagnosis, one.first.start))
    return made


def _search(
    name: str,
    rule: Rule,
    text: str,
    low: str,
    taken: dict[int, list[tuple[int, int]]],
    found: dict[tuple[str, str], _Found],
) -> None:
    of_rule = 0
    for line in _lines_with(rule.has, text, low):
        if (rule.generic and line.start in taken) or "Xid (" in line.text:
            continue  # an Xid belongs to its incident
        if rule.unless and _compiled(rule.unless).search(line.text):
            continue
        span, groups = _match(rule, line.text)
        if span is None:
            continue
        claimed = taken.setdefault(line.start, [])
        if any(span[0] < end and start < span[1] for start, end in claimed):
            continue
        claimed.append(span)
        title = _title(rule, groups)
        known = found.get((name, title))
        if known is not None:
            known.add(line)
        elif of_rule < MOST_OF_ONE:
            found[name, title] = _Found(name, title, line)
            of_rule += 1


def _match(rule: Rule, line: str) -> tuple[tuple[int, int] | None, dict[str, str]]:
    if not rule.pattern:
        low = line.lower()
        start, word = next((at, word) for word in rule.has if (at := low.find(word)) >= 0)
        return (start, start + len(word)), {}
    match = _compiled(rule.pattern).search(line)
    if match is None:
        return None, {}
    return match.span(), {key: value for key, value in match.groupdict().items() if value}


def _title(rule: Rule, groups: dict[str, str]) -> str:
    wanted = re.findall(r"\{(\w+)\}", rule.title)
    values = {key: one_line(value.strip("'\"` "), 120) for key, value in groups.items()}
    if "number" in values:
        values["limit"] = RLIMITS.get(int(values["number"]), f"of type {values['number']}")
    other = values.get("second") or values.get("third")
    if len(wanted) == 1 and wanted[0] not in values and other:
        values[wanted[0]] = other
    if any(key not in values for key in wanted):
        return rule.otherwise or rule.title.replace("{", "").replace("}", "")
    return rule.title.format_map(values)


def _lines_with(words: Sequence[str], text: str, low: str) -> Iterator[_Line]:
    """Lines that hold one of the words, each once: the first ones and the last ones."""
    seen: set[int] = set()
    for word in words:
        for at in _places(word, low):
            start, end = _bounds(text, at, len(word))
            if start not in seen:
                seen.add(start)
                yield _Line(start, text[start:end])


def _places(word: str, low: str) -> Iterator[int]:
    """Where a word is found, no two within one window's reach of a line: bounded at both ends of the text."""
    at, looks = low.find(word), 0
    while at >= 0 and looks < FIRST_LOOKS:
        yield at
        looks += 1
        at = low.find(word, _next_line(low, at))
    if at < 0:
        return
    end, looks = len(low), 0
    while looks < LAST_LOOKS:
        back = low.rfind(word, at, end)
        if back < 0:
            return
        yield back
        looks += 1
        end = max(low.rfind("\n", 0, back), 0)


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _bounds(text: str, at: int, length: int) -> tuple[int, int]:
    start = text.rfind("\n", max(0, at - WINDOW), at) + 1 or max(0, at - WINDOW)
    end = text.find("\n", at, at + length + WINDOW)
    return start, end if end >= 0 else min(len(text), at + length + WINDOW)


def _evidence(text: str, line: _Line) -> Evidence:
    return Evidence(f"line {text.count(chr(10), 0, line.start) + 1}", one_line(line.text.strip(), 300))


# ------------------------------------------------------------------------------------------------------ the kernel log


_XID_CHECKS: Mapping[int, tuple[str, ...]] = {
    48: ("G09", "G11", "G10"),
    54: ("G12",),
    62: ("G12",),
    63: ("G11", "G10"),
    64: ("G11", "G10", "G12"),
    74: ("G22",),
    79: ("G12",),
    92: ("G09",),
    94: ("G11", "G09"),
    95: ("G11", "G09", "G12"),
    119: ("G12", "A18"),
    120: ("G12", "A18"),
    154: ("G12",),
    171: ("G09", "G11"),
    172: ("G09", "G11"),
}


def xid_title(one: Incident) -> str:
    """Such as `GPU 0000:3b:00: Xid 79, the GPU has fallen off the bus (with 45, 154): restart the host`."""
    beside = f" (with {', '.join(map(str, one.others))})" if one.others else ""
    return f"GPU {one.pci}: Xid {one.lead.xid}, {one.lead.meaning}{beside}: {_action(one)}"


def _action(one: Incident) -> str:
    return "none: it is an ordinary end, as by a kill at its stop" if one.follows_nothing else one.action


def _of_xids(text: str, low: str) -> list[tuple[Diagnosis, int]]:
    lines, faults = _xids(sorted(_lines_with(("xid (",), text, low), key=lambda line: line.start))
    groups: dict[tuple[str, int, str], list[Incident]] = {}
    for one in incidents(faults):
        groups.setdefault((one.pci, one.lead.xid, one.action), []).append(one)
    made: list[tuple[Diagnosis, int]] = []
    for same in list(groups.values())[:MOST_OF_ONE]:
        first, last = lines[same[0].places[0]], lines[same[-1].places[-1]]
        evidence = tuple(_evidence(text, line) for line in dict.fromkeys((first, last)))
        made.append((_of_incident(same[0], len(same), evidence), first.start))
    return made


def _xids(lines: Sequence[_Line]) -> tuple[list[_Line], list[KernelFault]]:
    """Lines that tell Xids, and these; a line without a time has that of the one before it, else the first known."""
    told = [_when(line.text) for line in lines]
    wall = next((one for one in told if one is not None), 0.0)
    kept: list[_Line] = []
    faults: list[KernelFault] = []
    for line, at in zip(lines, told, strict=True):
        wall = wall if at is None else at
        fault = kernel_faults.parse(wall, line.text.replace("nvrm: xid", "NVRM: Xid"))  # a whole text may be lowered
        if fault is not None and fault.kind == "xid":
            kept.append(line)
            faults.append(fault)
    return kept, faults


def _of_incident(one: Incident, count: int, evidence: tuple[Evidence, ...]) -> Diagnosis:
    many = f" ({count} times)" if count > 1 else ""
    sign: Sign = "note" if one.follows_nothing else one.sign
    checks = ("G13", "E11") if one.follows_nothing else ("G13", *_XID_CHECKS.get(one.lead.xid, ()))
    why = (
        "The driver reports faults of the card and of what runs on it by number. Lines of one card within a minute "
        "are one incident; the action is NVIDIA's for the worst of them."
    )
    source = "NVIDIA Xid catalogue"
    return Diagnosis(XID_RULE, sign, xid_title(one) + many, checks, why, _action(one), evidence, count, source=source)


def _of_oom(text: str, low: str) -> list[tuple[Diagnosis, int]]:
    found: dict[str, _Found] = {}
    for line in sorted(_lines_with(("out of memory",), text, low), key=lambda one: one.start):
        fault = kernel_faults.parse(0.0, line.text)
        if fault is None or fault.kind != "oom":
            continue
        where = "its container's memory limit" if "cgroup" in line.text else "the host's memory ran out"
        title = f"the kernel killed {fault.process or 'a process'}: {where}"
        if title in found:
            found[title].add(line)
        elif len(found) < MOST_OF_ONE:
            found[title] = _Found(OOM_RULE, title, line)
    why = (
        "The kernel ends a process when its container's limit or the host's memory is used up. The server is gone at "
        "once, with exit 137."
    )
    do = "raise the container's memory limit, or serve fewer models"
    return [
        (
            Diagnosis(
                OOM_RULE, "fail", one.title, ("E15", "L12"), why, do, (_evidence(text, one.first),), len(one.starts)
            ),
            one.first.start,
        )
        for one in found.values()
    ]


_UPTIME = re.compile(r"\[ {0,8}(\d{1,10}\.\d{3,6})\]")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_SYSLOG = re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)", re.I)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _when(line: str) -> float | None:
    """Seconds of a line, to compare with those of lines written alike; None where it has no time."""
    head = line[:200]
    if match := _UPTIME.search(head):
        return float(match[1])
    if match := _ISO.search(head):
        year, month, day, *clock = map(int, match.groups())
        return _seconds(year, month, day, clock)
    if match := _SYSLOG.search(head):
        return _seconds(
            2000, _MONTHS.index(match[1].lower()) + 1, int(match[2]), [int(one) for one in match.groups()[2:]]
        )
    return None


def _seconds(year: int, month: int, day: int, clock: Sequence[int]) -> float | None:
    try:
        days = date(year, month, day).toordinal()
    except ValueError:
        return None
    return float(days * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2])
