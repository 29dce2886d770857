"""One check in full (design 1.9): what was seen and where, why it matters, the fix for this very box, its way back."""

from __future__ import annotations

from collections.abc import Iterator

from console.core.finding import Finding, Fix, Report
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import paragraph, sign
from console.tui.widgets.cells import Line
from console.tui.widgets.lines import Row

LABELS = 16
SHOWN = 8
"""Lines of evidence."""
CLASSES = {
    "B": "class B, takes effect now, can be taken back",
    "P": "class P, persistent, with backup and undo",
    "R": "class R, by hand: needs a reboot",
    "S": "class S, by hand",
}


class CheckDetails(Pane):
    """What is known about the check under the cursor."""

    FIELDS = ("checks",)
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.check: str | None = None
        self.why_off: str | None = None
        """Why `f` does not work here; None when it does."""

    def _finding(self, view: View) -> tuple[Report | None, Finding | None]:
        report = view.snapshot.checks.value
        return report, report.finding(self.check) if report is not None and self.check is not None else None

    def title(self, view: View) -> Line:
        _, one = self._finding(view)
        return ((f"{one.id} {one_line(one.title, 100)}" if one is not None else "Check", "title"),)

    def lines(self, view: View) -> list[Row]:
        report, one = self._finding(view)
        if report is None or one is None:
            return [Row((("no check is chosen: move to one, space opens a group", "dim"),))]
        return list(self._details(report, one, view.width))

    def _details(self, report: Report, one: Finding, cells: int) -> Iterator[Row]:
        yield Row((sign(one.sign), (f" {one_line(one.text, 400)}", "")))
        for number, line in enumerate(one.evidence[:SHOWN]):
            text = f"{one_line(line.where, 120)}: {one_line(line.text, 300)}"
            yield from paragraph("WHAT WAS SEEN" if not number else "", text, cells, most=3, cells=LABELS)
        if len(one.evidence) > SHOWN:
            yield from paragraph("", f"and {len(one.evidence) - SHOWN} more lines", cells, "dim", cells=LABELS)
        cause = next((each for each in report.causes if one.id in each.consequences), None)
        if cause is not None:
            yield from paragraph("FOLLOWS FROM", f"{cause.id}: {one_line(cause.title, 300)}", cells, cells=LABELS)
        if one.why:
            yield from paragraph("WHY IT MATTERS", one_line(one.why, 600), cells, cells=LABELS)
        if one.settle:
            yield from paragraph("WOULD TELL", one_line(one.settle, 300), cells, cells=LABELS)
        if one.fix is not None:
            yield from self._fix(one.fix, cells)
        if one.source:
            yield from paragraph("SOURCE", one_line(one.source, 300), cells, "dim", cells=LABELS)

    def _fix(self, fix: Fix, cells: int) -> Iterator[Row]:
        for number, command in enumerate(fix.commands):
            yield from paragraph("FIX  y copies" if not number else "", one_line(command, 600), cells, cells=LABELS)
        kind = CLASSES[fix.kind] + (", then a reboot" if fix.reboot and fix.kind != "R" else "")
        yield from paragraph("CLASS", kind, cells, "dim", cells=LABELS)
        if fix.effect:
            yield from paragraph("EFFECT", one_line(fix.effect, 400), cells, cells=LABELS)
        if fix.undo:
            yield from paragraph("UNDO", one_line(fix.undo, 400), cells, cells=LABELS)
        if fix.again:
            yield from paragraph("AFTER", f"this check is run again, and {', '.join(fix.again)}", cells, cells=LABELS)
        if self.why_off is not None and fix.can_be_applied:
            yield from paragraph("f IS OFF", one_line(self.why_off, 300), cells, "warn", cells=LABELS)

    def changes(self) -> object:
        return (self.check, self.why_off)

    def yank(self) -> str:
        if self.view is None:
            return ""
        _, one = self._finding(self.view)
        if one is None:
            return ""
        return "\n".join(one.fix.commands) if one.fix is not None and one.fix.commands else one.settle or one.text
