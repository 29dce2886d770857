"""A form: rows of FIELD, LIVE, NEW, DISK and HOW over `core.plan.Field`s, as plain state and pure lines.

It is in key mode until a field is opened: then letters and digits are text. What is typed is kept as typed, also where
it cannot be; whoever owns the form judges the values and lays sentences beside the fields. A pane or a dialog shows it
and hands it the keys (panes/form_pane.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from console.core.model import Sign
from console.core.plan import Field
from console.core.secrets import MASK
from console.core.text import literal, one_line, whole_number
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut, left, right, width
from console.tui.widgets.lines import Row

NONE = "–"
ON, OFF = "on", "off"
HOW = 8
LEAST_VALUE, MOST_VALUE = 7, 24
"""Cells of the columns LIVE, NEW and DISK."""
LEAST_LABEL, MOST_LABEL = 20, 30
MOST_TYPED = 4000
MOST_NOTE = 4
"""Lines of one sentence beside a field."""
Answer = Literal["taken", "left", "typed", "moved", ""]
"""What a key did to the open field: taken (closed with its text), left (closed without), typed (its text changed),
moved (closed with its text, and the key is a motion to be followed), or nothing."""


@dataclass(frozen=True)
class FormRow:
    """One field with what is so now. A row without `field.name` in the form's values is as `start`."""

    field: Field
    label: str
    start: str = ""
    """The present value in the form in which it is typed."""
    live: str = NONE
    disk: str = NONE
    how: str = ""
    """What the change of this field alone does: `in place`, `reload`."""
    group: str = ""
    """Heading of the first row of a group."""
    beside: str = ""
    """At the right of the group's heading, dim."""
    ladder: tuple[int, ...] = ()
    """Numbers that ← → pass; without it they step by one."""
    off: str = ""
    """Why it is only shown; "" = it can be changed."""


@dataclass(frozen=True)
class Note:
    """A sentence beside a field."""

    name: str
    sign: Sign
    text: str


class Form:
    """The values of a form, and the field that is open."""

    def __init__(self) -> None:
        self.rows: tuple[FormRow, ...] = ()
        self.values: dict[str, str] = {}
        """What was changed, as typed, by `Field.name`."""
        self.changed: frozenset[str] = frozenset()
        """Names whose value differs from the present one in meaning; the owner's judgement."""
        self.notes: tuple[Note, ...] = ()
        self.opened: str | None = None
        """Name of the field that is open."""
        self.text = ""
        """What it holds while it is open."""

    def row(self, name: object) -> FormRow | None:
        """The row of that field."""
        return next((one for one in self.rows if one.field.name == name), None)

    def value(self, row: FormRow) -> str:
        """As it is typed now."""
        return self.values.get(row.field.name, row.start)

    # -------------------------------------------------------------------------------------------------------- changing

    def put(self, name: str, text: str) -> None:
        """Give a field a value; the present one is no change."""
        row = self.row(name)
        if row is None:
            return
        text = literal(text).strip()
        if text == row.start:
            self.values.pop(name, None)
        else:
            self.values[name] = text

    def step(self, name: object, by: int) -> str:
        """← →: the value before or after; "" or why there is none."""
        row = self.row(name)
        if row is None:
            return "no field is under the cursor"
        if row.off:
            return row.off
        found = stepped(row, self.text if self.opened == name else self.value(row), by)
        if found is None:
            return f"{row.label} is typed: enter opens it"
        if self.opened == name:
            self.text = found
        else:
            self.put(row.field.name, found)
        return ""

    def open(self, name: object) -> str:
        """`enter`: "" or why it cannot be opened."""
        row = self.row(name)
        if row is None:
            return "no field is under the cursor"
        if row.off:
            return row.off
        self.opened, self.text = row.field.name, "" if row.field.secret else self.value(row)
        return ""

    def close(self, *, take: bool) -> None:
        """Leave the open field, with what it holds or without."""
        name, self.opened = self.opened, None
        row = self.row(name)
        if take and row is not None and not (row.field.secret and not self.text):
            self.put(row.field.name, self.text)

    def key(self, key: str, character: str | None) -> Answer:
        """A key while a field is open; all of them end here."""
        if self.opened is None:
            return ""
        if key in ("enter", "up", "down", "tab", "shift+tab"):
            self.close(take=True)
            return "taken" if key == "enter" else "moved"
        if key == "escape":
            self.close(take=False)
            return "left"
        if key in ("left", "right"):
            self.step(self.opened, 1 if key == "right" else -1)
            return "typed"
        if key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.type(character)
        else:
            return ""
        return "typed"

    def type(self, text: str) -> None:
        """Add text to the open field; of more than one line the first."""
        first = next((line for line in text.splitlines() if line.strip()), "")
        self.text = (self.text + literal(first))[:MOST_TYPED]

    def reset(self, names: Sequence[str] = ()) -> None:
        """Take back what was changed: these fields, or all."""
        for name in names or tuple(self.values):
            self.values.pop(name, None)

    # --------------------------------------------------------------------------------------------------------- drawing

    def lines(self, cells: int) -> list[Row]:
        """Column heads, then the rows with the headings of their groups and the sentences beside them."""
        sizes = _columns(cells)
        label, column = sizes
        heads = left("FIELD", label) + right("LIVE", column) + right("NEW", column + 2) + right("DISK", column)
        made = [Row(((f"{heads}  {left('HOW', HOW)}", "label"),))]
        notes = _by_name(self.notes)
        for row in self.rows:
            if row.group:
                beside = cut(f"   {one_line(row.beside, 300)}" if row.beside else "", cells - width(row.group))
                made.append(Row(((row.group, "label"), (beside, "dim"))))
            made.append(Row(self._line(row, *sizes, cells), row.field.name))
            made += [line for note in notes.get(row.field.name, ()) for line in _note_rows(note, cells)]
        return made

    def _line(self, row: FormRow, label: int, column: int, cells: int) -> Line:
        name = row.field.name
        start: Line = ((left(f"  {row.label}", label), "dim" if row.off else ""),)
        live = (right(one_line(row.live, 200), column), "dim" if row.off else "value")
        if self.opened == name:
            shown = MASK if row.field.secret and self.text else self.text
            room = column if width(shown) < column else max(column, cells - label - column - 3)
            return (*start, live, (" ▸", "key"), (_end(shown + "_", room), "value+cursor"))
        is_new = name in self.values and (name in self.changed or bool(_by_name(self.notes).get(name)))
        new = _shown(row, self.value(row)) if is_new else row.live
        mark = (" ▸", "warn") if is_new else ("  ", "")
        rest = f"{right(one_line(row.disk, 200), column)}  {left(row.how, HOW)}"
        new_style = "dim" if row.off else "title" if is_new else ""
        return (*start, live, mark, (right(one_line(new, 200), column), new_style), (rest, "dim"))


