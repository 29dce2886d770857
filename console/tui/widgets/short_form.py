"""A Form with two columns, NOW and NEW: for what has no copy on disk to be compared with, and long values."""

from __future__ import annotations

from console.core.secrets import MASK
from console.core.text import one_line
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut, left, width
from console.tui.widgets.form import MOST_NOTE, NONE, Form, FormRow
from console.tui.widgets.lines import Row

LEAST_LABEL, LABEL_SHARE = 22, 5
"""The label takes one of so many parts, and no less than it needs."""
MARK = 3


class ShortForm(Form):
    """Draws itself in FIELD, NOW and NEW; everything else is the Form's."""

    def lines(self, cells: int) -> list[Row]:
        label = max(LEAST_LABEL, cells // LABEL_SHARE)
        column = max(8, (cells - label - MARK) // 2)
        made = [Row(((left("FIELD", label) + left("NOW", column) + left("", MARK) + "NEW", "label"),))]
        for row in self.rows:
            made.append(Row(self._short(row, label, column, cells), row.field.name))
            for note in self.notes:
                if note.name == row.field.name:
                    lines = wrapped(one_line(note.text), cells - 6, most=MOST_NOTE)
                    style = "fail" if note.sign == "fail" else ""
                    made += [
                        Row((("    ", ""), sign(note.sign) if not number else (" ", ""), (f" {line}", style)))
                        for number, line in enumerate(lines)
                    ]
        return made

    def _short(self, row: FormRow, label: int, column: int, cells: int) -> Line:
        name = row.field.name
        start: Line = (
            (left(f"  {row.label}", label), "dim" if row.off else ""),
            (left(one_line(row.live, 400), column - 1) + " ", "dim" if row.off else "value"),
        )
        room = max(1, cells - label - column - MARK)
        if self.opened == name:
            shown = MASK if row.field.secret and self.text else self.text
            return (*start, (" ▸ ", "key"), (_end(f"{shown}_", room), "value+cursor"))
        if name not in self.values:
            return start
        style = "title" if name in self.changed or any(one.name == name for one in self.notes) else "dim"
        return (*start, (" ▸ ", "warn"), (cut(one_line(self._new(row), 400), room), style))

    def _new(self, row: FormRow) -> str:
        text = self.value(row)
        return MASK if row.field.secret and text else text or NONE


def _end(text: str, cells: int) -> str:
    """The end of what is typed: that is where one types."""
    while width(text) > cells:
        text = text[1:]
    return left(text, cells)
