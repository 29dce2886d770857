"""Checks (6): the root cause, every check in its group, and the chosen one with its fix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.geometry import Region

from console.core.finding import Finding, Report
from console.tui.acts import Act
from console.tui.commands import Command
from console.tui.desk import Request
from console.tui.panes import checks_cause
from console.tui.panes.base import Pane, View
from console.tui.panes.check_details import CheckDetails
from console.tui.panes.checks_cause import ChecksCause
from console.tui.panes.checks_list import ChecksList
from console.tui.screens.base import BoxScreen, Places

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

DETAILS_LEAST, LIST_LEAST = 9, 6


class ChecksScreen(BoxScreen):
    """The checklist."""

    NAME = "checks"
    FOOTER = (
        ("open", "details"),
        ("mark", "fold"),
        "checks.fix",
        ("copy", "copy command"),
        "checks.again",
        "checks.all",
        ("view.next", "only wrong, all"),
        "filter",
        ("escape", "back"),
        "palette",
        "help",
    )

    def __init__(self) -> None:
        super().__init__()
        self.wanted: str | None = None
        """The check that the cursor is to be put on, as soon as the screen is shown."""
        self._shown: Report | None = None

    def make_panes(self) -> Iterable[Pane]:
        yield ChecksList(id="checks-list")
        yield CheckDetails(id="check-details")
        yield ChecksCause(id="checks-cause")

    @property
    def listed(self) -> ChecksList:
        """The list."""
        return cast("ChecksList", self.panes["checks-list"])

    @property
    def details(self) -> CheckDetails:
        """The chosen check."""
        return cast("CheckDetails", self.panes["check-details"])

    def place(self, body: Region) -> Places:
        frame = 1 if self.compact else 2
        cause = checks_cause.height(self._shown, body.width - 4, max(1, body.height // 4)) + frame
        top, rest = body.split_horizontal(min(cause, body.height))
        details = max(DETAILS_LEAST, rest.height * 2 // 5) if rest.height >= DETAILS_LEAST + LIST_LEAST else 0
        middle, bottom = rest.split_horizontal(max(0, rest.height - details))
        return {"checks-cause": top, "checks-list": middle, "check-details": bottom}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        report = view.snapshot.checks.value
        if report is not self._shown:
            self._shown = report
            self.relayout()
            if report is not None and self.listed.cursor is None:
                self.wanted = self.wanted or (report.causes[0].id if report.causes else None)
        self.details.why_off = Fix().why_off(self.app_)
        if self.wanted is not None and report is not None:
            self.call_after_refresh(self._arrive)

    def _arrive(self) -> None:
        wanted, self.wanted = self.wanted, None
        if wanted is not None:
            self.listed.show_check(wanted)

    def chosen(self) -> Finding | None:
        """The check that keys work on."""
        return self.listed.finding()

    def on_line_view_cursor_moved(self) -> None:
        one = self.listed.finding()
        self.details.check = one.id if one is not None else None
        self.details.why_off = Fix().why_off(self.app_)
        self.details.top = 0
        self.details.again()

    def open_chosen(self) -> None:
        """`enter`: the check's details; on a group: open or fold it; on a cause: to its check."""
        cause = self.panes["checks-cause"]
        if self.focused is cause and isinstance(cause.cursor, tuple):
            self.set_focus(self.listed, scroll_visible=False)
            self.listed.show_check(str(cause.cursor[1]))
        elif self.listed.finding() is None:
            self.listed.mark()
        else:
            self.set_focus(self.details, scroll_visible=False)
            if self.maximised is None and "check-details" not in self._placed:
                self.toggle_maximised(self.details)

    def step_out(self) -> bool:
        if super().step_out():
            self.set_focus(self.listed, scroll_visible=False)
            return True
        if self.focused is not self.listed:
            self.set_focus(self.listed, scroll_visible=False)
            return True
        return False


class Fix(Act):
    """Fix what the chosen check found, where its class allows it (plan first)."""

    ID, KEYS, LABEL, SCOPE, ACTION = "checks.fix", ("f",), "fix", "checks", "check.fix"

    def why_not(self, app: ConsoleApp) -> str | None:
        if not isinstance(app.box, ChecksScreen):
            return "this works on Checks only"
        one = app.box.chosen()
        if one is None:
            return "choose a check first"
        if one.sign not in ("fail", "warn"):
            return f"{one.id} has nothing to mend"
        if one.fix is None:
            return f"{one.id} has no fix that the console knows"
        if not one.fix.can_be_applied:
            return f"the fix of {one.id} is done by hand: y copies its commands"
        return None

    def run(self, app: ConsoleApp) -> None:
        one = app.box.chosen() if isinstance(app.box, ChecksScreen) else None
        if one is not None:
            app.acting.request(Request(self.ACTION, one.id))


class _Again(Command):
    """Base of the keys that run the checks."""

    SCOPE: ClassVar[str] = "checks"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if app.box.snapshot.checks.tried else "the first run is still going on"


class Again(_Again):
    """Run the chosen check again, with all others: a look takes two seconds."""

    ID, KEYS, LABEL = "checks.again", ("c",), "run again"

    def run(self, app: ConsoleApp) -> None:
        one = app.box.chosen() if isinstance(app.box, ChecksScreen) else None
        app.session.read_now("checks")
        app.tell(f"{one.id} is looked at again" if one is not None else "all checks are run")


class All(_Again):
    """Run all checks."""

    ID, KEYS, LABEL = "checks.all", ("C",), "run all"

    def run(self, app: ConsoleApp) -> None:
        app.session.read_now("checks")
        app.tell("all checks are run")
