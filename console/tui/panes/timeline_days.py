"""The hours of the last days from the recorder's minutes (design 1.11): what comes again at the same hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from console.core.minutes import DAYS, FIGURES, HEAT_LEAST, Hours, Minute, hours, same_hours
from console.tui.panes.base import Pane, View
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

SHOWN = 3
"""Days in the table, the newest last; more where the pane is widened."""
NAME, CELL = 7, 3


class TimelineDays(Pane):
    """A row a day, a column an hour. Shown where something is recorded."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.minutes: Sequence[Minute] = ()
        self.figure = 0
        self._made: tuple[object, Hours] = ((), {})

    def title(self, view: View) -> Line:
        return (("Days", "title"), ("   from the recorder, v chooses the figure", "dim"))

    def note(self, view: View) -> Line:
        return ((f"{len(self._table(view))} of {DAYS} days", "dim"),)

    def _table(self, view: View) -> Hours:
        """Made anew once a minute: ten thousand lines go into it."""
        seen = (id(self.minutes), len(self.minutes), self.figure, view.utc)
        if self._made[0] != seen:
            self._made = (seen, hours(self.minutes, FIGURES[self.figure], utc=view.utc))
        return self._made[1]

    def lines(self, view: View) -> list[Row]:
        figure, table = FIGURES[self.figure], self._table(view)
        now = datetime.fromtimestamp(view.wall, UTC)
        now = now if view.utc else now.astimezone()
        head = " " * NAME + "".join(right(f"{hour:02}", CELL) for hour in range(24))
        rows = [Row(((head, "label"), (f"     {figure.name}", "dim")))]
        told = ["· none   – not recorded"]
        alike = same_hours(table, HEAT_LEAST) if self.figure == 0 else ()
        if alike:
            told.append("the same hours each day: " + ", ".join(map(str, alike)))
        days = list(table.items())[-max(SHOWN, view.height - 1) :]
        for number, (day, figures) in enumerate(days):
            cells = "".join(
                right(_cell(value, later=(day, hour) > (now.date(), now.hour)), CELL)
                for hour, value in enumerate(figures)
            )
            beside = told[number] if number < len(told) else ""
            style = "warn" if beside.startswith("the same") else "dim"
            rows.append(Row(((left(f"{day:%a %d}", NAME), "label"), (cells, "value"), (f"     {beside}", style))))
        return rows

    def next_view(self) -> bool:
        self.figure = (self.figure + 1) % len(FIGURES)
        self.again()
        return True

    def changes(self) -> object:
        return (self.figure, id(self.minutes))


def _cell(value: float | None, *, later: bool) -> str:
    if value is None:
        return "" if later else "–"
    if value < 0.5:
        return "·"
    return f"{value:.0f}" if value < 999.5 else f"{value / 1000:.0f}k"
