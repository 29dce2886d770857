"""Runs the full-screen console over a Session and leaves the terminal as it was. Called by the command line."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.config import state_dir
from console.core.session import Session
from console.tui import terminal
from console.tui.signs import Charset
from console.tui.state import State, themes_dir

if TYPE_CHECKING:
    from console.config import Alerts
    from console.tui.app import Judge
    from console.tui.playback import Playback
    from console.tui.recording import MakeRecorder
    from console.tui.theme import Themes

LEAVE_WITHIN = 1.8
"""Seconds from the wish to quit to the end of the process, whatever hangs."""
STOP_WITHIN = 0.5
"""Seconds that the sources' threads have to end by themselves; they are daemons."""


def run(
    session: Session,
    *,
    theme: str | None = None,
    ascii_only: bool = False,
    utc: bool = False,
    read_only: bool = False,
    mouse: bool = False,
    judge: Judge | None = None,
    host: str | None = None,
    make_recorder: MakeRecorder | None = None,
    playback: Playback | None = None,
    alerts: Alerts | None = None,
) -> int:
    """Show the console until the operator quits; the exit code. Ask `terminal.capable()` first.

    `theme` must be one of `theme_names()`; None takes the remembered one, else one that suits the terminal.
    """
    terminal.prepare()
    guard = terminal.Guard()
    charset = terminal.charset(terminal.as_started(), ascii_wanted=ascii_only)
    probe = terminal.WidthProbe() if charset is Charset.UNICODE else None
    from console.tui import crash
    from console.tui.app import ConsoleApp
    from console.tui.late_desk import LateDesk
    from console.tui.late_loads import LateLoads
    from console.tui.theme import folders, load

    threading.excepthook = crash.log_thread
    terminal.harden_input()
    state = State(state_dir())
    themes = load(folders(themes_dir()))
    app = ConsoleApp(
        session,
        themes,
        state,
        theme=chosen_theme(theme, state.get("theme"), themes, os.environ),
        charset=Charset.NARROW if probe is not None and probe.cells() == 2 else charset,
        utc=utc,
        read_only=read_only,
        judge=judge,
        host=host,
        desk=LateDesk(session, state.folder) if playback is None else None,
        doors=LateLoads(session, state.folder) if playback is None else None,
        make_recorder=make_recorder,
        playback=playback,
        alerts=alerts,
    )
    app.leaving = lambda code: guard.end_within(LEAVE_WITHIN, code)
    try:
        app.run(mouse=mouse)
    finally:
        session.stop(STOP_WITHIN)
        guard.restore()
        if terminal.is_lost():
            terminal.let_go()
    code = app.return_code or 0
    guard.end_within(LEAVE_WITHIN, code)
    return code


def theme_names() -> tuple[str, ...]:
    """Names that `--theme` takes."""
    from console.tui.theme import folders, load

    return tuple(sorted(load(folders(themes_dir())).found))


def chosen_theme(wanted: str | None, kept: str | None, themes: Themes, environ: Mapping[str, str]) -> str:
    """NO_COLOR over all; then what was asked for, what was kept, and what suits: over SSH the terminal's own colours
    (fewest bytes), else the default."""
    if environ.get("NO_COLOR") and "mono" in themes.found:
        return "mono"
    for name in (wanted, kept):
        if name is not None and name in themes.found:
            return name
    from console.tui.theme import DEFAULT, DEFAULT_ANSI

    poor = environ.get("TERM", "") in ("linux", "vt100", "vt220", "xterm", "screen") and not environ.get("COLORTERM")
    ansi = environ.get("SSH_CONNECTION") or poor
    return DEFAULT_ANSI if ansi and DEFAULT_ANSI in themes.found else DEFAULT
