"""A Plan in the words and columns of the design (1.13), as pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.core import units
from console.core.plan import Check, Danger, Plan, Step, Way
from console.core.text import one_line
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, between, left, line_width, width
from console.tui.widgets.lines import Row

WIDE_FROM = 90
"""Cells from which steps and ways have columns; under it each part has a line of its own."""
BLANK = Row(())
DANGER: dict[Danger, tuple[str, str]] = {
    "safe": ("", "dim"),
    "caution": ("CAUTION", "warn"),
    "danger": ("DANGEROUS", "fail"),
}
DETACHED = "goes on without this terminal: yes, a process of its own does it and tells its journal"
MOST = 6
"""Lines of one text at most; a plan's words are short, an error from a server may not be."""
WayKey = tuple[str, str]
"""("way", id) or ("tick", name): what can be chosen in the dialog."""


def title_line(plan: Plan, cells: int) -> Line:
    """What is done, and at the right how dangerous it is."""
    word, style = DANGER[plan.danger]
    told = ": ".join(part for part in (word, plan.note) if part)
    return between(((one_line(plan.title, 300), "title"),), ((f"  {told}" if told else "", style),), cells)


def plan_rows(plan: Plan, cells: int, *, utc: bool = False) -> list[Row]:
    """Everything between the title and the buttons."""
    made: list[Row] = []
    if plan.refused:
        made += [*_text(plan.refused, cells, "✗ ", "fail"), BLANK]
    for part in (_checks(plan, cells, utc), _ways(plan, cells), _steps(plan.steps, cells), _difference(plan, cells)):
        found = list(part)
        made += [*found, BLANK] if found else []
    for tick in plan.ticks:
        mark = "x" if tick.on else " "
        made.append(Row(((f"[{mark}] {one_line(tick.text, 300)}", "value"),), ("tick", tick.name)))
    for effect in plan.effects:
        made += _text(effect, cells)
    if not plan.refused and not plan.here:
        made += _text(DETACHED, cells, style="dim")
    made += _by_hand(plan, cells)
    if plan.undo:
        made += _text(f"undo: {plan.undo}", cells)
    return made[:-1] if made and made[-1] is BLANK else made


def refusal_rows(text: str, cells: int) -> list[Row]:
    """Why there is no plan."""
    return _text(text, cells, "✗ ", "fail")


def _text(text: str, cells: int, mark: str = "", style: str = "") -> list[Row]:
    lines = wrapped(one_line(text), cells - len(mark), most=MOST)
    return [Row(((mark if not number else " " * len(mark), style), (line, style))) for number, line in enumerate(lines)]


def _checks(plan: Plan, cells: int, utc: bool) -> Iterator[Row]:
    if not plan.checks:
        return
    yield Row((("CHECKED JUST NOW ", "label"), (units.clock(plan.wall, utc=utc) if plan.wall else "", "dim")))
    second = cells * 68 // 112
    pending: Line = ()
    for check in plan.checks:
        line: Line = (sign(check.sign), (f" {one_line(check.text, 600)}", ""))
        start = line_width(pending)
        at = second if start < second else start + 3
        if pending and cells >= WIDE_FROM and start < cells - 3 and at + line_width(line) <= cells:
            pending = (*pending, (" " * (at - start), ""), *line)
            continue
        if pending:
            yield Row(pending)
        pending = ()
        if line_width(line) > cells:
            yield from _long_check(check, cells)
        else:
            pending = line
    if pending:
        yield Row(pending)


def _long_check(check: Check, cells: int) -> Iterator[Row]:
    for number, part in enumerate(wrapped(one_line(check.text), cells - 2, most=MOST)):
        yield Row((sign(check.sign) if not number else (" ", ""), (f" {part}", "")))


