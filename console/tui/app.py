"""The application: starts the session, folds Readings into the Store, shows a Snapshot a second, routes commands."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from textual.app import SystemCommand
from textual.binding import BindingsMap
from textual.screen import Screen

import console.tui.acts
import console.tui.export_acts
import console.tui.form_acts
import console.tui.jumps
import console.tui.shell_act  # noqa: F401  (all register their commands)
from console.core.history import History
from console.core.model import PART_FIELDS, Asked, Event, Gaps, LogLine, ModelKey, Reading, Snapshot, Verdict
from console.core.session import Session
from console.core.store import Store, rows_named
from console.core.text import one_line
from console.tui import commands
from console.tui.acting import Acting, FromThread
from console.tui.alarms import Alarms
from console.tui.careful import CarefulApp
from console.tui.cost import OwnCost
from console.tui.days import ALWAYS_ON, Days
from console.tui.desk import Desk
from console.tui.load_acts import StopLoad
from console.tui.loads import Doors, Loads
from console.tui.messages import TOO_FAST, AskEnded, Inbox, ItemsWaiting, LogBuffer, ReadingArrived
from console.tui.palette import palette_entries
from console.tui.panes import bring_up
from console.tui.panes.base import Pane, View
from console.tui.panes.header import Status
from console.tui.panes.wording import asked
from console.tui.playback import Playback, off_in_replay
from console.tui.recording import MakeRecorder, Recording
from console.tui.screens import SCREENS, entry
from console.tui.screens.base import BoxScreen
from console.tui.signs import Charset
from console.tui.state import State
from console.tui.theme import DEFAULT, Look, Themes
from console.tui.widgets.dialog import Dialog
from console.tui.widgets.lines import LineView

if TYPE_CHECKING:
    from console.config import Alerts

JUDGE_EVERY = 5.0
WRITTEN_AFTER = 0.03
"""Seconds after the first paint in which a thread of Textual's writes it; imports beside it would hold that up."""
FIRST_SHOW_AFTER = 0.1
"""Seconds from a part's first Reading to its showing: at the start nobody waits for the next full second."""
ASKED = {
    "as kept": "answered as kept",
    "differs": "did not answer as kept",
    "answered": "answered",
    "no good answer": "did not answer",
    "not asked": "was not asked",
}
"""`wording.asked` -> the words of the notice."""


class Judge(Protocol):
    """Who says why: `advisors.why.Why`."""

    def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
        """All verdicts now, in the order of the screen."""


