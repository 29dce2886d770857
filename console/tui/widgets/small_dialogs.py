"""Small dialogs: a question with two buttons, one line to type, one of several to choose."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from console.core.text import one_line
from console.tui.widgets.cells import cut
from console.tui.widgets.dialog import MOST_FIELD, Button, Content, Dialog, Field
from console.tui.widgets.lines import Row

BLANK = Row(())


class Sure(Dialog[bool]):
    """A question; the focus is on No."""

    WIDTH = 84

    def __init__(self, heading: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self.HEADING = heading
        self._lines, self._yes = lines, yes

    def content(self, width: int) -> Content:
        return Content(body=[Row(((cut(one_line(line), width), ""),)) for line in self._lines], foot=[BLANK])

    def buttons(self) -> tuple[Button, ...]:
        return (Button("no", "No"), Button("yes", self._yes))

    def pressed(self, name: str) -> None:
        self.dismiss(name == "yes")


class Typed(Dialog[str]):
    """One line of text; ends with it, or with "" for none."""

    WIDTH = 84

    def __init__(self, heading: str, lines: Sequence[str], prompt: str, text: str, yes: str) -> None:
        super().__init__()
        self.HEADING = heading
        self._lines, self._yes = lines, yes
        self.field = Field(prompt, text, MOST_FIELD)
        self.focus_on = "field"

    def content(self, width: int) -> Content:
        return Content(body=[Row(((cut(one_line(line), width), "dim"),)) for line in self._lines], foot=[BLANK])

    def buttons(self) -> tuple[Button, ...]:
        return (Button("no", "No"), Button("yes", self._yes, "" if self._text() else "nothing is typed"))

    def _text(self) -> str:
        return "" if self.field is None else self.field.text.strip()

    def submitted(self, text: str) -> None:
        self.dismiss(text.strip())

    def pressed(self, name: str) -> None:
        self.dismiss(self._text() if name == "yes" else "")


class Choice(Dialog[str]):
    """One of several rows; ends with its key, or with "" for none. Only planning follows, so a row may have focus."""

    WIDTH = 84

    def __init__(self, heading: str, rows: Sequence[Row], first: str) -> None:
        super().__init__()
        self.HEADING = heading
        self._rows = rows
        self.focus_on = first

    def content(self, width: int) -> Content:
        return Content(body=self._rows, foot=[BLANK], hint="enter chooses   esc = No")

    def buttons(self) -> tuple[Button, ...]:
        return (Button("no", "No"),)

    def row_chosen(self, key: Hashable) -> None:
        self.dismiss(str(key))

    def pressed(self, name: str) -> None:
        self.dismiss("")
