"""Why on the Overview: the verdicts, the first ones with their reasons, the others a line each."""

from __future__ import annotations

from typing import NamedTuple

from console.core.model import Verdict
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import wrapped
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, between, cut, line_width
from console.tui.widgets.lines import Row


class VerdictKey(NamedTuple):
    """Identity of a verdict on the screen."""

    id: str
    model: str | None


class OverviewWhy(Pane):
    """What is wrong or worth knowing, and why."""

    FIELDS = ("verdicts",)
    TICKS = False

    def title(self, view: View) -> Line:
        return (("Why", "title"),)

    def note(self, view: View) -> Line:
        return (("w", "key"), (f": all {len(view.snapshot.verdicts)}", "dim"))

    def lines(self, view: View) -> list[Row]:
        verdicts = view.snapshot.verdicts
        if not verdicts:
            return [Row((("nothing to say yet: a verdict needs two looks, 5 s apart", "dim"),))]
        spare = max(0, view.height - len(verdicts))
        rows: list[Row] = []
        for verdict in verdicts:
            told = _reasons(verdict, view)[:spare]
            spare -= len(told)
            rows += _verdict(verdict, told, view)
        return rows

    def wants(self, view: View) -> int:
        """Rows that would show everything."""
        return sum(1 + len(_reasons(verdict, view)) for verdict in view.snapshot.verdicts) or 1

    def yank(self) -> str:
        for verdict in self.view.snapshot.verdicts if self.view else ():
            if self.cursor == VerdictKey(verdict.id, verdict.model):
                return "\n".join((verdict.title, *verdict.lines))
        return ""


def _reasons(verdict: Verdict, view: View) -> list[str]:
    return [part for line in verdict.lines for part in wrapped(one_line(line), max(20, view.width - 5), most=3)]


def _verdict(verdict: Verdict, told: list[str], view: View) -> list[Row]:
    """The title with its trust, the reasons below it, and at the right of the last line the key of the next step."""
    key = VerdictKey(verdict.id, verdict.model)
    sign: Line = ((f"{SIGNS[verdict.sign]} ", SIGN_STYLES[verdict.sign]),)
    next_step: Line = ((f"{verdict.next_key} ", "key"),) if verdict.next_key else ()
    title = one_line(verdict.title)
    if not told:
        room = view.width - 2 - line_width(next_step) - 1
        return [Row(between((*sign, (cut(title, room), "text")), next_step, view.width), key)]
    trust: Line = ((f" {verdict.trust}  ", "dim"),)
    rows = [Row(between((*sign, (title, "value")), trust, view.width), key)]
    for number, line in enumerate(told, start=1):
        end = next_step if number == len(told) else ()
        rows.append(Row(between((("  ", ""), (line, "text")), end, view.width)))
    return rows
