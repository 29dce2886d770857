"""A running or ended change as its journal tells it (design 1.13): its steps with their times, notes, the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.core import units
from console.core.act_events import outcome_sign
from console.core.gap import Gap, clock_words, figure_words, gaps, minutes, refused_words
from console.core.plan import JournalLine, Outcome, Plan
from console.core.text import one_line
from console.tui.desk import Following
from console.tui.panes.plan_lines import MOST, WIDE_FROM
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, between, cut_line, left, line_width, right, width
from console.tui.widgets.lines import Row

TIME = 9
BLANK = Row(())


@dataclass
class Phase:
    """One step as far as it is known."""

    name: str
    text: str
    number: int | None = None
    """Place in the plan; None for what the plan does not hold (going back)."""
    state: str = ""
    """"" = not begun, begin, done, failed."""
    began: float | None = None
    seconds: float | None = None
    note: str = ""


def phases(plan: Plan, lines: Sequence[JournalLine]) -> list[Phase]:
    """The plan's steps, then what was done beside them, each with what the journal says of it."""
    steps = plan.steps if plan.how == "run" else ()  # what broke off is mended in the phases of its action
    made = [Phase(step.phase, step.text, number) for number, step in enumerate(steps, start=1)]
    current: list[Phase] = []
    for line in lines:
        if line.state == "begin":
            current = [one for one in made if one.name == line.phase and one.state in ("", "begin")]
            if not current:
                current = [Phase(line.phase, line.text or line.phase)]
                made += current
            for one in current:
                one.state, one.began, one.text = "begin", line.wall, line.text or one.text
        elif line.state in ("done", "failed"):
            for one in [one for one in made if one.name == line.phase and one.state == "begin"] or current:
                one.state, one.seconds = line.state, line.seconds
                one.note = line.text or one.note
        elif line.state == "note" and line.text:
            for one in [one for one in made if one.name == line.phase and one.state == "begin"] or current:
                one.note = line.text
    return made


def progress(following: Following) -> tuple[int, int]:
    """(step that is being done, steps in all), as in `4/6`."""
    numbered = [one for one in phases(following.plan, following.lines) if one.number is not None]
    begun = [one.number or 0 for one in numbered if one.state]
    return max(begun, default=1), max(1, len(numbered))


def acting_word(following: Following, wall: float) -> str:
    """For the header: `SWAP lm 4/6, 0:31, by ops`; while nothing serves `SWAP lm 4/6, GAP 0:29, by ops`."""
    step, steps = progress(following)
    name = one_line(following.plan.target.name, 30)
    verb = one_line(following.plan.yes, 20).upper()
    who = one_line(following.operator.login_user or following.operator.user, 20)
    gap = next((one for one in reversed(gaps(following.lines)) if one.ended is None), None)
    time = minutes(wall - following.began) if gap is None else f"GAP {minutes(gap.seconds(wall))}"
    return f"{verb} {name} {step}/{steps}, {time}, by {who}"


def head_rows(following: Following, cells: int, hint: str, *, utc: bool = False) -> list[Row]:
    """What, by whom, since when, and at the right the hint: on one line where it fits."""
    title: Line = ((one_line(following.plan.title, 300), "title"),)
    told = f"by {one_line(following.operator.short, 60)}   since {units.clock(following.began, utc=utc)}"
    end: Line = ((f"   {hint}" if hint else "", "key"),)
    whole: Line = (*title, (f"   {told}", "dim"))
    if line_width(whole) + line_width(end) <= cells:
        return [Row(between(whole, end, cells))]
    return [Row(cut_line(title, cells)), Row(between(((told, "dim"),), end, cells))]


