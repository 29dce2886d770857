"""Opens the console: first the frame, then what reads the box.

Only what draws is imported before the first paint; sources and their libraries (Podman, protobuf, NVML) are imported in
the session's own thread after it, and the simulated box is started there too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.core.plan import WrongInput
from console.core.session import Later, Session
from console.tui import terminal
from console.tui.run import run

if TYPE_CHECKING:
    from console.clients.recorder import Recorder
    from console.config import Settings
    from console.core.history import History
    from console.core.model import Asked, Snapshot, Verdict


def no_terminal(environ: Mapping[str, str] = os.environ) -> str | None:
    """Why the console cannot open here (no terminal, TERM=dumb), as one sentence; None when it can."""
    return terminal.capable(environ)


class LateJudge:
    """Why, which is loaded in the session's thread: it has nothing to say before something was read."""

    def __init__(self) -> None:
        self.why: Any = None

    def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
        """See advisors.why.Why."""
        if self.why is None:
            return ()
        verdicts: tuple[Verdict, ...] = self.why.evaluate(snapshot, history, asked)
        return verdicts


def unknown_theme(name: str) -> str | None:
    """Why `name` is no theme, as one sentence; None when it is one."""
    from console.tui.run import theme_names

    known = theme_names()
    return None if name in known else f"there is no theme {name!r}: choose one of {', '.join(known)}"


def open_console(settings: Settings, *, demo: str | None = None, seed: int | None = None) -> int:
    """Open the console and stay until it ends; returns the exit code."""
    opened = contextlib.ExitStack()
    judge = LateJudge()

    def make() -> Session:
        from console import compose

        judge.why = compose.judge()
        return opened.enter_context(compose.session(settings, demo=demo, seed=seed, checks=True))

    with opened:
        return run(
            Later(make, simulated=demo),
            theme=settings.ui.theme or None,
            ascii_only=settings.ui.ascii,
            utc=settings.ui.utc,
            read_only=settings.safety.read_only,
            mouse=settings.ui.mouse,
            judge=judge,
            make_recorder=lambda state, simulated: recorder_for(settings, state, simulated),
            alerts=settings.alerts,
        )


def recorder_for(settings: Settings, state: Path, simulated: str | None) -> Recorder:
    """The recorder of a console, as the settings want it."""
    from console.clients.recorder import FOLDER, Recorder

    folder = Path(settings.recording.folder).expanduser() if settings.recording.folder else state / FOLDER
    return Recorder(folder, settings.recording.limit_mib << 20, simulated=simulated)


def open_replay(place: Path, at: str, settings: Settings) -> int:
    """Show a recording, or that of a bundle, until the operator quits; the exit code. WrongInput for what is none, and
    for a time that it has not."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-") as scratch:
        return _open_replay(place, Path(scratch), at, settings)


def _open_replay(place: Path, scratch: Path, at: str, settings: Settings) -> int:
    from console.bundle.archive import SUFFIX, recording_of
    from console.clients.recording import UnreadableError
    from console.sources.replay import Player
    from console.tui.playback import Playback

    try:
        player = Player(recording_of(place, scratch) if place.name.endswith(SUFFIX) else place)
    except UnreadableError as error:
        raise WrongInput(str(error)) from None
    except OSError as error:
        what = "a file or folder of `record`, or a bundle"
        raise WrongInput(f"{place} cannot be read ({error.strerror}): give {what}") from None
    try:
        playback = Playback(player)
        if at and (why := playback.go_to_time(at, utc=settings.ui.utc)):
            raise WrongInput(f"--at: {why}")
        return run(
            Session((), simulated=player.scene),
            theme=settings.ui.theme or None,
            ascii_only=settings.ui.ascii,
            utc=settings.ui.utc,
            read_only=True,
            mouse=settings.ui.mouse,
            playback=playback,
        )
    finally:
        player.close()