class ConsoleApp(CarefulApp):
    """gpuconsole over one Session."""

    ENABLE_COMMAND_PALETTE = True
    TITLE = "gpuconsole"
    CSS = """
    Screen { background: $background; overflow: hidden; }
    Dialog, AskTime { background: transparent; }
    ToastRack { margin-bottom: 1; }
    Toast { border: none; padding: 0 1; width: auto; max-width: 80%; }
    """

    def __init__(
        self,
        session: Session,
        themes: Themes,
        state: State,
        *,
        theme: str | None = None,
        charset: Charset = Charset.UNICODE,
        utc: bool = False,
        read_only: bool = False,
        judge: Judge | None = None,
        host: str | None = None,
        desk: Desk | None = None,
        doors: Doors | None = None,
        make_recorder: MakeRecorder | None = None,
        playback: Playback | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        super().__init__(state.folder)
        self._bindings = BindingsMap(commands.bindings(commands.EVERYWHERE))
        self.session = session
        self.judge = judge
        self.utc = utc
        self.read_only = read_only
        self.state = state
        self.themes = themes
        self.playback = playback
        """Recorded time; None in a console over a box."""
        self.store: Store = Store() if playback is None else playback.store
        self.recording = Recording(self, make_recorder)
        self.days = Days(self, self._day_folders if make_recorder is not None or playback is not None else None)
        self.acting = Acting(self, desk)
        self.loads = Loads(self, doors)
        self.alarms = Alarms(self, alerts, self._emit)
        self.log_lines = LogBuffer()
        self.answers: dict[str, Asked] = {}
        """The newest answer of each model asked in this session, by name."""
        self.asking: str | None = None
        """Name of the model that is being asked now."""
        self.chosen: ModelKey | None = None
        """The model version that details, trends, log and ask are about; None = the busiest."""
        self.help_listed: tuple[commands.Listed, ...] = ()
        """What the help screen is to list."""
        self.event: float | None = None
        """Time of the event that Timeline is to open at."""
        self.record: str | None = None
        """Id of the change that the audit is to open at."""
        self.gpu = 0
        self.host = host or socket.gethostname()
        self.look = Look(themes.found[DEFAULT], charset)
        self._inbox = Inbox()
        self._cost = OwnCost()
        self._status = Status(self.host)
        self._held: View | None = None
        self._judged = 0.0
        self._seen: set[str] = set()
        """Parts that were shown at least once."""
        self._soon = False
        self._led = False
        self.use_theme(theme or DEFAULT, keep=False)

    # ------------------------------------------------------------------------------------------------ life and death

    def get_default_screen(self) -> Screen[Any]:
        return entry("overview").load()()

    def on_mount(self) -> None:
        for problem in self.themes.problems[:1]:
            self.notify(problem, severity="warning", markup=False)
        self.watch_terminal()
        self.set_interval(1.0, self.refresh_now)
        self.call_after_refresh(self.set_timer, WRITTEN_AFTER, self._begin)
        self.refresh_now()

    def _begin(self) -> None:
        """Start reading, after the first paint: the operator sees the frame at once."""
        self.session.start(self._publish, self._emit)
        self.acting.begin()
        self.loads.begin()
        self.alarms.begin()
        for one in SCREENS:
            one.load()

    def _publish(self, reading: Reading[Any]) -> None:
        self.post_message(ReadingArrived(reading))

    def _emit(self, item: Any) -> None:
        if self._inbox.put(item):
            self.post_message(ItemsWaiting())

    def now(self) -> tuple[float, float]:
        """(wall, monotonic) time, in a replay the recorded one."""
        return (time.time(), time.monotonic()) if self.playback is None else self.playback.now()

    def _day_folders(self) -> tuple[Path, ...]:
        """Where minutes of the last days may lie; () while that is not known."""
        if self.playback is not None:
            place = self.playback.player.place
            return (place if place.is_dir() else place.parent,)
        recorder = self.recording.recorder
        if recorder is None:
            return ()
        return (recorder.folder,) if self.session.simulated is not None else (recorder.folder, ALWAYS_ON)

    def back(self, *, quit_on_overview: bool) -> None:
        """One screen back; on the Overview quit (where that is wanted)."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif quit_on_overview and self.loads.may_quit() and self.acting.may_quit():
            self.exit()

    def on_unmount(self) -> None:
        self.acting.close()
        self.recording.close()
        self.loads.close()

    # ------------------------------------------------------------------------------------------------------ messages

    def on_reading_arrived(self, message: ReadingArrived) -> None:
        self.store.apply(message.reading)
        if message.reading.part not in self._seen and not self._soon:
            self._soon = True
            self.set_timer(FIRST_SHOW_AFTER, self._show_soon)

    def on_from_thread(self, message: FromThread) -> None:
        message.call()

    def _show_soon(self) -> None:
        self._soon = False
        snapshot = self.store.snapshot(*self.now())
        self._seen.update(part for part in PART_FIELDS if snapshot.reading(part).tried)
        self.refresh_now()

    def on_items_waiting(self) -> None:
        for item in self._inbox.take():
            if isinstance(item, LogLine):
                self.log_lines.add(item)
                self.recording.line(item)
            elif isinstance(item, Event):
                self.store.add_event(item)

    @property
    def dropped(self) -> int:
        """Log lines and events that came faster than they could be taken in."""
        return self._inbox.dropped

    def on_ask_ended(self, message: AskEnded) -> None:
        answer = message.answer
        self.asking = None
        self.answers[answer.model] = answer
        took = "" if answer.millis is None else f" in {answer.millis:.1f} ms"
        told = f"{answer.model} {ASKED[asked(answer)[1]]}{took}: {one_line(answer.compared or answer.text, 300)}"
        severity = "information" if answer.good else "warning" if answer.ok is None else "error"
        self.notify(told, severity=severity, timeout=10, markup=False)  # type: ignore[arg-type]
        self.refresh_now()

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        if isinstance(message.key, ModelKey) and message.view.screen is self.screen:
            self.chosen = message.key

    # ------------------------------------------------------------------------------------------------------- showing

    def refresh_now(self) -> None:
        """Fold what arrived and show it. Called once a second, and after keys that change what is shown."""
        if not self.is_running or not self._screen_stack:
            return
        wall, mono = self.now()
        snapshot = self._judged_snapshot(wall, mono)
        if self.playback is not None:
            self.playback.take_log(self.log_lines)
        self.recording.moment(snapshot)
        self.days.look(wall)
        self._lead(snapshot)
        box = self.box
        if not box.ready:
            return
        live = View(
            snapshot,
            self.store.history,
            wall,
            mono,
            utc=self.utc,
            chosen=self.chosen,
            gpu=self.gpu,
            simulated=self.session.simulated,
            compact=box.compact,
        )
        view = live if self._held is None else self._held
        box.show(snapshot, view, self._new_status(box, wall))

    def _lead(self, snapshot: Snapshot) -> None:
        """Bring-up over the Overview, once, where a card is there and no server was ever seen; away when one is."""
        if not (snapshot.server.tried and snapshot.container.tried and snapshot.gpu.tried):
            return

        if self.screen is not self.box:
            return  # a dialog is open: nothing is put over it or taken from under it
        wanted = bring_up.wanted(snapshot)
        if wanted and not self._led and self.box.NAME == "overview":
            self._led = True
            self.go("bring_up")
        elif not wanted and self.box.NAME == "bring_up" and len(self.screen_stack) > 1:
            self.pop_screen()

    def _gaps(self) -> Gaps:
        gaps = self.session.gaps()
        if not self.dropped:
            return gaps
        return msgspec.structs.replace(gaps, dropped=((TOO_FAST, self.dropped), *gaps.dropped))

    def _judged_snapshot(self, wall: float, mono: float) -> Snapshot:
        self.store.set_gaps(self._gaps())
        snapshot = self.store.snapshot(wall, mono)
        if snapshot.seq == 0:
            return snapshot
        if self.alarms.look(snapshot):
            snapshot = self.store.snapshot(wall, mono)
        if self.judge is None or mono - self._judged < JUDGE_EVERY:
            return snapshot
        self._judged = mono
        verdicts = self.judge.evaluate(snapshot, self.store.history, self.answers)
        if verdicts == snapshot.verdicts:
            return snapshot
        self.store.set_verdicts(verdicts)
        return self.store.snapshot(wall, mono)

    def _new_status(self, box: BoxScreen, wall: float) -> Status:
        return Status(
            self._host_shown,
            self._cost.cpu_pct(),
            self._cost.memory(),
            paused_wall=None if self._held is None else self._held.wall,
            read_only=self.read_only and self.playback is None,
            wall=wall,
            details=box.has_tabs,
            acting=self.acting.word(time.time()),
            recording=self.recording.word(wall),
            records=not self.recording.off,
            replay="" if self.playback is None else self.playback.word(utc=self.utc),
            replay_short="" if self.playback is None else self.playback.short,
            load=self.loads.words(time.time()),
            alerts=self.alarms.words(time.time()),
        )

    @property
    def _host_shown(self) -> str:
        """In a replay the recorded box's name."""
        recorded = None if self.playback is None else self.box.snapshot.host.value
        return self.host if recorded is None else one_line(recorded.hostname, 60) or self.host

    def toggle_hold(self) -> None:
        """`p`: hold what is on the screen; measuring goes on."""
        pane = next(iter(self.box.panes.values()), None)
        self._held = pane.view if self._held is None and pane is not None else None
        self.refresh_now()

    # ------------------------------------------------------------------------------------------------------ commands

    @property
    def box(self) -> BoxScreen:
        """The screen that is shown, as far as it is one of ours (the palette may lie over it)."""
        return next(one for one in reversed(self.screen_stack) if isinstance(one, BoxScreen))

    @property
    def box_below(self) -> BoxScreen | None:
        """The screen under the one that is shown."""
        boxes = [one for one in self.screen_stack if isinstance(one, BoxScreen)]
        return boxes[-2] if len(boxes) > 1 else None

    @property
    def pane(self) -> Pane | None:
        """The pane that has the keys."""
        return self.box.focused_pane

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Over a dialog no key is a command: Textual asks an app's priority keys (ctrl+c, ctrl+q) before any screen.
        What stops a load works everywhere."""
        return action != "command" or not isinstance(self.screen, Dialog) or parameters == (StopLoad.ID,)

    def action_command(self, name: str) -> None:
        """Run a command, or say why it does not work here."""
        command = commands.COMMANDS[name]()
        why = off_in_replay(self, command.KIND, command.ID) or command.why_off(self)
        if why is not None:
            self.tell(why)
            return
        command.run(self)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from palette_entries(self)

    def go(self, name: str) -> None:
        """Show a screen. One with a digit stands directly over the Overview; others stand over the present one."""
        if name == self.box.NAME:
            return
        digit = entry(name).digit
        while len(self.screen_stack) > 1 and (digit or name == self.box.NAME):
            self.pop_screen()
        if name != self.box.NAME:
            if not self.is_screen_installed(name):
                self.install_screen(entry(name).load()(), name)
            self.push_screen(name)
        self._held = None

    def go_digit(self, digit: str) -> None:
        """Show the screen of this digit; nothing where there is none."""
        for one in SCREENS:
            if one.digit == digit:
                self.go(one.name)

    def show_record(self, id_: str) -> None:
        """The audit, at this change."""
        self.record = id_
        self.go("audit")

    def chosen_change(self) -> str | None:
        """Id of the change under the cursor, in Timeline and the audit; None elsewhere."""
        return self.box.chosen_change()

    def tell(self, text: str) -> None:
        """One short notice; literal text."""
        self.notify(text, timeout=3, markup=False)

    def tell_if_not(self, done: bool, why: str) -> None:
        """After a pane's answer: show anew what changed, or say why nothing did."""
        if not done:
            self.tell(why)
        elif self.pane is not None:
            self.pane.again()

    def chosen_key(self) -> ModelKey | None:
        """The model version that is chosen or, without a choice, the busiest."""
        wall, mono = self.now()
        view = View(self.store.snapshot(wall, mono), self.store.history, wall, mono, chosen=self.chosen)
        return None if view.model is None else view.model.key

    def choose_model(self, name: str | None) -> None:
        """Choose a model by name: its READY version, else its first."""
        rows = rows_named(self.store.snapshot(*self.now()).models, name or "")
        if rows:
            self.chosen = rows[0].key

    def use_theme(self, name: str, *, keep: bool = True) -> None:
        """Change how the console looks; an unknown name is one notice and changes nothing."""
        found = self.themes.found.get(name)
        if found is None:
            self.tell(f"there is no theme {name!r}; there are: {', '.join(sorted(self.themes.found))}")
            return
        self.look = Look(found, self.look.charset)
        if found.textual.name not in self.available_themes:
            self.register_theme(found.textual)
        self.theme = found.textual.name
        if keep:
            self.state.keep("theme", name)
            self.refresh(layout=True)
