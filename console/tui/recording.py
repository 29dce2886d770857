"""Recording from the console: the hour in memory, `R`, and what the header says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from console.core import units
from console.tui.commands import Command, Kind
from console.tui.messages import MAX_WAITING

if TYPE_CHECKING:
    from console.clients.recorder import Recorder, State
    from console.core.model import LogLine, Snapshot
    from console.tui.app import ConsoleApp

MakeRecorder = Callable[[Path, str | None], "Recorder"]
"""Makes the recorder for a state folder, and the scene of a simulated box."""


class Recording:
    """The recorder of this console; none in a replay and in tests that want none."""

    def __init__(self, app: ConsoleApp, make: MakeRecorder | None) -> None:
        self.app = app
        self._make = make
        self.recorder: Recorder | None = None
        """None before the box is known."""
        self._lines: list[LogLine] = []
        self._told = ""
        self._was_on = False

    def line(self, line: LogLine) -> None:
        """A line of the container's log, for the next moment."""
        if self._make is not None and len(self._lines) < MAX_WAITING:
            self._lines.append(line)

    def moment(self, snapshot: Snapshot) -> None:
        """What is shown now; says once where recording ended by itself."""
        if self._make is None or not snapshot.seq:
            return
        if self.recorder is None:
            self.recorder = self._begun(self._make)
            if self.recorder is None:
                return
        lines, self._lines = self._lines, []
        self.recorder.put(snapshot, lines)
        self._tell(self.recorder.state)

    def _begun(self, make: MakeRecorder) -> Recorder | None:
        """The recorder, once it is known which box this is: what was only simulated lies apart."""
        session = self.app.session
        spec = session.spec
        return None if spec is None else make(spec.state_in(self.app.state.folder), session.simulated)

    def _tell(self, state: State) -> None:
        if state.why_off and state.why_off != self._told:
            self.app.notify(state.why_off, severity="error", timeout=20, markup=False)
        elif state.on and not self._was_on and state.file is not None:
            self.app.notify(f"recording into {state.file}, the last hour included", timeout=8, markup=False)
        self._told = state.why_off
        self._was_on = state.on and state.file is not None

    def toggle(self) -> None:
        """`R`."""
        recorder = self.recorder
        if recorder is None:
            self.app.tell("nothing is read yet: try again in a second")
            return
        if recorder.state.on:
            self.app.tell(f"recording ended: {units.size(recorder.state.written)} in {recorder.folder}")
        self._told = ""
        recorder.switch(not recorder.state.on)

    @property
    def off(self) -> bool:
        """True where there is nothing to record."""
        return self._make is None

    @property
    def on(self) -> bool:
        """Whether files are written."""
        return self.recorder is not None and self.recorder.state.on

    def word(self, wall: float) -> str:
        """For the header: `REC 1h04 38 MiB`; "" while nothing is written."""
        if self.recorder is None or not self.recorder.state.on:
            return ""
        state = self.recorder.state
        since = 0.0 if state.since is None else wall - state.since
        return f"REC {units.uptime(since)} {units.size(state.written)}"

    def close(self) -> None:
        """The console ends: what was recorded is put on the disk."""
        if self.recorder is not None:
            self.recorder.close(1.0)


class ToggleRecord(Command):
    """Record on, off: writes the last hour and what follows to files that `gpuconsole replay` shows."""

    ID, KEYS, LABEL = "record", ("R",), "record"
    KIND: ClassVar[Kind] = "safe"

    def why_off(self, app: ConsoleApp) -> str | None:
        return "this session is not recorded" if app.recording.off else None

    def run(self, app: ConsoleApp) -> None:
        app.recording.toggle()
