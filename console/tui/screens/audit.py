"""Audit: every change of this box that is known here, who made it, what came of it, and its undo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from textual.geometry import Region

from console.tui.panes.audit_lines import AuditDetails, AuditList
from console.tui.panes.base import Pane, View
from console.tui.screens.base import BoxScreen, Places


class AuditScreen(BoxScreen):
    """The list above, the chosen change below."""

    NAME = "audit"
    FOOTER = (("undo", "undo this"), "filter", ("open", "details"), "maximise", ("escape", "back"), "palette", "help")

    def make_panes(self) -> Iterable[Pane]:
        yield AuditList(id="audit-list")
        yield AuditDetails(id="audit-details")

    @property
    def listed(self) -> AuditList:
        """The upper pane."""
        return cast("AuditList", self.panes["audit-list"])

    @property
    def details(self) -> AuditDetails:
        """The lower pane."""
        return cast("AuditDetails", self.panes["audit-details"])

    def place(self, body: Region) -> Places:
        top, bottom = body.split_horizontal(max(5, body.height * 2 // 5))
        return {"audit-list": top, "audit-details": bottom}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        acting = self.app_.acting
        self.listed.records = acting.records
        self.details.record = self.listed.record() or next(iter(acting.records), None)

    def on_screen_resume(self) -> None:
        self.app_.acting.read_records(self._read)
        self.app_.refresh_now()

    def _read(self) -> None:
        self.listed.read = True
        self.listed.records = self.app_.acting.records
        self.listed.again()
        wanted, self.app_.record = self.app_.record, None
        if wanted is not None:
            self.listed.select(wanted)

    def on_line_view_cursor_moved(self) -> None:
        self.details.record = self.listed.record()
        self.details.top = 0
        self.details.again()

    def chosen_change(self) -> str | None:
        record = self.listed.record()
        return None if record is None else record.intent.id

    def open_chosen(self) -> None:
        """`enter`: to the details, over the whole body where they have little room."""
        self.set_focus(self.details, scroll_visible=False)
        if self.compact and self.maximised is None:
            self.toggle_maximised(self.details)

    def step_out(self) -> bool:
        if super().step_out():
            self.set_focus(self.listed, scroll_visible=False)
            return True
        if self.focused is self.details:
            self.set_focus(self.listed, scroll_visible=False)
            return True
        return False
