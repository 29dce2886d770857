"""RunningDialog (design 1.13): the steps of a running change with their times; esc hides it, ctrl+c asks to stop it."""

from __future__ import annotations

import time
from typing import Literal

from console.core import units
from console.tui.desk import Following
from console.tui.panes.running_lines import acting_word, head_rows, running_rows
from console.tui.widgets.dialog import Button, Content, Dialog
from console.tui.widgets.lines import Row

BLANK = Row(())
Wish = Literal["hide", "stop", "undo"]
ALONE = "Without a terminal the runner goes on by itself."


class RunningDialog(Dialog[Wish]):
    """Ends with what the operator wishes: that it be hidden, stopped, or (when it has ended) taken back."""

    HEADING = "Running"

    def __init__(self, following: Following, *, utc: bool, asking: bool = False) -> None:
        super().__init__()
        self.following = following
        self.asking = asking
        """True while it asks whether to stop."""
        self._utc = utc

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(1.0, self.redraw)

    def told(self, following: Following) -> None:
        """The journal has more lines."""
        ended = self.running and (following.outcome is not None or not following.alive)
        self.following = following
        if ended:
            self.asking, self.focus_on = False, "no"
            self.appear()
        self.redraw()

    @property
    def running(self) -> bool:
        """True while its runner works on it."""
        return self.following.outcome is None and self.following.alive

    @property
    def _undoable(self) -> bool:
        outcome = self.following.outcome
        return outcome is not None and outcome.undo is not None

    # ------------------------------------------------------------------------------------------------------- drawing

    def content(self, width: int) -> Content:
        now = self.following
        hint = "ctrl+c: stop and go back" if self.running else ""
        head = head_rows(now, width, hint, utc=self._utc)
        body = running_rows(now, time.time(), width, utc=self._utc)
        foot = [BLANK]
        if self.asking:
            foot.append(Row((("stop it and go back to what was before?", "warn"),)))
        elif self.running:
            word = acting_word(now, now.began).split(",")[0]
            told = f"esc hides this (header: {word}). {ALONE}"
            foot.append(Row(((told if len(told) <= width else f"esc hides this. {ALONE}", "dim"),)))
        return Content([*head, BLANK], body, foot, "" if self.running else "u  undo" if self._undoable else "")

    def buttons(self) -> tuple[Button, ...]:
        if self.asking:
            return (Button("no", "No, go on"), Button("stop", "Stop"))
        return (Button("no", "Hide" if self.running else "Close"),)

    # ---------------------------------------------------------------------------------------------------------- keys

    def refuse(self, key: str) -> None:
        if key == "ctrl+c" and self.running and not self.asking:
            self.asking, self.focus_on = True, "no"
            self.redraw()
            return
        if self.asking:
            self.pressed("no")
        elif key != "n":
            self.dismiss("hide")

    def pressed(self, name: str) -> None:
        if name == "stop":
            self.dismiss("stop")
        elif self.asking:
            self.asking, self.focus_on = False, "no"
            self.redraw()
        else:
            self.dismiss("hide")

    def letter(self, key: str) -> bool:
        if key == "u" and self._undoable:
            self.dismiss("undo")
            return True
        return False

    def copied(self) -> str:
        outcome = self.following.outcome
        lines = [self.following.plan.title]
        lines += [f"{units.clock(line.wall)} {line.state} {line.phase} {line.text}" for line in self.following.lines]
        return "\n".join(lines if outcome is None else [*lines, f"{outcome.word}: {outcome.text}", *outcome.lines])