def running_rows(following: Following, wall: float, cells: int, *, utc: bool = False) -> list[Row]:
    """The steps, the newest of what goes on, what a gap costs, and the outcome where there is one."""
    made: list[Row] = []
    ended = following.outcome is not None or not following.alive
    found = phases(following.plan, following.lines)
    broken = gaps(following.lines)
    told = {one.phase: _gap_line(one, following, wall, ended=ended, utc=utc) for one in broken}
    notes = cells // 3 if cells >= WIDE_FROM and (told or any(one.note for one in found)) else 0
    first = min(max((width(one_line(one.text)) for one in found), default=0), cells - 4 - TIME - notes)
    for one in found:
        made += _phase(one, wall, cells, first, ended=ended, gap=told.pop(one.name, ()))
    made += [Row((("    ", ""), *line)) for line in told.values()]  # one that an interrupted run left open
    if broken and broken[-1].ended is None and not ended:
        text = refused_words(broken[-1], wall, utc=utc)
        made += [Row(((f"  {line}", "warn"),)) for line in wrapped(text, cells - 2, most=MOST)]
    if following.outcome is not None:
        made += [BLANK, *outcome_rows(following.outcome, cells, how=following.plan.how)]
    elif not following.alive:
        made += [
            BLANK,
            Row((sign("fail"), (" its runner died; closing this tells what it left and what can be done", ""))),
        ]
    return made


def _gap_line(gap: Gap, following: Following, wall: float, *, ended: bool, utc: bool) -> Line:
    """`GAP since 14:20:32, 0:29 of ≈ 0:38`, in the colour of a warning once it is longer than planned. When the change
    has ended and it has not, as after a stop, no time goes on: nobody watches any more when it serves again."""
    planned = following.plan.gap_s
    if gap.ended is None and ended:
        return ((f"GAP since {units.clock(gap.began, utc=utc)}", "warn"),)
    over = planned is not None and gap.seconds(wall) > planned
    return ((clock_words(gap, planned, wall, utc=utc), "warn" if over and planned else "value"),)


def _phase(one: Phase, wall: float, cells: int, first: int, *, ended: bool, gap: Line) -> Iterator[Row]:
    mark, style = {"done": ("●", "ok"), "failed": ("✗", "fail")}.get(one.state, ("▸", "key"))
    if not one.state or (one.state == "begin" and ended):
        mark, style = ("–", "dim") if not one.state else ("?", "unknown")
    number = f"{one.number} " if one.number is not None else "  "
    seconds = one.seconds if one.state != "begin" or one.began is None else wall - one.began
    time = "" if seconds is None or not one.state or (ended and one.state == "begin") else f"{max(0.0, seconds):.1f} s"
    wide = cells >= WIDE_FROM
    texts = wrapped(one_line(one.text), first, most=MOST)
    room = cells - 4 - first - TIME - 3
    notes = [(line, style) for text, style in gap for line in wrapped(text, room, most=MOST)] if wide else []
    notes += [(line, "dim") for line in wrapped(one_line(one.note), room, most=MOST)] if wide and one.note else []
    for at in range(max(len(texts), len(notes))):
        text = left(texts[at] if at < len(texts) else "", first)
        note, look = notes[at] if at < len(notes) else ("", "")
        begin: Line = ((mark, style), (f" {number}", "")) if not at else ((" " * 4, ""),)
        words = "" if one.state else "dim"
        told: Line = ((f"   {note}", look),) if note else ()
        yield Row((*begin, (text, words), (right(time if not at else "", TIME), "value"), *told))
    if not wide:
        yield from (
            Row(((f"    {line}", style),)) for text, style in gap for line in wrapped(text, cells - 4, most=MOST)
        )
    if not wide and one.note:
        yield from (Row(((f"    {line}", "dim"),)) for line in wrapped(one_line(one.note), cells - 4, most=MOST))


def outcome_rows(outcome: Outcome, cells: int, *, how: str = "run") -> list[Row]:
    """How it ended, what goes on, how to take it back."""
    made: list[Row] = []
    for number, line in enumerate(wrapped(one_line(f"{outcome.word}: {outcome.text}"), cells - 2, most=MOST)):
        made.append(Row((sign(outcome_sign(outcome, how)) if not number else (" ", ""), (f" {line}", ""))))
    gap = figure_words(outcome.figures)
    for text in (*((gap,) if gap else ()), *outcome.lines):
        made += [Row(((f"  {line}", ""),)) for line in wrapped(one_line(text), cells - 2, most=MOST)]
    if outcome.still_going:
        told = wrapped(f"still going on: {one_line(outcome.still_going)}", cells - 2, most=MOST)
        made += [Row(((f"  {line}", "warn"),)) for line in told]
    if outcome.undo is not None:
        text = f"undo: {one_line(outcome.undo.text or outcome.undo.action)}"
        made += [Row(((f"  {line}", "dim"),)) for line in wrapped(text, cells - 2, most=MOST)]
    return made
