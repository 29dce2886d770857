"""Help (`?`): the keys that work on the screen below, and why the grey ones do not."""

from __future__ import annotations

from collections.abc import Iterable

from textual.geometry import Region

from console.tui import commands
from console.tui.panes.base import Pane, View
from console.tui.screens.base import BoxScreen, Places
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row


class HelpPane(Pane):
    """One row for each command of the screen below."""

    TICKS = False

    def __init__(self) -> None:
        super().__init__(id="help")
        self.listed: tuple[commands.Listed, ...] = ()
        """The commands of the screen below, as they stood when help was opened."""

    def title(self, view: View) -> Line:
        return (("Keys", "title"), ("   of this screen and everywhere; grey: does not work now", "dim"))

    def note(self, view: View) -> Line:
        return (("esc back", "dim"),)

    def filterable(self) -> bool:
        return True

    def lines(self, view: View) -> list[Row]:
        rows: list[Row] = []
        scope = ""
        for where, command, why in self.listed:
            keys = " ".join(commands.shown(key) for key in command.KEYS)
            if not self.wanted(f"{keys} {command.help()}"):
                continue
            if where != scope:
                rows += [Row((("", ""),))] * bool(rows) + [Row(((where, "title"),))]
                scope = where
            told = command.help() if why is None else f"{command.help()}  ({why})"
            style = "text" if why is None else "dim"
            rows.append(Row(((left(keys, 16), "key" if why is None else "dim"), (told, style)), command.ID))
        return rows


class HelpScreen(BoxScreen):
    """Keys that work here, and why the grey ones do not."""

    NAME = "help"
    FOOTER = ("filter", ("escape", "back"))

    def make_panes(self) -> Iterable[Pane]:
        yield HelpPane()

    def place(self, body: Region) -> Places:
        return {"help": body}

    def on_screen_resume(self) -> None:
        pane = self.panes.get("help")
        if isinstance(pane, HelpPane):
            pane.listed = self.app_.help_listed
            pane.again()

    def open_chosen(self) -> None:
        """`enter` runs the command on the screen below."""
        pane = self.panes["help"]
        if isinstance(pane.cursor, str):
            self.app_.back(quit_on_overview=False)
            self.app_.call_after_refresh(self.app_.action_command, pane.cursor)
