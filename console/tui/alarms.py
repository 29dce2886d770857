"""Alerts on the screen: count for the header, events for Timeline, bell and desktop notices, the silence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from console.core import units
from console.core.duration import seconds
from console.core.model import Event, Snapshot
from console.core.plan import WrongInput
from console.core.text import one_line

if TYPE_CHECKING:
    from console.alerts.engine import Alert
    from console.alerts.watch import Watch
    from console.config import Alerts
    from console.tui.app import ConsoleApp

LONGEST_SILENCE = 7 * 86400.0
MOST_NOTICE = 120


class Alarms:
    """The app's side of a Watch. Without settings (replay, a recorded box) there are none."""

    def __init__(self, app: ConsoleApp, settings: Alerts | None, emit: Callable[[Event], None]) -> None:
        """`emit` takes events from any thread."""
        self._app = app
        self._emit = emit
        self._settings = settings
        self.watch: Watch | None = None

    def begin(self) -> None:
        """After the first paint: what judges is imported here."""
        if self._settings is None:
            return
        from console.alerts.watch import Watch

        app = self._app
        simulated = app.session.simulated is not None
        folder = app.state.folder / "simulated" if simulated else app.state.folder
        self.watch = Watch(self._settings, folder, app.host, failed=self._emit, hooks=not simulated)

    def look(self, snapshot: Snapshot) -> bool:
        """Judge this moment when it is time to; True when that made events."""
        if self.watch is None or not self.watch.is_due(snapshot.mono):
            return False
        seen = self.watch.look(snapshot, self._app.store.history)
        for event in seen.events:
            self._app.store.add_event(event)
        if seen.news.began:
            self._ring(seen.news.began)
        return bool(seen.events)

    def words(self, wall: float) -> tuple[str, str]:
        """For the header, long and short: `ALERT 2`, `ALERT 2 silent`, `alerts silent`; "" where there is nothing."""
        if self.watch is None:
            return "", ""
        count, silent = len(self.watch.active), wall < self.watch.silent_until
        if not count:
            return ("alerts silent", "") if silent else ("", "")
        return f"ALERT {count}{' silent' if silent else ''}", f"A{count}{'s' if silent else ''}"

    def _ring(self, began: tuple[Alert, ...]) -> None:
        if self._settings is None:
            return
        if self._settings.bell:
            self._app.bell()
        driver = self._app._driver
        if self._settings.desktop and driver is not None:
            more = f" and {len(began) - 1} more" if len(began) > 1 else ""
            text = f"{self._app.host}: {began[0].text}{more}"
            driver.write(notice(self._settings.desktop, text, os.environ))

    def ask_silence(self) -> None:
        """`:silence`: for how long."""
        from console.tui.widgets.small_dialogs import Typed

        lines = ("No bell, no desktop notice and no hook, in any gpuconsole of this user.", "The screen goes on.")
        dialog = Typed("Silence alerts", lines, "for (30m, 2h; 0 ends it):", "1h", "Silence")
        self._app.push_screen(dialog, lambda text: self.be_silent(text) if text else None)

    def be_silent(self, text: str) -> None:
        """For this time from now; what cannot be is one notice."""
        app, watch = self._app, self.watch
        if watch is None:
            app.tell("there are no alerts here to silence")
            return
        try:
            length = seconds(text, "the silence")
            if not 0 <= length <= LONGEST_SILENCE:
                raise WrongInput(f"the silence must be from 0 to {LONGEST_SILENCE / 86400:.0f} days")
            until = time.time() + length
            watch.be_silent(until if length else 0.0)
        except WrongInput as error:
            app.tell(one_line(str(error), 200))
            return
        except OSError as error:
            app.tell(f"the silence cannot be kept in {app.state.folder}: {error.strerror}")
            return
        app.tell(f"alerts are silent until {units.clock(until, utc=app.utc)}" if length else "alerts are told again")
        app.refresh_now()


def notice(kind: str, text: str, environ: Mapping[str, str]) -> str:
    """The escape sequence of a desktop notice. tmux hands it on where `allow-passthrough` is on."""
    plain = one_line(text, MOST_NOTICE).replace(";", ",")
    told = f"\x1b]9;{plain}\x07" if kind == "osc9" else f"\x1b]777;notify;gpuconsole;{plain}\x07"
    if environ.get("TMUX"):
        return "\x1bPtmux;" + told.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return told
