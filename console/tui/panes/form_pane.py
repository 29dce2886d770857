"""A pane that shows a Form and gives it the keys while one of its fields is open."""

from __future__ import annotations

from textual import events
from textual.message import Message

from console.tui.panes.base import Pane, View
from console.tui.widgets.form import Form, FormRow
from console.tui.widgets.lines import Row


class FormPane(Pane):
    """Base of all panes with a form; the cursor sits on a field's name."""

    FIELDS = ()
    PINNED = 1

    class Edited(Message):
        """A value of the form changed, or a field was opened or left."""

        def __init__(self, pane: FormPane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.form = Form()

    def lines(self, view: View) -> list[Row]:
        return self.form.lines(view.width)

    @property
    def here(self) -> FormRow | None:
        """The row under the cursor."""
        return self.form.row(self.cursor)

    # ----------------------------------------------------------------------------------------------------------- keys

    def step(self, by: int) -> str:
        """← →: "" or why the value cannot be stepped."""
        return self._edited(self.form.step(self.cursor, by))

    def open_field(self) -> str:
        """`enter`: "" or why the field cannot be opened."""
        return self._edited(self.form.open(self.cursor))

    def leave_field(self) -> bool:
        """`esc`: False when no field is open."""
        if self.form.opened is None:
            return False
        self.form.close(take=False)
        self._edited("")
        return True

    def _edited(self, why_not: str) -> str:
        if not why_not:
            self.again()
            self.post_message(self.Edited(self))
        return why_not

    def on_key(self, event: events.Key) -> None:
        """While a field is open its letters are text, and no key of the screen works."""
        if self.form.opened is None:
            return
        event.stop()
        event.prevent_default()
        answer = self.form.key(event.key, event.character)
        if answer == "moved" and event.key in ("up", "down"):
            self.move(1 if event.key == "down" else -1)
        if answer:
            self._edited("")

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text is text for the open field; elsewhere it would be keys that nobody pressed."""
        event.stop()
        if self.form.opened is not None:
            self.form.type(event.text.strip())
            self._edited("")

    def on_click(self, event: events.Click) -> None:
        """A click takes what is typed (Textual then calls the base's own handler)."""
        self._take()

    def on_blur(self) -> None:
        self._take()

    def _take(self) -> None:
        if self.form.opened is not None:
            self.form.close(take=True)
            self._edited("")

    def _reveal(self, number: int) -> None:
        """With the heading above the row and the sentences under it, as far as there is room."""
        first = last = number
        while first - 1 >= self.pinned and self.rows[first - 1].key is None and number - first < 1:
            first -= 1
        while last + 1 < len(self.rows) and self.rows[last + 1].key is None and last - number < self.room - 1:
            last += 1
        for wanted in (last, first, number):
            super()._reveal(wanted)
