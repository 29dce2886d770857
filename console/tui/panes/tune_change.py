"""What a change of the form comes to: the difference as config.pbtxt text, and what happens on apply (design 1.6)."""

from __future__ import annotations

from itertools import zip_longest

from console.core.plan import Plan
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.plan_lines import refusal_rows
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row

COLUMNS_FROM = 90
"""Cells from which the two texts stand beside each other."""
LEAST_DIFFERENCE = 42
MOST = 4
"""Lines of one text at most."""
DIFFERENCE = {"-": "fail", "+": "ok"}


class TuneChange(Pane):
    """The plan of the form's values, as far as it is reckoned."""

    FIELDS = ()
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.plan: Plan | None = None
        self.told = ""
        """Why there is no plan."""
        self.wrong = False
        """True when `told` is a refusal, not just that nothing was changed."""
        self.reckoning = False

    def title(self, view: View) -> Line:
        return (("Change", "title"),)

    def note(self, view: View) -> Line:
        if self.reckoning:
            return (("reckoning …", "key"),)
        return ((self.plan.note, "warn" if self.plan.danger != "safe" else "dim"),) if self.plan is not None else ()

    def lines(self, view: View) -> list[Row]:
        if self.plan is None:
            return refusal_rows(self.told, view.width) if self.wrong else [Row(((self.told, "dim"),))]
        made = refusal_rows(self.plan.refused, view.width) if self.plan.refused else []
        if view.width < COLUMNS_FROM:
            return [*made, *(Row(line) for line in (*_difference(self.plan), *_happens(self.plan, view.width)))]
        first = max(LEAST_DIFFERENCE, view.width * 2 // 5)
        pairs = zip_longest(_difference(self.plan), _happens(self.plan, view.width - first), fillvalue=())
        return [*made, *(Row(_beside(one, other, first)) for one, other in pairs)]

    def changes(self) -> object:
        return (self.plan, self.told, self.wrong, self.reckoning)

    def yank(self) -> str:
        return "" if self.plan is None else "\n".join(self.plan.difference)


def _beside(one: Line, other: Line, cells: int) -> Line:
    text = "".join(part for part, _ in one)
    return ((left(text, cells - 2) + "  ", one[0][1] if one else ""), *other)


def _difference(plan: Plan) -> list[Line]:
    made: list[Line] = []
    for text in plan.difference:
        indent = len(text[1:]) - len(text[1:].lstrip(" "))
        shown = text[:1] + " " * min(20, indent) + one_line(text[1:].lstrip(" "), 400)
        made.append(((shown, DIFFERENCE.get(text[:1], "dim")),))
    return made


def _happens(plan: Plan, cells: int) -> list[Line]:
    """First what the checks warn of, then all that the plan says will happen."""
    made: list[Line] = [(("WHAT HAPPENS ON APPLY", "label"),)]
    for check in plan.checks:
        if check.sign not in ("ok", "none"):
            lines = wrapped(one_line(check.text, 400), cells - 2, most=MOST)
            made += [(sign(check.sign) if not at else (" ", ""), (f" {line}", "")) for at, line in enumerate(lines)]
    for number, text in enumerate(plan.effects, start=1):
        lines = wrapped(one_line(text, 400), cells - 2, most=MOST)
        made += [((f"{number} {line}" if not at else f"  {line}", ""),) for at, line in enumerate(lines)]
    return made
