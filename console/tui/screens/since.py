"""SinceDialog (design 1.13): what ended or broke off while the operator was away, told once at the start."""

from __future__ import annotations

from collections.abc import Hashable

from console.core import units
from console.core.plan import Interrupted
from console.core.text import one_line
from console.tui.desk import Record
from console.tui.panes.running_lines import outcome_rows
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.dialog import Button, Content, Dialog
from console.tui.widgets.lines import Row

BLANK = Row(())
MOST = 5
"""Changes that are told; the audit has the others."""


class SinceDialog(Dialog[tuple[str, str] | None]):
    """Ends with what to do and the change's id: record, undo, interrupted.finish, interrupted.undo."""

    HEADING = "Since your last session"

    def __init__(self, ended: tuple[Record, ...], interrupted: tuple[Interrupted, ...], *, utc: bool) -> None:
        super().__init__()
        self._ended = ended
        self._interrupted = interrupted
        self._utc = utc

    # ------------------------------------------------------------------------------------------------------- drawing

    def content(self, width: int) -> Content:
        made: list[Row] = []
        for one in self._interrupted:
            made += [*self._broken(one, width), BLANK]
        for record in self._ended[:MOST]:
            made += [*self._over(record, width), BLANK]
        if len(self._ended) > MOST:
            made += [Row(((f"and {len(self._ended) - MOST} more: :audit has them all", "dim"),)), BLANK]
        return Content(body=made[:-1], foot=[BLANK], hint=self._hint())

    def _hint(self) -> str:
        if self._interrupted:
            return "enter chooses   esc = later"
        return "enter  the record" + ("   u  undo" if self._undoable() else "") + "   esc  well"

    def _broken(self, one: Interrupted, width: int) -> list[Row]:
        clock = units.clock(one.wall, utc=self._utc)
        text = f"{one.plan.title} by {one.operator.short} broke off {clock} in step {one.phase or '?'}: its runner died"
        made = _lines(text, width, "fail")
        made += [Row(((f"  {line}", ""),)) for line in wrapped(f"now: {one_line(one.found)}", width - 2, most=4)]
        choices = (
            ("interrupted.finish", "finish it", one.finish),
            ("interrupted.undo", "undo it", one.undo),
            ("interrupted.dismiss", "leave it as it is", "it is told no more"),
        )
        for what, word, told in choices:
            if told:
                key = (what, one.id)
                made.append(Row((("  ▸ ", "key"), (f"{word}: {one_line(told, 300)}", "")), key))
        return made

    def _over(self, one: Record, width: int) -> list[Row]:
        intent, end = one.intent, one.outcome
        began, ended = units.clock(intent.wall, utc=self._utc), units.clock(one.wall, utc=self._utc)
        head = f"While you were away: {intent.title} by {intent.operator.short}, {began} to {ended}"
        made = [Row(((line, "title"),), ("record", intent.id) if not at else None)
                for at, line in enumerate(wrapped(one_line(head), width, most=3))]  # fmt: skip
        return made if end is None or end.outcome is None else [*made, *outcome_rows(end.outcome, width)]

    # ---------------------------------------------------------------------------------------------------------- keys

    def buttons(self) -> tuple[Button, ...]:
        if self._interrupted:
            return (Button("no", "Later"),)
        return (Button("record", "The record"), Button("no", "Well"))

    def on_mount(self) -> None:
        self.focus_on = "no" if self._interrupted else "record"
        super().on_mount()

    def refuse(self, key: str) -> None:
        self.dismiss(None)

    def pressed(self, name: str) -> None:
        self.dismiss(("record", self._ended[0].intent.id) if name == "record" and self._ended else None)

    def row_chosen(self, key: Hashable) -> None:
        if isinstance(key, tuple):
            self.dismiss(key)

    def _undoable(self) -> Record | None:
        return next((one for one in self._ended if not one.undo_off), None)

    def letter(self, key: str) -> bool:
        found = self._undoable()
        if key != "u" or found is None:
            return False
        chosen = next((one for one in self._ended if ("record", one.intent.id) == self.focus_on), found)
        self.dismiss(("undo", chosen.intent.id))
        return True


def _lines(text: str, width: int, style: str) -> list[Row]:
    lines = wrapped(one_line(text), width - 2, most=3)
    head = sign("fail" if style == "fail" else "ok")
    return [Row((head if not at else (" ", ""), (f" {line}", "title"))) for at, line in enumerate(lines)]
