"""Form: the fields of what changes the container, its unit or a card, with what they come to; `A` makes the plan.

What looks at the box is done in a lane beside the UI thread. Nothing here changes the box, and no value is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.core.text import one_line
from console.tui.acts import Act
from console.tui.commands import Command
from console.tui.desk import Request
from console.tui.lane import Lane
from console.tui.late_forms import Forms, LateForms, Opened
from console.tui.panes.action_form import ActionForm, FormPreview
from console.tui.panes.base import Pane, View
from console.tui.panes.form_pane import FormPane
from console.tui.screens.base import BoxScreen, Places

if TYPE_CHECKING:
    from console.core.form import About, Judged, Wish
    from console.tui.app import ConsoleApp

FRAME, HEAD = 2, 1
LEAST_PREVIEW = 4
JUDGED_AFTER = 0.2
"""Seconds without a key after which what was typed is judged anew."""


class FormScreen(BoxScreen):
    """The fields above, what they come to below."""

    NAME = "form"
    FOOTER = (
        ("form.plan", "plan"),
        ("open", "edit"),
        ("form.less", "→ step"),
        "pane.next",
        "maximise",
        "copy",
        ("escape", "back"),
        "palette",
        "help",
    )

    def __init__(self) -> None:
        super().__init__()
        self.forms: Forms | None = None
        self.judged: Judged | None = None
        """What the values mean; None while that is not known."""
        self._about: tuple[About, str] | None = None
        self._opened: Opened | None = None
        self._lane = Lane(self.later)
        self._edits = 0
        self._wanted = False
        """`A` was pressed and waits for the judgement."""
        self._fresh = False
        """The box was looked at anew, and what was typed before is not yet judged by that look."""

    # ---------------------------------------------------------------------------------------------------------- panes

    def make_panes(self) -> Iterable[Pane]:
        yield ActionForm(id="form-fields")
        yield FormPreview(id="form-preview")

    @property
    def fields(self) -> ActionForm:
        """The upper pane."""
        return cast("ActionForm", self.panes["form-fields"])

    @property
    def preview(self) -> FormPreview:
        """The lower pane."""
        return cast("FormPreview", self.panes["form-preview"])

    def place(self, body: Region) -> Places:
        wanted = len(self.fields.rows) + len(self.fields.foot) + (FRAME if not self.compact else 1)
        if self.compact and self.focused is self.preview:
            height = body.height // 3
        else:
            height = max(HEAD + FRAME + 1, min(wanted, body.height - max(LEAST_PREVIEW, body.height // 4)))
        top, bottom = body.split_horizontal(max(0, height))
        return {"form-fields": top, "form-preview": bottom}

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        self.preview.busy = self._lane.busy

    def on_descendant_focus(self) -> None:
        if self.compact:
            self.relayout()

    def _show(self) -> None:
        self.preview.busy = self._lane.busy
        for pane in self.panes.values():
            pane.again()
        if self.maximised is None and self.ready and self.place(self.body) != self._placed:
            self.relayout()

    # ------------------------------------------------------------------------------------------------ looking, judging

    def begin(self, about: About, target: str) -> None:
        """Open the form for this; nothing of what was typed before stays."""
        self._about, self._opened, self.judged, self._wanted = (about, target), None, None, False
        if self.ready:
            self._empty()

    def on_screen_resume(self) -> None:
        self._look()

    def _empty(self) -> None:
        fields, preview = self.fields, self.preview
        fields.form.close(take=False)
        fields.form.reset()
        fields.form.rows, fields.form.notes, fields.look, fields.error = (), (), None, ""
        preview.look, preview.judged, preview.error, preview.top = None, None, "", 0
        if self.panes and self.focused is not fields:
            self.set_focus(fields, scroll_visible=False)

    def _look(self) -> None:
        """A fresh look, as the box may have changed since the last one (a plan was carried out)."""
        if self._about is None:
            return
        if self.forms is None:
            self.forms = LateForms(self.app_.session, self.app_.state.folder)
        forms, snapshot, asked = self.forms, self.snapshot, self._about
        about, target = asked
        self._lane.ask(
            lambda: forms.open(about, target, snapshot), lambda found, error: self._looked(asked, found, error)
        )
        self._show()

    def _looked(self, asked: tuple[About, str], found: Opened | None, error: str) -> None:
        if asked != self._about or not self.is_attached:
            return
        if found is None:
            self.fields.error, self.preview.error = error, ""
            self.fields.look, self._opened, self.judged = None, None, None
            self.fields.form.rows = ()
        else:
            self._opened, self._fresh = found, True
            self.fields.opened(found.look)
            self.preview.look = found.look
            self._judge()
        self._show()

    def on_form_pane_edited(self, message: FormPane.Edited) -> None:
        self.judged = None
        self._edits += 1
        edits = self._edits

        def after() -> None:
            if edits == self._edits:
                self._judge()

        if self.fields.form.opened is None:
            self._judge()
        else:
            self.set_timer(JUDGED_AFTER, after)

    def _judge(self) -> None:
        forms, opened, snapshot = self.forms, self._opened, self.snapshot
        if forms is None or opened is None:
            return
        form = self.fields.form
        values = dict(form.values)
        row = form.row(form.opened)
        if row is not None and (form.text or not row.field.secret):
            values[row.field.name] = form.text
        if row is not None and form.text == row.start:
            values.pop(row.field.name, None)
        edits = self._edits
        self._lane.ask(
            lambda: forms.judge(opened, values, snapshot),
            lambda judged, error: self._told(edits, opened, judged, error),
        )
        self.preview.busy = True
        self.preview.again()

    def _told(self, edits: int, opened: Opened, judged: Judged | None, error: str) -> None:
        if opened is not self._opened or edits != self._edits:
            return
        self.judged = judged
        self.preview.judged, self.preview.error = judged, error
        if judged is not None:
            self.fields.judged(judged)
            self._let_go(judged)
        self._show()
        if self._wanted:
            self.plan()

    def _let_go(self, judged: Judged) -> None:
        """After a plan was carried out its values are what is so: they need not be typed any more."""
        if not self._fresh:
            return
        self._fresh = False
        told = {one.name for one in judged.remarks if one.sign == "fail"}
        form = self.fields.form
        done = [name for name in form.values if name not in judged.changed | told]
        if done:
            form.reset(done)
        form.notes = tuple(note for note in form.notes if note.name in form.values or note.name in told)

    # ------------------------------------------------------------------------------------------------------------ keys

    def on_line_view_cursor_moved(self) -> None:
        self.fields.again()

    def open_chosen(self) -> None:
        """`enter`: open the field under the cursor."""
        if self.focused is not self.fields:
            self.set_focus(self.fields, scroll_visible=False)
            return
        why = self.fields.open_field()
        if why:
            self.app_.tell(why)

    def step_out(self) -> bool:
        if super().step_out():
            return True
        if self.focused is self.preview:
            self.set_focus(self.fields, scroll_visible=False)
            return True
        self._about = None  # what was typed may be a secret: it goes with the screen
        self._empty()
        return False

    def why_no_plan(self) -> str | None:
        """Why `A` would ask for nothing."""
        look = self.fields.look
        if look is None:
            return self.fields.error or "the box is being looked at"
        for one in self.judged.remarks if self.judged else ():
            if one.sign == "fail":
                return f"nothing is asked for: {one_line(one.text, 300)}"
        if look.needs_change and self.judged is not None and not self.judged.wishes:
            return "nothing is changed yet: enter opens the field under the cursor"
        return self.preview.error or None

    def plan(self) -> None:
        """`A`: ask for the plan of what was changed, as soon as that is judged."""
        self._wanted = self.judged is None and not self.preview.error
        if self._wanted:
            return
        why = self.why_no_plan()
        wish = None if why is not None or self.judged is None else self._wish(self.judged.wishes)
        if wish is None:
            self.app_.tell(why or "nothing is changed yet: enter opens the field under the cursor")
            return
        self.app_.acting.request(Request(wish.action, wish.target, wish.values, wish.identity))

    def _wish(self, wishes: tuple[Wish, ...]) -> Wish | None:
        """The one of the field under the cursor, else the first: some forms hold several changes."""
        if len(wishes) > 1:
            more = "1 more change" if len(wishes) == 2 else f"{len(wishes) - 1} more changes"
            self.app_.tell(f"each setting has a plan of its own: {more} after this, with A again")
        here = [one for one in wishes if self.fields.cursor in one.names]
        return next(iter((*here, *wishes)), None)


# ------------------------------------------------------------------------------------------------------------- commands


class FormPlan(Act):
    """Make the plan of what was changed in the form; only changed fields are sent, and not before its Yes."""

    ID, KEYS, LABEL, SCOPE = "form.plan", ("A",), "plan", "form"

    def why_not(self, app: ConsoleApp) -> str | None:
        return app.box.why_no_plan() if isinstance(app.box, FormScreen) else "this works in a form only"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, FormScreen):
            app.box.plan()


class _OnForm(Command):
    """Base of what changes a value in the form."""

    SCOPE, KIND = "form", "form"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if isinstance(app.box, FormScreen) else "this works in a form only"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, FormScreen):
            why = self.on_form(app.box)
            if why:
                app.tell(why)

    def on_form(self, screen: FormScreen) -> str:
        """Do it; "" or why it cannot be done."""
        raise NotImplementedError


class Less(_OnForm):
    """The value before, where a field has steps."""

    ID, KEYS, LABEL = "form.less", ("left",), "step"

    def on_form(self, screen: FormScreen) -> str:
        return screen.fields.step(-1)


class More(_OnForm):
    """The next value, where a field has steps."""

    ID, KEYS, LABEL = "form.more", ("right",), "step"

    def on_form(self, screen: FormScreen) -> str:
        return screen.fields.step(1)
