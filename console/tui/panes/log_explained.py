"""What a line of the log means: its model, what is known of such errors, and what the checks say of this box."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from console.checks.errors import Diagnosis, decided, diagnose
from console.core.log_models import Owner, owner, together
from console.core.model import LogLine, Snapshot
from console.core.text import one_line
from console.tui.panes.wording import paragraph, sign
from console.tui.widgets.lines import Row

LABELS = 10
"""Cells of the labels."""
MOST_MEANINGS = 3
"""Meanings shown of one line."""
MOST_CHECKS = 4
"""Checks shown of one meaning."""


@lru_cache(512)
def known(text: str) -> tuple[Diagnosis, ...]:
    """What is known of an error text, causes first. Kept: the same lines are drawn again and again."""
    return diagnose(text)


def note(line: LogLine) -> str:
    """`enter: L05`, where an error is known and so a look at it pays; "" for other lines."""
    if line.level not in ("E", "F", "W"):
        return ""
    found = known(line.text)
    return f"enter: {found[0].checks[0] if found[0].checks else 'meaning'}" if found else ""


def rows(lines: Sequence[LogLine], at: int, snapshot: Snapshot, cells: int, indent: int) -> list[Row]:
    """Under the opened line `lines[at]`; [] for a line of which nothing is known."""
    whose = owner(lines, at, tuple({row.name for row in snapshot.models}))
    same = together(lines, at)
    found = known("\n".join(line.text for line in same))
    trouble = lines[at].level in ("E", "F")
    if not found and not trouble:
        return []
    made: list[Row] = []
    room = max(20, cells - indent)
    if whose is not None:
        made += _block("model", _of_model(whose), room)
    report = snapshot.checks.value
    if len(same) > 1 and found:
        made += _block("read with", f"the {len(same) - 1} error lines before it", room)
    judged: set[str] = set()
    for one in found[:MOST_MEANINGS]:
        told = decided(one, report.findings if report is not None else ())
        if judged.intersection(told.checks[:1]):  # the same check decides: what is left to tell is its words
            made += _block("also", told.title, room)
            continue
        judged.update(told.checks[:1])
        made += _meaning(told, snapshot, room)
    if len(found) > MOST_MEANINGS:
        made += _block("", f"and {len(found) - MOST_MEANINGS} more: `gpuconsole explain` tells of a whole log", room)
    if not found:
        made += _block("means", "not known here; Checks (6) look at the box itself", room)
    return [Row(((" " * indent, ""), *row.line)) for row in made if not callable(row.line)]


def _of_model(whose: Owner) -> str:
    how = "" if whose.trust == "sure" else f"   likely: {whose.how}"
    return f"{one_line(whose.model, 80)}{how}"


def _meaning(one: Diagnosis, snapshot: Snapshot, room: int) -> list[Row]:
    made = _block("means", one.title, room)
    made += _block("why", one.why, room)
    report = snapshot.checks.value
    fix: list[Row] = []
    shown = 0
    for check in one.checks:
        finding = report.finding(check) if report is not None else None
        if finding is None or finding.sign == "none" or shown == MOST_CHECKS:
            continue
        shown += 1
        first, *rest = _block("", f"{finding.id} {one_line(finding.text or finding.title, 300)}", room - 2)
        label = "this box" if shown == 1 else ""
        made.append(Row(((label.ljust(LABELS), "label"), sign(finding.sign), (f" {_body(first)}", ""))))
        made += [Row(((" " * (LABELS + 2), ""), (_body(row), ""))) for row in rest]
        if check == one.decided and finding.fix is not None and finding.fix.commands:
            fix = _block("fix", f"6 Checks, {finding.id}: {'; '.join(finding.fix.commands)}", room)
    if report is None and one.checks:
        made += _block("this box", f"{', '.join(one.checks)}: the checklist was not read yet", room)
    return made + (fix or (_block("do", one.do, room) if one.do else []))


def _block(label: str, text: str, room: int) -> list[Row]:
    return paragraph(label, one_line(text, 1200), room, most=6, cells=LABELS)


def _body(row: Row) -> str:
    return "" if callable(row.line) else row.line[1][0]
