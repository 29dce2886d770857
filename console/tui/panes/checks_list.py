"""The checks in their groups (design 1.9): only what is wrong is open; consequences stand under their cause's id."""

from __future__ import annotations

from collections.abc import Iterator

from console.core.finding import GROUPS, Finding
from console.core.model import Sign
from console.core.sign import WORST_FIRST
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import not_read, sign
from console.tui.signs import SIGNS
from console.tui.widgets.cells import Line, cut, left
from console.tui.widgets.lines import Row

COUNTED: tuple[Sign, ...] = ("ok", "warn", "fail", "unknown", "none")
WRONG: tuple[Sign, ...] = ("fail", "warn")
NAME, FIX = 46, 14


def tally(findings: list[Finding] | tuple[Finding, ...]) -> dict[Sign, int]:
    """How many of each sign; notes count as ok."""
    found: dict[Sign, int] = dict.fromkeys(COUNTED, 0)
    for one in findings:
        found["ok" if one.sign == "note" else one.sign] += 1
    return found


def tally_words(counts: dict[Sign, int]) -> str:
    """`●21 ▲0 ✗0 ?0 –1`."""
    return " ".join(f"{SIGNS[name]}{counts[name]}" for name in COUNTED)


class ChecksList(Pane):
    """Groups with counts; a folded group shows its counts only."""

    FIELDS = ("checks",)
    TICKS = False
    PINNED = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.all = False
        """True: every check is listed; False: what is wrong, and what cannot be told in open groups."""
        self.folded: dict[str, bool] = {}
        """Group -> folded by the operator's own key; others by what is wrong in them."""

    def title(self, view: View) -> Line:
        report = view.snapshot.checks.value
        found = f"   /{one_line(self.filter, 30)}" if self.filter else ""
        if report is None:
            return (("Checks", "title"),)
        head = f"Checks  {len(report.findings)}   {tally_words(tally(report.findings))}"
        told = "all" if self.all else "only what is wrong is open"
        return ((f"{head}{found}", "title"), (f"   {told}" if not view.compact else "", "dim"))

    def lines(self, view: View) -> list[Row]:
        report = view.snapshot.checks.value
        name = NAME if view.width >= 100 else max(20, view.width * 2 // 5)
        fix = FIX if view.width >= 80 else 4
        cells = max(10, view.width - name - 4 - fix)
        made = [Row(((f"  {left('GROUP / CHECK', name + 2)}{left('EVIDENCE', cells)}FIX", "label"),))]
        if report is None:
            return [*made, *not_read("checks", (view.snapshot.checks,), view.width)]
        follows = report.follows()
        for group, title in GROUPS.items():
            members = [one for one in report.findings if one.group == group]
            if members:
                made += self._group(group, title, members, follows, (name, cells, fix))
        return made

    def _group(
        self, group: str, title: str, members: list[Finding], follows: dict[str, str], cells: tuple[int, int, int]
    ) -> Iterator[Row]:
        shown = [one for one in members if self._shows(one)]
        if self.filter and not shown:
            return
        open_ = self._is_open(group, members)
        mark = "▾" if open_ and shown else "▸"
        counts = tally(members)
        told = "" if open_ else self._unknowns(members)
        line: Line = (
            (f"{mark} {left(title, cells[0])}", ""),
            (left(f"  {tally_words(counts)}  {told}", cells[1]), "dim"),
        )
        yield Row(line, ("group", group))
        if open_:
            for one in sorted(shown, key=lambda each: (WORST_FIRST.index(each.sign), each.id)):
                yield self._row(one, follows.get(one.id, ""), cells)

    def _row(self, one: Finding, cause: str, cells: tuple[int, int, int]) -> Row:
        name, evidence, fix = cells
        word = f"from {cause}" if cause else fix_word(one)
        line: Line = (
            ("  ", ""),
            sign(one.sign),
            (f" {left(f'{one.id} {one_line(one.title, 80)}', name - 1)} ", ""),
            (left(cut(one_line(one.text, 300), evidence - 1), evidence), "dim" if one.sign in ("ok", "none") else ""),
            (cut(word, fix), "key" if word in ("f", "y") else "dim"),
        )
        return Row(line, ("check", one.id))

    def _is_open(self, group: str, members: list[Finding]) -> bool:
        if self.filter:
            return True
        if group in self.folded:
            return not self.folded[group]
        return self.all or any(one.sign in WRONG for one in members)

    def _shows(self, one: Finding) -> bool:
        if self.filter:
            return self.wanted(f"{one.id} {one.title} {one.text} {one.group}")
        return self.all or one.sign in WRONG or (one.sign == "unknown" and self.folded.get(one.group) is False)

    def _unknowns(self, members: list[Finding]) -> str:
        unknown = [one for one in members if one.sign == "unknown"]
        return f"? {one_line(unknown[0].text, 60)}" if unknown else ""

    def mark(self) -> bool:
        """`space`: fold or open the group under the cursor."""
        group = self._group_here()
        if group is None or self.view is None or self.view.snapshot.checks.value is None:
            return False
        members = [one for one in self.view.snapshot.checks.value.findings if one.group == group]
        self.folded[group] = self._is_open(group, members)
        if self.folded[group]:
            self.cursor = ("group", group)
        self.again()
        return True

    def _group_here(self) -> str | None:
        if not isinstance(self.cursor, tuple):
            return None
        kind, name = self.cursor
        if kind == "group":
            return str(name)
        one = self.finding()
        return one.group if one is not None else None

    def finding(self) -> Finding | None:
        """The check under the cursor; None on a group."""
        report = self.view.snapshot.checks.value if self.view is not None else None
        if report is None or not isinstance(self.cursor, tuple) or self.cursor[0] != "check":
            return None
        return report.finding(str(self.cursor[1]))

    def show_check(self, id_: str) -> None:
        """Put the cursor on a check, its group opened."""
        report = self.view.snapshot.checks.value if self.view is not None else None
        one = report.finding(id_) if report is not None else None
        if one is None:
            return
        if one.sign in WRONG:
            self.folded.pop(one.group, None)
        else:
            self.all, self.folded[one.group] = True, False
        self.again()
        self.select(("check", id_))

    def next_view(self) -> bool:
        self.all = not self.all
        self.folded.clear()
        return True

    def filterable(self) -> bool:
        return True

    def yank(self) -> str:
        one = self.finding()
        if one is None:
            return super().yank()
        if one.fix is not None and one.fix.commands:
            return "\n".join(one.fix.commands)
        return one.settle or f"{one.id} {one.text}"

    def changes(self) -> object:
        return (self.all, tuple(sorted(self.folded.items())))


def fix_word(one: Finding) -> str:
    """`f` = the console can do it; `y` = commands to copy."""
    if one.fix is None or one.sign not in (*WRONG, "unknown"):
        return ""
    if one.fix.can_be_applied:
        return "f"
    return "y" if one.fix.commands else ""
