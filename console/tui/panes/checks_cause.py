"""Root cause (design 1.9): the weightiest cause on top with its signs and the order of mending; others below it."""

from __future__ import annotations

from collections.abc import Iterator

from console.core.finding import Cause, Report
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import not_read, sign, wrapped
from console.tui.widgets.cells import Line, between
from console.tui.widgets.lines import Row


class ChecksCause(Pane):
    """What is wrong at the root, in one sentence."""

    FIELDS = ("checks",)
    TICKS = False

    def title(self, view: View) -> Line:
        return (("Root cause", "title"),)

    def note(self, view: View) -> Line:
        report = view.snapshot.checks.value
        if report is None:
            return ()
        return ((f"run {view.clock(report.wall)}, {report.seconds:.1f} s", "dim"),)

    def lines(self, view: View) -> list[Row]:
        reading = view.snapshot.checks
        if reading.value is None:
            return not_read("checks", (reading,), view.width)
        made = list(_rows(reading.value, view.width))
        if reading.error is not None:
            made.append(Row((sign("unknown"), (f" the newest run failed: {one_line(reading.error.message, 200)}", ""))))
        return made


def height(report: Report | None, width: int, most: int) -> int:
    """Rows that it takes, at most `most`."""
    return 1 if report is None else min(most, len(list(_rows(report, width))))


def _rows(report: Report, width: int) -> Iterator[Row]:
    if not report.causes:
        wrong = [one for one in report.findings if one.sign in ("fail", "warn")]
        text = "nothing is wrong that these checks see" if not wrong else "no finding stands out as a cause"
        yield Row((sign("ok" if not wrong else "warn"), (f" {text}", "")))
        return
    first, *others = report.causes
    yield from _first(first, width)
    for cause in others[:4]:
        text = f" {cause.id} {one_line(cause.title, 300)}"
        yield Row((sign(cause.sign), (text, "")), ("cause", cause.id))
    if len(others) > 4:
        yield Row(((f"  and {len(others) - 4} more, below", "dim"),))


def _first(cause: Cause, width: int) -> Iterator[Row]:
    trust: Line = ((cause.trust, "dim"),)
    room = max(10, width - len(cause.trust) - 4)
    lines = wrapped(one_line(cause.title, 400), room, most=2)
    for number, line in enumerate(lines):
        start: Line = (sign(cause.sign) if not number else (" ", ""), (f" {line}", "title" if not number else ""))
        yield Row(between(start, trust if not number else (), width), ("cause", cause.id) if not number else None)
    for line in wrapped("   ".join(_signs(cause)), width - 2, most=3):
        yield Row(((f"  {line}", ""),))
    order = _order(cause)
    if order:
        for line in wrapped("   ".join(order), width - 2, most=3):
            yield Row(((f"  {line}", ""),))


def _signs(cause: Cause) -> tuple[str, ...]:
    return tuple(f"{number} {one_line(text, 200)}" for number, text in enumerate(cause.signs, 1))


def _order(cause: Cause) -> tuple[str, ...]:
    if not cause.order:
        return ()
    steps = (
        f"{number} {f'{step.id} ' if step.id else ''}{one_line(step.text, 160)}"
        for number, step in enumerate(cause.order, 1)
    )
    return ("order of mending", *steps)