def _ways(plan: Plan, cells: int) -> Iterator[Row]:
    if not plan.ways:
        return
    if cells < WIDE_FROM:
        yield Row((("WAYS", "label"),))
        for way in plan.ways:
            yield from _way_narrow(way, way.id == plan.way, cells)
        return
    first, second = cells * 44 // 112, cells * 37 // 112
    yield Row(((left("WAYS", first) + left("CLIENTS SEE", second) + "GAP", "label"),))
    for way in plan.ways:
        gap = way.gap + (f"    ✗ {way.impossible}" if way.impossible else "")
        texts = (f"{_radio(way.id == plan.way)} {way.text}", way.clients_see, gap)
        columns = [wrapped(one_line(text, 600), room - 1, most=MOST) for text, room in
                   zip(texts, (first, second, cells - first - second), strict=True)]  # fmt: skip
        for number in range(max(map(len, columns))):
            one, two, three = (column[number] if number < len(column) else "" for column in columns)
            key = ("way", way.id) if not number and not way.impossible else None
            style = "dim" if way.impossible else ""
            indent = "    " if number else ""
            yield Row(((left(indent + one, first), style), (left(two, second), style), (three, style)), key)


def _way_narrow(way: Way, on: bool, cells: int) -> Iterator[Row]:
    style = "dim" if way.impossible else ""
    for number, line in enumerate(wrapped(one_line(way.text), cells - 4, most=MOST)):
        key = ("way", way.id) if not number and not way.impossible else None
        yield Row(((f"{_radio(on)} {line}" if not number else f"    {line}", style),), key)
    told = f"clients see: {way.clients_see}; gap: {way.gap}" + (f"; ✗ {way.impossible}" if way.impossible else "")
    yield from (Row(((f"    {line}", "dim"),)) for line in wrapped(one_line(told), cells - 4, most=MOST))


def _radio(on: bool) -> str:
    return "(•)" if on else "( )"


def _steps(steps: Sequence[Step], cells: int) -> Iterator[Row]:
    if not steps:
        return
    columns = cells >= WIDE_FROM and any(step.if_it_fails for step in steps)
    first = cells * 72 // 112 if columns else cells
    yield Row(((left("STEPS", first) + ("IF IT FAILS" if columns else ""), "label"),))
    for number, step in enumerate(steps, start=1):
        head = f"{number} "
        texts = wrapped(one_line(step.text), first - len(head) - 1, most=MOST)
        fails = wrapped(one_line(step.if_it_fails), cells - first, most=MOST) if columns else []
        for at in range(max(len(texts), len(fails))):
            text = texts[at] if at < len(texts) else ""
            begin = head if not at else " " * len(head)
            fail = fails[at] if at < len(fails) else ""
            yield Row(((left(begin + text, first), ""), (fail, "dim")))
        if not columns and step.if_it_fails:
            told = wrapped(f"if it fails: {one_line(step.if_it_fails)}", cells - len(head), most=MOST)
            yield from (Row(((" " * len(head) + line, "dim"),)) for line in told)
        for call in step.calls:
            yield Row(((" " * len(head) + one_line(call, 600), "dim"),))


def _difference(plan: Plan, cells: int) -> Iterator[Row]:
    if plan.difference:
        yield Row((("DIFFERENCE", "label"),))
    for text in plan.difference:
        style = {"-": "fail", "+": "ok"}.get(text[:1], "dim")
        yield from (Row(((line, style),)) for line in wrapped(text[:1] + _flat(text[1:]), cells, most=MOST))


def _flat(text: str) -> str:
    """One line with its indent kept: a file's indent is part of what it says."""
    body = text.lstrip(" ")
    return " " * min(40, len(text) - len(body)) + one_line(body, 2000)


def _by_hand(plan: Plan, cells: int) -> list[Row]:
    if not plan.by_hand:
        return []
    count = len(plan.by_hand)
    note = "   y copies it" if count == 1 else f"   y copies all {count} lines"
    first = f"by hand: {one_line(plan.by_hand[0], 2000)}"
    if count > 1 or width(first) + len(note) > cells:
        made = [Row((("by hand:", ""), (note, "dim")))]
        for command in plan.by_hand:
            made += [Row(((f"  {line}", "dim"),)) for line in wrapped(one_line(command, 2000), cells - 2, most=MOST)]
        return made
    return [Row(((first, ""), (note, "dim")))]
