"""Changes of the past as the audit tells them: one row each, and everything about the chosen one."""

from __future__ import annotations

from collections.abc import Iterator

from console.core import units
from console.core.act_events import OUTCOME_SIGNS
from console.core.model import Sign
from console.core.text import one_line
from console.tui.desk import Record
from console.tui.panes.base import Pane, View
from console.tui.panes.running_lines import outcome_rows
from console.tui.panes.wording import paragraph, sign
from console.tui.widgets.cells import Line, cut, left, width
from console.tui.widgets.lines import Row

TIME, WHO, TOOK = 20, 16, 8


class AuditList(Pane):
    """All changes, newest first; the cursor sits on a change's id."""

    FIELDS = ()
    TICKS = False
    PINNED = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.records: tuple[Record, ...] = ()
        self.read = False
        """True when the audit was read at least once."""

    def title(self, view: View) -> Line:
        found = f"   /{one_line(self.filter, 30)}" if self.filter else ""
        return ((f"Audit   {len(self.records)}{found}", "title"), ("   newest first", "dim"))

    def lines(self, view: View) -> list[Row]:
        wide = view.width >= 90
        head = f"  {left('WHEN', TIME)}{left('WHO', WHO)}" + (left("TOOK", TOOK) if wide else "") + "WHAT"
        made = [Row(((head, "label"),))]
        made += [self._row(one, view, wide) for one in self.records if self._passes(one)]
        if len(made) == 1:
            told = "reading …" if not self.read else "no change matches" if self.records else "no change was made yet"
            made.append(Row(((f"  {told}", "dim"),)))
        return made

    def _passes(self, one: Record) -> bool:
        intent = one.intent
        return self.wanted(f"{intent.title} {intent.action} {intent.operator.short} {intent.id}")

    def _row(self, one: Record, view: View, wide: bool) -> Row:
        intent = one.intent
        took = one.outcome.duration if one.outcome is not None else None
        time = (left("" if took is None else f"{took:.1f} s", TOOK), "dim") if wide else ("", "")
        word = _word(one)
        told = "" if word == "done" else f"   {word}"
        told += "   taken back" if one.undone_by else ""
        room = max(10, view.width - 2 - TIME - WHO - (TOOK if wide else 0) - width(told))
        line: Line = (
            sign(_sign(one)),
            (f" {left(units.moment(intent.wall, utc=view.utc), TIME)}", "dim"),
            (left(one_line(intent.operator.short, 60), WHO - 1) + " ", ""),
            time,
            (cut(one_line(intent.title, 300), room), ""),
            (told, "dim"),
        )
        return Row(line, intent.id)

    def record(self) -> Record | None:
        """The one under the cursor."""
        return next((one for one in self.records if one.intent.id == self.cursor), None)

    def filterable(self) -> bool:
        return True

    def changes(self) -> object:
        return (self.records, self.read)


class AuditDetails(Pane):
    """The plan that was shown, who said yes from where, and what came of it."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.record: Record | None = None

    def title(self, view: View) -> Line:
        return ((one_line(self.record.intent.title, 200) if self.record else "Change", "title"),)

    def lines(self, view: View) -> list[Row]:
        if self.record is None:
            return [Row((("no change is chosen", "dim"),))]
        return list(_details(self.record, view))

    def changes(self) -> object:
        return self.record

    def yank(self) -> str:
        return self.record.intent.id if self.record is not None else ""


def _word(one: Record) -> str:
    outcome = one.outcome.outcome if one.outcome is not None else None
    return "no end is known" if outcome is None else outcome.word


def _sign(one: Record) -> Sign:
    return OUTCOME_SIGNS.get(_word(one), "unknown")


def _details(one: Record, view: View) -> Iterator[Row]:
    intent, cells = one.intent, view.width
    who = intent.operator
    login = f", logged in as {who.login_user}" if who.login_user and who.login_user != who.user else ""
    ssh = f", from {who.ssh}" if who.ssh else ""
    terminal = f", {who.terminal}" if who.terminal else ""
    yield from paragraph("WHO", one_line(f"{who.user} (uid {who.uid}){login}{ssh}{terminal}"), cells)
    yield from paragraph("WHEN", units.moment(intent.wall, utc=view.utc) + _took(one), cells)
    yield from paragraph("ACTION", one_line(f"{intent.action} {intent.target.name}"), cells)
    identity = "  ".join(f"{name} {value}" for name, value in intent.target.identity.items())
    if identity:
        yield from paragraph("TARGET", one_line(identity), cells, "dim", most=3)
    values = "  ".join(f"{name}={value}" for name, value in intent.values.items() if value)
    if values:
        yield from paragraph("VALUES", one_line(values), cells, "dim", most=6)
    for number, text in enumerate(intent.plan):
        yield from paragraph("PLAN" if not number else "", one_line(text), cells, most=6)
    if intent.undoes:
        yield from paragraph("TAKES BACK", one_line(intent.undoes), cells)
    yield Row(())
    outcome = one.outcome.outcome if one.outcome is not None else None
    if outcome is None:
        yield Row((sign("unknown"), (" no end is in the audit: it runs still, or its runner was killed", "")))
        return
    yield from outcome_rows(outcome, cells)
    figures = "  ".join(f"{name} {value:.3g}" for name, value in outcome.figures.items())
    if figures:
        yield from paragraph("MEASURED", figures, cells)
    if one.undone_by:
        yield from paragraph("TAKEN BACK", f"by {one_line(one.undone_by)}", cells)
    elif one.undo_off:
        yield from paragraph("NO UNDO", one_line(one.undo_off), cells, "dim")


def _took(one: Record) -> str:
    took = one.outcome.duration if one.outcome is not None else None
    return "" if took is None else f"   took {took:.1f} s"
