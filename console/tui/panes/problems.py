"""Problems (design 1.14): verdicts as a list, newest cause first, consequences folded under their cause."""

from __future__ import annotations

from console.core.finding import Finding, Report
from console.core.model import Verdict
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import sign
from console.tui.screens import SCREENS
from console.tui.widgets.cells import Line, cut, left
from console.tui.widgets.lines import Row

COUNTED = ("fail", "warn", "unknown")
"""Signs that the header counts, in the order of the list."""
SUBJECT_DIGITS = {"model": "2", "container": "5", "server": "5", "gpu": "8", "box": "7"}
KEY_DIGITS = {"t": "3", "L": "4"}
"""Keys of verdicts that lead to a screen with their model chosen -> that screen's digit."""
FROM = {"model": "statistics", "container": "podman", "server": "health", "gpu": "NVML", "box": "host"}
OPENS, FROM_CELLS, SINCE = 14, 14, 10
VerdictKey = tuple[str, str | None, str]
"""Identity of a verdict: id, model, title without figures that move."""


def key_of(verdict: Verdict) -> VerdictKey:
    """The same verdict keeps its key while its figures move."""
    return (verdict.id, verdict.model, verdict.subject if verdict.model else verdict.title)


def problems(verdicts: tuple[Verdict, ...]) -> list[Verdict]:
    """What is counted: by sign, then the newest first."""
    found = [one for one in verdicts if one.sign in COUNTED]
    return sorted(found, key=lambda one: (COUNTED.index(one.sign), -(one.since_wall or 0.0)))


def digit_of(verdict: Verdict) -> str:
    """The screen that holds the details: the verdict's own word where such a screen is there, else by its subject."""
    known = {one.digit for one in SCREENS if one.digit}
    wanted = KEY_DIGITS.get(verdict.next_key, verdict.next_key)
    for digit in (wanted, SUBJECT_DIGITS.get(verdict.subject, "")):
        if digit in known:
            return digit
    return ""


def roots(report: Report | None) -> list[Finding]:
    """Findings that are wrong and follow from no other, the worst first."""
    if report is None:
        return []
    follows = report.follows()
    found = [one for one in report.findings if one.sign in ("fail", "warn") and one.id not in follows]
    return sorted(found, key=lambda one: COUNTED.index(one.sign))


def _origin(verdict: Verdict) -> str:
    """Where the verdict says that it comes from, in a few cells; by its subject where it says nothing."""
    if verdict.source.startswith("/v2/models/stats"):
        return "statistics"
    return one_line(verdict.source, 100) or FROM.get(verdict.subject, "why")


class ProblemsPane(Pane):
    """The list that the header counts."""

    FIELDS = ("verdicts", "checks")
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.pinned = 1

    def title(self, view: View) -> Line:
        found = f"   /{one_line(self.filter, 30)}" if self.filter else ""
        return ((f"Problems{found}", "title"),)

    def note(self, view: View) -> Line:
        return (("w", "key"), (" why, with figures", "dim"))

    def lines(self, view: View) -> list[Row]:
        cells = max(20, view.width - 3 - SINCE - FROM_CELLS - OPENS)
        head = f"   {left('SINCE', SINCE)}{left('WHAT', cells)}{left('FROM', FROM_CELLS)}OPENS"
        made = [Row(((head, "label"),))]
        for verdict in problems(view.snapshot.verdicts):
            if self.wanted(f"{verdict.title} {verdict.id} {verdict.model or ''}"):
                made += self._rows(verdict, view, cells)
        if len(made) == 1:
            made.append(self._none(view))
        return [*made, *self._checks(view, cells)]

    def _checks(self, view: View, cells: int) -> list[Row]:
        """What the checklist found, under what is counted: a finding is a state of the box, not what hurts now."""
        report = view.snapshot.checks.value
        found = [one for one in roots(report) if self.wanted(f"{one.id} {one.title} {one.text}")]
        if report is None or not found:
            return []
        made = [Row((sign("none"), (" from Checks, not counted in the header:", "dim")))]
        for one in found:
            line: Line = (
                sign(one.sign),
                ("  ", ""),
                (left(view.clock(report.wall), SINCE), "dim"),
                (left(cut(f"{one.id} {one_line(one.title, 80)}: {one_line(one.text, 200)}", cells - 1), cells), ""),
                (left("checks", FROM_CELLS), "dim"),
                ("6 Checks", "key"),
            )
            made.append(Row(line, ("check", one.id)))
        return made

    def check(self) -> str | None:
        """Id of the check under the cursor; None on a verdict."""
        key = self.cursor
        return str(key[1]) if isinstance(key, tuple) and len(key) == 2 and key[0] == "check" else None

    def _rows(self, verdict: Verdict, view: View, cells: int) -> list[Row]:
        title = left(one_line(verdict.title, 300), cells - 1) + " "
        origin = left(_origin(verdict), FROM_CELLS - 1) + " "
        line: Line = (
            sign(verdict.sign),
            ("  ", ""),
            (left(view.clock(verdict.since_wall), SINCE), "dim"),
            (title, ""),
            (f"{origin}", "dim"),
            (_opens(verdict), "key"),
        )
        made = [Row(line, key_of(verdict))]
        indent = " " * (3 + SINCE)
        made += [Row(((f"{indent}└ {one_line(text, 300)}", "dim"),)) for text in verdict.consequences]
        return made

    def _none(self, view: View) -> Row:
        if self.filter:
            return Row((("   no problem matches the filter", "dim"),))
        if not view.snapshot.verdicts:
            return Row((("   no problem is known; the first judgement comes some seconds after the start", "dim"),))
        return Row((sign("ok"), ("  no problem stands out; w tells what cannot be seen from here", "")))

    def verdict(self) -> Verdict | None:
        """The one under the cursor."""
        verdicts = self.view.snapshot.verdicts if self.view else ()
        return next((one for one in verdicts if key_of(one) == self.cursor), None)

    def filterable(self) -> bool:
        return True

    def yank(self) -> str:
        verdict = self.verdict()
        return "" if verdict is None else "\n".join((verdict.title, *verdict.lines))


def _opens(verdict: Verdict) -> str:
    digit = digit_of(verdict)
    title = next((one.title for one in SCREENS if one.digit == digit and digit), "")
    return f"{digit} {title}" if title else ""