def stepped(row: FormRow, text: str, by: int) -> str | None:
    """The value before or after `text`; None for a field that is typed."""
    field = row.field
    if field.kind == "bool":
        return OFF if text.strip().lower() in ("on", "true", "yes", "1") else ON
    if field.kind == "choice" and field.choices:
        at = field.choices.index(text) if text in field.choices else -1 if by > 0 else 0
        return field.choices[(at + by) % len(field.choices)]
    if field.kind != "int":
        return None
    now = whole_number(text.strip())
    low = 0 if field.low is None else field.low
    if now is None:
        return str(low)
    if row.ladder:
        further = [one for one in row.ladder if (one > now if by > 0 else one < now)]
        found = (min(further) if by > 0 else max(further)) if further else now
    else:
        found = now + by
    return str(max(low, found if field.high is None else min(field.high, found)))


def _columns(cells: int) -> tuple[int, int]:
    """(cells of the label, cells of a value column)."""
    rest = cells - HOW - 4
    column = max(LEAST_VALUE, min(MOST_VALUE, (rest - LEAST_LABEL - 2) // 3))
    label = max(LEAST_LABEL, min(MOST_LABEL, rest - 3 * column))
    return label, column


def _shown(row: FormRow, text: str) -> str:
    if row.field.secret:
        return MASK if text else NONE
    if row.field.kind == "bool":
        return {"true": ON, "false": OFF}.get(text, text) or NONE
    return text or NONE


def _end(text: str, cells: int) -> str:
    """The end of what is typed, in exactly so many cells."""
    while width(text) > cells:
        text = text[1:]
    return right(text, cells)


def _by_name(notes: Sequence[Note]) -> Mapping[str, list[Note]]:
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note.name, []).append(note)
    return found


def _note_rows(note: Note, cells: int) -> list[Row]:
    lines = wrapped(one_line(note.text), cells - 6, most=MOST_NOTE)
    style = "fail" if note.sign == "fail" else ""
    return [
        Row((("    ", ""), sign(note.sign) if not number else (" ", ""), (f" {line}", style)))
        for number, line in enumerate(lines)
    ]
