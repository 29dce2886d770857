"""PlanDialog (design 1.13): what will be done, in exact words, and the two buttons. Nothing is sent before Yes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from console.core.plan import Plan
from console.core.text import one_line
from console.tui.desk import Request
from console.tui.panes.plan_lines import plan_rows, refusal_rows, title_line
from console.tui.widgets.cells import width
from console.tui.widgets.dialog import LEAST_FIELD, MOST_FIELD, Button, Content, Dialog, Field
from console.tui.widgets.lines import Row

BLANK = Row(())
SMALL = 84
"""Cells of a plan that has no columns."""
OFF = "false"


class PlanDialog(Dialog[Plan | None]):
    """Ends with the Plan that a person said yes to, or None."""

    HEADING = "Plan"

    def __init__(self, request: Request, plan_again: Callable[[PlanDialog, Request], None], *, utc: bool) -> None:
        super().__init__()
        self.request = request
        self.plan: Plan | None = None
        self.error = ""
        self.planning = True
        self._plan_again = plan_again
        self._utc = utc

    def on_mount(self) -> None:
        super().on_mount()
        self._plan_again(self, self.request)

    # ---------------------------------------------------------------------------------------------- from the thread

    def planned(self, request: Request, plan: Plan | None, error: str) -> None:
        """The thread's answer; one to a question that was changed since is dropped."""
        if request is not self.request or not self.is_mounted:
            return
        first = self.plan is None
        self.planning, self.error = False, error
        self.plan = plan or self.plan
        if error:
            self.field, self.focus_on = None, "no"
        elif plan is not None:
            self._ask_name(plan, first)
        self.redraw()
        if first:
            self.appear()

    def _ask_name(self, plan: Plan, first: bool) -> None:
        if not plan.confirm or plan.refused:
            self.field = None
            if self.focus_on in ("field", "yes"):
                self.focus_on = "no"
            return
        name = one_line(plan.confirm, 60)
        typed = self.field.text if self.field is not None else ""
        self.field = Field(f"type {name} to go on:", typed, max(LEAST_FIELD, min(MOST_FIELD, width(name) + 2)))
        if first:
            self.focus_on = "field"

    def _change(self, values: dict[str, str]) -> None:
        self.request = replace(self.request, values=values)
        self.planning, self.error = True, ""
        self.redraw()
        self._plan_again(self, self.request)

    # ------------------------------------------------------------------------------------------------------- drawing

    def wide(self) -> int:
        plan = self.plan
        columns = plan is not None and (plan.ways or any(step.if_it_fails for step in plan.steps) or plan.difference)
        return self.WIDTH if columns else SMALL

    def content(self, width: int) -> Content:
        if self.plan is None and self.planning:
            what = one_line(f"{self.request.action} {self.request.target}", 200)
            return Content(body=[Row((("planning … ", ""), (what, "title"))), BLANK], hint="esc leaves")
        if self.plan is None:
            return Content(body=[*refusal_rows(self.error, width), BLANK])
        head = [Row(title_line(self.plan, width)), BLANK]
        body = plan_rows(self.plan, width, utc=self._utc)
        foot = [BLANK]
        if self.error:
            foot = [BLANK, *refusal_rows(self.error, width)]
        elif self.planning:
            foot = [BLANK, Row((("planning …", "key"),))]
        return Content(head, body, foot, "" if self._only_close() else "esc = No")

    def _only_close(self) -> bool:
        return self.plan is None or bool(self.plan.refused) or bool(self.error)

    def buttons(self) -> tuple[Button, ...]:
        if self.plan is None or self._only_close():
            return (Button("no", "No" if self.planning else "Close"),)
        return (Button("no", "No"), Button("yes", self.plan.yes or "Yes", self._why_not()))

    def _why_not(self) -> str:
        """Why Yes cannot be pressed now."""
        if self.planning or self.plan is None:
            return "planning"
        if self.field is not None and self.field.text != self.plan.confirm:
            return "the name is not typed"
        return ""

    # ---------------------------------------------------------------------------------------------------------- keys

    def pressed(self, name: str) -> None:
        self.dismiss(self.plan if name == "yes" and not self._why_not() and not self._only_close() else None)

    def typed(self) -> None:
        if self.focus_on == "yes" and self._why_not():
            self.focus_on = "field"

    def submitted(self, text: str) -> None:
        """`enter` in the field: nothing typed is No; the right name leads to Yes, which wants its own enter."""
        if self.plan is None or not text:
            self.dismiss(None)
        elif text == self.plan.confirm:
            self.focus_on = "yes"
        else:
            self.app.notify(
                f"the name is {one_line(self.plan.confirm, 100)}, letter by letter", timeout=3, markup=False
            )

    def row_chosen(self, key: Hashable) -> None:
        if self.plan is None or self.planning or not isinstance(key, tuple):
            return
        kind, name = key
        values = dict(self.request.values)
        if kind == "way":
            if name == self.plan.way:
                return
            values["way"] = name
        else:
            tick = next(one for one in self.plan.ticks if one.name == name)
            if not tick.on:
                values[name] = tick.value
            elif tick.value == "true":
                values[name] = OFF
            else:
                values.pop(name, None)
        self._change(values)

    def copied(self) -> str:
        return "" if self.plan is None else "\n".join(self.plan.by_hand)
