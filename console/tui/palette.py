"""What the command palette (`:`) offers: every command by name, the screens, the themes, the mouse."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from console.tui import acts, commands, terminal
from console.tui.screens import SCREENS

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


def palette_entries(app: ConsoleApp) -> Iterator[SystemCommand]:
    """All entries that make sense on the present screen."""
    for command in (*commands.in_scope(app.box.NAME), *commands.in_scope(commands.EVERYWHERE)):
        keys = " ".join(commands.shown(key) for key in command.KEYS)
        run = partial(app.action_command, command.ID)
        yield SystemCommand(f"{command.LABEL} ({command.ID})", f"{command.help()} {keys}", run)
    for one in SCREENS:
        if one.digit:
            yield SystemCommand(f"goto {one.title}", f"Screen {one.digit}.", partial(app.go, one.name))
    yield SystemCommand("audit", "Every change, who made it, what came of it; undo there.", partial(app.go, "audit"))
    yield SystemCommand("running", "The steps of what is being changed now.", app.acting.show_running)
    yield SystemCommand("interrupted", "Changes that broke off: finish or undo them.", app.acting.tell_broken)
    for name, what, told in acts.UNKEYED:
        yield SystemCommand(f"{name} ({what})", told, partial(acts.run_unkeyed, app, name))
    yield SystemCommand("silence", "No bell, notice or hook of alerts for a time; 0 ends it.", app.alarms.ask_silence)
    for name in sorted(app.themes.found):
        yield SystemCommand(f"theme {name}", "How the console looks; kept.", partial(app.use_theme, name))
    yield SystemCommand("mouse", "Mouse on, off (off: the terminal selects text).", partial(_toggle_mouse, app))


def _toggle_mouse(app: ConsoleApp) -> None:
    app.tell(f"mouse {'on' if terminal.toggle_mouse(app._driver) else 'off'}")
