"""The two panes of a form screen: the fields of an action, and what the values typed into them come to."""

from __future__ import annotations

import re

from console.core.form import Judged, Look
from console.core.plan import Field
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.form_pane import FormPane
from console.tui.panes.wording import wrapped
from console.tui.widgets.cells import Line, width
from console.tui.widgets.form import FormRow, Note
from console.tui.widgets.lines import Row
from console.tui.widgets.short_form import ShortForm

HELP = 3
"""Lines of the help of the field under the cursor, with its present value where the column cuts it."""
MOST_LISTED = 60
"""Characters of the choices that are listed."""
_HEADING = re.compile(r"[A-Z]{2}")
LOOKING = "looking at the box …"


class ActionForm(FormPane):
    """The fields with what is so now; below them the help of the one under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.form = ShortForm()
        self.look: Look | None = None
        self.error = ""
        """Why there is no form."""

    def opened(self, look: Look) -> None:
        """Show this look from now on; what was typed stays where it is no longer what is so."""
        typed = dict(self.form.values) if self.look is not None and self.look.action == look.action else {}
        self.look, self.error = look, ""
        self.form.rows = tuple(
            FormRow(one.field, one.label, start=one.start, live=one.live, off=one.off) for one in look.rows
        )
        self.form.reset()
        for name, text in typed.items():
            self.form.put(name, text)

    def judged(self, judged: Judged) -> None:
        """Lay the sentences beside their fields."""
        self.form.changed = judged.changed
        self.form.notes = tuple(Note(one.name, one.sign, one.text) for one in judged.remarks)

    def title(self, view: View) -> Line:
        return ((one_line(self.look.title, 200) if self.look else "…", "title"),)

    def lines(self, view: View) -> list[Row]:
        if self.look is None:
            text = self.error or LOOKING
            return [Row(((line, "fail" if self.error else "dim"),)) for line in wrapped(text, view.width, most=8)]
        return super().lines(view)

    def foot_lines(self, view: View) -> list[Line]:
        here = self.here
        if here is None:
            return []
        now = one_line(here.live, 2000)
        whole = wrapped(f"now: {now}", view.width, most=HELP) if width(now) > view.width // 3 else []
        lines = [*wrapped(one_line(here.off or help_of(here.field)), view.width, most=HELP), *whole][-HELP:]
        return [((line, "dim"),) for line in (*lines, *[""] * (HELP - len(lines)))]

    def yank(self) -> str:
        here = self.here
        return "" if here is None or here.field.secret else self.form.value(here)


def help_of(field: Field) -> str:
    """The field's help with what it takes: `seconds that it gets to stop (0 to 86400 s)`."""
    if field.kind in ("choice", "bool"):
        choices = [one for one in field.choices if one] or ["on", "off"]
        listed = ", ".join(one_line(one, 60) for one in choices)
        return f"{field.help}   ← →: {listed if len(listed) <= MOST_LISTED else f'{len(choices)} of them'}"
    if field.low is None or field.high is None:
        return field.help
    return f"{field.help} ({field.low} to {field.high}{' ' + field.unit if field.unit else ''})"


class FormPreview(Pane):
    """What has to be known before anything is typed, and what the values come to."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.look: Look | None = None
        self.judged: Judged | None = None
        self.error = ""
        self.busy = False

    def title(self, view: View) -> Line:
        return (("what it comes to", "title"), ("   nothing is sent before the plan's Yes", "dim"))

    def note(self, view: View) -> Line:
        return (("reckoning …", "key"),) if self.busy else ()

    def changes(self) -> object:
        return (self.look, self.judged, self.error, self.busy)

    def lines(self, view: View) -> list[Row]:
        made: list[Row] = []
        for text in self.look.told if self.look else ():
            made += [Row(((line, "dim"),)) for line in wrapped(one_line(text), view.width, most=4)]
        if self.error:
            made += [Row(((line, "fail"),)) for line in wrapped(self.error, view.width, most=6)]
        if self.judged is None:
            return made
        count = sum(one.sign == "fail" for one in self.judged.remarks)
        if count:
            fields = "1 field" if count == 1 else f"{count} fields"
            made.append(Row(((f"✗ {fields} cannot be: A asks for nothing until that is put right", "fail"),)))
        for text in self.judged.lines:
            made += preview_rows(text, view.width)
        return made

    def yank(self) -> str:
        """The commands and lines, whole."""
        return "\n".join(self.judged.lines) if self.judged else ""


def preview_rows(text: str, cells: int) -> list[Row]:
    """One line of what it comes to, wrapped; its first sign says how it is drawn."""
    if _HEADING.match(text):
        return [Row(((text, "label"),))]
    style = {"-": "fail", "+": "ok", "!": "warn"}.get(text[:1], "")
    indent = len(text) - len(text.lstrip(" "))
    flat = " " * min(indent, 40) + one_line(text.lstrip(" "), 8000)
    return [Row(((line, style),)) for line in wrapped(flat, cells, most=60)]
