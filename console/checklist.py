"""`gpuconsole check`: the checklist without the console, for people, scripts and Nagios.

Exit codes as Nagios has them: 0 all fit, 1 a warning, 2 a failure, 3 where nothing could be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.checks import run
from console.checks.check import Check
from console.core import units
from console.core.encode import to_json
from console.core.facts import Facts
from console.core.finding import GROUPS, Finding, Report
from console.core.sign import ASCII_SIGNS, SIGNS, WORST_FIRST, Sign
from console.core.text import ascii_text, literal, one_line

SCHEMA = 1
EXITS: dict[Sign, int] = {"ok": 0, "warn": 1, "fail": 2, "unknown": 3}
TITLE = 46


def judge(facts: Facts, checks: Sequence[Check], *, whole: bool) -> Report:
    """The report of these facts; `whole` also names files of checks that could not be imported."""
    return run.report(facts, None if whole else checks)


def exit_code(report: Report) -> int:
    """As above."""
    return EXITS[report.worst()]


def show(report: Report, *, as_json: bool, every: bool = False, ascii_only: bool = False, utc: bool = False) -> bytes:
    """What is printed: one JSON object, or text; `every` lists checks that are fit or do not apply too."""
    if as_json:
        told = {"schema": SCHEMA, "exit": exit_code(report), "worst": report.worst(), "report": report}
        return to_json(told) + b"\n"
    signs = ASCII_SIGNS if ascii_only else SIGNS
    text = "\n".join(literal(line) for line in _lines(report, signs, every, utc)) + "\n"
    return (ascii_text(text) if ascii_only else text).encode("utf-8", "replace")


def _lines(report: Report, signs: dict[Sign, str], every: bool, utc: bool) -> Iterator[str]:
    when = f"{units.moment(report.wall, utc=utc)} {units.zone(report.wall, utc=utc)}"
    counted = f"{len(report.findings)} checks, facts read in {report.seconds:.1f} s"
    yield f"{one_line(report.host, 80) or '?'}  {when}  {counted}"
    for number, cause in enumerate(report.causes):
        yield f"{signs[cause.sign]} {one_line(cause.title, 300)}  ({cause.trust})"
        if number == 0:
            yield from (f"    {one_line(sign, 200)}" for sign in cause.signs)
        for place, step in enumerate(cause.order, 1):
            yield f"    mend {place}: {f'{step.id} ' if step.id else ''}{one_line(step.text, 200)}"
        follows = [one for one in cause.consequences if one != cause.id]
        if follows:
            yield f"    from it: {', '.join(follows)}"
    for group, title in GROUPS.items():
        members = [one for one in report.findings if one.group == group]
        if not members:
            continue
        shown = [one for one in members if every or one.sign in ("fail", "warn", "unknown")]
        yield f"{title}  {_tally(members, signs)}"
        told: set[str] = set()
        for one in sorted(shown, key=lambda each: (WORST_FIRST.index(each.sign), each.id)):
            if one.sign != "unknown" or one.text not in told:
                same = [other.id for other in shown if other.sign == "unknown" and other.text == one.text]
                yield from _finding(one, same[1:] if one.sign == "unknown" else [], signs)
            told.add(one.text)


def _finding(one: Finding, same: Sequence[str], signs: dict[Sign, str]) -> Iterator[str]:
    """Its lines; `same` are others that are not known for the very same reason: they are named, not repeated."""
    name = f"{one.id} {one_line(one.title, TITLE)}" if not same else f"{one.id} and {', '.join(same)}"
    yield f"  {signs[one.sign]} {name:<{TITLE + 4}}  {one_line(one.text, 300)}"
    if one.sign in ("fail", "warn"):
        yield from (f"        {one_line(line.where, 120)}: {one_line(line.text, 200)}" for line in one.evidence[:3])
        if one.fix is not None:
            yield from (f"        fix ({one.fix.kind}): {one_line(command, 600)}" for command in one.fix.commands)
    elif one.sign == "unknown" and one.settle:
        yield f"        would tell: {one_line(one.settle, 300)}"


def _tally(members: Sequence[Finding], signs: dict[Sign, str]) -> str:
    counts = {sign: sum(one.sign == sign for one in members) for sign in signs}
    counts["ok"] += counts["note"]
    return " ".join(
        f"{signs[sign]}{counts[sign]}" for sign in ("ok", "warn", "fail", "unknown", "none") if counts[sign]
    )
